"""Whom to leave out of a cohort so that its sum may be learnt.

As few as can be found in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

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
        ways = [
            np.asarray(
                [
                    place
                    for part, take in zip(parts, way, strict=True)
                    for place in part[len(part) - take :]
                ]
            )
            for way in _ways(counts, number)
        ]
        for start in range(0, len(ways), _AT_ONCE):
            block = ways[start : start + _AT_ONCE]
            for left, may in zip(
                block,
                allowed([np.delete(everybody, left) for left in block]),
                strict=True,
            ):
                if may:
                    return sorted(left.tolist())
    else:
        return everybody.tolist()
    whole = {key: len(part) == int(sizes[key[0]]) for key, part in by_kind.items()}
    ordered = sorted(
        by_kind, key=lambda key: (not whole[key], key[0] > 0, -len(by_kind[key]), key)
    )
    kept = _kept([by_kind[key] for key in ordered], allowed, _GREEDY * most)
    return sorted(set(everybody.tolist()) - set(kept))


def _num_ways(counts: Sequence[int], number: int) -> int:
    """Return in how many ways so many are taken from parts of these sizes."""
    if number > 2:  # few sizes are ever asked for: a bound from below decides
        ways = np.zeros(number + 1)
        ways[0] = 1
        for count in counts:
            total = np.cumsum(ways)
            total[count + 1 :] -= (
                np.cumsum(ways)[: -(count + 1)] if count < number else 0
            )
            ways = np.minimum(total, 1e300)
        return int(min(ways[number], 1e18))
    parts = len(counts)
    return (
        parts
        if number == 1
        else math.comb(parts, 2) + sum(count > 1 for count in counts)
    )


def _ways(counts: Sequence[int], number: int) -> Iterator[tuple[int, ...]]:
    """Yield how many to take from each part, so many in all."""
    if not counts:
        if number == 0:
            yield ()
        return
    rest = sum(counts[1:])
    for take in range(max(0, number - rest), min(counts[0], number) + 1):
        for more in _ways(counts[1:], number - take):
            yield (take, *more)


def _kept(parts: list[list[int]], allowed: Allowed, most: int) -> list[int]:
    """Return the places of the parts that are kept, halving what is tried together."""
    kept: list[int] = []
    waiting = [parts]
    for _ in range(most):
        if not waiting:
            break
        tried = waiting.pop()
        together = [*kept, *(place for part in tried for place in part)]
        if allowed([np.asarray(sorted(together))])[0]:
            kept = together
        elif len(tried) > 1:
            half = len(tried) // 2
            waiting += [tried[half:], tried[:half]]
    return kept
