"""Items of HeteroSAg on error and cost: equations (11) to (18), and Section VI-A.

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning". Errata as docs/errata.md lists them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import hetero
from mrsa_jax._core.streams import as_key, fold
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    _figures as draw,
    compare,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._rows import printed_in
from mrsa_papers.heterosag import _training as training
from mrsa_papers.heterosag._training import Groups, equal, hybrid, layout_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

# Experiment 1's bounds over (r2 - r1)^2 by another program, and what they are of.
_VERIFIED: dict[str, float] = printed_in("heterosag")["bounds"]
_VERIFIED_OF = (Groups((2, 4, 8, 10, 12), 4), 199_210)
_MOST_CUTS = 5_000  # whose matrices are counted, in Python


def error_bounds(context: Context, settings: Values) -> Found:
    """Return the bounds (11) to (18): against counting, exact errors and simulation."""
    groups, dim, trials = Groups.of(settings), settings.dim, settings.num_trials
    _check_bounds(settings, groups)
    context.begin()
    chains = [
        "SC",
        *map(hybrid, sorted(settings.hybrid_thresholds, reverse=True)),
        "MC",
    ]
    names = [*chains, *map(equal, settings.equal_levels)]
    steps = context.steps("Theorem 2: quantization errors", names)
    data = rows_to_frame(
        row for name in steps for row in _measured(context.seed, name, groups, trials)
    )
    halfway, uniform = (
        data[data["updates"] == kind] for kind in ("halfway", "uniform")
    )
    bounds = [_counted(name, dim, groups) for name in chains]
    # five standard errors of the mean, for dozens of comparisons at once
    inside = data["simulated"].sub(data["exact"]).abs() <= 5 * data["error"]
    return Found(
        (
            *(_bound_check(name, dim, groups) for name in names),
            *_closed_forms(settings),
            state(
                "Remark 4: SC has the smaller error, MC the larger",
                bounds == sorted(bounds),
                depends=(),
                paper="ordered",
                ours=" < ".join(chains) if bounds == sorted(bounds) else "not ordered",
                tolerance=f"{groups.words}",
            ),
            state(
                "error of rounded updates, simulated, against its exact value",
                bool(inside.all()),
                depends=(),
                paper="eq. (21), step (c)",
                ours=f"{int(inside.sum())} of {len(data)} within five standard errors",
                tolerance=f"{trials} roundings, two kinds of updates",
            ),
            state(
                "exact error against the bound (11)",
                bool((data["exact"] <= data["bound"] * (1 + 1e-5)).all()),
                depends=(),
                paper="at most",
                ours=f"equal where values lie halfway between levels "
                f"({_share(halfway)} of the bound), {_share(uniform)} for uniform "
                "values",
                tolerance="every scheme",
            ),
        ),
        data,
        f"N = {groups.num_clients}, {groups.words}, over (r2 - r1)^2 and d. Bars: "
        "Theorem 2. Marks: exact errors and simulated ones, for values halfway between "
        "two levels (the worst) and for uniform ones.",
    )


def _check_bounds(settings: Values, groups: Groups) -> None:
    """Raise unless the thresholds fit the groups, and the cuts can be gone through."""
    most = len(groups.levels) - 2
    rule = f"must lie in [2, {most}], as Theorem 2 has it for G = {most + 2}"
    require(most >= 2, "levels", "must have four values or more", groups.levels)
    for threshold in settings.hybrid_thresholds:
        require(2 <= threshold <= most, "hybrid_thresholds", rule, threshold)
    rule = "must be at most the number of `levels`"
    most_groups = settings.most_groups
    require(most_groups <= len(groups.levels), "most_groups", rule, most_groups)
    cuts = settings.most_subgroups**most_groups
    rule = f"must leave at most {_MOST_CUTS:,} ways to cut the groups"
    require(cuts <= _MOST_CUTS, "most_subgroups", rule, f"{cuts:,}")


def _share(data: pd.DataFrame) -> str:
    share = data["exact"] / data["bound"]
    low, high = f"{share.min():.3f}", f"{share.max():.3f}"
    return low if low == high else f"{low} to {high}"


def _counted(name: str, dim: int, groups: Groups) -> float:
    """Return eq. (11), counted over users and segments as printed."""
    layout = layout_of(name, dim, groups)
    return _equation_11(
        layout.levels_of(), [stop - start for start, stop in layout.bounds]
    )


def _equation_11(levels: np.ndarray, widths: Iterable[int]) -> float:
    """Return the bound for the levels of each segment's users, [segments, users]."""
    rows = zip(widths, levels.tolist(), strict=True)
    # fractions, so that equality with the closed forms is no matter of rounding
    total = sum(
        Fraction(width, (levels_of_row - 1) ** 2)
        for width, row in rows
        for levels_of_row in row
    )
    return float(total / (4 * levels.shape[1] ** 2))


