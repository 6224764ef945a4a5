"""A report of any folder that the package wrote: a study, sweep, attack, audit or reproduction.

What a folder holds is told by the files in it. Whatever is missing or cannot be read is said
before anything is written.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mrsa_jax._errors import ConfigurationError, require
from mrsa_jax._html import Markup, shown, tidy
from mrsa_jax.study import _report
from mrsa_jax.study._cite import papers_behind
from mrsa_jax.study._page import (
    Section,
    data_table,
    figure,
    figures_section,
    paragraphs,
    write_page,
)
from mrsa_jax.study._run_folder import read_json, unfinished_run

if TYPE_CHECKING:
    import xarray as xr

_SCHEMA = 1
_MANIFEST = "study.json"


@dataclasses.dataclass(frozen=True)
class SavedReport:
    """A report that has been written.

    Attributes:
        path: The page.
        command: The command that wrote the folder.
        papers: BibTeX keys of the papers behind it.
    """

    path: pathlib.Path
    command: str
    papers: tuple[str, ...]


def report(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    known: Mapping[str, type] | None = None,
) -> SavedReport:
    """Write a page of HTML about a folder that a command wrote; it needs nothing beside it.

    Args:
        folder: Folder of `demo`, `simulate`, `train`, `sweep`, `attack`, `audit` or `reproduce`.
        out: File to write; `report.html` in the folder when None.
        known: Configurations by command that are not the studies' own, as of `reproduce`, whose
            defaults the settings are compared with.

    Returns:
        Where the page is, and the papers in it.

    Raises:
        ConfigurationError: If the folder is none of these, is half-written or of another schema,
            or the page cannot be written.

    Examples:
        >>> report("no such folder")
        Traceback (most recent call last):
        ...
        mrsa_jax._errors.ConfigurationError: `folder` must be a folder; got 'no such folder'
    """
    own = pathlib.Path(folder)
    require(own.is_dir(), "folder", "must be a folder", str(folder))
    target = own / "report.html" if out is None else pathlib.Path(out)
    good = not target.is_dir() and target.absolute().parent.is_dir()
    require(good, "out", "must be a file in an existing folder", str(target))
    manifest, text = _page_of(own, known or {})
    write_page(target, text)
    papers = tuple(paper.key for paper, _ in papers_behind(manifest))
    return SavedReport(target, str(manifest.get("command", "")), papers)


def _page_of(folder: pathlib.Path, known: Mapping[str, type]) -> tuple[dict[str, Any], str]:
    """Return a folder's provenance and its page."""
    verdicts = folder / "verdicts.json"
    if verdicts.is_file():
        content = _read(verdicts, "items", "manifest")
        return content["manifest"], _reproduction_page(folder, content, known)
    manifest = read_json(folder / _MANIFEST)
    if manifest is None:
        raise ConfigurationError(_no_study(folder))
    if manifest.get("schema") != _SCHEMA:
        raise ConfigurationError(
            f"`folder` must hold results of schema {_SCHEMA}; got {manifest.get('schema')!r} in "
            f"{str(folder)!r}, written by mrsa_jax {_version(manifest)}"
        )
    if (folder / "scores.json").is_file():
        content = _read(folder / "scores.json", "summary", "scores", "sentences")
        return manifest, _attack_page(folder, content, manifest)
    if (folder / "audit.json").is_file():
        from mrsa_jax.study._report_audit import audit_page

        content = _read(folder / "audit.json", "title", "sentences", "summary", "findings")
        return manifest, audit_page(folder, content, manifest)
    if not (folder / "results.zarr").is_dir():
        raise ConfigurationError(
            f"`folder` must hold the results of a study; got {str(folder)!r}, whose study.json "
            f"({manifest.get('command')}) has no results.zarr, scores.json or audit.json beside it"
        )
    try:
        return manifest, _study_page(folder, manifest)
    except (KeyError, ValueError, OSError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"`folder` must hold a whole study; the results in {str(folder)!r} cannot be read "
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


def _read(path: pathlib.Path, *names: str) -> dict[str, Any]:
    """Read a file of results; raise if it is broken or lacks a part."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"`folder` must hold whole results; {str(path)!r} cannot be read ({error})"
        ) from error
    missing = [n for n in names if not isinstance(content, dict) or n not in content]
    require(not missing, "folder", f"must hold whole results; {path.name} lacks {missing}",
            str(path.parent))  # fmt: skip
    return dict(content)


def _study_page(folder: pathlib.Path, manifest: Mapping[str, Any]) -> str:
    from mrsa_jax.study._store import open_study

    results = open_study(folder).load()
    if manifest.get("command") == "sweep":
        from mrsa_jax.study._report_sweep import sweep_page

        return sweep_page(manifest, results)
    return _report.study_page(manifest, results, _pictures(folder, results))


def _pictures(folder: pathlib.Path, results: xr.Dataset) -> dict[str, bytes]:
    """Return the figures of a folder; those of its variables first, in their reading order."""
    files = {path.stem: path for path in sorted(folder.glob("*.png"))}
    order = [name for name in _report.FIGURES if name in files]
    order += [name for name in files if name not in order]
    return {name: files[name].read_bytes() for name in order}


def _attack_page(
    folder: pathlib.Path, content: Mapping[str, Any], manifest: Mapping[str, Any]
) -> str:
    words = paragraphs(content["sentences"])
    if content.get("is_complete") is False:
        words = "<p><strong>Interrupted: this is what was finished by then.</strong></p>" + words
    summary = rows_table(content["summary"], "What was attacked", where="summary.csv")
    scores = rows_table(content["scores"], "Each score", where="scores.csv")
    files = sorted(folder.glob("*.png"))
    pictures = {path.stem: path.read_bytes() for path in files}
    arrays = ", ".join(path.name for path in sorted(folder.glob("*.npy")))
    note = f'<p class="note">What was recovered is beside this page: {tidy(arrays)}.</p>'
    sections = [
        Section("Findings", words),
        Section("Summary", summary),
        figures_section(_report.captioned(pictures)),
        Section("Scores", scores + note * bool(arrays)),
    ]
    lead = [str(content.get("title", "")), f"Seed {manifest.get('seed')}"]
    return _report.whole_page(manifest, lead, sections, title="an attack, and its scores")


def rows_table(rows: list[dict[str, Any]], caption: str, *, where: str = "") -> str:
    """Return rows of named values as a table; "" without rows."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    headings = [name.replace("_", " ") for name in names]
    return data_table(headings, cells, caption, most=200, where=where)


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else shown(value, 400)


_REPRODUCE_LEGEND = (
    "Reproduced: within the tolerance. Paper errs: ours differs and is proven right, by arithmetic "
    "or by a witness. Differs: missed by more than the tolerance; the reason stands beside it "
    "where it is known."
)
_CHECK_HEADINGS = {
    "claim": "Claim", "paper": "Paper", "ours": "Ours", "tolerance": "Tolerance",
    "verdict": "Verdict", "why": "Why it differs", "note": "Note",
}  # fmt: skip


def _reproduction_page(
    folder: pathlib.Path, content: Mapping[str, Any], known: Mapping[str, type]
) -> str:
    items, manifest = content["items"], content["manifest"]
    checks = [check for item in items for check in item["checks"]]
    sections = [
        Section(
            "Verdicts",
            f"<p>{len(items)} items, {len(checks)} claims: {tidy(_counts(checks))}.</p>"
            + _overview(items)
            + f'<p class="note">{_REPRODUCE_LEGEND}</p>',
        ),
        *(_item_section(folder, item) for item in items),
    ]
    config = manifest.get("config", {})
    size = "fast size" if config.get("fast") or config.get("small") else "full size"
    lead = [f"{size.capitalize()}, seed {manifest.get('seed')}"]
    return _report.whole_page(manifest, lead, sections, has_menu=False, known=known)


def _name(item: Mapping[str, Any]) -> str:
    return f"{item['paper']}.{item['name']}" if "paper" in item else str(item["name"])


def _counts(checks: list[dict[str, Any]]) -> str:
    """Return how often each verdict was given, and how many misses were not expected."""
    counts = collections.Counter(check["verdict"] for check in checks)
    missed = sum(check.get("standing") == "missed" for check in checks)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return words + (f" ({missed} not expected)" if missed else "")


def _overview(items: list[dict[str, Any]]) -> str:
    timed = any("seconds" in item for item in items)
    replaced = any(item.get("own_data") for item in items)
    rows = []
    for item in items:
        anchor = Section(_heading(item), "").anchor
        link = Markup(f'<a href="#{anchor}">{tidy(_name(item))}</a>')
        row = [link, item["title"], _counts(item["checks"])]
        row += [f"{item.get('seconds', 0):.1f}"] * timed
        rows.append(row + [item.get("own_data", "")] * replaced)
    headings = ["Item", "What", "Verdicts", *["Seconds"] * timed]
    headings += ["Data in place of the paper's"] * replaced
    return data_table(headings, rows, "Items")


def _heading(item: Mapping[str, Any]) -> str:
    return f"{_name(item)}: {item['title']}"


def _item_section(folder: pathlib.Path, item: Mapping[str, Any]) -> Section:
    checks = item["checks"]
    used = [n for n in _CHECK_HEADINGS if any(str(check.get(n, "")) for check in checks)]
    rows = [[str(check.get(name, "")) for name in used] for check in checks]
    table = data_table([_CHECK_HEADINGS[n] for n in used], rows, f"Claims of {_name(item)}")
    places = (folder / "items" / _name(item), folder)
    files = [place / f"{item['name']}.png" for place in places]
    picture = next((path for path in files if path.is_file()), None)
    if picture is None:
        return Section(_heading(item), table)
    caption = item["title"]
    record = picture.parent / "item.json"
    if record.is_file():
        caption = _read(record).get("caption") or caption
    return Section(_heading(item), figure(caption, picture.read_bytes()) + table)
