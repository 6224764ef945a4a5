"""Settings and rules of the commands that run no scheme's rounds: audit, advise, secagg.

Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any, Literal

import tyro

from mrsa_jax._core.flags import (
    BELOW_ONE,
    IS_BITS,
    IS_GROUP,
    IS_PART,
    IS_POSITIVE,
    Chance,
    Cites,
    Count,
    File,
    Folder,
    Name,
    Natural,
    Number,
    Positive,
    Seed,
    Several,
    Whole,
    Within,
)  # fmt: skip
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.availability.registry import Model
from mrsa_jax.study._config import Lasting, Memory, check_drift, parse_scheme
from mrsa_jax.study._tables import check_unset, validate_graph
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import Shown, plain_settings
from mrsa_watch._base.untrusted import start_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogSettings(Shown):
    """How a participation log is read, and what is done with what is found in it."""

    round_column: Name = None
    """Of a log in columns: name of that with the round; the usual names are known."""

    client_column: Name = None
    """Name of the column with the client; the usual names are known."""

    where: tyro.conf.UseAppendAction[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=TEXT")]
    ] = ()
    """Keep only the rows with this text (or one of TEXT,TEXT) in this column, or with COLUMN!=TEXT
    all others; may be repeated."""

    ignore_columns: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Comma-separated columns to ignore. A column that may turn the verdict is refused until a flag
    handles it."""

    sum_columns: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Comma-separated columns that distinguish several sums of a round, such as
    group,job,attempt."""

    part_column: Name = None
    """Name of the column with the part of the vector that a sum is of, where not all clients train
    all coordinates: each part is audited by itself."""

    restarts: Literal["ask", "new", "same"] = "ask"
    """A round whose rows continue after other rounds: another sum, because numbering started again,
    or the same."""

    overwrite: bool = False
    """Replace other results in --out."""

    json: bool = False
    """Print everything as JSON instead."""

    @property
    def columns(self) -> dict[str, Any]:
        """How `privacy.read_log` finds rounds, clients and sums."""
        own = plain_settings(self)
        return {name: own[name] for name in _COLUMNS}


_COLUMNS = ("round_column", "client_column", "where", "ignore_columns", "sum_columns",
            "part_column", "restarts")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class AuditConfig(LogSettings):
    """Say what a participation log of any system leaks: who is exposed, and proof.

    Rounds and clients have the log's names; without any, their places in the matrix, from 0.
    """

    file: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = (
        tyro.MISSING
    )
    """A recorder's log, JSON Lines, CSV with a header (round,client) or a 0/1 matrix, with a line
    of names or without; Parquet, NPY, NPZ, or NVFlare's server log."""

    format: Literal["auto", "csv", "parquet", "npy", "npz", "jsonl", "nvflare"] = "auto"
    """Format of FILE; by default recognised from its content."""

    layout: Literal["auto", "long", "matrix"] = "auto"
    """Rows of (round, client), or a matrix with one row per round; the header decides."""

    weight_column: Name = None
    """Name of the column with each client's weight in the sum; "weight" is known."""

    round_order: Literal["sorted", "file"] = "sorted"
    """Order of the rounds: by number or name, or as in the file."""

    array: Name = None
    """Which array of an NPZ archive."""

    memory_gib: Positive = 2.0
    """Most memory that the history may take as a matrix."""

    effort: Annotated[float, Within(0.0, rule="must be a number of at least 0")] = 1.0
    """How much may be tried: 1 is searches and proofs of about 90 seconds of one core."""

    coalition: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Comma-separated clients that reveal their updates to the server; the audit covers the
    others."""

    fail_below: Annotated[int | None, Within(1), tyro.conf.arg(metavar="T")] = None
    """Exit with status 3 unless weak T of at least this is proven (2: no client is exposed)."""

    definition: Literal["weak", "strong"] = "weak"
    """Of --fail-below: weak T (any combination of sums) or strong T (who only move together)."""

    fail_below_hidden: Annotated[float | None, IS_GROUP, tyro.conf.arg(metavar="CLIENTS")] = None
    """Exit with status 3 unless each client is hidden among at least this many clients; noise is
    not counted. With --memory or --drift: unless each of its updates is, if updates drift so."""

    memory: Memory = None
    """Also among how many the update of any one round is hidden, if updates drift: the correlation
    of what lasts of a client's update with that of the round before. Rows of the log count as
    rounds that follow each other."""

    share: Lasting = 1.0
    """Share of an update's variance that lasts, with --memory; the rest is fresh in each round."""

    drift: Folder = None
    """Take both from a training that measured them: the folder of mrsa-jax train or demo."""

    noise_multiplier: Annotated[float | None, IS_POSITIVE, tyro.conf.arg(metavar="Z")] = None
    """Noise of standard deviation Z times --clip is in each sum: print clients' mu and epsilon
    (without it by what a recorder's log says)."""

    clip: Annotated[float | None, IS_POSITIVE, tyro.conf.arg(metavar="C")] = None
    """Largest norm of a client's update, with --noise-multiplier."""

    planned: Annotated[int | None, Within(1), tyro.conf.arg(metavar="K")] = None
    """Clients add the noise: each survivor one share in K of the variance, so that a sum of fewer
    has less of it; prints mu and epsilon as planned and as realised."""

    colluding: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Comma-separated clients that reveal their noise and their updates to the server; needs
    --planned."""

    delta: Annotated[Positive, Within(0.0, BELOW_ONE, "must be below 1")] = 1e-5
    """At which epsilon is printed."""

    spread: Annotated[float | None, IS_POSITIVE, tyro.conf.arg(metavar="S")] = None
    """Also mu and epsilon if others' updates are Gaussian with this spread: no guarantee."""

    recipe_file: File = None
    """Where to write the whole recipe as CSV."""

    certificate: File = None
    """Where to write each claim with a proof in integers, as JSON, for mrsa_check.py to check."""

    out: Folder = None
    """Folder for findings, certificates, tables and figures; mrsa-jax report makes a page of it."""

    @property
    def counts_shares(self) -> bool:
        """Whether clients' shares of the noise are counted one by one."""
        return self.planned is not None


