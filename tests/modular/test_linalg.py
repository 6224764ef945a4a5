"""Ranks and row spaces against elimination over the exact rationals."""

import math
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core import prime as prime_field
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.device import compiling_for
from mrsa_jax._core.prime import PRIMES
from mrsa_jax.modular import _blocked, _linalg, rank, rank_trajectory
from mrsa_watch._base.primes import NUM_PRIMES, draw_primes, enough_primes, error_bits


def exact_rank(rows) -> int:
    """Gauss over the rationals, written from the definition."""
    rows = [[Fraction(int(value)) for value in row] for row in rows]
    found = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] / rows[found][column]
            rows[i] = [
                a - factor * b for a, b in zip(rows[i], rows[found], strict=True)
            ]
        found += 1
    return found


# 4 mod 2
FANO = np.array([[(j - i) % 7 in (0, 1, 3) for j in range(7)] for i in range(7)])
HADAMARD = np.array(
    [[(-1) ** bin(i & j).count("1") for j in range(8)] for i in range(8)]
)
ODD_CYCLE = np.array([[int(j in (i, (i + 1) % 5)) for j in range(5)] for i in range(5)])
EVEN_CYCLE = np.array(
    [[int(j in (i, (i + 1) % 6)) for j in range(6)] for i in range(6)]
)
# 3 mod 3
CIRCULANT3 = np.array([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 1.0]], r"`matrix` must hold bools or integers; got \[0.5\]"),
        ([[np.nan, 1.0]], r"`matrix` must hold bools or integers; got \[nan\]"),
        ([[np.inf, 1.0]], r"got \[inf\]"),
        ([["a", "b"]], "must hold bools or integers"),
        ([1, 0], r"`matrix` must have at least 2 axes; got \(2,\)"),
        (np.zeros((0, 3), bool), r"`matrix` must not be empty; got \(0, 3\)"),
        (np.array([[1j, 0]]), "must hold bools or integers"),
    ],
)
def test_rejects_what_is_no_integer_matrix(matrix, message):
    for function in (rank, rank_trajectory):
        with pytest.raises(mj.ConfigurationError, match=message):
            function(matrix)


def test_rejects_fractions_of_a_tracer_by_its_type():
    with pytest.raises(
        mj.ConfigurationError, match=r"must hold bools or integers; got .*float32"
    ):
        jax.jit(rank)(on_device(np.ones((2, 2), np.float32)))


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (FANO, 7),
        (HADAMARD, 8),
        (ODD_CYCLE, 5),
        (EVEN_CYCLE, 5),
        (CIRCULANT3, 4),
        (np.zeros((3, 4), bool), 0),
        ([[0, 0, 0], [1, 1, 0], [1, 1, 0], [2, 2, 0]], 1),
        ([[-1, 1], [1, -1]], 1),
        ([[1.0, 2.0], [2.0, 3.0]], 2),
    ],
)
def test_known_ranks(matrix, expected):
    assert exact_rank(matrix) == expected
    assert int(rank(matrix)) == expected
    assert int(rank(np.asarray(matrix).T)) == expected
    assert int(np.asarray(rank_trajectory(matrix))[-1]) == expected


@pytest.mark.long
def test_primes_that_are_known_beforehand_deceive_nobody():
    p, q = PRIMES
    product = np.diag([p * q, 1])
    assert int(rank(product)) == 2
    assert rank_trajectory(product).tolist() == [1, 2]
    # a wide one, whose rank no number of distinct lines settles
    wide = np.array([[1, 1, 2, 3], [1, 1 + p * q, 2, 3], [2, 2, 4, 6]])
    assert int(rank(wide)) == 2
    assert int(rank(np.diag([p, 1]))) == 2
    assert int(rank(np.diag([q, 1]))) == 2
    assert rank_trajectory(np.diag([p, 1])).tolist() == [1, 2]
    assert rank_trajectory(np.diag([1, q])).tolist() == [1, 2]


