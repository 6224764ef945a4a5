"""Say what the device is that programs run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

from mrsa_jax._core.cores import num_cores

# Part of the cache key of `jax.jit`: what was traced for one device is never run for
# another.
TARGET = jax.make_user_context(None)


class _Target(NamedTuple):
    """A device that is compiled for but not there."""

    platform: str
    lanes: int
    memory_bytes: int


def platform() -> str:
    """Name the default device's platform: "cpu", "cuda", "rocm" or "tpu"."""
    if TARGET.value is not None:
        return str(TARGET.value.platform)
    device = _default_device()
    name = device if isinstance(device, str) else str(device.platform)
    if name != "gpu":
        return name
    version = "" if isinstance(device, str) else str(device.client.platform_version)
    return "rocm" if "rocm" in version.lower() else "cuda"


def lanes() -> int:
    """Count the 32-bit numbers that a full device works on at a time."""
    if TARGET.value is not None:
        return int(TARGET.value.lanes)
    if platform() == "cpu":
        return 8 * num_cores()
    if platform() == "tpu":
        return 2**15
    return 2048 * int(getattr(_default_device(), "core_count", 0) or 128)


def num_programs(threads: int) -> int:
    """Count the programs of `threads` threads that fill the device twice."""
    return max(1, 2 * lanes() // threads)


def is_bound_by_memory() -> bool:
    """Return whether computing something twice beats storing it."""
    return platform() != "cpu"


def memory_stats() -> dict[str, int]:
    """Return the default device's report of its memory; nothing on a CPU."""
    if TARGET.value is not None:
        return {"bytes_limit": int(TARGET.value.memory_bytes)}
    device = _default_device()
    if isinstance(device, str) or device.platform == "cpu":
        return {}
    return {name: int(value) for name, value in (device.memory_stats() or {}).items()}


def _default_device() -> Any:
    """Return the default device, or the name of its platform."""
    chosen: object = getattr(jax.config, "jax_default_device", None)
    return jax.local_devices()[0] if chosen is None else chosen


@contextmanager
def compiling_for(kind: str, num_lanes: int, memory_bytes: int) -> Iterator[None]:
    """Trace as if this accelerator, which need not be here, were the default.

    Args:
        kind: "cuda" or "tpu".
        num_lanes: As `lanes`.
        memory_bytes: Of one device.
    """
    with TARGET(_Target(kind, num_lanes, memory_bytes)):
        yield


def interprets_kernels() -> bool:
    """Return whether kernels are interpreted: there is no NVIDIA GPU to run them."""
    return platform() != "cuda"


def multiplies_wide() -> bool:
    """Return whether a product of two words takes one instruction here: not on TPUs."""
    return platform() != "tpu"
