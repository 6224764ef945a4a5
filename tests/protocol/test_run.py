"""Whole rounds: the survivors' sum exactly, or the right status, whatever is lost."""

import dataclasses
import inspect
import itertools
import struct

import hypothesis
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import mrsa_jax as mj
from mrsa_jax import Status
from mrsa_jax.protocol import Server, _run, run
from mrsa_jax.protocol._network import SERVER
from mrsa_jax.protocol.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareList,
    SurvivorList,
    UnmaskShares,
)
from mrsa_jax.secagg import Block

ShareKeys = mj.protocol.messages.ShareKeys
EVERYBODY = np.ones((5, 3), bool)
COMPLETE = ~np.eye(3, dtype=bool)
INPUTS = np.asarray([[1, 2], [10, 20], [100, 200]])


def levels_to_survivors(levels):
    """Level k of a client: in V0 to V_(k-1)."""
    return np.asarray([[level > step for level in levels] for step in range(5)])


# --- misuse


GOOD = {
    "inputs": INPUTS,
    "adjacency": COMPLETE,
    "survivors": EVERYBODY,
    "thresholds": 2,
}
NOT_NESTED = EVERYBODY.copy()
NOT_NESTED[2, 1] = False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {},
            "`modulus_bits` must be given, or else `modulus`, and not both; got None "
            "and None",
        ),
        ({"modulus_bits": 8, "modulus": 256}, "and not both; got 8 and 256"),
        ({"modulus_bits": 0}, r"`modulus_bits` must lie in \[1, 32\]; got 0"),
        ({"modulus_bits": 33}, r"`modulus_bits` must lie in \[1, 32\]; got 33"),
        ({"modulus_bits": 8.0}, "`modulus_bits` must be an integer; got 8.0"),
        ({"modulus": 2**31 + 1}, "`modulus` must be a power of two"),
        ({"modulus": 1}, "`modulus` must be a power of two"),
        (
            {"modulus": 200},
            r"`inputs` must lie in \[0, 200\), the ring's residues; got 1 and 200",
        ),
        ({"modulus": 256, "inputs": -INPUTS}, r"`inputs` must lie in \[0, 256\)"),
        (
            {"modulus": 256, "inputs": INPUTS / 1},
            "`inputs` must hold integers; got 'float64'",
        ),
        (
            {"modulus": 256, "inputs": INPUTS > 1},
            "`inputs` must hold integers; got 'bool'",
        ),
        (
            {"modulus": 256, "inputs": INPUTS[0]},
            r"`inputs` must have the shape \[clients, dim\]",
        ),
        (
            {"modulus": 256, "inputs": INPUTS[:, :0]},
            r"`inputs` must not be empty; got \(3, 0\)",
        ),
        ({"modulus": 256, "inputs": INPUTS[:2]}, "a row for each client; got 2 and 3"),
        ({"modulus": 256, "inputs": [[2**70, 0]] * 3}, "`inputs` must hold integers"),
        ({"modulus": 256, "thresholds": 0}, "`thresholds`"),
        ({"modulus": 256, "thresholds": 1.5}, "`thresholds`"),
        ({"modulus": 256, "thresholds": [1, 2]}, "`thresholds`"),
        ({"modulus": 256, "survivors": NOT_NESTED}, "`survivors` must be nested"),
        ({"modulus": 256, "survivors": EVERYBODY[:4]}, "`survivors`"),
        ({"modulus": 256, "survivors": EVERYBODY.astype(int)}, "`survivors`"),
        ({"modulus": 256, "adjacency": np.ones((3, 3), bool)}, "`adjacency`"),
        ({"modulus": 256, "adjacency": np.triu(COMPLETE)}, "`adjacency`"),
        ({"modulus": 256, "entropy": -1}, "`entropy` must be None, bytes"),
        ({"modulus": 256, "entropy": True}, "`entropy` must be None, bytes"),
        ({"modulus": 256, "round_index": -1}, "`round_index` must lie in"),
        ({"modulus": 256, "round_index": 2**32}, "`round_index` must lie in"),
    ],
)
def test_misuse(change, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        inspect.unwrap(run)(**{**GOOD, **change})


# --- by hand


def test_everybody_survives():
    result = run(INPUTS, COMPLETE, EVERYBODY, 2, 8)
    assert result.status is Status.OK
    assert result.total.dtype == np.uint32
    assert result.total.tolist() == [111, 222]
    assert result.learned.tolist() == [[True, True, True]]
    assert result.is_reliable
    assert result.is_private
    assert (result.transcript.survivors == EVERYBODY).all()
    assert result.transcript.is_informative.all()


def test_inputs_may_be_jax_arrays_or_lists():
    for kind in (np.asarray, jnp.asarray, np.ndarray.tolist):
        arguments = [kind(value) for value in (INPUTS, COMPLETE, EVERYBODY)]
        assert run(*arguments, 2, modulus=201, entropy=0).total.tolist() == [111, 21]


def test_entropy_repeats_a_round_and_none_does_not():
    same = [run(INPUTS, COMPLETE, EVERYBODY, 2, 8, entropy=5) for _ in range(2)]
    fresh = [run(INPUTS, COMPLETE, EVERYBODY, 2, 32) for _ in range(2)]
    padded = [result.transcript.padded_inputs for result in (*same, *fresh)]
    assert (padded[0] == padded[1]).all()
    assert (padded[2] != padded[3]).any()
    assert (
        np.asarray(same[0].seeds.self_seed) == np.asarray(same[1].seeds.self_seed)
    ).all()
    assert (
        np.asarray(fresh[0].seeds.self_seed) != np.asarray(fresh[1].seeds.self_seed)
    ).all()


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_one_client_is_lost_at_each_step(step):
    survivors = EVERYBODY.copy()
    survivors[step + 1 :, 1] = False
    result = run(INPUTS, COMPLETE, survivors, 2, 8, entropy=0)
    assert result.status is Status.OK
    assert result.total.tolist() == ([111, 222] if step == 3 else [101, 202])
    # of three shares two come back; one lost before sharing has nothing to give away
    assert result.transcript.is_informative.tolist() == [True, step >= 2, True]
    assert (result.transcript.survivors == survivors).all()


def test_too_few_shares_leave_the_round_unreliable():
    survivors = levels_to_survivors([5, 5, 4])
    result = run(INPUTS, COMPLETE, survivors, 3, 8, entropy=0)
    assert result.status is Status.UNRELIABLE
    assert not result.is_reliable
    assert result.is_private
    assert result.total.tolist() == [0, 0]
    assert result.learned.shape == (0, 3)
    assert not result.transcript.is_informative.any()


@pytest.mark.parametrize("levels", [(5, 3, 3), (3, 3, 3), (0, 0, 0), (5, 0, 1)])
def test_fewer_than_two_are_never_unmasked(levels):
    result = run(INPUTS, COMPLETE, levels_to_survivors(levels), 1, 8, entropy=0)
    assert result.status is Status.TOO_FEW_SURVIVORS
    assert result.total.tolist() == [0, 0]
    assert result.learned.shape == (0, 3)
    assert result.is_private
    assert not result.transcript.survivors[4].any()  # the client refuses to answer
    assert result.steps[3].bytes_up == 0


def test_two_components_are_learned_apart():
    graph = np.zeros((4, 4), bool)
    graph[0, 1] = graph[1, 0] = graph[2, 3] = graph[3, 2] = True
    inputs = np.asarray([[1], [2], [4], [8]])
    result = run(inputs, graph, np.ones((5, 4), bool), 2, 8, entropy=0)
    assert result.status is Status.OK
    assert result.total.tolist() == [15]
    assert not result.is_private
    assert result.learned.tolist() == [
        [True, True, False, False],
        [False, False, True, True],
    ]
    # one component cannot be unmasked: the round is unreliable, the other sum is out
    result = run(inputs, graph, levels_to_survivors([5, 5, 5, 4]), 2, 8, entropy=0)
    assert result.status is Status.UNRELIABLE
    assert not result.is_private
    assert result.learned.tolist() == [[True, True, False, False]]


@pytest.mark.parametrize(("threshold", "risk"), [(1, True), (2, False), (3, False)])
def test_unmasking_risk(threshold, risk):
    """2 t <= |Adj| + 1 = 3."""
    assert (
        run(INPUTS, COMPLETE, EVERYBODY, threshold, 8, entropy=0).unmasking_risk is risk
    )


def test_progress_is_told():
    heard = []
    run(
        INPUTS,
        COMPLETE,
        levels_to_survivors([5, 5, 1]),
        2,
        8,
        entropy=0,
        progress=lambda *news: heard.append(news),
    )
    names = ["advertise keys", "share keys", "masked input", "unmask"]
    counts = [3, 2, 2, 2]
    expected = [
        (name, k, count)
        for name, count in zip(names, counts, strict=True)
        for k in range(1, count + 1)
    ]
    assert heard == expected


def test_bytes_of_a_round_by_hand():
    """A line 0 - 1 - 2 - 3 in which 3 is lost before its input, d = 5 residues below 37."""
    line = np.diag([True] * 3, 1) | np.diag([True] * 3, -1)
    survivors = levels_to_survivors([5, 5, 5, 3])
    result = run(np.zeros((4, 5), int), line, survivors, 1, modulus=37, entropy=0)
    degrees = [1, 2, 2, 1]
    up = [
        4 * AdvertiseKeys.size(),
        sum(ShareKeys.size(k) for k in degrees),
        3 * MaskedInput.size([(5, 37)]),
        UnmaskShares.size(2, 0) + UnmaskShares.size(3, 0) + UnmaskShares.size(2, 1),
    ]
    down = [
        sum(KeyList.size(k) for k in degrees),
        sum(ShareList.size(k) for k in degrees),
        SurvivorList.size(2) + SurvivorList.size(3) + SurvivorList.size(2),
        0,
    ]
    assert up == [304, 64 + 6 * 92, 3 * 20, 60 + 8 * 40]
    assert down == [48 + 6 * 68, 48 + 6 * 92, 36 + 7 * 4, 0]
    assert [step.bytes_up for step in result.steps] == up
    assert [step.bytes_down for step in result.steps] == down
    assert [step.num_clients for step in result.steps] == [4, 4, 3, 3]
    for step in result.steps:
        assert step.client_seconds > 0
        assert step.server_seconds > 0


# --- against sets: Theorem 1 written out, and what can be learned


def oracle(graph, levels, thresholds):
    """Status, learned sets, V3 and V4 by the paper's definitions, in Python sets.

    Who hears of fewer than its threshold of holders leaves, at both steps; at the first
    unless it never had so many.
    """
    n = len(levels)
    v1, v2, v3, v4 = (
        {i for i in range(n) if levels[i] > step} for step in (1, 2, 3, 4)
    )
    near = [{j for j in range(n) if graph[i][j]} for i in range(n)]
    v3 -= {
        i
        for i in v3
        if len((near[i] | {i}) & v2) < thresholds[i] <= len((near[i] | {i}) & v1)
    }
    if len(v3) < 2:
        return Status.TOO_FEW_SURVIVORS, [], v3, set()
    v4 = {i for i in v4 & v3 if len((near[i] | {i}) & v3) >= thresholds[i]}
    informative = {i for i in range(n) if len((near[i] | {i}) & v4) >= thresholds[i]}
    components = []
    left = set(v3)
    while left:
        found = {min(left)}
        while (grown := found | {j for i in found for j in near[i] & v3}) != found:
            found = grown
        left -= found
        components.append(found)
    learned = [
        sorted(c)
        for c in components
        if c | {j for i in c for j in near[i] & v2} <= informative
    ]
    status = Status.OK if len(learned) == len(components) else Status.UNRELIABLE
    return status, learned, v3, v4


def check(inputs, graph, levels, thresholds, modulus, entropy=0, round_index=0):
    """Play a round and hold all of it against the oracle and plain sums."""
    survivors = levels_to_survivors(levels)
    result = run(
        inputs,
        graph,
        survivors,
        thresholds,
        modulus=modulus,
        entropy=entropy,
        round_index=round_index,
    )
    n = len(levels)
    status, learned, *last = oracle(
        graph, levels, np.broadcast_to(thresholds, n).tolist()
    )
    assert result.status is status
    assert [np.flatnonzero(row).tolist() for row in result.learned] == learned
    survivors[3:] = [[i in members for i in range(n)] for members in last]
    v3 = survivors[3]
    plain = [
        sum(int(x) for x in column) % modulus for column in np.asarray(inputs)[v3].T
    ]
    expected = plain if status is Status.OK else [0] * inputs.shape[1]
    assert result.total.tolist() == expected
    whole = learned == [np.flatnonzero(v3).tolist()]
    assert result.is_private is (not learned or whole)
    # nobody answers for a sum over one client; over none there is no pad
    assert result.is_reliable is (status is Status.OK or not v3.any())
    assert (result.transcript.survivors == survivors).all()
    assert not result.transcript.padded_inputs[~v3].any()
    assert (result.transcript.padded_inputs < modulus).all()
    return result


def graphs(n):
    pairs = list(itertools.combinations(range(n), 2))
    for chosen in itertools.product([False, True], repeat=len(pairs)):
        graph = np.zeros((n, n), bool)
        for (i, j), here in zip(pairs, chosen, strict=True):
            graph[i, j] = graph[j, i] = here
        yield graph


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2])
def test_every_round_of_one_and_two_clients(n):
    inputs = np.asarray([[3, 255], [254, 7]])[:n]
    for graph in graphs(n):
        for levels in itertools.product(range(6), repeat=n):
            check(inputs, graph, levels, 1 + sum(levels) % 3, 256)


