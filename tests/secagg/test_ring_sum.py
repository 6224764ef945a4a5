"""Padded inputs recomputed with OpenSSL and Python integers.

Ring sums against plain sums.
"""

import dataclasses
import itertools
import struct

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import mrsa_jax as mj
from mrsa_jax._core import batches as _batches
from mrsa_jax._core.arrays import on_device
from mrsa_jax.secagg import (
    Block,
    Seeds,
    _ring_sum as masking,
    complete_plan,
    derive_seeds,
    key_material,
    pad_inputs,
    ring_sum,
    segment_plan,
)
from mrsa_jax.secagg._pad_arrays import padded_blocks

IDS = [40, 7, 99, 12, 3]  # global ids, neither sorted nor small
ONE = complete_plan(5, 37, 2**20)
PRIME = complete_plan(5, 37, 10**9 + 7)
TWO = segment_plan(
    [Block((0, 1, 2, 4), 0, 17, 2**32), Block((1, 2, 3), 17, 37, 221)], 5, 37
)
MIXED = segment_plan(
    [
        Block((0, 1), 0, 16, 2**8),
        Block((2, 3, 4), 0, 16, 37),
        Block((0, 1, 2, 3, 4), 20, 36, 3),
    ],
    5,
    37,
)
PLANS = {"one": ONE, "prime": PRIME, "two": TWO, "mixed": MIXED}


# every plan by compiled loops; by XLA, which compiles for each, those with a ring of
# each kind
BOTH = pytest.mark.parametrize(
    ("name", "engine"),
    [*((name, "compiled") for name in PLANS), ("prime", "xla"), ("mixed", "xla")],
    indirect=["engine"],
)


def padded_and_sum(
    seeds, inputs, plan, index, present=None, *, survivors=None, first_block=0
):
    """What is sent and what is summed, from one set of pads."""
    round_ = masking.checked_round(seeds, inputs, plan, index, present, survivors)
    return masking.padded_and_sum(round_._replace(first=np.uint32(first_block)), plan)


@pytest.fixture
def engine(request, monkeypatch):
    """How the pads are made: "compiled" or "xla"."""
    if request.param == "xla":
        monkeypatch.setenv("MRSA_JAX_FORM", "xla")
    return request.param


def inputs_for(plan, seed=0, n=5, d=37):
    """Residues of each block's ring, its extremes among them."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**32, (n, d), dtype=np.uint32)
    for block in plan:
        for member in block.members:
            row = rng.integers(0, block.modulus, block.stop - block.start)
            row[:2] = [block.modulus - 1, 0]
            values[member, block.start : block.stop] = row
    return on_device(values)


def words_of(seed, label, block, round_index, count):
    key = np.asarray(seed).astype("<u4").tobytes()
    nonce = struct.pack("<LLLL", 0, label, block, round_index)
    stream = (
        Cipher(algorithms.ChaCha20(key, nonce), mode=None)
        .encryptor()
        .update(bytes(4 * count))
    )
    return struct.unpack(f"<{count}L", stream)


def pad(seed, label, block, round_index, width, modulus):
    """The documented pad, from OpenSSL's keystream and Python integers."""
    if modulus & (modulus - 1) == 0:
        return [
            word % modulus for word in words_of(seed, label, block, round_index, width)
        ]
    words = words_of(seed, label, block, round_index, 2 * width)
    return [
        (low + 2**32 * high) % modulus
        for low, high in zip(words[::2], words[1::2], strict=True)
    ]


