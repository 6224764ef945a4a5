"""The page of an advice: which scheme to take, and what all of them promise and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mrsa_jax._html import hidden_words, number
from mrsa_jax.plotting._chart import Chart, Line
from mrsa_jax.study import _report
from mrsa_jax.study._chart_look import Series, badge, legend
from mrsa_jax.study._page import Section, data_table, opening, paragraphs, verdicts
from mrsa_jax.study._plots import option_labels

_CAPTION = (
    "What each scheme keeps for ever, whatever the rounds bring, against what it sums: up and to "
    "the right is better. Hidden among 1 is no protection."
)
_NOTE = (
    "T: the fewest clients in any combination of sums, and hidden: among how many every client is "
    "hidden, both for ever (1 is nothing). Mean sum: clients in one, rounds without a sum counted "
    "as none. Played: what was left in simulated rounds."
)
_POLICIES = {
    "ignore": "sum whoever is left",
    "abort": "abort the round",
    "drop_block": "drop the block",
}


def advice_page(content: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Return the page of an advice.

    Args:
        content: What is in its `advice.json`.
        manifest: Its provenance.
    """
    labels = option_labels(content["options"])
    options = [{**one, "label": label}
               for label, one in zip(labels, content["options"], strict=True)]  # fmt: skip
    chosen = content["chosen"] or {}
    options = [{**one, "is_chosen": all(one.get(name) == chosen.get(name, "") for name in _SIZES)}
               for one in options]  # fmt: skip
    series = [_series(option) for option in options]
    told = verdicts([("good", "take", f"{one.label}: {one.words}")
                     for one in series if one.verdict == _TAKE]
                    or [("bad", "none", "no scheme keeps what is demanded")])  # fmt: skip
    glance = opening([_chart(options)], series) if options else ""
    sections = [
        Section("At a glance", told + glance + (legend(series, "Schemes") if series else "")),
        Section("Advice", paragraphs(content["sentences"])),
        Section("Schemes", _table(options) if options else ""),
        Section("If clients are lost inside rounds", _policies(content)),
    ]
    lead = [str(content["title"]), f"Seed {manifest.get('seed')}"]
    title = "which scheme to take, and why"
    return _report.whole_page(manifest, lead, sections, title=title, series=series)


_SIZES = ("scheme", "num_clients", "cohort_size")  # what tells one scheme from the others
_TAKE = ("good", "take")


def _series(option: Mapping[str, Any]) -> Series:
    verdict = None
    if option["is_chosen"]:
        verdict = _TAKE
    elif option.get("weak_lower") == 1:
        verdict = ("bad", "no protection")
    elif option.get("is_best"):
        verdict = ("told", "best of its kind")
    words = (
        f"T {_told(option, 'weak_lower')}; hidden among {_hidden(option)}; "
        f"{_told(option, 'cardinality', 3)} clients in a mean sum; "
        f"{_percent(option.get('skipped'))} of rounds without a sum"
    )
    return Series(str(option["label"]), verdict, words)


def _told(option: Mapping[str, Any], name: str, digits: int = 4) -> str:
    value = option.get(name)
    return "-" if value is None else number(value, digits)


def _hidden(option: Mapping[str, Any]) -> str:
    value = option.get("hidden_worst")
    return "-" if value is None or value != value else hidden_words(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{number(round(100 * share, 2), 3)} %"


def _chart(options: list[dict[str, Any]]) -> Chart:
    lines = []
    for option in options:
        hidden, size = option.get("hidden_worst"), option.get("cardinality")
        if hidden is not None and size is not None:
            words = f"{option['label']}: hidden among {_hidden(option)}, mean sum {number(size)}"
            lines.append(Line(str(option["label"]), [hidden], [size], kind="marks", words=[words]))
    title = "Clients in a mean sum against among how many the worst is hidden"
    return Chart(title, _CAPTION, lines, "hidden among (worst client, for ever)",
                 "clients in a mean sum", x_from=0.0, whole="")  # fmt: skip


def _table(options: list[dict[str, Any]]) -> str:
    rows = []
    for option in options:
        played = option.get("played") or {}
        mark: Any = badge(*_TAKE) if option["is_chosen"] else ""
        mark = mark or (badge("told", "best") if option.get("is_best") else "")
        rows.append((
            option["label"], mark, _told(option, "weak_lower"), _hidden(option),
            _told(option, "cardinality", 3), _percent(option.get("skipped")),
            _told(played, "fairness_gap", 3), _told(played, "weak_lower"), _hidden(played),
            _told(played, "exposed_clients"),
        ))  # fmt: skip
    headings = ("Scheme", "", "T", "Hidden", "Mean sum", "No sum", "F, played", "T, played",
                "Hidden, played", "Exposed, played")  # fmt: skip
    table = data_table(headings, rows, "What each scheme keeps and costs", where="options.csv")
    return f'{table}<p class="note">{_NOTE}</p>'


def _policies(content: Mapping[str, Any]) -> str:
    """Return what becomes of the chosen scheme's blocks under each policy; "" if not asked."""
    rows = [
        (_POLICIES.get(str(one["policy"]), str(one["policy"])), _told(one, "weak_lower"),
         _hidden(one), _told(one, "cardinality", 3), _percent(one.get("skipped")))
        for one in content.get("policies") or []
    ]  # fmt: skip
    if not rows:
        return ""
    caption = f"If {_percent(content.get('policy_loss'))} of clients are lost inside rounds"
    return data_table(("Then", "T", "Hidden", "Mean sum", "No sum"), rows, caption)
