"""The ledger against likelihood ratios of the sums that a server would really see."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import jax
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, federated, privacy, selection
from mrsa_jax.dp import _spending

RNG = np.random.default_rng


def told_apart(shift, covariance):
    """Return mu from densities.

    At the mean of the second, log of their ratio is mu^2 / 2.
    """
    both = [
        stats.multivariate_normal(mean, covariance).logpdf(shift)
        for mean in (shift, np.zeros_like(shift))
    ]
    return np.sqrt(2 * (both[0] - both[1]))


def seen(P, clips, deviations, strategy, planned, colluding):
    """Return mu of each client from the covariance of all that the server sees, draw by draw.

    Every client draws its own noise for each of its rounds; the server subtracts what
    it knows.
    """
    rounds, clients = P.shape
    mixes = np.linalg.inv(strategy)  # row r: what round r adds of the rounds' noise
    covariance = np.zeros((rounds, rounds))
    for r in range(rounds):
        variance = (clips[r] * deviations[r]) ** 2
        if planned is None:
            covariance += variance * np.outer(mixes[:, r], mixes[:, r])
            continue
        for i in range(clients):
            if P[r, i] and i not in colluding:
                covariance += variance / planned * np.outer(mixes[:, r], mixes[:, r])
    learnt = P.any(axis=1) if planned is not None else np.ones(rounds, bool)
    shifts = np.abs(P) * clips[:, None]
    block = covariance[np.ix_(learnt, learnt)]
    return np.array(
        [
            np.nan if i in colluding else told_apart(shifts[learnt, i], block)
            for i in range(clients)
        ]
    )


def history(seed, rounds=7, clients=6, empty=()):
    P = RNG(seed).random((rounds, clients)) < 0.6
    P[:, 0] = True  # nobody's sum is without honest noise
    P[list(empty)] = False
    return P


STRATEGIES = {
    "none": lambda: None,
    "banded": lambda: mj.dp.toeplitz([1, 0.5, 0.25], 7),
    "full": lambda: mj.dp.toeplitz(1 / np.arange(1.0, 8), 7),
    "own": lambda: np.tril(RNG(3).random((7, 7))) + np.eye(7),
}


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("planned", [None, 5])
def test_mu_is_that_of_the_likelihood_ratio(kind, planned):
    strategy = STRATEGIES[kind]()
    full = np.eye(7) if strategy is None else strategy
    clips = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0])
    noise = np.array([1.0, 0.7, 2.0, 1.5, 1.0, 0.3, 4.0])
    for seed, empty, colluding in (
        (0, (), ()),
        (1, (2,), (3,)),
        (2, (3,), (1, 4)),
        (4, (6,), ()),
    ):
        P = history(seed, empty=empty).astype(np.int64)
        P[:, 2] *= -2  # a weight moves the sum by more
        told = mj.dp.ledger(
            P, noise, clips, strategy, planned=planned, colluding=colluding
        )
        expected = seen(P, clips, noise, full, planned, colluding)
        # without a round in the middle, C^T C may have other signs
        exact = told.is_exact
        assert exact or (
            planned is not None and strategy is not None and 0 < min(empty) < 6
        )
        assert exact or not (told.mu < expected * (1 - 1e-12)).any()
        if exact:
            np.testing.assert_allclose(told.mu, expected, rtol=1e-9)
        at_plan = seen(P, clips, noise, full, None, colluding)
        np.testing.assert_allclose(told.planned_mu, at_plan, rtol=1e-9)
        path = told.trajectory()
        np.testing.assert_allclose(path[-1], told.mu, rtol=1e-12)
        for last in (1, 4, 6):  # as if the history ended there
            cut = None if strategy is None else strategy[:last, :last]
            short = mj.dp.ledger(
                P[:last],
                noise[:last],
                clips[:last],
                cut,
                planned=planned,
                colluding=colluding,
            )
            if exact:
                np.testing.assert_allclose(path[last - 1], short.mu, rtol=1e-9)
        assert told.worst == np.nanargmax(told.mu)


def test_independent_noise_is_the_noise_that_privacy_knows():
    P = RNG(5).integers(-3, 4, (9, 8))
    variances = RNG(6).random(9) + 0.1
    known = privacy.distinguishability(P, 1.5, None, 1.5**2 * variances)
    told = mj.dp.ledger(P, np.sqrt(variances), 1.5)
    np.testing.assert_allclose(told.mu, known.mu, rtol=1e-12)
    np.testing.assert_allclose(
        told.epsilon([1e-5, 0.1]), known.epsilon([1e-5, 0.1]), rtol=1e-9
    )
    assert told.mean_epsilon(1e-5) == told.epsilon(1e-5).mean()
    np.testing.assert_array_equal(told.planned.mu, told.mu)
    np.testing.assert_allclose(np.diag(told.delta(told.epsilon(1e-3))), 1e-3, rtol=1e-6)


@pytest.mark.long
def test_epsilon_is_that_of_composed_privacy_losses():
    told = mj.dp.ledger([[1, 1], [1, 0], [1, 0]], [2.0, 3.0, 1.5], planned=2)
    loss = None
    for deviation in (2.0, 3.0 / np.sqrt(2), 1.5 / np.sqrt(2)):
        one = privacy_loss_distribution.from_gaussian_mechanism(
            deviation, value_discretization_interval=1e-4
        )
        loss = one if loss is None else loss.compose(one)
    own = told.epsilon(1e-4)[0]
    assert 0 <= loss.get_epsilon_for_delta(1e-4) - own < 1e-3  # which is rounded up


def test_mixed_signs_are_bounded_and_said_so():
    """Contributions may point anywhere: none found in 300 tries beats the bound."""
    generator = RNG(8)
    C = np.tril(generator.normal(size=(6, 6)))
    P = history(9, rounds=6)
    told = mj.dp.ledger(P, 1.3, strategy=C)
    assert not told.is_exact
    assert "upper bound" in told.notes[-1]
    directions = generator.normal(size=(300, 6, 4))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    moved = np.einsum("rs,si,tsd->tird", C, P, directions)
    reached = np.sqrt((moved**2).sum(axis=(2, 3))) / 1.3
    assert (reached <= told.mu * (1 + 1e-12)).all()
    # with contributions in one line, of signs chosen best, two rounds reach it
    pair = mj.dp.ledger([[1], [1]], 1.0, strategy=[[1, 0], [-0.5, 1]])
    np.testing.assert_allclose(
        pair.mu, np.linalg.norm([[1, 0], [-0.5, 1]] @ np.array([1, -1]))
    )
    path = told.trajectory()
    assert (np.diff(path, axis=0) >= 0).all()
    np.testing.assert_allclose(path[-1], told.mu, rtol=1e-12)
    for last in range(1, 6):
        short = mj.dp.ledger(P[:last], 1.3, strategy=C[:last, :last])
        assert (path[last - 1] <= short.mu * (1 + 1e-12)).all()


@pytest.mark.smoke
def test_noise_that_is_wholly_known_hides_nothing():
    P = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    strategy = mj.dp.toeplitz([1, 0.5], 3)
    alone = mj.dp.ledger(P, 1.0, planned=2, colluding=[2])
    assert np.isfinite(alone.mu[[0, 1, 3]]).all()
    # round 1 is of client 2 alone, who tells its noise: what it repeats of round 0 is
    # seen
    told = mj.dp.ledger(P, 1.0, strategy=strategy, planned=2, colluding=[2])
    np.testing.assert_array_equal(np.isinf(told.mu), [True, True, False, False])
    np.testing.assert_array_equal(np.isnan(told.mu), [False, False, True, False])
    assert np.isinf(told.epsilon(1e-5)[0])
    path = told.trajectory([0, 3])
    np.testing.assert_allclose(path[0], [1.0, 0.0])
    assert np.isinf(path[1:, 0]).all()
    np.testing.assert_allclose(path[-1, 1], told.mu[3])


def test_fewer_survivors_than_planned_are_told():
    P = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    told = mj.dp.ledger(P, 2.0, planned=4)
    assert told.short == 2
    np.testing.assert_allclose(told.mu[0] ** 2, (1 + 2 + 4 / 3) / 4)
    np.testing.assert_allclose(told.planned_mu[0] ** 2, 3 / 4)
    assert told.notes == (
        "2 of 3 sums have less noise than planned, at the least 2 of 4 shares.",
    )
    assert all(
        one in repr(told) and one in told._repr_html_() for one in ("0.", *told.notes)
    )
    colluding = mj.dp.ledger(P, 2.0, planned=4, colluding=[1])
    assert colluding.short == 3
    np.testing.assert_allclose(colluding.mu[0] ** 2, (4 / 3 + 4 + 2) / 4)
    np.testing.assert_allclose(
        colluding.planned_mu, [told.planned_mu[0], np.nan, *told.planned_mu[2:]]
    )
    more = mj.dp.ledger(P, 2.0, planned=2)
    assert more.short == 0
    assert (more.mu < more.planned_mu).any()
    steps = mj.dp.ledger(P, 2.0, strategy=np.eye(4), planned=4)
    np.testing.assert_allclose(steps.mu, told.mu)
    assert "1 of 4 rounds have no sum" in steps.notes[1]


def test_rounds_are_read_by_who_sent_what_is_in_the_sum():
    """Lost before V3: neither update nor noise; lost after it: both are in the sum."""
    asked = RNG(2).random((9, 12)) < 0.6
    stays = np.cumprod(RNG(3).random((9, 4, 12)) > 0.12, axis=1).astype(bool)
    survivors = np.concatenate([asked[:, None], asked[:, None] & stays], axis=1)
    survivors[4, 3:] = False
    survivors[4, 4, 0] = survivors[4, 3, 0]  # all but one at the most
    P = np.asarray(selection.learnt_sums(survivors, 1, "ignore", threshold=2))
    assert not P[4].any()
    assert P[5:].any(axis=1).all()
    assert (P & ~survivors[:, 4]).any()
    keys = jax.random.split(jax.random.key(0), 9)
    played = selection.RoundHistory(survivors, P, np.where(P.any(axis=1), 0, 3), keys)
    noise = np.linspace(1.0, 2.0, 9)
    for kind in (None, mj.dp.toeplitz([1, 0.5], 9)):
        told = mj.dp.ledger(played, noise, strategy=kind, planned=6, colluding=[1])
        plain = mj.dp.ledger(P, noise, strategy=kind, planned=6, colluding=[1])
        np.testing.assert_allclose(told.mu, plain.mu)
        np.testing.assert_allclose(told.trajectory(), plain.trajectory())
        assert told.short == plain.short > 0
    sent = np.where(P.any(axis=1)[:, None], survivors[:, 3], False)
    told = mj.dp.ledger(played, noise, planned=6)
    share = 6 / np.maximum(sent.sum(axis=1), 1) / noise**2
    np.testing.assert_allclose(told.mu**2, share @ sent)


def test_trainings_are_read_by_all_sums_of_their_rounds():
    # a round that fell apart is two sums, each with what its own members added
    whole = np.array([[True] * 4, [False] * 4, [True] * 4])
    parts = np.array([[0, 0, 1, 1], [-1, -1, -1, 2], [0, 0, 0, 0]], np.int32)
    fields = dict.fromkeys(
        (field.name for field in dataclasses.fields(federated.TrainingResult)),
        np.zeros(3),
    )
    own = {"participation": whole, "components": parts}
    unasked = dict.fromkeys(("aggregates", "diverged_round", "drift", "weights"))
    trained = federated.TrainingResult(**fields | unasked | own)
    told = mj.dp.ledger(trained, [1.0, 2.0, 4.0], planned=4)
    expected = [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]]
    rows = mj.dp.ledger(expected, [1.0, 1.0, 2.0, 4.0], planned=4)
    np.testing.assert_allclose(told.mu, rows.mu)
    np.testing.assert_allclose(told.trajectory(), rows.trajectory()[[1, 2, 3]])
    weights = np.array([1, 5, 2, 3], np.uint32)
    heavy = mj.dp.ledger(
        dataclasses.replace(trained, weights=weights), [1.0, 2.0, 4.0], planned=4
    )
    rows = mj.dp.ledger(np.asarray(expected) * weights, [1.0, 1.0, 2.0, 4.0], planned=4)
    np.testing.assert_allclose(heavy.mu, rows.mu)
    assert (heavy.mu[1:] > told.mu[1:]).all()
    with pytest.raises(
        ConfigurationError, match="`strategy` must not be set if a round fell"
    ):
        mj.dp.ledger(trained, 1.0, strategy=np.eye(3))


def test_logs_bring_noise_and_names():
    P = np.array([[2, 2, 0], [1, 0, 1], [1, 1, 1]])
    log = privacy.ParticipationLog(
        P,
        ("a", "b", "c"),
        ("x", "y", 7),
        scales=(Fraction(2), Fraction(1), Fraction(1)),
        noise=(2.0, 3.0, 1.0),
        clip=(1.0, 2.0, 4.0),
    )
    told = mj.dp.ledger(log)
    np.testing.assert_allclose(told.mu**2, [1 / 4 + 4 / 9 + 16, 1 / 4 + 16, 4 / 9 + 16])
    np.testing.assert_allclose(
        told.trajectory(["7"])[:, 0], np.sqrt([0, 4 / 9, 4 / 9 + 16])
    )
    np.testing.assert_allclose(
        mj.dp.ledger(log, 2.0).mu, np.sqrt([3 / 4, 2 / 4, 2 / 4])
    )
    assert np.isnan(mj.dp.ledger(log, colluding=("y",)).mu[1])
    wide = privacy.ParticipationLog(
        P.astype(object) * 10**400,
        log.rounds,
        log.clients,
        scales=tuple(scale * 10**400 for scale in log.scales),
        noise=log.noise,
        clip=log.clip,
    )
    np.testing.assert_allclose(mj.dp.ledger(wide).mu, told.mu)
    bare = privacy.ParticipationLog(
        P, log.rounds, log.clients, noise=(2.0, None, 1.0), clip=(1.0, 1.0, 1.0)
    )
    found = mj.dp.ledger(bare)
    np.testing.assert_array_equal(np.isinf(found.mu), [True, False, True])
    assert "1 of 3 sums have no noise" in found.notes[0]
    np.testing.assert_array_equal(
        np.isinf(found.trajectory()[:, 0]), [False, True, True]
    )


def test_ring_mechanisms_spend_what_their_sums_do_together(monkeypatch):
    """`RingMechanism.epsilon`, by dp_accounting's conversion, client by client."""
    P = history(13, rounds=9)
    for kind in ("skellam", "discrete_gaussian"):
        ring = mj.dp.ring_mechanism(
            kind, 3.0, 0.5, dim=100, num_clients=5, modulus_bits=20
        )
        told = mj.dp.ledger(P, mechanism=ring, colluding=[3])
        honest = np.delete(P, 3, axis=1).sum(axis=1)
        for delta in (1e-6, 0.3):
            for i in (0, 1, 5):
                own = np.minimum(honest[P[:, i]], 5)
                expected = ring.epsilon(delta, survivors=own)
                np.testing.assert_allclose(told.epsilon(delta)[i], expected, rtol=1e-12)
                at_plan = ring.epsilon(delta, rounds=int(P[:, i].sum()))
                np.testing.assert_allclose(
                    told.planned.epsilon(delta)[i], at_plan, rtol=1e-12
                )
        assert np.isnan(told.epsilon(1e-6)[3])
        both = told.epsilon([1e-6, 1e-3])
        np.testing.assert_array_equal(both[0], told.epsilon(1e-6))
        np.testing.assert_allclose(told.delta(both[0][0])[0], 1e-6, rtol=1e-9)
        # no better than Gaussian noise of the same variance would be, and not much
        # worse
        gaussian = mj.dp.ledger(P, 3.0, planned=5, colluding=[3]).epsilon(1e-6)
        usual = ~np.isnan(gaussian)
        assert (both[0][usual] > gaussian[usual]).all()
        assert (both[0][usual] < 1.3 * gaussian[usual]).all()
        np.testing.assert_allclose(
            told.mu, mj.dp.ledger(P, 3.0, planned=5, colluding=[3]).mu, rtol=1e-2
        )
        assert told.short == (honest < 5).sum()
        assert "mechanism" in told.notes[-1]
        empty = P.copy()
        empty[:, 2] = False
        assert mj.dp.ledger(empty, mechanism=ring).epsilon(1e-6)[2] == 0
        monkeypatch.setattr("mrsa_jax.dp._mechanism.at_once", lambda *_: 2)
        np.testing.assert_array_equal(told.epsilon([1e-6, 1e-3]), both)
        monkeypatch.undo()
    misuse = {
        "`planned` must not be set with a mechanism": {"planned": 3},
        "`noise_multiplier` must not be set": {"noise_multiplier": 1.0},
        "`mechanism` must be what `dp.ring_mechanism`": {"mechanism": 3},
    }
    for words, named in misuse.items():
        with pytest.raises(ConfigurationError, match=words):
            mj.dp.ledger(P, **{"mechanism": ring} | named)
    with pytest.raises(
        ConfigurationError, match="`participation` must hold no weights"
    ):
        mj.dp.ledger(2 * P.astype(int), mechanism=ring)
    with pytest.raises(ConfigurationError, match="`delta` must lie in"):
        told.epsilon(1.0)


