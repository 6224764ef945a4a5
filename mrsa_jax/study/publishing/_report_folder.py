"""Write a report of any folder that a command wrote; attacks and advice are here.

The files of a folder show what it holds. Missing and unreadable files are reported
before anything is written.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from mrsa_jax._core.papers import from_papers
from mrsa_jax.plotting.study_charts import FIGURES
from mrsa_jax.study._cite import papers_behind
from mrsa_jax.study.kinds import kind_named
from mrsa_jax.study.publishing import _page, _plots, _report
from mrsa_jax.study.publishing._assets import piece, text_of
from mrsa_jax.study.publishing._page import Section
from mrsa_jax.study.publishing._report_audit import audit_page
from mrsa_jax.study.publishing._report_sweep import sweep_page
from mrsa_jax.study.publishing._series import Series, badge, legend
from mrsa_jax.study.stores._files import read_json, read_part
from mrsa_jax.study.stores._run_folder import unfinished_run
from mrsa_jax.study.stores._store import open_results
from mrsa_watch._base.errors import ConfigurationError, check_known, require
from mrsa_watch._base.files import write_whole
from mrsa_watch._base.html import hidden_words, number, shown


def attack_page(
    folder: pathlib.Path, content: Mapping[str, Any], manifest: Mapping[str, Any]
) -> str:
    """Return the page of an attack.

    Args:
        folder: Its folder.
        content: What is in its `scores.json`.
        manifest: Its provenance.
    """
    summary = content["summary"]
    scores = content["scores"]
    words: str = _page.paragraphs(content["sentences"])
    if content.get("is_complete") is False:
        words = piece("interrupted") + words
    series = _plots.attack_series(summary, scores)
    labels = {line.label for line in series}
    charts = {
        name: chart
        for name, chart in _plots.attack_charts(summary, scores).items()
        if labels.issuperset(chart.series)
    }
    glance: str = _page.verdicts(_plots.attack_verdicts(summary, scores))
    glance += _page.opening(list(charts.values()), series)
    glance += legend(series, "What was attacked") if series else ""
    pictures = {
        path.stem: path.read_bytes()
        for path in sorted(folder.glob("*.png"))
        if path.stem not in charts
        and not (charts and path.stem.startswith(_plots.FOUND))
    }
    kind = kind_named(str(manifest.get("command", "")))
    images = kind.attack.images if kind is not None and kind.attack is not None else ""
    captions = {"images": text_of(images)} if images else {}
    arrays = ", ".join(path.name for path in sorted(folder.glob("*.npy")))
    recovered = _page.note(f"The recovered values are in the same folder: {arrays}.")
    each = rows_table(scores, "Each score", where="scores.csv")
    sections = [
        Section("Findings", words),
        Section(
            "Summary", rows_table(summary, "What was attacked", where="summary.csv")
        ),
    ]
    # pictures come first where nothing else shows what was found
    sections.insert(2 if charts else 0, _page.figures_section(pictures, captions))
    return _report.whole_page(
        manifest,
        [str(content.get("title", "")), f"Seed {manifest.get('seed')}"],
        [
            Section("At a glance", glance),
            *sections,
            Section("Scores", each + recovered * bool(arrays)),
        ],
        title="an attack, and its scores",
        series=series,
    )


def rows_table(rows: list[dict[str, Any]], caption: str, *, where: str = "") -> str:
    """Return rows of named values as a table; "" without rows."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    headings = [name.replace("_", " ") for name in names]
    return _page.data_table(headings, cells, caption, most=200, where=where)


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float | None) else shown(value, 400)


