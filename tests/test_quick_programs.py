"""What is compiled in less time because little is computed with it says the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import availability, selection
from mrsa_jax._core import device as _device, programs as _programs
from mrsa_jax._core.programs import products_by_library, quick_for_little
from mrsa_jax.privacy import first_exposure, hidden_among, weak_privacy_trajectory

HISTORY = np.random.default_rng(7).random((9, 11)) < 0.4
ONLINE = 0.2


def _played(run: Callable[..., Any], *more: int) -> Callable[[], Any]:
    def play() -> Any:
        selector = selection.batch_partitioning(12, 4, 2)
        return run(3, selector, availability.independent(ONLINE), 7, *more)

    return play


FOUND: dict[str, Callable[[], Any]] = {
    "rollout": _played(selection.rollout),
    "rollout_trials": _played(selection.rollout_trials, 3),
    "rollout_metrics": _played(selection.rollout_metrics, 3),
    "first_exposure": lambda: first_exposure(HISTORY),
    "hidden_among": lambda: hidden_among(HISTORY),
    "weak_privacy_trajectory": lambda: weak_privacy_trajectory(HISTORY, "bounds"),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Return the options of the programs that are asked for in the test."""
    options: list[Any] = []
    made = jax.jit

    def jit(*arguments: Any, **named: Any) -> Any:
        options.append(named.get("compiler_options"))
        return made(*arguments, **named)

    monkeypatch.setattr(jax, "jit", jit)
    yield options
    _programs._is_known.cache_clear()


# By default the suite compiles everything quickly: `make test-long` runs this one with
# both ways.
@pytest.mark.long
@pytest.mark.parametrize("name", FOUND)
def test_both_ways_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "LITTLE", sys.maxsize)
    quick = jax.tree.leaves(FOUND[name]())
    monkeypatch.setattr(_programs, "LITTLE", -1)
    full = jax.tree.leaves(FOUND[name]())
    assert len(quick) == len(full) > 0
    for one, other in zip(quick, full, strict=True):
        is_float = np.issubdtype(other.dtype, np.floating)
        same = np.testing.assert_allclose if is_float else np.testing.assert_array_equal
        same(one, other, **({"rtol": 1e-5} if is_float else {}))


def _tripled(values: jax.Array) -> jax.Array:
    return values * 3


def test_little_is_compiled_quickly_and_much_in_full(asked: list[Any]) -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("only CPUs have programs of both kinds")
    triple = quick_for_little(lambda values: values.size)(_tripled)
    assert asked == [None]
    much = jnp.ones(_programs.LITTLE + 1, jnp.int32)
    assert int(triple(much)[-1]) == 3
    assert asked == [None]
    assert int(triple(much[1:])[-1]) == 3
    assert asked[-1].items() <= _programs.QUICK.items()
    assert asked[-1]["xla_backend_optimization_level"] == 0
    assert triple.in_full(much[1:]).shape == (_programs.LITTLE,)


def test_inside_a_program_it_is_part_of_it() -> None:
    triple = quick_for_little(lambda values: values.size)(_tripled)
    values = jnp.arange(4, dtype=jnp.int32)
    assert jax.jit(triple)(values).tolist() == [0, 3, 6, 9]
    assert jax.jit(lambda: triple(np.arange(4, dtype=np.int32)))().tolist() == [
        0,
        3,
        6,
        9,
    ]
    assert jax.vmap(lambda own: jax.jit(triple)(own[None]))(values)[:, 0].tolist() == [
        0,
        3,
        6,
        9,
    ]
    assert jax.lax.map(triple, values[:, None])[:, 0].tolist() == [0, 3, 6, 9]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the options that programs are compiled with; nothing is."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    options: list[Any] = []

    def jit(function: Any, compiler_options: Any = None, **_: Any) -> Any:
        def program(*_: Any) -> None:
            options.append(compiler_options)

        program.lower = program  # type: ignore[attr-defined]
        return program

    monkeypatch.setattr(_programs.jax, "jit", jit)
    return options


def test_products_of_a_gpu_are_the_librarys_unless_the_user_decides(
    told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    triple = products_by_library(_tripled)
    by_library = {"xla_gpu_enable_triton_gemm": False}
    monkeypatch.setattr(_programs, "_is_known", lambda name, value: True)
    with _device.compiling_for("cuda", 2**18, 2**36):
        triple(1)
        triple.lower(1)
        assert told == [by_library] * 2
        for flags in (
            "--xla_gpu_enable_triton_gemm=true",
            "--xla_dump_to=a --xla_gpu_autotune_level=0",
        ):
            monkeypatch.setenv("XLA_FLAGS", flags)
            triple(1)
        assert told[2:] == [None] * 2
        monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=a")
        triple(1)
        assert told[4:] == [by_library]
    with _device.compiling_for("tpu", 2**15, 2**34):
        triple(1)
    with _device.compiling_for("cpu", 2, 2**34):
        triple(1)
    assert told[5:] == [None] * 2


def test_inside_another_program_there_are_no_options() -> None:
    triple = products_by_library(_tripled)
    with _device.compiling_for("cuda", 2**18, 2**36):
        traced = jax.jit(lambda values: triple(values)).trace(jnp.arange(3))
    assert "mul" in str(traced.jaxpr)
    assert triple(jnp.arange(3)).tolist() == [0, 3, 6]
    assert triple.eval_shape(jnp.arange(3)).shape == (3,)


def test_options_that_xla_no_longer_has_are_left_out(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _programs._is_known.cache_clear()
    kept = {"xla_backend_optimization_level": 0}
    monkeypatch.setattr(_programs, "QUICK", kept | {"xla_no_such_option": True})
    triple = quick_for_little(lambda values: values.size)(_tripled)
    assert triple(jnp.arange(3, dtype=jnp.int32)).tolist() == [0, 3, 6]
    assert asked[-1] == kept
