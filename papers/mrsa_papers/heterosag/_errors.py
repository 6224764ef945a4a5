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
    _figures as draw,
    compare,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._rows import printed_in
from mrsa_papers.heterosag import _training as training

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_DIM = 199_210
# Experiment 1's bounds over (r2 - r1)^2, by another program.
_VERIFIED: dict[str, float] = printed_in("heterosag")["bounds"]


def error_bounds(context: Context) -> Found:
    """Return the bounds (11) to (18): against counting, exact errors and simulation."""
    trials = 20 if context.fast else 200
    steps = context.steps("Theorem 2: quantization errors", _VERIFIED)
    data = rows_to_frame(
        row for name in steps for row in _measured(context.seed, name, trials)
    )
    halfway, uniform = (
        data[data["updates"] == kind] for kind in ("halfway", "uniform")
    )
    four = [_counted(name, _DIM) for name in ("SC", "HC (T = 3)", "HC (T = 2)", "MC")]
    # five standard errors of the mean, for dozens of comparisons at once
    inside = data["simulated"].sub(data["exact"]).abs() <= 5 * data["error"]
    return Found(
        (
            *_experiment_1(),
            *_closed_forms(context),
            state(
                "Remark 4: SC has the smaller error, MC the larger",
                four == sorted(four),
                paper="ordered",
                ours="SC < HC(3) < HC(2) < MC"
                if four == sorted(four)
                else "not ordered",
                tolerance="Experiment 1's groups and levels",
            ),
            state(
                "error of rounded updates, simulated, against its exact value",
                bool(inside.all()),
                paper="eq. (21), step (c)",
                ours=f"{int(inside.sum())} of {len(data)} within five standard errors",
                tolerance=f"{trials} roundings, two kinds of updates",
            ),
            state(
                "exact error against the bound (11)",
                bool((data["exact"] <= data["bound"] * (1 + 1e-5)).all()),
                paper="at most",
                ours=f"equal where values lie halfway between levels "
                f"({_share(halfway)} of the bound), {_share(uniform)} for uniform "
                "values",
                tolerance="every scheme",
            ),
        ),
        data,
        f"N = {training.NUM_CLIENTS}, five groups of four, K = {training.LEVELS}, over "
        "(r2 - r1)^2 and d. Bars: Theorem 2. Marks: exact errors and simulated ones, "
        "for values halfway between two levels (the worst) and for uniform ones.",
    )


def _share(data: pd.DataFrame) -> str:
    share = data["exact"] / data["bound"]
    low, high = f"{share.min():.3f}", f"{share.max():.3f}"
    return low if low == high else f"{low} to {high}"


def _counted(name: str, dim: int) -> float:
    """Return eq. (11), counted over users and segments as printed."""
    layout = training.layout_of(name, dim)
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


def _measured(seed: int, name: str, trials: int) -> list[dict[str, Any]]:
    """Round updates of 1000 coordinates and measure the error of their mean."""
    dim = 1000
    layout = training.layout_of(name, dim)
    levels = np.zeros((training.NUM_CLIENTS, dim))
    for row, (start, stop) in zip(layout.levels_of(), layout.bounds, strict=True):
        # in each segment a user has the levels of the sum that it is in
        levels[:, start:stop] = row[:, None]
    generator = np.random.default_rng(seed)
    uniform = generator.random((training.NUM_CLIENTS, dim)).astype(np.float32)
    # halfway between two levels the variance of rounding is largest
    halfway = ((np.floor(uniform * (levels - 1)) + 0.5) / (levels - 1)).astype(
        np.float32
    )
    bound = _counted(name, dim) / dim
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


def _experiment_1() -> Iterator[Check]:
    for name, verified in _VERIFIED.items():
        counted = _counted(name, _DIM)
        if name in training.SCHEMES:
            scheme, threshold = training.SCHEMES[name]
            closed = hetero.scheme_error_bound(
                scheme,
                training.LEVELS,
                training.GROUP_SIZE,
                _DIM,
                hybrid_threshold=threshold,
            )
        else:
            closed = hetero.quantization_error_bound(
                [[-1]], [int(name[4:])], training.NUM_CLIENTS, _DIM
            )
        agree = math.isclose(closed, counted, rel_tol=1e-12)
        close = agree and math.isclose(counted, verified, rel_tol=1e-12)
        yield state(
            f"Experiment 1, {name}: bound over (r2 - r1)^2",
            close,
            paper=f"{verified:.10g} (another program)",
            ours=f"{closed:.10g}",
            tolerance="closed form, counting of (11) and value to 12 digits",
        )