def advice_page(
    folder: pathlib.Path, content: Mapping[str, Any], manifest: Mapping[str, Any]
) -> str:
    """Return the page of an advice.

    Args:
        folder: Its folder.
        content: What is in its `advice.json`.
        manifest: Its provenance.
    """
    chosen = content["chosen"] or {}
    options = []
    for option in _plots.labelled(content["options"]):
        # several options may have one label: sizes tell them apart
        same = all(option.get(name) == chosen.get(name, "") for name in _SIZES)
        options.append(option | {"is_chosen": same})
    series = [_series(option) for option in options]
    taken = [
        ("good", "take", f"{line.label}: {line.words}")
        for line in series
        if line.verdict == _TAKE
    ]
    glance: str = _page.verdicts(
        taken or [("bad", "none", "no scheme keeps what is demanded")]
    )
    schemes = ""
    if options:
        glance += _page.opening([_plots.options_chart(options)], series)
        glance += legend(series, "Schemes")
        schemes = _table(options)
    sections = [
        Section("At a glance", glance),
        Section("Advice", _page.paragraphs(content["sentences"])),
        Section("Schemes", schemes),
        Section("If clients are lost inside rounds", _policies(content)),
    ]
    lead = [str(content["title"]), f"Seed {manifest.get('seed')}"]
    title = "which scheme to take, and why"
    return _report.whole_page(manifest, lead, sections, title=title, series=series)


# what tells one scheme from the others
_SIZES = ("scheme", "num_clients", "cohort_size")
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
        "T {}; hidden among {}; {} clients per round on average; {} of rounds without "
        "a sum"
    ).format(*_kept(option))
    return Series(str(option["label"]), verdict, words)


