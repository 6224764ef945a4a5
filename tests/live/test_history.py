"""What the gate knows of its figures, by hand.

The chance of error, and differences of rows.
"""

from __future__ import annotations

import math

import numpy as np

from mrsa_watch._history import History
from mrsa_watch._leverages import Rest
from mrsa_watch._rows import Classes, Row


def test_error_bits_count_all_that_is_decided() -> None:
    """Two primes of 26 10^15, some of which divide a minor of so many bits.

    Each pair a case.
    """
    for clients, bits in ((3, 10.0), (40, 10.0), (40, 6000.0), (2000, 1e5)):
        history = History()
        history.names = list(range(clients))
        history.classes = Classes(
            np.arange(1, clients + 1), np.ones(clients + 1, np.int64)
        )
        history._minor_bits = bits
        dividing = max(1.0, bits / 60)
        # pairs, classes alone, clients exposed
        decided = math.comb(clients, 2) + 2 * clients
        most = 2 * math.log2(26e15 / dividing) - math.log2(decided)
        assert most - 4 < history.error_bits <= most


def test_two_overlapping_sums_differ_by_who_is_in_one_of_them() -> None:
    history, rows = History(), ([0, 1, 2, 3, 4], [5, 6], [0, 1, 2, 7, 8])
    for own in rows:
        history._rows.append(Row.of(own, None))
    asked = Row.of([0, 1, 2, 3], None)
    overlaps = np.array([len({0, 1, 2, 3} & {*own}) for own in rows], np.float64)
    rest = Rest(np.zeros(0), np.zeros(0), 1.0, 1.0, overlaps)
    assert history._differences(asked, rest) == [1]  # client 4
    # weights differ
    assert not history._differences(Row.of([0, 1, 2, 3], [1, 1, 1, 2]), rest)
