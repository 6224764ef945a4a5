"""Figures of an audit: who is exposed by when, and the bounds of privacy over the rounds of a log.

Both take a tidy data frame with a row for each round, as `mrsa-jax audit --out` writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._names import legend
from mrsa_jax.plotting._style import SHADES, WARNING, caption, drawing, nobody, whole_numbers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plot_audit_exposure(
    data: pd.DataFrame, *, num_clients: int | None = None, ax: Axes | None = None
) -> Axes:
    """Plot how many clients' own updates could be solved for after each round of a log.

    Args:
        data: Columns round and exposed_clients. Rounds without numbers are counted from 1.
        num_clients: All of them, drawn as a line.
        ax: Where to draw; a figure of its own when None.
    """
    with drawing(ax) as ax:
        rounds, label = _rounds(data)
        exposed = data["exposed_clients"].to_numpy(float)
        ax.fill_between(rounds, 0, exposed, step="post", color=WARNING, alpha=0.2, lw=0)
        mark: dict[str, Any] = {"marker": "o", "ms": 5} if len(rounds) == 1 else {}
        ax.plot(rounds, exposed, color=WARNING, drawstyle="steps-post", **mark)
        if num_clients is not None:
            ax.axhline(num_clients, color="#555555", lw=1, ls=":")
            ax.annotate("all clients of the log", (0.01, num_clients), xytext=(0, 3),
                        xycoords=("axes fraction", "data"), textcoords="offset points",
                        fontsize=8, color="#555555")  # fmt: skip
        nobody(ax, exposed, "nobody is exposed")
        ax.margins(x=0)
        ax.set(xlabel=label, ylabel="exposed clients")
        top = 1.14 * max(float(exposed.max()), num_clients or 1)
        ax.set_ylim(-0.02 * top, top)  # a line at 0 is seen above the axis
        caption(ax, "Clients whose own update follows from the sums.")
        whole_numbers(ax.xaxis, ax.yaxis)
    return ax


def plot_audit_privacy(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot weak T after each round of a log, and strong T and hidden among where they are known.

    Weak T lies in the band; a thick line is drawn where its edges meet.

    Args:
        data: Columns round, weak_lower, weak_upper and maybe strong_privacy and
            hidden_among_worst; below 1 is left out.
            Rounds without numbers are counted from 1.
        ax: Where to draw; a figure of its own when None.
    """
    with drawing(ax) as ax:
        rounds, label = _rounds(data)
        lower, upper = (_above_zero(data[name]) for name in ("weak_lower", "weak_upper"))
        step: dict[str, Any] = {"drawstyle": "steps-post", "color": SHADES[2]}
        mark: dict[str, Any] = {"marker": "o", "ms": 5} if len(rounds) == 1 else {}
        ax.fill_between(rounds, lower, upper, step="post", color=SHADES[1], alpha=0.3, lw=0,
                        label="weak T lies in here")  # fmt: skip
        for edge in (lower, upper):
            ax.plot(rounds, edge, lw=0.6, **step)
        exact = np.where(lower == upper, upper, np.nan)
        ax.plot(rounds, exact, lw=2.4, label="weak T, where the bounds meet", **step, **mark)
        if "strong_privacy" in data and data["strong_privacy"].notna().any():
            strong = _above_zero(data["strong_privacy"])
            ax.plot(rounds, strong, color="#000000", ls=(0, (4, 2)), lw=1.2,
                    drawstyle="steps-post", label="strong T", **mark)  # fmt: skip
        if "hidden_among_worst" in data and data["hidden_among_worst"].notna().any():
            ax.plot(rounds, _above_zero(data["hidden_among_worst"]), color="#009E73", lw=2.4,
                    drawstyle="steps-post", label="worst client hidden among", **mark)  # fmt: skip
        highest = float(np.nanmax(upper)) if np.isfinite(upper).any() else 1.0
        ax.axhline(2, color=WARNING, lw=1, ls=":", label="weak T below: somebody is exposed")
        ax.set(xlabel=label, ylabel="clients", ylim=(0, max(1.1 * highest, 2.5)))
        caption(ax, "Weak T, strong T, and among how many the worst client is hidden.")
        legend(ax)
        whole_numbers(ax.xaxis, ax.yaxis)
    return ax


def _rounds(data: pd.DataFrame) -> tuple[np.ndarray, str]:
    """Return where the rounds stand on the axis: at their numbers, if these rise."""
    if data["round"].dtype.kind in "iuf":
        numbers = data["round"].to_numpy(float)
        if np.isfinite(numbers).all() and (np.diff(numbers) > 0).all():
            return numbers, "round"
    return np.arange(1, len(data) + 1, dtype=float), "rounds of the log, counted from 1"


def _above_zero(values: pd.Series) -> np.ndarray:
    plain = values.to_numpy(float)
    return np.where(plain > 0, plain, np.nan)