THRESHOLDS = (1, 2, 3, [1, 2, 3], [4, 1, 2])


@pytest.mark.long("3 edges")
@pytest.mark.parametrize(
    "graph", list(graphs(3)), ids=lambda g: f"{int(g.sum()) // 2} edges"
)
def test_dropout_patterns_of_three_clients(graph):
    """Over the complete graph all but for who is who, a seventh of all over each other one."""
    if graph.sum() == 6:
        turned = enumerate(itertools.combinations_with_replacement(range(6), 3))
        patterns = [levels[turn % 3 :] + levels[: turn % 3] for turn, levels in turned]
    else:
        patterns = list(itertools.product(range(6), repeat=3))[int(graph[0, 1]) :: 7]
    for levels, thresholds in zip(patterns, itertools.cycle(THRESHOLDS), strict=False):
        check(INPUTS % 37, graph, levels, thresholds, 37)


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph", list(graphs(3)), ids=lambda g: f"{int(g.sum()) // 2} edges"
)
def test_every_dropout_pattern_of_three_clients(graph):
    for levels in itertools.product(range(6), repeat=3):
        for thresholds in THRESHOLDS:
            check(INPUTS % 37, graph, levels, thresholds, 37)


@pytest.mark.long
def test_sampled_rounds_of_four_clients():
    rng = np.random.default_rng(4)
    seen = set()
    for _ in range(80):
        graph = np.triu(rng.random((4, 4)) < 0.6, 1)
        graph = graph | graph.T
        levels = rng.choice(6, 4, p=[0.02, 0.04, 0.04, 0.2, 0.2, 0.5])
        thresholds = rng.integers(1, 4, 4)
        inputs = rng.integers(0, 2**16, (4, 3))
        result = check(inputs, graph, levels.tolist(), thresholds, 2**16)
        seen.add((result.status, result.is_private))
    assert len(seen) == 5  # both ways of OK and UNRELIABLE, and too few


