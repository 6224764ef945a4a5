"""Decide what becomes of a round over many blocks, and record what a run of it gave.

Theorems 1 and 2 of CCESA are applied block by block. Shares travel along the whole
graph, pads only between neighbours in the same block. Symbols as in `_conditions`, with
V_3 less those who would be alone in a block, and the graph within a block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from mrsa_jax._core.status import Status
from mrsa_jax.secagg._conditions import check_round
from mrsa_jax.secagg.lists import heeded, holders
from mrsa_jax.secagg.plans import Block, SegmentPlan, only_total, segment_plan
from mrsa_jax.secagg.seeds import Seeds
from mrsa_jax.secagg.thresholds import Thresholds
from mrsa_watch._base.html import Markup, card, finding, shown, table
from mrsa_watch._base.values import by_value


@dataclasses.dataclass(frozen=True)
@by_value
class StepReport:
    """Record the costs of one step of the protocol.

    Attributes:
        name: "advertise keys", "share keys", "masked input" or "unmask"; before the
            last "check survivors" in a round with the consistency check.
        num_clients: Clients whose message of this step arrived (V1 to V4, or who
            signed).
        client_seconds: Time that all clients together computed; nan where it was not
            measured.
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


@finding
class Transcript:
    """Record everything that the server saw of a run.

    Attributes:
        survivors: bool[5, n], V0 to V4; in V4 nobody but clients who are summed.
        padded_inputs: uint32[n, d], what each client of V3 sent, those who count as
            lost afterwards among them; zeros elsewhere.
        is_informative: bool[n], clients whose secret the shares that came back give
            away (CCESA, Definition 3): b_i of a client who is summed, else s_i^SK.
    """

    survivors: np.ndarray
    padded_inputs: np.ndarray
    is_informative: np.ndarray

    def _repr_html_(self) -> str:
        """Show the transcript in a notebook."""
        informative = int(np.asarray(self.is_informative).sum())
        rows = [
            ("clients of V0 to V4", shown(np.sum(self.survivors, axis=1).tolist())),
            ("padded inputs", shown(self.padded_inputs)),
            (
                "secrets given away",
                f"{informative} of {len(self.is_informative)} clients",
            ),
        ]
        return card("Transcript", rows)


@finding
class AggregateResult:
    """Outcome of one round of secure aggregation.

    Attributes:
        totals: For each block of the plan uint32[stop - start], the sum over the
            clients who are summed, in the block's ring; zeros unless the block's status
            is OK.
        status: What became of the round: OK if the total of every block in which
            somebody is summed is known, TOO_FEW_SURVIVORS if nobody is summed, else
            UNRELIABLE.
        block_status: int32[blocks], a `Status` for each block: OK, UNRELIABLE, or
            TOO_FEW_SURVIVORS where nobody is summed.
        summed: bool[n], the clients whose inputs the round sums: V3 less those who
            would be alone in one of their blocks (`admitted`), who count as lost.
        learned: bool[L, n], rows of P that the round adds: the sets of clients whose
            sums the server can compute, block by block. In a private and reliable round
            all who are summed in the block; else the components of the block's graph on
            them whose pads can all be removed.
        learned_block: int32[L], the block of each row of `learned`.
        is_reliable: Whether all of these sums can be unmasked (CCESA, Theorem 1).
        is_private: Whether no sum over a part of those summed in a block can be (CCESA,
            Theorem 2).
        unmasking_risk: Whether for some client 2 t_i <= |Adj(i)| + 1, so that CCESA's
            Appendix F attack could collect both of its secrets; of no other attack
            (`unmasking_risk`).
        transcript: What the server saw.
        seeds: The seeds of all pads.
        steps: What each step cost.
    """

    cites = "secagg"

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
        """Show the round in a notebook: its outcome, and the cost of each step."""
        totals = []
        for total in self.totals[:4]:
            rest = ", ..." if len(total) > 6 else ""
            totals.append(shown(np.asarray(total)[:6].tolist()) + rest)
        num_more = len(self.totals) - 4
        more = f" and {num_more} more blocks" if num_more > 0 else ""
        theorems = f"{shown(bool(self.is_reliable))}, {shown(bool(self.is_private))}"
        rows = [
            ("status", self.status.name),
            (
                "clients summed",
                f"{int(np.asarray(self.summed).sum())} of {len(self.summed)}",
            ),
            ("sums learnt", str(len(self.learned))),
            ("reliable, private", theorems),
            ("unmasking risk", shown(bool(self.unmasking_risk))),
            ("total", "; ".join(totals) + more),
        ]
        steps = [
            (
                step.name,
                step.num_clients,
                shown(step.bytes_up),
                shown(step.bytes_down),
                _seconds(step.client_seconds),
                _seconds(step.server_seconds),
            )
            for step in self.steps
        ]
        heads = (
            "step",
            "clients",
            "bytes up",
            "bytes down",
            "clients' s",
            "server's s",
        )
        return card("Secure aggregation", rows, note=Markup(table(steps, heads)))

    total = property(only_total)


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value == value else "-"


