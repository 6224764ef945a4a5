"""Scenarios are what they say.

Training's own rounds, and a round's lines with and without pads.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax.attacks import summed_rounds, wire_round

MODEL = mj.federated.logistic(10)
_trainer = functools.cache(lambda: mj.federated.local_sgd(MODEL, 0.1, batch_size=100))
_quantizer = functools.cache(lambda: mj.quantize.stochastic(2**16, 1.0))
HISTORY = np.array(
    [[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0], [1, 0, 1, 0]], np.bool_
)  # client 3 never takes part


@functools.cache
def _clients() -> tuple[mj.data.ClientData, Any]:
    clients = mj.data.iid(0, mj.data.load("digits", seed=0), 4)
    return clients, mj.federated.initial_parameters(0, MODEL, (8, 8, 1))


def _average() -> mj.secagg.RingAverage:
    return mj.secagg.ring_average(_quantizer(), 3, 650, fidelity="sets")


@functools.cache
def _kept(**options: Any) -> Any:
    clients, start = _clients()
    return summed_rounds(
        7,
        MODEL,
        start,
        clients,
        HISTORY,
        trainer=_trainer(),
        aggregator=_average(),
        **options,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"participation": HISTORY[:, :3]},
            r"`participation` must be bool \[rounds, 4\]",
        ),
        (
            {"participation": np.ones((2, 4), int)},
            r"`participation` must be bool \[rounds, 4\]",
        ),
        (
            {"participation": np.ones((1, 4), bool)},
            "`aggregator` must have a participant for each",
        ),
        ({"warm_up": 5}, "`warm_up` must leave a round with a sum; got 5"),
        ({"warm_up": -1}, "`warm_up` must"),
        ({"server_rate": -0.5}, "`server_rate` must be a finite number from 0"),
    ],
)
def test_misuse_of_rounds(changes: dict[str, Any], message: str) -> None:
    clients, start = _clients()
    options: Any = {
        "participation": HISTORY,
        "trainer": _trainer(),
        "aggregator": _average(),
    }
    run: Any = inspect.unwrap(summed_rounds)
    with pytest.raises(mj.ConfigurationError, match=message):
        run(7, MODEL, start, clients, **(options | changes))


@pytest.mark.long
@pytest.mark.parametrize("schedule", [None, mj.federated.decay_at((2, 4), 0.5)])
def test_the_rounds_are_those_of_training(
    schedule: mj.federated.RateSchedule | None,
) -> None:
    clients, start = _clients()
    kept = _kept(rate_schedule=schedule)
    trained = mj.federated.train(
        7,
        mj.federated.Training(
            MODEL,
            clients,
            HISTORY,
            _trainer(),
            _average(),
            initial_parameters=start,
            rate_schedule=schedule,
            keep_aggregates=True,
        ),
    )
    np.testing.assert_array_equal(kept.parameters, trained.parameters)
    np.testing.assert_allclose(kept.view.aggregates, trained.aggregates, atol=1e-6)
    assert kept.rounds.tolist() == [0, 2, 3, 4]
    np.testing.assert_array_equal(kept.view.participation, HISTORY[kept.rounds])


@pytest.mark.long
def test_a_server_that_adds_a_part_of_the_update() -> None:
    clients, start = _clients()
    slow = mj.federated.train(
        7,
        mj.federated.Training(
            MODEL,
            clients,
            HISTORY,
            _trainer(),
            _average(),
            initial_parameters=start,
            server=optax.sgd(0.25),
        ),
    )
    kept = _kept(server_rate=0.25)
    np.testing.assert_allclose(kept.parameters, slow.parameters, atol=1e-6)
    assert (kept.change[:3] < _kept().change[:3]).all()


@pytest.mark.long
def test_what_was_sent() -> None:
    """Frozen, what `client_updates` gives; who sent nothing has zeros."""
    clients, start = _clients()
    frozen = _kept(is_frozen=True)
    own = mj.federated.client_updates(7, MODEL, start, clients, _trainer())
    np.testing.assert_allclose(frozen.sent[:3], own[:3], atol=1e-6)
    assert not frozen.sent[3].any()
    assert np.isnan(frozen.change[3])
    assert frozen.change[:3].max() < 1e-6
    np.testing.assert_array_equal(frozen.parameters, start)
    # each sum is that of its members, up to rounding by at most a step each
    wrong = frozen.view.aggregates - frozen.view.participation @ frozen.sent
    assert np.abs(wrong).max() < 3.01 * float(_quantizer().step)
    assert _kept().change[:3].min() > 1e-4


@pytest.mark.parametrize("levels", [2**16, 4])
def test_the_noise_in_a_sum_is_rounding_where_there_is_no_other(levels: int) -> None:
    """Small entries lie between two of an even number of levels: half a step each."""
    clients, start = _clients()
    quantizer = mj.quantize.stochastic(levels, 1.0)
    average = mj.secagg.ring_average(quantizer, 3, 650, fidelity="sets")
    kept = summed_rounds(
        7, MODEL, start, clients, HISTORY, trainer=_trainer(), aggregator=average
    )
    rms = float(np.sqrt(HISTORY.sum() / 4)) * float(quantizer.step) / 2
    if levels == 4:
        assert kept.sum_noise == pytest.approx(rms, rel=0.05)
    else:  # entries lie anywhere: 1/6 of a squared step in the mean, and not 1/4
        assert kept.sum_noise == pytest.approx(rms * np.sqrt(2 / 3), rel=0.1)


def test_what_was_sent_is_clipped() -> None:
    clients, start = _clients()
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**16, 0.01), 3, 650, fidelity="sets"
    )
    kept = summed_rounds(
        7, MODEL, start, clients, HISTORY, trainer=_trainer(), aggregator=average
    )
    assert np.abs(kept.last).max() == pytest.approx(0.01)
    assert kept.sum_noise < 1e-6  # of what was clipped it would be far more


def test_rounds_before_the_window_are_trained_on_but_not_kept() -> None:
    late = _kept(warm_up=3)
    assert late.rounds.tolist() == [3, 4]
    np.testing.assert_array_equal(late.view.aggregates, _kept().view.aggregates[2:])
    np.testing.assert_array_equal(late.parameters, _kept().parameters)


def test_misuse_of_a_round() -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`values` must be vectors of two clients"
    ):
        wire_round(0, np.ones((1, 3), np.float32), _quantizer())
    with pytest.raises(
        mj.ConfigurationError, match="`modulus_bits` must leave room for the"
    ):
        wire_round(0, np.ones((3, 3), np.float32), _quantizer(), modulus_bits=17)


@pytest.mark.long
@pytest.mark.parametrize("chance", [1.0, 0.9])
def test_pads_cancel_in_the_sum_and_hide_each_upload(chance: float) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (6, 400)).astype(np.float32)
    seen = wire_round(
        0, values, _quantizer(), modulus_bits=20, connection_probability=chance
    )
    assert seen.status == mj.Status.OK
    read = mj.attacks.read_models(seen.plain)
    assert np.abs(read - values).max() < 1.01 * float(_quantizer().step)
    np.testing.assert_allclose(seen.mean, read.mean(axis=0), atol=1e-6)
    assert seen.padded.uploads.max() < 2**20
    # of 2,400 residues more than 3 agree by chance, 2**-20 each, with a probability
    # below 2e-12
    assert (seen.padded.uploads == seen.plain.uploads).sum() <= 3
