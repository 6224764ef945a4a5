"""One look for every figure: Okabe and Ito's palette, which colour-blind readers can tell apart."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mrsa_jax.plotting._colours import scheme_colour, scheme_dashes

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

# Neighbouring hues that stay apart for colour-blind readers and in grey: light to dark.
SHADES = ("#9BD0EF", "#56B4E9", "#0072B2", "#004C7A", "#00253D")
MARKERS = ("o", "s", "^", "D", "v", "P")
WARNING = "#D55E00"


def scheme_line(label: str) -> Any:
    """Return the line style of a scheme, so that curves stay apart in grey and where they meet."""
    dashes = scheme_dashes(label)
    return (0, dashes) if dashes else "-"


def short(label: str) -> str:
    """Return a label short enough for an axis tick."""
    return re.sub(r"^Multi-RoundSecAgg \((.*)\)$", r"MRSA \1", label)


def bands(ax: Axes, results: xr.Dataset, along: str, middle: str, worst: str) -> None:
    """Draw a band of each scheme, from the middle client (thick line) to the worst (thin)."""
    at = results[along].values
    for label in map(str, results["scheme"].values):
        own = results.sel(scheme=label)
        colour, line = scheme_colour(label), scheme_line(label)
        ax.fill_between(at, own[middle].values, own[worst].values, color=colour, alpha=0.12, lw=0)
        ax.plot(at, own[middle].values, color=colour, ls=line, label=label)
        ax.plot(at, own[worst].values, color=colour, ls=line, lw=0.8)


def legend(ax: Axes, title: str | None = None, **more: Any) -> None:
    """Put the legend beside the axes, where no curve can run behind it."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, title=title,
              title_fontsize="small", alignment="left", **more)  # fmt: skip


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Apply the package's look inside a `with` block, and leave the user's settings alone."""
    import matplotlib as mpl

    settings: Any = {
        "figure.figsize": (7.6, 3.8),
        "figure.dpi": 110,
        "savefig.dpi": 160,
        "font.size": 10,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "grid.color": "#dddddd",
        "grid.linewidth": 0.7,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "lines.linewidth": 1.8,
    }
    with mpl.rc_context(settings):
        yield


@contextlib.contextmanager
def drawing(ax: Axes | None) -> Iterator[Axes]:
    """Draw in the package's look: on these axes, or on those of a figure of its own."""
    import matplotlib.pyplot as plt

    with style():
        yield plt.subplots(layout="constrained")[1] if ax is None else ax


def whole_numbers(*axes: Any, **settings: Any) -> None:
    """Let the ticks of these axes of a figure stand at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True, **settings))
