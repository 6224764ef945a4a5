"""The protocol's seven messages and two of its consistency check, and their form on the wire.

Little-endian. Each begins with a header of 8 bytes: kind, version, spare (uint16), round
(uint32). Lists are ascending by id, so that every message has one encoding only; anything else
is refused by name (CCESA, Algorithm 1).
"""

from __future__ import annotations

import dataclasses
import struct
from typing import ClassVar

import numpy as np

from mrsa_jax.protocol._packing import Layout, pack_residues, residue_bits, unpack_residues
from mrsa_jax.protocol._shamir import PRIME
from mrsa_jax.protocol._wire import (
    COUNT_BYTES,
    HEADER_BYTES,
    ID_BYTES,
    KEY_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
    WORD,
    Reader,
    check,
    check_ascending,
    check_entries,
    check_words,
    header,
    limbs_of,
    pack_entries,
)

__all__ = [
    "AdvertiseKeys",
    "KeyList",
    "MaskedInput",
    "ShareKeys",
    "ShareList",
    "SignatureList",
    "SignedSurvivors",
    "SurvivorList",
    "UnmaskShares",
]


SATURATED = 2**16 - 1


@dataclasses.dataclass(frozen=True)
class AdvertiseKeys:
    """Step 0, up: a client's two public keys.

    Attributes:
        round_index: Round.
        client: Who sends.
        channel_key: c_i^PK, 32 bytes: for the encryption of shares.
        pad_key: s_i^PK, 32 bytes: for the seeds of pair pads.
    """

    round_index: int
    client: int
    channel_key: bytes
    pad_key: bytes
    KIND: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_words("AdvertiseKeys", self.round_index, self.client)
        keys = len(self.channel_key) == len(self.pad_key) == KEY_BYTES
        check(keys, "AdvertiseKeys", f"needs two keys of {KEY_BYTES} bytes")

    @staticmethod
    def size() -> int:
        """Return the bytes on the wire.

        Examples:
            >>> AdvertiseKeys.size()
            76
        """
        return HEADER_BYTES + ID_BYTES + 2 * KEY_BYTES

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        start = header(self.KIND, self.round_index) + WORD.pack(self.client)
        return start + self.channel_key + self.pad_key

    @classmethod
    def from_bytes(cls, data: bytes) -> AdvertiseKeys:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("AdvertiseKeys", cls.KIND, data)
        (client,) = reader.words(1)
        keys = reader.take(KEY_BYTES), reader.take(KEY_BYTES)
        message = cls(reader.round_index, client, *keys)
        reader.end()
        return message


@dataclasses.dataclass(frozen=True)
class KeyList:
    """Step 0, down: the public keys of the recipient's neighbours in V1.

    Attributes:
        round_index: Round.
        keys: (client, channel key and pad key as 64 bytes), ascending.
    """

    round_index: int
    keys: tuple[tuple[int, bytes], ...]
    KIND: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_words("KeyList", self.round_index)
        check_entries("KeyList", self.keys, 2 * KEY_BYTES)

    @staticmethod
    def size(count: int) -> int:
        """Return the bytes on the wire for so many neighbours.

        Examples:
            >>> KeyList.size(3)
            216
        """
        return HEADER_BYTES + COUNT_BYTES + count * (ID_BYTES + 2 * KEY_BYTES)

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        start = header(self.KIND, self.round_index) + WORD.pack(len(self.keys))
        return start + pack_entries(self.keys)

    @classmethod
    def from_bytes(cls, data: bytes) -> KeyList:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("KeyList", cls.KIND, data)
        (count,) = reader.words(1)
        message = cls(reader.round_index, reader.entries(count, 2 * KEY_BYTES))
        reader.end()
        return message


