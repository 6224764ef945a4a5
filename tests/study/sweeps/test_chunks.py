"""Cells written by themselves against zarr: the same files, the same values read back."""

from __future__ import annotations

import os

import numpy as np
import pytest
import zarr

from mrsa_jax.study.sweeps._chunks import CellArray

KINDS = {
    "float64": (np.nan, [[1.5, np.nan, -0.5], [np.nan] * 3, [0.0, 1e300, np.inf]]),
    "float32": (np.nan, [[1.5, 2.0, -0.5], [0.0] * 3, [np.nan] * 3]),
    "int32": (-1, [[3, -1, 2**31 - 1], [-1] * 3, [0] * 3]),
    "bool": (False, [[True, False, True], [False] * 3, [True] * 3]),
    "<U8": ("", [["a", "", "Random"], [""] * 3, ["éü", "b", "c"]]),
}


def pair(tmp_path, dtype, fill, inner=(3,), **options):
    """Two arrays alike: one to be written by zarr, one by us."""
    group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=2)
    arrays = [
        group.create_array(
            name, shape=(2, 4, *inner), chunks=(1, 1, *inner), dtype=dtype, fill_value=fill,
            **options,
        )
        for name in ("theirs", "ours")
    ]  # fmt: skip
    return (*arrays, CellArray(tmp_path / "store" / "ours", 2))


def write(array, index, value):
    array.put(index, array.encoded(value))


def files(tmp_path, name):
    folder = tmp_path / "store" / name
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name[0] != "."}


@pytest.mark.parametrize("options", [{}, {"compressors": None}])
@pytest.mark.parametrize("dtype", list(KINDS))
def test_files_are_those_of_zarr(dtype, options, tmp_path):
    fill, rows = KINDS[dtype]
    theirs, read, ours = pair(tmp_path, dtype, fill, **options)
    for place, row in enumerate(rows):
        theirs[1, place] = np.asarray(row, dtype)
        write(ours, (1, place), row)
    assert files(tmp_path, "ours") == files(tmp_path, "theirs")
    np.testing.assert_array_equal(read[...], theirs[...])
    expected = np.zeros((2, 4), bool)
    expected[1, :3] = [any(one != fill and one == one for one in row) for row in rows]
    np.testing.assert_array_equal(ours.present(), expected)
    assert [ours.has((1, place)) for place in range(4)] == expected[1].tolist()
    # what was there goes where nothing is to be kept
    theirs[1, 0] = np.full(3, fill, dtype)
    write(ours, (1, 0), np.full(3, fill, dtype))
    assert files(tmp_path, "ours") == files(tmp_path, "theirs")
    assert not ours.has((1, 0))


def test_scalars_and_smaller_values(tmp_path):
    _, read, ours = pair(tmp_path, "float64", np.nan, inner=())
    write(ours, (0, 3), 2.5)
    assert read[0, 3] == 2.5
    assert np.isnan(read[0, 2])
    _, read, ours = pair(tmp_path, "int32", -1, inner=(2, 3))
    write(ours, (1, 1), [[7, 8]])
    np.testing.assert_array_equal(read[1, 1], [[7, 8, -1], [-1, -1, -1]])


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    _, read, ours = pair(tmp_path, "int32", -1)
    write(ours, (0, 0), [1, 2, 3])
    before = files(tmp_path, "ours")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write(ours, (0, 0), [4, 5, 6])
    assert files(tmp_path, "ours") == before
    np.testing.assert_array_equal(read[0, 0], [1, 2, 3])


def test_half_written_files_do_not_count(tmp_path):
    _, _, ours = pair(tmp_path, "bool", False, inner=())
    (tmp_path / "store" / "ours" / "0.1.77-5.partial").write_bytes(b"x")
    assert not ours.present().any()
    assert not ours.has((0, 1))


def test_other_arrays_are_refused(tmp_path):
    group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=2)
    group.create_array("x", shape=(4, 3), chunks=(2, 3), dtype="int32", fill_value=-1)
    with pytest.raises(ValueError, match="one chunk a cell"):
        CellArray(tmp_path / "store" / "x", 1)
