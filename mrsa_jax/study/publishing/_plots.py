"""Draw the figures of attacks, audits, advice, and of any finished folder.

Everything is drawn from what a folder holds; nothing is run again.
"""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mrsa_jax import plotting
from mrsa_jax._core.drawing import named_if_not_drawn
from mrsa_jax.plotting.attack_charts import (
    Rows,
    attribute_chart,
    errors_line,
    members_chart,
    rates_chart,
    size,
    spoken,
)
from mrsa_jax.plotting.audit_charts import exposure_chart, privacy_chart
from mrsa_jax.plotting.chart import Chart, Line
from mrsa_jax.plotting.points import as_shown, quantity
from mrsa_jax.plotting.styles import CHANCE
from mrsa_jax.study.publishing._series import Series
from mrsa_jax.study.stores._files import read_json, read_part
from mrsa_jax.study.stores._store import open_results
from mrsa_watch._base.errors import ConfigurationError, writing
from mrsa_watch._base.html import hidden_words, number

ERRORS = "errors"
FOUND = "true_against_false_positives"
"""Names of an attack's figures, which its page draws itself."""

_MOST_WORDS = 5  # numbers of a summary that stand in the line of what was attacked
_RATES = {"fpr", "tpr", "lower", "upper", "mu", "scheme", "others", "whose"}
_TOLD_AT = 0.1  # rate of false positives that a verdict is about
_OFTEN = 0.5  # rate of true positives there from which on it is a bad one


def attack_series(summary: Rows, scores: Rows) -> list[Series]:
    """Return a line for each scheme that was attacked; none where something else was.

    Args:
        summary: A row for each thing that was attacked.
        scores: Those behind it.
    """
    by_scheme: dict[str, list[Mapping[str, Any]]] = {}
    for row in summary:
        if "scheme" in row:
            by_scheme.setdefault(str(row["scheme"]), []).append(row)
    if is_told_apart(scores):
        chance = Series(
            CHANCE, None, "finds as often as it gives false alarms", is_scheme=False
        )
        return [
            *(_found(label, rows, scores) for label, rows in by_scheme.items()),
            chance,
        ]
    if _is_of_members(summary):
        return [
            _method(name, summary)
            for name in dict.fromkeys(row["method"] for row in summary)
        ]
    if len(by_scheme) < len(summary):
        return []
    return [
        Series(label, _exposed(row), _words(row)) for label, (row,) in by_scheme.items()
    ]


def attack_verdicts(summary: Rows, scores: Rows) -> list[tuple[str, str, str]]:
    """Return verdicts where what was attacked is no scheme: kind, word, and on what.

    Args:
        summary: A row for each thing that was attacked.
        scores: Those behind it.
    """
    verdicts = []
    for row in summary:
        if {"seen", "identified", "classes", "by_chance"} <= set(row):
            is_much = size(row["identified"]) >= 2 * size(row["by_chance"])
            word = f"{number(row['identified'])} of {number(row['classes'])} recognized"
            verdicts.append(
                ("bad" if is_much else "good", word, f"seen: {row['seen']}")
            )
        elif {"seen", "psnr_db"} <= set(row):
            # infinite where nothing differs
            word = f"{number(size(row['psnr_db']), 3)} dB"
            verdicts.append(
                ("told", word, f"likeness of what was recovered, seen: {row['seen']}")
            )
    for row in scores:
        if {"pads", "recovered"} <= set(row):
            is_bad = bool(row["recovered"])
            word = "recovered" if is_bad else "not recovered"
            verdicts.append(
                (
                    "bad" if is_bad else "good",
                    word,
                    f"the target's update; {row['pads']}",
                )
            )
    return verdicts


def attack_charts(summary: Rows, scores: Rows) -> dict[str, Chart]:
    """Return the charts of an attack by name.

    None where there are neither errors nor rates.

    Args:
        summary: A row for each thing that was attacked.
        scores: A row for each client, or for each rate of false positives.
    """
    # a chart for each kind of updates, by a separate name where there are several
    if is_told_apart(scores):
        kinds = list(dict.fromkeys(str(row["others"]) for row in scores))
        return {
            f"{FOUND}_{kind}" if len(kinds) > 1 else FOUND: rates_chart(
                [row for row in scores if row["others"] == kind], kind
            )
            for kind in kinds
        }
    if _is_of_attributes(scores):
        return {"attribute": attribute_chart(scores)}
    if _is_of_members(summary):
        return {"auc": members_chart(summary)}
    errors: dict[str, list[Any]] = {}
    for row in scores:
        if "scheme" in row and "error" in row:
            value = np.nan if row["error"] is None else row["error"]
            errors.setdefault(str(row["scheme"]), []).append(value)
    lines = [
        errors_line(label, values)
        for label, values in errors.items()
        if np.isfinite(values).any()
    ]
    return {ERRORS: Chart.named(ERRORS, lines)} if lines else {}


