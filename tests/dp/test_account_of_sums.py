"""The account of shared noise and of losses.

Every history written out, and the realised ledger.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import defaultdict
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, availability, dp, selection
from mrsa_jax.dp import account, ledger
from mrsa_jax.dp._mechanism import ORDERS

LEAVES = 0.15
_steps = functools.cache(lambda: availability.independent_steps(LEAVES))
SURVIVES = (1 - LEAVES) ** 3
FATES = {
    "lost": 1 - SURVIVES,
    "sent": SURVIVES * LEAVES,
    "answered": SURVIVES * (1 - LEAVES),
}
RULES = ("ignore", "abort", "drop_block")
ROUNDS = 3


def _delta(mu: np.ndarray, epsilon: float) -> np.ndarray:
    """Return delta of N(mu, 1) against N(0, 1) by its formula."""
    mu = np.maximum(mu, 1e-300)
    tail = stats.norm.cdf(-epsilon / mu - mu / 2)
    return stats.norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * tail


# ---- small cases, written out


def _summed(
    cohort: tuple[int, ...], fates: tuple[str, ...], rule: str, block: int
) -> set[int]:
    """Return who is in the round's sum by the policies' definitions, if it is learnt."""
    sent = {i for i, fate in zip(cohort, fates, strict=True) if fate != "lost"}
    split = {i // block for i in cohort if i not in sent}
    kept = {
        "ignore": sent,
        "abort": set() if split else sent,
        "drop_block": {i for i in sent if i // block not in split},
    }[rule]
    answered = sum(fate == "answered" for fate in fates)
    return kept if len(kept) >= 2 and answered >= 2 else set()


def _sizes(
    cohorts: dict[tuple[int, ...], float], rule: str | None, block: int
) -> dict[int, float]:
    """Return the chance that client 0 is in a round's sum, by its size."""
    found: dict[int, float] = defaultdict(float)
    for cohort, chance in cohorts.items():
        if rule is None:
            found[len(cohort)] += chance if 0 in cohort else 0.0
            continue
        for fates in itertools.product(FATES, repeat=len(cohort)):
            members = _summed(cohort, fates, rule, block)
            if 0 in members:
                found[len(members)] += chance * np.prod([FATES[fate] for fate in fates])
    return found


def _histories(sizes: dict[int, float]) -> list[tuple[tuple[int, ...], float]]:
    """Return the sizes of client 0's sums in every history, 0 where it is in none.

    Its chance.
    """
    each = [*sizes.items(), (0, 1 - sum(sizes.values()))]
    return [
        (tuple(n for n, _ in rounds), float(np.prod([p for _, p in rounds])))
        for rounds in itertools.product(each, repeat=ROUNDS)
    ]


CHANCES = (0.5, 0.3, 0.9, 0.6)
COINS = {
    cohort: float(np.prod([p if i in cohort else 1 - p for i, p in enumerate(CHANCES)]))
    for size in range(5)
    for cohort in itertools.combinations(range(4), size)
}
_blocks = functools.cache(lambda: selection.batch_partitioning(6, 4, 2, "uniform"))
_online = functools.cache(lambda: availability.independent(0.25))


@functools.cache
def _schemes() -> list[Any]:
    inside = float(_blocks().chances(_online().for_clients(6).dropout_rates)[0])
    return [
        (selection.poisson(4, CHANCES), availability.independent(0.0), COINS, 1),
        (_blocks(), _online(), {(0, 1, 2, 3): inside}, 2),
    ]


@pytest.mark.parametrize("planned", [None, 4])
@pytest.mark.parametrize("rule", [None, *RULES])
def test_law_of_sums(rule: str | None, planned: int | None) -> None:
    """Delta of all histories of three rounds, who is lost at which step among them."""
    losses: dict[str, Any] = {} if rule is None else {"steps": _steps(), "rule": rule}
    for scheme, online, cohorts, block in _schemes():
        found = account(
            scheme, online, ROUNDS, 1.5, 1e-3, planned=planned, clients=[0], **losses
        )
        assert found.trials == 0
        mus, chances = [], []
        for sizes, chance in _histories(_sizes(cohorts, rule, block)):
            mus.append(np.sqrt(sum((planned or n) / n for n in sizes if n)) / 1.5)
            chances.append(chance)
        for epsilon in (0.0, 0.7, 2.5):
            expected = np.array(chances) @ _delta(np.array(mus), epsilon)
            np.testing.assert_allclose(found.delta(epsilon)[0], expected, rtol=1e-3)
            assert found.delta(epsilon)[0] >= expected * (1 - 1e-9)
        exact = np.array(chances) @ _delta(np.array(mus), found.lower[0])
        assert exact >= 1e-3 * (1 - 1e-6)
        assert found.upper[0] - found.lower[0] < 3e-4 * (1 + found.upper[0])


