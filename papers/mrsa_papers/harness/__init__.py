"""What the items of all papers are made with: settings, trainings, verdicts, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names
from mrsa_papers.harness._rows import ANY, Miss, Row

if TYPE_CHECKING:
    from mrsa_papers.harness._context import Context, rows_to_frame, schemes_for, targets_of
    from mrsa_papers.harness._datasets import is_data_of, substitution
    from mrsa_papers.harness._figures import Draw, draw_seed_curves, drawn, save_figure
    from mrsa_papers.harness._images import image_as_cells, image_from_text, stretched
    from mrsa_papers.harness._intervals import (
        Interval,
        bands,
        difference,
        interval,
        late_accuracy,
    )
    from mrsa_papers.harness._items import Check, Found, Item, Verdict, compare, state

__all__ = [
    "ANY",
    "Check",
    "Context",
    "Draw",
    "Found",
    "Interval",
    "Item",
    "Miss",
    "Row",
    "Verdict",
    "bands",
    "compare",
    "difference",
    "draw_seed_curves",
    "drawn",
    "image_as_cells",
    "image_from_text",
    "interval",
    "is_data_of",
    "late_accuracy",
    "rows_to_frame",
    "save_figure",
    "schemes_for",
    "state",
    "stretched",
    "substitution",
    "targets_of",
]

__getattr__, __dir__ = late_names(__name__)
