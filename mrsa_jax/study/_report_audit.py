"""The page of an audit.

Findings, what the gate says, figures, who is exposed, the certificate.
"""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Mapping
from typing import Any

from mrsa_jax.plotting.audit_charts import EXPOSED, HIDDEN, STRONG, UPDATES, WEAK
from mrsa_jax.plotting.chart import Chart
from mrsa_jax.study import _page, _report
from mrsa_jax.study._page import Section, Series
from mrsa_jax.study._plots import audit_charts, audit_rounds
from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch._base.html import hidden_words, number, shown, tidy
from mrsa_watch.mrsa_check import REALS

_PRIVACY = "weak_privacy"  # the chart that the page opens with
_UPDATE = "update of one round, worst client"
_RENAMED = {"worst update hidden": _UPDATE}  # of earlier versions
_QUESTIONS = {
    WEAK: "weak T",
    STRONG: "strong T",
    HIDDEN: "worst client hidden",
    UPDATES: _UPDATE,
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
    answers = {
        _RENAMED.get(row["question"], row["question"]): row
        for row in content["summary"]
    }
    rounds = folder / "rounds.csv"
    columns = audit_rounds(rounds) if rounds.is_file() else {}
    known = {"exposed_clients", "weak_lower", "weak_upper"} <= set(columns)
    charts = audit_charts(columns, findings.get("num_clients")) if known else {}
    series = _series(charts, answers, findings)
    first = [chart for name, chart in charts.items() if name == _PRIVACY]
    others = {name: chart for name, chart in charts.items() if name != _PRIVACY}
    glance = _verdict(content) + _page.opening(first, series)
    glance += _page.legend(series, "What the lines are")
    sections = [
        Section("At a glance", glance),
        Section("Findings", _findings(content)),
        Section("Summary", summary),
        _page.charts_section(others, series),
        Section("Exposed clients", _exposed(findings["exposed"])),
        Section("Worst hidden of the others", _hidden(findings.get("hidden_among"))),
        Section(
            "Worst hidden updates of one round",
            _hidden(
                findings.get("hidden_among_updates"),
                "each client's worst update of one round",
            ),
        ),
        Section(
            "Worst hidden by what lasts",
            _hidden(
                findings.get("hidden_among_lasting"),
                "what lasts of each client's updates",
            ),
        ),
        Section("Distinguished beneath the noise", _noisy(findings.get("noise"))),
        Section("Noise that clients add", _shares(content.get("shares"))),
        Section("Certificate", _certificates(folder, manifest.get("log", {}))),
    ]
    return _report.whole_page(
        manifest, [str(content["title"])], sections, series=series
    )


def _verdict(content: Mapping[str, Any]) -> str:
    """Return in a line each whether anybody is exposed, and what the gates say."""
    exposed, total = (
        content["findings"]["exposed"],
        content["findings"].get("num_clients"),
    )
    of = f" of {number(total)}" if total else ""
    told = [
        ("bad", "exposed", f"{len(exposed)}{of} clients")
        if exposed
        else ("good", "no client exposed", f"so far, {REALS}")
    ]
    for gate in _gates(content):
        kind, word = (
            ("good", "gate passed") if gate["passed"] else ("bad", "gate failed")
        )
        told.append((kind, word, str(gate["reason"])))
    return _page.verdicts(told)


def _gates(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        content[name]
        for name in ("gate_hidden", "gate")
        if content.get(name) is not None
    ]


def _series(
    charts: Mapping[str, Chart],
    answers: Mapping[str, Mapping[str, Any]],
    findings: Mapping[str, Any],
) -> list[Series]:
    """Return a line for each curve: what was found of it, and how sure that is."""
    labels = dict.fromkeys(label for chart in charts.values() for label in chart.series)
    found = []
    for label in labels:
        row = answers.get(_QUESTIONS.get(label, ""), {})
        words = "; ".join(
            str(row[part]) for part in ("answer", "how_sure") if part in row
        )
        verdict = None
        if label == EXPOSED:
            bad = bool(findings["exposed"])
            verdict = ("bad", "exposed") if bad else ("good", "nobody")
        found.append(Series(label, verdict, words, is_scheme=False))
    return found


def _findings(content: Mapping[str, Any]) -> str:
    words = _page.paragraphs(shown(text, 2000) for text in content["sentences"])
    for gate in _gates(content):
        verdict = "passed" if gate["passed"] else "failed"
        words = (
            f"<p><strong>Gate {verdict}:</strong> {tidy(gate['reason'])}.</p>" + words
        )
    return words + f'<p class="note">{_page.text_of("audit_model")}</p>'


def _exposed(exposed: list[dict[str, Any]]) -> str:
    if not exposed:
        return "<p>No client.</p>"
    rows = [(str(one["client"]), str(one["first_round"])) for one in exposed]
    headings = ("Client", "From round")
    caption = "Clients whose update follows from the sums, and from which round"
    return _page.data_table(
        headings, rows, caption, most=_MOST_ROWS, where="clients.csv"
    )


def _hidden(hidden: Mapping[str, Any] | None, what: str = "each") -> str:
    """Return the table of the worst hidden clients; "" where the audit does not say."""
    if not hidden or not hidden["worst"]:
        return ""
    rows = [
        (str(one["client"]), hidden_words(one["hidden_among"]))
        for one in hidden["worst"]
    ]
    # earlier versions wrote none
    condition = hidden.get("condition", "if clients are alike")
    caption = f"Size of a single sum that would hide {what} as well as all sums do, {condition}; "
    caption += f"the median client: {hidden_words(hidden['median'])}"
    return _page.data_table(
        ("Client", "Hidden among"), rows, caption, where="clients.csv"
    )


def _noisy(noise: Mapping[str, Any] | None) -> str:
    """Return tables of mu and epsilon; "" without noise."""
    if not noise:
        return ""
    tables, mean = [], noise.get("mean_epsilon")
    told = (
        f"; the mean of all clients: epsilon {number(mean)}" if mean is not None else ""
    )
    for name, caption in (
        ("others_known", f"If all others' updates are known: a guarantee{told}"),
        (
            "others_gaussian",
            f"If they are Gaussian with spread {noise['spread']}: no guarantee",
        ),
    ):
        rows = [
            (
                str(one["client"]),
                *("inf" if one[of] is None else number(one[of]) for of in _TOLD),
            )
            for one in noise.get(name) or []
        ]
        if rows:
            headings = ("Client", "mu", f"epsilon at delta {noise['delta']:g}")
            tables.append(_page.data_table(headings, rows, caption))
    return "".join(tables)


_TOLD = ("mu", "epsilon")
_REALISED = ("mu", "epsilon", "planned_mu", "planned_epsilon")


def _shares(shares: Mapping[str, Any] | None) -> str:
    """Return the table of planned and realised noise.

    "" where noise is not clients' own.
    """
    if not shares or not shares["worst"]:
        return ""
    rows = [
        (
            str(one["client"]),
            *("inf" if one[of] is None else f"{one[of]:.4g}" for of in _REALISED),
        )
        for one in shares["worst"]
    ]
    headings = ("Client", "mu", "epsilon", "mu as planned", "epsilon as planned")
    caption = f"The worst clients at delta {shares['delta']:g}, if all others' updates are known"
    notes = _page.paragraphs(shown(text, 2000) for text in shares["notes"])
    return _page.data_table(headings, rows, caption) + notes


def _certificates(folder: pathlib.Path, log: Mapping[str, Any]) -> str:
    """Return the combinations that the upper bounds stand on, and how to check them."""
    fewest = _combination(folder / "recipe.csv")
    if not fewest:
        return ""
    known = {name: log.get(name, "?") for name in ("bytes", "sha256")}
    how = _page.text_of("audit_check").format(**known)
    plain = _combination(folder / "plain_sum.csv")
    more = f"<h3>Of the smallest plain sum</h3>{plain}" if plain else ""
    return f'<p class="note">{tidy(how)}</p><h3>Of weak T</h3>{fewest}{more}'


def _combination(path: pathlib.Path) -> str:
    """Return a combination of sums as two tables: what is added up, and what is left."""
    if not path.is_file():
        return ""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = [
                (row["kind"], row["name"], row["coefficient"])
                for row in csv.DictReader(stream)
            ]
    except (OSError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"`folder` must hold a whole audit; {str(path)!r} cannot be read "
            f"({type(error).__name__}: {error})"
        ) from error
    parts = []
    for kind, caption in (("round", "What is added up"), ("client", "What is left")):
        terms = [
            (label, shown(value, _MOST_DIGITS))
            for one, label, value in rows
            if one == kind
        ]
        parts.append(
            _page.data_table(
                (kind.capitalize(), "Coefficient"),
                terms,
                caption,
                most=_MOST_ROWS,
                where=path.name,
            )
        )
    return "".join(parts)