def expected_padded(seeds, inputs, plan, round_index, present, shares=None):
    """What `present` clients send who share pads with every neighbour in `shares`."""
    inputs, shares = np.asarray(inputs), present if shares is None else shares
    seed_of = dict(
        zip(map(tuple, np.asarray(seeds.edges).tolist()), seeds.pair_seed, strict=True)
    )
    out = np.zeros(inputs.shape, np.uint32)
    for number, block in enumerate(plan):
        width = block.stop - block.start
        for i in block.members:
            if not present[i]:
                continue
            row = [int(v) for v in inputs[i, block.start : block.stop]]
            own = pad(seeds.self_seed[i], 2, number, round_index, width, block.modulus)
            row = [a + b for a, b in zip(row, own, strict=True)]
            for j in block.members:
                seed = seed_of.get((min(i, j), max(i, j)))
                if j == i or not shares[j] or seed is None:
                    continue
                shared = pad(seed, 1, number, round_index, width, block.modulus)
                sign = 1 if int(seeds.client_ids[i]) < int(seeds.client_ids[j]) else -1
                row = [a + sign * b for a, b in zip(row, shared, strict=True)]
            out[i, block.start : block.stop] = [value % block.modulus for value in row]
    return out


def plain(inputs, block, present):
    rows = [i for i in block.members if present[i]]
    columns = np.asarray(inputs)[rows, block.start : block.stop].astype(object)
    return (
        [int(value) % block.modulus for value in columns.sum(axis=0)] if rows else None
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.zeros((5, 37), np.int32)}, "`inputs` must be uint32; got dtype"),
        (
            {"inputs": np.zeros(37, np.uint32)},
            r"`inputs` must have the shape .* got \(37,\)",
        ),
        ({"inputs": np.zeros((4, 37), np.uint32)}, r"`seeds` must match `inputs`"),
        (
            {"inputs": np.zeros((5, 36), np.uint32)},
            r"`plan` must fit the shape of `inputs`",
        ),
        ({"present": np.ones(4, bool)}, "`present` must match `inputs`"),
        ({"present": np.ones(5, np.int32)}, "`present` must be bool"),
    ],
)
def test_rejects_arguments_that_do_not_fit(change, message):
    arguments = {"inputs": np.zeros((5, 37), np.uint32), "present": None} | change
    seeds = derive_seeds(key_material(0), np.asarray(IDS), 0)
    for function in (pad_inputs, ring_sum):
        with pytest.raises(mj.ConfigurationError, match=message):
            function(seeds, arguments["inputs"], ONE, 0, present=arguments["present"])


@pytest.mark.long("mixed-xla", "prime-xla")
@BOTH
def test_padded_inputs_equal_openssl(name, engine):
    plan = PLANS[name]
    seeds, inputs = derive_seeds(key_material(1), np.asarray(IDS), 6), inputs_for(plan)
    for present in ([True] * 5, [True, False, True, True, False]):
        got = pad_inputs(seeds, inputs, plan, 6, present=np.asarray(present))
        assert np.array_equal(got, expected_padded(seeds, inputs, plan, 6, present))


@pytest.mark.parametrize("modulus", [2**32, 2**20, 1000])
def test_full_tiles_and_the_rest_of_one_equal_openssl(modulus):
    plan = segment_plan([Block((0, 1, 2), 0, 533, modulus)], 3, 533)
    seeds, inputs = (
        derive_seeds(key_material(2), np.arange(3), 3),
        inputs_for(plan, n=3, d=533),
    )
    with mj.use_form("loops"):
        padded = pad_inputs(seeds, inputs, plan, 3)
        total = ring_sum(seeds, inputs, plan, 3).total
    assert np.array_equal(padded, expected_padded(seeds, inputs, plan, 3, [True] * 3))
    assert total.tolist() == plain(inputs, plan[0], [True] * 3)


@pytest.mark.smoke
def test_compiled_loops_number_the_blocks_of_a_plans_later_part(monkeypatch):
    def started(pad, *_):
        nonces = pad.args[8]
        numbers.append(nonces[:, 1].tolist())
        return []

    numbers: list[list[int]] = []
    monkeypatch.setattr(masking, "start_over_cores", started)
    edges = np.stack(np.triu_indices(5, 1), axis=1).astype(np.int32)
    words = (np.zeros((count, 8), np.uint32) for count in (5, len(edges)))
    seeds = Seeds(*map(on_device, (np.arange(5, dtype=np.int32), *words, edges)))
    with mj.use_form("loops"):
        padded_and_sum(seeds, inputs_for(TWO), TWO, 6, first_block=3)
    assert numbers == [[3, 3], [4, 4]]  # pair pads and self pads of each block


