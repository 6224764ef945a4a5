"""Seconds a round.

Misuse, steps worked by hand, and stragglers whose expectations are known.
"""

from __future__ import annotations

import dataclasses
import math
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.secagg import RoundCosts, expected_costs, round_costs
from mrsa_jax.secagg._round_costs import Operations
from mrsa_jax.secagg.costs import (
    LatencyModel,
    Slowdown,
    calibrate,
    exponential_tail,
    latency_model,
    lognormal,
    operation_seconds,
    pareto,
    round_latency,
    steady,
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
        (lambda: latency_model(quantile=0), r"`quantile` must lie in \(0, 1\]; got 0"),
        (lambda: latency_model(quantile=math.nan), "`quantile` must lie in"),
        (
            lambda: latency_model(timeout_seconds=0),
            "`timeout_seconds` must be positive",
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
        (lambda: exponential_tail(-0.1), "`mean_excess` must be at least 0"),
        (lambda: lognormal(1.0, 0.0), "`median` must be positive"),
        (lambda: pareto(0), "`shape` must be positive"),
        (lambda: calibrate(0), "`budget_seconds` must be positive and finite; got 0"),
        (lambda: calibrate(math.nan), "`budget_seconds` must be positive"),
        (lambda: steady(math.inf), "`factor` must be positive and finite"),
        (
            lambda: round_latency(0, _costs(), latency_model(), 0),
            "`num_rounds` must be at least 1",
        ),
        (
            lambda: round_latency(0, _costs(), latency_model()),
            "`num_rounds` must be an integer",
        ),
        (
            lambda: round_latency(
                0,
                expected_costs(4, 3, 2, 9, 16, step_dropout_rate=0.1),
                latency_model(),
                2,
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
    latency = round_latency(
        0, _costs(), _model(up_bytes_per_second=10, down_bytes_per_second=100), 2
    )
    wanted = [7.6, 2.16 + 29.2, 2.88 + 21.6, 0.28 + 18.0]
    np.testing.assert_allclose(latency.seconds, [wanted, wanted], rtol=1e-6)
    np.testing.assert_allclose(latency.total_seconds, sum(wanted), rtol=1e-6)
    assert latency.mean_seconds == pytest.approx(sum(wanted), rel=1e-6)
    assert latency.quantiles(0.5, 1.0) == pytest.approx([sum(wanted)] * 2, rel=1e-6)
    twice = _model(up_bytes_per_second=10, link_slowdown=steady(2.0))
    got = round_latency(0, _costs(), twice, 1).seconds[0]
    np.testing.assert_allclose(got, [15.2, 58.4, 43.2, 36.0], rtol=1e-6)


def test_the_servers_link_and_the_round_trip_by_hand() -> None:
    """All bytes of a step pass the server's link; directions do not share it."""
    model = _model(server_bytes_per_second=10, round_trip_seconds=0.5)
    got = round_latency(0, _costs(), model, 1).seconds[0]
    np.testing.assert_allclose(
        got, [30.4 + 0.5, 116.8 + 0.5, 115.2 + 0.5, 72.0 + 0.5], rtol=1e-6
    )


def test_operations_by_hand() -> None:
    """Two key pairs; 3 agreements twice; 4 pads of 100.

    One lost costs the server 3 + 3 pads.
    """
    seconds = operation_seconds(**{**IDLE, "key_pairs": 1.0, "key_agreements": 10.0})
    got = round_latency(0, _costs(), _model(client_seconds=seconds), 1).seconds[0]
    np.testing.assert_allclose(got, [2.0, 30.0, 30.0, 0.0], atol=1e-9)
    words = operation_seconds(**{**IDLE, "prg_words": 0.01})
    model = _model(
        client_seconds=words, compute_slowdown=steady(3.0), server_seconds=words
    )
    got = round_latency(0, _costs(lost_at_input=1), model, 1).seconds[0]
    np.testing.assert_allclose(got, [0, 0, 3 * 4 * 1.0, 6 * 1.0], rtol=1e-6, atol=1e-9)


def test_the_wait_ends_by_quantile_or_timeout() -> None:
    """Only key pairs take time.

    Step 0 is 2 s times a client's slow-down, one draw each.
    """
    seconds = operation_seconds(**{**IDLE, "key_pairs": 1.0})
    words = {"client_seconds": seconds, "compute_slowdown": exponential_tail(1.0)}

    def first(**more: typing.Any) -> tuple[np.ndarray, np.ndarray]:
        got = round_latency(5, _costs(), _model(**words, **more), 200)
        return got.seconds[:, 0], got.late[:, 0]

    order = np.stack([first(quantile=share)[0] for share in (0.25, 0.5, 0.75, 1.0)])
    assert (np.diff(order, axis=0) > 0).all()  # the order statistics of four clients
    half, late = first(quantile=0.5)
    assert (late == 2).all()
    capped, late = first(timeout_seconds=3.0)
    np.testing.assert_array_equal(capped, np.minimum(order[3], 3.0).astype(np.float32))
    np.testing.assert_array_equal(late, (order > 3.0).sum(axis=0))
    assert (half == order[1]).all()


def test_each_round_and_each_cause_has_its_own_slow_downs() -> None:
    """Step 0 of one round after another: the slowest computer, and the slowest link."""
    tails = {
        "compute_slowdown": exponential_tail(1.0),
        "link_slowdown": exponential_tail(1.0),
    }
    seconds = operation_seconds(**{**IDLE, "key_pairs": 0.5})  # two of them
    computers = _model(**tails, client_seconds=seconds)
    links = _model(**tails, up_bytes_per_second=float(_costs().bytes_up[0, 0]))
    slowest = [
        round_latency(5, _costs(), own, 3).seconds[:, 0] for own in (computers, links)
    ]
    assert len(set(np.round(slowest, 5).ravel().tolist())) == 6


def test_a_lost_client_is_waited_for_until_the_timeout() -> None:
    seconds = operation_seconds(**{**IDLE, "prg_words": 0.01})
    costs = _costs(lost_at_input=1)
    waits = {
        (share, limit): round_latency(
            0,
            costs,
            _model(client_seconds=seconds, quantile=share, timeout_seconds=limit),
            1,
        ).seconds[0, 2]
        for share in (0.75, 1.0)
        for limit in (9.0, math.inf)
    }
    # four pads of 100 words take 4 s; three of the four expected come
    assert waits == {
        (0.75, 9.0): 4.0,
        (0.75, math.inf): 4.0,
        (1.0, 9.0): 9.0,
        (1.0, math.inf): 4.0,
    }


def test_nobody_takes_no_time() -> None:
    costs = round_costs(COMPLETE, np.zeros((5, N), bool), 2, dim=9, modulus=2**16)
    assert not round_latency(0, costs, _model(), 3).seconds.any()


@pytest.mark.parametrize("num_clients", [1, 30])
def test_the_slowest_of_exponential_clients(num_clients: int) -> None:
    """E max = fastest + mean (1 + 1/2 + ... + 1/n), variance mean^2 (1 + 1/4 + ... + 1/n^2).

    20,000 rounds; 5 standard errors leave a chance of 6e-7 of failing.
    """
    rounds, mean = 20_000, 0.7
    n = num_clients
    costs = round_costs(
        ~np.eye(n, dtype=bool), np.ones((5, n), bool), 1, dim=2, modulus=2**16
    )
    seconds = operation_seconds(**{**IDLE, "key_pairs": 0.5})
    model = _model(client_seconds=seconds, compute_slowdown=exponential_tail(mean, 0.2))
    times = round_latency(3, costs, model, rounds).seconds[:, 0].astype(float)
    wanted = 0.2 + mean * sum(1 / k for k in range(1, n + 1))
    error = mean * math.sqrt(sum(1 / k**2 for k in range(1, n + 1)) / rounds)
    assert abs(times.mean() - wanted) < 5 * error


@pytest.mark.parametrize(
    ("make", "cumulative"),
    [
        (
            lambda: exponential_tail(0.5, 2.0),
            lambda x: 1 - np.exp(-np.maximum(x - 2, 0) / 0.5),
        ),
        (lambda: pareto(2.5, 1.5), lambda x: 1 - np.minimum(1.5 / x, 1) ** 2.5),
        (
            lambda: lognormal(0.8, 3.0),
            lambda x: np.array(
                [
                    0.5 * math.erfc(-math.log(v / 3) / 0.8 / math.sqrt(2))
                    for v in x.ravel()
                ]
            ),
        ),
    ],
)
def test_slowdowns_have_their_distribution(
    make: typing.Callable[[], Slowdown],
    cumulative: typing.Callable[[np.ndarray], np.ndarray],
) -> None:
    """Dvoretzky-Kiefer-Wolfowitz: the empirical law of 20,000 draws is off by more than
    sqrt(log(2e6) / 40,000) = .019 with chance at most 1e-6.
    """
    slowdown = make()
    draws = np.sort(
        np.asarray(slowdown.sample(jax.random.key(1), 20_000)).astype(float)
    )
    steps = np.arange(1, len(draws) + 1) / len(draws)
    assert np.abs(cumulative(draws) - steps).max() < math.sqrt(math.log(2e6) / 40_000)
    assert isinstance(slowdown, Slowdown)
    few = slowdown.sample(jax.random.key(1), 3)
    np.testing.assert_allclose(
        few, slowdown.sample(jax.random.key(1), 9)[:3], rtol=1e-6
    )


def test_more_of_anything_takes_no_less() -> None:
    base = {"compute_slowdown": lognormal(0.5), "link_slowdown": pareto(3.0)}

    def total(costs: RoundCosts, **words: typing.Any) -> np.ndarray:
        return round_latency(
            1, costs, latency_model(**{**base, **words}), 50
        ).total_seconds

    sparse, dense = (expected_costs(20, k, 8, 5000, 2**16) for k in (8, 19))
    start = total(sparse)
    assert (total(dense) > start).all()
    assert (total(sparse, up_bytes_per_second=1e5) > start).all()
    assert (total(sparse, round_trip_seconds=0.2) > start).all()
    assert (
        total(sparse, server_seconds=operation_seconds(prg_words=1e-6)) > start
    ).all()
    assert (total(sparse, quantile=0.5) < start).all()


def test_many_rounds_are_each_their_own_costs() -> None:
    alive = np.ones((2, 5, N), bool)
    alive[1, 3:, 0] = False
    costs = round_costs(COMPLETE, alive, 2, dim=100, modulus=2**16)
    model = _model(up_bytes_per_second=10, server_seconds=operation_seconds())
    both = round_latency(0, costs, model).seconds
    for row, lost in enumerate((0, 1)):
        single = np.ones((5, N), bool)
        single[3:, :lost] = False
        own = round_costs(COMPLETE, single, 2, dim=100, modulus=2**16)
        np.testing.assert_allclose(
            both[row], round_latency(0, own, model, 1).seconds[0]
        )
    with pytest.raises(
        mj.ConfigurationError, match="`num_rounds` must be the number of rounds"
    ):
        round_latency(0, costs, model, 3)


def test_this_machine_can_be_measured() -> None:
    """Curve arithmetic costs microseconds, a word of keystream or a field product nanoseconds."""
    measured = calibrate(0.01)
    values = {
        f.name: float(getattr(measured, f.name)) for f in dataclasses.fields(measured)
    }
    assert all(value > 0 for value in values.values())
    slow = min(values["key_pairs"], values["key_agreements"])
    assert slow > 100 * max(values["prg_words"], values["share_products"])
    assert slow > values["encryptions"] > values["prg_words"]
    latency = round_latency(0, _costs(), _model(client_seconds=measured), 1)
    assert 0 < latency.mean_seconds < 1


def test_numbers_are_traced() -> None:
    """New numbers of a model compile nothing new."""
    from mrsa_jax.secagg.costs import _latency

    simulate = _latency._simulate
    round_latency(0, _costs(), latency_model(compute_slowdown=pareto(2.0)), 7)
    before = simulate._cache_size()
    round_latency(
        9, _costs(1), latency_model(compute_slowdown=pareto(3.0), quantile=0.5), 7
    )
    assert simulate._cache_size() == before
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), pareto(2.0), pareto(3.0))
    drawn = jax.vmap(lambda law: law.sample(jax.random.key(0), 5))(stacked)
    np.testing.assert_array_equal(drawn[1], pareto(3.0).sample(jax.random.key(0), 5))
