"""Training over histories with dropouts inside rounds.

Statuses, weights, what was learnt.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.selection import RoundHistory

_CLIENTS, _COHORT, _DIM = 9, 6, 650
_STEP = 2 * 0.5 / (2**16 - 1)


@functools.cache
def _clients() -> mj.data.ClientData:
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:90],
        train_labels=dataset.train_labels[:90],
    )
    return mj.data.dirichlet_by_class(0, small, _CLIENTS, concentration=2.0)


def _rule(p: float = 0.6, **more: Any) -> mj.secagg.GraphRule:
    graph = mj.graphs.erdos_renyi(_COHORT, p)
    return mj.secagg.graph_rule(graph, _CLIENTS, **({"threshold": 3} | more))


@functools.cache
def _history(num_rounds: int = 14, policy: str = "ignore", **more: Any) -> RoundHistory:
    return mj.selection.rollout_rounds(
        5,
        mj.selection.uniform(_CLIENTS, _COHORT),
        mj.availability.independent(0.2),
        mj.availability.independent_steps(0.06),
        num_rounds,
        rule=_rule(policy=policy, blocks=3, **more),
    )


def _average(rule: Any = None, **more: Any) -> mj.secagg.RingAverage:
    return mj.secagg.ring_average(
        mj.quantize.stochastic(2**16, 0.5), _COHORT, _DIM, rule=rule, **more
    )


def _train(history: Any, aggregator: Any, **more: Any) -> mj.federated.TrainingResult:
    model = mj.federated.logistic(10)
    trainer = mj.federated.local_sgd(model, 0.3, batch_size=100)
    training = mj.federated.Training(
        model, _clients(), history, trainer, aggregator, **more
    )
    return mj.federated.train(7, training)


@pytest.mark.parametrize(
    ("survivors", "message"),
    [
        (
            np.ones((2, 4, _CLIENTS), bool),
            r"`survivors` must have the shape \(2, 5, 9\)",
        ),
        (
            np.zeros((2, 5, _CLIENTS), bool),
            "`survivors` must start with `participation`",
        ),
        (
            np.stack([np.eye(5, _CLIENTS, dtype=bool)] * 2),
            "`survivors` must be nested",
        ),
    ],
)
def test_survivors_that_make_no_sense(survivors: np.ndarray, message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        _train(np.ones((2, _CLIENTS), bool), _average(), survivors=survivors)


@pytest.mark.long
def test_weights_that_make_no_sense() -> None:
    history = np.ones((1, _CLIENTS), bool)
    with pytest.raises(mj.ConfigurationError, match="`weights` must be 9 integers"):
        _train(history, _average(), weights=np.ones(4, int))
    with pytest.raises(mj.ConfigurationError, match="`weights` must be integers"):
        _train(history, _average(), weights=np.ones(_CLIENTS))
    history[:, 6:] = False
    with pytest.raises(mj.ConfigurationError, match="`weights` must not be set"):
        _train(history, _average(), weights=np.ones(_CLIENTS, int))
    with pytest.raises(mj.ConfigurationError, match="`survivors` must not be set"):
        _train(_history(), _average(), survivors=np.asarray(_history().survivors))


@pytest.mark.long
@pytest.mark.parametrize("policy", ["ignore", "drop_block"])
def test_a_round_is_ok_exactly_where_the_history_has_a_row(policy: str) -> None:
    history = _history(policy=policy)
    result = _train(
        history, _average(_rule(policy=policy, blocks=3)), keep_aggregates=True
    )
    rows = np.asarray(history.participation)
    np.testing.assert_array_equal(result.status, history.status)
    np.testing.assert_array_equal(result.status == mj.Status.OK, rows.any(axis=1))
    np.testing.assert_array_equal(result.participation, rows)
    np.testing.assert_array_equal(result.components, history.components)
    failed = {int(code) for code in result.status} - {mj.Status.OK, mj.Status.SKIPPED}
    assert failed
    assert rows.any()
    assert result.aggregates is not None
    assert len(result.aggregates) == rows.any(axis=1).sum()
    again = _train(history, _average(_rule(policy=policy, blocks=3), fidelity="sets"))
    np.testing.assert_array_equal(result.parameters, again.parameters)


@pytest.mark.long
def test_only_learnt_sums_move_the_model() -> None:
    """The same as training on the learnt rows alone, with nobody lost (to the rounding)."""
    history = _history()
    rows = np.asarray(history.participation)
    lossy = _train(history, _average(_rule()))
    plain = _train(rows, _average())
    assert len({int(code) for code in lossy.status}) > 1
    # a client's draws are its own, whatever its slot
    np.testing.assert_allclose(
        lossy.parameters, plain.parameters, atol=len(rows) * _STEP
    )
    assert (plain.participation == rows).all()


def test_a_failed_round_leaves_the_model_and_says_so() -> None:
    survivors = np.ones((1, 5, _CLIENTS), bool)
    survivors[:, :, _COHORT:] = False
    start = np.random.default_rng(0).normal(size=_DIM).astype(np.float32)
    for lost, status in (
        ((4, slice(1, _COHORT)), mj.Status.UNRELIABLE),
        ((slice(3, 5), slice(1, _COHORT)), mj.Status.TOO_FEW_SURVIVORS),
        ((slice(1, 5), slice(0, 1)), mj.Status.ABORTED),
    ):
        alive = survivors.copy()
        alive[(0, *lost)] = False
        rule = mj.secagg.graph_rule(
            mj.graphs.complete(_COHORT), _CLIENTS, policy="abort", blocks=3
        )
        result = _train(
            alive[:, 0], _average(rule), survivors=alive, initial_parameters=start
        )
        assert result.status.tolist() == [status]
        np.testing.assert_array_equal(result.parameters, start)
        assert not result.participation.any()
        assert (result.components == -1).all()


@pytest.mark.long
def test_sample_weights_give_the_weighted_mean() -> None:
    clients = _clients()
    sizes = np.asarray(clients.sizes)
    assert len(set(sizes.tolist())) > 2
    history = _history()
    aggregator = _average(_rule(), max_weight=sizes)
    result = _train(history, aggregator, weights=sizes, keep_aggregates=True)
    model = mj.federated.logistic(10)
    start = mj.federated.initial_parameters(7, model, (8, 8, 1))
    rows = np.asarray(history.participation)
    first = int(np.flatnonzero(rows.any(axis=1))[0])
    updates = np.asarray(
        mj.federated.client_updates(
            7,
            model,
            start,
            clients,
            mj.federated.local_sgd(model, 0.3, batch_size=100),
            round_index=first,
        ),
        np.float64,
    )
    wanted = (rows[first] * sizes) @ np.clip(updates, -0.5, 0.5)
    weight = (rows[first] * sizes).sum()
    assert result.aggregates is not None
    assert np.abs(result.aggregates[0] / weight - wanted / weight).max() <= _STEP + 1e-6
    plain = _train(history, _average(_rule()))
    np.testing.assert_array_equal(plain.status, result.status)
    assert not np.array_equal(plain.parameters, result.parameters)
    ones = _train(
        history, _average(_rule(), max_weight=1), weights=np.ones(_CLIENTS, int)
    )
    np.testing.assert_array_equal(plain.parameters, ones.parameters)