@pytest.mark.long
def test_padded_inputs_equal_openssl_over_several_chunks(monkeypatch):
    monkeypatch.setenv("MRSA_JAX_FORM", "xla")
    monkeypatch.setitem(_batches._WORK, "keystream", _batches._Work(2**11, 1))
    jax.clear_caches()  # the chunk size is read while tracing
    plan = segment_plan(
        [Block((0, 1, 2), 0, 90, 2**16), Block((0, 1, 2), 90, 151, 1000)], 3, 151
    )
    seeds = derive_seeds(key_material(2), np.arange(3), 3)
    inputs = inputs_for(plan, n=3, d=151)
    try:
        padded, sums = padded_and_sum(seeds, inputs, plan, 3)
        assert np.array_equal(
            padded, expected_padded(seeds, inputs, plan, 3, [True] * 3)
        )
        for total, block in zip(sums.totals, plan, strict=True):
            assert total.tolist() == plain(inputs, block, [True] * 3)
    finally:
        jax.clear_caches()


@pytest.mark.long("mixed-xla", "prime-xla")
@BOTH
def test_every_cohort_sums_to_the_plain_sum(name, engine):
    plan = PLANS[name]
    for round_index, present in enumerate(itertools.product([False, True], repeat=5)):
        seeds = derive_seeds(key_material(3), np.asarray(IDS), round_index)
        inputs = inputs_for(plan, seed=round_index)
        here = np.asarray(present)
        padded = ring_sum(seeds, inputs, plan, round_index, present=here)
        sets = ring_sum(seeds, inputs, plan, round_index, present=here, fidelity="sets")
        assert np.array_equal(padded.status, sets.status)
        for number, block in enumerate(plan):
            total = padded.totals[number].tolist()
            assert total == sets.totals[number].tolist()
            if sum(present[i] for i in block.members) >= 2:
                assert int(padded.status[number]) == mj.Status.OK
                assert total == plain(inputs, block, present)
            else:
                assert int(padded.status[number]) == mj.Status.TOO_FEW_SURVIVORS
                assert not any(total)


# slots 2 and 4 do not share
GRAPH = np.asarray([[0, 1], [0, 3], [1, 2], [1, 3], [3, 4]])


@pytest.mark.long("mixed-xla", "prime-xla")
@BOTH
def test_pads_follow_the_graph_and_the_losses_inside_a_round(name, engine):
    """Pads are shared within V2 over edges alone.

    Those shared with V2 - V3 are removed again.
    """
    plan = PLANS[name]
    rng = np.random.default_rng(11)
    for round_index in range(6):
        inputs = inputs_for(plan, seed=round_index)
        seeds = derive_seeds(key_material(3), np.asarray(IDS), round_index, GRAPH)
        shares = rng.random(5) < 0.8
        sends = shares & (rng.random(5) < 0.7)
        survivors = np.stack([np.ones(5, bool), shares, shares, sends, sends])
        got, sums = padded_and_sum(
            seeds, inputs, plan, round_index, survivors=survivors
        )
        expected = expected_padded(seeds, inputs, plan, round_index, sends, shares)
        assert np.array_equal(got, expected)
        for block, total in zip(plan, sums.totals, strict=True):
            if sum(sends[i] for i in block.members) >= 2:
                assert total.tolist() == plain(inputs, block, sends)
            else:
                assert not total.any()


# kernels: where every form gives the same bits
@pytest.mark.long
@pytest.mark.parametrize("form", ["loops", "xla"])
def test_a_slot_named_as_its_own_neighbour_makes_no_pad(form):
    """As inside a program of rounds, where the number of edges is no shape."""
    plan, inputs = PLANS["mixed"], inputs_for(PLANS["mixed"])
    # eight: programs are those of five
    filled = np.concatenate([GRAPH, [[0, 0], [3, 3], [0, 0]]])
    pair, own = (
        derive_seeds(key_material(3), np.asarray(IDS), 1, e) for e in (GRAPH, filled)
    )
    with mj.use_form(form):
        (padded, sums), (expected, sums_of_pair) = (
            padded_and_sum(each, inputs, plan, 1) for each in (own, pair)
        )
        assert np.array_equal(padded, expected)
        for one, other in zip(sums.totals, sums_of_pair.totals, strict=True):
            assert np.array_equal(one, other)


