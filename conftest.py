"""Strict settings for the whole suite; they must be in place before JAX starts."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import importlib.util
import os
import pathlib
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parent
# A script starts background commands with interrupts ignored; what tests start would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Notebooks run at a small size; at full size in the slow tests.
os.environ.setdefault("MRSA_JAX_SMALL", "1")
# Commands started by tests (subprocesses, notebooks) share the suite's compile cache.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# An entry that another process has half written is compiled anew (see pyproject.toml).
os.environ.setdefault(
    "PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry"
)

import beartype  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402


class _FirstCalls:
    """Checks annotated shapes and dtypes in the first calls of functions in each test.

    Loops of thousands of calls would spend a third of their time on it.
    """

    MOST = 10

    def __init__(self) -> None:
        self._calls: collections.Counter[Callable[..., Any]] = collections.Counter()
        self._passed: list[Any] = []

    def checked(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Return the check of a signature, prepared where it is needed first."""
        check = functools.cache(lambda: beartype.beartype(own))

        def counted(*arguments: Any, **named: Any) -> Any:
            self._calls[own] += 1
            if self._calls[own] == self.MOST:
                function = sys._getframe(1).f_locals["fn"]  # whose signature it is
                function.__no_type_check__ = True
                self._passed.append(function)
            return check()(*arguments, **named)

        return counted

    def begin(self) -> None:
        """Check from the first call on again."""
        self._calls.clear()
        while self._passed:
            vars(self._passed.pop()).pop("__no_type_check__", None)


_FIRST_CALLS = _FirstCalls()
sys.modules["first_calls"] = types.ModuleType("first_calls")
sys.modules["first_calls"].checked = _FIRST_CALLS.checked  # type: ignore[attr-defined]
install_import_hook(["mrsa_jax", "mrsa_watch", "mrsa_papers"], "first_calls.checked")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402
from jax._src import xla_bridge  # noqa: E402  # no public function asks without starting one

from mrsa_jax._core.programs import QUICK  # noqa: E402

# Most of a test's time goes into compiling: XLA does the least it can, in half the
# time. What users get is tested where the variable is set: the kernels' dear tests, and
# the slow ones.
_DEVICES = "xla_force_host_platform_device_count"
# `make test-devices` asks for more
_FLAGS = {} if _DEVICES in os.environ.get("XLA_FLAGS", "") else {_DEVICES: 2}
if os.environ.get("MRSA_JAX_OPTIMISED", "") in ("", "0"):
    # in one piece: to split a program for several threads costs a third more
    _FLAGS |= QUICK | {"xla_cpu_parallel_codegen_split_count": 1}
    if jax.__version_info__ >= (0, 11):  # an unknown flag ends the process
        del _FLAGS["xla_cpu_use_fusion_emitters"]
# read when the first device starts
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        *(f"--{name}={int(own)}" for name, own in _FLAGS.items()),
    ]
).strip()

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_debug_key_reuse", False)

hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=25, print_blob=True
)
hypothesis.settings.load_profile("suite")


# The adapter of a system that is not installed cannot be imported for its doctests.
_NVFLARE = ["mrsa_jax/live/nvflare.py", "watch/mrsa_watch/nvflare.py"]
collect_ignore = [] if importlib.util.find_spec("nvflare") else _NVFLARE


@pytest.fixture
def wide_kernels() -> None:
    """Skip where kernels are forced and interpreted: JAX cannot with 64-bit types."""
    if not _runs_kernels():
        pytest.skip("JAX's interpreter of kernels does not run with 64-bit types on")


@pytest.fixture
def on_a_cpu() -> None:
    """Skip elsewhere.

    Loops run on CPUs alone, and accelerators round otherwise in each program.
    """
    from mrsa_jax._core.device import platform

    if platform() != "cpu":
        pytest.skip("of a CPU")


