"""The kernel of a small prime against an elimination by Python's integers."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.modular import _linalg, _small_kernel

P = _small_kernel.SMALL_PRIME


def flags_by_hand(matrix: np.ndarray, steps: int) -> list[bool]:
    """Flag rows that raise the rank modulo P; from `steps` on they are only compared."""
    basis: list[tuple[int, list[int]]] = []
    flags = []
    for index, values in enumerate(matrix.tolist()):
        row = [int(value) % P for value in values]
        for place, other in basis:
            row = [(a - row[place] * b) % P for a, b in zip(row, other, strict=True)]
        place = next((k for k, value in enumerate(row) if value), None)
        flags.append(place is not None)
        if place is not None and index < steps:
            unit = pow(row[place], -1, P)
            basis.append((place, [value * unit % P for value in row]))
    return flags


def drawn(kind: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(kind) + sum(shape))
    if kind == "bools":
        return rng.random(shape) < 0.3
    if kind == "blocks":  # few distinct columns
        return (rng.random(shape) < 0.2)[..., np.arange(shape[-1]) // 3]
    if kind == "words":
        return rng.integers(-(2**31), 2**31, shape).astype(np.int32)
    if kind == "extremes":  # the largest residues, of either sign
        return rng.choice([P // 2, P // 2 + 1, -(P // 2), 0], shape).astype(np.int32)
    if kind == "bytes":
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.integers(-1, 2, shape).astype(np.int32)


def found(matrices: np.ndarray, steps: int, count: int | None = None) -> list:
    with mj.use_form("pallas"):
        flags = _linalg.independent_rows(_linalg.held(matrices), None, steps, count)
    return np.asarray(flags)[:count].tolist()


def test_flags_equal_an_elimination_by_hand() -> None:
    matrices = drawn("words", 3, 20, 7)
    # seventeen rows of rank 3, then others
    base = drawn("trits", 3, 7) * 100 + drawn("bytes", 3, 7)
    matrices[1, :17] = np.arange(51).reshape(17, 3) % 5 @ base
    matrices[2, 1::2] = matrices[2, ::2]
    matrices[2, 17] = P * np.arange(7)
    assert found(matrices, 20) == [flags_by_hand(each, 20) for each in matrices]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("bools", (2, 120, 120)),
        ("bools", (4, 33, 17)),
        ("blocks", (3, 60, 45)),
        ("extremes", (2, 128, 128)),
        ("bytes", (3, 37, 16)),
        ("trits", (3, 150, 65)),
        ("trits", (5, 1, 1)),
        ("words", (2, 16, 128)),
    ],
)
def test_flags_of_many_shapes(kind: str, shape: tuple[int, ...]) -> None:
    matrices = drawn(kind, *shape)
    expected = [flags_by_hand(each, shape[1]) for each in matrices]
    assert found(matrices, shape[1]) == expected


@pytest.mark.long
@pytest.mark.parametrize("steps", [1, 4, 7, 19])
def test_later_rows_are_only_compared(steps: int) -> None:
    matrices = drawn("trits", 6, 40, 9)
    assert found(matrices, steps) == [flags_by_hand(each, steps) for each in matrices]


@pytest.mark.long
def test_programs_share_the_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    # 3 programs take 3, 2 and 2 of 7; what pads the batch is left out
    monkeypatch.setattr(_small_kernel, "num_programs", lambda threads: 3)
    matrices = drawn("trits", 9, 18, 6)
    expected = [flags_by_hand(each, 18) for each in matrices[:7]]
    assert found(matrices, 18, count=7) == expected


def test_sums_stay_exact() -> None:
    """Residues of every number next to a multiple of P or half-way between two."""
    most = 2**23
    middles = np.arange(-most, most, P)[:, None] + np.asarray([0, P // 2])[None]
    values = (middles[..., None] + np.arange(-2, 3)).ravel()
    values = values[abs(values) < most]
    residues = np.asarray(jax.jit(_small_kernel._centre)(values.astype(np.float32)))
    largest = int(abs(residues).max())
    assert (residues == residues.round()).all()
    assert ((residues.astype(np.int64) - values) % P == 0).all()
    assert largest <= P // 2 + 1
    # float16 holds them, and a sum of sixteen products and what it is added to fits
    assert largest <= 2**11
    assert 16 * largest**2 + 2 * largest < most


def test_inverses() -> None:
    table = _small_kernel._inverses().astype(np.int64)
    shift = len(table) // 2
    units = np.asarray([v for v in range(-(P // 2) - 1, P // 2 + 2) if v])
    assert (units * table[units + shift] % P == 1).all()
    assert table[0] == table[shift] == 0
    assert abs(table).max() == P // 2
