"""Studies with segments.

Misuse, the registry, who is in which group, what is judged and said.
"""

from __future__ import annotations

import html
import json
import pathlib
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_jax.hetero import _segments as own_segments
from mrsa_jax.study import (
    AggregationConfig,
    PopulationConfig,
    ProtocolConfig,
    SegmentConfig,
    TrainConfig,
    check,
    load_config,
    open_study,
    validate,
)
from mrsa_jax.study.runs import _segments

POPULATION = PopulationConfig(num_clients=24, cohort_size=12, dropout_rates=(0.1,))
WORDS = ["--num-clients", "24", "--cohort-size", "12", "--dropout-rates", "0.1", "--dataset",
         "digits", "--model", "logistic", "--evaluate-every", "4", "--rounds", "6"]  # fmt: skip


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        (
            SegmentConfig(subgroups=(1,)),
            "`subgroups` must not be set without --segments",
        ),
        (
            SegmentConfig(combine="median"),
            "`combine` must not be set without --segments",
        ),
        (
            SegmentConfig(num_byzantine=1),
            "`num_byzantine` must not be set without --segments",
        ),
        (
            SegmentConfig("mc", group_levels=(4,)),
            "`group_levels` must hold 2 or more; got",
        ),
        (
            SegmentConfig("mc", group_levels=(1, 4)),
            r"`group_levels` must lie in \[2, 2\*\*23\]",
        ),
        (SegmentConfig("mc", group_levels=(4, 2)), "`group_levels` must not descend"),
        (SegmentConfig("mc", subgroups=(1, 1)), "`subgroups` must be one number"),
        (
            SegmentConfig("hc"),
            "`hybrid_threshold` must be given for hc, and for no other",
        ),
        (
            SegmentConfig("mc", hybrid_threshold=2),
            "`hybrid_threshold` must be given for hc",
        ),
        (
            SegmentConfig("hc", hybrid_threshold=5),
            r"`hybrid_threshold` must lie in \[1, 4\]",
        ),
        (
            SegmentConfig("mc", group_levels=(2,) * 7),
            "`group_levels` must leave two clients of a cohort or more .* got '1 of 12",
        ),
        (SegmentConfig("mc", client_rates=()), "`client_rates` must hold at least one"),
        (
            SegmentConfig("mc", client_rates=(1.0, 0.0)),
            "`client_rates` must be positive",
        ),
        (SegmentConfig("mc", trim=0.5), r"`trim` must lie in \[0, 0.5\)"),
        (SegmentConfig("mc", trim=0.1), "`trim` must not be set unless --combine is"),
        (SegmentConfig(trim=0.1), "`trim` must not be set without --segments"),
        (
            SegmentConfig("mc", attack="wrong_pads"),
            "`num_byzantine` must be at least 1 with an",
        ),
        (
            SegmentConfig("mc", num_byzantine=1),
            "`num_byzantine` must be at least 1 with an",
        ),
        (
            SegmentConfig("mc", attack="scaling", num_byzantine=24),
            "`num_byzantine` must be fewer than the 24 clients",
        ),
        (
            SegmentConfig("mc", group_sizes=(6, 6)),
            "`group_sizes` must be one number, at least 1, for each",
        ),
        (
            SegmentConfig("mc", group_levels=(2, 4, 8), group_sizes=(3, 6, 6)),
            "`group_sizes` must add up to the clients of a cohort",
        ),
        (
            SegmentConfig(group_sizes=(6, 6)),
            "`group_sizes` must not be set without --segments",
        ),
        (
            SegmentConfig(rate_boundaries=(2.0,)),
            "`rate_boundaries` must not be set without --segments",
        ),
        (
            SegmentConfig("mc", attack="scaling", byzantine_clients=(3, 3)),
            "`byzantine_clients` must be different clients from 0 to 23",
        ),
        (
            SegmentConfig("mc", attack="scaling", byzantine_clients=(24,)),
            "`byzantine_clients` must be different clients from 0 to 23",
        ),
        (
            SegmentConfig(
                "mc", attack="scaling", byzantine_clients=(3,), num_byzantine=1
            ),
            "`num_byzantine` must not be set with byzantine_clients",
        ),
        (
            SegmentConfig("mc", byzantine_clients=(3,)),
            "`byzantine_clients` must be at least 1 with an attack",
        ),
        (
            SegmentConfig("mc", attack_strength=2.0),
            "`attack_strength` must not be set without an attack that has a strength",
        ),
        (
            SegmentConfig(
                "mc", attack="wrong_pads", num_byzantine=1, attack_strength=2.0
            ),
            "`attack_strength` must not be set without an attack that has a strength",
        ),
        (
            SegmentConfig("mc", weigh_sums=False),
            "`weigh_sums` must not be set unless --combine is",
        ),
    ],
)
def test_segments_that_make_no_sense_are_refused(
    segments: SegmentConfig, message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        validate(TrainConfig(population=POPULATION, hetero=segments))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"scheme": "bernoulli:0.2"},
            "`segments` must be none where cohorts differ in size",
        ),
        (
            {"aggregation": AggregationConfig(weighted=True)},
            "`weighted` must not be set",
        ),
        (
            {"protocol": ProtocolConfig(split_policy="abort")},
            "`split_policy` must be ignore",
        ),
        (
            {"protocol": ProtocolConfig(whole_blocks=True)},
            "`whole_blocks` must not be set",
        ),
    ],
)
def test_what_does_not_go_with_segments_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        validate(
            TrainConfig(population=POPULATION, hetero=SegmentConfig("mc"), **changes)
        )


