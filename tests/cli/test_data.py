"""`mrsa-jax data`.

Misuse, the list in words and as JSON, and a question before a download.
"""

from __future__ import annotations

import importlib.util
import io
import json
import pathlib
import socket
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main


@pytest.fixture(autouse=True)
def own_folders(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
    monkeypatch.setenv("MRSA_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")  # restored afterwards
    return tmp_path


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for the extra and the download; return the names that were prepared."""
    pytest.importorskip("tensorflow_datasets")
    names: list[str] = []

    def prepare(plan: Any) -> mj.data.Dataset:
        names.append(plan.name)
        inputs, labels = np.zeros((3, 2, 2, 1), np.float32), np.zeros(3, np.int32)
        return mj.data.Dataset(plan.name, inputs, labels, inputs[:1], labels[:1], 10)

    monkeypatch.setattr(
        type(mj.data.plan_preparation("mnist")), "check_extra", lambda plan: None
    )
    monkeypatch.setattr(mj.data, "prepare", prepare)
    return names


def _answer(
    text: str, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True
) -> None:
    stream = io.StringIO(text)
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", stream)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "mnist"], "`name` must not be set for `data list`; got 'mnist'"),
        (["list", "--yes"], "`yes` must not be set for `data list`"),
        (["prepare"], "`name` must follow `data prepare`"),
        (["prepare", "fashion-mnist"], "did you mean 'fashion_mnist'?"),
        (["prepare", "mnist_5k"], "`name` must be a set that needs preparing"),
    ],
)
def test_misuse_is_answered_with_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *words]) == 2
    captured = capsys.readouterr()
    assert message in " ".join(captured.err.split())
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.smoke
def test_an_unknown_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch"]) == 2
    assert "list" in capsys.readouterr().err


def test_a_missing_extra_is_told_before_any_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorflow_datasets")
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "tensorflow" else real(name, *rest),
    )
    assert main(["data", "prepare", "mnist"]) == 2
    assert "pip install 'tensorflow-cpu" in " ".join(capsys.readouterr().err.split())


def test_the_list_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 0
    printed = capsys.readouterr().out
    for name in mj.data.SOURCES:
        assert f" {name} " in printed
    assert "mrsa-jax data prepare cifar100" in printed
    assert "load('idx', directory=DIR)" in printed


def test_the_list_as_json(
    own_folders: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["cache"] == str(own_folders / "cache")
    found = {status["name"]: status for status in content["sets"]}
    assert tuple(found) == mj.data.SOURCES
    assert found["digits"]["is_here"] is True
    assert found["digits"]["num_bytes"] > 0
    assert found["mnist"]["is_here"] is False
    assert found["mnist"]["how"] == "mrsa-jax data prepare mnist"


def test_nothing_is_fetched_without_a_yes(
    prepared: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _answer("", monkeypatch, terminal=False)
    assert main(["data", "prepare", "mnist"]) == 2
    assert "`yes` must be given where there is no terminal" in capsys.readouterr().err
    for answer in ("n\n", "\n", ""):
        _answer(answer, monkeypatch)
        assert main(["data", "prepare", "mnist"]) == 1
        captured = capsys.readouterr()
        assert "nothing was fetched" in captured.err
        assert "11.6 MB" in captured.err  # said beforehand
    assert prepared == []


def test_a_yes_by_word_or_flag(
    prepared: list[str],
    own_folders: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _answer("y\n", monkeypatch)
    assert main(["data", "prepare", "mnist"]) == 0
    assert (
        "mnist: 3 training and 1 test images of 2x2x1, 10 classes"
        in capsys.readouterr().out
    )
    _answer("", monkeypatch, terminal=False)
    words = [
        "data",
        "prepare",
        "cifar10",
        "--yes",
        "--json",
        "--directory",
        str(own_folders),
    ]
    assert main(words) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert content["directory"] == str(own_folders)
    assert (content["name"], content["train"], content["test"]) == ("cifar10", 3, 1)
    assert "170.1 MB" in captured.err
    assert str(own_folders) in captured.err
    assert prepared == ["mnist", "cifar10"]


def test_without_a_network_it_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorflow_datasets")

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(
        type(mj.data.plan_preparation("mnist")), "check_extra", lambda plan: None
    )
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert main(["data", "prepare", "mnist", "--yes"]) == 2
    assert "cannot be reached: refused" in " ".join(capsys.readouterr().err.split())