def test_a_rank_that_drops_modulo_a_prime_is_raised_by_the_next(monkeypatch):
    monkeypatch.setattr(_linalg, "_drawn_for", lambda _: PRIMES)
    first, second = PRIMES
    cases = [np.diag([first, 1, 1]), np.diag([1, second, 1]), np.ones((3, 3), int)]
    with mj.use_form("loops"):
        assert rank(np.stack(cases)).tolist() == [3, 3, 1]


@pytest.mark.long
def test_a_rank_that_drops_modulo_the_small_prime_is_raised():
    small = _blocked.SMALL_PRIME
    cases = [
        np.diag([small, 1, 1]),
        np.diag([1, 1, 1]),
        np.diag([PRIMES[0], small, 1]),
        np.diag([PRIMES[0] * small, 1, 0]),
        np.ones((3, 3), int),
    ]
    with mj.use_form("xla"):
        assert rank(np.stack(cases)).tolist() == [3, 3, 3, 2, 1]


@pytest.mark.parametrize("small", [3, _blocked.SMALL_PRIME, 8_191])
def test_inverses_modulo_small_primes(small):
    found = prime_field.inverses(small).astype(np.int64)
    assert found[0] == 0
    assert (np.arange(small) * found % small).tolist() == [0, *[1] * (small - 1)]


@pytest.mark.parametrize("form", ["loops", "xla"])
def test_arithmetic_modulo_a_prime_is_exact_on_its_largest_residues(form):
    small = PRIMES[0] if form == "loops" else _blocked.SMALL_PRIME
    # every entry is +-(p // 2) or +-1: products reach the largest values there are
    rng = np.random.default_rng(4)
    half = small // 2
    matrices = rng.choice([-half, half, 1, -1, half - 1], (20, 9, 9))
    matrices[:, 5] = matrices[:, 1] + matrices[:, 3]
    expected = []
    for matrix in matrices:
        rows, found = [[int(v) % small for v in row] for row in matrix], 0
        for column in range(9):
            pivot = next((i for i in range(found, 9) if rows[i][column]), None)
            if pivot is not None:
                rows[found], rows[pivot] = rows[pivot], rows[found]
                inverse = pow(rows[found][column], -1, small)
                for i in range(found + 1, 9):
                    f = rows[i][column] * inverse
                    rows[i] = [
                        (a - f * b) % small
                        for a, b in zip(rows[i], rows[found], strict=True)
                    ]
                found += 1
        expected.append(found)
    if form == "loops":
        assert (
            _linalg.compiled_prefix_ranks(matrices, small)[:, -1].tolist() == expected
        )
    else:
        flags = _blocked.independent_rows(on_device(matrices, jnp.int32), None, 9)
        assert flags.sum(axis=1).tolist() == expected


@pytest.mark.parametrize("form", ["loops", "xla"])
def test_upper_bounds_count_distinct_lines(form):
    def bounds(matrices):
        if form == "loops":
            return _linalg.host_upper_bounds(matrices)
        return _linalg.upper_bounds(_linalg.held(matrices)).tolist()

    assert bounds(np.array([[[1, 1, 0], [1, 1, 2], [1, 1, 3]], [[0] * 3] * 3])) == [
        2,
        0,
    ]
    huge = 10**30  # the smallest entry where no other is 0
    assert bounds(np.array([[[huge, huge], [huge, 2 * huge]]], object)) == [2]
    assert bounds(np.array([[[1, 2], [1, 2], [0, 0]], [[1, 2], [2, 1], [0, 5]]])) == [
        1,
        2,
    ]
    wide = np.zeros((2, 9, 9), bool)
    wide[1, 3, 8] = wide[1, 4, 7] = wide[1, 5, 7] = True
    assert bounds(wide) == [0, 2]
    assert bounds(np.array([[[-(2**70), 0], [2**70, 0]]], dtype=object)) == [1]
    assert bounds(np.array([[[-(2**70), 5], [0, 0]]], dtype=object)) == [1]
    assert bounds(np.array([[[2**70, 5], [7, 2**70]]], dtype=object)) == [2]


