"""Canaries: the measured mu is what noise of a known law allows, and too little noise is found."""

import dataclasses
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.attacks import CanaryScores

LAW = NormalDist()
HISTORY = np.asarray([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]], bool)
TRIALS = 1500


@pytest.fixture(scope="module")
def mechanism() -> mj.dp.RingMechanism:
    return mj.dp.ring_mechanism(
        "skellam", 1.0, 2.0, dim=16, num_clients=3, modulus_bits=16
    )


def ledger_of(planned: int = 3) -> np.ndarray:
    return mj.dp.ledger(HISTORY, 1.0, 2.0, planned=planned).mu


def spread_of(trials: int, mu: float) -> float:
    """Return the standard error of the standardised difference of two means."""
    return float(np.sqrt(2 / trials + mu**2 / (4 * trials)))


class Sums(NamedTuple):
    """What an audit reads of a round."""

    update: Any
    total_weight: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plain:
    """Sums of clipped updates with Gaussian noise of each client, without a ring.

    To be broken.
    """

    clip: Any
    deviation: Any  # of a client's noise
    bare: Any = -1  # the client without noise
    is_repeated: Any = False  # whether all rounds have the noise of the first

    def init(self) -> tuple[Any, Any]:
        return jnp.zeros(2, jnp.uint32), jnp.bool_(False)

    def aggregate(
        self, key: Any, state: Any, updates: Any, members: Any, survivors: Any
    ) -> tuple[Sums, Any]:
        first, is_set = state
        own = jax.random.key_data(key)
        first = jnp.where(is_set, first, own)
        key = jax.random.wrap_key_data(jnp.where(self.is_repeated, first, own))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, members)
        lengths = jnp.linalg.norm(updates, axis=1)
        sent = (
            updates * jnp.minimum(1.0, self.clip / jnp.maximum(lengths, 1e-30))[:, None]
        )
        noise = jax.vmap(lambda one: jax.random.normal(one, updates.shape[1:]))(keys)
        noise *= jnp.where(members == self.bare, 0.0, self.deviation)[:, None]
        weight = survivors.sum(dtype=jnp.float32)
        total = jnp.where(survivors[:, None], sent + noise, 0.0).sum(axis=0)
        return Sums(total / weight, weight), (first, jnp.bool_(True))


# what is changed, what is said of the noise, and whether the ledger's mu is refuted
BROKEN: dict[str, tuple[dict[str, Any], tuple[str, ...], bool]] = {
    "sound": ({}, (), False),
    "half of the noise's variance": ({"deviation": 0.5**0.5}, ("less noise than planned",), True),
    "clipping at twice the norm": ({"clip": 2.0}, (), True),
    "one of six without noise": ({"bare": 5}, ("less noise than planned",), False),
    "the same noise in all rounds": (
        {"is_repeated": True}, ("noise correlated over rounds",), False,
    ),
}  # fmt: skip
SIX = np.asarray(
    [[1, 1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]], bool
)


@pytest.mark.long
@pytest.mark.parametrize("name", BROKEN)
def test_each_standard_breakage_is_found_and_nothing_is_said_of_a_sound_one(
    name: str,
) -> None:
    """The first statistic finds what is sent, the second what is missing of the noise."""
    mechanism = mj.dp.ring_mechanism(
        "skellam", 1.0, 1.0, dim=16, num_clients=6, modulus_bits=16
    )
    allowed = mj.dp.ledger(SIX, mechanism=mechanism).mu[0]
    changes, faults, is_refuted = BROKEN[name]
    plan = {"clip": 1.0, "deviation": 1.0}
    of_client = float(np.sqrt(1.0 / 6.0))
    made = {key: jnp.asarray(value) for key, value in (plan | changes).items()}
    built = Plain(**made | {"deviation": made["deviation"] * of_client})
    scores = mj.attacks.canaries(0, mechanism).play(0, SIX, 400, built)
    lower, upper = scores.interval(allowed / 2)
    assert scores.residuals is not None
    assert scores.residuals.faults() == faults
    assert (lower > allowed) == is_refuted
    if name == "sound":
        assert lower <= allowed <= upper


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["skellam", "discrete_gaussian"])
@pytest.mark.parametrize("bits", [6, 20])
@pytest.mark.parametrize("spread", [None, 0.3])
def test_the_ring_is_as_planned_fine_or_coarse(
    kind: str, bits: int, spread: float | None
) -> None:
    """Rounding of a coarse lattice is no noise that is missing, and hardly any that is added."""
    mechanism = mj.dp.ring_mechanism(
        kind, 1.0, 1.0, dim=40, num_clients=6, modulus_bits=bits
    )
    scores = mj.attacks.canaries(0, mechanism, spread=spread).play(3, SIX, 4000)
    assert scores.residuals is not None
    assert scores.residuals.faults() == ()
    allowed = mj.dp.ledger(SIX, mechanism=mechanism).mu[0]
    assert scores.interval(allowed / 2)[0] <= allowed
    less = dataclasses.replace(mechanism, noise=mechanism.noise.on(1.25))
    built = mj.secagg.ring_average(
        mechanism.quantizer, 6, 40, modulus_bits=bits, noise=less.noise, fidelity="sets"
    )
    scores = mj.attacks.canaries(0, mechanism, spread=spread).play(4, SIX, 4000, built)
    assert scores.residuals is not None
    assert scores.residuals.faults() == ("less noise than planned",)


