"""Count the instructions that kernels execute, from the text (PTX) that they become.

NVIDIA's compiler makes about as many of its own. Loops are multiplied out by rounds that
a person states, since most depend on sizes; both branches of a conditional count.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

_ENTRY = re.compile(r"\.entry (\w+)\(")
_THREADS = re.compile(r"\.reqntid (\d+)")
_LABEL = re.compile(r"(\$\w+):")
_BRANCH = re.compile(r"(@\S+ )?bra\S*\s+(\$\w+)")
_WARP = 32


def instructions(text: str, rounds: Mapping[str, Sequence[float]]) -> float:
    """Count the instructions that the warps of one program of each kernel execute.

    Args:
        text: PTX of one or more kernels.
        rounds: Of each kernel's loops, in the order in which the loops begin.

    Raises:
        ValueError: If a kernel is missing, or has another number of loops.
    """
    starts = [(match[1], match.start()) for match in _ENTRY.finditer(text)]
    ends = [start for _, start in starts[1:]] + [len(text)]
    kernels = {}
    for (name, start), end in zip(starts, ends, strict=True):
        kernels[name] = text[start:end]
    missing = set(rounds) - set(kernels)
    if missing:
        raise ValueError(f"no kernel {', '.join(missing)} among {', '.join(kernels)}")
    counts = [_of_kernel(kernels[name], turns) for name, turns in rounds.items()]
    return sum(counts)


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


@dataclasses.dataclass
class _Block:
    """Instructions that run one after another.

    Attributes:
        size: How many.
        target: Label to which the last one may jump.
        goes_on: Whether the block behind it may follow.
    """

    size: int = 0
    target: str | None = None
    goes_on: bool = True


def _blocks(text: str) -> tuple[list[int], list[list[int]]]:
    """Return the instructions of each block, and the blocks that may follow it."""
    blocks = [_Block()]
    places: dict[str, int] = {}
    for written in text.splitlines():
        line = written.split("//")[0].strip()
        label = _LABEL.match(line)
        if label:
            places[label[1]] = len(blocks)
            blocks.append(_Block())
        if label or line.startswith(".") or not line.endswith(";"):
            continue
        block = blocks[-1]
        block.size += 1
        branch = _BRANCH.match(line)
        if branch:
            block.target = branch[2]
            block.goes_on = branch[1] is not None
        elif line == "ret;":
            block.goes_on = False
        else:
            continue
        blocks.append(_Block())
    followers: list[list[int]] = []
    for place, block in enumerate(blocks):
        after = []
        if block.target is not None:
            after.append(places[block.target])
        if block.goes_on and place + 1 < len(blocks):
            after.append(place + 1)
        followers.append(after)
    return [block.size for block in blocks], followers


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
    reached = {start}
    waiting = [start]
    while waiting:
        for block in followers[waiting.pop()]:
            if block not in reached and block != without:
                reached.add(block)
                waiting.append(block)
    return reached
