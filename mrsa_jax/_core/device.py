"""The one place that knows the device.

What it is, which form of an operation runs, how much of it.
An operation may have up to three forms that give the same integers: loops compiled for
the CPU's cores (numba), array programs (XLA), and kernels written for NVIDIA GPUs
(Pallas, through Triton). The best one for the device runs, unless `use_form` or the
environment variable `MRSA_JAX_FORM` asks for another. How many trials, matrices or
columns go at once is decided here too.
"""

from __future__ import annotations

import concurrent.futures
import functools
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import numpy as np
from jax import lax

from mrsa_jax._core.cores import num_cores
from mrsa_watch._base.errors import ConfigurationError, require

Form = Literal["loops", "xla", "pallas"]
FORMS: tuple[Form, ...] = ("loops", "xla", "pallas")
_VARIABLE = "MRSA_JAX_FORM"

# Best first. Loops need the values, so they stay last elsewhere: for what has no other
# form.
_PREFERRED: dict[str, tuple[Form, ...]] = {
    "cpu": ("loops", "xla", "pallas"),
    "cuda": ("pallas", "xla", "loops"),
    "rocm": ("xla", "loops"),
    "tpu": ("xla", "loops"),
}


class _Work(NamedTuple):
    """How much of one kind of work goes at once.

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

# Part of the cache key of `jax.jit`: what was traced under one form is never run under
# another.
_FORM = jax.make_user_context(None)
_TARGET = jax.make_user_context(None)

_Result = TypeVar("_Result")


class _Target(NamedTuple):
    """A device that is compiled for but not there."""

    platform: str
    lanes: int
    memory_bytes: int


# ---- what the device is


def platform() -> str:
    """Return "cpu", "cuda", "rocm" or "tpu": where the default device's programs run."""
    if _TARGET.value is not None:
        return str(_TARGET.value.platform)
    device = _default_device()
    name = device if isinstance(device, str) else str(device.platform)
    if name != "gpu":
        return name
    version = "" if isinstance(device, str) else str(device.client.platform_version)
    return "rocm" if "rocm" in version.lower() else "cuda"


def lanes() -> int:
    """Return how many 32-bit numbers the device works on at a time when it is full."""
    if _TARGET.value is not None:
        return int(_TARGET.value.lanes)
    if platform() == "cpu":
        return 8 * num_cores()
    if platform() == "tpu":
        return 2**15
    return 2048 * int(getattr(_default_device(), "core_count", 0) or 128)


