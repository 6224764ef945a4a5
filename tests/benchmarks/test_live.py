"""The topic `live`: its cases end with right answers."""

from __future__ import annotations

from benchmarks.topics import live


def test_cohorts_with_clients_that_the_history_does_not_know_are_allowed() -> None:
    measured = live.check(sums=6, clients=500, size=20)
    assert measured.work == 16
