"""Share work over the cores of the CPU by threads that are kept from call to call."""

from __future__ import annotations

import concurrent.futures
import functools
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import jax
import numpy as np

from mrsa_jax._core.batches import cores_for
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.device import TARGET
from mrsa_jax._core.forms import FORM

_Result = TypeVar("_Result")


def over_cores(part: Callable[..., object], *arguments: Iterable[object]) -> list[Any]:
    """Return `map(part, *arguments)` as a list, worked off by one thread a core.

    For loops that release the interpreter's lock and call nothing that comes back here:
    the threads are kept from call to call, because starting them takes as long as a
    small round.
    """
    return [job.result() for job in start_over_cores(part, *arguments)]


def over_ranges(kind: str, part: Callable[[slice], object], count: int) -> None:
    """Call a function for ranges that share `count` items among the cores."""
    cores = cores_for(kind, count)
    if cores < 2:
        part(slice(0, count))
        return
    edges = [count * core // cores for core in range(cores + 1)]
    over_cores(part, list(map(slice, edges, edges[1:])))


def start_over_cores(
    part: Callable[..., object], *arguments: Iterable[object]
) -> list[concurrent.futures.Future[Any]]:
    """Start the work of `over_cores` and return at once."""
    pool = _pool(os.getpid(), num_cores())
    return [pool.submit(part, *each) for each in zip(*arguments, strict=True)]


def in_order(tasks: Sequence[Callable[[], _Result]]) -> Generator[_Result]:
    """Yield the results of tasks in order, while threads work ahead.

    So that what is taken from them does not depend on which ends first. What has not
    begun when the generator is closed never runs.
    """
    if len(tasks) < 2:
        yield from (task() for task in tasks)
        return
    pool = concurrent.futures.ThreadPoolExecutor(num_cores())
    ahead: list[concurrent.futures.Future[_Result]] = []
    try:
        for task in tasks:
            ahead.append(pool.submit(task))
            if len(ahead) >= 2 * num_cores():
                yield ahead.pop(0).result()
        yield from (future.result() for future in ahead)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@functools.lru_cache(maxsize=1)
def _pool(_process: int, cores: int) -> concurrent.futures.ThreadPoolExecutor:
    """Make the threads, anew in a forked process, which inherits none."""
    return concurrent.futures.ThreadPoolExecutor(cores, "mrsa_jax")


def in_context(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Bind a function to the caller's form, target and width, for a thread."""
    form, target = FORM.value, TARGET.value
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64

    @functools.wraps(function)
    def call(*arguments: object) -> _Result:
        with ExitStack() as settings:
            settings.enter_context(FORM(form))
            settings.enter_context(TARGET(target))
            settings.enter_context(jax.enable_x64(bool(wide)))
            return function(*arguments)

    return call
