"""What one run of the four-step protocol gives, whether with real messages or with arrays."""

from __future__ import annotations

import dataclasses

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax._html import Markup, brief, card, shown, table
from mrsa_jax._status import Status
from mrsa_jax.secagg._types import Seeds


@dataclasses.dataclass(frozen=True)
class StepReport:
    """What one step of the protocol cost.

    Attributes:
        name: "advertise keys", "share keys", "masked input" or "unmask"; before the last "check
            survivors" in a round with the consistency check.
        num_clients: Clients whose message of this step arrived (V1 to V4, or who signed).
        client_seconds: Time that all clients together computed; nan where it was not measured.
        server_seconds: Time that the server computed; nan where it was not measured.
        bytes_up: Bytes that reached the server.
        bytes_down: Bytes that the server sent.
    """

    name: str
    num_clients: int
    client_seconds: float
    server_seconds: float
    bytes_up: int
    bytes_down: int


@dataclasses.dataclass(frozen=True, eq=False)
class Transcript:
    """What the server saw of a run.

    Attributes:
        survivors: bool[5, n], V0 to V4; in V4 nobody but clients who are summed.
        padded_inputs: uint32[n, d], what each client of V3 sent, those who count as lost
            afterwards among them; zeros elsewhere.
        is_informative: bool[n], clients whose secret the shares that came back give away
            (CCESA, Definition 3): b_i of a client who is summed, else s_i^SK.
    """

    __repr__ = brief

    survivors: np.ndarray
    padded_inputs: np.ndarray
    is_informative: np.ndarray

    def _repr_html_(self) -> str:
        """Return the transcript for a notebook: how many were left, and what the server holds."""
        counts = np.asarray(self.survivors).sum(axis=1).tolist()
        rows = [
            ("clients of V0 to V4", shown(counts)),
            ("padded inputs", shown(self.padded_inputs)),
            ("secrets given away", f"{int(np.asarray(self.is_informative).sum())} of "
             f"{len(self.is_informative)} clients"),
        ]  # fmt: skip
        return card("Transcript", rows)


@dataclasses.dataclass(frozen=True, eq=False)
class AggregateResult:
    """Outcome of one round of secure aggregation.

    Attributes:
        totals: For each block of the plan uint32[stop - start], the sum over the clients who are
            summed, in the block's ring; zeros unless the block's status is OK.
        status: What became of the round: OK if the total of every block in which somebody is
            summed is known, TOO_FEW_SURVIVORS if nobody is summed, else UNRELIABLE.
        block_status: int32[blocks], a `Status` for each block: OK, UNRELIABLE, or
            TOO_FEW_SURVIVORS where nobody is summed.
        summed: bool[n], the clients whose inputs the round sums: V3 less those who would be alone
            in one of their blocks (`admitted`), who count as lost.
        learned: bool[L, n], rows of P that the round adds: the sets of clients whose sums the
            server can compute, block by block. In a private and reliable round all who are
            summed in the block; else the components of the block's graph on them whose pads can
            all be removed.
        learned_block: int32[L], the block of each row of `learned`.
        is_reliable: Whether all of these sums can be unmasked (CCESA, Theorem 1).
        is_private: Whether no sum over a part of those summed in a block can be (CCESA,
            Theorem 2).
        unmasking_risk: Whether for some client 2 t_i <= |Adj(i)| + 1, so that CCESA's Appendix F
            attack could collect both of its secrets; of no other attack (`unmasking_risk`).
        transcript: What the server saw.
        seeds: The seeds of all pads.
        steps: What each step cost.
    """

    cites = "secagg"
    __repr__ = brief

    totals: tuple[np.ndarray, ...]
    status: Status
    block_status: np.ndarray
    summed: np.ndarray
    learned: np.ndarray
    learned_block: np.ndarray
    is_reliable: bool
    is_private: bool
    unmasking_risk: bool
    transcript: Transcript
    seeds: Seeds
    steps: tuple[StepReport, ...]

    def _repr_html_(self) -> str:
        """Return the round for a notebook: what became of it, and what each step cost."""
        summed = np.asarray(self.summed)
        totals = [shown(np.asarray(total)[:6].tolist()) + ", ..." * (len(total) > 6)
                  for total in self.totals[:4]]  # fmt: skip
        more = f" and {len(self.totals) - 4} more blocks" if len(self.totals) > 4 else ""
        rows = [
            ("status", self.status.name),
            ("clients summed", f"{int(summed.sum())} of {len(summed)}"),
            ("sums learnt", str(len(self.learned))),
            ("reliable, private", f"{shown(bool(self.is_reliable))}, "
             f"{shown(bool(self.is_private))}"),
            ("unmasking risk", shown(bool(self.unmasking_risk))),
            ("total", "; ".join(totals) + more),
        ]  # fmt: skip
        steps = [
            (step.name, step.num_clients, shown(step.bytes_up), shown(step.bytes_down),
             _seconds(step.client_seconds), _seconds(step.server_seconds))
            for step in self.steps
        ]  # fmt: skip
        heads = ("step", "clients", "bytes up", "bytes down", "clients' s", "server's s")
        return card("Secure aggregation", rows, note=Markup(table(steps, heads)))

    @property
    def total(self) -> np.ndarray:
        """Return the only block's total; raises for a plan of many."""
        require(len(self.totals) == 1, "total", "needs a plan of one block", len(self.totals))
        return self.totals[0]


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value == value else "-"
