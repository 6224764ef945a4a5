"""A growing history: a further sum, cohorts before it, and all of it read again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mrsa_jax import live, privacy
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, compare

_BARS = (3, 2.0)
_ASKED = 16


def _cohorts(clients: int, size: int) -> Iterator[list[str]]:
    """Yield random cohorts without end."""
    generator = np.random.default_rng(0)
    names = np.asarray([f"client-{i:07d}" for i in range(clients)], object)
    while True:
        yield names[generator.choice(clients, size, replace=False)].tolist()


def _grown(sums: int, cohorts: Iterator[list[str]]) -> live.Gate:
    # random cohorts hold clients that no sum has had yet, which a gate refuses unless
    # it is told to expect them
    gate = live.Gate(*_BARS, new_clients=True)
    for _ in range(sums):
        gate.add(next(cohorts))
    return gate


def add(sums: int, clients: int, size: int) -> Measurement:
    """Time one more sum."""
    cohorts = _cohorts(clients, size)
    gate = _grown(sums - 3, cohorts)

    def check(state: live.GateState, _: object) -> None:
        if state.rank != state.sums:
            raise ResultsDifferError(f"rank {state.rank} of {state.sums} random sums")

    return compare(
        lambda: gate.add(next(cohorts)),
        work=1,
        check=check,
    )


def check(sums: int, clients: int, size: int) -> Measurement:
    """Time checks of cohorts before a sum."""
    cohorts = _cohorts(clients, size)
    gate = _grown(sums, cohorts)
    proposed = [next(cohorts) for _ in range(_ASKED)]

    def all_allowed(answers: tuple[live.GateAnswer, ...], _: object) -> None:
        if not all(answer.allowed for answer in answers):
            raise ResultsDifferError("a random cohort is not allowed")

    return compare(lambda: gate.check(proposed), work=_ASKED, check=all_allowed)


def replay(sums: int, clients: int, size: int) -> Measurement:
    """Time a history read again, beside the batch functions after its last round."""
    cohorts = _cohorts(clients, size)
    history = [next(cohorts) for _ in range(sums)]
    P = np.zeros((sums, clients), np.bool_)
    for row, cohort in zip(P, history, strict=True):
        # names end in the client's number
        row[[int(name[7:]) for name in cohort]] = True

    def ours() -> live.Gate:
        return _grown(sums, iter(history))

    def batch() -> tuple[int | None, float, int]:
        exposed = int((np.asarray(privacy.first_exposure(P)) >= 0).sum())
        hidden = float(np.nanmin(np.asarray(privacy.hidden_among(P))))
        return privacy.strong_privacy(P), hidden, exposed

    def check(gate: live.Gate, theirs: tuple[int | None, float, int]) -> None:
        strong, hidden, exposed = theirs
        state = gate.state
        if state.hidden is None or (state.strong, len(state.exposed)) != (
            strong,
            exposed,
        ):
            raise ResultsDifferError(f"{state} beside {theirs}")
        np.testing.assert_allclose(state.hidden, hidden, rtol=1e-9)

    return compare(
        ours,
        batch,
        work=sums,
        check=check,
    )
