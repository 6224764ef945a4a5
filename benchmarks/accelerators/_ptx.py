"""Count the instructions that kernels execute, from the text (PTX) that they become.

NVIDIA's compiler makes about as many of its own. Loops are multiplied out by rounds that
a person states, since most depend on sizes; both branches of a conditional count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

_ENTRY = re.compile(r"\.entry (\w+)\(")
_THREADS = re.compile(r"\.reqntid (\d+)")
_LABEL = re.compile(r"(\$\w+):")
_BRANCH = re.compile(r"(@\S+ )?bra\S*\s+(\$\w+)")
_WARP = 32


def instructions(text: str, rounds: Mapping[str, Sequence[float]]) -> float:
    """Return how many instructions the warps of one program of each kernel execute.

    Args:
        text: PTX of one or more kernels.
        rounds: Of each kernel's loops, in the order in which the loops begin.

    Raises:
        ValueError: If a kernel is missing, or has another number of loops.
    """
    starts = [(match[1], match.start()) for match in _ENTRY.finditer(text)]
    ends = [start for _, start in starts[1:]] + [len(text)]
    own = {
        name: text[start:end] for (name, start), end in zip(starts, ends, strict=True)
    }
    if missing := set(rounds) - set(own):
        raise ValueError(f"no kernel {', '.join(missing)} among {', '.join(own)}")
    return sum(_of_kernel(own[name], turns) for name, turns in rounds.items())


def _of_kernel(text: str, rounds: Sequence[float]) -> float:
    sizes, followers = _blocks(text)
    loops = _loops(followers)
    if len(loops) != len(rounds):
        raise ValueError(f"{len(loops)} loops, but rounds of {len(rounds)} are stated")
    threads = _THREADS.search(text)
    warps = -(-int(threads[1]) // _WARP) if threads else 1
    pairs = list(zip(loops, rounds, strict=True))
    return warps * sum(
        size * math.prod(turns for loop, turns in pairs if block in loop)
        for block, size in enumerate(sizes)
    )


def _blocks(text: str) -> tuple[list[int], list[list[int]]]:
    """Return the instructions of each block, and the blocks that may follow it."""
    sizes, targets, falls = [0], [list[str]()], [True]
    labels: dict[str, int] = {}

    def begin() -> None:
        sizes.append(0)
        targets.append([])
        falls.append(True)

    for line in (line.split("//")[0].strip() for line in text.splitlines()):
        if match := _LABEL.match(line):
            begin()
            labels[match[1]] = len(sizes) - 1
        elif line.endswith(";") and not line.startswith("."):
            sizes[-1] += 1
            if match := _BRANCH.match(line):
                targets[-1].append(match[2])
                falls[-1] = match[1] is not None
                begin()
            elif line == "ret;":
                falls[-1] = False
                begin()
    followers = [
        [labels[name] for name in names] + [place + 1] * own
        for place, (names, own) in enumerate(zip(targets, falls, strict=True))
    ]
    followers[-1] = [place for place in followers[-1] if place < len(sizes)]
    return sizes, followers


def _loops(followers: list[list[int]]) -> list[set[int]]:
    """Return the blocks of each loop, by where it begins.

    A loop is all blocks that lead to a jump back to its first, which all of them pass.
    """
    reached = _reached(followers, 0, None)
    before: dict[int, list[int]] = {block: [] for block in reached}
    for block in reached:
        for after in followers[block]:
            before[after].append(block)
    loops = []
    for first in sorted(reached):
        # without it, what it alone leads to is out of reach
        inside = reached - (_reached(followers, 0, first) if first else set())
        back = [block for block in before[first] if block in inside]
        if back:
            loop = {first}
            while back:
                block = back.pop()
                if block not in loop:
                    loop.add(block)
                    back += before[block]
            loops.append(loop)
    return loops


def _reached(followers: list[list[int]], start: int, without: int | None) -> set[int]:
    found, left = {start}, [start]
    while left:
        for block in followers[left.pop()]:
            if block not in found and block != without:
                found.add(block)
                left.append(block)
    return found
