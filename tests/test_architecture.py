"""The package's shape.

Imports go down, heavy libraries wait, every public name is described.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import functools
import importlib
import inspect
import pathlib
import pkgutil
import subprocess
import symtable
import sys
from collections.abc import Collection, Iterator

import pytest

import mrsa_jax

ROOT = pathlib.Path(mrsa_jax.__file__).parent
# A family may import those before it in this list, never one after it.
ORDER = (
    "_version",
    "_core",
    "modular",
    "graphs",
    "availability",
    "selection",
    "quantize",
    "privacy",
    "design",
    "secagg",
    "protocol",
    "hetero",
    "dp",
    "data",
    "federated",
    "attacks",
    "plotting",
    "study",
    "live",
    "bench",
    "cli",
    "__main__",
)
# The folders of a family from the bottom up ("" are its own modules); others have none
# below them.
ROOMS = {
    "privacy": ("logs", "solver", ""),
    "secagg": ("", "costs", "failures"),
    "federated": ("conv", "programs", ""),
    "study": (
        "settings",
        "",
        "stores",
        "publishing",
        "runs",
        "secagg",
        "attack",
        "advice",
        "sweeps",
        "suite",
    ),
    "live": ("", "fedjax", "flower", "nvflare", "pfl"),
    "mrsa_watch": ("_base", "logs", "", "flower"),
    "mrsa_papers": ("harness", "multiround", "ccesa", "heterosag", ""),
}
# Too slow, or absent on accelerator machines: never imported by a module's top level.
LATE = {
    "cryptography",
    "dp_accounting",
    "matplotlib",
    "flint",
    "pandas",
    "pyarrow",
    "scipy",
    "sklearn",
    "tensorflow_datasets",
    "xarray",
    "zarr",
}
ROOTS = ("mrsa_jax", "mrsa_watch", "mrsa_papers")
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
WATCH = sorted((ROOT.parent / "watch" / "mrsa_watch").rglob("*.py"))
PAPERS = sorted((ROOT.parent / "papers" / "mrsa_papers").rglob("*.py"))


@functools.cache
def _tree(path: pathlib.Path) -> ast.Module:
    """Return a module's syntax tree.

    A package's names load late, from what its stub imports.
    """
    tree, stub = ast.parse(path.read_text()), path.with_suffix(".pyi")
    if stub.exists():
        names = ast.parse(stub.read_text()).body
        parts = stub.parent.parts
        base = max(parts.index(root) for root in ROOTS if root in parts)
        for node in names:
            assert isinstance(node, ast.ImportFrom)
            if str(node.module).startswith("mrsa_watch"):  # what is re-exported
                continue
            assert node.level == 1
            node.module = ".".join(
                [*parts[base:], *([node.module] if node.module else [])]
            )
            node.level = 0
        tree.body.append(ast.If(ast.Name("TYPE_CHECKING"), names, []))
    return tree


def _family(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


_HOLDS_STATEMENTS = ast.stmt | ast.excepthandler | ast.match_case


def _imports(tree: ast.AST) -> list[str]:
    """Return the dotted names of every import statement below a node."""
    names = []
    nodes = [tree]
    for node in nodes:  # and those below, but no expressions
        below = ast.iter_child_nodes(node)
        nodes += [own for own in below if isinstance(own, _HOLDS_STATEMENTS)]
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def _top_level(tree: ast.Module) -> ast.Module:
    """Return the statements that run on import (not those for type checkers alone)."""
    kept = []
    for node in tree.body:
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not guarded and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            kept.append(node)
    return ast.Module(kept, [])


def _up(path: pathlib.Path, tree: ast.Module) -> list[str]:
    """Return what a module imports from families after its own, or from the papers' project."""
    own = _family(path)
    parts = [name.split(".") for name in _imports(tree)]
    families = {
        name[1] for name in parts if name[0] == "mrsa_jax" and len(name) > 1
    } - {own}
    up = [
        f"{path}: {name}" for name in families if ORDER.index(name) >= ORDER.index(own)
    ]
    return up + [f"{path}: {name[0]}" for name in parts if name[0] == "mrsa_papers"]


