"""Installed packages offer selectors, graphs, availability models and attacks by name."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

import mrsa_jax as mj
from mrsa_jax._core import registry
from mrsa_jax._core.registry import ENTRY_POINTS, loaded_plugins
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as selection

MODULE = """
import mrsa_jax as mj
mj.selection.register("{name}", lambda n, k: mj.selection.uniform(n, k))
mj.graphs.register("{name}", lambda n: mj.graphs.harary(n, 2))
mj.availability.register("{name}", lambda rates: mj.availability.independent(rates))
"""


def install(folder: pathlib.Path, name: str, module: str, text: str) -> None:
    """Lay out an installed package with one module, as pip would."""
    (folder / f"{module}.py").write_text(text)
    facts = folder / f"{module}-1.0.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n"
    )
    lines = [f"[{group}]\n{name} = {module}\n" for group in ENTRY_POINTS.values()]
    (facts / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_LOADED", {})
    for rows in (selection.ROWS, graphs.ROWS, availability.ROWS):
        for name in ("parked", "idle"):
            monkeypatch.delitem(rows, name, raising=False)
    return tmp_path


def test_a_package_is_found_by_name(folder: pathlib.Path) -> None:
    module = "parked_selectors"
    install(folder, "parked", module, MODULE.format(name="parked"))
    sys.modules.pop(module, None)
    try:
        # a known name imports nothing, nor does a name that no package offers
        mj.selection.Scheme.parse("uniform")
        with pytest.raises(mj.ConfigurationError, match="known scheme"):
            mj.selection.Scheme.parse("unheard")
        assert module not in sys.modules
        assert mj.selection.Scheme.parse("parked").label == "parked"
        assert module in loaded_plugins()
        assert graphs.Graph.parse("parked").label
        assert availability.Model.parse("parked").parameters == ()
        code = selection.ROWS["parked"].code()
        assert any(module in name for name in code)
    finally:
        for rows in (selection.ROWS, graphs.ROWS, availability.ROWS):
            rows.pop("parked", None)


@pytest.mark.parametrize("argument", ["scheme", "graph", "availability"])
def test_a_module_must_register_what_it_offers(
    folder: pathlib.Path, argument: str
) -> None:
    install(folder, "idle", f"idle_{argument}", "")
    read = {
        "scheme": mj.selection.Scheme.parse,
        "graph": graphs.Graph.parse,
        "availability": availability.Model.parse,
    }[argument]
    rule = f"`{argument}` must be registered by idle_{argument}"
    with pytest.raises(mj.ConfigurationError, match=rule):
        read("idle")


def test_two_packages_cannot_offer_one_name(folder: pathlib.Path) -> None:
    for module in ("idle_first", "idle_second"):
        install(folder, "idle", module, MODULE.format(name="idle"))
    with pytest.raises(mj.ConfigurationError, match="one installed package"):
        mj.selection.Scheme.parse("idle")
    assert "idle_first" not in sys.modules


def test_a_module_that_fails_is_named(folder: pathlib.Path) -> None:
    install(folder, "idle", "idle_broken", "raise RuntimeError('no licence')")
    with pytest.raises(mj.ConfigurationError, match=r"idle_broken.*no licence"):
        mj.selection.Scheme.parse("idle")


ATTACK = '''
import dataclasses
import mrsa_jax as mj

@dataclasses.dataclass(frozen=True)
class ParkedConfig(mj.study.SumsOfRounds):
    """Attack nothing."""

def run(settings, found, progress):
    found.title = "parked"

mj.study.register_attack("parked", ParkedConfig, run, units={})
'''


@pytest.mark.long
def test_commands_find_an_installed_attack_and_selector(tmp_path: pathlib.Path) -> None:
    install(tmp_path, "parked", "parked_attack", ATTACK)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from mrsa_jax.cli import main\n"
        "sys.exit(main(['attack', 'parked', '--help']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Attack nothing" in done.stdout