def check_audit(config: AuditConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule, or for a missing log."""
    noise = ("noise_multiplier", "clip", "spread")
    told = [name for name in noise if getattr(config, name) is not None]
    for name in ("noise_multiplier", "clip"):
        missing = bool(told) and name not in told
        require(not missing, name, f"must be given with {', '.join(told)}", None)
    if config.counts_shares:
        for name in ("noise_multiplier", "clip"):
            given = getattr(config, name) is not None
            require(given, name, "must be given with planned", None)
        rule = "must not be set with planned, whose account takes others' updates for known"
        require(config.spread is None, "spread", rule, config.spread)
    rule = "must be used together with planned: clients can reveal only noise that they added"
    require(config.counts_shares or not config.colluding, "colluding", rule, config.colluding)
    check_drift(config)
    both = config.memory is not None and config.drift is not None
    require(not both, "drift", "must not be set with memory", str(config.drift))
    for name in ("recipe_file", "certificate"):
        path = getattr(config, name)
        there = path is None or path.parent.is_dir()
        require(there, name, "must lie in an existing folder", str(path))
    _check_log(config, config.file)


_MOST_CLIENTS = 10**6  # closed forms pass over the blocks one by one
_IS_RATE = Within(0.0, BELOW_ONE, "must be at least 0 and below 1")


@dataclasses.dataclass(frozen=True)
class AdviseConfig(LogSettings):
    """Choose a selection scheme and its T for your clients: what each protects, and costs.

    From the number of clients, the number per round, and how often they are away:
    mrsa-jax advise --clients 120 --cohort 12 --dropout-rate 0.2 --loss-rate 0.05. Or from the log
    of a system that runs, which records all this: mrsa-jax advise --log participation.jsonl. A flag
    given together with --log overrides the measured value. Exit status 3 if no scheme gives what is
    demanded.
    """

    log: File = None
    """Any log that `mrsa-jax audit` reads: clients, cohort and absences are measured in it."""

    num_clients: Annotated[Count, Within(2), tyro.conf.arg(aliases=["--clients"])] = None
    """Number of clients N."""

    cohort_size: Annotated[Count, tyro.conf.arg(aliases=["--cohort"])] = None
    """Clients in a round, K."""

    dropout_rate: Annotated[tuple[float, ...], _IS_RATE] = ()
    """Chance to be away when a round begins; several are spread evenly over the clients."""

    loss_rate: Annotated[Number, _IS_RATE] = None
    """Chance of a client that takes part to be lost before its update is in the sum."""

    availability: str = "independent"
    """Who is away when: independent, markov:ROUNDS, diurnal:AMPLITUDE:PERIOD, ..., as in
    mrsa-jax simulate."""

    want_privacy: Annotated[int | None, Within(1), tyro.conf.arg(metavar="T")] = None
    """Weak T of at least this, however many rounds follow."""

    want_hidden: Annotated[Number, IS_GROUP] = None
    """Every client hidden as well as in a single sum of this many clients, for any number of
    rounds."""

    min_cardinality: Annotated[Number, IS_GROUP] = None
    """At least this many clients per round on average; rounds without a sum count as 0."""

    memory: Memory = None
    """Also among how many the worst update of any simulated round is hidden, if updates drift: the
    correlation of what lasts of a client's update with that of the round before."""

    share: Lasting = 1.0
    """Share of an update's variance that lasts, with --memory; the rest is fresh in each round."""

    schemes: tuple[str, ...] = ()
    """Further schemes to compare, as in mrsa-jax simulate; your own (--plugin) always are."""

    rounds: Whole = 300
    """Rounds that are simulated."""

    trials: Annotated[int | None, Within(0), tyro.conf.arg(metavar="B")] = None
    """Simulated trials of each scheme: from 2 to 10, fewer for large populations, by default; 0
    gives what is known without."""

    seed: Seed = 0
    """Seed of everything random."""

    out: Folder = None
    """Folder for the table as CSV, the advice as JSON and a figure."""


def check_advise(config: AdviseConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule, or for a missing log."""
    for name in ("num_clients", "cohort_size", "dropout_rate"):
        given = config.log is not None or getattr(config, name) not in (None, ())
        require(given, name, "must be given, or a log to measure it in", None)
    if config.num_clients is not None:
        check_cohort(config.num_clients, config.cohort_size)
    check_drift(config)
    Model.parse(config.availability, config.dropout_rate or (0.0,))
    for text in config.schemes:
        parse_scheme(text)
    _check_log(config, config.log)


def _check_log(config: AuditConfig | AdviseConfig, log: pathlib.Path | None) -> None:
    alone = config.out is None and config.overwrite
    require(not alone, "overwrite", "must be used together with --out", config.overwrite)
    if log is not None:
        start_of(log, 0)  # its absence is told before anything heavy is imported


def check_cohort(num_clients: int, cohort_size: int | None) -> None:
    """Raise unless a cohort fits the clients, and is no single client; or if they are too many."""
    most = f"must be at most {_MOST_CLIENTS:,}"
    require(num_clients <= _MOST_CLIENTS, "num_clients", most, num_clients)
    if cohort_size is not None:
        rule = f"must lie in [{FEWEST_IN_A_SUM}, num_clients]"
        fits = FEWEST_IN_A_SUM <= cohort_size <= num_clients
        require(fits, "cohort_size", rule, cohort_size, num_clients)


_FidelityName = Annotated[Literal["real", "array", "sets"] | None, Cites(
    real="cryptography: rfc8439 rfc7748 rfc5869",
    array="pads: rfc8439",
)]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SecaggConfig(Shown):
    """Run one round of secure aggregation and see what it costs, or count failures.

    SecAgg, SecAgg+ and CCESA are one protocol over different graphs: complete, regular, random.
      mrsa-jax secagg --dropped-before-unmasking 0.1
      mrsa-jax secagg --fidelity real --num-clients 30 --dim 1000
      mrsa-jax secagg --graph erdos_renyi --num-clients 500 --step-dropout-rate 0.026
      mrsa-jax secagg --graph harary --degree 20 --up-mbits 10
      mrsa-jax secagg --fidelity real --num-clients 30 --consistency
      mrsa-jax secagg --graph erdos_renyi --trials 10000 --step-dropout-rate 0.01

    Exit status: 0 done; 1 the round failed, so that no sum was learnt; 2 misuse.
    """

    fidelity: _FidelityName = None
    """real: messages and cryptography; array: the same bits, faster; sets: no pads. Default:
    array."""

    num_clients: Several = 100
    """Clients, n."""

    dim: Whole = 10_000
    """Residues in each client's input, m."""

    modulus_bits: Annotated[Count, IS_BITS] = None
    """b of the ring of R = 2**b, 1 to 32; 16 unless --modulus is given."""

    modulus: Count = None
    """R, instead of --modulus-bits: a power of two, or any integer below 2**31."""

    graph: str = "complete"
    """complete (SecAgg), erdos_renyi (CCESA), harary or random_regular (SecAgg+),
    over_blocks:T:K (blocks of T clients, each joined to K others), or your own (--plugin)."""

    connection_probability: Annotated[Number, IS_PART] = None
    """Chance of an edge, for --graph erdos_renyi. Default: CCESA's p*, if at most 1."""

    degree: Annotated[Count, Within(0)] = None
    """Neighbours of each client, for --graph harary and random_regular."""

    threshold: Annotated[Count, Within(1)] = None
    """Shares that rebuild a secret, t. Default: just above half of the holders, or Remark 4's t."""

    step_dropout_rate: Chance = 0.0
    """Chance to leave at each of the protocol's four steps, q."""

    dropped_before_unmasking: Chance = 0.0
    """Share of the clients lost between sharing keys and sending padded inputs; drawn at random."""

    allow_unmasking_risk: bool = False
    """Accept a threshold at which CCESA's Appendix F attack could unmask single clients."""

    consistency: bool = False
    """Add the signed consistency check of Bonawitz et al.: nobody unmasks before enough of its
    neighbours have signed the same list of survivors."""

    trials: Annotated[Count, Within(1)] = None
    """Count failures in so many rounds: exact intervals, the theorems' bounds, rare events."""

    up_mbits: Annotated[Number, IS_POSITIVE] = None
    """Also model the seconds on clients' links of this many Mbit/s up, ten times that down."""

    compute_slowdown: Positive = 1.0
    """How many times slower clients compute in that model than one core of a server."""

    seed: Natural = 0
    """Seed of inputs, secrets, graph and losses; a round is trial 0 of the study of its seed."""

    json: bool = False
    """Print everything as JSON instead."""


def check_secagg(config: SecaggConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    both = config.modulus_bits is not None and config.modulus is not None
    require(not both, "modulus", "must not be set if --modulus-bits is given", config.modulus)
    validate_graph(config)
    if config.trials is not None:
        known = config.fidelity in (None, "sets")
        require(known, "fidelity", "must be sets with --trials", config.fidelity)
        rule = "must not be set with --trials"
        check_unset(config, rule, "dropped_before_unmasking", "consistency", "up_mbits")
