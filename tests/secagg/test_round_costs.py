"""Bytes and operations.

Misuse, rounds counted by hand, a plain count in loops, expectations.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import typing

import numpy as np
import pytest
from hypothesis import given, strategies as st

import mrsa_jax as mj
from mrsa_jax._core.status import STEPS
from mrsa_jax.secagg import (
    Block,
    RoundCosts,
    expected_costs,
    fedavg_costs,
    round_costs,
)

ALL = np.ones((5, 3), bool)


def _complete(n: int) -> np.ndarray:
    return ~np.eye(n, dtype=bool)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: round_costs(np.ones((3, 3)), ALL, 2, 1, 16),
            "`adjacency` must hold bools",
        ),
        (
            lambda: round_costs(np.ones((3, 2), bool), ALL, 2, 1, 16),
            "`adjacency` must be a sq",
        ),
        (
            lambda: round_costs(np.ones((3, 3), bool), ALL, 2, 1, 16),
            "`adjacency` must not join",
        ),
        (
            lambda: round_costs(np.eye(3, k=1) > 0, ALL, 2, 1, 16),
            "`adjacency` must be symmetric",
        ),
        (
            lambda: round_costs(_complete(3), ALL[:4], 2, 1, 16),
            r"`survivors` must have shape \(5, 3",
        ),
        (
            lambda: round_costs(
                _complete(3), np.arange(15).reshape(5, 3) > 3, 2, 1, 16
            ),
            "`survivors` must be nested",
        ),
        (
            lambda: round_costs(_complete(3), ALL, 0, 1, 16),
            r"`thresholds` must lie in \[1, 2",
        ),
        (
            lambda: round_costs(_complete(3), ALL, 1.5, 1, 16),
            "`thresholds` must be an integer",
        ),
        (
            lambda: round_costs(_complete(3), ALL, [1, 2], 1, 16),
            "`thresholds` must be one for",
        ),
        (
            lambda: round_costs(_complete(3), ALL, 2, 0, 16),
            "`dim` must be at least 1; got 0",
        ),
        (lambda: round_costs(_complete(3), ALL, 2, 1, 2**31 + 1), "`modulus` must"),
        (lambda: expected_costs(1, 0, 1, 1, 16), "`num_clients` must be at least 2"),
        (lambda: expected_costs(4, 3.5, 1, 1, 16), "`degree` must lie in .*; got 3.5"),
        (lambda: expected_costs(4, math.nan, 1, 1, 16), "`degree` must lie in"),
        (
            lambda: expected_costs(4, 2, 1, 1, 16, step_dropout_rate=1.5),
            "`step_dropout_rate` must lie in",
        ),
        (lambda: fedavg_costs(0, 1, 16), "`num_clients` must be at least 1"),
    ],
)
def test_misuse_names_argument_and_rule(
    call: typing.Callable[[], object], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


def test_a_path_of_three_by_hand() -> None:
    """0 - 1 - 2; client 2 sends its shares and is lost.

    0 does not unmask. d = 3, R = 37.
    """
    path = np.zeros((3, 3), bool)
    path[[0, 1, 1, 2], [1, 0, 2, 1]] = True
    survivors = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0], [0, 1, 0]], bool)
    costs = round_costs(path, survivors, [2, 3, 1], dim=3, modulus=37)
    # keys 8+4+64; shares 16+92 a neighbour; 16 + ceil(18/8); 20 + 40 (b of 0 and 1, s
    # of 2)
    assert costs.bytes_up.tolist() == [
        [76, 76, 76],
        [108, 200, 108],
        [19, 19, 0],
        [0, 140, 0],
    ]
    # 12+68 a neighbour; 12+92; 12 + 4 a survivor among oneself and neighbours; nothing
    assert costs.bytes_down.tolist() == [
        [80, 148, 80],
        [104, 196, 104],
        [20, 20, 0],
        [0, 0, 0],
    ]
    assert costs.server_bytes_up.tolist() == [228, 416, 38, 140]
    assert costs.client.key_pairs[0].tolist() == [2, 2, 2]
    assert costs.client.key_agreements.tolist() == [
        [0, 0, 0],
        [1, 2, 1],
        [1, 2, 0],
        [0, 0, 0],
    ]
    # two secrets of nine limbs, t products for each of |Adj| + 1 shares
    assert costs.client.share_products[1].tolist() == [
        18 * 2 * 2,
        18 * 3 * 3,
        18 * 1 * 2,
    ]
    assert costs.client.encryptions.tolist() == [
        [0, 0, 0],
        [1, 2, 1],
        [1, 2, 0],
        [0, 0, 0],
    ]
    # two words a residue, pads of neighbours in V2 and one's own
    assert costs.client.prg_words[2].tolist() == [2 * 6, 3 * 6, 0]
    # the server: self pads of 0 and 1, the pair pad of 2 with 1, one agreement
    assert costs.server.prg_words.tolist() == [0, 0, 0, 3 * 6]
    assert costs.server.key_agreements.tolist() == [0, 0, 0, 1]
    products = sum(t * t + 9 * t for t in (2, 3, 1))
    assert costs.server.interpolation_products.tolist() == [0, 0, 0, products]


@pytest.mark.parametrize("last", [0, 1])
def test_clients_do_not_unmask_for_fewer_than_two(last: int) -> None:
    survivors = np.ones((5, 3), bool)
    survivors[3:, last:] = False
    costs = round_costs(_complete(3), survivors, 2, dim=4, modulus=2**16)
    assert costs.server_bytes_up[3] == 0
    assert costs.server.prg_words[3] == costs.server.key_agreements[3] == 0
    assert costs.server_bytes_up[2] == last * (16 + 8)


def test_nobody_costs_nothing() -> None:
    costs = round_costs(_complete(3), np.zeros((5, 3), bool), 2, dim=4, modulus=2**16)
    assert not costs.bytes_up.any()
    assert not costs.bytes_down.any()


def _counted(
    adjacency: np.ndarray, alive: np.ndarray, t: np.ndarray, d: int, ring: int
) -> dict:
    """The protocol walked through message by message, in plain Python."""
    n = len(adjacency)
    v = [{i for i in range(n) if row[i]} for row in alive]
    adj = [{j for j in range(n) if adjacency[i, j]} for i in range(n)]
    bits = math.ceil(math.log2(ring)) if ring & (ring - 1) else int(math.log2(ring))
    words = d if ring & (ring - 1) == 0 else 2 * d
    up, down = np.zeros((4, n), int), np.zeros((4, n), int)
    agreed, sealed, expanded = (np.zeros((4, n), int) for _ in range(3))
    for i in v[1]:
        up[0, i] = 8 + 4 + 64
        down[0, i] = 8 + 4 + sum(68 for j in adj[i] if j in v[1])
    for i in v[2]:
        up[1, i] = 8 + 4 + 4 + sum(4 + 88 for j in adj[i] if j in v[1])
        down[1, i] = 8 + 4 + sum(92 for j in adj[i] if j in v[2])
        agreed[1, i] = sealed[1, i] = len(adj[i] & v[1])
    for i in v[3]:
        up[2, i] = 8 + 4 + 4 + math.ceil(d * bits / 8)
        down[2, i] = 8 + 4 + 4 * len((adj[i] | {i}) & v[3])
        agreed[2, i] = sealed[2, i] = len(adj[i] & v[2])
        expanded[2, i] = words * (len(adj[i] & v[2]) + 1)
    server_words = server_agreed = 0
    if len(v[3]) >= 2:
        for i in v[4]:
            shares = len((adj[i] | {i}) & v[3]) + len(adj[i] & (v[2] - v[3]))
            up[3, i] = 8 + 4 + 4 + 4 + 40 * shares
        server_agreed = sum(1 for i in v[2] - v[3] for j in adj[i] & v[3])
        server_words = words * (len(v[3]) + server_agreed)
    return {
        "up": up,
        "down": down,
        "agreed": agreed,
        "sealed": sealed,
        "expanded": expanded,
        "server": (server_words, server_agreed),
    }


def _agree(costs: RoundCosts, wanted: dict) -> None:
    np.testing.assert_array_equal(costs.bytes_up, wanted["up"])
    np.testing.assert_array_equal(costs.bytes_down, wanted["down"])
    np.testing.assert_array_equal(costs.client.key_agreements, wanted["agreed"])
    np.testing.assert_array_equal(costs.client.encryptions, wanted["sealed"])
    np.testing.assert_array_equal(costs.client.prg_words, wanted["expanded"])
    assert (costs.server.prg_words[3], costs.server.key_agreements[3]) == wanted[
        "server"
    ]


def _random_round(
    rng: np.random.Generator, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    upper = np.triu(rng.random((n, n)) < rng.random(), 1)
    alive = np.logical_and.accumulate(
        rng.random((5, n)) < rng.uniform(0.5, 1.0), axis=0
    )
    return upper | upper.T, alive, rng.integers(1, n + 2, n)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 9),
    st.sampled_from([2, 3, 37, 2**16, 2**31 - 1, 2**32]),
)
def test_any_round_is_what_a_walk_through_the_messages_counts(
    seed: int, n: int, dim: int, ring: int
) -> None:
    adjacency, alive, t = _random_round(np.random.default_rng(seed), n)
    _agree(
        round_costs(adjacency, alive, t, dim, ring),
        _counted(adjacency, alive, t, dim, ring),
    )


@pytest.mark.parametrize("seed", range(12))
def test_bytes_are_those_that_the_protocol_really_sends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, dim, ring = (
        int(rng.integers(1, 9)),
        int(rng.integers(1, 9)),
        (37, 2**16, 2**11)[seed % 3],
    )
    adjacency, alive, t = _random_round(rng, n)
    inputs = rng.integers(0, ring, (n, dim))
    result = mj.protocol.run(inputs, adjacency, alive, t, modulus=ring, entropy=seed)
    costs = round_costs(adjacency, result.transcript.survivors, t, dim, ring)
    assert costs.server_bytes_up.tolist() == [step.bytes_up for step in result.steps]
    assert costs.server_bytes_down.tolist() == [
        step.bytes_down for step in result.steps
    ]
    assert costs.sends.sum(axis=-1).tolist() == [
        step.num_clients for step in result.steps
    ]
    assert tuple(step.name for step in result.steps) == STEPS


def _random_plan(rng: np.random.Generator, n: int) -> tuple[Block, ...]:
    """Two rows of blocks over random groups, of random widths and rings."""
    blocks, start = [], 0
    for _ in range(2):
        stop = start + int(rng.integers(1, 6))
        owner = rng.integers(0, int(rng.integers(1, 4)), n)
        for group in np.unique(owner).tolist():
            ring = int(rng.choice([2, 37, 221, 2**16, 2**32]))
            blocks.append(
                Block(tuple(np.flatnonzero(owner == group).tolist()), start, stop, ring)
            )
        start = stop
    return tuple(blocks)


@pytest.mark.smoke
def test_two_blocks_by_hand() -> None:
    """0, 1, 2 over 5 residues mod 16 and 0, 1 over 3 mod 37.

    2 is lost before its input.
    """
    plan = (Block((0, 1, 2), 0, 5, 16), Block((0, 1), 5, 8, 37), Block((2,), 5, 8, 3))
    survivors = np.ones((5, 3), bool)
    survivors[3:, 2] = False
    costs = round_costs(_complete(3), survivors, 2, plan=plan)
    assert costs.bytes_up[2].tolist() == [16 + 5, 16 + 5, 0]  # 20 + 18 bits
    assert costs.client.prg_words[2].tolist() == [3 * 5 + 2 * 6, 3 * 5 + 2 * 6, 0]
    assert costs.client.key_agreements[2].tolist() == [2, 2, 0]
    # both self pads in both blocks, 2's pads with each in the first
    assert costs.server.prg_words[3] == 2 * (5 + 6) + 2 * 5
    assert costs.server.key_agreements[3] == 2
    # without a block in common there is no pad, and no agreement, though there are
    # shares
    apart = (Block((0, 1), 0, 5, 16), Block((2,), 0, 5, 16))
    costs = round_costs(_complete(3), survivors, 2, plan=apart)
    assert costs.client.key_agreements[1:3].tolist() == [[2, 2, 2], [1, 1, 0]]
    assert costs.server.prg_words[3] == 2 * 5
    assert costs.server.key_agreements[3] == 0
    assert costs.server.interpolation_products[3] == 2 * (4 + 18)
    assert costs.bytes_up[3].tolist() == [20 + 3 * 40, 20 + 3 * 40, 0]


@pytest.mark.parametrize("seed", range(10))
def test_bytes_and_operations_of_plans_are_those_of_the_protocol(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keystream and agreements are counted where they happen."""
    rng = np.random.default_rng(100 + seed)
    n = int(rng.integers(2, 8))
    plan = _random_plan(rng, n)
    adjacency, alive, _ = _random_round(rng, n)
    words, agreed = [], []
    add, agree = mj.protocol._pads.PadSum.add, mj.protocol._primitives.KeyPair.agree

    def counted_add(self: typing.Any, *arguments: typing.Any) -> None:
        words.append(len(self._sum) * (1 if self._wraps else 2))
        add(self, *arguments)

    def counted_agree(self: typing.Any, *arguments: typing.Any) -> bytes:
        agreed.append(1)
        return agree(self, *arguments)

    monkeypatch.setattr(mj.protocol._pads.PadSum, "add", counted_add)
    monkeypatch.setattr(mj.protocol._primitives.KeyPair, "agree", counted_agree)
    # whoever is asked sends: no work of clients whose message is lost; loners are lost
    # late
    everybody = np.repeat(alive[3:4], 5, axis=0)
    inputs = np.zeros((n, max(block.stop for block in plan)), int)
    run = inspect.unwrap(mj.protocol.run)
    run(
        inputs,
        adjacency,
        everybody,
        1,
        plan=plan,
        entropy=seed,
        progress=lambda *_: None,
    )
    costs = round_costs(adjacency, everybody, 1, plan=plan)
    # afterwards the seeds of all pairs are collected, agreed where the clients had not
    assert sum(words) == costs.client.prg_words.sum() + costs.server.prg_words.sum()
    joined = adjacency & alive[3][:, None] & alive[3][None, :]
    shared = np.zeros((n, n), bool)
    for block in plan:
        shared[np.ix_(block.members, block.members)] = True
    late = int((joined & ~shared).sum()) // 2
    # the server tests whether a public key is of small order
    late += 2 * int(alive[3].sum())
    spent = costs.client.key_agreements.sum() + costs.server.key_agreements.sum()
    assert sum(agreed) == spent + late
    # and the bytes, with losses at every step
    result = run(inputs, adjacency, alive, 2, plan=plan, entropy=seed)
    costs = round_costs(adjacency, result.transcript.survivors, 2, plan=plan)
    assert costs.server_bytes_up.tolist() == [step.bytes_up for step in result.steps]
    assert costs.server_bytes_down.tolist() == [
        step.bytes_down for step in result.steps
    ]
    assert costs.sends.sum(axis=-1).tolist() == [
        step.num_clients for step in result.steps
    ]


