"""Keep records of points in a folder's log, and find them again by their keys.

A frame is `MRSA`, the length of what follows, its SHA-256, and that: a JSON header,
then arrays, each deflated by itself. Each process writes its own file, one write a
frame, and reads those of all. So a kill costs the frame it was writing, and a damaged
frame is as if it had never been there.

A right digest shows only that a frame is as it was written. Its content is checked too:
the header lists the arrays, and no more is unpacked than they need.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
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
_DTYPE = "[<>][iufcU][0-9]{1,5}|[|][biuS][0-9]{1,5}"
_AT_ONCE = 2**20  # bytes that are unpacked to be counted
_SECONDS = 1.0  # between two times that the disk is asked to keep what was written


def framed(header: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
    """Return a frame of a header and arrays."""
    parts = []
    arrays = []
    for name, value in values.items():
        array = np.asarray(value)
        # the fastest level: a point should not wait for its compression
        parts.append(zlib.compress(array.tobytes(), 1))
        arrays.append([name, array.dtype.str, array.shape, len(parts[-1])])
    text = json.dumps({**header, "arrays": arrays}, separators=(",", ":")).encode()
    return _frame(b"".join([_WORD.pack(len(text)), text, *parts]))


def _frame(payload: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest()) + payload


def _payload(file: Any, place: int, end: int) -> bytes | None:
    """Return the payload of the frame at a place; None if no whole one begins there."""
    file.seek(place)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, length, digest = _HEAD.unpack(head)
    if magic != _MAGIC or length > end - place - _HEAD.size:
        return None
    payload = file.read(length)
    # a digest also rejects a mark that occurs inside of an array by chance
    return payload if hashlib.sha256(payload).digest() == digest else None


def scanned(file: Any, place: int = 0) -> Iterator[tuple[int, bytes]]:
    """Go through place and payload of all whole frames, and pass other bytes over.

    The file is read, not mapped: one that its writer cuts meanwhile would end this
    process.
    """
    end = file.seek(0, os.SEEK_END)
    while place < end:
        payload = _payload(file, place, end)
        if payload is not None:
            yield place, payload
            place += _HEAD.size + len(payload)
            continue
        # from the next byte: this mark began no frame
        file.seek(place + 1)
        block = file.read(2**20)
        # the mark of the next frame, or the last bytes, which may begin one
        offset = block.find(_MAGIC)
        place += 1 + offset if offset >= 0 else max(1, len(block) + 1 - len(_MAGIC))


def _header(payload: bytes) -> tuple[dict[str, Any], int]:
    """Return a payload's header, and where its arrays begin."""
    (length,) = _WORD.unpack_from(payload)
    return json.loads(payload[_WORD.size : _WORD.size + length]), _WORD.size + length


