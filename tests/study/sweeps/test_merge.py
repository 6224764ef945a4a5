"""Folders of sweeps that were computed apart become one, or nothing is written."""

from __future__ import annotations

import io
import json
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, OutputExistsError, study
from mrsa_jax.study.stores._records import Index, arrays_of, framed, scanned
from mrsa_jax.study.sweeps._store import SweepStore

pytestmark = pytest.mark.long

SMALL: dict[str, Any] = {
    "rounds": 8,
    "trials": 3,
    "population": {"num_clients": 12, "cohort_size": 4},
}


def grid(**axes: Any) -> dict[str, Any]:
    return SMALL | {"grid": {"scheme": ["uniform", "batch_partitioning"], **axes}}


WHOLE = grid(privacy_target=[2, 4], seed=[0, 1, 2, 3])


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("merge")
    study.sweep(grid(privacy_target=[2, 4], seed=[0, 2]), out=folder / "a")
    study.sweep(grid(privacy_target=[2, 4], seed=[1, 2, 3]), out=folder / "b")
    study.sweep(WHOLE, out=folder / "whole")
    return folder


def equal(one: Any, other: Any) -> None:
    assert one.sizes == other.sizes
    for name in {*one.coords, *one.data_vars} - {"seconds"}:
        np.testing.assert_array_equal(
            one[name].values, other[name].values, err_msg=name
        )