def test_rounds_in_bulk_are_rounds_alone() -> None:
    rng = np.random.default_rng(1)
    parts = [_random_round(rng, 6) for _ in range(8)]
    adjacency, alive, t = (np.stack(part) for part in zip(*parts, strict=True))
    bulk = round_costs(adjacency, alive, t, 5, 2**16)
    for row, part in enumerate(parts):
        alone = round_costs(*part, 5, 2**16)
        np.testing.assert_array_equal(bulk.bytes_up[row], alone.bytes_up)
        np.testing.assert_array_equal(bulk.sends[row], alone.sends)
        for role in ("client", "server"):
            for field in dataclasses.fields(getattr(alone, role)):
                values = (
                    getattr(getattr(costs, role), field.name) for costs in (bulk, alone)
                )
                np.testing.assert_array_equal(next(values)[row], next(values))
    plan = _random_plan(rng, 6)
    bulk = round_costs(adjacency, alive, t, plan=plan)
    for row, part in enumerate(parts):
        alone = round_costs(*part, plan=plan)
        np.testing.assert_array_equal(bulk.bytes_up[row], alone.bytes_up)
        np.testing.assert_array_equal(
            bulk.server.prg_words[row], alone.server.prg_words
        )
    one_graph = round_costs(adjacency[0], alive, 2, 5, 2**16)
    assert one_graph.bytes_up.shape == one_graph.sends.shape == (8, 4, 6)
    one_history = round_costs(adjacency, alive[0], 2, 5, 2**16)
    assert one_history.bytes_up.shape == one_history.sends.shape == (8, 4, 6)


