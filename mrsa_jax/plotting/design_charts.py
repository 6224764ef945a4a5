"""Charts of histories, of families of lines, and of policies for split blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mrsa_jax.plotting.chart import Cells, Chart, Line, draw
from mrsa_jax.plotting.styles import EMPTY, SHADES, WARNING
from mrsa_watch._base.errors import check_known, check_size, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def designs_chart(judgements: Mapping[str, Any]) -> Chart:
    """Chart the privacy of families of lines side by side, the fullest sums first."""
    order = sorted(judgements.items(), key=lambda item: -item[1].cardinality)
    at = np.arange(len(order), dtype=float)
    weak, hidden, strong, mean = (
        np.array([getattr(judgement, name) for _, judgement in order], float)
        for name in ("weak_lower", "hidden_worst", "strong_privacy", "cardinality")
    )
    intervals = [judgement.cardinality_interval for _, judgement in order]
    low, high = np.array(intervals, float).T
    lines = [
        Line("weak T", at, weak, kind="marks"),
        Line("hidden among (worst client)", at, hidden, "", hidden, weak, "marks"),
        Line("strong T", at, strong, kind="marks"),
        Line("mean clients per round", at, mean, "", low, high, "marks"),
    ]
    ticks = [(float(k), name) for k, (name, _) in enumerate(order)]
    return Chart.named("designs", lines, ticks=ticks)


def plot_designs(judgements: Mapping[str, Any], *, ax: Axes | None = None) -> Axes:
    """Plot the privacy of families of lines for any number of rounds, and their sums.

    Families stand side by side, the fullest sums first: how many clients weak T counts,
    among how many the worst client is hidden (a line leads up to what T overstates),
    how many always move together (strong T), and the mean number of clients in a sum,
    with its interval where it was simulated.

    Args:
        judgements: What `design.judge` returns, by name.
        ax: Where to draw; a new figure if None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If there is none.

    Examples:
        >>> import mrsa_jax as mj
        >>> found = mj.design.judge(mj.design.blocks(4, 2), 2, 0.1)
        >>> ax = mj.plotting.plot_designs({"blocks": found})
        >>> [tick.get_text() for tick in ax.get_xticklabels()]
        ['blocks']
    """
    require(len(judgements) > 0, "judgements", "must hold a family")
    return draw(designs_chart(judgements), ax=ax)


PolicyQuantity = Literal["weak", "strong", "rounds_kept", "cardinality"]

_POLICIES = {
    "ignore": "ignore: sum without the lost",
    "abort": "abort: no sum at all",
    "drop_block": "drop block: sum over whole blocks",
}
_LABELS = {
    "weak": ("weak T (clients)", "Fewest clients in any combination of sums"),
    "strong": ("strong T (clients)", "Fewest clients whose updates move only together"),
    "rounds_kept": ("rounds with a sum (%)", "Rounds that were not lost"),
    "cardinality": ("cardinality C (clients)", "Mean number of clients in a sum"),
}


_LEAST_KEPT = 0.1
"""Fraction of rounds with a sum below which privacy is not drawn.

Few sums reveal little.
"""


def plot_policies(
    results: Any,
    *,
    quantity: PolicyQuantity = "strong",
    ax: Axes | None = None,
) -> Axes:
    """Plot privacy, or what it costs, over step dropout rates, a curve for each policy.

    Lines are means over trials, bands their 5 % to 95 % quantiles; where nothing was
    learnt in a trial, it is left out. Privacy is drawn only where at least a tenth of
    the rounds have a sum, since a policy that loses nearly all sums reveals little
    whatever it does. For weak privacy the line is the proven lower bound, and a thin
    line the upper bound where it differs.

    Args:
        results: What `privacy.policy_privacy` returns.
        quantity: `"strong"` or `"weak"` privacy, `"rounds_kept"` or `"cardinality"`.
        ax: Where to draw; a new figure if None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If the quantity is unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> selector = mj.selection.batch_partitioning(6, 4, 2)
        >>> online = mj.availability.independent(0.1)
        >>> found = mj.privacy.policy_privacy(
        ...     0, selector, online, [0.0, 0.1], 9, 2, blocks=2, policies=["abort"]
        ... )
        >>> mj.plotting.plot_policies(found, quantity="rounds_kept").get_ylabel()
        'rounds with a sum (%)'
    """
    check_known(quantity, "quantity", _LABELS, "a known quantity")
    field = "weak_lower" if quantity == "weak" else quantity
    scale = 100 if quantity == "rounds_kept" else 1
    values = np.asarray(getattr(results, field)) * scale
    rates = 100 * np.asarray(results.step_dropout_rates)
    is_privacy = quantity in ("weak", "strong")
    lines = []
    with_sum = np.asarray(results.rounds_kept, float).mean(axis=-1)
    for i, policy in enumerate(results.policies):
        alive = (with_sum[i] >= _LEAST_KEPT) | (not is_privacy)
        name = policy.replace("_", " ")
        label = _POLICIES[policy] if alive.all() else f"{name}: too few sums beyond"
        low, mean, high = (np.where(alive, row, np.nan) for row in _spread(values[i]))
        lines.append(Line(label, rates, mean, "", low, high))
        if quantity == "weak" and (results.weak_upper[i] != values[i]).any():
            upper = np.where(alive, _spread(results.weak_upper[i])[1], np.nan)
            lines.append(Line(label, rates, upper, "at most", weight="thin"))
    name, title = _LABELS[quantity]
    where = f" Drawn where at least {100 * _LEAST_KEPT:g} % of rounds have a sum."
    chart = Chart.named(
        "policies",
        lines,
        words={"title": title, "drawn": where * is_privacy},
        title=title,
        y_label=name,
        whole="y" * is_privacy,
    )
    return draw(chart, ax=ax)


def _spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 5 % quantile, mean and 95 % quantile over trials, without those of -1."""
    low, mean, high = np.full((3, len(values)), np.nan)
    for k, row in enumerate(values.astype(np.float64)):
        known = row[row >= 0]
        if known.size:
            low[k], high[k] = np.quantile(known, [0.05, 0.95])
            mean[k] = known.mean()
    return low, mean, high


