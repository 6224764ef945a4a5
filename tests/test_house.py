"""How large the house may be, and how it is written.

A change that needs more raises a limit here, and says why. Tokens are those of Python's
tokenizer without docstrings, comments and line ends, so laying code out more tightly
lowers none of the counts.
"""

from __future__ import annotations

import ast
import collections
import functools
import io
import pathlib
import re
import subprocess
import sys
import tokenize
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mrsa_jax"

# tokens of code, of each family and of the modules beside them
TOKENS = {
    "_core": 35_800,
    "attacks": 26_200,
    "availability": 4_300,
    "bench": 11_700,
    "cli": 16_700,
    "data": 14_700,
    "design": 1_500,
    "dp": 27_950,
    "federated": 39_500,
    "graphs": 4_950,
    "hetero": 34_650,
    "live": 1_450,
    "modular": 10_300,
    "plotting": 18_000,
    "privacy": 93_900,
    "protocol": 17_850,
    "quantize": 5_850,
    "secagg": 39_950,
    "selection": 26_350,
    "study": 168_600,
    "": 376,
}
# the trees that are read together, and how they may be written
TREES = {
    "mrsa_jax": PACKAGE,
    "watch": ROOT / "watch",
    "papers": ROOT / "papers",
    "benchmarks": ROOT / "benchmarks",
}
MOST_TOKENS = 817_500
MOST_TOKENS_A_LINE = 9.15
MOST = {"rulers": 0, "Any": 3_556, "vague names": 248, "odd openings": 48}
LEAST_COMMENTS = 0.035
NAMES = {
    "attacks": 29, "availability": 12, "bench": 7, "data": 17, "design": 5, "dp": 13,
    "federated": 37, "graphs": 12, "hetero": 27, "live": 5, "modular": 12, "plotting": 20,
    "privacy": 34, "protocol": 10, "quantize": 12, "secagg": 43, "selection": 34, "study": 42,
}  # fmt: skip
DEPENDENCIES = 18
# modules of the package that a command loads
LOADED = {
    "simulate --rounds 5 --trials 2 --schemes uniform --out out": 162,
    "audit log.csv": 131,
}
# what a command never loads
NEVER = {
    "simulate": {"flax", "optax", "cryptography", "sklearn", "mrsa_papers"},
    "audit": {"flax", "optax", "cryptography", "sklearn", "matplotlib", "mrsa_papers"},
}


# --- the ruler

LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# names that say a place in a sentence, not a thing
VAGUE = {
    "own",
    "found",
    "one",
    "told",
    "known",
    "kept",
    "left",
    "mine",
    "there",
    "asked",
    "given",
    "shown",
}
RULER = re.compile(r"# ?-{3,}")
OPENING = re.compile(
    r"(Return|Yield|Give)s? (what|who|which|how|where|whose)\b|(What|Who|How|Whose) ",
    re.IGNORECASE,
)
# the comments that speak to tools
DIRECTIVE = re.compile(r"fmt:|type:")


Counts = collections.Counter[str]


