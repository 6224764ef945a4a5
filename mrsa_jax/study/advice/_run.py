"""Choose a scheme from settings, or from Python, and save the advice."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mrsa_jax import privacy
from mrsa_jax.federated import ConvexConstants
from mrsa_jax.study._progress import Progress, note, steps
from mrsa_jax.study.advice._advice import Advice, Demands, choose, mark_best
from mrsa_jax.study.advice._log import Measured, Rate, measure_log
from mrsa_jax.study.advice._options import (
    POLICIES,
    Candidate,
    Judge,
    Option,
    Setting,
    candidates,
    next_divisor,
)
from mrsa_jax.study.advice._rounds import prices_in_rounds
from mrsa_jax.study.publishing._plots import advice_charts, save_charts
from mrsa_jax.study.runs import _run as commands
from mrsa_jax.study.settings._commands import AdviseConfig, check_cohort
from mrsa_jax.study.stores import _store
from mrsa_jax.study.stores._files import write_json, write_rows
from mrsa_watch._base.errors import check_known, require

_STRESS = 0.2  # chance to be lost inside a round, for the comparison of policies
_ENTRIES = 4_000_000  # rounds x clients x trials of a scheme, about
_MOST_ENTRIES = 50_000_000  # rounds x clients that are simulated without being asked to
_MOST_TRIALS = 10
# rounds x clients from which on only the best schemes are simulated
_FEW_ENTRIES = 1_000_000
_MOST_LINES, _MOST_PLAYED = 2, 3  # families of lines, each a separate program; schemes


def check(config: AdviseConfig) -> None:
    """Reject nothing more: the needs depend on the log."""


def run(config: AdviseConfig, progress: Progress) -> Advice:
    """Evaluate every candidate scheme, and choose."""
    measured = None
    if config.log is not None:
        note(progress, f"reading {config.log}")
        measured = measure_log(config.log, **config.columns)
    setting = _setting(config, measured)
    demands = _demands(config, setting)
    judge = Judge(setting)
    wanted = max(config.want_privacy or 0, demands.block or 0) or None
    every = candidates(setting, wanted, config.schemes)
    options_of = {
        candidate: judge.option(
            candidate, judge.best_policy(candidate), setting.loss_rate
        )
        for candidate in every
    }
    if setting.trials:
        _play(judge, options_of, demands, config.schemes, progress)
    pairs = sorted(
        options_of.items(), key=lambda pair: (pair[1].weak_lower, pair[1].hidden_worst)
    )
    options = mark_best(option for _, option in pairs)
    chosen = choose(options, demands)
    policies: tuple[Option, ...] = ()
    loss = setting.loss_rate or _STRESS
    if chosen is not None and chosen.block_size > 1 and chosen.weak_lower > 1:
        policies = _policies(judge, pairs[options.index(chosen)][0], loss, progress)
    constants = _constants(config)
    prices = prices_in_rounds(setting, options, constants, config.local_steps)
    return Advice(setting, demands, options, chosen, policies, loss, measured, prices)


def _constants(config: AdviseConfig) -> ConvexConstants | None:
    """Return the constants of Theorem 2, whose Gamma is the least loss above 0."""
    if not config.convergence:
        return None
    rho, mu, variance, gradient, distance, heterogeneity = config.convergence
    return ConvexConstants(rho, mu, variance, gradient, distance, minimum=heterogeneity)


def _demands(config: AdviseConfig, setting: Setting) -> Demands:
    """Return the requirements; a bound on tests of clients becomes one on blocks."""
    auc, advantage = config.max_auc, config.max_advantage
    least: int | None = None
    block: int | None = None
    if auc is not None or advantage is not None:
        least = privacy.smallest_target(
            config.prevalence, max_auc=auc or 1.0, max_advantage=advantage or 1.0
        )
        name = "max_advantage" if auc is None else "max_auc"
        rule = "must be met by some T up to 2**20"
        require(least is not None, name, rule, getattr(config, name))
        assert least is not None
        block = next_divisor(setting.num_clients, setting.cohort_size, least) or least
    return Demands(
        config.want_privacy,
        config.want_hidden,
        config.min_cardinality,
        block=block,
        least_block=least,
        max_auc=auc,
        max_advantage=advantage,
        prevalence=config.prevalence,
    )


def _setting(config: AdviseConfig, measured: Measured | None) -> Setting:
    """Return the setting, where a flag takes precedence over a measured value."""
    clients, cohort = config.num_clients, config.cohort_size
    rates, loss = config.dropout_rate, config.loss_rate
    if measured is not None:
        seen = measured.num_clients
        rule = f"must be at least {seen}, the clients in the log"
        require(clients is None or clients >= seen, "num_clients", rule, clients)
        clients = clients or seen
        cohort = cohort or measured.cohort_size
        rates = rates or (_measured(measured.before, "before"),)
        loss = _measured(measured.inside, "inside") if loss is None else loss
    # for the type checker: without a log they are set
    assert clients is not None
    assert cohort is not None
    check_cohort(clients, cohort)
    trials, entries = config.trials, config.rounds * clients
    if trials is None:
        trials = int(np.clip(_ENTRIES // entries, 2, _MOST_TRIALS))
        trials = 0 if entries > _MOST_ENTRIES else trials
    return Setting(
        num_clients=clients,
        cohort_size=cohort,
        dropout_rates=tuple(rates),
        loss_rate=loss or 0.0,
        availability=config.availability,
        rounds=config.rounds,
        trials=trials,
        seed=config.seed,
        memory=config.memory,
        share=config.share,
    )


def _measured(rate: Rate | None, where: str) -> float:
    if rate is None:
        return 0.0
    rule = f"must be of a log in which not everybody is lost {where} rounds"
    require(rate.rate < 1, "log", rule, f"{rate.count} of {rate.total}")
    return rate.rate


def _play(
    judge: Judge,
    options_of: dict[Candidate, Option],
    demands: Demands,
    named: tuple[str, ...],
    progress: Progress,
) -> None:
    """Simulate options: of a large population only the likely choices."""
    options = dict(zip(options_of, mark_best(options_of.values()), strict=True))
    likely = choose(options.values(), demands)
    random, *_ = options_of

    def rank(candidate: Candidate) -> tuple[bool, ...]:
        option = options[candidate]
        return candidate != random, option != likely, not option.is_best

    setting = judge.setting
    is_large = setting.rounds * setting.num_clients > _FEW_ENTRIES
    taken: list[Candidate] = []
    lines = 0
    for candidate in sorted(options_of, key=rank):
        is_lines = hasattr(judge.built(candidate)[0], "members")
        lines += is_lines
        is_needed = (
            np.isnan(options_of[candidate].cardinality)
            or candidate.scheme.written in named
        )
        # each family of lines is another program
        is_much = is_lines and lines > _MOST_LINES
        if is_needed or not (is_much or (is_large and len(taken) >= _MOST_PLAYED)):
            taken.append(candidate)
    for candidate in steps(progress, "schemes", taken):
        option = options_of[candidate]
        options_of[candidate] = judge.played(candidate, option, setting.loss_rate)


def _policies(
    judge: Judge, candidate: Candidate, loss: float, progress: Progress
) -> tuple[Option, ...]:
    """Return a scheme under each policy for blocks that lose a member."""
    options = {policy: judge.option(candidate, policy, loss) for policy in POLICIES}
    # the others keep their promise, and their sums are known
    if judge.setting.trials:
        progress.stage("blocks that lose a member", 1)
        options["ignore"] = judge.played(candidate, options["ignore"], loss)
        progress.update(1, 1)
    return tuple(options.values())


def run_and_save(
    config: AdviseConfig, progress: Progress, show: Callable[[Advice], None]
) -> Advice:
    """Choose, and write JSON, table and figure if a folder is asked for."""
    with _store.folder_if_asked(config) as folder:
        advice = run(config, progress)
        show(advice)  # before it is saved, which may fail
        if folder is not None:
            content = advice.content
            write_json(folder.path / "advice.json", content)
            rows = [_flat(option) for option in content["options"]]
            write_rows(folder.path / "options.csv", rows)
            save_charts(advice_charts(content["options"]), folder.path)
    return advice


def _flat(option: dict[str, Any]) -> dict[str, Any]:
    """Return an option as one row, with columns for its simulation and intervals."""
    row: dict[str, Any] = {}
    for name, value in option.items():
        if isinstance(value, dict):
            row |= _flat({f"played_{key}": item for key, item in value.items()})
        elif isinstance(value, list):
            row[f"{name}_lower"], row[f"{name}_upper"] = value
        else:
            row[name] = value
    return row


def advise(
    num_clients: int | None = None,
    cohort_size: int | None = None,
    dropout_rate: float | int | Sequence[float | int] | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Advice:
    """Choose a selection scheme and its T for a population, or by a system's log.

    It judges random selection, and batch and crossing partitions for each T that fits;
    reports for each what it keeps for any number of rounds, the mean clients per round
    (exactly where that is known), and what simulated rounds leave of privacy and
    fairness; and takes the one that gives what is demanded with the fullest sums.
    Without demands it takes the one that hides clients best among those whose mean
    clients per round are at least 0.8 of that of random selection. Where T does not
    divide N and K, the nearest smaller sizes stand in for them.

    Args:
        num_clients: N.
        cohort_size: K.
        dropout_rate: Chance to be away when a round begins, in [0, 1); several are
            spread evenly over the clients.
        progress: Receives how far it is.
        **settings: Others of `AdviseConfig`, among them `log`, a file of any format
            that `privacy.read_log` reads, in which all of the above are measured;
            `loss_rate`, the chance to be lost inside a round; `want_privacy`,
            `want_hidden`, `min_cardinality`; `max_auc` or `max_advantage` of any test
            of a property that a fraction `prevalence` of the clients has, which give
            the least T of blocks that meets them (`privacy.attribute_bound`).

    Returns:
        What each scheme gives and which to take: printable, a table in notebooks, with
        `.chosen`, `.options`, `.policies` (what becomes of it when blocks lose members)
        and `.to_dict()`.

    Raises:
        ConfigurationError: If a setting breaks a rule or is unknown, or the log is
            malformed.
        DataNotFoundError: If there is no such log.

    Examples:
        >>> import mrsa_jax as mj
        >>> found = mj.study.advise(12, 4, 0.3, trials=0)
        >>> found.chosen.scheme, round(found.chosen.cardinality, 2)
        ('batch_partitioning:2', 3.52)
        >>> mj.study.advise(12, 4, 0.3, trials=0, want_privacy=4).chosen.scheme
        'partition'

    Cost: the exact figures are sums over blocks; simulated are 300 rounds of 120
    clients in seconds, of 10,000 in a minute, and `trials=0` leaves them out.

    Source: Multi-RoundSecAgg, Theorem 1, for the sizes; what losses inside rounds do,
    and the choice, are this package's.
    """
    names = [field.name for field in dataclasses.fields(AdviseConfig)]
    for name in settings:
        check_known(name, name, names, "a known setting")
    rates: Any = () if dropout_rate is None else dropout_rate
    if not isinstance(rates, Sequence):
        rates = (rates,)
    if isinstance(settings.get("log"), str):
        settings["log"] = pathlib.Path(settings["log"])
    config = AdviseConfig(
        num_clients=num_clients,
        cohort_size=cohort_size,
        dropout_rate=tuple(rates),
        **settings,
    )
    advice: Advice = commands.run(config, progress)
    return advice
