"""Seconds of rounds: misuse, and steps worked by hand."""

from __future__ import annotations

import dataclasses
import math
import typing

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.secagg import RoundCosts, expected_costs, round_costs
from mrsa_jax.secagg._round_costs import Operations
from mrsa_jax.secagg.costs import (
    LatencyModel,
    latency_model,
    operation_seconds,
    round_latency,
)

N = 4
COMPLETE = ~np.eye(N, dtype=bool)
IDLE = {field.name: 0.0 for field in dataclasses.fields(Operations)}


def _costs(lost_at_input: int = 0) -> RoundCosts:
    """Everybody there; the last `lost_at_input` clients never send their padded input."""
    alive = np.ones((5, N), bool)
    alive[3:, N - lost_at_input :] = False
    return round_costs(COMPLETE, alive, 2, dim=100, modulus=2**16)


def _model(**words: typing.Any) -> LatencyModel:
    """A model in which nothing takes time but what `words` say."""
    free = {
        "up_bytes_per_second": 1e30,
        "down_bytes_per_second": 1e30,
        "server_bytes_per_second": 1e30,
        "round_trip_seconds": 0.0,
        "client_seconds": operation_seconds(**IDLE),
        "server_seconds": operation_seconds(**IDLE),
    }
    return latency_model(**{**free, **words})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: latency_model(up_bytes_per_second=0),
            "`up_bytes_per_second` must be positive",
        ),
        (
            lambda: latency_model(server_bytes_per_second=math.nan),
            "`server_bytes_per_second` must",
        ),
        (
            lambda: latency_model(down_bytes_per_second=math.inf),
            "`down_bytes_per_second` must",
        ),
        (
            lambda: latency_model(round_trip_seconds=-1),
            "`round_trip_seconds` must be at least 0",
        ),
        (
            lambda: operation_seconds(hashes=1),
            "`seconds` must name operations .*; got 'hashes'",
        ),
        (lambda: operation_seconds(prg_words=-1), "`prg_words` must be at least 0"),
        (
            lambda: operation_seconds(prg_words=True),
            "`prg_words` must be a number; got True",
        ),
        (
            lambda: round_latency(
                expected_costs(4, 3, 2, 9, 16, step_dropout_rate=0.1), latency_model()
            ),
            "`costs` must be of rounds whose dropouts are known",
        ),
    ],
)
def test_misuse_names_argument_and_rule(
    call: typing.Callable[[], object], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


def test_links_by_hand() -> None:
    """76 bytes up; then 12+3*68 down and 16+3*92 up; 12+3*92 and 16+200.

    28 and 20+40*4.
    """
    model = _model(up_bytes_per_second=10, down_bytes_per_second=100)
    wanted = [7.6, 2.16 + 29.2, 2.88 + 21.6, 0.28 + 18.0]
    np.testing.assert_allclose(round_latency(_costs(), model), wanted, rtol=1e-6)


def test_the_servers_link_and_the_round_trip_by_hand() -> None:
    """All bytes of a step pass the server's link; directions do not share it."""
    model = _model(server_bytes_per_second=10, round_trip_seconds=0.5)
    got = round_latency(_costs(), model)
    np.testing.assert_allclose(
        got, [30.4 + 0.5, 116.8 + 0.5, 115.2 + 0.5, 72.0 + 0.5], rtol=1e-6
    )


@pytest.mark.smoke
def test_operations_by_hand() -> None:
    """Two key pairs; 3 agreements twice; 4 pads of 100.

    One lost costs the server 3 + 3 pads.
    """
    seconds = operation_seconds(**{**IDLE, "key_pairs": 1.0, "key_agreements": 10.0})
    got = round_latency(_costs(), _model(client_seconds=seconds))
    np.testing.assert_allclose(got, [2.0, 30.0, 30.0, 0.0], atol=1e-9)
    words = operation_seconds(**{**IDLE, "prg_words": 0.01})
    thrice = operation_seconds(**{**IDLE, "prg_words": 0.03})
    model = _model(client_seconds=thrice, server_seconds=words)
    got = round_latency(_costs(lost_at_input=1), model)
    np.testing.assert_allclose(got, [0, 0, 3 * 4 * 1.0, 6 * 1.0], rtol=1e-6, atol=1e-9)


def test_nobody_takes_no_time() -> None:
    costs = round_costs(COMPLETE, np.zeros((5, N), bool), 2, dim=9, modulus=2**16)
    assert not round_latency(costs, _model()).any()


def test_more_of_anything_takes_no_less() -> None:
    def total(costs: RoundCosts, **words: typing.Any) -> float:
        return float(round_latency(costs, latency_model(**words)).sum())

    sparse, dense = (expected_costs(20, k, 8, 5000, 2**16) for k in (8, 19))
    start = total(sparse)
    assert total(dense) > start
    assert total(sparse, up_bytes_per_second=1e5) > start
    assert total(sparse, round_trip_seconds=0.2) > start
    assert total(sparse, server_seconds=operation_seconds(prg_words=1e-6)) > start


def test_many_rounds_are_each_their_own_costs() -> None:
    alive = np.ones((2, 5, N), bool)
    alive[1, 3:, 0] = False
    costs = round_costs(COMPLETE, alive, 2, dim=100, modulus=2**16)
    model = _model(up_bytes_per_second=10, server_seconds=operation_seconds())
    both = round_latency(costs, model)
    for row, lost in enumerate((0, 1)):
        single = np.ones((5, N), bool)
        single[3:, :lost] = False
        own = round_costs(COMPLETE, single, 2, dim=100, modulus=2**16)
        np.testing.assert_allclose(both[row], round_latency(own, model))


def test_new_numbers_of_a_model_compile_nothing_new() -> None:
    from mrsa_jax.secagg.costs import _latency

    round_latency(_costs(), latency_model())
    before = _latency._seconds._cache_size()
    round_latency(_costs(1), latency_model(up_bytes_per_second=7))
    assert _latency._seconds._cache_size() == before
