"""Attackers: what they change and what not, their laws, and how many of them a matrix tolerates."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from fractions import Fraction

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from mrsa_jax import hetero
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_watch._base.errors import ConfigurationError

WHO = np.asarray([False, True, False, True, False])
ATTACKS = {
    "wrong_pads": lambda: hetero.byzantine.wrong_pads(WHO),
    "sign_flip": lambda: hetero.byzantine.sign_flip(WHO, 2.0),
    "scaling": lambda: hetero.byzantine.scaling(WHO, -3.0),
    "little_is_enough": lambda: hetero.byzantine.collusion(WHO, strength=1.0),
    "inner_product": lambda: hetero.byzantine.collusion(WHO, "inner_product", 0.5),
    "gaussian_blocks": lambda: hetero.byzantine.gaussian_blocks(WHO),
}
_key = functools.cache(lambda: jax.random.key(5))


def updates(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(5, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: hetero.byzantine.wrong_pads([0, 1]),
            "`is_byzantine` must be a vector of bools, one for",
        ),
        (
            lambda: hetero.byzantine.wrong_pads([[True]]),
            r"got 'dtype bool, shape \(1, 1\)'",
        ),
        (lambda: hetero.byzantine.wrong_pads(np.zeros(0, bool)), r"shape \(0,\)"),
        (
            lambda: hetero.byzantine.sign_flip(WHO, 0.0),
            "`factor` must be positive; got 0.0",
        ),
        (
            lambda: hetero.byzantine.scaling(WHO, float("inf")),
            "`factor` must be finite; got inf",
        ),
        (
            lambda: hetero.byzantine.scaling(WHO, True),
            "`factor` must be a number; got True",
        ),
        (
            lambda: hetero.byzantine.collusion(WHO, "inner_produkt"),
            "did you mean 'inner_product'",
        ),
        (
            lambda: hetero.byzantine.collusion(WHO, strength=-1.0),
            "`strength` must be positive; got -1.0",
        ),
        (
            lambda: hetero.byzantine.gaussian_blocks(WHO, -0.1),
            "`std` must be at least 0; got -0.1",
        ),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(ConfigurationError, match=message):
        build()


_corrupted = jax.jit(lambda attack, *given: attack.corrupt_updates(*given))


def _sent(attack, updates, mine):
    return _corrupted(attack, _key(), updates, mine)


@pytest.mark.long("wrong_pads")
@pytest.mark.parametrize("name", ATTACKS)
def test_honest_clients_and_untouched_blocks_are_left_alone(name):
    attack, own = ATTACKS[name](), on_device(updates())
    mine, first = attack.mine(on_device(range(5))), on_device(updates()[0])
    np.testing.assert_array_equal(mine, WHO)
    codes = on_device(np.arange(20).reshape(5, 4) % 9, jnp.uint32)
    values = _sent(attack, own, mine)
    residues = attack.corrupt_residues(_key(), codes, jnp.uint32(9), mine)
    average = attack.corrupt_average(_key(), first, jnp.bool_(True))
    untouched = attack.corrupt_average(_key(), first, jnp.bool_(False))
    np.testing.assert_array_equal(np.asarray(values)[~WHO], np.asarray(own)[~WHO])
    np.testing.assert_array_equal(np.asarray(residues)[~WHO], np.asarray(codes)[~WHO])
    np.testing.assert_array_equal(untouched, first)
    assert (values.dtype, residues.dtype, average.dtype) == (
        jnp.float32,
        jnp.uint32,
        jnp.float32,
    )
    # each attack works at one place and is the identity at the others
    changed = (
        not np.array_equal(values, own),
        not np.array_equal(residues, codes),
        not np.array_equal(average, first),
    )
    place = {"wrong_pads": 1, "gaussian_blocks": 2}.get(name, 0)
    assert changed == tuple(number == place for number in range(3))
    nobody = zeros(5, bool)
    np.testing.assert_array_equal(_sent(attack, own, nobody), own)
    np.testing.assert_array_equal(
        attack.corrupt_residues(_key(), codes, jnp.uint32(9), nobody), codes
    )
    eager = attack.corrupt_updates(_key(), own, mine)
    np.testing.assert_allclose(values, eager, rtol=1e-6)


def test_updates_by_hand():
    own, mine = (
        on_device([[1.0, -2.0], [3.0, 2.0], [10.0, 4.0]]),
        on_device([0, 0, 1], bool),
    )
    who = np.asarray(mine)

    def last(attack: hetero.byzantine.Byzantine) -> list[float]:
        return np.asarray(_sent(attack, own, mine))[2].tolist()

    assert last(hetero.byzantine.sign_flip(who)) == [-10.0, -4.0]
    assert last(hetero.byzantine.scaling(who, 0.0)) == [0.0, 0.0]
    # honest means are 2 and 0, deviations 1 and 2
    assert last(hetero.byzantine.collusion(who, strength=1.5)) == [0.5, -3.0]
    assert last(hetero.byzantine.collusion(who, "inner_product", 2.0)) == [-4.0, 0.0]
    everybody = on_device(np.ones(3, bool))
    kept = _sent(hetero.byzantine.collusion(np.ones(3, bool)), own, everybody)
    np.testing.assert_array_equal(kept, own)


def test_colluders_agree_and_slots_follow_ids():
    attack = hetero.byzantine.collusion(WHO, strength=0.7)
    members = on_device([3, 0, 1, 4])
    mine = attack.mine(members)
    assert mine.tolist() == [True, False, True, False]
    sent = np.asarray(_sent(attack, on_device(updates()[:4]), mine))
    np.testing.assert_array_equal(sent[0], sent[2])


def test_attacks_combine():
    both = dataclasses.replace(
        hetero.byzantine.sign_flip(WHO), on_residues=hetero.byzantine.UniformResidues()
    )
    own, mine = on_device(updates()), on_device(WHO)
    codes = on_device(np.full((5, 4), 200, np.uint32))
    sent = np.asarray(_sent(both, own, mine))
    np.testing.assert_array_equal(sent[1], -updates()[1])
    assert (
        np.asarray(both.corrupt_residues(_key(), codes, jnp.uint32(100), mine))[1] < 100
    ).all()


def chi_square_limit(cells: int) -> float:
    """Pass with all but a chance of 1e-6, by Wilson and Hilferty's approximation."""
    freedom = cells - 1
    return freedom * (1 - 2 / (9 * freedom) + 4.7534 * (2 / (9 * freedom)) ** 0.5) ** 3


