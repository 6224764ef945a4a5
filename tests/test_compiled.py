"""Compiled loops.

Integers of two kinds never meet, where numba would make floats of them.
"""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import sys
from types import ModuleType

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from mrsa_jax._core.compiled import compiled

WIDE = np.uint64(2**63 + 1)
WORDS = np.asarray([2**63 + 1, 5], np.uint64)
BEYOND = 2**63 + 5


def _least(a, b):
    return a if a < b else b


def _product(a, b):
    return a * b


def _added(a, b):
    total = a
    total += b
    return total


def _smaller(a, b):
    return min(a, b)


def _either(a, b):
    if a:
        return a
    return b


def _chosen(a, b):
    found = a
    for _ in range(3):
        found = b
    return found + found


def _inner(a, b):
    return _within(a, b) + a


_within = compiled(_product)


def _pair(a, b):
    if a:
        return a, b
    return b, a


@pytest.mark.parametrize(
    "function", [_least, _product, _added, _smaller, _either, _chosen, _inner, _pair]
)
def test_signed_and_unsigned_never_meet(function) -> None:  # type: ignore[no-untyped-def]
    loop = compiled(function)
    for mixed in [(WIDE, 3), (3, WIDE), (WIDE, np.int32(3)), (WIDE, -1)]:
        with pytest.raises(
            TypingError, match="integers must be of one kind in a compiled loop"
        ):
            loop(*mixed)
    expected = function.py_func if hasattr(function, "py_func") else function
    with np.errstate(over="ignore"):
        assert loop(WIDE, np.uint64(3)) == expected(WIDE, np.uint64(3))
    assert loop(5, -3) == expected(5, -3)


def _running(start, values):
    total = start
    for value in values:
        total = total + value
    return total


def _from_nothing(values):
    total = 0
    for k in range(values.shape[0]):
        total += values[k]
    return total


def _last(values, start):
    found = start
    for k in range(2):
        found = values[k] if k else found
    return found


def _beyond(a):
    return a < BEYOND


def _counted(a):
    return a + (a > np.uint64(3))


def _scaled(a):
    return a * 0.5


def _sides(a, b):
    return divmod(a, b)


def _squared(a):
    return pow(a, 2)


def _larger(a, b):
    return np.maximum(a, b)


def _found(values, b):
    return np.searchsorted(values, b)


def _raised(values, b):
    return values + b


def _below(values, b):
    return (values < b).any()


def _listed(a, b):
    return [a, b][0]


def _starred(a, b):
    return min(*(a, b))


def _among(a, b):
    return a in (b, 5)


def _same(a, b):
    return (a, a) == (b, b)


def _maybe(a, b):
    known = None
    if b > 0:
        known = a
    return known is not None and known < b


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (_running, (np.uint64(0), np.arange(3))),
        (_running, (0, WORDS)),
        (_from_nothing, (WORDS,)),
        (_last, (WORDS, 3)),
        (_beyond, (5,)),
        (_counted, (WIDE,)),
        (_scaled, (WIDE,)),
        (_squared, (WIDE,)),
        (_found, (WORDS, 3)),
        (_raised, (WORDS, 3)),
        (_raised, (WORDS, np.arange(2))),
        (_below, (WORDS, 3)),
        *(
            (function, (WIDE, 3))
            for function in (_sides, _larger, _listed, _starred, _among, _same, _maybe)
        ),
    ],
)
def test_they_do_not_meet_by_detours(function, arguments) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        TypingError, match="integers must be of one kind in a compiled loop"
    ):
        compiled(function)(*arguments)


def _full(count, value):
    found = np.full(count, value)
    return found[count - 1]


def test_unsigned_ones_among_themselves_compile() -> None:
    assert compiled(_full)(3, WIDE) == WIDE
    assert compiled(_running)(np.uint64(1), WORDS) == 2**63 + 7
    assert compiled(_larger)(WIDE, np.uint32(7)) == WIDE


def _mean(values):
    return values.sum() / values.shape[0]


def _total(values):
    total = 0
    for value in values:
        total += value
    return total


def test_floats_that_are_meant_compile() -> None:
    assert compiled(_mean)(np.arange(5)) == 2.0
    assert compiled(_total)(np.asarray([0.5, 1.0])) == 1.5


@pytest.mark.smoke
def test_a_loop_of_residues_refuses_other_types() -> None:
    from mrsa_watch import _loops

    prime = 2**61 - 1
    inverse = pow(prime, -1, 2**64)
    whole = _loops.times(*(np.uint64(value) for value in (5, 7, prime, inverse)))
    assert whole == 35 * pow(2**64, -1, prime) % prime
    with pytest.raises(TypingError):
        _loops.times(np.uint64(5), 7, np.uint64(prime), np.uint64(inverse))


