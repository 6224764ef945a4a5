"""Audits: findings by hand, recipes that plain integers confirm, gates that fail when unsure."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import (
    ParticipationLog,
    Recipe,
    audit,
    first_exposure,
    hidden_among,
)
from mrsa_jax.privacy._weak import WeakPrivacy
from mrsa_watch.logs import integer_rows

# Rounds 3 and 9 minus round 12 is client 41 alone.
LOG = ParticipationLog(
    np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 0, 1, 1]], bool),
    (3, 9, 12),
    (17, 18, 41, 50, 60),
)


@pytest.mark.parametrize(
    ("P", "message"),
    [
        ([[0.5, 1]], "`P` must hold bools or integers; got"),
        ([[float("nan"), 1]], "`P` must hold bools or integers; got"),
        ([1, 0], "`P` must have at least 2 axes"),
        ([[[1, 0]]], "`P` must have two axes"),
        ([[]], "`P` must not be empty"),
        ([[1, -1]], "`P` must not be negative"),
    ],
)
def test_histories_that_make_no_sense(P: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        audit(P)
    with pytest.raises(ConfigurationError, match="`effort` must be"):
        audit([[1, 0]], effort=-1.0)


def test_gates_that_make_no_sense() -> None:
    found = audit(LOG, effort=0.01)
    gate = inspect.unwrap(type(found).gate)
    for target in (0, True, 1.5):
        with pytest.raises(
            ConfigurationError, match="`target` must be an integer of at least 1"
        ):
            gate(found, target)
    with pytest.raises(
        ConfigurationError, match=r"`definition` must be a known def.*'strong'"
    ):
        gate(found, 2, "storng")


def test_the_recipe_in_the_systems_own_names() -> None:
    stages = []
    found = audit(LOG, effort=0.01, progress=lambda *stage: stages.append(stage))
    assert found.exposed == ((41, 12),)
    assert found.hidden is not None
    assert (found.hidden.least, found.hidden.least_client) == (1.0, 41)
    assert [name for name, _ in found.hidden.worst] == [17, 18, 50, 60]
    assert (found.weak.lower, found.weak.upper, found.weak.certified) == (1, 1, True)
    assert found.strong == 1
    assert (found.num_rounds, found.num_clients, found.empty_rounds) == (3, 5, 0)
    assert not found.is_weighted
    assert found.recipe is not None
    assert (
        found.recipe.text()
        == "The sum of rounds 3 and 9 minus round 12 is client 41's update alone."
    )
    sentences = found.sentences()
    assert sentences[0].startswith("1 of 5 clients are exposed")
    assert "client 41 (from round 12 on)" in sentences[0]
    assert sentences[1].startswith(
        "Hidden as well as in a single sum: the exposed among 1, "
    )
    assert sentences[1].endswith("client 60 among 2.00; the median client among 2.00.")
    assert sentences[2].startswith("Weak T is 1 (proven)")
    assert stages[0][0] == "exposed clients"
    assert {"weak privacy", "plain sums"} <= {stage[0] for stage in stages}


def test_everything_is_there_for_machines() -> None:
    content = json.loads(json.dumps(audit(LOG, effort=0.01).to_dict()))
    assert content["exposed"] == [{"client": 41, "first_round": 12}]
    assert content["weak_privacy"]["support"] == [41]
    witness = [int(z) for z in content["weak_privacy"]["witness"]]
    left = np.array(witness) @ LOG.participation
    assert np.flatnonzero(left).tolist() == [2]
    assert content["recipe"]["rounds"] == [
        {"round": 3, "coefficient": "1"},
        {"round": 9, "coefficient": "1"},
        {"round": 12, "coefficient": "-1"},
    ]
    assert content["recipe"]["clients"] == [{"client": 41, "coefficient": "1"}]
    assert content["strong_privacy"] == 1
    assert content["unweighted_group"]["upper"] == 1
    assert content["unweighted_group"]["support"] == [41]


def test_nobody_took_part() -> None:
    found = audit(np.zeros((4, 3), bool))
    assert (found.weak.lower, found.weak.upper, found.strong) == (None, None, None)
    assert (found.exposed, found.hidden, found.recipe) == ((), None, None)
    assert found.empty_rounds == 4
    assert found.sentences() == [
        "No client took part in any round: nothing is learnt; weak and strong T are "
        "undefined."
    ]
    assert found.to_dict()["weak_privacy"]["lower"] is None
    for definition in ("weak", "strong"):
        gate = found.gate(1, definition)  # type: ignore[arg-type]
        assert not gate.passed
        assert "undefined" in gate.reason


def test_gates_fail_when_unsure() -> None:
    found = audit([[1, 1, 1, 0], [1, 1, 1, 0]], effort=0.01)
    assert found.gate(3).passed
    assert found.gate(3, "strong").passed
    below = found.gate(4)
    assert not below.passed
    assert below.reason == "weak T is 3, below 4"
    weak = dataclasses.replace(found.weak, lower=2, upper=5, certified=False)
    unsure = dataclasses.replace(found, weak=weak)
    assert unsure.gate(2).passed
    for target in (3, 4, 5):
        gate = unsure.gate(target)
        assert not gate.passed
        assert "between 2 and 5" in gate.reason
        assert "not proven" in gate.reason
    assert "below 6" in unsure.gate(6).reason
    assert unsure.gate(4, "strong").reason == "strong T is 3, below 4"
    assert "not decided" in unsure.sentences()[2]


def test_plain_sums_stand_beside_any_coefficients() -> None:
    """Of all combinations of these rows only the first row itself is a plain sum."""
    found = audit([[1, 1, 1, 0], [0, 1, 2, 1]], effort=0.05)
    assert found.group is not None
    assert (found.group.upper, found.group_clients) == (3, (0, 1, 2))
    said = " ".join(found.sentences())
    assert (
        "The smallest plain sum that follows is over 3 clients (proven): clients 0, 1 "
        "and" in said
    )
    assert audit([[1, 1]], effort=0).group is None


def _verify(found: mj.privacy.Audit, log: ParticipationLog) -> None:
    """Apply a recipe to the sums as they were learnt, in exact fractions."""
    assert found.recipe is not None
    scales = log.scales or (Fraction(1),) * len(log.rounds)
    left = [Fraction(0)] * len(log.clients)
    for name, coefficient in found.recipe.rounds:
        j = log.rounds.index(name)
        for i, weight in enumerate(log.participation[j]):
            left[i] += coefficient * Fraction(int(weight)) / scales[j]
    wanted = dict(found.recipe.clients)
    assert len(wanted) == found.weak.upper
    assert {log.clients[i]: v for i, v in enumerate(left) if v} == wanted


@pytest.mark.long
def test_recipes_of_random_logs_are_confirmed_by_plain_arithmetic() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([Fraction(1, 3), Fraction(1, 2), 1, 0, 0], dtype=object)
    for trial in range(12):
        P = rng.random((7, 8)) < 0.4
        names = (tuple(f"r{j}" for j in range(7)), tuple(f"c{i}" for i in range(8)))
        log = ParticipationLog(P, *names)
        if trial % 2:
            whole, scales = integer_rows(
                rng.choice(weights, (7, 8)), "w", primitive=False
            )
            log = ParticipationLog(whole, *names, scales)
        found = audit(log, effort=0.01)
        assert found.is_weighted == bool(trial % 2)
        if found.recipe is not None:
            _verify(found, log)
        firsts = np.asarray(first_exposure(log.participation))
        assert dict(found.exposed) == {
            f"c{i}": f"r{j}" for i, j in enumerate(firsts) if j >= 0
        }
        assert found.hidden is not None
        among = np.asarray(hidden_among(log.participation))
        assert found.hidden.least == pytest.approx(among.min(), rel=1e-9)


@pytest.mark.parametrize(
    ("rounds", "clients", "text"),
    [
        ([(3, 1)], [(41, 1)], "Round 3 is client 41's update alone."),
        ([(3, 1)], [(4, 1), (7, 1)], "Round 3 is the sum of clients 4 and 7 alone."),
        (
            [(3, 1), (5, -1), (6, -1)],
            [(4, 2), (7, 2)],
            "Round 3 minus the sum of rounds 5 and 6 is 2 times the sum of clients 4 "
            "and 7 alone.",
        ),
        (
            [("a", 2), ("b", 1), ("c", -5)],
            [("x", 3)],
            "2 × round a + round b - 5 × round c is 3 times client x's update alone.",
        ),
        (
            [(1, 1), (2, -1)],
            [(4, 1), (5, -1), (6, 2)],
            "Round 1 minus round 2 is client 4 - client 5 + 2 × client 6 alone.",
        ),
        (
            [(1, 10**30), (2, -1)],
            [(4, 10**6), (5, 1)],
            "A combination of rounds 1 and 2 with whole coefficients of up to 31 "
            "digits is a "
            "combination of clients 4 and 5 alone, with whole coefficients of up to 7 "
            "digits.",
        ),
        (
            [(j, 1) for j in range(40)],
            [(4, 10**8)],
            "The sum of rounds 0, 1, 2, 3, 4, 5, ..., 39 (40 of them) is (a whole "
            "number of 9 "
            "digits) times client 4's update alone.",
        ),
    ],
)
def test_recipes_in_words(rounds: list, clients: list, text: str) -> None:
    recipe = Recipe(tuple(rounds), tuple(clients))
    assert recipe.text() == text
    lines = list(csv.reader(recipe.lines()))
    assert lines[0] == ["kind", "name", "coefficient"]
    assert [(r[1], int(r[2])) for r in lines[1:] if r[0] == "round"] == [
        (str(name), value) for name, value in rounds
    ]
    assert [r[1] for r in lines if r[0] == "client"] == [
        str(name) for name, _ in clients
    ]


def test_names_with_commas_stay_one_field() -> None:
    recipe = Recipe(((1, 1),), (('clinic, "north"', 1),))
    assert next(csv.reader(recipe.lines()[2:])) == ["client", 'clinic, "north"', "1"]


def test_common_factors_and_signs_are_taken_out() -> None:
    log = ParticipationLog(np.array([[1, 1], [0, 2]]), (0, 1), (0, 1))
    assert Recipe.of(log, (-4, 2), (0,)) == Recipe(((0, 2), (1, -1)), ((0, 2),))
    log = ParticipationLog(
        np.array([[1, 1], [0, 1]]), (0, 1), (0, 1), (Fraction(6), Fraction(1))
    )
    assert Recipe.of(log, (1, -1), (0,)) == Recipe(((0, 6), (1, -1)), ((0, 1),))
    # 2 x + 2 y and 3 y
    log = dataclasses.replace(log, scales=(Fraction(1, 2), Fraction(1, 3)))
    assert Recipe.of(log, (1, -1), (0,)) == Recipe(((0, 3), (1, -2)), ((0, 6),))


@pytest.mark.long
def test_weak_privacy_and_first_exposure_agree() -> None:
    rng = np.random.default_rng(3)
    for trial in range(6):
        P = rng.random((9, 13)) < 0.3
        P[rng.permutation(9)[:3]] = np.eye(3, 13, trial, dtype=bool)
        P[5] = P[2]
        if trial % 2:
            P = P * rng.integers(1, 900, P.shape)
        wanted = np.asarray(first_exposure(P))
        exposed = tuple(np.flatnonzero(wanted >= 0).tolist())
        assert exposed
        weak = mj.privacy.weak_privacy(P, effort=0)
        assert weak.exposed == exposed
        assert list(weak.exposed_since) == wanted[list(exposed)].tolist()


@pytest.mark.long
def test_it_takes_arrays_of_any_kind() -> None:
    online = mj.availability.independent(0.1)
    P = mj.selection.rollout(0, mj.selection.batch_partitioning(12, 4, 2), online, 15)
    found = audit(P, effort=0.01)
    assert isinstance(found.weak, WeakPrivacy)
    assert found.strong == 2
    assert found.gate(2).passed
    assert found.exposed == ()
    assert found.hidden is not None
    assert found.hidden.least == pytest.approx(2)


def test_blocks_bound_every_test_of_what_a_client_is() -> None:
    blocks = np.kron([[1, 1, 0], [0, 1, 1], [1, 0, 1]], np.ones((1, 4), int))
    found = audit(blocks, effort=0)
    (words,) = [text for text in found.sentences() if "no test of what" in text]
    assert "Of 4 clients that are in exactly the same sums" in words
    assert "better than AUC .773, after any number of rounds, if mates" in words
    assert "stays visible (TPR .35 at FPR .01)" in words
    bound = found.to_dict()["attribute_bound"]
    figures = bound["auc"], bound["advantage"]
    assert figures == pytest.approx((0.5 + 70 / 256, 3 / 8))  # C(8, 4) / 4^4
    assert bound["condition"] == words
    # a mate who tells the server its update hides nobody
    assert audit(blocks, effort=0, coalition=[0]).mates == 3


def test_mates_that_sums_part_have_no_bound() -> None:
    for parting in ([1, 1, 1, 0], [1, 2, 3, 4]):
        found = audit([[1, 1, 1, 1], parting], effort=0)
        assert found.to_dict()["attribute_bound"] is None
    apart = ParticipationLog(
        np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]], bool),
        (1, 2, "1[b]", "2[b]"),
        ("w", "x", "y", "z"),
        parts=("a", "a", "b", "b"),
    )
    split = audit(apart, effort=0)
    # each part keeps pairs together, but not the same pairs
    assert (split.strong, split.mates) == (2, None)
    assert not any("no test of what" in text for text in split.sentences())
