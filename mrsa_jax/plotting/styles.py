"""One look for every figure.

Okabe and Ito's palette, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import importlib
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from mrsa_jax.plotting.names import OURS
from mrsa_watch._base.errors import check_known

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Column = Literal["single", "double"]

# inches
_SIZES: dict[str, tuple[float, float]] = {"single": (3.5, 2.3), "double": (7.16, 3.0)}
_COLUMN: contextvars.ContextVar[str] = contextvars.ContextVar(
    "column", default="double"
)

# Neighbouring hues that stay apart for colour-blind readers and in grey: light to dark.
SHADES = ("#9BD0EF", "#56B4E9", "#0072B2", "#004C7A", "#00253D")
MARKERS = ("o", "s", "^", "D", "v", "P")
WARNING = "#D55E00"
EMPTY = "#F2F2F2"  # where nothing is
# to read the first may start a window
_NO_LOOK = {"backend", "backend_fallback", "interactive"}


@contextlib.contextmanager
def style(column: Column | None = None) -> Iterator[None]:
    """Apply the package's look inside a `with` block; the user's settings return.

    Settings from a file `matplotlibrc` have no effect inside. Those that the program
    itself has set keep their effect, unless the look sets them too.

    Figures are as wide as a column of a paper (IEEE, ACM: 3.5 in) or as both (7.16 in),
    their text 8 to 9 points there. Files that are saved inside hold text as text: SVG
    as its elements, PDF as fonts of type 42. A block inside another keeps its width.

    Args:
        column: `"single"` or `"double"`; None for that of the block around, else
            `"double"`.

    Raises:
        ConfigurationError: If the column is unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> import matplotlib.pyplot as plt
        >>> with mj.plotting.style("single"):
        ...     tuple(plt.rcParams["figure.figsize"])
        (3.5, 2.3)
    """
    if column is not None:
        check_known(column, "column", _SIZES, "a known width")
    mpl = _matplotlib()
    token = _COLUMN.set(column or _COLUMN.get())
    shows = mpl.is_interactive()
    try:
        size = {"figure.figsize": _SIZES[_COLUMN.get()]}
        with mpl.rc_context(_usual_instead_of_file() | _settings() | size):
            try:
                yield
            finally:
                # a notebook's backend that loads in here lets figures show themselves
                shows = mpl.is_interactive()
    finally:
        _COLUMN.reset(token)
        mpl.interactive(shows)


def _matplotlib() -> Any:
    """Import Matplotlib, also where MPLBACKEND names a backend that there is not."""
    backend = os.environ.get("MPLBACKEND")
    if backend is None or "matplotlib" in sys.modules:
        return importlib.import_module("matplotlib")
    del os.environ["MPLBACKEND"]
    try:
        mpl = importlib.import_module("matplotlib")
    finally:
        os.environ["MPLBACKEND"] = backend
    with contextlib.suppress(ValueError):
        mpl.rcParams["backend"] = backend
    return mpl


def _usual_instead_of_file() -> dict[str, Any]:
    """Return Matplotlib's defaults of settings that a file changed, not the program."""
    mpl = _matplotlib()
    defaults = {}
    for name in mpl.rcParamsOrig.keys() - _NO_LOOK:
        from_file, usual = mpl.rcParamsOrig[name], mpl.rcParamsDefault[name]
        if from_file != usual and mpl.rcParams[name] == from_file:
            defaults[name] = usual
    return defaults


@functools.cache
def _settings() -> Any:
    """Read the settings of the style sheet next to this module."""
    mpl = _matplotlib()
    path = pathlib.Path(__file__).with_name("mrsa_jax.mplstyle")
    return mpl.rc_params_from_file(path, use_default_template=False)


@contextlib.contextmanager
def drawing(ax: Axes | None) -> Iterator[Axes]:
    """Draw in the package's look: on these axes, or on those of a new figure."""
    with style():
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained", gid=OURS)[1]
        yield ax


