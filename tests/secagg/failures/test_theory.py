"""CCESA's closed forms against exact fractions, enumeration and the published numbers."""

import inspect
import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax._core.statistics import binomial_interval

LOG10 = math.log(10.0)
SIZES = range(100, 1001, 100)


def step_rate(total):
    return 1.0 - (1.0 - total) ** 0.25


# ---------------------------------------------------------------- misuse

CALLS = {
    "connection_probability": {"n": 100, "total_dropout_rate": 0.1},
    "reliable_connection_threshold": {"n": 100, "q": 0.1},
    "private_connection_threshold": {"n": 100, "q": 0.1},
    "share_threshold": {"n": 100, "p": 0.5},
    "reliability_bound": {"n": 100, "p": 0.5, "q": 0.1, "t": 10},
    "exact_reliability_union_bound": {"n": 100, "p": 0.5, "q": 0.1, "t": 10},
    "log_reliability_first_moment": {"n": 100, "p": 0.5, "q": 0.1, "t": 10},
    "privacy_bound": {"n": 100, "p": 0.5, "q": 0.1},
    "log_disconnection_probability": {"n": 100, "p": 0.5, "q": 0.1},
    "unmasking_bound": {"n": 100, "p": 0.5, "t": 10},
    "whole_blocks_rate": {
        "num_blocks": 3,
        "block_size": 4,
        "threshold": 7,
        "loss_rate": 0.05,
    },
}
WRONG = {
    "n": [1, 0, -3, 2.5, True, "100", None],
    "p": [-0.1, 1.1, math.nan, math.inf, True, "0.5", None, [0.5, 0.5]],
    "q": [-0.1, 1.1, math.nan, True, None],
    "t": [0, 0.5, -1, math.nan, math.inf, True, None, "3"],
    "total_dropout_rate": [-0.01, 0.5, 0.7, 1.0, math.nan, False, None],
    **{
        key: [0, -3, 2.5, True, None]
        for key in ("num_blocks", "block_size", "threshold")
    },
    "loss_rate": [-0.1, 1.1, math.nan, True, None],
}


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_is_checked_by_name(name):
    # Without the suite's type checks, which would stop a string before we do.
    function = inspect.unwrap(
        getattr(mj.secagg, name, None) or getattr(mj.secagg.failures, name)
    )
    function(**CALLS[name])
    for argument in CALLS[name]:
        for value in WRONG[argument]:
            with pytest.raises(mj.ConfigurationError, match=f"`{argument}` must"):
                function(**CALLS[name] | {argument: value})


def test_no_public_bound_is_left_out_of_the_table():
    modules = (mj.secagg.failures._theory, mj.secagg.failures._theory_exact)
    public = {name for module in modules for name in vars(module)}
    assert public & {*mj.secagg.__all__, *mj.secagg.failures.__all__} == set(CALLS)


def test_a_name_says_whether_a_logarithm_comes_back():
    """What is called a probability is one.

    Only bounds, as documented, and log_... are logs.
    """
    for name, arguments in CALLS.items():
        function = getattr(mj.secagg, name, None) or getattr(mj.secagg.failures, name)
        is_log = name.endswith("_bound") or name.startswith("log_")
        assert is_log == ("atural logarithm" in inspect.getdoc(function)), name
        value = function(**arguments)
        assert value <= 0.0 if is_log else value >= 0.0, name


def test_asymptotic_conditions_need_three_clients_and_half_of_them_to_stay():
    with pytest.raises(mj.ConfigurationError, match=r"`n` must be at least 3; got 2"):
        mj.secagg.connection_probability(2, 0.0)
    with pytest.raises(
        mj.ConfigurationError, match=r"`total_dropout_rate` must be below 0\.5"
    ):
        mj.secagg.connection_probability(100, 0.5)
    with pytest.raises(mj.ConfigurationError, match=r"`q` must be such that"):
        mj.secagg.failures.reliable_connection_threshold(100, step_rate(0.5) + 1e-9)
    assert mj.secagg.connection_probability(10**6, 0.4999) > 1.0
    assert mj.secagg.failures.private_connection_threshold(10, 0.9) == math.inf


