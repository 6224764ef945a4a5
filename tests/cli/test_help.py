"""`--help` shows the settings that most people need, `--help-all` every one."""

from __future__ import annotations

import io
import re
import sys

import pytest

from mrsa_jax import cli

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
    at = next(at for at, line in enumerate(lines) if "is refused until a flag" in line)
    assert lines[at].endswith("is refused until a flag handles it. (default:")
