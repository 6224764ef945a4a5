"""The fitted mechanism.

Its step by the papers' equation, its account against exact laws.
"""

import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.dp import ring_mechanism

KINDS = ("skellam", "discrete_gaussian")
DEFAULTS = {"dim": 1000, "num_clients": 20, "modulus_bits": 14}


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(np.log((p**order * q ** (1 - order)).sum()) / (order - 1))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_account_covers_the_exact_law_of_a_small_ring(kind) -> None:
    # two clients, one number, a ring of 2**6: the totals' laws with and without one
    # update
    own = ring_mechanism(
        kind, 0.8, 1.0, dim=1, num_clients=2, modulus_bits=6, window=5.0, rotate=False
    )
    noise, ring = own.noise.on(own.step), 2**6
    far = np.arange(-400, 401)
    masses = np.convolve(noise.mass(far), noise.mass(far))
    places = np.arange(-800, 801)

    def law(code: int) -> np.ndarray:
        return np.bincount((places + code) % ring, weights=masses, minlength=ring)

    codes = jax.jit(jax.vmap(own.quantizer.encode, (0, None)))
    keys = jax.random.split(jax.random.key(0), 400)
    tight = 0.0
    for update in (1.0, -1.0, 0.37, 1e9):
        value = np.asarray(codes(keys, jnp.asarray([update]))).astype(np.int32)[:, 0]
        # which codes come, and how often: a whole number and the next
        points, counts = np.unique(value, return_counts=True)
        assert len(points) <= 2
        with_it = sum(
            law(int(c)) * n / 400 for c, n in zip(points, counts, strict=True)
        )
        for order in (1.5, 2.0, 3.0, 8.0):
            spent = float(own.rdp(order))
            found = max(renyi(with_it, law(0), order), renyi(law(0), with_it, order))
            assert found <= spent
            tight = max(tight, found / spent)
    assert tight > 0.7


@pytest.mark.parametrize("kind", KINDS)
def test_step_fills_the_window_and_the_cost_is_near_the_gaussians(kind) -> None:
    own = ring_mechanism(kind, 1.0, 0.5, **DEFAULTS)
    g, c, n, k, d = own.step, 0.5, 20, 4.0, 1024
    sigma = math.sqrt(own.noise.variance)
    assert sigma == pytest.approx(1.0 * c / math.sqrt(n))
    filled = 2 * k * math.sqrt((c * n) ** 2 / d + (g**2 / 4 + sigma**2) * n) / g
    assert filled == pytest.approx(2**14, rel=1e-5)
    assert own.wrap_probability < 2 * math.exp(-(k**2) / 2) * 1.05
    bare = ring_mechanism(kind, 1.0, 0.5, rotate=False, **DEFAULTS)
    assert bare.step > 2 * own.step
    assert bare.wrap_probability < 1e-3

    gaussian = mj.privacy.Distinguishability(
        np.asarray([1.0, math.sqrt(100)]), 1.0, None
    )
    exact = np.asarray(gaussian.epsilon(1e-5))
    found = [own.epsilon(1e-5), own.epsilon(1e-5, 100)]
    assert (found > exact).all()
    assert (found < exact * [1.1, 1.25]).all()
    orders = np.asarray([2.0, 5.0])
    assert own.rdp(orders) == pytest.approx(orders / 2, rel=5e-3)
    assert (own.rdp(orders) >= orders / 2).all()


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_survivors_leave_less_noise(kind) -> None:
    own = ring_mechanism(kind, 2.0, 1.0, dim=30, num_clients=8, modulus_bits=14)
    spent = own.rdp([2, 3, 10], np.arange(9))
    assert spent.shape == (9, 3)
    assert np.isinf(spent[0]).all()
    assert (np.diff(spent[1:], axis=0) < 0).all()
    assert spent[4] == pytest.approx(2 * spent[8], rel=0.01)
    one = own.epsilon(1e-6, 3, survivors=5)
    assert one == own.epsilon(1e-6, survivors=[5, 5, 5])
    assert own.epsilon(1e-6, survivors=[5, 5, 0]) == math.inf
    assert own.epsilon(1e-6) < own.epsilon(1e-6, survivors=5) < one


def authors_figures() -> dict:
    # vectors/distributed_dp.json says where the numbers are from
    path = pathlib.Path(__file__).parents[1] / "vectors" / "distributed_dp.json"
    return json.loads(path.read_text())


@pytest.mark.long("1", "2")
@pytest.mark.parametrize("start", range(3))
def test_spends_what_the_authors_figures_say(start) -> None:
    laws = {"skellam": mj.dp.skellam, "discrete_gaussian": mj.dp.discrete_gaussian}
    rows = authors_figures()["mean_estimation"]["rows"]
    for kind, count, bits, epsilon, step, deviation in rows[start::3]:
        grid = mj.quantize.lattice(step, 10.0, 250)
        own = mj.dp.RingMechanism(grid, laws[kind](deviation**2), count, bits)
        # integers reach no further than the floor of the papers' bound, and there are
        # more orders
        assert 0.99 * epsilon < own.epsilon(1e-5) < (1 + 1e-6) * epsilon


