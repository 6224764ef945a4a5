"""The bound of a block: its formula in rationals, and games that try to beat it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import _attribute, attribute_bound

# SECRETS 1: T, AUC at q = 1/2, advantage, TPR at FPR .01; at q = .01 AUC and that TPR
TABLE = [
    (2, 0.8750, 0.5000, 0.5100, 0.9950, 1.0000),
    (3, 0.8125, 0.5000, 0.2700, 0.9902, 0.5100),
    (4, 0.7734, 0.3750, 0.1550, 0.9854, 0.3499),
    (6, 0.7256, 0.3125, 0.0813, 0.9762, 0.2276),
    (8, 0.6964, 0.2734, 0.0691, 0.9673, 0.1806),
    (12, 0.6612, 0.2256, 0.0451, 0.9506, 0.1480),
    (32, 0.5993, 0.1399, 0.0250, 0.8830, 0.0803),
]
HALVES = (Fraction(1, 2), Fraction(1, 10), Fraction(1, 100))


def counts_of(mates: int, q: Fraction) -> tuple[list[Fraction], list[Fraction]]:
    """Return the chances of 0..m mates with the bit, where one client has it or not.

    By enumeration of the other mates where that is short, else by the binomial law.
    """
    others = [Fraction(0)] * mates
    if mates <= 10:
        for bits in itertools.product((0, 1), repeat=mates - 1):
            chance = math.prod((q if bit else 1 - q for bit in bits), start=Fraction(1))
            others[sum(bits)] += chance
    else:
        for k in range(mates):
            ways = math.comb(mates - 1, k)
            others[k] = ways * q**k * (1 - q) ** (mates - 1 - k)
    return [*others, Fraction(0)], [Fraction(0), *others]


def best_curve(
    without: list[Fraction], having: list[Fraction]
) -> list[tuple[Fraction, Fraction]]:
    """Return the corners of the ROC of all tests, by falling likelihood ratio."""
    seen = [k for k in range(len(having)) if without[k] + having[k] > 0]
    seen.sort(key=lambda k: having[k] / (having[k] + without[k]), reverse=True)
    corners = [(Fraction(0), Fraction(0))]
    for k in seen:
        false, true = corners[-1]
        corners.append((false + without[k], true + having[k]))
    return corners


def height(corners: list[tuple[Fraction, Fraction]], at: Fraction) -> Fraction:
    """Return the largest true positive rate at a false positive rate."""
    best = Fraction(0)
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        if x0 <= at <= x1:
            best = max(best, y1 if x1 == x0 else y0 + (y1 - y0) * (at - x0) / (x1 - x0))
    return best


def area(corners: list[tuple[Fraction, Fraction]]) -> Fraction:
    return sum(
        (
            (x1 - x0) * (y0 + y1) / 2
            for (x0, y0), (x1, y1) in itertools.pairwise(corners)
        ),
        start=Fraction(0),
    )


@pytest.mark.parametrize("q", HALVES)
def test_it_is_the_best_test_in_rationals(q: Fraction) -> None:
    for target in range(1, 33):
        without, having = counts_of(target, q)
        corners = best_curve(without, having)
        bound = attribute_bound(target, float(q))
        assert bound.auc == pytest.approx(float(area(corners)), abs=1e-13)
        largest = max(true - false for false, true in corners)
        assert bound.advantage == pytest.approx(float(largest), abs=1e-13)
        for at in (Fraction(0), Fraction(1, 1000), Fraction(1, 100), Fraction(1, 3), 1):
            mine = bound.true_positive_rate(float(at))
            assert mine == pytest.approx(
                float(height(corners, Fraction(at))), abs=1e-12
            )
        if q == Fraction(1, 2):
            closed = 0.5 + math.comb(2 * target, target) / 4**target
            assert bound.auc == pytest.approx(closed, abs=1e-13)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"T={row[0]}")
def test_the_published_table(row: tuple[float, ...]) -> None:
    target, *figures = row
    even, rare = attribute_bound(target), attribute_bound(target, 0.01)
    mine = [
        even.auc,
        even.advantage,
        even.true_positive_rate(0.01),
        rare.auc,
        rare.true_positive_rate(0.01),
    ]
    assert mine == pytest.approx(figures, abs=5.1e-5)  # .08125 is a tie of rounding


def test_colluding_mates_do_not_hide() -> None:
    for target in range(2, 9):
        for colluders in range(target):
            less = attribute_bound(target, 0.3, colluders)
            assert less.auc == attribute_bound(target - colluders, 0.3).auc
    assert attribute_bound(4, colluders=3).auc == 1.0


@pytest.mark.parametrize(
    ("max_auc", "target"), [(1.0, 1), (0.75, 5), (0.7, 8), (0.6, 32), (0.501, None)]
)
def test_the_least_target(max_auc: float, target: int | None) -> None:
    assert _attribute.smallest_target(max_auc=max_auc, most=2**14) == target
    if target is not None and target > 1:
        assert attribute_bound(target - 1).auc > max_auc >= attribute_bound(target).auc


def test_the_least_target_by_advantage() -> None:
    by_search = next(
        t for t in range(1, 99) if attribute_bound(t, 0.2).advantage <= 0.25
    )
    assert _attribute.smallest_target(0.2, max_advantage=0.25) == by_search


def test_in_a_program_it_is_the_same() -> None:
    targets, rates = jnp.arange(1, 40), jnp.asarray([0.5, 0.1, 0.01])

    def figures(target, q):
        bound = attribute_bound(target, q)
        return bound.auc, bound.advantage, bound.true_positive_rate(0.01)

    found = jax.jit(jax.vmap(jax.vmap(figures, (None, 0)), (0, None)))(targets, rates)
    for row, target in enumerate(targets.tolist()):
        for column, q in enumerate((0.5, 0.1, 0.01)):
            bound = attribute_bound(target, q)
            known = bound.auc, bound.advantage, bound.true_positive_rate(0.01)
            mine = [float(each[row, column]) for each in found]
            assert mine == pytest.approx(known, abs=2e-5)


@pytest.mark.long
def test_slopes_in_the_prevalence() -> None:
    slope = jax.grad(lambda q: attribute_bound(6, q).auc)(0.3)
    steps = [attribute_bound(6, 0.3 + step).auc for step in (-1e-6, 1e-6)]
    assert float(slope) == pytest.approx((steps[1] - steps[0]) / 2e-6, rel=1e-3)


@pytest.mark.parametrize(
    ("target", "q"), [(0, 0.5), (257, 0.5), (4, 0.0), (4, 1.0), (4, float("nan"))]
)
def test_out_of_range_gives_nan_in_a_program(target: int, q: float) -> None:
    found = jax.jit(lambda t, p: attribute_bound(t, p).auc)(target, q)
    assert np.isnan(found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"privacy_target": 0}, "`privacy_target` must"),
        ({"privacy_target": 2.5}, "`privacy_target` must"),
        ({"privacy_target": True}, "`privacy_target` must"),
        (
            {"privacy_target": 4, "prevalence": 0.0},
            "`prevalence` must be a number betw",
        ),
        (
            {"privacy_target": 4, "prevalence": 1},
            "`prevalence` must be a number between",
        ),
        ({"privacy_target": 4, "prevalence": "x"}, "`prevalence` must"),
        ({"privacy_target": 4, "colluders": 4}, "`colluders` must"),
        ({"privacy_target": 4, "colluders": -1}, "`colluders` must"),
    ],
)
def test_misuse(words: dict, message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        attribute_bound(**words)
    with pytest.raises(mj.ConfigurationError, match="`false_positive_rate` must"):
        attribute_bound(3).true_positive_rate(1.5)


# --- games: an adaptive server on small blocks, enumerated in rationals

KINDS = 3  # of data of a client, some of which come with the bit
MODELS = 3
ROUNDS = 3


class Game:
    """A small world: how a client answers a model, and what a server sends next.

    A client has a kind of data and a coin in each round. Its update is a table of
    model, kind and coin, and a round's view is the sum over the block.
    """

    def __init__(self, rng: np.random.Generator, mates: int) -> None:
        self.mates = mates
        self.updates = rng.integers(0, 4, (MODELS, KINDS, 2))
        self.has_bit = rng.permutation([True, True, False][:KINDS])
        weights = rng.integers(1, 4, KINDS)
        self.law = [Fraction(int(w), int(weights.sum())) for w in weights]
        self.answers = rng.integers(0, MODELS, 200)
        self.first = int(rng.integers(MODELS))

    def next_model(self, view: tuple[int, ...]) -> int:
        """Return the model that the server sends after what it has seen."""
        return int(self.answers[hash(view) % len(self.answers)])

    def views(self, kinds: tuple[int, ...], *, apart: bool) -> dict[tuple, Fraction]:
        """Return the chances of all views over the coins, for these data of the mates.

        With `apart`, the first mate gets its own model, which the others do not.
        """
        views = {(): Fraction(1)}
        for _ in range(ROUNDS):
            following: dict[tuple, Fraction] = {}
            for view, chance in views.items():
                model = self.next_model(view) if view else self.first
                for coins in itertools.product((0, 1), repeat=self.mates):
                    total = 0
                    for place, (kind, coin) in enumerate(
                        zip(kinds, coins, strict=True)
                    ):
                        is_silenced = apart and place > 0
                        update = int(self.updates[model, kind, coin])
                        total += 0 if is_silenced else update
                    key = (*view, total)
                    share = chance / 2**self.mates
                    following[key] = following.get(key, Fraction(0)) + share
            views = following
        return views

    def curve(self, *, apart: bool = False) -> list[tuple[Fraction, Fraction]]:
        """Return the ROC of the best test of the first mate's bit from the view."""
        sides: list[dict[tuple, Fraction]] = [{}, {}]
        for kinds in itertools.product(range(KINDS), repeat=self.mates):
            chance = math.prod((self.law[kind] for kind in kinds), start=Fraction(1))
            side = sides[bool(self.has_bit[kinds[0]])]
            for view, share in self.views(kinds, apart=apart).items():
                side[view] = side.get(view, Fraction(0)) + chance * share
        whole = [sum(side.values()) for side in sides]
        seen = sorted({*sides[0], *sides[1]})
        without, having = (
            [side.get(view, Fraction(0)) / total for view in seen]
            for side, total in zip(sides, whole, strict=True)
        )
        return best_curve(without, having)

    @property
    def prevalence(self) -> Fraction:
        return sum(
            (share for share, bit in zip(self.law, self.has_bit, strict=True) if bit),
            start=Fraction(0),
        )


def is_below(game: Game, curve: list[tuple[Fraction, Fraction]]) -> bool:
    """Tell whether a whole ROC lies on or below the bound, in rationals."""
    bound = best_curve(*counts_of(game.mates, game.prevalence))
    return all(true <= height(bound, false) for false, true in curve)


@pytest.mark.parametrize("mates", [2, 3])
def test_no_adaptive_server_beats_it(mates: int) -> None:
    for seed in range(5):
        game = Game(np.random.default_rng([mates, seed]), mates)
        assert is_below(game, game.curve())


@pytest.mark.slow
@pytest.mark.parametrize(("mates", "count"), [(2, 150), (3, 130), (4, 20)])
def test_no_adaptive_server_beats_it_in_300_games(mates: int, count: int) -> None:
    for seed in range(count):
        game = Game(np.random.default_rng([mates, seed, 1]), mates)
        assert is_below(game, game.curve())


def test_two_models_break_it() -> None:
    """The condition is needed: a server that silences mates tells the bit."""
    games = [Game(np.random.default_rng([2, seed]), 2) for seed in range(10)]
    broken = [not is_below(game, game.curve(apart=True)) for game in games]
    assert sum(broken) >= 5