def test_krum_needs_more_sums(tmp_path: pathlib.Path) -> None:
    config = SegmentConfig("mc", combine="krum", attack="sign_flip", num_byzantine=1)
    out = tmp_path / "out"
    with pytest.raises(
        mj.ConfigurationError, match="krum needs 5 sums of each segment"
    ):
        check(TrainConfig(population=POPULATION, hetero=config, out=out))


def test_small_groups_can_be_accepted_but_not_empty_ones() -> None:
    levels = (2,) * 7
    config = SegmentConfig("mc", group_levels=levels, allow_small_groups=True)
    validate(TrainConfig(population=POPULATION, hetero=config))
    config = SegmentConfig("mc", group_levels=(2,) * 13, allow_small_groups=True)
    with pytest.raises(
        mj.ConfigurationError, match="`group_levels` must not be more than"
    ):
        validate(TrainConfig(population=POPULATION, hetero=config))


def test_names_are_those_of_the_registry() -> None:
    hints = typing.get_type_hints(SegmentConfig)
    names = {field: typing.get_args(hint) for field, hint in hints.items()}
    assert names["combine"] == tuple(_segments.COMBINE)
    assert names["attack"] == tuple(_segments.ATTACKS)
    assert set(names["segments"]) == {"none", "groups", *own_segments.SCHEMES}
    robust = SegmentConfig("sc", num_byzantine=0)
    for make in _segments.COMBINE.values():
        rule = make(robust)
        assert rule is None or callable(rule)


def test_unequal_groups_are_those_of_example_5() -> None:
    """HeteroSAg, Section V-B: n_g = 3, 6, 6 and L_g = 1, 2, 2."""
    config = SegmentConfig("sc", (4, 8, 16), subgroups=(1, 2, 2), group_sizes=(3, 6, 6))
    selector = mj.selection.uniform(20, 15)
    study = _segments.build_segments(0, config, selector, 10, None)
    assert study is not None
    layout = study.layout
    assert [len(column) for column in layout.columns] == [3] * 5
    assert layout.levels == (4, 8, 8, 16, 16)
    plus = mj.hetero.segment_matrix_plus("sc", [1, 2, 2])
    assert np.asarray(layout.matrix).tolist() == plus.tolist()
    assert mj.hetero.privacy_level(layout.matrix) == 0.4
    # slowest first
    assert (np.diff(study.rates[study.members(np.arange(20) < 15)]) >= 0).all()


def test_groups_of_all_clients_end_at_the_boundaries() -> None:
    """Also where the rates do not go into the clients, here 5 into 17."""
    config = SegmentConfig("mc", (2, 4, 8), rate_boundaries=(1.5, 4.0))
    study = _segments.build_segments(1, config, mj.selection.uniform(17, 17), 9, None)
    assert study is not None
    rates = study.rates[study.members(np.ones(17, np.bool_))] / 1e6
    bands = [set(rates[list(column)].tolist()) for column in study.layout.columns]
    assert bands == [{1.0}, {2.0, 3.0}, {4.0}]
    # of a cohort they keep the proportions: 1, 2 and 2 of five rates
    assert config.column_sizes(10) == [2, 4, 4]


def test_blocks_stay_together_where_group_sizes_allow_it() -> None:
    selector = mj.selection.batch_partitioning(24, 12, 3)
    for sizes, is_whole in (((3, 9), True), ((4, 8), False)):
        config = SegmentConfig("mc", (2, 4), group_sizes=sizes)
        study = _segments.build_segments(3, config, selector, 10, None)
        assert study is not None
        blocks = study.order.reshape(-1, 3) // 3
        assert (blocks == blocks[:, :1]).all() == is_whole