@dataclasses.dataclass(frozen=True)
class ShareKeys:
    """Step 1, up: a client's shares for its neighbours, each sealed for one of them.

    Attributes:
        round_index: Round.
        client: Who sends.
        ciphertexts: (recipient, 88 bytes), ascending.
    """

    round_index: int
    client: int
    ciphertexts: tuple[tuple[int, bytes], ...]
    KIND: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check_words("ShareKeys", self.round_index, self.client)
        check_entries("ShareKeys", self.ciphertexts, SEALED_BYTES)

    @staticmethod
    def size(count: int) -> int:
        """Return the bytes on the wire for so many recipients.

        Examples:
            >>> ShareKeys.size(2)
            200
        """
        return HEADER_BYTES + ID_BYTES + COUNT_BYTES + count * (ID_BYTES + SEALED_BYTES)

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        start = header(self.KIND, self.round_index)
        return (
            start
            + struct.pack("<II", self.client, len(self.ciphertexts))
            + pack_entries(self.ciphertexts)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> ShareKeys:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("ShareKeys", cls.KIND, data)
        client, count = reader.words(2)
        message = cls(reader.round_index, client, reader.entries(count, SEALED_BYTES))
        reader.end()
        return message


@dataclasses.dataclass(frozen=True)
class ShareList:
    """Step 1, down: the sealed shares that the recipient's neighbours in V2 sent it.

    Attributes:
        round_index: Round.
        ciphertexts: (sender, 88 bytes), ascending.
    """

    round_index: int
    ciphertexts: tuple[tuple[int, bytes], ...]
    KIND: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_words("ShareList", self.round_index)
        check_entries("ShareList", self.ciphertexts, SEALED_BYTES)

    @staticmethod
    def size(count: int) -> int:
        """Return the bytes on the wire for so many senders.

        Examples:
            >>> ShareList.size(2)
            196
        """
        return HEADER_BYTES + COUNT_BYTES + count * (ID_BYTES + SEALED_BYTES)

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        start = header(self.KIND, self.round_index) + WORD.pack(len(self.ciphertexts))
        return start + pack_entries(self.ciphertexts)

    @classmethod
    def from_bytes(cls, data: bytes) -> ShareList:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("ShareList", cls.KIND, data)
        (count,) = reader.words(1)
        message = cls(reader.round_index, reader.entries(count, SEALED_BYTES))
        reader.end()
        return message


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedInput:
    """Step 2, up: a client's input under all its pads.

    Attributes:
        round_index: Round.
        client: Who sends.
        layout: (length, modulus) of each block that the client is in; not sent, both sides know.
        residues: uint32[sum of lengths], block after block.
    """

    round_index: int
    client: int
    layout: tuple[tuple[int, int], ...]
    residues: np.ndarray
    KIND: ClassVar[int] = 5

    def __post_init__(self) -> None:
        check_words("MaskedInput", self.round_index, self.client)
        length = sum(block[0] for block in self.layout)
        fits = self.residues.shape == (length,) and self.residues.dtype == np.uint32
        check(fits, "MaskedInput", f"needs {length} uint32 residues")
        start = 0
        for width, modulus in self.layout:
            part = self.residues[start : start + width]
            below = modulus == 2**32 or bool((part < np.uint32(modulus)).all())
            check(below, "MaskedInput", f"holds a residue that is not below {modulus}")
            start += width

    @staticmethod
    def size(layout: Layout) -> int:
        """Return the bytes on the wire: all residues bit by bit, rounded up to a whole byte.

        Examples:
            >>> MaskedInput.size([(10, 2**16)]), MaskedInput.size([(3, 37), (1, 2)])
            (36, 19)
        """
        bits = sum(width * residue_bits(modulus) for width, modulus in layout)
        return HEADER_BYTES + ID_BYTES + COUNT_BYTES - (-bits // 8)

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        start = header(self.KIND, self.round_index)
        start += struct.pack("<II", self.client, len(self.residues))
        return start + pack_residues(self.residues, self.layout)

    @classmethod
    def from_bytes(cls, data: bytes, layout: Layout) -> MaskedInput:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("MaskedInput", cls.KIND, data)
        client, length = reader.words(2)
        expected = sum(block[0] for block in layout)
        check(length == expected, reader.name, f"has length {length}, not {expected}")
        body = reader.take(cls.size(layout) - HEADER_BYTES - ID_BYTES - COUNT_BYTES)
        reader.end()
        residues = unpack_residues(body, layout)
        return cls(reader.round_index, client, tuple(layout), residues)


@dataclasses.dataclass(frozen=True)
class SurvivorList:
    """Step 2, down: who of the recipient and its neighbours is in V3.

    For those listed the server asks for the share of b_i, for the recipient's other neighbours
    in V2 for that of s_i^SK; so one message can never ask for both.

    Attributes:
        round_index: Round.
        num_survivors: |V3| of the whole round, as the server says; in the header's spare field,
            where 65535 stands for all larger numbers too.
        survivors: Ids, ascending; with the consistency check all of V3, not only neighbours.
    """

    round_index: int
    num_survivors: int
    survivors: tuple[int, ...]
    KIND: ClassVar[int] = 6

    def __post_init__(self) -> None:
        check_words("SurvivorList", self.round_index)
        check_ascending("SurvivorList", self.survivors)
        enough = min(len(self.survivors), SATURATED) <= self.num_survivors
        check(enough, "SurvivorList", f"lists more than {self.num_survivors} survivors")

    @staticmethod
    def size(count: int) -> int:
        """Return the bytes on the wire for so many survivors.

        Examples:
            >>> SurvivorList.size(3)
            24
        """
        return HEADER_BYTES + COUNT_BYTES + count * ID_BYTES

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        start = header(self.KIND, self.round_index, min(self.num_survivors, SATURATED))
        count = len(self.survivors)
        return start + struct.pack(f"<{count + 1}I", count, *self.survivors)

    @classmethod
    def from_bytes(cls, data: bytes) -> SurvivorList:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("SurvivorList", cls.KIND, data, may_spare=True)
        (count,) = reader.words(1)
        message = cls(reader.round_index, reader.spare, reader.words(count))
        reader.end()
        return message


@dataclasses.dataclass(frozen=True)
class UnmaskShares:
    """Step 3, up: the shares that a client holds and the server may see.

    Attributes:
        round_index: Round.
        client: Who sends, the holder.
        self_shares: (owner in V3, share of b_owner as 36 bytes), ascending; its own among them.
        key_shares: (owner in V2 but not V3, share of s_owner^SK as 36 bytes), ascending.
    """

    round_index: int
    client: int
    self_shares: tuple[tuple[int, bytes], ...]
    key_shares: tuple[tuple[int, bytes], ...]
    KIND: ClassVar[int] = 7

    def __post_init__(self) -> None:
        check_words("UnmaskShares", self.round_index, self.client)
        check_entries("UnmaskShares", self.self_shares, SHARE_BYTES)
        check_entries("UnmaskShares", self.key_shares, SHARE_BYTES)
        limbs = limbs_of([share for _, share in (*self.self_shares, *self.key_shares)])
        check(bool((limbs < PRIME).all()), "UnmaskShares", "holds a limb outside the field")

    @staticmethod
    def size(num_self_shares: int, num_key_shares: int) -> int:
        """Return the bytes on the wire for so many shares of both kinds.

        Examples:
            >>> UnmaskShares.size(3, 0)
            140
        """
        shares = num_self_shares + num_key_shares
        return HEADER_BYTES + ID_BYTES + 2 * COUNT_BYTES + shares * (ID_BYTES + SHARE_BYTES)

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        counts = (len(self.self_shares), len(self.key_shares))
        start = header(self.KIND, self.round_index) + struct.pack("<III", self.client, *counts)
        return start + pack_entries(self.self_shares) + pack_entries(self.key_shares)

    @classmethod
    def from_bytes(cls, data: bytes) -> UnmaskShares:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("UnmaskShares", cls.KIND, data)
        client, first, second = reader.words(3)
        own, keys = reader.entries(first, SHARE_BYTES), reader.entries(second, SHARE_BYTES)
        reader.end()
        return cls(reader.round_index, client, own, keys)


@dataclasses.dataclass(frozen=True)
class SignedSurvivors:
    """Consistency check, up: a client's signature of the survivors that it was told.

    Attributes:
        round_index: Round.
        client: Who signs.
        signature: Ed25519, 64 bytes.
    """

    round_index: int
    client: int
    signature: bytes
    KIND: ClassVar[int] = 8

    def __post_init__(self) -> None:
        check_words("SignedSurvivors", self.round_index, self.client)
        fits = len(self.signature) == SIGNATURE_BYTES
        check(fits, "SignedSurvivors", f"needs a signature of {SIGNATURE_BYTES} bytes")

    @staticmethod
    def size() -> int:
        """Return the bytes on the wire.

        Examples:
            >>> SignedSurvivors.size()
            76
        """
        return HEADER_BYTES + ID_BYTES + SIGNATURE_BYTES

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        return header(self.KIND, self.round_index) + WORD.pack(self.client) + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> SignedSurvivors:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("SignedSurvivors", cls.KIND, data)
        (client,) = reader.words(1)
        message = cls(reader.round_index, client, reader.take(SIGNATURE_BYTES))
        reader.end()
        return message


@dataclasses.dataclass(frozen=True)
class SignatureList:
    """Consistency check, down: the signatures of the recipient's neighbours.

    Attributes:
        round_index: Round.
        signatures: (signer, 64 bytes), ascending.
    """

    round_index: int
    signatures: tuple[tuple[int, bytes], ...]
    KIND: ClassVar[int] = 9

    def __post_init__(self) -> None:
        check_words("SignatureList", self.round_index)
        check_entries("SignatureList", self.signatures, SIGNATURE_BYTES)

    @staticmethod
    def size(count: int) -> int:
        """Return the bytes on the wire for so many signers.

        Examples:
            >>> SignatureList.size(2)
            148
        """
        return HEADER_BYTES + COUNT_BYTES + count * (ID_BYTES + SIGNATURE_BYTES)

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        start = header(self.KIND, self.round_index) + WORD.pack(len(self.signatures))
        return start + pack_entries(self.signatures)

    @classmethod
    def from_bytes(cls, data: bytes) -> SignatureList:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader("SignatureList", cls.KIND, data)
        (count,) = reader.words(1)
        message = cls(reader.round_index, reader.entries(count, SIGNATURE_BYTES))
        reader.end()
        return message