def _step(values, at, by):
    return values[at] + by


_stepping = compiled(_step)


def _steps(values, at):
    total = _stepping(values, 0, 1)
    place = 0
    for _ in range(2):
        total += _stepping(values, place, by=2)
        place = at
    return total + _stepping(values, at, place)


def test_a_loop_is_part_of_those_that_call_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    values = np.arange(10, 15)
    assert compiled(_steps)(values, 3) == (10 + 1) + (10 + 2) + (13 + 2) + (13 + 3)
    assert not _stepping.signatures  # Python never called it
    assert len(_stepping.part.signatures) == 1  # constants are no kind of their own
    assert _stepping(values, 3, 4) == 17


SEARCHES = """
import numpy as np
from numba.core.dispatcher import Dispatcher
from mrsa_jax._core import compiled
from mrsa_jax.privacy import weak_privacy
from mrsa_jax.privacy.solver import _girth, _lifting, _words

for rounds, clients, size in [(10, 20, 5), (20, 40, 10)]:
    rng, P = np.random.default_rng(0), np.zeros((rounds, clients), bool)
    for row in P:
        row[rng.choice(clients, size, replace=False)] = True
    print(weak_privacy(P).lower_method)
for module in (compiled, _girth, _lifting, _words, _words):
    for name, loop in vars(module).items():
        if isinstance(loop, Dispatcher):
            print(name, len(loop.signatures), len(loop.part.signatures))
"""


@pytest.mark.slow
def test_searches_compile_each_loop_once(tmp_path: pathlib.Path) -> None:
    here = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", SEARCHES],
        env=here,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.split("\n")[:-1]
    assert lines[:2] == ["girth", "lifting"]
    counts = {
        name: (int(own), int(part)) for name, own, part in map(str.split, lines[2:])
    }
    # of integers
    kinds = {"assign": 3, "first_nonzero": 3, "gather": 3, "eliminate": 2}
    twice = {
        name: found
        for name, found in counts.items()
        if found[0] > 1 or found[1] > kinds.get(name, 1)
    }
    assert twice == {}
    own = {name for name, (signatures, _) in counts.items() if signatures}
    assert own <= {"independent_rows_of_each", "reduced_echelon", "search", "words"}


def _module(name: str, path: pathlib.Path, text: str) -> ModuleType:
    path.write_text(text)
    module = ModuleType(name)
    # not by an import, which takes byte code of the same second for that of a changed
    # text
    exec(compile(text, path, "exec"), vars(module))
    return module


COMPARED = "def compared(a, b):\n    return a < b\n"


def test_machine_code_that_was_not_checked_is_not_loaded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    module = _module("compared", tmp_path / "compared.py", COMPARED)
    unchecked = numba.njit(cache=True, nogil=True, error_model="numpy")(module.compared)
    assert not unchecked(WIDE, 2**62)
    assert unchecked.stats.cache_misses
    with pytest.raises(TypingError, match="integers must be of one kind"):
        compiled(module.compared)(WIDE, 2**62)


CALLED = "STEP = ({step}, 1)\n\n\ndef called(a):\n    return a {sign} STEP[0]\n"
CALLING = "def calling(a):\n    return called(a)\n"


def test_machine_code_is_kept_until_what_it_is_made_of_changes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))

    def run(step: int, sign: str) -> tuple[int, bool]:
        own = _module(
            "called", tmp_path / "called.py", CALLED.format(step=step, sign=sign)
        )
        other = _module("calling", tmp_path / "calling.py", CALLING)
        # numba keeps the code of modules that can be imported
        for module in (own, other):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(other)["called"] = compiled(own.called)
        loop = compiled(other.calling)
        return loop(10), bool(loop.stats.cache_hits)

    assert run(1, "+") == (11, False)
    assert run(1, "+") == (11, True)
    assert run(2, "+") == (12, False)  # a constant of a loop that it calls
    assert run(2, "-") == (8, False)  # that loop itself
    assert run(2, "-") == (8, True)


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="of one kind of processor")
@pytest.mark.parametrize(
    ("processor", "widest"), [("cascadelake", "zmm"), ("haswell", "ymm")]
)
def test_vectors_are_as_wide_as_the_processors(processor: str, widest: str) -> None:
    words = "types.uint32[::1]"
    program = f"""
from numba.core import types
from mrsa_jax._core.compiled import compiled

def sums(row, more):
    for i in range(row.size):
        row[i] += more[i]

loop = compiled(sums)
loop.compile(({words}, {words}))
(code,) = loop.inspect_asm().values()
print(*(name for name in ("xmm", "ymm", "zmm") if name in code))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split()[-1] == widest
