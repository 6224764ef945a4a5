"""The charts of an attack, from its scores: errors in their order, how often shifts are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mrsa_jax import _gaussian
from mrsa_jax._html import number
from mrsa_jax.plotting._chart import Chart, Line
from mrsa_jax.study._chart_look import Series

Rows = Sequence[Mapping[str, Any]]

ERRORS = "errors"
FOUND = "true_against_false_positives"
"""Names of an attack's figures, which its page draws itself."""

_MOST_WORDS = 5  # numbers of a summary that stand in the line of what was attacked
_RATES = {"fpr", "tpr", "lower", "upper", "mu", "scheme", "others", "whose"}
_TOLD_AT = 0.1  # rate of false positives that a verdict is about
_OFTEN = 0.5  # rate of true positives there from which on it is a bad one
_LEAST = 1e-12  # of an error on a logarithmic axis


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
        return [_found(label, rows, scores) for label, rows in by_scheme.items()]
    if _is_of_members(summary):
        return [_method(name, summary) for name in dict.fromkeys(row["method"] for row in summary)]
    if len(by_scheme) < len(summary):
        return []
    return [Series(label, _exposed(row), _words(row)) for label, (row,) in by_scheme.items()]


def attack_verdicts(summary: Rows, scores: Rows) -> list[tuple[str, str, str]]:
    """Return verdicts where what was attacked is no scheme: kind, word, and on what.

    Args:
        summary: A row for each thing that was attacked.
        scores: Those behind it.
    """
    told = []
    for row in summary:
        if {"seen", "identified", "classes", "by_chance"} <= set(row):
            is_much = _size(row["identified"]) >= 2 * _size(row["by_chance"])
            word = f"{number(row['identified'])} of {number(row['classes'])} recognized"
            told.append(("bad" if is_much else "good", word, f"seen: {row['seen']}"))
        elif {"seen", "psnr_db"} <= set(row):
            word = f"{number(_size(row['psnr_db']), 3)} dB"  # infinite where nothing differs
            told.append(("told", word, f"likeness of what was recovered, seen: {row['seen']}"))
    for row in scores:
        if {"pads", "recovered"} <= set(row):
            is_bad = bool(row["recovered"])
            word = "recovered" if is_bad else "not recovered"
            told.append(("bad" if is_bad else "good", word, f"the target's update; {row['pads']}"))
    return told


def attack_charts(summary: Rows, scores: Rows, series: Sequence[Series]) -> dict[str, Chart]:
    """Return the charts of an attack by name; none where there are neither errors nor rates.

    Args:
        summary: A row for each thing that was attacked.
        scores: A row for each client, or for each rate of false positives.
        series: What was attacked.
    """
    if is_told_apart(scores):
        kinds = dict.fromkeys(str(row["others"]) for row in scores)
        return {f"{FOUND}_{kind}": _rates(kind, scores, series) for kind in kinds}
    if _is_of_members(summary):
        return {"auc": _members(summary)}
    lines = []
    for label in (one.label for one in series):
        own = [row.get("error") for row in scores if str(row.get("scheme")) == label]
        known = [float(value) for value in own if isinstance(value, int | float)]
        errors = np.sort([value for value in known if np.isfinite(value)])
        if errors.size:
            share = 100 * (np.arange(errors.size) + 1) / errors.size
            lines.append(Line(label, share, np.maximum(errors, _LEAST)))
    if not lines:
        return {}
    caption = (
        "Relative squared error of each client's update as it was reconstructed, clients in the "
        "order of their errors; 1 means nothing was learnt beyond zero. Errors below 1e-12 stand "
        "there."
    )
    chart = Chart("Errors of what was reconstructed", caption, lines, "clients (%)",
                  "relative squared error (log axis)", is_log_y=True, y_range=(1.0,), whole="",
                  rules=((1.0, "1: nothing learnt"),))  # fmt: skip
    return {ERRORS: chart}


def is_told_apart(scores: Rows) -> bool:
    """Return whether scores are rates of true and false positives."""
    return bool(scores) and set(scores[0]) >= _RATES


def _is_of_members(summary: Rows) -> bool:
    return bool(summary) and {"method", "seen", "auc"} <= set(summary[0])


def _method(name: Any, summary: Rows) -> Series:
    """Return how well a method tells members, of each thing that the server may see."""
    own = [row for row in summary if row["method"] == name]
    words = ", ".join(f"{row['seen']} {_size(row['auc']):.2f}" for row in own)
    return Series(_plain(name), None, f"AUC: {words}", is_scheme=False)


def _plain(name: Any) -> str:
    return str(name).replace("_", " ")


