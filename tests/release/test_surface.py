"""The public surface keeps what the last release promised, or docs/versions.md lists it."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import pathlib
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, Literal
from unittest import mock

import pytest

import mrsa_jax
from mrsa_jax import cli
from mrsa_jax.study.suite import _card
from mrsa_watch import _register, mrsa_check
from mrsa_watch.logs import _jsonl

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")


def _module() -> types.ModuleType:
    path = pathlib.Path(__file__).with_name("surface.py")
    spec = importlib.util.spec_from_file_location("surface", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


surface = _module()


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("(a, b)", "(a, b)"),
        ("(a, b)", "(a, b, c=1)"),
        ("(a, *, b=1)", "(a, *, c=None, b=1)"),
        ("(a, *, b=1)", "(a, b=1)"),
        ("(a, b)", "(a, b=2)"),
        ("(a)", "(a, *rest, **more)"),
    ],
)
def test_a_signature_that_takes_the_old_calls(was: str, now: str) -> None:
    assert surface.accepts(now, was)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("(a, b)", "(a)"),
        ("(a, b)", "(b, a)"),
        ("(a, b)", "(a, c)"),
        ("(a, b)", "(a, *, b)"),
        ("(a)", "(a, b)"),
        ("(a)", "(a, *, b)"),
        ("(a, b=1)", "(a, b)"),
        ("(a, b=1)", "(a, b=2)"),
        ("(a, *, b=1)", "(a)"),
        ("(a, **more)", "(a)"),
        ("(a)", ""),
    ],
)
def test_a_signature_that_refuses_an_old_call(was: str, now: str) -> None:
    assert not surface.accepts(now, was)


def test_what_breaks_is_found() -> None:
    before = {
        "mrsa_jax.privacy.rank": "(P)",
        "mrsa_jax.privacy.Old": "(a)",
        "mrsa_jax.privacy.Old.run": "(self)",
        "mrsa_jax.privacy.kept": "(P)",
        "mrsa_jax.privacy.moved": "(P)",
        "mrsa-jax audit": "--clip --json=False --rule{a|b}='a' --way{a|b}",
        "mrsa-jax data": "--yes list prepare",
    }
    now = {
        "mrsa_jax.privacy.rank": "(P, weights)",
        "mrsa_jax.privacy.kept": "(P, *, weights=None)",
        "mrsa_jax.privacy.solver.moved": "(P)",
        "mrsa_jax.privacy.added": "(P)",
        "mrsa-jax audit": "--json=True --out --rule{a|c}='a' --way",
        "mrsa-jax data": "--yes list",
    }
    found = surface.broken(before, now)
    assert found == {
        "mrsa_jax.privacy.rank": "rank(P, weights)",
        "mrsa_jax.privacy.Old": "",
        "mrsa_jax.privacy.moved": "privacy.solver.moved",
        "mrsa-jax audit --clip": "",
        "mrsa-jax audit --json=False": "True",
        "mrsa-jax audit --rule=b": "",
        "mrsa-jax data prepare": "",
    }
    assert surface.table(found).splitlines() == [
        "privacy: rank(P, weights), Old, moved (now privacy.solver.moved)",
        "mrsa-jax audit: --clip, --json=False (now True), --rule=b",
        "mrsa-jax data: prepare",
    ]
    was, now_text = "(a: {'x', 'y'}='x', *, b=1)", "(a: {'x'}='x', *, b=1)"
    lines = surface.broken({"mrsa_jax.a.f": was}, {"mrsa_jax.a.f": now_text})
    assert surface.table(lines) == "a: f(a='y')"


def _without_one(text: str) -> Iterator[str]:
    """Yield a line of the surface without each part of it."""
    if not text.startswith("("):
        words = text.split()
        for place, word in enumerate(words):
            flag, allowed, default = re.fullmatch(
                r"([^{=]*)(\{.*?\})?(=.*)?", word
            ).groups("")  # type: ignore[union-attr]
            parts = allowed.strip("{}").split("|") if allowed else []
            fewer = [
                f"{{{'|'.join(parts[:i] + parts[i + 1 :])}}}" for i in range(len(parts))
            ]
            others = ["", *(f"{flag}{one}{default}" for one in fewer if one != "{}")]
            others += (
                [flag + allowed, f"{flag}{allowed}={default[1:]}0"] if default else []
            )
            for other in others:
                yield " ".join([*words[:place], other, *words[place + 1 :]])
        return
    (function,) = ast.parse(f"def f{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    own = function.args
    for names, defaults in (
        (own.args, own.defaults),
        (own.kwonlyargs, own.kw_defaults),
    ):
        shift = len(names) - len(defaults)
        for place, one in enumerate(list(names)):
            default = defaults[place - shift] if place >= shift else None
            # the parameter; its default; and each choice
            if isinstance(one.annotation, ast.Set) and len(one.annotation.elts) > 1:
                for choice in list(one.annotation.elts):
                    one.annotation.elts.remove(choice)
                    yield f"({ast.unparse(own)})"
                    one.annotation.elts.append(choice)
            if default is not None:
                defaults[place - shift] = ast.Constant("another")
                yield f"({ast.unparse(own)})"
                defaults[place - shift] = default
            one.arg += "_renamed"
            yield f"({ast.unparse(own)})"
            one.arg = one.arg.removesuffix("_renamed")


def test_each_part_of_the_last_surface_is_missed() -> None:
    """Names, parameters, choices, defaults, fields, flags, theirs, and words of commands."""
    _, names = surface.read()
    seen = set()
    for name, was in names.items():
        assert surface.broken({name: was}, {}), name
        # what the table shows of a part has no need of its name
        for now in () if was in seen else _without_one(was):
            assert surface.broken({name: was}, {name: now}), (name, now)
        seen.add(was)
    assert sum("{" in was for was in seen) > 40
    assert any(": {" in was for was in seen)


SOURCE = """
from __future__ import annotations
import dataclasses, enum
from typing import Literal
Rule = Literal["a", "b"]
LIMIT = 3
class Kind(enum.Enum):
    ONE = 1
    TWO = 2
