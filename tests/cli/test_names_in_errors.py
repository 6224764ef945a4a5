"""An error names only settings of the command that it is of.

Settings are drawn at random from values that each type allows, in range or not, one or
many at a time: rules of single settings and rules between settings are broken alike.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import random
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest

from mrsa_jax import cli, study
from mrsa_jax.cli import _audit, _bench, _data, _secagg, _suite, _sweep
from mrsa_jax.study.kinds import KINDS, checked
from mrsa_jax.study.settings._names import names_of
from mrsa_watch._base.errors import ConfigurationError, MrsaError

_TEXTS = (
    "", "x", "majority", "uniform", "partition", "batch_partitioning:4",
    "batch_partitioning:0", "batch_partitioning:4:x", "crossing_partitions:2",
    "bernoulli:0.2", "bernoulli:7", "poisson:0.1:0.3", "power_of_choice:3",
    "minimum_separation:2:batch_partitioning:5", "mnist_5k", "digits", "idx",
    "logistic", "scaffold", "markov:3", "cyclic", "diurnal:0.1:4", "replay:none.npy",
    "complete", "harary", "harary:4", "erdos_renyi", "over_blocks:4:2", "bits:0.5",
    "levels:3", "weak_privacy", "weak_privacy:certified:x", "a,b",
)  # fmt: skip
_COUNTS = (-1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 24, 32, 50, 100, 1000)
_NUMBERS = (-1.0, 0.0, 1e-9, 0.1, 0.3, 0.5, 0.9, 1.0, 1.5, 2.0, 1e9, float("nan"))

# settings that no draw may change: a browser, and the words that a sweep must have
_KEPT = {"out", "overwrite", "json", "open", "metrics", "table", "record", "study"}

# words in quotes that are no settings
_OTHERS = {"config", "plugin"}
_OF_FILES = {"grid", "zip"}  # tables of a sweep's file


class _BeginsError(Exception):
    """Work would begin: the settings are accepted."""


def _begin(*_: object, **__: object) -> typing.NoReturn:
    raise _BeginsError


def _commands(folder: pathlib.Path) -> dict[str, Any]:
    """Return each command's settings, with files where it needs them."""
    log = folder / "log.csv"
    settings = {name: kind.config for name, kind in KINDS.items()}
    needed = {"audit": {"file": log}, "watch": {"file": log, "once": True}}
    needed |= {"report": {"folder": folder}, "sweep": {"study": (folder / "s.toml",)}}
    for name, command in cli._COMMANDS.items():
        # that of attacks has none of its own, and that of the papers is elsewhere
        if name not in ("attack", "reproduce"):
            settings[name] = command.config
    return {name: cls(**needed.get(name, {})) for name, cls in settings.items()}


_NAMES = sorted({*KINDS, *cli._COMMANDS} - {"attack", "reproduce"})


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    np.save(tmp_path / "array.npy", np.eye(6))
    (tmp_path / "log.csv").write_text("round,client\n0,1\n0,2\n")
    (tmp_path / "s.toml").write_text('command = "attack attribute"\nlocal_step = 3\n')
    (tmp_path / "folder").mkdir()
    return tmp_path


def _drawn(draw: random.Random, hint: Any, folder: pathlib.Path) -> Any:
    """Draw a value of a type, whether or not it is in range."""
    inner = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _drawn(draw, draw.choice(inner), folder)
    if origin is Literal:
        return draw.choice(inner)
    if origin is tuple:
        count = draw.choice((0, 1, 1, 2, 3))
        return tuple(_drawn(draw, inner[0], folder) for _ in range(count))
    if hint is pathlib.Path:
        return folder / draw.choice(("array.npy", "folder", "none", "log.csv"))
    values: dict[Any, tuple[Any, ...]] = {
        bool: (False, True),
        int: _COUNTS,
        float: _NUMBERS,
        str: _TEXTS,
    }
    return draw.choice(values.get(hint, (None,)))