@pytest.mark.parametrize(
    ("attack", "strength", "expected"),
    [("sign_flip", 3.0, -3.0), ("scaling", 4.0, 4.0), ("scaling", None, 10.0)],
)
def test_the_clients_that_lie_and_their_strength_are_set(
    attack: str, strength: float | None, expected: float
) -> None:
    config = SegmentConfig(
        "mc", attack=attack, byzantine_clients=(1, 3), attack_strength=strength
    )
    behaviour = _segments.byzantine_of(config, 4)
    assert np.flatnonzero(behaviour.is_byzantine).tolist() == [1, 3]
    updates = jnp.ones((4, 2))
    mine = jnp.asarray(behaviour.is_byzantine)
    sent = behaviour.corrupt_updates(jax.random.key(0), updates, mine)
    assert sent[:, 0].tolist() == [1.0, expected, 1.0, expected]


def test_sums_that_count_once_tolerate_what_the_paper_counts() -> None:
    """SC of four groups: a row has two groups in one block, and two alone."""
    matrix = mj.hetero.segment_matrix("sc", 4)
    for weighs, tolerated in ((True, 0), (False, 1)):
        config = SegmentConfig("sc", combine="median", weigh_sums=weighs)
        assert _segments.tolerated_by_rule(config, matrix, (2,) * 4) == tolerated


def test_groups_hold_whole_blocks_where_they_can() -> None:
    """By hand: 12 of K = 12 in five groups.

    Blocks of 2 and 3 in three groups, and of 6.
    """
    five, three = SegmentConfig("mc"), SegmentConfig("mc", group_levels=(2, 4, 8))
    assert five.column_sizes(12) == [3, 3, 2, 2, 2]
    assert three.column_sizes(12, 3) == [6, 3, 3]
    assert three.column_sizes(12, 6) == [4, 4, 4]
    cut = SegmentConfig("mc", group_levels=(2, 4), subgroups=(1, 2))
    assert cut.smallest_column(12) == 3


