"""Each client's update, from the sums of many rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_jax import attacks, data, federated, privacy, quantize, secagg
from mrsa_jax._core.arrays import as_integers
from mrsa_jax._core.batches import at_once
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._recorded import (
    RecordedRun,
    history_of_sums,
    noise_of,
    settings_of,
)
from mrsa_jax.study.attack._stage import rows_of
from mrsa_jax.study.attacks_on_sums import LeastSquaresConfig
from mrsa_jax.study.publishing._summary import attained_word, attained_words
from mrsa_jax.study.runs import _build
from mrsa_jax.study.settings._parts import build
from mrsa_watch._base.errors import require

_LEVELS, _CLIP = 2**16, 1.0
# an update is called recovered below this error, as in Multi-RoundSecAgg's Fig. 9
FOUND = 0.05
_SLIGHT = 1e-4  # noise in a sum that no prediction heeds, relative to an update
_OWN = 1e-6  # variance of a client that no other shares, relative to the mean
# a prediction further from what is attained than this is called none
_NEAR_SHARE, _NEAR_CLIENTS = 0.05, 0.9
_NOT_PREDICTED = (
    ": not predicted, because updates change in other ways than a memory and a share"
)


@dataclasses.dataclass(frozen=True, eq=False)
class _Sums:
    """Sums to solve, and the truth if it is known."""

    label: str
    participation: np.ndarray
    aggregates: np.ndarray
    truth: np.ndarray | None
    change: np.ndarray | None = None
    parameters: np.ndarray | None = None
    """The model after the last round, where its training was repeated."""
    sum_noise: float = 0.0
    """Standard deviation of noise and rounding in an entry of a sum."""

    @classmethod
    def of(cls, label: str, summed: Any, memory: float | None) -> _Sums:
        # with a memory the attack estimates the update of the last round
        truth = summed.sent if memory is None else summed.last
        return cls(
            label,
            summed.view.participation,
            summed.view.aggregates,
            truth,
            summed.change,
            summed.parameters,
            summed.sum_noise,
        )

    def noise_ratio(self) -> float:
        """Return the variance of a sum's noise, over an update's mean squared entry.

        It is 0 if it is too small for predictions to heed, as plain rounding is.
        """
        if self.sum_noise == 0.0:
            return 0.0
        # unknown to whoever gives sums without updates
        sent = np.nan if self.truth is None else np.square(self.truth[self._members])
        ratio = self.sum_noise**2 / max(float(np.mean(sent)), 1e-300)
        return 0.0 if ratio < _SLIGHT else ratio

    @property
    def _members(self) -> np.ndarray:
        return np.asarray(np.asarray(self.participation).astype(bool).any(axis=0))


def run(config: LeastSquaresConfig, report: AttackFindings, progress: Progress) -> None:
    """Attack simulated rounds, a run that is stored, or the sums in a user's files."""
    report.title = "Least squares: each client's update from the sums"
    attack = attacks.least_squares_attack(
        ridge=config.ridge,
        noise=config.noise,
        prior=config.prior,
        memory=config.memory,
        share=config.share,
    )
    ratios = []
    for sums in _attacked(config, progress):
        ratios.append(_score_sums(config, report, attack, sums))
    report.sentences += _least_squares_words(config, report, ratios)


def _attacked(config: LeastSquaresConfig, progress: Progress) -> Iterator[_Sums]:
    """Go through what is attacked: a user's files, a run, or simulated rounds."""
    if config.aggregates is not None:
        yield _from_files(config)
    elif config.run is not None:
        run = RecordedRun.read(config.run)
        summed = run.summed(progress, config.window)
        yield _Sums.of(run.label, summed, config.memory)
    else:
        scene = _build.build_clients(config.seed, config, config.num_clients)
        rounds = config.warm_up + config.rounds
        for label, history in config.histories(rounds, scene[1]):
            yield _simulated(config, scene, label, history, progress)


def is_single(config: LeastSquaresConfig) -> bool:
    """Return whether one history is attacked, so that its estimates are kept."""
    is_read = config.aggregates is not None or config.run is not None
    return is_read or len(config.schemes) == 1