def _rounds_of_seven():
    """Yield rounds of one shape, so that each form compiles twice.

    For 2^b, and for other rings.
    Each is a plan, ids, edges, survivors and the number of the first block. A block's
    coordinates take a tile of a kernel and a part of another.
    """
    rng = np.random.default_rng(8)
    everybody = np.stack(np.triu_indices(7, 1), axis=1)
    # a slot as its own neighbour: no pad
    sparse = [[0, 3], [0, 0], [0, 6], [3, 3], [3, 6], [2, 5]]
    # and more of these, so that in each block there are as many pairs as of everybody
    sparse += [[3, 3]] * 4 + [[1, 1], [4, 4]] * 6
    rings = [(2, 3, 2**8), (2**32, 2**31 - 1, 2), (2**20, 2**30 + 3, 2**31)]
    for number, (power, prime, other) in enumerate(rings):
        # members not side by side, a block of one, coordinates that no block has
        plan = segment_plan(
            [
                Block((0, 2, 3, 5, 6), 0, 2101, power),
                Block((1, 4), 1, 1051, prime),
                Block((3,), 2101, 4150, other),
                Block((0, 1, 2, 4, 5, 6), 2110, 3135, prime),
            ],
            7,
            4151,
        )
        alive = np.ones((5, 7), bool)
        alive[2:, number] = False  # lost before pads were shared, then after
        alive[3:, [5, 6 - number]] = False
        ids = rng.choice(2**31 - 1, 7, replace=False)
        # 1 and 4 are alone
        edges = everybody if number % 2 == 0 else np.asarray(sparse)
        yield plan, ids, edges, alive, number and 2**32 - 4


@pytest.mark.long
def test_every_form_gives_the_same_bits(monkeypatch):
    """Compiled loops, XLA and kernels, of which each program takes two of the clients."""
    monkeypatch.setattr("mrsa_jax.secagg._pad_kernel.num_programs", lambda threads: 16)
    for plan, ids, edges, alive, first in _rounds_of_seven():
        inputs = inputs_for(plan, seed=first % 7, n=7, d=4151)
        seeds = derive_seeds(key_material(9), ids, 4, edges)
        found = []
        for form in ("loops", "xla", "pallas"):
            with mj.use_form(form):
                found.append(
                    padded_and_sum(
                        seeds, inputs, plan, 4, survivors=alive, first_block=first
                    )
                )
        for padded, sums in found[1:]:
            assert np.array_equal(padded, found[0][0])
            assert np.array_equal(sums.status, found[0][1].status)
            for total, expected in zip(sums.totals, found[0][1].totals, strict=True):
                assert np.array_equal(total, expected)
        for total, status, block in zip(sums.totals, sums.status, plan, strict=True):
            kept = status == mj.Status.OK
            assert total.tolist() == (
                plain(inputs, block, alive[3]) if kept else [0] * len(total)
            )
        without = ring_sum(seeds, inputs, plan, 4, survivors=alive, fidelity="sets")
        for one, other in zip(
            jax.tree.leaves(without), jax.tree.leaves(sums), strict=True
        ):
            assert np.array_equal(one, other)


