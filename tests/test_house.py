"""How large the house may be. A change that needs more raises a limit here, and says why."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mrsa_jax"

# lines that are not blank, and public names: of each family, and of the modules beside them
LINES = {
    "attacks": 3_215, "availability": 755, "bench": 1_510, "cli": 1_870, "data": 1_530,
    "design": 295, "dp": 3_560, "federated": 4_980, "graphs": 910, "hetero": 4_410,
    "live": 290, "modular": 1_200, "plotting": 2_150, "privacy": 10_700, "protocol": 2_480,
    "quantize": 1_080, "secagg": 5_600, "selection": 3_620, "study": 16_400,
    "_core": 4_330, "": 95,
}  # fmt: skip
NAMES = {
    "attacks": 28, "availability": 12, "bench": 7, "data": 17, "design": 5, "dp": 13,
    "federated": 33, "graphs": 12, "hetero": 29, "live": 5, "modular": 12, "plotting": 20,
    "privacy": 25, "protocol": 10, "quantize": 12, "secagg": 40, "selection": 33, "study": 40,
}  # fmt: skip
FILES = 380
DEPENDENCIES = 17
# modules of the package that a command loads
LOADED = {
    "simulate --rounds 5 --trials 2 --schemes uniform --out out": 116,
    "audit log.csv": 98,
}
# what a command never loads
NEVER = {
    "simulate": {"flax", "optax", "cryptography", "sklearn", "mrsa_papers"},
    "audit": {"flax", "optax", "cryptography", "sklearn", "matplotlib", "mrsa_papers"},
}


def _over(found: dict[str, int], limits: dict[str, int]) -> list[str]:
    """Return what has no limit, or more than it."""
    return [f"{name}: {count}" for name, count in found.items() if count > limits.get(name, -1)]


def test_families_grow_knowingly() -> None:
    lines = dict.fromkeys(LINES, 0)
    paths = [path for ending in ("py", "pyi") for path in PACKAGE.rglob(f"*.{ending}")]
    for path in paths:
        family = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else ""
        lines[family] = lines.get(family, 0) + sum(
            not line.isspace() for line in path.read_text().splitlines(keepends=True)
        )
    names = {
        path.parent.name: sum(len(line.names) for line in ast.parse(path.read_text()).body)  # type: ignore[attr-defined]
        for path in PACKAGE.glob("*/__init__.pyi")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = {"files": len(paths), "dependencies": len(project["dependencies"])}
    found = _over(lines, LINES) + _over(names, NAMES)
    assert not found + _over(others, {"files": FILES, "dependencies": DEPENDENCIES})


def test_what_is_over_is_seen() -> None:
    assert _over({"a": 2, "b": 3, "c": 0}, {"a": 2, "b": 2}) == ["b: 3", "c: 0"]


@pytest.mark.parametrize("words", LOADED)
def test_a_command_loads_what_it_uses(tmp_path: pathlib.Path, words: str) -> None:
    (tmp_path / "log.csv").write_text("round,client\n0,a\n0,b\n1,b\n1,c\n")
    # figures are made, and their files named: to draw them takes longer than all else
    drawn = (
        "import matplotlib.figure as m\nm.Figure.savefig = lambda unused, to, **own: to.touch()\n"
    )
    code = (
        "import sys\nfrom mrsa_jax.cli import main\n"
        + drawn * words.startswith("simulate")
        + f"status = main({words.split()})\n"
        "print(*sys.modules, file=sys.stderr)\nsys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    modules = done.stderr.splitlines()[-1].split()
    own = [name for name in modules if name.partition(".")[0] == "mrsa_jax"]
    assert 0 < len(own) <= LOADED[words]
    command = words.partition(" ")[0]
    assert not NEVER[command] & {name.partition(".")[0] for name in modules}
