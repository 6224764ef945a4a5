"""Write the report of a study of schemes, with its noise and its drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tyro

from mrsa_jax.plotting.chart import Chart
from mrsa_jax.plotting.study_charts import LEARNING, OPENING, study_charts
from mrsa_jax.study._progress import performance_words
from mrsa_jax.study.kinds import kind_named
from mrsa_jax.study.publishing import _page, _points, _summary
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.publishing._page import Section
from mrsa_jax.study.publishing._points import cost_charts
from mrsa_jax.study.publishing._series import Series, legend
from mrsa_jax.study.publishing._summary import Row
from mrsa_jax.study.settings._attributes import attributes
from mrsa_jax.study.settings._config import PopulationConfig
from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch._base.html import counted, hidden_words, number, plain_settings

if TYPE_CHECKING:
    import xarray as xr

_HEADINGS = ("Scheme", "Strong T", "Accuracy", "Epsilon (proven)", "Mean if Gaussian",
             "Worst if Gaussian", "... as planned", "Worst mu", "Step",
             "Wrapped")  # fmt: skip


def noise_section(results: xr.Dataset, rows: Sequence[Row]) -> Section:
    """Return accuracy next to epsilon, and what it protects; empty without noise."""
    title = "Differential privacy"
    if "epsilon" not in results:
        return Section(title, "")
    lines = []
    for row in rows:
        scheme = results.sel(scheme=row.scheme)
        epsilons = (
            row.epsilon_proven,
            row.epsilon_mean,
            row.epsilon_worst,
            row.planned_epsilon,
            float(scheme["mu"].max()),
            float(scheme["noise_step"]),
        )
        lines.append(
            (
                *cells(row, ("Scheme", "Strong T", "Accuracy")),
                *map(number, epsilons),
                str(row.wrapped_coordinates),
            )
        )
    caption = f"After the last round, at delta {rows[0].target_delta:g}"
    table = _page.data_table(_HEADINGS, lines, caption)
    who = _page.paragraphs([text_of("noise_who")])
    return Section(title, who + table + _page.note(text_of("noise_how")))


_MEASURED = ("spread", "lasting", "memory")
# headings by field, in the order of what a reader asks: T, hidden, drift, bits
_BESIDE = {
    "Strong T": "strong_privacy",
    "Weak T": "weak_privacy",
    "Hidden among (worst)": "hidden_among_worst",
    "Hidden among (median)": "hidden_among_median",
    "Update hidden (worst)": "update_hidden_worst",
    "Update hidden (median)": "update_hidden_median",
    "What lasts hidden (worst)": "lasting_hidden_worst",
    "What lasts hidden (median)": "lasting_hidden_median",
    "By mates alone (at least)": "update_mates_worst",
    "Kappa of mates": "update_mates_correlation",
    "By kappa (at least)": "update_mates_cap",
    "Bits (worst)": "bits_worst",
    "Bits (median)": "bits_median",
    "Spread s": "update_spread",
    "Lasting share": "update_lasting",
    "Memory rho": "update_memory",
}


def drift_section(results: xr.Dataset, rows: Sequence[Row]) -> Section:
    """Return T, hidden among and bits side by side, and the drift of each layer."""
    title = "How updates drift"
    if "layer_memory" not in results:
        return Section(title, "")
    lines = []
    for label in results["scheme"].values:
        scheme = results.sel(scheme=label)
        whole = [float(scheme[f"update_{name}"]) for name in _MEASURED]
        layers = [scheme[f"layer_{name}"].values.tolist() for name in _MEASURED]
        names = scheme["layer"].values.tolist()
        for name, *values in [("all", *whole), *zip(names, *layers, strict=True)]:
            lines.append((str(label), name, *map(number, values)))
    side_by_side = _page.data_table(
        ("Scheme", *_BESIDE),
        [(row.scheme, *_beside(row)) for row in rows],
        "What a server learns: if updates never changed (T, hidden among), and as they "
        "drift: of "
        "the update of any one round (update hidden), and of a whole history (bits)",
    )
    headings = ("Scheme", "Layer", "Spread s", "Lasting share", "Memory rho")
    by_layer = _page.data_table(headings, lines, "Clients' updates, by layer")
    return Section(
        title, side_by_side + by_layer + _page.note(text_of("drift_assumed"))
    )


def _beside(row: Row) -> list[str]:
    values = [getattr(row, name) for name in _BESIDE.values()]
    return [number(v) if isinstance(v, float | None) else str(v) for v in values]


_FORMS = {
    "Scheme": "{row.scheme}",
    "Strong T": "{row.strong_privacy:d}",
    "Weak T": "{row.weak_privacy:s}",
    "Hidden among": "{row.hidden_among:s}",
    "Rank": "{row.rank:.4g}",
    "Exposed": "{row.exposed_clients:.4g}",
    "From": "{row.first_exposed_after:d}",
    "F": "{row.fairness_gap:.3f}",
    "Expected F": "{row.expected_fairness:s}",
    "C": "{row.aggregation_cardinality:.2f}",
    "Expected C": "{row.expected_cardinality:.2f} ± {row.cardinality_error:.2f}",
    "Skipped": "{row.skipped_rounds:.4g}",
    "Accuracy": "{row.percent_right:.1f} %",
    "Epsilon": "{row.epsilon_proven:.3g}",
    "Mean if Gaussian": "{row.epsilon_mean:.3g}",
    "Worst if Gaussian": "{row.epsilon_worst:.3g}",
    "Update hidden": "{row.update_hidden_worst:.2f}",
    "What lasts hidden": "{row.lasting_hidden_worst:.2f}",
    "Values determined": "{row.determined_share:.3f}",
    "Undecided": "{row.undecided_share:.3f}",
    "Frozen error": "{row.reconstruction_error:.2g}",
    "Level": "{row.privacy_levels:s}",
    "Seconds": "{row.round_seconds:.3g}",
}
_OPTIONAL = {
    "Expected F",
    "Weak T",
    "Hidden among",
    "Accuracy",
    "Epsilon",
    "Mean if Gaussian",
    "Worst if Gaussian",
    "Update hidden",
    "What lasts hidden",
    "Values determined",
    "Undecided",
    "Frozen error",
    "Level",
    "Seconds",
}
COLUMNS = tuple(_FORMS)
"""Headings of a study's table."""


