"""Whole-number values in studies and audits: closed forms, enumeration, and refusals."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, study
from mrsa_jax.study import _report

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


def test_values_with_losses_and_none_without_a_law() -> None:
    plain = study.run(SMALL)
    assert "determined_share" not in plain
    (row, _) = study.summarise(plain)
    assert row.determined_share is None
    lossy = dataclasses.replace(
        SMALL,
        values="bits:0.5",
        protocol=study.ProtocolConfig(
            step_dropout_rate=0.05, split_policy="drop_block"
        ),
    )
    _, blocks = study.summarise(study.run(lossy))
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
