"""Figure 4a and the estimate beside it.

The judges on curves made up by hand, then real ones.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from inside import inside

from mrsa_papers.harness import Context

items = inside("multiround.fig4a")
Bounded = items.Bounded


def _bounded(lower: list[list[int]], upper: list[list[int]] | None = None) -> Bounded:
    low = np.array(lower, np.int32)
    return Bounded(
        np.zeros((*low.shape, 20), np.bool_),
        low,
        low.copy() if upper is None else np.array(upper, np.int32),
    )


@dataclasses.dataclass(frozen=True)
class _Curve:
    lower: list[int]
    upper: list[int]


@pytest.mark.parametrize(
    ("upper", "verdict"),
    [
        ([[12] * 19 + [1, 1, 1]] * 3, "reproduced"),  # T = 1 from round 20 = N on
        ([[12] * 9 + [1] * 13] * 3, "differs"),  # far too early
        ([[12] * 22] * 3, "differs"),  # never
        ([[12] * 20] * 3, "undecided"),  # not yet
        ([[12] * 9 + [1] * 3] * 3, "differs"),
    ],
)
def test_about_n_rounds_is_n_to_a_twentieth_more(
    upper: list[list[int]], verdict: str
) -> None:
    found = _bounded(upper)
    assert items._falls_to_one("Random", found, 20).verdict == verdict


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        ([12] * 18 + [6, 1], [12] * 18 + [6, 1], "reproduced"),
        # nothing proves T < 6 early
        ([12] * 10 + [4] * 9 + [1], [12] * 19 + [1], "differs"),
        ([12] * 10 + [4] * 9 + [1], [12] * 10 + [4] * 9 + [1], "our reading"),
        ([12] * 21, [12] * 21, "differs"),  # never 1
        ([12] * 20, [12] * 20, "undecided"),
    ],
)
def test_sharply_is_within_a_fifth_of_n(
    lower: list[int], upper: list[int], verdict: str
) -> None:
    assert (
        items._falls_sharply("Random", _Curve(lower, upper), 20, 12).verdict == verdict
    )


@pytest.mark.smoke("found3-differs")
@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (_bounded([[-1, 12, 12], [12, 12, 12]]), "reproduced"),
        # nobody ever took part
        (_bounded([[-1, -1, -1], [-1, -1, -1]]), "undecided"),
        (_bounded([[12, 12, 11]]), "differs"),
        (_bounded([[12, 4, 4]], [[12, 12, 12]]), "differs"),  # not proven
    ],
)
def test_user_partition_must_be_exact(found: Bounded, verdict: str) -> None:
    assert items._for_ever(found, 12).verdict == verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (_bounded([[-1, 12, 6, 3], [12, 12, 9, 3]]), "reproduced"),
        # one trial has not settled
        (_bounded([[12, 6, 3, 3], [12, 6, 6, 6]]), "undecided"),
        (_bounded([[12, 6, 3, 2]]), "differs"),
        (_bounded([[12, 6, 6, 6], [12, 6, 3, 2]]), "differs"),
        (_bounded([[-1, -1, -1, -1]]), "undecided"),
    ],
)
def test_blocks_settle_at_their_target(found: Bounded, verdict: str) -> None:
    assert items._settles("Multi-RoundSecAgg (T=3)", 3, found).verdict == verdict


def test_means_leave_out_trials_in_which_nobody_took_part() -> None:
    means = items._means(np.array([[-1, 4, 2], [-1, -1, 4]]))
    assert np.isnan(means[0])
    assert means[1:] == [4.0, 3.0]


def test_the_estimate_is_wrong_in_small_histories_too() -> None:
    """In some of four random histories at N = 24, all of whose rounds are certified."""
    check = items._exhaustive(Context(1, True), 4)
    assert check.verdict == "our reading"
    assert int(check.ours.split()[0]) >= 1
    assert "(0 rounds without" in check.ours
