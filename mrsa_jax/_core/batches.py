"""Decide how much work goes at once: trials, matrices, columns, threads."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax import lax

from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.device import lanes, memory_stats, platform
from mrsa_watch._base.errors import ConfigurationError

_Result = TypeVar("_Result")


class _Work(NamedTuple):
    """Limit how much of one kind of work goes at once.

    Attributes:
        cpu_bytes: In flight on a CPU: what was measured to stay in cache.
        lane_bytes: In flight for each lane of an accelerator: enough that launches are
            few.
        least: Items that are worth a thread of a CPU.
        cpu_items: On a CPU never more than so many, whatever they hold.
    """

    cpu_bytes: int
    lane_bytes: int
    least: int = 1
    cpu_items: int = sys.maxsize


_WORK = {
    # matrices under elimination: the entries of one chunk
    "elimination": _Work(2**20, 2**14),
    # keystream, over all streams of a chunk
    "keystream": _Work(2**18, 2**12),
    # words of clients, over all trials of a chunk
    "selection": _Work(2**18, 2**10, least=64),
    # of trials that compiled loops play
    "played": _Work(2**18, 2**10, least=8),
    # of histories that compiled loops follow
    "summaries": _Work(2**18, 2**10, least=2),
    # words of shares: what a step of Horner's rule reads
    "shares": _Work(2**18, 2**10),
    # of histories in elimination: on a CPU one after another, which leaves out what
    # rounds need not
    "eliminations": _Work(1, 2**14),
    # float64 entries of histories whose leverage is asked for, in chunks one after
    # another
    "leverage": _Work(2**25, 2**14),
    # float64 entries of columns of a history, for its Gram matrix
    "columns": _Work(2**27, 2**10),
    # updates of the segments that are coded, summed and decoded side by side
    "segments": _Work(2**22, 2**13),
    # updates of the clients of one segment that are coded before they are summed
    "coded": _Work(2**20, 2**13),
    # updates of a model that is trained over and over, all clients' of the trainings
    # side by side
    "repeated": _Work(2**21, 2**13),
    # averages of blocks that are combined side by side
    "averages": _Work(1, 2**12),
    # entries of relaxed columns of a disaggregation, of all candidates side by side
    "candidates": _Work(2**24, 2**12),
    # float64 entries of estimates, and of sums that are read, by NumPy piece by piece
    "estimates": _Work(2**27, 2**9),
    "pieces": _Work(2**25, 2**7),
    # maps of images that are compared
    "images": _Work(sys.maxsize, 2**12, cpu_items=1024),
    # activations of the samples that models are asked about, and of those they are
    # tested on
    "questions": _Work(sys.maxsize, 2**12, cpu_items=1024),
    "tests": _Work(sys.maxsize, 2**12, cpu_items=500),
    # of the histories whose privacy is followed together
    "analyses": _Work(96 * 2**22, 2**11, cpu_items=25),
    # of the results of one chunk, which are joined after it
    "results": _Work(2**28, 2**14),
    # parameters of the clients that train side by side, as many as their activations
    # leave room for; on a CPU weights and minibatch stay in cache (measured on one
    # core: one client at a time is the fastest for the CNN and softmax regression, one
    # or two for LeNet and the MLP; all at once take up to twice as long)
    "clients": _Work(2**19, 2**12),
    # parameters of the cohorts of trainings that go side by side. On a CPU one cohort
    # fills the cores: two or four trainings gained 3 percent for LeNet and softmax
    # regression, 10 for 650 parameters, and cost up to 5 for a CNN and 14 for an MLP
    # (CPU time, cohorts of two and four). On an H100 eleven LeNets of twelve clients:
    # by the compiled count eight launch no more kernels than one does
    "trainings": _Work(1, 2**7),
    # a minibatch's tiles of convolutions; fastest were 4 to 8 MiB on 1 MiB of L2, 32 of
    # L3
    "tiles": _Work(2**22, 2**12),
    # what the rounds of one program report, sums that are kept among it
    "rounds": _Work(2**24, 2**12),
    # entries of the graphs of rounds that are judged as arrays
    "graphs": _Work(2**23, 2**9),
    # of rounds planted by NumPy
    "planted": _Work(2**23, 2**9),
}
_SHARE = 8  # of an accelerator's memory, one part may be in flight
_LEAST_MEMORY = 2**33  # where an accelerator does not say what it has


def at_once(kind: str, item_bytes: int, least: int = 1) -> int:
    """Choose how many items of a kind of work go at once.

    As many as stay in a CPU's cache or fill an accelerator, never more than an eighth
    of its memory holds, or half of what is free.

    Args:
        kind: Name of a row of the table above.
        item_bytes: What one item has in flight.
        least: At least so many.
    """
    work = _WORK[kind]
    if platform() == "cpu":
        return max(least, min(work.cpu_bytes // max(1, item_bytes), work.cpu_items))
    stats = memory_stats()
    memory = stats.get("bytes_limit", _LEAST_MEMORY)
    # arrays that are there leave less room, of which other work takes its part
    free = max(memory - stats.get("bytes_in_use", 0), 0)
    budget = min(work.lane_bytes * lanes(), memory // _SHARE, free // 2)
    return max(least, budget // max(1, item_bytes))


def trials_at_once(num_clients: int, num_rounds: int, row_bytes: int) -> int:
    """Choose how many trials of a selection are simulated at once.

    Args:
        num_clients: Of a round.
        num_rounds: Of a trial.
        row_bytes: What a trial's round adds to the result.
    """
    return min(
        at_once("selection", 4 * num_clients),
        at_once("results", row_bytes * num_rounds),
    )


def samples_at_once(kind: str, input_shape: Sequence[int]) -> int:
    """Choose how many samples a model is given at once, by its widest layer.

    Args:
        kind: "questions" or "tests".
        input_shape: Of a sample; the layer has 32 channels of it.
    """
    return at_once(kind, 4 * 32 * math.prod(input_shape))


def map_tiles(function: Callable[[Any], Any], items: object, tile: int) -> Any:
    """Map a function over the leading axis of a pytree, `tile` items at once.

    A tile of one is no batch: its branches are taken, not computed both. Tiles are of
    one size, the last one filled up: a smaller one would be the whole program once
    more, to trace and to compile.
    """
    count = jax.tree.leaves(items)[0].shape[0]
    if tile == 1:
        return lax.map(function, items)
    tiles = -(-count // tile)
    if tiles == 1:
        return jax.vmap(function)(items)
    size = -(-count // tiles)
    if tiles * size == count:
        return lax.map(function, items, batch_size=size)
    places = np.minimum(np.arange(tiles * size), count - 1)
    results = lax.map(
        function, jax.tree.map(lambda leaf: leaf[places], items), batch_size=size
    )
    return jax.tree.map(lambda leaf: leaf[:count], results)


def cores_for(kind: str, count: int) -> int:
    """Choose among how many threads items of a kind of work are shared."""
    return max(1, min(num_cores(), count // _WORK[kind].least))


def within_memory(
    run: Callable[[int], _Result],
    chunk: int,
    argument: str,
    what: str,
) -> _Result:
    """Return `run(chunk)`.

    If the device's memory does not hold it, `run` of half the chunk.

    Args:
        run: Does all the work, so many items at once, and waits for it.
        chunk: How many.
        argument: Name of the argument to reduce if half of the chunk does not fit
            either.
        what: The work, as in "ranking 1,024 matrices".

    Raises:
        ConfigurationError: If it does not fit: what needs how much.
    """
    least = -(-chunk // 2)
    while True:
        try:
            return run(chunk)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if chunk == least:
                raise _too_much(error, argument, what, chunk) from error
            chunk = least


def _too_much(
    error: Exception,
    argument: str,
    what: str,
    chunk: int,
) -> ConfigurationError:
    amount = re.search(r"allocat\w+ ([\d.]+ ?[KMGT]?i?B|\d+ bytes)", str(error))
    needed = f" (it asked for {amount.group(1)})" if amount else ""
    rule = f"must fit into the device's memory{needed}: {what}"
    return ConfigurationError(f"`{argument}` {rule}; got {chunk} at once")
