"""A selector round by round: the rollout's cohorts, and a state that a log holds."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.live._chooser import Chooser
from mrsa_watch._register import Register

SCHEMES = (
    "batch_partitioning:3", "crossing_partitions:2", "bernoulli:0.4", "poisson:0.3:0.6",
    "power_of_choice:8", "minimum_separation:2:batch_partitioning:3",
)  # fmt: skip
EVERYBODY = set(range(12))


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_the_rollout_and_its_state_is_in_the_log(scheme: str) -> None:
    """Rounds in which some are away.

    Who was asked and who was summed say where it stands.
    """
    selector = mj.selection.Scheme.parse(scheme).build(12, 6)
    history = mj.selection.rollout(5, selector, mj.availability.independent(0.0), 10)
    chooser = Chooser(selector, 5)
    for row in np.asarray(history):
        cohort = chooser.choose(EVERYBODY)
        assert cohort == tuple(np.flatnonzero(row))
        chooser.end(cohort, cohort)
    draws, log = np.random.default_rng(3), []
    chooser = Chooser(selector, 5)
    for _ in range(10):
        there = {client for client in range(12) if draws.random() < 0.8}
        cohort = chooser.choose(there)
        assert there.issuperset(cohort)
        log.append((cohort, tuple(client for client in cohort if draws.random() < 0.7)))
        chooser.end(*log[-1])
    again = Chooser(selector, 5)
    for asked, summed in log:
        again.end(asked, summed)
    assert again.round == chooser.round == 10
    assert any(asked for asked, _ in log)
    for _ in range(4):
        cohort = chooser.choose(EVERYBODY)
        assert again.choose(EVERYBODY) == cohort
        chooser.end(cohort, cohort)
        again.end(cohort, cohort)


def test_rounds_that_it_cannot_have_chosen_are_told() -> None:
    chooser = Chooser(mj.selection.batch_partitioning(12, 6, 3), 0)
    with pytest.raises(
        ConfigurationError, match="`selector` must be the one that chose"
    ):
        chooser.end((0, 1, 2, 3, 4, 6), ())
    assert chooser.round == 0


def test_indices_last(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.clients"
    register = Register(path, 4)
    register.join(["c", "a"])
    register.join(["b", "a", "c"])
    assert register.places == {"c": 0, "a": 1, "b": 2}
    register = Register(path, 4)
    register.join(["e", "f", "a"])
    assert register.places == {"c": 0, "a": 1, "b": 2, "e": 3}
    assert Register(path, 7).places == register.places
    for alike in (["A"], ["x", "X"]):
        with pytest.raises(
            ConfigurationError, match="`name` must name each client in one way"
        ):
            Register(path, 7).join(alike)
    with pytest.raises(
        ConfigurationError, match="`selector` must be at least the 4 clients that"
    ):
        Register(path, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        '{"format": "mrsa-jax client register", "version": 2, "clients": []}',
        '{"format": "mrsa-jax client register", "version": 1}',
        '{"format": "mrsa-jax client register", "version": 1, "clients": ["a", "a"]}',
        '{"format": "mrsa-jax client register", "version": 1, "clients": ["a", 1]}',
    ],
)
def test_what_is_no_register_is_told(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "log.clients"
    path.write_text(text)
    with pytest.raises(
        ConfigurationError, match=r"log\.clients` must (be a register|hold each)"
    ):
        Register(path, 4)
