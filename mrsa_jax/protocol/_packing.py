"""Residues on the wire: ceil(log2 R) bits each, lowest bit first, rounded up to a whole byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrsa_jax.protocol._errors import MalformedMessageError

Layout = Sequence[tuple[int, int]]
"""(length, modulus) of each stretch of residues."""


def residue_bits(modulus: int) -> int:
    """Return how many bits a residue takes on the wire: ceil(log2 R).

    Examples:
        >>> [residue_bits(modulus) for modulus in (2, 37, 64, 65, 2**32)]
        [1, 6, 6, 7, 32]
    """
    return (modulus - 1).bit_length()


def pack_residues(residues: np.ndarray, layout: Layout) -> bytes:
    """Return the residues of all stretches as bytes."""
    bits, start = [], 0
    if len(layout) == 1 and residue_bits(layout[0][1]) % 8 == 0:
        octets = residues.astype("<u4").view(np.uint8).reshape(-1, 4)
        return octets[:, : residue_bits(layout[0][1]) // 8].tobytes()
    for width, modulus in layout:
        part = residues[start : start + width].astype("<u4").view(np.uint8).reshape(-1, 4)
        all_bits = np.unpackbits(part, axis=1, bitorder="little")
        bits.append(all_bits[:, : residue_bits(modulus)].reshape(-1))
        start += width
    return np.packbits(np.concatenate(bits), bitorder="little").tobytes() if bits else b""


def unpack_residues(body: bytes, layout: Layout) -> np.ndarray:
    """Return uint32[sum of lengths]; raise `MalformedMessageError` for bits left set."""
    octets = np.frombuffer(body, np.uint8)
    if len(layout) == 1 and residue_bits(layout[0][1]) % 8 == 0:
        words = np.zeros((layout[0][0], 4), np.uint8)
        words[:, : residue_bits(layout[0][1]) // 8] = octets.reshape(layout[0][0], -1)
        return words.view("<u4").reshape(-1).astype(np.uint32)
    bits, start, parts = np.unpackbits(octets, bitorder="little"), 0, [np.zeros(0, np.uint32)]
    for width, modulus in layout:
        stop = start + width * residue_bits(modulus)
        wide = np.zeros((width, 32), np.uint8)
        wide[:, : residue_bits(modulus)] = bits[start:stop].reshape(width, -1)
        packed = np.packbits(wide, axis=1, bitorder="little")
        parts.append(packed.view("<u4").reshape(-1).astype(np.uint32))
        start = stop
    if bits[start:].any():
        raise MalformedMessageError("MaskedInput has bits set after its last residue")
    return np.concatenate(parts)
