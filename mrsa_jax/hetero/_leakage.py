"""Leakage of secure sums of segments over rounds, under the server's selection.

In each round the server learns one sum for each block of each segment (HeteroSAg).
Coordinates are separate unknowns, so every segment has a separate matrix, a row for
each learnt block, and leaks what follows from that matrix (Multi-RoundSecAgg's
measures). Neither paper joins the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32

from mrsa_jax import privacy
from mrsa_jax._core.status import FEWEST_IN_A_SUM, Status
from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.secagg import PlanOutcome, admitted
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import finding


@finding
class SegmentHistory:
    """The learnt sums of each segment (build it with `segment_participation`).

    Attributes:
        bounds: (start, stop) of each segment; where layouts cut updates differently in
            different rounds, the finest pieces that no cut divides.
        participation: For each segment bool[rows, N], one row for each learnt sum, in
            the order of rounds.
        rounds: For each segment int32[rows], the round of each row.
        blocks: For each segment int32[rows], the number in its round's plan of each
            row's block.
        sizes: For each segment int32[rows], clients laid out in each row's block, lost
            or not.
        plain: bool[J, N], the same rounds summed by everybody at once, without
            segments: V3, and nobody in rounds that failed or have fewer than two left.
    """

    bounds: tuple[tuple[int, int], ...]
    participation: tuple[np.ndarray, ...]
    rounds: tuple[np.ndarray, ...]
    blocks: tuple[np.ndarray, ...]
    sizes: tuple[np.ndarray, ...]
    plain: np.ndarray

    @property
    def num_segments(self) -> int:
        """Return the number of segments."""
        return len(self.bounds)

    @property
    def shares(self) -> Float64[np.ndarray, " segments"]:
        """Return each segment's share of an update's coordinates."""
        lengths = np.asarray([stop - start for start, stop in self.bounds], np.float64)
        return lengths / lengths.sum()

    def until(self, num_rounds: int) -> SegmentHistory:
        """Return the first rounds alone."""
        is_before = [when < num_rounds for when in self.rounds]

        def first(parts: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            return tuple(
                part[keep] for part, keep in zip(parts, is_before, strict=True)
            )

        return SegmentHistory(
            self.bounds,
            first(self.participation),
            first(self.rounds),
            first(self.blocks),
            first(self.sizes),
            self.plain[:num_rounds],
        )


@finding
class SumLeakage:
    """Leakage of one matrix of learnt sums.

    Attributes:
        strong: Strong privacy T (`privacy.strong_privacy`); None where nothing was
            learnt.
        weak_lower: Weak privacy is at least this; None as above, and where it was not
            asked for.
        weak_upper: Weak privacy is at most this.
        certified: Whether both bounds are equal and proven (`privacy.weak_privacy`).
        rank: Rank of the matrix over the rationals.
        exposure: int32[N], the round from which on the server can solve for each
            client's own values; -1 for never.
    """

    strong: int | None
    weak_lower: int | None
    weak_upper: int | None
    certified: bool
    rank: int
    exposure: np.ndarray


@finding
class SegmentLeakage:
    """Leakage of all segments (`segment_leakage`), and of the rounds without segments.

    Attributes:
        segments: What each segment leaks.
        plain: What one sum a round over the same clients leaks.
        exposure: int32[segments, N], first round in which each client's segment is
            exposed; -1 for never.
        exposed_share: float64[J, N], the share of each client's update that is exposed
            after each round.
    """

    segments: tuple[SumLeakage, ...]
    plain: SumLeakage
    exposure: np.ndarray
    exposed_share: np.ndarray

    @property
    def strong(self) -> int | None:
        """Return the least strong privacy of a segment, None if nothing was learnt."""
        return self._least("strong")

    @property
    def weak_lower(self) -> int | None:
        """Return a lower bound on every segment's weak privacy, None if unknown."""
        return self._least("weak_lower")

    @property
    def weak_upper(self) -> int | None:
        """Return an upper bound on the least weak privacy, None if unknown."""
        return self._least("weak_upper")

    def _least(self, name: str) -> int | None:
        values = [getattr(segment, name) for segment in self.segments]
        return min((value for value in values if value is not None), default=None)

    @property
    def exposed_segments(self) -> Int32[np.ndarray, " clients"]:
        """Count the segments of each client that are exposed at the end."""
        return (self.exposure >= 0).sum(axis=0, dtype=np.int32)

    @property
    def first_any(self) -> int:
        """Return the first round after which a segment is exposed, -1 for never."""
        return min(self.exposure[self.exposure >= 0].tolist(), default=-1)

    @property
    def first_whole(self) -> int:
        """Return the first round after which a whole update is exposed, -1 if none."""
        whole = (self.exposure >= 0).all(axis=0)
        return min(self.exposure[:, whole].max(axis=0).tolist(), default=-1)


