"""The command line where the papers' project, `mrsa-jax-papers`, is not installed."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib

import pytest

from mrsa_jax import study
from mrsa_jax.cli import main
from mrsa_watch._base.errors import ConfigurationError

HOW = "in a clone of mrsa_jax: pip install ./papers"


@pytest.fixture
def no_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no distribution of that name be found."""
    found = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        return found("no-such-distribution" if name == "mrsa-jax-papers" else name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


@pytest.mark.parametrize(
    "words", [["--fast"], ["--help"], ["multiround.fig2", "--list"]]
)
@pytest.mark.usefixtures("no_papers")
def test_reproduce_says_how_to_add_it(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert " ".join(captured.err.split()).startswith(
        "error: `mrsa-jax-papers` must be installed"
    )
    assert " ".join(captured.err.split()).endswith(HOW)


@pytest.mark.usefixtures("no_papers")
def test_reports_of_reproductions_say_the_same(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {"items": [], "manifest": {"command": "reproduce", "config": {}}}
    (tmp_path / "verdicts.json").write_text(json.dumps(content))
    assert main(["report", str(tmp_path)]) == 2
    assert " ".join(capsys.readouterr().err.split()).endswith(HOW)
    with pytest.raises(ConfigurationError, match=r"pip install \./papers$"):
        study.report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["verdicts.json"]


@pytest.mark.usefixtures("no_papers")
def test_help_and_completion_still_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "compare them; needs `mrsa-jax-papers`." in said
    assert main(["--tyro-print-completion", "bash"]) == 0
    assert "reproduce" in capsys.readouterr().out