def test_numpy_and_jax_scalars_are_numbers():
    import jax.numpy as jnp

    expected = mj.secagg.reliability_bound(100, 0.5, 0.25, 10)
    assert mj.secagg.reliability_bound(
        np.int64(100), np.float32(0.5), 0.25, np.int32(10)
    ) == (expected)
    assert mj.secagg.privacy_bound(50, jnp.float32(0.5), 0) == mj.secagg.privacy_bound(
        50, 0.5, 0
    )


# ---------------------------------------------------------------- the published table

TABLE = {  # q_total: p* to 4 digits, t, log10 of the bounds of Theorems 5 and 6
    0.0: (
        ".6362 .4843 .4109 .3650 .3327 .3083 .2890 .2731 .2598 .2484",
        "43 65 83 98 112 124 136 147 157 167",
        "-1.974 -2.394 -2.783 -3.312 -3.666 -4.199 -4.501 -4.854 -5.282 -5.586",
        "-41.48 -54.92 -66.23 -76.10 -84.98 -93.12 -100.68 -107.79 -114.51 -120.91",
    ),
    0.01: (
        ".6492 .4941 .4193 .3725 .3395 .3146 .2949 .2787 .2651 .2535",
        "44 66 84 100 114 126 138 149 159 169",
        "-1.856 -2.376 -2.825 -3.148 -3.550 -4.122 -4.460 -4.844 -5.301 -5.631",
        "-42.45 -55.97 -67.40 -77.38 -86.36 -94.60 -102.26 -109.46 -116.27 -122.75",
    ),
    0.05: (
        ".7069 .5381 .4565 .4056 .3697 .3426 .3211 .3035 .2887 .2760",
        "47 71 90 106 121 135 147 159 170 180",
        "-1.888 -2.149 -2.610 -3.155 -3.501 -3.775 -4.265 -4.568 -4.935 -5.386",
        "-47.04 -60.75 -72.67 -83.15 -92.60 -101.28 -109.36 -116.95 -124.13 -130.97",
    ),
    0.1: (
        ".7953 .6053 .5136 .4563 .4159 .3854 .3612 .3414 .3248 .3106",
        "51 77 98 116 133 147 161 174 186 198",
        "-2.231 -2.314 -2.624 -2.999 -3.169 -3.690 -3.966 -4.265 -4.613 -4.832",
        "-55.11 -68.55 -81.13 -92.31 -102.45 -111.78 -120.47 -128.65 -136.40 -143.77",
    ),
}


@pytest.mark.parametrize("total", TABLE)
def test_the_whole_table_of_published_settings(total):
    rows = [[float(value) for value in row.split()] for row in TABLE[total]]
    q = step_rate(total)
    for n, p_star, t, theorem5, theorem6 in zip(SIZES, *rows, strict=True):
        p = mj.secagg.connection_probability(n, total)
        assert abs(p - p_star) <= 0.50001e-4
        assert mj.secagg.share_threshold(n, p) == t
        assert (
            abs(mj.secagg.reliability_bound(n, p, q, t) / LOG10 - theorem5)
            <= 0.50001e-3
        )
        assert abs(mj.secagg.privacy_bound(n, p, q) / LOG10 - theorem6) <= 0.50001e-2


def test_rounding_the_threshold_up_is_what_breaks_one_in_a_hundred():
    rounded, real = [], []
    for total in TABLE:
        p, q = mj.secagg.connection_probability(100, total), step_rate(total)
        t = (99 * p + math.sqrt(99 * math.log(99)) + 1.0) / 2.0
        assert math.ceil(t) == mj.secagg.share_threshold(100, p)
        real.append(math.exp(mj.secagg.reliability_bound(100, p, q, t)))
        rounded.append(math.exp(mj.secagg.reliability_bound(100, p, q, math.ceil(t))))
    np.testing.assert_allclose(
        real, [0.00787, 0.00760, 0.00619, 0.00383], atol=0.5001e-5
    )
    np.testing.assert_allclose(rounded[:3], [0.01061, 0.01392, 0.01294], atol=0.5001e-5)


