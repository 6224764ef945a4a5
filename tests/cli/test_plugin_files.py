"""Plugins beside other files, and plugins that print."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterator

import pytest

from mrsa_jax import ConfigurationError, cli
from mrsa_jax._core import registry
from mrsa_jax.selection.registry import ROWS

PLUGIN = """
import {helper}
import mrsa_jax as mj

print("loading", {helper}.NAME)

def factory(num_clients, cohort_size):
    import sys
    print("building", {helper}.NAME)
    sys.stdout.write("written\\n")
    return mj.selection.uniform(num_clients, cohort_size)

mj.selection.register("{name}", factory)
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    modules, rows = set(sys.modules), set(ROWS)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(registry, "_FOLDERS", set())
    monkeypatch.setattr(registry, "_LOADED", {})
    yield
    for name in set(sys.modules) - modules:
        if name.startswith(("mrsa_jax_plugin_", "helper_beside")):
            del sys.modules[name]
    for name in set(ROWS) - rows:
        del ROWS[name]


def _written(
    folder: pathlib.Path, name: str, helper: str = "helper_beside"
) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{helper.partition('.')[0]}.py").write_text(f"NAME = '{name}'\n")
    path = folder / f"{name}.py"
    path.write_text(PLUGIN.format(name=name, helper=helper))
    return path


def test_a_file_beside_is_imported(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.load_plugins([str(_written(tmp_path / "a", "mine"))])
    assert capsys.readouterr() == ("", "loading mine\n")
    assert sys.path[-1] == str(tmp_path / "a")
    assert set(registry.loaded_plugins()[str(tmp_path / "a" / "mine.py")]) == {
        "mrsa_jax_plugin_mine",
        "helper_beside",
    }


def test_a_package_beside_is_imported(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "helper_beside_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("NAME = 'inner'\n")
    path = tmp_path / "own.py"
    path.write_text(
        "from helper_beside_package.inner import NAME\nassert NAME == 'inner'\n"
    )
    registry.load_plugins([str(path)])


def test_each_plugin_has_its_own_neighbour(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [_written(tmp_path / name, f"mine_{name}") for name in "ab"]
    registry.load_plugins(map(str, both))
    assert capsys.readouterr().err == "loading mine_a\nloading mine_b\n"
    built = [ROWS[f"mine_{name}"].build(6, 2) for name in "ab"]
    assert built[0] == built[1]
    words = capsys.readouterr().out.split("\n")
    assert [word for word in words if word.startswith("building")] == [
        "building mine_a",
        "building mine_b",
    ]


def test_what_is_installed_comes_first(tmp_path: pathlib.Path) -> None:
    (tmp_path / "json.py").write_text("raise ValueError('not the library')\n")
    path = tmp_path / "own.py"
    path.write_text("import json\nassert json.dumps([]) == '[]'\n")
    registry.load_plugins([str(path)])


def test_a_missing_neighbour_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("\nimport helper_beside_of_none\n")
    with pytest.raises(
        ConfigurationError, match="line 2: ModuleNotFoundError: No module named"
    ):
        registry.load_plugins([str(path)])


@pytest.mark.long
def test_what_a_plugin_prints_is_not_among_results(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _written(tmp_path / "a", "mine")
    words = "simulate --rounds 3 --trials 2 --num-clients 6 --cohort-size 2 --schemes mine --json"
    out = ["--plugin", str(path), "--out", str(tmp_path / "out")]
    assert cli.main([*words.split(), *out]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["rows"][0]["scheme"] == "mine"
    assert "building mine\nwritten\n" in printed.err


@pytest.mark.parametrize("more", ["", "--trials 10"])
def test_a_threshold_above_all_clients_is_misuse(
    more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["secagg", "--threshold", "6", "--num-clients", "5", *more.split()])
        == 2
    )
    rule = "`threshold` must be at most the number of clients in a round"
    assert rule in " ".join(capsys.readouterr().err.split())


def test_a_threshold_above_a_cohort_is_misuse(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "simulate --threshold 7 --num-clients 12 --cohort-size 6 --schemes uniform --rounds 3"
    assert cli.main([*words.split(), "--out", str(tmp_path / "out")]) == 2
    assert "`threshold` must be at most the number" in " ".join(
        capsys.readouterr().err.split()
    )