@pytest.mark.long
def test_a_round_whose_keystream_is_too_large_is_padded_in_smaller_chunks(monkeypatch):
    """Tried again from the start, in chunks of half the size.

    Then what it needs is said.
    """
    seeds, inputs = derive_seeds(key_material(1), np.asarray(IDS), 6), inputs_for(MIXED)
    most, tried = [0], []

    def full(*arguments, chunk, **sizes):
        tried.append(chunk)
        # the first class of blocks fits, and is given away
        if len(tried) > 1 and chunk > most[0]:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: to allocate 12.5GiB.")
        return padded_blocks(*arguments, chunk=chunk, **sizes)

    monkeypatch.setattr("mrsa_jax.secagg._pad_arrays.padded_blocks", full)
    with mj.use_form("xla"):
        whole = _batches.at_once("keystream", 64)
        words = (
            r"`inputs` must fit into the device's memory \(it asked for 12.5GiB\): "
            r"pads of 5 "
            rf"vectors of 37 words, in blocks of keystream; got {whole // 2} at once"
        )
        with pytest.raises(mj.ConfigurationError, match=words):
            pad_inputs(seeds, inputs, MIXED, 6)
        tried.clear()
        most[0] = whole // 2
        padded = pad_inputs(seeds, inputs, MIXED, 6)
    assert tried == [whole, whole, whole // 2, whole // 2]
    assert np.array_equal(padded, expected_padded(seeds, inputs, MIXED, 6, [True] * 5))


def test_plain_sums_of_many_blocks_are_few_programs():
    """Blocks of one kind of ring and about one size go through one loop, not a step each."""
    layout = mj.hetero.segment_layout("sc", [3] * 8, [2 + g for g in range(8)], 400)
    inputs, here = (
        on_device(np.zeros((24, 400), np.uint32)),
        on_device(np.ones(24, bool)),
    )
    program = jax.make_jaxpr(
        lambda rows, who: masking.plain_sums(rows, who, layout.plan).totals
    )
    text = str(program(inputs, here))
    assert len(layout.plan) > 30
    assert text.count("reduce_sum") < 20


@pytest.mark.slow
@pytest.mark.parametrize("form", ["xla", "pallas"])
def test_traced_rounds_equal_single_ones_in_every_form(form):
    """Under `jit`, `vmap` and `shard_map`, with edges and who is there traced."""
    inputs = jnp.stack([inputs_for(TWO, seed) for seed in range(2)])
    seeds = [derive_seeds(key_material(0), np.asarray(IDS), r, GRAPH) for r in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *seeds)
    here = jnp.asarray([[True] * 5, [True, False, True, True, True]])

    def run(seeds, values, index, present):
        padded, sums = padded_and_sum(seeds, values, TWO, index, present)
        return padded, sums.totals, sums.status

    with mj.use_form("loops"):
        single = [run(seeds[r], inputs[r], r, here[r]) for r in range(2)]
    mesh = jax.make_mesh((2,), ("rounds",), axis_types=(jax.sharding.AxisType.Auto,))
    with mj.use_form(form):
        # the interpreter of kernels, not they, cannot tell what varies over the mesh
        each = jax.shard_map(
            jax.vmap(run),
            mesh=mesh,
            in_specs=jax.P("rounds"),
            out_specs=jax.P("rounds"),
            check_vma=form != "pallas",
        )
        batch = jax.jit(each)(stacked, inputs, jnp.arange(2), here)
    for r in range(2):
        jax.tree.map(
            lambda got, one, r=r: np.testing.assert_array_equal(got[r], one),
            batch,
            single[r],
        )


@pytest.mark.long
def test_many_clients_and_coordinates_give_the_same_bits_either_way(monkeypatch):
    """Several tiles, several parts for several cores, residues at the top of their range."""
    rng = np.random.default_rng(5)
    for modulus in (2**7, 2**31 - 1):
        plan = complete_plan(40, 3001, modulus)
        inputs = rng.integers(0, modulus, (40, 3001)).astype(np.uint32)
        inputs[:, :50] = modulus - 1
        seeds = derive_seeds(key_material(1), np.arange(40), 2)
        survivors = np.arange(40)[None, :] < np.asarray([40, 39, 38, 30, 20])[:, None]
        results = []
        for compiled in (True, False):
            monkeypatch.setenv("MRSA_JAX_FORM", "loops" if compiled else "xla")
            results.append(padded_and_sum(seeds, inputs, plan, 2, survivors=survivors))
        assert np.array_equal(results[0][0], results[1][0])
        assert np.array_equal(results[0][1].total, results[1][1].total)
        assert np.array_equal(
            results[0][1].total, inputs[:30].sum(0, dtype=np.uint64) % modulus
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "engine"), [("one", "compiled"), ("prime", "xla")], indirect=["engine"]
)
def test_pair_pads_cancel_and_self_pads_remain_in_what_is_sent(name, engine):
    """Everybody's padded vectors sum to the inputs plus the self pads, and to nothing less."""
    (block,) = PLANS[name]
    seeds, inputs = (
        derive_seeds(key_material(4), np.asarray(IDS), 0),
        inputs_for(PLANS[name]),
    )
    for size in range(1, 6):
        for cohort in itertools.combinations(range(5), size):
            present = np.isin(np.arange(5), cohort)
            sent = np.asarray(pad_inputs(seeds, inputs, (block,), 0, present=present))
            selves = [
                pad(seeds.self_seed[i], 2, 0, 0, 37, block.modulus) for i in cohort
            ]
            left = (
                sent.astype(object).sum(axis=0) - np.sum(selves, axis=0)
            ) % block.modulus
            assert left.tolist() == plain(inputs, block, present)
            assert not sent[~present].any()
            # nobody's input, and no pair's difference, shows in what was sent
            assert not (sent[present] == np.asarray(inputs)[present]).all(axis=1).any()


