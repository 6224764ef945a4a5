"""Following a file: each line once and whole, however it is written."""

from __future__ import annotations

import inspect
import os
import pathlib
import threading
import time
from typing import Any

import pytest

from mrsa_watch import ConfigurationError, follow


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log.jsonl"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": -1}, "`start` must be at least 0; got -1"),
        ({"start": 2.0}, "`start` must be an integer; got 2.0"),
        ({"poll_seconds": 0}, "`poll_seconds` must be positive; got 0"),
        ({"start": 9}, "`start` must lie within the 8 bytes of .*log.jsonl; got 9"),
        ({"start": 3}, "`start` must be where a line of .*log.jsonl begins; got 3"),
    ],
)
def test_settings_that_do_not_fit(
    path: pathlib.Path, settings: dict[str, Any], message: str
) -> None:
    path.write_bytes(b"one\ntwo\n")
    with pytest.raises(ConfigurationError, match=message):
        next(inspect.unwrap(follow)(path, **settings))


def test_every_cut_of_a_file_and_every_start(path: pathlib.Path) -> None:
    text = b"one\n\r\n\n" + b"x" * 5000 + b"\ntwo\xff\n"
    lines = text.splitlines(keepends=True)
    for cut in (*range(10), 4000, 5007, 5008, len(text) - 1, len(text)):
        path.write_bytes(text[:cut])
        whole = [
            line
            for line in text[:cut].splitlines(keepends=True)
            if line.endswith(b"\n")
        ]
        assert list(follow(path, poll_seconds=None)) == whole
    start = 0
    for i, line in enumerate(lines):
        assert list(follow(path, start=start, poll_seconds=None)) == lines[i:]
        start += len(line)
    assert list(follow(path, start=start, poll_seconds=None)) == []


def test_a_file_that_is_not_there(path: pathlib.Path) -> None:
    assert list(follow(path, poll_seconds=None)) == []


def test_a_file_that_comes_later_and_grows_by_bytes(path: pathlib.Path) -> None:
    lines = [b"first\n", b"second line\n", b"\xc3\xa9\n", b"last\n"]

    def write() -> None:
        time.sleep(0.05)
        with path.open("ab", buffering=0) as stream:
            for byte in b"".join(lines):
                stream.write(bytes([byte]))
                time.sleep(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    found = follow(path, poll_seconds=0.003)
    assert [next(found) for _ in lines] == lines
    thread.join()


def _shorter(path: pathlib.Path) -> None:
    os.truncate(path, 4)


def _rewritten(path: pathlib.Path) -> None:
    path.write_bytes(b"one\nTWO\nthree\n")


def _replaced(path: pathlib.Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"one\ntwo\nthree\n")
    os.replace(other, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            _shorter,
            r"`path` must only grow \(it had 8 bytes, now 4\); got '.*log.jsonl'",
        ),
        (_rewritten, r"`path` must only grow \(what it held before byte 8 changed\)"),
        (_replaced, "`path` must not be replaced while it is followed"),
        (os.unlink, "`path` must stay in its place while it is followed"),
    ],
)
def test_files_that_do_something_else_than_grow(
    path: pathlib.Path, change: Any, message: str
) -> None:
    path.write_bytes(b"one\ntwo\n")
    found = follow(path, poll_seconds=0.01)
    assert [next(found), next(found)] == [b"one\n", b"two\n"]
    change(path)
    with pytest.raises(ConfigurationError, match=message):
        next(found)


def test_a_line_beyond_the_bound(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrsa_watch._follow.MOST_LINE_BYTES", 100)
    monkeypatch.setattr("mrsa_watch._follow._CHUNK_BYTES", 50)
    path.write_bytes(b"x" * 101)
    with pytest.raises(
        ConfigurationError, match="`path` must have lines of at most 100 bytes"
    ):
        list(follow(path, poll_seconds=None))
