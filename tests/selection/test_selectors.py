"""Schemes against the papers' rules.

By enumeration on the same words, and in distribution.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax import ConfigurationError, availability, selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, as_key, client_words, round_key, trial_key
from mrsa_jax.selection import (
    batch_partitioning,
    bernoulli,
    enumerate_family,
    partition,
    rollout,
    rollout_trials,
    uniform,
    weighted,
)
from mrsa_jax.selection._bernoulli import SelectorState

FALSE_FAILURE = 1e-6
RATES = [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: _raw(uniform)(4, 5),
            "`cohort_size` must be at most `num_clients`; got 5 and 4",
        ),
        (
            lambda: _raw(weighted)(4, 5),
            "`cohort_size` must be at most `num_clients`; got 5 and 4",
        ),
        (lambda: _raw(uniform)(4, 0), "`cohort_size` must be at least 1; got 0"),
        (lambda: _raw(uniform)(4.0, 2), "`num_clients` must be an integer; got 4.0"),
        (lambda: _raw(weighted)(4, True), "`cohort_size` must be an integer; got True"),
        (
            lambda: _raw(partition)(10, 4),
            "`num_clients` must be a multiple of `cohort_size`",
        ),
        (
            lambda: _raw(batch_partitioning)(12, 10, 4),
            "`cohort_size` must be a multiple of `privacy_target`; got 10 and 4",
        ),
        (
            lambda: _raw(batch_partitioning)(14, 8, 4),
            "`num_clients` must be a multiple of `privacy_target`; got 14 and 4",
        ),
        (
            lambda: _raw(batch_partitioning)(12, 6, 2.0),
            "`privacy_target` must be an integer; got 2.0",
        ),
        (lambda: _raw(batch_partitioning)(12, 6, 3, "greedi"), "did you mean 'greedy'"),
        (
            lambda: _raw(batch_partitioning)(12, 6, 3, "greedi"),
            "`fairness` must be .* got 'greedi'",
        ),
        (
            lambda: _raw(bernoulli)(3, 1.2),
            r"`probability` must lie in \[0, 1\]; got 1.2",
        ),
        (
            lambda: _raw(bernoulli)(3, math.nan),
            r"`probability` must lie in \[0, 1\]; got nan",
        ),
        (lambda: _raw(bernoulli)(3, [0.1, 0.2]), "`probability` must be one number"),
        (lambda: _raw(bernoulli)(0, 0.5), "`num_clients` must be at least 1; got 0"),
        (lambda: _raw(bernoulli)(3, "half"), "`probability` must be a number"),
    ],
)
def test_misuse(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()


def _raw(function: Callable) -> Callable:
    """Return a factory without the suite's own check of annotations."""
    return inspect.unwrap(function)


# ---- the same words, the paper's rule by enumeration


def _draws(
    seed: int, online: availability.Independent, num_rounds: int
) -> tuple[np.ndarray, ...]:
    """Availability bool[J, N] and two words for each client, uint32[J, N], of trial 0."""
    key = trial_key(as_key(seed), 0)
    n = online.thresholds.shape[0]

    def one(j: jax.Array) -> tuple[jax.Array, ...]:
        choice = round_key(key, j, Stream.SELECTION)
        available, _ = online.sample(round_key(key, j, Stream.AVAILABILITY), None)
        return available, client_words(choice, n, 0), client_words(choice, n, 1)

    rounds = jnp.arange(num_rounds, dtype=jnp.uint32)
    return tuple(np.asarray(a) for a in jax.jit(jax.vmap(one))(rounds))


def _oracle_sorting(counts, available, first, second, k, by_use):  # type: ignore[no-untyped-def]
    """T = 1: sort the available clients by (frequency, word), or by word alone."""
    words = (first if by_use else second) >> 1
    ranked = sorted(
        np.flatnonzero(available), key=lambda i: (by_use * counts[i], words[i], i)
    )
    cohort = np.zeros(len(counts), bool)
    if len(ranked) >= k:
        cohort[ranked[:k]] = True
    return cohort


