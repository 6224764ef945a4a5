"""What can be reproduced: the rows of all papers. Nothing here imports JAX."""

from __future__ import annotations

from mrsa_papers import ccesa, heterosag, multiround
from mrsa_papers.harness._rows import Row

PAPERS = {"multiround": "Multi-RoundSecAgg", "ccesa": "CCESA", "heterosag": "HeteroSAg"}
"""The papers' names."""

ITEMS: dict[str, dict[str, Row]] = {
    "multiround": multiround.ROWS,
    "ccesa": ccesa.ROWS,
    "heterosag": heterosag.ROWS,
}
"""The items of each paper by name, in the order in which they are made."""

ALIASES: dict[str, dict[str, str]] = {
    "multiround": multiround.ALIASES,
    "ccesa": ccesa.ALIASES,
    "heterosag": {},
}
"""Figures that an item of another name shows: the curves whose ends a table lists."""
