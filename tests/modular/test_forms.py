"""Every form of the exact linear algebra on one table of cases, against the exact rationals."""

from __future__ import annotations

import sys

import flint
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core import forms
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.prime import PRIMES
from mrsa_jax.modular import _blocked, _linalg, _small_kernel, rank, rank_trajectory

FORMS = ("loops", "xla", "pallas")
SMALL = (_blocked.SMALL_PRIME, _small_kernel.SMALL_PRIME, 8_191)


def exact_ranks(matrix: np.ndarray) -> list[int]:
    """Return the rank of every prefix of a matrix of integers."""
    rows = [[int(value) for value in row] for row in matrix]
    return [int(flint.fmpz_mat(rows[: end + 1]).rank()) for end in range(len(rows))]


def _single() -> np.ndarray:
    edges = [0, 1, -1, 2**31 - 1, -(2**31), *SMALL, PRIMES[0], 2 * SMALL[1]]
    return np.asarray(edges, np.int64)[:, None, None]


def _edges() -> np.ndarray:
    """Integers around multiples of primes, far beyond words, some rows equal or dependent."""
    rng = np.random.default_rng(5)
    primes = [*SMALL, *PRIMES, 2**31 - 1, 2**61 - 1]
    found = np.zeros((12, 5, 9), object)
    for matrix in found:
        rows, columns = rng.integers(1, 6), rng.integers(1, 10)
        for i in range(rows):
            for j in range(columns):
                value = primes[rng.integers(len(primes))] ** int(rng.integers(0, 3))
                matrix[i, j] = int(rng.integers(-1, 2)) * value + int(
                    rng.integers(-1, 2)
                )
        matrix[rows - 1] = matrix[0] * 3 - matrix[rows // 2]
    found[0] = 0
    diagonal = [*SMALL, 1, PRIMES[0] * PRIMES[1]]
    found[1] = 0
    found[1, range(5), range(5)] = diagonal
    return found


def _bools() -> np.ndarray:
    """More rows than columns, many equal; ranks planted by copying columns."""
    rng = np.random.default_rng(6)
    found = rng.random((33, 12, 7)) < 0.4
    found[::3, 6:] = found[::3, :6]
    found[1::3, :, 4:] = found[1::3, :, :3]
    found[0] = False
    found[1] = True
    return found


def _wide(columns: int) -> np.ndarray:
    """A few rows at the widths where a kernel ends, and a rank that falls modulo each prime."""
    rng = np.random.default_rng(columns)
    found = rng.integers(-2, 3, (5, 6, columns)).astype(np.int32)
    found[0, 5] = found[0, 0] - 2 * found[0, 3]
    found[1, :, :-1] = 0  # only the last column is left
    for prime, matrix in zip(SMALL, found[2:], strict=True):
        matrix[4] = matrix[1]
        matrix[4, -1] += prime
    return found


CASES = {
    "1x1": _single(),
    "edges": _edges(),
    "bools": _bools(),
    "127": _wide(127),
    "128": _wide(128),
    "129": _wide(129),
}


@pytest.fixture(scope="module")
def exact() -> dict[str, list[list[int]]]:
    return {
        name: [exact_ranks(m) for m in matrices] for name, matrices in CASES.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_forms_equal_the_rationals(name: str, form: str, exact) -> None:
    matrices = CASES[name]
    with mj.use_form(form):
        assert rank_trajectory(matrices).tolist() == exact[name]
        assert rank(matrices).tolist() == [ranks[-1] for ranks in exact[name]]


@pytest.mark.parametrize("name", CASES)
def test_numpy_takes_what_is_little_until_loops_are_worth_compiling(
    name, exact, monkeypatch
):
    monkeypatch.setattr(_linalg, "_left_to_numpy", [2**19])
    matrices = np.asarray(CASES[name])[:8]
    with monkeypatch.context() as forbidden:
        forbidden.delattr(_linalg, "compiled_prefix_ranks")
        assert rank_trajectory(matrices).tolist() == exact[name][:8]
    _linalg._left_to_numpy[0] = 0
    monkeypatch.delattr(_linalg, "host_prefix_ranks")
    assert rank_trajectory(matrices[:2]).tolist() == exact[name][:2]


@pytest.mark.parametrize("form", ["xla", "pallas"])
def test_small_primes_leave_open_what_they_divide(form: str) -> None:
    # else the cases above would say nothing of drawn primes
    with mj.use_form(form):
        words = _linalg.held(CASES["128"])
        found = np.asarray(_linalg.ranks_modulo(words, None, 5))
        prime = _small_kernel.SMALL_PRIME if form == "pallas" else _blocked.SMALL_PRIME
    own = 2 + SMALL.index(prime)
    expected = [exact_ranks(matrix)[-1] for matrix in CASES["128"]]
    assert found[own] == expected[own] - 1
    assert [found[k] - expected[k] for k in range(5) if k != own] == [0] * 4


@pytest.mark.long
@pytest.mark.parametrize("form", ["xla", "pallas"])
def test_transformed_calls_equal_plain_ones(form: str) -> None:
    bools = jnp.asarray(CASES["bools"][:32])
    expected = rank_trajectory(bools)
    with mj.use_form(form):
        mapped = jax.jit(jax.vmap(rank_trajectory))(bools)
    np.testing.assert_array_equal(mapped, expected)


@pytest.mark.long
def test_shards_are_ranked_apart(checks_varying: bool) -> None:
    bools = jnp.asarray(CASES["bools"][:32])
    expected = rank(bools)
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("parts",))
    part = jax.sharding.PartitionSpec("parts")
    here = jax.device_put(bools, jax.sharding.NamedSharding(mesh, part))
    cut = jax.shard_map(
        rank, mesh=mesh, in_specs=part, out_specs=part, check_vma=checks_varying
    )
    found = jax.jit(cut)(here)
    np.testing.assert_array_equal(found, expected)


def test_chunks_take_every_matrix_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocked, "at_once", lambda kind, item_bytes: 5)  # so 4
    known = np.arange(33 * 2, dtype=np.int32).reshape(33, 2, 1)
    matrices = on_device(known)

    def run(part):
        assert part.shape == (4, 2, 1)
        return part[:, :, 0]

    np.testing.assert_array_equal(
        _blocked.in_chunks(run, matrices, 1, None), known[..., 0]
    )
    some = _blocked.in_chunks(run, matrices, 1, jnp.int32(9))
    np.testing.assert_array_equal(np.asarray(some)[:9], known[:9, :, 0])


