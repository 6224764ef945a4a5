"""Each setting of an attack changes what it finds, or is refused."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import typing
from typing import Any, Literal

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import study
from mrsa_jax.cli import main
from mrsa_jax.study.kinds import attacks
from mrsa_jax.study.settings import _parts
from mrsa_jax.study.settings._load import without_none
from mrsa_jax.study.settings._names import names_of
from mrsa_watch._base.errors import ConfigurationError

_SUMS: dict[str, Any] = {
    "num_clients": 6, "cohort_size": 2, "schemes": ("uniform",), "dropout_rates": (0.0, 0.9),
    "rounds": 6,
}  # fmt: skip
_LEAST: dict[str, Any] = _SUMS | {"warm_up": 2}
_SHIFT = _SUMS | {"trials": 40, "trainings": 6, "client_size": 4, "warm_up": 1}
_ATTRIBUTE = _SUMS | {"trainings": 1, "num_shadows": 32, "client_size": 8}
_CANARIES = _SUMS | {"trials": 60, "dim": 8}
_IMAGES: dict[str, Any] = {"iterations": 3, "restarts": 2, "model": "logistic"}
_MODELS: dict[str, Any] = {
    "dataset": "digits", "num_clients": 3, "num_epochs": 1, "iterations": 3,
}  # fmt: skip
_MEMBERS: dict[str, Any] = {
    "model": "logistic", "num_shadows": 4, "client_size": 12, "num_epochs": 2,
    "num_targets": 2, "num_summed": 2, "methods": ("loss",),
}  # fmt: skip

BASES: dict[str, dict[str, dict[str, Any]]] = {
    "least-squares": {
        "rounds": _LEAST,
        "frozen": _LEAST | {"frozen": True},
        "memory": _LEAST | {"memory": 0.9},
        "shards": _LEAST | {"partition": "shards_with_shared", "shared_size": 20},
        "decay": _LEAST | {"decay_rounds": (2,), "local_steps": 2},
    },
    "distinguish": {
        "gaussian": _SHIFT | {
            "others": ("gaussian",), "trainings": 400, "client_size": 20,
            "schemes": ("partition",),  # in which nobody is exposed
        },
        "trained": _SHIFT | {"others": ("trained",), "trials": 20_000},
    },
    "attribute": {
        "class": _ATTRIBUTE,
        "record": _ATTRIBUTE | {"attribute": "record"},
        "mask": _ATTRIBUTE,
        "steps": _ATTRIBUTE | {"local_steps": 1},
    },
    "canaries": {
        "known": _CANARIES | {"others": ("known",)},
        "gaussian": _CANARIES | {"others": ("gaussian",)},
    },
    "disaggregation": {"rounds": _SUMS | {"rounds": 12, "interval": 4, "dim": 8}},
    "gradients": {
        "all": _IMAGES,
        "plain": _IMAGES | {"seen": ("plain",)},
        "euclidean": _IMAGES | {"method": "euclidean", "seen": ("plain",)},
        "dataset": _IMAGES | {"dataset": "digits", "seen": ("sum",)},
    },
    "model-inversion": {
        "all": _MODELS,
        "plain": _MODELS | {"seen": ("plain",)},
        "dirichlet": _MODELS | {"partition": "dirichlet", "seen": ("plain",)},
    },
    "membership": {
        "loss": _MEMBERS,
        "plain": _MEMBERS | {"seen": ("plain",), "num_summed": 4},
        "ratio": _MEMBERS | {"methods": ("likelihood_ratio",), "seen": ("sum",)},
    },
    "inconsistency": {"rounds": {"cohort_size": 3, "hidden_size": 4}},
}  # fmt: skip
"""Small settings of each attack, by the choices that decide what it reads."""

_OTHERS: dict[str, Any] = {
    "schemes": ("weighted",),
    "availability": "markov:3",
    "dataset": "mnist_5k",
    "model": "mlp",
    "dropout_rates": (0.5, 0.6),
    "assignment": "sorted",
    "decay_rounds": (1,),
    "local_steps": 1,
    "batch_size": 3,
    "clip_norm": 0.001,
    "partition": "dirichlet_by_client",
    "false_positive_rates": (0.2, 0.3),
    "noise": 0.3,
    "share": 0.5,
    "memory": 0.5,
    "window": 4,
    "ridge": 0.5,
    "target_class": 4,
    "target_delta": 1e-3,
    "folder": None,
    "cohort_size": 3,
    "smoothness": 0.7,
    "drift": 0.5,
    "photo": "china",
    "client": 1,
    "modulus_bits": 24,
    "num_shadows": 40,
    "connection_probability": 0.7,
    "label_noise": 0.9,
    "concentration": 0.5,
    "momentum": 0.5,
    "noise_multiplier": 2.0,
    "shards_per_client": 3,
}
"""Another valid value of a setting; of others it follows from the type."""

_ALIKE = {
    "out": "where results go",
    "overwrite": "replaces a folder",
    "json": "how results are printed",
    "run": "tested with a training",
    "solved": "tested with estimates",
    "client": "of solved",
    "folder": "tested with pictures",
    "directory": "tested with files",
    "aggregates": "tested with files",
    "participation": "tested with files",
    "updates": "tested with files",
    "counts": "tested with files",
    "interval_lengths": "tested with files",
    "seconds": "a limit of a search that ends before it",
    "restarts of disaggregation": "more starts of a search that finds the same",
    "learning_rate of gradients": "cancels: one step is as long as it",
    "known_labels of gradients": "labels are inferred without an error",
}
"""Settings that may change nothing, with the reason."""

CASES = [
    (attack, base, field.name)
    for attack, bases in BASES.items()
    for base in bases
    for field in dataclasses.fields(attacks()[attack].settings)
    if field.name not in _ALIKE and f"{field.name} of {attack}" not in _ALIKE
]


def _tier(case: tuple[str, str, str]) -> Any:
    """Mark a case: the first choices of each attack are less dear than all."""
    is_first = case[1] == next(iter(BASES[case[0]]))
    return pytest.param(*case, marks=pytest.mark.long if is_first else pytest.mark.slow)


def _settings(attack: str, base: str, folder: pathlib.Path) -> Any:
    settings = attacks()[attack].settings(**BASES[attack][base])
    if base != "mask":
        return settings
    np.save(folder / "mask.npy", np.arange(6) < 3)
    return dataclasses.replace(settings, mask=folder / "mask.npy")


def _another(settings: Any, name: str, folder: pathlib.Path) -> Any:
    """Choose a valid value other than the present one."""
    value = getattr(settings, name)
    hint = without_none(typing.get_type_hints(type(settings))[name])
    inner = typing.get_args(hint)
    if name == "mask":
        np.save(folder / "other.npy", np.arange(6) % 2 == 0)
        return folder / "other.npy"
    is_choice = typing.get_origin(hint) is Literal
    other = _OTHERS.get(name, value)
    if other != value and (not is_choice or other in inner):
        return other
    if is_choice:
        return next(choice for choice in inner if choice != value)
    if typing.get_origin(hint) is tuple and typing.get_origin(inner[0]) is Literal:
        choices = typing.get_args(inner[0])
        return next((choice,) for choice in choices if (choice,) != value)
    if hint is bool:
        return not value
    return value + 1 if hint is int else value / 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("distinguish --others gaussian --model mlp", "`model` must not be set unless"),
        ("distinguish --others gaussian --trainings 9", "`trainings` must not be set"),
        ("distinguish --others trained --trials 9", "unless --others has gaussian"),
        ("canaries --others known --spread 0.1", "`spread` must not be set unless"),
        ("attribute --attribute record --num-held 3", "with --attribute record"),
        ("attribute --assignment cyclic", "if all clients have the same rate"),
        ("gradients --seen plain --num-summed 3", "unless --seen has padded or sum"),
        ("gradients --method euclidean --step-size 1", "L-BFGS chooses its steps"),
        ("membership --seen plain --num-summed 3", "unless --seen has padded or sum"),
        ("model-inversion --seen plain --connection-probability 0.5", "or aggregate"),
        ("model-inversion --concentration 1", "must not be set with --partition iid"),
        ("inconsistency --shards-per-client 2", "must not be set with --partition iid"),
        ("least-squares --decay-factor 0.5", "must not be set without --decay-rounds"),
        ("canaries --availability replay:a.npy --dropout-rates 0.3", "has no rates"),
    ],
)
def test_a_setting_without_effect_is_refused(
    words: str,
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((4, 24), np.bool_))
    assert main(["attack", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("verify CARD --schemes uniform", "schemes"),
        ("verify CARD --seeds 3", "seeds"),
        ("compare A B --all", "all"),
        ("table CARD --out folder", "out"),
        ("--all", "all"),
        ("--schemes uniform --table suite.md", "table"),
    ],
)
def test_a_task_of_the_suite_refuses_settings_of_others(
    words: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *words.split()]) == 2
    assert f"`{name}` must not be set" in capsys.readouterr().err


def test_a_folder_is_refused_with_your_own_data(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # removed again when the test ends
    monkeypatch.setitem(_parts.KINDS["dataset"].rows, "mine", None)
    study.register("dataset", "mine", lambda seed: mj.data.load("digits", seed=seed))
    settings = attacks()["membership"].settings(dataset="mine", directory=tmp_path)
    with pytest.raises(ConfigurationError, match="`directory` must not be set for a"):
        study.check(settings)


@functools.cache
def _found(settings: Any) -> tuple[Any, ...]:
    """Run an attack; return what it found, without words that repeat settings."""
    found = study.run(settings)
    arrays = {name: np.asarray(array).tobytes() for name, array in found.arrays.items()}
    return repr(found.summary), repr(found.scores), tuple(sorted(arrays.items()))


@pytest.mark.parametrize(("attack", "base", "name"), list(map(_tier, CASES)))
def test_a_setting_changes_what_is_found_or_is_refused(
    attack: str, base: str, name: str, tmp_path: pathlib.Path
) -> None:
    settings = _settings(attack, base, tmp_path)
    value = _another(settings, name, tmp_path)
    changed = dataclasses.replace(settings, **{name: value})
    try:
        found = _found(changed)
    except ConfigurationError as error:
        named = re.findall(r"`(\w+)`", str(error).partition("; got ")[0])
        # refused, for this setting or one that it leaves without effect
        assert named
        assert {*named} <= names_of(settings)
        return
    assert found != _found(settings), value
