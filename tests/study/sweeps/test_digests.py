"""Digests of objects: every value that one reaches counts, and nothing else does."""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import types
import warnings
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import numpy as np
import pytest
from digested import OBJECTS

from mrsa_jax import ConfigurationError
from mrsa_jax._core.sources import Code

KINDS = list(dict.fromkeys(name.partition(":")[0] for name in OBJECTS))


def digest(thing: Any, **more: Any) -> str:
    return Code(thing, "mine", "grid", **more)()[""].partition(" ")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_each_value_that_an_object_reaches_changes_its_digest(kind: str) -> None:
    assert len(OBJECTS) > 300
    for name, made in OBJECTS.items():
        if name.startswith(f"{kind}:"):
            own = made(1)
            assert digest(own) == digest(made(1)) == digest(own), name
            assert digest(made(2)) != digest(own), name


@pytest.mark.long
def test_digests_are_those_of_another_process() -> None:
    """Sets have another order there, objects other addresses, and all is made in another order."""
    program = textwrap.dedent("""
        import json
        from digested import OBJECTS
        from mrsa_jax._core.sources import Code
        found = {}
        for name, made in reversed(OBJECTS.items()):
            found[name] = Code(made(1), "mine", "grid")()
        print(json.dumps(found))
    """)
    folder = str(pathlib.Path(__file__).parents[1])
    found = []
    for seed in ("1", "2"):
        own = os.environ | {
            "PYTHONPATH": os.pathsep.join([folder, *sys.path]),
            "PYTHONHASHSEED": seed,
        }
        words = [sys.executable, "-c", program]
        done = subprocess.run(
            words, env=own, capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout))
    here = {name: Code(made(1), "mine", "grid")() for name, made in OBJECTS.items()}
    for other in found:
        assert [name for name in OBJECTS if other[name] != here[name]] == []


def test_use_changes_no_digest() -> None:
    """What a value keeps of its own use (caches of pandas, say) is none of its state."""
    differ = []
    for name, made in OBJECTS.items():
        if not name.startswith("array: "):
            continue
        value = made(1)
        before = digest(value)
        _use(value, depth=2)
        if digest(value) != before:
            differ.append(name)
    assert differ == []