def _private(path: pathlib.Path, tree: ast.Module) -> list[str]:
    """Return the private modules of other families that a module imports."""
    own = _family(path)
    parts = [name.split(".") for name in _imports(tree)]
    return [
        f"{path}: {'.'.join(name)}"
        for name in parts
        if name[0] == "mrsa_jax"
        and name[1:2] not in ([own], ["_core"], ["_version"])
        and any(part.startswith("_") for part in name[2:])
    ]


def _arrows(
    paths: list[pathlib.Path], base: pathlib.Path = ROOT.parent
) -> dict[str, set[str]]:
    """Return the modules that each imports, wherever in it and for whatever purpose."""
    arrows = {}
    for path in paths:
        own = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        arrows[own] = set(_imports(_tree(path)))
    for own, names in arrows.items():
        targets = {
            name if name in arrows else name.rpartition(".")[0] for name in names
        }
        arrows[own] = targets & arrows.keys()
    return arrows


def _circles(arrows: dict[str, set[str]]) -> list[str]:
    """Return what is left when all that imports, or is imported by, nothing else left has gone."""
    left = dict(arrows)
    while True:
        imported = {target for own in left.values() for target in own}
        kept = {
            own: there & left.keys() for own, there in left.items() if own in imported
        }
        kept = {own: there for own, there in kept.items() if there}
        if kept == left:
            return sorted(left)
        left = kept


def _room(parts: list[str], rooms: tuple[str, ...]) -> str:
    return parts[0] if len(parts) > 1 or (parts and parts[0] in rooms) else ""


def _arrows_up(arrows: dict[str, set[str]]) -> list[str]:
    """Return what runs up within a family: to its front door, or to a room above."""
    found = []
    for own, targets in arrows.items():
        (_, family, *rest) = own.split(".")
        rooms = ROOMS.get(family, ("",))
        for target in targets:
            (_, other, *there) = target.split(".")
            is_inside = other == family and bool(rest)
            if is_inside and (
                not there
                or rooms.index(_room(there, rooms)) > rooms.index(_room(rest, rooms))
            ):
                found.append(f"{own} imports {target}")
    return sorted(found)


@pytest.mark.long
def test_imports_go_down() -> None:
    """From family to family, inside a family by ROOMS, and never round in a circle.

    Neither when a module is loaded, nor late in a function, nor for type checkers. What
    is heavy waits until it is used.
    """
    arrows = _arrows([ROOT / "__init__.py", *MODULES])
    found = [line for path in MODULES for line in _up(path, _tree(path))]
    found += [line for path in MODULES for line in _private(path, _tree(path))]
    found += _arrows_up({name: there for name, there in arrows.items() if "." in name})
    found += _circles(arrows)
    papers = _arrows(PAPERS, ROOT.parent / "papers")
    found += _arrows_up(
        {f".{own}": {f".{name}" for name in there} for own, there in papers.items()}
    )
    found += _circles(papers)
    watch = _arrows(WATCH, ROOT.parent / "watch")
    found += _arrows_up(
        {f".{own}": {f".{name}" for name in there} for own, there in watch.items()}
    )
    found += _circles(watch)
    found += [line for path in WATCH for line in _beside_numpy(path, _tree(path))]
    found += [
        line
        for path in [*MODULES, *WATCH, *PAPERS]
        for line in _too_early(path, _tree(path))
    ]
    assert not found


def _too_early(path: pathlib.Path, tree: ast.Module) -> list[str]:
    """Return the heavy libraries that a module loads when it is imported."""
    names = {name.split(".")[0] for name in _imports(_top_level(tree))}
    return [f"{path} loads {name}" for name in sorted(names & LATE)]


def _beside_numpy(path: pathlib.Path, tree: ast.Module) -> list[str]:
    """Return what a module of the small distribution loads beside NumPy.

    Adapters load theirs.
    """
    known = {*sys.stdlib_module_names, "numpy", "mrsa_watch", "__future__"}
    known |= {"flwr"} if path.parent.name == "flower" else {path.stem} - {"compiled"}
    known |= {"numba"} if path.stem in ("compiled", "numba_here") else set()
    names = {name.split(".")[0] for name in _imports(_top_level(tree))}
    return [f"{path} loads {name}" for name in sorted(names - known)]


