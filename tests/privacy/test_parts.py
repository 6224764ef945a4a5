"""Sums of parts of the vector: each part judged by itself, and the worst of them told."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import ParticipationLog, audit, hidden_among, weak_privacy

NAMES = ("anna", "bob", "cleo", "dan")


def log_of(rows, parts, weights=None) -> ParticipationLog:
    """Return a log of sums named by their places and parts."""
    names = [f"{j}" + ("" if part is None else f"[{part}]") for j, part in enumerate(parts)]
    P = np.array(rows, np.int64 if weights else bool)
    return ParticipationLog(P, tuple(names), NAMES[: P.shape[1]], parts=tuple(parts))


def unknowns(log: ParticipationLog) -> list[list[int]]:
    """Return all that is learnt of one coordinate of each part, and of one that is in none.

    A column is one client's update in one coordinate. A sum of whole updates is an equation in each
    coordinate, one of a part an equation in that part's. Rows may be combined over coordinates.
    """
    places = [*sorted({part for part in log.parts or () if part is not None}), None]
    count, rows = len(log.clients), []
    for row, part in zip(log.participation.astype(int).tolist(), log.parts or (), strict=True):
        for k, place in enumerate(places):
            if part in (None, place) and any(row):
                rows.append([0] * count * k + row + [0] * count * (len(places) - k - 1))
    return rows


def leverages(rows: list[list[int]]) -> list[Fraction]:
    """Return the diagonal of the projection on the row space, exactly."""
    found = [Fraction(0)] * len(rows[0])
    basis: list[list[Fraction]] = []
    for row in rows:
        own = [Fraction(value) for value in row]
        for other in basis:
            size = sum(a * a for a in other)
            factor = sum(a * b for a, b in zip(own, other, strict=True)) / size
            own = [a - factor * b for a, b in zip(own, other, strict=True)]
        size = sum(a * a for a in own)
        if size:
            basis.append(own)
            found = [a + b * b / size for a, b in zip(found, own, strict=True)]
    return found


def random_log(draw: random.Random) -> ParticipationLog:
    parts = [*draw.choices([None, "low", "high"], k=2), "low", "high", "low"]
    most = draw.choice([1, 1, 3])
    rows = [[draw.randint(1, most) * (draw.random() < 0.6) for _ in NAMES] for _ in parts]
    rows[0][0] = 1
    return log_of(rows, parts, most > 1)


def test_what_is_told_is_what_all_coordinates_together_say() -> None:
    draw = random.Random(5)
    for _ in range(8):
        log = random_log(draw)
        rows = unknowns(log)
        found = audit(log, effort=0.0)
        shares, count = leverages(rows), len(log.clients)
        own = [max(shares[i::count]) for i in range(count)]
        assert found.weak.lower == found.weak.upper == oracle.plain_weak_privacy(rows)
        assert found.weak.certified
        columns = [column for column in zip(*rows, strict=True) if any(column)]
        assert found.strong == min(map(columns.count, columns))
        assert {name for name, _ in found.exposed} == {
            name for name, share in zip(log.clients, own, strict=True) if share == 1
        }
        assert found.hidden is not None
        expected = [float(1 / share) if share else np.inf for share in own]
        np.testing.assert_allclose(found.hidden.values, expected, rtol=1e-9)
        combined = np.array(found.weak.witness) @ log.participation.astype(int)
        assert tuple(np.flatnonzero(combined)) == found.weak.support  # in the log's own numbering


def test_what_is_known_after_each_round_is_what_the_sums_until_then_say() -> None:
    draw = random.Random(11)
    for _ in range(2):
        log = random_log(draw)
        after = audit(log, effort=0.0).over_rounds(log)
        for j in range(len(log.rounds)):
            cut = log_of(log.participation[: j + 1], log.parts[: j + 1], True)
            found = audit(cut, effort=0.0)
            assert after.exposed[j] == len(found.exposed)
            assert after.strong[j] == (found.strong or -1)
            assert after.lower[j] <= (found.weak.lower or -1) <= after.upper[j]
            least = np.nan if found.hidden is None else found.hidden.least
            np.testing.assert_allclose(after.hidden[j], least, rtol=1e-9)


def test_parts_are_never_stacked() -> None:
    log = log_of([[1, 1, 1, 1], [1, 1, 1, 0]], ["low", "high"])
    found = audit(log, effort=0.0)
    assert found.exposed == ()
    assert (found.weak.lower, found.strong) == (3, 3)
    assert found.gate(3).passed
    assert found.gate(4).reason == "in part high: weak T is 3, below 4"
    assert found.gate(4, "strong").reason == "in part high: strong T is 3, below 4"
    assert "in part high: client anna is hidden among 3" in found.gate(3.5, "hidden").reason
    for judge in (weak_privacy, hidden_among):
        with pytest.raises(ConfigurationError, match="sums of several must not be stacked"):
            judge(log)
    assert [own.num_clients for _, own in found.parts] == [4, 3]  # dan does not train `high`


def test_a_sum_of_whole_updates_is_learnt_in_every_part() -> None:
    log = log_of([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], [None, "low", "high"])
    found = audit(log, effort=0.0)
    assert found.exposed == (("dan", "1[low]"),)
    told = found.sentences()
    assert "2 parts of the vector" in told[0]
    assert "part low: weak T 1, strong T 1, 1 of 4 clients exposed" in told[0]
    assert "Round 0 minus round 1[low] is client dan's update alone." in told
    assert [own["exposed"] for own in found.to_dict()["parts"]] == [["dan"], []]
    assert "parts" not in audit(log.by_part()["high"].participation).to_dict()


def test_who_alone_trains_a_part_is_exposed_in_it() -> None:
    found = audit(log_of([[1, 1, 1, 1], [0, 0, 0, 1]], ["low", "high"]), effort=0.0)
    assert found.exposed == (("dan", "1[high]"),)
    assert found.gate(2).reason.startswith("in part high: weak T is 1")


def test_a_coalition_is_left_out_of_each_part() -> None:
    log = log_of([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]], ["low", "high", "top"])
    found = audit(log, effort=0.0, coalition=["dan", "cleo"])
    assert found.exposed == (("bob", "1[high]"),)
    assert [name for name, _ in found.parts] == ["low", "high"]  # nobody is left who trains `top`
    assert found.coalition == ("cleo", "dan")
    assert found.over_rounds(log).exposed.tolist() == [0, 1, 1]


def test_noise_adds_up_over_all_sums_and_says_nothing_of_gaussian_others() -> None:
    log = log_of([[1, 1, 1, 1], [1, 1, 1, 0]], ["low", "high"])
    found = audit(log, effort=0.0, noise_multiplier=2.0, clip=1.0)
    mu = {name: mu for name, mu, _ in found.noisy.known}
    np.testing.assert_allclose([mu["anna"], mu["dan"]], [np.sqrt(2) / 2, 1 / 2])
    with pytest.raises(ConfigurationError, match="`spread` must be left out for a log of several"):
        audit(log, effort=0.0, noise_multiplier=2.0, clip=1.0, spread=1.0)


def test_sums_of_one_round_are_of_one_update_under_drift() -> None:
    log = ParticipationLog(np.array([[1, 1, 1], [1, 1, 0]], bool), ("7", "7[low]"), NAMES[:3],
                           parts=(None, "low"))  # fmt: skip
    found = audit(log, effort=0.0, memory=0.5)
    assert found.updates.least == 1.0  # of cleo, whatever lasts until another round
    log = ParticipationLog(log.participation, ("7", "8[low]"), NAMES[:3], parts=log.parts)
    assert audit(log, effort=0.0, memory=0.5).updates.least > 1.0
