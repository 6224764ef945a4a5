"""The hot paths.

Compiled for accelerators and counted, or run on the device of this machine.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import multiprocessing
import operator
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerators._compile_for import (
    LIMITS,
    TARGETS,
    NotHereError,
    assembler_text,
    check_installed,
    compiled,
    target,
)
from benchmarks.accelerators._hlo import Counts, counts_of
from benchmarks.accelerators._hot_paths import HOT_PATHS, Bound, Work
from benchmarks.accelerators._ptx import instructions
from benchmarks.accelerators._reading import Reading
from mrsa_jax._core import forms as _forms
from mrsa_jax._core.arrays import on_device

_REPEATS = 10
_TOLERANCE = 0.01  # products of float32 have ten bits on the matrix units of GPUs
# of computing, for each program: some are not compiled in ten minutes
_TPU_SECONDS = 100


class Case(NamedTuple):
    """One reading to be taken: its name, and what takes the name and reads."""

    name: str
    read: Callable[[str], Reading]


def cases(paths: Sequence[str] = (), *, quick: bool, here: bool) -> list[Case]:
    """Return the paths that run here, or each path for each target and form.

    An H200 runs an H100's programs in other chunks: at small sizes the same.

    Args:
        paths: Keys of `HOT_PATHS`; all if there are none.
        quick: Small sizes; they have no bounds.
        here: Whether to run on the device of this machine.
    """
    if here:
        return [
            Case(
                f"here: {_named(path, quick)}",
                functools.partial(read_run, path, quick=quick),
            )
            for path in paths or HOT_PATHS
        ]
    return [
        Case(f"{name}: {_named(path, quick)}, {form}", _reader(name, path, form, quick))
        for name in TARGETS
        if not (quick and name == "H200")
        for path in paths or HOT_PATHS
        for form in forms_on(name, path)
    ]


def _reader(
    name: str, path: str, form: _forms.Form, quick: bool
) -> Callable[[str], Reading]:
    if name.startswith("TPU") and not quick:
        return functools.partial(read_within, _TPU_SECONDS, name, path, form)
    return functools.partial(read_compiled, name, path, form, quick=quick)


def _named(path: str, quick: bool) -> str:
    return f"{HOT_PATHS[path].name}, {'small' if quick else HOT_PATHS[path].sizes}"


def forms_on(name: str, path: str) -> tuple[_forms.Form, ...]:
    """Return the forms of a path that a target can run."""
    return tuple(
        form
        for form in HOT_PATHS[path].bounds
        if form == "xla" or not name.startswith("TPU")
    )


def read_compiled(
    name: str, path: str, form: _forms.Form, case: str, *, quick: bool = False
) -> Reading:
    """Compile one form of a path for a target and count.

    Args:
        name: One of `TARGETS`.
        path: Key of `HOT_PATHS`.
        form: One of its forms.
        case: What the record is called.
        quick: Small sizes; they have no bounds, like targets that are no NVIDIA GPU.

    Raises:
        NotHereError: If nothing here compiles for the target.
    """
    where = target(name)
    start = time.perf_counter()
    with _forms.use_form(form), where.assumed():
        work = HOT_PATHS[path].build(quick)
        counts = _counted(
            [
                compiled(call.function, where, *call.arguments, **call.static)
                for call in work.calls
            ]
        )
    seconds = time.perf_counter() - start
    kernels = HOT_PATHS[path].kernels if form == "pallas" and not quick else {}
    executed = None
    if kernels:
        with _forms.use_form(form):
            texts = [
                assembler_text(call.function, where, *call.arguments, **call.static)
                for call in work.calls
            ]
        executed = instructions("".join(texts), kernels)
    is_bound = where.platform == "cuda" and not quick
    bound = HOT_PATHS[path].bounds[form] if is_bound else None
    device = f"{name}, not there: nothing was run"
    reading = _reading(case, device, path, form, work, counts, seconds, bound)
    return dataclasses.replace(reading, instructions=executed)


def read_within(
    limit: int, name: str, path: str, form: _forms.Form, case: str
) -> Reading:
    """Do what `read_compiled` does, if it takes no more seconds of computing.

    In a process of its own, as nothing else ends a compiler.

    Raises:
        NotHereError: As there; if it takes longer.
    """
    # a compiler has one process
    check_installed("tpu" if name.startswith("TPU") else "cuda")
    # a forked process would share JAX's threads
    spawned = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(1, spawned, _limit_seconds, (limit,)) as pool:
        try:
            return pool.submit(read_compiled, name, path, form, case).result()
        except BrokenProcessPool as error:
            when = f"after {limit} seconds of computing or by itself"
            reason = f"its compiler was ended, {when}"
            raise NotHereError(f"{name}, {path}", reason, ()) from error


def _limit_seconds(limit: int) -> None:
    import resource  # not on every system

    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))


def read_run(
    path: str, case: str, *, quick: bool = False, repeats: int = _REPEATS
) -> Reading:
    """Compile the best form of a path for the default device, compare, run and time it.

    Args:
        path: Key of `HOT_PATHS`.
        case: What the record is called.
        quick: Small sizes.
        repeats: Timed calls, after one to warm up.
    """
    wrong = differences(path)
    start = time.perf_counter()
    work = HOT_PATHS[path].build(quick)
    programs = [
        call.function.lower(*call.arguments, **call.static).compile()
        for call in work.calls
    ]
    compile_seconds = time.perf_counter() - start
    inputs = [filled(call.arguments) for call in work.calls]

    def run() -> float:
        begin = time.perf_counter()
        pairs = zip(programs, inputs, strict=True)
        # calls return before the device has finished
        jax.block_until_ready([program(*arguments) for program, arguments in pairs])
        return time.perf_counter() - begin

    # the first call is slower, and is not timed
    run()
    seconds = [run() for _ in range(repeats)]
    counts = _counted(programs)
    kind = jax.local_devices()[0].device_kind
    reading = _reading(
        case, kind, path, _forms.forced_form(), work, counts, compile_seconds, None
    )
    return dataclasses.replace(_timed(reading, work, seconds), wrong=wrong)


def differences(path: str) -> tuple[str, ...]:
    """Compare the default device's results with array programs on the CPU, in words.

    At small sizes. Integers are compared to the bit; of floats, which other devices sum
    in another order and multiply with fewer digits, the norm of the difference over the
    norm.
    """
    here = _results(path)
    with (
        jax.default_device(jax.local_devices(backend="cpu")[0]),
        _forms.use_form("xla"),
    ):
        expected = _results(path)
    pairs = zip(jax.tree.leaves_with_path(here), jax.tree.leaves(expected), strict=True)
    return tuple(
        f"result {jax.tree_util.keystr(name)} differs from the CPU's by {apart:.2g}"
        for (name, leaf), other in pairs
        if not (apart := _apart(leaf, other))
        <= (_TOLERANCE if leaf.dtype.kind == "f" else 0.0)
    )


def _results(path: str) -> Any:
    work = HOT_PATHS[path].build(True)
    outputs = [
        call.function(*filled(call.arguments), **call.static) for call in work.calls
    ]

    def values(leaf: Any) -> np.ndarray:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return jax.tree.map(values, outputs)


def _apart(values: np.ndarray, other: np.ndarray) -> float:
    """Return the share of entries that differ.

    Of floats the relative difference by norm.
    """
    if values.shape != other.shape or values.dtype != other.dtype:
        return math.inf
    if values.dtype.kind != "f":
        return float(np.mean(values != other)) if values.size else 0.0
    # infinities must agree exactly
    finite = np.isfinite(other)
    if not np.array_equal(values[~finite], other[~finite], equal_nan=True):
        return math.inf
    norm = float(np.linalg.norm(other[finite]))
    return float(np.linalg.norm(values[finite] - other[finite])) / (norm or 1.0)


def _timed(reading: Reading, work: Work, seconds: list[float]) -> Reading:
    """Return the reading with its times, and their shares of the device's limits."""
    # the fastest call is the one that nothing else slowed
    best = min(seconds)
    limits = next((row for name, row in LIMITS.items() if name in reading.device), None)
    shares = {}
    if limits is not None:
        shares = {
            "memory": reading.moved_bytes / best / limits.memory,
            "int32": work.int32 / best / limits.int32,
            "launches": reading.launches * limits.launch / best,
            "matrix": work.flops / best / limits.matrix,
        }
    return dataclasses.replace(
        reading,
        seconds_min=best,
        seconds_median=statistics.median(seconds),
        shares={name: share for name, share in shares.items() if share},
    )