def _measured(
    seed: int, name: str, groups: Groups, trials: int
) -> list[dict[str, Any]]:
    """Round updates of 1000 coordinates and measure the error of their mean."""
    dim = 1000
    layout = layout_of(name, dim, groups)
    levels = np.zeros((groups.num_clients, dim))
    for row, (start, stop) in zip(layout.levels_of(), layout.bounds, strict=True):
        # in each segment a user has the levels of the sum that it is in
        levels[:, start:stop] = row[:, None]
    generator = np.random.default_rng(seed)
    uniform = generator.random((groups.num_clients, dim)).astype(np.float32)
    # halfway between two levels the variance of rounding is largest
    halfway = ((np.floor(uniform * (levels - 1)) + 0.5) / (levels - 1)).astype(
        np.float32
    )
    bound = _counted(name, dim, groups) / dim
    rows = []
    for kind, updates in (("halfway", halfway), ("uniform", uniform)):
        measurements = []
        for trial in range(trials):
            codes, _ = hetero.encode(
                fold(as_key(seed), trial), updates, layout, (0.0, 1.0)
            )
            # of the mean over users, as the server decodes it
            gap = (np.asarray(codes, np.float64) / (levels - 1) - updates).mean(axis=0)
            measurements.append(float((gap**2).sum()) / dim)
        rows.append(
            {
                "scheme": name,
                "updates": kind,
                "bound": bound,
                "exact": hetero.quantization_error(updates, layout, (0.0, 1.0)) / dim,
                "simulated": float(np.mean(measurements)),
                "error": float(np.std(measurements, ddof=1) / math.sqrt(trials)),
            }
        )
    return rows


def _bound_check(name: str, dim: int, groups: Groups) -> Check:
    """Compare a scheme's closed form with counting."""
    counted = _counted(name, dim, groups)
    if name.startswith("K = "):
        closed = hetero.quantization_error_bound(
            [[-1]], [int(name[4:])], groups.num_clients, dim
        )
    else:
        scheme, threshold = training.scheme_of(name)
        closed = hetero.scheme_error_bound(
            scheme, groups.levels, groups.size, dim, hybrid_threshold=threshold
        )
    agree = math.isclose(closed, counted, rel_tol=1e-12)
    words = "closed form and counting of (11) to 12 digits"
    if (groups, dim) == _VERIFIED_OF and name in _VERIFIED:
        agree = agree and math.isclose(counted, _VERIFIED[name], rel_tol=1e-12)
        words = "closed form, counting of (11) and another program's to 12 digits"
    return state(
        f"Experiment 1, {name}: bound over (r2 - r1)^2",
        agree,
        depends=(),
        paper="its closed form",
        ours=f"{closed:.10g}",
        tolerance=words,
    )


def _closed_forms(settings: Values) -> Iterator[Check]:
    """Compare (16) to (18) with counting, for all ways to cut some groups."""
    most, most_groups = settings.most_subgroups, settings.most_groups
    cuts = [
        parts
        for groups in range(2, most_groups + 1)
        for parts in itertools.product(range(1, most + 1), repeat=groups)
    ]
    rows = []
    for parts in cuts:
        total, levels = sum(parts), settings.levels[: len(parts)]
        hybrid = [("hc", threshold) for threshold in range(2, total - 1)]
        for scheme, threshold in (("sc", None), ("mc", None), *hybrid):
            matrix = hetero.segment_matrix_plus(scheme, parts, threshold)
            # of one user each; one coordinate a segment
            columns = np.repeat(levels, parts)
            # a matrix entry names the first subgroup of the block, whose quantizer all
            # of it takes
            own_levels = np.where(matrix < 0, columns, columns[np.maximum(matrix, 0)])
            counted = _equation_11(own_levels, [1] * total)
            words: Any = {"subgroups": parts, "hybrid_threshold": threshold}
            is_equal, is_printed = (
                math.isclose(
                    hetero.scheme_error_bound(
                        scheme, levels, 1, total, as_printed=limit, **words
                    ),
                    counted,
                    rel_tol=1e-12,
                )
                for limit in (False, threshold is not None)
            )
            # whether z_T lies in the last group, where (18) counts twice
            is_last = total - (threshold or 0) - 1 >= total - parts[-1]
            row = {"hybrid": scheme == "hc", "equal": is_equal, "printed": is_printed}
            rows.append(row | {"last": is_last})
    frame = rows_to_frame(rows)
    plain, plus = frame[~frame["hybrid"]], frame[frame["hybrid"]]
    wrong = plus[~plus["printed"]]
    ways = f"all ways to cut up to {most_groups} groups into 1 to {most} subgroups"
    yield state(
        "(12), (16) and (13), (17) against counting the matrices",
        bool(plain["equal"].all()),
        depends=(),
        paper="SC+ and MC+",
        ours=f"{plain['equal'].sum()} of {len(plain)} equal",
        tolerance=ways,
    )
    is_last = bool(plus["equal"].all() and wrong["last"].all())
    yield state(
        "(18) as printed against counting",
        len(wrong) == 0,
        depends=(),
        paper="HC+",
        tolerance=ways,
        ours=f"wrong in {len(wrong)} of {len(plus)} cases",
        otherwise="paper errs" if is_last else "differs",
        note=(
            "where g_T is the last group its subgroups are counted twice; without the "
            f"first term there, {plus['equal'].sum()} of {len(plus)} equal"
        ),
    )