@pytest.fixture
def checks_varying() -> bool:
    """Whether kernels run in a `shard_map` that checks what varies.

    JAX's interpreter does not.
    """
    return _runs_kernels()


def _runs_kernels() -> bool:
    from mrsa_jax._core.device import interprets_kernels
    from mrsa_jax._core.forms import forced_form

    return forced_form() != "pallas" or not interprets_kernels()


@pytest.fixture
def compilations() -> Callable[[], contextlib.AbstractContextManager[list[str]]]:
    """Return a function that opens a context.

    The list of the context holds the programs compiled within, in any thread.
    """

    @contextlib.contextmanager
    def watch() -> Iterator[list[str]]:
        found: list[str] = []

        def on_event(event: str, _: float, **facts: Any) -> None:
            if event == "/jax/core/compile/backend_compile_duration":
                found.append(facts["fun_name"])

        jax.monitoring.register_event_duration_secs_listener(on_event)
        try:
            yield found
        finally:
            jax.monitoring.unregister_event_duration_listener(on_event)

    return watch


def pytest_collection_finish() -> None:
    """Look for garbage less often, and never among what stays.

    It took a twelfth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def first_calls_are_checked() -> None:
    """Check what each test calls."""
    _FIRST_CALLS.begin()


@pytest.fixture(autouse=True, scope="module")
def own_schemes_and_figures_end() -> Iterator[None]:
    """Forget what tests or examples left.

    The selection schemes registered, the figures drawn.
    """
    from mrsa_jax.selection.registry import ROWS

    before = dict(ROWS)
    yield
    ROWS.clear()
    ROWS.update(before)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# To draw a figure's files takes a fifth of a command's time. These look at what
# commands compute and say: the files of their figures hold a word, but where a test
# looks at them, or at pictures.
_NOT_DRAWN = ("tests/cli/", "tests/study/", "tests/papers/", "tests/test_extending.py",
              "tests/test_hostile_files.py")  # fmt: skip
_LOOKED_AT = {"tests/cli/test_report.py", "tests/study/test_pages_in_browser.py",
              "tests/study/test_report.py"}  # fmt: skip
_PICTURES_LOOKED_AT = {
    "tests/cli/test_advise.py", "tests/cli/test_attack.py", "tests/test_extending.py"
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def figures_are_drawn_where_they_are_looked_at(
    request: pytest.FixtureRequest,
) -> Iterator[None]:
    """Spare the others to draw: their plots are made, and their files named."""
    module = request.path.relative_to(_ROOT).as_posix()
    drawn = {".png"} if module in _PICTURES_LOOKED_AT else set()
    with pytest.MonkeyPatch.context() as patch:
        if module.startswith(_NOT_DRAWN) and module not in _LOOKED_AT:
            _draw_only(drawn, patch)
        yield


def _draw_only(suffixes: set[str], patch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    save = Figure.savefig

    @functools.wraps(save)
    def named(own: Figure, file: pathlib.Path, **settings: Any) -> None:
        if file.suffix in suffixes:
            save(own, file, **settings)
        else:
            file.write_bytes(b"not drawn")

    patch.setattr(Figure, "savefig", named)


@pytest.fixture
def undrawn_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing, for a test of a module of drawing that looks at data alone."""
    _draw_only(set(), monkeypatch)


@pytest.fixture
def drawn_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw, for the one test of such a module that looks at a figure's files."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", Figure.savefig.__wrapped__)  # type: ignore[attr-defined]


