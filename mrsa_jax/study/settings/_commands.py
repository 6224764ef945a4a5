"""Settings and rules of `audit`, `advise`, `secagg` and `segments`.

They run no scheme's rounds.

Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import pathlib
from typing import Annotated, Any, Literal

import tyro

from mrsa_jax._core import flags
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.availability.registry import Model
from mrsa_jax.study.settings._config import (
    AssignmentName,
    DriftSettings,
    parse_scheme,
    validate_attack,
    validate_groups,
)
from mrsa_jax.study.settings._tables import (
    SegmentConfig,
    check_reachable,
    check_unset,
    validate_graph,
)
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import Shown, plain_settings
from mrsa_watch._base.untrusted import start_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogSettings(Shown):
    """Reading of a participation log, and output of what is found in it."""

    format: Literal["auto", "csv", "parquet", "npy", "npz", "jsonl", "nvflare"] = "auto"
    """Format of the log; auto recognises it from its content."""

    layout: Literal["auto", "long", "matrix"] = "auto"
    """long: rows of (round, client); matrix: one row per round; auto: the header
    decides."""

    array: flags.Name = None
    """Name of the array in an NPZ archive. Default: the only array."""

    round_column: flags.Name = None
    """For a log with columns: name of the column with the round. Default: one of the
    usual names."""

    client_column: flags.Name = None
    """Name of the column with the client. Default: one of the usual names."""

    weight_column: flags.Name = None
    """Name of the column with each client's weight in the sum. Default: the column
    "weight", if there is one."""

    where: tyro.conf.UseAppendAction[
        Annotated[tuple[str, ...], flags.shown("COLUMN=TEXT")]
    ] = ()
    """Keep only the rows with this text (or one of TEXT,TEXT) in this column.
    COLUMN!=TEXT keeps all other rows. Can be repeated."""

    ignore_columns: Annotated[str, flags.shown("NAMES")] = ""
    """Comma-separated columns to ignore. A column that may affect which clients are in
    a sum is refused until a flag handles it. Default: no column."""

    sum_columns: Annotated[str, flags.shown("NAMES")] = ""
    """Comma-separated columns that distinguish several sums of a round, such as
    group,job,attempt. Default: no column."""

    part_column: flags.Name = None
    """Name of the column with the part of the vector that a sum is over, if not all
    clients train all coordinates. Each part is audited by itself. Default: sums are of
    whole updates."""

    restarts: Literal["ask", "new", "same"] = "ask"
    """Meaning of a round whose rows continue after other rounds: new (another sum,
    because numbering started again), same (the same sum), or ask (an error)."""

    round_order: Literal["auto", "sorted", "file"] = "auto"
    """Order of the rounds: sorted by number or name, or as in the file. auto sorts them
    if their names show their order; if not, they keep that of the file, and --memory is
    refused."""

    alike_names: Literal["ask", "same", "different"] = "ask"
    """Meaning of names such as Site-1 and site-1: same (one client), different (several
    clients), or ask (an error)."""

    odd_names: Literal["ask", "keep"] = "ask"
    """Meaning of names unlike those of most clients, such as server or -1, and of
    identifiers that lost digits: keep (clients), or ask (an error)."""

    decimal: Literal["ask", "point", "comma"] = "ask"
    """Decimal mark of weights such as 1.500, which may be one and a half or fifteen
    hundred: point, comma, or ask (an error)."""

    client_separator: Annotated[str | None, flags.shown("TEXT")] = None
    """Text between the clients of one cell, such as ";" in 3;5. Default: a cell holds
    one client."""

    overwrite: bool = False
    """Replace other results in --out."""

    json: bool = False
    """Print everything as JSON instead."""

    @property
    def columns(self) -> dict[str, Any]:
        """Arguments of `privacy.read_log`: where it finds rounds, clients and sums."""
        from mrsa_watch.logs import read_log

        settings = plain_settings(self)
        taken = inspect.signature(read_log).parameters
        return {name: value for name, value in settings.items() if name in taken}


@dataclasses.dataclass(frozen=True)
class AuditConfig(DriftSettings, LogSettings):
    """Audit a participation log of any system: which clients the server can expose, with proof.

    Rounds and clients have the names of the log. Without names, rounds are counted from
    1, and clients are the columns of the matrix, from 0.
    """

    file: Annotated[pathlib.Path, tyro.conf.Positional, flags.shown("FILE")] = (
        tyro.MISSING
    )
    """Participation log: a recorder's log, JSON Lines, CSV with a header (round,client)
    or a 0/1 matrix, with a line of names or without; Parquet, NPY, NPZ, or NVFlare's
    server log."""

    memory_gib: flags.Positive = 2.0
    """Most memory that the history may take as a matrix, in GiB."""

    effort: Annotated[
        float, flags.Within(0.0, rule="must be a number of at least 0")
    ] = 1.0
    """Computing allowance: 1 allows searches and proofs of about 90 seconds on one
    core; more can narrow the bounds."""

    coalition: Annotated[str, flags.shown("NAMES")] = ""
    """Comma-separated clients that reveal their updates to the server; the audit covers
    the others. Default: no client."""

    fail_below: Annotated[int | None, flags.Within(1), flags.shown("T")] = None
    """Exit with status 3 unless T is proven to be at least this, weak or strong as
    --definition selects (2: no client is exposed). Default: no requirement."""

    definition: Literal["weak", "strong"] = "weak"
    """The T of --fail-below: weak (any combination of sums) or strong (clients that
    always move together)."""

    fail_below_hidden: Annotated[
        float | None, flags.IS_GROUP, flags.shown("CLIENTS")
    ] = None
    """Exit with status 3 unless every client is hidden among at least this many
    clients, such as 2.5. Noise is not counted. With --memory or --drift, the update of
    one round must be, and what lasts of a client's updates. Default: no requirement."""

    drift: flags.Folder = None
    """Folder of mrsa-jax train or demo, which measured memory and share. Default:
    --memory and --share."""

    covariance: flags.File = None
    """Covariance of clients' updates, N x N, as NPY or CSV: also report how well each
    is hidden from a server that knows it. The first line of a CSV names the clients; it
    must if the log names them. Default: clients count as alike."""

    noise_multiplier: Annotated[float | None, flags.IS_POSITIVE, flags.shown("Z")] = (
        None
    )
    """Report mu and epsilon for noise of standard deviation Z times --clip-norm in each
    sum. Default: the noise that the log records."""

    clip: Annotated[
        float | None, flags.IS_POSITIVE, flags.shown("C", name="clip-norm")
    ] = None
    """Largest L2 norm of a client's update, with --noise-multiplier. Default: the norm
    that the log records."""

    planned: Annotated[int | None, flags.Within(1), flags.shown("K")] = None
    """The clients add the noise: each survivor adds one part in K of the variance, so a
    sum of fewer clients has less noise. Reports mu and epsilon as planned and as
    realised. Default: the whole noise is in each sum."""

    colluding: Annotated[str, flags.shown("NAMES")] = ""
    """Comma-separated clients that reveal their noise and their updates to the server;
    needs --planned. Default: no client."""

    delta: Annotated[
        flags.Positive,
        flags.Within(0.0, flags.BELOW_ONE, "must be below 1"),
        flags.shown(name="target-delta"),
    ] = 1e-5
    """Delta at which epsilon is reported."""

    spread: Annotated[float | None, flags.IS_POSITIVE, flags.shown("S")] = None
    """Also report mu and epsilon if the others' updates are Gaussian with this standard
    deviation: no guarantee. Default: not reported."""

    values: Annotated[str | None, flags.shown("VALUES")] = None
    """With --sums: clients' values are whole numbers in a range LOW:HIGH, such as 0:1,
    that stay the same over the rounds. Report whose value the sums determine. --effort
    sets the budget. Default: not reported."""

    sums: flags.File = None
    """The sums of the log's rounds: NPY, CSV or JSON Lines, with the columns or keys
    round and sum, or one sum per row of the log. Default: no sums."""

    recipe_file: flags.File = None
    """Write the whole combination of sums that exposes a client to this file, as CSV;
    rounds without names are counted from 1. Default: not written."""

    certificate: flags.File = None
    """Write each claim with an integer proof to this file as JSON, to be verified by
    mrsa_check.py. Default: not written."""

    out: flags.Folder = None
    """Write findings, certificates, tables and figures to this folder; mrsa-jax report
    turns it into a report. Default: nothing is written."""

    @property
    def counts_shares(self) -> bool:
        """Whether clients' shares of the noise are counted one by one."""
        return self.planned is not None