def test_numba_is_imported_at_one_place() -> None:
    """Elsewhere it would be imported under settings with which it compiles nothing."""
    places = {"numba_here.py", "compiled.py"}
    others = [
        path
        for path in [*MODULES, *WATCH, *PAPERS]
        if path.name not in places
        and "numba" in path.read_text()
        and any(name.split(".")[0] == "numba" for name in _imports(_tree(path)))
    ]
    assert others == []


def test_violations_are_seen(tmp_path: pathlib.Path) -> None:
    tree = ast.parse("import scipy\ndef f():\n    from mrsa_jax.study import run")
    path = ROOT / "modular" / "_ring.py"
    assert _up(path, tree) == [f"{path}: study"]
    assert _up(path, ast.parse("import mrsa_papers")) == [f"{path}: mrsa_papers"]
    assert _too_early(path, tree) == [f"{path} loads scipy"]
    doors = "from mrsa_jax.study.kinds import attacks\nfrom mrsa_jax._core.status import Status"
    assert _private(path, ast.parse(doors)) == []
    inside = ast.parse("def f():\n    from mrsa_jax.study import _store")
    assert _private(path, inside) == [f"{path}: mrsa_jax.study._store"]
    assert _beside_numpy(path, tree) == [f"{path} loads scipy"]
    texts = {
        "__init__": "",
        "_types": "def f():\n    from mrsa_jax.secagg.failures import _theory",
        "failures/__init__": "",
        "failures/_theory": "if TYPE_CHECKING:\n    from mrsa_jax import secagg",
        "_rest": "from mrsa_jax.secagg._types import Seeds",
    }
    paths = [tmp_path / f"mrsa_jax/secagg/{name}.py" for name in texts]
    (tmp_path / "mrsa_jax/secagg/failures").mkdir(parents=True)
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    up = [
        "mrsa_jax.secagg._types imports mrsa_jax.secagg.failures._theory",
        "mrsa_jax.secagg.failures._theory imports mrsa_jax.secagg",
    ]
    assert _arrows_up(_arrows(paths, tmp_path)) == up
    assert not _circles(_arrows(paths, tmp_path))
    paths[0].write_text("from mrsa_jax.secagg._types import Seeds")
    _tree.cache_clear()
    ring = [
        "mrsa_jax.secagg",
        "mrsa_jax.secagg._types",
        "mrsa_jax.secagg.failures._theory",
    ]
    assert _circles(_arrows(paths, tmp_path)) == ring


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_import_is_cheap_and_help_needs_no_jax() -> None:
    done = _run(
        "import sys, mrsa_jax\nassert 'jax' not in sys.modules\n"
        "from mrsa_jax.cli import main\nstatus = main(['--help'])\n"
        "never = {'jax', 'numpy', 'flax', 'matplotlib', 'xarray', 'mrsa_papers'}\n"
        "never.add('importlib.metadata')  # it takes 20 ms\n"
        "heavy = never & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else status)"
    )
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


@pytest.mark.long
def test_core_runs_without_optional_libraries() -> None:
    """Accelerator machines hold only JAX, flax, optax, NumPy (and jaxtyping)."""
    absent = sorted((LATE - {"scipy"}) | {"numba", "tyro"})  # scipy comes with jax
    done = _run(
        "import sys\n"
        f"absent = set({absent})\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in absent: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import mrsa_jax as mj\n"
        "from mrsa_jax import attacks, federated, modular, quantize, secagg\n"
        "selector = mj.selection.uniform(6, 2)\n"
        "P = mj.selection.rollout(0, selector, mj.availability.independent(.1), 9)\n"
        "print(mj.privacy.strong_privacy(P), mj.privacy.first_exposure(P))\n"
    )
    assert done.returncode == 0, done.stderr


FAMILIES = [
    name
    for name in ORDER
    if not name.startswith("_")
    and name != "cli"
    and (ROOT / name / "__init__.py").exists()
]


def _public() -> list[tuple[str, object]]:
    found = []
    for family in FAMILIES:
        module = importlib.import_module(f"mrsa_jax.{family}")
        found += [
            (f"{family}.{name}", getattr(module, name)) for name in module.__all__
        ]
    return found


