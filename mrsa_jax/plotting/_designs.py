"""Families of lines: what weak T says, how well clients are hidden, and how rare sums are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mrsa_jax._errors import require
from mrsa_jax.plotting._names import grow, plain
from mrsa_jax.plotting._style import SHADES, WARNING, caption, drawing, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DARK = SHADES[2]


@runtime_checkable
class Promise(Protocol):
    """What a family of sums promises for ever: a `design.Judgement`, an option of an advice."""

    @property
    def weak_lower(self) -> int:
        """Weak T that is kept."""
        ...

    @property
    def strong_privacy(self) -> int:
        """Strong T that is kept."""
        ...

    @property
    def hidden_worst(self) -> float:
        """Among how many the worst client stays hidden."""
        ...

    @property
    def cardinality(self) -> float:
        """Clients in a mean sum."""
        ...

    @property
    def cardinality_interval(self) -> tuple[float, float]:
        """Its interval; that number twice where it is exact."""
        ...


def plot_designs(judgements: Mapping[str, Promise], *, ax: Axes | None = None) -> Axes:
    """Plot what families of lines promise for ever against the mean size of their sums.

    A row a family, the fullest sums on top: how many clients weak T counts (ring), among how many
    the worst client is hidden (dot), and how many always move together (bar, strong T). The line
    from dot to ring is what T overstates. On the right is the mean number of clients in a
    sum, with its interval where it was simulated.

    Args:
        judgements: What `design.judge` returns, or the options of `study.advise`, by name.
        ax: Where to draw; a figure of its own when None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If there is none.
    """
    require(len(judgements) > 0, "judgements", "must hold a family")
    order = sorted(judgements.items(), key=lambda item: item[1].cardinality)
    with drawing(ax) as ax:
        for place, (_, own) in enumerate(order):
            first = place == 0
            ax.plot([own.hidden_worst, own.weak_lower], [place, place], color=WARNING, lw=2,
                    label="what weak T overstates" if first else None)  # fmt: skip
            for value, marker, size, fill, label in (
                (own.weak_lower, "o", 11, "white", "weak T"),  # a ring around the others
                (own.hidden_worst, "o", 6, _DARK, "hidden among (worst client)"),
                (own.strong_privacy, "|", 15, _DARK, "strong T"),
            ):
                ax.plot(value, place, marker, ms=size, mfc=fill, mec=_DARK, mew=1.6,
                        label=label if first else None)  # fmt: skip
            low, high = own.cardinality_interval
            about = f" ({low:.4g} to {high:.4g})" if low < high else ""
            ax.annotate(
                f"{own.cardinality:.3g}{about}", (1, place), xycoords=("axes fraction", "data"),
                xytext=(6, 0), textcoords="offset points", va="center", fontsize=8,
            )  # fmt: skip
        most = max(own.weak_lower for own in judgements.values())
        ax.annotate("clients in\na mean sum", (1, 1), xycoords="axes fraction", xytext=(6, 2),
                    textcoords="offset points", va="bottom", fontsize=8)  # fmt: skip
        ax.set_yticks(range(len(order)), [plain(name) for name, _ in order])
        ax.set(xlabel="clients", xlim=(0, 1.08 * most + 0.3), ylim=(-0.6, len(order) - 0.4))
        ax.grid(visible=False, axis="y")
        whole_numbers(ax.xaxis)
        caption(ax, "What a family of sums promises for ever.")
        _legend_below(ax)
    return ax


def _legend_below(ax: Axes) -> None:
    """Put the legend under the axes, where rows of families leave no room beside them."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    down = ax.transAxes + ScaledTranslation(0, -31 / 72, figure.dpi_scale_trans)
    columns = 4 if figure.get_figwidth() >= 5 else 1
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=down, borderaxespad=0,
              ncols=columns, columnspacing=1.2)  # fmt: skip
    grow(figure, 4 // columns - 1)