def test_the_smallest_violation_that_trials_find_is_found() -> None:
    rng = np.random.default_rng(6)
    few = CanaryScores(np.zeros(400), np.zeros(400))
    least = few.smallest_found(1.0)
    assert 1.3 < least < 2.0
    found = 0
    for _ in range(200):
        drawn = CanaryScores(rng.normal(0, 1, 400), rng.normal(least, 1, 400))
        found += drawn.interval(0.5)[0] > 1.0
    assert found >= 184  # at least 95 % of 200, but for chance below 1 in 1,000
    assert CanaryScores(np.zeros(10**5), np.zeros(10**5)).smallest_found(1.0) < 1.06
    assert CanaryScores(np.zeros(3), np.zeros(3)).smallest_found(1.0) == np.inf


@pytest.mark.long
def test_known_others_leave_what_the_ledger_says(
    mechanism: mj.dp.RingMechanism,
) -> None:
    """Sums of 3, 2 and 3 clients, whose noise is 3/3, 2/3 and 3/3 of what was planned."""
    audit = mj.attacks.canaries(0, mechanism)
    mu = audit.test(HISTORY).mu
    assert mu == pytest.approx(np.sqrt(2.0), rel=1e-6)
    np.testing.assert_allclose(
        ledger_of()[:2], [mu, np.sqrt(1.0 + 1.5 + 1.0)], rtol=1e-6
    )
    scores = audit.play(0, HISTORY, TRIALS)
    # the ring's rounding is far below the noise of 22 bits: what is measured is mu
    assert abs(scores.mu - mu) < 4 * spread_of(TRIALS, mu)
    lower, upper = scores.interval(mu / 2)
    assert lower < mu < upper
    # both laws are N(0, 1) but for the shift, so that rates are those of the formula
    for fpr in (0.02, 0.3):
        threshold = LAW.inv_cdf(1 - fpr)
        for measured, exact in (
            ((scores.without > threshold).mean(), fpr),
            ((scores.shifted > threshold).mean(), 1 - LAW.cdf(threshold - mu)),
        ):
            assert abs(measured - exact) < 4.5 * np.sqrt(exact * (1 - exact) / TRIALS)


@pytest.mark.long
def test_less_noise_than_the_ledger_counts_is_refuted(
    mechanism: mj.dp.RingMechanism,
) -> None:
    """Clients who add a quarter of the noise: the lower end passes the ledger's mu."""
    weak = mj.secagg.ring_average(
        mechanism.quantizer,
        3,
        16,
        modulus_bits=16,
        fidelity="sets",
        noise=mj.dp.skellam(mechanism.noise.variance / 4),
    )
    scores = mj.attacks.canaries(0, mechanism).play(1, HISTORY, TRIALS, weak)
    assert scores.interval(np.sqrt(0.5))[0] > ledger_of()[0]
    assert scores.residuals is not None
    assert scores.residuals.faults() == ("less noise than planned",)


@pytest.mark.long
def test_unknown_others_hide_more(mechanism: mj.dp.RingMechanism) -> None:
    audit = mj.attacks.canaries(1, mechanism, spread=0.4)
    noise = mechanism.noise.variance * np.maximum(HISTORY.sum(axis=1), 1)
    formula = mj.privacy.distinguishability(HISTORY, 2.0, 0.4, noise).mu[1]
    assert audit.test(HISTORY).mu == pytest.approx(formula, rel=1e-9)
    assert formula < ledger_of()[1]
    assert abs(audit.play(2, HISTORY, TRIALS).mu - formula) < 4 * spread_of(
        TRIALS, formula
    )


def test_the_interval_holds_whatever_the_scores_are() -> None:
    """It covers mu of normal scores, and of two that never meet says what their number allows."""
    rng = np.random.default_rng(5)
    for mu in (0.0, 0.7, 3.0):
        covered = 0
        for _ in range(200):
            scores = CanaryScores(rng.normal(0, 1, 400), rng.normal(mu, 1, 400))
            lower, upper = scores.interval(mu / 2)
            covered += lower <= mu <= upper
        assert covered >= 186  # at least 95 % of 200, but for chance below 1 in 1,000
    lower, upper = CanaryScores(np.zeros(50), np.ones(50)).interval(0.5)
    # 50 of 50: the chance p with p^50 = 0.0125 = (1 - 0.975) / 2, on both sides
    assert lower == pytest.approx(2 * LAW.inv_cdf(0.0125 ** (1 / 50)))
    assert upper == np.inf


def test_misuse_is_named(mechanism: mj.dp.RingMechanism) -> None:
    audit = mj.attacks.canaries
    for wrong in (
        lambda: audit(-1, mechanism),
        lambda: audit(9, mechanism).test(HISTORY),
    ):
        with pytest.raises(ConfigurationError, match="`client` must"):
            wrong()
    with pytest.raises(ConfigurationError, match="`mechanism` must be a mechanism"):
        audit(0, mj.dp.skellam(1.0))
    with pytest.raises(
        ConfigurationError, match="`spread` must be positive and finite; got 0"
    ):
        audit(0, mechanism, spread=0)
    with pytest.raises(
        ConfigurationError, match="`participation` must hold no weights"
    ):
        audit(0, mechanism).test(2 * HISTORY.astype(int))
    for rows in (HISTORY & False, np.eye(4, dtype=bool)):
        with pytest.raises(
            ConfigurationError, match="`participation` must hold a sum of two"
        ):
            audit(0, mechanism).play(0, rows, 3)
    with pytest.raises(ConfigurationError, match="`aggregator` must have"):
        audit(0, mechanism).play(0, HISTORY, 3, mechanism)
    flat = mj.dp.ring_mechanism(
        "skellam", 1.0, 1.0, dim=1, num_clients=3, modulus_bits=16
    )
    with pytest.raises(
        ConfigurationError, match="`mechanism` must be of updates with two"
    ):
        audit(0, flat).play(0, HISTORY, 3)
    with pytest.raises(
        ConfigurationError, match="`num_trials` must be at least 1; got 0"
    ):
        audit(0, mechanism).play(0, HISTORY, 0)
