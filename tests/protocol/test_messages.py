"""Messages: every malformed byte string is refused by name, every proper one comes back equal."""

import itertools
import struct

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from mrsa_jax.protocol import _wire, messages
from mrsa_jax.protocol.errors import MalformedMessageError
from mrsa_jax.protocol.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareList,
    SurvivorList,
    UnmaskShares,
)

PRIME = 2**31 - 1
LAYOUT = ((5, 37), (3, 2**16))


def body(size, start=0):
    return bytes((start + k) % 120 for k in range(size))


RESIDUES = np.asarray([36, 0, 1, 17, 36, 65535, 0, 258], np.uint32)
MESSAGES = [
    AdvertiseKeys(2**32 - 1, 7, body(32), body(32, 9)),
    KeyList(0, ((0, body(64)), (2**32 - 1, body(64, 5)))),
    KeyList(1, ()),
    messages.ShareKeys(2, 3, ((1, body(88)), (2, body(88, 3)))),
    messages.ShareKeys(2, 3, ()),
    ShareList(2, ((1, body(88)), (2, body(88, 3)))),
    MaskedInput(5, 1, LAYOUT, RESIDUES),
    SurvivorList(6, 3, (0, 4)),
    UnmaskShares(7, 4, ((0, body(36)), (4, body(36, 1))), ((2, body(36, 2)),)),
    UnmaskShares(7, 4, (), ()),
    messages.SignedSurvivors(8, 3, body(64)),
    messages.SignatureList(9, ((0, body(64)), (2, body(64, 1)))),
    messages.SignedKeys(10, 3, body(32), body(32, 9), body(64)),
    messages.SignedKeyList(11, ((0, body(128)), (2, body(128, 1)))),
]
NAMES = [type(message).__name__ for message in MESSAGES]


def read(kind, data):
    return (
        kind.from_bytes(data, LAYOUT) if kind is MaskedInput else kind.from_bytes(data)
    )


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_every_truncation_is_refused(message):
    data = message.to_bytes()
    for length in range(len(data)):
        with pytest.raises(MalformedMessageError, match="is cut off"):
            read(type(message), data[:length])


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_more_bytes_are_refused(message):
    for extra in (b"\x00", b"\x01" * 100):
        with pytest.raises(MalformedMessageError, match="bytes too many"):
            read(type(message), message.to_bytes() + extra)


def test_another_kind_is_refused():
    pairs = [
        (one, two)
        for one, two in itertools.permutations(MESSAGES, 2)
        if type(one) is not type(two)
    ]
    assert len(pairs) > 60
    for message, other in pairs:
        with pytest.raises(
            MalformedMessageError, match=rf"is of kind {other.KIND}, not"
        ):
            read(type(other), message.to_bytes())


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_headers_are_checked(message):
    data = message.to_bytes()
    with pytest.raises(MalformedMessageError, match="has version 2, not 1"):
        read(type(message), data[:1] + b"\x02" + data[2:])
    for kind in (0, 12, 255):
        with pytest.raises(MalformedMessageError, match=f"unknown kind {kind}"):
            read(type(message), bytes([kind]) + data[1:])
    if not isinstance(message, SurvivorList):
        with pytest.raises(MalformedMessageError, match="256 in its spare field"):
            read(type(message), data[:3] + b"\x01" + data[4:])


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_round_trip(message):
    data = message.to_bytes()
    again = read(type(message), data)
    assert again.to_bytes() == data
    if isinstance(message, MaskedInput):
        assert (again.residues == message.residues).all()
        assert (again.round_index, again.client) == (
            message.round_index,
            message.client,
        )
    else:
        assert again == message


