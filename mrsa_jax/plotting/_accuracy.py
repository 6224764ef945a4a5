"""Test accuracy of selection schemes over training rounds.

Each takes a tidy data frame, a row for each test of each seed, as `mrsa_jax.reproduce` makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._student import half_interval
from mrsa_jax.plotting._study import _axes
from mrsa_jax.plotting._style import scheme_colour, scheme_line, short, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["plot_accuracy_curves"]


def over_seeds(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the ends of what a row's seeds span: the 95 % interval; of two or one, the range.

    Args:
        table: A column for each seed.
    """
    if table.shape[1] < 3:
        return table.min(axis=1), table.max(axis=1)
    half = half_interval(table)
    return table.mean(axis=1) - half, table.mean(axis=1) + half


def plot_accuracy_curves(data: pd.DataFrame, *, late: float = 0.2, ax: Axes | None = None) -> Axes:
    """Plot accuracy over rounds, a curve a scheme: means over seeds with 95 % intervals.

    Of two seeds the band and the legend give the range: an interval would be wider than the axes.
    The legend gives each scheme's accuracy late in the training, and the published one where the
    data have it.

    Args:
        data: Columns scheme, seed, round, accuracy in [0, 1], and published (percent) if any.
        late: Share of the rounds, the last ones, over whose tests the legend takes the mean.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for label, rows in data.groupby("scheme", sort=False):
            name = str(label)
            table = 100 * rows.pivot_table(index="round", columns="seed", values="accuracy")
            seeds, colour = table.shape[1], scheme_colour(name)
            end = table[table.index > (1 - late) * table.index.max()].mean()
            low, high = over_seeds(end.to_frame().T)
            words = f"{short(name)}: {end.mean():.1f}"
            if seeds > 2:
                words += f" ± {(high - low).iloc[0] / 2:.1f}"
            elif seeds == 2:
                ends = dict.fromkeys(f"{value:.1f}" for value in (low.iloc[0], high.iloc[0]))
                words = f"{short(name)}: {' to '.join(ends)}"
            words += " %"
            if "published" in rows:
                words += f" (paper {rows['published'].iloc[0]:.2f})"
            mean = table.mean(axis=1)
            ax.plot(table.index, mean, color=colour, ls=scheme_line(name), label=words, lw=1.6)
            if seeds > 1:
                least, most = over_seeds(table)
                least, most = least.clip(lower=0), most.clip(upper=100)
                ax.fill_between(table.index, least, most, color=colour, alpha=0.13, lw=0)
        ax.set(xlabel="rounds", ylabel="test accuracy (%)", xlim=(0, None), ylim=(0, 100))
        tight = {"fontsize": 8, "columnspacing": 1.2, "handlelength": 2.6, "handletextpad": 0.6}
        ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.13), ncols=2, **tight)
    return ax