def whole_numbers(axis: Any) -> None:
    """Let the ticks of an axis stand at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    most = 6 if axis.axes.get_figure(root=True).get_figwidth() < 5 else 9
    whole = MaxNLocator(
        integer=True,
        steps=[1, 2, 5, 10],
        nbins=most,
        min_n_ticks=1,
    )
    axis.set_major_locator(whole)


# The six schemes of the Multi-RoundSecAgg paper's Table 1 have Okabe and Ito's colours.
# Schemes with parameters (other T, Bernoulli, ...) share six more, and a user's schemes
# six others, all chosen far apart for normal, protan and deutan eyes (CIELAB, Machado's
# matrices), with a contrast of 3 to 1 or more on white. A hash of the label picks one
# and shifts it too little to be seen as another, so that two labels have two colours;
# labels that differ in one number follow one another.

NAMED = {
    "Random": "#000000",
    "Weighted random": "#E69F00",
    "User partition": "#56B4E9",
    "Multi-RoundSecAgg (T=6)": "#009E73",
    "Multi-RoundSecAgg (T=4)": "#0072B2",
    "Multi-RoundSecAgg (T=3)": "#CC79A7",
}
CHANCE = "Chance"
"""The series of a guess, among curves of schemes."""
FAMILIES = (
    "Multi-RoundSecAgg",
    "Crossing partitions",
    "Bernoulli",
    "Poisson",
    "Balls in bins",
    "Power of choice",
    "Minimum separation",
)
_OF_FAMILIES = ("#692D0F", "#2D69E1", "#69783C", "#3C2D96", "#004B3C", "#875A87")
_OF_USERS = ("#780069", "#963C00", "#A5004B", "#9678E1", "#E14B4B", "#4B960F")
_SHIFT = 8  # of 255, of each channel at most
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (3.7, 1.6),
    (6.4, 1.6, 1.0, 1.6),
    (1.0, 1.65),
    (5.0, 1.0),
    (3.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    (8.0, 2.0, 2.0, 2.0),
    (2.0, 1.0),
)

_OTHERS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#6B6ECF",
    "#8C6D31",
)
_DASHES_OF_OTHERS = ((), (7, 4), (8, 3, 2, 3), (2, 4), (11, 3), (8, 3, 2, 3, 2, 3))


def look(label: str, place: int, *, is_scheme: bool) -> tuple[str, tuple[float, ...]]:
    """Return the colour of a series and its dashes, as of `scheme_dashes`.

    Args:
        label: What it is called.
        place: In the key: what is no scheme has one of a few looks by it.
        is_scheme: Whether it is a scheme, which looks the same everywhere.
    """
    if label == CHANCE:
        return "#777777", _DASHES[3]
    swept = re.fullmatch(r"T = (\d+)", label)  # a T looks as blocks of it do
    label = f"Multi-RoundSecAgg (T={swept[1]})" if swept else label
    if is_scheme or swept or label in NAMED:
        return scheme_colour(label), scheme_dashes(label)
    dashes = _DASHES_OF_OTHERS[place % len(_DASHES_OF_OTHERS)]
    return _OTHERS[place % len(_OTHERS)], tuple(length / 2.2 for length in dashes)


def scheme_colour(label: str) -> str:
    """Return the colour of a scheme, the same in every figure and on every page.

    Args:
        label: Any text; `Multi-RoundSecAgg (T=4)` and the like are known.

    Returns:
        `#rrggbb`. Two labels of a user's own can, rarely, have one colour; their dashes
        differ then, most likely.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.plotting.scheme_colour("Random")
        '#000000'
        >>> mj.plotting.scheme_colour("Bernoulli (0.1)") == mj.plotting.scheme_colour(
        ...     "Bernoulli (0.1)"
        ... )
        True
        >>> first = mj.plotting.scheme_colour("my scheme 1")
        >>> first == mj.plotting.scheme_colour("my scheme 2")
        False
    """
    if label in NAMED:
        return NAMED[label]
    colours = _colours(label)
    anchor = colours[_index(label) % len(colours)]
    # one byte of the hash shifts each channel
    shifts = hashlib.blake2b(_bytes(label), digest_size=3).digest()
    channels = (int(anchor[i : i + 2], 16) for i in (1, 3, 5))
    moved = (
        min(255, max(0, channel + shift % (2 * _SHIFT + 1) - _SHIFT))
        for channel, shift in zip(channels, shifts, strict=True)
    )
    return "#" + "".join(f"{channel:02X}" for channel in moved)


def scheme_dashes(label: str) -> tuple[float, ...]:
    """Return the dashes of a scheme's line, so that curves stay apart in grey.

    Args:
        label: As of `scheme_colour`.

    Returns:
        Lengths drawn and left out in turn, in widths of the line, as for SVG's
        `stroke-dasharray`; none for a line without gaps.

    Examples:
        >>> scheme_dashes("Random"), scheme_dashes("Weighted random")
        ((), (3.7, 1.6))
    """
    if label in NAMED:
        return _DASHES[list(NAMED).index(label)]
    # not the digits that choose the colour: two schemes of one colour seldom share a
    # line
    return _DASHES[_index(label) // len(_colours(label)) % len(_DASHES)]


def _colours(label: str) -> tuple[str, ...]:
    return _OF_FAMILIES if label.startswith(FAMILIES) else _OF_USERS


def _index(label: str) -> int:
    """Return a number from the words of a label, raised by the number in it."""
    digits = "".join(re.findall("[0-9]", label))
    words = re.sub("[0-9.]", "", label)
    start = int.from_bytes(
        hashlib.blake2b(_bytes(words), digest_size=4).digest(), "big"
    )
    return start + int(digits[-9:] or 0)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
