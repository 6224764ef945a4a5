"""The device, the forms of operations, and how much goes at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError, _device, use_form


def test_the_best_form_of_each_platform() -> None:
    every: tuple[_device.Form, ...] = ("loops", "xla", "pallas")
    assert _device.platform() == "cpu"
    with use_form(None):
        assert _device.chosen_form(every) == "loops"
    with _device.compiling_for("cuda", 2**18, 2**36):
        assert _device.platform() == "cuda"
        assert _device.chosen_form(every) == "pallas"
        assert _device.chosen_form(("loops", "xla")) == "xla"
        assert _device.chosen_form(("loops",)) == "loops"
        assert not _device.interprets_kernels()
    with _device.compiling_for("tpu", 2**15, 2**34):
        assert _device.chosen_form(every) == "xla"
    assert _device.interprets_kernels()


def test_a_forced_form_runs_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with use_form("pallas"):
        assert _device.chosen_form(("loops", "xla", "pallas")) == "pallas"
        with use_form("xla"):
            assert _device.chosen_form(("loops", "xla", "pallas")) == "xla"
        assert _device.chosen_form(("loops",)) == "loops"  # there is no other
    monkeypatch.setenv("MRSA_JAX_FORM", "xla")
    assert _device.chosen_form(("loops", "xla")) == "xla"
    with use_form("loops"):
        assert _device.chosen_form(("loops", "xla")) == "loops"
    monkeypatch.setenv("MRSA_JAX_FORM", "cuda")
    with pytest.raises(ConfigurationError, match=r"`MRSA_JAX_FORM` must be one of .*; got 'cuda'"):
        _device.chosen_form(("loops", "xla"))


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"`form` must be one of .*; got 'triton'"):
        use_form("triton").__enter__()


def test_what_was_traced_under_one_form_is_not_run_under_another() -> None:
    @jax.jit
    def traced(x: jax.Array) -> jax.Array:
        return x + jnp.int32(_device.chosen_form(("xla", "pallas")) == "pallas")

    found = []
    for form in ("xla", "pallas", "xla"):
        with use_form(form):
            found.append(int(traced(jnp.int32(0))))
    assert found == [0, 1, 0]


def test_loops_take_nothing_traced_and_need_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def body(x: jax.Array) -> jax.Array:
        seen.append(_device.chosen_form(("loops", "xla"), {"a": x}))
        return x

    jax.jit(body)(jnp.int32(0))
    assert seen == ["xla"]
    monkeypatch.setattr(_device, "_has_numba", lambda: False)
    assert _device.chosen_form(("loops", "xla")) == "xla"
    with pytest.raises(ConfigurationError, match="`numba` must be installed"):
        _device.chosen_form(("loops",))


def test_chunks_fill_the_device_within_its_memory() -> None:
    on_cpu = _device.at_once("selection", 480)
    assert on_cpu == 2**18 // 480
    with _device.compiling_for("cuda", 132 * 2048, 80 * 2**30):
        assert _device.at_once("selection", 480) > 100_000
        assert _device.at_once("selection", 480) * 480 <= 10 * 2**30
    with _device.compiling_for("cuda", 132 * 2048, 2**20):
        assert _device.at_once("selection", 2**17) == 1
    assert _device.at_once("selection", 2**40) == 1
    assert _device.at_once("selection", 2**40, least=4) == 4


def _full(*limits: int) -> tuple[list[int], object]:
    tried: list[int] = []

    def run(chunk: int) -> int:
        tried.append(chunk)
        if chunk > limits[0]:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123456 bytes."
            )
        return chunk

    return tried, run


def test_a_chunk_is_halved_once_and_then_the_need_is_named() -> None:
    tried, run = _full(50)
    assert _device.within_memory(run, 99, "trials", "a study") == 50  # type: ignore[arg-type]
    assert tried == [99, 50]
    tried, run = _full(10)
    words = (
        r"`trials` must fit into the device's memory \(it asked for 123456 bytes\): a study; got 50"
    )
    with pytest.raises(ConfigurationError, match=words):
        _device.within_memory(run, 100, "trials", "a study")  # type: ignore[arg-type]
    assert tried == [100, 50]
    tried, run = _full(0)
    with pytest.raises(ConfigurationError, match="got 1 at once"):
        _device.within_memory(run, 1, "trials", "a study")  # type: ignore[arg-type]
    assert tried == [1]


def test_other_errors_of_the_device_pass() -> None:
    def run(chunk: int) -> int:
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        _device.within_memory(run, 8, "trials", "a study")


def test_a_thread_inherits_form_target_and_width() -> None:
    def seen(_: int) -> tuple[str, str, bool]:
        wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        return _device.chosen_form(("loops", "xla")), _device.platform(), bool(wide)

    with use_form("xla"), _device.compiling_for("tpu", 1, 1), jax.enable_x64(True):
        (found,) = _device.over_cores(_device.in_context(seen), [0])
    assert found == ("xla", "tpu", True)
    with use_form(None):
        assert _device.over_cores(_device.in_context(seen), [0]) == [("loops", "cpu", False)]