def is_told_apart(scores: Rows) -> bool:
    """Return whether scores are rates of true and false positives."""
    return bool(scores) and set(scores[0]) >= _RATES


def _is_of_attributes(scores: Rows) -> bool:
    """Return whether scores are areas under curves after numbers of rounds."""
    return bool(scores) and {"rounds", "auc", "bound_auc"} <= set(scores[0])


def _is_of_members(summary: Rows) -> bool:
    return bool(summary) and {"method", "seen", "auc"} <= set(summary[0])


def _method(name: Any, summary: Rows) -> Series:
    """Return a line on how well a method recognises members, by what is seen."""
    rows = [row for row in summary if row["method"] == name]
    words = ", ".join(f"{row['seen']} {size(row['auc']):.2f}" for row in rows)
    return Series(spoken(name), None, f"AUC: {words}", is_scheme=False)


def _found(label: str, rows: Rows, scores: Rows) -> Series:
    """Return a line on how often a shift is detected, at some rate of false alarms."""
    of_scheme = [row for row in scores if row["scheme"] == label]
    # the measured rate that is nearest to the one that verdicts are about
    rate = min(
        (float(row["fpr"]) for row in of_scheme),
        key=lambda candidate: abs(candidate - _TOLD_AT),
        default=0.0,
    )
    at_rate = [row for row in of_scheme if float(row["fpr"]) == rate]
    parts = []
    for whose in dict.fromkeys(str(row["whose"]) for row in at_rate):
        shares = [100 * float(row["tpr"]) for row in at_rate if row["whose"] == whose]
        low, high = (f"{end:.3g}" for end in (min(shares), max(shares)))
        parts.append(
            f"{whose} client found in {low if low == high else f'{low} to {high}'} %"
        )
    words = f"{', '.join(parts)}, at {100 * rate:.3g} % false alarms"
    if all("ledger_mu" in row and "lower" in row for row in rows):
        # else -inf: nothing refuted
        measured = [row for row in rows if row["lower"] is not None]
        above = any(float(row["lower"]) > size(row["ledger_mu"]) for row in measured)
        strange = any("NOISE" in str(row.get("verdict", "")) for row in rows)
        verdict = ("good", "within the ledger")
        if above or strange:
            verdict = ("bad", "above the ledger" if above else "noise not as planned")
        return Series(label, verdict, words)
    # the client that is found most often decides
    most = max((float(row["tpr"]) for row in at_rate), default=0.0)
    return Series(
        label, ("bad" if most >= _OFTEN else "fair", f"found {100 * most:.3g} %"), words
    )


def _exposed(row: Mapping[str, Any]) -> tuple[str, str] | None:
    for name in ("exposed", "recovered"):
        count = row.get(name)
        if isinstance(count, int) and not isinstance(count, bool):
            return ("bad", name) if count else ("good", f"nobody {name}")
    return None


_FIRST = ("recovered", "exposed", "mean_error", "median_error", "strong_T", "rank")


def _words(row: Mapping[str, Any]) -> str:
    """Return one line about a scheme: what was recovered comes first."""
    names = [
        *(name for name in _FIRST if name in row),
        *(n for n in row if n not in _FIRST),
    ]
    numbers = [
        f"{spoken(name)} {number(row[name], 3)}"
        for name in names
        if isinstance(row[name], int | float) and not isinstance(row[name], bool)
    ]
    return "; ".join(numbers[:_MOST_WORDS])


def redraw(folder: pathlib.Path, column: Any) -> tuple[pathlib.Path, ...]:
    """Draw a folder's figures again as PNG, SVG and PDF, and return the PNGs.

    A study's are those that its command drew. A sweep, whose command draws none, gets
    one of each quantity on its page, and its points as `points.csv`.

    Args:
        folder: Complete folder of a command.
        column: "single" or "double".

    Raises:
        ConfigurationError: If the width is unknown, or nothing in the folder is drawn
            from numbers: a reproduction's figures are as wide as their panels, images
            as their pixels.
        StoreError: If they cannot be written.
    """
    with plotting.style(column), writing(folder):
        if (folder / "results.zarr").is_dir():
            return _of_results(folder)
        charts = _charts(folder)
        if not charts:
            raise ConfigurationError(
                "`column` must not be set if figures are not drawn from numbers of the "
                "folder, "
                "as those of reproduce (several panels wide) and of images; got "
                f"{column!r} for {str(folder)!r}"
            )
        return save_charts(charts, folder)


