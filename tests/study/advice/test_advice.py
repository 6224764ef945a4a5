"""Advice: exact sizes against enumeration, promises against their proofs, and the choice."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, availability, design, privacy, selection, study
from mrsa_jax.study import AdviseConfig, validate
from mrsa_jax.study.advice import Demands, Option, _options
from mrsa_jax.study.advice._advice import choose, mark_best
from mrsa_jax.study.advice._options import (
    POLICIES,
    Setting,
    after_losses,
    measure,
    play,
    targets,
)

FAST: dict[str, Any] = {"rounds": 20, "trials": 2}


# ---- misuse


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cohort_size": 7},
            r"`cohort_size` must lie in \[2, num_clients\]; got 7 and 6",
        ),
        (
            {"cohort_size": 1},
            r"`cohort_size` must lie in \[2, num_clients\]; got 1 and 6",
        ),
        ({"num_clients": 1}, "`num_clients` must be at least 2; got 1"),
        (
            {"num_clients": 10**8},
            "`num_clients` must be at most 1,000,000; got 100000000",
        ),
        (
            {"num_clients": None},
            "`num_clients` must be given, or a log to measure it in",
        ),
        ({"cohort_size": None}, "`cohort_size` must be given"),
        ({"dropout_rate": ()}, "`dropout_rate` must be given"),
        (
            {"dropout_rate": (1.0,)},
            "`dropout_rate` must be at least 0 and below 1; got 1.0",
        ),
        (
            {"dropout_rate": (0.1, math.nan)},
            "`dropout_rate` must be at least 0 and below 1",
        ),
        ({"loss_rate": 1.0}, "`loss_rate` must be at least 0 and below 1; got 1.0"),
        ({"loss_rate": -0.1}, "`loss_rate` must be at least 0 and below 1"),
        ({"rounds": 0}, "`rounds` must be at least 1"),
        ({"trials": -1}, "`trials` must be at least 0"),
        ({"want_privacy": 0}, "`want_privacy` must be at least 1"),
        ({"share": 0.5}, "`share` must be used together with memory; got 0.5"),
        ({"want_hidden": 0.5}, "`want_hidden` must be a finite number of at least 1"),
        ({"min_cardinality": math.inf}, "`min_cardinality` must be a finite number"),
        ({"schemes": ("unifrom",)}, "did you mean 'uniform'"),
        ({"availability": "marcov:3"}, "did you mean 'markov'"),
        ({"seed": -1}, "`seed` must lie in"),
        ({"overwrite": True}, "`overwrite` must be used together with --out"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"num_clients": 6, "cohort_size": 2, "dropout_rate": (0.1,)}
    validate(AdviseConfig(**good))
    with pytest.raises(ConfigurationError, match=message):
        validate(AdviseConfig(**good | changes))


@pytest.mark.smoke
def test_unknown_settings_are_named() -> None:
    with pytest.raises(
        ConfigurationError, match="`want_privcy` must be a known setting: did you"
    ):
        study.advise(6, 2, 0.1, want_privcy=2)


# ---- sizes of sums, by enumeration


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("block", [1, 2, 3, 6])
def test_losses_inside_rounds_by_enumeration(policy: Any, block: int) -> None:
    """Every set of survivors of 6 clients, by the rule that the server applies."""
    loss = 0.3
    stays = np.array(list(itertools.product([False, True], repeat=6)))
    chance = np.where(stays, 1 - loss, loss).prod(axis=1)
    asked = np.ones_like(stays)
    survivors = np.stack([asked, asked, asked, stays, stays], axis=1)
    sizes = np.asarray(selection.learnt_sums(survivors, block, policy)).sum(axis=1)
    found = after_losses(6, block, policy, loss)
    assert found == pytest.approx((chance @ sizes, chance[sizes == 0].sum()), abs=1e-12)


def test_sizes_by_enumeration_of_who_is_there() -> None:
    """Blocks of two of six clients, cohorts of four: who is there, then who is lost."""
    there = np.array(list(itertools.product([False, True], repeat=6)))
    chance = np.where(there, 0.8, 0.2).prod(axis=1)
    begins = chance[there.reshape(-1, 3, 2).all(axis=2).sum(axis=1) >= 2].sum()
    found = study.advise(6, 4, 0.2, loss_rate=0.1, trials=0)
    (pairs,) = (one for one in found.options if one.scheme == "batch_partitioning:2")
    # rates are float32
    assert pairs.cardinality == pytest.approx(begins * 4 * 0.9**2, rel=1e-6)
    assert pairs.skipped == pytest.approx(
        1 - begins * (1 - (1 - 0.9**2) ** 2), rel=1e-6
    )
    assert pairs.is_computed


def test_without_losses_sizes_are_theorem_1() -> None:
    for one in study.advise(24, 8, (0.1, 0.4), trials=0).options:
        if one.scheme.startswith("batch_partitioning"):
            low, high = (
                selection.expected_cardinality(24, 8, one.block_size, rate)
                for rate in (0.4, 0.1)
            )
            assert low < one.cardinality < high
    for one in study.advise(24, 8, 0.3, trials=0).options:
        if "crossing" not in one.scheme:
            exact = selection.expected_cardinality(24, 8, one.block_size, 0.3)
            # rates are float32
            assert one.cardinality == pytest.approx(exact, rel=1e-6)


@pytest.mark.long
def test_simulated_sizes_are_the_exact_ones() -> None:
    """Chance of false failure below 1e-6.

    Six deviations of a mean of 4 trials of 200 rounds.
    """
    online = availability.independent(0.1)
    selector = selection.batch_partitioning(6, 4, 2)
    begins = selection.expected_cardinality(6, 4, 2, 0.1) / 4
    setting = Setting(6, 4, (0.1,), 0.2, "independent", rounds=200, trials=4, seed=3)
    found = play(selector, online, "drop_block", 0.2, 2, setting)
    mean, empty = after_losses(4, 2, "drop_block", 0.2)
    assert abs(found.cardinality - begins * mean) < 6 * 2 / math.sqrt(4 * 200)
    assert abs(found.skipped - (1 - begins * (1 - empty))) < 6 * 0.5 / math.sqrt(
        4 * 200
    )


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_sums_never_grow_with_T(loss: float) -> None:
    options = study.advise(120, 60, 0.1, loss_rate=loss, trials=0).options
    blocks = [one for one in options if "crossing" not in one.scheme]
    assert len(blocks) > 4
    for less, more in itertools.pairwise(blocks):
        assert less.block_size < more.block_size
        assert less.weak_lower < more.weak_lower
        assert less.cardinality >= more.cardinality


# ---- promises


@pytest.mark.long
def test_promises_are_those_of_the_families() -> None:
    for one in study.advise(16, 8, 0.1, trials=0).options:
        if one.scheme == "uniform":
            assert (one.weak_lower, one.strong_privacy, one.hidden_worst) == (1, 1, 1.0)
        elif "crossing" in one.scheme:
            side = one.weak_lower
            lines = design.grids(16, side)
            assert one.hidden_worst == pytest.approx(
                float(np.min(privacy.hidden_among(lines)))
            )
            assert one.hidden_worst == pytest.approx(side**2 / (2 * side - 1))
            assert one.strong_privacy == 1
        else:
            same = one.block_size
            assert (one.weak_lower, one.strong_privacy, one.hidden_worst) == (
                same,
                same,
                same,
            )


@pytest.mark.slow
def test_what_is_promised_holds_in_every_simulation() -> None:
    found = study.advise(24, 6, 0.1, loss_rate=0.1, rounds=60, trials=3)
    for one in (*found.options, *found.policies):
        if one.played is not None and one.played.weak_lower is not None:
            assert one.played.weak_lower >= one.weak_lower
            assert one.played.strong_privacy >= one.strong_privacy  # type: ignore[operator]
            assert one.played.hidden_worst >= one.hidden_worst - 1e-9  # type: ignore[operator]


@pytest.mark.long
def test_nothing_is_promised_where_split_blocks_are_summed() -> None:
    found = study.advise(6, 3, 0.1, loss_rate=0.2, rounds=60, trials=2)
    by = {one.policy: one for one in found.policies}
    assert (by["ignore"].weak_lower, by["ignore"].hidden_worst) == (1, 1.0)
    assert by["ignore"].played is not None
    assert by["ignore"].played.weak_upper == 1
    target = found.chosen.block_size  # type: ignore[union-attr]
    assert by["abort"].weak_lower == by["drop_block"].weak_lower == target > 1
    assert (
        by["abort"].cardinality
        <= by["drop_block"].cardinality
        < by["ignore"].cardinality
    )


def test_clients_that_are_all_asked_move_together() -> None:
    found = study.advise(6, 6, 0.0, trials=0)
    assert found.options[-1].weak_lower == 6
    assert next(one for one in found.options if one.scheme == "uniform").weak_lower == 6


# ---- what is simulated


@pytest.mark.long
def test_fairness_of_user_partition() -> None:
    """Two blocks take turns: after 7 rounds one has had 4, the other 3."""
    found = study.advise(6, 3, 0.0, rounds=7, trials=2, memory=0.5, share=0.8)
    (one,) = (one for one in found.options if one.scheme == "partition")
    assert one.played is not None
    assert one.played.fairness_gap == pytest.approx(1 / 7)
    assert one.played.fairness_interval == pytest.approx((1 / 7, 1 / 7))
    assert one.skipped == 0
    # its two blocks are never in one sum: each update is the third part of one,
    # whatever drifts
    assert one.played.update_hidden_worst == pytest.approx(3)
    place = found.headings.index("update hidden")
    assert found.table[found.options.index(one)][place] == "3.00"
    place = found.headings.index("what lasts hidden")
    # four sums of one block with a fresh fifth: h = 1 / 3 * 4 / (4 + 1/4)
    assert found.table[found.options.index(one)][place] == "3.19"
    assert "drift with memory 0.5, share 0.8" in found.reading


@pytest.mark.long
def test_measures_by_hand() -> None:
    triangle = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    pairs = [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    found = measure(np.array([triangle, pairs], np.bool_), memory=0.5)
    assert (found.cardinality, found.skipped) == (
        pytest.approx(4 / 3),
        pytest.approx(1 / 3),
    )
    assert found.fairness_gap == pytest.approx((2 / 3 + 0) / 2)
    assert (found.weak_lower, found.weak_upper) == (2, 2)
    assert (found.strong_privacy, found.exposed_clients) == (1, 0)
    # of v = a (1, 1, 0) + b (0, 1, 1) the largest share of one entry: h = 2/3, so among
    # 1.5
    assert (found.hidden_worst, found.hidden_median) == (
        pytest.approx(1.5),
        pytest.approx(1.75),
    )
    # M = [[2, 1/2], [1/2, 2]]: h = 8/15 of all updates of the triangle, and 1/2 of a
    # pair's
    assert found.update_hidden_worst == pytest.approx(15 / 8)
    assert found.lasting_hidden_worst is None
    # with half of it fresh M = [[4, 1], [1, 4]]: h = 2 * 3 / 15 of a triangle's corner
    half = measure(np.array([triangle], np.bool_), memory=0.5, share=0.5)
    assert half.lasting_hidden_worst == pytest.approx(15 / 6)


@pytest.mark.long
def test_one_exposed_client_is_T_of_1() -> None:
    histories = np.array(
        [[[1, 1, 1, 1], [0, 0, 1, 1]], [[1, 1, 1, 1], [0, 1, 1, 1]]], np.bool_
    )
    found = measure(histories)
    assert (found.weak_lower, found.weak_upper) == (1, 1)
    assert (found.hidden_worst, found.exposed_clients) == (1.0, 0.5)


def test_no_sum_at_all() -> None:
    found = measure(np.zeros((2, 3, 4), np.bool_), memory=0.5)
    assert found.update_hidden_worst is None
    assert (found.weak_lower, found.hidden_worst, found.strong_privacy) == (
        None,
        None,
        None,
    )
    assert (found.skipped, found.cardinality) == (1.0, 0.0)


@pytest.mark.long
def test_blocks_that_go_as_one_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(5).integers(0, 2, (2, 3, 4)).astype(np.bool_)
    history = np.repeat(rows, 2, axis=-1)
    single = dataclasses.asdict(measure(history, 2, 0.5))
    monkeypatch.setattr(_options, "_ENTRIES", 0)
    for name, value in dataclasses.asdict(measure(history, 2, 0.5)).items():
        assert value == pytest.approx(single[name]), name
    split = history.copy()
    split[:, 0, 0] ^= True  # a block that is not whole: then nothing goes as one
    assert measure(split, 2).strong_privacy == 1


# ---- the choice


@pytest.fixture
def own_rows() -> Iterator[None]:
    """Let the other tests here see no scheme that one registers."""
    with mock.patch.dict("mrsa_jax.selection.registry.ROWS"):
        yield


def _option(weak: int, hidden: float, mean: float, name: str = "") -> Option:
    sizes = (120, 12, weak, "drop_block", weak, weak, hidden)
    return Option(name or f"s{weak}", "", *sizes, mean, (mean, mean), 0.0, (0.0, 0.0))


EVERY = (
    _option(1, 1.0, 12.0, "random"),
    _option(3, 3.0, 11.0),
    _option(4, 4.0, 9.7),
    _option(4, 16 / 7, 11.5, "crossing"),
    _option(6, 6.0, 3.0),
)


@pytest.mark.parametrize(
    ("demands", "taken"),
    [
        (Demands(), "s4"),  # hides best of those with 0.8 x 12 in a mean sum
        (Demands(privacy=2), "crossing"),
        (Demands(privacy=5), "s6"),
        (Demands(hidden=2.5), "s3"),
        (Demands(privacy=4, hidden=3.0), "s4"),
        (Demands(cardinality=11.0), "s3"),
        (Demands(cardinality=11.2), "crossing"),
        (Demands(cardinality=11.8), None),
        (Demands(privacy=7), None),
        (Demands(privacy=6, cardinality=5.0), None),
        (Demands(privacy=1), "random"),
    ],
)
def test_the_choice_gives_what_is_demanded(demands: Demands, taken: str | None) -> None:
    found = choose(EVERY, demands)
    assert (None if found is None else found.scheme) == taken


def test_what_costs_too_much_is_taken_where_nothing_else_protects() -> None:
    dear = (EVERY[0], EVERY[4])
    assert choose(dear, Demands()) == EVERY[4]
    assert choose(EVERY[:1], Demands()) is None


def test_what_no_other_beats_is_marked() -> None:
    worse = _option(3, 3.0, 10.0, "worse")
    unknown = dataclasses.replace(worse, scheme="unknown", cardinality=math.nan)
    found = mark_best([*EVERY, worse, unknown])
    assert [one.scheme for one in found if not one.is_best] == ["worse", "unknown"]


def test_demands_that_nothing_meets_are_said() -> None:
    found = study.advise(12, 4, 0.1, want_privacy=5, trials=0)
    assert found.chosen is None
    assert "T and hidden among end at the cohort" in found.sentences[0]
    found = study.advise(5, 3, 0.1, trials=0)
    assert "blocks of no size fit 5 clients and 3 of them" in found.sentences[0]
    found = study.advise(12, 4, 0.3, want_privacy=4, min_cardinality=3.9, trials=0)
    assert "Nearest is partition" in found.sentences[0]


def test_sizes_that_T_divides_not() -> None:
    assert targets(120, 12) == [2, 3, 4, 6, 12]
    assert targets(7, 2) == [2]
    found = study.advise(122, 13, 0.2, want_privacy=4, trials=0)
    assert found.chosen is not None
    assert (found.chosen.num_clients, found.chosen.cohort_size) == (120, 12)
    text = " ".join(found.sentences)
    assert "T = 4 does not divide 122 clients: 2 of them stay out" in text
    assert "does not divide 13 clients per round: ask 12, or 16" in text
    assert "batch_partitioning:4, 120/12" in str(found)


@pytest.mark.long
def test_schemes_of_ones_own_are_judged() -> None:
    schemes = ("bernoulli:0.4", "minimum_separation:1:uniform")
    found = study.advise(6, 3, 0.1, schemes=schemes, **FAST)
    by = {one.scheme: one for one in found.options}
    assert by["bernoulli:0.4"].cohort_size is None
    assert 0 < by["bernoulli:0.4"].cardinality < 6
    assert by["minimum_separation:1:uniform"].weak_lower == 1
    with pytest.raises(ConfigurationError, match="must be a multiple of"):
        study.advise(12, 4, 0.1, schemes=("batch_partitioning:5",))


@pytest.mark.usefixtures("own_rows")
def test_a_registered_scheme_that_cannot_serve_stops_nothing_unless_it_is_named() -> (
    None
):
    def refuses(num_clients: int, cohort_size: int) -> Any:
        return selection.batch_partitioning(num_clients, cohort_size, 5)

    def fails(num_clients: int, cohort_size: int) -> Any:
        raise KeyError("nothing")

    def needs(num_clients: int, cohort_size: int, share: float) -> Any:
        return selection.bernoulli(num_clients, share)

    def serves(num_clients: int, cohort_size: int) -> Any:
        return selection.batch_partitioning(num_clients, cohort_size, cohort_size)

    for factory in (refuses, fails, needs, serves):
        selection.register(factory.__name__, factory)
    every = study.advise(6, 3, 0.1, trials=0).options
    own = [
        one.scheme
        for one in every
        if one.scheme in ("refuses", "fails", "needs", "serves")
    ]
    assert own == ["serves"]
    for name, words in (
        (
            "refuses",
            "factory of refuses raised: .*must be a multiple of .*; got 3 and 5",
        ),
        ("fails", "`factory` must make a selector; .* it raised KeyError: 'nothing'"),
        ("needs", "`schemes` must be written needs:SHARE"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            study.advise(6, 3, 0.1, trials=0, schemes=(name,))


@pytest.mark.long
def test_absences_that_last_are_simulated() -> None:
    found = study.advise(6, 3, 0.2, availability="markov:3", **FAST)
    assert found.chosen is not None
    assert not found.chosen.is_computed
    assert found.chosen.cardinality == found.chosen.played.cardinality  # type: ignore[union-attr]
    assert all("±" in row[3] for row in found.table), (
        "a simulated value shows its interval"
    )
    nothing = study.advise(6, 3, 0.2, availability="markov:3", trials=0)
    assert nothing.chosen is None
    assert "?" in str(nothing)


@pytest.mark.long
def test_how_often_enforced_rounds_work_by_enumeration() -> None:
    """Two blocks of 2 of four who are asked, a threshold of 3.

    Both blocks must stay whole.
    """
    found = study.advise(12, 4, 0.2, want_privacy=2, loss_rate=0.1, trials=0)
    assert found.chosen is not None
    assert found.chosen.block_size == 2
    chance = sum(
        0.9 ** sum(there) * 0.1 ** (4 - sum(there))
        for there in itertools.product((0, 1), repeat=4)
        if 2 * (there[0] == there[1] == 1) + 2 * (there[2] == there[3] == 1) >= 3
    )
    assert f"{100 * chance:.3g} % of their rounds work" in found.sentences[-1]


@pytest.mark.long
def test_advice_is_shown() -> None:
    found = study.advise(6, 3, 0.1, **FAST)
    assert "take partition" in repr(found)
    assert found.title in str(found)
    assert "<table" in found._repr_html_()
    assert (
        json.loads(json.dumps(found.to_dict(), allow_nan=False))["chosen"]["weak_lower"]
        == 3
    )


@pytest.mark.parametrize(
    ("rates", "model", "words"),
    [
        (
            (0.1, 0.6),
            "independent",
            "dropout rates 0.1, 0.6 shuffled over the clients by seed",
        ),
        (
            (0.1, 0.3),
            "markov:4",
            "dropout rates 0.1, 0.3 shuffled over the clients by seed",
        ),
        (
            (0.1, 0.6),
            "cyclic",
            "starts in the cycle of dropout rates 0.1, 0.6 shuffled",
        ),
        (
            (0.2,),
            "diurnal:0.1:4",
            "places in the period shuffled over the clients by seed",
        ),
        ((0.3, 0.3), "independent", ""),
        ((0.3,), "markov:4", ""),
    ],
)
def test_figures_of_a_drawn_assignment_name_it(
    rates: tuple[float, ...], model: str, words: str
) -> None:
    """Whatever another seed would assign otherwise is said to be of one assignment."""
    found = [
        study.advise(12, 4, rates, availability=model, trials=0, seed=k) for k in (3, 4)
    ]
    sizes = [
        [one.cardinality for one in own.options if one.is_computed] for own in found
    ]
    assert bool(words) or sizes[0] == sizes[1]
    for seed, own in zip((3, 4), found, strict=True):
        (*_, said) = [text for text in own.sentences if "one assignment" in text] or [
            ""
        ]
        assert words in said
        assert bool(said) == bool(words)
        assert not words or f"by seed {seed}." in said
        assert own.to_dict()["assignment"] == (own.setting.assignment or None)
        assert "exact" not in f"{own} {own.reading} {own.to_dict()}"


def test_two_assignments_have_two_sizes() -> None:
    """Blocks of equal rates work more often than mixed ones.

    No figure is of all assignments.
    """
    sizes = {
        study.advise(
            12, 4, (0.1, 0.6), trials=0, schemes=("batch_partitioning:2",), seed=seed
        )
        .options[2]
        .cardinality
        for seed in range(3)
    }
    assert len(sizes) > 1


@pytest.mark.parametrize(
    ("clients", "cohort", "max_auc", "least", "block"),
    [
        (120, 12, 0.75, 5, 6),  # 5 does not divide 12, the next T does
        (100, 20, 0.75, 5, 5),
        (128, 64, 0.70, 8, 8),
        (128, 64, 0.60, 32, 32),
        (121, 13, 0.75, 5, 5),  # no T divides both, so some clients stay out
    ],
)
def test_a_bound_on_tests_of_clients_gives_the_least_blocks(
    clients: int, cohort: int, max_auc: float, least: int, block: int
) -> None:
    found = study.advise(clients, cohort, 0.01, trials=0, max_auc=max_auc)
    assert found.chosen is not None
    assert (found.demands.least_block, found.demands.block) == (least, block)
    # crossing partitions have the same weak T, but their clients part
    assert found.chosen.strong_privacy >= block
    assert found.chosen.scheme in (f"batch_partitioning:{block}", "partition")
    assert privacy.attribute_bound(found.chosen.strong_privacy).auc <= max_auc
    words = " ".join(found.sentences)
    assert f"T = {least} is the least for which no test" in words
    assert (f"the next one is {block}." in words) == (block > least)
    assert "stays visible (TPR" in words


def test_advantage_and_prevalence_count_as_well() -> None:
    found = study.advise(64, 16, 0.01, trials=0, max_advantage=0.3, prevalence=0.1)
    least = next(
        t for t in range(1, 99) if privacy.attribute_bound(t, 0.1).advantage <= 0.3
    )
    assert found.demands.least_block == least
    both = study.advise(
        64, 16, 0.01, trials=0, max_auc=0.7, max_advantage=0.5, want_privacy=16
    )
    assert both.demands.least_block == 8  # advantage .5 needs two only
    assert both.chosen is not None
    assert both.chosen.weak_lower == 16
    bound = "exceeds AUC 0.7 and advantage 0.5."
    assert any(bound in sentence for sentence in both.sentences)


def test_other_assignments_of_unequal_rates_are_reported() -> None:
    """C of the standard setting, and the oracle in fractions for small blocks."""
    own = study.advise(
        120, 12, [0.1, 0.2, 0.3, 0.4, 0.5], want_hidden=6.0, want_privacy=6, trials=0
    )
    found = own.reassigned
    assert found is not None
    assert found.here.scheme == "batch_partitioning:6"
    assert found.mean == pytest.approx(8.43, abs=0.06)
    assert found.deviation == pytest.approx(0.26, abs=0.03)
    assert 7.7 < found.least < found.mean < found.most < 11.38
    assert round(found.cyclic, 2) == 7.70
    assert round(found.equal_rates.cardinality, 2) == 11.38
    assert own.table[-1][0] == "batch_partitioning:6, blocks by equal rates"
    assert "11.38 if each block holds clients of equal rates" in str(own)
    # nothing random is in the table without trials, and random selection is computed
    assert own.table[0][6] == "0.0576"
    assert own.to_dict()["reassigned"]["cyclic"] == found.cyclic
    # blocks of (1/4, 1/4) and (1/2, 1/2), or of (1/4, 1/2) twice: one of two is whole
    small = study.advise(
        4, 2, [0.25, 0.5], want_privacy=2, want_hidden=2.0, trials=0
    ).reassigned
    assert small is not None
    alike, mixed = (Fraction(3, 4) ** 2, Fraction(1, 4)), (Fraction(3, 8),) * 2
    for whole, size in ((alike, small.equal_rates.cardinality), (mixed, small.cyclic)):
        assert size == pytest.approx(float(2 * (1 - (1 - whole[0]) * (1 - whole[1]))))
    ends = sorted((small.cyclic, small.equal_rates.cardinality))
    assert [small.least, small.most] == pytest.approx(ends)
    equal = study.advise(120, 12, 0.2, want_privacy=6, trials=0)
    assert equal.reassigned is None
    ordered = study.advise(
        120,
        12,
        [0.1, 0.2, 0.3, 0.4, 0.5],
        assignment="sorted",
        want_hidden=6.0,
        trials=0,
    )
    assert ordered.chosen is not None
    assert round(ordered.chosen.cardinality, 2) == 11.38
    assert "blocks by equal rates" not in str(ordered)
    with pytest.raises(ConfigurationError, match="`assignment` must not be by_label"):
        study.advise(120, 12, [0.1, 0.2], assignment="by_label", trials=0)