@pytest.mark.long
@hypothesis.given(data=st.data())
def test_the_sum_or_the_right_status(data):
    n = data.draw(st.integers(1, 7), "n")
    dim = data.draw(st.integers(1, 20), "dim")
    modulus = data.draw(
        st.one_of(st.integers(1, 32).map(lambda b: 2**b), st.integers(2, 2**31 - 1)),
        "modulus",
    )
    bits = data.draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n), "edges")
    graph = np.triu(np.reshape(bits, (n, n)), 1)
    graph = graph | graph.T
    level = st.sampled_from([5, 5, 5, 4, 3, 3, 2, 1, 0])
    levels = data.draw(st.lists(level, min_size=n, max_size=n), "levels")
    thresholds = data.draw(
        st.lists(st.integers(1, 5), min_size=n, max_size=n), "thresholds"
    )
    seed = data.draw(st.integers(0, 2**32), "inputs")
    inputs = np.random.default_rng(seed).integers(0, modulus, (n, dim))
    inputs[0, 0] = modulus - 1
    result = check(inputs, graph, levels, thresholds, modulus, entropy=seed)
    assert_padded_as_documented(result, inputs, graph, levels, modulus, 0)


# --- what was sent, recomputed from the seeds


def pad(seed, label, round_index, width, modulus):
    """The documented pad, from OpenSSL's keystream and Python integers."""
    key = np.asarray(seed).astype("<u4").tobytes()
    nonce = struct.pack("<LLLL", 0, label, 0, round_index)
    words = 1 if modulus & (modulus - 1) == 0 else 2
    stream = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
    values = struct.unpack(
        f"<{words * width}L", stream.update(bytes(4 * words * width))
    )
    if words == 1:
        return [value % modulus for value in values]
    return [
        (low + 2**32 * high) % modulus
        for low, high in zip(values[::2], values[1::2], strict=True)
    ]


