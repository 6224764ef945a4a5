"""Robust rules against brute force.

Definitions, breakdown points, absent and infinite blocks.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from fractions import Fraction

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from mrsa_jax import hetero
from mrsa_jax._core.arrays import on_device
from mrsa_jax.hetero._row_kernels import combine_row
from mrsa_jax.study.runs._segments import COMBINE
from mrsa_jax.study.settings._tables import SegmentConfig
from mrsa_watch._base.errors import ConfigurationError

RULES = {
    "weighted_mean": lambda: hetero.robust.weighted_mean(),
    "coordinate_median": lambda: hetero.robust.coordinate_median(),
    "plain_median": lambda: hetero.robust.coordinate_median(weighted=False),
    "trimmed_mean": lambda: hetero.robust.trimmed_mean(0.2),
    "geometric_median": lambda: hetero.robust.geometric_median(60),
    "krum": lambda: hetero.robust.krum(1, 2),
}
BLOCKS, DIM = 6, 3  # one shape, compiled once


def sample(seed: int) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    values = draws.normal(size=(BLOCKS, DIM)).astype(np.float32)
    return values, draws.integers(1, 6, BLOCKS).astype(np.float32)


def median_by_definition(values: np.ndarray, weights: np.ndarray) -> float:
    """Repeat each value as often as it weighs, and take the ordinary median."""
    return float(np.median(np.repeat(values.astype(np.float64), weights.astype(int))))


def trimmed_by_definition(
    values: list[float], weights: list[int], trim: Fraction
) -> float:
    """Cut each unit of weight into parts so small that `trim` is a whole number of them."""
    parts = trim.denominator
    units = np.sort(
        np.repeat(np.asarray(values, np.float64), np.asarray(weights) * parts)
    )
    cut = int(trim * len(units))
    return float(units[cut : len(units) - cut].mean())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: hetero.robust.trimmed_mean(0.5),
            r"`trim` must lie in \[0, 0.5\); got 0.5",
        ),
        (lambda: hetero.robust.trimmed_mean(-0.1), r"`trim` must lie in"),
        (
            lambda: hetero.robust.trimmed_mean(float("nan")),
            "`trim` must be finite; got nan",
        ),
        (lambda: hetero.robust.trimmed_mean(True), "`trim` must be a number; got True"),
        (lambda: hetero.robust.geometric_median(0), "`num_iterations` must lie in"),
        (
            lambda: hetero.robust.geometric_median(5, 0.0),
            "`smoothing` must be a positive float32",
        ),
        (lambda: hetero.robust.krum(-1), "`num_byzantine` must lie in"),
        (lambda: hetero.robust.krum(1, 0), "`num_selected` must lie in"),
        (
            lambda: hetero.robust.krum(2)(np.zeros((6, 1)), np.ones(6)),
            "7 blocks or more for f = 2; got 6",
        ),
        (
            lambda: hetero.robust.krum(1, 5)(np.zeros((5, 1)), np.ones(5)),
            "`num_selected` must be at most n - f = 4 for 5 blocks.*; got 5",
        ),
        (
            lambda: hetero.robust.weighted_mean()([1.0], [1.0]),
            r"`values` must have the shape \[blocks",
        ),
        (
            lambda: hetero.robust.weighted_mean()(np.zeros((0, 2)), []),
            "with a block; got",
        ),
        (
            lambda: hetero.robust.weighted_mean()([[1.0]], [1.0, 2.0]),
            "one entry for each block",
        ),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(ConfigurationError, match=message):
        build()


@pytest.mark.smoke
def test_every_rule_is_in_the_table():
    own_functions = filter(
        inspect.isfunction, map(inspect.unwrap, vars(hetero.robust).values())
    )
    factories = [
        own
        for own in own_functions
        if own.__module__ == hetero.robust.__name__ and not own.__name__.startswith("_")
    ]
    built = {own.__globals__[own.__annotations__["return"]] for own in factories}
    assert {type(rule()) for rule in RULES.values()} == built


def test_weighted_median_by_hand():
    rule = hetero.robust.coordinate_median()
    values = [[0.0], [2.0], [10.0]]
    assert rule(values, [1, 1, 1]).tolist() == [2.0]
    assert rule(values, [3, 1, 1]).tolist() == [0.0]  # more than half at 0
    assert rule(values, [2, 1, 1]).tolist() == [1.0]  # half at 0: the middle of 0 and 2
    assert rule(values, [1, 1, 2]).tolist() == [6.0]
    assert rule(values, [1, 0, 1]).tolist() == [5.0]
    assert hetero.robust.coordinate_median(weighted=False)(
        values, [9, 1, 1]
    ).tolist() == [2.0]
    # equal weights that float32 cannot hold are still equal
    assert rule([[0.0]] * 3 + [[1.0]] * 3, [0.1] * 6).tolist() == [0.5]


@given(
    st.integers(0, 10**6), st.lists(st.integers(0, 5), min_size=BLOCKS, max_size=BLOCKS)
)
def test_medians_are_those_of_repeated_values(seed, weights):
    values = (
        np.random.default_rng(seed).integers(-3, 4, (BLOCKS, DIM)).astype(np.float32)
    )
    own = np.asarray(weights, np.float32)
    found = np.asarray(hetero.robust.coordinate_median()(values, own))
    plain = np.asarray(hetero.robust.coordinate_median(weighted=False)(values, own))
    for column in range(DIM):
        if own.any():
            assert float(found[column]) == median_by_definition(values[:, column], own)
            present = values[own > 0, column]
            assert float(plain[column]) == float(np.median(present))
        else:
            assert float(found[column]) == float(plain[column]) == 0.0


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 5), min_size=BLOCKS, max_size=BLOCKS).filter(any),
    st.sampled_from(
        [Fraction(0), Fraction(1, 10), Fraction(1, 6), Fraction(1, 3), Fraction(2, 5)]
    ),
)
def test_trimmed_means_cut_weight_exactly(seed, weights, trim):
    values = (
        np.random.default_rng(seed).integers(-3, 4, (BLOCKS, DIM)).astype(np.float32)
    )
    found = hetero.robust.trimmed_mean(float(trim))(values, weights)
    expected = [
        trimmed_by_definition(values[:, c].tolist(), weights, trim) for c in range(DIM)
    ]
    np.testing.assert_allclose(np.asarray(found), expected, atol=2e-6)


def test_trimmed_mean_of_equal_weights_is_the_ordinary_one():
    values, _ = sample(1)
    found = hetero.robust.trimmed_mean(1 / 6)(values, np.full(BLOCKS, 7.0))
    np.testing.assert_allclose(
        found, np.sort(values, axis=0)[1:-1].mean(axis=0), rtol=1e-6
    )
    by_weight = hetero.robust.trimmed_mean(0.0)(values, np.arange(1, 7))
    np.testing.assert_allclose(
        by_weight, np.average(values, axis=0, weights=range(1, 7)), 1e-5
    )


@pytest.mark.parametrize("name", ["coordinate_median", "trimmed_mean"])
@given(data=st.data())
def test_bad_blocks_below_the_breakdown_point_stay_within_the_honest_range(name, data):
    """The median up to less than half of the weight, the trimmed mean up to its trim."""
    values, weights = sample(data.draw(st.integers(0, 10**6)))
    rule = (
        hetero.robust.coordinate_median()
        if name == "coordinate_median"
        else hetero.robust.trimmed_mean(1 / 3)
    )
    total = int(weights.sum())
    bad = np.asarray(
        data.draw(st.lists(st.booleans(), min_size=BLOCKS, max_size=BLOCKS))
    )
    while 2 * weights[bad].sum() >= total or (
        name == "trimmed_mean" and 3 * weights[bad].sum() > total
    ):
        bad[np.flatnonzero(bad)[0]] = False
    lies = st.sampled_from([3e38, -3e38, 1e30, 17.0, -0.5, np.inf, -np.inf, np.nan])
    values[bad] = np.reshape(
        data.draw(st.lists(lies, min_size=BLOCKS * DIM, max_size=BLOCKS * DIM)),
        (BLOCKS, DIM),
    )[bad]
    found = np.asarray(rule(values, weights))
    honest = values[~bad]
    # a rounding of the mean may pass the honest range by units in the last place
    margin = 0.0 if name == "coordinate_median" else 1e-6
    assert (found >= honest.min(axis=0) - margin).all()
    assert (found <= honest.max(axis=0) + margin).all()


def test_breakdown_points_are_sharp():
    values = np.asarray([[0.0], [1.0], [1e6], [1e6]], np.float32)
    # 4 of 9
    assert float(hetero.robust.coordinate_median()(values, [2, 3, 2, 2])[0]) == 1.0
    # 4 of 8
    assert float(hetero.robust.coordinate_median()(values, [2, 2, 2, 2])[0]) > 1e5
    assert float(hetero.robust.trimmed_mean(0.4)(values, [3, 3, 2, 2])[0]) <= 1.0
    assert float(hetero.robust.trimmed_mean(0.3)(values, [3, 3, 2, 2])[0]) > 1e5


def total_distance(point: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
    return float(
        (weights * np.linalg.norm(values.astype(np.float64) - point, axis=1)).sum()
    )


@given(st.integers(0, 10**6))
def test_geometric_median_minimizes_total_distance(seed):
    """The sum of distances is convex.

    No point nearby may be better, nor a block itself.
    """
    values, weights = sample(seed)
    found = np.asarray(hetero.robust.geometric_median(300)(values, weights), np.float64)
    cost = total_distance(found, values, weights)
    draws = np.random.default_rng(seed + 1)
    nearby = found + draws.normal(size=(200, DIM)) * 10.0 ** draws.uniform(
        -3, 0, (200, 1)
    )
    candidates = [*nearby, *values.astype(np.float64)]
    assert cost <= min(total_distance(p, values, weights) for p in candidates) * (
        1 + 1e-4
    )


def test_geometric_median_by_hand():

    def rule(points: list[list[float]] | np.ndarray, own: list[int]) -> np.ndarray:
        # more coordinates and blocks change nothing
        rows = np.zeros((BLOCKS, DIM), np.float32)
        rows[: len(points), : len(points[0])] = points
        found = hetero.robust.geometric_median(200)(
            rows, [*own, *[0] * (BLOCKS - len(own))]
        )
        return np.asarray(found)[: len(points[0])]

    corners = [[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 2.0]]
    np.testing.assert_allclose(rule(corners, [1, 1, 1, 1]), [1.0, 1.0], atol=1e-5)
    # a corner that outweighs the others is the median
    np.testing.assert_allclose(rule(corners, [5, 1, 1, 1]), [0.0, 0.0], atol=1e-5)
    # on a line it is the weighted median, weights are counts
    np.testing.assert_allclose(rule([[0.0], [1.0], [9.0]], [1, 3, 1]), [1.0], atol=1e-5)
    # Fermat's point of a triangle sees each pair of corners at 120 degrees
    triangle = np.asarray([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]])
    point = np.asarray(rule(triangle, [1, 1, 1]), np.float64)
    unit = (triangle - point) / np.linalg.norm(triangle - point, axis=1)[:, None]
    for first, second in itertools.combinations(unit, 2):
        assert abs(first @ second + 0.5) < 1e-3


def test_geometric_median_resists_a_far_minority():
    values, weights = sample(4)
    values[:2] = 1e37
    weights[:] = 1
    assert (
        np.abs(np.asarray(hetero.robust.geometric_median(100)(values, weights))).max()
        < 10
    )
    huge = hetero.robust.geometric_median()(
        np.full((2, 3), 3e38, np.float32) * [[1], [-1]], [1, 1]
    )
    assert np.isfinite(np.asarray(huge)).all()


FAR = (
    2.0**-149,
    2.0**-126,
    1e-30,
    1.0,
    1e19,
    1e20,
    1e37,
    9e37,
    1e38,
    3e38,
    3.4028235e38,
    np.inf,
)


def hostile_cases(
    num_bad: int, cases: int = 1500
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, weights and who is bad.

    Good blocks of any scale, bad ones of any other.
    Good blocks have a spread of 2^-110 to 2^124, around 0 or off it; bad ones hold one
    magnitude in all coordinates or another in each, with any sign, now and then
    infinite or no number.
    """
    draws = np.random.default_rng(num_bad)
    spread = 2.0 ** draws.uniform(-110, 124, (cases, 1, 1))
    off = np.where(
        spread < 2.0**110, draws.choice([0.0, 1.0, 10.0], (cases, 1, 1)), 0.0
    )
    centre = off * draws.normal(size=(cases, 1, DIM))
    values = (centre + draws.uniform(-1, 1, (cases, BLOCKS, DIM))) * spread
    one_size = draws.random((cases, 1, 1)) < 0.5
    each, same = (
        draws.choice(FAR, (cases, BLOCKS, DIM)),
        draws.choice(FAR, (cases, 1, 1)),
    )
    lies = np.where(one_size, same, each) * draws.choice(
        [-1.0, 1.0], (cases, BLOCKS, DIM)
    )
    lies[draws.random((cases, BLOCKS)) < 0.05] = np.nan
    is_bad = draws.permuted(np.tile(np.arange(BLOCKS) < num_bad, (cases, 1)), axis=1)
    values = np.where(is_bad[:, :, None], lies, values).astype(np.float32)
    scale = draws.choice([1.0, 7.0, 2.0**-126, 3e38], (cases, 1))
    return values, np.broadcast_to(scale, is_bad.shape).astype(np.float32), is_bad


