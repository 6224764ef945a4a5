"""`mrsa-jax segments`: print a plan of a round of HeteroSAg, a round, or its losses."""

from __future__ import annotations

from typing import Any

from mrsa_jax.cli._run import run_kind
from mrsa_jax.cli.console import print_sentences
from mrsa_jax.cli.tables import print_table
from mrsa_jax.study import SegmentsConfig


def run_segments(config: SegmentsConfig) -> int:
    """Plan, run or count rounds and return the exit status.

    0, or 1 for a round that failed.
    """
    findings, _ = run_kind(config, _print_plan)
    round_ = findings.content.get("round")
    return 0 if round_ is None or round_["status"] == "OK" else 1


_COLUMNS = {
    "clients": ("num_clients", "d"),
    "levels": ("levels", "d"),
    "slowest (Mbit/s)": ("slowest_mbits", ".3g"),
    "bits per coordinate": ("bits_per_coordinate", ".3g"),
    "expansion": ("expansion", ".3g"),
    "seconds": ("seconds", ".3g"),
}
"""Columns of the table of groups: the field of each, and its format."""


def _print_plan(findings: Any) -> None:
    content = findings.content
    rows = [
        [
            group["name"],
            *(format(group[name], form) for name, form in _COLUMNS.values()),
        ]
        for group in content["groups"]
    ]
    console = print_table(["group", *_COLUMNS], rows, title=findings.title)
    lines = content["matrix_as_printed"]
    heading = "Segments (rows) of groups (columns): groups with one label sum together."
    for line in (heading, *lines, ""):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    print_sentences(console, findings.sentences)