def _changed(
    draw: random.Random, settings: Any, chance: float, folder: pathlib.Path
) -> Any:
    """Return settings, of which each is drawn again with some probability."""
    changes = {}
    hints = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = _changed(draw, value, chance, folder)
        elif field.name not in _KEPT and draw.random() < chance:
            changes[field.name] = _drawn(draw, hints[field.name], folder)
    return dataclasses.replace(settings, **changes)


_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*[a-z0-9])")


def _strangers(text: str, settings: Any) -> set[str]:
    """Return the settings in a message that the command does not have."""
    # what was received is quoted as the user wrote it
    rule = re.sub(r"; got .*", "", text, flags=re.DOTALL)
    own = names_of(settings) | _OTHERS | _OF_FILES
    quoted = {name for name in re.findall(r"`(\w+)`", rule) if not name.isdecimal()}
    flags = {flag.replace("-", "_") for flag in _FLAG.findall(rule)}
    flags = {flag.removeprefix("no_") if flag not in own else flag for flag in flags}
    return (quoted | flags) - own


def _errors(
    settings: Any, name: str, draws: int, folder: pathlib.Path
) -> Iterator[str]:
    """Go through the messages of settings that are drawn."""
    draw = random.Random(name)
    for number in range(draws):
        # some of many settings, which break rules of several, most of few
        chance = (0.03, 0.08, 0.3)[number % 3]
        changed = _changed(draw, settings, chance, folder)
        try:
            if name in KINDS:
                checked(changed)
            else:
                cli._COMMANDS[name].run(changed)
        except _BeginsError:
            pass
        except (MrsaError, OSError) as error:
            yield cli._by_flags(str(error), changed)


@pytest.fixture
def not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no command begin to work."""
    for module in (_audit, _bench, _secagg, _suite, _sweep):
        for name in ("use_compile_cache", "use_cores"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, _begin)
    monkeypatch.setattr(_data, "_list", _begin)
    monkeypatch.setattr(_data, "_prepare", _begin)
    monkeypatch.setattr("mrsa_jax.study.report", _begin)


def _check(name: str, draws: int, least: int, folder: pathlib.Path) -> None:
    settings = _commands(folder)[name]
    strangers: dict[str, set[str]] = {}
    rules: collections.Counter[str] = collections.Counter()
    for text in _errors(settings, name, draws, folder):
        rules[re.sub(r"; got .*|\d+", "", text, flags=re.DOTALL)] += 1
        if unknown := _strangers(text, settings):
            strangers[text] = unknown
    assert not strangers
    assert len(rules) >= least, rules


_FEWEST = {"report": 1, "data": 3, "sweep": 1, "suite": 2, "watch": 4, "bench": 4}
"""Rules at least that the draws must break; of other commands six."""


@pytest.mark.usefixtures("not_begun")
@pytest.mark.parametrize("name", _NAMES)
def test_errors_name_settings_of_their_command(name: str, folder: pathlib.Path) -> None:
    _check(name, 60, _FEWEST.get(name, 6), folder)


@pytest.mark.long
@pytest.mark.usefixtures("not_begun")
@pytest.mark.parametrize("name", _NAMES)
def test_errors_of_many_draws_name_settings_of_their_command(
    name: str, folder: pathlib.Path
) -> None:
    _check(name, 3000, _FEWEST.get(name, 10), folder)


_WITH_DATA = [
    name
    for name, kind in KINDS.items()
    if name != "audit" and "dataset" in names_of(kind.config())
]


@pytest.mark.parametrize("name", _WITH_DATA)
def test_an_unknown_data_set_is_refused_by_its_setting(name: str) -> None:
    """The function that loads it calls it `name`, which no command has."""
    settings = KINDS[name].config()
    if name == "attack distinguish":
        settings = dataclasses.replace(settings, others=("trained",))
    changed: Any = {"dataset": "nowhere"}
    if hasattr(settings, "data"):
        changed = {"data": dataclasses.replace(settings.data, **changed)}
    settings = dataclasses.replace(settings, **changed)
    with pytest.raises(
        ConfigurationError, match=r"^`dataset` must be a known data set"
    ):
        study.check(settings)
