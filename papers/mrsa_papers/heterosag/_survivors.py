"""Items of HeteroSAg on losses and attackers.

Theorem 4, and Section V-A's number of attackers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import hetero
from mrsa_papers.harness import Context, Found, rows_to_frame, state
from mrsa_papers.harness._figures import COLOURS, LINES, WARNING, in_turn
from mrsa_papers.harness._intervals import binomial_interval

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

_RATES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)


def dropouts(context: Context) -> Found:
    """Return Theorem 4: the chance that two users or more survive in every subgroup."""
    trials = 20_000 if context.fast else 200_000
    cases = [(size, rate) for size in (4, 7) for rate in _RATES]
    numbers = (1, 5)
    rows: list[dict[str, Any]] = []
    generator = np.random.default_rng(context.seed)
    for size, rate in context.steps("Theorem 4: simulated dropouts", cases):
        for total in numbers:
            # users that stay in each subgroup of each simulated round
            remaining = generator.binomial(size, 1 - rate, (trials, total))
            count = int((remaining >= 2).all(axis=1).sum())
            # every interval holds together with chance .999
            low, high = binomial_interval(
                count, trials, 1 - 1e-3 / (len(cases) * len(numbers))
            )
            exact = hetero.costs.survival_probability(size, rate, total)
            rows.append(
                {
                    "n": size,
                    "p": rate,
                    "Z": total,
                    "formula": exact,
                    "simulated": count / trials,
                    "lower": low,
                    "upper": high,
                    "holds": low <= exact <= high,
                }
            )
    data = rows_to_frame(rows)
    smallest, many = (data[data["Z"] == total] for total in numbers)
    published = {(4, 0.1): 0.9963, (4, 0.2): 0.9728, (4, 0.5): 0.6875, (7, 0.5): 0.9375}
    formulas = {(int(r["n"]), r["p"]): r["formula"] for _, r in smallest.iterrows()}
    # one subgroup's chance, if it were that of all of them
    alone = smallest["formula"].to_numpy()
    single = bool(((many["lower"] <= alone) & (alone <= many["upper"])).all())
    fits = all(abs(formulas[case] - value) < 5e-5 for case, value in published.items())
    return Found(
        (
            state(
                "eq. (19), one subgroup, against simulation",
                bool(smallest["holds"].all()),
                paper="1 - n (1-p) p^(n-1) - p^n",
                ours=f"within all {len(smallest)} intervals of {trials} rounds",
                tolerance="exact intervals that hold together with chance .999",
            ),
            state(
                "eq. (19) as the chance for each and every subgroup",
                single,
                paper="eq. (19), whatever their number",
                ours=f"its power Z: {many['formula'].min():.3f}, not "
                f"{smallest['formula'].min():.3f}, for five subgroups at n = 4, p = .5",
                tolerance="simulated rounds of five subgroups",
                otherwise="our reading" if bool(many["holds"].all()) else "differs",
                note=(
                    "'in each subgroup' may mean one of them or all; eq. (19) is one's "
                    "chance"
                ),
            ),
            state(
                "values of eq. (19) at n = 4 and 7",
                fits,
                paper=_values(published),
                ours=_values({case: formulas[case] for case in published}),
                tolerance="four digits",
                note="recomputed by another program",
            ),
        ),
        data,
        "Lines: eq. (19) for one subgroup and its fifth power for five. Crosses: "
        "simulated rounds (intervals are thinner than the marks).",
    )


def _values(chances: dict[tuple[int, float], float]) -> str:
    return ", ".join(f"{value:.4f}" for value in chances.values())


def attackers(context: Context) -> Found:
    """Return Section V-A: how many attackers the median over a row's sums can take."""
    most = 31 if context.fast else 64
    rows = []
    for size in range(2, most + 1):
        matrix = hetero.segment_matrix("mc", size)
        fewest = min(len(row) for row in hetero.blocks_of(matrix))
        rows.append(
            {
                "G": size,
                "paper": 0.25 * size - 1,
                "whole": int(np.floor(0.25 * size - 1)),
                "exact": hetero.tolerated_byzantine(
                    matrix, weighted=False, max_nodes=1
                ).anywhere,
                "fewest sums": fewest,
            }
        )
    data = rows_to_frame(rows)
    equal = data["exact"] == data["whole"].clip(lower=0)
    wrong = data[~equal]
    # fewer than half of (G + 1)/2 sums, or of G/2
    law = [
        (size // 2 - 1) // 2 if size % 2 == 0 else (size - 1) // 4 for size in data["G"]
    ]
    five = data[data["G"] == 5].iloc[0]
    return Found(
        (
            state(
                "n_B <= 0.25 G - 1 against the exact number",
                wrong.empty,
                paper="every G",
                ours=f"equal for {int(equal.sum())} of {len(data)}: "
                f"{'all' if equal[data['G'] % 4 == 0].all() else 'not all'} multiples "
                "of 4; "
                f"too small elsewhere"
                if bool((wrong["exact"] > wrong["whole"]).all())
                else "too large somewhere",
                tolerance=f"exact, G = 2 to {most}",
                otherwise="paper errs",
                note=(
                    "an attacker spoils one sum of each segment, so fewer than half of "
                    "the fewest sums of a row may be attacked: (G+1)/2 sums for odd G, "
                    "G/2 for even"
                ),
            ),
            state(
                "exact number from the fewest sums of a row",
                law == data["exact"].tolist(),
                paper="(not in the paper)",
                ours="n_B < (fewest sums)/2 for every G",
            ),
            state(
                "Experiment 2 (G = 5, n_B = 1) against the paper's own bound",
                bool(five["paper"] >= 1),
                paper=f"n_B <= {five['paper']:g}",
                ours=f"n_B <= {int(five['exact'])}",
                otherwise="paper errs" if five["exact"] == 1 else "differs",
                note="the experiment breaks the printed bound and keeps the exact one",
            ),
        ),
        data,
        "Attackers that a median over the sums of a row can take, wherever they sit: "
        "the printed 0.25 G - 1 and the exact number.",
    )


def draw_survival(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the chance of two survivors in every subgroup.

    The columns are n, p, Z, formula and simulated.
    """
    ordered = data.sort_values(["n", "Z", "p"])
    for (size, total), rows, look in in_turn(
        ordered, ["n", "Z"], color=COLOURS, ls=LINES
    ):
        words = "one subgroup" if total == 1 else f"all of {total} subgroups"
        ax.plot(rows["p"], rows["formula"], **look | {"label": f"n = {size}, {words}"})
        seen = "simulated" if look["color"] == COLOURS[0] else ""
        ax.plot(rows["p"], rows["simulated"], "x", color="#333333", ms=6, label=seen)


def draw_attackers(ax: Axes, data: pd.DataFrame) -> None:
    """Draw tolerated attackers over groups (columns G, paper, exact)."""
    ax.step(data["G"], data["exact"], where="mid", color="#0072B2", label="exact")
    ax.plot(
        data["G"], data["paper"], color=WARNING, ls="--", label="printed, 0.25 G - 1"
    )
    ax.set_ylim(-0.7)
