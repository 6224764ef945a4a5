"""Folders of sweeps with files that are damaged, or made by somebody.

Named, and passed over.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, study
from mrsa_jax.study.stores._records import Index, _frame, _header, scanned

STUDY: dict[str, Any] = {
    "rounds": 5,
    "trials": 2,
    "population": {"num_clients": 6, "cohort_size": 3},
    "grid": {"scheme": ["uniform", "weighted"]},
}
BOMB = 2**26


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("made") / "sweep"
    study.sweep(STUDY, out=folder)
    return folder


@pytest.fixture
def folder(made: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(made, tmp_path / "sweep"))


class Warned:
    """Collects what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, name: str, total: int) -> None:
        pass

    def update(self, done: int, total: int) -> None:
        pass

    def say(self, text: str) -> None:
        if "there already" not in text:
            self.said.append(text)

    def note(self, text: str) -> None:
        pass


def packed(header: dict[str, Any], arrays: bytes) -> bytes:
    """Return a frame whose digest is right, whatever it holds."""
    text = json.dumps(header).encode()
    return _frame(struct.pack("<I", len(text)) + text + arrays)


Spoiling = Callable[[dict[str, Any], bytes], bytes]


def with_array(place: int, value: Any) -> Spoiling:
    """Say something else of the first array."""

    def spoil(header: dict[str, Any], arrays: bytes) -> bytes:
        header["arrays"][0][place] = value
        return packed(header, arrays)

    return spoil


def with_entry(name: str, value: Any) -> Spoiling:
    return lambda header, arrays: packed(header | {name: value}, arrays)


def with_content(content: bytes, **more: Any) -> Spoiling:
    """Put other bytes in the place of the first array."""

    def spoil(header: dict[str, Any], arrays: bytes) -> bytes:
        first = header["arrays"][0]
        rest, first[3] = arrays[first[3] :], len(content)
        first[2] = more.get("shape", first[2])
        return packed(header, content + rest)

    return spoil