@by_value
class PlanOutcome(NamedTuple):
    """Hold the outcome of a round of many blocks.

    Attributes:
        status: OK if every block in which somebody is summed is, TOO_FEW_SURVIVORS if
            nobody is summed, else UNRELIABLE.
        block_status: int32[blocks], OK, UNRELIABLE, or TOO_FEW_SURVIVORS where nobody
            is summed.
        summed: bool[n], V3 less those who count as lost (`admitted`).
        learned: bool[L, n], the sets whose sums can be unmasked, by block and smallest
            member.
        learned_block: int32[L], the block of each.
        is_reliable: Whether every block's sum can be unmasked; not where somebody sent
            and nobody is summed, because clients refuse then.
        is_private: Whether no sum over a part of those summed in a block can be.
    """

    status: Status
    block_status: np.ndarray
    summed: np.ndarray
    learned: np.ndarray
    learned_block: np.ndarray
    is_reliable: bool
    is_private: bool

    @classmethod
    def of(
        cls,
        adjacency: Bool[np.ndarray, "n n"],
        survivors: Bool[np.ndarray, "5 n"],
        thresholds: ArrayLike,
        plan: SegmentPlan,
    ) -> PlanOutcome:
        """Return `plan_outcome` of checked arguments."""
        alive, summed = heeded(plan, adjacency, survivors, thresholds)
        is_known = holders(adjacency, alive[4]) >= thresholds
        return judged(adjacency, alive, summed, is_known, plan)


def plan_outcome(
    adjacency: ArrayLike | Sequence[object],
    survivors: ArrayLike | Sequence[object],
    thresholds: Thresholds,
    plan: SegmentPlan,
) -> PlanOutcome:
    """Decide what becomes of a round over many blocks, from sets alone.

    Choose it for rates of failure and for simulations without pads; `aggregate` and
    `protocol.run` come to the same outcome. For a plan of one block it is that of
    `is_reliable`, `is_private` and `learned_sets`, given V0 to V4 less those who refuse
    lists below their threshold (`aggregate`).

    A client's inputs of all blocks arrive or are lost together, and one self seed b_i
    opens all of them. So whoever would be alone in a block counts as lost in all
    (`admitted`), and does not answer in the last step. Secrets are informative or not
    for the whole round; a block's pads join those of its members who are neighbours in
    the graph.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.
        survivors: bool[5, n], V_0 to V_4, nested.
        thresholds: t_i, at least 1, one integer or [n], or the name of a rule
            (`check_round`).
        plan: Blocks; each client in at least one.

    Returns:
        The outcome of the round and of each block.

    Raises:
        ConfigurationError: See `check_round` and `segment_plan`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> plan = (
        ...     mj.secagg.Block((0, 1), 0, 1, 8),
        ...     mj.secagg.Block((2, 3), 0, 1, 8),
        ...     mj.secagg.Block((0, 1, 2, 3), 1, 2, 8),
        ... )
        >>> survivors = np.ones((5, 4), bool)
        >>> survivors[3:, 3] = False  # leaves 2 alone in its block
        >>> outcome = mj.secagg.plan_outcome(~np.eye(4, dtype=bool), survivors, 2, plan)
        >>> outcome.summed.tolist(), [mj.Status(s).name for s in outcome.block_status]
        ([True, True, False, False], ['OK', 'TOO_FEW_SURVIVORS', 'OK'])
        >>> outcome.learned_block.tolist()
        [0, 2]

    Cost: n^2 for the shares, and the square of its members for each block.

    Source: CCESA, Definition 3 and Theorems 1 and 2, with the graph of pads restricted
    to each block; HeteroSAg, Section VI-B, says nothing about clients who are left
    alone.
    """
    graph, alive, limits = check_round(adjacency, survivors, thresholds)
    return PlanOutcome.of(graph, alive, limits, segment_plan(plan, len(graph)))


