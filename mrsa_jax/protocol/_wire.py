"""What all messages share: the header, lists of entries, and a reader that refuses by name.

Little-endian. A header is 8 bytes: kind, version, spare (uint16), round (uint32).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

from mrsa_jax.protocol._errors import MalformedMessageError
from mrsa_jax.protocol._shamir import LIMBS

VERSION = 1
HEADER_BYTES = 8
"""Bytes of every message's header."""
ID_BYTES = COUNT_BYTES = 4
KEY_BYTES = 32
SHARE_BYTES = 4 * LIMBS
"""Bytes of one share of a 256-bit secret: nine field elements."""
TAG_BYTES = 16
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""Bytes of the two shares for one neighbour, encrypted, with their tag."""

_HEADER = struct.Struct("<BBHI")
WORD = struct.Struct("<I")
_LIMIT = 2**32


def header(kind: int, round_index: int, spare: int = 0) -> bytes:
    """Return the 8 bytes that begin a message."""
    return _HEADER.pack(kind, VERSION, spare, round_index)


def kind_of(data: bytes) -> int:
    """Return the kind of a message of our version.

    Raises:
        MalformedMessageError: If it is too short, or of another version or unknown kind.
    """
    check(len(data) >= HEADER_BYTES, "a message", f"is cut off after {len(data)} bytes")
    kind, version, _, _ = _HEADER.unpack_from(data)
    check(version == VERSION, "a message", f"has version {version}, not {VERSION}")
    check(1 <= kind <= 7, "a message", f"is of unknown kind {kind}")
    return kind


class Reader:
    """Takes a message apart from the front."""

    def __init__(self, name: str, kind: int, data: bytes) -> None:
        self.name, self._data, self._at = name, data, HEADER_BYTES
        found = kind_of(data)
        check(found == kind, name, f"is of kind {kind}, not {found}")
        _, _, self.spare, self.round_index = _HEADER.unpack_from(data)

    def no_spare(self) -> Reader:
        check(self.spare == 0, self.name, f"has {self.spare} in its spare field")
        return self

    def take(self, count: int) -> bytes:
        left = len(self._data) - self._at
        check(count <= left, self.name, f"is cut off: {count} bytes expected, {left} left")
        self._at += count
        return self._data[self._at - count : self._at]

    def word(self) -> int:
        return WORD.unpack(self.take(4))[0]

    def entries(self, count: int, size: int) -> tuple[tuple[int, bytes], ...]:
        body = self.take(count * (ID_BYTES + size))
        found = tuple(struct.iter_unpack(f"<I{size}s", body))
        check_ascending(self.name, [entry[0] for entry in found])
        return found

    def end(self) -> None:
        over = len(self._data) - self._at
        check(over == 0, self.name, f"has {over} bytes too many")


def check(condition: bool, name: str, problem: str) -> None:
    if not condition:
        raise MalformedMessageError(f"{name} {problem}")


def check_word(name: str, what: str, value: int, limit: int = _LIMIT) -> None:
    check(0 <= value < limit, name, f"has {what} {value}, not in [0, {limit})")


def check_ascending(name: str, ids: Sequence[int]) -> None:
    ascending = all(low < high for low, high in itertools.pairwise(ids))
    check(ascending, name, "lists ids that are not ascending")
    if ids:
        check_word(name, "an id", ids[0])
        check_word(name, "an id", ids[-1])


def check_entries(name: str, entries: Sequence[tuple[int, bytes]], size: int) -> None:
    check_ascending(name, [entry[0] for entry in entries])
    check(all(len(entry[1]) == size for entry in entries), name, f"needs {size} bytes an entry")


def pack_entries(entries: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(WORD.pack(owner) + body for owner, body in entries)


def limbs_of(shares: Sequence[bytes]) -> np.ndarray:
    """Return shares as uint32[shares, 9]."""
    words = np.frombuffer(b"".join(shares), "<u4").astype(np.uint32)
    return words.reshape(len(shares), LIMBS)