@needs_values
def segment_participation(
    layouts: SegmentLayout | Sequence[SegmentLayout | None],
    survivors: Any = None,
    *,
    members: Any = None,
    status: Any = None,
    outcomes: Sequence[PlanOutcome] | None = None,
    num_clients: int | np.integer | None = None,
    num_rounds: int | np.integer | None = None,
) -> SegmentHistory:
    """Return the learnt sums of each segment, over any number of rounds.

    A round that worked gives one row for each block of the segment, over the block's
    members among the summed clients: V3, less those who would be alone in a block
    (`secagg.admitted`).

    Args:
        layouts: One layout for all rounds, or one for each round, None for a skipped
            one (`hetero.cohort_layouts`).
        survivors: V3 of each round, bool[J, n]; or all five rows V0 to V4, bool[J, 5,
            n]; or a sequence of J such arrays where rounds differ in size, entries of
            skipped rounds being ignored. Everybody if None.
        members: The clients of the slots: int[J, n], or a sequence of J vectors; or one
            vector for all rounds. The slots themselves if None.
        status: Status of each round, int[J], or of each of its blocks, J vectors: what
            is not `Status.OK` was not learnt. All OK if None.
        outcomes: Instead of `status`, what `SegmentLayout.outcome` returned for each
            round: over a sparse graph a block can give sums over parts of it.
        num_clients: N; the largest client in `members` plus one if None.
        num_rounds: J, where nothing else says it.

    Returns:
        The matrices, ready for `segment_leakage` and every function of
        `mrsa_jax.privacy`.

    Raises:
        ConfigurationError: If numbers of rounds or slots do not fit each other, all
            rounds are skipped, layouts differ in the length of updates, or a client has
            two slots.

    Examples:
        >>> import mrsa_jax as mj
        >>> layout = mj.hetero.segment_layout("mc", [2, 2, 2], [2, 4, 8], dim=7)
        >>> history = mj.hetero.segment_participation(layout, [[1, 1, 1, 1, 1, 0]])

        Client 4 would be alone in a block, so it is not summed:

        >>> history.participation[0].astype(int).tolist()
        [[1, 1, 1, 1, 0, 0]]

    Source: the sums are HeteroSAg's (Section III); that the server keeps those of all
    rounds is Multi-RoundSecAgg's threat.
    """
    if outcomes is not None:
        require(status is None, "status", "must not be set with `outcomes`")
        status = [outcome.block_status for outcome in outcomes]
    played = _rounds(layouts, survivors, members, status, num_rounds)
    played_rounds = [round_ for round_ in played if round_ is not None]
    require(len(played_rounds) > 0, "layouts", "must hold a round that is not skipped")
    largest = max(int(round_.clients.max()) for round_ in played_rounds)
    count = largest + 1
    if num_clients is not None:
        rule = "must be more than every client in `members`"
        count = check_integer(num_clients, "num_clients", largest + 1, rule=rule)
    bounds = _pieces([round_.layout for round_ in played_rounds])
    none = np.zeros(0, np.int32)
    nothing: tuple[np.ndarray, ...] = (np.zeros((0, count), np.bool_), none, none, none)
    pieces = [[nothing] for _ in bounds]  # rows, their rounds, blocks and sizes
    plain = np.zeros((len(played), count), np.bool_)
    # Layouts of different rounds cut updates differently. `bounds` are the common
    # finest pieces, each of which lies in one segment of every round.
    starts = np.asarray([start for start, _ in bounds])
    for number, round_ in enumerate(played):
        if round_ is None:
            continue
        if outcomes is None:
            learnt = _learnt(round_, count)
        else:
            learnt = _as_learnt(round_, outcomes[number], count)
        sets, block_of = learnt
        laid = round_.layout.memberships.sum(axis=1, dtype=np.int32)
        if round_.ok.any() and round_.sends.sum() >= FEWEST_IN_A_SUM:
            # For comparison, the same round as one sum over whole updates.
            plain[number, round_.clients] = round_.sends
        segment_of = np.asarray([block.segment for block in round_.layout.blocks])
        begins = [start for start, _ in round_.layout.bounds]
        # The segment of this round that holds each piece: the last that begins at or
        # before it.
        segments = np.searchsorted(begins, starts, "right") - 1
        for piece, segment in zip(pieces, segments, strict=True):
            chosen = segment_of[block_of] == segment
            blocks_of = block_of[chosen]
            when = np.full(len(blocks_of), number, np.int32)
            piece.append((sets[chosen], when, blocks_of, laid[blocks_of]))
    joined = [
        [np.concatenate(parts) for parts in zip(*piece, strict=True)]
        for piece in pieces
    ]
    rows, rounds, blocks, sizes = zip(*joined, strict=True)
    return SegmentHistory(bounds, rows, rounds, blocks, sizes, plain)


