"""A figure of our own: the error of least squares against motion, T and the window's length."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_papers.harness import Check, Context, Found, state
from mrsa_papers.harness._figures import MARKERS, SHADES, scheme_colour, short
from mrsa_papers.multiround import _attacks as windows
from mrsa_papers.multiround._windows import RANDOM, Plan

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_MOTION = Plan(
    "logistic", "shards", 60_000, 100, 0.03, False, 100, (40, 45, 50, 60, 80), 5, (1, 2, 4, 8),
    (1.0, 0.1, 0.01, windows.SLOW),
)  # fmt: skip


def error_against_motion(context: Context) -> Found:
    """Return the error against how fast models move, against T and the window's length."""
    plan = _MOTION
    if context.fast:
        plan = dataclasses.replace(
            plan, before=30, lengths=(40, 60), seeds=2, targets=(1, 2), speeds=(1.0, windows.SLOW)
        )
    clients = windows._solved(context, plan, "Motion")
    each = ["scheme", "target", "speed", "rounds", "seed"]
    frame = clients.groupby(each, sort=False).mean(numeric_only=True).reset_index()
    return Found(
        (*_of_motion(frame, plan), _exposed_in_motion(clients, plan)),
        frame.drop(columns=["client"]),
        windows._caption(context, plan, clients)
        + " A small mark is a seed (mean over clients), a line "
        "joins means of logarithms over seeds; dashed: updates that do not change, which random "
        "selection gives away altogether.",
    )


def _of_motion(frame: pd.DataFrame, plan: Plan) -> Iterator[Check]:
    first, last = plan.lengths[0], plan.lengths[-1]
    window = frame[frame["rounds"] == first]
    fast, slow = (window[window["speed"] == speed] for speed in (1.0, windows.SLOW))
    still = frame[(frame["rounds"] == last) & (frame["speed"] == windows.SLOW)]
    frozen, ours = windows._means(still, "frozen"), windows._means(still)
    gaps = [abs(a - b) for name in ours for a, b in zip(ours[name], frozen[name], strict=True)]
    blocks = frame[frame["target"] > 1].groupby(["target", "speed", "rounds", "seed"])
    least = blocks["error"].mean()
    short = windows._means(fast)
    long = windows._means(frame[(frame["rounds"] == last) & (frame["speed"] == 1.0)])
    yield state(
        f"where models hardly move, the error is that of frozen ones, sums of {last} rounds",
        max(gaps) < windows.SMALL,
        paper="updates do not change much across the rounds",
        ours=f"largest difference {max(gaps):.2g} at a relative motion of "
        f"{slow['motion'].mean():.2g}",
        tolerance="within 0.05 for each scheme and seed",
    )
    yield state(
        f"where models move as in training, {first} rounds of random selection tell nothing",
        min(short[RANDOM]) > 1,
        ours=f"{windows._words(short[RANDOM])} at a relative motion of {fast['motion'].mean():.2g}",
        tolerance="error over 1, that of no estimate at all, in each seed",
        note=f"the inverse of a {first} x {plan.num_clients} matrix multiplies the motion's "
        f"square by {_quantiles(window)}",
    )
    yield windows._longer(short, long, (first, last))
    yield _amplified(frame)
    yield state(
        "blocks of T hide their clients at any motion and length",
        bool((least > (1 - 1 / least.index.get_level_values("target")) / 2).all()),
        paper="the best the server can do is a block's sum",
        ours=f"smallest mean error {least.min():.2g}",
        tolerance="over half of 1 - 1/T in each seed",
    )


def _exposed_in_motion(clients: pd.DataFrame, plan: Plan) -> Check:
    """Judge the privacy engine's prediction on updates that hardly move."""
    own = clients[(clients["rounds"] == plan.lengths[-1]) & (clients["speed"] == windows.SLOW)]
    fallen = own["error"] < windows.SMALL
    exposed, others = float(fallen[own["exposed"]].mean()), float(fallen[~own["exposed"]].mean())
    return state(
        f"who is predicted exposed is who is recovered, {windows.SLOW_RATE}",
        exposed > 0.95 and others < 0.05,
        ours=f"{100 * exposed:.3g} % of {int(own['exposed'].sum())} exposed clients, "
        f"{100 * others:.2g} % of {int((~own['exposed']).sum())} others",
        tolerance=f"over 95 % and under 5 %; recovered: error under {windows.SMALL:g}, sums of "
        f"{plan.lengths[-1]} rounds",
        note="two like clients in a block give each other away without being exposed",
    )


def _amplified(frame: pd.DataFrame) -> Check:
    """Judge what leverage and motion predict of random selection's error."""
    own = frame[frame["scheme"] == RANDOM]
    own = own.assign(expected=own["predicted"] + own["motion"] ** 2 * own["gain"])
    means = own.groupby(["speed", "rounds", "seed"])[["error", "expected"]].mean()
    ratio = means["error"] / means["expected"]
    return state(
        "1 - leverage + motion^2 x gain of the inverse predicts random selection's error",
        bool(1 / 3 < ratio.median() < 3),
        ours=f"measured over predicted: {ratio.min():.2g} to {ratio.max():.2g}, median "
        f"{ratio.median():.2g}",
        tolerance="median over seeds, rates and lengths within a factor of 3",
        note="as if updates changed by independent noise from sum to sum; they drift, too",
    )


def _quantiles(window: pd.DataFrame) -> str:
    gains = window[window["scheme"] == RANDOM].groupby(["speed", "seed"])["gain"].mean()
    return f"{gains.min():.0f} to {gains.max():.0f}"


def draw_motion(figure: Figure, data: pd.DataFrame) -> None:
    """Draw the error against motion by T, and of random selection by the window's length."""
    figure.set_size_inches(11.5, 4.2)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    first = data["rounds"].min()
    _draw_error(left, data[data["rounds"] == first])
    _draw_error(right, data[data["target"] == 1], by="rounds")
    left.set_title(f"Windows of {first} rounds (dashed: no motion)")
    right.set_ylabel("")
    right.set_title("Random selection, windows of other lengths")


def _draw_error(ax: Axes, data: pd.DataFrame, by: str = "scheme") -> None:
    """Draw the mean error against how far updates move, a curve for each scheme or window."""
    from matplotlib.ticker import NullFormatter

    for place, (value, rows) in enumerate(data.groupby(by, sort=False)):
        is_scheme, marker = by == "scheme", MARKERS[place % len(MARKERS)]
        colour = scheme_colour(str(value)) if is_scheme else SHADES[-1 - place % len(SHADES)]
        label = short(str(value)) if is_scheme else f"{value} rounds"
        seeds = rows.groupby(["speed", "seed"])[["motion", "error", "frozen"]].mean()
        logs = seeds[["motion", "error"]].transform(np.log)
        middle = logs.groupby("speed").mean().transform(np.exp)
        words: dict[str, Any] = {"color": colour, "marker": marker}
        ax.plot(middle["motion"], middle["error"], lw=1.4, ms=5, label=label, **words)
        ax.plot(seeds["motion"], seeds["error"], ls="", ms=2.5, alpha=0.4, **words)
        still = seeds["frozen"].mean()
        if still > 1e-6:
            ax.axhline(still, color=colour, ls="--", lw=0.9)
    ax.axhline(1, color="#777777", lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="relative motion of an update in the window")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylabel("mean relative squared error")
    ax.legend(fontsize=8)