def test_no_keystream_block_is_used_twice():
    """Rounds, blocks of the plan, pairs and self pads all draw from streams of their own."""
    plan = segment_plan(
        [Block((0, 1, 2), 0, 64, 2**32), Block((0, 1, 2), 64, 128, 2**32)], 3, 128
    )
    zeros = on_device(np.zeros((3, 128), np.uint32))
    pair_seeds, self_seeds, seen = [], [], []
    for round_index in range(4):
        seeds = derive_seeds(key_material(5), np.asarray([5, 2, 8]), round_index)
        pair_seeds.append(seeds.pair_seed.tolist())
        self_seeds += seeds.self_seed.tolist()
        nothing = jnp.zeros_like(seeds.self_seed)
        for present in ([1, 1, 0], [1, 0, 1], [0, 1, 1]):
            # a known self seed peels the self pads off: what is left is one pair's pad,
            # signed
            bare = dataclasses.replace(seeds, self_seed=nothing)
            here = np.asarray(present, bool)
            sent = np.asarray(pad_inputs(bare, zeros, plan, round_index, present=here))
            first = sent[present.index(1)]
            known = [
                w for b in (0, 1) for w in pad(nothing[0], 2, b, round_index, 64, 2**32)
            ]
            seen.append((first - np.asarray(known, np.uint32)).reshape(8, 16))
        for i in range(3):
            alone = np.isin(np.arange(3), [i])
            sent = np.asarray(
                pad_inputs(seeds, zeros, plan, round_index, present=alone)
            )
            seen.append(sent[i].reshape(8, 16))
    assert pair_seeds == [pair_seeds[0]] * 4  # long-lived
    assert len({tuple(seed) for seed in self_seeds}) == 12  # fresh in every round
    blocks = np.concatenate(seen)
    both = np.concatenate(
        [blocks, (-blocks.astype(np.int64) % 2**32).astype(np.uint32)]
    )
    assert len({block.tobytes() for block in both}) == 2 * len(blocks) == 2 * 4 * 6 * 8


def test_equal_seeds_still_give_different_pair_and_self_streams():
    seeds = derive_seeds(key_material(6), np.arange(2), 0)
    same = dataclasses.replace(seeds, self_seed=jnp.tile(seeds.pair_seed, (2, 1)))
    zeros, plan = on_device(np.zeros((2, 32), np.uint32)), complete_plan(2, 32, 2**32)
    sent = np.asarray(pad_inputs(same, zeros, plan, 0))
    assert sent[0].all()
    assert sent[1].any()  # with one stream for both, slot 1 would send self - pair = 0