def _simulated(
    config: LeastSquaresConfig,
    scene: tuple[data.Dataset, data.ClientData],
    label: str,
    history: np.ndarray,
    progress: Progress,
) -> _Sums:
    dataset, clients = scene
    model = build("model", config.model, dataset.num_classes)
    shape = dataset.train_inputs.shape[1:]
    start, trainer = _stage.start_and_trainer(
        config, model, shape, config.batch_size, config.clip_norm
    )
    # a ring as large as the largest sum needs
    width = max(2, int(history.sum(axis=1).max(initial=2)))
    quantizer = quantize.stochastic(_LEVELS, _CLIP)
    aggregator = secagg.ring_average(quantizer, width, len(start), fidelity="sets")
    progress.stage(f"{label}: training", int(history.any(axis=1).sum()))
    summed = attacks.summed_rounds(
        config.seed,
        model,
        start,
        clients,
        history,
        trainer=trainer,
        aggregator=aggregator,
        is_frozen=config.frozen,
        warm_up=config.warm_up,
        rate_schedule=_build.build_rate_schedule(config),
        progress=progress.update,
    )
    return _Sums.of(label, summed, config.memory)


def _from_files(config: LeastSquaresConfig) -> _Sums:
    assert config.aggregates is not None
    sums = _stage.read_array(config.aggregates, "aggregates")
    noise = 0.0
    if config.run is not None:
        history, noise = history_of_sums(config.run), noise_of(config.run)
        # sums may be given with or without rounds that have none
        learnt = history[history.any(axis=1)]
        history = history if len(sums) == len(history) else learnt
    else:
        assert config.participation is not None
        history = _stage.read_array(config.participation, "participation")
    truth = (
        None if config.updates is None else _stage.read_array(config.updates, "updates")
    )
    return _Sums(config.aggregates.name, history, sums, truth, sum_noise=noise)


def _score_sums(
    config: LeastSquaresConfig,
    report: AttackFindings,
    attack: attacks.LeastSquares,
    sums: _Sums,
) -> float:
    """Solve one system, add its rows to the report, and return its noise ratio."""
    history, values = sums.participation, sums.aggregates
    history = np.asarray(as_integers(history, "participation", min_ndim=1))
    rule = "must be [rounds, clients]"
    require(
        history.ndim == 2 and history.size > 0, "participation", rule, history.shape
    )
    rule = "must be [rounds, d], with a row for each row of `participation`"
    fits = values.ndim == 2 and len(values) == len(history)
    require(fits, "aggregates", rule, values.shape, history.shape)
    if sums.truth is not None:
        rule, shape = "must be [clients, d]", (history.shape[1], values.shape[1])
        require(sums.truth.shape == shape, "updates", rule, sums.truth.shape, shape)
    if config.window is not None:
        rule = "must be no longer than the history"
        require(
            config.window <= len(history), "window", rule, config.window, len(history)
        )
        # after the checks: they speak of the history as it was given
        history, values = history[-config.window :], values[-config.window :]
    if config.memory is not None and config.prior == "mean":
        sums, values = _about_the_mean(sums, history, values)
    exposed = np.asarray(privacy.first_exposure(history))
    predicted = attacks.predicted_error(
        history, noise=config.noise, memory=config.memory, share=config.share
    )
    ratio = sums.noise_ratio()
    if ratio > 0:
        # an estimate is a matrix times the sums, whose noise is independent
        predicted += ratio * np.square(attack.estimator(history)).sum(axis=1)
    error = np.full(history.shape[1], np.nan)
    if sums.truth is not None:
        error = attacks.streamed_errors(history, values, sums.truth, attack=attack)
        error[np.asarray(history).any(axis=0) == 0] = np.nan  # nothing was sent
    if is_single(config):
        _estimate(report, attack, history, values)
        if sums.parameters is not None:
            report.arrays["model"] = sums.parameters
    counts = np.asarray(history).astype(bool).sum(axis=0)
    report.scores += rows_of(
        scheme=sums.label,
        client=np.arange(history.shape[1]),
        sums=counts,
        **({} if sums.truth is None else {"error": error}),
        predicted_error=predicted,
        **_unlike(config, sums, history, values),
        # counted from 1, as whatever is printed
        exposed_in_sum=np.where(exposed >= 0, exposed + 1, None),  # type: ignore[call-overload]
    )
    report.summary.append(_sums_summary(sums, history, error, predicted, exposed))
    return ratio