def good_ranges(
    values: np.ndarray, is_bad: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest value of the good blocks of each case."""
    bad = is_bad[:, :, None]
    return np.where(bad, np.inf, values).min(axis=1), np.where(
        bad, -np.inf, values
    ).max(axis=1)


@pytest.mark.parametrize("num_bad", [1, 2])
@pytest.mark.parametrize("name", ["plain_median", "coordinate_median", "trimmed_mean"])
def test_no_scale_lets_a_minority_out_of_the_good_range(name, num_bad):
    """Nor do weights: their sums reach beyond float32 where each is within."""
    rule = (
        hetero.robust.trimmed_mean(1 / 3) if name == "trimmed_mean" else RULES[name]()
    )
    values, weights, is_bad = hostile_cases(num_bad)
    found = np.asarray(jax.vmap(rule)(on_device(values), on_device(weights)))
    low, high = good_ranges(values, is_bad)
    # devices count what is below 2^-126 as 0
    assert (found >= low - 2.0**-126).all()
    assert (found <= high + 2.0**-126).all()


def weiszfeld(
    values: np.ndarray, start: np.ndarray, num_iterations: int, least: np.ndarray
):
    """Iterate by the definition, float64, blocks of equal weight.

    Nothing leaves its range.
    """
    values, point = values.astype(np.float64), start.astype(np.float64)
    present = np.isfinite(values).all(axis=2)
    values = np.where(present[:, :, None], values, 0.0)
    for _ in range(num_iterations):
        distances = np.linalg.norm(values - point[:, None], axis=2)
        pull = present / np.maximum(distances, least[:, None])
        point = (pull[:, :, None] * values).sum(axis=1) / pull.sum(
            axis=1, keepdims=True
        )
    return point


@pytest.mark.long
@pytest.mark.parametrize("num_bad", [1, 2])
def test_no_scale_takes_the_geometric_median_over(num_bad):
    """It stays within its bound of the good blocks, and is what its definition says.

    With f the total distance, c any point and y0 the start: f(y) <= f(y0), so that
    (1 - 2 a) |y - c| <= 2 (1 - a) r + |y0 - c| for a share a of bad weight and good
    ones within r.
    """
    values, weights, is_bad = hostile_cases(num_bad)
    low, high = good_ranges(values.astype(np.float64), is_bad)
    centre, bad = (low + high) / 2, num_bad / BLOCKS
    good = np.where(is_bad[:, :, None], centre[:, None], values)
    radius = np.linalg.norm(good - centre[:, None], axis=2).max(axis=1)
    rounding = 1e-5 * (radius + np.abs(centre).max(axis=1))
    one_rule = hetero.robust.geometric_median(200)
    for least in (np.full_like(radius, 2.0**-126), 1e-4 * radius):
        numbers = jnp.full(len(least), 200, jnp.int32), jnp.asarray(least, jnp.float32)
        rules = dataclasses.replace(
            one_rule, num_iterations=numbers[0], smoothing=numbers[1]
        )
        found = jax.vmap(lambda own, v, w: own(v, w))(
            rules, *map(jnp.asarray, (values, weights))
        )
        found = np.asarray(found, np.float64)
        start = jax.vmap(hetero.robust.coordinate_median())(
            *map(jnp.asarray, _whole(values))
        )
        begun = np.linalg.norm(np.asarray(start, np.float64) - centre, axis=1)
        bound = (2 * (1 - bad) * (radius + least) + begun) / (1 - 2 * bad)
        assert (np.linalg.norm(found - centre, axis=1) <= bound + rounding).all()
    expected = weiszfeld(values, np.asarray(start), 200, least)
    assert (np.linalg.norm(found - expected, axis=1) <= 100 * rounding).all()


def _whole(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return values, np.isfinite(values).all(axis=2).astype(np.float32)


@pytest.mark.long
def test_one_far_block_leaves_the_geometric_median_among_the_others():
    """Of five or nine.

    Where the start is a block, that block's distance is the smoothing alone.
    """
    corners = [[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [0.1, 0.1]]
    for good in (corners, 2 * corners):
        for far in (9e37, 1e38, 3e38):
            found = hetero.robust.geometric_median()(
                [*good, [far, far]], np.ones(len(good) + 1)
            )
            assert (np.asarray(found) >= 0).all()
            assert (np.asarray(found) <= 0.1).all()


@pytest.mark.long
def test_krum_ranks_what_squares_cannot_hold():
    values, weights, _ = hostile_cases(1)
    weights = np.where(np.isfinite(values).all(axis=2), 1.0, 0.0).astype(np.float32)
    found = np.asarray(
        jax.vmap(hetero.robust.krum(1))(jnp.asarray(values), jnp.asarray(weights))
    )
    for own, present, point in zip(values, weights, found, strict=True):
        chosen = krum_by_definition(own, np.flatnonzero(present).tolist(), 1, 1)
        # devices count what is below 2^-126 as 0
        np.testing.assert_allclose(point, own[chosen[0]], rtol=0, atol=2.0**-126)


def test_a_trim_of_nearly_half_is_the_median():
    """What is left of the weight is rounding, and was nobody's.

    The mean of nobody is 0.
    """
    values, weights = sample(3)
    median = np.asarray(hetero.robust.coordinate_median()(values, weights))
    for trim in (0.4999999, 0.49999999, np.nextafter(0.5, 0)):
        np.testing.assert_array_equal(
            hetero.robust.trimmed_mean(trim)(values, weights), median
        )


def krum_by_definition(
    values: np.ndarray, present: list[int], f: int, m: int
) -> list[int]:
    """Return the chosen blocks from all pairs of distances, never one of f bad ones in all."""
    count = len(present)
    m = min(m, max(count - f, 1))
    nearest = min(max(count - f - 2, 1), count - 1)
    scores = []
    for i in present:
        apart = sorted(
            float(((values[i].astype(np.float64) - values[j]) ** 2).sum())
            for j in present
            if j != i
        )
        scores.append((sum(apart[:nearest]), i))
    return [i for _, i in sorted(scores)[:m]]


@given(
    st.integers(0, 10**6),
    st.lists(st.booleans(), min_size=BLOCKS, max_size=BLOCKS).filter(any),
    st.sampled_from([(0, 1), (1, 1), (1, 2), (0, 6), (1, 5)]),
)
def test_krum_is_its_definition(seed, present, numbers):
    values, weights = sample(seed)
    weights[~np.asarray(present)] = 0
    chosen = krum_by_definition(values, np.flatnonzero(weights).tolist(), *numbers)
    found = hetero.robust.krum(*numbers)(values, weights)
    expected = np.average(
        values[chosen].astype(np.float64), axis=0, weights=weights[chosen]
    )
    np.testing.assert_allclose(np.asarray(found), expected, atol=2e-6)


def test_krum_never_takes_a_far_block_or_an_absent_one():
    values = np.zeros((BLOCKS, DIM), np.float32) + np.arange(BLOCKS)[
        :, None
    ] * np.float32(1e-3)
    values[3] = 1e30
    found = np.asarray(hetero.robust.krum(1, 2)(values, [1, 1, 1, 5, 1, 1]))
    assert (found < 1).all()
    absent = np.asarray(hetero.robust.krum(1, BLOCKS - 1)(values, [0, 0, 1, 0, 0, 0]))
    np.testing.assert_array_equal(absent, values[2])


@pytest.mark.parametrize("num_absent", range(BLOCKS - 3))
def test_krum_never_averages_a_far_block_of_those_present(num_absent):
    """Whatever m is asked for: of n present blocks at most n - f are averaged."""
    values = np.arange(BLOCKS)[:, None] * np.full(DIM, 1e-3, np.float32)
    values[-1] = 1e30
    present = np.arange(BLOCKS) >= num_absent
    for selected in range(1, BLOCKS):
        found = np.asarray(
            hetero.robust.krum(1, selected)(values, present.astype(np.float32))
        )
        assert (found < 1).all(), selected


@pytest.mark.long("geometric_median", "krum")
@pytest.mark.parametrize("name", RULES)
def test_contract(name):
    """Absent blocks may hold anything; jit and vmap change nothing.

    Order of blocks neither.
    """
    rule, (values, weights) = RULES[name](), sample(7)
    assert isinstance(rule, hetero.robust.RobustRule)
    expected = rule(values, weights)
    assert expected.shape == (DIM,)
    assert expected.dtype == jnp.float32
    jitted = jax.jit(lambda own, v, w: own(v, w))
    np.testing.assert_array_equal(
        jitted(rule, on_device(values), on_device(weights)), expected
    )
    turned = np.asarray(rule(values[::-1], weights[::-1]))
    np.testing.assert_allclose(turned, expected, atol=2e-5)
    many = np.asarray(
        jax.vmap(rule)(np.stack([values, 2 * values]), np.stack([weights, weights]))
    )
    np.testing.assert_allclose(many[0], expected, atol=1e-6)
    np.testing.assert_allclose(many[1], rule(2 * values, weights), atol=1e-6)
    spoilt, gone = values.copy(), weights.copy()
    gone[2], clean = 0.0, values.copy()
    spoilt[2], clean[2] = np.nan, 0.0
    np.testing.assert_array_equal(rule(spoilt, gone), rule(clean, gone))
    gone[2] = -1.0
    np.testing.assert_array_equal(rule(spoilt, gone), rule(clean, gone * (gone > 0)))
    np.testing.assert_array_equal(rule(spoilt, np.zeros(BLOCKS)), np.zeros(DIM))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(
            rule(values.astype(np.float64), weights), expected
        )


# rows of values that are not finite, alone or among others
SPOILT = {
    "NaN": [np.nan] * DIM,
    "one NaN": [np.nan, 1.0, 1.0],
    "one infinity": [1.0, np.inf, 1.0],
    "all kinds": [np.nan, np.inf, -np.inf],
}


def combined(name: str, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return what a rule of the table, or one that settings name, makes of blocks."""
    if name in RULES:
        return np.asarray(RULES[name]()(values, weights))
    config = SegmentConfig(trim=0.2, num_byzantine=1)
    counts = on_device(weights.astype(np.int32))
    return np.asarray(
        combine_row(COMBINE[name](config), on_device(values, np.float32), counts)
    )


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("name", [*RULES, *COMBINE])
def test_a_block_that_is_not_finite_is_absent_for_every_rule(name, kind):
    values, weights = sample(8)
    spoilt, gone = values.astype(np.float64), weights.copy()
    spoilt[0] = SPOILT[kind]
    gone[0] = 0.0
    np.testing.assert_array_equal(
        combined(name, spoilt, weights), combined(name, values, gone)
    )
    spoilt[:] = SPOILT[kind]
    np.testing.assert_array_equal(combined(name, spoilt, weights), np.zeros(DIM))


@pytest.mark.parametrize("name", ["weighted_mean", "coordinate_median"])
def test_infinite_weights_count_as_absent(name):
    values, weights = sample(8)
    for infinite in (np.inf, np.nan):
        spoilt, gone = weights.copy(), weights.copy()
        spoilt[1], gone[1] = infinite, 0.0
        np.testing.assert_array_equal(
            RULES[name]()(values, spoilt), RULES[name]()(values, gone)
        )


def test_the_mean_has_no_defence():
    values, weights = sample(8)
    values[0, 0] = 1e30
    found = np.asarray(hetero.robust.weighted_mean()(values, weights))
    assert found[0] > 1e28


@pytest.mark.parametrize("name", RULES)
def test_equal_blocks_come_back(name):
    row = np.asarray([0.25, -3.0, 1e-3], np.float32)
    found = RULES[name]()(np.tile(row, (BLOCKS, 1)), np.asarray([1, 2, 0, 4, 5, 6]))
    np.testing.assert_allclose(np.asarray(found), row, rtol=3e-7)


def test_numbers_compile_nothing_new():
    values, weights = map(on_device, sample(9))
    traced = []

    @jax.jit
    def apply(rule, values, weights):
        traced.append(1)
        return rule(values, weights)

    for trim in (0.1, 0.2, 0.3):
        apply(hetero.robust.trimmed_mean(trim), values, weights)
    assert len(traced) == 1
    for steps, least in ((3, 1e-6), (5, 1e-4)):
        apply(hetero.robust.geometric_median(steps, least), values, weights)
    assert len(traced) == 2
