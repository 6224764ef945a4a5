"""CCESA's Theorems 1 to 4.

What decides them, against rationals, graphs one by one and tails.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import pathlib
from fractions import Fraction

import numpy as np
import pytest
from inside import inside, values_of_item

from mrsa_papers.harness import Context

conditions, asymptotic = inside("ccesa.theorem1"), inside("ccesa.theorem3")

_PATH = pathlib.Path(__file__).parents[1] / "secagg/pad_oracle.py"
_SPEC = importlib.util.spec_from_file_location("pad_oracle_of_items", _PATH)
oracle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(oracle)


@pytest.mark.parametrize("own", [True, False])
def test_known_sums_by_rank_in_rationals(own: bool) -> None:
    """Random rounds of four clients, each with a threshold of its own."""
    rounds = conditions.Rounds(*oracle.random_rounds(np.random.default_rng(3), 4, 60))
    found = conditions.known_sums(rounds, withheld_too=own)
    assert found[:, 0].all()
    for known, graph, alive, limits in zip(found, *rounds, strict=True):
        sums = {
            frozenset(i for i in range(4) if number >> i & 1)
            for number in np.flatnonzero(known)[1:]
        }
        assert sums == oracle.given_away(graph, alive, limits, own=own)


def test_all_small_rounds_are_counted_one_by_one() -> None:
    """Two clients, t = 1: by hand from what is given away."""
    counts = dict.fromkeys(("reliable", "private"), 0)
    for joined, *last in itertools.product((0, 1), range(6), range(6)):
        graph = [[False, bool(joined)], [bool(joined), False]]
        alive = [[where > step for where in last] for step in range(5)]
        third = frozenset(i for i in (0, 1) if alive[3][i])
        sums = oracle.given_away(graph, alive, [1, 1])
        counts["reliable"] += third in sums or not third
        counts["private"] += len(third) < 2 or not sums - {third}
    found = conditions.judged(conditions.every_round(2, 1))
    assert found["rounds"] == 72
    assert {name: found[name] for name in counts} == counts
    assert found["reliable wrong"] == found["private wrong"] == 0


def test_a_wrong_condition_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = conditions.every_round(3, 2)
    real = conditions.secagg.is_private
    monkeypatch.setattr(conditions.secagg, "is_private", lambda *own: ~real(*own))
    monkeypatch.setattr(
        conditions.secagg, "is_reliable", lambda graphs, *_: np.ones(len(graphs), bool)
    )
    found = conditions.judged(rounds)
    assert found["private wrong"] == found["rounds"] == 1728
    assert found["reliable wrong"] > 0


def test_the_proofs_converse_fails_where_a_lost_neighbour_keeps_its_secret() -> None:
    """0 and 1 alone in V_3, 2 joined to 0 and lost before Step 2 ends, its key not recoverable."""
    graph = np.zeros((1, 4, 4), bool)
    for i, j in ((0, 2), (0, 3), (1, 3)):
        graph[0, i, j] = graph[0, j, i] = True
    alive = np.array([[1, 1, 1, 1]] * 3 + [[1, 1, 0, 0]] + [[1, 1, 0, 0]], bool)[None]
    limits = np.array([[1, 1, 2, 3]])
    found = conditions.judged(conditions.Rounds(graph, alive, limits))
    assert (found["private"], found["converse wrong"], found["connected"]) == (1, 1, 0)
    assert oracle.given_away(graph[0], alive[0], limits[0]) == set()


def _apart(n: int, p: Fraction) -> Fraction:
    """The chance that a random graph on n vertices is disconnected, over all of them."""
    total = Fraction(0)
    for graph in oracle.all_graphs(n):
        edges = int(graph.sum()) // 2
        reach = {0}
        for _ in range(n):
            reach |= {j for i in reach for j in range(n) if graph[i][j]}
        if len(reach) < n:
            total += p**edges * (1 - p) ** (n * (n - 1) // 2 - edges)
    return total


def test_chances_of_theorem_4_by_all_graphs() -> None:
    p, q, n = Fraction(1, 3), Fraction(1, 10), 4
    kept = (1 - q) ** 3
    wanted = sum(
        math.comb(n, m) * kept**m * (1 - kept) ** (n - m) * _apart(m, p)
        for m in range(2, n + 1)
    )
    log = asymptotic.secagg.failures.log_disconnection_probability(
        n, float(p), float(q)
    )
    assert math.exp(log) == pytest.approx(float(wanted), rel=1e-12)


def test_tails_term_by_term() -> None:
    n, chance = 30, Fraction(3, 10)

    def pmf(k: int) -> Fraction:
        return math.comb(n, k) * chance**k * (1 - chance) ** (n - k)

    wanted = float(sum(pmf(k) for k in range(12, n + 1)))
    assert asymptotic._tail_from(n, 0.3, 12) == pytest.approx(wanted, rel=1e-12)
    q = 1 - 0.7 ** (1 / 3)
    kept, far = Fraction(7, 10), math.sqrt(8 * math.log(8))
    law = [math.comb(8, k) * kept**k * (1 - kept) ** (8 - k) for k in range(9)]
    wanted = float(sum(own for k, own in enumerate(law) if abs(k - 5.6) > far))
    assert asymptotic._far(8, q) == pytest.approx(wanted, rel=1e-9)


def test_limits_are_not_claimed_from_what_rises() -> None:
    """At Theorem 4's threshold chances rise towards 1 - 1/e; at twice that they fall."""
    found = asymptotic.private(
        Context(0, True), values_of_item("ccesa.theorem4", fast=True)
    )
    assert [check.verdict for check in found.checks] == [
        "reproduced",
        "our reading",
        "reproduced",
    ]
    apart = found.data[found.data["epsilon"] == 0]["apart"]
    assert (apart < 1 - 1 / math.e).all()
    reliable = asymptotic.reliable(
        Context(0, True), values_of_item("ccesa.theorem3", fast=True)
    )
    assert [check.verdict for check in reliable.checks] == ["reproduced"] * 2 + [
        "not stated"
    ]
