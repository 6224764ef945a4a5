"""Sweeps whose code, files or package change between two runs.

Nothing is mixed in silence.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, study
from mrsa_jax._core.registry import load_plugins
from mrsa_jax.selection.registry import ROWS
from mrsa_jax.study import sweeps
from mrsa_jax.study.stores import _sources
from mrsa_jax.study.stores._records import Index
from mrsa_jax.study.sweeps import Machine, _engine, _keys, parse_sweep

PLUGIN = """
import mrsa_jax as mj

def mine(num_clients, cohort_size):
    return mj.selection.batch_partitioning(num_clients, cohort_size, 2)

mj.selection.register("mine", mine)
"""
OTHER = PLUGIN.replace("cohort_size, 2)", "cohort_size, 4)")
GRID = """
rounds = 12
trials = 3
[population]
num_clients = 12
cohort_size = 4
[grid]
scheme = ["uniform", "mine"]
seed = [0, 1, 2]
"""


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    yield
    ROWS.pop("mine", None)


@pytest.fixture
def plugin(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "waiting.py"
    loaded(path, PLUGIN)
    return path


def loaded(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    load_plugins([str(path)])


def planned(out: pathlib.Path, text: str = GRID, **changes: Any) -> Any:
    sweep = dataclasses.replace(parse_sweep(text), out=out, **changes)
    return sweeps.plan_sweep(sweep, Machine(memory_bytes=1))


def run(out: pathlib.Path, text: str = GRID, **changes: Any) -> Any:
    return sweeps.run_sweep(planned(out, text, **changes)).load()


def equal(one: Any, other: Any) -> None:
    for name in one.data_vars:
        if name != "seconds":
            np.testing.assert_array_equal(
                one[name].values, other[name].values, err_msg=name
            )


class Stop(Exception):
    """Ends a run."""


class AfterSome:
    def __init__(self, most: int) -> None:
        self.most = most

    def stage(self, name: str, total: int) -> None:
        pass

    def update(self, done: int, total: int) -> None:
        if done >= self.most:
            raise Stop


def interrupted(out: pathlib.Path, most: int, text: str = GRID) -> None:
    with pytest.raises(Stop):
        sweeps.run_sweep(planned(out, text), AfterSome(most))


# ---- plugins


def told(out: pathlib.Path, text: str = GRID) -> list[str]:
    """What is said of points that other code or files have made."""
    return list(planned(out, text).changed(Index(out).refresh()))


@pytest.mark.long
def test_an_edited_plugin_is_named_and_its_points_alone_are_computed_again(
    plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    interrupted(out, 4)  # three of the package's scheme, one of the plugin's
    before = study.open_study(out).load()
    assert int(before["done"].sum()) == 4
    loaded(plugin, OTHER)
    since = "waiting.py has changed (scheme mine) since 1 point was computed: it is computed anew"
    assert told(out) == [since]
    size = records(out)
    found = run(out)
    assert records(out) == size + 3
    equal(run(tmp_path / "fresh"), found)
    assert (found["strong_privacy"].sel(scheme="mine").values == 4).all()
    # the point of the first text is still there
    loaded(plugin, PLUGIN)
    again = run(out)
    assert records(out) == size + 5
    assert (again["strong_privacy"].sel(scheme="mine").values == 2).all()
    assert (
        again["seconds"].values[before["done"].values]
        == before["seconds"].values[before["done"].values]
    ).all()
    assert told(out) == []


def records(out: pathlib.Path) -> int:
    return sum(map(len, Index(out).refresh().records.values()))


@pytest.mark.long
def test_the_same_text_elsewhere_is_the_same_code(
    plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run(tmp_path / "out")
    loaded(tmp_path / "elsewhere" / "renamed.py", PLUGIN)
    run(tmp_path / "out")
    assert records(tmp_path / "out") == 6


@pytest.mark.long
def test_an_edit_that_leaves_size_and_time_is_run_and_seen(
    plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    interrupted(tmp_path / "out", 4)
    times = plugin.stat().st_atime_ns, plugin.stat().st_mtime_ns
    plugin.write_text(OTHER)
    os.utime(plugin, ns=times)
    load_plugins([str(plugin)])
    assert int(ROWS["mine"].build(12, 4).block_size) == 4
    assert told(tmp_path / "out")[0].startswith(
        "waiting.py has changed (scheme mine) since 1"
    )


NEIGHBOUR = """
import sys
sys.path.insert(0, {folder!r})
import mrsa_jax as mj
from mine_sizes import size
sys.path.pop(0)
mj.selection.register("mine", lambda n, k: mj.selection.batch_partitioning(n, k, size()))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "text", ["def size():\n    return 4\n", "size = lambda: int('4')\n"]
)
def test_an_edited_neighbour_is_run_again_and_named(
    text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine_sizes", "mine_inner"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    (tmp_path / "mine_inner.py").write_text("def size():\n    return 2\n")
    (tmp_path / "mine_sizes.py").write_text("from mine_inner import size\n")
    path = tmp_path / "waiting.py"
    loaded(path, NEIGHBOUR.format(folder=str(tmp_path)))
    out = tmp_path / "out"
    interrupted(out, 4)
    (tmp_path / "mine_inner.py").write_text(text)
    # not what the compiled one was made of
    os.utime(tmp_path / "mine_inner.py", (1, 1))
    load_plugins([str(path)])
    assert told(out)[0].startswith("mine_inner.py has changed (scheme mine) since 1")
    assert int(ROWS["mine"].build(12, 4).block_size) == 4


def script(text: str) -> None:
    exec(text, {"__name__": "__main__"})


NOTEBOOK = """
import functools
import mrsa_jax as mj
SIZES = {"large": 2}
class Made:
    def __init__(self, size):
        self.size = size
    def __call__(self, num_clients, cohort_size):
        return (lambda t: mj.selection.batch_partitioning(num_clients, cohort_size, t))(
            self.size or SIZES["large"]
        )
def of(made, n, k):
    return made(n, k)
mj.selection.register("mine", functools.partial(of, Made(None)))
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"large": 2', '"large": 4'),
        ("Made(None)", "Made(4)"),
        ("self.size = size", "self.size = size or 4"),
        ("return made(n, k)", "return made(n, k) if n else None"),
        ("cohort_size, t)", "cohort_size, t + 2)"),
    ],
)
def test_what_a_notebook_defines_is_told_by_all_that_it_names(
    old: str, new: str
) -> None:
    script(NOTEBOOK)
    first = ROWS["mine"].code()
    script("# moved by a comment\n" + NOTEBOOK)
    assert ROWS["mine"].code() == first
    assert NOTEBOOK.count(old) == 1
    script(NOTEBOOK.replace(old, new))
    assert ROWS["mine"].code() != first


# ---- files


@pytest.mark.long
def test_a_replaced_trace_of_the_same_name_size_and_time_is_named(
    tmp_path: pathlib.Path,
) -> None:
    trace, out = tmp_path / "trace.npy", tmp_path / "out"
    generator = np.random.default_rng(0)
    np.save(trace, generator.random((12, 12)) < 0.5)
    text = GRID.replace(', "mine"', "").replace(
        "cohort_size = 4", f"cohort_size = 4\navailability = 'replay:{trace}'"
    )
    interrupted(out, 2, text)
    times = trace.stat().st_atime_ns, trace.stat().st_mtime_ns
    np.save(trace, generator.random((12, 12)) < 0.9)
    os.utime(trace, ns=times)
    since = "trace.npy has changed (availability) since 2 points were computed: they are computed"
    assert told(out, text) == [f"{since} anew"]
    equal(run(tmp_path / "fresh", text), run(out, text))
    # what it is called says nothing
    trace = trace.rename(tmp_path / "renamed.npy")
    run(out, text.replace("trace.npy", "renamed.npy"), overwrite=True)
    moved = planned(tmp_path / "x", text.replace("trace.npy", "renamed.npy")).cells[
        "key"
    ]
    np.save(tmp_path / "trace.npy", np.load(trace))
    assert (planned(tmp_path / "x", text).cells["key"] == moved).all()


@pytest.mark.long
def test_a_trace_that_is_replaced_while_the_sweep_runs_leaves_no_point_of_it(
    tmp_path: pathlib.Path,
) -> None:
    trace, out = tmp_path / "trace.npy", tmp_path / "out"
    np.save(trace, np.ones((12, 12), np.bool_))
    text = GRID.replace(', "mine"', "").replace(
        "cohort_size = 4", f"cohort_size = 4\navailability = 'replay:{trace}'"
    )

    class Replacing(AfterSome):
        def update(self, done: int, total: int) -> None:
            if done == 1:
                np.save(trace, np.zeros((12, 12), np.bool_))

    with pytest.raises(
        ConfigurationError, match=r"since the sweep began trace\.npy has changed"
    ):
        sweeps.run_sweep(planned(out, text), Replacing(9))
    assert int(study.open_study(out)["done"].sum()) == 1


# ---- the package


@pytest.mark.long
def test_another_version_computes_alike_unless_it_says_otherwise(
    plugin: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, now = tmp_path / "out", _sources.__version__
    interrupted(out, 2)
    monkeypatch.setattr(_sources, "__version__", "9.0.1")
    assert told(out) == []
    assert records(out) == 2
    monkeypatch.setitem(
        _keys.COMPUTES_ALIKE, "simulate", ("exposure of weighted sums",)
    )
    since = f"mrsa_jax is 9.0.1 now and was {now}; exposure of weighted sums since 2 points were"
    assert told(out) == [f"{since} computed: they are computed anew"]
    run(out)
    assert records(out) == 8


PACKAGED = GRID.replace(', "mine"', "")


def test_points_of_other_versions_of_libraries_are_named_and_computed_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, now = tmp_path / "out", _sources.library_versions()
    assert {"jax", "flax", "optax", "numpy"} <= set(now)
    interrupted(out, 2, PACKAGED)
    assert told(out, PACKAGED) == []
    for name, version in now.items():
        with monkeypatch.context() as patch:
            patch.setattr(
                _sources, "library_versions", lambda own=name: now | {own: "99.0"}
            )
            since = f"{name} is 99.0 now and was {version} since 2 points were computed: they are"
            assert told(out, PACKAGED) == [f"{since} computed anew"]
            assert planned(out, PACKAGED).there(Index(out).refresh(), 0) == 0
    monkeypatch.setattr(_sources, "library_versions", lambda: now | {"numpy": "99.0"})
    run(tmp_path / "other", PACKAGED)
    with pytest.raises(
        ConfigurationError, match="points of the same code, files and version"
    ):
        study.merge([out, tmp_path / "other"], tmp_path / "both")
    found = run(tmp_path / "reused", PACKAGED, reuse=out)
    assert records(tmp_path / "reused") == found["done"].size


def test_a_folder_that_kept_no_versions_of_libraries_opens_and_is_computed_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(_sources, "library_versions", dict)
        expected = run(out, PACKAGED)
    found = study.open_study(out)
    equal(expected, found.load())
    assert len(found.mrsa.table()) == 3
    (words,) = told(out, PACKAGED)
    assert words.startswith(
        "versions of jax, jaxlib, flax, optax, numpy are recorded now since 3"
    )
    equal(expected, run(out, PACKAGED))
    assert records(out) == 6


@pytest.mark.long
def test_a_store_of_the_first_schema_is_read_and_left_alone(
    plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    expected = run(out)
    manifest = json.loads((out / "study.json").read_text())
    del manifest["view"]
    (out / "study.json").write_text(json.dumps(manifest | {"schema": 1}))
    shutil.rmtree(out / "log")
    attributes = json.loads((out / "results.zarr" / ".zattrs").read_text())
    attributes.pop("made_of")
    (out / "results.zarr" / ".zattrs").write_text(json.dumps(attributes))
    equal(expected, study.open_study(out).load())
    with pytest.raises(
        ConfigurationError, match="which opens and reports as before: choose"
    ):
        run(out)
    equal(expected, study.open_study(out).load())


# ---- others at the same time


@pytest.mark.long
def test_a_worker_with_another_plugin_is_refused(
    plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A worker that lives on has loaded the text of before.

    A file that it reads differs.
    """
    from mrsa_jax._core.registry import loaded_plugins

    loaded(plugin, OTHER)
    plan, plugins = planned(tmp_path / "out"), loaded_plugins()
    plan.open_store().close()
    task = next(
        task for task in plan.tasks() if plan.points[task.numbers[0]].index[0] == 1
    )
    plugin.write_text(PLUGIN)
    load_plugins([str(plugin)])
    with pytest.raises(
        ConfigurationError, match=r"on every worker.*waiting\.py has changed"
    ):
        _engine._work(plugins, plan.of_task(task), task)
    plugin.write_text(OTHER)  # the worker has the old one loaded, and finds the new one
    assert _engine._work(plugins, plan.of_task(task), task) == list(task.numbers)


@pytest.mark.long
def test_points_of_other_code_are_never_mixed_in(
    plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    old = planned(out)
    loaded(plugin, OTHER)
    plan = planned(out)
    store = plan.open_store()

    class Other(AfterSome):
        """While the first points are computed, another process writes the last."""

        def update(self, done: int, total: int) -> None:
            if done == 1:
                store.write(
                    old.identities[5], 0, 3, {"rank": np.zeros(3, np.int32)}, 0.0
                )

    equal(run(tmp_path / "fresh"), sweeps.run_sweep(plan, Other(9)).load())
    store.close()


@pytest.mark.long
def test_a_cell_that_has_become_impossible_keeps_nothing(
    plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    run(out, skip_impossible=True)
    loaded(plugin, PLUGIN.replace("cohort_size, 2)", "cohort_size, 3)"))
    found = run(out, skip_impossible=True)
    assert found["done"].values.sum() == 3
    assert np.isnan(found["rank"].sel(scheme="mine")).all()


# ---- code that no text shows

WRAPPED = """
import functools
import mrsa_jax as mj

def times(factory):
    @functools.wraps(factory)
    def inner(num_clients, cohort_size, size=1):
        return factory(num_clients, cohort_size, 2 * size)
    return inner

@times
def mine(num_clients, cohort_size, size=1):
    return mj.selection.batch_partitioning(num_clients, cohort_size, size)
"""
CHANGED = WRAPPED.replace("2 * size", "4 * size")


def cell(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(text, names)
    return names


def privacies(found: Any) -> set[int]:
    own = found["strong_privacy"]
    return set(map(int, own.sel(scheme="mine").values.ravel()))


def test_a_changed_decorator_gives_its_own_results(tmp_path: pathlib.Path) -> None:
    small = {
        "rounds": 9,
        "trials": 2,
        "population": {"num_clients": 12, "cohort_size": 4},
    }

    def swept(text: str, name: str, **more: Any) -> Any:
        asked = small | {"grid": {"scheme": ["uniform", {"mine": cell(text)["mine"]}]}}
        return study.sweep(asked, out=tmp_path / name, **more).load()

    assert privacies(swept(WRAPPED, "a")) == {2}
    assert privacies(swept(CHANGED, "a")) == {4}  # in the same folder
    swept(WRAPPED, "b")
    assert privacies(swept(CHANGED, "c", reuse=tmp_path / "b")) == {4}
    named = GRID.replace("seed = [0, 1, 2]", "seed = [0, 1]")
    for text, privacy in ((WRAPPED, 2), (CHANGED, 4), (WRAPPED, 2)):
        cell(text + 'mj.selection.register("mine", mine)')
        assert privacies(run(tmp_path / "d", named)) == {privacy}
    assert records(tmp_path / "d") == 6


BY_NAME = """
import importlib, os
import mrsa_jax as mj
size = {size}
def mine(n, k):
    return mj.selection.batch_partitioning(n, k, {used})
mj.selection.register("mine", mine{more})
"""
IMPORTED = "importlib.import_module('mine_' + 'sizes').size"


def by_name(tmp_path: pathlib.Path, **own: str) -> None:
    words = {"size": "None", "used": "size", "more": ""} | own
    loaded(tmp_path / "waiting.py", BY_NAME.format(**words))


@pytest.fixture
def sizes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A module whose name no plugin writes."""
    monkeypatch.delitem(__import__("sys").modules, "mine_sizes", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "mine_sizes.py"
    path.write_text("size = 2\n")
    return path


@pytest.mark.parametrize("how", ["imported", "environment"])
def test_values_that_a_plugin_takes_from_outside_count_as_it_has_them(
    how: str,
    tmp_path: pathlib.Path,
    sizes: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIZE", "2")
    size = IMPORTED if how == "imported" else "int(os.environ['SIZE'])"
    by_name(tmp_path, size=size)
    interrupted(tmp_path / "out", 4)
    sizes.write_text(
        "size = 4  # of another length: bytecode is kept by seconds and size\n"
    )
    monkeypatch.setenv("SIZE", "4")
    monkeypatch.delitem(__import__("sys").modules, "mine_sizes", raising=False)
    by_name(tmp_path, size=size)
    assert told(tmp_path / "out")[0].startswith(
        "mine has changed (scheme mine) since 1"
    )


def test_a_plugin_that_reads_outside_as_it_runs_must_name_what(
    tmp_path: pathlib.Path, sizes: pathlib.Path
) -> None:
    by_name(tmp_path, used=IMPORTED)
    with pytest.raises(
        ConfigurationError, match=r"`factory` .*got importlib\.import_module"
    ):
        planned(tmp_path / "out")
    more = f", depends=__import__('pathlib').Path({str(sizes)!r})"
    by_name(tmp_path, used=IMPORTED, more=more)
    interrupted(tmp_path / "out", 4)
    assert told(tmp_path / "out") == []
    sizes.write_text(
        "size = 4  # of another length: bytecode is kept by seconds and size\n"
    )
    assert told(tmp_path / "out")[0].startswith(
        "mine_sizes.py has changed (scheme mine) since 1"
    )


def test_what_is_named_is_that_of_before_when_a_point_is_written(
    tmp_path: pathlib.Path, sizes: pathlib.Path
) -> None:
    by_name(
        tmp_path, size="2", more=f", depends=__import__('pathlib').Path({str(sizes)!r})"
    )

    class Replacing(AfterSome):
        def update(self, done: int, total: int) -> None:
            if done == 4:
                sizes.write_text("size = 4\n")

    with pytest.raises(
        ConfigurationError, match=r"since the sweep began mine_sizes\.py has"
    ):
        sweeps.run_sweep(planned(tmp_path / "out"), Replacing(9))


CACHING = """
import mrsa_jax as mj
KEPT = {}
def mine(n, k):
    if n not in KEPT:
        KEPT[n] = mj.selection.batch_partitioning(n, k, 2)
    return KEPT[n]
mj.selection.register("mine", mine)
"""


@pytest.mark.parametrize("is_plugin", [True, False])
def test_what_code_keeps_for_itself_as_it_runs_stops_no_sweep(
    is_plugin: bool, tmp_path: pathlib.Path
) -> None:
    if is_plugin:
        loaded(tmp_path / "waiting.py", CACHING)
    else:
        script(CACHING)
    assert run(tmp_path / "out")["done"].values.all()


def test_depends_goes_with_objects(tmp_path: pathlib.Path) -> None:
    small = {
        "rounds": 9,
        "trials": 2,
        "population": {"num_clients": 12, "cohort_size": 4},
    }
    reading = "int(os.environ.get('SIZE', 2))"
    text = PLUGIN.replace("cohort_size, 2)", f"cohort_size, {reading})")
    mine = cell("import os" + text.partition("mj.selection.register")[0])
    asked = small | {"grid": {"scheme": ["uniform", {"mine": mine["mine"]}]}}
    with pytest.raises(
        ConfigurationError, match=r"`grid.scheme\[1\]` .*got os\.environ.*depends="
    ):
        study.sweep(asked, out=tmp_path / "out", dry_run=True)
    with pytest.raises(
        ConfigurationError, match="`depends` must only be set with objects"
    ):
        study.sweep(small, out=tmp_path / "out", dry_run=True, depends=3)
    study.sweep(asked, out=tmp_path / "out", depends=["2"])
    there = [
        study.sweep(asked, out=tmp_path / "out", depends=[own], dry_run=True)["there"]
        for own in ("2", "3")
    ]
    assert there == [2, 1]
