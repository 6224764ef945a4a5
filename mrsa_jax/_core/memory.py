"""Measure the memory that is free, and refuse work that needs more."""

from __future__ import annotations

import pathlib
import sys

from mrsa_watch._base.errors import require

_GROUPS = pathlib.Path("/sys/fs/cgroup")  # where Linux tells what a container may take
_PROCESS = pathlib.Path("/proc/self")
_MACHINE = pathlib.Path("/proc/meminfo")


def memory_words(needed: int, argument: str, value: object, reduce: str) -> str:
    """Say how much memory work needs and how much is available, or refuse it.

    Every command states its need by this before it begins.

    Args:
        needed: Bytes, about, beyond what the process holds.
        argument: Name of the argument that the need grows with most.
        value: What was given for it.
        reduce: Which arguments are to be reduced, as in "num_clients or trials".

    Returns:
        Such as "memory: about 3 GiB of 20 GiB that are free".

    Raises:
        ConfigurationError: If more is needed than available, where the system reports
            what is free.

    Examples:
        >>> words = memory_words(2**20, "num_clients", 8, "num_clients or trials")
        >>> words.startswith("memory: about 1 MiB")
        True
    """
    available = free_bytes()
    need = bytes_in_words(needed)
    if available is None:
        return f"memory: about {need}"
    # the accelerator's, if it has less than the machine
    where = " on the accelerator" if available == _accelerator_bytes() else ""
    share = f"about {need} of {bytes_in_words(available)} that are free{where}"
    rule = f"must fit into memory: {share}; reduce {reduce}"
    require(needed <= available, argument, rule, value)
    return f"memory: {share}"


def accelerator_words() -> str:
    """Return " of 60 GiB that are free on the accelerator", "" where JAX has none."""
    free = _accelerator_bytes()
    if free is None:
        return ""
    return f" of {bytes_in_words(max(free, 0))} that are free on the accelerator"


def free_bytes() -> int | None:
    """Return the bytes that this process can still take.

    None where the system does not say. The least of what the machine has, what the
    process's control groups and its own limit leave, and what an accelerator has left
    where JAX runs on one.
    """
    limits = [_machine_bytes(), *_group_bytes(), _limit_bytes(), _accelerator_bytes()]
    return min((max(limit, 0) for limit in limits if limit is not None), default=None)


def bytes_in_words(number: int) -> str:
    """Return a number of bytes in a unit that fits it.

    Examples:
        >>> bytes_in_words(3 * 2**30), bytes_in_words(2**20)
        ('3 GiB', '1 MiB')
    """
    if number >= 2**30:
        gib = number / 2**30
        return f"{gib:.3g} GiB" if gib < 999.5 else f"{gib:,.0f} GiB"
    if number >= 2**20 or number == 0:
        return f"{number / 2**20:.3g} MiB"
    return f"{number / 2**10:.3g} KiB"


def _machine_bytes() -> int | None:
    kibibytes = _entry(_MACHINE, "MemAvailable:")
    return None if kibibytes is None else 1024 * kibibytes


def _group_bytes() -> list[int]:
    """Return the room under each control group's limit (both versions)."""
    rooms = []
    for line in (_read(_PROCESS / "cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        if names not in ("", "memory"):
            continue
        root = _GROUPS / names
        most, used = (
            ("memory.max", "memory.current")
            if not names
            else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        here = root / path.lstrip("/")
        for folder in (here, *here.parents):
            limit, current = _read(folder / most), _read(folder / used)
            if limit and current and limit.strip().isdigit():
                # files alone are held by what is given up when memory is asked for
                cached = _entry(
                    folder / "memory.stat", "inactive_file", "total_inactive_file"
                )
                rooms.append(int(limit) - int(current) + (cached or 0))
            if folder == root:
                break
    return rooms


def _entry(path: pathlib.Path, *names: str) -> int | None:
    """Return the number behind the first of these names in a file of lines of both."""
    for line in (_read(path) or "").splitlines():
        name, number, *_ = [*line.split(), "", ""]
        if name in names:
            return int(number)
    return None


def _limit_bytes() -> int | None:
    """Return the room under the process's limit of address space (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # not on this system
        return None
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _read(_PROCESS / "statm")
    if soft == resource.RLIM_INFINITY or pages is None:
        return None
    return int(soft) - int(pages.split()[0]) * resource.getpagesize()


def _accelerator_bytes() -> int | None:
    """Return the accelerator's free bytes.

    None on a CPU, or while JAX is not imported.
    """
    if "jax" not in sys.modules:
        return None
    from mrsa_jax._core import device as _device

    stats = _device.memory_stats()
    if "bytes_limit" not in stats:
        return None
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0)


def _read(path: pathlib.Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
