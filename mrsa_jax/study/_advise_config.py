"""Settings of the choice of a scheme; no JAX."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import tyro

from mrsa_jax._checks import check_least, check_number
from mrsa_jax._errors import require
from mrsa_jax._flags import Count, File, Folder, Name, Number
from mrsa_jax._html import Shown
from mrsa_jax._status import FEWEST_IN_A_SUM
from mrsa_jax._untrusted import start_of
from mrsa_jax.availability._registry import parse_availability
from mrsa_jax.study._config import parse_scheme
from mrsa_jax.study._validate import check_seed

_MOST_CLIENTS = 10**6  # closed forms pass over the blocks one by one
_BELOW_ONE = 1 - 2**-53


@dataclasses.dataclass(frozen=True)
class AdviseConfig(Shown):
    """Choose a selection scheme and its T for your clients: what each protects, and costs.

    From how many clients there are, how many are in a round, and how often they are away:
    mrsa-jax advise --clients 120 --cohort 12 --dropout-rate 0.2 --loss-rate 0.05. Or from the log
    of a system that runs, which says so itself: mrsa-jax advise --log participation.jsonl. A flag
    beside --log wins over what was measured. Exit status 3 if no scheme gives what is demanded.
    """

    log: File = None
    """Any log that `mrsa-jax audit` reads: clients, cohort and absences are measured in it."""

    num_clients: Annotated[Count, tyro.conf.arg(aliases=["--clients"])] = None
    """Number of clients N."""

    cohort_size: Annotated[Count, tyro.conf.arg(aliases=["--cohort"])] = None
    """Clients in a round, K."""

    dropout_rate: tuple[float, ...] = ()
    """Chance to be away when a round begins; several are spread evenly over the clients."""

    loss_rate: Number = None
    """Chance of a client that takes part to be lost before its update is in the sum."""

    availability: str = "independent"
    """Who is away when: independent, markov:ROUNDS, diurnal:AMPLITUDE:PERIOD, ..., as in
    mrsa-jax simulate."""

    want_privacy: Annotated[int | None, tyro.conf.arg(metavar="T")] = None
    """Weak T of at least this, however many rounds follow."""

    want_hidden: Number = None
    """Every client hidden as in a sum of so many, however many rounds follow."""

    min_cardinality: Number = None
    """At least so many clients in a mean sum, rounds without a sum counted as none."""

    schemes: tuple[str, ...] = ()
    """Further schemes to judge, as in mrsa-jax simulate; your own (--plugin) are judged anyway."""

    rounds: int = 300
    """Rounds that are simulated."""

    trials: Annotated[int | None, tyro.conf.arg(metavar="B")] = None
    """Simulated trials of each scheme: from 2 to 10, fewer for large populations, by default; 0
    gives what is known without."""

    seed: int = 0
    """Seed of everything random."""

    round_column: Name = None
    """Of a log in columns: name of the column with the round."""

    client_column: Name = None
    """Name of the column with the client."""

    where: tyro.conf.UseAppendAction[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=TEXT")]
    ] = ()
    """Keep only the rows with this text (or one of TEXT,TEXT) in this column, or with COLUMN!=TEXT
    all others; may be repeated."""

    ignore_columns: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Columns to pass over, with commas: one that may turn the verdict waits for a word."""

    sum_columns: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Columns that tell several sums of a round apart, with commas: group, job, attempt."""

    restarts: Literal["ask", "new", "same"] = "ask"
    """A round that goes on after others: another sum, as numbering began anew, or the same."""

    out: Folder = None
    """Folder for the table as CSV, the advice as JSON and a figure."""

    overwrite: bool = False
    """Replace other results in --out."""

    json: bool = False
    """Print everything as JSON instead."""


def check_advise(config: AdviseConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule, or for a missing log."""
    check_seed(config)
    check_least(config, num_clients=FEWEST_IN_A_SUM, rounds=1, trials=0, want_privacy=1)
    for name in ("num_clients", "cohort_size", "dropout_rate"):
        given = config.log is not None or getattr(config, name) not in (None, ())
        require(given, name, "must be given, or a log to measure it in", None)
    for rate in config.dropout_rate:
        check_number(rate, "dropout_rate", "must be at least 0 and below 1", 0.0, _BELOW_ONE)
    if config.loss_rate is not None:
        rule = "must be at least 0 and below 1"
        check_number(config.loss_rate, "loss_rate", rule, 0.0, _BELOW_ONE)
    for name in ("want_hidden", "min_cardinality"):
        value = getattr(config, name)
        if value is not None:
            check_number(value, name, "must be a finite number of at least 1", 1.0)
    if config.num_clients is not None:
        check_cohort(config.num_clients, config.cohort_size)
    parse_availability(config.availability, config.dropout_rate or (0.0,))
    for text in config.schemes:
        parse_scheme(text)
    alone = config.out is None and config.overwrite
    require(not alone, "overwrite", "must come with --out", config.overwrite)
    if config.log is not None:
        start_of(config.log, 0)  # its absence is told before anything heavy is imported


def check_cohort(num_clients: int, cohort_size: int | None) -> None:
    """Raise unless a cohort fits the clients, and is no single client; or if they are too many."""
    most = f"must be at most {_MOST_CLIENTS:,}"
    require(num_clients <= _MOST_CLIENTS, "num_clients", most, num_clients)
    if cohort_size is not None:
        rule = f"must lie in [{FEWEST_IN_A_SUM}, num_clients]"
        fits = FEWEST_IN_A_SUM <= cohort_size <= num_clients
        require(fits, "cohort_size", rule, cohort_size, num_clients)