def assert_padded_as_documented(result, inputs, graph, levels, modulus, round_index):
    seeds = result.seeds
    edges = np.asarray(seeds.edges).tolist()
    assert edges == [
        list(edge) for edge in zip(*np.nonzero(np.triu(graph)), strict=True)
    ]
    assert np.asarray(seeds.client_ids).tolist() == list(range(len(levels)))
    pair_seed = {
        tuple(edge): seed for edge, seed in zip(edges, seeds.pair_seed, strict=True)
    }
    for i, level in enumerate(levels):
        assert (np.asarray(seeds.self_seed[i]) != 0).any() == (level > 1)
    for (i, j), seed in pair_seed.items():
        assert (np.asarray(seed) != 0).any() == (levels[i] > 1 and levels[j] > 1)
    dim = inputs.shape[1]
    for i in np.flatnonzero(result.transcript.survivors[3]).tolist():
        row = [int(value) for value in inputs[i]]
        own = pad(seeds.self_seed[i], 2, round_index, dim, modulus)
        row = [a + b for a, b in zip(row, own, strict=True)]
        for (a, b), seed in pair_seed.items():
            if i in (a, b) and levels[a] > 2 and levels[b] > 2:
                sign = 1 if i == a else -1
                pads = pad(seed, 1, round_index, dim, modulus)
                row = [x + sign * y for x, y in zip(row, pads, strict=True)]
        assert result.transcript.padded_inputs[i].tolist() == [x % modulus for x in row]


