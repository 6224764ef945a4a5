"""What to reproduce and where to write it: settings that load without JAX.

`mrsa-jax reproduce --help` shows them and must answer at once. The names of items are literals;
a test holds them equal to what the papers' modules build.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable

from mrsa_jax._errors import ConfigurationError, nearest

__all__ = ["ITEMS", "ReproduceConfig", "check_items"]

ITEMS: dict[str, tuple[str, ...]] = {
    "multiround": (
        "table1",
        "fig2",
        "fig3",
        "remark7",
        "fig4a",
        "echelon",
        "fig4b",
        "fig4c",
        "fig5a",
        "theorem3",
        "early_leaks",
        "table3",
        "table4",
        "table5",
        "fig8",
        "fig9",
        "fig10",
        "fig8_2021",
        "motion",
        "exposure",
        "image_motion",
    ),
    "ccesa": (
        "table1",
        "fig3",
        "tableg2",
        "remark4",
        "proposition1",
        "bandwidth",
        "table2",
        "fig4",
        "figb1",
        "fig2",
        "table3",
    ),
    "heterosag": (
        "matrices",
        "examples",
        "theorem1",
        "theorem3",
        "error_bounds",
        "expansion",
        "theorem4",
        "byzantine_bound",
        "costs",
        "fig3a",
        "fig3b",
    ),
}
"""Names of the items of each paper, in the order in which they are made."""

ALIASES: dict[str, dict[str, str]] = {
    "multiround": {
        "fig5b": "table3",
        "fig5c": "table3",
        "fig7": "table4",
        "fig6": "table5",
        "fig1": "fig10",
    },
    "ccesa": {"figb2": "fig2", "tableb1": "table3"},
}
"""Figures that an item of another name shows: the curves whose ends a table lists."""


@dataclasses.dataclass(frozen=True)
class ReproduceConfig:
    """Remake a paper's tables and figures and compare them with what it printed."""

    paper: str = "multiround"
    """Which paper: multiround (Multi-RoundSecAgg), ccesa (CCESA) or heterosag (HeteroSAg)."""
    only: tuple[str, ...] = ()
    """Items to make, such as table1 fig4a theorem3; all of them when left out."""
    small: bool = False
    """Fewer trials and rounds: a check in a minute or two instead of ten."""
    seed: int = 0
    """Seed of everything random."""
    dataset: str = "mnist_5k"
    """Data of trainings (multiround's table3 to exposure, ccesa's fig4, figb1, fig2 and
    table3, heterosag's fig3a and fig3b): mnist_5k, olivetti, idx or cifar (with --directory), or
    a prepared set, such as mnist, fashion_mnist, cifar10 or cifar100."""
    directory: pathlib.Path | None = None
    """Folder of the data set's files, where it needs one."""
    out: pathlib.Path = pathlib.Path("results/reproduce")
    """Folder for tables, figures with their data, and the report."""
    json: bool = False
    """Print the verdicts as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


def check_items(paper: str, items: Iterable[str] | None) -> tuple[str, ...]:
    """Return the names of the items to make, in the paper's order.

    Args:
        paper: `"multiround"`, `"ccesa"` or `"heterosag"`.
        items: Names, or None or nothing for all of the paper's; a figure's name stands for the
            table that it belongs to (`"fig6"` for `"table5"`).

    Raises:
        ConfigurationError: For an unknown paper or item, naming the nearest known one.

    Examples:
        >>> check_items("multiround", ["fig4a", "table1"])
        ('table1', 'fig4a')
        >>> check_items("multiround", ["fig6"])
        ('table5',)
    """
    if paper not in ITEMS:
        raise ConfigurationError(
            f"`paper` must be a known paper; got {paper!r}; {nearest(paper, ITEMS)}"
        )
    wanted = [items] if isinstance(items, str) else list(items or ITEMS[paper])
    others = ALIASES.get(paper, {})
    wanted = [others.get(name, name) for name in wanted]
    for name in wanted:
        if name not in ITEMS[paper]:
            known = (*ITEMS[paper], *others)
            raise ConfigurationError(
                f"`only` must be a known item; got {name!r}; {nearest(name, known)}"
            )
    return tuple(name for name in ITEMS[paper] if name in wanted)