def expansion(context: Context, settings: Values) -> Found:
    """Return Section VI-A's expansion factors, with whole bits and without."""
    context.begin()
    checks = []
    for levels, who, summed, paper in printed_in("heterosag")["expansion"]:
        if levels not in settings.levels or summed not in settings.num_summed:
            continue
        whole = hetero.costs.expansion_factor(levels, summed)
        real = hetero.costs.expansion_factor(levels, summed, rounded=False)
        name = f"K = {'2^16' if levels > 2 else '2'}, {who}"
        note = f"{real:.6f} by the formula as printed, without whole bits"
        checks.append(
            compare(name, paper, whole, tolerance=1e-12, note=note, depends=())
        )
    # doubled from 2, and the sizes themselves
    doubled = [2**power for power in range(1, max(settings.num_summed).bit_length())]
    sizes = sorted({*doubled, *settings.num_summed})
    data = rows_to_frame(
        {
            "K": levels,
            "summed": summed,
            "factor": hetero.costs.expansion_factor(levels, summed),
            "real bits": hetero.costs.expansion_factor(levels, summed, rounded=False),
            "residue bits": (summed * (levels - 1)).bit_length(),
        }
        for levels in settings.levels
        for summed in sizes
    )
    sent = data["factor"] * np.log2(data["K"].astype(float))
    is_whole = (sent - data["residue bits"]).abs() < 1e-9
    checks.append(
        state(
            "factors with whole bits against those of integers",
            bool(is_whole.all()),
            ours=f"{int(is_whole.sum())} of {len(data)} equal",
            tolerance="bits of the largest residue |S| (K - 1) over log2 K",
        )
    )
    return Found(
        tuple(checks),
        data,
        "Bits of a residue mod |S| (K - 1) + 1 over bits of its code, by the number "
        "|S| of users that sum together. Marks: whole bits on the wire, as in the "
        "paper's numbers; lines: its formula.",
    )


def costs(context: Context, settings: Values) -> Found:
    """Return Section VI-A's growth of computation and communication, by counts."""
    _check_costs(settings)
    context.begin()
    size, dim = settings.subgroup_size, settings.dim
    jobs = [("users N", n, (n, size, dim)) for n in settings.num_clients]
    # ten subgroups of each size
    jobs += [
        ("users a subgroup n", n, (10 * n, n, dim)) for n in settings.subgroup_sizes
    ]
    jobs += [
        ("parameters m", m, (min(settings.num_clients), size, m)) for m in settings.dims
    ]
    data = rows_to_frame(
        {"varied": varied, "at": at, "count": name, "value": value}
        for varied, at, words in context.steps("Section VI-A: counting rounds", jobs)
        for name, value in _round_costs(*words).items()
    )
    slopes: list[Check] = []
    for name, varied, power, claim in printed_in("heterosag")["powers"]:
        curve = data[(data["count"] == name) & (data["varied"] == varied)]
        # on log axes a power is a slope
        slope = float(np.polyfit(np.log(curve["at"]), np.log(curve["value"]), 1)[0])
        slopes.append(
            state(
                f"{name}, as a power of {varied}",
                abs(slope - power) <= 0.1,
                depends=(),
                paper=claim,
                ours=f"exponent {slope:.3f}",
                tolerance=f"within 0.1 of {power:g}",
            )
        )
    return Found(
        (*slopes, _few_pads(size)),
        data,
        f"Counted over one round of MC with subgroups of n users (n = {size}, m = "
        f"{dim:,} and N = {min(settings.num_clients)} where they do not vary; K = 2, "
        "power-of-two rings), against one sum of all users. m is the number of "
        "parameters.",
    )