def _unlike(
    config: LeastSquaresConfig, sums: _Sums, history: np.ndarray, values: np.ndarray
) -> dict[str, np.ndarray]:
    """Predict errors if the server knows the clients' sizes and resemblance.

    The last of them is also attained, by the best linear estimate of such a server.
    """
    is_plain = config.noise == config.ridge == 0
    took_part = np.atleast_1d(np.asarray(history).astype(bool).any(axis=0))
    if sums.truth is None or not is_plain or took_part.sum() < 2:
        return {}
    members = np.asarray(history)[:, took_part]
    gram, ratio = _covariance(sums.truth, took_part), sums.noise_ratio()
    errors = {}
    for name, covariance in (
        ("predicted_sizes", np.diag(np.diagonal(gram))),
        ("predicted_resemblance", gram),
    ):
        attack = attacks.least_squares_attack(
            memory=config.memory, share=config.share, covariance=covariance
        )
        hidden = privacy.hidden_among(
            members,
            memory=1.0 if config.memory is None else config.memory,
            share=config.share,
            covariance=covariance,
        )
        # a client hidden among h is estimated with a relative error of 1 - 1/h
        errors[name] = 1 - 1 / np.asarray(hidden)
        if ratio > 0:
            # it takes sums for exact: their noise comes through its matrix
            noise = ratio * np.square(attack.estimator(members)).sum(axis=1)
            errors[name] += noise / np.diagonal(covariance)
    centred, differences = _about_the_mean(sums, history, values)
    assert centred.truth is not None
    errors["error_resemblance"] = attacks.streamed_errors(
        members,
        differences,
        centred.truth[took_part],
        attack=attack,
    )
    spread = {name: np.full(len(took_part), np.nan) for name in errors}
    for name, known in errors.items():
        spread[name][took_part] = known
    return spread


def _covariance(truth: np.ndarray, took_part: np.ndarray) -> np.ndarray:
    """Measure the covariance of the updates of clients that took part.

    Its mean variance is 1.
    """
    gram = np.zeros((took_part.sum(),) * 2)
    # columns in pieces: float64 copies of all updates may not fit
    width = at_once("columns", 8 * 8 * len(gram))
    for start in range(0, truth.shape[1], width):
        piece = truth[took_part, start : start + width][None]
        members = np.arange(len(gram))[None]
        drift = federated.measure_drift(piece, members, resemblance=True)
        # `resemblance` is a mean over the coordinates of a piece
        gram += np.asarray(drift.resemblance) * piece.shape[2]
    gram *= len(gram) / max(gram.trace(), 1e-300)
    # centred updates add up to zero, so C is singular: a small separate part for each
    return gram + np.eye(len(gram)) * _OWN


def _about_the_mean(
    sums: _Sums, history: np.ndarray, values: np.ndarray
) -> tuple[_Sums, np.ndarray]:
    """Subtract the mean update from truth and sums, so that errors leave it out."""
    counts = np.asarray(history).astype(np.float64).sum(axis=1)
    # the mean update of all participations, as a server can compute it
    mean = values.sum(axis=0) / max(counts.sum(), 1.0)
    truth = None if sums.truth is None else sums.truth - mean
    return dataclasses.replace(sums, truth=truth), values - counts[:, None] * mean


def _estimate(
    report: AttackFindings,
    attack: attacks.LeastSquares,
    history: np.ndarray,
    values: np.ndarray,
) -> None:
    """Keep the estimates themselves.

    In the folder, if there is one, without holding them.
    """
    if report.folder is None:
        report.arrays["estimates"] = attack.estimates(history, values)
        return
    # estimates are as large as all updates: the file is filled piece by piece
    path = report.folder / "estimates.npy"
    shape = (history.shape[1], values.shape[1])
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
    attack.estimates(history, values, out=out)
    out.flush()


def _sums_summary(
    sums: _Sums,
    history: np.ndarray,
    error: np.ndarray,
    predicted: np.ndarray,
    exposed: np.ndarray,
) -> dict[str, Any]:
    took_part = np.asarray(history).astype(bool).any(axis=0)
    row: dict[str, Any] = {
        "scheme": sums.label,
        "sums": len(history),
        "clients": int(took_part.sum()),
        "strong_T": privacy.strong_privacy(history),
        "exposed": int((exposed >= 0).sum()),
        "predicted_error": float(predicted[took_part].mean())
        if took_part.any()
        else None,
    }
    if sums.truth is not None:
        finite = error[np.isfinite(error)]
        row["mean_error"] = float(finite.mean()) if len(finite) else None
        row["median_error"] = float(np.median(finite)) if len(finite) else None
        row["least_error"] = float(finite.min()) if len(finite) else None
        row["recovered"] = int((finite < FOUND).sum())
    if sums.change is not None:
        row["change"] = float(np.nanmedian(sums.change))
    return row


