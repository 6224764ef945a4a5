"""Recover the members of each sum from each client's number of participations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_jax import attacks
from mrsa_jax._core.streams import Stream
from mrsa_jax.attacks.views import CountView
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._least_squares import FOUND
from mrsa_jax.study.attack._recorded import RecordedRun, bytes_to_repeat, settings_of
from mrsa_jax.study.attack._stage import rows_of
from mrsa_jax.study.attacks_on_sums import DisaggregationConfig
from mrsa_watch._base.errors import require

# a history to recover: its label, what is seen, who took part and their updates where
# known
_Case = tuple[str, CountView, np.ndarray | None, np.ndarray | None]


def run(
    config: DisaggregationConfig, report: AttackFindings, progress: Progress
) -> None:
    """Attack simulated rounds, or the sums and counts in a user's files."""
    report.title = (
        "Disaggregation: who was in each sum, from the sums and how often each took "
        "part"
    )
    for case in _cases(config, progress):
        _score_columns(config, report, progress, case)
    report.sentences += [
        f"{row['scheme']}: who was in which sum is right for {row['columns_right']} of "
        f"{row['clients']} clients; {row['shared']} of them move together with another "
        "and can "
        "only be recovered as one."
        for row in report.summary
        if "columns_right" in row
    ]


def _cases(config: DisaggregationConfig, progress: Progress) -> Iterator[_Case]:
    """Go through what is attacked.

    A recorded run, the user's files, or simulated rounds of each scheme.
    """
    if config.run is not None:
        run = RecordedRun.read(config.run)
        summed = run.summed(progress)
        history, sums = summed.view.participation, summed.view.aggregates
        view = _count_view(sums, history, _lengths(len(history), config.interval))
        yield run.label, view, history, summed.sent
        return
    if config.aggregates is not None:
        yield config.aggregates.name, *_counted_files(config), None
        return
    for label, history in config.histories(config.rounds):
        generator = np.random.default_rng([config.seed, 0xD15A])
        updates = generator.normal(size=(config.num_clients, config.dim))
        sums = history @ updates
        if config.drift > 0:  # each sum carries the changes of its clients
            fresh = generator.normal(size=sums.shape)
            sums += config.drift * np.sqrt(history.sum(axis=1))[:, None] * fresh
        view = _count_view(sums, history, _lengths(len(history), config.interval))
        yield label, view, history, updates


def _lengths(rounds: int, interval: int) -> np.ndarray:
    """Cut rounds into intervals; the last may be shorter."""
    whole, rest = divmod(rounds, interval)
    return np.array([interval] * whole + [rest] * (rest > 0))


def _count_view(sums: Any, history: np.ndarray, lengths: np.ndarray) -> CountView:
    rule = "must add up to the rounds of `participation`"
    require(
        int(lengths.sum()) == len(history), "interval_lengths", rule, int(lengths.sum())
    )
    # the first round of each interval
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    counts = np.add.reduceat(
        np.asarray(history).astype(bool).astype(np.int64), starts, axis=0
    )
    return CountView(sums, counts, lengths)


