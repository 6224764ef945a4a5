"""Privacy levels.

Misuse, cases by hand, brute force over all unions, and the corrected laws.
"""

import collections
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mrsa_jax import hetero
from mrsa_watch._base.errors import ConfigurationError


def most_learned(matrix):
    """Return the most segments that any proper union gives away, by trying all of them."""
    columns = len(matrix[0])
    # without the last group: complements count as well
    unions = np.arange(1, 2 ** (columns - 1))
    inside = (unions[:, None] >> np.arange(columns)) & 1
    learned = np.zeros(len(unions), int)
    for row in np.asarray(matrix):
        whole = np.ones(len(unions), bool)
        for label in set(row.tolist()) - {-1}:
            block = inside[:, row == label]
            whole &= (block == block[:, :1]).all(axis=1)
        learned += whole
    return int(learned.max())


def random_partitions(rng, segments, columns, most_blocks):
    matrix = np.full((segments, columns), -1)
    for row in matrix:
        names = rng.integers(0, most_blocks, columns)
        for name in range(most_blocks):
            block = np.flatnonzero(names == name)
            if len(block) > 1:
                row[block] = block[0]
    return matrix


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hetero.privacy_level([[0.5]]), "`matrix` must hold integers"),
        (
            lambda: hetero.privacy_report([[0, 0]], budget=-1),
            "`budget` must be at least 0; got -1",
        ),
        (lambda: hetero.claimed_privacy_level("mcc", 5), "did you mean 'mc'"),
        (
            lambda: hetero.claimed_privacy_level("mc", 1),
            "`num_groups` must be at least 2; got 1",
        ),
        (
            lambda: hetero.scheme_privacy_level("hc", 5),
            "`hybrid_threshold` must be given for",
        ),
        (
            lambda: hetero.scheme_privacy_level("sc", 5, 2),
            "`hybrid_threshold` must be given for",
        ),
        (
            lambda: hetero.scheme_privacy_level("hc", 5, 5),
            "`hybrid_threshold` must lie in",
        ),
    ],
)
def test_misuse_names_argument_rule_and_value(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call()


@pytest.mark.smoke
def test_cases_by_hand():
    assert hetero.privacy_level([[-1]]) == 1.0  # no proper union at all
    assert hetero.privacy_level([[-1, -1, -1]]) == 0.0  # plain multi-group sums
    assert hetero.privacy_level([[0, 0, 0]]) == 1.0  # one sum of everybody
    # each row gives another group away, {0} only in the second
    assert hetero.privacy_level([[0, 0, -1], [-1, 1, 1]]) == 0.5
    # {0, 1} in rows 0 and 1, though no single group is given away twice
    report = hetero.privacy_report([[0, 0, 2, 2], [0, 0, -1, -1], [0, 1, 0, 1]])
    assert (report.level, report.groups, report.learned) == (
        Fraction(1, 3),
        (0, 1),
        (0, 1),
    )


def test_the_papers_own_six_groups_give_half_away():
    report = hetero.privacy_report(hetero.segment_matrix("mc", 6))
    assert (
        report.level
        == Fraction(1, 2)
        < hetero.claimed_privacy_level("mc", 6)
        == Fraction(2, 3)
    )
    assert report.groups in ((0, 2, 4), (1, 3, 5))
    assert report.learned == (1, 3, 5)


def test_the_claims_of_theorems_1_and_3():
    claim = hetero.claimed_privacy_level
    claims = [claim("sc", 5), claim("mc", 5), claim("hc", 5, 2), claim("mc", 8)]
    assert claims == [Fraction(2, 5), Fraction(4, 5), Fraction(3, 5), Fraction(3, 4)]


@pytest.mark.parametrize("size", range(2, 13))
def test_every_scheme_to_twelve_groups_against_brute_force(size):
    cases = [
        ("sc", None),
        ("mc", None),
        *(("hc", threshold) for threshold in range(1, size)),
    ]
    for scheme, threshold in cases:
        matrix = hetero.segment_matrix(scheme, size, threshold)
        truth = 1 - Fraction(most_learned(matrix), size)
        report = hetero.privacy_report(matrix)
        assert report.level == report.guaranteed == truth, (scheme, threshold)
        assert report.certified
        assert hetero.scheme_privacy_level(scheme, size, threshold) == truth, (
            scheme,
            threshold,
        )


@pytest.mark.smoke("34")
@pytest.mark.parametrize("seed", range(40))
def test_random_matrices_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    columns, segments = int(rng.integers(2, 11)), int(rng.integers(1, 25))
    matrix = random_partitions(
        rng, segments, columns, int(rng.integers(1, columns + 3))
    )
    truth = most_learned(matrix) if columns > 1 else 0
    report = hetero.privacy_report(matrix)
    assert len(report.learned) == truth
    assert report.level == 1 - Fraction(truth, segments)
    # the union is a witness: no block of a learnt segment has groups on both sides
    assert 0 < len(report.groups) < columns
    inside = set(report.groups)
    for segment in report.learned:
        for block in hetero.blocks_of(matrix)[segment]:
            assert inside >= set(block) or inside.isdisjoint(block)


@pytest.mark.parametrize(
    ("scheme", "size", "threshold"),
    [
        ("sc", 64, None),
        ("mc", 64, None),
        ("mc", 61, None),
        ("mc", 63, None),
        ("mc", 49, None),
        ("hc", 45, 4),
        ("hc", 45, 15),
        ("hc", 45, 20),
        ("hc", 64, 2),
        ("hc", 64, 60),
        ("hc", 61, 7),
        ("hc", 40, 13),
    ],
)
def test_the_laws_of_many_groups_against_the_search(scheme, size, threshold):
    report = hetero.privacy_report(hetero.segment_matrix(scheme, size, threshold))
    assert report.certified
    assert report.level == hetero.scheme_privacy_level(scheme, size, threshold)


@pytest.mark.slow
@pytest.mark.parametrize("size", range(13, 65))
def test_every_threshold_of_hybrid_chains_against_the_search(size):
    for threshold in range(1, size):
        report = hetero.privacy_report(hetero.segment_matrix("hc", size, threshold))
        assert report.level == hetero.scheme_privacy_level("hc", size, threshold), (
            threshold
        )


def test_the_law_of_hybrid_chains_is_no_more_than_a_search_beyond_its_check():
    level = hetero.scheme_privacy_level("hc", 67, 60)
    assert level == Fraction(7, 67)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 12))