def arrays_of(
    payload: bytes, names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Return the arrays of a payload that was checked, or those of these names."""
    header, place = _header(payload)
    arrays = {}
    for name, dtype, shape, length in header["arrays"]:
        if names is None or name in names:
            # a byte more than the arrays need, so that a bomb is cut and noticed
            content = zlib.decompressobj().decompress(
                payload[place : place + length], 1 + _size(dtype, shape)
            )
            arrays[name] = np.frombuffer(content, dtype).reshape(shape)
        place += length
    return arrays


def _size(dtype: str, shape: Iterable[int]) -> int:
    return np.dtype(dtype).itemsize * math.prod(shape)


def _shapes(arrays: Any, packed: bytes) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Return names, types and shapes of arrays as a header has them.

    Args:
        arrays: Of the header.
        packed: What follows the header.

    Raises:
        ValueError: If what follows is anything else than these arrays.
    """
    shapes = []
    place = 0
    for name, dtype, shape, length in arrays:
        _check(isinstance(name, str) and isinstance(dtype, str))
        _check(re.fullmatch(_DTYPE, dtype) is not None)
        # `type`, as isinstance takes True for an integer
        for number in (*shape, length):
            _check(type(number) is int and number >= 0)
        size = _size(dtype, shape)
        _check(_is_packed(memoryview(packed)[place : place + length], size))
        place += length
        shapes.append((name, dtype, tuple(shape)))
    names = {name for name, *_ in shapes}
    # nothing may follow the last array, and names must differ
    _check(place == len(packed) and len(names) == len(shapes))
    return tuple(shapes)


def _is_packed(content: memoryview, size: int) -> bool:
    """Return whether deflated bytes hold this number, without unpacking all at once."""
    inflater = zlib.decompressobj()
    found = 0
    rest = bytes(content)
    while found <= size and not inflater.eof:
        try:
            # `max_length`: at most this many bytes are unpacked per call
            part = inflater.decompress(rest, _AT_ONCE)
        except zlib.error:
            return False
        if not part and rest == inflater.unconsumed_tail:
            return False  # it ends too early
        found += len(part)
        rest = inflater.unconsumed_tail
    # bytes after the end of the stream are damage, too
    return found == size and inflater.eof and not inflater.unused_data


def _check(condition: bool) -> None:
    if not condition:
        raise ValueError


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
        shapes: Name, type and shape of each array.
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
    shapes: tuple[tuple[str, str, tuple[int, ...]], ...] = ()

    @property
    def end(self) -> int:
        """The trial after the last one."""
        return self.first + self.count

    def payload(self) -> bytes:
        """Read the payload of its frame again.

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


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrays that a record must have to be shown in a grid.

    Attributes:
        variables: By name; each has `dims` and `dtype`.
        inner: Lengths of the dimensions within a point.
    """

    variables: Mapping[str, Any]
    inner: Mapping[str, int]
    _known: dict[Any, bool] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    def fits(self, record: Record) -> bool:
        """Return whether all arrays of a record that are shown fit in their places."""
        key = record.shapes, record.count
        # a sweep has few different shapes but many records
        if key not in self._known:
            self._known[key] = all(
                self._has_place(*array, record.count)
                for array in record.shapes
                if array[0] in self.variables
            )
        return self._known[key]

    def _has_place(
        self, name: str, dtype: str, shape: tuple[int, ...], count: int
    ) -> bool:
        variable = self.variables[name]
        target, stored = np.dtype(variable.dtype), np.dtype(dtype)
        kinds = {stored.kind, target.kind}
        if len(shape) != len(variable.dims) or not (
            len(kinds) == 1 or kinds <= {"b", "i", "u"}
        ):
            return False
        if stored.kind == "U" and stored.itemsize > target.itemsize:
            return False
        lengths = zip(variable.dims, shape, strict=True)
        # inner lengths may be smaller: a point need not fill its place
        return all(
            length == count if dim == "trial" else length <= self.inner[dim]
            for dim, length in lengths
        )


class Index:
    """The records of a folder's log, by key, in the order in which they were found.

    Args:
        folder: Of the sweep.

    Attributes:
        records: By key.
        damaged: Bytes of each file, by name, that belong to no record.
        torn: Bytes at the end of each file that are no whole record, or not yet.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        """Begin without records: `refresh` reads the files."""
        self.folder = folder / _FOLDER
        self.records: dict[str, list[Record]] = {}
        self.damaged: dict[str, int] = {}
        self.torn: dict[str, int] = {}
        self._unfit: set[tuple[str, int]] = set()
        self._read: dict[str, int] = {}
        self._known: dict[Any, Any] = {}  # equal texts and sets are kept once

    def refresh(self) -> Index:
        """Read what was written since, by whichever process."""
        for name, size in self.sizes():
            # files only grow: equal sizes have nothing new
            if size > self._read.get(name, 0):
                try:
                    self._scan(name)
                except FileNotFoundError:
                    continue
                except OSError:  # it may not be read, or its disk is damaged
                    self.torn[name] = size - self._read.get(name, 0)
        return self

    def losses(self) -> list[str]:
        """Say which bytes of which files hold no record."""
        kinds = (
            ("{} bytes of {} in {} are damaged", self.damaged),
            ("the last {} bytes of {} in {} are no whole record", self.torn),
        )
        return [
            words.format(size, name, self.folder.parent)
            for words, sizes in kinds
            for name, size in sizes.items()
            if size
        ]

    def sizes(self) -> list[tuple[str, int]]:
        """Return names and sizes of the files, sorted."""
        sizes = []
        for path in self.folder.glob("*.rec"):
            # a file may be gone meanwhile
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    sizes.append((path.name, path.stat().st_size))
        return sorted(sizes)

    def _scan(self, name: str) -> None:
        path = self.folder / name
        before = self._read.get(name, 0)
        with path.open("rb") as file:
            for place, payload in scanned(file, before):
                end = place + _HEAD.size + len(payload)
                # a whole frame that is no record is lost as well as the bytes before it
                lost = place if self._add(path, place, payload) else end
                self.damaged[name] = self.damaged.get(name, 0) + lost - before
                before = self._read[name] = end
            # what follows may be a frame that is being written
            # asked again, as the writer may have added bytes meanwhile
            self.torn[name] = max(0, file.seek(0, os.SEEK_END) - before)

    def add_own(self, path: pathlib.Path, place: int, frame: bytes) -> None:
        """Add a record that this process has just written at the end of its file."""
        # else another thread wrote a record before it, too
        if self._read.get(path.name, 0) == place:
            self._add(path, place, frame[_HEAD.size :])
            self._read[path.name] = place + len(frame)

    def _add(self, path: pathlib.Path, place: int, payload: bytes) -> bool:
        """Return whether it is a record, which another version may write otherwise."""
        try:
            record = self._record(path, place, payload)
        except (
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
            struct.error,
        ):
            return False
        self.records.setdefault(record.key, []).append(record)
        return True

    def _record(self, path: pathlib.Path, place: int, payload: bytes) -> Record:
        """Return the record of a payload; raise if it is invalid."""
        header, begin = _header(payload)
        names = ("key", "settings", "made_by", "first", "count", "seconds")
        key, settings, made_by, first, count, seconds = map(header.__getitem__, names)
        kept = frozenset(header["kept"])
        _check(all(isinstance(text, str) for text in (key, settings, made_by, *kept)))
        _check(type(first) is int and type(count) is int and first >= 0 and count >= 1)
        _check(type(seconds) in (int, float) and math.isfinite(seconds))
        # parsed once: nearly all records share one text
        if made_by not in self._known:
            _check(isinstance(json.loads(made_by), dict))
        shapes = _shapes(header["arrays"], payload[begin:])
        # equal objects are kept once, as a study has very many records
        same = self._known.setdefault
        return Record(
            key,
            settings,
            first,
            count,
            same(kept, kept),
            same(made_by, made_by),
            float(seconds),
            path,
            place,
            _HEAD.size + len(payload),
            same(shapes, shapes),
        )

    def drop_unfit(self, layout: Layout) -> None:
        """Forget the records whose arrays a grid has no place for."""
        for key, records in self.records.items():
            fitting = [record for record in records if self._fits(record, layout)]
            self.records[key] = fitting

    def _fits(self, record: Record, layout: Layout | None) -> bool:
        """Return whether a grid has places for a record; if not, note it as damaged."""
        if layout is None or layout.fits(record):
            return True
        name, place = record.path.name, record.place
        if (name, place) not in self._unfit:
            self._unfit.add((name, place))
            self.damaged[name] = self.damaged.get(name, 0) + record.size
        return False

    def parts(
        self,
        key: str,
        trials: int,
        kept: Iterable[str],
        *,
        whole: bool = False,
        layout: Layout | None = None,
    ) -> list[Record]:
        """Return records which together have the trials from 0 on, up to a gap.

        Args:
            key: Of the point.
            trials: How many it is to have.
            kept: What each record must have in addition to what every point has.
            whole: Whether the values of a record are of all its trials together, so
                that it serves only as it is.
            layout: Of the grid that shows them.

        Returns:
            Records, each further than those before it and taken from where they end.
        """
        parts: list[Record] = []
        end = 0
        wanted = frozenset(kept)
        able = [
            record
            for record in self.records.get(key, ())
            if record.kept >= wanted and self._fits(record, layout)
        ]
        # means over trials cannot be cut, so only records from 0 on serve
        if whole:
            able = [r for r in able if r.first == 0 and r.end <= trials]
        # greedy: of those that begin in time, the one that reaches furthest
        while end < trials:
            best = max(
                (r for r in able if r.first <= end), key=lambda r: r.end, default=None
            )
            if best is None or best.end <= end:
                break
            parts.append(best)
            end = best.end
        return parts


class Log:
    """A file of records that this process alone writes; there is none before the first.

    Args:
        folder: Of the sweep.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        """Choose a name that no other process has."""
        host = re.sub(r"[^\w-]", "_", socket.gethostname())
        # the time and a random part, as a container may repeat host and process number
        name = f"{host}-{os.getpid()}-{time.time_ns()}-{secrets.token_hex(4)}"
        self.path = folder / _FOLDER / f"{name}.rec"
        self._mutex = threading.Lock()
        self._file: int | None = None
        self._synced = time.monotonic()

    @classmethod
    def of(cls, folder: pathlib.Path) -> Log:
        """Return the log that this process has in a folder."""
        # with the process number: a fork must not write to its parent's file
        return _LOGS.setdefault((folder, os.getpid()), cls(folder))

    def append(self, frame: bytes) -> int:
        """Write a frame whole, or leave the file as it was; return where it begins."""
        with self._mutex:
            if self._file is None:
                self.path.parent.mkdir(exist_ok=True)
                flags = (
                    os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
                )
                self._file = os.open(self.path, flags, 0o666)
            # no other process appends to this file, so its size is the place
            start = os.fstat(self._file).st_size
            rest = memoryview(frame)
            try:
                while rest:  # a disk that is nearly full takes a part
                    rest = rest[os.write(self._file, rest) :]
            # an interruption as well: half a frame must not stay before the next
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, start)
                raise
            # not after each record: waiting for the disk takes longer than small points
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