@needs_values
def segment_leakage(
    history: SegmentHistory, *, effort: float | None = 0.0
) -> SegmentLeakage:
    """Judge what the server can solve for in each segment, and in each update.

    Use it to see whether a selection that protects whole updates still does so when
    segments are summed by groups: a segment's sums are smaller and more than those of a
    plain protocol. Coordinates are independent unknowns, so an update is as private as
    its least private segment.

    Args:
        history: From `segment_participation`.
        effort: How long each search for weak privacy may take (`privacy.weak_privacy`):
            0 for bounds that are cheap, 1 or more to narrow them, None to leave weak
            privacy out.

    Returns:
        Strong and weak privacy, rank and first exposures, by segment and without
        segments.

    Raises:
        ConfigurationError: If `effort` is negative or not finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> layout = mj.hetero.segment_layout("sc", [2, 2], [2, 4], dim=4)
        >>> history = mj.hetero.segment_participation(layout, num_rounds=1)
        >>> found = mj.hetero.segment_leakage(history)
        >>> found.strong, found.plain.strong
        (4, 4)

    Cost: segments with the same matrix are judged once, by no more rows than its rank;
    exact arithmetic modulo two primes as `privacy.first_exposure`. 1000 rounds of five
    segments over 120 clients take seconds.

    Source: the measures are Multi-RoundSecAgg's, equation (5) and Remark 1.
    """
    num_rounds, num_clients = history.plain.shape
    everywhere = np.arange(num_rounds, dtype=np.int32)
    leakages: dict[Any, SumLeakage] = {}

    def judged(matrix: np.ndarray, when: np.ndarray) -> SumLeakage:
        # Many segments have equal matrices: judge each different one once.
        key = matrix.tobytes(), when.tobytes()
        if key not in leakages:
            leakages[key] = _judge(matrix, when, effort)
        return leakages[key]

    matrices = (*history.participation, history.plain)
    *segments, plain = map(judged, matrices, (*history.rounds, everywhere))
    exposure = np.stack([segment.exposure for segment in segments])
    share = np.zeros((num_rounds, num_clients))
    for weight, first in zip(history.shares, exposure, strict=True):
        # Exposed from its round on, weighted by the length of the segment.
        share += weight * ((first >= 0) & (first <= everywhere[:, None]))
    return SegmentLeakage(tuple(segments), plain, exposure, share)


class _Round(NamedTuple):
    """A round that was not skipped: layout, clients by slot, V3, blocks unmasked."""

    layout: SegmentLayout
    clients: np.ndarray
    sends: np.ndarray
    ok: np.ndarray


def _rounds(
    layouts: Any, survivors: Any, members: Any, status: Any, num_rounds: Any
) -> list[_Round | None]:
    """Check the arguments round by round and bring them into one form."""
    is_one_layout = isinstance(layouts, SegmentLayout)
    are_fixed = isinstance(members, np.ndarray | Sequence) and np.ndim(members[0]) == 0
    count = _number_of_rounds(
        {
            "layouts": None if is_one_layout else layouts,
            "survivors": survivors,
            "members": None if are_fixed else members,
            "status": status,
        },
        num_rounds,
    )
    rounds: list[_Round | None] = []
    for number in range(count):
        layout = layouts if is_one_layout else layouts[number]
        if layout is None:
            rounds.append(None)
            continue
        slots = layout.num_participants
        clients = np.arange(slots)
        sends = np.ones(slots, np.bool_)
        ok = np.ones(len(layout.blocks), np.bool_)
        where = f"round {number}", f"{slots} slots"
        if members is not None:
            rule = "must be one client for each slot"
            array = np.asarray(members if are_fixed else members[number])
            _check_kind(array, "members", rule, ((slots,),), "iu", *where)
            rule = "must be different numbers from 0"
            is_different = len(np.unique(array)) == slots and int(array.min()) >= 0
            require(is_different, "members", rule, array.tolist())
            clients = array.astype(np.int64)
        if survivors is not None:
            rule = "must be V3, or V0 to V4, as zeros and ones for each slot"
            array = np.asarray(survivors[number])
            shapes = ((slots,), (5, slots))
            _check_kind(array, "survivors", rule, shapes, "biu", *where)
            is_binary = bool(((array == 0) | (array == 1)).all())
            require(is_binary, "survivors", rule, int(array.max()))
            sends = (array if array.ndim == 1 else array[3]).astype(np.bool_)
        if status is not None:
            rule = "must be a code for each round, or for each of its blocks"
            array = np.asarray(status[number])
            where = f"round {number}", f"{len(ok)} blocks"
            _check_kind(array, "status", rule, ((), ok.shape), "iu", *where)
            ok = np.broadcast_to(array == int(Status.OK), ok.shape)
        rounds.append(_Round(layout, clients, sends, ok))
    return rounds