def check_audit(config: AuditConfig) -> None:
    """Raise `ConfigurationError` for the first broken rule, or for a missing log."""
    names = ("noise_multiplier", "clip", "spread")
    given = [name for name in names if getattr(config, name) is not None]
    shown = ", ".join(flags.renamed(AuditConfig).get(name, name) for name in given)
    for name in names[:2]:
        is_missing = bool(given) and name not in given
        require(not is_missing, name, f"must be given with {shown}", None)
    if config.counts_shares:
        for name in names[:2]:
            require(name in given, name, "must be given with planned", None)
        rule = (
            "must not be set with planned, whose account takes others' updates for "
            "known"
        )
        require(config.spread is None, "spread", rule, config.spread)
    rule = (
        "must be used together with planned: clients can reveal only noise that they "
        "added"
    )
    is_known = config.counts_shares or not config.colluding
    require(is_known, "colluding", rule, config.colluding)
    config.check_drift()
    rule = "must not be set with coalition"
    is_alone = config.covariance is None or not config.coalition
    require(is_alone, "covariance", rule, str(config.covariance))
    _check_values(config)
    both = config.memory is not None and config.drift is not None
    require(not both, "drift", "must not be set with memory", str(config.drift))
    for name in ("recipe_file", "certificate"):
        path = getattr(config, name)
        has_folder = path is None or path.parent.is_dir()
        require(has_folder, name, "must lie in an existing folder", str(path))
    _check_log(config, config.file)


