"""What a command runs in changes nothing that it finds.

Caches, homes, numba's settings.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).parents[1]
LOG = "round,client\n1,anna\n1,bob\n1,cleo\n2,anna\n2,bob\n"
WATCH = "from mrsa_watch._command import main; import sys; sys.exit(main(sys.argv[1:]))"
FULL = "from mrsa_jax.cli import main; import sys; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    found = tmp_path_factory.mktemp("logs")
    (found / "log.csv").write_text(LOG)
    lines = '{"round": 1, "clients": ["a", "b", "c"]}\n'
    words = "record log.jsonl --system s --aggregation secagg --plain-names"
    _run(found, WATCH, words, {}, lines)
    return found


def _run(
    folder: pathlib.Path,
    code: str,
    words: str,
    changes: dict[str, str | None],
    text: str = "",
) -> tuple[str, str]:
    """Run a command in changed surroundings; return what it printed."""
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'watch'}"}
    for name, value in changes.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        cwd=folder,
        env=variables,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


SURROUNDINGS: dict[str, tuple[dict[str, str | None], str]] = {
    "plain": ({}, ""),
    "compiler off": ({"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is ignored"),
    "no threads": ({"NUMBA_NUM_THREADS": "0"}, ""),
    "fewer than no threads": ({"NUMBA_NUM_THREADS": "-2"}, ""),
    "no folder for loops": ({"NUMBA_CACHE_DIR": "/proc/none"}, ""),
    "no home": (
        {"HOME": None, "XDG_CACHE_HOME": None, "JAX_COMPILATION_CACHE_DIR": None},
        "",
    ),
    "a home that is none": (
        {"HOME": "/proc/none", "JAX_COMPILATION_CACHE_DIR": None},
        "",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_an_audit_and_a_watch_are_the_same_everywhere(
    folder: pathlib.Path, name: str
) -> None:
    changes, message = SURROUNDINGS[name]
    out, errors = _run(folder, FULL, "audit log.csv --effort 0 --json", changes)
    assert json.loads(out)["exposed"] == [{"client": "cleo", "first_round": 2}]
    out, errors = _run(folder, WATCH, "watch log.jsonl --once --json", changes)
    assert json.loads(out)["strong"] == 3
    assert message in errors
    assert sorted(path.name for path in folder.iterdir()) == ["log.csv", "log.jsonl"]


@pytest.mark.long
def test_a_damaged_cache_is_made_again(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    changes = {"NUMBA_CACHE_DIR": str(tmp_path)}
    words = "watch log.jsonl --once --json"
    expected, errors = _run(folder, WATCH, words, changes)
    assert errors == ""
    entries = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert entries
    for number, path in enumerate(entries):
        content = path.read_bytes()
        path.write_bytes(
            content[: len(content) // 2] if number % 2 else b"\x80no pickle"
        )
    out, errors = _run(folder, WATCH, words, changes)
    assert out == expected
    assert errors.count("compiled code is not kept") <= 2
    out, errors = _run(folder, WATCH, words, changes)
    assert (out, errors) == (expected, "")


@pytest.mark.long
def test_where_nothing_can_be_kept_it_is_said_once(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A package that is read-only, for a user without a home."""
    code = (
        "import mrsa_watch._base.compiled as c\n"
        "c.cache_folder = lambda: None\nc.may_write = lambda path: False\n"
        f"{WATCH}"
    )
    out, errors = _run(folder, code, "watch log.jsonl --once --json", {})
    assert json.loads(out)["strong"] == 3
    assert errors.count("NUMBA_CACHE_DIR") == 1


# ---- The matrix: commands in surroundings. What is computed is the same, or one
# sentence says why
# there is nothing.

