"""Add pads to a residue vector and take them off, chunk by chunk.

The papers' PRG: the ChaCha20 keystream (RFC 8439) of a 256-bit seed from counter 0,
under the nonce (label, block of the plan, round). One word a residue modulo 2^b, else
two, low word first.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from mrsa_jax._core.prime import is_power_of_two
from mrsa_jax.protocol._primitives import chacha20_stream

# First nonce word: pair and self streams can never meet, whatever the seeds.
PAIR_PAD, SELF_PAD = 1, 2
# Bytes of keystream made at a time: a chunk and the residues it meets stay in cache.
_CHUNK = 1 << 16
_ZEROS = bytes(_CHUNK)


class PadSum:
    """Residues modulo R under signed pads.

    Examples:
        >>> total = PadSum(np.asarray([3, 36], np.uint32), 37, block=0, round_index=0)
        >>> total.add(bytes(32), PAIR_PAD, 1)
        >>> total.add(bytes(32), PAIR_PAD, -1)
        >>> total.residues().tolist()
        [3, 36]
    """

    def __init__(
        self,
        residues: np.ndarray,
        modulus: int,
        block: int,
        round_index: int,
    ) -> None:
        """Start from residues.

        Args:
            residues: uint32[d] in [0, R).
            modulus: R (see `modular.check_modulus`).
            block: Number of the block in its plan.
            round_index: Round.
        """
        self._modulus = modulus
        self._wraps = is_power_of_two(modulus)
        # uint32 wraps modulo 2^32, a multiple of 2^b; other rings collect below 2^64:
        # each pad adds less than 2^31, so that 2^32 of them fit.
        self._sum: Any = residues.astype(np.uint32 if self._wraps else np.uint64)
        self._nonce = (block, round_index)
        self._buffer = bytearray(_CHUNK)

    def add(self, seed: bytes, label: int, sign: int) -> None:
        """Add the pad of a seed (sign 1) or take it off (sign -1)."""
        stream = chacha20_stream(seed, struct.pack("<IIII", 0, label, *self._nonce))
        size = 4 if self._wraps else 8
        step = _CHUNK // size
        for start in range(0, len(self._sum), step):
            part = self._sum[start : start + step]
            words: Any = self._keystream(stream, size * len(part)).view(f"<u{size}")
            if not self._wraps:
                # 64 random bits modulo R < 2^31 are within 2^-33 of uniform
                words = words % np.uint64(self._modulus)
                words = words if sign == 1 else np.uint64(self._modulus) - words
                part += words
            elif sign == 1:
                part += words
            else:
                part -= words

    def _keystream(self, stream: Any, count: int) -> np.ndarray:
        stream.update_into(memoryview(_ZEROS)[:count], memoryview(self._buffer)[:count])
        return np.frombuffer(self._buffer, np.uint8, count)

    def add_residues(self, residues: np.ndarray) -> None:
        """Add residues in [0, R)."""
        self._sum += residues.astype(self._sum.dtype)

    def residues(self) -> np.ndarray:
        """Return the sum modulo R, uint32[d]."""
        if not self._wraps:
            return (self._sum % np.uint64(self._modulus)).astype(np.uint32)
        return self._sum & np.uint32(self._modulus - 1)