def _kept(option: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return T, the size hidden among, mean clients and rounds without a sum."""
    return (
        number(option.get("weak_lower")),
        _hidden(option),
        number(option.get("cardinality"), 3),
        _percent(option.get("skipped")),
    )


def _hidden(option: Mapping[str, Any]) -> str:
    value = option.get("hidden_worst")
    return "-" if value is None or value != value else hidden_words(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{number(round(100 * share, 2), 3)} %"


def _table(options: list[dict[str, Any]]) -> str:
    rows = []
    for option in options:
        played = option.get("played") or {}
        mark = badge("told", "best") if option.get("is_best") else ""
        mark = badge(*_TAKE) if option["is_chosen"] else mark
        rows.append(
            (
                option["label"],
                mark,
                *_kept(option),
                number(played.get("fairness_gap"), 3),
                number(played.get("weak_lower")),
                _hidden(played),
                number(played.get("exposed_clients")),
            )
        )
    headings = (
        "Scheme",
        "",
        "T",
        "Hidden",
        "Mean clients",
        "No sum",
        "F, played",
        "T, played",
        "Hidden, played",
        "Exposed, played",
    )
    table = _page.data_table(
        headings, rows, "What each scheme keeps and costs", where="options.csv"
    )
    return table + _page.note(text_of("advice_note"))


def _policies(content: Mapping[str, Any]) -> str:
    """Return the effect of each policy on the chosen blocks; "" if not asked.

    "" if not asked.
    """
    names = _plots.POLICY_WORDS
    rows = [
        (
            names.get(str(policy["policy"]), str(policy["policy"])),
            *_kept(policy),
        )
        for policy in content.get("policies") or []
    ]
    if not rows:
        return ""
    caption = (
        f"If {_percent(content.get('policy_loss'))} of clients are lost inside rounds"
    )
    return _page.data_table(
        ("Then", "T", "Hidden", "Mean clients", "No sum"), rows, caption
    )


_SCHEMAS = (1, 2)  # the second is that of sweeps
_MANIFEST = "study.json"


@dataclasses.dataclass(frozen=True)
class SavedReport:
    """A report that has been written.

    Attributes:
        path: The page.
        command: The command that wrote the folder.
        papers: BibTeX keys of the papers behind it.
        figures: PNGs of the figures that were drawn again; each is SVG and PDF in
            `figures/` too.
    """

    path: pathlib.Path
    command: str
    papers: tuple[str, ...]
    figures: tuple[pathlib.Path, ...] = ()


def report(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    column: str | None = None,
) -> SavedReport:
    """Write a page of HTML about a folder that a command wrote; it needs no other file.

    With `column` the folder's figures are drawn again too, from its stored results.

    Args:
        folder: Folder of `demo`, `simulate`, `train`, `sweep`, `attack`, `audit`,
            `advise` or `reproduce`.
        out: File to write; `report.html` in the folder when None.
        column: Width of figures (PNG, and SVG and PDF in `figures/`): "single", 3.5 in,
            or "double", 7.16 in; None leaves them as they are. A sweep gets figures
            only so.

    Returns:
        Where the page is, the papers in it, and what was drawn.

    Raises:
        ConfigurationError: If the folder is none of these, is half-written or of
            another schema, or the page cannot be written; of a reproduction, if
            `mrsa-jax-papers` is not installed; or with `column`, if no figure is drawn
            from numbers in the folder, as those of reproduce and of images.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.study.report("no such folder")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `folder` must be a folder; got 'no such folder'
    """
    source = pathlib.Path(folder)
    require(source.is_dir(), "folder", "must be a folder", str(folder))
    target = source / "report.html" if out is None else pathlib.Path(out)
    good = not target.is_dir() and target.absolute().parent.is_dir()
    require(good, "out", "must be a file in an existing folder", str(target))
    if column is not None:
        check_known(column, "column", ("single", "double"), "a known width")
    manifest, text = _page_of(source)
    figures = () if column is None else _plots.redraw(source, column)
    write_whole(target, text)
    papers = tuple(paper.key for paper, _ in papers_behind(manifest))
    return SavedReport(target, str(manifest.get("command", "")), papers, figures)


_PAGES: dict[str, Any] = {
    "scores.json": (attack_page, "summary", "scores", "sentences"),
    "audit.json": (audit_page, "title", "sentences", "summary", "findings"),
    "advice.json": (advice_page, "title", "sentences", "options", "chosen"),
}
"""The page of a folder with such a file, and the parts that the file must have."""


def _page_of(folder: pathlib.Path) -> tuple[dict[str, Any], str]:
    """Return a folder's provenance and its page."""
    judged = folder / "verdicts.json"
    if judged.is_file():
        content = read_part(judged, "items", "manifest")
        return content["manifest"], from_papers("mrsa_jax.pages")(folder, content)
    manifest = read_json(folder / _MANIFEST)
    if manifest is None:
        raise ConfigurationError(_no_study(folder))
    if manifest.get("schema") not in _SCHEMAS:
        raise ConfigurationError(
            "`folder` must hold results of schema 1 or 2; got "
            f"{manifest.get('schema')!r} in "
            f"{str(folder)!r}, written by mrsa_jax {_version(manifest)}"
        )
    # a folder has at most one of these files, or a store
    for name, (page, *parts) in _PAGES.items():
        if (folder / name).is_file():
            return manifest, page(folder, read_part(folder / name, *parts), manifest)
    if not (folder / "results.zarr").is_dir():
        raise ConfigurationError(
            f"`folder` must hold the results of a study; got {str(folder)!r}, whose "
            "study.json "
            f"({manifest.get('command')}) has no results.zarr, scores.json, audit.json "
            "or "
            "advice.json next to it"
        )
    try:
        return manifest, _study_page(folder, manifest)
    except (KeyError, ValueError, OSError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"`folder` must hold a whole study; the results in {str(folder)!r} cannot "
            "be read "
            f"({type(error).__name__}: {error})"
        ) from error


def _no_study(folder: pathlib.Path) -> str:
    """Say what a folder without a study is instead."""
    got = f"`folder` must hold results of a command; got {str(folder)!r}"
    run = unfinished_run(folder)
    if run is not None:
        command = run.get("command", "train")
        return (
            f"{got}, whose {command} is not complete: mrsa-jax {command} --resume "
            "continues it"
        )
    if (folder / "items").is_dir():
        return (
            f"{got}, whose reproduction is not complete: the same command makes the "
            "rest"
        )
    if (folder / _MANIFEST).is_file():
        return f"{got}, whose study.json cannot be read"
    inside = sorted(
        path.name for path in folder.iterdir() if (path / _MANIFEST).is_file()
    )
    if inside:
        return f"{got}, but these folders in it do: {', '.join(inside[:8])}"
    return f"{got}, which has no study.json and no verdicts.json"


def _version(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("versions")
    return str(versions.get("mrsa_jax", "?")) if isinstance(versions, dict) else "?"


def _study_page(folder: pathlib.Path, manifest: Mapping[str, Any]) -> str:
    results = open_results(folder).load()
    if manifest.get("command") == "sweep":
        return sweep_page(manifest, results, folder / "figures")
    # pictures that are not of what the data set is drawn from
    files = [path for path in sorted(folder.glob("*.png")) if path.stem not in FIGURES]
    pictures = {path.stem: path.read_bytes() for path in files}
    return _report.study_page(manifest, results, pictures)
