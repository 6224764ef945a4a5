"""What an audit found, as tables and as JSON has it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from mrsa_jax._untrusted import printable
from mrsa_jax.privacy import Audit, Gate, ParticipationLog
from mrsa_jax.privacy._audit import share

__all__ = ["AuditFindings", "first_rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class AuditFindings:
    """What an audit found.

    Attributes:
        file: Of the log.
        log: The history in it.
        audit: What it leaks, with proof.
        gate: What was demanded, if anything.
    """

    file: pathlib.Path
    log: ParticipationLog
    audit: Audit
    gate: Gate | None

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
        return self.audit.sentences()

    @property
    def summary(self) -> list[tuple[str, str, str]]:
        """What was found as question, answer, how sure."""
        return _rows(self.audit)

    @property
    def content(self) -> dict[str, Any]:
        """Everything, as `--json` prints it."""
        gate = None if self.gate is None else self.gate._asdict()
        return {"file": str(self.file), **self.audit.to_dict(), "gate": gate}


def first_rows(found: Audit) -> list[tuple[str, str, str]]:
    """Return what is known at once."""
    weak = found.weak
    if weak.lower is None:
        return [("clients in any sum", "0", "exact")]
    first = f", first after round {printable(found.exposed[0][1])}" if found.exposed else ""
    return [
        ("exposed clients", f"{len(found.exposed)}{first}", weak.surety),
        ("strong privacy T", str(found.strong), "exact"),
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
    leverage = "not computed"
    if found.max_leverage is not None:
        leverage = f"{share(found.max_leverage)} (client {printable(found.max_leverage_client)})"
    plain = []
    group = found.group
    if group is not None and group.upper is not None:
        sizes = str(group.upper) if group.certified else f"{group.lower} to {group.upper}"
        plural = "" if sizes == "1" else "s"
        sure = "certified" if group.certified else "not decided"
        plain = [("smallest plain sum", f"{sizes} client{plural}", sure)]
    both = weak.lower == weak.upper
    return [
        exposed,
        ("maximum leverage", leverage, "float64"),
        ("weak privacy T", str(weak.lower) if both else f"{weak.lower} to {weak.upper}",
         f"{weak.verdict}; from below: {weak.lower_method}, from above: {weak.upper_method}"),
        *plain,
        ("strong privacy T", str(found.strong), "exact"),
        ("rank of the sums", f"{weak.rank} for {weak.num_groups} groups of clients", weak.surety),
    ]  # fmt: skip