def _check_values(config: AuditConfig) -> None:
    """Check the range of whole-number values, which sums are needed for."""
    for name, other in (("values", "sums"), ("sums", "values")):
        is_alone = getattr(config, name) is not None and getattr(config, other) is None
        rule = f"must be used together with {other}"
        require(not is_alone, name, rule, getattr(config, name))
    if config.values is None:
        return
    low, _, high = config.values.partition(":")
    is_range = all(end.removeprefix("-").isdecimal() for end in (low, high))
    is_range = is_range and int(low) < int(high)
    rule = "must be a range LOW:HIGH of whole numbers, such as 0:1"
    require(is_range, "values", rule, config.values)
    rule = "must not be set with coalition, whose values are unknown here"
    require(not config.coalition, "values", rule, config.values)


_MOST_CLIENTS = 10**6  # closed forms pass over the blocks one by one
_IS_RATE = flags.Within(0.0, flags.BELOW_ONE, "must be at least 0 and below 1")
_IS_AUC = flags.Within(0.5 + 2**-53, 1.0, "must be above 0.5 and at most 1")


@dataclasses.dataclass(frozen=True)
class AdviseConfig(DriftSettings, LogSettings):
    """Recommend a selection scheme and its T for your clients: what each protects, and costs.

    It needs the number of clients, the number per round, and how often they are
    offline:
      mrsa-jax advise --num-clients 120 --cohort-size 12 --dropout-rates 0.2 --loss-rate 0.05

    The log of a running system contains all this. A flag takes precedence over a
    measured value:
      mrsa-jax advise --log participation.jsonl

    Exit status: 0 done, 2 misuse, 3 if no scheme satisfies the requirements.
    """

    log: flags.File = None
    """Any log that `mrsa-jax audit` reads; clients, cohort and absences are measured in
    it. Default: they are set by flags."""

    num_clients: Annotated[flags.Count, flags.Within(2)] = None
    """Number of clients N. Default: the clients of --log."""

    cohort_size: flags.Count = None
    """Clients selected per round, K. Default: as measured in --log."""

    dropout_rate: Annotated[
        tuple[float, ...], _IS_RATE, flags.shown(name="dropout-rates")
    ] = ()
    """Probabilities that a client is offline in a round, spread evenly over the
    clients, such as 0.1 0.3. Default: as measured in --log."""

    assignment: AssignmentName = "shuffled"
    """How the rates are spread: shuffled by the seed, cyclic, or sorted (equal ones
    together). An advice has no labels, so by_label is refused."""

    loss_rate: Annotated[flags.Number, _IS_RATE] = None
    """Probability that a participating client is lost before its update is in the sum.
    Default: as measured in --log, or 0."""

    availability: str = "independent"
    """Which clients are online, as in mrsa-jax simulate: independent, markov:ROUNDS,
    diurnal:AMPLITUDE:PERIOD, ..."""

    want_privacy: Annotated[int | None, flags.Within(1), flags.shown("T")] = None
    """Require a weak T of at least this, for any number of rounds. Default: no
    requirement."""

    want_hidden: Annotated[flags.Number, flags.IS_GROUP] = None
    """Require that every client is hidden as well as in a single sum of this many
    clients, for any number of rounds. Default: no requirement."""

    min_cardinality: Annotated[flags.Number, flags.IS_GROUP] = None
    """Require at least this many clients per round on average; rounds without a sum
    count as 0. Default: no requirement."""

    max_auc: Annotated[flags.Number, _IS_AUC] = None
    """Require blocks so large that no test of what a client is has an AUC above this,
    for any number of rounds. Default: no requirement."""

    max_advantage: Annotated[flags.Number, flags.IS_PART] = None
    """Require the same of the test's advantage: the largest difference of its true and
    false positive rates. Default: no requirement."""

    prevalence: flags.Inside = 0.5
    """Fraction of the clients for which the tested property holds, with --max-auc or
    --max-advantage."""

    schemes: Annotated[tuple[str, ...], flags.shown()] = ()
    """Further schemes to compare, as in mrsa-jax simulate. Your own schemes (--plugin)
    are always compared. Default: no further scheme."""

    convergence: Annotated[
        tuple[float, ...], flags.shown("RHO MU SIGMA2 G DISTANCE2 GAMMA")
    ] = ()
    """Constants of Multi-RoundSecAgg's Theorem 2, for the rounds that T costs:
    smoothness, strong convexity, gradient variance, gradient bound, squared distance of
    the start from the optimum, and heterogeneity. Default: only what holds for all."""

    local_steps: flags.Whole = 1
    """Local gradient steps per round, E, with --convergence."""

    rounds: flags.Whole = 300
    """Simulated rounds."""

    trials: Annotated[int | None, flags.Within(0), flags.shown("B")] = None
    """Simulated trials of each scheme; 0 reports closed forms only. Default: 2 to 10,
    fewer for large populations."""

    seed: flags.Seed = 0
    """Seed of everything random."""

    out: flags.Folder = None
    """Write the table as CSV, the advice as JSON and a figure to this folder. Default:
    nothing is written."""