class _Free:
    """Processor seconds that fall on whichever test is at hand.

    None is charged with them.
    """

    def __init__(self) -> None:
        self.seconds, self._start, self._depth = 0.0, 0.0, 0

    def __enter__(self) -> None:
        if self._depth == 0:
            self._start = time.thread_time()
        self._depth += 1

    def __exit__(self, *unused: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.thread_time() - self._start

    def collection(self, phase: str, unused: dict[str, int]) -> None:
        """Take the garbage collector's word that it starts or stops."""
        if phase == "start":
            self.__enter__()
        else:
            self.__exit__()


_FREE = _Free()

# Each compiled program holds some memory maps, of which Linux gives a process 65,530.
_MOST_MAPS = 20_000


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs() -> Iterator[None]:
    """Forget compiled programs, which are on disk, before a worker runs out of maps."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > _MOST_MAPS:
        with _FREE:
            jax.clear_caches()
            gc.collect()


# ---- tiers: what takes longer waits for `make test-long` and `make test-slow`

# Examples in docstrings, which no mark can stand beside, that are of the middle tier.
_LONG_EXAMPLES = frozenset((_ROOT / "tests" / "long_examples.txt").read_text().split())
_TIERS = {"long and not slow": "long", "smoke": "smoke"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs", action="store_true", help="fail where a default test is too dear"
    )


def _tier(config: pytest.Config) -> str | None:
    """Return the tier that alone is asked for: then all else need not be collected."""
    return _TIERS.get(config.option.markexpr)


def pytest_ignore_collect(
    collection_path: pathlib.Path, config: pytest.Config
) -> bool | None:
    """Spare a tier to import files that hold nothing of it."""
    tier = _tier(config)
    if tier is None or collection_path.suffix != ".py":
        return None
    file = collection_path.relative_to(_ROOT).as_posix()
    has_examples = tier == "long" and any(
        name.startswith(f"{file}::") for name in _LONG_EXAMPLES
    )
    if has_examples or f"pytest.mark.{tier}" in collection_path.read_text():
        return None
    return True


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, obj: object
) -> list[pytest.Item] | None:
    """Spare it, too, to make the cases of functions that are not of it."""
    tier = _tier(collector.config)
    if tier is None or not isinstance(collector, pytest.Module):
        return None
    marks = [*collector.iter_markers(), *getattr(obj, "pytestmark", [])]
    # a case of a function may have a mark of its own
    cases = [
        case for mark in marks if mark.name == "parametrize" for case in mark.args[1]
    ]
    marks += [mark for case in cases for mark in getattr(case, "marks", ())]
    return None if any(mark.name == tier for mark in marks) else []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the marks of a tier from cases that they do not name."""
    for item in items:
        if item.nodeid in _LONG_EXAMPLES:
            item.add_marker("long")
        case = item.nodeid.partition("[")[2].removesuffix("]")
        item.own_markers = [
            mark
            for mark in item.own_markers
            if mark.name not in _TIERS.values() or not mark.args or case in mark.args
        ]


# ---- what collection may start: no device, which costs each worker seconds and memory


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    had_backend = xla_bridge.backends_are_initialized()
    report = yield
    if xla_bridge.backends_are_initialized() and not had_backend and report.passed:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid} makes JAX values when it is imported: make them in "
            "the test, in a "
            "fixture, or in a function under functools.cache; NumPy arrays are free"
        )
    return report


# ---- what a default test may cost
#
# Processor seconds with empty caches. A test pays for all that it starts: its fixtures,
# the
# programs that XLA compiles for it, the processes that it waits for. What any worker
# pays once is
# apart: its start (imports, the device), the garbage collector, and the machine code of
# compiled
# loops, which has a limit of its own.

# Seconds on a machine that takes `_REFERENCE` for `_work`; a slower one is allowed
# more.
_MOST = {"a test": 1.0, "a file": 15.0, "a worker's loops": 60.0}
# Above its limit all is told; the session fails from so many times the limit on: which
# test of a worker is the first to load a library or to compile what others use changes
# from run to run.
_FAILS = 4
_REFERENCE = 0.16
# Imported late by the package, by whichever test comes first.
_START = (
    "cryptography.hazmat.primitives.asymmetric.x25519", "dask.array", "flax.linen",
    "jax.experimental.pallas.mosaic_gpu", "jax.experimental.pallas.triton", "jinja2",
    "matplotlib.figure", "matplotlib.pyplot", "numba",
    "optax", "pandas", "pyarrow.parquet", "scipy.optimize", "scipy.stats", "tyro",
    "xarray",
)  # fmt: skip