@pytest.mark.smoke
def test_documented_bytes_by_hand():
    """The wire format, written out once."""
    assert SurvivorList(258, 3, (1, 5)).to_bytes() == bytes.fromhex(
        "06 01 0300 02010000  02000000 01000000 05000000"
    )
    assert AdvertiseKeys(1, 2, body(32), body(32, 9)).to_bytes() == (
        bytes.fromhex("01 01 0000 01000000 02000000") + body(32) + body(32, 9)
    )
    five = np.asarray([1, 2, 3, 4, 5], np.uint32)
    packed = sum(int(v) << 3 * k for k, v in enumerate(five)).to_bytes(2, "little")
    assert MaskedInput(0, 9, ((5, 8),), five).to_bytes() == (
        bytes.fromhex("05 01 0000 00000000 09000000 05000000") + packed
    )


def test_sizes():
    assert (messages.HEADER_BYTES, messages.SHARE_BYTES, messages.SEALED_BYTES) == (
        8,
        36,
        88,
    )
    sizes = [
        76,
        12 + 2 * 68,
        12,
        16 + 2 * 92,
        16,
        12 + 2 * 92,
        16 + 10,
        12 + 8,
        20 + 3 * 40,
        20,
    ]
    sizes += [76, 12 + 2 * 68, 140, 12 + 2 * 132]
    assert [len(message.to_bytes()) for message in MESSAGES] == sizes
    counted = [
        AdvertiseKeys.size(),
        KeyList.size(2),
        KeyList.size(0),
        messages.ShareKeys.size(2),
    ]
    counted += [messages.ShareKeys.size(0), ShareList.size(2), MaskedInput.size(LAYOUT)]
    counted += [SurvivorList.size(2), UnmaskShares.size(2, 1), UnmaskShares.size(0, 0)]
    counted += [messages.SignedSurvivors.size(), messages.SignatureList.size(2)]
    counted += [messages.SignedKeys.size(), messages.SignedKeyList.size(2)]
    assert counted == sizes


