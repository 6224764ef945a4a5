"""Records of points in a folder's log: frames that check themselves, found again by their keys.

A frame is `MRSA`, the length of what follows, its SHA-256, and that: a JSON header, then arrays,
each deflated by itself. Each process writes its own file, one write a frame, and reads those of
all. So a kill costs the frame it was writing, and a damaged frame is as if it had never been there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import secrets
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

_FOLDER = "log"
_MAGIC = b"MRSA"
_HEAD = struct.Struct("<4sQ32s")
_WORD = struct.Struct("<I")
_SECONDS = 1.0  # between two times that the disk is asked to keep what was written


def framed(header: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
    """Return a frame of a header and arrays."""
    parts, told = [], []
    for name, value in values.items():
        own = np.asarray(value)
        parts.append(zlib.compress(own.tobytes(), 1))
        told.append([name, own.dtype.str, own.shape, len(parts[-1])])
    text = json.dumps({**header, "arrays": told}, separators=(",", ":")).encode()
    return _frame(b"".join([_WORD.pack(len(text)), text, *parts]))


def _frame(payload: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest()) + payload


def _payload(file: Any, place: int, end: int) -> bytes | None:
    """Return what the frame at a place holds; None where none begins there, or not a whole one."""
    file.seek(place)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, length, digest = _HEAD.unpack(head)
    if magic != _MAGIC or length > end - place - _HEAD.size:
        return None
    payload = file.read(length)
    return payload if hashlib.sha256(payload).digest() == digest else None


def scanned(file: Any, place: int = 0) -> Iterator[tuple[int, bytes]]:
    """Give place and payload of all whole frames; bytes that belong to none are passed over.

    The file is read, not mapped: one that its writer cuts meanwhile would end this process.
    """
    end = file.seek(0, os.SEEK_END)
    while place < end:
        payload = _payload(file, place, end)
        if payload is not None:
            yield place, payload
            place += _HEAD.size + len(payload)
            continue
        file.seek(place + 1)
        block = file.read(2**20)
        found = block.find(_MAGIC)
        place += 1 + found if found >= 0 else max(1, len(block) + 1 - len(_MAGIC))


def _header(payload: bytes) -> tuple[dict[str, Any], int]:
    """Return a payload's header, and where its arrays begin."""
    (length,) = _WORD.unpack_from(payload)
    return json.loads(payload[_WORD.size : _WORD.size + length]), _WORD.size + length