def _used() -> float:
    """Return processor seconds of this process and of children that it waited for."""
    return sum(os.times()[:4])


def _work() -> float:
    """Return the seconds that a fixed piece of work takes here: the least of three."""
    found = []
    for _ in range(3):
        start, state = time.process_time(), 0
        for turn in range(600_000):
            state = (state * 31 + turn) % 1_000_003
        found.append(time.process_time() - start)
    return min(found)


class _Loops:
    """How long each thread has compiled loops, with those that a loop calls."""

    def __init__(self) -> None:
        self.seconds, self._here = 0.0, threading.local()

    def notify(self, event: Any) -> None:
        """Take numba's word that a compilation starts or ends."""
        depth = getattr(self._here, "depth", 0) + (1 if event.is_start else -1)
        self._here.depth = depth
        if event.is_start and depth == 1:
            self._here.start = time.thread_time()
        elif depth == 0:
            self.seconds += time.thread_time() - self._here.start


class _Meter:
    """In the process that runs tests: write on each report what its phase used."""

    def __init__(self) -> None:
        self.loops, self.slowness, self._mark = _Loops(), 1.0, 0.0

    def start(self) -> None:
        """Pay for what no test is charged with."""
        import numba
        from numba.core import event

        # but for the adapters of other systems, which import these
        own = [
            path
            for path in _ROOT.glob("mrsa_jax/**/_[a-z]*.py")
            if "live" not in path.parts
        ]
        names = [
            ".".join(path.relative_to(_ROOT).with_suffix("").parts)
            for path in sorted(own)
        ]
        for name in [*_START, *names]:
            importlib.import_module(name)
        jax.devices()
        numba.njit(lambda: 0)()
        gc.callbacks.append(_FREE.collection)
        event.Listener.register(_Loops)
        event.register("numba:compile", self.loops)

        self.slowness = max(1.0, _work() / _REFERENCE)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        self.start()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._mark = self._now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = self._now()
        report.processor_seconds = (now - self._mark) / self.slowness  # type: ignore[attr-defined]
        report.loop_seconds = self.loops.seconds / self.slowness  # type: ignore[attr-defined]
        self._mark = now
        return report

    def _now(self) -> float:
        return _used() - self.loops.seconds - _FREE.seconds


class _Rule:
    """In the process that reports.

    Fail the session that has too dear a test, file or worker.
    """

    def __init__(self) -> None:
        self._costs: dict[str, collections.Counter[str]] = {
            what: collections.Counter() for what in _MOST
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = getattr(report, "processor_seconds", 0.0)
        worker = getattr(report, "worker_id", "the only one")
        self._costs["a test"][report.nodeid] += seconds
        self._costs["a file"][report.nodeid.partition("::")[0]] += seconds
        self._costs["a worker's loops"][worker] = getattr(report, "loop_seconds", 0.0)

    def _too_dear(self, times: float = 1.0) -> list[str]:
        return [
            f"{seconds:7.1f} s, {what} may cost {_MOST[what]:g}: {name}"
            for what, costs in self._costs.items()
            for name, seconds in costs.most_common()
            if seconds > times * _MOST[what]
        ]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._too_dear(_FAILS) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        lines = self._too_dear()
        if lines:
            terminalreporter.section("too dear for the default tests", red=True)
            terminalreporter.write_line(
                "processor seconds; make them cheap, or mark them `long`"
            )
            for line in lines:
                terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--costs"):
        is_worker = hasattr(config, "workerinput")
        if is_worker or not config.getoption("numprocesses", None):
            config.pluginmanager.register(_Meter())
        if not is_worker:
            config.pluginmanager.register(_Rule())
