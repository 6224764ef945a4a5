"""A residue vector to which pads are added and from which they are taken, chunk by chunk.

The papers' PRG: the ChaCha20 keystream (RFC 8439) of a 256-bit seed from counter 0, under the
nonce (label, block of the plan, round). One word a residue modulo 2^b, else two, low word first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mrsa_jax._core.prime import is_power_of_two
from mrsa_jax.protocol._primitives import KeyPair, chacha20_stream, pad_seed
from mrsa_jax.secagg import SegmentPlan

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

    def __init__(self, residues: np.ndarray, modulus: int, block: int, round_index: int) -> None:
        """Start from residues.

        Args:
            residues: uint32[d] in [0, R).
            modulus: R (see `modular.check_modulus`).
            block: Number of the block in its plan.
            round_index: Round.
        """
        self._modulus = modulus
        self._wraps = is_power_of_two(modulus)
        # uint32 wraps modulo 2^32, a multiple of 2^b; other rings collect below 2^64: each pad
        # adds less than 2^31, so that 2^32 of them fit.
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


# ---- What the server can make of the padded inputs with the secrets that it has, block by block.
#
# CCESA, Algorithm 1, Step 3, for plans of many blocks: in each the sums over the components of the
# graph on its members who are summed, as far as all pads of a component come off, which
# `secagg._outcome` decides.


class Unmasking:
    """The server's view of a round once Step 2 is closed; the recovered secrets are filled in.

    Attributes:
        self_seeds: b_i where recovered.
        pad_keys: s_i^SK where recovered.
    """

    def __init__(
        self,
        plan: SegmentPlan,
        round_index: int,
        neighbours: Sequence[frozenset[int]],
        lost: Iterable[int],
        padded_inputs: np.ndarray,
        public_keys: Mapping[int, bytes],
        contexts: Sequence[bytes],
    ) -> None:
        """Take over what is known.

        Args:
            plan: Blocks of the round.
            round_index: Round.
            neighbours: Adj(i) of each client.
            lost: Those of V2 who are not summed: their pads are in the others' inputs and nowhere
                else.
            padded_inputs: uint32[n, d], what came in.
            public_keys: s_i^PK of each client summed.
            contexts: What each client put into the seeds of its pair pads.
        """
        self._plan, self._round_index, self._neighbours = plan, round_index, neighbours
        missing = frozenset(lost)
        self._lost = [missing.intersection(block.members) for block in plan]
        self._padded_inputs, self._public_keys = padded_inputs, public_keys
        self._contexts = contexts
        self._pair_seeds: dict[tuple[int, int], bytes] = {}
        self.self_seeds: dict[int, bytes] = {}
        self.pad_keys: dict[int, KeyPair] = {}

    def unmasked(self, number: int, component: list[int]) -> np.ndarray:
        """Return the sum over a component in a block; its members' pairs cancel."""
        block = self._plan[number]
        zeros = np.zeros(block.stop - block.start, np.uint32)
        total = PadSum(zeros, block.modulus, number, self._round_index)
        for i in component:
            total.add_residues(self._padded_inputs[i, block.start : block.stop])
            total.add(self.self_seeds[i], SELF_PAD, -1)
            for j in self._lost_near(number, i):
                total.add(self._pair_seed(i, j), PAIR_PAD, -1 if i < j else 1)
        return total.residues()

    def _lost_near(self, number: int, client: int) -> list[int]:
        return sorted(self._lost[number] & self._neighbours[client])

    def _pair_seed(self, client: int, lost: int) -> bytes:
        """Return s_ij, agreed once for all blocks that the two share."""
        pair = (client, lost)
        if pair not in self._pair_seeds:
            secret = self.pad_keys[lost].agree(self._public_keys[client])
            own = self._round_index, self._contexts[client]
            self._pair_seeds[pair] = pad_seed(secret, client, lost, *own)
        return self._pair_seeds[pair]
