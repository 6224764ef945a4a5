"""Arrays against messages.

`secagg.aggregate` with the seeds of `protocol.run`, bit for bit.
Every graph and every pattern of losses on up to four clients, up to renaming them (each
orbit once, under a random naming, because names decide signs), and random ones on up to
64 clients.
"""

import itertools

import numpy as np
import pytest

import mrsa_jax as mj

MODULI = (2, 2**16, 2**32, 3, 221, 2**31 - 1)


def orbits(n):
    """Return one (adjacency, fates) of each orbit under renaming.

    A fate is the last set, or -1.
    """
    pairs = list(itertools.combinations(range(n), 2))
    seen, found = set(), []
    names = list(itertools.permutations(range(n)))
    for edges in itertools.product([False, True], repeat=len(pairs)):
        graph = frozenset(
            pair for pair, there in zip(pairs, edges, strict=True) if there
        )
        for fates in itertools.product(range(-1, 5), repeat=n):
            if (graph, fates) in seen:
                continue
            found.append((graph, fates))
            for name in names:
                renamed = frozenset(tuple(sorted((name[i], name[j]))) for i, j in graph)
                moved = [0] * n
                for i, fate in enumerate(fates):
                    moved[name[i]] = fate
                seen.add((renamed, tuple(moved)))
    return found


def renamed(case, rng):
    """Return adjacency bool[n, n] and survivors bool[5, n] under a random naming."""
    graph, fates = case
    n = len(fates)
    name = rng.permutation(n)
    adjacency = np.zeros((n, n), bool)
    for i, j in graph:
        adjacency[name[i], name[j]] = adjacency[name[j], name[i]] = True
    survivors = np.zeros((5, n), bool)
    for i, fate in enumerate(fates):
        survivors[: fate + 1, name[i]] = True
    return adjacency, survivors


def check(adjacency, survivors, rng):
    """Run both with the same seeds and compare everything that both say."""
    n = len(adjacency)
    place = int(rng.integers(len(MODULI)))
    # each pair is a program to compile
    modulus, dim = MODULI[place], (1, 5, 40)[(place + n) % 3]
    inputs = rng.integers(0, modulus, (n, dim))
    inputs[:, 0] = modulus - 1
    degree = adjacency.sum(axis=1)
    thresholds = rng.integers(1, degree + 3)
    ours = int(rng.integers(2**32))
    real = mj.protocol.run(
        inputs,
        adjacency,
        survivors,
        thresholds,
        modulus=modulus,
        entropy=ours,
        round_index=ours,
    )
    array = mj.secagg.aggregate(
        ours,
        inputs,
        adjacency,
        survivors,
        thresholds,
        modulus=modulus,
        round_index=ours,
        seeds=real.seeds,
    )
    assert array.status == real.status
    assert np.array_equal(array.total, real.total)
    assert np.array_equal(array.transcript.padded_inputs, real.transcript.padded_inputs)
    assert np.array_equal(array.transcript.survivors, real.transcript.survivors)
    assert np.array_equal(
        array.transcript.is_informative, real.transcript.is_informative
    )
    assert np.array_equal(array.learned, real.learned)
    for field in ("is_reliable", "is_private", "unmasking_risk"):
        assert getattr(array, field) == getattr(real, field), field
    assert [(s.name, s.num_clients, s.bytes_up, s.bytes_down) for s in array.steps] == [
        (s.name, s.num_clients, s.bytes_up, s.bytes_down) for s in real.steps
    ]
    # and both against the plain sum
    sends = survivors[3]
    plain = inputs[sends].sum(axis=0) % modulus
    if real.status == mj.Status.OK:
        assert real.total.tolist() == plain.tolist()
    else:
        assert not real.total.any()
    return real.status


def test_the_orbits_are_all_there():
    """Burnside's count.

    The orbit sizes add up to all 8 x 6^3 patterns on three clients.
    """
    found = orbits(3)
    total = 0
    for graph, fates in found:
        images = set()
        for name in itertools.permutations(range(3)):
            edges = frozenset(tuple(sorted((name[i], name[j]))) for i, j in graph)
            images.add((edges, tuple(fates[name.index(k)] for k in range(3))))
        total += len(images)
    assert total == 8 * 6**3


@pytest.mark.long
def test_every_graph_and_loss_on_up_to_three_clients():
    rng = np.random.default_rng(0)
    seen = {check(*renamed(case, rng), rng) for n in (1, 2, 3) for case in orbits(n)}
    assert seen == {mj.Status.OK, mj.Status.UNRELIABLE, mj.Status.TOO_FEW_SURVIVORS}


@pytest.mark.slow
def test_every_graph_and_loss_on_four_clients():
    rng = np.random.default_rng(1)
    cases = orbits(4)
    assert len(cases) > 64 * 6**4 / 24
    for case in cases:
        check(*renamed(case, rng), rng)


def random_case(n, rng):
    """A random graph, mostly dense enough, and losses at every step."""
    adjacency = np.triu(rng.random((n, n)) < rng.choice([0.2, 0.6, 1.0]), 1)
    adjacency |= adjacency.T
    stays = rng.random((5, n)) > rng.choice([0.0, 0.05, 0.3])
    return adjacency, np.logical_and.accumulate(stays, axis=0)


@pytest.mark.long
@pytest.mark.parametrize("n", [5, 17])
def test_random_graphs_and_losses(n):
    rng = np.random.default_rng(n)
    for _ in range(8):
        check(*random_case(n, rng), rng)


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 6, 9, 16, 33, 64])
def test_many_random_graphs_and_losses(n):
    rng = np.random.default_rng(n)
    for _ in range(600 if n < 20 else 60):
        check(*random_case(n, rng), rng)
