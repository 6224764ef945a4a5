"""What a gate says after every sum, against exhaustion in exact integers.

Needs NumPy alone.
"""

from __future__ import annotations

import random

import hostile
import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_watch import Gate, GateState

Matrix = list[list[int]]


def _logs(count: int) -> list[Matrix]:
    """Return small histories.

    Random ones, of blocks, of nested rows, and made to deceive.
    """
    generator = random.Random(0)
    logs: list[Matrix] = [
        np.abs(log).tolist() for log in hostile.small(count, 0, (5, 7))
    ]
    for kind in range(count):
        clients, width = generator.randint(2, 8), 1 + kind % 3
        rows: Matrix = []
        for _ in range(generator.randint(1, 6)):
            row = [generator.randrange(2) for _ in range(clients)]
            row = [
                row[i // width] * (1 + 2 * (kind % 2)) ** (i % 3)
                for i in range(clients)
            ]
            if rows and generator.random() < 0.3:
                row = list(generator.choice(rows))
                row[generator.randrange(clients)] ^= 1
            rows.append(row)
        logs.append(rows)
    return logs


def check(logs: list[Matrix]) -> None:
    """Hold a gate's figures to the oracle's after every sum of each log."""
    for rows in logs:
        gate = Gate()
        for j, row in enumerate(rows):
            state = gate.add({i: value for i, value in enumerate(row) if value})
            seen = rows[: j + 1]
            if not (rank := oracle.rank(seen)):
                assert state == GateState(j + 1)
                continue
            weak = oracle.weak_privacy(seen)
            assert weak is not None
            assert (state.sums, state.rank) == (j + 1, rank)
            assert sorted(map(int, map(str, state.exposed))) == list(
                oracle.exposed(seen)
            )
            assert state.strong == oracle.strong_privacy(seen)
            assert state.lower <= weak <= state.upper
            assert weak == state.lower == state.upper if weak < 3 else state.lower >= 3
            # floats know nine digits of it, or say nothing
            if state.hidden is not None:
                worst = 1 / max(oracle.leverages(seen))
                assert state.hidden == pytest.approx(float(worst), rel=1e-9)
                assert (state.hidden == 1.0) == (worst == 1)


@pytest.mark.long
def test_figures_of_a_growing_history_are_exact() -> None:
    check(_logs(12))


@pytest.mark.slow
def test_figures_of_many_growing_histories_are_exact() -> None:
    check(_logs(200))