def measure(text: str) -> Counts:
    """Return the counts of one file's text."""
    tree = ast.parse(text)
    docstrings = _lone_strings(tree)
    docstring_lines = {
        line
        for node in docstrings
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    counts: Counts = collections.Counter()
    code_lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            is_ruler = bool(RULER.match(token.string))
            is_directive = bool(DIRECTIVE.search(token.string))
            counts["rulers"] += is_ruler
            counts["comments"] += not is_ruler and not is_directive
            counts["fmt: skip"] += "fmt: skip" in token.string
        elif token.type not in LAYOUT and token.start[0] not in docstring_lines:
            counts["tokens"] += 1
            counts["Any"] += token.string == "Any"
            code_lines.update(range(token.start[0], token.end[0] + 1))
    counts["lines"] = len(code_lines)
    counts["odd openings"] = sum(
        bool(OPENING.match(node.value.value.lstrip()))  # type: ignore[attr-defined]
        for node in docstrings
    )
    counts["vague names"] = sum(_is_vague(node) for node in ast.walk(tree))
    return counts


def measure_tree(folder: pathlib.Path) -> Counts:
    """Return the counts of all files under a folder but its tests."""
    counts: Counts = collections.Counter()
    for path in folder.rglob("*.py"):
        if not {"tests", "__pycache__"} & set(path.relative_to(folder).parts):
            counts.update(measure(path.read_text(encoding="utf-8")))
    return counts


def _lone_strings(tree: ast.AST) -> list[ast.Expr]:
    """Return the expressions that are nothing but a string."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def _is_vague(node: ast.AST) -> bool:
    if isinstance(node, ast.arg):
        return node.arg in VAGUE
    is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    return is_stored and node.id in VAGUE


# --- what it must say


def _over(found: dict[str, int], limits: dict[str, int]) -> list[str]:
    """Return what has no limit, or more than it."""
    return [
        f"{name}: {count}"
        for name, count in found.items()
        if count > limits.get(name, -1)
    ]


@functools.cache
def _counts(folder: pathlib.Path) -> Counts:
    return measure_tree(folder)


@pytest.mark.long
def test_families_grow_knowingly() -> None:
    tokens = {name: _counts(PACKAGE / name)["tokens"] for name in TOKENS if name}
    families = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert families == set(tokens)
    tokens[""] = _counts(PACKAGE)["tokens"] - sum(tokens.values())
    names = {
        path.parent.name: sum(
            len(line.names) for line in ast.parse(path.read_text()).body
        )  # type: ignore[attr-defined]
        for path in PACKAGE.glob("*/__init__.pyi")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = {"dependencies": len(project["dependencies"])}
    over = _over(tokens, TOKENS) + _over(names, NAMES)
    assert not over + _over(dependencies, {"dependencies": DEPENDENCIES})


@pytest.mark.long
def test_lines_breathe() -> None:
    """Each tree says one fact a line, and all of them are written in plain words."""
    counts = {name: _counts(folder) for name, folder in TREES.items()}
    dense = {
        name: round(own["tokens"] / own["lines"], 2)
        for name, own in counts.items()
        if own["tokens"] > MOST_TOKENS_A_LINE * own["lines"]
    }
    assert not dense
    total = sum(counts.values(), Counts())
    assert total["tokens"] <= MOST_TOKENS
    assert not _over({name: total[name] for name in MOST}, MOST)
    assert total["comments"] >= LEAST_COMMENTS * total["lines"]


def test_only_tables_of_constants_keep_their_layout() -> None:
    paths = [path for folder in TREES.values() for path in folder.rglob("*.py")]
    assert not [line for path in paths for line in _skips(path.read_text())]


def _skips(text: str) -> list[str]:
    """Return the lines that keep the formatter away from more than a table."""
    tables: set[int] = set()
    for node in ast.parse(text).body:
        is_assignment = isinstance(node, ast.Assign | ast.AnnAssign)
        if is_assignment and node.value is not None and _is_table(node.value):  # type: ignore[attr-defined]
            tables.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return [line for row, line in lines if "# fmt: " in line and row not in tables]


def _is_table(node: ast.expr) -> bool:
    try:
        return isinstance(ast.literal_eval(node), dict | list | tuple | set)
    except ValueError:
        return False


def test_what_breaks_the_ruler_is_seen() -> None:
    text = """
def scale(own: Any, share=None):
    \"\"\"Return what is left.\"\"\"
    # ---- a part
    # the least that a client sees
    found = own * 2  # fmt: skip
    return found
"""
    counts = measure(text)
    assert counts == {
        "tokens": 19,
        "lines": 3,
        "Any": 1,
        "rulers": 1,
        "comments": 1,
        "fmt: skip": 1,
        "vague names": 2,
        "odd openings": 1,
    }
    assert _skips(text) == ["    found = own * 2  # fmt: skip"]
    assert _skips("ROWS = (\n    (1, 2),  # fmt: skip\n)") == []


def test_what_is_over_is_seen() -> None:
    assert _over({"a": 2, "b": 3, "c": 0}, {"a": 2, "b": 2}) == ["b: 3", "c: 0"]


@pytest.mark.long
@pytest.mark.parametrize("words", LOADED)
def test_a_command_loads_what_it_uses(tmp_path: pathlib.Path, words: str) -> None:
    (tmp_path / "log.csv").write_text("round,client\n0,a\n0,b\n1,b\n1,c\n")
    # figures are made, and their files named: to draw them takes longer than all else
    drawn = "import matplotlib.figure as m\nm.Figure.savefig = lambda unused, to, **own: to.touch()\n"
    code = (
        "import sys\nfrom mrsa_jax.cli import main\n"
        + drawn * words.startswith("simulate")
        + f"status = main({words.split()})\n"
        "print(*sys.modules, file=sys.stderr)\nsys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = done.stderr.splitlines()[-1].split()
    own = [name for name in modules if name.partition(".")[0] == "mrsa_jax"]
    assert 0 < len(own) <= LOADED[words]
    command = words.partition(" ")[0]
    assert not NEVER[command] & {name.partition(".")[0] for name in modules}
