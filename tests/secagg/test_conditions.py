"""Theorems 1 and 2 as predicates.

Misuse, rounds worked by hand, and the oracle of the pads.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError, graphs
from mrsa_jax._core.arrays import on_device
from mrsa_jax.secagg import (
    check_round,
    is_private,
    is_reliable,
    learned_sets,
    unmasking_risk,
)
from mrsa_jax.secagg._conditions import _informative, learnt_components

_PATH = pathlib.Path(__file__).with_name("pad_oracle.py")
_SPEC = importlib.util.spec_from_file_location("pad_oracle", _PATH)
oracle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(oracle)

EVERYBODY = np.ones((5, 3), bool)
PATH = np.asarray([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool)


def informative(adjacency: Any, survivors: Any, thresholds: Any) -> Any:
    """Mark the clients of whom enough shares came back."""
    return np.asarray(_informative(*_on_device(adjacency, survivors, thresholds)))


def components(adjacency: Any, survivors: Any, thresholds: Any) -> Any:
    """Label the learnt components of a round."""
    return np.asarray(learnt_components(*_on_device(adjacency, survivors, thresholds)))


def _on_device(*round_: Any) -> Any:
    return map(on_device, check_round(*round_))


ALL = [is_reliable, is_private, learned_sets, check_round]


def _graph(n: int, *pairs: tuple[int, int]) -> np.ndarray:
    matrix = np.zeros((n, n), bool)
    for i, j in pairs:
        matrix[i, j] = matrix[j, i] = True
    return matrix


def _alive(n: int, **lost_after: int) -> np.ndarray:
    """Everybody there but client c<i>, who is in V_0 to V_s only."""
    alive = np.ones((5, n), bool)
    for name, last in lost_after.items():
        alive[last + 1 :, int(name[1:])] = False
    return alive


def _changed(array: np.ndarray, at: Any, value: Any) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


BAD = [
    ({"thresholds": 0}, r"`thresholds` must lie in \[1, 2\*\*31\); got 0"),
    ({"thresholds": [1, -2, 3]}, r"`thresholds` must lie in \[1, 2\*\*31\); got -2"),
    ({"thresholds": 2**31}, r"`thresholds` must lie in \[1, 2\*\*31\); got 2147483648"),
    (
        {"thresholds": 2**70},
        "`thresholds` must be an integer; got 1180591620717411303424",
    ),
    ({"thresholds": 1.0}, "`thresholds` must be an integer; got 1.0"),
    ({"thresholds": np.nan}, "`thresholds` must be an integer; got nan"),
    ({"thresholds": True}, "`thresholds` must be an integer; got True"),
    ({"thresholds": [True] * 3}, "`thresholds` must hold integers"),
    ({"thresholds": [1.5, 2, 2]}, "`thresholds` must hold integers"),
    (
        {"thresholds": [1, 2]},
        r"`thresholds` must be one for all or .* 3 clients; got 'shape \(2,",
    ),
    ({"adjacency": PATH.astype(int)}, "`adjacency` must hold bools; got 'int64'"),
    (
        {"adjacency": PATH[:2]},
        r"`adjacency` must be a square matrix; got 'shape \(2, 3\)'",
    ),
    (
        {"adjacency": PATH[0]},
        r"`adjacency` must be a square matrix; got 'shape \(3,\)'",
    ),
    (
        {"adjacency": _changed(PATH, (1, 1), True)},
        "must not join a client to itself; got 'client 1'",
    ),
    (
        {"adjacency": _changed(PATH, (2, 1), False)},
        "must be symmetric; got 'only 1 -> 2'",
    ),
    ({"survivors": EVERYBODY.astype(int)}, "`survivors` must hold bools; got 'int64'"),
    (
        {"survivors": EVERYBODY[:4]},
        r"`survivors` must have shape \(5, 3\).*; got \(4, 3\)",
    ),
    (
        {"survivors": EVERYBODY[:, :2]},
        r"`survivors` must have shape \(5, 3\).*; got \(5, 2\)",
    ),
    (
        {"survivors": EVERYBODY[0]},
        r"`survivors` must have shape \(5, 3\).*; got \(3,\)",
    ),
    (
        {"survivors": _changed(EVERYBODY, (2, 1), False)},
        "`survivors` must be nested.*; got 'client 1 in V_3 and not in V_2'",
    ),
]


@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize(("change", "words"), BAD)
def test_misuse_is_named(function: Any, change: dict[str, Any], words: str) -> None:
    arguments = {"adjacency": PATH, "survivors": EVERYBODY, "thresholds": 2} | change
    with pytest.raises(ConfigurationError, match=words):
        inspect.unwrap(function)(**arguments)


def test_risk_is_checked_too() -> None:
    for change in ({"thresholds": 0}, {"thresholds": [1, 2]}, {"adjacency": PATH[:2]}):
        with pytest.raises(ConfigurationError, match="must"):
            unmasking_risk(**({"adjacency": PATH, "thresholds": 2} | change))


def test_leading_axes_must_fit() -> None:
    for arguments in (
        (np.stack([PATH] * 2), np.stack([EVERYBODY] * 3), 2),
        (np.stack([PATH] * 2), EVERYBODY, np.full((3, 3), 2)),
    ):
        with pytest.raises(
            ConfigurationError, match="`survivors` must have leading axes"
        ):
            is_reliable(*arguments)
    for function in (learned_sets, check_round):
        with pytest.raises(
            ConfigurationError, match=r"must be a square|must have shape"
        ):
            function(np.stack([PATH] * 2), EVERYBODY, 2)
        with pytest.raises(ConfigurationError, match="must have shape"):
            function(PATH, np.stack([EVERYBODY] * 2), 2)
        with pytest.raises(ConfigurationError, match="must be one for all or"):
            function(PATH, EVERYBODY, np.full((2, 3), 2))


def test_checked_rounds_are_numpy_arrays_of_their_own() -> None:
    thresholds = np.asarray([1, 2, 3], np.int64)
    graph, alive, limits = check_round(on_device(PATH), EVERYBODY.tolist(), thresholds)
    assert isinstance(graph, np.ndarray)
    assert (graph == PATH).all()
    assert (alive == EVERYBODY).all()
    assert limits.dtype == np.int32
    assert limits.tolist() == [1, 2, 3]
    for one in (2, np.int64(2), np.uint8(2), jnp.int32(2)):
        assert check_round(PATH, EVERYBODY, one)[2].tolist() == [2, 2, 2]


def test_verdicts_are_python_bools() -> None:
    assert is_reliable(PATH, EVERYBODY, 2) is True
    assert is_reliable(PATH, EVERYBODY, 3) is False
    assert is_private(PATH, EVERYBODY, 3) is True


# -- rounds worked by hand
# ------------------------------------------------------------------------


@pytest.mark.smoke
def test_own_share_counts() -> None:
    """The ends of a path of three hold two shares each, their own among them."""
    assert informative(PATH, EVERYBODY, 2).tolist() == [True, True, True]
    assert informative(PATH, EVERYBODY, 3).tolist() == [False, True, False]
    assert informative(PATH, _alive(3, c0=3), 2).tolist() == [False, True, True]


def test_lost_neighbour_must_be_informative() -> None:
    """Client 1 was lost after sharing.

    The pads that it shares with 0 and 2 need its key.
    """
    lost = _alive(3, c1=2)
    assert is_reliable(PATH, lost, [1, 2, 1])
    assert not is_reliable(PATH, lost, [1, 3, 1])
    assert is_private(PATH, lost, [1, 3, 1])  # it protects both components
    assert not is_private(PATH, lost, [1, 2, 1])
    assert learned_sets(PATH, lost, [1, 2, 1]).astype(int).tolist() == [
        [1, 0, 0],
        [0, 0, 1],
    ]


def test_lost_before_sharing_does_not_matter() -> None:
    assert is_reliable(PATH, _alive(3, c1=1), [1, 9, 1])
    assert not is_private(PATH, _alive(3, c1=1), [1, 9, 1])


def test_lost_and_not_adjacent_to_the_sum_does_not_matter() -> None:
    """Of the path 0-1-2, 0 and 1 were lost after sharing: nothing that is left needs 0."""
    lost = _alive(3, c0=2, c1=2)
    assert is_reliable(PATH, lost, [9, 1, 1])
    assert not is_reliable(PATH, lost, [1, 9, 1])


def test_threshold_above_the_shares_is_never_reached() -> None:
    graph = graphs.complete(3).sample(jax.random.key(0))
    assert is_reliable(graph, EVERYBODY, 3)
    for t in (4, 5, 2**31 - 1):
        assert not is_reliable(graph, EVERYBODY, t)
        assert is_private(graph, EVERYBODY, t)
        assert learned_sets(graph, EVERYBODY, t).shape == (0, 3)


def test_empty_and_single_sums() -> None:
    for n in (1, 2, 3):
        graph, nobody = ~np.eye(n, dtype=bool), np.zeros((5, n), bool)
        single = _changed(nobody, (slice(None), 0), True)
        for alive in (nobody, single, _changed(nobody, 0, True)):
            assert is_private(graph, alive, 1)
            assert is_reliable(graph, alive, 1)
            assert (components(graph, alive, 1) == -1).all()
            assert learned_sets(graph, alive, 1).shape == (0, n)
        assert not is_reliable(graph, single, 2)


def test_single_client_among_others_is_exposed() -> None:
    graph = _graph(3, (0, 2))
    assert not is_private(graph, EVERYBODY, 1)
    assert is_reliable(graph, EVERYBODY, 1)
    assert learned_sets(graph, EVERYBODY, 1).astype(int).tolist() == [
        [1, 0, 1],
        [0, 1, 0],
    ]
    assert not is_reliable(graph, EVERYBODY, 2)
    assert components(graph, EVERYBODY, 2).tolist() == [0, -1, 0]
    assert not is_private(graph, EVERYBODY, 2)


def test_risk_is_half_of_the_holders() -> None:
    graph = _graph(5, (0, 1), (0, 2), (0, 3))  # holders: 4, 2, 2, 2, 1
    assert unmasking_risk(graph, 2).tolist() == [True, False, False, False, False]
    assert unmasking_risk(graph, [3, 1, 2, 1, 1]).tolist() == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert not unmasking_risk(graph, 2**31 - 1).any()


# -- readings that are rejected (docs/errata.md)
# ----------------------------------------------


def test_reading_without_the_own_share_is_another_one() -> None:
    """Two clients, t = 2.

    With their own shares the sum is unmasked, without them it is not.
    """
    pair, alive = _graph(2, (0, 1)), np.ones((5, 2), bool)
    assert frozenset({0, 1}) in oracle.given_away(pair, alive, [2, 2])
    assert oracle.given_away(pair, alive, [2, 2], own=False) == set()
    assert is_reliable(pair, alive, 2)
    # privacy: two clients who share nothing
    apart = _graph(2)
    assert frozenset({0}) in oracle.given_away(apart, alive, [1, 1])
    assert oracle.given_away(apart, alive, [1, 1], own=False) == set()
    assert not is_private(apart, alive, 1)


def test_reading_with_components_alone_is_another_one() -> None:
    """All of {0} and of {2} is informative, and still client 1, who was lost, protects both."""
    lost, thresholds = _alive(3, c1=2), [1, 3, 1]
    label = np.asarray(graphs.component_labels(PATH, lost[3]))
    known = informative(PATH, lost, thresholds)
    assert all(known[label == c].all() for c in (0, 2))
    assert oracle.given_away(PATH, lost, thresholds) == set()
    assert is_private(PATH, lost, thresholds)


def test_readings_differ_in_many_rounds() -> None:
    """The rejected readings disagree with the pads often enough for the sampled rounds to tell."""
    rounds = oracle.random_rounds(np.random.default_rng(5), 5, 4000)
    graph, alive, limits = rounds
    known = oracle.given_away_in_bulk(*rounds)
    no_own = (graph & alive[:, 4, None, :]).sum(-1) >= limits
    label = np.asarray(_labels(graph, alive[:, 3]))
    same = (label[:, :, None] == label[:, None, :]) & alive[:, 3, :, None]
    counted = ((graph | np.eye(5, dtype=bool)) & alive[:, 4, None, :]).sum(-1) >= limits
    whole = (same <= counted[:, None, :]).all(-1) & alive[:, 3]
    connected = (same | ~alive[:, 3, :, None] | ~alive[:, 3, None, :]).all((1, 2))
    literal = connected | ~whole.any(1)
    assert (_private(known, alive) != literal).sum() > 5
    beside = alive[:, 2] & (graph & alive[:, 3, None, :]).any(-1)
    assert (
        _reliable(known, alive) != (no_own | ~(alive[:, 3] | beside)).all(1)
    ).sum() > 200


# -- the oracle
# -----------------------------------------------------------------------------------


_labels = jax.jit(jax.vmap(graphs.component_labels))
_learnt = jax.jit(jax.vmap(learnt_components))


def _index(members: np.ndarray) -> np.ndarray:
    return (members * 2 ** np.arange(members.shape[-1])).sum(-1)


def _reliable(known: np.ndarray, alive: np.ndarray) -> np.ndarray:
    return known[np.arange(len(known)), _index(alive[:, 3])]


def _private(known: np.ndarray, alive: np.ndarray) -> np.ndarray:
    proper = known.copy()
    proper[:, 0] = False
    proper[np.arange(len(known)), _index(alive[:, 3])] = False
    return ~proper.any(1)


def _assert_as_the_pads_say(
    graph: np.ndarray, alive: np.ndarray, limits: np.ndarray
) -> None:
    known = oracle.given_away_in_bulk(graph, alive, limits)
    assert np.array_equal(is_reliable(graph, alive, limits), _reliable(known, alive))
    assert np.array_equal(is_private(graph, alive, limits), _private(known, alive))
    # exactly the unions of learnt components are given away
    label = np.asarray(_learnt(graph, alive, limits))
    sets = oracle.subsets(graph.shape[-1]).astype(bool)
    split = (label[:, :, None] == label[:, None, :]) & (label >= 0)[:, :, None]
    whole = np.ones(known.shape, bool)
    for i, j in itertools.product(range(graph.shape[-1]), repeat=2):
        whole &= ~((sets[:, i] & ~sets[:, j])[None] & split[:, i, j, None])
    whole &= ~(sets[None] & (label < 0)[:, None, :]).any(-1)
    asked = alive[:, 3].sum(1) >= 2
    assert np.array_equal(whole[asked], known[asked])
    assert (label[~asked] == -1).all()


def test_the_oracles_two_forms_agree() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 4, 5):
        rounds = oracle.random_rounds(rng, n, 30)
        bulk = oracle.given_away_in_bulk(*rounds)
        for graph, alive, limits, known in zip(*rounds, bulk, strict=True):
            found = {
                frozenset(np.flatnonzero(members).tolist())
                for members in oracle.subsets(n)[known]
                if members.any()
            }
            assert oracle.given_away(graph, alive, limits) == found


@pytest.mark.long("4")
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_graph_and_pattern_of_loss(n: int) -> None:
    every, patterns = oracle.all_graphs(n), oracle.patterns(n)
    rng = np.random.default_rng(n)
    graph = np.repeat(every, len(patterns), axis=0)
    alive = np.tile(patterns, (len(every), 1, 1))
    uniform = np.broadcast_to(rng.integers(1, n + 2, (len(graph), 1)), (len(graph), n))
    for limits in (uniform, rng.integers(1, n + 3, (len(graph), n))):
        _assert_as_the_pads_say(graph, alive, limits.astype(np.int32))


@pytest.mark.long("7")
@pytest.mark.parametrize("n", [5, 6, 7])
def test_random_rounds(n: int) -> None:
    rounds = oracle.random_rounds(np.random.default_rng(10 + n), n, 6000)
    known = oracle.given_away_in_bulk(*rounds)
    reliable, private = _reliable(known, rounds[1]), _private(known, rounds[1])
    # each kind of round is there
    for verdict in (reliable, private, ~reliable & ~private):
        assert 300 < verdict.sum() < 5900
    _assert_as_the_pads_say(*rounds)


def test_no_other_combination_is_given_away() -> None:
    """The combinations of inputs that the pads leave free are spanned by the learned sets."""
    rng = np.random.default_rng(3)
    several = 0
    for graph, alive, limits in zip(*oracle.random_rounds(rng, 6, 300), strict=True):
        if alive[3].sum() < 2:
            continue
        rows = learned_sets(graph, alive, limits)
        several += len(rows) > 1
        assert len(rows) == alive[3].sum() - oracle.rank(
            _pads_left(graph, alive, limits)
        )
        assert (rows.sum(0) <= 1).all()
        assert rows.any(1).all()
        least = [int(np.flatnonzero(row)[0]) for row in rows]
        assert least == sorted(least)
    assert several > 10


def _pads_left(
    graph: np.ndarray, alive: np.ndarray, limits: np.ndarray
) -> list[list[int]]:
    """The coefficients of unknown pads in each padded input of V_3."""
    from fractions import Fraction

    n = len(graph)
    third = [i for i in range(n) if alive[3][i]]
    known = [oracle.shares_back(graph, alive, i) >= limits[i] for i in range(n)]
    columns = [[int(i == k) for i in third] for k in third if not known[k]]
    for i, j in itertools.combinations(np.flatnonzero(alive[2]).tolist(), 2):
        told = any(known[k] and not alive[3][k] for k in (i, j))
        if graph[i, j] and not told:
            columns.append([int(k == i) - int(k == j) for k in third])
    return [[Fraction(column[r]) for column in columns] for r in range(len(third))]


# -- batches
# --------------------------------------------------------------------------------------


@pytest.mark.long
def test_leading_axes_are_rounds() -> None:
    graph, alive, limits = oracle.random_rounds(np.random.default_rng(7), 4, 24)
    for verdict in (is_reliable, is_private):
        alone = [verdict(*one) for one in zip(graph, alive, limits, strict=True)]
        assert verdict(graph, alive, limits).tolist() == alone
        grid = verdict(
            graph.reshape(4, 6, 4, 4),
            alive.reshape(4, 6, 5, 4),
            limits.reshape(4, 6, 4),
        )
        assert grid.shape == (4, 6)
        assert grid.ravel().tolist() == alone
        crossed = verdict(graph[:3, None], alive[None, :5], 2)
        expected = [
            [verdict(graph[i], alive[j], 2) for j in range(5)] for i in range(3)
        ]
        assert crossed.tolist() == expected
        assert verdict(graph[0], alive[:2], limits[:2]).shape == (2,)


def test_cores_are_traced() -> None:
    """Each core maps, and gives the same without jit and with wide integers."""
    rounds = oracle.random_rounds(np.random.default_rng(8), 4, 24)
    for core in (_informative, is_reliable, is_private, learnt_components):
        mapped = np.asarray(jax.jit(jax.vmap(core))(*rounds))
        alone = [
            np.asarray(core(*(on_device(a[b]) for a in rounds))) for b in (0, 7, 23)
        ]
        assert all(
            np.array_equal(mapped[b], a) for b, a in zip((0, 7, 23), alone, strict=True)
        )
        with jax.enable_x64(True):
            wide = np.asarray(jax.jit(jax.vmap(core))(*rounds))
        assert wide.dtype == mapped.dtype
        assert np.array_equal(wide, mapped)