def test_sums_that_collide_count_too_many_lines_never_too_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # lines [a, b] and [a + f1, b - f0] have one sum for the factors f0, f1
    first, second = (pow(0x9E3779B1, k, 2**32) for k in (1, 2))
    other = np.asarray([second, -first], np.int64).astype(np.uint32).astype(np.int32)
    shifted = other + np.asarray([1, 0], np.int32)
    lines = np.asarray([[0, 0], [1, 0], shifted, [1, 0], other, [0, 0]], np.int32)
    found = int(np.asarray(jax.jit(_linalg._lines_that_differ)(lines[None]))[0])
    assert 3 <= found <= 4


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    forms._has_triton.cache_clear()
    yield
    forms._has_triton.cache_clear()


def test_array_programs_take_over_where_jax_has_no_triton(
    without_triton, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forms, "platform", lambda: "cuda")
    offered = ("loops", "xla", "pallas")
    assert forms.chosen_form(("xla", "pallas")) == "xla"
    assert forms.chosen_form(offered, np.eye(2)) == "xla"
    with mj.use_form("pallas"):
        assert forms.chosen_form(("xla", "pallas")) == "xla"
    with mj.use_form("loops"):
        assert forms.chosen_form(offered, np.eye(2)) == "loops"
    (said,) = [each for each in caplog.messages if "Triton" in each]
    assert jax.__version__ in said


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_is_the_same_without_triton(without_triton, form: str) -> None:
    with mj.use_form(form):
        assert int(rank([[1, 1, 0], [0, 1, 1], [1, 0, 1]])) == 3
        assert int(rank(np.eye(130, dtype=bool))) == 130