def filled(arguments: Any) -> Any:
    """Return arguments with values instead of `jax.ShapeDtypeStruct`s.

    Bools are true one time in ten, integers any words (of signed ones their last bit),
    floats standard normal; the rest stays.
    """
    rng = np.random.default_rng(0)

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if leaf.dtype == jnp.bool_:
            return on_device(rng.random(leaf.shape, np.float32) < 0.1)
        if leaf.dtype == jnp.float32:
            return on_device(rng.standard_normal(leaf.shape, np.float32))
        words = rng.integers(0, 2**32, leaf.shape, np.uint32)
        return on_device(
            words if leaf.dtype == jnp.uint32 else (words & 1).astype(leaf.dtype)
        )

    return jax.tree.map(value, arguments)


def _counted(programs: list[Any]) -> Counts:
    """Return the counts of programs one after another."""
    return functools.reduce(operator.add, map(counts_of, programs))


def _reading(
    case: str,
    device: str,
    path: str,
    form: str | None,
    work: Work,
    counts: Counts,
    seconds: float,
    bound: Bound | None,
) -> Reading:
    counted = {name: value for name, value in vars(counts).items() if name != "host"}
    for name in ("products", "compiled_products"):
        counted[name] = len(counted[name])
    least = {} if work.least_bytes is None else {"least_bytes": work.least_bytes}
    bounds: dict[str, Any] = {} if bound is None else bound._asdict()
    return Reading(
        benchmark="accelerators",
        case=case,
        device=device,
        path=path,
        form=form,
        unit=HOT_PATHS[path].unit,
        work=float(work.amount),
        compile_seconds=seconds,
        host_calls=len(counts.host),
        **(counted | least),
        **{f"most_{name}": most for name, most in bounds.items()},
    )