def check_advise(config: AdviseConfig) -> None:
    """Raise `ConfigurationError` for the first broken rule, or for a missing log."""
    for name in ("num_clients", "cohort_size", "dropout_rate"):
        is_known = config.log is not None or getattr(config, name) not in (None, ())
        require(is_known, name, "must be given, or a log to measure it in", None)
    if config.num_clients is not None:
        check_cohort(config.num_clients, config.cohort_size)
    is_used = config.max_auc is not None or config.max_advantage is not None
    rule = "must be used together with max_auc or max_advantage"
    require(is_used or config.prevalence == 0.5, "prevalence", rule, config.prevalence)
    rule = "must not be by_label, which needs the labels of data"
    require(config.assignment != "by_label", "assignment", rule, config.assignment)
    _check_convergence(config)
    config.check_drift()
    Model.parse(config.availability, config.dropout_rate or (0.0,))
    for text in config.schemes:
        parse_scheme(text)
    _check_log(config, config.log)


ONE_RATE = (
    "must not be set unless clients have one dropout rate, are offline independently, "
    "and none is lost inside a round"
)
"""Rule of the clients that Theorem 2 is about."""


def _check_convergence(config: AdviseConfig) -> None:
    """Check the constants of Theorem 2 without NumPy."""
    is_used = len(config.convergence) > 0 or config.local_steps == 1
    rule = "must be used together with convergence"
    require(is_used, "local_steps", rule, config.local_steps)
    if not config.convergence:
        return
    values = config.convergence
    rule = (
        "must be six finite numbers: smoothness, strong convexity, gradient variance, "
        "gradient bound, squared distance, heterogeneity"
    )
    is_six = len(values) == 6 and all(map(math.isfinite, values))
    require(is_six, "convergence", rule, values)
    rule = "must have 0 < strong convexity <= smoothness, and no negative number"
    in_range = 0 < values[1] <= values[0] and min(values) >= 0
    require(in_range, "convergence", rule, values)
    # a log is measured first
    is_covered = len(set(config.dropout_rate)) <= 1 and not config.loss_rate
    is_covered &= config.availability == "independent"
    require(is_covered, "convergence", ONE_RATE, values)


def _check_log(config: AuditConfig | AdviseConfig, log: pathlib.Path | None) -> None:
    is_alone = config.out is None and config.overwrite
    require(not is_alone, "overwrite", "must be used together with --out", True)
    if log is not None:
        start_of(log, 0)  # a missing log is an error before anything heavy is imported


