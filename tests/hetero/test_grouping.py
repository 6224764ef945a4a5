"""Rates of clients, groups by rate against all cuts, levels against the bits that they cost."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from mrsa_jax import hetero
from mrsa_watch._base.errors import ConfigurationError


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: hetero.rate_groups([1.0, 2.0, 3.0], 2),
            "two clients for each group; got 2 and 3",
        ),
        (
            lambda: hetero.rate_groups([1.0, 0.0], 1),
            "`rates` must be positive and finite; got 0.0",
        ),
        (
            lambda: hetero.rate_groups([1.0, float("nan")], 1),
            "must be positive and finite; got nan",
        ),
        (
            lambda: hetero.rate_groups([1.0] * 4, 2, method="equals"),
            "did you mean 'equal'",
        ),
        (
            lambda: hetero.rate_groups([1.0] * 4, 2, boundaries=[2.0]),
            r"must leave two clients for each group; got \[4, 0\]",
        ),
        (
            lambda: hetero.rate_groups([1.0] * 6, 3, boundaries=[3.0, 2.0]),
            r"`boundaries` must be num_groups - 1 ascending rates; got \[3.0, 2.0\] "
            r"and 3",
        ),
        (
            lambda: hetero.levels_for_rates([2.0, 1.0]),
            "`rates` must ascend from the slowest",
        ),
        (lambda: hetero.levels_for_rates([1.0], 1), "`slowest_levels` must lie in"),
        (
            lambda: hetero.levels_for_rates([1.0], 2, num_summed=0),
            "`num_summed` must be at least",
        ),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(ConfigurationError, match=message):
        build()


def test_equal_groups_by_hand():
    rates = [9.0, 1.0, 5.0, 2.0, 8.0, 3.0, 7.0]
    assert hetero.rate_groups(rates, 3) == ((1, 3, 5), (2, 6), (0, 4))
    assert hetero.rate_groups([1.0] * 5, 2) == ((0, 1, 2), (3, 4))
    assert hetero.rate_groups([2.0, 1.0], 1) == ((0, 1),)


def test_given_boundaries_by_hand():
    rates = np.asarray([1e6, 5e7, 1e7, 1e6, 1e7, 6e7])
    found = hetero.rate_groups(rates, 3, boundaries=[1e7, 5e7])
    assert found == ((0, 3), (2, 4), (1, 5))
    assert hetero.rate_groups([4.0, 3.0], 1, boundaries=[]) == ((0, 1),)


def squares(groups, rates) -> float:
    logs = np.log(np.asarray(rates))
    return sum(
        float(((logs[list(g)] - logs[list(g)].mean()) ** 2).sum()) for g in groups
    )


@given(st.lists(st.floats(0.1, 100.0), min_size=6, max_size=9), st.integers(1, 3))
def test_natural_groups_have_the_least_squares_of_all_cuts(rates, count):
    found = hetero.rate_groups(rates, count, method="natural")
    assert sorted(client for group in found for client in group) == list(
        range(len(rates))
    )
    assert min(map(len, found)) >= 2
    order = np.argsort(rates, kind="stable").tolist()
    options = []
    for cuts in itertools.combinations(range(1, len(rates)), count - 1):
        ends = [0, *cuts, len(rates)]
        groups = [order[a:b] for a, b in itertools.pairwise(ends)]
        if min(map(len, groups)) >= 2:
            options.append(squares(groups, rates))
    assert squares(found, rates) <= min(options) + 1e-9


@given(st.lists(st.floats(0.1, 100.0), min_size=8, max_size=20), st.integers(1, 4))
def test_groups_ascend_in_rate_and_make_a_layout(rates, count):
    for method in ("equal", "natural"):
        found = hetero.rate_groups(rates, count, method=method)
        for slow, fast in itertools.pairwise(found):
            assert max(rates[i] for i in slow) <= min(rates[i] for i in fast)
        slowest = [min(rates[i] for i in group) for group in found]
        levels = hetero.levels_for_rates(slowest, max_levels=64)
        scheme = "mc" if count > 1 else "groups"
        layout = hetero.segment_layout(scheme, found, levels, 100)
        assert layout.num_participants == len(rates)


def test_natural_groups_of_a_thousand_clients():
    rates = 1e7 / np.random.default_rng(0).lognormal(size=1024)
    groups = hetero.rate_groups(rates, 31, method="natural")
    assert (len(groups), sum(map(len, groups))) == (31, 1024)
    assert squares(groups, rates) <= squares(hetero.rate_groups(rates, 31), rates)


def test_levels_by_hand():
    assert hetero.levels_for_rates([1.0, 2.0, 3.0, 4.0]) == (2, 4, 8, 16)
    assert hetero.levels_for_rates([1.0, 1.0, 1.9]) == (2, 2, 2)
    assert hetero.levels_for_rates([3.0, 9.0], 4) == (4, 64)
    # 0.1 to 0.3 is threefold although 0.3 / 0.1 is less in floating point
    assert hetero.levels_for_rates([0.1, 0.3]) == (2, 8)
    assert hetero.levels_for_rates([1.0, 100.0], max_levels=50) == (2, 50)
    # K_0 is kept where its bits allow for more
    assert hetero.levels_for_rates([1.0, 1.0, 2.0], 5) == (5, 8, 64)


@given(
    st.lists(st.floats(1.0, 10.0), min_size=1, max_size=5).map(sorted),
    st.integers(2, 40),
    st.integers(1, 30),
)
def test_levels_use_what_the_slowest_group_leaves(rates, slowest, summed):
    """No group is slower than the slowest, and none could have a level more."""
    found = hetero.levels_for_rates(rates, slowest, num_summed=summed, max_levels=2**20)
    assert list(found) == sorted(found)

    def seconds(levels: int, rate: float) -> float:
        return int(np.ceil(np.log2(summed * (levels - 1) + 1))) / rate

    time = seconds(slowest, rates[0])
    assert found[0] == slowest
    for levels, rate in zip(found[1:], rates[1:], strict=True):
        assert levels >= slowest
        assert seconds(levels, rate) <= time * (1 + 1e-8)
        assert levels == 2**20 or seconds(levels + 1, rate) > time * (1 - 1e-8)