def test_settings_of_the_paper_s_experiments():
    published = {
        (100, 0.0): (0.6362, 43),
        (100, 0.1): (0.7953, 51),
        (300, 0.0): (0.4109, 83),
        (300, 0.1): (0.5136, 98),
        (500, 0.0): (0.3327, 112),
        (500, 0.1): (0.4159, 133),
        (1000, 0.1): (0.3106, 198),
    }
    for (n, total), (p, t) in published.items():
        assert round(mj.secagg.connection_probability(n, total), 4) == p
        assert mj.secagg.share_threshold(n, p) == t
    assert mj.secagg.share_threshold(40, 0.7) == 21
    assert round(mj.secagg.connection_probability(40, 0.0), 3) == 0.894
    assert round(mj.secagg.connection_probability(40, 0.1), 3) == 1.117


@pytest.mark.parametrize(
    ("total", "smallest"),
    [(0.0, 29), (0.01, 31), (0.05, 40), (0.1, 55), (0.2, 117), (0.3, 321), (0.4, 1659)],
)
def test_where_the_connection_probability_is_one(total, smallest):
    assert mj.secagg.connection_probability(smallest, total) <= 1.0
    assert all(
        mj.secagg.connection_probability(n, total) > 1.0 for n in range(3, smallest)
    )


def test_connection_probability_is_the_larger_of_two_theorems():
    for n, total in [(100, 0.1), (30, 0.3), (1000, 0.45)]:
        q = step_rate(total)
        theorems = [
            mj.secagg.failures.reliable_connection_threshold(n, q),
            mj.secagg.failures.private_connection_threshold(n, q),
        ]
        value = mj.secagg.connection_probability(n, total)
        assert value == pytest.approx(max(theorems), rel=1e-12)
    m = math.ceil(100 * (1 - 0.02) ** 3 - math.sqrt(100 * math.log(100)))
    assert mj.secagg.failures.private_connection_threshold(100, 0.02) == math.log(m) / m


# ---- exact fractions, small n

CASES = [
    (n, Fraction(p, 8), Fraction(q, 8))
    for n, p, q in itertools.product((2, 3, 4, 7, 12), (0, 1, 5, 8), (0, 1, 3, 8))
]


def binomial(n, chance):
    return [math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(n + 1)]


def close(log_value, exact):
    """Return whether a natural log is that of an exact fraction."""
    if exact == 0:
        return log_value == -math.inf
    return abs(log_value - math.log(exact)) <= 1e-11 * max(1.0, abs(math.log(exact)))


