"""CCESA's Theorems 3 and 4: which p suffices as n grows, by exact chances at each n.

Choi, Sohn, Han, Moon, Section 4.3.1, Appendices C.4 and C.5. A limit cannot be
computed; what can is the chance itself, at p on the printed threshold, for growing n,
and each inequality of the proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import secagg
from mrsa_jax.secagg.failures.tails import log_pmf
from mrsa_papers.ccesa._theory import COLOURS, step_rate
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import MARKERS, in_turn
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

_MANY = 0.6  # q_total beyond the theorem's reach
_SLACKS = (0.0, 1.0)  # epsilon, by which p exceeds Theorem 4's threshold


def reliable(context: Context, settings: Values) -> Found:
    """Return Theorem 3: the chance of an unreliable round at its threshold over n."""
    sizes = sorted(settings.num_sizes)
    threshold = secagg.failures.reliable_connection_threshold
    for total, n in itertools.product(settings.total_rates, sizes):
        require(total < 0.5, "total_rates", "must be less than 0.5", total)
        _check_probability(threshold(n, step_rate(total)), total, n)
    context.begin()
    rows = []
    for total in settings.total_rates:
        for n in sizes:
            q = step_rate(total)
            p = threshold(n, q)
            t = secagg.share_threshold(n, p)
            # natural logarithms, turned into powers of ten for the table
            exact = secagg.failures.exact_reliability_union_bound(
                n, p, q, t
            ) / math.log(10)
            # n/(n-1)^2, from Hoeffding's inequality and a union over the clients
            proof = math.log10(n) - 2 * math.log10(n - 1)
            rows.append(
                {
                    "q_total": total,
                    "n": n,
                    "p": p,
                    "t": t,
                    "log10": exact,
                    "proof": proof,
                }
            )
    data = rows_to_frame(rows)
    above = data[data["log10"] > data["proof"]]
    falls = [curve["log10"].to_numpy() for _, curve in data.groupby("q_total")]
    checks = (
        state(
            "chance that a round is unreliable at the threshold, n P(X < t)",
            above.empty,
            depends=(),
            paper="at most n/(n-1)^2, which tends to 0",
            ours=f"at most 10^{(data['log10'] - data['proof']).max():.2f} of it",
            tolerance=(
                f"every q_total, n = {sizes[0]:,} to {sizes[-1]:,}; exact binomial "
                "tails at Remark 4's t"
            ),
        ),
        state(
            "the same as n grows",
            all(bool((np.diff(curve) < 0).all()) for curve in falls),
            depends=(),
            paper="tends to 0",
            ours="; ".join(
                f"q_total = {total:g}: 10^{curve[0]:.1f} to 10^{curve[-1]:.1f}"
                for total, curve in zip(
                    sorted(settings.total_rates), falls, strict=True
                )
            ),
            tolerance=f"falls from each n to the next, up to {sizes[-1]:,}",
            note="a limit itself cannot be computed; the bound above has it",
        ),
        _out_of_reach(),
    )
    return Found(
        checks,
        data,
        "Union bound on the chance of an unreliable round over CCESA(n, p) at Theorem "
        "3's threshold and Remark 4's t, from exact binomial tails. Dashed: the "
        "proof's n/(n-1)^2.",
    )


def _check_probability(p: float, total: float, n: int) -> None:
    """Raise unless a p of the theorem is a probability at some n and q_total."""
    rule = "must leave a p of at most 1 at each of `num_sizes`"
    require(p <= 1.0, "total_rates", rule, f"{total:g} at n = {n}")


def _out_of_reach() -> Check:
    """Judge a q_total over one half, where the printed threshold is negative."""
    n, p = 1000, 0.9
    q = step_rate(_MANY)
    stays = 1 - _MANY
    # the printed threshold, with a denominator below 0 where over half of the clients
    # are lost
    threshold = (3 * math.sqrt((n - 1) * math.log(n - 1)) - 1) / (
        (n - 1) * (2 * stays - 1)
    )
    t = secagg.share_threshold(n, p)
    # a client that nobody lost may still lack shares: its own and those of its
    # neighbours
    lost = _tail_from(n - 1, p * stays, t - 1)
    return state(
        f"p = {p:g} above the threshold at q_total = {_MANY:g}, n = {n}",
        not (p > threshold and lost < 1e-6),
        paper="reliable, as for every p above it",
        ours=(
            f"the threshold is {threshold:.3f}; a secret comes back with chance "
            f"{lost:.1g}"
        ),
        tolerance="chance above 1e-6",
        otherwise="not stated",
        note=(
            "the theorem gives no range of q; it needs (1 - q)^4 > 1/2, here "
            f"{(1 - q) ** 4:.2g}"
        ),
    )


def _tail_from(n: int, chance: float, least: int) -> float:
    """Return P(X >= least), X binomial."""
    return float(np.exp(log_pmf(n, chance)[least:]).sum())


def private(context: Context, settings: Values) -> Found:
    """Return Theorem 4.

    The chance that G_3 is disconnected at its threshold, as n grows.
    """
    sizes = sorted(settings.num_sizes)
    threshold = secagg.failures.private_connection_threshold
    jobs = [(total, n) for total in settings.total_rates for n in sizes]
    for total, n in jobs:
        largest = (1 + max(_SLACKS)) * threshold(n, step_rate(total))
        _check_probability(largest, total, n)
    context.begin()
    rows = []
    for total, n in context.steps("Theorem 4: exact chances", jobs):
        q = step_rate(total)
        start = threshold(n, q)
        rows += [
            {
                "q_total": total,
                "n": n,
                "epsilon": slack,
                "p": (1 + slack) * start,
                "apart": math.exp(
                    secagg.failures.log_disconnection_probability(
                        n, (1 + slack) * start, q
                    )
                ),
                "far": _far(n, q),
            }
            for slack in _SLACKS
        ]
    data = rows_to_frame(rows)
    # above the threshold the chance falls with n, at the threshold it settles
    falls, stays = (_curves(data, slack) for slack in reversed(_SLACKS))
    # in units of the proof's 1/n^2
    far = data["far"] * data["n"].astype(float) ** 2
    checks = (
        state(
            "chance that G_3 is disconnected at 1 + epsilon = 2 times the threshold",
            all(bool((np.diff(curve) < 0).all()) for curve in falls),
            depends=(),
            paper="tends to 0 (the proof's threshold has 1 + epsilon)",
            ours=_ends(falls),
            tolerance=f"exact; falls from each n to the next, {sizes[0]} to {sizes[-1]}",
            note="a limit itself cannot be computed",
        ),
        state(
            "chance that G_3 is disconnected at the printed threshold",
            all(bool((np.diff(curve) < 0).all()) for curve in stays),
            depends=(),
            paper="tends to 0 for every p above it",
            ours=_ends(stays),
            tolerance=f"exact; falls from each n to the next, {sizes[0]} to {sizes[-1]}",
            otherwise="our reading",
            note=(
                "it rises towards 1 - 1/e, the chance at log n / n: without the "
                "proof's epsilon p may be as near to the threshold as one likes. Such "
                "rounds leak where shares come back; at Remark 4's t hardly any do. "
                "Theorem 3's threshold is far above this one"
            ),
        ),
        state(
            "(b): chance that |V_3| is further than sqrt(n log n) from its mean",
            bool((far <= 2).all()),
            depends=(),
            paper="at most 2/n^2 (Hoeffding)",
            ours=f"at most {far.max():.2g}/n^2",
            tolerance="every n and q_total; exact binomial tails",
        ),
    )
    return Found(
        checks,
        data,
        "Exact chance that G_3, the graph on the clients that are summed, is "
        "disconnected: at Theorem 4's threshold (solid) and at twice that (dashed). "
        "Dotted: 1 - 1/e.",
    )


def _far(n: int, q: float) -> float:
    """Return the chance that V_3 misses its mean by more than sqrt(n log n)."""
    # a client is in V_3 if it stays through three steps
    stays = (1 - q) ** 3
    distance = np.abs(np.arange(n + 1) - n * stays)
    return float(np.exp(log_pmf(n, stays))[distance > math.sqrt(n * math.log(n))].sum())


def _curves(data: pd.DataFrame, slack: float) -> list[np.ndarray]:
    """Return the chances over n at one epsilon, for each q_total."""
    at_slack = data[data["epsilon"] == slack]
    return [
        rows.sort_values("n")["apart"].to_numpy()
        for _, rows in at_slack.groupby("q_total")
    ]


def _ends(curves: Sequence[np.ndarray]) -> str:
    return "; ".join(f"{curve[0]:.3g} to {curve[-1]:.3g}" for curve in curves)


def draw_reliable(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the union bound over n (columns q_total, n, log10, proof)."""
    for _, rows, look in in_turn(
        data, "q_total", "$q_{{total}}$ = {:g}", color=COLOURS, marker=MARKERS
    ):
        ax.plot(rows["n"], rows["log10"], ms=5, **look)
    bound = data.drop_duplicates("n")
    ax.plot(
        bound["n"], bound["proof"], color="#777777", ls="--", label="proof: n/(n-1)²"
    )
    ax.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:g}}}$")


def draw_private(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the chance of a disconnected graph over n.

    The columns are q_total, n, epsilon and apart.
    """
    for _, rows, look in in_turn(
        data, "q_total", "$q_{{total}}$ = {:g}", color=COLOURS, marker=MARKERS
    ):
        for slack, line in zip(_SLACKS, ("-", "--"), strict=True):
            curve = rows[rows["epsilon"] == slack]
            label = look["label"] if slack == 0 else ""
            ax.plot(
                curve["n"], curve["apart"], ms=5, ls=line, **look | {"label": label}
            )
    ax.axhline(1 - 1 / math.e, color="#777777", ls=":", label="1 - 1/e")
    ax.plot([], [], color="#444444", ls="--", label="at twice the threshold")
