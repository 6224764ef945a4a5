"""Updates that are not finite.

The round is that of the same clients lost before V3, bit for bit.
Not so `failed_uploads`, which says whose. What no aggregator of sums may do is code NaN
as a level.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj

_N, _D = 6, 10
_BAD = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


@functools.cache
def _quantizer() -> Any:
    return mj.quantize.stochastic(2**10, 1.0)


def _ring(**more: Any) -> Any:
    return mj.secagg.ring_average(_quantizer(), _N, _D, **({"fidelity": "sets"} | more))


def _graph(policy: str) -> Any:
    rule = mj.secagg.graph_rule(
        mj.graphs.complete(_N),
        _N,
        threshold=2,
        blocks=np.arange(_N) // 2,
        policy=policy,
    )
    return _ring(rule=rule)


def _noisy() -> Any:
    made = mj.dp.ring_mechanism(
        "skellam", 1.0, 1.0, dim=_D, num_clients=_N, modulus_bits=32
    )
    return mj.secagg.ring_average(
        made.quantizer, _N, _D, fidelity="sets", noise=made.noise
    )


def _segments(**more: Any) -> Any:
    layout = mj.hetero.segment_layout("mc", [2, 2, 2], [2, 3, 5], dim=_D)
    return mj.hetero.segment_average(layout, (-1.0, 1.0), fidelity="sets", **more)


AVERAGES: dict[str, Callable[[], Any]] = {
    "plain": _ring,
    "pads": lambda: _ring(fidelity="array"),
    "range": lambda: _ring(clip_rule=mj.quantize.following_range(4.0)),
    "noise": _noisy,
    "norm": lambda: mj.secagg.ring_average(
        mj.quantize.lattice(2.0**-12, 1.0, _D), _N, _D, fidelity="sets"
    ),
    "segments": _segments,
    "segments by client": lambda: _segments(by_client=True),
    "segments with a norm": lambda: _segments(clip_norm=1.0),
    "segments with a rule": lambda: _segments(
        combine=mj.hetero.robust.coordinate_median()
    ),
}


def _round(average: Any, updates: Any, alive: Any, **more: Any) -> tuple[Any, Any]:
    ids = jnp.arange(_N, dtype=jnp.int32)
    values = jnp.asarray(updates, jnp.float32)
    return average.aggregate(
        jax.random.key(5), average.init(), values, ids, jnp.asarray(alive), **more
    )


def _updates(bad: dict[int, float]) -> np.ndarray:
    values = np.random.default_rng(1).normal(size=(_N, _D)).astype(np.float32)
    for place, (row, value) in enumerate(bad.items()):
        values[row, (3 * place) % _D] = value
    return values


def _alive(*lost: int, offline: tuple[int, ...] = ()) -> np.ndarray:
    alive = np.ones((5, _N), bool)
    alive[:, list(offline)] = False
    alive[3:, list(lost)] = False
    return alive


def _check(
    average: Any, bad: dict[int, float], offline: tuple[int, ...] = (), **more: Any
) -> Any:
    out, state = _round(average, _updates(bad), _alive(offline=offline), **more)
    zeros = dict.fromkeys(bad, 0.0)
    lost = tuple(row for row in bad if row not in offline)
    expected, after = _round(
        average, _updates(zeros), _alive(*lost, offline=offline), **more
    )
    assert np.flatnonzero(out.failed_uploads).tolist() == sorted(lost)
    assert not np.asarray(expected.failed_uploads).any()
    own, other = (
        out._replace(failed_uploads=None),
        expected._replace(failed_uploads=None),
    )
    for one, two in zip(
        *map(jax.tree.leaves, ((own, state), (other, after))), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    return out


@pytest.mark.long("noise", "pads", "plain", "segments")
@pytest.mark.parametrize("name", AVERAGES)
def test_who_sends_nothing_finite_is_lost_before_the_upload(name: str) -> None:
    average = AVERAGES[name]()
    for count, value in zip((1, 2, 4), _BAD.values(), strict=True):
        out = _check(average, dict.fromkeys(range(count), value))
        assert np.isfinite(out.update).all()
    # who is not asked fails in nothing
    out = _check(average, {0: np.nan}, offline=(0,))
    assert int(out.status) == mj.Status.OK
    out = _check(average, dict.fromkeys(range(_N), np.nan))
    assert int(out.status) == mj.Status.TOO_FEW_SURVIVORS
    assert not out.update.any()


def test_every_pattern_of_a_plain_round() -> None:
    average = _ring()
    for failed in itertools.product([False, True], repeat=_N):
        bad = dict.fromkeys(np.flatnonzero(failed), np.nan)
        out = _check(average, bad)
        good = ~np.asarray(failed)
        is_learnt = good.sum() >= 2
        assert int(out.status) == (
            mj.Status.OK if is_learnt else mj.Status.TOO_FEW_SURVIVORS
        )
        mean = (
            np.clip(_updates({})[good], -1, 1).mean(axis=0)
            if is_learnt
            else np.zeros(_D)
        )
        np.testing.assert_allclose(out.update, mean, atol=2 / 2**10)


@pytest.mark.parametrize("policy", ["ignore", "abort", "drop_block"])
def test_what_becomes_of_a_split_block_is_the_policy(policy: str) -> None:
    average = _graph(policy)
    out = _check(average, {0: np.inf})
    assert int(out.status) == {"abort": mj.Status.ABORTED}.get(policy, mj.Status.OK)
    assert (
        int(np.sum(out.summed))
        == {"ignore": _N - 1, "abort": 0, "drop_block": _N - 2}[policy]
    )


def test_weights_of_failed_uploads_do_not_count() -> None:
    average = _ring(max_weight=9)
    weights = np.array([9, 1, 2, 3, 4, 5])
    out = _check(average, {0: np.nan, 4: -np.inf}, weights=weights)
    assert int(out.total_weight) == 11
    mean = np.average(
        np.clip(_updates({})[[1, 2, 3, 5]], -1, 1), axis=0, weights=[1, 2, 3, 5]
    )
    np.testing.assert_allclose(out.update, mean, atol=2 / 2**10)


def test_traced_rounds_are_the_same() -> None:
    average = _ring()
    updates = _updates({2: np.nan})
    eager = _round(average, updates, _alive())[0]
    traced = jax.jit(lambda values: _round(average, values, _alive())[0])(updates)
    for one, two in zip(*map(jax.tree.leaves, (eager, traced)), strict=True):
        np.testing.assert_array_equal(one, two)


def test_codes_of_no_number_are_refused_where_they_are_asked_for() -> None:
    for row, value in enumerate(_BAD.values()):
        with pytest.raises(
            mj.ConfigurationError, match=f"`updates` must be finite.*row {row}"
        ):
            mj.secagg.noisy_codes(
                _quantizer(),
                None,
                jax.random.key(0),
                _updates({row: value}),
                range(_N),
                16,
            )


def test_segments_refuse_infinities_as_they_refuse_nan() -> None:
    layout = mj.hetero.segment_layout("mc", [2, 2, 2], [2, 3, 5], dim=_D)
    for value in _BAD.values():
        with pytest.raises(
            mj.ConfigurationError, match=r"`updates` must be finite; .*slots \[4\]"
        ):
            mj.hetero.aggregate(0, _updates({4: value}), layout, (-1.0, 1.0))
    here = np.arange(_N) != 4
    found = mj.hetero.aggregate(
        0, _updates({4: np.inf}), layout, (-1.0, 1.0), survivors=here
    )
    assert found.status == mj.Status.OK
