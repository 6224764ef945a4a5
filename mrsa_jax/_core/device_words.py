"""Name the device for commands, or say why a GPU is not used."""

from __future__ import annotations

import pathlib
import shutil

import jax

from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.device import memory_stats, platform
from mrsa_jax._core.sources import version_of
from mrsa_watch._base.errors import ConfigurationError, how_to_install

_DRIVER = (pathlib.Path("/proc/driver/nvidia/version"), pathlib.Path("/dev/nvidia0"))
_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")


def device_in_words() -> str:
    """Name the device, such as "CPU, 2 cores" or "2 x NVIDIA H100 80GB HBM3".

    Raises:
        ConfigurationError: If JAX cannot start what its settings ask for.
    """
    try:
        name = platform()
        devices = jax.local_devices()
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # of JAX: a platform it lacks or cannot start
        reason = str(error).splitlines()[:1] or ["it has no such platform"]
        raise ConfigurationError(
            f"`JAX_PLATFORMS` must name what JAX {jax.__version__} can start here; "
            f"got {_asked()!r}: {reason[0]}"
        ) from error
    if name == "cpu":
        cores = num_cores()
        return f"CPU, {cores} core{'' if cores == 1 else 's'}"
    count = f"{len(devices)} x " if len(devices) > 1 else ""
    memory = memory_stats().get("bytes_limit")
    held = "" if memory is None else f", {memory / 2**30:.0f} GiB for programs"
    return f"{count}{devices[0].device_kind}{held}"


def device_name() -> str:
    """Return the first device's platform and kind, as records keep them."""
    device = jax.devices()[0]
    return f"{device.platform} {device.device_kind}"


def unused_gpu() -> str | None:
    """Return why JAX computes on the CPU next to an NVIDIA GPU and what helps.

    None if it does not.
    Nothing is said where the CPU is asked for.
    """
    if platform() != "cpu" or _asked().startswith("cpu") or not _has_gpu():
        return None
    installed = {
        name: version for name in _PLUGINS if (version := version_of(name)) is not None
    }
    what = "there is an NVIDIA GPU, but JAX computes on the CPU"
    if not installed:
        return (
            f"{what}: the extra `cuda12` or `cuda13` is not installed, as by "
            f"{how_to_install('cuda12')}"
        )
    other = {
        name: version
        for name, version in installed.items()
        if version != jax.__version__
    }
    if len(other) == len(installed):
        name, version = next(iter(other.items()))
        return (
            f"{what}: {name} {version} is for another JAX than {jax.__version__}, "
            "which is here"
        )
    return f"{what}, although its plugin is there; with JAX_PLATFORMS=cuda it says why"


def _asked() -> str:
    return str(getattr(jax.config, "jax_platforms", None) or "")


def _has_gpu() -> bool:
    """Return whether this machine seems to have an NVIDIA GPU."""
    return (
        any(path.exists() for path in _DRIVER) or shutil.which("nvidia-smi") is not None
    )
