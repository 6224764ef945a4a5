"""Attacks on the sums of many rounds, without JAX: settings, rules and rows."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Literal

from mrsa_jax._core import flags
from mrsa_jax.study._attack_rows import (
    FinitePositive,
    FromZero,
    OfRun,
    SumsOfRounds,
    Unread,
    plain,
    row,
)
from mrsa_jax.study.settings._config import AssignmentName, parse_scheme
from mrsa_jax.study.settings._tables import check_unset
from mrsa_jax.study.settings._training_tables import (
    DataConfig,
    DataSource,
    LocalSchedule,
    ModelName,
)
from mrsa_watch._base.errors import POSITIVE, check_blind, require

_Rates = Annotated[tuple[float, ...], flags.IS_INSIDE]
_Estimators = Annotated[
    tuple[Literal["joint", "prolin"], ...],
    flags.Cites(prolin="attribute inference: kerkouche2023client"),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeastSquaresConfig(OfRun, SumsOfRounds, DataConfig, LocalSchedule):
    """Solve the sums of many rounds for each client's update, as a server can.

    A server that keeps every sum and knows who was in it solves the linear system
    (Multi-RoundSecAgg, eq. (33) to (35)). Random selection exposes single clients;
    blocks of T leave only their sums.
      mrsa-jax attack least-squares --frozen
      mrsa-jax attack least-squares --schemes uniform batch_partitioning:2 --learning-rate 0.01
      mrsa-jax attack least-squares --run results/train --window 60
      mrsa-jax attack least-squares --warm-up 1460 --local-steps 1 --decay-rounds 400
      mrsa-jax attack least-squares --memory 0.99 --share 0.4 --prior mean
      mrsa-jax attack least-squares --aggregates sums.npy --participation who.npy
    """

    out: pathlib.Path = pathlib.Path("results/attack/least_squares")
    rounds: flags.Whole = 80
    """Rounds whose sums the server keeps."""
    warm_up: flags.Natural = 40
    """Rounds before these: the longer the training, the less the updates change."""
    frozen: bool = False
    """Worst case: the model does not move, so each client sends the same update again.
    """
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list); idx, cifar and att read files of
    --directory."""
    assignment: AssignmentName = "shuffled"  # type: ignore[assignment]
    """How the rates are spread over the clients: shuffled by the seed, cyclic, sorted
    (equal ones together), or by_label."""
    model: ModelName = "logistic"
    """Model that they train."""
    learning_rate: FinitePositive = 0.01
    """Step size of their SGD; with a smaller one, the updates change less."""
    batch_size: flags.Whole = 10
    """Samples in a minibatch."""
    clip_norm: Annotated[
        flags.Number, flags.Within(POSITIVE, rule="must be finite and positive")
    ] = None
    """L2 norm to which each client clips its update, such as 0.5. Default: no clipping.
    """
    aggregates: flags.File = None
    """Attack your own sums instead: .npy or .npz of reals [rounds, d], sums and not
    means. Default: simulated rounds."""
    participation: flags.File = None
    """Members of each of these sums: .npy or .npz of booleans or integer weights
    [rounds, N]. It is required with --aggregates. Default: not used."""
    updates: flags.File = None
    """True updates of the clients [N, d], to score the estimates. Default: your own
    sums are not scored."""
    window: Annotated[flags.Count, flags.Within(1)] = None
    """Use only this many sums, the latest. Default: all."""
    prior: Literal["zero", "mean"] = "zero"
    """Estimate of the part of an update that the sums do not determine: zero, or the
    mean update."""
    ridge: FromZero = 0.0
    """Penalty on the length of the estimates; 0 for the pseudo-inverse."""
    noise: Annotated[FromZero, flags.shown(name="update-change")] = 0.0
    """How much an update changes from sum to sum, relative to its deviation, for the
    best linear estimate; 0: not at all."""
    memory: Annotated[float | None, flags.Within(0.0, 1 - 1e-6), flags.shown("RHO")] = (
        None
    )
    """Estimate what each client sent last, if updates drift with this correlation per
    sum, such as 0.99. With --prior mean, the error is that of the difference from the
    mean update. Default: updates do not drift."""
    share: Annotated[float, flags.IS_CHANCE, flags.shown("A")] = 1.0
    """Fraction of an update's variance that has this memory; the rest is new in each
    sum."""