def _use(value: object, depth: int) -> None:
    """Ask a value for all that it shows of itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in [name for name in dir(value) if not name.startswith("_")]:
            with contextlib.suppress(Exception):
                shown = getattr(value, name)
                if depth > 1 and not callable(shown):
                    _use(shown, depth - 1)
        for function in (repr, hash, len):
            with contextlib.suppress(Exception):
                function(value)


def test_a_reducer_of_another_library_changes_no_digest() -> None:
    """As tblib does for exceptions, which dask imports."""
    value = ValueError("a", 1)
    before = digest(value)
    reducer = types.FunctionType(_other_reducer.__code__, {"__name__": "tblib"})
    known = copyreg.dispatch_table.get(ValueError)
    copyreg.pickle(ValueError, reducer)
    try:
        assert digest(value) == before
    finally:
        copyreg.dispatch_table.pop(ValueError)
        if known is not None:
            copyreg.pickle(ValueError, known)


def _other_reducer(error: ValueError) -> tuple[type, tuple]:
    return type(error), ("more", *error.args)


# ---- modules


@pytest.fixture
def modules(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pathlib.Path]:
    """A folder whose modules can be imported, and are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_numbers.py").write_text("rate = 3\nother = open\n")
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("rate = 3\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def notebook(text: str) -> Any:
    known: dict[str, Any] = {"__name__": "__main__"}
    exec(text, known)
    return known["thing"]


USES = {
    "attribute": "import own_numbers\ndef thing(): return own_numbers.rate",
    "another name": "import own_numbers as n\nthing = lambda: n.rate",
    "imported inside": "def thing():\n    from own_numbers import rate\n    return rate",
    "in a lambda inside": "import own_numbers as n\nthing = lambda: (lambda: n.rate)()",
    "in a class": "import own_numbers\nclass thing:\n    def f(self): return own_numbers.rate",
}
USES_OF_PACKAGES = {
    "module in a package": "import own_package.inner\ndef thing(): return own_package.inner.rate",
    "imported from one": "from own_package import inner\ndef thing(): return inner.rate",
    "imported inside from one": "def thing():\n    from own_package import inner\n    return inner",
    "imported inside as": "def thing():\n    import own_package.inner as i\n    return i.rate",
    "as a value": "from own_package import inner\ndef thing(): return getattr(inner, 'ra' + 'te')",
    "in a table": "from own_package import inner\na = {'b': inner}\nthing = lambda: a['b'].rate",
    "imported by its name": "import importlib\na = importlib.import_module('own_package.inner')\n"
                            "def thing(): return a.rate",
}  # fmt: skip


@pytest.mark.parametrize("use", [*USES, *USES_OF_PACKAGES])
def test_attributes_of_modules_count_as_they_are_now(
    use: str, modules: pathlib.Path
) -> None:
    thing = notebook((USES | USES_OF_PACKAGES)[use])
    before = digest(thing)
    name = "own_numbers" if use in USES else "own_package.inner"
    module = importlib.import_module(name)
    assert digest(thing) == before
    module.rate = 4  # type: ignore[attr-defined]
    assert digest(thing) != before
    module.rate = 3  # type: ignore[attr-defined]
    assert digest(thing) == before


def test_attributes_of_libraries_count_where_somebody_set_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thing = notebook(
        "import scipy.constants as c\ndef thing(): return c.g, c.convert_temperature"
    )
    before = digest(thing)
    with monkeypatch.context() as patch:
        patch.setattr("scipy.constants.g", 9.0)
        assert digest(thing) != before
    with monkeypatch.context() as patch:
        patch.setattr("scipy.constants.g", np.float64(9.0))
        assert digest(thing) != before
    with monkeypatch.context() as patch:
        patch.setattr("scipy.constants.convert_temperature", lambda *given: 3)
        assert digest(thing) != before
    assert digest(thing) == before
    layer = notebook("import flax.linen as nn\nthing = nn.Dense(3)")
    before = digest(layer)
    monkeypatch.setattr(nn.Dense, "__call__", notebook("def thing(self, x): return 3"))
    assert digest(layer) != before


def test_an_installed_package_counts_by_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thing = notebook("import scipy.stats\ndef thing(): return scipy.stats.norm")
    before = Code(thing, "mine", "grid")()
    monkeypatch.setattr("scipy.__version__", "99.0")
    after = Code(thing, "mine", "grid")()
    assert after == before | {"scipy": "99.0 scipy"}


# ---- what lies outside

OUTSIDE = {
    "open": "def thing(): return open('a').read()",
    "os.environ": "import os\ndef thing(): return os.environ['RATE']",
    "environ": "from os import environ\ndef thing(): return environ['RATE']",
    "os.getenv": "import os as system\ndef thing(): return system.getenv('RATE')",
    "imported inside": "def thing():\n    import os\n    return os.environ['RATE']",
    "imported inside from": "def thing():\n    from os import environ\n    return environ",
    "in a helper": "import os\ndef helper(): return os.environ\nthing = lambda: helper()",
    "in a closure": "import os\ndef of(e):\n    return lambda: e['RATE']\nthing = of(os.environ)",
    "in a partial": "import os, functools\nthing = functools.partial(lambda e: e, os.environ)",
    "in a method": "import os\nclass thing:\n    def f(self): return os.environ['RATE']",
    "in a decorator": "import os, functools\ndef times(f):\n    @functools.wraps(f)\n"
    "    def inner(): return os.environ, f()\n    return inner\n"
    "@times\ndef thing(): return 3",
    "module as a value": "import os\ndef of(m): return m.environ\ndef thing(): return of(os)",
    "import_module": "import importlib\ndef thing(): return importlib.import_module('a').rate",
    "__import__": "def thing(): return __import__('a').rate",
    "exec": "def thing():\n    exec('import a')",
    "eval": "def thing(x): return eval(x)",
    "sys.argv": "import sys\ndef thing(): return sys.argv[1]",
    "sys.modules": "import sys\ndef thing(): return sys.modules['a'].rate",
    "listdir": "import os\ndef thing(): return os.listdir('.')",
    "exists": "import os.path\ndef thing(): return os.path.exists('a')",
    "glob": "import glob\ndef thing(): return glob.glob('*')",
    "np.load": "import numpy as np\ndef thing(): return np.load('a.npy')",
    "load": "from numpy import load\ndef thing(): return load('a.npy')",
    "jnp.load": "import jax.numpy as jnp\ndef thing(): return jnp.load('a.npy')",
    "read_csv": "import pandas as pd\ndef thing(): return pd.read_csv('a.csv')",
    "open_dataset": "import xarray\ndef thing(): return xarray.open_dataset('a.nc')",
    "read_text": "import pathlib\ndef thing(): return pathlib.Path('a').read_text()",
    "read_bytes of a path": "import pathlib\np = pathlib.Path('a')\nthing = lambda: p.read_bytes()",
    "open of a path": "from pathlib import Path\ndef thing(): return Path('a').open()",
    "read_text of a parameter": "def thing(path): return path.read_text()",
    "subprocess": "import subprocess\ndef thing(): return subprocess.run(['a'])",
    "random": "import random\ndef thing(): return random.random()",
    "np.random": "import numpy as np\ndef thing(): return np.random.rand()",
    "randint": "from random import randint\ndef thing(): return randint(1, 3)",
    "generator expression": "thing = (x for x in [3])",
    "open file": f"thing = open({os.devnull!r})",
    "thread-local": "import threading\nthing = threading.local()",
    "hidden attributes": "class A:\n    __dict__ = property(dict)\nthing = A()",
    "function of NumPy": "import numpy as np\nthing = np.frompyfunc(lambda x: x, 1, 1)",
}


@pytest.mark.parametrize("use", OUTSIDE)
@pytest.mark.filterwarnings("ignore:unclosed file")
def test_what_has_no_rule_is_refused_and_counts_by_what_is_named(use: str) -> None:
    thing = notebook(OUTSIDE[use])
    with pytest.raises(
        ConfigurationError, match=r"`grid` must hold only .*what it depends on"
    ):
        digest(thing)
    several = [
        Code(thing, "mine", "grid", depends=own)() for own in ([3], [3], [4], ())
    ]
    assert several[0] == several[1]
    assert len({own["depends"] for own in several}) == 3
    assert len({own[""] for own in several}) == 1


ALLOWED = (
    "import logging\nlog = logging.getLogger('a')\ndef thing(x):\n    log.info('a')\n  "
    "  return x",
    "import threading\nlock = threading.Lock()\ndef thing(x):\n    with lock: return x",
    "import time\ndef thing(x):\n    print(time.perf_counter())\n    return x",
    "import os.path\ndef thing(x): return os.path.join('a', x)",
    "import numpy as np\ndef thing(x): return np.random.default_rng(x).random()",
    "class A:\n    def load(self): pass\n    def open(self): pass\n"
    "import numpy as np\ndef thing(x): return np.add(x.load(), x.open())",
    "def thing(x):\n    try:\n        import nowhere\n    except ImportError:\n        "
    "return x",
    "import pathlib\np = pathlib.Path('a')\ndef thing(x): return p / x",
    "import jax\ndef thing(x): return jax.jit(jax.vmap(lambda y: jax.nn.relu(y)))(x)",
    "import mrsa_jax as mj\ndef thing(n, k): return mj.selection.batch_partitioning(n, "
    "k, 2)",
    "import functools, optax\nthing = functools.partial(optax.adam, b1=0.3)",
)


@pytest.mark.parametrize("text", ALLOWED)
def test_what_reads_nothing_is_taken_as_it_is(text: str) -> None:
    assert digest(notebook(text)) == digest(notebook(text))


# ---- what is named


def test_a_path_that_is_named_stands_for_its_content(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "a.txt"

    def found(depends: Any) -> dict[str, str]:
        return Code(max, "mine", "grid", depends=depends)()

    with pytest.raises(ConfigurationError, match=r"`depends` must name files .*a\.txt"):
        found(file)
    file.write_text("3")
    before = found(file), found([folder, 5])
    assert before[0]["depends 0"].endswith(" a.txt")
    file.write_text("4")
    assert found(file) != before[0]
    assert found([folder, 5]) != before[1]
    file.write_text("3")
    assert (found(file), found([folder, 5])) == before
    (folder / "b.txt").write_text("")
    assert found([folder, 5]) != before[1]
    assert found(file.rename(tmp_path / "moved"))["depends"] == before[0]["depends"]
    with pytest.raises(
        ConfigurationError, match=r"`depends` must hold only .*os\.environ"
    ):
        found([os.environ])