def num_programs(threads: int) -> int:
    """Return how many programs of a kernel, each of `threads` threads, fill the device twice."""
    return max(1, 2 * lanes() // threads)


def is_bound_by_memory() -> bool:
    """Return whether computing something twice beats writing it down and reading it again."""
    return platform() != "cpu"


def memory_stats() -> dict[str, int]:
    """Return what the default device reports about its memory; nothing on a CPU."""
    if _TARGET.value is not None:
        return {"bytes_limit": int(_TARGET.value.memory_bytes)}
    device = _default_device()
    if isinstance(device, str) or device.platform == "cpu":
        return {}
    return {name: int(value) for name, value in (device.memory_stats() or {}).items()}


def _default_device() -> Any:
    """Return the default device, or the name of its platform."""
    chosen: Any = getattr(jax.config, "jax_default_device", None)
    return jax.local_devices()[0] if chosen is None else chosen


@contextmanager
def compiling_for(kind: str, num_lanes: int, memory_bytes: int) -> Iterator[None]:
    """Trace as if this accelerator were the default device, to compile for one that is not here.

    Args:
        kind: "cuda" or "tpu".
        num_lanes: As `lanes`.
        memory_bytes: Of one device.
    """
    with _TARGET(_Target(kind, num_lanes, memory_bytes)):
        yield


# ---- which form runs


@contextmanager
def use_form(form: str | None) -> Iterator[None]:
    """Run every operation that has it in this form.

    To compare forms, or to rule one out.

    Args:
        form: "loops" (compiled for the CPU's cores, needs numba), "xla" (array
            programs), "pallas" (kernels for NVIDIA GPUs; interpreted, and slow,
            anywhere else), or None: the best for the device. What has no such form runs
            in its best. The environment variable `MRSA_JAX_FORM`, set before it starts,
            does the same for a whole process.

    Raises:
        ConfigurationError: If there is no such form.

    Examples:
        >>> import mrsa_jax as mj
        >>> with mj.use_form("xla"):
        ...     int(mj.modular.rank([[1, 1, 0], [0, 1, 1], [1, 0, 1]]))
        3
    """
    require(
        form is None or form in FORMS, "form", f"must be one of {FORMS} or None", form
    )
    with _FORM(form):
        yield


def chosen_form(offered: tuple[Form, ...], *values: Any) -> Form:
    """Return in which of its forms an operation runs.

    Args:
        offered: The operation's forms.
        values: What it works on: compiled loops take nothing that is traced.

    Raises:
        ConfigurationError: If it has compiled loops only and numba is not there.
    """
    possible: list[Form] = [form for form in offered if form != "loops"]
    if "loops" in offered and not is_traced(*values) and _has_numba():
        possible.append("loops")
    rule = f"must be installed for what has the forms {offered} only"
    require(bool(possible), "numba", rule, "no numba, or traced values")
    asked = forced_form()
    if asked in possible:
        return asked
    if len(possible) == 1:  # for any device, which need not be started for this
        return possible[0]
    return next(form for form in _PREFERRED[platform()] if form in possible)


def forced_form() -> Form | None:
    """Return the form that the caller or the environment asks for."""
    inner: Form | None = _FORM.value
    if inner is not None:
        return inner
    named = os.environ.get(_VARIABLE) or None
    require(
        named is None or named in FORMS, _VARIABLE, f"must be one of {FORMS}", named
    )
    return named  # type: ignore[return-value]


def interprets_kernels() -> bool:
    """Return whether kernels are interpreted: there is no NVIDIA GPU to run them."""
    return platform() != "cuda"


def multiplies_wide() -> bool:
    """Return whether a product of two words takes one instruction here: not on TPUs."""
    return platform() != "tpu"


def is_traced(*values: Any) -> bool:
    """Return whether a leaf of these pytrees is known to a transformation only."""
    # a loop: this runs at every door, and a generator would cost a call for each leaf
    for leaf in jax.tree.leaves(values):
        if isinstance(leaf, jax.core.Tracer):
            return True
    return False


@functools.cache
def _has_numba() -> bool:
    try:
        return importlib.util.find_spec("numba") is not None
    except ImportError:  # somebody forbids it
        return False


# ---- how much goes at once


def at_once(kind: str, item_bytes: int, least: int = 1) -> int:
    """Return how many items of a kind of work go at once.

    As many as stay in a CPU's cache or fill an accelerator, never more than an eighth
    of its memory holds.

    Args:
        kind: Name of a row of the table above.
        item_bytes: What one item has in flight.
        least: At least so many.
    """
    work = _WORK[kind]
    if platform() == "cpu":
        return max(least, min(work.cpu_bytes // max(1, item_bytes), work.cpu_items))
    memory = memory_stats().get("bytes_limit", _LEAST_MEMORY)
    budget = min(work.lane_bytes * lanes(), memory // _SHARE)
    return max(least, budget // max(1, item_bytes))


def samples_at_once(kind: str, input_shape: Sequence[int]) -> int:
    """Return how many samples a model is given at once, by about what its widest layer puts out.

    Args:
        kind: "questions" or "tests".
        input_shape: Of a sample; the layer has 32 channels of it.
    """
    return at_once(kind, 4 * 32 * math.prod(input_shape))


def map_tiles(one: Callable[[Any], Any], items: Any, tile: int) -> Any:
    """Return `one` of each item along the leading axis of a pytree, `tile` of them at once.

    A tile of one is no batch: its branches are taken, not computed both. Tiles are of
    one size, the last one filled up: a smaller one would be the whole program once
    more, to trace and to compile.
    """
    count = jax.tree.leaves(items)[0].shape[0]
    if tile == 1:
        return lax.map(one, items)
    tiles = -(-count // tile)
    if tiles == 1:
        return jax.vmap(one)(items)
    size = -(-count // tiles)
    if tiles * size == count:
        return lax.map(one, items, batch_size=size)
    places = np.minimum(np.arange(tiles * size), count - 1)
    found = lax.map(
        one, jax.tree.map(lambda leaf: leaf[places], items), batch_size=size
    )
    return jax.tree.map(lambda leaf: leaf[:count], found)


def cores_for(kind: str, count: int) -> int:
    """Return among how many threads of a CPU so many items of a kind of work are shared."""
    return max(1, min(num_cores(), count // _WORK[kind].least))


def within_memory(
    run: Callable[[int], _Result], chunk: int, argument: str, what: str
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
    error: Exception, argument: str, what: str, chunk: int
) -> ConfigurationError:
    found = re.search(r"allocat\w+ ([\d.]+ ?[KMGT]?i?B|\d+ bytes)", str(error))
    needed = f" (it asked for {found.group(1)})" if found else ""
    rule = f"must fit into the device's memory{needed}: {what}"
    return ConfigurationError(f"`{argument}` {rule}; got {chunk} at once")


# ---- the CPU's cores


def over_cores(part: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """Return `map(part, *arguments)` as a list, worked off by one thread a core.

    For loops that release the interpreter's lock and call nothing that comes back here:
    the threads are kept from call to call, because starting them takes as long as a
    small round.
    """
    return [job.result() for job in start_over_cores(part, *arguments)]


def over_ranges(kind: str, part: Callable[[slice], Any], count: int) -> None:
    """Call a function, as `over_cores` does, for ranges that share `count` items of this work."""
    cores = cores_for(kind, count)
    if cores < 2:
        part(slice(0, count))
        return
    edges = [count * core // cores for core in range(cores + 1)]
    over_cores(part, list(map(slice, edges, edges[1:])))


def start_over_cores(
    part: Callable[..., Any], *arguments: Iterable[Any]
) -> list[concurrent.futures.Future[Any]]:
    """Start what `over_cores` does and return at once, to prepare what comes next meanwhile."""
    pool = _pool(os.getpid(), num_cores())
    return [pool.submit(part, *each) for each in zip(*arguments, strict=True)]


def in_order(tasks: Sequence[Callable[[], _Result]]) -> Generator[_Result]:
    """Yield the results of tasks in their order, threads running as many ahead as fill all cores.

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
    """Return the function under the caller's form, target and width of numbers, for a thread."""
    form, target = _FORM.value, _TARGET.value
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64

    @functools.wraps(function)
    def call(*arguments: Any) -> _Result:
        with ExitStack() as settings:
            settings.enter_context(_FORM(form))
            settings.enter_context(_TARGET(target))
            settings.enter_context(jax.enable_x64(bool(wide)))
            return function(*arguments)

    return call