def test_a_search_that_stops_early_bounds_the_level_from_both_sides(seed, budget):
    matrix = random_partitions(np.random.default_rng(seed), 8, 7, 5)
    report = hetero.privacy_report(matrix, budget=budget)
    truth = 1 - Fraction(most_learned(matrix), 8)
    assert report.guaranteed <= truth <= report.level
    assert len(report.learned) == 8 * (1 - report.level)
    assert not report.certified or report.level == truth


def test_a_search_without_budget_says_so():
    report = hetero.privacy_report(hetero.segment_matrix("mc", 36), budget=3)
    assert not report.certified
    assert report.guaranteed < Fraction(1, 2) <= report.level


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_the_order_of_groups_and_segments_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    matrix = random_partitions(rng, 6, 6, 4)
    order, rows = rng.permutation(6), rng.permutation(6)
    renamed = np.full_like(matrix, -1)
    for to, row in enumerate(rows):
        for block in hetero.blocks_of(matrix)[row]:
            columns = sorted(
                int(np.flatnonzero(order == column)[0]) for column in block
            )
            if len(columns) > 1:
                renamed[to, columns] = columns[0]
    assert hetero.privacy_level(renamed) == hetero.privacy_level(matrix)


@pytest.mark.parametrize("chance", [0.5, 0.2])
def test_sums_of_two_levels_that_reveal_all_codes(chance: float) -> None:
    """By all codes of a block: those that no others have the sum of."""
    layout = hetero.segment_layout("mc", [[0, 1], [2, 3], [4, 5, 6]], [2, 4, 16], 9)
    report = hetero.privacy_report(layout, chance=chance)
    assert report.level == hetero.privacy_report(layout.matrix).level
    blocks = [block for block in layout.blocks if block.num_levels == 2]
    assert len(blocks) < len(layout.blocks)
    expected = []
    for block in blocks:
        count = len(block.members)
        codes = list(itertools.product((0, 1), repeat=count))
        totals = collections.Counter(map(sum, codes))
        rate = sum(
            chance ** sum(code) * (1 - chance) ** (count - sum(code))
            for code in codes
            if totals[sum(code)] == 1
        )
        expected.append((block.segment, count, pytest.approx(rate)))
    assert list(report.two_level_sums) == expected
    assert hetero.privacy_report(layout.matrix).two_level_sums == ()
    with pytest.raises(ConfigurationError, match="`chance` must lie in"):
        hetero.privacy_report(layout, chance=1.5)
