"""The public surface keeps what the last release promised, or docs/versions.md lists it."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import types

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
        "mrsa-jax audit": "--clip --json",
    }
    now = {
        "mrsa_jax.privacy.rank": "(P, weights)",
        "mrsa_jax.privacy.kept": "(P, *, weights=None)",
        "mrsa_jax.privacy.solver.moved": "(P)",
        "mrsa_jax.privacy.added": "(P)",
        "mrsa-jax audit": "--json --out",
    }
    found = surface.broken(before, now)
    assert found == {
        "mrsa_jax.privacy.rank": "rank(P, weights)",
        "mrsa_jax.privacy.Old": "",
        "mrsa_jax.privacy.moved": "privacy.solver.moved",
        "mrsa-jax audit --clip": "",
    }
    assert surface.table(found).splitlines() == [
        "privacy: rank(P, weights), Old, moved (now privacy.solver.moved)",
        "mrsa-jax audit: --clip",
    ]


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