def _means(costs: RoundCosts) -> dict[str, np.ndarray]:
    """Return every quantity summed over clients, the server's interpolations apart."""
    clients = (costs.bytes_up, costs.bytes_down, costs.sends)
    parts = {
        name: part.sum(axis=-1)
        for name, part in zip(("up", "down", "sends"), clients, strict=True)
    }
    for role in ("client", "server"):
        for field in dataclasses.fields(getattr(costs, role)):
            if (role, field.name) != ("server", "interpolation_products"):
                values = getattr(getattr(costs, role), field.name)
                parts[f"{role} {field.name}"] = (
                    values.sum(axis=-1) if role == "client" else values
                )
    return parts


@pytest.mark.smoke
def test_without_dropouts_expectations_are_counts() -> None:
    """Complete, circulant of degree 4, no graph: all regular."""
    ring = np.zeros((7, 7), bool)
    for step in (1, 2):
        ring |= np.roll(np.eye(7, dtype=bool), step, 1) | np.roll(
            np.eye(7, dtype=bool), -step, 1
        )
    for adjacency, degree in (
        (_complete(7), 6),
        (ring, 4),
        (np.zeros((7, 7), bool), 0),
    ):
        counted = round_costs(adjacency, np.ones((5, 7), bool), 3, 11, 37)
        expected = expected_costs(7, degree, 3, 11, 37)
        for name, value in _means(counted).items():
            np.testing.assert_allclose(_means(expected)[name], value, err_msg=name)
        np.testing.assert_allclose(
            expected.server.interpolation_products,
            counted.server.interpolation_products,
        )