def check_cohort(num_clients: int, cohort_size: int | None) -> None:
    """Raise unless a cohort of several clients fits them, and they are not too many."""
    most = f"must be at most {_MOST_CLIENTS:,}"
    require(num_clients <= _MOST_CLIENTS, "num_clients", most, num_clients)
    if cohort_size is not None:
        rule = f"must lie in [{FEWEST_IN_A_SUM}, num_clients]"
        fits = FEWEST_IN_A_SUM <= cohort_size <= num_clients
        require(fits, "cohort_size", rule, cohort_size, num_clients)


_FidelityName = Annotated[
    Literal["real", "array", "sets"] | None,
    flags.Cites(
        real="cryptography: rfc8439 rfc7748 rfc5869",
        array="pads: rfc8439",
    ),
    flags.shown("{real,array,sets}"),
]


@dataclasses.dataclass(frozen=True)
class SecaggConfig(Shown):
    """Run one round of secure aggregation and see what it costs, or count failures.

    SecAgg, SecAgg+ and CCESA are one protocol over different graphs: complete, regular,
    random.
      mrsa-jax secagg --dropped-before-unmasking 0.1
      mrsa-jax secagg --fidelity real --num-clients 30 --dim 1000
      mrsa-jax secagg --graph erdos_renyi --num-clients 500 --step-dropout-rate 0.026
      mrsa-jax secagg --graph harary --degree 20 --up-mbits 10
      mrsa-jax secagg --fidelity real --num-clients 30 --consistency
      mrsa-jax secagg --graph erdos_renyi --trials 10000 --step-dropout-rate 0.01

    Exit status: 0 done; 1 the round failed, so that no sum was learnt; 2 misuse.
    """

    fidelity: _FidelityName = None
    """real: messages and cryptography; array: the same bits, faster; sets: no pads.
    Default: array."""

    num_clients: flags.Several = 100
    """Number of clients, n."""

    dim: flags.Whole = 10_000
    """Residues in each client's input, m."""

    modulus_bits: Annotated[flags.Count, flags.IS_BITS] = None
    """Sums are taken modulo 2**b, b from 1 to 32. Default: 16, unless --modulus is set.
    """

    modulus: flags.Count = None
    """Sums are taken modulo R, a power of two or any integer below 2**31. Default: as
    --modulus-bits selects."""

    graph: str = "complete"
    """complete (SecAgg), erdos_renyi (CCESA), harary or random_regular (SecAgg+),
    over_blocks:T:K (blocks of T clients, each joined to K others), or your own
    (--plugin)."""

    connection_probability: Annotated[flags.Number, flags.IS_PART] = None
    """Probability of an edge, for --graph erdos_renyi. Default: CCESA's p*, if at most
    1."""

    degree: Annotated[flags.Count, flags.Within(0)] = None
    """Neighbours of each client, such as 20. It is required for --graph harary and
    random_regular. Default: the graph has none to set."""

    threshold: Annotated[flags.Shares, flags.Within(1)] = None
    """Secret shares that rebuild a secret, t, or a rule: majority (more than half of
    each client's neighbourhood) or remark4 (CCESA's one t for all). Default: majority,
    or remark4 for erdos_renyi."""

    step_dropout_rate: flags.Chance = 0.0
    """Probability that a client is lost at each of the protocol's four steps, q."""

    dropped_before_unmasking: flags.Chance = 0.0
    """Fraction of the clients that are lost between sharing keys and sending padded
    inputs; drawn at random."""

    allow_unmasking_risk: bool = False
    """Accept a threshold at which the attack in CCESA's Appendix F could unmask single
    clients."""

    consistency: bool = False
    """Add the signed consistency check of Bonawitz et al.: no client unmasks before
    enough of its neighbours have signed the same list of survivors."""

    trials: Annotated[flags.Count, flags.Within(1)] = None
    """Count failures in this many rounds: exact intervals, the bounds of the theorems,
    rare events. Default: run one round."""

    up_mbits: Annotated[flags.Number, flags.IS_POSITIVE] = None
    """Also model the seconds on the clients' links, with this many Mbit/s up and ten
    times that down. Default: not modelled."""

    compute_slowdown: flags.Positive = 1.0
    """Factor by which clients compute more slowly than one core of a server, in this
    model."""

    seed: flags.Natural = 0
    """Seed of inputs, secrets, graph and losses; a round is trial 0 of the study of its
    seed."""

    json: bool = False
    """Print everything as JSON instead."""