@dataclasses.dataclass
class Base:
    rule: Rule = "a"
@dataclasses.dataclass
class Settings(Base):
    count: int = 1
    way: Literal["c", "d"] | None = None
    @property
    def size(self): return 1
    def run(self, key, *, seed=0): ...
def build(rule: Rule = "a", *, several: tuple[Literal["e", "f"], ...] = ("e",), seed=0): ...
"""
CHANGES = (
    ['"a", "b"]', '"a"]'], ["LIMIT", "_LIMIT"], ["    TWO = 2\n", ""], ["class Kind", "class _Kind"],
    ['rule: Rule = "a"\n', "pass\n"], ["    count: int = 1\n", ""], ["int = 1", "int = 2"],
    ['"c", "d"', '"c"'], ["def size", "def _size"], ["def run", "def _run"], ["(self, key,", "(self,"],
    ["*, seed=0): ...\ndef", "*, seed=1): ...\ndef"], ['"e", "f"', '"e"'], ["def build", "def _build"],
    [", seed=0): ...\n\0", "): ...\n\0"], ['= ("e",)', '= ("f",)'], ['Rule = "a", *', 'Rule = "b", *'],
)  # fmt: skip


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=str)
def test_a_part_that_leaves_a_module_is_seen(old: str, new: str) -> None:
    def of(text: str) -> dict[str, str]:
        module = types.ModuleType("mrsa_jax.fake")
        with mock.patch.dict(sys.modules, {module.__name__: module}):
            exec(text.replace("\0", ""), vars(module))
            vars(module)["__all__"] = [
                one for one in vars(module) if one[0].isupper() or one == "build"
            ]
            return dict(surface._names(module))

    text = f"{SOURCE}\0"
    assert text.count(old) == 1
    assert surface.broken(of(text), of(text)) == {}
    assert surface.broken(of(text), of(text.replace(old, new)))


@dataclasses.dataclass(frozen=True)
class _Table:
    graph: str = "complete"
    share: float = 0.5


def test_a_flag_its_choice_and_its_default_are_seen() -> None:
    """Of the settings as the command line reads them."""

    def of(**changes: Any) -> str:
        kept = [
            (name, *changes.get(name, (hint, default)))
            for name, hint, default in (
                ("rule", Literal["a", "b"], "a"),
                ("effort", float, 1.0),
                ("table", _Table, dataclasses.field(default_factory=_Table)),
            )
            if changes.get(name, True)
        ]
        cls = dataclasses.make_dataclass("_Made", kept, namespace={"__doc__": "Do it."})
        row = cli._COMMANDS["audit"]._replace(config=cls, few="")
        with mock.patch.dict(cli._COMMANDS, audit=row):
            return str(surface.words_of(cli.main, "audit", cls))

    was = of()
    names = "complete|erdos_renyi|harary|over_blocks|random_regular"
    assert (
        was
        == f"--effort=1.0 --graph{{{names}}}='complete' --rule{{a|b}}='a' --share=0.5"
    )
    table = dataclasses.field(default_factory=lambda: _Table(share=0.25))
    for changes in (
        {"rule": (Literal["a"], "a")},
        {"rule": (Literal["a", "b"], "b")},
        {"rule": False},
        {"effort": (float, 2.0)},
        {"table": (_Table, table)},
        {"table": False},
    ):
        assert surface.broken(
            {"mrsa-jax audit": was}, {"mrsa-jax audit": of(**changes)}
        )


def test_a_surface_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "surface.txt"
    path.write_text(
        "1.2.3\nmrsa_jax.a.b(c, d='--x (')\nmrsa_jax.a.C\nmrsa-jax e f --g --h\n"
    )
    assert surface.read(path) == (
        "1.2.3",
        {
            "mrsa_jax.a.b": "(c, d='--x (')",
            "mrsa_jax.a.C": "",
            "mrsa-jax e f": "--g --h",
        },
    )
    # an empty command has no flags
    assert surface.signature(surface.read) == "(path=...)"
    assert surface.signature(lambda a, *b, c=1, **d: None) == "(a, *b, c=1, **d)"


def test_defaults_are_shown_where_their_text_means_them() -> None:
    def called(a=(0.0, ("x",)), b=pathlib.Path("results/x"), c=([],), d=b"") -> None:  # type: ignore[no-untyped-def]
        """Have defaults."""

    shown = surface.signature(called)
    assert shown == "(a=(0.0, ('x',)), b='results/x', c=..., d=b'')"
    assert not surface.accepts(shown.replace("0.0", "1.0"), shown)


@pytest.mark.long
def test_what_the_last_release_promised_is_kept_or_listed() -> None:
    version, names = surface.read()
    assert len(names) > 600
    assert "mrsa_jax.selection.rollout" in names
    listed = PAGE.split(f"\n## What breaks since {version}\n")[1]
    (block,) = re.findall(r"^```text\n(.*?)^```$", listed, re.DOTALL | re.MULTILINE)
    assert block.splitlines() == surface.table(surface.changes()).splitlines(), (
        "`python tests/release/surface.py --page` writes the list of docs/versions.md"
    )


def test_deprecations_have_a_version_and_a_date() -> None:
    rows = re.findall(
        r"^\| `(mrsa-.+?)` \| `(.+?)` \| (.+?) \| (.+?), not before (.+?) \|$",
        PAGE,
        re.MULTILINE,
    )
    assert {old: new for old, new, *_ in rows} == surface.old_spellings()
    now = int(mrsa_jax.__version__.partition(".")[0])
    for *_, since, leaves, date in rows:
        assert re.fullmatch(r"\d+\.\d+\.\d+", since)
        # the test fails at the release that has to remove it
        assert int(leaves.partition(".")[0]) > now
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date)


def test_old_flags_are_still_read() -> None:
    words = ["advise", "--clients", "12", "--cohort", "6", "--dropout-rate", "0.1"]
    config = cli._parse(words)
    assert (config.num_clients, config.cohort_size) == (12, 6)
    assert config.dropout_rate == (0.1,)


def test_formats_have_the_versions_that_the_page_states() -> None:
    formats = [
        f"`{_jsonl.FORMAT}`, {_jsonl.VERSION}",
        f"`{mrsa_check.FORMAT}`, {mrsa_check.VERSION}",
        f"`{_card.FORMAT}`",
        f"`{_register._HEAD['format']}`, {_register._HEAD['version']}",
    ]
    stated = PAGE.split("\n## Formats of files\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| \[?.*? \| (`mrsa.*?) \|", stated, re.MULTILINE) == formats
