"""Figure of what T costs in amplification by sampling, beside what it buys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax.plotting._names import legend
from mrsa_jax.plotting._style import SHADES, caption, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mrsa_jax.dp import Amplification

_ALONE = "#009E73"


def plot_amplification(costs: Amplification, *, ax: Axes | None = None) -> Axes:
    """Plot epsilon over T: against the server, against models in blocks, and one by one.

    The band is where the epsilon of blocks against models lies. Below each T stand what it buys:
    as in a sum of how many clients the worst is hidden from the server without any noise, and the
    clients in a mean sum.

    Args:
        costs: What `dp.amplification` returns.
        ax: Where to draw; a figure of its own if None.

    Returns:
        The axes.
    """
    places = np.arange(len(costs.privacy_targets))
    with drawing(ax) as ax:
        ax.fill_between(places, costs.blocks, costs.server, color=SHADES[1], alpha=0.22, lw=0,
                        label="blocks of T, against models:\nlies in here")  # fmt: skip
        ax.plot(places, costs.server, color="#000000", marker="s", ms=4.5,
                label="against the server (exact)")  # fmt: skip
        ax.plot(places, costs.blocks, color=SHADES[2], marker="o", ms=4.5,
                label="blocks of T, against models:\nat the least")  # fmt: skip
        ax.plot(places, costs.one_by_one, color=_ALONE, ls="--", marker="^", ms=4.5, mfc="none",
                label="as likely, one by one,\nagainst models (Poisson)")  # fmt: skip
        bought = zip(costs.privacy_targets, costs.hidden_among, costs.cardinality, strict=True)
        ax.set_xticks(places, [f"{t}\n{hidden:.3g}\n{size:.3g}" for t, hidden, size in bought])
        for tick, words in enumerate(("block size T", "hidden among", "mean sum")):
            ax.annotate(words, (0, 0), (-12, -6.0 - 9.9 * tick), xycoords="axes fraction",
                        textcoords="offset points", ha="right", va="top", fontsize=8)  # fmt: skip
        ax.set(ylabel=f"ε at δ = {costs.delta:g}", ylim=(0, None))
        rounds = f"{costs.rounds:,} rounds, noise {costs.noise_multiplier:g} x clip"
        caption(ax, f"What T costs in amplification by sampling ({rounds}).")
        legend(ax)
    return ax
