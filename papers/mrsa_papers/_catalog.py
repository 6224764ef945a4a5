"""What can be reproduced: the rows of all papers. Nothing here imports JAX."""

from __future__ import annotations

from mrsa_papers.harness._rows import Row, catalog_of

_TOLD = {name: catalog_of(name) for name in ("multiround", "ccesa", "heterosag")}

PAPERS: dict[str, str] = {name: told["paper"] for name, told in _TOLD.items()}
"""The papers' names."""

ITEMS: dict[str, dict[str, Row]] = {name: told["items"] for name, told in _TOLD.items()}
"""The items of each paper by name, in the order in which they are made."""

ALIASES: dict[str, dict[str, str]] = {
    name: told["aliases"] for name, told in _TOLD.items()
}
"""Figures that an item of another name shows: the curves whose ends a table lists."""
