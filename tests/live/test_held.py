"""A log whose disk fails, that was cut short, or that others move and change under its recorder."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from mrsa_watch import ConfigurationError, Recorder, read_log
from mrsa_watch._base.errors import StoreError
from mrsa_watch.logs import LineParser


def _recorder(path: pathlib.Path) -> Recorder:
    return Recorder(path, system="test 1", aggregation="secagg", salt=b"")


def _sums(path: pathlib.Path) -> list[tuple[tuple[int, int, int], set[str]]]:
    """Key and clients of each sum, of a log that every reader takes."""
    parser = LineParser(path.name)
    fed = [parser.feed(line) for line in path.read_bytes().splitlines(keepends=True)]
    found = [(one.key, set(one.clients)) for one in fed if one is not None]
    assert len(read_log(path).participation) == len(found)
    return found


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log.jsonl"


class Disk:
    """The disk under one file.

    What fails now, after how many bytes of a line were taken.
    """

    def __init__(self, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.fails, self.room, self.most = path, {}, 10**9, 10**9  # type: ignore[var-annotated]
        self.real = {
            name: getattr(os, name) for name in ("write", "fsync", "ftruncate")
        }
        for name in self.real:
            monkeypatch.setattr(os, name, getattr(self, name))

    def _do(self, name: str, file: int, *more: Any) -> Any:
        is_its = self.path.exists() and os.path.samestat(
            os.fstat(file), self.path.stat()
        )
        if is_its and name in self.fails:
            raise self.fails[name]
        return self.real[name](file, *more)

    def write(self, file: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = self._do("write", file, bytes(data)[: min(self.room, self.most)])
        self.room -= count
        return int(count)

    def fsync(self, file: int) -> None:
        self._do("fsync", file)

    def ftruncate(self, file: int, size: int) -> None:
        self._do("ftruncate", file, size)

    def mend(self) -> None:
        self.fails, self.room, self.most = {}, 10**9, 10**9


@pytest.fixture
def disk(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(path, monkeypatch)


# ---- the disk fails


@pytest.mark.parametrize(
    "fault",
    [
        {"fails": {"fsync": OSError(errno.EIO, "Input/output error")}},
        {"fails": {"fsync": OSError(errno.ENOSPC, "No space left on device")}},
        {"fails": {"fsync": KeyboardInterrupt()}},
        {"fails": {"write": OSError(errno.EIO, "Input/output error")}},
        {"fails": {"write": OSError(errno.EDQUOT, "Quota exceeded")}},
        *(
            {"room": room, "most": most}
            for room in (0, 1, 2, 40, 90)
            for most in (1, 37, 10**9)
        ),
    ],
)
def test_a_record_that_fails_is_not_in_the_log(
    path: pathlib.Path, disk: Disk, fault: dict[str, Any]
) -> None:
    """Its round may then be recorded with other clients, here and after a restart."""
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        before = path.read_bytes()
        for _ in range(2):
            vars(disk).update(fault)
            with pytest.raises((StoreError, KeyboardInterrupt)) as caught:
                recorder.record(2, ["a", "c", "d", "e", "f", "g", "h"])
            if isinstance(caught.value, StoreError):
                assert "must have room to be written" in str(caught.value)
                assert str(caught.value).endswith("; the line is not in it")
            assert path.read_bytes() == before
        disk.mend()
        recorder.record(2, ["a", "d"])
        with pytest.raises(
            ConfigurationError, match=r"log.jsonl:4: expected of round 2"
        ):
            recorder.record(2, ["a", "c"])
    with _recorder(path) as recorder:
        recorder.record(3, ["a"])
    assert _sums(path) == [
        ((0, 1, 0), {"a", "b"}),
        ((0, 2, 0), {"a", "d"}),
        ((1, 3, 0), {"a"}),
    ]


def test_a_write_that_takes_nothing_ends(
    path: pathlib.Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _recorder(path) as recorder:
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", lambda file, data: 0)
        with pytest.raises(
            StoreError, match="nothing more is taken; the line is not in it"
        ):
            recorder.record(1, ["a"])
        assert path.read_bytes() == before


@pytest.mark.parametrize("most", [1, 7, 64])
def test_short_writes_are_gone_on_with(
    path: pathlib.Path, disk: Disk, most: int
) -> None:
    with _recorder(path) as recorder:
        disk.most = most
        recorder.record(1, ["a", "b"])
    assert _sums(path) == [((0, 1, 0), {"a", "b"})]


def test_names_of_a_line_that_failed_are_not_kept(
    path: pathlib.Path, disk: Disk
) -> None:
    """Of two names that may be one client, the first was never in the log."""
    with _recorder(path) as recorder:
        recorder.record(1, ["b"])
        disk.room = 0
        with pytest.raises(StoreError):
            recorder.record(2, ["01", "b"])
        disk.mend()
        recorder.record(2, ["1", "b"])
        with pytest.raises(ConfigurationError, match="one way to write a client"):
            recorder.record(3, ["01", "b"])
    assert _sums(path) == [((0, 1, 0), {"b"}), ((0, 2, 0), {"1", "b"})]


@pytest.mark.parametrize("room", [0, 17, 10**9])
def test_a_line_that_cannot_be_cut_off_forbids_more(
    path: pathlib.Path, disk: Disk, room: int
) -> None:
    """The error says that it may be in the log.

    A new recorder reads what is there, and goes on.
    """
    eio = OSError(errno.EIO, "Input/output error")
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        before = path.read_bytes()
        disk.room, disk.fails = room, {"fsync": eio, "ftruncate": eio}
        with pytest.raises(StoreError) as caught:
            recorder.record(2, ["a", "c"])
        disk.mend()
        assert path.read_bytes().startswith(before)
        if not room:  # there was nothing to cut off
            assert "may be in it" not in str(caught.value)
            return
        assert "the line may be in it; close this recorder and make another" in str(
            caught.value
        )
        left = path.read_bytes()
        for _ in range(2):
            with pytest.raises(StoreError, match=r"must stay as it is .*; close this"):
                recorder.record(3, ["d"])
        assert path.read_bytes() == left
    with _recorder(path) as recorder:
        recorder.record(2, ["a", "c"])
    sums = _sums(path)
    assert sums[0] == ((0, 1, 0), {"a", "b"})
    assert sums[-1] == ((1, 2, 0), {"a", "c"})
    assert len(sums) == (2 if room == 17 else 3)


@pytest.mark.parametrize("room", [0, 1, 50, 123, 124])
def test_a_header_that_fails_leaves_the_log_as_it_was(
    path: pathlib.Path, disk: Disk, room: int
) -> None:
    for before in (b"", None):
        if before is None:
            disk.mend()
            with _recorder(path) as recorder:
                recorder.record(1, ["a"])
            before = path.read_bytes()
        disk.room, disk.fails = (
            room,
            {"fsync": OSError(errno.EIO, "Input/output error")},
        )
        with pytest.raises(StoreError, match="; the line is not in it"):
            _recorder(path)
        assert path.read_bytes() == before
    disk.mend()
    with _recorder(path) as recorder:
        recorder.record(1, ["b"])
    assert _sums(path) == [((0, 1, 0), {"a"}), ((1, 1, 0), {"b"})]


# ---- a log that was cut short


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_a_log_cut_at_any_byte_goes_on(
    path: pathlib.Path, disk: Disk, step: int
) -> None:
    """Whatever was whole stays, and the log that goes on is one that every reader takes."""
    disk.real["fsync"] = lambda file: None  # hundreds of them
    with _recorder(path) as recorder:
        recorder.record(1, ["anna", "bob"], weights=[1, 3])
        recorder.record(2, ["anna", "carl"])
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    full = _sums(path)
    ends = {size + more for size in (0, header, len(whole)) for more in (-1, 0, 1)}
    for size in sorted({*range(0, len(whole), step), *ends} & {*range(len(whole) + 1)}):
        path.write_bytes(whole[:size])
        with _recorder(path) as recorder:
            recorder.record(7, ["dora", "emil"])
        run = int(size >= header)
        kept = full[: max(whole[:size].count(b"\n") - 1, 0)]
        assert _sums(path) == [*kept, ((run, 7, 0), {"dora", "emil"})]
        is_torn = size > header and whole[size - 1 : size] != b"\n"
        assert path.read_bytes().count(b"#torn") == is_torn
        if size >= header:
            assert path.read_bytes().startswith(whole[:size])


@pytest.mark.smoke("30")
@pytest.mark.parametrize("size", [1, 30, 124])
def test_a_header_that_an_older_recorder_marked_as_torn(
    path: pathlib.Path, size: int
) -> None:
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
    whole = path.read_bytes()
    path.write_bytes(whole[:size] + b" #torn\n" + whole)
    assert read_log(path).clients == ("a", "b")
    with _recorder(path) as recorder:
        recorder.record(1, ["b"])
    assert _sums(path) == [((0, 1, 0), {"a", "b"}), ((1, 1, 0), {"b"})]


@pytest.mark.parametrize(
    "text", ["round,client", "{", '{"format": "another', "\x93NUMPY", " "]
)
def test_another_file_without_an_end_of_line_is_left_as_it_is(
    path: pathlib.Path, text: str
) -> None:
    path.write_text(text)
    if '{"format": "mrsa-jax participation log"'.startswith(text):
        _recorder(path).close()  # may be a header's first bytes
        return
    with pytest.raises(
        ConfigurationError, match="`path` must be a participation log or a new"
    ):
        _recorder(path)
    assert path.read_text() == text


# ---- what others do to it


def _renamed(path: pathlib.Path) -> None:
    path.rename(path.with_name("log.jsonl.1"))


def _rotated(path: pathlib.Path) -> None:
    _renamed(path)
    path.touch()


def _copied_over(path: pathlib.Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.replace(path)


def _folder_renamed(path: pathlib.Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _appended(path: pathlib.Path) -> None:
    with path.open("ab") as stream:
        stream.write(b'{"round": 5, "clients": ["x"]}\n')


def _shortened(path: pathlib.Path) -> None:
    os.truncate(path, 130)


def _emptied(path: pathlib.Path) -> None:
    os.truncate(path, 0)


GONE = "it was deleted or replaced; until this process ends, its lines can be copied from /proc/"
MOVED = (
    "it was renamed or replaced; put it back, or close this recorder and make another"
)
CHANGED = (
    r"it has \d+ bytes, and this recorder left \d+; stop what else writes to it, close "
    r"this "
    "recorder and make another"
)
OTHERS = [
    (_renamed, MOVED),
    (_rotated, MOVED),
    (_copied_over, GONE),
    (_folder_renamed, MOVED),
    (pathlib.Path.unlink, GONE),
    (_appended, CHANGED),
    (_shortened, CHANGED),
    (_emptied, CHANGED),
]


def _all(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize(("do", "message"), OTHERS)
def test_a_log_that_was_moved_or_changed_is_told_and_takes_no_line(
    tmp_path: pathlib.Path, do: Callable[[pathlib.Path], Any], message: str
) -> None:
    path = tmp_path / "logs" / "log.jsonl"
    path.parent.mkdir()
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        do(path)
        before = _all(tmp_path)
        for _ in range(2):
            with pytest.raises(
                StoreError, match=f"`path` must stay as it is .*: {message}"
            ):
                recorder.record(2, ["a", "c"])
        assert _all(tmp_path) == before


@pytest.mark.parametrize("do", [_renamed, _rotated])
def test_a_log_that_is_put_back_goes_on(
    path: pathlib.Path, do: Callable[..., None]
) -> None:
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        do(path)
        with pytest.raises(StoreError):
            recorder.record(2, ["a", "c"])
        path.with_name("log.jsonl.1").replace(path)
        recorder.record(2, ["a", "c"])
    assert _sums(path) == [((0, 1, 0), {"a", "b"}), ((0, 2, 0), {"a", "c"})]


@pytest.mark.parametrize(("do", "message"), OTHERS)
def test_a_log_that_is_moved_or_changed_while_a_line_is_written(
    tmp_path: pathlib.Path, disk: Disk, do: Callable[[pathlib.Path], Any], message: str
) -> None:
    """Where the line can be cut off, it is.

    Where others wrote as well, all stays and is told.
    """
    path = tmp_path / "logs" / "log.jsonl"
    path.parent.mkdir()
    recorder = _recorder(path)
    recorder.record(1, ["a", "b"])
    before, held = path.read_bytes(), recorder._file._file

    def fsync(file: int) -> None:
        disk.real["fsync"] = lambda file: None
        do(path)

    disk.real["fsync"] = fsync
    with pytest.raises(StoreError, match=message) as caught:
        recorder.record(2, ["a", "c"])
    left = os.pread(held, 10**6, 0)
    if do is _appended:
        assert left.startswith(before + b'{"round": 2,')
        assert left.endswith(b'"clients": ["x"]}\n')
        assert "the line may be in it" in str(caught.value)
    elif message == CHANGED:  # and where the line went is not known
        assert left == before[: len(left)]
        assert "the line may be in it" in str(caught.value)
    else:
        assert left == before
        assert str(caught.value).endswith("; the line is not in it")
    recorder.close()


# the child leaves before JAX runs
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_fork_does_not_record(path: pathlib.Path) -> None:
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        child = os.fork()
        if not child:
            try:
                recorder.record(2, ["x"])
            except ConfigurationError as error:
                recorder.close()
                os._exit(7 if "not in a fork of it" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        recorder.record(2, ["a", "c"])
        with pytest.raises(ConfigurationError, match="no other recorder holds"):
            _recorder(path)
    assert _sums(path) == [((0, 1, 0), {"a", "b"}), ((0, 2, 0), {"a", "c"})]


def test_a_link_to_a_log_that_is_held(path: pathlib.Path) -> None:
    with _recorder(path):
        for make in (os.symlink, os.link):
            other = path.with_name(make.__name__)
            make(path, other)
            with pytest.raises(ConfigurationError, match="no other recorder holds"):
                _recorder(other)


def test_a_log_may_be_a_link(path: pathlib.Path) -> None:
    target = path.with_name("target")
    path.symlink_to(target)
    with _recorder(path) as recorder:
        recorder.record(1, ["a"])
        path.unlink()
        path.symlink_to(path.with_name("another"))
        with pytest.raises(StoreError, match="renamed or replaced"):
            recorder.record(2, ["b"])
    assert _sums(target) == [((0, 1, 0), {"a"})]


def test_a_relative_path_stays_where_it_was(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with _recorder(pathlib.Path("log.jsonl")) as recorder:
        assert recorder.path == tmp_path / "one" / "log.jsonl"
        monkeypatch.chdir(tmp_path / "two")
        recorder.record(1, ["a"])
    assert _sums(tmp_path / "one" / "log.jsonl") == [((0, 1, 0), {"a"})]
    assert not list((tmp_path / "two").iterdir())


# ---- whose log it is


def test_two_runs_of_an_app_share_a_log_and_two_apps_do_not(path: pathlib.Path) -> None:
    for run in range(2):
        with _recorder(path) as recorder:
            for _ in range(2):
                recorder.identify("somebody/one", f"{run + 70}")
            recorder.record(1, ["a", "b"])
    with _recorder(path) as recorder:
        before = path.read_bytes()
        with pytest.raises(ConfigurationError) as caught:
            recorder.identify("somebody/two", "72")
        assert str(caught.value) == (
            "`path` must be the log of somebody/two; give each app its own absolute "
            "path; got "
            f"'{path}, which is of somebody/one'"
        )
        assert path.read_bytes() == before
    headers = [
        json.loads(line) for line in path.read_text().splitlines() if "format" in line
    ]
    assert [header.get("extra") for header in headers] == [
        None,
        {"app": "somebody/one", "run_id": "70"},
        None,
        {"app": "somebody/one", "run_id": "71"},
        None,
    ]
    assert [header["run"] for header in headers] == [0, 0, 1, 1, 2]
    assert _sums(path) == [((0, 1, 0), {"a", "b"}), ((1, 1, 0), {"a", "b"})]
    assert not any("twice" in note or "repeat" in note for note in read_log(path).notes)


def test_a_name_that_cannot_be_written_is_taken_back(
    path: pathlib.Path, disk: Disk
) -> None:
    with _recorder(path) as recorder:
        disk.room = 20
        with pytest.raises(StoreError):
            recorder.identify("one", "70")
        disk.mend()
        recorder.record(1, ["a"])
        recorder.identify("two", "71")
        recorder.record(2, ["a"])
    assert _sums(path) == [((0, 1, 0), {"a"}), ((0, 2, 0), {"a"})]
    assert b'"one"' not in path.read_bytes()
