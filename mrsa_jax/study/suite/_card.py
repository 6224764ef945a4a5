"""Cards: the figures of a selector in all scenarios, as one JSON file.

A card has each seed's figures, and the mean over the seeds with its interval.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from mrsa_jax._version import __version__
from mrsa_jax.study.settings._config import parse_scheme
from mrsa_jax.study.suite._figures import Figure, figures_of
from mrsa_jax.study.suite._scenarios import (
    Scenario,
    SuiteConfig,
    Version,
    load_version,
    settings_of,
)
from mrsa_watch._base.errors import ConfigurationError, require

FORMAT = "mrsa-jax suite card 1"
CONFIDENCE = 0.95
"""Of the intervals over the seeds."""
_MOST_BYTES = 2**24
_MOST_LETTERS = 200
_LARGEST = 2**53
Card = dict[str, Any]


def summary_of(values: Sequence[int | float | None]) -> dict[str, float | None]:
    """Return the mean of the seeds' values and its interval, by Student's t.

    All are None if a seed has no value; the ends are None for a single seed.

    Examples:
        >>> summary_of([4, 4, 4])
        {'value': 4.0, 'low': 4.0, 'high': 4.0}
        >>> summary_of([1.0, None])
        {'value': None, 'low': None, 'high': None}
    """
    numbers = [value for value in values if value is not None]
    count = len(numbers)
    if count < len(values) or not count:
        return {"value": None, "low": None, "high": None}
    mean = math.fsum(numbers) / count
    if count == 1:
        return {"value": mean, "low": None, "high": None}
    from scipy import special  # --help must not wait for it

    squares = math.fsum((number - mean) ** 2 for number in numbers)
    deviation = math.sqrt(squares / (count - 1) / count)
    factor = float(special.stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
    half = factor * deviation
    return {"value": mean, "low": mean - half, "high": mean + half}


def card_of(
    version: Version,
    scheme: str,
    points: Mapping[str, Sequence[Mapping[str, Any]]],
    problems: Mapping[str, str],
    code: Mapping[str, str],
    *,
    trainings: bool = True,
) -> Card:
    """Return the card of a scheme.

    Args:
        version: Of the suite.
        scheme: As it was named, with places for parameters or without.
        points: By scenario, the figures and the digest of the history of each seed.
        problems: By scenario, why the scheme cannot be built there.
        code: Digests of a user's code, by name.
        trainings: Whether the scenarios that train a model belong to the card.
    """
    scenarios: dict[str, Any] = {}
    for name, scenario in version.scenarios.items():
        if name in problems:
            scenarios[name] = {"problem": problems[name]}
        if name not in points:
            continue
        seeds = points[name]
        scenarios[name] = {
            "scheme": scenario.written(scheme),
            "seeds": list(range(len(seeds))),
            "histories": [point["history"] for point in seeds],
            "figures": {
                figure: _entry([point[figure] for point in seeds], about.word)
                for figure, about in version_figures(version, name).items()
            },
        }
    return {
        "format": FORMAT,
        "suite": version.name,
        "suite_sha256": version.digest,
        "package": __version__,
        "scheme": scheme,
        "label": label_of(version, scheme),
        "parts": parts_of(trainings=trainings),
        "code": dict(sorted(code.items())),
        "confidence": CONFIDENCE,
        "scenarios": scenarios,
    }


def parts_of(*, trainings: bool) -> list[str]:
    """Return the parts of a card, as its field `parts` lists them."""
    return ["histories", "trainings"] if trainings else ["histories"]


def version_figures(version: Version, scenario: str) -> dict[str, Figure]:
    """Return the figures of a scenario by name."""
    trains = version.scenarios[scenario].trains
    return figures_of(version.constants, trains=trains)


def scenarios_of(card: Mapping[str, Any], version: Version) -> dict[str, Scenario]:
    """Return the scenarios that a card has by its parts."""
    trainings = card["parts"] == parts_of(trainings=True)
    return version.scenarios_of(trainings=trainings)


def _entry(values: list[Any], word: str) -> dict[str, Any]:
    return {"word": word, **summary_of(values), "values": values}


def label_of(version: Version, scheme: str) -> str:
    """Return the label of a scheme, without parameters that scenarios fill."""
    name = scheme.partition(":")[0]
    if scheme == version.schemes.get(name, "") and "{" in scheme:
        from mrsa_jax.selection.registry import ROWS

        return str(ROWS[name].label())
    return parse_scheme(scheme).label if "{" not in scheme else scheme


def point_of(
    values: Mapping[str, Any], version: Version, scenario: str
) -> dict[str, Any]:
    """Return a point's plain values: integers where figures are, None for nan."""
    figures = version_figures(version, scenario)
    point: dict[str, Any] = {"history": str(values["history"])}
    for name, figure in figures.items():
        value = values[name]
        number = math.nan if value is None else float(value)
        kind = int if figure.is_whole else float
        point[name] = None if math.isnan(number) else kind(number)
    return point


def config_of(card: Mapping[str, Any], scenario: str, seed: int) -> SuiteConfig:
    """Return the settings of one point of a card."""
    return settings_of(card["suite"], scenario, card["scheme"], seed)


def to_json(card: Card) -> str:
    """Return a card as text, one line per figure."""

    def plain(value: Any) -> str:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))

    scenarios = []
    for name, entry in card["scenarios"].items():
        fields = [f"{plain(k)}:{plain(v)}" for k, v in entry.items() if k != "figures"]
        figures = [
            f"{plain(k)}:{plain(v)}" for k, v in entry.get("figures", {}).items()
        ]
        if figures:
            fields.append('"figures":{\n' + ",\n".join(figures) + "}")
        scenarios.append(f"{plain(name)}:{{" + ",\n".join(fields) + "}")
    head = [f"{plain(k)}:{plain(v)}" for k, v in card.items() if k != "scenarios"]
    body = '"scenarios":{\n' + ",\n".join(scenarios) + "}"
    return "{" + ",\n".join([*head, body]) + "}\n"