def arrays_of(payload: bytes, names: Any = None) -> dict[str, np.ndarray]:
    """Return the arrays of a payload, or those of these names."""
    header, place = _header(payload)
    found = {}
    for name, dtype, shape, length in header["arrays"]:
        if names is None or name in names:
            content = zlib.decompress(payload[place : place + length])
            found[name] = np.frombuffer(content, dtype).reshape(shape)
        place += length
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A finished range of a point's trials.

    Attributes:
        key: Of the point: its settings, and the code and files that it was made of.
        settings: Digest of its settings alone.
        first: The first trial.
        count: Their number.
        kept: What it has in addition to what every point has.
        made_by: Versions, code and files, as JSON.
        seconds: That it took.
        path: File that it lies in.
        place: Where its frame begins there.
        size: Bytes of the frame.
    """

    key: str
    settings: str
    first: int
    count: int
    kept: frozenset[str]
    made_by: str
    seconds: float
    path: pathlib.Path
    place: int
    size: int

    @property
    def end(self) -> int:
        """The trial after the last one."""
        return self.first + self.count

    def payload(self) -> bytes:
        """Read again what its frame holds.

        Raises:
            OSError: If it is no longer as it was when it was found.
        """
        with self.path.open("rb") as file:
            payload = _payload(file, self.place, self.place + self.size)
        if payload is None:
            raise OSError(f"{self.path} has changed at {self.place}")
        return payload

    def frame(self) -> bytes:
        """Return its frame, as `payload`."""
        return _frame(self.payload())

    def values(self, names: Any = None) -> dict[str, np.ndarray]:
        """Return its arrays, or those of these names, as `payload`."""
        return arrays_of(self.payload(), names)


class Index:
    """The records of a folder's log, by key, in the order in which they were found.

    Args:
        folder: Of the sweep.

    Attributes:
        records: By key.
        damaged: Bytes of each file before its last whole record that belong to no record.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        """Begin with none: `refresh` reads what is there."""
        self.folder = folder / _FOLDER
        self.records: dict[str, list[Record]] = {}
        self.damaged: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._known: dict[Any, Any] = {}  # equal texts and sets are kept once

    def refresh(self) -> Index:
        """Read what was written since, by whichever process."""
        for name, size in self.sizes():
            if size > self._read.get(name, 0):
                with contextlib.suppress(FileNotFoundError):
                    self._scan(name)
        return self

    def sizes(self) -> list[tuple[str, int]]:
        """Return names and sizes of the files, sorted."""
        try:
            with os.scandir(self.folder) as entries:
                found = [
                    (e.name, e.stat().st_size)
                    for e in entries
                    if e.name.endswith(".rec") and e.is_file()
                ]
        except FileNotFoundError:
            return []
        return sorted(found)

    def _scan(self, name: str) -> None:
        path, before = self.folder / name, self._read.get(name, 0)
        with path.open("rb") as file:
            for place, payload in scanned(file, before):
                if self._add(path, place, payload):
                    self.damaged[name] = self.damaged.get(name, 0) + place - before
                    before = place + _HEAD.size + len(payload)
        self._read[name] = before  # what follows may be a frame that is being written

    def add_own(self, path: pathlib.Path, place: int, frame: bytes) -> None:
        """Add a record that this process has just written at the end of its file."""
        if self._read.get(path.name, 0) == place:  # else another thread wrote before, too
            self._add(path, place, frame[_HEAD.size :])
            self._read[path.name] = place + len(frame)

    def _add(self, path: pathlib.Path, place: int, payload: bytes) -> bool:
        """Return whether it is a record, which another version may write otherwise."""
        same = self._known.setdefault
        try:
            header, _ = _header(payload)
            kept, made_by = frozenset(header["kept"]), header["made_by"]
            record = Record(
                header["key"], header["settings"], int(header["first"]), int(header["count"]),
                same(kept, kept), same(made_by, made_by), float(header["seconds"]),
                path, place, _HEAD.size + len(payload),
            )  # fmt: skip
            self.records.setdefault(record.key, []).append(record)
        except (KeyError, TypeError, ValueError, struct.error):
            return False
        return True

    def parts(
        self, key: str, trials: int, kept: Iterable[str], *, whole: bool = False
    ) -> list[Record]:
        """Return records which together have the trials from 0 on, as far as there are any.

        Args:
            key: Of the point.
            trials: How many it is to have.
            kept: What each record must have in addition to what every point has.
            whole: Whether a record says something of all its trials together, so that it serves
                only as it is.

        Returns:
            Records, each further than those before it and taken from where they end.
        """
        found: list[Record] = []
        end, wanted = 0, frozenset(kept)
        able = [r for r in self.records.get(key, ()) if r.kept >= wanted]
        if whole:
            able = [r for r in able if r.first == 0 and r.end <= trials]
        while end < trials:
            best = max((r for r in able if r.first <= end), key=lambda r: r.end, default=None)
            if best is None or best.end <= end:
                break
            found.append(best)
            end = best.end
        return found


class Log:
    """A file of records that this process alone writes; there is none before the first.

    Args:
        folder: Of the sweep.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        """Choose a name that no other process has."""
        host = re.sub(r"[^\w-]", "_", socket.gethostname())
        own = f"{host}-{os.getpid()}-{time.time_ns()}-{secrets.token_hex(4)}"
        self.path = folder / _FOLDER / f"{own}.rec"
        self._mutex = threading.Lock()
        self._file: int | None = None
        self._synced = time.monotonic()

    @classmethod
    def of(cls, folder: pathlib.Path) -> Log:
        """Return the one that this process has in a folder."""
        return _LOGS.setdefault((folder, os.getpid()), cls(folder))

    def append(self, frame: bytes) -> int:
        """Write a frame whole, or leave the file as it was; return where it begins."""
        with self._mutex:
            if self._file is None:
                self.path.parent.mkdir(exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
                self._file = os.open(self.path, flags, 0o666)
            start, left = os.fstat(self._file).st_size, memoryview(frame)
            try:
                while left:
                    left = left[os.write(self._file, left) :]
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, start)
                raise
            if time.monotonic() - self._synced > _SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()
            return start

    def close(self) -> None:
        """Have the disk keep all of it; a further record opens it again."""
        with self._mutex:
            if self._file is not None:
                os.fsync(self._file)
                os.close(self._file)
                self._file = None


_LOGS: dict[tuple[pathlib.Path, int], Log] = {}