ZEROS = zlib.compress(bytes(BOMB), 9)
SPOILT: dict[str, Spoiling] = {
    "more values than its header has": with_content(zlib.compress(bytes(400))),
    "fewer values": with_content(zlib.compress(bytes(4))),
    "many values": with_content(ZEROS),
    "many values that its header has": with_content(ZEROS, shape=[BOMB // 4]),
    "no values": with_content(b""),
    "values that are not deflated": with_content(b"0123456789"),
    "values that are cut": with_content(zlib.compress(bytes(8))[:-3]),
    "values and more": with_content(zlib.compress(bytes(8)) + b"0"),
    "another shape": with_array(2, [3]),
    "another number of trials": lambda header, arrays: packed(
        header | {"count": 3}, arrays
    ),
    "another number of axes": with_array(2, [2, 1]),
    "no shape": with_array(2, None),
    "a negative shape": with_array(2, [-2]),
    "a shape of fractions": with_array(2, [2.0]),
    "a huge shape": with_array(2, [2**62, 2**62]),
    "a huge shape of nothing": with_array(2, [0, 2**62]),
    "another type": with_array(1, "<f4"),
    "objects": with_array(1, "|O8"),
    "no type": with_array(1, "rank"),
    "a list of types": with_array(1, "i4,i4"),
    "a name that is none": with_array(0, 3),
    "a length that is none": with_array(3, "9"),
    "a length beyond the end": with_array(3, 10**9),
    "one array twice": lambda header, arrays: packed(
        header | {"arrays": header["arrays"] * 2}, arrays * 2
    ),
    "arrays that are none": with_entry("arrays", 3),
    "bytes behind the arrays": lambda header, arrays: packed(header, arrays + b"0"),
    "infinitely many trials": with_entry("count", float("inf")),
    "very many trials": with_entry("count", 10**30),
    "trials from below zero": with_entry("first", -1),
    "no number of seconds": with_entry("seconds", float("nan")),
    "a key that is none": with_entry("settings", 3),
    "what made it is not told": with_entry("made_by", "{"),
    "what made it is a list": with_entry("made_by", "[]"),
    "a deep header": lambda header, arrays: _frame(
        struct.pack("<I", 200_000) + b"[" * 100_000 + b"]" * 100_000
    ),
    "an empty frame": lambda header, arrays: _frame(b""),
    "a header that is longer than all": lambda header, arrays: _frame(
        b"\xff\xff\xff\xff{}"
    ),
}


def spoil(folder: pathlib.Path, how: Spoiling, place: int = 0) -> pathlib.Path:
    """Put another record in the place of one of the two."""
    (path,) = (folder / "log").glob("*.rec")
    payloads = [payload for _, payload in scanned(io.BytesIO(path.read_bytes()))]
    header, begin = _header(payloads[place])
    frames = [_frame(own) for own in payloads]
    frames[place] = how(header, payloads[place][begin:])
    path.write_bytes(b"".join(frames))
    return path


def rerun(folder: pathlib.Path, **more: Any) -> tuple[Any, list[str]]:
    progress = Warned()
    return study.sweep(
        STUDY, out=folder, progress=progress, **more
    ).load(), progress.said


@pytest.mark.parametrize(
    ("how", "place"), [(how, i % 2) for i, how in enumerate(SPOILT)]
)
def test_a_record_that_contradicts_itself_is_named_and_computed_again(
    how: str, place: int, folder: pathlib.Path
) -> None:
    before = study.open_study(folder).load()
    path = spoil(folder, SPOILT[how], place)
    tracemalloc.start()
    found = study.open_study(folder).load()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < BOMB / 4
    assert found["done"].values.tolist() == [place == 1, place == 0]
    assert found.mrsa.sentences()[1].endswith(
        f" bytes of {path.name} in {folder} are damaged."
    )
    again, said = rerun(folder)
    (words,) = said
    assert (
        f" bytes of {path.name} in {folder} are damaged: points that they held" in words
    )
    equal = [name for name in before.data_vars if name != "seconds"]
    for name in equal:
        np.testing.assert_array_equal(
            again[name].values, before[name].values, err_msg=name
        )


def test_a_damaged_record_of_another_folder_is_named(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = spoil(folder, SPOILT["another type"])
    found, said = rerun(tmp_path / "new", reuse=folder)
    assert found["done"].values.all()
    assert [path.name in words and str(folder) in words for words in said] == [True]
    progress = Warned()
    both = study.merge([folder, tmp_path / "new"], tmp_path / "both", progress=progress)
    assert both["done"].values.all()
    assert [
        "are damaged: what they held is left out" in words for words in progress.said
    ] == [True]


def test_a_log_that_is_cut_is_named_and_its_last_point_computed_again(
    folder: pathlib.Path,
) -> None:
    (path,) = (folder / "log").glob("*.rec")
    content = path.read_bytes()
    last = max(place for place, _ in scanned(io.BytesIO(content)))
    path.write_bytes(content[:-3])
    assert study.open_study(folder)["done"].values.sum() == 1
    found, said = rerun(folder)
    size = len(content) - 3 - last
    assert found["done"].values.all()
    assert said == [
        f"the last {size} bytes of {path.name} in {folder} are no whole record: points "
        "that they "
        "held are computed again"
    ]


def test_a_log_that_cannot_be_read_is_named(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = Index._scan
    (path,) = (folder / "log").glob("*.rec")

    def refused(self: Index, name: str) -> None:
        if name == path.name:
            raise PermissionError(13, "Permission denied")
        scan(self, name)

    monkeypatch.setattr(Index, "_scan", refused)
    found, said = rerun(folder)
    assert found["done"].values.all()
    assert [
        f"{path.stat().st_size} bytes of {path.name}" in words for words in said
    ] == [True]


# ---- the other files of a folder


def whole_zip(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, a=np.zeros(9))


def claiming(path: pathlib.Path) -> None:
    """Have a header that asks for more than there is memory."""
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b"'shape': (2,), }", b"'shape': (2" + b"0" * 17 + b",), }")
    )


CELLS: dict[str, Callable[[pathlib.Path], Any]] = {
    "lost": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"0"),
    "text": lambda path: path.write_text("cells"),
    "a zip file": whole_zip,
    "a pickle": lambda path: np.save(path, np.array([{}]), allow_pickle=True),
    "another type": lambda path: np.save(path, np.zeros(2)),
    "huge": claiming,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("how", CELLS)
def test_damaged_cells_are_named_and_mended(how: str, folder: pathlib.Path) -> None:
    (path,) = folder.glob("cells-*.npy")
    CELLS[how](path)
    with pytest.raises(
        ConfigurationError, match="`folder` must hold a whole sweep, or be given"
    ):
        study.open_study(folder)
    if how != "a folder":
        found, said = rerun(folder)
        assert (found["done"].values.all(), said) == (True, [])


MANIFESTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no view": lambda own: own.pop("view"),
    "a view that is none": lambda own: own.update(view=3),
    "no variables": lambda own: own["view"].pop("variables"),
    "variables that are none": lambda own: own["view"].update(variables=[3]),
    "a type that is none": lambda own: own["view"]["variables"][0].__setitem__(
        2, "rank"
    ),
    "another kind of type": lambda own: own["view"]["variables"][0].__setitem__(
        2, "V8"
    ),
    "no lengths": lambda own: own["view"].update(inner={}),
    "lengths that are none": lambda own: own["view"].update(inner={"trial": "2"}),
    "negative lengths": lambda own: own["view"].update(inner={"trial": -2}),
    "another shape": lambda own: own["view"].update(shape=[3]),
    "a shape that is none": lambda own: own["view"].update(shape=["2"]),
    "more axes": lambda own: own["view"].update(shape=[2, 1]),
    "no cells": lambda own: own["view"].pop("cells"),
    "cells that are none": lambda own: own["view"].update(cells=3),
    "cells elsewhere": lambda own: own["view"].update(cells="../other.npy"),
    "no coordinates": lambda own: own["view"].pop("coordinates"),
    "coordinates that are none": lambda own: own["view"].update(coordinates=[[1]]),
    "too few coordinates": lambda own: own["view"]["coordinates"][-1].__setitem__(
        2, [1]
    ),
    "names that are none": lambda own: own["view"].update(stored=3),
    "nothing kept": lambda own: own["view"].pop("kept"),
}


@pytest.mark.parametrize("how", MANIFESTS)
def test_a_damaged_manifest_is_named_and_mended(how: str, folder: pathlib.Path) -> None:
    path = folder / "study.json"
    content = json.loads(path.read_text())
    MANIFESTS[how](content)
    path.write_text(json.dumps(content))
    shutil.rmtree(folder / "results.zarr")
    with pytest.raises(
        ConfigurationError, match="`folder` must hold a whole sweep, or be given"
    ):
        study.open_study(folder)
    with pytest.raises(
        ConfigurationError, match="`folder` must hold a whole sweep, or be given"
    ):
        study.merge([folder], folder.parent / "merged")
    found, said = rerun(folder)
    assert (found["done"].values.all(), said) == (True, [])
    assert os.listdir(folder / "log")