@pytest.mark.parametrize("modulus", [9, 221, 2**31 - 1, 3 * 2**30, 2**32])
def test_wrong_pads_are_uniform_residues(modulus):
    """Chi-square over 9 equal cells of the ring; false failure 1e-6 for each modulus."""
    width, cells = 18_000, 9
    codes, mine = zeros((2, width), np.uint32), on_device([False, True])
    attack = hetero.byzantine.wrong_pads(np.asarray([False, True]))
    sent = attack.corrupt_residues(_key(), codes, jnp.uint32(modulus % 2**32), mine)
    drawn = np.asarray(sent[1], np.uint64)
    assert drawn.max() < modulus
    edges = [-(-cell * modulus // cells) for cell in range(cells + 1)]
    counts = np.histogram(drawn, np.asarray(edges, np.float64) - 0.5)[0]
    expected = np.diff(edges) / modulus * width
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_limit(cells)


def test_residues_do_not_depend_on_the_round_size():
    attack = hetero.byzantine.wrong_pads(np.ones(5, bool))
    draws = [
        np.asarray(
            attack.corrupt_residues(
                _key(),
                zeros((n, 4), np.uint32),
                jnp.uint32(1000),
                on_device(np.ones(n, bool)),
            )
        )
        for n in (2, 5)
    ]
    np.testing.assert_array_equal(draws[0], draws[1][:2])
    assert not np.array_equal(draws[1][0], draws[1][1])


def test_gaussian_blocks_have_the_papers_deviation():
    """Mean within 4.9 standard errors, variance likewise: false failure 2e-6 in all."""
    width = 40_000
    attack = hetero.byzantine.gaussian_blocks(WHO, 0.1)
    average = on_device(np.full(width, 7.0, np.float32))
    noise = (
        np.asarray(attack.corrupt_average(_key(), average, jnp.bool_(True)), np.float64)
        / 0.1
    )
    assert abs(noise.mean()) < 4.9 / width**0.5
    assert abs((noise**2).mean() - 1) < 4.9 * (2 / width) ** 0.5


def spoils(
    rows: list, bad: set[int], share: Fraction | None, weights: list[int] | None
) -> bool:
    """Say by definition whether groups with attackers in them lose some row of blocks."""
    for row in rows:
        weighs = [sum(weights[g] for g in b) if weights else 1 for b in row]
        spoilt = sum(w for b, w in zip(row, weighs, strict=True) if bad & set(b))
        if 2 * spoilt >= sum(weighs) if share is None else spoilt > share * sum(weighs):
            return True
    return False


def brute_force(
    matrix: np.ndarray,
    share: Fraction | None = None,
    weights: list[int] | None = None,
    sizes: list[int] | None = None,
) -> tuple[int, int]:
    """Return both counts by trying all placements of attackers on groups."""
    rows = hetero.blocks_of(matrix)
    groups = [g for g in range(matrix.shape[1]) if weights is None or weights[g] > 0]
    anywhere, together, safe = 0, 0, True
    for count in range(1, len(groups) + 1):
        for chosen in itertools.combinations(groups, count):
            if spoils(rows, set(chosen), share, weights):
                safe = False
            else:
                together = max(together, sum(sizes[g] if sizes else 1 for g in chosen))
        anywhere = count if safe else anywhere
    return anywhere, together


MATRICES = [
    hetero.segment_matrix(scheme, size, threshold)
    for size in range(2, 9)
    for scheme, thresholds in (("sc", [None]), ("mc", [None]), ("hc", range(1, size)))
    for threshold in thresholds
]


def test_tolerance_misuse_is_named():
    matrix = hetero.segment_matrix("mc", 4)
    for options, message in (
        ({"trim": 0.5}, r"`trim` must lie in \[0, 0.5\); got 0.5"),
        (
            {"weights": [1, 2]},
            "`weights` must have one entry for each group; got 2 and 4",
        ),
        ({"weights": [1, 2, 3, -1]}, "`weights` must be at least 0; got"),
        ({"weights": [0, 0, 0, 0]}, "`weights` must not all be 0"),
        ({"group_sizes": [1, 2, 0, 1]}, "`group_sizes` must be at least 1; got"),
        ({"max_nodes": 0}, "`max_nodes` must be at least 1; got 0"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            hetero.tolerated_byzantine(matrix, **options)


def test_tolerance_of_small_matrices_by_brute_force():
    for matrix in MATRICES:
        found = hetero.tolerated_byzantine(matrix, weighted=False)
        assert found.certified
        assert (found.anywhere, found.together) == brute_force(matrix)
        assert len(found.best_groups) == found.together
        assert not spoils(hetero.blocks_of(matrix), set(found.best_groups), None, None)


def test_blocks_count_by_their_clients_as_the_rules_have_it():
    """One default for both.

    The median that a matrix is said to withstand is the median built.
    """
    for matrix in MATRICES:
        ones = [1] * len(matrix)
        found = hetero.tolerated_byzantine(matrix)
        assert (found.anywhere, found.together) == brute_force(matrix, None, ones)
        sizes = [1 + g % 3 for g in range(len(matrix))]
        found = hetero.tolerated_byzantine(matrix, group_sizes=sizes)
        assert (found.anywhere, found.together) == brute_force(
            matrix, None, sizes, sizes
        )
    chain = hetero.segment_matrix("sc", 4)
    assert hetero.tolerated_byzantine(chain).anywhere == 0
    rule = hetero.robust.coordinate_median()
    for row in hetero.blocks_of(chain):
        heaviest = max(row, key=len)
        values = [[1e6 if block == heaviest else 0.0] for block in row]
        moved = rule(values, [len(block) for block in row])
        assert float(np.asarray(moved)[0]) > 1.0


@pytest.mark.parametrize("share", [Fraction(1, 5), Fraction(1, 3), Fraction(2, 5)])
def test_tolerance_of_trimmed_means_by_brute_force(share):
    for matrix in MATRICES[::3]:
        found = hetero.tolerated_byzantine(matrix, trim=float(share), weighted=False)
        assert found.certified
        assert (found.anywhere, found.together) == brute_force(matrix, share)


@given(
    st.integers(0, len(MATRICES) - 1),
    st.lists(st.integers(0, 4), min_size=8, max_size=8),
    st.lists(st.integers(1, 5), min_size=8, max_size=8),
)
def test_tolerance_by_weight_by_brute_force(number, weights, sizes):
    matrix = MATRICES[number]
    own, clients = weights[: len(matrix)], sizes[: len(matrix)]
    own[0] = max(own[0], 1)
    found = hetero.tolerated_byzantine(matrix, weights=own, group_sizes=clients)
    assert found.certified
    assert (found.anywhere, found.together) == brute_force(matrix, None, own, clients)


def test_tolerance_of_mc_is_the_corrected_law():
    for size in range(2, 40):
        found = hetero.tolerated_byzantine(
            hetero.segment_matrix("mc", size), max_nodes=1
        )
        fewest = (size + 1) // 2 if size % 2 else size // 2
        assert min(found.num_blocks) == fewest
        assert found.anywhere == (fewest - 1) // 2
        # the paper's count, of which n_B is the whole part, is right where 4 divides G
        paper = max(int(np.floor(found.claimed)), 0)
        assert paper <= found.anywhere
        assert paper == found.anywhere or size % 4
    assert hetero.tolerated_byzantine(hetero.segment_matrix("mc", 5)).anywhere == 1


@pytest.mark.smoke
def test_tolerance_of_plain_groups_is_half_of_them():
    found = hetero.tolerated_byzantine([[-1] * 7])
    assert (found.anywhere, found.together, found.certified) == (3, 3, True)


def test_a_search_that_is_cut_short_says_so():
    matrix = hetero.segment_matrix("mc", 24)
    found = hetero.tolerated_byzantine(matrix, max_nodes=50)
    assert not found.certified
    assert found.anywhere <= found.together < found.together_at_most
    # proved by a long search: no six groups
    assert found.together <= 5


def test_the_median_of_averages_holds_below_the_tolerance_and_breaks_at_it():
    """Bad blocks at 1e6, honest ones at 0 and 1: tolerance and rule mean the same."""
    matrix = hetero.segment_matrix("mc", 8)
    limit = hetero.tolerated_byzantine(matrix, weighted=False)
    rule = hetero.robust.coordinate_median(weighted=False)
    moved = {False: [], True: []}
    for bad in itertools.combinations(range(8), limit.anywhere + 1):
        for row in hetero.blocks_of(matrix):
            for attackers in (bad[:-1], bad):
                touched = [bool(set(attackers) & set(block)) for block in row]
                values = [
                    [1e6 if hit else float(n % 2)] for n, hit in enumerate(touched)
                ]
                pad = [[0.0]] * (5 - len(row))
                weights = [1] * len(row) + [0] * len(pad)
                moved[attackers == bad].append(
                    float(np.asarray(rule(values + pad, weights))[0]) > 1
                )
    assert not any(moved[False])
    assert any(moved[True])


@pytest.mark.long("gaussian_blocks", "sign_flip", "wrong_pads")
@pytest.mark.parametrize("name", ATTACKS)
def test_a_round_with_one_attacker_is_saved_by_the_median(name):
    """Experiment 2's round.

    20 clients, 5 groups, one attacker. The median's error is bounded by
    the honest averages' spread; wrong pads and their model ruin the mean.
    """
    who = np.zeros(20, bool)
    who[6] = True
    attack = dataclasses.replace(ATTACKS[name](), is_byzantine=on_device(who))
    layout = hetero.segment_layout("mc", [4] * 5, [256] * 5, 50)
    assert hetero.tolerated_byzantine(layout.matrix, weights=[4] * 5).anywhere == 1
    draws = np.random.default_rng(0).normal(size=(20, 50))
    own = (0.5 + 0.02 * draws).astype(np.float32)
    rule = hetero.robust.coordinate_median()
    mean, median = (
        hetero.aggregate(
            3,
            own,
            layout,
            (-1.0, 1.0),
            combine=combine,
            byzantine=attack,
            fidelity="sets",
        ).update
        for combine in (None, rule)
    )
    honest = own[~who]
    step = 2 / 255
    inside = (median >= honest.min(axis=0) - step) & (
        median <= honest.max(axis=0) + step
    )
    assert bool(np.asarray(inside).all())
    error = np.abs(np.asarray(mean) - 0.5)
    if name in ("wrong_pads", "gaussian_blocks"):
        assert error.max() > 0.15
        assert np.abs(np.asarray(median) - 0.5).max() < 0.1
