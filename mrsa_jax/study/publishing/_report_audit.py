"""Write the report of an audit: findings, gates, figures, exposed clients, proofs."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mrsa_jax.plotting.audit_charts import (
    EXPOSED,
    HIDDEN,
    LASTING,
    STRONG,
    UPDATES,
    WEAK,
)
from mrsa_jax.plotting.chart import Chart
from mrsa_jax.study.publishing import _page, _report
from mrsa_jax.study.publishing._assets import piece, text_of
from mrsa_jax.study.publishing._page import Section
from mrsa_jax.study.publishing._plots import audit_charts, audit_rounds
from mrsa_jax.study.publishing._series import Series, legend
from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch._base.html import hidden_words, number, shown
from mrsa_watch.mrsa_check import REALS

_PRIVACY = "weak_privacy"  # the chart that the page opens with
_UPDATE = "update of one round, worst client"
_RENAMED = {"worst update hidden": _UPDATE}  # of earlier versions
_QUESTIONS = {
    WEAK: "weak T",
    STRONG: "strong T",
    HIDDEN: "worst client hidden",
    UPDATES: _UPDATE,
    LASTING: "what lasts, worst client",
    EXPOSED: "exposed clients",
}  # the line of the summary that each curve belongs to
_MOST_ROWS = 200
_MOST_DIGITS = 60  # of a coefficient in a table; recipe.csv has all of them


def audit_page(
    folder: pathlib.Path, content: Mapping[str, Any], manifest: Mapping[str, Any]
) -> str:
    """Return the page of an audit.

    Args:
        folder: Its folder.
        content: What is in its `audit.json`.
        manifest: Its provenance.
    """
    findings = content["findings"]
    summary = _page.data_table(
        ("Question", "Answer", "How sure"),
        [
            (row["question"], row["answer"], row["how_sure"])
            for row in content["summary"]
        ],
        "What the sums reveal",
    )
    rounds = folder / "rounds.csv"
    columns = audit_rounds(rounds) if rounds.is_file() else {}
    has_rounds = {"exposed_clients", "weak_lower", "weak_upper"} <= set(columns)
    charts = audit_charts(columns, findings.get("num_clients")) if has_rounds else {}
    series = _series(charts, content)
    first = [charts.pop(_PRIVACY)] if _PRIVACY in charts else []
    glance = _verdict(content) + _page.opening(first, series)
    sections = [
        Section("At a glance", glance + legend(series, "What the lines are")),
        Section("Findings", _findings(content)),
        Section("Summary", summary),
        _page.charts_section(charts, series),
        Section("Exposed clients", _exposed(findings["exposed"])),
        *(
            Section(title, _hidden(findings.get(name), what))
            for title, (name, what) in _HIDDEN_TABLES.items()
        ),
        Section("Distinguished beneath the noise", _noisy(findings.get("noise"))),
        Section("Noise that clients add", _shares(content.get("shares"))),
        Section("Certificate", _certificates(folder, manifest.get("log", {}))),
    ]
    return _report.whole_page(
        manifest, [str(content["title"])], sections, series=series
    )


_HIDDEN_TABLES = {
    "Worst hidden of the others": ("hidden_among", "each"),
    "Worst hidden updates of one round": (
        "hidden_among_updates",
        "each client's worst update of one round",
    ),
    "Worst hidden by what lasts": (
        "hidden_among_lasting",
        "what lasts of each client's updates",
    ),
    "Worst hidden with resemblance known": (
        "hidden_among_resembling",
        "each from a server that knows the covariance of clients' updates",
    ),
}
"""Tables of hidden clients: the part of the findings, and its name in captions."""


def _verdict(content: Mapping[str, Any]) -> str:
    """Return in a line each whether a client is exposed, and what the gates say."""
    exposed = content["findings"]["exposed"]
    total = content["findings"].get("num_clients")
    lines = [("good", "no client exposed", f"so far, {REALS}")]
    if exposed:
        of_all = f" of {number(total)}" if total else ""
        lines = [("bad", "exposed", f"{len(exposed)}{of_all} clients")]
    for gate in _gates(content):
        kind = "good" if gate["passed"] else "bad"
        lines.append((kind, f"gate {_passed(gate)}", str(gate["reason"])))
    return _page.verdicts(lines)


def _passed(gate: Mapping[str, Any]) -> str:
    return "passed" if gate["passed"] else "failed"


def _gates(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        content[name]
        for name in ("gate_hidden", "gate")
        if content.get(name) is not None
    ]


def _series(charts: Mapping[str, Chart], content: Mapping[str, Any]) -> list[Series]:
    """Return a line for each curve: the audit's answer, and how sure that is."""
    answers = {
        _RENAMED.get(row["question"], row["question"]): row
        for row in content["summary"]
    }
    series = []
    for label in dict.fromkeys(
        label for chart in charts.values() for label in chart.series
    ):
        row = answers.get(_QUESTIONS.get(label, ""), {})
        parts = [str(row[part]) for part in ("answer", "how_sure") if part in row]
        verdict = None
        if label == EXPOSED:
            is_bad = bool(content["findings"]["exposed"])
            verdict = ("bad", "exposed") if is_bad else ("good", "nobody")
        series.append(Series(label, verdict, "; ".join(parts), is_scheme=False))
    return series


