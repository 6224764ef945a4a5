"""First exposures against exact elimination over the rationals, prefix by prefix."""

import functools
import sys
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.prime import PRIMES, fields, residues
from mrsa_jax._core.programs import LITTLE
from mrsa_jax.privacy import _exposure, first_exposure, strong_privacy_trajectory
from mrsa_jax.privacy._exposure_programs import first_rounds, first_rounds_by_kernel


def solvable(rows, client) -> bool:
    """Whether unit vector `client` is a rational combination of `rows` (Gauss-Jordan)."""
    basis: list[tuple[int, list[Fraction]]] = []

    def reduced(row):
        row = [Fraction(int(value)) for value in row]
        for pivot, vector in basis:
            factor = row[pivot]
            row = [a - factor * b for a, b in zip(row, vector, strict=True)]
        return row

    for row in rows:
        row = reduced(row)
        pivot = next((place for place, value in enumerate(row) if value), None)
        if pivot is not None:
            row = [value / row[pivot] for value in row]
            basis[:] = [
                (p, [a - v[pivot] * b for a, b in zip(v, row, strict=True)])
                for p, v in basis
            ]
            basis.append((pivot, row))
    unit = [int(place == client) for place in range(len(rows[0]))]
    return not any(reduced(unit))


def oracle(history) -> list[int]:
    rounds, clients = np.shape(history)
    found = [-1] * clients
    for j in range(rounds):
        for client in range(clients):
            if found[client] < 0 and solvable(history[: j + 1], client):
                found[client] = j
    return found


def cycle(length):
    return [
        [int(j in (i, (i + 1) % length)) for j in range(length)] for i in range(length)
    ]


# rank 4 mod 2
FANO = [[int((j - i) % 7 in (0, 1, 3)) for j in range(7)] for i in range(7)]
FIBONACCI = [
    [int(j == i + 1 or (j <= i and (i - j) % 2 == 0)) for j in range(8)]
    for i in range(8)
]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([[0.5, 1.0]], r"`P` must hold bools or integers; got \[0.5\]"),
        ([[np.nan, 1.0]], r"`P` must hold bools or integers; got \[nan\]"),
        ([1, 0], r"`P` must have at least 2 axes; got \(2,\)"),
        (np.zeros((4, 0), bool), r"`P` must not be empty; got \(4, 0\)"),
        (np.zeros((0, 4), bool), r"`P` must not be empty; got \(0, 4\)"),
    ],
)
def test_rejects_what_is_no_history(history, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        first_exposure(history)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([[0, 0, 0]], [-1, -1, -1]),
        ([[0, 1, 0]], [-1, 0, -1]),
        ([[1]], [0]),
        ([[1, 1], [0, 0], [1, 0]], [2, 2]),  # a skipped round between
        ([[1, 1], [1, 1], [1, 1]], [-1, -1]),  # repeated rows
        ([[1, 1, 1], [1, 1, 0]], [-1, -1, 1]),
        (FANO, [6] * 7),
        (cycle(5), [4] * 5),  # odd: full rank over the rationals, not mod 2
        (cycle(6), [-1] * 6),  # even: bipartite, nobody
        ([[2, 2], [3, 5]], [1, 1]),  # weights
        ([[1, -1], [1, 1]], [1, 1]),
        ([[3, 0], [1, 1]], [0, 1]),
        # of more than twice as many rounds as clients
        ([[0, 1], *[[1, 1]] * 4], [1, 0]),
    ],
)
def test_known_histories(history, expected):
    assert oracle(history) == expected
    assert first_exposure(history).tolist() == expected
    with mj.use_form("loops"):
        assert first_exposure(history).tolist() == expected


def test_fibonacci_coefficients():
    assert first_exposure(FIBONACCI).tolist() == oracle(FIBONACCI)


def test_blocks_that_only_move_together_are_never_exposed():
    rng = np.random.default_rng(0)
    history = np.repeat(rng.integers(0, 2, (20, 4)), 3, axis=1)
    assert first_exposure(history).tolist() == [-1] * 12


