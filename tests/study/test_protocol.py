"""Studies of rounds in which clients are lost: misuse, what is stored, what is said."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_jax.study import (
    AggregationConfig,
    ProtocolConfig,
    TrainConfig,
    check,
    open_study,
    validate,
    validate as validate_without_jax,
)

SMALL = ["--num-clients", "12", "--cohort-size", "6", "--dropout-rates", "0.1"]
LEARN = ["--dataset", "digits", "--model", "logistic", "--evaluate-every", "5"]
GRAPH = ["--graph", "erdos_renyi", "--connection-probability", "0.8"]
LOSSY = [*GRAPH, "--step-dropout-rate", "0.05"]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (
            ProtocolConfig(step_dropout_rate=1.5),
            r"`step_dropout_rate` must lie in \[0, 1\]",
        ),
        (
            ProtocolConfig(connection_probability=0.5),
            "`connection_probability` must not be set",
        ),
        (
            ProtocolConfig("erdos_renyi", connection_probability=0.0),
            r"`connection_probability` must lie in \(0, 1\]; got 0.0",
        ),
        (
            ProtocolConfig("harary"),
            "`degree` must be given for harary and random_regular",
        ),
        (ProtocolConfig("complete", degree=3), "`degree` must be given for harary"),
        (ProtocolConfig("over_blocks:4"), "`graph` must be written over_blocks:T:K"),
        (ProtocolConfig("over_blocks:0:2"), "`graph` must be written over_blocks:T:K"),
        (
            ProtocolConfig("over_blocks:4:2", degree=2),
            "`degree` must be given for harary",
        ),
        (ProtocolConfig(threshold=0), "`threshold` must be at least 1; got 0"),
    ],
)
def test_a_protocol_that_makes_no_sense_is_refused_without_jax(
    protocol, message
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        validate_without_jax(TrainConfig(protocol=protocol))


@pytest.mark.parametrize(
    ("protocol", "scheme", "message"),
    [
        # p* of 12 clients is 1.36 even without losses
        (
            ProtocolConfig("erdos_renyi"),
            "uniform",
            "p\\* for 12 clients .* is above 1; got 1.3",
        ),
        (
            ProtocolConfig("erdos_renyi", step_dropout_rate=0.3),
            "uniform",
            "`connection_probability` must be given: CCESA's p\\* needs",
        ),
        (
            ProtocolConfig("harary", degree=12),
            "uniform",
            r"`degree` must lie in \[0, 11\]",
        ),
        (
            ProtocolConfig("complete", threshold=6),
            "uniform",
            "`threshold` must be at least 7,",
        ),
        (
            ProtocolConfig("harary", degree=4, threshold=2),
            "uniform",
            "must be at least 3, or CCESA",
        ),
        (
            ProtocolConfig("erdos_renyi", connection_probability=0.8, threshold=7),
            "uniform",
            "`threshold` must be at least 8, or CCESA's Appendix F attack",
        ),
        (
            ProtocolConfig("over_blocks:5:1"),
            "uniform",
            "blocks that divide the clients of a round",
        ),
        (
            ProtocolConfig("over_blocks:2:3"),
            "batch_partitioning:4",
            "over blocks of the scheme's",
        ),
        (
            ProtocolConfig("over_blocks:4:3"),
            "uniform",
            r"`degree` must lie in \[0, 2\]",
        ),
        (
            ProtocolConfig("harary", degree=4),
            "bernoulli:0.2",
            "`graph` must be complete, with majorities as thresholds, where cohorts differ "
            "in size",
        ),
        (
            ProtocolConfig(whole_blocks=True),
            "uniform",
            "`whole_blocks` must not be set",
        ),
        (
            ProtocolConfig("harary", degree=4, whole_blocks=True),
            "batch_partitioning:2",
            "`graph` must be complete or over_blocks:T:K with --whole-blocks",
        ),
        (
            ProtocolConfig(threshold=2, allow_unmasking_risk=True, whole_blocks=True),
            "batch_partitioning:2",
            "`allow_unmasking_risk` must not be set with --whole-blocks",
        ),
        (
            ProtocolConfig(threshold=6, whole_blocks=True),
            "batch_partitioning:2",
            "`threshold` must be at least 7,",
        ),
    ],
)
def test_a_protocol_that_does_not_fit_the_cohort_is_refused(
    tmp_path: pathlib.Path, protocol, scheme, message
) -> None:
    config = TrainConfig(protocol=protocol, scheme=scheme, out=tmp_path / "out")
    with pytest.raises(mj.ConfigurationError, match=message):
        check(config)


def test_the_unmasking_risk_can_be_accepted(tmp_path: pathlib.Path) -> None:
    risky = ProtocolConfig("complete", threshold=2, allow_unmasking_risk=True)
    check(TrainConfig(protocol=risky, out=tmp_path / "out"))


def test_clip_rules_are_checked() -> None:
    for changes, message in (
        ({"clip_multiplier": 0.0}, "`clip_multiplier` must be positive"),
        ({"clip_floor": float("nan")}, "`clip_floor` must be positive"),
        (
            {"clip_rule": "last_max", "clip_multiplier": 0.5},
            "`clip_multiplier` must be at least 1 for last_max",
        ),
    ):
        with pytest.raises(mj.ConfigurationError, match=message):
            validate(TrainConfig(aggregation=AggregationConfig(**changes)))


@pytest.mark.long
def test_training_stores_failed_rounds_and_what_was_learnt(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "train"
    words = [
        "train",
        *SMALL,
        *LEARN,
        *LOSSY,
        "--rounds",
        "20",
        "--scheme",
        "uniform",
        "--weighted",
    ]
    words += [
        "--clip-rule",
        "last_rms",
        "--clip-multiplier",
        "8",
        "--json",
        "--out",
        str(out),
    ]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    results = open_study(out).load().isel(scheme=0)
    status, rows = results["status"].values, results["participation"].values
    np.testing.assert_array_equal(status == mj.Status.OK, rows.any(-1))
    failed = {
        mj.Status(code).name: int((status == code).sum())
        for code in np.unique(status)
        if code not in (mj.Status.OK, mj.Status.SKIPPED)
    }
    assert failed
    assert content["rows"][0]["failures"] == failed
    assert content["rows"][0]["expected_cardinality"] is None
    said = content["sentences"][2]
    assert said.startswith("Rounds that failed inside the protocol")
    assert f"{sum(failed.values())} of 20 under Random" in said
    assert said in (out / "report.html").read_text()
    components = results["learnt_component"].values
    assert ((components >= 0) >= rows).all()
    assert np.isfinite(results["loss"].values).all()


@pytest.mark.slow
def test_a_demo_with_losses_attacks_what_was_learnt(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    words = ["demo", *SMALL, *LEARN, "--rounds", "40", "--step-dropout-rate", "0.03"]
    words += [
        "--schemes",
        "uniform",
        "batch_partitioning:3",
        "--split-policy",
        "drop_block",
    ]
    assert main([*words, "--weighted", "--json", "--out", str(out)]) == 0
    random, blocks = json.loads(capsys.readouterr().out)["rows"]
    assert random["exposed_clients"] == 12
    assert random["reconstruction_error"] < 1e-2
    assert blocks["exposed_clients"] == 0
    assert blocks["strong_privacy"] == 3
    assert blocks["reconstruction_error"] > 0.05


@pytest.mark.long
def test_simulate_measures_lossy_rounds(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", *SMALL, *LOSSY, "--rounds", "15", "--trials", "2", "--json"]
    words += ["--schemes", "batch_partitioning:3", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["failures"]
    status = open_study(tmp_path / "out")["status"]
    assert status.dims == ("scheme", "trial", "round")


@pytest.mark.long
def test_clients_who_enforce_blocks_keep_them_whatever_the_server_asks(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that asks for all who are left.

    Its lists part blocks, and are then refused.
    """
    words = [
        "simulate",
        *SMALL,
        "--step-dropout-rate",
        "0.04",
        "--rounds",
        "40",
        "--trials",
        "2",
    ]
    words += [
        "--schemes",
        "batch_partitioning:3",
        "--json",
        "--out",
        str(tmp_path / "out"),
    ]
    rows, said = [], []
    for more in ([], ["--whole-blocks", "--overwrite"]):
        assert main([*words, *more]) == 0
        content = json.loads(capsys.readouterr().out)
        rows += content["rows"]
        said.append(" ".join(content["sentences"]))
    ignored, kept = rows
    assert (ignored["strong_privacy"], ignored["guaranteed_privacy"]) == (1, 1)
    assert ignored["exposed_clients"] > 0
    assert (
        kept["strong_privacy"],
        kept["guaranteed_privacy"],
        kept["exposed_clients"],
    ) == (
        3,
        3,
        0,
    )
    assert kept["failures"]["UNRELIABLE"] > 0
    assert ["refused a list that parts a block" in text for text in said] == [
        False,
        True,
    ]
    history = open_study(tmp_path / "out")["status"].values
    assert (history == mj.Status.OK).any()


@pytest.mark.long
def test_no_loss_over_the_complete_graph_is_the_plain_study(
    tmp_path: pathlib.Path,
) -> None:
    """Clients who enforce blocks change nothing while nobody is lost."""
    stored = []
    for name, more in (("plain", []), ("ruled", ["--whole-blocks"])):
        out = tmp_path / name
        words = [
            "train",
            *SMALL,
            *LEARN,
            *more,
            "--rounds",
            "6",
            "--scheme",
            "partition",
        ]
        assert main([*words, "--out", str(out)]) == 0
        stored.append(open_study(out).load())
    plain, ruled = stored
    for name in (
        "accuracy",
        "loss",
        "status",
        "participation",
        "rank",
        "clipped_fraction",
    ):
        np.testing.assert_array_equal(plain[name].values, ruled[name].values)