NAME = 'a b/it\'s "x"/~c'  # of the folder that all of it runs in
WATCHES = ("watch", "gate")
COMMANDS = {
    "demo": "demo --rounds 2 --num-clients 6 --cohort-size 2 --schemes uniform --dataset digits "
    "--json --out {out}",
    "simulate": "simulate --rounds 3 --trials 2 --num-clients 6 --cohort-size 2 --schemes uniform "
    "--json --out {out}",
    "train": "train --scheme uniform --rounds 1 --num-clients 6 --cohort-size 2 --dataset digits "
    "--model mlp --json --out {out}",
    "sweep": "sweep sweep.toml --json --out {out}",
    "audit": "audit log.csv --effort 0 --json",
    "watch": "watch log.jsonl --once --json",
    "gate": "gate log.jsonl --fail-below 2",
    "bench": "bench rank --n 8 --cohort-size 2 --trials 2 --repeats 1 --json",
}
INPUTS = {"gate": '["a", "b", "c"]\n["a", "b"]\n'}
SWEEP = """
rounds = 3
trials = 2
population = {num_clients = 6, cohort_size = 2}
[grid]
scheme = ["uniform", "partition"]
"""
MATPLOTLIBRC = """
text.usetex: True
font.family: Nonexistent Sans
font.sans-serif: Nonexistent
axes.facecolor: black
savefig.format: nosuch
savefig.bbox: tight
backend: tkagg
"""
IN_A_LOOP = """
import asyncio, sys
{imports}
async def run():
    return main(sys.argv[1:])
sys.exit(asyncio.run(run()))
"""
IN_A_PROCESS = """
import multiprocessing, sys
{imports}
def run(words):
    sys.stdin = open(0, closefd=False)  # a process begins with an empty one
    sys.exit(main(words))
if __name__ == "__main__":
    process = multiprocessing.get_context({method!r}).Process(target=run, args=(sys.argv[1:],))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
FLOATS = "import numpy\nnumpy.seterr(all='raise')\n{imports}\nimport sys\nsys.exit(main(sys.argv[1:]))"
READ_ONLY = """
import sys
import mrsa_watch._base.compiled as compiled
compiled.cache_folder = lambda: None
compiled.may_write = lambda path: False
{imports}
sys.exit(main(sys.argv[1:]))
"""


@dataclasses.dataclass(frozen=True)
class Around:
    """What a command runs in.

    Attributes:
        changes: Variables that are set, or that are not there (None).
        code: What calls `main`, with its imports.
        before: Words before the interpreter's.
        words: Words of the interpreter.
        shell: What a shell does with the streams and its own settings, `{}` the
            command.
        prints: Whether standard output can be read.
    """

    changes: dict[str, str | None] = dataclasses.field(default_factory=dict)
    code: str = "import sys\n{imports}\nsys.exit(main(sys.argv[1:]))"
    before: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    shell: str = "{}"
    prints: bool = True


_OTHER = ("setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups")
NOTHING: dict[str, str | None] = {
    "NUMBA_CACHE_DIR": "/proc/none",
    "JAX_COMPILATION_CACHE_DIR": "/proc/none",
    "XDG_CACHE_HOME": "/proc/none",
    "MPLCONFIGDIR": "/proc/none",
}
NO_HOME: dict[str, str | None] = {
    **dict.fromkeys(["XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR", "NUMBA_CACHE_DIR"]),
    "HOME": "/",
}
AROUND = {
    "another user without a home": Around(NO_HOME, before=(*_OTHER, "env")),
    "read-only package": Around(NO_HOME, READ_ONLY),
    "no cache": Around(NOTHING),
    "damaged cache": Around(
        {"NUMBA_CACHE_DIR": "{damaged}", "JAX_COMPILATION_CACHE_DIR": "{damaged}"}
    ),
    "compiler off": Around({"NUMBA_DISABLE_JIT": "1"}),
    "closed output": Around(shell="{} >&-", prints=False),
    "closed errors": Around(shell="{} 2>&-"),
    "closed input": Around(shell="{} <&-"),
    "full output": Around(shell="{} >/dev/full", prints=False),
    "full errors": Around(shell="{} 2>/dev/full"),
    "ASCII": Around({"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}),
    "C locale": Around({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "narrow terminal": Around({"COLUMNS": "11", "LINES": "2", "FORCE_COLOR": "1"}),
    "dumb terminal": Around({"TERM": "dumb", "NO_COLOR": "1"}),
    "settings of plotting": Around(
        {"MATPLOTLIBRC": "{folder}", "MPLBACKEND": "nosuch"}
    ),
    "optimised": Around({"PYTHONOPTIMIZE": "2"}),
    "warnings are errors": Around(words=("-W", "error")),
    "errors of floats": Around(code=FLOATS),
    "umask": Around(shell="umask 777; {}"),
    "running event loop": Around(code=IN_A_LOOP),
    "forked": Around(
        {"JAX_PLATFORMS": "cpu"}, IN_A_PROCESS.replace("{method!r}", "'fork'")
    ),
    "spawned": Around(code=IN_A_PROCESS.replace("{method!r}", "'spawn'")),
}
CHEAP = ("audit", "watch", "gate", "sweep")


def _covering() -> list[tuple[str, str]]:
    """Return pairs with each surrounding twice, and each command at least as often."""
    commands = list(COMMANDS)
    pairs = {(name, CHEAP[i % len(CHEAP)]) for i, name in enumerate(AROUND)}
    pairs |= {(name, commands[i % len(commands)]) for i, name in enumerate(AROUND)}
    # what only figures and their files meet
    pairs |= {("settings of plotting", "simulate"), ("umask", "simulate")}
    pairs |= {("narrow terminal", "bench"), ("forked", "gate")}
    return sorted(pairs)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    found = tmp_path_factory.mktemp("matrix") / NAME
    found.mkdir(parents=True)
    (found / "log.csv").write_text(LOG)
    (found / "sweep.toml").write_text(SWEEP)
    (found / "matplotlibrc.off").write_text(MATPLOTLIBRC)
    words = "record log.jsonl --system s --aggregation secagg --plain-names"
    _run(found, WATCH, words, {}, '{"round": 1, "clients": ["a", "b", "c"]}\n')
    for path in (found, *found.parents):
        if path.stat().st_uid == os.getuid() and path.is_relative_to(found.parents[2]):
            path.chmod(0o777)
    for path in found.iterdir():
        path.chmod(0o666)
    return found


def _imports(command: str) -> str:
    return (
        "from mrsa_watch._command import main"
        if command in WATCHES
        else FULL.split(";")[0]
    )


def _run_around(
    place: pathlib.Path, around: Around, command: str, out: str
) -> tuple[int, str, str]:
    """Run a command in a surrounding; return its status and what it printed."""
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'watch'}"}
    variables["PYTHONWARNINGS"] = ""  # the suite's own
    for name, value in around.changes.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = _filled(place, value)
    script = place / f"{out}.py"
    script.write_text(around.code.replace("{imports}", _imports(command)))
    script.chmod(0o666)
    words = [sys.executable, *around.words, str(script)]
    words += COMMANDS[command].format(out=out).split()
    shell = around.shell.format(shlex.join([*around.before, *words]))
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=place,
        env=variables,
        input=INPUTS.get(command, ""),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def _filled(place: pathlib.Path, value: str) -> str:
    return value.replace("{folder}", str(place / "matplotlibrc.off")).replace(
        "{damaged}", str(place / "damaged")
    )


def _damage(place: pathlib.Path, around: Around, command: str) -> None:
    """Fill caches by running a command, and leave half of each entry."""
    assert _run_around(place, around, command, f"before-{command}")[0] in (0, 3)
    kept = [path for path in (place / "damaged").rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])


def _figures(content: object) -> object:
    """Return what a command printed as JSON, without times and places."""
    if isinstance(content, dict) and "benchmark" in content:
        return [
            content[name]
            for name in ("benchmark", "case", "unit", "work", "peer", "sizes")
        ]
    if isinstance(content, dict):
        no_figure = (
            "second",
            "time",
            "machine",
            "bytes",
            "out",
            "compiled",
            "device",
            "ratio",
        )
        return {
            name: _figures(value)
            for name, value in content.items()
            if not any(word in name for word in no_figure)
        }
    if isinstance(content, list):
        return [_figures(value) for value in content]
    return content


def _printed(text: str) -> object:
    try:
        return _figures(json.loads(text))
    except ValueError:
        return [_figures(json.loads(line)) for line in text.splitlines()]


@pytest.fixture(scope="module")
def plain(place: pathlib.Path) -> Callable[[str], tuple[int, object]]:
    @functools.cache
    def run(command: str) -> tuple[int, object]:
        status, out, errors = _run_around(place, Around(), command, f"plain-{command}")
        assert status in (0, 3), errors
        return status, _printed(out)

    return run


def _check(
    place: pathlib.Path,
    plain: Callable[[str], tuple[int, object]],
    name: str,
    command: str,
) -> None:
    around = AROUND[name]
    if around.before and not _is_another_possible():
        pytest.skip("needs setpriv, root, and an interpreter that others may run")
    out = f"{name}-{command}".replace(" ", "-")
    if name == "damaged cache":
        _damage(place, around, command)
    status, printed, errors = _run_around(place, around, command, out)
    assert "Traceback" not in errors, errors
    assert not [path for path in place.rglob("~*") if path != place]
    if status == plain(command)[0] and around.prints:
        assert _printed(printed) == plain(command)[1]
        return
    sentences = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert status != 0
    assert len(sentences) == 1, errors


@functools.cache
def _is_another_possible() -> bool:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return False
    # `env`, because what `setpriv` itself starts has some of its rights left
    done = subprocess.run(
        [*_OTHER, "env", sys.executable, "-c", "import jax"], check=False
    )
    return done.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(("name", "command"), _covering())
def test_some_commands_in_every_surrounding(
    place: pathlib.Path,
    plain: Callable[[str], tuple[int, object]],
    name: str,
    command: str,
) -> None:
    _check(place, plain, name, command)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", AROUND)
def test_every_command_in_every_surrounding(
    place: pathlib.Path,
    plain: Callable[[str], tuple[int, object]],
    name: str,
    command: str,
) -> None:
    _check(place, plain, name, command)