def test_primes_that_are_known_beforehand_deceive_nobody():
    p, q = PRIMES
    assert first_exposure([[p * q, 1]]).tolist() == [-1, -1]
    assert first_exposure([[p * q, 0], [1, 1]]).tolist() == [0, 1]
    assert first_exposure([[1, 1 + p * q], [1, 1]]).tolist() == [1, 1]
    # mod p the row is (1, 0): the client would seem to be exposed
    assert first_exposure([[1, p]]).tolist() == [-1, -1]
    assert first_exposure([[q, 1]]).tolist() == [-1, -1]
    # mod p the row vanishes, and with it the rank: the other prime decides
    assert first_exposure([[p, 0], [1, 1]]).tolist() == [0, 1]
    assert first_exposure([[q, 0], [1, 1]]).tolist() == [0, 1]


@pytest.mark.parametrize("form", ["loops", "xla"])
def test_primes_that_err_do_not_decide_where_another_has_a_larger_rank(
    form, monkeypatch
):
    monkeypatch.setattr(_exposure, "draw_primes", lambda _: PRIMES)
    batch = np.array(
        [[[P, 0, 1], [1, 1, 0], [0, 1, 1]], [[Q, 0, 0], [1, 1, 0], [2, 3, P + 1]]]
    )
    with mj.use_form(form):
        assert first_exposure(batch).tolist() == [
            by_primes(own, PRIMES) for own in batch.tolist()
        ]


@pytest.mark.long
@hypothesis.given(st.integers(0, 2**32 - 1))
def test_random_histories_equal_the_rationals(seed):
    rng = np.random.default_rng(seed)
    history = (rng.random((7, 6)) < rng.uniform(0.2, 0.7)).astype(int)
    history[rng.integers(7)] = 0
    if seed % 3 == 0:
        history *= rng.integers(-3, 4, (7, 6))
    expected = oracle(history)
    for form in ("loops", "xla"):
        with mj.use_form(form):
            assert first_exposure(history).tolist() == expected


@pytest.mark.long
def test_rows_of_a_batch_equal_single_histories_and_types_do_not_matter():
    rng = np.random.default_rng(1)
    batch = rng.random((2, 3, 9, 6)) < 0.4
    found = first_exposure(batch)
    assert found.shape == (2, 3, 6)
    assert found.dtype == jnp.int32
    for index in [(0, 0), (1, 2)]:
        assert found[index].tolist() == first_exposure(batch[index]).tolist()
        assert found[index].tolist() == oracle(batch[index])
    assert np.array_equal(first_exposure(batch.astype(np.int8)), found)
    assert np.array_equal(first_exposure(jnp.asarray(batch)), found)
    assert np.array_equal(first_exposure(batch.astype(float)), found)
    assert np.array_equal(jax.jit(first_exposure)(jnp.asarray(batch)), found)
    with jax.enable_x64(True):
        assert np.array_equal(first_exposure(batch.astype(np.int64)), found)


@pytest.mark.long
def test_relabelling_clients_permutes_the_answer():
    rng = np.random.default_rng(2)
    history = rng.random((12, 10)) < 0.3
    order = rng.permutation(10)
    assert np.array_equal(
        first_exposure(history[:, order]), first_exposure(history)[order]
    )


def test_all_are_exposed_at_once_when_the_rank_is_full():
    rng = np.random.default_rng(3)
    history = np.zeros((60, 40), bool)
    for row in history:
        row[rng.choice(40, 8, replace=False)] = True
    ranks = mj.modular.rank_trajectory(history).tolist()
    full = ranks.index(40)
    found = first_exposure(history)
    assert int(found.max()) == full
    assert int(found.min()) >= 0


@pytest.mark.long
@pytest.mark.parametrize("weights", [2, 40])
def test_rounds_left_out_change_nothing(weights):
    """Many rounds, most of which add nothing, in a batch with histories that expose nobody."""
    generator = np.random.default_rng(weights)
    single = generator.integers(0, weights, (3, 30, 6)) * (
        generator.random((3, 30, 6)) < 0.3
    )
    whole_blocks = np.repeat(generator.integers(0, 2, (2, 30, 3)), 2, axis=2)
    batch = np.concatenate([single, whole_blocks])[[0, 3, 1, 4, 2]]
    found = np.asarray(first_exposure(batch))
    assert found.dtype == np.int32
    assert found.tolist() == [oracle(history) for history in batch]
    assert (found[[1, 3]] == -1).all()
    assert (found[[0, 2, 4]] >= 0).any()
    # a traced history keeps every round, as nothing is known of its values
    traced = jax.jit(first_exposure)(jnp.asarray(batch, jnp.int32))
    assert (np.asarray(traced) == found).all()


