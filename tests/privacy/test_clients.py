"""Each client's own T by exhaustion over supports, and the coalitions that expose it."""

import itertools

import jax
import numpy as np
import pytest
import row_space_oracle as oracle
import weak_families as families

import mrsa_jax as mj
from mrsa_jax.privacy import _clients, client_privacy, first_exposure, weak_privacy
from mrsa_jax.privacy.solver import Through, _through, collapse, ranks_of

P = [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 1]]


def own_privacy(matrix):
    """T_i of each client by its definition.

    The smallest S with a v on it that is not 0 at i.
    There is one exactly if the columns outside S do not span column i: it adds to their
    rank.
    """
    rows = oracle.as_rows(matrix)
    clients = len(rows[0])
    found = [-1] * clients
    for size in range(1, clients + 1):
        for support in itertools.combinations(range(clients), size):
            wanted = [i for i in support if found[i] < 0]
            outside = [j for j in range(clients) if j not in support]
            left = (
                oracle.rank([[row[j] for j in outside] for row in rows])
                if wanted
                else 0
            )
            for i in wanted:
                if (
                    oracle.rank([[row[j] for j in (*outside, i)] for row in rows])
                    > left
                ):
                    found[i] = size
    return found


def small_matrices():
    draw = np.random.default_rng(5)
    for _ in range(60):
        matrix = (
            draw.random((draw.integers(1, 8), 7)) < draw.uniform(0.2, 0.8)
        ).astype(int)
        if draw.random() < 0.4:
            matrix *= draw.integers(-4, 5, matrix.shape)
        if draw.random() < 0.4:
            matrix[:, draw.integers(7)] = matrix[:, draw.integers(7)]
        yield matrix.tolist()
    # an entry that the walk's prime divides
    yield [[8191, 1, 1, 0, 0], [0, 1, 1, 0, 0]]
    yield [[8191, 1, 1, 0, 0], [0, 1, 2, 1, 0], [0, 1, 3, 0, 1]]
    yield [[10**30, 1, 0, 0], [1, 10**31, 1, 1]]
    yield families.incidence(families.cycle(7))
    yield families.incidence(families.cycle(6))
    yield families.incidence(families.complete(4))
    yield families.incidence(families.bipartite(3, 3))
    yield np.pad(np.eye(3, dtype=int), ((0, 0), (0, 3))).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"P": np.ones((2, 2, 2), bool)}, "`P` must have two axes"),
        ({"P": [[0.5]]}, "`P` must hold bools or integers"),
        ({"effort": -1}, "`effort` must be a finite number of at least 0; got -1"),
        ({"coalition": range(5)}, "`coalition` must leave a client out; got 'all 5'"),
    ],
)
def test_rejects_what_makes_no_sense(arguments, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        client_privacy(**({"P": P} | arguments))


@pytest.mark.smoke
def test_asks_for_known_clients():
    found = client_privacy(np.pad(P, ((0, 0), (0, 1))))
    for client in (-1, 6, 1.0, "a"):
        with pytest.raises(mj.ConfigurationError, match="`client` must"):
            found.coalition(client)
        with pytest.raises(mj.ConfigurationError, match="`client` must"):
            found.sentence(client)
    with pytest.raises(
        mj.ConfigurationError, match="`client` must have taken part in a sum; got 5"
    ):
        found.coalition(5)
    with pytest.raises(mj.ConfigurationError, match="`names` must name all 6 clients"):
        found.sentence(0, ["a"])
    with pytest.raises(mj.ConfigurationError, match="`P` must be known, not traced"):
        jax.jit(lambda own: client_privacy(own).lower)(np.asarray(P))


def checked(matrix, found):
    """Check every witness in Python's integers, and the interval against the definition."""
    rows = oracle.as_rows(matrix)
    for i, (support, witness) in enumerate(
        zip(found.supports, found.witnesses, strict=True)
    ):
        if not support:
            assert (found.lower[i], found.upper[i], found.certified[i]) == (
                -1,
                -1,
                False,
            )
            continue
        values = oracle.combination(witness, rows)
        assert tuple(j for j, value in enumerate(values) if value) == support
        assert i in support
        assert len(support) == found.upper[i]
        assert 1 <= found.lower[i] <= found.upper[i]
        assert not found.certified[i] or found.lower[i] == found.upper[i]


@pytest.mark.long
def test_each_is_that_of_the_definition():
    for matrix in small_matrices():
        expected = own_privacy(matrix)
        found = client_privacy(matrix)
        checked(matrix, found)
        assert found.lower.tolist() == found.upper.tolist() == expected, matrix
        assert found.certified.tolist() == [t > 0 for t in expected], matrix
        assert found.error_bits is None
        known = [t for t in expected if t > 0]
        assert min(known, default=None) == oracle.weak_privacy(matrix)
        cheap = client_privacy(matrix, effort=0)
        checked(matrix, cheap)
        assert (cheap.lower <= expected).all()
        assert (cheap.upper >= expected).all()


def test_the_smallest_coalition_has_one_fewer():
    for matrix in itertools.islice(small_matrices(), 12):
        found = client_privacy(matrix)
        clients = range(len(matrix[0]))
        for i in np.flatnonzero(found.upper > 0).tolist():
            own = found.coalition(i)
            assert len(own) == found.upper[i] - 1
            assert weak_privacy(matrix, coalition=own).exposed.count(i) == 1
            others = [j for j in clients if j != i]
            for fewer in itertools.combinations(others, max(0, len(own) - 1)):
                left = [j for j in clients if j not in fewer]
                exposed = oracle.exposed([[row[j] for j in left] for row in matrix])
                assert not own or i not in [left[k] for k in exposed]


def test_a_coalition_of_some_counts_as_absent():
    for matrix in itertools.islice(small_matrices(), 8):
        for members in ((0,), (1, 4)):
            left = np.delete(np.asarray(matrix), members, axis=1)
            others = [i for i in range(len(matrix[0])) if i not in members]
            found = client_privacy(matrix, coalition=members)
            assert found.upper[others].tolist() == own_privacy(left.tolist())
            assert (found.upper[list(members)] == -1).all()


@pytest.mark.long
def test_blocks_and_random_cohorts():
    available = mj.availability.independent(0.2)
    blocks = mj.selection.rollout(
        0, mj.selection.batch_partitioning(40, 8, 4), available, 60
    )
    found = client_privacy(blocks)
    assert (found.upper == 4).all()
    assert found.certified.all()
    assert found.coalition(5) == (4, 6, 7)
    cohorts = np.asarray(
        mj.selection.rollout(0, mj.selection.uniform(30, 5), available, 28)
    )
    found = client_privacy(cohorts, effort=0.1)
    assert found.certified.all()
    assert found.lower.min() == weak_privacy(cohorts).lower
    for i in range(0, 30, 7):
        first = np.asarray(first_exposure(cohorts, coalition=found.coalition(i)))
        assert first[i] >= 0


@pytest.mark.long
def test_what_the_primes_say_of_accidents(monkeypatch):
    """Where independent sets look dependent in the walk, it is done again, or claims nothing."""
    matrix = np.asarray(families.incidence(families.cycle(9)))[:5]
    monkeypatch.setattr(_through, "folded", lambda small, *_: 0 * small[:, :3])
    groups = collapse(matrix)
    ranks = ranks_of(groups.matrix)
    through = Through(groups.matrix[ranks.kept], groups.sizes, ranks.minor_bits)
    assert not through.search(4, 1.0)
    assert (through.lower == groups.sizes).all()


def test_primes_that_prove_nothing_say_so(monkeypatch):
    monkeypatch.setattr(_through, "_MOST_PRIMES", 0)
    found = client_privacy([[1, 1, 0, 0, 1], [0, 1, 1, 1, 1], [1, 0, 0, 1, 1]])
    expected = own_privacy([[1, 1, 0, 0, 1], [0, 1, 1, 1, 1], [1, 0, 0, 1, 1]])
    assert found.lower.tolist() == found.upper.tolist() == expected
    if found.error_bits is not None:
        assert found.error_bits >= 40
        assert not found.certified[found.upper > 1].any()


@pytest.mark.smoke
def test_sentences():
    found = client_privacy([[1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1, 0]])
    assert found.sentence(5) == "5 is exposed: no client need join the server"
    assert found.sentence(0) == "0 is exposed if these four join the server: 1, 2, 3, 4"
    assert found.sentence(6, "abcdefg") == "g is in no sum that is left to learn from"
    assert str(found) == found.sentence(5)
    one = client_privacy([[1, 1]])
    assert str(one) == (
        "0 is exposed if this client joins the server: 1\n"
        "1 is exposed if this client joins the server: 0"
    )
    assert str(client_privacy([[0, 0]])) == "no client is in a sum"
    open_ones = _clients.ClientPrivacy(
        np.array([3]),
        np.array([6]),
        np.array([False]),
        ((0, 1, 2, 3, 4, 5),),
        ((1,),),
        None,
    )
    padded = [*open_ones.supports, *[()] * 5]
    wide = _clients.ClientPrivacy(
        np.array([3] + [-1] * 5),
        np.array([6] + [-1] * 5),
        np.zeros(6, bool),
        tuple(padded),
        ((1,),) + ((),) * 5,
        None,
    )
    said = (
        "0 is exposed if these 5 join the server: 1, 2, 3, 4, 5 (fewer than 2 cannot)"
    )
    assert wide.sentence(0) == said


@pytest.mark.slow
def test_many_small_matrices():
    """Bounds on both sides of the definition.

    They meet but for entries that 8191 divides.
    """
    draw = np.random.default_rng(11)
    for _ in range(4000):
        shape = draw.integers(1, 9), draw.integers(2, 10)
        matrix = (draw.random(shape) < draw.uniform(0.15, 0.85)).astype(int)
        if draw.random() < 0.4:
            matrix *= draw.integers(-5, 6, shape)
        for _ in range(draw.integers(0, 3)):
            matrix[:, draw.integers(shape[1])] = matrix[:, draw.integers(shape[1])]
        is_divided = draw.random() < 0.1
        if is_divided:
            matrix *= draw.choice([1, 8191, 2, 3 * 8191], shape)
        expected = own_privacy(matrix.tolist())
        found = client_privacy(matrix)
        checked(matrix.tolist(), found)
        assert (found.lower <= expected).all()
        assert (found.upper >= expected).all()
        assert is_divided or found.lower.tolist() == found.upper.tolist() == expected