def test_entries_of_any_size_and_sign():
    big = np.array([[2**70, 1], [2**71, 2]], dtype=object)
    assert int(rank(big)) == 1
    assert int(rank(np.array([[2**63 - 1, 1], [-(2**63), 1]], np.int64))) == 2
    assert int(rank(np.array([[2**64 - 1, 1], [2**64 - 1, 1]], np.uint64))) == 1
    extremes = np.array([[2**31 - 1, -(2**31)], [-1, 1]], np.int32)
    assert int(rank(extremes)) == exact_rank(extremes) == 2
    assert int(rank(on_device(extremes))) == 2
    for dtype in (jnp.int8, jnp.uint8, jnp.int16, jnp.uint16, jnp.uint32, jnp.bool_):
        assert int(rank(on_device([[1, 1], [0, 1]], dtype))) == 2


@pytest.mark.long
@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_field_operations_against_python_integers(prime, platform):
    """With whole words' upper products, and with those of halves."""
    with compiling_for(platform, 2**15, 2**34):
        check_field_operations(prime)


def check_field_operations(prime):
    rng = np.random.default_rng(3)
    edges = [0, 1, 2, prime - 1, prime - 2, prime // 2, 2**30, 2**16, 2**16 - 1]
    left = np.array(
        [a for a in edges for _ in edges] + list(rng.integers(0, prime, 4000))
    )
    right = np.array(edges * len(edges) + list(rng.integers(0, prime, 4000)))
    a, b = jnp.asarray(left, jnp.uint32), jnp.asarray(right, jnp.uint32)
    field = prime_field.field(prime)
    product = [int(x) * int(y) % prime for x, y in zip(left, right, strict=True)]
    assert prime_field.multiply(a, b, field).tolist() == product
    companions = prime_field.companion(b, field)
    assert companions.tolist() == [int(y) * 2**32 // prime for y in right]
    assert prime_field.scale(a, b, companions, field).tolist() == product
    inverses = [pow(int(x), prime - 2, prime) for x in left]
    assert prime_field.inverse(a, field).tolist() == inverses
    several = jax.jit(prime_field.batch_inverse)(a[:4050].reshape(45, 90), field)
    assert several.ravel().tolist() == inverses[: several.size]


def test_sums_of_up_to_65536_residues():
    """Sums beyond a word, and some next to multiples of one, where it depends on the carry."""
    rng = np.random.default_rng(5)
    total = jax.jit(prime_field.sum_residues)
    for prime in PRIMES:
        rows = rng.integers(0, prime, (6, 2**16))
        rows[0], rows[1] = prime - 1, 0
        rows[2, 1000:] = 0
        for row, bottom in zip(rows[3:], (0, 1, 2**32 - 1), strict=True):
            row[:5] = 0
            lacks = (bottom - int(row.sum())) % 2**32
            row[:5] = [lacks // 5] * 4 + [lacks - lacks // 5 * 4]
            assert int(row.sum()) % 2**32 == bottom
        sums = total(rows.astype(np.uint32), prime_field.field(prime))
        assert sums.tolist() == [sum(row) % prime for row in rows.tolist()]


matrices = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(-3, 3), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@hypothesis.given(matrices)
def test_ranks_of_all_prefixes_equal_the_rationals(rows):
    # zero rows at the end and columns to the right change no rank, and one shape
    # compiles once
    matrix = np.zeros((6, 6), int)
    matrix[: len(rows), : len(rows[0])] = rows
    expected = [exact_rank(matrix[: j + 1]) for j in range(6)]
    assert rank_trajectory(matrix).tolist() == expected
    assert int(rank(matrix)) == expected[-1]


def test_rows_of_a_batch_equal_single_matrices():
    rng = np.random.default_rng(8)
    # not a multiple of what runs at once
    batch = rng.integers(0, 2, (2, 11, 9, 7)).astype(bool)
    batch[0, 0] = False
    ranks = np.asarray(rank(batch))
    assert ranks.shape == (2, 11)
    trajectories = np.asarray(rank_trajectory(batch))
    assert trajectories.shape == (2, 11, 9)
    for index in [(0, 0), (0, 10), (1, 3)]:
        assert ranks[index] == exact_rank(batch[index])
        assert np.array_equal(rank_trajectory(batch[index]), trajectories[index])


def test_jit_and_x64_change_nothing():
    matrix = on_device(FANO)
    assert int(jax.jit(rank)(matrix)) == 7
    with jax.enable_x64(True):
        assert int(rank(FANO.astype(np.int64))) == 7
        assert int(rank(on_device(FANO.astype(np.int64) * 2**40))) == 7
        assert int(rank(on_device(-FANO.astype(np.int64)))) == 7


@pytest.mark.smoke
def test_participation_like_matrices_against_lapack():
    rng = np.random.default_rng(9)
    batch = np.zeros((9, 60, 60), bool)
    for history in batch:
        for row in history:
            row[rng.choice(60, 6, replace=False)] = True
    # blocks of three: rank 20 at most
    batch[0] = np.repeat(batch[0, :, :20], 3, axis=1)
    assert rank(batch).tolist() == [
        np.linalg.matrix_rank(h.astype(float)) for h in batch
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", ["rank", "rank_trajectory"])
def test_compiled_loops_and_array_code_agree(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    batches = [
        rng.random((9, 7, 11)) < 0.3,
        rng.integers(-3, 4, (9, 12, 5)),
        rng.integers(-(2**62), 2**62, (9, 4, 4)),
        np.repeat(rng.integers(0, 2, (20, 6, 5)), 2, axis=2),
    ]
    function = getattr(mj.modular, name)
    for batch in batches:
        compiled = np.asarray(function(batch))
        with monkeypatch.context() as patch:
            patch.setenv("MRSA_JAX_FORM", "xla")
            plain = np.asarray(function(batch))
        np.testing.assert_array_equal(compiled, plain)
        last = plain if name == "rank" else plain[:, -1]
        floats = [np.linalg.matrix_rank(matrix.astype(float)) for matrix in batch]
        np.testing.assert_array_equal(last, floats)


def test_drawn_primes_are_many_different_and_prime():
    first, *others = draw_primes(50)
    assert len({first, *others}) == 50
    assert set(draw_primes(50)).isdisjoint(others)  # but for a chance of 1e-3 / 2800
    for value in (first, *others):
        assert 2**30 < value < 2**32 / 3.5
        assert all(value % factor for factor in range(2, math.isqrt(value) + 1))


@pytest.mark.slow
def test_there_are_as_many_primes_to_draw_as_the_chance_of_error_counts():
    least, most = 2**30, int(2**32 / 3.5)
    found = np.ones(most - least, bool)
    small = np.ones(math.isqrt(most) + 1, bool)
    for factor in range(2, len(small)):
        if small[factor]:
            small[factor * factor :: factor] = False
            found[-least % factor :: factor] = False
    assert found.sum() >= NUM_PRIMES
    assert most == 1_227_133_513


def test_the_chance_of_error_is_that_of_bad_primes_only():
    assert error_bits(215.0, 2) == 39  # (7.2 / 7e6)**2, the rank of 120 clients
    assert error_bits(215.0, 2, 120) == 32
    assert error_bits(1e9, 3) == 0
    for bits, cases in ((215.0, 1), (3e3, 1000), (6e4, 10**6)):
        count = enough_primes(bits, cases)
        assert error_bits(bits, count, cases) >= 30
        assert count == 2 or error_bits(bits, count - 1, cases) < 30
