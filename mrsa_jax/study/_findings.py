"""Findings that are no data set: words, tables, and values as JSON has them."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.privacy import Audit, Gate, ParticipationLog
from mrsa_jax.study._values import values_row, values_sentence
from mrsa_watch._base.html import (
    counted,
    finding,
    hidden_words,
    number,
    shown,
    telling,
    told,
)
from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import by_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mrsa_jax.plotting.chart import Chart
    from mrsa_jax.study.settings._commands import AuditConfig

_MOST_NOTED, _MOST_TOLD = 5, 3


def as_json(value: Any) -> Any:
    """Return a value as JSON has it; None for numbers that are not finite.

    Examples:
        >>> value = {"mu": np.float64(np.inf), "sizes": (np.int64(2), 3.5)}
        >>> value["word"] = "of"
        >>> as_json(value)
        {'mu': None, 'sizes': [2, 3.5], 'word': 'of'}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: as_json(content) for name, content in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    # NumPy's numbers are none of JSON's
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    return plain if isinstance(plain, str | int | bool | None) else str(plain)


def shares_of(config: AuditConfig, log: ParticipationLog) -> dict[str, Any] | None:
    """Return the ledger's account of a log as plain values.

    None where it is not asked for.

    Raises:
        ConfigurationError: If a client who colludes is not of the log, or all are.
    """
    if not config.counts_shares:
        return None
    from mrsa_jax import dp

    names = (
        [name.strip() for name in config.colluding.split(",")]
        if config.colluding
        else []
    )
    ledger = dp.ledger(
        log,
        config.noise_multiplier,
        config.clip,
        planned=config.planned,
        colluding=names,
    )
    epsilon, planned = (
        ledger.epsilon(config.delta),
        ledger.planned.epsilon(config.delta),
    )
    # nan of clients in no sum goes to the end, behind all losses
    order = np.argsort(-np.nan_to_num(ledger.mu, nan=-1.0), kind="stable")[:_MOST_NOTED]
    worst = [
        {
            "client": printable(log.clients[i]),
            "mu": ledger.mu[i],
            "epsilon": epsilon[i],
            "planned_mu": ledger.planned_mu[i],
            "planned_epsilon": planned[i],
        }
        for i in order.tolist()
        if ledger.mu[i] > 0
    ]
    return as_json(
        {
            "planned": config.planned,
            "colluding": [printable(name) for name in names],
            "noise_multiplier": config.noise_multiplier,
            "clip": config.clip,
            "delta": config.delta,
            "short": ledger.short,
            "notes": list(ledger.notes),
            "mean_epsilon": np.nanmean(epsilon),
            "planned_mean_epsilon": np.nanmean(
                np.where(np.isnan(epsilon), np.nan, planned)
            ),
            "worst": worst,
        }
    )


def shares_row(shares: dict[str, Any]) -> tuple[str, str, str]:
    """Return question, answer, how sure of the worst client."""
    words = _told(shares["worst"][0]) if shares["worst"] else "no client took part"
    return "told apart by shares that were added", words, "guarantee, float64"


def shares_sentence(shares: dict[str, Any]) -> str:
    """Say what is left of the planned noise, and how well it protects each client."""
    who = f"With noise of {shares['noise_multiplier']:g} clips in a sum"
    if shares["planned"] is not None:
        who += f", of which each survivor adds one share in {shares['planned']}"
    if shares["colluding"]:
        who += f", and clients {', '.join(shares['colluding'][:_MOST_TOLD])}"
        more = len(shares["colluding"]) - _MOST_TOLD
        who += f" and {more} more tell theirs" if more > 0 else " telling theirs"
    worst = (
        "; ".join(_told(client) for client in shares["worst"][:_MOST_TOLD])
        or "no client took part"
    )
    text = (
        f"{who}, all others' updates known (a guarantee, delta {shares['delta']:g}): "
        f"{worst}; the "
        f"mean: epsilon {_words(shares['mean_epsilon'])}, "
        f"{_words(shares['planned_mean_epsilon'])} as planned."
    )
    return " ".join((text, *shares["notes"]))


def _told(client: dict[str, Any]) -> str:
    return (
        f"client {client['client']} mu {_words(client['mu'])}, epsilon "
        f"{_words(client['epsilon'])} "
        f"({_words(client['planned_epsilon'])} as planned)"
    )


def _words(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3g}"


_SERVERS_WORD = (
    "A log is the word of the server that wrote it: a sum that it leaves out is not seen "
    "here. If clients signed the sums, mrsa-watch check --roster follows their signatures."
)


@dataclasses.dataclass(frozen=True)
@by_value
class Findings:
    """The findings of a command.

    Attributes:
        title: What was looked at, in a line or two.
        sentences: What was found, in words.
        content: Everything, as `--json` prints it.
    """

    __repr__ = told
    _repr_html_ = telling

    title: str
    sentences: list[str]
    content: dict[str, Any]

    def _rows(self) -> list[tuple[str, str]]:
        return []  # sentences say it