@pytest.mark.parametrize("rule", [None, "ignore"])
def test_law_of_integers_sums(rule: str | None) -> None:
    """The mean of what the ledger of a ring mechanism says of every history."""
    losses: dict[str, Any] = {} if rule is None else {"steps": _steps(), "rule": rule}
    for kind, scheme_of in (("skellam", 0), ("discrete_gaussian", 1)):
        scheme, online, cohorts, block = _schemes()[scheme_of]
        ring = dp.ring_mechanism(kind, 1.5, 1.0, dim=20, num_clients=4, modulus_bits=12)
        found = account(
            scheme, online, ROUNDS, delta=1e-3, mechanism=ring, clients=[0], **losses
        )
        order = np.asarray(ORDERS)[np.asarray(ORDERS) > 1.01]
        spent = np.vstack([np.zeros(len(order)), ring.rdp(order, np.arange(1, 5))])
        for epsilon in (0.7, 2.5):
            expected = 0.0
            for sizes, chance in _histories(_sizes(cohorts, rule, block)):
                total = spent[list(sizes)].sum(axis=0)
                if total.any():
                    logs = (order - 1) * (
                        total + np.log1p(-1 / order) - epsilon
                    ) - np.log(order)
                    expected += chance * np.exp(min(logs.min(), 0.0))
            assert expected * (1 - 1e-9) <= found.delta(epsilon)[0] <= expected * 1.003
        assert (
            found.lower[0]
            <= found.epsilon[0]
            == found.upper[0]
            < 1.003 * found.lower[0]
        )


def test_certain_sums() -> None:
    """Of a client who is in every round.

    Nothing is left for sums beyond all that there can be.
    """
    coins = selection.poisson(3, [1.0, 0.5, 0.5])
    found = account(
        coins, availability.independent(0.0), 4, 2.0, 1e-9, planned=3, clients=[0]
    )
    mus, chances = [], []
    for sizes in itertools.product([1, 2, 3], repeat=4):
        mus.append(np.sqrt(sum(3 / n for n in sizes)) / 2.0)
        chances.append(np.prod([{1: 0.25, 2: 0.5, 3: 0.25}[n] for n in sizes]))
    expected = np.array(chances) @ _delta(np.array(mus), found.epsilon[0])
    np.testing.assert_allclose(expected, 1e-9, rtol=5e-2)
    assert found.upper[0] - found.lower[0] < 1e-2


# ---- the realised ledger


def _holds(setting: dict[str, Any], delta: float, histories: int, trials: int) -> None:
    """The mean of the ledgers' delta reaches the one asked for within the account's interval."""
    own = dict(setting)
    scheme, online, rounds = (own.pop(name) for name in ("scheme", "online", "rounds"))
    client = own.pop("client", 0)
    found = account(
        scheme,
        online,
        rounds,
        delta=delta,
        clients=[client],
        trials=trials,
        confidence=1 - 1e-6,
        **own,
    )
    steps, rule = own.pop("steps", None), own.pop("rule", "ignore")
    policy = {"policy": rule, "blocks": int(getattr(scheme, "block_size", 1))}
    given = policy if isinstance(rule, str) else {"rule": rule}
    if steps is None:
        played: Any = selection.rollout_trials(91, scheme, online, rounds, histories)
    else:
        played = selection.rollout_rounds(
            91, scheme, online, steps, rounds, num_trials=histories, **given
        )._replace(assignment_keys=None)
    played = jax.device_get(played)
    ends = np.array([found.lower[0], found.epsilon[0], found.upper[0]])
    assert (np.diff(ends) >= 0).all()
    each = [jax.tree.map(operator.itemgetter(at), played) for at in range(histories)]
    realised = np.array([ledger(one, **own).delta(ends)[:, client] for one in each])
    low, middle, high = realised.mean(axis=0)
    errors = 5 * realised.std(axis=0) / np.sqrt(histories)
    assert low >= delta - errors[0]
    assert abs(middle - delta) < errors[1] + 0.1 * delta
    assert high <= delta + errors[2]