def _check_least_squares(config: LeastSquaresConfig) -> None:
    require(
        config.ridge == 0 or config.noise == 0,
        "noise",
        "must be 0 with --ridge",
        config.noise,
    )
    if config.memory is not None:
        alone = config.ridge == config.noise == 0 and not config.frozen
        rule = "cannot be combined with --ridge, --update-change or --frozen"
        require(alone, "memory", rule, config.memory)
    require(
        config.memory is not None or config.share == 1,
        "share",
        "must be given with --memory",
        config.share,
    )
    are_both = (config.aggregates is None) == (config.participation is None)
    if config.run is not None:
        rule = "must not be set with --run, whose store has it"
        require(
            config.participation is None,
            "participation",
            rule,
            str(config.participation),
        )
    else:
        rule = "must be given with --participation, and the other way round"
        require(
            are_both,
            "aggregates",
            rule,
            _name(config.aggregates),
            _name(config.participation),
        )
    is_known = config.updates is None or config.aggregates is not None
    require(
        is_known,
        "updates",
        "must not be set without --aggregates",
        _name(config.updates),
    )
    is_own = config.aggregates is not None or config.run is not None
    if config.window is not None and not is_own:
        rule = "must be no longer than --rounds"
        require(
            config.window <= config.rounds, "window", rule, config.window, config.rounds
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistinguishConfig(OfRun, SumsOfRounds, DataSource):
    """Tell from the sums whether a client's updates were shifted: the best test.

    Plays the likelihood ratio on rounds with a shift and without, and compares how
    often it is right with the formula of mrsa_jax.privacy.distinguishability. The
    server knows all but the others' updates: Gaussian ones, which do not change over
    rounds (where the formula is exact), or those of real training, whose spread and
    drift are measured.
      mrsa-jax attack distinguish
      mrsa-jax attack distinguish --others gaussian --shift 0.5 --noise-variance 2
      mrsa-jax attack distinguish --schemes batch_partitioning:2 batch_partitioning:4 --rounds 40
      mrsa-jax attack distinguish --others trained --learning-rate 2 --trainings 1000
      mrsa-jax attack distinguish --run results/train --others gaussian
    """

    out: pathlib.Path = pathlib.Path("results/attack/distinguish")
    others: tuple[Literal["gaussian", "trained"], ...] = ("gaussian", "trained")
    """Updates of the other clients: Gaussian numbers, the same in all rounds, or
    trained updates."""
    clients: tuple[Literal["worst", "median"], ...] = ("worst", "median")
    """Client whose updates are shifted: the one hidden among the fewest, or the median
    one."""
    rounds: flags.Whole = 12
    """Rounds whose sums the server keeps."""
    shift: FinitePositive = 1.0
    """Length of the shift, in standard deviations (spreads) of the others' updates
    along it."""
    noise: Annotated[FromZero, flags.shown(name="noise-variance")] = 0.0
    """Variance of each sum's noise along the shift, in squared spreads."""
    false_positive_rates: _Rates = (0.001, 0.01, 0.1, 0.5)
    """False positive rates at which the true positive rate is measured."""
    trials: flags.Whole = 20_000
    """Simulated histories without the shift, and the same number with it."""
    trainings: flags.Whole = 400
    """Trained histories without the shift, and the same number with the shift of each
    client."""
    warm_up: flags.Natural = 20
    """Training rounds before these, without a shift."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    model: ModelName = "logistic"
    """Model that they train."""
    client_size: flags.Several = 20
    """Samples of a client, drawn again in each training; one step over all of them is
    its update."""
    learning_rate: FinitePositive = 0.5
    """Length of this step; with a longer one, the updates change more from round to
    round."""


def _check_distinguish(config: DistinguishConfig) -> None:
    rule = (
        "must be gaussian with --run: tests on trained updates compare hundreds of "
        "trainings, and a run is one of them"
    )
    is_one = config.run is None or config.others == ("gaussian",)
    require(is_one, "others", rule, config.others)


def _unread_by_distinguish(config: DistinguishConfig) -> Unread:
    if "gaussian" not in config.others:
        yield "must not be set unless --others has gaussian", ("trials",)
    if "trained" not in config.others:
        yield "must not be set unless --others has trained", _OF_TRAININGS


_OF_TRAININGS = (
    "trainings",
    "dataset",
    "directory",
    "model",
    "client_size",
    "learning_rate",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttributeConfig(OfRun, SumsOfRounds, DataSource):
    """Infer an attribute of each client from the sums: what a client is.

    A passive server trains shadow clients at each round's model, fits a linear score of
    the attribute, applies it to the round's sum, and solves all rounds jointly. Fresh
    noise averages out, so the attribute shows although each update stays hidden. Whole
    blocks of T bound every such test for any number of rounds, and the result is
    compared with this bound.
      mrsa-jax attack attribute
      mrsa-jax attack attribute --schemes uniform --local-steps 1 --batch-size 8
      mrsa-jax attack attribute --attribute record --trainings 10
      mrsa-jax attack attribute --schemes uniform --clip-norm 0.5 --noise-multiplier 1
      mrsa-jax attack attribute --partition dirichlet --concentration 0.5
      mrsa-jax attack attribute --mask hospitals.npy --target-class 3
      mrsa-jax attack attribute --run results/train --target-class 3
    """

    out: pathlib.Path = pathlib.Path("results/attack/attribute")
    num_clients: flags.Several = 120
    """Number of clients N."""
    cohort_size: flags.Several = 12
    """Clients selected per round, K."""
    dropout_rates: Annotated[tuple[float, ...], flags.IS_SHARE] = (0.0,)
    """Probabilities that a client is offline in a round, spread over the clients."""
    rounds: flags.Whole = 200
    """Rounds whose sums the server keeps, from the first."""
    estimators: _Estimators = ("joint", "prolin")
    """Estimators on the same sums: all rounds solved jointly, or PROLIN."""
    attribute: Literal["class", "record"] = "class"
    """Attribute of a client: it holds samples of a class, or one certain record."""
    target_class: flags.Natural = 0
    """This class; clients without the attribute hold none of its samples."""
    num_held: flags.Whole = 6
    """Samples of the class that a client with the attribute holds."""
    mask: flags.File = None
    """Clients with the attribute: .npy or .npz of booleans [N]. Default: drawn with
    probability --prevalence."""
    prevalence: flags.Inside = 0.5
    """Probability that a client has the attribute, which the server knows."""
    trainings: flags.Whole = 3
    """Trainings with other data, clients and cohorts, of the seeds from --seed on."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    model: ModelName = "logistic"
    """Model that they train."""
    client_size: flags.Several = 32
    """Samples of a client, drawn with repetition from one half of the data; the server
    draws its shadow clients from the other half."""
    partition: Literal["iid", "shards", "dirichlet"] = "iid"
    """Classes of a client's samples next to the attribute's: as in the data (iid), a few
    (shards), or as many of each as a Dirichlet split by class gives it."""
    shards_per_client: Annotated[flags.Count, flags.Within(1)] = None
    """Classes per client, for --partition shards. Default: 2."""
    concentration: Annotated[
        flags.Number, flags.Within(POSITIVE, rule="must be finite and positive")
    ] = None
    """Dirichlet concentration, for --partition dirichlet. Default: 0.5."""
    batch_size: flags.Whole = 4
    """Samples in a minibatch."""
    local_steps: flags.Natural = 0
    """Minibatches of a client in a round, drawn again each time; 0: its whole epoch."""
    learning_rate: FinitePositive = 0.1
    """Step size of their SGD."""
    clip_norm: Annotated[
        flags.Number, flags.Within(POSITIVE, rule="must be finite and positive")
    ] = None
    """L2 norm to which each client clips its update, such as 0.5. Default: no clipping.
    """
    noise_multiplier: FromZero = 0.0
    """Standard deviation of the Gaussian noise in each entry of a sum, as a multiple of
    --clip-norm. The server knows it."""
    num_shadows: Annotated[flags.Whole, flags.Within(32)] = 200
    """Shadow clients, half of them with the attribute."""


def _check_attribute(config: AttributeConfig) -> None:
    rule = "must be at most client_size"
    require(config.num_held <= config.client_size, "num_held", rule, config.num_held)
    samples = config.local_steps * config.batch_size
    rule = "must need at most client_size samples in minibatches of batch_size"
    require(samples <= config.client_size, "local_steps", rule, config.local_steps)
    rule = (
        "must be set when `noise_multiplier` is positive, because noise can hide only "
        "updates of bounded norm"
    )
    is_bounded = config.clip_norm is not None or config.noise_multiplier == 0
    is_bounded |= config.run is not None  # which decides both
    require(is_bounded, "clip_norm", rule, config.clip_norm)
    rule = "must be class with --run, in which a record is one client's alone"
    is_of_class = config.run is None or config.attribute == "class"
    require(is_of_class, "attribute", rule, config.attribute)


def _unread_by_attribute(config: AttributeConfig) -> Unread:
    if config.attribute == "record":
        rule = "must not be set with --attribute record"
        yield rule, ("target_class", "num_held")
    if config.partition != "shards":
        yield "must not be set unless --partition is shards", ("shards_per_client",)
    if config.partition != "dirichlet":
        yield "must not be set unless --partition is dirichlet", ("concentration",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CanariesConfig(OfRun, SumsOfRounds):
    """Measure with canaries whether noise in the ring hides clients as planned.

    A client sends a vector of four clip norms in its rounds, to be clipped to one, or
    nothing; the server applies the best test to what it decodes. With the others known
    the measured mu is the ledger's, less what rounding hides; with Gaussian updates of
    others it is lower. More would refute the ledger. What is left of the sums without
    the updates shows noise that is missing, or the same in several rounds; the smallest
    violation that the trials would find is printed.
      mrsa-jax attack canaries
      mrsa-jax attack canaries --mechanism discrete_gaussian --noise-multiplier 0.5 --trials 10000
      mrsa-jax attack canaries --others known --modulus-bits 16 --dim 1024
      mrsa-jax attack canaries --run results/train
    """

    out: pathlib.Path = pathlib.Path("results/attack/canaries")
    others: tuple[Literal["known", "gaussian"], ...] = ("known", "gaussian")
    """Knowledge of the server about the others: their updates, or that they are
    Gaussian."""
    clients: tuple[Literal["worst", "median"], ...] = ("worst", "median")
    """Client that is the canary: the one with the largest loss in its ledger, or the
    median one."""
    rounds: flags.Whole = 12
    """Rounds whose sums the server keeps."""
    mechanism: Literal["skellam", "discrete_gaussian"] = "skellam"
    """Noise that each client adds to its codes."""
    noise_multiplier: FinitePositive = 1.0
    """Standard deviation of the noise of a full cohort, as a multiple of --clip-norm.
    """
    clip_norm: FinitePositive = 1.0
    """L2 norm to which updates are clipped; the canary is four times as long."""
    dim: flags.Whole = 256
    """Entries of an update."""
    modulus_bits: flags.Bits = 20
    """Sums are taken modulo 2**modulus_bits."""
    spread: FinitePositive = 0.02
    """Standard deviation of the entries of the others' updates, if they are not known.
    """
    false_positive_rates: _Rates = (0.001, 0.01, 0.1, 0.5)
    """False positive rates at which the true positive rate is measured."""
    trials: flags.Whole = 2000
    """Simulated histories without the canary, and the same number with it."""
    target_delta: flags.Inside = 1e-5
    """Delta at which epsilon is reported."""


def _check_canaries(config: CanariesConfig) -> None:
    for text in config.schemes:  # the result is shown next to the ledger's epsilon
        depends = parse_scheme(text).depends_on_data(
            config.num_clients, config.cohort_size
        )
        check_blind(depends, "schemes", text)


def _unread_by_canaries(config: CanariesConfig) -> Unread:
    if "gaussian" not in config.others:
        yield "must not be set unless --others has gaussian", ("spread",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DisaggregationConfig(OfRun, SumsOfRounds):
    """Recover who was in each sum from the sums and how often each client took part.

    A server that is not told who took part finds out from how often each client did
    (Lam et al. 2021).
      mrsa-jax attack disaggregation --num-clients 40 --rounds 100
      mrsa-jax attack disaggregation --update-change 0.1
      mrsa-jax attack disaggregation --aggregates sums.npy --counts counts.npy
      mrsa-jax attack disaggregation --run results/train
    """

    out: pathlib.Path = pathlib.Path("results/attack/disaggregation")
    schemes: tuple[str, ...] = ("uniform", "batch_partitioning:2")
    num_clients: flags.Several = 20
    rounds: flags.Whole = 60
    """Number of rounds, J. It must exceed the number of clients, or any history
    explains the sums."""
    interval: flags.Whole = 10
    """Rounds of an interval; at its end the server learns how often each client took
    part."""
    dim: flags.Whole = 1000
    """Entries of an update, drawn at random."""
    drift: Annotated[FromZero, flags.shown(name="update-change")] = 0.0
    """How much an update changes from round to round, relative to its length."""
    aggregates: flags.File = None
    """Attack your own sums instead: .npy or .npz of reals [rounds, d], sums and not
    means. Default: simulated rounds."""
    counts: flags.File = None
    """How often each client was in the sums of each interval: .npy or .npz [intervals,
    N]. Default: counted in --participation."""
    participation: flags.File = None
    """Members of each sum [rounds, N], to score, and to count from without --counts.
    Default: not scored."""
    interval_lengths: Annotated[tuple[int, ...], flags.Within(1), flags.shown()] = ()
    """Rounds of each interval of --counts. Default: equal intervals."""
    restarts: Annotated[flags.Whole, flags.shown(name="random-starts")] = 4
    """Random starts per client."""
    seconds: FromZero = 5.0
    """Limit of the integer program for a column that the relaxation does not decide, in
    seconds."""


def _check_disaggregation(config: DisaggregationConfig) -> None:
    if config.aggregates is None:
        rule = "must not be set without --aggregates"
        check_unset(config, rule, "counts", "participation", "interval_lengths")
        return
    rule = "must not be set with --aggregates, which are other sums"
    require(config.run is None, "run", rule, str(config.run))
    is_told = config.counts is not None or config.participation is not None
    require(
        is_told,
        "counts",
        "must be given with --aggregates, or --participation to count from",
    )
    if config.counts is not None or config.interval_lengths:
        rule = "must not be set with --counts or --interval-lengths"
        check_unset(config, rule, "interval")


def _name(path: pathlib.Path | None) -> str | None:
    return None if path is None else str(path)


ROWS = (
    row(
        "least-squares",
        LeastSquaresConfig,
        "each client's update, from the sums of many rounds",
        {
            "sums": "rounds",
            **dict.fromkeys(("clients", "strong_T", "exposed"), "clients"),
            **plain("predicted_error mean_error median_error least_error"),
            "recovered": "clients",
            "change": "1",
        },
        "attack on sums",
        ("so2023securing",),
        of_rounds=(
            "participation",
            "updates",
            "window",
            "prior",
            "ridge",
            "noise",
            "memory",
            "share",
        ),
        check=_check_least_squares,
        needs=270,
    ),
    row(
        "distinguish",
        DistinguishConfig,
        "whether a client's updates were shifted",
        {
            "client": "1",
            "sums": "rounds",
            "hidden_among": "clients",
            **plain("formula_mu mu formula_auc auc rates_inside rates"),
        },
        "attack on sums",
        ("dong2022gaussian",),
        of_rounds=(
            "others",
            "clients",
            "shift",
            "noise",
            "false_positive_rates",
            "trials",
        ),
        check=_check_distinguish,
        unread=_unread_by_distinguish,
        needs=430,
    ),
    row(
        "canaries",
        CanariesConfig,
        "whether noise in the ring hides as its ledger says",
        {
            "client": "1",
            "sums": "rounds",
            **plain(
                "ledger_mu ledger_epsilon mu measured_mu lower upper smallest_found"
            ),
            **plain("noise_scale noise_margin correlation correlation_margin auc"),
            **plain("rates_inside rates"),
        },
        "audit of differential privacy",
        ("andrew2024one", "nasr2023tight"),
        of_rounds=(
            "others",
            "clients",
            "spread",
            "false_positive_rates",
            "trials",
            "target_delta",
        ),
        check=_check_canaries,
        unread=_unread_by_canaries,
        needs=560,
    ),
    row(
        "attribute",
        AttributeConfig,
        "an attribute of each client, such as a class that it holds",
        {
            "trainings": "1",
            "sums": "rounds",
            "working_rounds": "rounds",
            **plain("auc lower upper tpr_at_1% tpr_at_10%"),
            **plain("predicted_share attained_share bound_auc counted_auc accuracy"),
        },
        "attribute inference from sums",
        ("kerkouche2023client", "marchand2023sratta", "pejo2023quality"),
        of_rounds=("estimators", "attribute", "target_class", "num_shadows"),
        check=_check_attribute,
        unread=_unread_by_attribute,
        needs=330,
    ),
    row(
        "disaggregation",
        DisaggregationConfig,
        "who was in each sum, from how often each took part",
        {
            "sums": "rounds",
            "clients": "clients",
            "rank": "1",
            **dict.fromkeys(("explained", "shared", "columns_right"), "clients"),
            "mean_error": "1",
            "recovered": "clients",
        },
        "attack on sums",
        ("lam2021gradient",),
        of_rounds=(
            "counts",
            "participation",
            "interval",
            "interval_lengths",
            "restarts",
            "seconds",
        ),
        check=_check_disaggregation,
        needs=200,
    ),
)
