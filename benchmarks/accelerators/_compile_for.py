"""Compile programs for absent accelerators, to count their launches, bytes and loops.

XLA compiles for an NVIDIA GPU or a TPU without one: real fusions, real kernels, a real
plan of the memory. For GPUs the plugin and NVIDIA's compiler suffice, without the
libraries that run anything; for TPUs `libtpu`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import (
    AbstractDevice,
    AbstractMesh,
    SingleDeviceSharding,
    use_abstract_mesh,
)

from benchmarks.accelerators._hlo import Counts, counts_of
from mrsa_jax._core import device as _device
from mrsa_jax.bench.harness import version_of
from mrsa_watch._base.errors import MrsaError, nearest, require


class NotHereError(MrsaError, RuntimeError):
    """Signal that a case needs software that is absent, or that does not fit the rest.

    Attributes:
        name: Of what is needed.
        make: Commands that install it.
    """

    def __init__(self, name: str, reason: str, make: tuple[str, ...]) -> None:
        super().__init__(reason)
        self.name, self.make = name, make

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, str(self), self.make)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a device.

    Attributes:
        memory: Bytes a second.
        int32: Additions, logic and shifts of 32-bit integers a second.
        launch: Seconds from one kernel's launch to the next one's, one after another.
        matrix: Multiply-adds of matrix products in bfloat16, times 2, a second.
    """

    memory: float
    int32: float
    launch: float
    matrix: float


# Data sheets; of logic and shifts what the CUDA programming guide says, 64 results per
# clock and multiprocessor, at the clock that was read beside the runs. Multiply-add
# units add as well.
_HOPPER_INT32 = 132 * 64 * 1.98e9
LIMITS = {
    "H100": Limits(3.35e12, _HOPPER_INT32, 2.5e-6, 989e12),
    "H200": Limits(4.8e12, _HOPPER_INT32, 2.5e-6, 989e12),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """An accelerator that is not here.

    Attributes:
        name: "H100", "H200" or "TPU v5e".
        device: What stands for one of them.
        platform: "cuda" or "tpu".
        num_lanes: As `mrsa_jax._core.device.lanes`.
        memory_bytes: Of one.
    """

    name: str
    device: Any
    platform: str
    num_lanes: int
    memory_bytes: int

    @contextmanager
    def assumed(self) -> Iterator[None]:
        """Trace as if this were the default device."""
        with _device.compiling_for(self.platform, self.num_lanes, self.memory_bytes):
            yield


# name -> bytes a second and bytes of memory; XLA's name of a slice of TPUs and bytes of
# one's
_GPUS = {
    "H100": (3_352_320_000_000, 84_978_434_048),
    "H200": (4_800_000_000_000, 150_000_000_000),
}
_TPUS = {"TPU v5e": ("v5e:2x2", 16 * 2**30)}
TARGETS = (*_GPUS, *_TPUS)
_MULTIPROCESSORS, _THREADS = 132, 2048
_GPU = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: {threads}
  core_count: {cores}
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: {memory}
  shared_memory_per_block_optin: 232448
  cuda_compute_capability {{ major: 9 }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 1 }}
