"""What a sweep shows, from records that overlap, lack trials or are of other lengths."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np
import pytest
import xarray as xr

from mrsa_jax.study.stores import _view
from mrsa_jax.study.stores._records import Log, framed
from mrsa_jax.study.stores._view import CELL, View, _blocks

KEYS = ["k0", "k1", "k2", "", "k1"]
TRIALS = [4, 2, 3, 0, 3]


def view_of(folder: pathlib.Path) -> View:
    cells = np.zeros(5, CELL)
    cells["key"], cells["trials"] = KEYS, TRIALS
    np.save(folder / "cells.npy", cells)
    shown = {
        "axes": ["a"],
        "shape": [5],
        "cells": "cells.npy",
        "kept": [],
        "inner": {"trial": 4, "round": 3},
        "coordinates": [
            ["a", "a", [1, 2, 3, 4, 5], {"field": "a"}],
            ["long", "a", list("vwxyz"), {"field": "b"}],
        ],
        "variables": [
            ["rank", ["trial"], "int32", "1", "x"],
            ["path", ["trial", "round"], "float64", "1", "x"],
            ["short", ["trial"], "int8", "1", "x"],
            ["mean", [], "float64", "1", "x"],
            ["label", [], "<U8", "1", "x"],
        ],
        "stored": {"mean": "mean_found"},
    }
    return View(folder, {"command": "sweep", "view": shown})


def value(key: str, trials: np.ndarray) -> dict[str, Any]:
    own = 10 * int(key[1:]) + trials
    # of two rounds, where others have three
    paths = own[:, None] + np.array([0.25, 0.5])
    return {
        "rank": own.astype(np.int32),
        "path": paths,
        "mean": np.float64(key[1:]),
        "short": own.astype(np.int8),
        "label": np.asarray(f"of {key}"),
    }


def record(log: Log, key: str, first: int, count: int) -> None:
    header = {
        "key": key,
        "settings": "s",
        "first": first,
        "count": count,
        "kept": [],
        "made_by": "{}",
        "seconds": 1.0,
    }
    log.append(framed(header, value(key, np.arange(first, first + count))))


@pytest.mark.parametrize("source", ["log", "store", "what the store would be"])
@pytest.mark.parametrize("chunk", [1, 2, 4096])
def test_ranges_that_overlap_give_each_trial_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, source: str, chunk: int
) -> None:
    monkeypatch.setattr(_view, "_MOST_CELLS", chunk)
    monkeypatch.setattr(_view, "_FROM_LOG", 0)
    log = Log(tmp_path)
    for key, first, count in [("k1", 0, 3), ("k0", 0, 2), ("k0", 1, 3), ("k2", 0, 2)]:
        record(log, key, first, count)
    log.close()
    if source == "store":
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "zarr", None)  # which takes long to import
            view_of(tmp_path).write()
        assert view_of(tmp_path).is_current()
        assert "made_of" in json.loads(
            (tmp_path / "results.zarr" / ".zattrs").read_text()
        )
        shown = view_of(tmp_path).opened()
        path, plain = tmp_path / "results.zarr", {"done": False, "label": False}
        for consolidated in (True, False):
            own = xr.open_zarr(
                path, consolidated=consolidated, mask_and_scale=plain, chunks=None
            )
            xr.testing.assert_equal(own.load(), shown)
            assert own.dtypes == shown.dtypes
    if source == "what the store would be":
        monkeypatch.setattr(_view, "_IN_MEMORY", 0)
    found = view_of(tmp_path).opened()
    assert set(found.coords) == {"a", "long"}
    assert found["long"].values.tolist() == ["v", "w", "x", "y", "z"]
    assert found["rank"].attrs == {"units": "1", "description": "x"}
    assert found["done"].values.tolist() == [True, True, False, False, True]
    assert found["seconds"].values[:2].tolist() == [2.0, 1.0]
    nan = np.nan
    rank = [[0, 1, 2, 3], [10, 11, nan, nan], [nan] * 4, [nan] * 4, [10, 11, 12, nan]]
    np.testing.assert_array_equal(found["rank"].values, rank)
    np.testing.assert_array_equal(found["short"].values, rank)
    assert (found["rank"].dtype, found["short"].dtype) == (np.float64, np.float32)
    np.testing.assert_array_equal(found["path"].values[0, 3], [3.25, 3.5, nan])
    np.testing.assert_array_equal(found["mean_found"].values, [0, 1, nan, nan, 1])
    assert found["label"].values.tolist() == ["of k0", "of k1", "", "", "of k1"]
    record(log, "k2", 2, 1)  # what was put together is older now
    log.close()
    assert not view_of(tmp_path).is_current()
    assert view_of(tmp_path).opened()["rank"].values[2].tolist()[:3] == [20, 21, 22]


@pytest.mark.parametrize("how", ["cut", "spoilt", "replaced"])
def test_a_store_that_is_damaged_or_replaced_is_not_taken(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(_view, "_FROM_LOG", 0)
    log = Log(tmp_path)
    for key, count in [("k0", 4), ("k1", 3), ("k2", 3)]:
        record(log, key, 0, count)
    log.close()
    view_of(tmp_path).write()
    expected = view_of(tmp_path).opened()
    chunk = tmp_path / "results.zarr" / "rank" / "0.0"
    content = chunk.read_bytes()
    if how == "replaced":
        open_arrays = _view.open_arrays

        def replaced(source: Any) -> xr.Dataset:
            results = open_arrays(source)
            chunk.unlink()  # as zarr has it where no cell has a value
            (tmp_path / "results.zarr" / ".zattrs").write_text("{}")
            return results

        monkeypatch.setattr(_view, "open_arrays", replaced)
    else:
        chunk.write_bytes(content[:9] if how == "cut" else bytes(len(content)))
    xr.testing.assert_equal(view_of(tmp_path).opened(), expected)


@pytest.mark.parametrize(
    "shape", [(7,), (3, 5, 4), (10, 10), (2, 9, 2, 3), (1, 1), (30, 1)]
)
@pytest.mark.parametrize("limit", [1, 4, 7, 100])
def test_chunks_cover_the_grid_once(shape: tuple[int, ...], limit: int) -> None:
    chunks, blocks = _blocks(shape, limit)
    assert np.prod(chunks) <= limit
    seen, count = np.zeros(shape, int), 0
    for place in blocks:
        seen[place] += 1
        count += 1
    assert (seen == 1).all()
    assert (
        count <= 2 * np.prod(shape) / min(limit, np.prod(shape)) + 1 or len(shape) > 1
    )