def test_expectations_equal_sums_over_every_graph_and_dropout_pattern() -> None:
    """n = 3, p = .4, q = .3.

    8 graphs, 5^3 histories, each with its chance. The last step is
    charged in rounds with |V3| < 2 too, so there the expectation lies above.
    """
    n, p, q, t = 3, 0.4, 0.3, 2
    upper = np.asarray(list(itertools.product((0, 1), repeat=3)))
    graphs = np.zeros((8, n, n), bool)
    graphs[:, *np.triu_indices(n, 1)] = upper
    graphs |= graphs.swapaxes(1, 2)
    leaves = np.asarray(list(itertools.product(range(1, 6), repeat=n)))  # 5: never
    alive = np.arange(5)[:, None] < leaves[:, None, :]
    chances = np.outer(
        np.where(upper, p, 1 - p).prod(axis=1),
        ((1 - q) ** np.minimum(leaves - 1, 4) * np.where(leaves < 5, q, 1)).prod(
            axis=1
        ),
    )
    assert chances.sum() == pytest.approx(1)
    counted = round_costs(
        np.repeat(graphs, 125, axis=0), np.tile(alive, (8, 1, 1)), t, 5, 2**16
    )
    got = _means(expected_costs(n, (n - 1) * p, t, 5, 2**16, step_dropout_rate=q))
    for name, values in _means(counted).items():
        wanted = chances.ravel() @ values
        np.testing.assert_allclose(got[name][:3], wanted[:3], rtol=1e-12, err_msg=name)
        assert got[name][3] >= wanted[3] * (1 - 1e-12), name


def test_fedavg_sends_residues_alone() -> None:
    plain = fedavg_costs(4, 7, 37)
    assert plain.bytes_up.tolist() == [
        [0] * 4,
        [0] * 4,
        [math.ceil(7 * 6 / 8)] * 4,
        [0] * 4,
    ]
    assert not plain.bytes_down.any()
    assert not plain.client.prg_words.any()