def _closed_forms(context: Context) -> Iterator[Check]:
    """Compare (16) to (18) with counting, for all ways to cut up to four groups."""
    most = 4 if context.fast else 6
    cuts = [
        parts
        for groups in ((2, 3) if context.fast else (2, 3, 4))
        for parts in itertools.product(range(1, most), repeat=groups)
    ]
    rows = []
    for parts in cuts:
        total, levels = sum(parts), training.LEVELS[: len(parts)]
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
    most_groups = 3 if context.fast else 4
    ways = f"all ways to cut up to {most_groups} groups into 1 to {most - 1} subgroups"
    yield state(
        "(12), (16) and (13), (17) against counting the matrices",
        bool(plain["equal"].all()),
        paper="SC+ and MC+",
        ours=f"{plain['equal'].sum()} of {len(plain)} equal",
        tolerance=ways,
    )
    is_last = bool(plus["equal"].all() and wrong["last"].all())
    yield state(
        "(18) as printed against counting",
        len(wrong) == 0,
        paper="HC+",
        tolerance=ways,
        ours=f"wrong in {len(wrong)} of {len(plus)} cases",
        otherwise="paper errs" if is_last else "differs",
        note=(
            "where g_T is the last group its subgroups are counted twice; without the "
            f"first term there, {plus['equal'].sum()} of {len(plus)} equal"
        ),
    )


def expansion(context: Context) -> Found:
    """Return Section VI-A's expansion factors, with whole bits and without."""
    checks = []
    for levels, who, summed, paper in printed_in("heterosag")["expansion"]:
        whole = hetero.costs.expansion_factor(levels, summed)
        real = hetero.costs.expansion_factor(levels, summed, rounded=False)
        name = f"K = {'2^16' if levels > 2 else '2'}, {who}"
        note = f"{real:.6f} by the formula as printed, without whole bits"
        checks.append(compare(name, paper, whole, tolerance=1e-12, note=note))
    rows = [
        {
            "K": levels,
            "summed": 2**power,
            "factor": hetero.costs.expansion_factor(levels, 2**power),
            "real bits": hetero.costs.expansion_factor(levels, 2**power, rounded=False),
        }
        for levels in (2, 16, 2**16)
        for power in range(1, 15)
    ]
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        "Bits of a residue mod |S| (K - 1) + 1 over bits of its code, by the number "
        "|S| of users that sum together. Marks: whole bits on the wire, as in the "
        "paper's numbers; lines: its formula.",
    )


def costs(context: Context) -> Found:
    """Return Section VI-A's growth of computation and communication, by counts."""
    sizes = (40, 80, 160, 320) if context.fast else (40, 80, 160, 320, 640, 1280)
    jobs = [("users N", n, (n, 4, 10_000)) for n in sizes]
    jobs += [("users a subgroup n", n, (10 * n, n, 10_000)) for n in (2, 4, 8, 16, 32)]
    jobs += [("parameters m", m, (40, 4, m)) for m in (10_000, 20_000, 40_000, 80_000)]
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
                paper=claim,
                ours=f"exponent {slope:.3f}",
                tolerance=f"within 0.1 of {power:g}",
            )
        )
    return Found(
        (*slopes, _few_pads()),
        data,
        "Counted over one round of MC with subgroups of n users (K = 2, power-of-two "
        "rings), against one sum of all users. m is the number of parameters.",
    )


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


def _few_pads() -> Check:
    """Count how many users share a pad with one in a coordinate."""
    layout = hetero.segment_layout("mc", [4] * 5, training.LEVELS, 5)
    # a segment is summed by one group or by two of them
    numbers = {len(block.members) - 1 for block in layout.blocks}
    return state(
        "pads on each coordinate of a user, its own apart",
        numbers == {3, 7},
        paper="n - 1 or 2n - 1",
        ours=" or ".join(str(number) for number in sorted(numbers)) + " at n = 4",
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
        name = "2^{16}" if levels == 2**16 else levels
        ax.plot(rows["summed"], rows["real bits"], color=look["color"], lw=1.2)
        look["label"] = f"$K = {name}$"
        ax.plot(rows["summed"], rows["factor"], ls="none", ms=5, **look)
    ax.axvline(14, color="#777777", lw=0.9, ls=":")
    top = (14, ax.get_ylim()[1])
    draw.beside(ax, "two subgroups of 7", top, (4, -10), fontsize=8, color="#555555")
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