def _check_costs(settings: Values) -> None:
    """Raise unless each number varies, and subgroups divide the users."""
    for name in ("num_clients", "subgroup_sizes", "dims"):
        rule = "must have two different values or more, whose growth is measured"
        require(len(set(settings[name])) >= 2, name, rule, settings[name])
    size = settings.subgroup_size
    for number in settings.num_clients:
        rule = f"must give two or more subgroups of {size} users each"
        fits = number % size == 0 and number >= 2 * size
        require(fits, "num_clients", rule, number)


def _round_costs(number: int, size: int, dim: int) -> dict[str, float]:
    columns = number // size
    words: Any = {"modulus_rule": "power_of_two"}
    layout = hetero.segment_layout("mc", [size] * columns, [2] * columns, dim, **words)
    counted = hetero.costs.segment_costs(layout)
    single = hetero.segment_layout("groups", [number], [2], dim, **words)
    return {
        "user: words of pads": float(counted.keystream_words.mean()),
        "user: words of pads, one sum of all": float(
            hetero.costs.segment_costs(single).keystream_words[0]
        ),
        "user: shares and agreements": float(
            (counted.shares + counted.key_agreements).mean()
        ),
        "user: bits of residues": float(counted.payload_bits.mean()),
        "server: words of pads": float(counted.server_keystream_words),
    }


def _few_pads(size: int) -> Check:
    """Count how many users share a pad with one in a coordinate."""
    layout = hetero.segment_layout("mc", [size] * 5, [2] * 5, 5)
    # a segment is summed by one group or by two of them
    numbers = {len(block.members) - 1 for block in layout.blocks}
    return state(
        "pads on each coordinate of a user, its own apart",
        numbers == {size - 1, 2 * size - 1},
        depends=(),
        paper="n - 1 or 2n - 1",
        ours=" or ".join(str(number) for number in sorted(numbers)) + f" at n = {size}",
    )


def draw_errors(ax: Axes, data: pd.DataFrame) -> None:
    """Draw bounds, exact and simulated errors of schemes."""
    names = list(dict.fromkeys(data["scheme"]))
    places = np.arange(len(names))
    bounds = data.drop_duplicates("scheme").set_index("scheme")["bound"]
    ax.bar(places, bounds[names], width=0.62, color="#d9e6ee", label="bound, Theorem 2")
    for kind, shift, colour in (
        ("halfway", -0.13, "#0072B2"),
        ("uniform", 0.13, "#009E73"),
    ):
        rows = data[data["updates"] == kind].set_index("scheme").loc[names]
        ax.plot(
            places + shift,
            rows["exact"],
            "_",
            ms=15,
            mew=2.2,
            color=colour,
            label=f"exact, {kind} values",
        )
        ax.plot(
            places + shift,
            rows["simulated"],
            "x",
            ms=6,
            mew=1.4,
            color="#333333",
            label="simulated" if kind == "uniform" else None,
        )
    ax.set_xticks(places, names)
    ax.grid(axis="x", visible=False)


def draw_expansion(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the expansion factor over the users of a sum.

    The columns are K, summed, factor and those of the paper.
    """
    for levels, rows, look in draw.in_turn(
        data, "K", color=draw.COLOURS[1:], marker=draw.MARKERS
    ):
        name = "2^{16}" if levels == 2**16 else f"{levels:,}"
        ax.plot(rows["summed"], rows["real bits"], color=look["color"], lw=1.2)
        look["label"] = f"$K = {name}$"
        ax.plot(rows["summed"], rows["factor"], ls="none", ms=5, **look)
    if 14 in set(data["summed"]):
        ax.axvline(14, color="#777777", lw=0.9, ls=":")
        words = {"fontsize": 8, "color": "#555555"}
        top = (14, ax.get_ylim()[1])
        draw.beside(ax, "two subgroups of 7", top, (4, -10), **words)
    ax.set_xscale("log", base=2)


def draw_costs(figure: Figure, data: pd.DataFrame) -> None:
    """Draw the costs over each of the three numbers."""
    figure.set_size_inches(14, 4)
    axes = draw.panels(figure, data, "varied", _draw_counts, title={"visible": False})
    axes[0].set_ylabel("count (log axis)")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _draw_counts(ax: Axes, data: pd.DataFrame) -> None:
    """Draw counted costs over the varied size, on log axes.

    The columns are at, count, value and varied.
    """
    looks: Any = {"color": draw.COLOURS, "marker": draw.MARKERS, "ls": draw.LINES}
    for _, rows, look in draw.in_turn(data, "count", **looks):
        ax.plot(rows["at"], rows["value"], ms=4.5, lw=1.4, **look)
    varied = str(data["varied"].iloc[0])
    ax.set(xscale="log", yscale="log", xlabel=varied)
    draw.log_ticks(ax, data["at"], ",")
