"""Every command that runs from settings gives the same from Python and from the command line."""

from __future__ import annotations

import copy
import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, cli, study
from mrsa_jax.cli import main
from mrsa_jax.study import KINDS, to_toml

# of as many rounds and by one scheme where a command has them: their programs are the
# same
ROUNDS = 20
SMALL = study.PopulationConfig(num_clients=6, cohort_size=2, dropout_rates=(0.1,))
LEARNT: dict[str, Any] = {
    "rounds": ROUNDS,
    "population": SMALL,
    "data": study.DataConfig(dataset="digits"),
    "training": study.TrainingConfig(
        model="logistic", batch_size=200, evaluate_every=ROUNDS
    ),
}
SUMS: dict[str, Any] = {
    "num_clients": 6,
    "cohort_size": 2,
    "schemes": ("uniform",),
    "rounds": ROUNDS,
}
FEW: dict[str, Any] = {"num_clients": 5, "dim": 3, "fidelity": "sets"}
# of each command one configuration, as small as it can be
SETTINGS: dict[str, dict[str, Any]] = {
    "demo": LEARNT | {"schemes": ("uniform",)},
    "simulate": {
        "rounds": ROUNDS,
        "trials": 2,
        "schemes": ("uniform",),
        "population": SMALL,
    },
    "train": LEARNT | {"scheme": "uniform"},
    "secagg": FEW | {"trials": 20, "step_dropout_rate": 0.2},
    "segments": {
        "group_levels": (2, 3),
        "group_sizes": (2, 2),
        "dim": 4,
        "trials": 5,
        "step_dropout_rate": 0.1,
    },
    "audit": {"effort": 0.0},
    "advise": {
        "num_clients": 6,
        "cohort_size": 2,
        "dropout_rate": (0.1,),
        "rounds": ROUNDS,
        "trials": 2,
    },
    "attack least-squares": SUMS | {"warm_up": 0, "frozen": True, "batch_size": 200},
    "attack distinguish": SUMS | {"warm_up": 1, "trials": 50, "trainings": 4},
    "attack attribute": SUMS
    | {
        "schemes": ("batch_partitioning:2",),
        "trainings": 1,
        "client_size": 8,
        "num_held": 4,
        "num_shadows": 32,
    },
    "attack canaries": SUMS
    | {"trials": 40, "dim": 8, "others": ("known",), "modulus_bits": 16},
    "attack disaggregation": SUMS | {"interval": 5, "dim": 30, "restarts": 1},
    "attack gradients": {
        "dataset": "digits",
        "model": "logistic",
        "iterations": 2,
        "restarts": 1,
        "seen": ("plain",),
    },
    "attack model-inversion": {
        "dataset": "digits",
        "num_clients": 3,
        "num_epochs": 1,
        "iterations": 2,
    },
    "attack membership": {
        "model": "logistic",
        "client_size": 20,
        "num_summed": 2,
        "num_epochs": 1,
        "num_shadows": 2,
        "num_targets": 1,
        "methods": ("loss",),
    },
    "attack inconsistency": {"cohort_size": 3, "hidden_size": 4, "pads": ("plain",)},
}
SWEPT = [name for name, kind in KINDS.items() if kind.points]


def _config(name: str, folder: pathlib.Path, **changes: Any) -> Any:
    own = dict(SETTINGS[name])
    if name == "audit":
        own["file"] = folder / "log.csv"
        own["file"].write_text("round,client\n1,a\n1,b\n2,b\n2,c\n3,a\n3,c\n")
    return KINDS[name].config(**own | changes)


