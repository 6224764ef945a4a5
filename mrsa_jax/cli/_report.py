"""`mrsa-jax report DIR`: a page of HTML about what a command has left in its folder."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Annotated, Literal

import tyro

from mrsa_jax._core.flags import File
from mrsa_jax.cli._console import print_json
from mrsa_watch._base.errors import require


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """Write a self-contained HTML page of any folder that a command wrote.

    For folders of demo, simulate, train, sweep, attack, audit, advise and reproduce: what was
    found, with verdicts and curves to hover over and switch, tables, settings with what was
    changed, provenance, and the papers behind it all with BibTeX.
      mrsa-jax report results/demo
      mrsa-jax report results/sweep --out sweep.html --open
      mrsa-jax report results/demo --column single

    Exit status: 0 written, 2 no such folder, or another program's, or half-written.
    """

    folder: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = (
        tyro.MISSING
    )
    """Folder of demo, simulate, train, sweep, attack, audit, advise or reproduce."""

    out: File = None
    """File to write; report.html in the folder when left out."""

    column: Literal["single", "double"] | None = None
    """Draw the folder's figures again from its stored results, as wide as this: single (3.5 in, a
    column of a paper) or double (7.16 in); PNG in the folder, SVG and PDF in its figures/. A sweep
    gets figures only so. Not of reproduce, whose figures are several panels wide, nor of images."""

    open: bool = False
    """Open the page in the browser."""

    json: bool = False
    """Print where the page is, and what is in it, as JSON on standard output."""


def run_report(config: ReportConfig) -> int:
    """Write the page and return the exit status."""
    require(config.folder.is_dir(), "folder", "must be a folder", str(config.folder))
    from mrsa_jax.study import report

    saved = report(config.folder, config.out, column=config.column)
    if config.open:
        import webbrowser

        webbrowser.open(saved.path.absolute().as_uri())
    size = saved.path.stat().st_size
    if config.json:
        papers = list(saved.papers)
        drawn = [str(path) for path in saved.figures]
        print_json({"page": str(saved.path), "command": saved.command, "bytes": size,
                    "papers": papers, "figures": drawn})  # fmt: skip
    else:
        if saved.figures:
            names = ", ".join(path.name for path in saved.figures)
            sys.stdout.write(f"Drew {names}; as SVG and PDF in {config.folder / 'figures'}\n")
        sys.stdout.write(f"Wrote {saved.path} ({size / 1e3:,.0f} kB, needs no other file)\n")
    return 0