device_description_str: "sm_90"
"""


@functools.cache
def target(name: str) -> Target:
    """Return a target that programs are compiled for.

    Args:
        name: One of `TARGETS`.

    Raises:
        ConfigurationError: If there is no such target.
        NotHereError: If its compiler is not there, or is another JAX's.
    """
    require(
        name in TARGETS,
        "name",
        f"must be a known target; {nearest(name, TARGETS)}",
        name,
    )
    platform = "cuda" if name in _GPUS else "tpu"
    check_installed(platform)
    try:
        if platform == "tpu":
            return _tpu(name)
        return _gpu(name)
    except Exception as error:  # whatever plugins of other versions raise
        words = (str(error) or type(error).__name__).splitlines()[0]
        reason = f"JAX {jax.__version__} cannot compile for it: {words}"
        raise NotHereError(platform, reason, how_to_install(platform)) from error


def _gpu(name: str) -> Target:
    bandwidth, memory = _GPUS[name]
    description = _GPU.format(
        bandwidth=bandwidth, memory=memory, cores=_MULTIPROCESSORS, threads=_THREADS
    )
    topology = topologies.get_topology_desc(
        topology_name="", platform="cuda", topology="1x1x1", target_config=description
    )
    return Target(
        name, topology.devices[0], "cuda", _MULTIPROCESSORS * _THREADS, memory
    )


def _tpu(name: str) -> Target:
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # asks no cloud whose TPU this is
    described, memory = _TPUS[name]
    topology = topologies.get_topology_desc(platform="tpu", topology_name=described)
    return Target(name, topology.devices[0], "tpu", 2**15, memory)


# by version of CUDA: what goes with one release of JAX, and NVIDIA's compiler
_CUDA = {
    "12": (("jax-cuda12-plugin", "jax-cuda12-pjrt"), "nvidia-cuda-nvcc-cu12"),
    "13": (("jax-cuda13-plugin", "jax-cuda13-pjrt"), "nvidia-cuda-nvcc"),
}


def how_to_install(platform: str) -> tuple[str, ...]:
    """Return the command that installs what compiles for "cuda" or "tpu" here."""
    if platform == "tpu":
        return (" ".join(["pip", "install", f"'{_pinned('jax[tpu]')}'"]),)
    plugins, compiler = _CUDA["12"]
    # without what runs programs, which is ten times as large
    return (
        " ".join(["pip", "install", "--no-deps", *map(_pinned, plugins), compiler]),
    )


def _pinned(name: str) -> str:
    return f"{name}=={jax.__version__}"


def check_installed(platform: str) -> None:
    """Raise unless this JAX's compiler for the platform is installed."""
    if platform == "tpu":
        problems = [_problem((), "libtpu")]
    else:
        problems = [_problem(*needed) for needed in _CUDA.values()]
    if all(problems):
        nearest_first = sorted(problems, key=lambda words: words.count(" and "))
        raise NotHereError(platform, nearest_first[0], how_to_install(platform))


def _problem(plugins: tuple[str, ...], other: str) -> str:
    """Describe the fault of these distributions, "" if there is none."""
    versions = {name: version_of(name) for name in (*plugins, other)}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    wrong = [
        f"{name} {versions[name]}"
        for name in plugins
        if versions[name] != jax.__version__
    ]
    return f"{' and '.join(wrong)} cannot serve JAX {jax.__version__}" if wrong else ""


def compiled(function: Any, where: Target, *arguments: Any, **static: Any) -> Any:
    """Compile a jitted function for a target.

    Args:
        function: What `jax.jit` returned.
        where: The target.
        arguments: Pytrees of arrays, of `jax.ShapeDtypeStruct` or of Python numbers.
        static: Its static arguments, by name.

    Returns:
        A `jax.stages.Compiled` that cannot be called here.
    """
    with _without_cache():
        return _lowered(function, where, *arguments, **static).compile()


def assembler_text(function: Any, where: Target, *arguments: Any, **static: Any) -> str:
    """Return the text (PTX) that NVIDIA's compiler is given for a function."""
    lowered = _lowered(function, where, *arguments, **static)
    with _without_cache(), tempfile.TemporaryDirectory() as folder:
        lowered.compile(compiler_options={"xla_dump_to": folder})
        files = sorted(pathlib.Path(folder).glob("*.ptx"))
        return "".join(file.read_text(encoding="utf-8") for file in files)


def _lowered(function: Any, where: Target, *arguments: Any, **static: Any) -> Any:
    # shapes on the target device stand for arrays: nothing is allocated
    placed = jax.tree.map(lambda leaf: _placed(leaf, where), arguments)
    with where.assumed(), _named_to_kernels(where):
        return function.trace(*placed, **static).lower(
            lowering_platforms=(where.platform,)
        )


def _named_to_kernels(where: Target) -> AbstractContextManager[Any]:
    """Tell kernels of Pallas which GPU they are for, which JAX 0.11 asks."""
    if where.platform != "cuda":
        return nullcontext()
    device = AbstractDevice(f"NVIDIA {where.name}", _MULTIPROCESSORS, "gpu")
    return use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


@contextmanager
def _without_cache() -> Iterator[None]:
    """Keep off the compile cache: it cannot read what no device here runs."""
    before = bool(getattr(jax.config, "jax_enable_compilation_cache"))  # noqa: B009
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def count(function: Any, where: Target, *arguments: Any, **static: Any) -> Counts:
    """Compile a jitted function for a target, as `compiled`, and count what it does."""
    return counts_of(compiled(function, where, *arguments, **static))


def _placed(leaf: Any, where: Target) -> Any:
    if isinstance(leaf, bool | int | float):
        return leaf
    sharding = SingleDeviceSharding(where.device)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