def _called(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_there_is_a_configuration_of_every_command() -> None:
    assert set(SETTINGS) == set(KINDS)
    assert {name.split()[0] for name in KINDS} <= set(cli._COMMANDS)
    assert {name.split()[0] for name in SWEPT} == {
        "simulate",
        "train",
        "secagg",
        "segments",
        "attack",
    }


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_python_and_the_command_line_agree(
    name: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _config(name, tmp_path)
    found = study.run(config)
    file = tmp_path / "settings.toml"
    file.write_text(to_toml(config))
    words = [*name.split(), "--config", str(file)]
    if hasattr(config, "out"):
        words += ["--out", str(tmp_path / "out")]
    if name == "audit":
        words.append(str(config.file))
    printed = _called(words, capsys)
    if hasattr(found, "content"):
        assert found.title
        assert found.sentences
        printed.pop("out", None)
        assert printed == json.loads(json.dumps(found.content))
    else:
        rows = [dataclasses.asdict(row) for row in study.summarise(found)]
        assert printed["rows"] == json.loads(json.dumps(rows))
        assert printed["sentences"] == list(found.mrsa.sentences())


def test_a_round_from_python(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = study.run(study.SecaggConfig(**FEW))
    words = ["--num-clients", "5", "--dim", "3", "--fidelity", "sets"]
    assert _called(["secagg", *words], capsys) == found.content
    assert found.content["status"] == "OK"
    with pytest.raises(
        ConfigurationError, match="`config` must be of a command that writes"
    ):
        study.run_and_save(study.SecaggConfig(**FEW))


@pytest.mark.long
@pytest.mark.parametrize("name", SWEPT)
def test_sweeps_of_every_command_agree(
    name: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One point: what Python's sweep gives, the command line's stores, and a run finds."""
    config = _config(name, tmp_path)
    content = {
        "command": name,
        **study.to_dict(config),
        "grid": {"seed": [config.seed]},
    }
    found = study.sweep(content, out=tmp_path / "python").load()
    file = tmp_path / "study.toml"
    text = f'command = "{name}"\n{to_toml(config)}\n[grid]\nseed = [{config.seed}]\n'
    file.write_text(text)
    out = tmp_path / "called"
    assert _called(["sweep", str(file), "--out", str(out)], capsys)["done"] == 1
    stored = study.open_study(out).load()
    for one in (found, stored):
        assert bool(one["done"].all())
    assert found.drop_vars("seconds").equals(stored.drop_vars("seconds"))
    _check_against_a_run(found.isel(seed=0), study.run(config))


def _check_against_a_run(cell: Any, alone: Any) -> None:
    if hasattr(alone, "scores"):
        for row, one in enumerate(alone.summary or alone.scores):
            for key, value in one.items():
                if key in cell and isinstance(value, float | int):
                    own = float(cell[key].isel(row=row))
                    assert own == pytest.approx(float(value), nan_ok=True)
    elif hasattr(alone, "content") and "losses" in alone.content:
        losses = alone.content["losses"]
        for key in ("no_sum", "lonely"):
            assert float(cell[f"{key}_rate"]) == losses[key]["rate"]
        assert float(cell["planned_seconds"]) == alone.content["round_seconds"]
    elif hasattr(alone, "content"):
        for key, rate in alone.content["rates"].items():
            assert int(cell[f"{key}_count"]) == rate["count"]
    else:
        last = alone.isel(round=-1).squeeze()
        for key in ("strong_privacy", "rank", "exposed_clients"):
            np.testing.assert_array_equal(cell[key].values.squeeze(), last[key].values)


def _with(config: Any, **values: Any) -> Any:
    """Return a configuration with values that the suite's own checks of types would refuse."""
    changed = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


@pytest.mark.parametrize("name", KINDS)
def test_values_of_wrong_types_are_named(name: str, tmp_path: pathlib.Path) -> None:
    config = _config(name, tmp_path)
    for field in dataclasses.fields(config):
        with pytest.raises(ConfigurationError, match=f"`{field.name}` must"):
            study.validate(_with(config, **{field.name: object()}))


@pytest.mark.long
def test_paths_may_be_text(tmp_path: pathlib.Path) -> None:
    log, out = _config("audit", tmp_path).file, tmp_path / "kept"
    config = _with(study.AuditConfig(effort=0.0), file=str(log), out=str(out))
    found = study.run_and_save(config)
    assert json.loads((out / "audit.json").read_text())["sentences"] == found.sentences
    assert study.run(config).content == found.content
