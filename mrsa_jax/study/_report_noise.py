"""The part of a study's page on differential privacy: who is protected, against whom, how well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mrsa_jax._html import number, tidy
from mrsa_jax.study._page import Section, data_table

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.study._summary import Row

_HEADINGS = ("Scheme", "Strong T", "Accuracy", "Epsilon (proven)", "Mean if Gaussian",
             "Worst if Gaussian", "... as planned", "Worst mu", "Step", "Wrapped")  # fmt: skip
_WHO = (
    "Protected is each client's whole history: whether all its updates were what they were, or "
    "zero. Against: the server, which sees each sum and who is in it, and everybody who sees "
    "models or what is made of them; so no amplification by sampling is claimed, whatever the "
    "scheme draws. Not against: the client's own device, nor clients who tell the server their "
    "noise, whose shares are then lost to the others (mrsa_jax.dp.ledger counts with them). "
    "Not counted: that a client took part at all."
)
_HOW = (
    "Each client clips its update to the norm, turns it, rounds it to a lattice and adds its share "
    "of integer noise before it pads. With segments it sums each on its group's lattice, without "
    "turning it, and a round counts by that sum of a client's with the fewest noises: the clip "
    "bounds what all its sums tell together. A sum of fewer survivors than planned has less noise, "
    "which the realised epsilon counts; the planned one is of the same sums with all their noise. "
    "Epsilon (proven) is a bound on every client's, by Renyi divergences, for the integers that "
    "are really drawn. If noise were Gaussian, a client's history would be as hard to tell from "
    "none as a Gaussian shifted by mu: the figures headed so are of that, and no guarantee. "
    "Step: of the coarsest lattice, in units of updates. Wrapped: coordinates of all sums that "
    "noise took out of the ring's window; those are decoded wrongly, and cost accuracy but no "
    "privacy."
)


def noise_section(results: xr.Dataset, rows: Sequence[Row]) -> Section:
    """Return accuracy beside epsilon, and who is protected; "" without noise."""
    title = "Differential privacy"
    if "epsilon" not in results:
        return Section(title, "")
    lines = []
    for row in rows:
        own = results.sel(scheme=row.scheme)
        numbers = (row.epsilon_proven, row.epsilon_mean, row.epsilon_worst, row.planned_epsilon,
                   float(own["mu"].max()), float(own["noise_step"]))  # fmt: skip
        strong = "-" if row.strong_privacy is None else str(row.strong_privacy)
        told = (row.scheme, strong, f"{row.percent_right:.1f} %", *map(number, numbers))
        lines.append((*told, str(row.wrapped_coordinates)))
    caption = f"After the last round, at delta {rows[0].target_delta:g}"
    table = data_table(_HEADINGS, lines, caption)
    return Section(title, f'<p>{tidy(_WHO)}</p>{table}<p class="note">{tidy(_HOW)}</p>')
