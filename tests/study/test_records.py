"""Records in logs that are cut and damaged at every byte, and written while they are read."""

from __future__ import annotations

import errno
import io
import os
import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax.study.stores import _records
from mrsa_jax.study.stores._records import Index, Log, arrays_of, framed, scanned


def frame(key: str = "a", first: int = 0, count: int = 2, **values: Any) -> bytes:
    header = {
        "key": key,
        "settings": "s",
        "first": first,
        "count": count,
        "kept": [],
        "made_by": "{}",
        "seconds": 0.5,
    }
    return framed(header, values or {"rank": np.arange(count, dtype=np.int32)})


THREE = [frame(key) for key in "abc"]


def keys(content: bytes) -> list[tuple[int, str]]:
    return [
        (place, _records._header(payload)[0]["key"])
        for place, payload in scanned(io.BytesIO(content))
    ]


WHOLE = keys(b"".join(THREE))


def test_arrays_come_back_as_they_were() -> None:
    values = {
        "label": np.array(["é", "Random"]),
        "curve": np.array([[1.5, np.nan], [-0.0, np.inf]]).T,
        "total": np.int64(2**40),
        "none": np.zeros((0, 3), np.float32),
        "flag": np.array([True, False]),
    }
    ((_, payload),) = scanned(io.BytesIO(frame(**values)))
    found = arrays_of(payload)
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == np.asarray(value).dtype
    assert arrays_of(payload, {"total"}) == {"total": 2**40}


def test_a_log_cut_at_each_byte_has_its_whole_records() -> None:
    content = b"".join(THREE)
    for end in range(len(content) + 1):
        assert keys(content[:end]) == [
            one for one in WHOLE if one[0] + len(THREE[0]) <= end
        ]


def test_a_flipped_bit_costs_one_record_and_never_gives_another() -> None:
    content = b"".join(THREE)
    for place in range(len(content)):
        spoilt = bytearray(content)
        spoilt[place] ^= 1 << place % 8
        hit = place // len(THREE[0])
        assert keys(bytes(spoilt)) == WHOLE[:hit] + WHOLE[hit + 1 :], place


def test_what_looks_like_a_frame_inside_one_is_none() -> None:
    inner = frame("inside")
    outer = framed(
        {"key": "outside"}, {"x": np.frombuffer(os.urandom(50) + inner, np.uint8)}
    )
    assert [key for _, key in keys(outer)] == ["outside"]
    # stored as it is, and the outer head is damaged: it is a whole record of its own
    assert [key for _, key in keys(b"MRSA" + b"x" * 40 + inner)] == ["inside"]


def test_a_reader_takes_what_is_whole_and_goes_on(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log" / "other.rec"
    path.parent.mkdir()
    index = Index(tmp_path)
    assert not index.refresh().records
    for end in (0, 10, len(THREE[0]), len(THREE[0]) + 7):
        path.write_bytes(b"".join(THREE)[:end])
        assert list(index.refresh().records) == ["a"] * (end >= len(THREE[0]))
    path.write_bytes(b"".join(THREE))
    assert list(index.refresh().records) == ["a", "b", "c"]
    assert not any(index.damaged.values())
    (record,) = index.records["b"]
    assert record.values()["rank"].tolist() == [0, 1]
    path.write_bytes(THREE[0] + b"?" * len(THREE[1]) + THREE[2])
    with pytest.raises(OSError, match="has changed"):
        record.values()
    index = Index(tmp_path).refresh()
    assert list(index.records) == ["a", "c"]
    assert index.damaged == {"other.rec": len(THREE[1])}


def test_a_write_that_fails_leaves_whole_records(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.append(THREE[0])
    write = os.write

    def full(file: int, content: memoryview) -> int:
        if len(content) < len(THREE[1]):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content[:9])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            log.append(THREE[1])
    assert log.path.read_bytes() == THREE[0]
    assert log.append(THREE[2]) == len(THREE[0])
    log.close()
    log.append(THREE[1])  # opens it again
    assert log.path.read_bytes() == THREE[0] + THREE[2] + THREE[1]
    log.close()


def test_a_reader_outlives_a_file_that_its_writer_cuts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk was full; a mapped file would end the process (SIGBUS)."""
    path = tmp_path / "log" / "other.rec"
    path.parent.mkdir()
    other = frame("b", rank=np.frombuffer(os.urandom(2**16), np.uint8))
    path.write_bytes(THREE[0] + other[:-1])
    add = Index._add

    def cut(self: Index, *of: Any) -> bool:
        os.truncate(path, len(THREE[0]))
        return add(self, *of)

    with monkeypatch.context() as patch:
        patch.setattr(Index, "_add", cut)
        index = Index(tmp_path).refresh()
    assert list(index.records) == ["a"]
    path.write_bytes(THREE[0] + other)
    assert list(index.refresh().records) == ["a", "b"]


def test_a_frame_is_found_behind_more_bytes_than_are_read_at_once() -> None:
    for size in range(2**20 - 4, 2**20 + 3):
        assert keys(b"?" * size + THREE[0] + b"MRS") == [(size, "a")]


def test_a_frame_that_is_no_record_is_passed_over(tmp_path: pathlib.Path) -> None:
    """Its digest is right: another version, or somebody else, wrote it."""
    known = {
        "key": "x",
        "settings": "s",
        "first": 0,
        "count": 1,
        "kept": [],
        "made_by": "{}",
        "seconds": 0.5,
    }
    wrong: list[Any] = [
        {"key": ["x"]},
        {"first": "a"},
        {"count": None},
        {"kept": 1},
        {"seconds": []},
    ]
    others = [framed(known | one, {}) for one in wrong]
    others += [
        framed({n: own for n, own in known.items() if n != name}, {}) for name in known
    ]
    others += [
        _records._frame(payload) for payload in (b"", b"\xff" * 8, b"\2\0\0\0[]")
    ]
    path = tmp_path / "log" / "other.rec"
    path.parent.mkdir()
    path.write_bytes(b"".join([*others, THREE[0], *others]))
    (path.parent / "folder.rec").mkdir()
    index = Index(tmp_path).refresh()
    assert list(index.records) == ["a"]
    assert index.damaged == {"other.rec": 2 * sum(map(len, others))}
    (record,) = index.records["a"]
    assert record.frame() == THREE[0]


def test_ranges_of_trials_are_joined_from_the_first_on(tmp_path: pathlib.Path) -> None:
    log, index = Log(tmp_path), Index(tmp_path)

    def spans(trials: int, **how: bool) -> list[tuple[int, int]]:
        return [(r.first, r.end) for r in index.refresh().parts("a", trials, (), **how)]

    for first, count in ((4, 2), (0, 3)):
        log.append(frame("a", first, count))
    assert spans(6) == [(0, 3)]  # trial 3 is missing
    log.append(frame("a", 2, 3))
    assert spans(6) == [(0, 3), (2, 5), (4, 6)]
    assert spans(5) == [(0, 3), (2, 5)]
    log.append(frame("a", 0, 6))
    assert spans(6) == spans(6, whole=True) == [(0, 6)]
    assert spans(5, whole=True) == [(0, 3)]
    assert not index.parts("a", 6, ("trajectories",))
    log.close()