def test_spends_what_the_authors_say_after_dropouts() -> None:
    drops = authors_figures()["dropout"]
    for row in drops["rows"]:
        own = ring_mechanism(
            "discrete_gaussian",
            row["deviation"] * 10,
            1.0,
            dim=2**20,
            num_clients=100,
            modulus_bits=32,
        )
        # no finer than what can be drawn: up to a hundredth above, and more orders
        # below
        found = [own.epsilon(1e-5, 1500, left) for left in drops["survivors"]]
        assert found == pytest.approx(row["after"], rel=0.016)


@pytest.mark.long
def test_a_sum_has_the_noise_and_the_reach_that_were_planned() -> None:
    own = ring_mechanism("skellam", 1.5, 1.0, dim=500, num_clients=6, modulus_bits=16)
    average = mj.secagg.ring_average(
        own.quantizer, 6, 500, modulus_bits=16, noise=own.noise, fidelity="sets"
    )
    updates = 10.0 * jax.random.normal(jax.random.key(1), (6, 500))
    clipped = np.asarray(updates) / np.linalg.norm(updates, axis=1, keepdims=True)

    def one(key):
        out, _ = average.aggregate(
            key, average.init(), updates, jnp.arange(6), jnp.ones(6, jnp.bool_)
        )
        return out.update, out.wrapped

    means, wrapped = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), 40))
    errors = np.asarray(means) - clipped.mean(axis=0)
    # 40 x 500 draws: the deviation is known to half a percent
    assert errors.std() == pytest.approx(1.5 / 6, rel=0.03)
    assert np.abs(errors.mean(axis=0)).max() < 5 * 0.25 / math.sqrt(40)
    assert np.asarray(wrapped).sum() <= own.wrap_probability * 40 * 512


PROMISES = [
    ({"kind": "skelam"}, "`kind` must be a known law: did you mean 'skellam'"),
    (
        {"noise_multiplier": 0.0},
        "`noise_multiplier` must be positive and finite; got 0.0",
    ),
    ({"noise_multiplier": -1.0}, "`noise_multiplier` must be positive"),
    (
        {"noise_multiplier": math.inf},
        "`noise_multiplier` must be positive and finite; got inf",
    ),
    (
        {"noise_multiplier": math.nan},
        "`noise_multiplier` must be positive and finite; got nan",
    ),
    ({"clip": 0.0}, "`clip` must be positive and finite"),
    ({"window": 0.0}, "`window` must be positive and finite"),
    ({"num_clients": 1}, "`num_clients` must be at least 2"),
    ({"modulus_bits": 33}, "`modulus_bits` must lie in"),
    (
        {"modulus_bits": 4},
        "`modulus_bits` must leave room for the rounding .* chance of 1;",
    ),
    (
        {"window": 2.0},
        r"`modulus_bits` must leave room for codes and noise.* chance of 0\.27",
    ),
    (
        {"modulus_bits": 8, "kind": "discrete_gaussian", "noise_multiplier": 0.01},
        "`modulus_bits` must leave a client's noise 0.5 steps or more.*got 8 and 0.1",
    ),
    ({"dim": 0}, "`dim` must be at least 1"),
]


@pytest.mark.smoke
def test_refuses_what_cannot_be_promised() -> None:
    for change, message in PROMISES:
        given = {"kind": "skellam", "noise_multiplier": 1.0, "clip": 1.0} | DEFAULTS
        with pytest.raises(mj.ConfigurationError, match=message):
            ring_mechanism(**(given | change))


OUT_OF_RANGE = [
    (lambda own: own.rdp(1.0), "`orders` must be above 1"),
    (lambda own: own.rdp([2.0, math.nan]), "`orders` must be above 1"),
    (
        lambda own: own.rdp(2.0, 21),
        r"`survivors` must be integers in \[0, 20\]; got 21",
    ),
    (lambda own: own.rdp(2.0, 1.5), "`survivors` must be integers"),
    (lambda own: own.epsilon(0.0), r"`delta` must lie in \(0, 1\)"),
    (lambda own: own.epsilon(1.0), r"`delta` must lie in \(0, 1\)"),
    (lambda own: own.epsilon(1e-5, 0), "`rounds` must be at least 1"),
]


def test_refuses_numbers_out_of_range() -> None:
    for call, message in OUT_OF_RANGE:
        own = ring_mechanism("skellam", 1.0, 1.0, **DEFAULTS)
        with pytest.raises(mj.ConfigurationError, match=message):
            call(own)


def test_a_step_above_the_clip_is_refused() -> None:
    """A wide window has room for the sums, but rounding would add 8.8 clips to what is sent."""
    with pytest.raises(
        mj.ConfigurationError, match="must leave steps of at most the clip norm"
    ):
        ring_mechanism(
            "skellam", 4.0, 1.0, dim=16, num_clients=3, modulus_bits=4, window=6.0
        )