def judged(
    graph: Bool[np.ndarray, "n n"],
    survivors: Bool[np.ndarray, "5 n"],
    summed: Bool[np.ndarray, " n"],
    is_known: Bool[np.ndarray, " n"],
    plan: SegmentPlan,
) -> PlanOutcome:
    """Judge a round in which the server knows some clients' secrets.

    Blocks of the plan can be judged one by one although their pads come from the same
    seeds: the block's number is in the nonce of each pad, so that to whoever has no
    seed the keystreams of different blocks are independent, and who has one has its
    pads in all of them. No equation between the padded inputs of one block and those of
    another is left over.

    Args:
        graph: Who shares with whom.
        survivors: V0 to V4.
        summed: V3 less those who count as lost (`admitted`).
        is_known: Clients of which b_i (of those summed) or s_i^SK (of the others in V2)
            came back.
        plan: Blocks of the round.
    """
    lost = survivors[2] & ~summed
    statuses = np.full(len(plan), Status.TOO_FEW_SURVIVORS, np.int32)
    rows: list[np.ndarray] = []
    numbers: list[int] = []
    is_private = True
    for number, block in enumerate(plan):
        parts = _parts(block, graph, summed, lost, is_known)
        if not parts:
            continue
        learnt = [part.members for part in parts if part.is_open]
        rows += learnt
        numbers += [number] * len(learnt)
        is_private &= len(parts) == 1 or not learnt
        statuses[number] = Status.OK if len(learnt) == len(parts) else Status.UNRELIABLE
    learned = np.zeros((len(rows), len(graph)), bool)
    for row, members in zip(learned, rows, strict=True):
        row[members] = True
    is_removable = not (statuses == Status.UNRELIABLE).any()
    status = Status.TOO_FEW_SURVIVORS
    if summed.any():
        status = Status.OK if is_removable else Status.UNRELIABLE
    return PlanOutcome(
        status=status,
        block_status=statuses,
        summed=summed,
        learned=learned,
        learned_block=np.asarray(numbers, np.int32),
        is_reliable=is_removable and bool(summed.any() or not survivors[3].any()),
        is_private=is_private,
    )


class _Part(NamedTuple):
    """A component of a block's graph on those summed."""

    members: np.ndarray  # slots
    is_open: bool  # whether all its pads come off


def _parts(
    block: Block,
    graph: np.ndarray,
    summed: np.ndarray,
    lost: np.ndarray,
    is_known: np.ndarray,
) -> list[_Part]:
    slots = np.asarray(block.members)
    near = graph[np.ix_(slots, slots)]
    is_held = ~is_known[slots]  # whose pads stay on
    is_beside = near[:, lost[slots] & is_held].any(axis=1)
    protected = summed[slots] & (is_held | is_beside)
    rest = summed[slots]
    parts = []
    while rest.any():
        component = _component(near, rest, int(rest.argmax()))
        rest &= ~component
        parts.append(_Part(slots[component], not protected[component].any()))
    return parts


def _component(near: np.ndarray, rest: np.ndarray, start: int) -> np.ndarray:
    component = np.zeros_like(rest)
    component[start] = True
    # clients that were reached in the last step
    border = component
    while border.any() and not np.array_equal(component, rest):
        border = near[border].any(axis=0) & rest & ~component
        component = component | border
    return component