def _oracle_rows(family, size, fairness):  # type: ignore[no-untyped-def]
    """Return Algorithm 2 with a row of B chosen by the words of its blocks."""
    blocks = family[:, ::size]

    def choose(counts, available, first, second):  # type: ignore[no-untyped-def]
        rows = np.flatnonzero(~(family & ~available).any(1))  # line 2: supp(b) within U
        if rows.size == 0:
            return np.zeros_like(available)
        whole = available.reshape(-1, size).all(1)
        use, a, b = counts[::size], first[::size] >> 1, second[::size] >> 1
        if fairness == "uniform":
            return family[min(rows, key=lambda r: sorted(b[blocks[r]]))]
        if fairness == "greedy":
            return family[
                min(
                    rows,
                    key=lambda r: sorted(
                        (use[g], a[g]) for g in np.flatnonzero(blocks[r])
                    ),
                )
            ]
        least = min(np.flatnonzero(whole), key=lambda g: (use[g], a[g]))
        rows = rows[blocks[rows, least]]  # line 8: rows that include l_min

        def others(r: int) -> list[int]:
            return sorted(b[g] for g in np.flatnonzero(blocks[r]) if g != least)

        return family[min(rows, key=others)]

    return choose


def _play(choose: Callable, draws: tuple[np.ndarray, ...]) -> np.ndarray:
    counts = np.zeros(draws[0].shape[1], int)
    history = []
    for available, first, second in zip(*draws, strict=True):
        cohort = choose(counts, available, first, second)
        counts += cohort
        history.append(cohort)
    return np.array(history)


@pytest.mark.long
@pytest.mark.parametrize("rates", [0.15, "mixed", 0.6], ids=str)
@pytest.mark.parametrize(("n", "k"), [(12, 6), (12, 4)])
def test_same_words_same_cohorts(n: int, k: int, rates: object) -> None:
    online = availability.independent(
        np.resize(RATES, n) if rates == "mixed" else np.full(n, rates)
    )
    rounds = 250
    draws = _draws(9, online, rounds)
    cases = {
        "uniform": (uniform(n, k), lambda *a: _oracle_sorting(*a, k, 0)),
        "weighted": (weighted(n, k), lambda *a: _oracle_sorting(*a, k, 1)),
        "partition": (
            partition(n, k),
            _oracle_rows(enumerate_family(n, k, k), k, "greedy"),
        ),
    }
    for target in (1, 2):
        family = enumerate_family(n, k, target)
        for fairness in ("least_used", "uniform", "greedy"):
            cases[f"{target} {fairness}"] = (
                batch_partitioning(n, k, target, fairness),
                _oracle_rows(family, target, fairness),
            )
    seen = {}
    for name, (selector, choose) in cases.items():
        history = np.asarray(rollout(9, selector, online, rounds))
        assert (history == _play(choose, draws)).all(), name
        seen[name] = history
    assert (seen["weighted"] == seen["1 greedy"]).all()
    assert (seen["uniform"] == seen["1 uniform"]).all()
    assert (seen["uniform"] != seen["weighted"]).any()
    assert (seen["1 least_used"] != seen["weighted"]).any()


def test_a_round_on_the_same_words() -> None:
    """The least used block by the first words, the others by the second."""
    selector, key = batch_partitioning(8, 4, 2), as_key(3)
    choose = _oracle_rows(enumerate_family(8, 4, 2), 2, "least_used")
    drawn = jax.jit(lambda key: [client_words(key, 8, word) for word in (0, 1)])(key)
    words = [np.asarray(own) for own in drawn]
    generator, seen = np.random.default_rng(0), set()
    for _ in range(40):
        available, counts = (
            generator.random(8) < 0.8,
            generator.integers(0, 3, 4).repeat(2),
        )
        state = SelectorState(jax.device_put(counts.astype(np.int32)))
        cohort = np.asarray(_select(selector, key, state, jax.device_put(available))[0])
        assert (cohort == choose(counts, available, *words)).all()
        seen.add(cohort.tobytes())
    assert len(seen) > 3


@pytest.mark.long
def test_bernoulli_on_the_same_words() -> None:
    online = availability.independent(np.resize(RATES, 9))
    available, first, _ = _draws(4, online, 100)
    history = rollout(4, bernoulli(9, 0.375), online, 100)
    assert (np.asarray(history) == available & (first < 0.375 * 2**32)).all()


_select = jax.jit(lambda selector, *arguments: selector.select(*arguments))


# ---- distributions