def check_secagg(config: SecaggConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    is_single = config.modulus_bits is None or config.modulus is None
    rule = "must not be set if --modulus-bits is given"
    require(is_single, "modulus", rule, config.modulus)
    if config.threshold is not None:
        check_reachable(config.threshold, config.num_clients)
    validate_graph(config)
    if config.trials is not None:
        rule = "must be sets with --trials"
        require(config.fidelity in (None, "sets"), "fidelity", rule, config.fidelity)
        rule = "must not be set with --trials"
        check_unset(config, rule, "dropped_before_unmasking", "consistency", "up_mbits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmentsConfig(SegmentConfig):
    """Plan a round of HeteroSAg: its privacy level, errors, times and tolerance.

    Without --fidelity and --trials no round is run.
      mrsa-jax segments --segments mc
      mrsa-jax segments --segments sc --group-sizes 3 6 6 --group-levels 2 4 8
        --subgroups 1 2 2
      mrsa-jax segments --fidelity real --dim 1000 --combine median
      mrsa-jax segments --trials 10000 --step-dropout-rate 0.05 --combine median

    Exit status: 0 done; 1 the round failed, so that no sum was learnt; 2 misuse.
    """

    segments: Annotated[
        Literal["sc", "mc", "hc", "groups"],
        flags.Cites(**dict.fromkeys(("sc", "mc", "hc", "groups"), "heterosag")),
    ] = "mc"
    """sc, mc, hc: single, multiple or hybrid chain over as many groups as
    --group-levels has; groups: each group by itself (no privacy between groups)."""

    group_sizes: Annotated[tuple[int, ...], flags.shown()] = ()
    """Clients of each group, slowest group first, such as 3 6 6. Default: equal, or as
    --rate-boundaries cuts them."""

    num_clients: Annotated[flags.Count, flags.Within(2)] = None
    """Number of clients, n. Default: those of --group-sizes, or 4 per group."""

    fidelity: _FidelityName = None
    """Run one round of random updates. real: messages and cryptography; array: the same
    bits, faster; sets: no pads. Default: no round is run."""

    dim: flags.Whole = 10_000
    """Coordinates of each client's update, m."""

    clip: flags.Positive = 0.5
    """Each coordinate of an update lies in [-clip, clip]."""

    modulus_rule: Literal["exact", "power_of_two"] = "exact"
    """Rings of sums: exact, |S| (K - 1) + 1; or the next power of two."""

    threshold: Annotated[flags.Count, flags.Within(1)] = None
    """Secret shares that rebuild a secret, t. Default: more than half of the clients.
    """

    step_dropout_rate: flags.Chance = 0.0
    """Probability that a client is lost at each of the protocol's four steps, q."""

    trials: Annotated[flags.Count, flags.Within(1)] = None
    """Count the rounds with a sum in this many rounds, by their true privacy level and
    tolerance. Default: none is counted."""

    straggler_rate: flags.Chance = 0.0
    """Probability that a client is a straggler in a round, with --trials."""

    straggler_slowdown: Annotated[float, flags.IS_GROUP] = 10.0
    """Factor by which a straggler sends more slowly."""

    seed: flags.Seed = 0
    """Seed of updates, secrets and losses; a round is trial 0 of the study of its seed.
    """

    json: bool = False
    """Print everything as JSON instead."""

    @property
    def participants(self) -> int:
        """Return n."""
        usual = sum(self.group_sizes) or 4 * len(self.group_levels)
        return self.num_clients if self.num_clients is not None else usual

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the clients of each group."""
        return tuple(self.column_sizes(self.participants))


def check_segments(config: SegmentsConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    n = config.participants
    validate_groups(config, n)
    validate_attack(config, n)
    if config.threshold is not None:
        check_reachable(config.threshold, n)
    rule = "must be at least the number of segments"
    least = 1 if config.segments == "groups" else config.num_columns
    require(config.dim >= least, "dim", rule, config.dim, least)
    is_run = config.fidelity is not None
    if config.trials is not None:
        rule = "must not be set with --trials, which counts rounds as sets"
        require(not is_run, "fidelity", rule, config.fidelity)
    else:
        check_unset(config, "must not be set without --trials", "straggler_rate")
    if not config.straggler_rate:
        rule = "must not be set without `straggler_rate`"
        check_unset(config, rule, "straggler_slowdown")
    if not is_run:
        rule = "must not be set without --fidelity, which runs a round"
        check_unset(config, rule, "attack")
    if not is_run and config.trials is None:
        rule = "must not be set without --fidelity or --trials"
        check_unset(config, rule, "step_dropout_rate", "threshold")
