"""Items of HeteroSAg on losses and attackers.

Theorem 4, and Section V-A's number of attackers.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import hetero
from mrsa_papers.harness import Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._figures import COLOURS, LINES, WARNING, in_turn
from mrsa_papers.harness._intervals import binomial_interval
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd


_MOST_GROUPS = 128  # whose matrices are gone through in a minute


def dropouts(context: Context, settings: Values) -> Found:
    """Return Theorem 4: the chance that two users or more survive in every subgroup."""
    context.begin()
    trials = settings.num_trials
    cases = list(itertools.product(settings.subgroup_sizes, settings.dropout_rates))
    numbers = (1, settings.num_subgroups)
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
    # one subgroup's chance, if it were that of all of them
    alone = smallest["formula"].to_numpy()
    single = bool(((many["lower"] <= alone) & (alone <= many["upper"])).all())
    fits = [
        _is_equal(row["formula"], int(row["n"]), row["p"])
        for _, row in smallest.iterrows()
    ]
    least = int(many["formula"].to_numpy().argmin())
    one, together = smallest.iloc[least], many.iloc[least]
    return Found(
        (
            state(
                "eq. (19), one subgroup, against simulation",
                bool(smallest["holds"].all()),
                depends=(),
                paper="1 - n (1-p) p^(n-1) - p^n",
                ours=f"within all {len(smallest)} intervals of {trials} rounds",
                tolerance="exact intervals that hold together with chance .999",
            ),
            state(
                "eq. (19) as the chance for each and every subgroup",
                single,
                depends=(),
                paper="eq. (19), whatever their number",
                ours=f"its power Z: {together['formula']:.3f}, not "
                f"{one['formula']:.3f}, for {settings.num_subgroups} subgroups at n = "
                f"{one['n']:.0f}, p = {one['p']:g}",
                tolerance=f"simulated rounds of {settings.num_subgroups} subgroups",
                otherwise="our reading" if bool(many["holds"].all()) else "differs",
                note=(
                    "'in each subgroup' may mean one of them or all; eq. (19) is one's "
                    "chance"
                ),
            ),
            state(
                "values of eq. (19) against fractions",
                all(fits),
                ours=f"{sum(fits)} of {len(fits)} equal",
                tolerance="twelve digits",
            ),
        ),
        data,
        "Lines: eq. (19) for one subgroup and its power for "
        f"{settings.num_subgroups}. Crosses: "
        "simulated rounds (intervals are thinner than the marks).",
    )


def _is_equal(chance: float, size: int, rate: float) -> bool:
    """Return whether eq. (19) has a value by exact arithmetic."""
    p = Fraction(rate)
    exact = 1 - size * (1 - p) * p ** (size - 1) - p**size
    return math.isclose(chance, float(exact), rel_tol=1e-12)


def attackers(context: Context, settings: Values) -> Found:
    """Return Section V-A: how many attackers the median over a row's sums can take."""
    most = settings.most_groups
    require(
        most <= _MOST_GROUPS, "most_groups", f"must be at most {_MOST_GROUPS}", most
    )
    context.begin()
    trim, chain = settings.trim, settings.hybrid_threshold
    data = rows_to_frame(_bounds(size, trim, chain) for size in range(2, most + 1))
    equal = data["exact"] == data["whole"].clip(lower=0)
    wrong = data[~equal]
    # fewer than half of (G + 1)/2 sums, or of G/2
    law = [
        (size // 2 - 1) // 2 if size % 2 == 0 else (size - 1) // 4 for size in data["G"]
    ]
    experiment = _bounds(settings.num_groups, trim, chain)
    number = settings.num_byzantine
    others = [
        (_below_half(G - 1), _below_half(max((G + 1) // 2, min(chain, G - 1))))
        for G in data["G"]
    ]
    is_kept = (data[["SC", "HC"]].min(axis=1) >= data["whole"]).all()
    broken = data.loc[data["trimmed"] < data["whole"], "G"]
    return Found(
        (
            state(
                "n_B <= 0.25 G - 1 against the exact number",
                wrong.empty,
                depends=(),
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
                ours="n_B < (fewest sums)/2 for every G",
            ),
            state(
                "n_B <= 0.25 G - 1 under SC and HC too",
                bool(is_kept),
                depends=(),
                paper="MC alone is looked at",
                ours=f"tolerated by both for every G up to {most}; SC has G - 1 sums of "
                f"each segment, HC (T = {chain}) at least T and at least MC's",
                tolerance=f"exact, G = 2 to {most}",
                otherwise="paper errs",
            ),
            state(
                "exact numbers of SC and HC from the fewest sums of a row",
                others == list(zip(data["SC"], data["HC"], strict=True)),
                ours="n_B < (G - 1)/2 under SC, n_B < max(T, MC's sums)/2 under HC",
            ),
            state(
                f"n_B <= 0.25 G - 1 with a trimmed mean ({trim:g} at each end), MC",
                broken.empty,
                depends=(),
                paper="a median or a trimmed mean",
                ours="tolerated for every G"
                if broken.empty
                else f"too large from G = {broken.iloc[0]} on: of B sums {trim:g} B are "
                "trimmed, and B is about G/2",
                tolerance=f"exact, G = 2 to {most}",
                otherwise="paper errs",
                note="with fewer than half trimmed, 0.25 G - 1 needs trim near 1/2",
            ),
            state(
                f"Experiment 2 (G = {experiment['G']}, n_B = {number}) against the "
                "paper's own bound",
                bool(experiment["paper"] >= number),
                depends=("num_groups", "num_byzantine"),
                paper=f"n_B <= {experiment['paper']:g}",
                ours=f"n_B <= {experiment['exact']}",
                otherwise="paper errs" if experiment["exact"] >= number else "differs",
                note=(
                    f"the experiment {_fares(number, experiment['paper'])} the printed "
                    f"bound and {_fares(number, experiment['exact'])} the exact one"
                ),
            ),
        ),
        data,
        "Attackers that a median over the sums of a row can take, wherever they sit: "
        "the printed 0.25 G - 1 and the exact number.",
    )


def _fares(number: int, bound: int | float) -> str:
    """Return what so many attackers do to a bound."""
    return "keeps" if number <= bound else "breaks"


def _below_half(sums: int) -> int:
    """Return the most attacked sums that are fewer than half."""
    return max((sums - 1) // 2, 0)


def _bounds(size: int, trim: float, chain: int) -> dict[str, Any]:
    """Return for G groups the printed bound on attackers and the exact ones."""
    matrix = hetero.segment_matrix("mc", size)

    def most(name: str, trimmed: float | None = None) -> int:
        threshold = min(chain, size - 1) if name == "hc" else None
        chains = hetero.segment_matrix(name, size, threshold)
        return hetero.tolerated_byzantine(
            chains, trim=trimmed, weighted=False, max_nodes=1
        ).anywhere

    return {
        "G": size,
        "paper": 0.25 * size - 1,
        "whole": int(np.floor(0.25 * size - 1)),
        "exact": most("mc"),
        "SC": most("sc"),
        "HC": most("hc"),
        "trimmed": most("mc", trim),
        "fewest sums": min(len(row) for row in hetero.blocks_of(matrix)),
    }


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
    ax.step(data["G"], data["exact"], where="mid", color="#0072B2", label="median")
    ax.step(
        data["G"], data["trimmed"], where="mid", color="#009E73", label="trimmed mean"
    )
    ax.plot(
        data["G"], data["paper"], color=WARNING, ls="--", label="printed, 0.25 G - 1"
    )
    ax.set_ylim(-0.7)