def test_padded_inputs_look_uniform():
    # 4 clients x 20,000 residues mod 37 of constant inputs: chi-square with 36 degrees
    # of freedom; P(> 99.7) < 1e-7 for each of 4 clients
    plan = complete_plan(4, 20_000, 37)
    seeds = derive_seeds(key_material(7), np.arange(4), 0)
    sent = np.asarray(
        pad_inputs(seeds, on_device(np.full((4, 20_000), 5, np.uint32)), plan, 0)
    )
    for row in sent:
        counts = np.bincount(row, minlength=37)
        assert len(counts) == 37
        assert ((counts - 20_000 / 37) ** 2 / (20_000 / 37)).sum() < 99.7


@hypothesis.settings(max_examples=10)
@hypothesis.given(
    st.sampled_from([2, 5]),
    st.sampled_from([1, 33]),
    st.sampled_from([2, 3, 1000, 2**31 - 1, 2**32]),
    st.integers(0, 2**32 - 1),
)
def test_ring_sums_of_any_size(participants, dim, modulus, seed):
    rng = np.random.default_rng(seed)
    plan = complete_plan(participants, dim, modulus)
    inputs = on_device(rng.integers(0, modulus, (participants, dim)).astype(np.uint32))
    ids = rng.choice(10**6, participants, replace=False)
    seeds = derive_seeds(key_material(seed), ids, seed % 1000)
    present = [True] * participants
    assert ring_sum(seeds, inputs, plan, seed % 1000).total.tolist() == plain(
        inputs, plan[0], present
    )


@pytest.mark.long
def test_rounds_presence_and_seeds_compile_nothing_new(monkeypatch):
    monkeypatch.setenv("MRSA_JAX_FORM", "xla")
    inputs = inputs_for(ONE)
    counts = []
    for round_index in range(3):
        seeds = derive_seeds(key_material(round_index), np.asarray(IDS), round_index)
        present = np.asarray([True, round_index > 0, True, True, round_index > 1])
        ring_sum(seeds, inputs, ONE, round_index, present=present)
        counts.append(padded_blocks._cache_size())
    assert counts[0] == counts[2]


@pytest.mark.long
def test_blocks_of_about_one_size_share_a_program(monkeypatch):
    monkeypatch.setenv("MRSA_JAX_FORM", "xla")
    rings = (37, 1000, 2**31 - 1, 29)
    blocks = [
        Block((2 * k, 2 * k + 1, 8), 11 * k, 11 * k + 10 + k % 2, ring)
        for k, ring in enumerate(rings)
    ]
    plan = segment_plan(blocks, 9, 44)
    seeds = derive_seeds(key_material(3), np.arange(9), 1)
    inputs = inputs_for(plan, n=9, d=44)
    before = padded_blocks._cache_size()
    padded, sums = padded_and_sum(seeds, inputs, plan, 1)
    assert padded_blocks._cache_size() == before + 1
    assert np.array_equal(padded, expected_padded(seeds, inputs, plan, 1, [True] * 9))
    for block, total in zip(plan, sums.totals, strict=True):
        assert total.tolist() == plain(inputs, block, [True] * 9)


@pytest.mark.long
def test_a_batch_of_rounds_equals_single_rounds_and_x64_changes_nothing():
    inputs = jnp.stack([inputs_for(TWO, seed) for seed in range(3)])
    rounds = jnp.arange(3)
    seeds = [derive_seeds(key_material(0), np.asarray(IDS), r) for r in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *seeds)
    batch = jax.vmap(lambda s, x, r: ring_sum(s, x, TWO, r).totals)(
        stacked, inputs, rounds
    )
    for r in range(3):
        single = ring_sum(seeds[r], inputs[r], TWO, r)
        for got, one in zip(batch, single.totals, strict=True):
            assert np.array_equal(got[r], one)
    with jax.enable_x64(True):
        again = ring_sum(seeds[0], inputs[0], TWO, 0)
        assert all(total.dtype == jnp.uint32 for total in again.totals)
        assert np.array_equal(
            again.totals[1], ring_sum(seeds[0], inputs[0], TWO, 0).totals[1]
        )
        assert np.array_equal(
            derive_seeds(key_material(0), IDS_ARRAY, 1).pair_seed, seeds[1].pair_seed
        )


IDS_ARRAY = np.asarray(IDS)