def cells(row: Row, columns: Sequence[str] = COLUMNS) -> tuple[str, ...]:
    """Return cells of a row of the table as text; "-" for what there is not."""
    return tuple(_cell(_FORMS[heading], row) for heading in columns)


def _cell(form: str, row: Row) -> str:
    try:
        return form.format(row=row)
    except TypeError:  # None has no format
        return "-"


def table_of(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of the columns that have something to show.

    So without an attack there is no column for its error.
    """
    columns = [
        heading
        for heading, form in _FORMS.items()
        if heading not in _OPTIONAL or any(_cell(form, row) != "-" for row in rows)
    ]
    return columns, [list(cells(row, columns)) for row in rows]


def study_page(
    manifest: Mapping[str, Any],
    results: xr.Dataset,
    pictures: Mapping[str, bytes] | None = None,
    *,
    spec: Any = None,
) -> str:
    """Return the page of a study of schemes: what was found, charts, settings, papers.

    Args:
        manifest: Its provenance.
        results: Its data set.
        pictures: Further figures as PNG, by name.
        spec: What papers are behind, as of `cite`; the manifest when None.
    """
    rows = _summary.summarise(results)
    series = [scheme_series(row) for row in rows]
    charts = study_charts(results)
    is_training = manifest.get("command") == "train"
    first, second = _openings(charts, is_training=is_training)
    opening, following = (
        _page.opening([charts[name] for name in names], series)
        for names in (first, second)
    )
    others = {
        name: chart for name, chart in charts.items() if name not in (*first, *second)
    }
    more = {name: png for name, png in (pictures or {}).items() if name not in charts}
    table = _page.data_table(*table_of(rows), "Each scheme after the last round")
    points = _points.points(results)
    costs = cost_charts(points, ("scheme",), "scheme") if len(points) > 1 else {}
    trainings = [
        f"{label}: {performance_words(record)}."
        for label, record in manifest.get("performance", {}).items()
    ]
    sections = [
        Section(_heading(first), opening + legend(series, "Schemes")),
        Section(_heading(second), following),
        Section("Findings", _page.paragraphs(_summary.said_of(rows, results))),
        Section("Table", table + _page.note(reading(rows, results))),
        noise_section(results, rows),
        drift_section(results, rows),
        _page.charts_section(costs, series, "Privacy and its cost"),
        _page.charts_section(others, series),
        _page.figures_section(more, {}),
        Section("How the trainings went", _page.paragraphs(trainings)),
    ]
    size = results.sizes
    trials = f", {size['trial']} trials" if "trial" in size else ""
    lead = (
        f"{size['client']} clients, {size['round']} rounds{trials}, seed "
        f"{manifest['seed']}"
    )
    return whole_page(manifest, [lead], sections, series=series, spec=spec)


_HIDING = (OPENING, "hidden_among_worst", "strong_privacy")


def _openings(
    charts: Mapping[str, Chart], *, is_training: bool
) -> tuple[list[str], list[str]]:
    """Return the names of the charts that come first and second.

    How well clients are hidden comes before what was learnt, except in a training of
    one scheme, which is run for its accuracy.
    """
    # without an accuracy a loss alone opens no page
    learning = [name for name in LEARNING if "accuracy" in charts and name in charts]
    hiding = [name for name in _HIDING if name in charts][:1]
    first, second = (learning, hiding) if is_training else (hiding, learning)
    return (first, second) if first else (second, [])


def _heading(names: list[str]) -> str:
    if not names:
        return "Schemes"
    return (
        "Accuracy and loss" if names[0] == "accuracy" else "How well clients are hidden"
    )


def scheme_series(row: Row) -> Series:
    """Return a report's line about a scheme."""
    parts = []
    if row.exposed_clients > 0:
        verdict = ("bad", "exposed")
        parts.append(
            f"{number(row.exposed_clients)} of {row.num_clients} clients, the first "
            "after "
            f"round {row.first_exposed_after}"
        )
    elif row.strong_privacy is None:
        verdict = ("fair", "no sums")
    elif row.lasts:
        verdict = ("good", "T lasts")
        fewest = f"no fewer than {row.guaranteed_privacy} clients in any combination"
        parts.append(f"{fewest}, for any number of rounds")
    else:
        verdict = ("fair", "not yet exposed")
        parts.append(
            f"rank {number(row.rank)} of {row.num_clients}, and nothing stops it"
        )
    if row.percent_right is not None:
        parts.insert(0, f"{row.percent_right:.1f} % accuracy")
    if row.hidden_among_worst is not None:
        parts.append(f"worst hidden among {hidden_words(row.hidden_among_worst)}")
    size = counted(number(row.aggregation_cardinality, 3), "client")
    parts.append(f"{size} per round on average")
    if row.epsilon_proven is not None:
        parts.append(
            f"epsilon {number(row.epsilon_proven, 3)} for every client, proven"
        )
    return Series(row.scheme, verdict, "; ".join(parts))


def whole_page(
    manifest: Mapping[str, Any],
    lead: Sequence[str],
    sections: Sequence[Section],
    *,
    settings: Section | None = None,
    title: str = "",
    spec: Any = None,
    **look: Any,
) -> str:
    """Return a page that ends with what every study has: settings, provenance, papers.

    Args:
        manifest: Provenance of the study.
        lead: Lines below the heading.
        sections: What this study found.
        settings: The section of settings, where it is not that of one command.
        title: The words of the heading about the command.
        spec: What papers are behind, as of `cite`; the manifest when None.
        **look: What is drawn on it, and its style, as of `page`.
    """
    command = str(manifest.get("command", "study"))
    common = [
        settings
        or _page.settings_section(manifest.get("config", {}), defaults_of(command)),
        _page.provenance_section(manifest),
        _page.papers_section(manifest if spec is None else spec),
    ]
    words = title or TITLES.get(command, "multi-round secure aggregation")
    return _page.page(
        f"mrsa_jax {spoken(command)}: {words}", lead, [*sections, *common], **look
    )


def spoken(command: str) -> str:
    """Return a command of a study's provenance as it is typed.

    Examples:
        >>> spoken("leastsquares"), spoken("demo")
        ('attack least-squares', 'demo')
    """
    kind = kind_named(command)
    return command if kind is None else kind.name


TITLES = {
    "demo": "what leaks under each selection scheme, and what it costs",
    "simulate": "many trials of client selection",
    "train": "training with secure aggregation",
    "sweep": "a grid of studies",
    "audit": "what a participation log leaks, and proof",
}
"""The heading of a command's report."""


def defaults_of(command: str) -> dict[str, Any] | None:
    """Return the settings of a command that have a default; None if unknown.

    Args:
        command: Its name in a study's provenance.
    """
    kind = kind_named(command)
    if kind is None:
        return None
    return {
        name: v
        for name, v in plain_settings(kind.config()).items()
        if v is not tyro.MISSING
    }


def reading(rows: Sequence[Row], results: xr.Dataset) -> str:
    """Explain the columns of a study's table."""

    def has(name: str) -> bool:
        return any(getattr(row, name) is not None for row in rows)

    weak = text_of("reading_weak") * has("weak_privacy")
    config = attributes(results).get("config", {})
    assignment = _assignment_of(config, results.attrs.get("seed"))
    assigned = text_of("reading_assigned").format(assignment=assignment)
    parts = (
        text_of("reading").format(weak=weak),
        text_of("reading_shares") * has("expected_fairness_gap"),
        text_of("reading_noise") * has("epsilon_worst"),
        assigned * bool(assignment),
        text_of("reading_update") * has("update_hidden_worst"),
        text_of("reading_lasting") * has("lasting_hidden_worst"),
        text_of("reading_values") * has("determined_share"),
        text_of("reading_error") * has("reconstruction_error"),
        text_of("reading_segments") * has("round_seconds"),
    )
    return "".join(parts)


def _assignment_of(config: Mapping[str, Any], seed: Any) -> str:
    """Describe the assignment of rates to clients; "" where none was drawn."""
    clients = config.get("population")
    if not clients:  # a study of histories or of selectors that are values
        return ""
    population = PopulationConfig(
        dropout_rates=tuple(clients["dropout_rates"]),
        assignment=clients["assignment"],
        availability=clients["availability"],
    )
    try:
        return population.assignment_words(int(seed))
    except ConfigurationError:  # a model of a plugin that is not registered here
        return ""