def copied(below: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    return [pathlib.Path(shutil.copytree(below / name, folder / name)) for name in "ab"]


def log_of(folder: pathlib.Path) -> pathlib.Path:
    (path,) = (folder / "log").glob("*.rec")
    return path


def changed(folder: pathlib.Path, name: str, trial: int) -> None:
    """Plant another value into a record of a point that both folders have."""
    path = log_of(folder)
    key = np.load(next(folder.glob("cells-*")))["key"][1].decode()
    frames = []
    for _, payload in scanned(io.BytesIO(path.read_bytes())):
        length = int.from_bytes(payload[:4], "little")
        header, values = json.loads(payload[4 : 4 + length]), arrays_of(payload)
        if header["key"] == key:
            own = values[name].copy()
            own[trial] += 1
            values[name] = own
        del header["arrays"]
        frames.append(framed(header, values))
    path.write_bytes(b"".join(frames))


def test_two_halves_are_the_whole(below: pathlib.Path, tmp_path: pathlib.Path) -> None:
    found = study.merge([below / "a", below / "b"], tmp_path / "c")
    equal(found, study.open_study(below / "whole"))
    sizes = {path: path.stat().st_size for path in (tmp_path / "c" / "log").iterdir()}
    # again, and one at a time, and with itself
    equal(study.merge([below / "b", below / "a"], tmp_path / "c"), found)
    equal(study.merge([tmp_path / "c", below / "a"], tmp_path / "c"), found)
    assert {
        path: path.stat().st_size for path in (tmp_path / "c" / "log").iterdir()
    } == sizes
    study.merge([below / "b"], tmp_path / "d")
    equal(study.merge([below / "a"], tmp_path / "d").sortby("seed"), found)
    # a sweep over all of it finds nothing to do
    keys = len(Index(tmp_path / "c").refresh().records)
    equal(study.sweep(WHOLE, out=tmp_path / "c"), found)
    assert len(Index(tmp_path / "c").refresh().records) == keys == 12


def test_settings_that_differ_become_axes_and_other_cells_stay_empty(
    below: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    study.sweep(
        SMALL | {"rounds": 6, "trials": 5, "grid": {"scheme": ["weighted"]}},
        out=tmp_path / "e",
    )
    found = study.merge([below / "a", tmp_path / "e"], tmp_path / "f")
    assert dict(found.sizes) == {
        "scheme": 3,
        "privacy_target": 3,
        "seed": 2,
        "rounds": 2,
        "trial": 5,
    }
    assert int(found["done"].sum()) == 8 + 1
    own = found.sel(scheme="weighted", rounds=6, seed=0, privacy_target="none")
    alone = study.open_study(tmp_path / "e").sel(scheme="weighted")
    np.testing.assert_array_equal(own["rank"].values, alone["rank"].values)
    assert np.isnan(found["rank"].sel(scheme="weighted", rounds=8)).all()
    assert np.isnan(
        found["rank"].sel(scheme="uniform", rounds=8, seed=0).values[..., 3:]
    ).all()


def test_folders_whose_records_have_more_than_they_show(tmp_path: pathlib.Path) -> None:
    """Taken from a sweep that keeps more, they are compared in what is shown."""
    few = grid(privacy_target=[2])
    study.sweep(few | {"trajectories": True}, out=tmp_path / "more")
    for name in "ab":
        study.sweep(few, out=tmp_path / name, reuse=tmp_path / "more")
    found = study.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    equal(found, study.open_study(tmp_path / "a"))


@pytest.mark.parametrize("name", ["rank", "hidden_among_worst"])
def test_a_difference_is_named_and_nothing_is_written(
    below: pathlib.Path, tmp_path: pathlib.Path, name: str
) -> None:
    a, b = copied(below, tmp_path)
    changed(a, name, 1)
    with pytest.raises(ConfigurationError) as caught:
        study.merge([a, b], tmp_path / "c")
    assert str(caught.value) == (
        "`folders` must agree on the points that both have; got scheme = Random, "
        f"privacy_target = 2, seed = 2, which differs between {str(a)!r} and "
        f"{str(b)!r} in {name} "
        "of trials 1 to 1, with the same settings and code: nothing was merged. One of "
        "them is "
        "damaged, or a change of the package that changes results was not told in "
        "COMPUTES_ALIKE"
    )
    assert not (tmp_path / "c").exists()


def test_a_damaged_frame_is_left_out_unless_the_other_has_it(
    below: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    a, b = copied(below, tmp_path)
    content = bytearray(log_of(a).read_bytes())
    places = [place for place, _ in scanned(io.BytesIO(content))]
    for place in places[:2]:
        content[place + 60] ^= 1
    log_of(a).write_bytes(bytes(content))
    with pytest.warns(RuntimeWarning, match="damaged: what they held is left out"):
        found = study.merge([a, b], tmp_path / "c")
    lost = {
        Index(below / "a").refresh().records[key][0].place: key
        for key in Index(below / "a").refresh().records
    }
    gone = [lost[place] for place in places[:2]]
    there = Index(b).refresh().records
    cells = np.load(next((tmp_path / "c").glob("cells-*")))["key"]
    expected = sum((cells == key.encode()).sum() for key in gone if key not in there)
    assert expected > 0
    assert int((~found["done"].astype(bool)).sum()) == expected
    with pytest.warns(RuntimeWarning, match="damaged"):
        again = study.merge([a, b, below / "a"], tmp_path / "c")
    equal(again, study.open_study(below / "whole"))


def test_a_kill_in_the_middle_leaves_a_sweep_that_lacks_points(
    below: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [5]

    def killed(self: SweepStore, frame: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        take(self, frame)

    take = SweepStore.take
    monkeypatch.setattr(SweepStore, "take", killed)
    with pytest.raises(KeyboardInterrupt):
        study.merge([below / "a", below / "b"], tmp_path / "c")
    monkeypatch.undo()
    half = study.open_study(tmp_path / "c")
    assert 0 < int(half["done"].sum()) < 16
    found = study.merge([below / "a", below / "b"], tmp_path / "c")
    equal(found, study.open_study(below / "whole"))


def test_misuse(below: pathlib.Path, tmp_path: pathlib.Path) -> None:
    merge: Any = study.merge
    for wrong in ([], "a"):
        with pytest.raises(
            ConfigurationError, match="`folders` must be a list of folders"
        ):
            merge(wrong, tmp_path / "c")
    with pytest.raises(
        ConfigurationError, match="`folders` must be the folder of a sweep"
    ):
        merge([tmp_path / "none"], tmp_path / "c")
    study.sweep(
        {"command": "secagg", "num_clients": 5, "trials": 9, "grid": {"seed": [0]}},
        out=tmp_path / "s",
    )
    with pytest.raises(
        ConfigurationError, match="sweeps of one command; got 'simulate' and 'sec"
    ):
        merge([below / "a", tmp_path / "s"], tmp_path / "c")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(
        OutputExistsError, match="`out` must be empty, new, or hold a study"
    ):
        merge([below / "a"], tmp_path / "full")
    a, b = copied(below, tmp_path)
    cells = next(b.glob("cells-*"))
    own = np.load(cells)
    own["key"][1] = b"0" * 64  # seed 2, of a plugin's other text
    np.save(cells, own)
    with pytest.raises(
        ConfigurationError, match="same code, files and version; got scheme = Ran"
    ):
        merge([a, b], tmp_path / "c")
