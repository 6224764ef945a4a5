"""The protocol's seven messages and four of signed rounds, and their form on the wire.

Little-endian. Each begins with a header of 8 bytes: kind, version, spare (uint16),
round (uint32). Lists are ascending by id, so that every message has one encoding only;
anything else is refused by name (CCESA, Algorithm 1).
"""

from __future__ import annotations

import dataclasses
import struct
from typing import ClassVar, TypeVar

import numpy as np

from mrsa_jax.modular.shamir import SHAMIR_PRIME
from mrsa_jax.protocol._wire import (
    COUNT_BYTES,
    HEADER_BYTES,
    ID_BYTES,
    KEY_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
    Layout,
    Reader,
    check,
    check_ascending,
    check_entries,
    check_words,
    header,
    limbs_of,
    pack_entries,
    pack_residues,
    residue_bits,
    unpack_residues,
)
from mrsa_watch._base.values import by_value

SATURATED = 2**16 - 1
Entries = tuple[tuple[int, bytes], ...]
_Kind = TypeVar("_Kind", bound="Message")


@dataclasses.dataclass(frozen=True)
class Message:
    """A message by the table of its fields.

    On the wire come the header, the client (if there is one), the length of each list,
    what has a fixed length, and the lists.

    Attributes:
        round_index: Round.
        KIND: Its number in the header.
        FIXED: Fields that are bytes, with their lengths.
        WORDS: Fields that are one uint32 each: the sender.
        LISTS: Fields that are lists, with the bytes that follow each id.
        NEEDS: What is said where a fixed length is wrong.
    """

    round_index: int
    KIND: ClassVar[int]
    WORDS: ClassVar[tuple[str, ...]] = ()
    FIXED: ClassVar[tuple[tuple[str, int], ...]] = ()
    LISTS: ClassVar[tuple[tuple[str, int], ...]] = ()
    NEEDS: ClassVar[str] = ""

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_words(
            name, self.round_index, *(getattr(self, field) for field in self.WORDS)
        )
        check(
            all(len(getattr(self, field)) == size for field, size in self.FIXED),
            name,
            self.NEEDS,
        )
        for field, size in self.LISTS:
            check_entries(name, getattr(self, field), size)

    @classmethod
    def size(cls, *counts: int) -> int:
        """Return the bytes on the wire, given how many entries each list has."""
        fixed = (
            HEADER_BYTES
            + ID_BYTES * len(cls.WORDS)
            + sum(size for _, size in cls.FIXED)
        )
        lists = zip(counts, cls.LISTS, strict=True)
        return fixed + sum(
            COUNT_BYTES + count * (ID_BYTES + size) for count, (_, size) in lists
        )

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        lists: list[Entries] = [getattr(self, field) for field, _ in self.LISTS]
        words = [*(getattr(self, field) for field in self.WORDS), *map(len, lists)]
        fixed = b"".join(getattr(self, field) for field, _ in self.FIXED)
        start = header(self.KIND, self.round_index) + struct.pack(
            f"<{len(words)}I", *words
        )
        return start + fixed + b"".join(map(pack_entries, lists))

    @classmethod
    def from_bytes(cls: type[_Kind], data: bytes) -> _Kind:
        """Read the message; raise `MalformedMessageError` for anything else."""
        reader = Reader(cls.__name__, cls.KIND, data)
        words, counts = reader.words(len(cls.WORDS)), reader.words(len(cls.LISTS))
        fixed = [reader.take(size) for _, size in cls.FIXED]
        lists = map(reader.entries, counts, [size for _, size in cls.LISTS])
        message = cls(reader.round_index, *words, *fixed, *lists)
        reader.end()
        return message


@dataclasses.dataclass(frozen=True)
class AdvertiseKeys(Message):
    """Step 0, up: a client's two public keys.

    Attributes:
        round_index: Round.
        client: Who sends.
        channel_key: c_i^PK, 32 bytes: for the encryption of shares.
        pad_key: s_i^PK, 32 bytes: for the seeds of pair pads.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.AdvertiseKeys.size()
        76
    """

    client: int
    channel_key: bytes
    pad_key: bytes
    KIND = 1
    WORDS = ("client",)
    FIXED: ClassVar[tuple[tuple[str, int], ...]] = (
        ("channel_key", KEY_BYTES),
        ("pad_key", KEY_BYTES),
    )
    NEEDS = f"needs two keys of {KEY_BYTES} bytes"


@dataclasses.dataclass(frozen=True)
class KeyList(Message):
    """Step 0, down: the public keys of the recipient's neighbours in V1.

    Attributes:
        round_index: Round.
        keys: (client, channel key and pad key as 64 bytes), ascending.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.KeyList.size(3)
        216
    """

    keys: Entries
    KIND = 2
    LISTS = (("keys", 2 * KEY_BYTES),)


@dataclasses.dataclass(frozen=True)
class ShareKeys(Message):
    """Step 1, up: a client's shares for its neighbours, each sealed for one of them.

    Attributes:
        round_index: Round.
        client: Who sends.
        ciphertexts: (recipient, 88 bytes), ascending.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.ShareKeys.size(2)
        200
    """

    client: int
    ciphertexts: Entries
    KIND = 3
    WORDS = ("client",)
    LISTS = (("ciphertexts", SEALED_BYTES),)


