"""A first call at a new size: what is on the host goes to the device without a program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import availability, graphs, hetero, modular, quantize, selection
from mrsa_jax._core.arrays import on_device, zeros

Watch = Callable[[], contextlib.AbstractContextManager[list[str]]]

# What a host may hold: values, and the type asked for.
HELD = {
    "bools": (np.asarray([True, False]), None),
    "wide integers": (np.asarray([3, -1, 2**40 + 7]), None),
    "wide words": (np.asarray([2**63 + 9], np.uint64), None),
    "wide floats": (np.asarray([0.1, np.nan, -np.inf]), None),
    "wrapped": (np.asarray([-1, 2**33 + 1]), jnp.uint32),
    "cut off": (np.asarray([1.9, -1.9]), jnp.int32),
    "truth": (np.asarray([0.5, 0.0]), jnp.bool_),
    "rounded": (np.asarray([1.0 + 2**-30]), jnp.float32),
    "halves": (np.asarray([1.5], jnp.bfloat16), None),
    "no axes": (np.asarray(7, np.int32), None),
    "one word": (np.uint32(2**32 - 1), None),
    "empty": (np.zeros((0, 3), np.float32), None),
    "by columns": (np.asfortranarray(np.arange(6.0).reshape(2, 3)), None),
    "reversed": (np.arange(5)[::-1], jnp.float32),
    "list": ([[1, 2], [3, 4]], None),
    "list of floats": ([1.5, 2.0], None),
    "list of bools": ([True, False], jnp.float32),
    "range": (range(4), None),
    "truth alone": (True, None),
    "number": (3, None),
    "fraction": (0.1, None),
    "number of a type": (3, jnp.uint32),
    "array of JAX": (lambda: jnp.arange(3, dtype=jnp.int32), None),
    "array of JAX of another type": (
        lambda: jnp.arange(3, dtype=jnp.int32),
        jnp.float32,
    ),
    "key": (lambda: jax.random.key(0), None),
    "list of keys": (lambda: [jax.random.key(0), jax.random.key(1)], None),
}


def _made(values: Any) -> Any:
    """Return the values, those of JAX made of what makes them."""
    return values() if callable(values) else values


@functools.cache
def _theirs(wide: bool) -> dict[str, jax.Array]:
    """Return what `jnp.asarray` makes of all, in one program."""

    def made() -> dict[str, jax.Array]:
        return {
            held: jnp.asarray(_made(values), dtype)
            for held, (values, dtype) in HELD.items()
        }

    with jax.enable_x64(wide):
        return jax.jit(made)()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("held", HELD)
def test_arrays_are_those_of_asarray(held: str, wide: bool) -> None:
    values, dtype = HELD[held]
    theirs = _theirs(wide)[held]
    with jax.enable_x64(wide):
        ours = on_device(_made(values), dtype)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
        ours, theirs = jax.random.key_data(ours), jax.random.key_data(theirs)
    assert ours.weak_type == theirs.weak_type
    assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (2**40, None),
        ([2**40], None),
        (-1, jnp.uint32),
        ([-1], jnp.uint32),
        ("text", None),
        (None, jnp.float32),
        ([None], jnp.float32),
        (np.asarray([2**70], object), jnp.int32),
        ([2**40], jnp.uint32),
        (None, None),
        (np.asarray([2**70], object), None),
        ([[1], [1, 2]], None),
    ],
)
def test_errors_are_those_of_asarray(values: Any, dtype: Any) -> None:
    with pytest.raises((OverflowError, TypeError, ValueError)) as theirs:
        jnp.asarray(values, dtype)
    with pytest.raises(theirs.type):
        on_device(values, dtype)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int32, np.int64, np.uint32, np.float32, np.float64]
)
def test_host_arrays_need_no_program(dtype: Any, compilations: Watch) -> None:
    with compilations() as found:
        for shape in ((), (13,), (2, 17)):
            on_device(np.zeros(shape, dtype))
            on_device(np.zeros(shape, dtype), jnp.float32)
        on_device([1, 2, 3], jnp.int32)
        on_device([0.5] * 19)
    assert not found


@pytest.mark.parametrize("place", range(0, 128, 4))
def test_later_changes_of_the_host_do_not_show(place: int) -> None:
    """Wherever the array lies: JAX shares memory that begins at a multiple of 64 bytes."""
    memory = np.zeros(256 + 128, np.uint8)
    values = memory[place : place + 256].view(np.int32)
    here = on_device(values), on_device(values, jnp.int32)
    values[:] = 1
    assert not any(np.asarray(each).any() for each in here)


def test_traced_values_stay_traced() -> None:
    host = np.asarray([1.0, 2.0], np.float32)

    def of(value: jax.Array) -> Any:
        both = on_device([value, 3.0])
        assert isinstance(both, jax.core.Tracer)
        assert on_device(value) is value
        return on_device(value, jnp.int32), both, on_device(host) + value

    one, both, sums = jax.jit(of)(jnp.float32(1.5))
    assert (one.dtype, int(one), both.tolist(), sums.tolist()) == (
        jnp.int32,
        1,
        [1.5, 3.0],
        [2.5, 3.5],
    )
    assert jax.grad(lambda value: jnp.sum(on_device(host) * value))(1.0) == 3.0
    rows = jax.vmap(lambda value: on_device(host) + value)(jnp.zeros(3, jnp.float32))
    assert rows.tolist() == [[1.0, 2.0]] * 3
    shared = jax.sharding.PartitionSpec("x")
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.shard_map(
        lambda a: a + on_device(host), mesh=mesh, in_specs=shared, out_specs=shared
    )
    assert spread(jnp.zeros(4, jnp.float32)).tolist() == [1.0, 2.0, 1.0, 2.0]


def test_zeros_are_part_of_a_traced_program(compilations: Watch) -> None:
    with compilations() as found:
        start = zeros((3, 37), jnp.int32)
    assert not found
    assert (start.dtype, start.shape, int(np.asarray(start).any())) == (
        jnp.int32,
        (3, 37),
        0,
    )
    text = jax.jit(lambda: zeros(1_000_003, jnp.int32)).lower().as_text()
    assert len(text) < 1000, "a million zeros were written out"


_DIM, _N = 1_237, 71  # sizes that no other test has


def _key() -> jax.Array:
    return jax.random.key(0)


def _floats(*shape: int) -> jax.Array:
    return on_device(
        np.linspace(-1, 1, int(np.prod(shape))).reshape(shape), jnp.float32
    )


def _words(*shape: int) -> jax.Array:
    return on_device(np.arange(np.prod(shape)).reshape(shape) % 37, jnp.uint32)


def _everybody() -> jax.Array:
    return on_device(np.ones(_N, np.bool_))


# What people call by itself: how many programs it is, what prepares it, and the call.
CALLS: dict[str, tuple[int, Callable[[], tuple[Any, ...]], Callable[..., Any]]] = {
    "encode": (
        1,
        lambda: (quantize.stochastic(16, 1.0), _key(), _floats(_DIM)),
        lambda own, key, values: own.encode(key, values),
    ),
    "decode": (  # whose sum is apart
        2,
        lambda: (quantize.stochastic(16, 1.0), _words(_DIM)),
        lambda own, codes: own.decode(codes, 3),
    ),
    "clipped_fraction": (
        1,
        lambda: (quantize.stochastic(16, 1.0), _floats(3, _DIM)),
        lambda own, values: own.clipped_fraction(values),
    ),
    "decode of a lattice": (
        1,
        lambda: (quantize.lattice(0.1, 1.0, 67, rotate=False), _words(67)),
        lambda own, codes: own.decode(codes, 3),
    ),
    "shortened": (1, lambda: (_floats(61), jnp.float32(0.5)), quantize.shortened),
    "add": (
        1,
        lambda: (_words(_DIM), _words(_DIM)),
        lambda a, b: modular.add(a, b, 37),
    ),
    "add modulo another": (
        0,
        lambda: (_words(_DIM),) * 2,
        lambda a, b: modular.add(a, b, 41),
    ),
    "subtract": (
        1,
        lambda: (_words(_DIM),) * 2,
        lambda a, b: modular.subtract(a, b, 37),
    ),
    "ring_sum_over": (
        1,
        lambda: (_words(5, _DIM),),
        lambda a: modular.ring_sum_over(a, 37),
    ),
    "sum of bits": (
        1,
        lambda: (_words(5, _DIM),),
        lambda a: modular.ring_sum_over(a, 2**16),
    ),
    "reduce_words": (
        1,
        lambda: (_words(_DIM),) * 2,
        lambda a, b: modular.reduce_words(a, b, 37),
    ),
    "weighted_mean": (
        2,
        lambda: (_floats(7, _DIM), _floats(7)),
        lambda values, weights: hetero.robust.weighted_mean()(values, weights),
    ),
    "rates of clients": (
        0,
        lambda: (availability.independent(0.1),),
        lambda model: model.for_clients(_N),
    ),
    "independent": (
        1,
        lambda: (availability.independent(0.1).for_clients(_N), _key()),
        lambda model, key: model.sample(key, None),
    ),
    "markov": (
        2,
        lambda: (availability.markov(0.1, 3.0).for_clients(_N), _key()),
        lambda model, key: model.sample(key, model.init(key)),
    ),
    "steps": (
        1,
        lambda: (availability.independent_steps(0.1), _key(), _everybody()),
        lambda model, key, here: model.sample(key, here),
    ),
    "bernoulli": (
        1,
        lambda: (selection.bernoulli(_N, 0.5), _key(), _everybody()),
        lambda own, key, here: own.select(key, own.init(), here),
    ),
    "balls_in_bins": (
        1,
        lambda: (selection.balls_in_bins(_N, 4), _key(), _everybody()),
        lambda own, key, here: own.select(key, own.init(), here),
    ),
    "fairness_gap": (1, lambda: (np.ones((9, _N), np.bool_),), selection.fairness_gap),
    "erdos_renyi": (
        1,
        lambda: (graphs.erdos_renyi(_N, 0.5), _key()),
        lambda graph, key: graph.sample(key),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_people_call_is_one_program(name: str, compilations: Watch) -> None:
    most, prepared, call = CALLS[name]
    given = prepared()
    with compilations() as found:
        jax.block_until_ready(call(*given))
    assert len(found) <= most, found
