"""Read and write the parts that all messages share.

The header, lists of entries, and a reader that refuses by name. Little-endian. A header
is 8 bytes: kind, version, spare (uint16), round (uint32).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

from mrsa_jax.modular.shamir import LIMBS
from mrsa_jax.protocol.errors import MalformedMessageError

VERSION = 1
HEADER_BYTES = 8
"""Bytes of every message's header."""
ID_BYTES = COUNT_BYTES = 4
KEY_BYTES = 32
SHARE_BYTES = 4 * LIMBS
"""Bytes of one share of a 256-bit secret: nine field elements."""
SIGNATURE_BYTES = 64
TAG_BYTES = 16
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""Bytes of the two shares for one neighbour, encrypted, with their tag."""

_HEADER = struct.Struct("<BBHI")
WORD = struct.Struct("<I")
_LIMIT = 2**32


def header(kind: int, round_index: int, spare: int = 0) -> bytes:
    """Return the 8 bytes that begin a message."""
    return _HEADER.pack(kind, VERSION, spare, round_index)


def check(condition: bool, name: str, problem: str) -> None:
    """Raise `MalformedMessageError` unless a condition holds."""
    if not condition:
        raise MalformedMessageError(f"{name} {problem}")


def kind_of(data: bytes) -> int:
    """Return the kind of a message of our version.

    Raises:
        MalformedMessageError: If it is too short, or of another version or unknown
            kind.
    """
    check(len(data) >= HEADER_BYTES, "a message", f"is cut off after {len(data)} bytes")
    kind, version, _, _ = _HEADER.unpack_from(data)
    check(version == VERSION, "a message", f"has version {version}, not {VERSION}")
    check(1 <= kind <= 11, "a message", f"is of unknown kind {kind}")
    return kind


class Reader:
    """Takes a message apart from the front; what is missing or left over is refused.

    Attributes:
        name: The message's name, for errors.
        spare: The header's spare field.
        round_index: The header's round.
    """

    def __init__(
        self,
        name: str,
        kind: int,
        data: bytes,
        *,
        may_spare: bool = False,
    ) -> None:
        """Read the header of a message that must be of one kind."""
        its_kind = kind_of(data)
        check(its_kind == kind, name, f"is of kind {kind}, not {its_kind}")
        _, _, self.spare, self.round_index = _HEADER.unpack_from(data)
        check(may_spare or not self.spare, name, f"has {self.spare} in its spare field")
        self.name, self._data, self._at = name, data, HEADER_BYTES

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        # moves on before the check: a message that is cut off is read no further
        start, self._at = self._at, self._at + count
        available = len(self._data) - start
        check(
            count <= available,
            self.name,
            f"is cut off: {count} bytes expected, {available} left",
        )
        return self._data[start : self._at]

    def words(self, count: int) -> tuple[int, ...]:
        """Return the next uint32s."""
        return struct.unpack(f"<{count}I", self.take(4 * count))

    def entries(self, count: int, size: int) -> tuple[tuple[int, bytes], ...]:
        """Return the next (id, bytes of one size)."""
        return tuple(
            struct.iter_unpack(f"<I{size}s", self.take(count * (ID_BYTES + size)))
        )

    def end(self) -> None:
        """Refuse bytes that are left over."""
        over = len(self._data) - self._at
        check(over == 0, self.name, f"has {over} bytes too many")


def check_words(name: str, round_index: int, *clients: int) -> None:
    """Check that a round and a client are uint32s."""
    check(
        0 <= round_index < _LIMIT,
        name,
        f"has round {round_index}, not in [0, {_LIMIT})",
    )
    for client in clients:
        check(0 <= client < _LIMIT, name, f"has client {client}, not in [0, {_LIMIT})")


def check_ascending(name: str, ids: Sequence[int]) -> None:
    """Check that ids ascend and are uint32s."""
    check(
        all(low < high for low, high in itertools.pairwise(ids)),
        name,
        "lists ids that are not ascending",
    )
    check(
        not ids or 0 <= ids[0] <= ids[-1] < _LIMIT,
        name,
        f"has an id that is not in [0, {_LIMIT})",
    )


def check_entries(name: str, entries: Sequence[tuple[int, bytes]], size: int) -> None:
    """Check that entries ascend by id and have one size."""
    check_ascending(name, [entry[0] for entry in entries])
    check(
        all(len(entry[1]) == size for entry in entries),
        name,
        f"needs {size} bytes an entry",
    )


def pack_entries(entries: Sequence[tuple[int, bytes]]) -> bytes:
    """Return entries as bytes."""
    return b"".join(WORD.pack(owner) + body for owner, body in entries)


def limbs_of(shares: Sequence[bytes]) -> np.ndarray:
    """Return shares as uint32[shares, 9]."""
    words = np.frombuffer(b"".join(shares), "<u4").astype(np.uint32)
    return words.reshape(len(shares), LIMBS)


Layout = Sequence[tuple[int, int]]
"""(length, modulus) of each stretch of residues."""


def residue_bits(modulus: int) -> int:
    """Return the bits that a residue takes on the wire: ceil(log2 R).

    Examples:
        >>> [residue_bits(modulus) for modulus in (2, 37, 64, 65, 2**32)]
        [1, 6, 6, 7, 32]
    """
    return (modulus - 1).bit_length()


def pack_residues(residues: np.ndarray, layout: Layout) -> bytes:
    """Return the residues of all stretches as bytes."""
    bits, start = [], 0
    # whole bytes: the low ones of each word, without a detour over bits
    if len(layout) == 1 and residue_bits(layout[0][1]) % 8 == 0:
        octets = residues.astype("<u4").view(np.uint8).reshape(-1, 4)
        return octets[:, : residue_bits(layout[0][1]) // 8].tobytes()
    for width, modulus in layout:
        part = (
            residues[start : start + width].astype("<u4").view(np.uint8).reshape(-1, 4)
        )
        # 32 bits of each residue, of which the lowest ones travel
        all_bits = np.unpackbits(part, axis=1, bitorder="little")
        bits.append(all_bits[:, : residue_bits(modulus)].reshape(-1))
        start += width
    return (
        np.packbits(np.concatenate(bits), bitorder="little").tobytes() if bits else b""
    )


def unpack_residues(body: bytes, layout: Layout) -> np.ndarray:
    """Unpack uint32[sum of lengths]; refuse bits that are set behind them."""
    octets = np.frombuffer(body, np.uint8)
    if len(layout) == 1 and residue_bits(layout[0][1]) % 8 == 0:
        words = np.zeros((layout[0][0], 4), np.uint8)
        words[:, : residue_bits(layout[0][1]) // 8] = octets.reshape(layout[0][0], -1)
        return words.view("<u4").reshape(-1).astype(np.uint32)
    bits, start, parts = (
        np.unpackbits(octets, bitorder="little"),
        0,
        [np.zeros(0, np.uint32)],
    )
    for width, modulus in layout:
        # residues follow one another bit by bit, across bytes and blocks
        stop = start + width * residue_bits(modulus)
        wide = np.zeros((width, 32), np.uint8)
        wide[:, : residue_bits(modulus)] = bits[start:stop].reshape(width, -1)
        packed = np.packbits(wide, axis=1, bitorder="little")
        parts.append(packed.view("<u4").reshape(-1).astype(np.uint32))
        start = stop
    # every message has one encoding, so spare bits must be zero
    if bits[start:].any():
        raise MalformedMessageError("MaskedInput has bits set after its last residue")
    return np.concatenate(parts)