def _findings(content: Mapping[str, Any]) -> str:
    words: str = _page.paragraphs(shown(text, 2000) for text in content["sentences"])
    # the gate that was named last stands first
    for gate in _gates(content):
        words = piece("gate", _passed(gate), gate["reason"]) + words
    return words + _page.note(text_of("audit_model"))


def _exposed(exposed: list[dict[str, Any]]) -> str:
    if not exposed:
        return _page.paragraphs(["No client."])
    return _page.data_table(
        ("Client", "From round"),
        [(str(client["client"]), str(client["first_round"])) for client in exposed],
        "Clients whose update follows from the sums, and from which round",
        most=_MOST_ROWS,
        where="clients.csv",
    )


def _hidden(hidden: Mapping[str, Any] | None, what: str) -> str:
    """Return the table of the worst hidden clients; "" where the audit does not say."""
    if not hidden or not hidden["worst"]:
        return ""
    # earlier versions wrote none
    condition = hidden.get("condition", "if clients are alike")
    caption = (
        f"Size of a single sum that would hide {what} as well as all sums do, "
        f"{condition}; "
    )
    caption += f"the median client: {hidden_words(hidden['median'])}"
    rows = [
        (str(client["client"]), hidden_words(client["hidden_among"]))
        for client in hidden["worst"]
    ]
    headings = ("Client", "Hidden among")
    return _page.data_table(headings, rows, caption, where="clients.csv")


def _noisy(noise: Mapping[str, Any] | None) -> str:
    """Return tables of mu and epsilon; "" without noise."""
    if not noise:
        return ""
    guarantee = "If all others' updates are known: a guarantee"
    if noise.get("mean_epsilon") is not None:
        mean = number(noise["mean_epsilon"])
        guarantee += f"; the mean of all clients: epsilon {mean}"
    captions = {
        "others_known": guarantee,
        "others_gaussian": (
            f"If they are Gaussian with spread {noise['spread']}: no guarantee"
        ),
    }
    headings = ("Client", "mu", f"epsilon at delta {noise['delta']:g}")
    tables = ""
    for name, caption in captions.items():
        rows = _losses(noise.get(name) or [], ("mu", "epsilon"), number)
        tables += _page.data_table(headings, rows, caption) if rows else ""
    return tables


def _losses(
    clients: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    words: Callable[[float], str],
) -> list[tuple[str, ...]]:
    """Return rows of clients and their losses; JSON has no infinity, so None is one."""
    return [
        (
            str(client["client"]),
            *(
                "inf" if client[name] is None else words(client[name])
                for name in columns
            ),
        )
        for client in clients
    ]


def _shares(shares: Mapping[str, Any] | None) -> str:
    """Return planned and realised noise; "" where clients do not share the noise."""
    if not shares or not shares["worst"]:
        return ""
    columns = ("mu", "epsilon", "planned_mu", "planned_epsilon")
    headings = ("Client", "mu", "epsilon", "mu as planned", "epsilon as planned")
    caption = (
        f"The worst clients at delta {shares['delta']:g}, if all others' updates are "
        "known"
    )
    rows = _losses(shares["worst"], columns, "{:.4g}".format)
    notes = _page.paragraphs(shown(text, 2000) for text in shares["notes"])
    return _page.data_table(headings, rows, caption) + notes


def _certificates(folder: pathlib.Path, log: Mapping[str, Any]) -> str:
    """Return the combinations that the upper bounds stand on, and how to check them."""
    fewest = _combination(folder / "recipe.csv")
    if not fewest:
        return ""
    facts = {name: log.get(name, "?") for name in ("bytes", "sha256")}
    how = text_of("audit_check").format(**facts)
    plain = _combination(folder / "plain_sum.csv")
    return piece("certificate", how, fewest, plain)


def _combination(path: pathlib.Path) -> str:
    """Return a combination of sums as two tables: the sums, and the result."""
    if not path.is_file():
        return ""
    terms: dict[str, list[tuple[str, str]]] = {"round": [], "client": []}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                coefficient = shown(row["coefficient"], _MOST_DIGITS)
                terms[row["kind"]].append((row["name"], coefficient))
    except (OSError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"`folder` must hold a whole audit; {str(path)!r} cannot be read "
            f"({type(error).__name__}: {error})"
        ) from error
    tables = ""
    for kind, caption in (("round", "What is added up"), ("client", "What is left")):
        headings = (kind.capitalize(), "Coefficient")
        rows = terms[kind]
        tables += _page.data_table(
            headings, rows, caption, most=_MOST_ROWS, where=path.name
        )
    return tables
