"""Whether a verdict can fall: each rule is asked again with values that are wrong.

While items are made, each call of `state` keeps its frame's values. Its condition, read
from the source with the names put in that it was computed from, is evaluated again with
one value at a time halved, doubled, shifted, turned or negated. A condition that holds
whatever is put in, such as one over an empty list, is blind.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import importlib
import itertools
import pathlib
import pkgutil
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import mrsa_papers as package
from mrsa_papers.harness import Check, compare, state

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for drawing.py


class Seen(typing.NamedTuple):
    """One judged claim.

    Its words, where it stands, and whether it stayed with all wrong values.
    """

    claim: str
    place: str
    is_blind: bool


_CHANGES: tuple[Callable[[typing.Any], typing.Any], ...] = (
    lambda x: x * 0.5,
    lambda x: x * 2,
    lambda x: x + 1,
    lambda x: x - 1,
    lambda x: x * -1,
    lambda x: x * 0,
    lambda x: x * 0.9,
    lambda x: x * 1.1,
)


@pytest.fixture(scope="module")
def claims() -> Iterator[list[Seen]]:
    """Judge each claim once more with wrong values while items are made.

    Yield what was seen.
    """
    found: list[Seen] = []

    def watched_state(claim: str, holds: bool, **words: typing.Any) -> Check:
        found.append(_seen(claim, bool(holds), sys._getframe(1)))
        return state(claim, holds, **words)

    def watched_compare(
        claim: str, paper: float, ours: float, **words: typing.Any
    ) -> Check:
        wrong = [
            compare(claim, paper, ours + step, **words).verdict
            for step in _steps(paper)
        ]
        found.append(Seen(claim, "compare", "differs" not in wrong))
        return compare(claim, paper, ours, **words)

    with pytest.MonkeyPatch.context() as patch:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            own = importlib.import_module(module.name)
            for name, double in (
                ("state", watched_state),
                ("compare", watched_compare),
            ):
                if own.__name__ != state.__module__ and hasattr(own, name):
                    patch.setattr(own, name, double)
        yield found


def _steps(paper: float) -> tuple[float, float]:
    """Return by how much a number is wrong: a fifth of what is printed, or 1."""
    step = abs(paper) / 5 or 1.0
    return step, -step


def _seen(claim: str, holds: bool, frame: types.FrameType) -> Seen:
    place = f"{pathlib.Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    call = _call_at(frame)
    values = _values(frame)
    conditions = [call.args[1]]
    for _ in range(3):
        conditions.append(_put_in(conditions[-1], frame, values))
    places = itertools.chain.from_iterable(_places(own, values) for own in conditions)
    for tree, name in places:
        code = compile(ast.fix_missing_locations(ast.Expression(tree)), place, "eval")
        for bend in _BENDS:
            own = {name: bend(values[name]) if name in values else _but_truths(bend)}
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    flips = bool(eval(code, values | own)) != holds
                except Exception:  # what the wrong value makes impossible says nothing
                    continue
            if flips:
                return Seen(claim, place, False)
    return Seen(claim, place, True)


def _places(condition: ast.expr, values: dict) -> Iterator[tuple[ast.expr, str]]:
    """Yield where a wrong value is put in: each name, and what each call returns."""
    for name in {n.id for n in ast.walk(condition) if isinstance(n, ast.Name)}:
        value = values.get(name, print)
        # a truth is what was computed from something else: to negate it says nothing
        if not callable(value) and not isinstance(value, bool | np.bool_):
            yield condition, name
    count = sum(isinstance(n, ast.Call) for n in ast.walk(condition))
    for index in range(count):
        tree = copy.deepcopy(condition)
        call = [n for n in ast.walk(tree) if isinstance(n, ast.Call)][index]
        inner = ast.Call(call.func, call.args, call.keywords)
        call.func, call.args, call.keywords = ast.Name(_BENT, ast.Load()), [inner], []
        yield tree, _BENT


_BENT = "a value that is wrong"


def _but_truths(
    bend: Callable[[typing.Any], typing.Any],
) -> Callable[[typing.Any], typing.Any]:
    """Return a change of what calls return that leaves their answers of yes and no alone."""

    def own(value: typing.Any) -> typing.Any:
        is_truth = isinstance(value, bool | np.bool_)
        is_truths = (
            isinstance(value, np.ndarray | pd.Series) and value.dtype.kind == "b"
        )
        return value if is_truth or is_truths else bend(value)

    return own


@functools.cache
def _tree(filename: str) -> ast.Module:
    return ast.parse(pathlib.Path(filename).read_text(encoding="utf-8"))


def _call_at(frame: types.FrameType) -> ast.Call:
    """Return the call that a frame is in, the innermost that starts at its line."""
    tree, line = _tree(frame.f_code.co_filename), frame.f_lineno
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    around = [n for n in calls if n.lineno <= line <= (n.end_lineno or line)]
    named = [n for n in around if isinstance(n.func, ast.Name) and n.func.id == "state"]
    return max(named, key=lambda n: (n.lineno, n.col_offset))


def _put_in(condition: ast.expr, frame: types.FrameType, values: dict) -> ast.expr:
    """Return a condition with the names put in that its function assigned to before."""
    line = frame.f_lineno
    functions = [
        n
        for n in ast.walk(_tree(frame.f_code.co_filename))
        if isinstance(n, ast.FunctionDef)
    ]
    around = [n for n in functions if n.lineno <= line <= (n.end_lineno or line)]
    assigned = {}
    for node in ast.walk(max(around, key=lambda n: n.lineno)):
        if (
            isinstance(node, ast.Assign)
            and node.lineno < line
            and len(node.targets) == 1
        ):
            target = node.targets[0]
            if isinstance(target, ast.Name):
                assigned[target.id] = node.value

    class PutIn(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(assigned.get(node.id, node))

    return PutIn().visit(copy.deepcopy(condition))


def _values(frame: types.FrameType) -> dict[str, typing.Any]:
    """Return what names mean in a frame; a comprehension's, and its function's."""
    values = dict(frame.f_globals)
    if frame.f_code.co_name.startswith("<") and frame.f_back is not None:
        values |= frame.f_back.f_locals
    return values | frame.f_locals


def _mapped(
    value: typing.Any, change: Callable[[typing.Any], typing.Any], turn: bool = False
):
    again = functools.partial(_mapped, change=change, turn=turn)
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, Fraction):
        return Fraction(change(float(value)))
    if isinstance(value, int | float | np.number):
        return change(value)
    if isinstance(value, pd.DataFrame):
        own = {name: again(column) for name, column in value.items()}
        return pd.DataFrame(own, index=value.index)
    if isinstance(value, pd.Series):
        is_number = value.dtype.kind in "biuf"
        return pd.Series(again(value.to_numpy()), value.index) if is_number else value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            return value
        if value.dtype.kind == "b":
            # all of them, none, or the others
            changed = (
                np.full_like(value, change(1) > 1) if change(1) in (0, 2) else ~value
            )
        else:
            changed = change(value.astype(np.float64))
        return value[::-1] if turn and value.ndim else changed
    if isinstance(value, set):
        return set(map(again, value))
    if isinstance(value, dict):
        return {key: again(own) for key, own in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(again, value))
    if isinstance(value, list | tuple):
        own = type(value)(map(again, value))
        return own[::-1] if turn else own
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        double = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(double, field.name, again(getattr(value, field.name)))
        return double
    return again(np.asarray(value)) if hasattr(value, "__jax_array__") else value


_BENDS = (
    *(functools.partial(_mapped, change=change) for change in _CHANGES),
    functools.partial(_mapped, change=lambda x: x, turn=True),
)