def _number_of_rounds(arguments: dict[str, Any], num_rounds: Any) -> int:
    counts = {
        name: len(values) for name, values in arguments.items() if values is not None
    }
    if num_rounds is not None:
        counts["num_rounds"] = check_integer(num_rounds, "num_rounds", 1)
    require(len(counts) > 0, "num_rounds", "must be given where nothing else says it")
    (first, expected), *others = counts.items()
    require(expected > 0, first, "must hold a round", expected)
    rule = f"must be for as many rounds as `{first}`"
    for name, count in others:
        require(count == expected, name, rule, count, expected)
    return expected


def _check_kind(
    array: np.ndarray,
    argument: str,
    rule: str,
    shapes: tuple[Any, ...],
    kinds: str,
    *where: str,
) -> None:
    proper = array.shape in shapes and array.dtype.kind in kinds
    require(proper, argument, rule, f"{array.dtype} of shape {array.shape}", *where)


def _pieces(layouts: list[Any]) -> tuple[tuple[int, int], ...]:
    """Return the finest pieces of the coordinates that no layout's segments divide."""
    different = set(layouts)
    dims = sorted({layout.dim for layout in different})
    require(len(dims) == 1, "layouts", "must be of one length of updates", *dims[:2])
    cuts = sorted(
        {cut for layout in different for bounds in layout.bounds for cut in bounds}
    )
    return tuple(itertools.pairwise(cuts))


def _learnt(round_: _Round, num_clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the members bool[sums, N] of each learnt sum, and its block."""
    inside, sends = round_.layout.memberships, round_.sends
    if ((inside & sends).sum(axis=1) == 1).any():
        # The server excludes clients who would be alone in a block, until no one is.
        sends = admitted(round_.layout.plan, sends)
    inside = inside & sends
    rows = np.zeros((len(inside), num_clients), np.bool_)
    rows[:, round_.clients] = inside
    blocks = np.flatnonzero(round_.ok & inside.any(axis=1)).astype(np.int32)
    return rows[blocks], blocks


def _as_learnt(
    round_: _Round, outcome: PlanOutcome, num_clients: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of an outcome, as `_learnt` does."""
    rows = np.zeros((len(outcome.learned), num_clients), np.bool_)
    rows[:, round_.clients] = outcome.learned
    return rows, outcome.learned_block


def _judge(matrix: np.ndarray, rounds: np.ndarray, effort: float | None) -> SumLeakage:
    """Judge a matrix by the rows that add to its row space.

    A row that adds nothing changes neither privacy of any kind nor first exposures;
    what is left has at most N rows and is padded to N, so that all segments run what
    one has compiled.
    """
    num_clients = matrix.shape[1]
    # A fixed shape of at most N rows, the largest rank, so that one compiled program
    # judges all segments; unused rows stay zero.
    exposed = np.zeros((num_clients, num_clients), np.bool_)
    when = np.zeros(num_clients, np.int32)
    packed = np.packbits(matrix, axis=1)
    # The first occurrence of each different row, in the order of rounds.
    distinct = np.sort(np.unique(packed, axis=0, return_index=True)[1])
    rank = 0
    if len(distinct):
        ranks = np.asarray(rank_trajectory(matrix[distinct]))
        # Only rows that raise the rank can expose a client for the first time.
        growing = distinct[np.diff(ranks, prepend=0) > 0]
        rank = len(growing)
        exposed[:rank] = matrix[growing]
        when[:rank] = rounds[growing]
    rows = np.asarray(privacy.first_exposure(exposed))
    exposure = np.where(rows >= 0, when[rows], -1).astype(np.int32)
    strong = privacy.strong_privacy(exposed)
    if effort is None or strong is None:
        return SumLeakage(strong, None, None, False, rank, exposure)
    weak = privacy.weak_privacy(exposed, effort=effort)
    return SumLeakage(strong, weak.lower, weak.upper, weak.certified, rank, exposure)