def _row_counts(selector, counts, available, family, draws=6000):  # type: ignore[no-untyped-def]
    """Return how often each row of the family was chosen, over fresh keys."""
    keys = jax.vmap(lambda t: trial_key(as_key(77), t))(
        jnp.arange(draws, dtype=jnp.uint32)
    )
    spread = SelectorState(
        on_device(np.broadcast_to(np.int32(counts)[:, None], (8, draws)))
    )
    online = on_device(
        np.broadcast_to(np.asarray(available, bool)[:, None], (8, draws))
    )
    cohort, state = _select(selector, keys, spread, online)
    assert (
        np.asarray(state.counts) - np.asarray(spread.counts) == np.asarray(cohort)
    ).all()
    code = np.asarray(cohort).T @ (1 << np.arange(8))
    known = family @ (1 << np.arange(8))
    assert np.isin(code, known).all()
    return (code[:, None] == known).sum(0)


EVERYBODY = [1] * 8
NOT_3 = [1, 1, 1, 0, 1, 1, 1, 1]


@pytest.mark.long("least_used-counts0-all", "least_used-counts0-one away")
@pytest.mark.parametrize("available", [EVERYBODY, NOT_3], ids=["all", "one away"])
@pytest.mark.parametrize(
    "counts", [[0] * 8, [3, 3, 1, 1, 1, 1, 2, 2], [1, 1, 0, 0, 2, 2, 1, 1]]
)
@pytest.mark.parametrize("fairness", ["least_used", "uniform", "greedy"])
def test_rows_have_the_papers_chances(
    fairness: selection.Fairness, counts: list[int], available: list[int]
) -> None:
    """(8, 4, 2): chi-square against the law worked out row by row."""
    family = enumerate_family(8, 4, 2)
    blocks, use = family[:, ::2], np.array(counts)[::2]
    whole = np.array(available).reshape(4, 2).all(1)
    rows = [r for r in range(6) if not (blocks[r] & ~whole).any()]
    law = np.zeros(6)
    if fairness == "uniform":
        law[rows] = 1 / len(rows)
    elif fairness == "least_used":
        tied = [g for g in range(4) if whole[g] and use[g] == use[whole].min()]
        for g in tied:
            including = [r for r in rows if blocks[r, g]]
            law[including] += 1 / len(tied) / len(including)
    else:
        best = min(sorted(use[blocks[r]]) for r in rows)
        least = [r for r in rows if sorted(use[blocks[r]]) == best]
        law[least] = 1 / len(least)
    assert math.isclose(law.sum(), 1)
    selector = batch_partitioning(8, 4, 2, fairness)
    observed = _row_counts(selector, counts, available, family)
    assert (observed[law == 0] == 0).all()
    expected = observed.sum() * law[law > 0]
    statistic = ((observed[law > 0] - expected) ** 2 / expected).sum()
    assert statistic < stats.chi2.isf(FALSE_FAILURE, max(len(expected) - 1, 1))


def test_random_selection_is_uniform_over_cohorts() -> None:
    family = enumerate_family(8, 3, 1)
    inside = ~(family & ~np.array(NOT_3, bool)).any(1)
    observed = _row_counts(uniform(8, 3), [5, 0, 1, 0, 0, 9, 2, 2], NOT_3, family)
    assert inside.sum() == math.comb(7, 3)
    assert observed[~inside].sum() == 0
    mean = observed.sum() / inside.sum()
    statistic = ((observed[inside] - mean) ** 2 / mean).sum()
    assert statistic < stats.chi2.isf(FALSE_FAILURE, inside.sum() - 1)


def test_weighted_takes_the_least_used_first() -> None:
    """One client at the minimum, then two of the three at the next count, uniformly."""
    family = enumerate_family(8, 3, 1)
    observed = _row_counts(weighted(8, 3), [0, 4, 1, 1, 1, 9, 2, 2], EVERYBODY, family)
    rows = [
        [i in (0, *pair) for i in range(8)]
        for pair in itertools.combinations((2, 3, 4), 2)
    ]
    hit = np.array([row.tolist() in rows for row in family])
    assert observed[~hit].sum() == 0
    assert ((observed[hit] - 2000) ** 2 / 2000).sum() < stats.chi2.isf(FALSE_FAILURE, 2)


