"""Clients to leave out of a cohort so that its sum may be learnt, as few as found."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

_AT_ONCE = 16
_GREEDY = 4  # times as many verdicts where not all ways are tried

# places of those who stay -> allowed
Allowed = Callable[[list[np.ndarray]], list[bool]]


def fewest_left_out(
    kinds: Sequence[int],
    codes: Sequence[int],
    sizes: np.ndarray,
    allowed: Allowed,
    most: int,
) -> list[int]:
    """Return the sorted places in a cohort of those to leave out.

    Clients of one kind and weight have the same history and the same part in the sum,
    so whether it is allowed depends on how many of each stay.

    Args:
        kinds: Class of each client; 0 for clients in no sum.
        codes: A number for each client's weight.
        sizes: Clients in each class.
        allowed: Returns for lists of places whether their sum may be learnt; an empty
            one may.
        most: Ways to exclude one number of clients that may be tried.
    """
    by_kind: dict[tuple[int, int], list[int]] = {}
    for place, key in enumerate(zip(kinds, codes, strict=True)):
        by_kind.setdefault(key, []).append(place)
    parts = list(by_kind.values())
    everybody = np.arange(len(kinds))
    counts = [len(part) for part in parts]
    for number in range(1, len(kinds)):
        if _num_ways(counts, number) > most:
            break
        ways = []
        # clients of one part are alike, so the last of each stand for any others
        for way in _ways(counts, number):
            taken = zip(parts, way, strict=True)
            last = (part[len(part) - take :] for part, take in taken)
            ways.append(list(itertools.chain.from_iterable(last)))
        for start in range(0, len(ways), _AT_ONCE):
            block = ways[start : start + _AT_ONCE]
            verdicts = allowed([np.delete(everybody, places) for places in block])
            for places, is_allowed in zip(block, verdicts, strict=True):
                if is_allowed:
                    return sorted(places)
    else:
        return everybody.tolist()

    # a class whose clients are all here is not split where it stays as a whole
    def rank(key: tuple[int, int]) -> tuple[Any, ...]:
        """Order kinds: whole classes first, then new clients, large kinds first."""
        count = len(by_kind[key])
        return count != int(sizes[key[0]]), key[0] > 0, -count, key

    ordered = [by_kind[key] for key in sorted(by_kind, key=rank)]
    staying = _staying(ordered, allowed, _GREEDY * most)
    return sorted(set(everybody.tolist()) - set(staying))


def _num_ways(counts: Sequence[int], number: int) -> int:
    """Return in how many ways so many are taken from parts of these sizes."""
    if number > 2:  # few sizes are ever asked for: a bound from below decides
        ways = np.zeros(number + 1)
        ways[0] = 1
        for count in counts:
            # ways[n] of the parts so far becomes ways[n] + ... + ways[n - count]
            total = np.cumsum(ways)
            more = total.copy()
            if count < number:
                more[count + 1 :] -= total[: -(count + 1)]
            ways = np.minimum(more, 1e300)
        return int(min(ways[number], 1e18))
    parts = len(counts)
    if number == 1:
        return parts
    # two clients from different parts, or both from one
    return math.comb(parts, 2) + sum(count > 1 for count in counts)


def _ways(counts: Sequence[int], number: int) -> Iterator[tuple[int, ...]]:
    """Yield the numbers to take from each part, so many in all."""
    if not counts:
        if number == 0:
            yield ()
        return
    rest = sum(counts[1:])
    # at least as many as the later parts cannot supply
    for take in range(max(0, number - rest), min(counts[0], number) + 1):
        for more in _ways(counts[1:], number - take):
            yield (take, *more)


def _staying(parts: list[list[int]], allowed: Allowed, most: int) -> list[int]:
    """Return the places of the parts that may stay, halving what is tried together."""
    staying: list[int] = []
    waiting = [parts]
    for _ in range(most):
        if not waiting:
            break
        tried = waiting.pop()
        together = [*staying, *itertools.chain(*tried)]
        if allowed([np.asarray(sorted(together))])[0]:
            staying = together
        elif len(tried) > 1:
            half = len(tried) // 2
            # a stack: the first half, whose kinds rank higher, is tried next
            waiting += [tried[half:], tried[:half]]
    return staying