def test_clients_go_in_chunks(monkeypatch):
    P = history(11, clients=40)
    expected = {
        kind: mj.dp.ledger(P, 1.1, strategy=C()).mu for kind, C in STRATEGIES.items()
    }
    monkeypatch.setattr(_spending, "at_once", lambda *_: 7)
    for kind, C in STRATEGIES.items():
        np.testing.assert_allclose(
            mj.dp.ledger(P, 1.1, strategy=C()).mu, expected[kind], rtol=1e-14
        )


def test_figures_neither_overflow_nor_vanish():
    P = history(12)
    for kind, C in STRATEGIES.items():
        usual = mj.dp.ledger(P, 1.0, strategy=C()).mu
        for size in (1e-290, 1e290):
            told = mj.dp.ledger(P, size, strategy=C())
            np.testing.assert_allclose(told.mu * size, usual, rtol=1e-12, err_msg=kind)
            np.testing.assert_allclose(told.trajectory()[-1] * size, usual, rtol=1e-12)
            clipped = mj.dp.ledger(P, 1.0, size, strategy=C())
            np.testing.assert_allclose(clipped.mu, usual, rtol=1e-12, err_msg=kind)


P3 = [[1, 1, 0], [0, 1, 1]]


MISUSES = [
    ((P3, 0.0), {}, "`noise_multiplier` .*no differential privacy; got 0"),
    ((P3, -1.0), {}, "`noise_multiplier` must be positive and finite"),
    ((P3, np.inf), {}, "`noise_multiplier` must be positive and finite"),
    ((P3, np.nan), {}, "`noise_multiplier` must be positive"),
    ((P3, [1.0, 1.0, 1.0]), {}, "`noise_multiplier` must.*one for each round"),
    ((P3, "1"), {}, "`noise_multiplier`"),
    ((P3, True), {}, "`noise_multiplier`"),
    ((P3,), {}, "`noise_multiplier` must be given"),
    ((P3, 1.0, 0.0), {}, "`clip` must be positive"),
    ((P3, 1.0, [1.0, -1.0]), {}, "`clip` must be positive"),
    (([[0.5, 1.0]], 1.0), {}, "`participation` must hold bools or integers"),
    (([1, 0], 1.0), {}, "`participation` must have at least 2 axes"),
    (([P3, P3], 1.0), {}, "`participation` must be one history"),
    ((np.zeros((0, 3), bool), 1.0), {}, "`participation` must not be empty"),
    (("log.csv", 1.0), {}, "`participation` must be an array; .*read_log"),
    (
        (P3, 1.0, None, np.eye(3)),
        {},
        r"`strategy` must be a matrix of numbers \[2, 2\]",
    ),
    ((P3, 1.0, None, [[1, 1], [0, 1]]), {}, "`strategy` must be lower triangular"),
    (
        (P3, 1.0, None, [[1, 0], [1, 0]]),
        {},
        "`strategy` must have no 0 on its diagonal",
    ),
    ((P3, 1.0, None, [[1, 0], [np.nan, 1]]), {}, "`strategy` must be finite"),
    ((P3, 1.0), {"planned": 0}, "`planned` must be at least 1"),
    ((P3, 1.0), {"planned": 2.5}, "`planned` must be an integer"),
    ((P3, 1.0), {"colluding": [3]}, "`colluding` must hold indices below 3"),
    ((P3, 1.0), {"colluding": [-1]}, "`colluding`"),
    ((P3, 1.0), {"colluding": [1, 1]}, "`colluding` must name a client once"),
    ((P3, 1.0), {"colluding": [0, 1, 2]}, "`colluding` must leave a client out"),
]


def test_misuse_is_named():
    for arguments, named, words in MISUSES:
        with pytest.raises(ConfigurationError, match=words):
            mj.dp.ledger(*arguments, **named)


def test_what_is_asked_of_a_ledger_is_checked():
    told = mj.dp.ledger(P3, 1.0)
    for delta in (0.0, 1.0, -1.0, np.nan, "a"):
        with pytest.raises(ConfigurationError, match="`delta` must lie in"):
            told.epsilon(delta)
    with pytest.raises(ConfigurationError, match="`clients` must hold indices below 3"):
        told.trajectory([3])
    log = privacy.ParticipationLog(np.array(P3), (0, 1), ("a", "b", "c"))
    with pytest.raises(ConfigurationError, match="`noise_multiplier` must be given"):
        mj.dp.ledger(log)
    with pytest.raises(
        ConfigurationError, match="`colluding` must name clients of the log"
    ):
        mj.dp.ledger(log, 1.0, colluding=["d"])