def test_every_family_lists_its_public_names() -> None:
    for family in FAMILIES:
        module = importlib.import_module(f"mrsa_jax.{family}")
        assert module.__doc__, family
        assert len(set(module.__all__)) == len(module.__all__), family
        wrong = [
            n for n in module.__all__ if n.startswith("_") or not hasattr(module, n)
        ]
        assert not wrong, family


def _callables(name: str, value: object) -> list[tuple[str, object]]:
    """Return a function, or a class's public methods that it defines itself."""
    if inspect.isclass(value):
        return [
            (f"{name}.{key}", getattr(member, "__func__", member))
            for key, member in vars(value).items()
            if not key.startswith("_")
            and (
                inspect.isfunction(member)
                or isinstance(member, staticmethod | classmethod)
            )
        ]
    return [(name, value)] if callable(value) else []


def _undescribed(name: str, value: object) -> Iterator[str]:
    """Yield what a public name's documentation or annotations lack."""
    if not (inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))):  # type: ignore[arg-type]
        return  # a constant or an alias of a type: described by the string beside it
    doc = inspect.getdoc(value) or ""
    if len(doc.split()) < 4 or doc.startswith(f"{getattr(value, '__name__', '')}("):
        yield f"{name} has no docstring"
    for label, function in _callables(name, value):
        if not inspect.getdoc(function):
            yield f"{label} has no docstring"
        signature = inspect.signature(inspect.unwrap(function))  # type: ignore[arg-type]
        for parameter in signature.parameters.values():
            if (
                parameter.name not in ("self", "cls")
                and parameter.annotation is parameter.empty
            ):
                yield f"{label}: {parameter.name}"
        if signature.return_annotation is signature.empty:
            yield f"{label}: return"


def test_public_names_are_described_and_annotated() -> None:
    def bare(rounds, clients):  # type: ignore[no-untyped-def]
        pass

    lacks = [
        "f has no docstring",
        "f has no docstring",
        "f: rounds",
        "f: clients",
        "f: return",
    ]
    assert list(_undescribed("f", bare)) == lacks
    assert not [line for name, value in _public() for line in _undescribed(name, value)]


# The public entry points that must keep their names: name -> parameters in order.
ENTRY_POINTS = {
    "selection.uniform": "num_clients cohort_size",
    "selection.weighted": "num_clients cohort_size",
    "selection.partition": "num_clients cohort_size",
    "selection.batch_partitioning": "num_clients cohort_size privacy_target fairness",
    "selection.crossing_partitions": "num_clients cohort_size privacy_target fairness",
    "selection.from_lines": "lines cohort_size",
    "selection.bernoulli": "num_clients probability",
    "selection.register": "name factory label papers",
    "availability.independent": "dropout_rate",
    "selection.rollout": "seed selector availability num_rounds",
    "selection.rollout_trials": "seed selector availability num_rounds num_trials",
    "selection.fairness_gap": "participation",
    "selection.aggregation_cardinality": "participation",
    "selection.expected_cardinality": "num_clients cohort_size privacy_target dropout_rate",
    "selection.family_size": "num_clients cohort_size privacy_target",
    "selection.enumerate_family": "num_clients cohort_size privacy_target",
    "design.judge": "lines cohort_size dropout_rate",
    "privacy.strong_privacy": "P",
    "privacy.weak_privacy": "P",
    "privacy.weak_privacy_trajectory": "P method",
    "privacy.first_exposure": "P",
    "secagg.connection_probability": "n total_dropout_rate",
    "secagg.share_threshold": "n p",
    "secagg.reliability_bound": "n p q t",
    "secagg.privacy_bound": "n p q",
    "secagg.is_reliable": "adjacency survivors thresholds",
    "secagg.is_private": "adjacency survivors thresholds",
    "secagg.aggregate": "seed inputs adjacency survivors thresholds modulus_bits modulus seeds",
    "secagg.failure_rates": "seed n p q t num_trials",
    "protocol.run": "inputs adjacency survivors thresholds modulus_bits modulus entropy",
    "hetero.segment_matrix": "scheme num_groups hybrid_threshold",
    "hetero.segment_matrix_plus": "scheme subgroups hybrid_threshold",
    "hetero.privacy_level": "matrix",
    "hetero.quantization_error_bound": "matrix levels group_size dim value_range",
    "attacks.least_squares": "participation aggregates",
}