def save_charts(
    charts: Mapping[str, Any], folder: pathlib.Path
) -> tuple[pathlib.Path, ...]:
    """Write charts, or other figures, into a folder by name, and return the PNGs."""
    written = []
    for name, chart in charts.items():
        with named_if_not_drawn(name):
            written.append(plotting.save_figure(chart, folder / name, apart=True)[0])
    return tuple(written)


def _of_results(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Draw a study's figures, or a sweep's."""
    results = open_results(folder).load()
    if (read_json(folder / "study.json") or {}).get("command") != "sweep":
        return tuple(plotting.save_study_figures(results, folder).values())
    from mrsa_jax.study.publishing import _points
    from mrsa_jax.study.publishing._report_sweep import default_axes, sweep_charts

    table = _points.points(results)
    x, hue = default_axes(results, table)
    charts = sweep_charts(results, table, x, hue)
    places = [str(name) for name in table if quantity(str(name)).is_place]
    printed = table.assign(**{name: as_shown(name, table[name]) for name in places})
    printed.to_csv(folder / "points.csv", index=False)
    return save_charts(charts, folder)


def _charts(folder: pathlib.Path) -> dict[str, Chart]:
    """Return the charts of a folder without a data set."""
    if (folder / "scores.json").is_file():
        content = read_part(folder / "scores.json", "summary", "scores")
        return attack_charts(content["summary"], content["scores"])
    if (folder / "advice.json").is_file():
        return advice_charts(read_part(folder / "advice.json", "options")["options"])
    if (folder / "recipe.csv").is_file():  # of an audit in which somebody took part
        findings = read_part(folder / "audit.json", "findings")["findings"]
        rounds = audit_rounds(folder / "rounds.csv")
        return audit_charts(
            rounds, findings.get("num_clients"), is_exposed=bool(findings["exposed"])
        )
    return {}


_SIZES = {"num_clients": "N", "cohort_size": "K"}
POLICY_WORDS = {
    "ignore": "sum the survivors",
    "abort": "abort the round",
    "drop_block": "drop the block",
}
"""Words for the policies on blocks that lose a member inside a round."""


def audit_charts(
    rounds: Mapping[Any, Any], num_clients: int | None, *, is_exposed: bool = True
) -> dict[str, Chart]:
    """Return an audit's charts.

    Args:
        rounds: What was known after each round of the log.
        num_clients: All clients of the log.
        is_exposed: Whether anybody is; False leaves out the chart of who is.
    """
    charts = {"weak_privacy": privacy_chart(rounds)}
    if is_exposed:
        charts["exposed_clients"] = exposure_chart(rounds, num_clients)
    return charts


def audit_rounds(path: pathlib.Path) -> dict[str, list[Any]]:
    """Return the columns of an audit's table of rounds, whose names may be any."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {
        name: [
            row.get(name) if name == "round" else _float(row.get(name)) for row in rows
        ]
        for name in (rows[0] if rows else {})
    }


def _float(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def labelled(options: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the schemes of an advice with their labels.

    With sizes where others are alike.

    Args:
        options: The schemes, as its `advice.json` has them.
    """
    relabelled = []
    for option in options:
        label = str(option["label"])
        alike = [other for other in options if str(other["label"]) == label]
        sizes = [
            f"{symbol} = {option.get(name)}"
            for name, symbol in _SIZES.items()
            if len({str(other.get(name)) for other in alike}) > 1
        ]
        relabelled.append(
            {**option, "label": f"{label} ({', '.join(sizes)})" if sizes else label}
        )
    return relabelled


def options_chart(options: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw the protection of each scheme of an advice against its mean clients.

    Args:
        options: The schemes, with their labels.
    """
    lines = []
    for option in options:
        names = ("label", "hidden_worst", "cardinality")
        label, hidden, size = map(option.__getitem__, names)
        if hidden is not None and size is not None:
            among = hidden_words(hidden) if hidden == hidden else "-"
            words = f"{label}: hidden among {among}, {number(size)} clients per round"
            lines.append(Line(label, [hidden], [size], kind="marks", words=[words]))
    return Chart.named("options", lines)


def advice_charts(options: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
    """Return an advice's chart, of its schemes.

    Nothing where no scheme's sums are known.
    """
    chart = options_chart(labelled(options))
    return {"options": chart} if chart.lines else {}
