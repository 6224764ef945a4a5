"""What a command finds that is no data set: words, tables, and values as JSON has them."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._html import hidden_words, number, shown, telling, told
from mrsa_jax._untrusted import printable
from mrsa_jax.privacy import Audit, Gate, ParticipationLog
from mrsa_jax.study._shares import shares_row, shares_sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a command found.

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


@dataclasses.dataclass
class AttackFindings:
    """What an attack has found so far.

    Attributes:
        folder: Where files may be written that are too large to hold; None: all is held.
        title: Of the tables.
        summary: A row for each thing that was attacked.
        scores: A row for each client, image or sample behind the summary.
        sentences: What they show, in words.
        figures: By file name, without its ending; a figure, or what draws it on axes.
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
    figures: dict[str, Figure | Callable[..., Any]] = dataclasses.field(default_factory=dict)
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
            "summary": [_plain(row) for row in self.summary],
            "scores": [_plain(row) for row in self.scores],
            "sentences": self.sentences,
        }


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else shown(value)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as JSON can hold it."""
    result = {}
    for name, value in row.items():
        plain = value.item() if isinstance(value, np.generic) else value
        is_odd = isinstance(plain, float) and not math.isfinite(plain)
        result[name] = None if is_odd else plain
    return result


@dataclasses.dataclass(frozen=True, eq=False)
class AuditFindings:
    """What an audit found.

    Attributes:
        file: Of the log.
        log: The history in it.
        audit: What it leaks, with proof.
        gates: What was demanded, if anything: of T, and among how many clients are hidden.
        shares: What noise that clients add leaves each, planned beside realised; None without.
    """

    __repr__ = told
    _repr_html_ = telling

    file: pathlib.Path
    log: ParticipationLog
    audit: Audit
    gates: tuple[Gate, ...] = ()
    shares: dict[str, Any] | None = None

    def _rows(self) -> list[tuple[str, str, str]]:
        return self.summary

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to search, so False after an interruption."""
        return not self.audit.pending

    @property
    def title(self) -> str:
        """What was audited, in a line."""
        found = self.audit
        empty = f" ({found.empty_rounds} without anybody)" if found.empty_rounds else ""
        kind = "weighted" if found.is_weighted else "plain"
        size = f"{found.num_rounds} rounds{empty}, {found.num_clients} clients"
        return f"{printable(self.file)}: {size}, {kind} sums"

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        told = [] if self.shares is None else [shares_sentence(self.shares)]
        return [*self.audit.sentences(), *told]

    @property
    def summary(self) -> list[tuple[str, str, str]]:
        """What was found as question, answer, how sure."""
        told = [] if self.shares is None else [shares_row(self.shares)]
        return [*_rows(self.audit), *told]

    @property
    def content(self) -> dict[str, Any]:
        """Everything, as `--json` prints it."""
        found = {"file": str(self.file), **self.audit.to_dict(), **self.verdicts}
        return found | {"shares": self.shares}

    @property
    def verdicts(self) -> dict[str, Any]:
        """What the gates say as plain values: that of T, that of hidden among; None without."""
        found = {"gate": None, "gate_hidden": None}
        own = {"gate_hidden" if gate.definition == "hidden" else "gate": gate._asdict()
               for gate in self.gates}  # fmt: skip
        return found | own


def first_rows(found: Audit) -> list[tuple[str, str, str]]:
    """Return what is known at once."""
    weak = found.weak
    if weak.lower is None:
        return [("clients in any sum", "0", "exact")]
    first = f", first after round {printable(found.exposed[0][1])}" if found.exposed else ""
    hidden = [("worst client hidden", found.worst_hidden, "float64")] if found.hidden else []
    return [
        ("exposed clients", f"{len(found.exposed)}{first}", weak.surety),
        *hidden,
        ("strong T", str(found.strong), "exact"),
        (
            "lightest combination so far",
            f"{weak.upper} client{'' if weak.upper == 1 else 's'}",
            "exact",
        ),
    ]


def _rows(found: Audit) -> list[tuple[str, str, str]]:
    weak = found.weak
    exposed, *others = first_rows(found)
    if not others:
        return [exposed]
    hidden, noisy, plain = [("worst client hidden", found.worst_hidden, "float64")], [], []
    if found.hidden is not None and found.hidden.median is not None:
        words = f"among {hidden_words(found.hidden.median)}"
        hidden.append(("median client hidden", words, "float64"))
    if found.noisy is not None:
        noisy = found.noisy.rows()
    group = found.group
    if group is not None and group.upper is not None:
        sizes = str(group.upper) if group.certified else f"{group.lower} to {group.upper}"
        plural = "" if sizes == "1" else "s"
        sure = "certified" if group.certified else "not decided"
        plain = [("smallest plain sum", f"{sizes} client{plural}", sure)]
    both = weak.lower == weak.upper
    return [
        exposed,
        *hidden,
        ("weak T", str(weak.lower) if both else f"{weak.lower} to {weak.upper}",
         f"{weak.verdict}; from below: {weak.lower_method}, from above: {weak.upper_method}"),
        *plain,
        ("strong T", str(found.strong), "exact"),
        ("rank of the sums", f"{weak.rank} for {weak.num_groups} groups of clients", weak.surety),
        *noisy,
    ]  # fmt: skip
