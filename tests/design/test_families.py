"""Families of lines and what is judged of them, against definitions and closed forms."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, design, selection
from mrsa_jax.design._judge import Judgement


def _raw(function: Callable[..., Any]) -> Callable[..., Any]:
    return inspect.unwrap(function)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: _raw(design.blocks)(12, 5),
            "`num_clients` must be a multiple of `size`; got 12",
        ),
        (lambda: _raw(design.blocks)(12, 0), "`size` must be at least 1"),
        (
            lambda: _raw(design.grids)(12, 4),
            "must be at least 16, one whole rectangle; got 12",
        ),
        (
            lambda: _raw(design.grids)(14, 4),
            "must be a multiple of `side`; got 14 and 4",
        ),
        (
            lambda: _raw(design.rectangles)(24, 6, 4),
            "`rows` must be a divisor of `size`; got 4",
        ),
        (lambda: _raw(design.rectangles)(24, 6, 0), "`rows` must be at least 1"),
        (lambda: _raw(design.nets)(32, 4, 3), "`side` must be a prime where .* got 4"),
        (
            lambda: _raw(design.nets)(9, 3, 5),
            r"`directions` must lie in \[1, 4\]; got 5",
        ),
        (
            lambda: _raw(design.nets)(12, 3, 2),
            "multiple of `side` squared; got 12 and 3",
        ),
        (
            lambda: _raw(design.judge)([[1, 1, 0], [0, 0, 1]], 2, 0.1),
            "lines of one size",
        ),
        (
            lambda: _raw(design.judge)(np.eye(4, dtype=int), 2, 1.5),
            "`dropout_rate` must lie in",
        ),
        (
            lambda: _raw(design.judge)(np.eye(4, dtype=int), 2, [0.1] * 3),
            "one rate or 4, one for",
        ),
        (
            lambda: _raw(design.judge)(np.eye(4, dtype=int), 2, 0.1, num_rounds=0),
            "`num_rounds`",
        ),
    ],
)
def test_misuse(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def _crossings(lines: np.ndarray) -> set[int]:
    counts = lines.astype(int) @ lines.T.astype(int)
    return set(counts[~np.eye(len(lines), dtype=bool)].tolist())


@pytest.mark.parametrize(
    ("q", "r"), [(2, 3), (3, 4), (5, 6), (5, 3), (7, 8), (4, 2), (6, 1)]
)
def test_lines_of_a_net_cross_once_or_never(q: int, r: int) -> None:
    lines = design.nets(2 * q * q, q, r)
    assert lines.shape == (2 * q * r, 2 * q * q)
    assert (lines.sum(axis=1) == q).all()
    # a line of each direction through each client
    assert (lines.sum(axis=0) == r).all()
    one = lines[lines[:, : q * q].any(axis=1), : q * q].reshape(r, q, -1)
    for direction in one:
        assert _crossings(direction) <= {0}
    for a, b in itertools.combinations(one, 2):
        assert (a.astype(int) @ b.T.astype(int) == 1).all()


@pytest.mark.smoke
def test_one_direction_is_blocks_and_two_are_grids() -> None:
    assert (design.nets(18, 3, 1) == design.blocks(18, 3)).all()
    assert sorted(design.nets(18, 3, 2).tolist()) == sorted(
        design.grids(18, 3).tolist()
    )
    assert (design.rectangles(18, 3, 1) == design.blocks(18, 3)).all()
    assert (design.rectangles(18, 3, 3) == design.grids(18, 3)).all()
    assert (design.grids(4, 1) == np.eye(4, dtype=bool)).all()
    ours = selection.from_lines(design.grids(21, 3), 6)  # two grids and a block
    theirs = selection.crossing_partitions(21, 6, 3)
    for name in (
        "members",
        "lines_of",
        "lines_per_cohort",
        "least_used_lines",
        "block_size",
    ):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


def _judged(lines: np.ndarray, k: int, p: Any = 0.2, **words: Any) -> Judgement:
    return design.judge(lines, k, p, **({"num_rounds": 20, "num_trials": 2} | words))


@pytest.mark.long
@pytest.mark.parametrize(("size", "rows"), [(4, 1), (6, 2), (6, 3)])
def test_rectangles_lie_between_blocks_and_grids(size: int, rows: int) -> None:
    found = _judged(design.rectangles(2 * size * rows, size, rows), size)
    assert (found.weak_lower, found.weak_upper, found.certified) == (size, size, True)
    assert found.strong_privacy == (size if rows == 1 else size // rows)
    assert found.hidden_worst == pytest.approx(size * rows / (2 * rows - 1), rel=1e-12)
    assert found.hidden_median == pytest.approx(found.hidden_worst, rel=1e-12)
    assert found.rank == 2 * (2 * rows - 1)


@pytest.mark.long
@pytest.mark.parametrize(("q", "r"), [(3, 3), (3, 4), (5, 4)])
def test_nets_by_their_rank(q: int, r: int) -> None:
    found = _judged(design.nets(2 * q * q, q, r), q)
    assert found.rank == 2 * (r * (q - 1) + 1)
    assert found.hidden_worst == pytest.approx(q * q / (r * (q - 1) + 1), rel=1e-10)
    assert found.certified
    # the sandwich, and Singleton's bound of a code of that rank
    assert found.strong_privacy <= found.hidden_worst + 1e-9 <= found.weak_lower + 2e-9
    assert found.weak_lower <= min(q, q * q - r * (q - 1))
    assert (found.weak_lower == 1) == (r == q + 1)


@pytest.mark.long
def test_the_least_of_different_components_counts() -> None:
    """A grid of nine and a block of three: the block's clients are better hidden."""
    found = _judged(design.grids(12, 3), 3)
    assert (found.weak_lower, found.strong_privacy, found.rank) == (3, 1, 5 + 1)
    assert found.hidden_worst == pytest.approx(9 / 5)
    assert found.hidden_median == pytest.approx(9 / 5)
    whole = mj.privacy.weak_privacy(design.grids(12, 3))
    assert (found.weak_lower, found.weak_upper) == (whole.lower, whole.upper)


@pytest.mark.long
def test_the_mean_sum_is_exact_or_has_an_interval() -> None:
    rates = np.linspace(0.0, 0.4, 18)
    grids = _judged(design.grids(18, 3), 6, rates)
    assert (
        grids.cardinality
        == selection.crossing_partitions(18, 6, 3).cardinality(rates)[0]
    )
    assert grids.cardinality_interval == (grids.cardinality, grids.cardinality)
    blocks = _judged(design.blocks(18, 3), 6, 0.1)
    assert blocks.cardinality == pytest.approx(
        selection.expected_cardinality(18, 6, 3, 0.1)
    )
    wide = _judged(design.grids(81, 9), 9, 0.3, num_rounds=50, num_trials=8)  # 18 lines
    low, high = wide.cardinality_interval
    assert 0 < low < wide.cardinality < high <= 9
    assert "95 %" in repr(wide)


@pytest.mark.long
def test_what_is_shown() -> None:
    found = _judged(design.grids(32, 4), 8, 0.3)
    shown = repr(found)
    assert shown.startswith(
        "Judgement(weak T: 4 (certified); hidden among: 2.286 (worst), 2.286"
    )
    for words in ("strong T: 1", "16 of 4 clients", "14 at most, of 32"):
        assert words in shown
    html = found._repr_html_()
    assert "<table" in html
    assert "certified" in html
