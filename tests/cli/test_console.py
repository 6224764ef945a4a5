"""What every command sets before JAX starts."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time

import jax
import pytest

from mrsa_jax._core import device_words as _device_words
from mrsa_jax._core.cores import num_cores
from mrsa_jax.cli import Bars, compiling, console, use_cores
from mrsa_jax.cli.console import Interrupts
from mrsa_jax.cli.tables import Table

_NAME = "JAX_NUM_CPU_DEVICES"


@pytest.fixture
def eleven_cores(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv(_NAME, raising=False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(11), raising=False)
    # what the call below sets is taken back at the end only if it was touched before
    monkeypatch.setenv(_NAME, "1")
    monkeypatch.delenv(_NAME)
    return monkeypatch


@pytest.mark.smoke("1-1")
@pytest.mark.usefixtures("eleven_cores")
@pytest.mark.parametrize(
    ("asked", "devices"), [(None, "8"), (1, "1"), (3, "3"), (10, "10"), (12, "11")]
)
def test_a_device_a_core(asked: int | None, devices: str) -> None:
    use_cores(asked)
    assert os.environ[_NAME] == devices


def test_what_the_user_has_set_stays(eleven_cores: pytest.MonkeyPatch) -> None:
    eleven_cores.setenv(_NAME, "4")
    use_cores()
    assert os.environ[_NAME] == "4"


def test_devices_that_xla_is_told_to_make_stay(
    eleven_cores: pytest.MonkeyPatch,
) -> None:
    eleven_cores.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    use_cores()
    assert _NAME not in os.environ


def test_cores_of_this_process() -> None:
    assert 1 <= num_cores() <= (os.cpu_count() or 1)


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mrsa_jax", "sweep", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_the_device_is_said_first_and_a_gpu_that_is_idle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_device_words, "unused_gpu", lambda: "there is a GPU")
    with Bars() as bars:
        bars.stage("work", 3)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("device: CPU, ")
    assert second == "warning: there is a GPU"
    assert third.endswith("work (3)")
    with Bars():  # what is refused before any work is answered in one line
        pass
    with Bars(device=False) as bars:
        bars.rest()
    assert capsys.readouterr().err == ""


_COMPILING = "/jax/core/compile/backend_compile_duration"


def _compile_slowly(name: str, seconds: float) -> None:
    """Tell JAX's listeners what a slow compilation tells them."""
    jax.monitoring.record_scalar(_COMPILING, 0.0, fun_name=name)
    time.sleep(seconds)
    jax.monitoring.record_event_duration_secs(_COMPILING, seconds, fun_name=name)


def test_a_program_that_compiles_long_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "_SECONDS", 0.1)
    with Bars(device=False) as bars:
        bars.stage("work", 3)
        _compile_slowly("quick", 0.0)
        _compile_slowly("slow", 0.4)
    _compile_slowly("afterwards", 0.2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("work (3)")
    assert "] compiling slow for cpu" in second


def test_jax_tells_of_what_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    slow = compiling.SlowPrograms(said.append)
    monkeypatch.setattr(compiling, "_SECONDS", 0.0)
    slow.listen()
    slow.listen()  # heard once all the same

    def long_named(value: jax.Array) -> jax.Array:
        return jax.lax.sort(value * 3) + 1

    jax.jit(long_named)(jax.numpy.ones(7))
    deadline = time.monotonic() + 5
    while not said and time.monotonic() < deadline:
        time.sleep(0.01)
    slow.close()
    assert sum("long_named" in words for words in said) == 1


def test_an_interrupt_inside_a_compiler_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiles = iter([True, True, False])
    monkeypatch.setattr(console, "_compiles", lambda frame: next(compiles))
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.check()  # nothing was heard
        signal.raise_signal(signal.SIGINT)  # inside a compiler: not raised there
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
        with pytest.raises(KeyboardInterrupt):  # whoever swallowed it hears of it again
            interrupts.check()
    assert signal.getsignal(signal.SIGINT) is before
    assert not list(compiles)


def test_interrupts_that_are_ignored_stay_so() -> None:
    """Ctrl-C reaches a script's background jobs as well, and is meant for the one in front."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def _printed(width: int) -> str:
    from rich.console import Console

    rows = [
        ["Multi-RoundSecAgg (T=6)", "6.00 / 12.00", "11.85 ± 0.11", "0.88"],
        ["Random", "1 / 1", "12.00 ± 0.00", "0.89"],
    ]
    made = Table(
        ("Scheme", "Hidden among", "Expected C", "Share of right"),
        rows,
        spare=("Expected C",),
    )
    out = io.StringIO()
    Console(file=out, width=width).print(made)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return out.getvalue()


def test_a_table_leaves_out_what_there_is_no_room_for_and_says_so() -> None:
    whole = _printed(80)
    assert "Share of right" in whole
    assert "No room" not in whole
    broken = _printed(66)
    assert "Share of right" not in broken
    assert "11.85 ± 0.11" in broken
    some = _printed(56)
    assert "11.85" not in some
    for cell in (
        "Multi-RoundSecAgg (T=6)",
        "6.00 / 12.00",
        "0.89",
        "No room here for: Expected C.",
    ):
        assert cell in some
    folded = _printed(24)
    letters = "".join(line[:9].strip() for line in folded.splitlines())
    assert "Multi-RoundSecAgg(T=6)" in letters.replace(" ", "")