_away = functools.cache(lambda: availability.independent([0.1, 0.2, 0.3, 0.4] * 6))
_few = functools.cache(lambda: availability.independent_steps(0.05))


def _ring(clients: int) -> Any:
    return dp.ring_mechanism(
        "skellam", 3.0, 1.0, dim=100, num_clients=clients, modulus_bits=16
    )


_lossy = functools.cache(
    lambda: [
        {
            "scheme": selection.batch_partitioning(24, 6, 3, "uniform"),
            "online": _away(),
            "rounds": 40,
            "noise_multiplier": 3.0,
            "planned": 6,
            "steps": _few(),
        },
        {
            "scheme": selection.batch_partitioning(24, 6, 3, "uniform"),
            "online": _away(),
            "rounds": 40,
            "noise_multiplier": 3.0,
            "planned": 6,
            "steps": _few(),
            "rule": "drop_block",
            "client": 5,
        },
        {
            "scheme": selection.batch_partitioning(24, 6, 3),
            "online": _away(),
            "rounds": 40,
            "noise_multiplier": 3.0,
            "planned": 6,
            "steps": _few(),
            "rule": "drop_block",
        },
        {
            "scheme": selection.batch_partitioning(24, 6, 3, "greedy"),
            "online": _away(),
            "rounds": 30,
            "noise_multiplier": 3.0,
            "planned": 6,
            "steps": _few(),
            "rule": "abort",
        },
        {
            "scheme": selection.weighted(24, 6),
            "online": availability.markov(0.2, 3.0),
            "rounds": 30,
            "noise_multiplier": 3.0,
            "planned": 8,
            "steps": _steps(),
        },
        {
            "scheme": selection.bernoulli(24, 0.3),
            "online": _away(),
            "rounds": 30,
            "noise_multiplier": 3.0,
            "planned": 7,
            "steps": _steps(),
            "client": 2,
        },
        {
            "scheme": selection.minimum_separation(selection.bernoulli(24, 0.3), 3),
            "online": _away(),
            "rounds": 30,
            "noise_multiplier": 2.0,
            "planned": 5,
            "steps": _few(),
        },
        {
            "scheme": selection.uniform(24, 6),
            "online": _away(),
            "rounds": 30,
            "noise_multiplier": 3.0,
            "planned": 6,
            "steps": availability.independent_steps([0.02, 0.1, 0.2] * 8),
            "client": 1,
        },
        {
            "scheme": selection.uniform(24, 6),
            "online": _away(),
            "rounds": 30,
            "noise_multiplier": 3.0,
            "planned": 6,
            "steps": _few(),
            "rule": mj.secagg.graph_rule(
                mj.graphs.erdos_renyi(6, 0.5), 24, threshold=3
            ),
        },
        {
            "scheme": selection.batch_partitioning(24, 6, 2),
            "online": _away(),
            "rounds": 30,
            "mechanism": _ring(6),
            "steps": _few(),
        },
        {
            "scheme": selection.bernoulli(24, 0.3),
            "online": _away(),
            "rounds": 30,
            "mechanism": _ring(6),
            "steps": _few(),
        },
        {
            "scheme": selection.balls_in_bins(24, 4),
            "online": availability.independent(0.0),
            "rounds": 30,
            "noise_multiplier": 3.0,
            "planned": 6,
            "steps": _few(),
        },
    ]
)