_MOST = 10**7
"""Cells of a history that are drawn.

Beyond, most would be thinner than any screen's pixels.
"""


def plot_participation(
    history: Any,
    *,
    block_size: int | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw which client is in which sum, and from which round the sums expose it.

    One row per round, from the top, and one column per client. A client's cells change
    colour in the round in which the sums first expose it, as `privacy.first_exposure`
    decides in integers.

    Args:
        history: [rounds, clients] of bools or integer weights; not 0 is in the sum.
        block_size: T of a scheme whose blocks are consecutive clients, to draw lines
            between them.
        title: Above the picture.
        ax: Where to draw; a separate figure if None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If the history is no such matrix, has more than 10^7 cells,
            or the block size is no positive integer.

    Examples:
        >>> import mrsa_jax as mj
        >>> ax = mj.plotting.plot_participation(
        ...     [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]], block_size=2
        ... )
        >>> ax.images[0].get_array().tolist()  # 0: not in the sum; 2: exposed by then
        [[1, 1, 0, 0], [2, 0, 0, 0], [0, 0, 1, 1]]
    """
    chart = participation_chart(history, block_size)
    ax = draw(chart, ax=ax)
    ax.set(title=title)
    return ax


def participation_chart(
    history: Any,
    block_size: int | None = None,
    first: np.ndarray | None = None,
) -> Chart:
    """Return the picture of who is in which sum, as `plot_participation` draws it.

    `first` is what `first_exposure` returns, where that is known.
    """
    from mrsa_jax.privacy import first_exposure

    rows = _matrix(history)
    first = np.asarray(first_exposure(rows) if first is None else first)
    since = (first >= 0) & (np.arange(len(rows))[:, None] >= first)
    is_named = bool(since.any())
    kinds = (
        ("", EMPTY),
        ("in the sum" * is_named, SHADES[2]),
        ("in the sum, exposed" * is_named, WARNING),
    )
    words = {"exposed": (first >= 0).sum(), "clients": rows.shape[1]}
    values = np.where(rows != 0, 1 + since, 0).astype(np.uint8)
    # 0: not in the sum; 1: in it; 2: in it, and exposed by then
    cells = Cells(values, kinds, _edges(block_size, rows.shape[1]))
    return Chart.named("participation", words=words, cells=cells)


def _matrix(history: Any) -> np.ndarray:
    from mrsa_jax._core.arrays import as_integers

    rows = np.asarray(as_integers(history, "history"))
    require(rows.ndim == 2, "history", "must be a matrix [rounds, clients]", rows.shape)
    require(
        rows.size <= _MOST,
        "history",
        "must have at most 10**7 cells: draw some of its rounds or clients",
        rows.size,
    )
    return rows


def _edges(block_size: int | None, clients: int) -> range:
    """Return the columns at which lines between blocks stand.

    Nowhere where they would be half of the picture.
    """
    if block_size is None:
        return range(0)
    size = check_size(block_size, "block_size")
    return range(size, clients, size) if clients <= 64 * size else range(0)


def plot_rounds(
    history: Any,
    *,
    block_size: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what happened to each client in each round.

    Asked in vain, lost, or in the sum.
    One row per round, from the top, and one column per client. A client that was asked
    is in the sum, or was lost before its input arrived, or its input arrived in vain
    because the round gave no sum that contains it.

    Args:
        history: One trial of `selection.rollout_rounds`.
        block_size: T of a scheme whose blocks are consecutive clients, to draw lines
            between them.
        ax: Where to draw; a separate figure if None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If the history is of several trials, has more than 10^7
            cells, or the block size is no positive integer.

    Examples:
        >>> import mrsa_jax as mj
        >>> blocks = mj.selection.batch_partitioning(6, 4, 2)
        >>> scheme = blocks, mj.availability.independent(0.0)
        >>> steps = mj.availability.independent_steps(0.1)
        >>> played = mj.selection.rollout_rounds(
        ...     0, *scheme, steps, 9, policy="abort", blocks=2
        ... )
        >>> cells = mj.plotting.plot_rounds(played, block_size=2).images[0].get_array()
        >>> bool(((cells == 3) == played.participation).all())
        True
    """
    return draw(rounds_chart(history, block_size), ax=ax)


def rounds_chart(history: Any, block_size: int | None = None) -> Chart:
    """Return the picture of what happened in each round, as `plot_rounds` draws it."""
    rows, cells = _matrix(history.participation), history._cells()
    kinds = (
        ("", EMPTY),
        ("asked, lost before its input arrived", WARNING),
        ("input arrived, not in a sum", SHADES[0]),
        ("in the sum", SHADES[2]),
    )
    words = {"made": (rows != 0).any(axis=1).sum(), "rounds": len(rows)}
    drawn = Cells(cells, kinds, _edges(block_size, rows.shape[1]))
    return Chart.named("rounds", words=words, cells=drawn)
