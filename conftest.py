"""Strict settings for the whole suite; they must be in place before JAX starts."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import logging
import os
import pathlib
import signal
from collections.abc import Callable, Iterator

_ROOT = pathlib.Path(__file__).resolve().parent
# A script starts background commands with interrupts ignored; what tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Notebooks run at a small size; at full size in the slow tests.
os.environ.setdefault("MRSA_JAX_SMALL", "1")
# Commands started by tests (subprocesses, notebooks) share the suite's compile cache.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# An entry that another process has half written is compiled anew (see pyproject.toml).
os.environ.setdefault("PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry")

from jaxtyping import install_import_hook  # noqa: E402

# Every annotated shape and dtype of the package is checked while the suite runs.
install_import_hook("mrsa_jax", "beartype.beartype")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_debug_key_reuse", False)

hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=25, print_blob=True
)
hypothesis.settings.load_profile("suite")


# The adapter of a system that is not installed cannot be imported for its doctests.
collect_ignore = [] if importlib.util.find_spec("nvflare") else ["mrsa_jax/live/nvflare.py"]


@pytest.fixture
def wide_kernels() -> None:
    """Skip where kernels are forced and interpreted, which JAX cannot with 64-bit types on."""
    if not _runs_kernels():
        pytest.skip("JAX's interpreter of kernels does not run with 64-bit types on")


@pytest.fixture
def checks_varying() -> bool:
    """Whether kernels run in a `shard_map` that checks what varies: JAX's interpreter does not."""
    return _runs_kernels()


def _runs_kernels() -> bool:
    from mrsa_jax._device import forced_form, interprets_kernels

    return forced_form() != "pallas" or not interprets_kernels()


@pytest.fixture
def compilations(
    caplog: pytest.LogCaptureFixture,
) -> Callable[[], contextlib.AbstractContextManager[list[str]]]:
    """Return what opens a context, whose list holds in the end the programs compiled within."""

    @contextlib.contextmanager
    def watch() -> Iterator[list[str]]:
        caplog.clear()
        found: list[str] = []
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            yield found
        messages = [record.getMessage() for record in caplog.records]
        found += [message for message in messages if message.startswith("Compiling")]

    return watch


@pytest.fixture(autouse=True, scope="module")
def own_schemes_end() -> Iterator[None]:
    """Forget the selection schemes that a test or an example registered."""
    from mrsa_jax.selection._registry import ROWS

    before = dict(ROWS)
    yield
    ROWS.clear()
    ROWS.update(before)


# Each compiled program holds some memory maps, of which Linux gives a process 65,530.
_MOST_MAPS = 20_000


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs() -> Iterator[None]:
    """Forget compiled programs, which are on disk, long before a worker runs out of maps."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > _MOST_MAPS:
        jax.clear_caches()
        gc.collect()
