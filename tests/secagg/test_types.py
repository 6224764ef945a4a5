"""Plans are checked before any work; seeds follow from clients and rounds alone."""

import hashlib
import struct

import jax
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.secagg import (
    Block,
    complete_plan,
    derive_seeds,
    key_material,
    ring_sum,
    segment_plan,
)
from mrsa_jax.secagg.seeds import edge_rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5, 8), "`num_participants` must be at least 1; got 0"),
        ((3, 0, 8), "`dim` must be at least 1; got 0"),
        ((3, 5, 1), "`modulus` must be .*; got 1"),
        ((3, 5, 2**32 - 1), "`modulus` must be a power of two .*; got 4294967295"),
        ((3, 5, 2**33), "`modulus` must be"),
    ],
)
def test_rejects_impossible_plans(arguments, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        complete_plan(*arguments)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "`blocks` must hold at least one block"),
        ([Block((), 0, 5, 8)], "`members` must be ascending and not empty"),
        (
            [Block((1, 0), 0, 5, 8)],
            r"`members` must be ascending and not empty; got \(1, 0\)",
        ),
        ([Block((1, 1), 0, 5, 8)], "`members` must be ascending"),
        ([Block((0, 3), 0, 5, 8)], r"`members` must lie in \[0, num_participants\)"),
        ([Block((-1, 0), 0, 5, 8)], r"`members` must lie in"),
        ([Block((0, 1), 3, 3, 8)], "`start` must satisfy 0 <= start < stop <= dim"),
        ([Block((0, 1), 0, 11, 8)], "`start` must satisfy .* got 0 and 11 and 10"),
        ([Block((0, 1), 0, 5, 8, levels=5)], r"`modulus` must exceed .* got 8 and 8"),
        (
            [Block((0, 1), 0, 5, 8), Block((1, 2), 4, 9, 8)],
            "`blocks` must not cover a participant's coordinate twice",
        ),
    ],
)
def test_rejects_impossible_blocks(blocks, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        segment_plan(blocks, 3, 10)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        # not 0 and 1
        ("members", (0.5, 1.5), r"`members` must hold integers; got \(0.5, 1.5\)"),
        ("members", ("0", "1"), "`members` must hold integers"),
        ("start", 0.9, "`start` must be an integer; got 0.9"),
        ("stop", 5.5, "`stop` must be an integer; got 5.5"),
        ("start", -1, "`start` must be at least 0; got -1"),
    ],
)
def test_rejects_fractions_of_clients_and_coordinates(field, value, message):
    block = Block((0, 1), 0, 5, 8)
    object.__setattr__(block, field, value)  # past the suite's own check of types
    with pytest.raises(mj.ConfigurationError, match=message):
        segment_plan([block], 3, 10)


@pytest.mark.parametrize("seed", [-1, 1.5, True, None, "abc"])
def test_rejects_seeds_of_another_kind(seed):
    with pytest.raises((mj.ConfigurationError, TypeError)):
        key_material(seed)


def test_only_a_plan_of_one_block_has_one_total():
    plan = segment_plan([Block((0, 1), 0, 1, 8), Block((0, 1), 1, 2, 8)], 2, 2)
    seeds = derive_seeds(key_material(0), np.arange(2), 0)
    result = ring_sum(seeds, np.ones((2, 2), np.uint32), plan, 0)
    with pytest.raises(
        mj.ConfigurationError, match="`total` needs a plan of one block; got 2"
    ):
        result.total  # noqa: B018


def test_edges_are_numbered_lexicographically():
    for n in (2, 3, 7):
        first, second = np.triu_indices(n, 1)
        assert edge_rows(first, second, n).tolist() == list(range(len(first)))


def test_plans_are_values():
    assert complete_plan(3, 5, 8) == complete_plan(np.int64(3), 5, 8)
    assert hash(complete_plan(3, 5, 8)) == hash(complete_plan(3, 5, 8))
    # same coordinates, other clients
    halves = [Block((0, 1), 0, 5, 8), Block((2,), 0, 5, 37)]
    assert segment_plan(halves, 3, 10) == tuple(halves)


def test_key_material_is_a_tagged_hash():
    tag = b"mrsa_jax secagg key material v1\x00"
    for seed, payload in [
        (0, b"int\x00"),
        (258, b"int\x00\x02\x01"),
        (b"ab", b"bytes\x00ab"),
    ]:
        digest = hashlib.sha256(tag + payload).digest()
        assert np.asarray(key_material(seed)).astype("<u4").tobytes() == digest
    assert key_material(2**300).shape == (8,)


def test_seeds_are_one_openssl_block_each():
    material = key_material(11)
    key = np.asarray(material).astype("<u4").tobytes()

    def derived(*nonce):
        initial = struct.pack("<LLLL", 0, *nonce)
        cipher = Cipher(algorithms.ChaCha20(key, initial), mode=None).encryptor()
        return list(struct.unpack("<8L", cipher.update(bytes(32))))

    members = [9, 2, 700_000]
    seeds = derive_seeds(material, np.asarray(members), 5)
    assert seeds.client_ids.tolist() == members
    assert seeds.self_seed.tolist() == [derived(2, member, 5) for member in members]
    assert seeds.pair_seed.tolist() == [
        derived(1, 2, 9),
        derived(1, 9, 700_000),
        derived(1, 2, 700_000),
    ]


def test_seeds_do_not_depend_on_slots_or_on_the_others():
    material = key_material(12)
    seeds = derive_seeds(material, np.asarray([4, 1, 6]), 3)
    other = derive_seeds(material, np.asarray([6, 8, 9, 4]), 3)
    own, others = np.asarray(seeds.self_seed), np.asarray(other.self_seed)
    assert own[0].tolist() == others[3].tolist()
    pairs, others = np.asarray(seeds.pair_seed), np.asarray(other.pair_seed)
    assert pairs[1].tolist() == others[2].tolist()  # of slots 0 and 2, 0 and 3
    later = derive_seeds(material, np.asarray([4, 1, 6]), 4)
    assert np.array_equal(later.pair_seed, seeds.pair_seed)
    assert not (np.asarray(later.self_seed) == own).any()
    traced = jax.jit(derive_seeds)(material, on_device([4, 1, 6]), 3)
    assert np.array_equal(traced.self_seed, seeds.self_seed)
