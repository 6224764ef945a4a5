"""A report of any folder that a command wrote: study, sweep, attack, audit, advice, reproduction.

What a folder holds is told by the files in it. Whatever is missing or cannot be read is said
before anything is written.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from mrsa_jax._checks import check_known
from mrsa_jax._errors import ConfigurationError, require
from mrsa_jax._extras import from_papers
from mrsa_jax.plotting._study import FIGURES
from mrsa_jax.study import _report
from mrsa_jax.study._cite import papers_behind
from mrsa_jax.study._page import write_page
from mrsa_jax.study._run_folder import read_json, read_part, unfinished_run

_SCHEMA = 1
_MANIFEST = "study.json"


@dataclasses.dataclass(frozen=True)
class SavedReport:
    """A report that has been written.

    Attributes:
        path: The page.
        command: The command that wrote the folder.
        papers: BibTeX keys of the papers behind it.
        figures: PNGs of the figures that were drawn again; each is SVG and PDF in `figures/` too.
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
    """Write a page of HTML about a folder that a command wrote; it needs nothing beside it.

    With `column` the folder's figures are drawn again too, from its stored results.

    Args:
        folder: Folder of `demo`, `simulate`, `train`, `sweep`, `attack`, `audit`, `advise` or
            `reproduce`.
        out: File to write; `report.html` in the folder when None.
        column: Width of figures (PNG, and SVG and PDF in `figures/`): "single", 3.5 in, or
            "double", 7.16 in; None leaves them as they are. A sweep gets figures only so.

    Returns:
        Where the page is, the papers in it, and what was drawn.

    Raises:
        ConfigurationError: If the folder is none of these, is half-written or of another schema,
            or the page cannot be written; of a reproduction, if `mrsa-jax-papers` is not
            installed; or with `column`, if no figure is drawn from numbers in the folder, as those
            of reproduce and of images.

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
    if column is not None:
        check_known(column, "column", ("single", "double"), "a known width")
    manifest, text = _page_of(own)
    figures: tuple[pathlib.Path, ...] = ()
    if column is not None:
        from mrsa_jax.study._redraw import redraw

        figures = redraw(own, column)
    write_page(target, text)
    papers = tuple(paper.key for paper, _ in papers_behind(manifest))
    return SavedReport(target, str(manifest.get("command", "")), papers, figures)


def _page_of(folder: pathlib.Path) -> tuple[dict[str, Any], str]:
    """Return a folder's provenance and its page."""
    verdicts = folder / "verdicts.json"
    if verdicts.is_file():
        content = read_part(verdicts, "items", "manifest")
        return content["manifest"], from_papers("mrsa_jax.pages")(folder, content)
    manifest = read_json(folder / _MANIFEST)
    if manifest is None:
        raise ConfigurationError(_no_study(folder))
    if manifest.get("schema") != _SCHEMA:
        raise ConfigurationError(
            f"`folder` must hold results of schema {_SCHEMA}; got {manifest.get('schema')!r} in "
            f"{str(folder)!r}, written by mrsa_jax {_version(manifest)}"
        )
    if (folder / "scores.json").is_file():
        content = read_part(folder / "scores.json", "summary", "scores", "sentences")
        from mrsa_jax.study._report_attack import attack_page

        return manifest, attack_page(folder, content, manifest)
    if (folder / "audit.json").is_file():
        from mrsa_jax.study._report_audit import audit_page

        content = read_part(folder / "audit.json", "title", "sentences", "summary", "findings")
        return manifest, audit_page(folder, content, manifest)
    if (folder / "advice.json").is_file():
        from mrsa_jax.study._report_advice import advice_page

        content = read_part(folder / "advice.json", "title", "sentences", "options", "chosen")
        return manifest, advice_page(content, manifest)
    if not (folder / "results.zarr").is_dir():
        raise ConfigurationError(
            f"`folder` must hold the results of a study; got {str(folder)!r}, whose study.json "
            f"({manifest.get('command')}) has no results.zarr, scores.json, audit.json or "
            "advice.json beside it"
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


def _study_page(folder: pathlib.Path, manifest: Mapping[str, Any]) -> str:
    from mrsa_jax.study._store import open_study

    results = open_study(folder).load()
    if manifest.get("command") == "sweep":
        from mrsa_jax.study._report_sweep import sweep_page

        return sweep_page(manifest, results)
    return _report.study_page(manifest, results, _pictures(folder))


def _pictures(folder: pathlib.Path) -> dict[str, bytes]:
    """Return the pictures of a folder that are not of what its data set is drawn from."""
    files = sorted(folder.glob("*.png"))
    return {path.stem: path.read_bytes() for path in files if path.stem not in FIGURES}