@pytest.mark.parametrize(
    "modulus", [2, 3, 4, 5, 255, 256, 257, 2**24, 2**31 - 1, 2**31, 2**32]
)
@pytest.mark.parametrize("width", [1, 7, 8, 9])
def test_residues_take_ceil_log2_bits(modulus, width):
    bits = next(b for b in range(33) if 2**b >= modulus)
    assert _wire.residue_bits(modulus) == bits
    values = (
        np.random.default_rng(modulus).integers(0, modulus, width).astype(np.uint32)
    )
    values[0] = modulus - 1
    message = MaskedInput(0, 0, ((width, modulus),), values)
    data = message.to_bytes()
    assert (
        len(data) == 16 + -(-width * bits // 8) == MaskedInput.size(((width, modulus),))
    )
    number = sum(int(v) << bits * k for k, v in enumerate(values))
    assert data[16:] == number.to_bytes(len(data) - 16, "little")
    assert (MaskedInput.from_bytes(data, ((width, modulus),)).residues == values).all()


@pytest.mark.parametrize("modulus", [3, 37, 221, 2**31 - 1])
def test_residues_at_or_above_the_modulus_are_refused(modulus):
    top = np.asarray([modulus], np.uint32)
    with pytest.raises(MalformedMessageError, match=f"not below {modulus}"):
        MaskedInput(0, 0, ((1, modulus),), top)
    size = MaskedInput.size(((1, modulus),)) - 16
    data = bytes.fromhex("05 01 0000 00000000 00000000 01000000")
    with pytest.raises(MalformedMessageError, match=f"not below {modulus}"):
        MaskedInput.from_bytes(data + modulus.to_bytes(size, "little"), ((1, modulus),))


def test_padding_bits_must_be_zero():
    data = MaskedInput(0, 0, ((1, 2),), np.asarray([1], np.uint32)).to_bytes()
    for bit in range(1, 8):
        with pytest.raises(MalformedMessageError, match="after its last residue"):
            MaskedInput.from_bytes(data[:-1] + bytes([1 | 1 << bit]), ((1, 2),))


def test_another_length_is_refused():
    data = MaskedInput(0, 0, ((8, 2),), np.zeros(8, np.uint32)).to_bytes()
    with pytest.raises(MalformedMessageError, match="has length 8, not 7"):
        MaskedInput.from_bytes(data, ((7, 2),))  # as many bytes


def test_limbs_outside_the_field_are_refused():
    for limb in range(9):
        words = [0] * 9
        words[limb] = PRIME - 1
        UnmaskShares(0, 0, ((0, struct.pack("<9I", *words)),), ())
        words[limb] = PRIME
        share = struct.pack("<9I", *words)
        for lists in ((((0, share),), ()), ((), ((0, share),))):
            with pytest.raises(MalformedMessageError, match="outside the field"):
                UnmaskShares(0, 0, *lists)
        data = struct.pack("<BBHIIIII", 7, 1, 0, 0, 0, 1, 0, 0) + share
        with pytest.raises(MalformedMessageError, match="outside the field"):
            UnmaskShares.from_bytes(data)


@pytest.mark.smoke("ids3")
@pytest.mark.parametrize("ids", [(1, 1), (2, 1), (0, 3, 3), (5, 4, 6)])
def test_lists_must_ascend(ids):
    def build(kind, size):
        return kind(0, tuple((i, body(size)) for i in ids))

    makers = [
        lambda: build(KeyList, 64),
        lambda: build(ShareList, 88),
        lambda: messages.ShareKeys(0, 0, tuple((i, body(88)) for i in ids)),
        lambda: SurvivorList(0, 9, ids),
        lambda: UnmaskShares(0, 0, tuple((i, body(36)) for i in ids), ()),
        lambda: UnmaskShares(0, 0, (), tuple((i, body(36)) for i in ids)),
    ]
    for make in makers:
        with pytest.raises(MalformedMessageError, match="not ascending"):
            make()
    with pytest.raises(MalformedMessageError, match="not ascending"):
        SurvivorList.from_bytes(
            struct.pack(f"<BBHII{len(ids)}I", 6, 1, 9, 0, len(ids), *ids)
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdvertiseKeys(-1, 0, body(32), body(32)), "round -1"),
        (lambda: AdvertiseKeys(0, 2**32, body(32), body(32)), "client 4294967296"),
        (lambda: AdvertiseKeys(0, 0, body(31), body(32)), "two keys of 32 bytes"),
        (lambda: KeyList(0, ((-1, body(64)),)), "an id that is not in"),
        (lambda: KeyList(0, ((0, body(63)),)), "64 bytes an entry"),
        (lambda: SurvivorList(0, 1, (0, 1)), "more than 1 survivors"),
        (
            lambda: MaskedInput(0, 0, ((2, 8),), np.zeros(3, np.uint32)),
            "2 uint32 residues",
        ),
        (
            lambda: MaskedInput(0, 0, ((2, 8),), np.zeros(2, np.int64)),
            "2 uint32 residues",
        ),
    ],
)
def test_impossible_messages_cannot_be_built(make, message):
    with pytest.raises(MalformedMessageError, match=message):
        make()


def test_a_huge_count_is_refused_without_making_room():
    data = struct.pack("<BBHII", 2, 1, 0, 0, 2**32 - 1)
    with pytest.raises(MalformedMessageError, match="is cut off"):
        KeyList.from_bytes(data)


def test_many_survivors_saturate():
    many = SurvivorList(0, 70_000, (1,)).to_bytes()
    assert SurvivorList.from_bytes(many).num_survivors == 65535


@hypothesis.given(st.binary(max_size=120), st.integers(1, 9))
def test_arbitrary_bytes_are_read_or_refused(tail, kind):
    data = struct.pack("<BBHI", kind, 1, 0, 0) + tail
    for message in MESSAGES:
        try:
            again = read(type(message), data)
        except MalformedMessageError:
            continue
        assert again.to_bytes() == data  # whatever is read has this one encoding