def _members(summary: Rows) -> Chart:
    """Return how well each method tells members from others, by what the server sees."""
    seen = list(dict.fromkeys(str(row["seen"]) for row in summary))
    lines = []
    for name in dict.fromkeys(row["method"] for row in summary):
        own = [row for row in summary if row["method"] == name]
        words = [f"{_plain(name)}, {row['seen']}: AUC {_size(row['auc']):.3g}, right about "
                 f"{100 * _size(row['accuracy']):.3g} %" for row in own]  # fmt: skip
        lines.append(
            Line(
                _plain(name),
                [float(seen.index(str(row["seen"]))) for row in own],
                [_size(row["auc"]) for row in own],
                kind="marks",
                words=words,
            )
        )
    caption = (
        "Area under the curve of true against false positives: 1 tells every member of a client's "
        "training data from every other sample, 0.5 is a guess."
    )
    return Chart("How well members are told from others", caption, lines, "what the server sees",
                 "AUC", y_range=(0.4, 1.0), whole="", rules=((0.5, "0.5: a guess"),),
                 ticks=[(float(k), name) for k, name in enumerate(seen)])  # fmt: skip


def _rates(kind: str, scores: Rows, series: Sequence[Series]) -> Chart:
    """Return measured rates with their intervals beside the formula's, a line for each client."""
    lines = []
    least = min(float(row["fpr"]) for row in scores)
    along = np.logspace(np.log10(least), np.log10(0.999), 60)
    for label in (one.label for one in series):
        for whose in dict.fromkeys(str(row["whose"]) for row in scores):
            rows = [row for row in scores if row["others"] == kind
                    and row["scheme"] == label and row["whose"] == whose]  # fmt: skip
            if not rows:
                continue
            rows = sorted(rows, key=lambda row: float(row["fpr"]))
            x, y, low, high = (
                np.array([float("nan") if row[name] is None else row[name] for row in rows], float)
                for name in ("fpr", "tpr", "lower", "upper")
            )
            width = "main" if whose == "worst" else "thin"
            mu = float("inf") if rows[0]["mu"] is None else float(rows[0]["mu"])
            formula = _gaussian.true_positive_rate(mu, along)
            lines.append(Line(label, along, 100 * formula, f"{whose} client, formula",
                              weight=f"{width} dashed"))  # fmt: skip
            lines.append(Line(label, x, 100 * y, f"{whose} client", 100 * low, 100 * high,
                              weight=f"{width} solid"))  # fmt: skip
    told = "Gaussian" if kind == "gaussian" else kind
    caption = (
        f"How often a shift is found, with 95 % intervals (dashed: the formula), if the others' "
        f"updates are {told}, at the false alarms that are allowed. Chance finds as often as it "
        "gives false alarms."
    )
    return Chart(f"Found, by false alarms ({told} updates)", caption, lines,
                 "rate of false positives (log axis)", "found (%)", is_log_x=True,
                 y_range=(0.0, 100.0), whole="")  # fmt: skip


def _found(label: str, rows: Rows, scores: Rows) -> Series:
    """Return how often what was done to a scheme's clients is found, at some false alarms."""
    own = [row for row in scores if row["scheme"] == label]
    rate = min((float(row["fpr"]) for row in own), key=lambda one: abs(one - _TOLD_AT), default=0.0)
    found = [row for row in own if float(row["fpr"]) == rate]
    parts = []
    for whose in dict.fromkeys(str(row["whose"]) for row in found):
        shares = [100 * float(row["tpr"]) for row in found if row["whose"] == whose]
        low, high = (f"{end:.3g}" for end in (min(shares), max(shares)))
        parts.append(f"{whose} client found in {low if low == high else f'{low} to {high}'} %")
    words = f"{', '.join(parts)}, at {100 * rate:.3g} % false alarms"
    if all("ledger_mu" in row and "lower" in row for row in rows):
        measured = [row for row in rows if row["lower"] is not None]  # else -inf: nothing refuted
        above = any(float(row["lower"]) > _size(row["ledger_mu"]) for row in measured)
        strange = any("NOISE" in str(row.get("verdict", "")) for row in rows)
        told = ("bad", "noise not as planned") if strange else ("good", "within the ledger")
        told = ("bad", "above the ledger") if above else told
        return Series(label, told, words)
    most = max((float(row["tpr"]) for row in found), default=0.0)
    return Series(label, ("bad" if most >= _OFTEN else "fair", f"found {100 * most:.3g} %"), words)


def _size(value: Any) -> float:
    return float("inf") if value is None else float(value)


def _exposed(row: Mapping[str, Any]) -> tuple[str, str] | None:
    for name in ("exposed", "recovered"):
        count = row.get(name)
        if isinstance(count, int) and not isinstance(count, bool):
            return ("bad", name) if count else ("good", f"nobody {name}")
    return None


_FIRST = ("recovered", "exposed", "mean_error", "median_error", "strong_T", "rank")


def _words(row: Mapping[str, Any]) -> str:
    """Return what is said of a scheme in a line: what was recovered comes first."""
    names = [*(name for name in _FIRST if name in row), *(n for n in row if n not in _FIRST)]
    numbers = [
        f"{_plain(name)} {number(row[name], 3)}"
        for name in names
        if isinstance(row[name], int | float) and not isinstance(row[name], bool)
    ]
    return "; ".join(numbers[:_MOST_WORDS])