def read_card(path: str | os.PathLike[str]) -> Card:
    """Read a card.

    Raises:
        ConfigurationError: If the file is missing, too large, no JSON, or has the
            form of no card, by the name of the first field.
    """
    file = pathlib.Path(path)
    require(file.is_file(), "card", "must be an existing file", str(file))
    size = file.stat().st_size
    require(size <= _MOST_BYTES, "card", f"must have at most {_MOST_BYTES} bytes", size)
    try:
        content = json.loads(
            file.read_text(encoding="utf-8"),
            object_pairs_hook=_without_repeats,
            parse_constant=_refused,
        )
    except (ValueError, RecursionError) as error:
        words = str(error)[:200]
        raise ConfigurationError(f"`card` must be JSON; {file}: {words}") from error
    check_form(content)
    card: Card = content
    return card


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated[:80]!r} occurs twice")
    return dict(pairs)


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def check_form(card: Any) -> None:
    """Raise for the first field that is missing, unknown, or of another type.

    Raises:
        ConfigurationError: With the field's path.
    """
    texts = ["format", "suite", "suite_sha256", "package", "scheme", "label"]
    names = [*texts, "parts", "code", "confidence", "scenarios"]
    _check_names(card, names, "card")
    for name in texts:
        text = card[name]
        is_text = isinstance(text, str) and text.isprintable()
        is_text = is_text and len(text) <= _MOST_LETTERS and "|" not in text
        rule = f"must be printable text of at most {_MOST_LETTERS} letters"
        _check(is_text, name, rule, text)
    _check(card["format"] == FORMAT, "format", f"must be {FORMAT!r}", card["format"])
    version = load_version(card["suite"])
    kinds = [parts_of(trainings=trainings) for trainings in (False, True)]
    rule = f"must be {' or '.join(map(str, kinds))}"
    _check(card["parts"] in kinds, "parts", rule, card["parts"])
    code = card["code"]
    is_code = isinstance(code, dict) and all(isinstance(v, str) for v in code.values())
    _check(is_code, "code", "must be digests by name", code)
    number = card["confidence"]
    _check(number == CONFIDENCE, "confidence", f"must be {CONFIDENCE}", number)
    scenarios = scenarios_of(card, version)
    _check_names(card["scenarios"], list(scenarios), "scenarios")
    for name, scenario in scenarios.items():
        figures = version_figures(version, name)
        entry, where = card["scenarios"][name], f"scenarios.{name}"
        if isinstance(entry, dict) and "problem" in entry:
            _check_names(entry, ["problem"], where)
            problem = entry["problem"]
            _check(
                isinstance(problem, str), f"{where}.problem", "must be text", problem
            )
            continue
        _check_names(entry, ["scheme", "seeds", "histories", "figures"], where)
        seeds = entry["seeds"]
        is_list = isinstance(seeds, list) and len(seeds) >= scenario.seeds
        is_list = is_list and seeds == list(range(len(seeds)))
        # True and 1.0 are equal to 1
        is_list = is_list and all(type(seed) is int for seed in seeds)
        rule = f"must be 0, 1, 2, ..., at least {scenario.seeds} of them"
        _check(is_list, f"{where}.seeds", rule, seeds)
        histories = entry["histories"]
        is_texts = isinstance(histories, list) and len(histories) == len(seeds)
        is_texts = is_texts and all(isinstance(text, str) for text in histories)
        rule = "must be one digest per seed"
        _check(is_texts, f"{where}.histories", rule, histories)
        _check_names(entry["figures"], list(figures), f"{where}.figures")
        for figure, about in figures.items():
            path = f"{where}.figures.{figure}"
            _check_entry(entry["figures"][figure], path, len(seeds), about.is_whole)


def _check_entry(entry: Any, where: str, count: int, is_whole: bool) -> None:
    _check_names(entry, ["word", "value", "low", "high", "values"], where)
    values = entry["values"]
    is_list = isinstance(values, list) and len(values) == count
    _check(is_list, f"{where}.values", "must be one value per seed", values)
    kinds = (int,) if is_whole else (int, float)
    for k, value in enumerate(values):
        rule = f"must be {'an integer' if is_whole else 'a number'} or null"
        _check(_is_kind(value, kinds), f"{where}.values[{k}]", rule, value)
    for name in ("value", "low", "high"):
        number = entry[name]
        rule = "must be a number or null"
        _check(_is_kind(number, (int, float)), f"{where}.{name}", rule, number)


def _is_kind(value: Any, kinds: tuple[type, ...]) -> bool:
    if value is None:
        return True
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    # others overflow in sums and comparisons, and no figure is as large
    return is_number and -_LARGEST <= value <= _LARGEST


def _check_names(table: Any, names: Sequence[str], where: str) -> None:
    _check(isinstance(table, dict), where, "must be a table", table)
    for name in table:
        rule = f"must have no field but {', '.join(names)}"
        _check(
            name in names, f"{where}.{name}" if where != "card" else name, rule, name
        )
    for name in names:
        rule = "must have all of its fields"
        _check(
            name in table, f"{where}.{name}" if where != "card" else name, rule, None
        )


def _check(condition: bool, field: str, rule: str, value: Any) -> None:
    require(condition, field, rule, value)
