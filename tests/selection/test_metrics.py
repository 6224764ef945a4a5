"""Fairness gap and cardinality against their definitions."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.selection import aggregation_cardinality, fairness_gap
from mrsa_jax.selection._metrics import Running

RULE = r"`participation` must be a boolean \(or 0/1 integer\) array \[..., rounds, clients\]"


@pytest.mark.parametrize("metric", [fairness_gap, aggregation_cardinality])
@pytest.mark.parametrize(
    ("history", "got"),
    [
        (np.ones(3, bool), r"'shape \(3,\)'"),
        (np.ones((0, 3), bool), r"'shape \(0, 3\)'"),
        (np.ones((2, 3), np.float32), "'dtype float32'"),
        (np.array([[1, 2]]), "1 and 2"),
        (np.array([[-1, 0]]), "-1 and 0"),
    ],
)
def test_only_binary_histories(metric: object, history: np.ndarray, got: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{RULE}; got {got}"):
        inspect.unwrap(metric)(history)  # type: ignore[arg-type]


@pytest.mark.smoke
def test_worked_case() -> None:
    history = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 1], [0, 1, 1]], bool)
    assert fairness_gap(history).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 0])
    assert aggregation_cardinality(history).tolist() == pytest.approx(
        [2, 1, 4 / 3, 6 / 4]
    )


@pytest.mark.usefixtures("on_a_cpu")
def test_one_history_has_the_same_bits_inside_a_program() -> None:
    history = np.random.default_rng(1).random((30, 7)) < 0.4
    for metric in (fairness_gap, aggregation_cardinality):
        found = np.asarray(metric(history))
        assert found.dtype == np.float32
        assert found.tobytes() == np.asarray(jax.jit(metric)(history)).tobytes()


@pytest.mark.parametrize("kind", [bool, np.int32, jnp.asarray])
def test_leading_axes_and_types(kind: type) -> None:
    history = np.random.default_rng(0).random((2, 3, 20, 7)) < 0.3
    given = kind(history) if kind is jnp.asarray else history.astype(kind)
    counts = np.cumsum(history, axis=-2)
    rounds = np.arange(1, 21)
    gaps, sizes = fairness_gap(given), aggregation_cardinality(given)
    assert gaps.shape == sizes.shape == (2, 3, 20)
    assert gaps.dtype == sizes.dtype == jnp.float32
    np.testing.assert_allclose(
        gaps, (counts.max(-1) - counts.min(-1)) / rounds, rtol=1e-6
    )
    np.testing.assert_allclose(sizes, counts.sum(-1) / rounds, rtol=1e-6)


def test_totals_beyond_32_bits_do_not_wrap() -> None:
    nearly = np.uint32(2**32 - 2)
    running = Running(np.zeros(5, np.int32), nearly, np.uint32(0), np.int32(2**20 - 1))
    found = jax.jit(lambda before, row: before.add(row).cardinality())(
        running, np.ones(5, bool)
    )
    assert float(found) == pytest.approx((2**32 + 3) / 2**20, rel=1e-6)
