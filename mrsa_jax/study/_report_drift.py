"""The part of a study's page on how clients' updates drift, and what bits follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax._html import number, tidy
from mrsa_jax.study._page import Section, data_table

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.study._summary import Row

_MEASURED = ("spread", "lasting", "memory")
_BESIDE = {
    "Strong T": "strong_privacy",
    "Weak T": "weak_privacy",
    "Hidden among (worst)": "hidden_among_worst",
    "Hidden among (median)": "hidden_among_median",
    "Bits (worst)": "bits_worst",
    "Bits (median)": "bits_median",
    "Spread s": "update_spread",
    "Lasting share": "update_lasting",
    "Memory rho": "update_memory",
}
_ASSUMED = (
    "Measured on up to 64 coordinates of each layer of every update, around the mean of its "
    "round's clients. A share of an update's variance lasts, and its correlation falls by the "
    "memory rho in each round; the rest is fresh. Both are fitted to the correlation of a client's "
    "updates so many rounds apart; the figure shows how well. Assumed, not shown: one spread, "
    "share and memory for all clients and within a layer, the same in all rounds (the spread is an "
    "average of rounds that may differ), and Gaussian updates for the bits. Without noise in the "
    "sums the spread changes no bit; noise would lower them. So this is no guarantee."
)


def drift_section(results: xr.Dataset, rows: Sequence[Row]) -> Section:
    """Return T, hidden among and bits side by side, and the drift by layer; "" if not measured."""
    title = "How updates drift"
    if "layer_memory" not in results:
        return Section(title, "")
    lines = []
    for label in results["scheme"].values:
        own = results.sel(scheme=label)
        whole = [("all", *(float(own[f"update_{name}"]) for name in _MEASURED))]
        layers = zip(own["layer"].values, *(own[f"layer_{name}"].values for name in _MEASURED),
                     strict=True)  # fmt: skip
        for name, *found in (*whole, *layers):
            lines.append((str(label), str(name), *map(_number, found)))
    side_by_side = data_table(
        ("Scheme", *_BESIDE), [(row.scheme, *_beside(row)) for row in rows],
        "What a server learns: of what stays the same (T, hidden among), and of what drifts (bits)",
    )  # fmt: skip
    headings = ("Scheme", "Layer", "Spread s", "Lasting share", "Memory rho")
    by_layer = data_table(headings, lines, "Clients' updates, by layer")
    return Section(title, f'{side_by_side}{by_layer}<p class="note">{tidy(_ASSUMED)}</p>')


def _beside(row: Row) -> list[str]:
    values = [getattr(row, name, None) for name in _BESIDE.values()]
    return [
        "-" if value is None else number(value) if isinstance(value, float) else str(value)
        for value in values
    ]


def _number(value: float) -> str:
    return number(float(value)) if np.isfinite(value) else "-"