def test_entry_points_have_their_names_and_a_doctest() -> None:
    for name, wanted in ENTRY_POINTS.items():
        family, attribute = name.split(".")
        function = getattr(getattr(mrsa_jax, family), attribute)
        names = list(inspect.signature(inspect.unwrap(function)).parameters)
        assert names[: len(wanted.split())] == wanted.split(), name
        assert ">>>" in (inspect.getdoc(function) or ""), name


def _strangers(example: str) -> set[str]:
    """Return the names that an example uses and neither makes nor finds in Python."""
    table = symtable.symtable(example, "example", "exec")
    inner = [symbol for part in table.get_children() for symbol in part.get_symbols()]
    used = {symbol.get_name() for symbol in inner if symbol.is_global()}
    used |= {
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()
    }
    made = {
        s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()
    }
    return used - made - set(dir(builtins))


def test_examples_of_public_names_run_where_they_are_pasted() -> None:
    """Each begins with an import of the package, and names nothing else that it does not make."""
    assert _strangers("a = np.ones(b)\nsum(a[c] for c in range(d))") == {"np", "b", "d"}
    wrong, count = [], 0
    for name, value in _public():
        described = value.__dict__.items() if inspect.isclass(value) else ()
        methods = [(key, part) for key, part in described if hasattr(part, "__get__")]
        parts = [(f"{name}.{key}", part) for key, part in methods if key[0] != "_"]
        for label, own in [(name, value), *parts]:
            doc = getattr(own, "__func__", own).__doc__ or ""
            lines = [line.source for line in doctest.DocTestParser().get_examples(doc)]
            if lines:
                begins = lines[0].startswith(
                    ("import mrsa_jax as mj", "from mrsa_watch")
                )
                wrong += [] if begins and not _strangers("".join(lines)) else [label]
                count += 1
    assert count > 250
    assert not wrong
    plots = [value for name, value in _public() if name.startswith("plotting.plot_")]
    assert not [value for value in plots if ">>>" not in (value.__doc__ or "")]


def _missing(path: pathlib.Path, modules: Collection[str]) -> list[str]:
    """Return the names that a module takes from the package's modules, and that these lack."""
    nodes = list(ast.walk(_tree(path)))
    guards = [
        n
        for n in nodes
        if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)
    ]
    for_types = {id(line) for guard in guards for line in guard.body}
    doors, missing = {}, []
    for node in nodes:
        is_own = isinstance(node, ast.ImportFrom) and str(node.module).startswith(
            "mrsa_"
        )
        if not is_own or (id(node) in for_types and path.stem != "__init__"):
            continue
        for name in node.names:
            full = f"{node.module}.{name.name}"
            if full in modules:
                doors[name.asname or name.name] = importlib.import_module(full)
            elif not hasattr(importlib.import_module(node.module), name.name):
                missing.append(full)
    own = {n.arg for n in nodes if isinstance(n, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            door = None if node.value.id in own else doors.get(node.value.id)
            if door is not None and not hasattr(door, node.attr):
                missing.append(f"{node.value.id}.{node.attr}")
    return missing


@pytest.mark.long
def test_names_of_doors_exist(tmp_path: pathlib.Path) -> None:
    """Type checkers do not see a name missing from a package whose names load late."""
    for name in mrsa_jax.__all__:
        assert getattr(mrsa_jax, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mrsa_jax.nothing
    packages = {m.name for m in pkgutil.iter_modules([str(ROOT)]) if m.ispkg}
    assert packages - {"cli", "_core"} <= set(mrsa_jax.__all__)
    modules = _arrows(MODULES).keys() | _arrows(PAPERS, ROOT.parent / "papers").keys()
    modules |= _arrows(WATCH, ROOT.parent / "watch").keys()
    # the adapter of NVFlare is imported where it is installed, under both names
    paths = [path for path in [*MODULES, *WATCH, *PAPERS] if path.stem != "nvflare"]
    assert not [(str(path), name) for path in paths for name in _missing(path, modules)]
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from mrsa_jax import study\nfrom mrsa_jax.study import runn\nstudy.sweeep()"
    )
    assert _missing(wrong, modules) == ["mrsa_jax.study.runn", "study.sweeep"]