@dataclasses.dataclass(frozen=True)
class ShareList(Message):
    """Step 1, down: the sealed shares that the recipient's neighbours in V2 sent it.

    Attributes:
        round_index: Round.
        ciphertexts: (sender, 88 bytes), ascending.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.ShareList.size(2)
        196
    """

    ciphertexts: Entries
    KIND = 4
    LISTS = (("ciphertexts", SEALED_BYTES),)


@dataclasses.dataclass(frozen=True)
@by_value
class MaskedInput:
    """Step 2, up: a client's input under all its pads.

    Attributes:
        round_index: Round.
        client: Who sends.
        layout: (length, modulus) of each block that the client is in; not sent, both
            sides know.
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
        check(
            self.residues.shape == (length,) and self.residues.dtype == np.uint32,
            "MaskedInput",
            f"needs {length} uint32 residues",
        )
        start = 0
        for width, modulus in self.layout:
            part = self.residues[start : start + width]
            check(
                modulus == 2**32 or bool((part < np.uint32(modulus)).all()),
                "MaskedInput",
                f"holds a residue that is not below {modulus}",
            )
            start += width

    @staticmethod
    def size(layout: Layout) -> int:
        """Return the bytes on the wire.

        All residues bit by bit, rounded up to a whole byte.

        Examples:
            >>> import mrsa_jax as mj
            >>> messages = mj.protocol.messages
            >>> (
            ...     messages.MaskedInput.size([(10, 2**16)]),
            ...     messages.MaskedInput.size([(3, 37), (1, 2)]),
            ... )
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
        return cls(
            reader.round_index, client, tuple(layout), unpack_residues(body, layout)
        )


@dataclasses.dataclass(frozen=True)
class SurvivorList(Message):
    """Step 2, down: who of the recipient and its neighbours is in V3.

    For those listed the server asks for the share of b_i, for the recipient's other
    neighbours in V2 for that of s_i^SK; so one message can never ask for both.

    Attributes:
        round_index: Round.
        num_survivors: |V3| of the whole round, as the server says; in the header's
            spare field, where 65535 stands for all larger numbers too.
        survivors: Ids, ascending; with the consistency check all of V3, not only
            neighbours.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.SurvivorList.size(3)
        24
    """

    num_survivors: int
    survivors: tuple[int, ...]
    KIND = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascending("SurvivorList", self.survivors)
        check(
            min(len(self.survivors), SATURATED) <= self.num_survivors,
            "SurvivorList",
            f"lists more than {self.num_survivors} survivors",
        )

    @classmethod
    def size(cls, *counts: int) -> int:
        """Return the bytes on the wire for this many survivors."""
        return HEADER_BYTES + COUNT_BYTES + sum(counts) * ID_BYTES

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
class UnmaskShares(Message):
    """Step 3, up: the shares that a client holds and the server may see.

    Attributes:
        round_index: Round.
        client: Who sends, the holder.
        self_shares: (owner in V3, share of b_owner as 36 bytes), ascending; its own
            among them.
        key_shares: (owner in V2 but not V3, share of s_owner^SK as 36 bytes),
            ascending.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.UnmaskShares.size(3, 0)
        140
    """

    client: int
    self_shares: Entries
    key_shares: Entries
    KIND = 7
    WORDS = ("client",)
    LISTS = (("self_shares", SHARE_BYTES), ("key_shares", SHARE_BYTES))

    def __post_init__(self) -> None:
        super().__post_init__()
        limbs = limbs_of([share for _, share in (*self.self_shares, *self.key_shares)])
        check(
            bool((limbs < SHAMIR_PRIME).all()),
            "UnmaskShares",
            "holds a limb outside the field",
        )


@dataclasses.dataclass(frozen=True)
class SignedSurvivors(Message):
    """Consistency check, up: a client's signature of the survivors that it received.

    Attributes:
        round_index: Round.
        client: Who signs.
        signature: Ed25519, 64 bytes.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.SignedSurvivors.size()
        76
    """

    client: int
    signature: bytes
    KIND = 8
    WORDS = ("client",)
    FIXED = (("signature", SIGNATURE_BYTES),)
    NEEDS = f"needs a signature of {SIGNATURE_BYTES} bytes"


@dataclasses.dataclass(frozen=True)
class SignatureList(Message):
    """Consistency check, down: the signatures of the recipient's neighbours.

    Attributes:
        round_index: Round.
        signatures: (signer, 64 bytes), ascending.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.SignatureList.size(2)
        148
    """

    signatures: Entries
    KIND = 9
    LISTS = (("signatures", SIGNATURE_BYTES),)


@dataclasses.dataclass(frozen=True)
class SignedKeys(AdvertiseKeys):
    """Step 0, up, of a round with the consistency check: signed keys.

    Attributes:
        signature: Ed25519, 64 bytes; the others are those of `AdvertiseKeys`.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.SignedKeys.size()
        140
    """

    signature: bytes
    KIND = 10
    FIXED: ClassVar = (*AdvertiseKeys.FIXED, ("signature", SIGNATURE_BYTES))
    NEEDS = f"needs two keys of {KEY_BYTES} bytes and a signature of {SIGNATURE_BYTES}"


@dataclasses.dataclass(frozen=True)
class SignedKeyList(KeyList):
    """Step 0, down, of a round with the consistency check.

    Signed keys of the neighbours in V1.

    Attributes:
        round_index: Round.
        keys: (client, channel key, pad key and signature as 128 bytes), ascending.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.protocol.messages.SignedKeyList.size(3)
        408
    """

    KIND = 11
    LISTS = (("keys", 2 * KEY_BYTES + SIGNATURE_BYTES),)
