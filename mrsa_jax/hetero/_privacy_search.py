"""Search for the union of groups that learns the most segments.

An exact search by two bounds in turns.
HeteroSAg, Section II-B: a union S of groups gives segment l away iff no block of row l
has groups both in S and outside. The fewest rows that a proper S splits is the hedge
connectivity (global label minimum cut) of the groups with a hedge for each row. It is
not submodular (blocks {0, 1} and {2, 3}: f({0, 1}) + f({0, 2}) = 1 < 2 = f({0, 1, 2}) +
f({0})), so branch and bound decides.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

Blocks = tuple[tuple[tuple[int, ...], ...], ...]
_FIRST_TURN = 64


class Found(NamedTuple):
    """Result of a search.

    Attributes:
        side: A union that gives most rows away, group g as bit g.
        learned: How many rows those are.
        bound: The most rows that any union gives away; `learned` where the search ran
            to its end.
    """

    side: int
    learned: int
    bound: int


def most_learned(rows: Blocks, num_groups: int, budget: int | None = None) -> Found:
    """Find a proper, non-empty union of groups that is a union of blocks in most rows.

    Two searches take turns, each twice as long as the last, and share the best union so
    far: whichever ends first has proved it. Putting group after group on a side is fast
    where many rows can be learnt (chains); demanding row after row is fast where few
    can.

    Args:
        rows: Blocks of each row.
        num_groups: G, at least 2.
        budget: Steps of both searches together; no limit if None.
    """
    full = (1 << num_groups) - 1
    # [row][group]: the group's block, as bits of groups
    blocks = [[0] * num_groups for _ in rows]
    # [group][group]: the rows in which both are in one block, as bits of rows
    shared = [[0] * num_groups for _ in range(num_groups)]
    for row, row_blocks in enumerate(rows):
        for block in row_blocks:
            bits = sum(1 << group for group in block)
            for group in block:
                blocks[row][group] = bits
                for other in block:
                    if other != group:
                        shared[group][other] |= 1 << row
    best = _Best(-1, 0)
    for group, row_sets in enumerate(shared):
        split = 0
        for row_set in row_sets:
            # Start with single groups: the rows in which one has a mate are split by
            # it.
            split |= row_set
        best.offer(len(rows) - split.bit_count(), 1 << group)
    searches = (_ByGroup(shared, len(rows), best), _ByRow(blocks, full, best))
    turn, remaining = _FIRST_TURN, budget
    while remaining is None or remaining > 0:
        # Two searches with one incumbent take turns of doubling length: whichever ends
        # first has proved the optimum, at a small multiple of its cost alone.
        for search in searches:
            steps = turn if remaining is None else min(turn, remaining)
            for _ in range(steps):
                if not search.step():
                    return Found(best.side, best.count, best.count)
            remaining = None if remaining is None else remaining - steps
        turn *= 2
    return Found(
        best.side,
        best.count,
        max(best.count, min(search.bound() for search in searches)),
    )


@dataclasses.dataclass
class _Best:
    """The best union so far."""

    count: int
    side: int

    def offer(self, count: int, side: int) -> None:
        if count > self.count:
            self.count, self.side = count, side


class _Sides(NamedTuple):
    """Some groups on a side each: `inside` as bits, `free` those on none.

    `alive` are the rows not split yet; `lost[side][g]` those that it would split to put
    g outside (0) or inside (1).
    """

    alive: int
    lost: tuple[list[int], list[int]]
    free: list[int]
    inside: int

    def put(self, group: int, is_inside: bool, shared: list[list[int]]) -> _Sides:
        side, other = self.lost[is_inside], self.lost[not is_inside]
        # From now on, a free group on the other side would split the rows that it
        # shares with this one.
        after = [old | new for old, new in zip(other, shared[group], strict=True)]
        lost = (after, side) if is_inside else (side, after)
        free = [another for another in self.free if another != group]
        return _Sides(
            self.alive & ~side[group], lost, free, self.inside | is_inside << group
        )


class _ByGroup:
    """Depth-first over the side of each group, the most constrained group next."""

    def __init__(self, shared: list[list[int]], num_rows: int, best: _Best) -> None:
        size = len(shared)
        self._shared, self._best = shared, best
        self._all = (1 << size) - 1
        # a union and its complement are learnt in the same rows: group 0 is inside
        lost = (list(shared[0]), [0] * size)
        self._stack = [_Sides((1 << num_rows) - 1, lost, list(range(1, size)), 1)]

    def bound(self) -> int:
        """Return the most rows of any union that was not looked at."""
        return max((sides.alive.bit_count() for sides in self._stack), default=0)

    def step(self) -> bool:
        """Work off one node; False when there is none."""
        if not self._stack:
            return False
        sides: _Sides | None = self._stack.pop()
        while sides is not None and sides.alive.bit_count() > self._best.count:
            if not sides.free:
                if sides.inside != self._all:
                    self._best.offer(sides.alive.bit_count(), sides.inside)
                break
            sides = self._settle(sides)
        return True

    def _settle(self, sides: _Sides) -> _Sides | None:
        """Put a group into its only place and return the rest, or branch to None."""
        alive, (lost_outside, lost_inside), free, _ = sides
        chosen, least = free[0], (-1, -1)
        for group in free:
            inside = (alive & ~lost_inside[group]).bit_count()
            outside = (alive & ~lost_outside[group]).bit_count()
            # Upper bounds on the rows still learnt, with the group on either side.
            low, high = (inside, outside) if inside < outside else (outside, inside)
            if low <= self._best.count:
                # Neither side can beat the incumbent: cut the branch.
                if high <= self._best.count:
                    return None
                return sides.put(group, inside > outside, self._shared)
            # Branch on the group whose better side is worst: both children are then
            # small.
            if least == (-1, -1) or (high, low) < least:
                chosen, least = group, (high, low)
        both = [
            sides.put(chosen, is_inside, self._shared) for is_inside in (False, True)
        ]
        # The more promising child is last, so it is popped first.
        self._stack += sorted(both, key=lambda after: after.alive.bit_count())
        return None


@dataclasses.dataclass
class _Demand:
    """Rows that are demanded.

    The finest partition coarser than all of them, and what is left.
    `part[g]` is g's part as bits of groups, `met` how many rows hold, `open_rows` those
    that could be demanded as well, of which the first `tried` were.
    """

    part: list[int]
    met: int
    open_rows: list[int]
    tried: int = 0


class _ByRow:
    """Depth-first over the rows that are demanded together.

    What follows from them is met.
    """

    def __init__(self, blocks: list[list[int]], full: int, best: _Best) -> None:
        self._blocks, self._full, self._best = blocks, full, best
        alone = [1 << group for group in range(len(blocks[0]))]
        start = self._extend(alone, 0, list(range(len(blocks))))
        self._stack = [] if start is None else [start]

    def bound(self) -> int:
        """Return the most rows of any union that was not looked at."""
        return max(
            (level.met + len(level.open_rows) - level.tried for level in self._stack),
            default=0,
        )

    def step(self) -> bool:
        """Demand one more row of the last node; False when there is none."""
        while self._stack:
            node = self._stack[-1]
            if node.met + len(node.open_rows) - node.tried > self._best.count:
                break
            self._stack.pop()
        else:
            return False
        row = node.open_rows[node.tried]
        node.tried += 1
        part = _join(node.part, self._blocks[row], self._full)
        after = self._extend(part, node.met + 1, node.open_rows[node.tried :])
        if after is not None:
            self._stack.append(after)
        return True

    def _extend(self, part: list[int], met: int, rows: list[int]) -> _Demand | None:
        """Sort rows into met, open and impossible; None where too few are left."""
        open_rows: list[int] = []
        remaining = len(rows)
        for row in rows:
            blocks = self._blocks[row]
            # Demanding this row joins all groups into one part: no proper union is
            # left.
            if _reach(1, part, blocks) == self._full:
                remaining -= 1
                if met + len(open_rows) + remaining <= self._best.count:
                    return None
                continue
            remaining -= 1
            if all(
                block & ~union == 0 for block, union in zip(blocks, part, strict=True)
            ):
                met += 1
            else:
                open_rows.append(row)
        self._best.offer(met, part[0])
        return _Demand(part, met, open_rows)


def _reach(seed: int, part: list[int], blocks: list[int]) -> int:
    """Return the groups that parts and blocks chain to the group of a bit."""
    reached, ahead = 0, seed
    while ahead:
        # The lowest set bit: one group at a time.
        bit = ahead & -ahead
        group = bit.bit_length() - 1
        reached |= bit
        ahead = (ahead | part[group] | blocks[group]) & ~reached
    return reached


def _join(part: list[int], blocks: list[int], full: int) -> list[int]:
    joined, rest = [0] * len(part), full
    while rest:
        whole = _reach(rest & -rest, part, blocks)
        for group in range(len(part)):
            if whole >> group & 1:
                joined[group] = whole
        rest &= ~whole
    return joined
