"""`mrsa-jax report DIR`: a page of HTML about what a command has left in its folder."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from typing import Annotated

import tyro

__all__ = ["DESCRIPTION", "DETAILS", "ReportConfig", "run_report"]

DESCRIPTION = "Write a self-contained HTML page of any folder that a command wrote."

DETAILS = """

For folders of demo, simulate, train, sweep, attack, audit and reproduce: what was found, tables,
figures, settings with what was changed, provenance, and the papers behind it all with BibTeX.
  mrsa-jax report results/demo
  mrsa-jax report results/sweep --out sweep.html --open

Exit status: 0 written, 2 no such folder, or none of ours, or half-written.
"""


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """Write a self-contained HTML page of a folder that a command wrote."""

    folder: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = (
        tyro.MISSING
    )
    """Folder of demo, simulate, train, sweep, attack, audit or reproduce."""

    out: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File to write; report.html in the folder when left out."""

    open: bool = False
    """Open the page in the browser."""

    json: bool = False
    """Print where the page is, and what is in it, as JSON on standard output."""


def run_report(config: ReportConfig) -> int:
    """Write the page and return the exit status."""
    from mrsa_jax.reproduce._config import ReproduceConfig
    from mrsa_jax.study._report_folder import report

    saved = report(config.folder, config.out, known={"reproduce": ReproduceConfig})
    if config.open:
        import webbrowser

        webbrowser.open(saved.path.absolute().as_uri())
    if config.json:
        content = {
            "page": str(saved.path),
            "command": saved.command,
            "bytes": saved.path.stat().st_size,
            "papers": list(saved.papers),
        }
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        size = saved.path.stat().st_size / 1e6
        sys.stdout.write(f"Wrote {saved.path} ({size:.1f} MB, needs nothing beside it)\n")
    return 0
