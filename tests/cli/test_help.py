"""`--help` shows the settings that most people need, `--help-all` every one."""

from __future__ import annotations

import io
import pathlib
import re
import sys

import pytest

from mrsa_jax import cli
from mrsa_jax.study.kinds import attacks

_FLAG = re.compile(r"^│ (?:-h, )?--([a-z-]+)", re.MULTILINE)


def _help(*words: str, encoding: str = "utf-8") -> str:
    printed = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", printed)
        assert cli.main(words) == 0
    printed.seek(0)
    return printed.read()


@pytest.mark.parametrize("command", ["audit", "demo", "simulate", "train"])
def test_help_is_short_and_names_the_rest(command: str) -> None:
    few = cli._COMMANDS[command].few.split()
    whole, short = _help(command, "--help-all"), _help(command, "--help")
    every, shown = _FLAG.findall(whole), _FLAG.findall(short)
    assert sorted(shown) == sorted(["help", *few])  # so that each of them is a flag
    left_out = len(every) - len(shown)
    assert short.endswith(f"{left_out} more settings: mrsa-jax {command} --help-all\n")
    lines = whole.splitlines()
    assert [line for line in short.splitlines()[:-1] if line not in lines] == []
    assert short.count("╭") == short.count("╰") <= whole.count("╭")
    assert len(short.splitlines()) < 90


def test_help_without_frames_is_whole() -> None:
    text = _help("demo", "--help", encoding="ascii")
    assert "--trim" in text
    assert "╭" not in text


def test_other_commands_show_all() -> None:
    assert _help("report", "--help") == _help("report", "--help-all")


def test_texts_of_flags_flow_over_their_lines() -> None:
    """A line ends where the next word has no room, not where a line of the source ended."""
    lines = [line.strip("│ ") for line in _help("audit", "--help-all").splitlines()]
    at = next(at for at, line in enumerate(lines) if "COLUMN!=TEXT keeps all" in line)
    assert lines[at].endswith("in this column. COLUMN!=TEXT keeps all other rows. Can")


def _words() -> list[tuple[str, ...]]:
    return [(name,) for name in cli._COMMANDS if name != "attack"] + [
        ("attack", name) for name in attacks()
    ]


def _kind(value: str) -> str:
    """Return what a flag takes, for help shows the same kind by several letters."""
    first = re.match(r"\[?(\{.*?\}|\w+)", value)
    word = first[1] if first else ""
    if len(word) == 1 or word in ("INT", "FLOAT", "RHO", "CLIENTS", "SECONDS"):
        return "number"
    same = {
        "PATH": "path",
        "DIR": "path",
        "FILE": "path",
        "STR": "text",
        "NAME": "text",
    }
    return same.get(word, word)


def test_a_flag_is_one_thing_in_all_commands_and_says_what_its_default_does() -> None:
    """Except in `bench`, which takes several sizes, and for choices that one command narrows."""
    kinds: dict[str, set[str]] = {}
    for words in _words():
        text = _help(*words, "--help-all")
        assert not re.search(
            r"\bNone\b|\(default: ('')?\)|^│ *│$", text, re.MULTILINE
        ), words
        for flag, value in re.findall(r"^│ --([a-z-]+)([^│]*)", text, re.MULTILINE):
            if words != ("bench",):
                kinds.setdefault(flag, set()).add(
                    _kind(value.strip().partition("  ")[0])
                )
    several = {flag: own for flag, own in kinds.items() if len(own) > 1}
    named = {"assignment", "fidelity", "others", "partition", "seen", "segments"}
    assert set(several) <= named, several
    assert len(kinds) > 150


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "advise --clients 6 --cohort=3 --dropout-rate 0.1 0.2",
            "advise --num-clients 6 --cohort-size 3 --dropout-rates 0.1 0.2",
        ),
        (
            "audit log.csv --noise-multiplier 2 --clip 0.5 --delta=1e-6",
            "audit log.csv --noise-multiplier 2 --clip-norm 0.5 --target-delta 1e-6",
        ),
        (
            "attack least-squares --noise 0.1",
            "attack least-squares --update-change 0.1",
        ),
        (
            "attack distinguish --noise 2 --clients worst",
            "attack distinguish --noise-variance 2 --clients worst",
        ),
        (
            "attack disaggregation --drift 0.1 --restarts 2",
            "attack disaggregation --update-change 0.1 --random-starts 2",
        ),
        ("attack gradients --restarts 2", "attack gradients --random-starts 2"),
    ],
)
def test_spellings_of_version_1_are_read_and_not_shown(old: str, new: str) -> None:
    assert repr(cli._parse(old.split())) == repr(cli._parse(new.split()))
    command = old.partition(" --")[0].removesuffix(" log.csv").split()
    shown = _FLAG.findall(_help(*command, "--help-all"))
    for word in {*old.split()} - {*new.split()}:
        if word.startswith("--"):
            assert word.partition("=")[0].removeprefix("--") not in shown


def test_a_file_may_name_a_field_or_its_flag(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "audit.toml"
    found = []
    for name in ("clip", "clip_norm"):
        path.write_text(f"noise_multiplier = 2.0\n{name} = 0.5\n")
        found.append(cli._parse(["audit", "log.csv", "--config", str(path)]))
    assert found[0] == found[1]
    assert found[0].clip == 0.5
