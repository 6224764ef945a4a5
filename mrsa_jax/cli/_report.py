"""`mrsa-jax report DIR`: a page of HTML about what a command has left in its folder."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Annotated, Literal

import tyro

from mrsa_jax._core.flags import File, shown
from mrsa_jax.cli.console import print_json
from mrsa_watch._base.errors import require


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """Write a self-contained HTML report of any folder that a command wrote.

    It reads folders of demo, simulate, train, sweep, attack, audit, advise and
    reproduce. A report has the results with verdicts, curves to hover over and switch,
    tables, the settings and their changes, provenance, and the papers behind the
    results with BibTeX.
      mrsa-jax report results/demo
      mrsa-jax report results/sweep --out sweep.html --open
      mrsa-jax report results/demo --column single

    Exit status: 0 written, 2 if the folder is missing, unfinished or of another
    program.
    """

    folder: Annotated[pathlib.Path, tyro.conf.Positional, shown("DIR")] = tyro.MISSING
    """Folder of demo, simulate, train, sweep, attack, audit, advise or reproduce."""

    out: File = None
    """File to write. Default: report.html in the folder."""

    column: Annotated[Literal["single", "double"] | None, shown("{single,double}")] = (
        None
    )
    """Draw the figures again from the stored results, with this width: single (3.5 in,
    a column of a paper) or double (7.16 in); PNG in the folder, SVG and PDF in its
    figures/. A sweep gets figures only this way. Not for reproduce, whose figures are
    several panels wide, nor for images. Default: figures are not drawn again."""

    open: bool = False
    """Open the report in the browser."""

    json: bool = False
    """Print the path and the content of the report as JSON on standard output."""


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
        print_json(
            {
                "page": str(saved.path),
                "command": saved.command,
                "bytes": size,
                "papers": papers,
                "figures": drawn,
            }
        )
    else:
        if saved.figures:
            names = ", ".join(path.name for path in saved.figures)
            sys.stdout.write(
                f"Drew {names}; as SVG and PDF in {config.folder / 'figures'}\n"
            )
        sys.stdout.write(
            f"Wrote {saved.path} ({size / 1e3:,.0f} kB, needs no other file)\n"
        )
    return 0