@pytest.mark.long("available0-False")
@pytest.mark.parametrize(
    ("available", "works"),
    [
        ([0] * 8, False),
        ([1, 0] * 4, False),
        ([1, 1, 0, 1, 1, 0, 1, 0], False),
        (NOT_3, True),
    ],
)
def test_skip_rule(available: list[int], works: bool) -> None:
    """Fewer than K/T whole blocks: nobody is asked and the state stays."""
    selector = batch_partitioning(8, 4, 2)
    state = SelectorState(jnp.arange(8, dtype=jnp.int32) // 2)
    cohort, after = _select(selector, as_key(0), state, jnp.asarray(available, bool))
    assert int(cohort.sum()) == (4 if works else 0)
    assert (
        np.asarray(after.counts) - np.asarray(state.counts) == np.asarray(cohort)
    ).all()


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(uniform, (4, 4)), (weighted, (4, 4)), (batch_partitioning, (4, 4, 1))],
)
def test_exactly_enough_and_one_too_few(make: Callable, sizes: tuple[int, ...]) -> None:
    selector = make(*sizes)
    everybody, _ = _select(
        selector, as_key(1), selector.init(), on_device(np.ones(4, bool))
    )
    assert np.asarray(everybody).all()
    nobody, _ = _select(
        selector, as_key(1), selector.init(), on_device([True] * 3 + [False])
    )
    assert not np.asarray(nobody).any()


@pytest.mark.long
def test_one_client() -> None:
    for selector in (
        uniform(1, 1),
        weighted(1, 1),
        partition(1, 1),
        batch_partitioning(1, 1, 1),
    ):
        assert (
            rollout(0, selector, availability.independent(0.0), 3).tolist()
            == [[True]] * 3
        )
        assert (
            rollout(0, selector, availability.independent(1.0), 3).tolist()
            == [[False]] * 3
        )


def _numpy_trial(rng, family, size, rates, rounds):  # type: ignore[no-untyped-def]
    """Algorithm 2 by listing rows, from NumPy's generator.

    Return counts and asked clients.
    """
    counts, asked = np.zeros(len(rates), int), 0
    for _ in range(rounds):
        available = rng.random(len(rates)) >= rates
        rows = np.flatnonzero(~(family & ~available).any(1))
        if rows.size == 0:
            continue
        whole = np.repeat(available.reshape(-1, size).all(1), size)
        least = np.flatnonzero(whole & (counts == counts[whole].min()))
        picked = rng.choice(least)
        cohort = family[rng.choice(rows[family[rows, picked]])]
        counts += cohort
        asked += cohort.sum()
    return counts, asked


@pytest.mark.long
def test_statistics_of_an_independent_simulation() -> None:
    """F, C and each client's share, against Algorithm 2 run by NumPy with its own randomness."""
    n, k, t, rounds, trials = 12, 6, 2, 40, 250
    rates = np.array([0.05, 0.3, 0.1, 0.2, 0.5, 0.1, 0.4, 0.4, 0.1, 0.1, 0.0, 0.3])
    rng = np.random.default_rng(5)
    family = enumerate_family(n, k, t)
    theirs = [_numpy_trial(rng, family, t, rates, rounds) for _ in range(trials)]
    their_counts = np.array([counts for counts, _ in theirs])
    online = availability.independent(rates)
    history = rollout_trials(2, batch_partitioning(n, k, t), online, rounds, trials)
    our_counts = np.asarray(history.sum(1))

    def figures(counts: np.ndarray) -> np.ndarray:
        gap = (counts.max(1) - counts.min(1)) / rounds
        return np.column_stack([gap, counts.sum(1) / rounds, counts[:, ::t] / rounds])

    a, b = figures(our_counts), figures(their_counts)
    spread = np.sqrt((a.var(0) + b.var(0)) / trials)
    z = (a.mean(0) - b.mean(0)) / spread
    assert np.abs(z).max() < stats.norm.isf(FALSE_FAILURE / 2 / z.size)
    assert (spread > 0).all()


@pytest.mark.long
def test_greedy_is_fairer_than_the_papers_rule() -> None:
    """With mixed rates least_used leaves a gap that greedy closes."""
    rates = availability.assign_rates(3, RATES, 60)
    online = availability.independent(rates)
    gap = {
        mode: float(
            selection.fairness_gap(
                rollout(1, batch_partitioning(60, 12, 3, mode), online, 600)
            )[-1]
        )
        for mode in ("least_used", "uniform", "greedy")
    }
    assert gap["greedy"] < 0.03 < gap["least_used"] < gap["uniform"]