@pytest.mark.long
def test_account_is_of_the_ledger() -> None:
    _holds(
        {
            "scheme": selection.bernoulli(12, 0.3),
            "online": availability.independent(0.1),
            "rounds": 10,
            "noise_multiplier": 3.0,
            "planned": 4,
        },
        1e-2,
        60,
        200,
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", range(12))
def test_account_is_of_the_ledger_with_losses(place: int) -> None:
    assert len(_lossy()) == 12
    _holds(_lossy()[place], 1e-2, 800, 4000)


@pytest.mark.slow
def test_simulated_sums_hold_their_law() -> None:
    """Of schemes whose law is known, simulated as if it were not.

    Losses seldom and often.
    """
    for steps in (_steps(), availability.independent_steps(0.001)):
        given = {"planned": 6, "steps": steps, "clients": [0]}
        known = account(selection.uniform(12, 6), _online(), 10, 2.0, 1e-2, **given)
        law = dp._account.checked_histories(selection.uniform(12, 6), _online(), 10)
        costs = dp._sums.Costs.of(12, 2.0, 6, None)
        plan = dp._sums.SumPlan(law, costs, steps, "ignore")
        drawn = plan.sampled(jax.random.key(3), 400, 1e-2, None)(np.arange(12))
        lower, upper = drawn.interval(1e-2, 1e-6)
        assert lower <= known.lower[0] <= known.upper[0] <= upper
        np.testing.assert_allclose(drawn.epsilon(1e-2), known.epsilon[0], rtol=0.1)
    # of few losses sums as small as two clients are left to a hundredth of delta
    assert drawn.above.rare > 0
    assert drawn.above.most < drawn.below.most


# ---- what is shared, and refusals


@pytest.mark.long
def test_shares_of_equal_sums_are_one_noise() -> None:
    for planned in (3, 6, 12):
        whole = account(_blocks(), _online(), 20, 2.0 * np.sqrt(4 / planned))
        shared = account(_blocks(), _online(), 20, 2.0, planned=planned)
        np.testing.assert_allclose(shared.epsilon, whole.epsilon, rtol=1e-9)
    # losses cost noise where it is shared, and rounds where it is not
    lossy = {"steps": availability.independent_steps(0.1)}
    coins, online = selection.bernoulli(48, 0.25), availability.independent(0.1)
    blocks = selection.batch_partitioning(48, 12, 4, "uniform")
    assert account(blocks, online, 50, 4.0, **lossy, clients=[0]).epsilon[0] < 4.0
    told = [
        account(blocks, online, 50, 4.0, planned=12, clients=[0], **more)
        .epsilon[0]
        .round(2)
        for more in ({}, lossy)
    ]
    assert told == [4.24, 4.44]
    plain, shared = (
        account(coins, online, 50, 4.0, planned=own, clients=[0]) for own in (None, 12)
    )
    assert (plain.epsilon[0].round(2), shared.epsilon[0].round(2)) == (4.03, 4.35)


def test_models_get_no_amplification_from_shared_noise() -> None:
    coins = selection.bernoulli(8, 0.3)
    for more in (
        {"planned": 3},
        {"steps": _steps()},
        {"planned": 3, "steps": _steps()},
    ):
        server, models = (
            account(coins, _online(), 10, 2.0, adversary=who, clients=[0], **more)
            for who in ("server", "models")
        )
        assert (models.method, models.epsilon[0]) == (
            "pattern_averaged",
            server.epsilon[0],
        )
        for method in ("amplified", "monte_carlo"):
            message = (
                f"`method` must not be '{method}': where each client adds its share"
            )
            with pytest.raises(ConfigurationError, match=message):
                account(
                    coins, _online(), 10, 2.0, adversary="models", method=method, **more
                )
    worst = account(
        coins, _online(), 10, 2.0, method="worst_case", planned=3, steps=_steps()
    )
    np.testing.assert_allclose(
        _delta(np.sqrt(10 * 3 / 2) / 2.0, worst.epsilon[0]), 1e-5, rtol=1e-6
    )


_refused = functools.cache(
    lambda: [
        ({"planned": 0}, "`planned` must be at least 1; got 0"),
        ({"planned": 2.5}, "`planned` must be an integer"),
        ({"steps": 0.1}, "`steps` must be a `StepDropout`"),
        ({"rule": "abort"}, "`rule` must not be set without `steps`"),
        (
            {"steps": _steps(), "rule": "ignroe"},
            "`rule` must be a known policy: did you mean 'ignore'",
        ),
        ({"steps": _steps(), "rule": 3}, "`rule` must be a policy or a `RoundRule`"),
        (
            {"mechanism": _ring(4)},
            "`noise_multiplier` must not be set with a mechanism",
        ),
        (
            {"mechanism": _ring(4), "noise_multiplier": None, "planned": 4},
            "`planned` must not be set with a mechanism",
        ),
        (
            {"mechanism": 4.0, "noise_multiplier": None},
            "`mechanism` must be what `dp.ring_mechanism`",
        ),
        ({"noise_multiplier": None}, "`noise_multiplier` must be positive and finite"),
        (
            {"planned": 3, "strategy": np.eye(5)},
            "`strategy` must not be set if sums differ",
        ),
        (
            {"steps": _steps(), "strategy": np.eye(5)},
            "`strategy` must not be set if sums differ",
        ),
    ]
)


def test_refused() -> None:
    for asked, message in _refused():
        given = {"noise_multiplier": 1.0} | asked
        with pytest.raises(ConfigurationError, match=message):
            account(selection.bernoulli(6, 0.3), _online(), 5, **given)