def _least_squares_words(
    config: LeastSquaresConfig, report: AttackFindings, ratios: list[float]
) -> list[str]:
    words, frozen = [], " if updates never changed" * config.frozen
    is_drifting = config.memory is not None
    alike = f"unrelated updates that {'drift so' if is_drifting else 'never change'}"
    for row, ratio in zip(report.summary, ratios, strict=True):
        start = (
            f"{row['scheme']}: {row['exposed']} of {row['clients']} clients are "
            f"exposed{' apart from the noise in the sums' * (ratio != 0)}, "
        )
        expected = alike + " with this noise" * (ratio > 0)
        expected += " in sums without noise" * math.isnan(ratio)
        predicted = _digits(row["predicted_error"])
        # what exposes a client tells its updates only if these never change
        if is_drifting:
            start, mates = f"{row['scheme']}: ", row["strong_T"]
            if mates > 1:
                predicted += f"; with T = {mates} at least {1 - 1 / mates:.3g}"
        if "recovered" in row:
            words.append(
                f"{start}{row['recovered']} recovered with an error below {FOUND:g}; "
                "mean error "
                f"{_digits(row['mean_error'])}{frozen} (expected of {expected}: "
                f"{predicted})."
                f"{_quantiles(row, report)}"
            )
        else:
            words.append(
                f"{start}the mean error of the estimates in estimates.npy is about "
                f"{predicted}, "
                f"of {expected}."
            )
    return words


def _quantiles(row: dict[str, Any], report: AttackFindings) -> str:
    """Describe the knowledge of single clients: attained, and for alike clients."""
    rows = [score for score in report.scores if score["scheme"] == row["scheme"]]
    errors = [score["error"] for score in rows if np.isfinite(score["error"])]
    if not errors:
        return ""
    attained = np.quantile(errors, (0.0, 0.1, 0.5)).tolist()
    words = f" Attained, in the unit of hidden among: {attained_words(*attained)}"
    predictions = {
        name: [score[name] for score in rows if score["sums"] and name in score]
        for name in ("predicted_error", "predicted_sizes", "predicted_resemblance")
    }
    if min(predictions["predicted_error"]) == 0.0:  # of a client that is exposed
        return f"{words}."
    parts = [
        f"{who}: the worst {attained_word(min(errors))}, the median "
        f"{attained_word(float(np.median(errors)))}"
        for who, errors in zip(
            (
                "for clients that are alike",
                "if the server knows the lengths of all updates",
                "if it also knows which clients resemble each other",
            ),
            predictions.values(),
            strict=True,
        )
        if errors and np.isfinite(errors).all()
    ]
    return f"{words}; computed {'; '.join(parts)}.{_attained_by_knowing(rows)}"


def _attained_by_knowing(rows: list[dict[str, Any]]) -> str:
    """Compare the error of a server that knows C with its prediction, by client."""
    names = ("predicted_resemblance", "error_resemblance")
    members = [row for row in rows if row["sums"] and names[0] in row]
    explained = np.asarray([[1 - row[name] for row in members] for name in names])
    if not members or not np.isfinite(explained).all():
        return ""
    predicted, attained = explained
    gaps = (
        abs(predicted.mean() - attained.mean()),
        abs(predicted.max() - attained.max()),
    )
    is_varied = predicted.std() > 0 and attained.std() > 0
    agreement = np.corrcoef(predicted, attained)[0, 1] if is_varied else 1.0
    is_near = max(gaps) <= _NEAR_SHARE and agreement >= _NEAR_CLIENTS
    return (
        " The estimate of a server that knows all of this attains "
        f"{attained.mean():.2f} of an update's variance in the mean and "
        f"{attained.max():.2f} of the worst client's; predicted: "
        f"{predicted.mean():.2f} and {predicted.max():.2f}, correlation over clients "
        f"{agreement:.2f}{'' if is_near else _NOT_PREDICTED}."
    )


def _digits(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def arrays(config: Any) -> int:
    """Return the arrays of least squares.

    Sums and moments of what was sent are float64.
    """
    population, rounds, is_frozen, files = config, config.rounds, config.frozen, 0
    if config.run is not None:
        trained = settings_of(config.run)
        pool, shape, classes = _stage.data_of(
            trained.data.dataset, trained.data.directory, trained.seed
        )
        dim = _stage.dim_of(trained.training.model, shape, classes)
        # a stored run keeps its own sizes, and no flag freezes its model
        population, is_frozen = trained.population, False
        rounds = min(trained.rounds, config.window or trained.rounds)
        files = _stage.sizes_of(config.updates)
    elif config.aggregates is not None:
        # read in pieces where it is an .npy; pages count as read
        n = 0
        if config.participation is not None:
            n = _stage.shape_of(config, "participation")[-1]
        d = _stage.shape_of(config, "aggregates")[-1]
        return _stage.sizes_of(config.aggregates, config.updates) + 8 * n * d
    else:
        pool, dim, _ = _stage.model_sizes(config)
    n, k = population.num_clients, population.cohort_size
    sums = 2 * 8 * rounds * dim  # one by one, and stacked
    moments = 3 * 8 * n * dim  # total, mean, and the squares of one of them
    moments += 8 * n * dim * is_single(config)  # estimates that are kept
    in_training = 4 * dim * (2 * n * is_frozen + _stage.IN_A_ROUND * k)
    return pool + files + sums + moments + in_training