@pytest.mark.parametrize(
    "modulus", [2, 2**7, 2**16, 2**32, 3, 221, 10**9 + 7, 2**31 - 1]
)
@pytest.mark.parametrize("round_index", [0, 2**32 - 1])
def test_padded_inputs_are_the_documented_ones(modulus, round_index):
    rng = np.random.default_rng(modulus)
    graph = np.triu(rng.random((5, 5)) < 0.7, 1)
    graph = graph | graph.T
    inputs = rng.integers(0, modulus, (5, 33))
    levels = [5, 3, 5, 2, 4]
    result = check(inputs, graph, levels, 2, modulus, round_index=round_index)
    assert_padded_as_documented(result, inputs, graph, levels, modulus, round_index)


def test_pads_never_repeat(monkeypatch):
    """Every (key, nonce) of every pad in two rounds, and who used it."""
    used = {}
    real = mj.protocol._pads.chacha20_stream

    def record(key, start):
        used[key, start] = used.get((key, start), 0) + 1
        return real(key, start)

    monkeypatch.setattr(mj.protocol._pads, "chacha20_stream", record)
    n, graph = 5, ~np.eye(5, dtype=bool)
    inputs = np.zeros((n, 3), int)
    survivors = levels_to_survivors([5, 5, 5, 5, 3])
    expected = {}
    for round_index in (0, 1):
        result = run(inputs, graph, survivors, 2, 8, entropy=1, round_index=round_index)
        assert result.status is Status.OK
        own = struct.pack("<IIII", 0, 2, 0, round_index)
        pair = struct.pack("<IIII", 0, 1, 0, round_index)
        for i, seed in enumerate(np.asarray(result.seeds.self_seed)):
            # its owner adds it, the server takes it off if it is in the sum
            expected[seed.astype("<u4").tobytes(), own] = 1 + (i != 4)
        edges = np.asarray(result.seeds.edges)
        for (_, j), seed in zip(edges, np.asarray(result.seeds.pair_seed), strict=True):
            # both sides use it, the server too for the client lost in between
            expected[seed.astype("<u4").tobytes(), pair] = 2 + (j == 4)
    assert len(expected) == 2 * (n + n * (n - 1) // 2)  # all different
    assert used == expected


def test_padded_inputs_say_nothing_about_inputs():
    """The same seeds under inputs 0 and R - 1: both look uniform, whatever lies below."""
    zeros, tops = (np.full((3, 4000), value) for value in (0, 15))
    padded = [
        run(inputs, COMPLETE, EVERYBODY, 2, 4, entropy=0).transcript.padded_inputs
        for inputs in (zeros, tops)
    ]
    assert ((padded[1] - padded[0]) % 16 == 15).all()
    for values in padded:
        counts = np.bincount(values.reshape(-1), minlength=16)
        # 16 cells, 12,000 draws: chi-square of 15 degrees exceeds 56.5 with chance 1e-6
        assert ((counts - 750.0) ** 2 / 750.0).sum() < 56.5


@pytest.mark.long
def test_the_server_really_can_compute_what_it_learned(monkeypatch):
    """The transcript's sums of components, reliable or not, equal the plain sums."""
    servers = []

    class Kept(Server):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            servers.append(self)

    monkeypatch.setattr(mj.protocol._run, "Server", Kept)
    rng = np.random.default_rng(7)
    seen = 0
    for trial in range(30):
        graph = np.triu(rng.random((6, 6)) < 0.3, 1)
        graph = graph | graph.T
        levels = rng.choice([5, 5, 5, 4, 3], 6).tolist()
        inputs = rng.integers(0, 2**20, (6, 4))
        result = run(inputs, graph, levels_to_survivors(levels), 2, 20, entropy=trial)
        for row, total in zip(result.learned, servers[-1].learned_sums(), strict=True):
            assert total.tolist() == (inputs[row].sum(axis=0) % 2**20).tolist()
            seen += result.status is Status.UNRELIABLE
    assert seen > 5


# --- plans of many blocks

GROUPS = (
    Block((0, 1), 0, 2, 2**8),
    Block((2, 3), 0, 2, 37),
    Block((0, 1, 2, 3), 2, 4, 2**16),
)
FOUR = ~np.eye(4, dtype=bool)
PARTS = np.asarray([[1, 2, 3, 4], [10, 20, 30, 40], [5, 6, 7, 8], [9, 10, 11, 12]])


@pytest.mark.smoke
def test_a_plan_of_many_blocks_by_hand():
    result = run(PARTS, FOUR, np.ones((5, 4), bool), 3, plan=GROUPS, entropy=0)
    assert result.status is Status.OK
    assert [total.tolist() for total in result.totals] == [[11, 22], [14, 16], [51, 64]]
    assert result.learned.astype(int).tolist() == [
        [1, 1, 0, 0],
        [0, 0, 1, 1],
        [1, 1, 1, 1],
    ]
    assert result.learned_block.tolist() == [0, 1, 2]
    # two residues of 8 bits and two of 16; two of 6 and two of 16
    assert result.steps[2].bytes_up == 2 * (16 + 6) + 2 * (16 + 6)


@pytest.mark.smoke
def test_a_client_alone_in_a_block_counts_as_lost_and_its_self_seed_stays_secret():
    heard = []

    def listen(step, sender, recipient, message):
        if step == 3 and recipient == SERVER:
            heard.append(UnmaskShares.from_bytes(message))
        return message

    network = _run.disturbed(tamper=listen)
    survivors = levels_to_survivors([5, 5, 5, 3])
    result = run(PARTS, FOUR, survivors, 2, plan=GROUPS, entropy=0, network=network)
    assert result.status is Status.OK
    assert result.summed.tolist() == [True, True, False, False]
    assert [total.tolist() for total in result.totals] == [[11, 22], [0, 0], [33, 44]]
    assert [[owner for owner, _ in message.self_shares] for message in heard] == [
        [0, 1],
        [0, 1],
    ]
    assert [[owner for owner, _ in message.key_shares] for message in heard] == [
        [2, 3],
        [2, 3],
    ]
    assert result.transcript.padded_inputs[2].any()
    assert result.transcript.is_informative.all()
    assert [
        (entry.step, entry.client, type(entry.error).__name__)
        for entry in network.refusals
    ] == [(3, 2, "TooFewSurvivorsError")]
    assert [step.num_clients for step in result.steps] == [4, 4, 3, 2]


def test_a_server_that_names_too_few_is_refused():
    """It calls 1 lost, so that block 0 would be the input of 0."""

    def lie(step, sender, recipient, message):
        if step == 3 and (sender, recipient) == (SERVER, 0):
            return SurvivorList(0, 3, (0, 2, 3)).to_bytes()
        return message

    network = _run.disturbed(tamper=lie)
    result = run(
        PARTS, FOUR, np.ones((5, 4), bool), 4, plan=GROUPS, entropy=0, network=network
    )
    assert result.status is Status.UNRELIABLE
    assert [type(entry.error).__name__ for entry in network.refusals] == [
        "TooFewSurvivorsError"
    ]
    assert result.transcript.survivors[4].tolist() == [False, True, True, True]


def test_a_forged_share_spoils_only_the_blocks_that_need_it():
    def forge(step, sender, recipient, message):
        if step == 3 and sender == 0:
            answer = UnmaskShares.from_bytes(message)
            (one, share), *rest = answer.self_shares
            share = bytes([share[0] ^ 1]) + share[1:]
            return dataclasses.replace(
                answer, self_shares=((one, share), *rest)
            ).to_bytes()
        return message

    network = _run.disturbed(tamper=forge)
    result = run(
        PARTS, FOUR, np.ones((5, 4), bool), 3, plan=GROUPS, entropy=0, network=network
    )
    assert result.status is Status.UNRELIABLE
    assert result.block_status.tolist() == [
        Status.UNRELIABLE,
        Status.OK,
        Status.UNRELIABLE,
    ]
    assert [total.tolist() for total in result.totals] == [[0, 0], [14, 16], [0, 0]]
    assert result.learned.astype(int).tolist() == [[0, 0, 1, 1]]
    assert result.learned_block.tolist() == [1]
    assert result.is_private
    assert not result.is_reliable