@pytest.mark.parametrize(("n", "p", "q"), CASES)
def test_privacy_bound_is_theorem_6(n, p, q):
    total = Fraction(0)
    for m, chance in enumerate(binomial(n, (1 - q) ** 3)):
        cuts = sum(
            math.comb(m, k) * (1 - p) ** (k * (m - k)) for k in range(1, m // 2 + 1)
        )
        total += chance * min(Fraction(1), Fraction(cuts))
    assert close(mj.secagg.privacy_bound(n, float(p), float(q)), total)


@pytest.mark.parametrize(("n", "p", "q"), CASES)
def test_reliability_bounds_are_theorem_5_and_its_tail(n, p, q):
    mean = p * (1 - q) ** 4
    tail = binomial(n - 1, mean)
    for t in (1, 2, n - 1, n, n + 3):
        if t < 1:
            continue
        union = min(Fraction(1), n * sum(tail[:t]))
        arguments = (n, float(p), float(q), t)
        assert close(
            mj.secagg.failures.exact_reliability_union_bound(*arguments), union
        )
        bound = mj.secagg.reliability_bound(*arguments)
        x = Fraction(t - 1, n - 1)
        if x > mean:
            assert bound == 0.0
            continue
        # exp(-(n-1) D) as a product of powers, with 0^0 = 1
        power = 1.0
        for a, b in ((x, mean), (1 - x, 1 - mean)):
            power *= float(b / a) ** float((n - 1) * a) if a > 0 else 1.0
        assert math.isclose(math.exp(bound), min(1.0, n * power), rel_tol=1e-11)
        assert (
            bound
            >= mj.secagg.failures.exact_reliability_union_bound(*arguments) - 1e-12
        )


@pytest.mark.parametrize(("n", "p", "q"), CASES)
def test_first_moment_counts_the_clients_whose_secret_is_lost(n, p, q):
    kept = 1 - q
    tail = binomial(n - 1, p * kept**4)
    for t in (1, 2, 3, n):
        own = kept**4 * sum(tail[: t - 1])
        lost = kept**3 * q * sum(tail[:t])
        earlier = kept**2 * q * (sum(tail[:t]) - (1 - p * kept**3) ** (n - 1))
        value = mj.secagg.failures.log_reliability_first_moment(
            n, float(p), float(q), t
        )
        assert close(value, n * (own + lost + earlier))
        bound = mj.secagg.failures.exact_reliability_union_bound(
            n, float(p), float(q), t
        )
        assert min(0.0, value) <= bound + 1e-12


@pytest.mark.parametrize(("n", "p"), sorted({(n, p) for n, p, _ in CASES}))
def test_unmasking_bound_is_the_tail_of_a_degree(n, p):
    degrees = binomial(n - 1, p)
    for t in (1, 1.5, 2, n / 2, n):
        if t >= 1:
            exact = min(
                Fraction(1), n * sum(d for k, d in enumerate(degrees) if 2 * t <= k + 1)
            )
            assert close(mj.secagg.failures.unmasking_bound(n, float(p), t), exact)


def connected_chances(n, p):
    """Gilbert's recurrence in exact fractions."""
    together = [Fraction(1), Fraction(1)]
    for m in range(2, n + 1):
        lost = (
            math.comb(m - 1, k - 1) * together[k] * (1 - p) ** (k * (m - k))
            for k in range(1, m)
        )
        together.append(1 - sum(lost))
    return together


@pytest.mark.parametrize(("n", "p", "q"), CASES)
def test_disconnection_is_exact_and_between_its_bounds(n, p, q):
    together = connected_chances(n, p)
    arrive = binomial(n, (1 - q) ** 3)
    exact = sum(a * (1 - c) for a, c in zip(arrive, together, strict=True))
    arguments = (n, float(p), float(q))
    value = mj.secagg.failures.log_disconnection_probability(*arguments)
    assert close(value, exact)
    assert value <= mj.secagg.privacy_bound(*arguments) + 1e-12


def test_disconnection_by_enumerating_all_graphs_on_five_vertices():
    pairs = list(itertools.combinations(range(5), 2))
    connected = Fraction(0)
    p = Fraction(2, 7)
    for chosen in itertools.product((0, 1), repeat=len(pairs)):
        reached = {0}
        edges = [pair for pair, there in zip(pairs, chosen, strict=True) if there]
        for _ in range(4):
            reached |= {v for edge in edges for v in edge if reached & set(edge)}
        if len(reached) == 5:
            connected += p ** sum(chosen) * (1 - p) ** (10 - sum(chosen))
    assert close(
        mj.secagg.failures.log_disconnection_probability(5, 2 / 7, 0.0), 1 - connected
    )


@pytest.mark.long
def test_disconnection_keeps_its_digits_in_both_tails():
    for n, p in [(60, Fraction(1, 500)), (60, Fraction(9, 10)), (90, Fraction(1, 20))]:
        exact = 1 - connected_chances(n, p)[n]
        assert close(
            mj.secagg.failures.log_disconnection_probability(n, float(p), 0.0), exact
        )


# ---------------------------------------------------------------- properties and edges


@pytest.mark.smoke("0.1")
@pytest.mark.parametrize("total", TABLE)
def test_bounds_are_ordered_at_the_published_settings(total):
    q = step_rate(total)
    for n in (100, 400):
        p = mj.secagg.connection_probability(n, total)
        t = mj.secagg.share_threshold(n, p)
        chernoff = mj.secagg.reliability_bound(n, p, q, t)
        tail = mj.secagg.failures.exact_reliability_union_bound(n, p, q, t)
        assert (
            mj.secagg.failures.log_reliability_first_moment(n, p, q, t)
            < tail
            < chernoff
        )
        assert 0.5 < (chernoff - tail) / LOG10 < 1.5  # about a decade
        hoeffding = math.log(n) - 2.0 * math.log(n - 1)  # Proposition 1
        assert mj.secagg.failures.unmasking_bound(n, p, t) < hoeffding


def test_bounds_are_monotone():
    q = 0.02
    chances = np.linspace(0.4, 1.0, 13)
    by_p = [
        [mj.secagg.reliability_bound(60, p, q, 20) for p in chances],
        [
            mj.secagg.failures.exact_reliability_union_bound(60, p, q, 20)
            for p in chances
        ],
        [mj.secagg.privacy_bound(60, p, q) for p in chances],
        [mj.secagg.failures.log_disconnection_probability(60, p, q) for p in chances],
    ]
    for values in by_p:
        assert np.all(np.diff(values[:-1]) <= 0.0)
    by_t = [mj.secagg.reliability_bound(60, 0.7, q, t) for t in np.linspace(1, 61, 40)]
    assert np.all(np.diff(by_t) >= 0.0)
    assert by_t[-1] == 0.0


def test_theorem_5_as_printed_is_far_below_the_truth_outside_its_domain():
    """At n = 100, p = .3, t = 51: 27 shares are expected where 50 are needed."""
    share, printed = 50 / 99, []
    for q in (step_rate(0.1), 0.1):
        kept = 0.3 * (1 - q) ** 4
        divergence = share * math.log(share / kept)
        divergence += (1 - share) * math.log((1 - share) / (1 - kept))
        printed.append(100 * math.exp(-99 * divergence))
        assert stats.binom.sf(49, 99, kept) < 1e-5  # one client's secret is rebuilt
        assert mj.secagg.reliability_bound(100, 0.3, q, 51) == 0.0
    assert [f"{value:.1e}" for value in printed] == ["4.7e-04", "6.9e-09"]


def test_edges_of_the_domain():
    secagg = mj.secagg
    # nobody is ever lost
    assert secagg.reliability_bound(100, 1.0, 0.0, 51) == -math.inf
    assert secagg.reliability_bound(100, 1.0, 0.0, 100) == 0.0
    assert secagg.reliability_bound(100, 0.0, 0.0, 1) == 0.0
    assert (
        secagg.failures.exact_reliability_union_bound(100, 0.3, step_rate(0.1), 51)
        == 0.0
    )
    assert secagg.privacy_bound(100, 1.0, 0.3) == -math.inf
    assert secagg.privacy_bound(100, 0.3, 1.0) == -math.inf  # nobody's input arrives
    assert secagg.privacy_bound(100, 0.0, 0.0) == 0.0
    assert secagg.privacy_bound(2, 0.25, 0.0) == 0.0  # b_2 = 1.5
    assert secagg.failures.unmasking_bound(100, 1.0, 50) == 0.0
    assert secagg.failures.unmasking_bound(100, 1.0, 51) == -math.inf
    assert secagg.share_threshold(2, 0.0) == 1
    assert secagg.share_threshold(2, 1.0) == 1


def test_small_chances_have_logarithms_where_floats_end():
    assert mj.secagg.privacy_bound(3000, 0.3, 0.01) < -900.0
    assert mj.secagg.failures.log_disconnection_probability(
        1000, 0.9, 0.0
    ) == pytest.approx(math.log(1000) + 999 * math.log(0.1), abs=1e-9)
    assert mj.secagg.reliability_bound(5000, 0.9, 0.0, 100) < -5000.0


# ---------------------------------------------------------------- binomial intervals


def test_intervals_are_those_of_scipy():
    from scipy.stats import beta

    rng = np.random.default_rng(0)
    for trials in [1, 7, 100, 12_345, 10**8]:
        counts = {0, 1, trials - 1, trials, trials // 2, int(rng.integers(trials + 1))}
        for count in counts:
            for level in (0.95,) if trials > 100 else (0.95, 0.999):
                tail = (1 - level) / 2
                lower = beta.ppf(tail, count, trials - count + 1) if count else 0.0
                upper = (
                    beta.ppf(1 - tail, count + 1, trials - count)
                    if count < trials
                    else 1.0
                )
                found = binomial_interval(count, trials, level)
                np.testing.assert_allclose(found, [lower, upper], rtol=1e-7)


@pytest.mark.smoke
def test_intervals_cover_exactly_as_promised():
    trials, level = 30, 0.9
    ends = [binomial_interval(count, trials, level) for count in range(trials + 1)]
    for chance in np.linspace(0.01, 0.99, 50):
        pmf = stats.binom.pmf(np.arange(trials + 1), trials, chance)
        covered = sum(
            m for m, (low, high) in zip(pmf, ends, strict=True) if low <= chance <= high
        )
        assert covered >= level - 1e-12


def test_interval_of_nothing_seen_has_a_closed_form():
    for trials in (10, 10**4, 10**6):
        lower, upper = binomial_interval(0, trials)
        assert lower == 0.0
        assert upper == pytest.approx(-math.expm1(math.log(0.025) / trials), rel=1e-9)


# ---- rounds of clients who keep blocks


@pytest.mark.parametrize(
    ("setting", "known"),
    [
        ((3, 4, 7, 0.05, 1 - 0.98**2), 0.8957),
        ((3, 4, 7, 0.02, 1 - 0.99**2), 0.9808),
        ((8, 3, 13, 0.05, 1 - 0.98**2), 0.9806),
        ((10, 10, 51, 0.01, 1 - 0.995**2), 0.9987),
        ((2, 3, 4, 0.0, 0.0), 1.0),
        ((2, 3, 7, 0.0, 0.0), 0.0),
        ((2, 3, 4, 1.0, 0.0), 0.0),
    ],
)
def test_rounds_of_whole_blocks_that_work(setting, known):
    assert round(mj.secagg.failures.whole_blocks_rate(*setting), 4) == known


def test_a_block_of_one_client_gives_no_sum_alone():
    """By hand: of two blocks of one client, both must stay."""
    assert mj.secagg.failures.whole_blocks_rate(2, 1, 1, 0.5) == pytest.approx(0.25)
    assert mj.secagg.failures.whole_blocks_rate(1, 1, 1, 0.0) == 0.0


@pytest.mark.long
def test_rounds_of_whole_blocks_work_as_often_as_simulated():
    """Twelve thousand rounds of the array form, each client lost at each step by chance."""
    trials, n = 12_000, 12
    rng = np.random.default_rng(0)
    stays = np.stack(
        [np.ones((trials, n), bool)] * 3
        + [rng.random((trials, n)) > 0.05, rng.random((trials, n)) > 1 - 0.98**2],
        axis=1,
    )
    rule = mj.secagg.graph_rule(
        mj.graphs.complete(n), n, policy="drop_block", blocks=4, keeps_blocks=True
    )
    decide = jax.jit(jax.vmap(lambda row: rule.learn(jax.random.key(0), row).status))
    works = int(
        (np.asarray(decide(np.logical_and.accumulate(stays, axis=1))) == 0).sum()
    )
    low, high = binomial_interval(works, trials, 1 - 1e-6)
    assert low < mj.secagg.failures.whole_blocks_rate(3, 4, 7, 0.05, 1 - 0.98**2) < high
    assert high - low < 0.04


def test_bounds_in_a_program_are_theirs_and_so_are_their_slopes():
    def slope(bound, at, place):
        moved = [list(at), list(at)]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        return (bound(*moved[0]) - bound(*moved[1])) / 2e-6

    with jax.enable_x64(True):
        for bound, points in (
            (lambda p, q: mj.secagg.privacy_bound(40, p, q), [(0.3, 0.02), (0.1, 0.2)]),
            (
                lambda p, q, t: mj.secagg.reliability_bound(40, p, q, t),
                [(0.7, 0.01, 15.3), (0.5, 0.1, 2.0)],
            ),
        ):
            traced = jax.jit(jax.value_and_grad(bound, range(len(points[0]))))
            for at in points:
                value, slopes = traced(*at)
                assert float(value) == pytest.approx(bound(*at), rel=1e-12)
                for place, own in enumerate(slopes):
                    assert float(own) == pytest.approx(
                        slope(bound, at, place), rel=1e-6, abs=1e-8
                    )
        assert (
            float(
                jax.jit(lambda p: mj.secagg.reliability_bound(100, p, 0.026, 51))(0.3)
            )
            == 0.0
        )
    with pytest.raises(mj.ConfigurationError, match="`n` must be at most 4096"):
        jax.jit(lambda p: mj.secagg.privacy_bound(5000, p, 0.1))(0.3)