@dataclasses.dataclass(eq=False)  # it grows while the attack runs
class AttackFindings:
    """The findings of an attack so far.

    Attributes:
        folder: Where files may be written that are too large to hold; None: all is
            held.
        title: Of the tables.
        summary: A row for each thing that was attacked.
        scores: A row for each client, image or sample behind the summary.
        sentences: What they show, in words.
        figures: By file name, without its ending; a figure, a chart, or what draws it
            on axes.
        arrays: What was recovered, by file name.
        is_complete: False after an interruption.
    """

    __repr__ = told
    _repr_html_ = telling

    folder: pathlib.Path | None = None
    title: str = ""
    summary: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    scores: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    sentences: list[str] = dataclasses.field(default_factory=list)
    figures: dict[str, Figure | Chart | Callable[..., Any]] = dataclasses.field(
        default_factory=dict
    )
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    is_complete: bool = True

    def _rows(self) -> list[tuple[Any, ...]]:
        """Return the names of the summary's columns, and its rows."""
        rows = [tuple(map(_cell, row.values())) for row in self.summary]
        return [tuple(self.summary[0]), *rows] if rows else []

    @property
    def content(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "title": self.title,
            "is_complete": self.is_complete,
            "summary": as_json(self.summary),
            "scores": as_json(self.scores),
            "sentences": self.sentences,
        }


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else shown(value)


@finding
class AuditFindings:
    """The findings of an audit.

    Attributes:
        file: Of the log.
        log: The history in it.
        audit: What it leaks, with proof.
        gates: What was demanded, if anything: of T, and among how many clients are
            hidden.
        shares: What noise that clients add leaves each, planned and realised; None
            without.
        values: Which whole-number values the sums determine; None without sums.
    """

    _repr_html_ = telling

    file: pathlib.Path
    log: ParticipationLog
    audit: Audit
    gates: tuple[Gate, ...] = ()
    shares: dict[str, Any] | None = None
    values: dict[str, Any] | None = None

    def _rows(self) -> list[tuple[str, str, str]]:
        return self.summary

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to search, so False after an interruption."""
        return not self.audit.pending

    @property
    def title(self) -> str:
        """The log and its size, in a line."""
        audit = self.audit
        empty = f" ({audit.empty_rounds} without anybody)" if audit.empty_rounds else ""
        kind = "weighted" if audit.is_weighted else "plain"
        size = f"{audit.num_rounds} rounds{empty}, {audit.num_clients} clients"
        return f"{printable(self.file)}: {size}, {kind} sums"

    @property
    def sentences(self) -> list[str]:
        """The findings in words."""
        more = [] if self.values is None else [values_sentence(self.values)]
        more += [] if self.shares is None else [shares_sentence(self.shares)]
        return [*self.audit.sentences(), *more, _SERVERS_WORD]

    @property
    def summary(self) -> list[tuple[str, str, str]]:
        """The findings as question, answer, how sure."""
        more = [] if self.values is None else [values_row(self.values)]
        more += [] if self.shares is None else [shares_row(self.shares)]
        return [*_rows(self.audit), *more]

    @property
    def content(self) -> dict[str, Any]:
        """Everything, as `--json` prints it."""
        audited = {"file": str(self.file), **self.audit.to_dict(), **self.verdicts}
        return audited | {"shares": self.shares, "values": self.values}

    @property
    def verdicts(self) -> dict[str, Any]:
        """The answers of the gates as plain values: of T, of hidden among; else None.

        None without.
        """
        verdicts = {"gate": None, "gate_hidden": None}
        named = {
            "gate_hidden" if gate.definition == "hidden" else "gate": gate._asdict()
            for gate in self.gates
        }
        return verdicts | named


def first_rows(audit: Audit) -> list[tuple[str, str, str]]:
    """Return the rows that are known at once."""
    weak = audit.weak
    if weak.lower is None:
        return [("clients in any sum", "0", "exact")]
    first = ""
    if audit.exposed:
        first = (
            f", first after round {printable(audit.printed_round(audit.exposed[0][1]))}"
        )
    hidden = [
        row for row in _hidden_rows(audit) if audit.hidden and "median" not in row[0]
    ]
    return [
        ("exposed clients", f"{len(audit.exposed)}{first}", weak.surety),
        *hidden,
        ("strong T", str(audit.strong), "exact"),
        ("lightest combination so far", counted(weak.upper, "client"), "exact"),
    ]


def _rows(audit: Audit) -> list[tuple[str, str, str]]:
    weak = audit.weak
    exposed, *others = first_rows(audit)
    if not others:
        return [exposed]
    noisy = [] if audit.noisy is None else audit.noisy.rows()
    plain = []
    group = audit.group
    if group is not None and group.upper is not None:
        sizes = (
            str(group.upper) if group.certified else f"{group.lower} to {group.upper}"
        )
        sure = "certified" if group.certified else "not decided"
        plain = [("smallest plain sum", counted(sizes, "client"), sure)]
    # bounds that meet are one number
    both = weak.lower == weak.upper
    return [
        exposed,
        *_hidden_rows(audit),
        (
            "weak T",
            str(weak.lower) if both else f"{weak.lower} to {weak.upper}",
            f"{weak.verdict}; from below: {weak.lower_method}, from above: "
            f"{weak.upper_method}",
        ),
        *plain,
        ("strong T", str(audit.strong), "exact"),
        (
            "rank of the sums",
            f"{weak.rank} for {weak.num_groups} groups of clients",
            weak.surety,
        ),
        *noisy,
    ]


def _hidden_rows(audit: Audit) -> list[tuple[str, str, str]]:
    """Return rows on hidden clients, for updates that never change and that drift."""
    if audit.hidden is None:
        return [("worst client hidden", audit.worst_hidden, "float64")]
    rows = []
    for hidden in (audit.hidden, *audit.others):
        worst, median = hidden.rows
        sure = f"float64, {hidden.condition}"
        rows.append((worst, hidden.least_words, sure))
        if hidden.median is not None:
            rows.append((median, f"among {hidden_words(hidden.median)}", sure))
    return rows
