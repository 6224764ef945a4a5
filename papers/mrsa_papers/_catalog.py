"""Rows of all papers' items: everything that can be reproduced.

Nothing here imports JAX.
"""

from __future__ import annotations

from mrsa_papers.harness._rows import Row, catalog_of

_TOLD = {name: catalog_of(name) for name in ("multiround", "ccesa", "heterosag")}

PAPERS: dict[str, str] = {name: catalog["paper"] for name, catalog in _TOLD.items()}
"""The papers' names."""

ITEMS: dict[str, dict[str, Row]] = {
    name: catalog["items"] for name, catalog in _TOLD.items()
}
"""The items of each paper by name, in the order in which they are made."""

ALIASES: dict[str, dict[str, str]] = {
    name: catalog["aliases"] for name, catalog in _TOLD.items()
}
"""Figures that an item of another name shows: the curves whose ends a table lists."""
