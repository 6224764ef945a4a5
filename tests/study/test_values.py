"""Whole-number values in studies and audits: closed forms, enumeration, and refusals."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, study
from mrsa_jax.cli import main
from mrsa_jax.study.publishing import _report

SMALL = study.SimulateConfig(
    rounds=20,
    trials=4,
    schemes=("uniform", "partition"),
    population=study.PopulationConfig(
        num_clients=12, cohort_size=4, dropout_rates=(0.0,)
    ),
)


@pytest.mark.parametrize(
    ("law", "of_blocks"),
    [
        ("bits:0.5", 2 / 2**4),
        ("bits:0.1", 0.1**4 + 0.9**4),
        ("levels:3", 2 / 3**4),
        ("bits:1", 1.0),
    ],
)
def test_a_simulation_counts_the_values_that_sums_determine(
    law: str, of_blocks: float
) -> None:
    """Random cohorts reach the full rank; of blocks the closed form holds."""
    results = study.run(dataclasses.replace(SMALL, values=law))
    random, blocks = study.summarise(results)
    assert (random.rank, random.determined_share) == (12, 1)
    assert blocks.exposed_clients == 0
    assert blocks.determined_share == pytest.approx(of_blocks)
    assert blocks.undecided_share == 0
    shares = results["determined_share"]
    assert shares.dims == ("scheme", "trial")
    # of the first three trials alone
    assert np.isfinite(shares.values).tolist() == [[True, True, True, False]] * 2
    headings, _ = _report.table_of([random, blocks])
    assert {"Values determined", "Undecided"} <= set(headings)


def test_no_values_without_a_law() -> None:
    plain = study.run(dataclasses.replace(SMALL, schemes=("partition",)))
    assert "determined_share" not in plain
    (row,) = study.summarise(plain)
    assert row.determined_share is None


def test_values_with_losses() -> None:
    lossy = dataclasses.replace(
        SMALL,
        schemes=("partition",),
        values="bits:0.5",
        protocol=study.ProtocolConfig(
            step_dropout_rate=0.05, split_policy="drop_block"
        ),
    )
    (blocks,) = study.summarise(study.run(lossy))
    assert blocks.determined_share is not None
    assert 0 <= blocks.determined_share <= 1


def test_the_law_is_an_axis_of_a_sweep(tmp_path: pathlib.Path) -> None:
    text = (
        'command = "simulate"\nrounds = 20\ntrials = 2\nschemes = ["partition"]\n'
        "population.num_clients = 12\npopulation.cohort_size = 4\n[grid]\nvalues = "
        '["bits:0.5", "levels:4"]\n'
    )
    (tmp_path / "study.toml").write_text(text)
    results = study.sweep(tmp_path / "study.toml", out=tmp_path / "out")
    shares = results["determined_share"].squeeze("scheme").mean("trial")
    assert shares.values == pytest.approx([2 / 2**4, 2 / 4**4])


@pytest.mark.parametrize("law", ["bits", "bits:2", "bits:nan", "levels:1", "coins:0.5"])
def test_a_law_that_is_none(law: str) -> None:
    with pytest.raises(ConfigurationError, match="`values` must be bits:P with P"):
        study.run(dataclasses.replace(SMALL, values=law))


LOG = """\
round,client
1,a
1,b
1,c
2,b
2,c
2,d
3,a
3,d
"""


def _audited(
    folder: pathlib.Path, sums: str, capsys: pytest.CaptureFixture[str], more: str = ""
) -> dict[str, Any]:
    (folder / "log.csv").write_text(LOG)
    (folder / "sums").write_text(sums)
    words = f"audit {folder / 'log.csv'} --values 0:2 --sums {folder / 'sums'} --json"
    assert main([*words.split(), "--effort", "0.1", *more.split()]) == 0
    found = json.loads(capsys.readouterr().out)["values"]
    assert isinstance(found, dict)
    return found


def test_an_audit_agrees_with_every_vector_of_values(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    P = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 0, 1]])
    every = np.array(list(itertools.product(range(3), repeat=4)))
    totals = every @ P.T
    draw = np.random.default_rng(0)
    for row in draw.choice(len(every), 3, replace=False):
        sums = totals[row]
        agreeing = every[(totals == sums).all(axis=1)]
        lines = [f"{name},{sums[name - 1]}\n" for name in (3, 1, 2)]
        found = _audited(tmp_path, "round,sum\n" + "".join(lines), capsys)
        clients = found["clients"]
        assert [each["lower"] for each in clients] == agreeing.min(axis=0).tolist()
        assert [each["upper"] for each in clients] == agreeing.max(axis=0).tolist()
        same = int((agreeing == agreeing[0]).all(axis=0).sum())
        assert (found["determined"], found["undecided"]) == (same, 0)


def test_sums_come_in_several_forms(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = _audited(tmp_path, "round,sum\n1,6\n2,4\n3,2\n", capsys)
    assert expected["determined"] == 4  # 2 + 2 + 2, so d has 0
    lines = "".join(
        json.dumps({"round": name, "sum": value}) + "\n"
        for name, value in ((2, 4), (1, 6), (3, 2))
    )
    for sums in ("6\n4\n2\n", "sum\n6\n4\n2\n", lines):
        assert _audited(tmp_path, sums, capsys) == expected
    np.save(tmp_path / "sums.npy", np.array([6, 4, 2]))
    words = f"audit {tmp_path / 'log.csv'} --values 0:2 --sums {tmp_path / 'sums.npy'}"
    assert main([*words.split(), "--effort", "0.1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "the sums determine those of 4 of 4 clients: client a has 2" in printed


def test_a_budget_of_nothing_leaves_clients_undecided(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _audited(tmp_path, "3\n3\n2\n", capsys, "--effort 0")
    assert found["undecided"] == 4
    assert found["determined"] == 0


@pytest.mark.parametrize(
    ("sums", "message"),
    [
        ("round,sum\n1,6\n2,4\n", "`sums` must be of the log's rounds"),
        ("round,sum\n1,6\n2,4\n4,2\n", "`sums` must be of the log's rounds"),
        ("round,sum\n1,6\n1,6\n2,4\n3,2\n", "`sums` must not name a round twice"),
        ("6\n4\n", "`sums` must hold one whole number"),
        ("6\n4.5\n2\n", "`sums` must hold one whole number"),
        ("a,b\n1,2\n", "`sums` must have the columns round and sum"),
        ("7\n4\n2\n", "`sums` must be sums of values from `low` to `high`"),
    ],
)
def test_sums_that_are_not_those_of_the_log(
    sums: str,
    message: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "sums").write_text(sums)
    words = f"audit {tmp_path / 'log.csv'} --values 0:2 --sums {tmp_path / 'sums'}"
    assert main([*words.split(), "--effort", "0"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--values 0:1", "`values` must be used together with sums"),
        ("--sums sums", "`sums` must be used together with values"),
        ("--values 1:1 --sums sums", "`values` must be a range LOW:HIGH"),
        ("--values 0.5 --sums sums", "`values` must be a range LOW:HIGH"),
        ("--values 0:1 --sums sums --coalition a", "must not be set with coalition"),
    ],
)
def test_flags_of_values_that_do_not_fit(
    flags: str,
    message: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "sums").write_text("6\n4\n2\n")
    assert main(["audit", "log.csv", "--effort", "0", *flags.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
