"""A report of any folder that a command wrote.

Study, sweep, attack, audit, advice, reproduction.
The files of a folder show what it holds. Whatever is missing or cannot be read is said
before anything is written.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from mrsa_jax._core.papers import from_papers
from mrsa_jax.plotting._study import FIGURES
from mrsa_jax.study import _page, _plots, _report
from mrsa_jax.study._cite import papers_behind
from mrsa_jax.study._files import read_json, read_part
from mrsa_jax.study._page import Section, Series
from mrsa_jax.study._report_audit import audit_page
from mrsa_jax.study._run_folder import unfinished_run
from mrsa_jax.study.kinds import kind_named
from mrsa_watch._base.errors import ConfigurationError, check_known, require
from mrsa_watch._base.files import write_whole
from mrsa_watch._base.html import hidden_words, number, shown, tidy


def attack_page(
    folder: pathlib.Path, content: Mapping[str, Any], manifest: Mapping[str, Any]
) -> str:
    """Return the page of an attack.

    Args:
        folder: Its folder.
        content: What is in its `scores.json`.
        manifest: Its provenance.
    """
    words = _page.paragraphs(content["sentences"])
    if content.get("is_complete") is False:
        words = (
            "<p><strong>Interrupted: this is what was finished by then.</strong></p>"
            + words
        )
    series = _plots.attack_series(content["summary"], content["scores"])
    known = {one.label for one in series}
    charts = {
        name: chart
        for name, chart in _plots.attack_charts(
            content["summary"], content["scores"]
        ).items()
        if known.issuperset(chart.series)
    }
    lines = _page.legend(series, "What was attacked") if series else ""
    told = _page.verdicts(_plots.attack_verdicts(content["summary"], content["scores"]))
    glance = told + _page.opening(list(charts.values()), series) + lines
    summary = rows_table(content["summary"], "What was attacked", where="summary.csv")
    scores = rows_table(content["scores"], "Each score", where="scores.csv")
    files = [
        path
        for path in sorted(folder.glob("*.png"))
        if not (path.stem in charts or (charts and path.stem.startswith(_plots.FOUND)))
    ]
    kind = kind_named(str(manifest.get("command", "")))
    images = kind.attack.images if kind is not None and kind.attack is not None else ""
    captions = {"images": _page.text_of(images)} if images else {}
    pictures = {path.stem: path.read_bytes() for path in files}
    shown_ones = _page.figures_section(pictures, captions)
    arrays = ", ".join(path.name for path in sorted(folder.glob("*.npy")))
    note = f'<p class="note">The recovered values are in the same folder: {tidy(arrays)}.</p>'
    sections = [
        Section("At a glance", glance),
        *([] if charts else [shown_ones]),
        Section("Findings", words),
        Section("Summary", summary),
        *([shown_ones] if charts else []),
        Section("Scores", scores + note * bool(arrays)),
    ]
    lead = [str(content.get("title", "")), f"Seed {manifest.get('seed')}"]
    title = "an attack, and its scores"
    return _report.whole_page(manifest, lead, sections, title=title, series=series)


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
    options = [
        {
            **one,
            "is_chosen": all(one.get(name) == chosen.get(name, "") for name in _SIZES),
        }
        for one in _plots.labelled(content["options"])
    ]
    series = [_series(option) for option in options]
    told = _page.verdicts(
        [
            ("good", "take", f"{one.label}: {one.words}")
            for one in series
            if one.verdict == _TAKE
        ]
        or [("bad", "none", "no scheme keeps what is demanded")]
    )
    glance = _page.opening([_plots.options_chart(options)], series) if options else ""
    sections = [
        Section(
            "At a glance",
            told + glance + (_page.legend(series, "Schemes") if series else ""),
        ),
        Section("Advice", _page.paragraphs(content["sentences"])),
        Section("Schemes", _table(options) if options else ""),
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
        f"T {number(option.get('weak_lower'))}; hidden among {_hidden(option)}; "
        f"{number(option.get('cardinality'), 3)} clients per round on average; "
        f"{_percent(option.get('skipped'))} of rounds without a sum"
    )
    return Series(str(option["label"]), verdict, words)


def _hidden(option: Mapping[str, Any]) -> str:
    value = option.get("hidden_worst")
    return "-" if value is None or value != value else hidden_words(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{number(round(100 * share, 2), 3)} %"


def _table(options: list[dict[str, Any]]) -> str:
    rows = []
    for option in options:
        played = option.get("played") or {}
        mark: Any = _page.badge(*_TAKE) if option["is_chosen"] else ""
        mark = mark or (_page.badge("told", "best") if option.get("is_best") else "")
        rows.append(
            (
                option["label"],
                mark,
                number(option.get("weak_lower")),
                _hidden(option),
                number(option.get("cardinality"), 3),
                _percent(option.get("skipped")),
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
    return f'{table}<p class="note">{_page.text_of("advice_note")}</p>'


def _policies(content: Mapping[str, Any]) -> str:
    """Return what becomes of the chosen scheme's blocks under each policy.

    "" if not asked.
    """
    names = _plots.POLICY_WORDS
    rows = [
        (
            names.get(str(one["policy"]), str(one["policy"])),
            number(one.get("weak_lower")),
            _hidden(one),
            number(one.get("cardinality"), 3),
            _percent(one.get("skipped")),
        )
        for one in content.get("policies") or []
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
    own = pathlib.Path(folder)
    require(own.is_dir(), "folder", "must be a folder", str(folder))
    target = own / "report.html" if out is None else pathlib.Path(out)
    good = not target.is_dir() and target.absolute().parent.is_dir()
    require(good, "out", "must be a file in an existing folder", str(target))
    if column is not None:
        check_known(column, "column", ("single", "double"), "a known width")
    manifest, text = _page_of(own)
    figures = () if column is None else _plots.redraw(own, column)
    write_whole(target, text)
    papers = tuple(paper.key for paper, _ in papers_behind(manifest))
    return SavedReport(target, str(manifest.get("command", "")), papers, figures)


_PAGES: dict[str, Any] = {
    "scores.json": (attack_page, "summary", "scores", "sentences"),
    "audit.json": (audit_page, "title", "sentences", "summary", "findings"),
    "advice.json": (advice_page, "title", "sentences", "options", "chosen"),
}
"""What makes the page of a folder with such a file, and what the file must have."""


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
        return f"{got}, whose {command} is not complete: mrsa-jax {command} --resume continues it"
    if (folder / "items").is_dir():
        return f"{got}, whose reproduction is not complete: the same command makes the rest"
    if (folder / _MANIFEST).is_file():
        return f"{got}, whose study.json cannot be read"
    inside = sorted(one.name for one in folder.iterdir() if (one / _MANIFEST).is_file())
    if inside:
        return f"{got}, but these folders in it do: {', '.join(inside[:8])}"
    return f"{got}, which has no study.json and no verdicts.json"


def _version(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("versions")
    return str(versions.get("mrsa_jax", "?")) if isinstance(versions, dict) else "?"


def _study_page(folder: pathlib.Path, manifest: Mapping[str, Any]) -> str:
    from mrsa_jax.study._store import open_study

    results = open_study(folder).load()
    if manifest.get("command") == "sweep":
        from mrsa_jax.study._report_sweep import sweep_page

        return sweep_page(manifest, results)
    # pictures that are not of what the data set is drawn from
    files = [path for path in sorted(folder.glob("*.png")) if path.stem not in FIGURES]
    pictures = {path.stem: path.read_bytes() for path in files}
    return _report.study_page(manifest, results, pictures)