def test_slots_are_filled_slowest_first_and_blocks_stay_together() -> None:
    config = SegmentConfig("sc", group_levels=(2, 4, 8), client_rates=(5.0, 1.0, 3.0))
    made = _segments.build_segments(3, config, mj.selection.uniform(24, 12), 60, None)
    assert made is not None
    assert sorted(set(made.rates.tolist())) == [1e6, 3e6, 5e6]
    assert np.bincount((made.rates / 1e6).astype(int)).tolist() == [0, 8, 0, 8, 0, 8]
    assert (np.diff(made.rates[made.order]) >= 0).all()
    cohort = np.zeros(24, bool)
    cohort[[20, 3, 7]] = True
    assert sorted(made.members(cohort).tolist()) == [3, 7, 20]
    selector = mj.selection.batch_partitioning(24, 12, 3)
    blocks = _segments.build_segments(3, config, selector, 60, None)
    assert blocks is not None
    assert (
        blocks.order.reshape(-1, 3) // 3 == blocks.order.reshape(-1, 3)[:, :1] // 3
    ).all()
    slowest = made.rates.reshape(-1, 3).min(axis=1)
    assert (np.diff(slowest[blocks.order.reshape(-1, 3)[:, 0] // 3]) >= 0).all()
    assert [len(column) for column in blocks.layout.columns] == [6, 3, 3]


@pytest.mark.long
def test_what_the_server_learns_is_judged_segment_by_segment() -> None:
    """By hand: two rounds of SC over two groups of two, clients 0 to 3, all at one rate."""
    config = SegmentConfig("sc", group_levels=(2, 4), client_rates=(1.0,))
    uniform = mj.selection.uniform(6, 4)
    made = _segments.build_segments(0, config, uniform, 4, None)
    assert made is not None
    cohorts = np.zeros((3, 6), bool)
    cohorts[0, :4] = True
    cohorts[2, 1:5] = True
    survivors = np.repeat(cohorts[:, None], 5, axis=1)
    judged, history = made.play(survivors)
    # both segments are summed by all four (SC at G = 2 chains both rows)
    assert [rows.astype(int).tolist() for rows in history.participation] == [
        [[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]]
    ] * 2
    assert judged.participation.astype(int).sum(axis=1).tolist() == [4, 0, 4]
    assert judged.rank.tolist() == [1, 1, 2]
    assert judged.strong_privacy.tolist() == [4, 4, 1]
    assert judged.first_exposure.tolist() == [-1] * 6
    groups = _segments.build_segments(
        0, SegmentConfig("groups", (2, 4), client_rates=(1.0,)), uniform, 4, None
    )
    assert groups is not None
    judged, _ = groups.play(survivors)
    assert judged.rank.tolist() == [2, 2, 4]  # {0,1} {2,3} {1,2} {3,4}
    assert judged.strong_privacy.tolist() == [2, 2, 1]
    facts = groups.facts(survivors, judged.participation)
    assert facts["privacy_level"] == 0.0
    assert facts["privacy_level_by_round"][[0, 2]].tolist() == [0.0, 0.0]
    assert np.isnan(facts["privacy_level_by_round"][1])  # nobody was asked


@pytest.mark.long
def test_training_with_segments_says_what_they_leak(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "train"
    toml = tmp_path / "study.toml"
    toml.write_text(
        '[hetero]\nsegments = "mc"\ncombine = "median"\nattack = "wrong_pads"\n'
        "num_byzantine = 1\nclient_rates = [1, 2]\n"
    )
    loaded = load_config(TrainConfig, toml).hetero
    assert (loaded.segments, loaded.client_rates) == ("mc", (1.0, 2.0))
    words = [
        "train",
        "--config",
        str(toml),
        *WORDS,
        "--scheme",
        "uniform",
        "--clip",
        "0.1",
    ]
    assert main([*words, "--json", "--out", str(out)]) == 0
    content = json.loads(capsys.readouterr().out)
    (row,) = content["rows"]
    assert row["privacy_level"] == pytest.approx(0.8)
    assert row["round_seconds"] > 0
    # a block of two groups of three holds half of twelve
    assert row["tolerated_byzantine"] == 0
    assert row["aggregation_cardinality"] == 12
    assert content["sentences"][-1].startswith(
        "Updates are summed segment by segment, at privacy"
    )
    assert html.escape(content["sentences"][-1]) in (out / "report.html").read_text()
    results = open_study(out).load().isel(scheme=0)
    assert (results["status"].values == mj.Status.OK).all()
    assert results["participation"].values.sum(axis=1).tolist() == [12] * 6
    assert np.isfinite(results["loss"].values).all()
    assert set(results["upload_rate"].values.tolist()) == {1e6, 2e6}


@pytest.mark.slow
def test_a_demo_with_segments_attacks_them(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fine quantizers leave the attack nothing but algebra.

    Exposed clients are rebuilt.
    """
    out = tmp_path / "demo"
    words = [
        "demo",
        *WORDS,
        "--rounds",
        "40",
        "--segments",
        "groups",
        "--group-levels",
        "65536",
        "65536",
        "--schemes",
        "uniform",
        "partition",
        "--json",
        "--out",
        str(out),
    ]
    assert main([*words, "--clip", "0.5"]) == 0
    random, partition = json.loads(capsys.readouterr().out)["rows"]
    assert random["exposed_clients"] == 24
    assert random["reconstruction_error"] < 1e-2
    assert partition["exposed_clients"] == 0
    assert partition["strong_privacy"] == 6
    assert partition["reconstruction_error"] > 0.05


@pytest.mark.long
def test_points_of_a_sweep_have_what_a_training_reports(tmp_path: pathlib.Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        'command = "train"\nrounds = 4\nscheme = "uniform"\n'
        "[population]\nnum_clients = 20\ncohort_size = 15\ndropout_rates = [0.1]\n"
        '[data]\ndataset = "digits"\n'
        '[training]\nmodel = "logistic"\nevaluate_every = 4\n'
        "[protocol]\nstep_dropout_rate = 0.05\n"
        '[hetero]\ngroup_levels = [2, 4, 8]\ncombine = "median"\n'
        "group_sizes = [3, 6, 6]\nsubgroups = [1, 2, 2]\n"
        '[grid]\nhetero.segments = ["sc", "mc"]\n'
    )
    points = mj.study.sweep(str(study), out=str(tmp_path / "out"))
    for name in ("sc", "mc"):
        config = TrainConfig(
            rounds=4,
            scheme="uniform",
            population=PopulationConfig(20, 15, dropout_rates=(0.1,)),
            data=mj.study.DataConfig("digits"),
            training=mj.study.TrainingConfig("logistic", evaluate_every=4),
            protocol=ProtocolConfig(step_dropout_rate=0.05),
            hetero=SegmentConfig(
                name,
                (2, 4, 8),
                subgroups=(1, 2, 2),
                combine="median",
                group_sizes=(3, 6, 6),
            ),
        )
        one = mj.study.run(config).isel(scheme=0)
        for variable in (
            "privacy_level",
            "privacy_level_most",
            "tolerated_byzantine",
            "tolerated_byzantine_most",
            "round_seconds",
            "slowest_group",
            "expansion",
        ):
            swept = float(points[variable].sel(segments=name))
            assert swept == float(one[variable]), (name, variable)
