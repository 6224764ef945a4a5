"""The device, the forms of operations, and how much goes at once."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError, use_form
from mrsa_jax._core import (
    batches as _batches,
    device as _device,
    device_words as _device_words,
    forms as _forms,
    threads as _threads,
)
from mrsa_jax._core.compiled import compiled


@pytest.fixture(autouse=True)
def no_form_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRSA_JAX_FORM", raising=False)


@pytest.mark.usefixtures("on_a_cpu")
def test_the_best_form_of_each_platform() -> None:
    every: tuple[_forms.Form, ...] = ("loops", "xla", "pallas")
    assert _device.platform() == "cpu"
    with use_form(None):
        assert _forms.chosen_form(every) == "loops"
    with _device.compiling_for("cuda", 2**18, 2**36):
        assert _device.platform() == "cuda"
        assert _forms.chosen_form(every) == "pallas"
        assert _forms.chosen_form(("loops", "xla")) == "xla"
        assert _forms.chosen_form(("loops",)) == "loops"
        assert not _device.interprets_kernels()
    with _device.compiling_for("tpu", 2**15, 2**34):
        assert _forms.chosen_form(every) == "xla"
    assert _device.interprets_kernels()


def test_a_forced_form_runs_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with use_form("pallas"):
        assert _forms.chosen_form(("loops", "xla", "pallas")) == "pallas"
        with use_form("xla"):
            assert _forms.chosen_form(("loops", "xla", "pallas")) == "xla"
        assert _forms.chosen_form(("loops",)) == "loops"  # there is no other
    monkeypatch.setenv("MRSA_JAX_FORM", "xla")
    assert _forms.chosen_form(("loops", "xla")) == "xla"
    with use_form("loops"):
        assert _forms.chosen_form(("loops", "xla")) == "loops"
    monkeypatch.setenv("MRSA_JAX_FORM", "cuda")
    with pytest.raises(
        ConfigurationError, match=r"`MRSA_JAX_FORM` must be one of .*; got 'cuda'"
    ):
        _forms.chosen_form(("loops", "xla"))


@pytest.mark.parametrize(
    ("count", "tile"), [(5, 2), (7, 3), (6, 4), (6, 3), (4, 9), (1, 3), (3, 1)]
)
def test_tiles_are_of_one_size_and_traced_once(count: int, tile: int) -> None:
    traced: list[object] = []

    def one(item: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        number, key = item
        traced.append(number)
        return number * number, jax.random.bits(key)

    keys = jax.random.split(jax.random.key(0), count)
    numbers = np.arange(count, dtype=np.int32)
    program = jax.make_jaxpr(lambda own: _batches.map_tiles(one, own, tile))(
        (numbers, keys)
    )
    assert len(traced) == 1
    assert ("scan" in str(program)) == (count > tile or tile == 1)
    squares, words = _batches.map_tiles(one, (numbers, keys), tile)
    assert squares.tolist() == [n * n for n in range(count)]
    assert words.tolist() == [int(jax.random.bits(key)) for key in keys]


@pytest.mark.smoke
def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"`form` must be one of .*; got 'triton'"
    ):
        use_form("triton").__enter__()


def test_what_was_traced_under_one_form_is_not_run_under_another() -> None:
    @jax.jit
    def traced(x: jax.Array) -> jax.Array:
        return x + jnp.int32(_forms.chosen_form(("xla", "pallas")) == "pallas")

    found = []
    for form in ("xla", "pallas", "xla"):
        with use_form(form):
            found.append(int(traced(jnp.int32(0))))
    assert found == [0, 1, 0]


@pytest.mark.smoke
def test_loops_take_nothing_traced_and_need_numba(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def body(x: jax.Array) -> jax.Array:
        seen.append(_forms.chosen_form(("loops", "xla"), {"a": x}))
        return x

    jax.jit(body)(jnp.int32(0))
    assert seen == ["xla"]
    monkeypatch.setattr(_forms, "_has_numba", lambda: False)
    assert _forms.chosen_form(("loops", "xla")) == "xla"
    with pytest.raises(ConfigurationError, match="`numba` must be installed"):
        _forms.chosen_form(("loops",))
    with pytest.raises(ConfigurationError, match="`numba` must be installed"):
        compiled(lambda rows: rows)  # what searches are made of


def test_loops_are_declared_before_any_device_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started() -> str:
        raise AssertionError("asked for the device")

    monkeypatch.setattr(_forms, "platform", started)
    assert _forms.chosen_form(("loops",)) == "loops"
    compiled(lambda rows: rows)


@pytest.mark.usefixtures("on_a_cpu")
def test_chunks_fill_the_device_within_its_memory() -> None:
    on_cpu = _batches.at_once("selection", 480)
    assert on_cpu == 2**18 // 480
    with _device.compiling_for("cuda", 132 * 2048, 80 * 2**30):
        assert _batches.at_once("selection", 480) > 100_000
        assert _batches.at_once("selection", 480) * 480 <= 10 * 2**30
    with _device.compiling_for("cuda", 132 * 2048, 2**20):
        assert _batches.at_once("selection", 2**17) == 1
    assert _batches.at_once("selection", 2**40) == 1
    assert _batches.at_once("selection", 2**40, least=4) == 4


@pytest.mark.usefixtures("on_a_cpu")
def test_arrays_that_are_there_leave_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {"bytes_limit": 80 * 2**30}
    with _device.compiling_for("cuda", 132 * 2048, 80 * 2**30):
        monkeypatch.setattr(_batches, "memory_stats", lambda: stats)
        alone = _batches.trials_at_once(120, 200, 120)
        # 2^14 bytes for each lane, of 24,000 for each trial
        assert alone == min(2**10 * 132 * 2048 // 480, 2**14 * 132 * 2048 // 24_000)
        stats["bytes_in_use"] = 80 * 2**30 - 480_000
        assert _batches.at_once("selection", 480) == 500
        assert _batches.trials_at_once(120, 200, 120) == 10
        stats["bytes_in_use"] = 81 * 2**30
        assert _batches.at_once("selection", 480) == 1


def _full(*limits: int) -> tuple[list[int], object]:
    tried: list[int] = []

    def run(chunk: int) -> int:
        tried.append(chunk)
        if chunk > limits[0]:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123456 "
                "bytes."
            )
        return chunk

    return tried, run


def test_a_chunk_is_halved_once_and_then_the_need_is_named() -> None:
    tried, run = _full(50)
    assert _batches.within_memory(run, 99, "trials", "a study") == 50  # type: ignore[arg-type]
    assert tried == [99, 50]
    tried, run = _full(10)
    words = r"`trials` must fit into the device's memory \(it asked for 123456 bytes\): a study; got 50"
    with pytest.raises(ConfigurationError, match=words):
        _batches.within_memory(run, 100, "trials", "a study")  # type: ignore[arg-type]
    assert tried == [100, 50]
    tried, run = _full(0)
    with pytest.raises(ConfigurationError, match="got 1 at once"):
        _batches.within_memory(run, 1, "trials", "a study")  # type: ignore[arg-type]
    assert tried == [1]


def test_other_errors_of_the_device_pass() -> None:
    def run(chunk: int) -> int:
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        _batches.within_memory(run, 8, "trials", "a study")


@pytest.mark.usefixtures("on_a_cpu")
def test_a_thread_inherits_form_target_and_width() -> None:
    def seen(_: int) -> tuple[str, str, bool]:
        wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        return _forms.chosen_form(("loops", "xla")), _device.platform(), bool(wide)

    with use_form("xla"), _device.compiling_for("tpu", 1, 1), jax.enable_x64(True):
        (found,) = _threads.over_cores(_threads.in_context(seen), [0])
    assert found == ("xla", "tpu", True)
    with use_form(None):
        assert _threads.over_cores(_threads.in_context(seen), [0]) == [
            ("loops", "cpu", False)
        ]


# ---- what is said of it


class _Gpu:
    device_kind = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("devices", "stats", "words"),
    [
        (1, {"bytes_limit": 60 * 2**30}, "NVIDIA H100 80GB HBM3, 60 GiB for programs"),
        (
            2,
            {"bytes_limit": 60 * 2**30},
            "2 x NVIDIA H100 80GB HBM3, 60 GiB for programs",
        ),
        (1, {}, "NVIDIA H100 80GB HBM3"),
    ],
)
def test_an_accelerator_in_words(
    devices: int, stats: dict[str, int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_device_words, "platform", lambda: "cuda")
    monkeypatch.setattr(_device_words, "memory_stats", lambda: stats)
    monkeypatch.setattr(jax, "local_devices", lambda: [_Gpu()] * devices)
    assert _device_words.device_in_words() == words


@pytest.mark.usefixtures("on_a_cpu")
def test_a_cpu_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, words in ((1, "CPU, 1 core"), (64, "CPU, 64 cores")):
        monkeypatch.setattr(_device_words, "num_cores", lambda cores=cores: cores)
        assert _device_words.device_in_words() == words


@pytest.mark.usefixtures("on_a_cpu")
def test_a_platform_that_jax_cannot_start_is_misuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for error, words in (
        (
            RuntimeError("Unable to initialize backend 'cuda': none\nmore"),
            "Unable .* none$",
        ),
        (AssertionError(), "it has no such platform$"),
    ):
        monkeypatch.setattr(_device_words, "platform", mock.Mock(side_effect=error))
        with pytest.raises(
            ConfigurationError, match=rf"`JAX_PLATFORMS` must .*'cpu': {words}"
        ):
            _device_words.device_in_words()


@pytest.mark.long
def test_commands_say_which_platform_is_missing() -> None:
    command = [
        sys.executable,
        "-m",
        "mrsa_jax",
        "secagg",
        "--num-clients",
        "4",
        "--dim",
        "4",
    ]
    found = subprocess.run(
        command,
        env=os.environ | {"JAX_PLATFORMS": "nothing"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 2
    assert "`JAX_PLATFORMS` must name what JAX" in found.stderr
    assert "got 'nothing'" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({}, "the extra `cuda12` or `cuda13` is not installed, as by pip install 'jax"),
        (
            {"jax-cuda12-plugin": "0.4.1"},
            "jax-cuda12-plugin 0.4.1 is for another JAX than ",
        ),
        ({"jax-cuda13-plugin": jax.__version__}, "with JAX_PLATFORMS=cuda it says why"),
        (
            {"jax-cuda12-plugin": "0.4.1", "jax-cuda13-plugin": jax.__version__},
            "with JAX_PLATFORMS=cuda it says why",
        ),
    ],
)
def test_a_gpu_that_jax_does_not_use(
    versions: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    monkeypatch.setattr(_device_words, "version_of", versions.get)
    monkeypatch.setattr(_device_words.shutil, "which", lambda name: None)
    driver = tmp_path / "version"
    monkeypatch.setattr(_device_words, "_DRIVER", (driver, tmp_path / "nvidia0"))
    monkeypatch.setattr(_device_words, "_asked", lambda: "")
    assert _device_words.unused_gpu() is None  # there is none
    driver.touch()
    said = _device_words.unused_gpu()
    assert said is not None
    assert said.startswith("there is an NVIDIA GPU, but JAX computes on the CPU")
    assert words in said
    monkeypatch.setattr(_device_words, "_asked", lambda: "cpu,cuda")
    assert _device_words.unused_gpu() is None  # the CPU is asked for
    monkeypatch.setattr(_device_words, "_asked", lambda: "")
    with _device.compiling_for("cuda", 2**18, 2**36):
        assert _device_words.unused_gpu() is None  # it is used