@pytest.mark.long
def test_very_many_clients_are_the_classes_of_equal_columns():
    """Whoever shares a column is never exposed.

    The others as in the matrix of the classes.
    """
    generator = np.random.default_rng(7)
    for _ in range(4):
        sizes = np.where(np.arange(9) < 6, 1, 900)
        classes = generator.integers(0, 3, (8, 9)) * (generator.random((8, 9)) < 0.5)
        label = generator.permutation(np.repeat(np.arange(9), sizes))
        expected = np.asarray(oracle(classes))
        expected[sizes > 1] = -1
        # the columns of two classes may be equal: then neither is alone
        _, place, count = np.unique(
            classes, axis=1, return_inverse=True, return_counts=True
        )
        assert (expected[count[place.ravel()] > 1] == -1).all()
        found = np.asarray(first_exposure(classes[:, label]))
        assert found.tolist() == expected[label].tolist()


def test_little_does_not_wait_for_numba_and_much_goes_by_its_loops(monkeypatch):
    """One history of few clients, and as many of it as are no longer little."""
    history = np.tri(8, dtype=bool)
    many = np.stack([history] * (LITTLE // history.size + 1))
    gone = []
    monkeypatch.setattr(
        _exposure, "follow", lambda histories, *_: gone.append(len(histories))
    )
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert first_exposure(history).tolist() == list(range(8))
    assert not gone
    first_exposure(many)
    assert sum(gone) == len(many)


def test_memory_is_that_of_the_rounds_and_not_of_pairs_of_clients():
    shape = jax.ShapeDtypeStruct((1, 2, 20, 50_000), jnp.uint32)
    needed = (
        first_rounds.in_full.lower(shape, fields(PRIMES), 1).compile().memory_analysis()
    )
    in_all = needed.temp_size_in_bytes + needed.output_size_in_bytes
    assert in_all < 8 * np.prod(shape.shape) * 4


def unit_rows(rows, prime) -> tuple[int, set[int]]:
    """The rank of residues, and which unit vectors are combinations of them, by Gauss-Jordan."""
    rows = [[int(value) % prime for value in row] for row in rows]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        inverse = pow(rows[rank][column], -1, prime)
        rows[rank] = [value * inverse % prime for value in rows[rank]]
        for i, row in enumerate(rows):
            if i != rank and row[column]:
                factor = row[column]
                rows[i] = [
                    (a - factor * b) % prime
                    for a, b in zip(row, rows[rank], strict=True)
                ]
        rank += 1
    alone = [row for row in rows if sum(value != 0 for value in row) == 1]
    return rank, {next(i for i, value in enumerate(row) if value) for row in alone}


def by_primes(history, primes) -> list[int]:
    """The rule: from the first round on in which all primes of the largest rank agree."""
    clients = len(history[0])
    found = [-1] * clients
    for j in range(len(history)):
        verdicts = [unit_rows(history[: j + 1], prime) for prime in primes]
        best = max(rank for rank, _ in verdicts)
        for i in range(clients):
            agreed = all(i in units for rank, units in verdicts if rank == best)
            found[i] = j if agreed and found[i] < 0 else found[i]
    return found


P, Q = PRIMES
EDGES = [
    0,
    0,
    1,
    1,
    2,
    P,
    Q,
    P - 1,
    Q - 1,
    P + 1,
    Q + 1,
    P // 2,
    2**31 - 1,
    -1,
    -P,
    P * Q,
    P * Q + 1,
]


def ragged(count, rounds, clients, seed) -> np.ndarray:
    """Histories of all sizes up to these, of weights at the primes' edges, with equal columns."""
    generator = np.random.default_rng(seed)
    found = np.zeros((count, rounds, clients), np.int64)
    for number in range(count):
        j, n = generator.integers(1, rounds + 1), generator.integers(1, clients + 1)
        kinds = [generator.choice(EDGES, (j, n)), generator.integers(0, 2, (j, n))]
        history = kinds[number % 2] * (generator.random((j, n)) < 0.6)
        if number % 3 == 0:
            history[:, generator.integers(n)] = history[:, generator.integers(n)]
        if number % 5 == 0:
            history[generator.integers(j)] = 0
        found[number, :j, generator.permutation(clients)[:n]] = history.T
    return found


def programs(form):
    """The programs of a form, by how many histories go at once."""
    if form == "pallas":
        return [first_rounds_by_kernel]
    return [functools.partial(first_rounds, tile=tile) for tile in (1, 4)]


@pytest.mark.long
@pytest.mark.parametrize("form", ["xla", "pallas"])
def test_all_forms_follow_the_rule_of_the_primes(form):
    """Two primes that divide entries and minors, so that their ranks and verdicts differ."""
    for shape in [(40, 7, 6), (7, 1, 1), (6, 2, 5)]:
        histories = ragged(*shape, seed=sum(shape))
        expected = [by_primes(history.tolist(), PRIMES) for history in histories]
        rows = jnp.stack([residues(histories, prime) for prime in PRIMES], axis=1)
        ones = (histories % 2).astype(np.uint8)
        of_ones = [by_primes(history.tolist(), PRIMES) for history in ones]
        for program in programs(form):
            assert program(rows, fields(PRIMES)).tolist() == expected
            assert (
                program(jnp.asarray(ones)[:, None], fields(PRIMES)).tolist() == of_ones
            )
        if form == "pallas":  # interpreted, and compiled for each shape
            break


@pytest.mark.long
@pytest.mark.parametrize("clients", [127, 128, 129])
def test_forms_agree_at_the_kernels_largest_width(clients):
    """Above it the array program runs; a batch, a row more than the clients that show."""
    generator = np.random.default_rng(clients)
    history = np.concatenate([np.tri(5, clients, clients - 5), np.eye(5, clients, 1)])
    batch = np.stack([history, history[generator.permutation(10)]]).astype(np.int64) * [
        [[3]]
    ]
    found = {}
    for form in ("xla", "pallas"):
        with mj.use_form(form):
            found[form] = first_exposure(jnp.asarray(batch, jnp.int32)).tolist()
    assert found["xla"] == found["pallas"]
    assert found["xla"] == [by_primes(each.tolist(), PRIMES) for each in batch]


def two_devices():
    """Or the only one."""
    shape = (min(2, jax.device_count()),)
    return jax.make_mesh(shape, ("d",), axis_types=(jax.sharding.AxisType.Auto,))


@pytest.mark.long
@pytest.mark.parametrize("form", ["xla", "pallas"])
def test_inside_a_callers_transformations(form):
    generator = np.random.default_rng(5)
    batch = jnp.asarray(generator.random((4, 7, 6)) < 0.3)
    expected = first_exposure(batch).tolist()
    mesh = two_devices()
    specs = {"mesh": mesh, "in_specs": jax.P("d"), "out_specs": jax.P("d")}
    # interpreted, a kernel's program index is the same on all devices and its data are
    # not
    each = jax.shard_map(first_exposure, **specs, check_vma=form != "pallas")
    strong = jax.jit(jax.shard_map(strong_privacy_trajectory, **specs))(batch)
    assert strong.tolist() == strong_privacy_trajectory(batch).tolist()
    with mj.use_form(form):
        assert jax.jit(jax.vmap(first_exposure))(batch).tolist() == expected
        assert jax.jit(each)(batch).tolist() == expected


@pytest.mark.long
def test_histories_of_a_device_may_be_mapped():
    """Over a mesh, and each device maps its own; what varies over the mesh is checked."""
    batch = np.random.default_rng(6).random((4, 5, 6)) < 0.3
    mesh = two_devices()
    own = jax.shard_map(
        jax.vmap(first_exposure), mesh=mesh, in_specs=jax.P("d"), out_specs=jax.P("d")
    )
    with mj.use_form("xla"):
        assert (
            jax.jit(own)(jnp.asarray(batch)).tolist() == first_exposure(batch).tolist()
        )
