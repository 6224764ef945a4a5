"""One look for every figure: Okabe and Ito's palette, which colour-blind readers can tell apart."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mrsa_jax._checks import check_known
from mrsa_jax.plotting._colours import scheme_dashes
from mrsa_jax.plotting._names import OWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Column = Literal["single", "double"]

_SIZES: dict[str, tuple[float, float]] = {"single": (3.5, 2.3), "double": (7.16, 3.0)}  # inches
_COLUMN: contextvars.ContextVar[str] = contextvars.ContextVar("column", default="double")

# Neighbouring hues that stay apart for colour-blind readers and in grey: light to dark.
SHADES = ("#9BD0EF", "#56B4E9", "#0072B2", "#004C7A", "#00253D")
MARKERS = ("o", "s", "^", "D", "v", "P")
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
WARNING = PALETTE[1]


def scheme_line(label: str) -> Any:
    """Return the line style of a scheme, so that curves stay apart in grey and where they meet."""
    dashes = scheme_dashes(label)
    return (0, dashes) if dashes else "-"


def caption(ax: Axes, text: str) -> None:
    """Keep what a figure shows outside the picture: `ax.get_label()`, and saved files, tell it."""
    ax.set_label(text)


def ends(ax: Axes) -> None:
    """End the axes where curves end, with 0 and room for what runs at the lowest and highest."""
    ax.dataLim.update_from_data_y(np.zeros(1), False)
    ax.margins(x=0, y=0.03)
    ax.autoscale_view()


def slant(ax: Axes, needed: bool = True) -> None:
    """Slant the names under the axes, so that they stand clear of one another."""
    if needed:
        ax.tick_params(axis="x", labelrotation=30)
        for name in ax.get_xticklabels():
            name.set(ha="right", rotation_mode="anchor")


def nobody(ax: Axes, values: Any, words: str) -> None:
    """Write that nobody is concerned where all that is known is zero."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if known.size and not known.any():
        ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center")


@contextlib.contextmanager
def style(column: Column | None = None) -> Iterator[None]:
    """Apply the package's look inside a `with` block, and leave the user's settings alone.

    Figures are as wide as a column of a paper (IEEE, ACM: 3.5 in) or as both (7.16 in), their text
    8 to 9 points there. Files that are saved inside hold text as text: SVG as its elements, PDF as
    fonts of type 42. A block inside another keeps its width.

    Args:
        column: `"single"` or `"double"`; None for that of the block around, else `"double"`.

    Raises:
        ConfigurationError: If the column is unknown.

    Examples:
        >>> import matplotlib.pyplot as plt
        >>> with style("single"):
        ...     tuple(plt.rcParams["figure.figsize"])
        (3.5, 2.3)
    """
    import matplotlib as mpl

    if column is not None:
        check_known(column, "column", _SIZES, "a known width")
    token, shows = _COLUMN.set(_COLUMN.get() if column is None else column), mpl.is_interactive()
    try:
        with mpl.rc_context(_settings(_SIZES[_COLUMN.get()])):
            try:
                yield
            finally:  # a notebook's backend, if it loads in here, says that figures show themselves
                shows = mpl.is_interactive()
    finally:
        _COLUMN.reset(token)
        mpl.interactive(shows)


def _settings(size: tuple[float, float]) -> Any:
    from matplotlib.rcsetup import cycler

    return {
        "axes.prop_cycle": cycler(color=PALETTE),
        "figure.figsize": size,
        "figure.dpi": 120,
        "savefig.dpi": 160,
        "font.size": 8.5,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "axes.titlesize": 9,
        "figure.titlesize": 9,
        "figure.labelsize": 8.5,
        "axes.labelsize": 8.5,
        "axes.linewidth": 0.7,
        "xtick.major.width": 0.7,
        "ytick.major.width": 0.7,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "legend.title_fontsize": 8,
        "lines.linewidth": 1.5,
        "lines.scale_dashes": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "mrsa_jax",  # the same figure gives the same file
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
    }


@contextlib.contextmanager
def drawing(ax: Axes | None) -> Iterator[Axes]:
    """Draw in the package's look: on these axes, or on those of a figure of its own."""
    with style():
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained", gid=OWN)[1]
        yield ax


def whole_numbers(*axes: Any, **settings: Any) -> None:
    """Let the ticks of these axes of a figure stand at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        narrow = axis.axes.get_figure(root=True).get_figwidth() < 5
        words = {"nbins": 6 if narrow else 9, "min_n_ticks": 1} | settings
        axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], **words))
