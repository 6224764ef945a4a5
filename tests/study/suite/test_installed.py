"""Installed packages offer selectors, graphs, availability models and attacks by name."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator

import pytest

import mrsa_jax as mj
from mrsa_jax import cli
from mrsa_jax._core import registry
from mrsa_jax._core.registry import ENTRY_POINTS, loaded_plugins
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as selection
from mrsa_jax.study.suite import Version, run_suite, verify_card

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
def folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pathlib.Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_LOADED", {})
    yield tmp_path
    for rows in (selection.ROWS, graphs.ROWS, availability.ROWS):
        for name in ("parked", "idle"):
            rows.pop(name, None)


def test_a_package_is_found_by_name(folder: pathlib.Path) -> None:
    module = "parked_selectors"
    install(folder, "parked", module, MODULE.format(name="parked"))
    sys.modules.pop(module, None)
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


def test_a_package_of_the_same_tick_as_the_last_look_is_found(
    folder: pathlib.Path,
) -> None:
    """Python looks again when a folder's time changes, which a clock of ticks may not show."""
    module = "parked_of_a_tick"
    with pytest.raises(mj.ConfigurationError, match="known scheme"):
        mj.selection.Scheme.parse("parked")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module)
    looked = folder.stat()
    install(folder, "parked", module, MODULE.format(name="parked"))
    os.utime(folder, ns=(looked.st_atime_ns, looked.st_mtime_ns))
    assert mj.selection.Scheme.parse("parked").label == "parked"


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


def pip_install(folder: pathlib.Path, name: str, module: str, text: str) -> None:
    """Build the wheel of a package with one module, and install it by pip."""
    wheel, facts = folder / f"{module}-1.0-py3-none-any.whl", f"{module}-1.0.dist-info"
    lines = [f"[{group}]\n{name} = {module}\n" for group in ENTRY_POINTS.values()]
    files = {
        f"{module}.py": text,
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/entry_points.txt": "\n".join(lines),
    }
    record = [*files, f"{facts}/RECORD"]
    files[record[-1]] = "".join(f"{path},,\n" for path in record)
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    target = ["--no-index", "--no-deps", "--target", str(folder / "site"), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *target], check=True)


@pytest.mark.long
def test_a_selector_that_pip_installed_gets_a_card(
    folder: pathlib.Path,
    suite_of: Callable[..., Version],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And its graph and availability model are found by a study."""
    suite_of("whole_numbers")
    module = "parked_by_pip"
    pip_install(folder, "parked", module, MODULE.format(name="parked"))
    monkeypatch.syspath_prepend(str(folder / "site"))
    card = run_suite("parked", out=folder / "suite")
    assert any(module in name for name in card["code"])
    random = run_suite("uniform", out=folder / "suite")
    for entries in zip(*(c["scenarios"].values() for c in (card, random)), strict=True):
        assert entries[0]["histories"] == entries[1]["histories"]
    assert verify_card(card, every=True).holds
    few = ["--num-clients", "8", "--cohort-size", "4", "--rounds", "4", "--trials",
           "1", "--schemes", "parked", "--availability", "parked", "--graph",
           "parked", "--step-dropout-rate", "0.1"]  # fmt: skip
    out = folder / "simulated"
    assert cli.main(["simulate", *few, "--out", str(out)]) == 0


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
    pip_install(tmp_path, "parked", "parked_attack", ATTACK)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "from mrsa_jax.cli import main\n"
        "sys.exit(main(['attack', 'parked', '--help']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Attack nothing" in done.stdout