def _counted_files(config: DisaggregationConfig) -> tuple[CountView, np.ndarray | None]:
    assert config.aggregates is not None
    sums = _stage.read_array(config.aggregates, "aggregates")
    truth = None
    if config.participation is not None:
        truth = _stage.read_array(config.participation, "participation")
        rule = "must have a row for each row of --aggregates"
        fits = truth.ndim == 2 and len(truth) == len(sums)
        require(fits, "participation", rule, truth.shape, sums.shape)
    if config.counts is None:
        assert truth is not None
        lengths = np.array(
            config.interval_lengths or _lengths(len(sums), config.interval)
        )
        return _count_view(sums, truth, lengths), truth
    counts = _stage.read_array(config.counts, "counts")
    require(counts.ndim == 2, "counts", "must be [intervals, clients]", counts.shape)
    if truth is not None:
        rule = "must have a column for each client of --counts"
        fits = truth.shape[1] == counts.shape[1]
        require(fits, "participation", rule, truth.shape, counts.shape)
    if config.interval_lengths:
        lengths = np.array(config.interval_lengths)
    else:
        rule = "must be given where the rounds do not divide into equal intervals"
        is_even = len(counts) > 0 and len(sums) % len(counts) == 0
        require(is_even, "interval_lengths", rule, len(sums), len(counts))
        lengths = np.full(len(counts), len(sums) // len(counts))
    return CountView(sums, counts, lengths), truth


def _score_columns(
    config: DisaggregationConfig,
    report: AttackFindings,
    progress: Progress,
    case: _Case,
) -> None:
    """Recover one participation matrix, and add its rows to the report."""
    label, view, truth, updates = case
    attack = attacks.disaggregation(restarts=config.restarts, seconds=config.seconds)
    num_groups = len(np.unique(np.asarray(view.counts), axis=1).T)
    progress.stage(f"{label}: columns", num_groups)
    recovered = attack.run(_stage.stream(config, Stream.ATTACK), view, progress.update)
    report.arrays[f"participation_{len(report.summary)}"] = recovered.participation
    report.arrays[f"estimates_{len(report.summary)}"] = recovered.estimates
    row: dict[str, Any] = {
        "scheme": label,
        "sums": len(recovered.participation),
        "clients": len(recovered.group),
        "rank": recovered.rank,
        "explained": int(recovered.is_explained.sum()),
        "shared": int(recovered.is_shared.sum()),
    }
    right = error = None
    if truth is not None:
        # clients of equal counts are matched to the columns that are theirs
        columns, estimates = _matched(recovered, truth)
        right = np.asarray((columns == np.asarray(truth).astype(bool)).all(axis=0))
        row["columns_right"] = int(right.sum())
    if updates is not None and right is not None:
        error = attacks.reconstruction_error(updates, estimates)
        row["mean_error"] = float(np.nanmean(error))
        row["recovered"] = int((error < FOUND).sum())
    report.summary.append(row)
    truths = {"right": right, "error": error}
    report.scores += rows_of(
        scheme=label,
        client=np.arange(len(recovered.group)),
        sums=recovered.participation.sum(axis=0),
        group=recovered.group,
        residual=recovered.residual,
        explained=recovered.is_explained,
        shared=recovered.is_shared,
        **{name: values for name, values in truths.items() if values is not None},
    )


def _matched(recovered: Any, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and estimates; clients of equal counts in the true order."""
    from scipy.optimize import linear_sum_assignment

    real = np.asarray(truth).astype(bool)
    order = np.arange(real.shape[1])
    for number in np.unique(recovered.group):
        members = np.flatnonzero(recovered.group == number)
        differs = (
            recovered.participation[:, members].T[:, None] != real[:, members].T[None]
        )
        column, client = linear_sum_assignment(differs.sum(axis=2))
        order[members[client]] = members[column]
    return recovered.participation[:, order], recovered.estimates[order]


def arrays(config: Any) -> int:
    """Return the arrays of disaggregation."""
    repeated = 0
    if config.run is not None:
        run = settings_of(config.run)
        repeated, dim, _ = bytes_to_repeat(config.run)
        rounds, n = run.rounds, run.population.num_clients
        is_simulated, schemes = False, 1
    elif config.aggregates is not None:
        rounds, dim = _stage.shape_of(config, "aggregates")
        who = "counts" if config.counts is not None else "participation"
        n, is_simulated, schemes = _stage.shape_of(config, who)[-1], False, 1
    else:
        rounds, dim, n = config.rounds, config.dim, config.num_clients
        is_simulated, schemes = True, len(config.schemes)
    # updates, estimates, these in the order of the truth, and their difference and its
    # square
    of_updates = (5 if is_simulated else 1) + (schemes - 1)
    of_sums = 1 + (2 if config.drift > 0 else 0)
    narrow = min(dim, 8 * rounds)
    # a singular value decomposition with all right vectors, and its work
    space = 3 * narrow**2 + 4 * rounds**2
    return repeated + 8 * (dim * (of_updates * n + of_sums * rounds) + space)
