"""`mrsa-jax reproduce PAPER`: remake a paper's tables and figures and judge them."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING

import tyro

from mrsa_jax._errors import require
from mrsa_jax.cli._console import Bars, escape, use_compile_cache, use_cores
from mrsa_jax.reproduce._config import ReproduceConfig, check_items

if TYPE_CHECKING:
    from mrsa_jax.reproduce import SavedReproduction

__all__ = ["ReproduceCommand", "run_reproduce"]

_COLOURS = {"reproduced": "green", "paper errs": "yellow", "differs": "bold red"}


@dataclasses.dataclass(frozen=True)
class ReproduceCommand(ReproduceConfig):
    """Remake a paper's tables and figures and compare them with what it printed."""

    paper: tyro.conf.Positional[str] = "multiround"
    """Which paper: multiround (Multi-RoundSecAgg), ccesa (CCESA) or heterosag (HeteroSAg)."""


def run_reproduce(command: ReproduceCommand) -> int:
    """Remake the items and return the exit status: 1 when one misses its tolerance."""
    fields = dataclasses.fields(ReproduceConfig)
    config = ReproduceConfig(**{field.name: getattr(command, field.name) for field in fields})
    check_items(config.paper, config.only)  # before JAX is imported: a misuse is answered at once
    require(0 <= config.seed < 2**32, "seed", "must lie in [0, 2**32)", config.seed)
    use_compile_cache()
    use_cores()
    from mrsa_jax import reproduce

    start = time.perf_counter()
    with Bars() as bars:
        saved = reproduce.run_and_save(config, bars)
    if config.json:
        _print_json(saved)
    else:
        _print_table(saved, time.perf_counter() - start)
    return 1 if saved.missed else 0


def _print_json(saved: SavedReproduction) -> None:
    from mrsa_jax.reproduce._save import verdicts

    content = {"out": str(saved.out), "missed": saved.missed, "items": verdicts(saved.items)}
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def _print_table(saved: SavedReproduction, seconds: float) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("Item", "Claim", "Paper", "Ours", "Verdict"):
        table.add_column(heading, overflow="fold")
    for item in saved.items:
        for i, check in enumerate(item.checks):
            verdict = f"[{_COLOURS[check.verdict]}]{check.verdict}[/]"
            name = item.name if i == 0 else ""
            words = (name, check.claim, check.paper, check.ours)
            table.add_row(*(escape(word) for word in words), verdict)
    console.print(table)
    path = saved.out / "report.html"
    console.print(f"Written in {seconds:.0f} s; open {path}", highlight=False, markup=False)
