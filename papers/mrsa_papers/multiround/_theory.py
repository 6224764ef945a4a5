"""Items of Multi-RoundSecAgg that need few or no rounds.

Theorem 1, Remark 7, Theorem 3.
Paper values are those of the AAAI version; errata as docs/errata.md lists them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import modular, selection
from mrsa_jax.availability import independent
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    _figures as draw,
    compare,
    rows_to_frame,
    state,
    targets_of,
)
from mrsa_papers.harness._intervals import binomial_interval, every
from mrsa_papers.multiround._population import check_population, online_of, schemes_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

_SIMULATED = ((40, 8), (120, 12))  # N and K of the paper's own simulations


def theorem_1(context: Context, settings: Values) -> Found:
    """Return Figure 3: C against T by Theorem 1, in exact rationals, and simulated."""
    check_population(settings)
    context.begin()
    n, k = settings.num_clients, settings.cohort_size
    num_trials, num_rounds = settings.num_trials, settings.num_rounds
    rows = []
    jobs = itertools.product(settings.dropout_rates, settings.privacy_targets)
    for rate, target in context.steps("Figure 3: C against T", jobs):
        printed = float(_theorem_1_exactly(n, k, target, Fraction(repr(rate))))
        selector = selection.batch_partitioning(n, k, target)
        metrics = selection.rollout_metrics(
            context.seed, selector, independent(rate), num_rounds, num_trials
        )
        rows.append(
            {
                "p": rate,
                "T": target,
                "theorem": printed,
                "closed_form": selection.expected_cardinality(n, k, target, rate),
                # a round that is not skipped has all K clients
                "simulated": k * float(1 - np.asarray(metrics.skipped).mean()),
            }
        )
    data = rows_to_frame(rows)
    return Found(
        tuple(_theorem_1_checks(data, num_trials * num_rounds, k)),
        data,
        f"Expected number of clients in a round's sum at N = {n}, K = {k} for equal "
        "dropout rates p, which the paper's figure does not state: lines Theorem 1, "
        "crosses simulated.",
    )


def _theorem_1_checks(data: pd.DataFrame, rounds: int, k: int) -> Iterator[Check]:
    # the library's float formula against rationals
    gap = float((data["closed_form"] - data["theorem"]).abs().max())
    falls = all(
        (np.diff(curve.sort_values("T")["theorem"]) <= 1e-12).all()
        for _, curve in data.groupby("p")
    )
    share = (data["theorem"] / k).clip(0, 1)
    # Bernstein's bound for the mean of independent rounds, at a chance of 1e-6 over all
    # points.
    log = math.log(2 * len(data) / 1e-6)
    # Bernstein: the standard deviation's term, and one for rare large deviations
    slack = k * (
        np.sqrt(2 * share * (1 - share) * log / rounds) + 2 * log / (3 * rounds)
    )
    inside = ((data["simulated"] - data["theorem"]).abs() <= slack).all()
    worst = float((data["simulated"] - data["theorem"]).abs().max())
    yield compare(
        "largest gap to Theorem 1 in exact rationals",
        0.0,
        gap,
        tolerance=1e-9,
        depends=(),
    )
    yield state(
        "C against T",
        falls,
        depends=(),
        paper="falls as T rises (Remark 5)",
        ours="never rises" if falls else "rises somewhere",
        tolerance="every p, every T",
    )
    yield state(
        "simulated C against Theorem 1",
        bool(inside),
        depends=(),
        paper="equal in the mean",
        ours=f"at most {worst:.3f} apart over {rounds} rounds a point",
        tolerance="Bernstein's bound, chance 1e-6",
    )


def _theorem_1_exactly(n: int, k: int, target: int, rate: Fraction) -> Fraction:
    """Return C as Theorem 1 prints it, summed in rationals."""
    blocks, chosen = n // target, k // target
    # a block is away if one of its clients is
    q = 1 - (1 - rate) ** target
    # too few blocks are left for a cohort: the round is skipped
    few = range(blocks - chosen + 1, blocks + 1)
    # i blocks of N/T are away, independently with probability q
    tail = sum(math.comb(blocks, i) * q**i * (1 - q) ** (blocks - i) for i in few)
    return Fraction(k * (1 - tail))


def swaps_within_blocks(context: Context, settings: Values) -> Found:
    """Return Remark 7: swapping clients within a block leaves every sum as it was."""
    check_population(settings)
    context.begin()
    n, shape = settings.num_clients, (settings.num_clients, settings.dim)
    rng = np.random.default_rng(context.seed)
    updates = rng.integers(0, 2**32, shape, dtype=np.uint32).astype(np.uint64)
    schemes, online = schemes_of(settings), online_of(context, settings)
    rows = []
    for label, target in targets_of(schemes).items():
        history = np.asarray(
            selection.rollout(context.seed, schemes[label], online, settings.num_rounds)
        )
        # pairs where there are no blocks: such swaps must show
        swapped = updates[_shuffled_within(rng, n, 2 if target == 1 else target)]
        # sums modulo 2^32 are right modulo 2^64, cut off
        chosen = history.astype(np.uint64)
        before, after = (
            (chosen @ inputs).astype(np.uint32) for inputs in (updates, swapped)
        )
        sums, changed = history.any(axis=1).sum(), (before != after).any(axis=1).sum()
        rows.append(
            {
                "scheme": label,
                "T": target,
                "sums": int(sums),
                "changed_sums": int(changed),
            }
        )
    data = rows_to_frame(rows)
    blocks = data[data["T"] > 1]
    others = data[data["T"] == 1]
    checks = (
        compare(
            "sums changed by swaps within blocks",
            0,
            int(blocks["changed_sums"].sum()),
            depends=(),
        ),
        state(
            "the same swaps without blocks",
            bool((others["changed_sums"] > 0).all()),
            paper="separable",
            ours=(
                f"{int(others['changed_sums'].sum())} of {int(others['sums'].sum())} "
                "sums change"
            ),
            tolerance="at least one a scheme",
        ),
    )
    return Found(
        checks,
        data,
        "Clients' uint32 updates are permuted within blocks (within pairs where a "
        "scheme has no blocks). If all sums stay the same, no function of the sums, "
        "linear or not, tells the clients of a block apart.",
    )


def _shuffled_within(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Return a permutation that rotates each group of `size` consecutive clients."""
    order, grouped = np.arange(n), n - n % size
    groups = order[:grouped].reshape(-1, size)
    # a shift by 1 to size - 1 moves every client of a group
    order[:grouped] = np.roll(groups, 1 + int(rng.integers(size - 1)), axis=1).ravel()
    return order


def full_rank(context: Context, settings: Values) -> Found:
    """Return Theorem 3.

    The chance that N rounds of random selection determine every update.
    """
    draws = settings.num_draws
    sizes = [_population(text) for text in settings.populations]
    context.begin()
    rows = []
    jobs = itertools.product(sizes, ("iid", "K-uniform"))
    for (n, k), kind in context.steps("Theorem 3: full rank", jobs):
        first = _rounds_to_full_rank(context.seed, n, k, kind, draws)
        bound = selection.full_rank_bound(n, k) if kind == "iid" else math.nan
        rows += [
            {
                "N": n,
                "K": k,
                "selection": kind,
                "rounds": rounds,
                "full_rank": float((first <= rounds).mean()),
                "bound": bound,
            }
            for rounds in range(n - 2, n + 13)
        ]
    data = rows_to_frame(rows)
    return Found(
        tuple(_theorem_3_checks(data, draws)),
        data,
        f"Share of {draws} histories whose participation matrix has rank N, ranks by "
        "drawn primes. Crosses: the bound (32) for i.i.d. selection with its o(1) set "
        "to 0; (31) has no numeric value (its constant is unknown): only how it falls "
        "is judged.",
    )


def _population(text: str) -> tuple[int, int]:
    """Return N and K of `"N:K"`, or raise."""
    is_pair = re.fullmatch(r"[0-9]{1,5}:[0-9]{1,5}", text) is not None
    n, k = map(int, text.split(":")) if is_pair else (0, 0)
    rule = "must be N:K with N of at least 2 and K from 1 to N"
    require(n >= 2 and 1 <= k <= n, "populations", rule, text)
    return n, k


def _rounds_to_full_rank(
    seed: int, n: int, k: int, kind: str, draws: int
) -> np.ndarray:
    """Return the round in which each history first has rank n, at most n + 13."""
    # the figure ends there
    horizon = n + 12
    selector = (
        selection.bernoulli(n, k / n) if kind == "iid" else selection.uniform(n, k)
    )
    # nobody is away: each client joins with chance K/N, or exactly K do
    first_full, online = [], independent(0.0)
    at_once = max(1, min(_AT_ONCE, _MOST_ENTRIES // (n * horizon)))
    for chunk, first in enumerate(range(0, draws, at_once), start=1):
        # far apart, so that chunks of neighbouring seeds do not meet
        chunk_seed, count = (seed + 7919 * chunk) % 2**32, min(at_once, draws - first)
        histories = selection.rollout_trials(
            chunk_seed, selector, online, horizon, count
        )
        first_full.append(_first_full(np.asarray(histories)))
    return np.concatenate(first_full)


def _first_full(histories: np.ndarray) -> np.ndarray:
    """Return after how many rounds each history has rank N (rounds + 1: never)."""
    _, horizon, n = histories.shape
    # True where rank N is reached in the first N rounds, and so in round N
    is_full = np.zeros(len(histories), np.bool_)
    # ranks of all after N rounds, no sooner, are the cheap part
    if len(histories) > _FEW:
        is_full = np.asarray(modular.rank(histories[:, :n])) == n
    first = np.where(is_full, n, horizon + 1)
    later = np.flatnonzero(~is_full)
    if later.size:
        # few compiled sizes
        padded = np.resize(later, 1 << (int(later.size) - 1).bit_length())
        ranks = np.asarray(modular.rank_trajectory(histories[padded]))[: later.size]
        reached = ranks == n
        # argmax gives the first True, but 0 also without any: hence the last column's
        # test
        first[later] = np.where(reached[:, -1], reached.argmax(axis=1) + 1, horizon + 1)
    return first


_AT_ONCE, _MOST_ENTRIES = 1000, 2**25
_FEW = 256  # histories for which one compiled program is cheaper than two


def _theorem_3_checks(data: pd.DataFrame, draws: int) -> Iterator[Check]:
    at_n = data[data["rounds"] == data["N"]]
    for _, row in at_n[at_n["selection"] == "iid"].iterrows():
        rate, bound = float(row["full_rank"]), float(row["bound"])
        # a bound near 1 has almost no variance; one history in `draws` is the least
        # that can show
        error = math.sqrt(max(bound * (1 - bound), 1 / draws) / draws)
        yield state(
            f"i.i.d. selection, N = {row['N']}, K = {row['K']}: P(full rank) after N "
            "rounds",
            rate >= bound - 4.9 * error,
            paper=f"at least {bound:.6g}",
            ours=f"{rate:.4f}",
            tolerance="4.9 standard errors (chance 1e-6)",
            otherwise="differs"
            if (row["N"], row["K"]) in _SIMULATED
            else "our reading",
            note=_sizes_words("(32) with its o(1) set to 0", row),
        )
    uniform = at_n[at_n["selection"] == "K-uniform"]
    row = uniform.iloc[int(uniform["N"].to_numpy().argmax())]
    rate, is_simulated = float(row["full_rank"]), (row["N"], row["K"]) in _SIMULATED
    is_high = rate > (0.9 if row["N"] < 120 else 0.99)
    yield state(
        f"K-uniform selection, N = {row['N']}: P(full rank) after N rounds",
        # a limit is not refuted by few clients
        is_high if is_high or is_simulated else None,
        paper="tends to 1 (Remark 11: high probability for t >= N)",
        ours=f"{rate:.4f}",
        tolerance="above 0.99 at N = 120 (0.9 at N = 40)",
        note=_sizes_words("", row),
    )
    yield _decays(at_n[at_n["selection"] == "K-uniform"], draws)
    before = data[data["rounds"] < data["N"]]["full_rank"].max()
    yield compare("P(full rank) before round N", 0.0, float(before))


def _sizes_words(note: str, row: pd.Series) -> str:
    """Add to a note that the paper does not simulate these sizes, if so."""
    words = f"the paper does not simulate N = {row['N']}, K = {row['K']}"
    is_simulated = (row["N"], row["K"]) in _SIMULATED
    return note if is_simulated else "; ".join(filter(None, (note, words)))


def _decays(at_n: pd.DataFrame, draws: int) -> Check:
    """Judge (31), whose c' is not given.

    That of the fewest clients must do for more of them.
    """
    holds, words = [], []
    for share, rows in at_n.groupby(at_n["K"] / at_n["N"]):
        if len(rows) < 2:
            continue
        ends = [
            binomial_interval(round(draws * (1 - rate)), draws, _LEVEL)
            for rate in rows["full_rank"]
        ]
        sizes = rows["N"].tolist()
        # c' that the ends of the first interval allow, by 2 exp(-c' N) = the chance
        # the upper end of the chance allows the slowest decay
        slow, fast = (-math.log(end / 2) / sizes[0] for end in reversed(ends[0]))
        for n, (low, high) in zip(sizes[1:], ends[1:], strict=True):
            # the chances that these c' predict for more clients
            limits = [2 * math.exp(-rate * n) for rate in (fast, slow)]
            holds.append(
                # surely faster than any allowed c', surely slower than all, or open
                True if high <= limits[0] else False if low > limits[1] else None
            )
        parts = ", ".join(
            f"N = {n}: {1 - rate:.2g}"
            for n, rate in zip(sizes, rows["full_rank"], strict=True)
        )
        words.append(
            f"K/N = {share:g}, c' = {slow:.3f} to {fast:.3f}, {parts} are singular"
        )
    return state(
        "K-uniform selection: P(full rank) after N rounds as N grows, K/N fixed",
        every(holds) if holds else None,
        otherwise="differs" if at_n["N"].min() >= 20 else "our reading",
        paper="at least 1 - 2 exp(-c' N), (31)",
        ours="; ".join(words) or "no two sizes of the same K/N",
        tolerance=(
            f"c' by the fewest clients, {100 * _LEVEL:g} % intervals of {draws} "
            "histories"
        ),
        note=(
            "c' is not given, and some c' fits any finite number of sizes: judged is "
            "whether the chance falls as fast as (31) says from one size to the next"
        ),
    )


_LEVEL = 0.999  # of intervals of the chance of a singular matrix


_LOOKS: dict[str, Any] = {"color": draw.SHADES, "marker": draw.MARKERS}


def draw_cardinality(ax: Axes, data: pd.DataFrame) -> None:
    """Draw C against T, one line per dropout rate p.

    The columns are p, T, theorem and simulated.
    """
    for _, curve, look in draw.in_turn(data, "p", "p = {:g}", **_LOOKS):
        ax.plot(curve["T"], curve["theorem"], ms=5, **look)
        ax.plot(
            curve["T"], curve["simulated"], ls="none", marker="x", ms=9, color="#444444"
        )
    ax.plot([], [], ls="none", marker="x", ms=9, color="#444444", label="simulated")
    ends = {name: 1.05 * float(data[name].max()) for name in ("T", "theorem")}
    ax.set(xlim=(0, ends["T"]), ylim=(0, ends["theorem"] or 1.0))


def draw_swaps(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the share of sums that swaps change (columns scheme, sums, changed_sums)."""
    shares = 100 * data["changed_sums"] / data["sums"]
    places = np.arange(len(data))[::-1]
    colours = [draw.scheme_colour(label) for label in data["scheme"]]
    ax.barh(places, shares, color=colours, height=0.6)
    texts = data["changed_sums"].astype(str) + " of " + data["sums"].astype(str)
    for place, text, share in zip(places, texts, shares, strict=True):
        draw.beside(ax, text, (share, place), (6, 0), va="center", fontsize=10)
    ax.set_yticks(places, [draw.short(label) for label in data["scheme"]])
    ax.grid(axis="y", visible=False)


def draw_full_rank(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the chance of full rank.

    The columns are N, K, selection, rounds, full_rank and bound.
    """
    for (n, k), both, look in draw.in_turn(data, ["N", "K"], **_LOOKS):
        for kind, curve in both.groupby("selection"):
            is_iid = kind == "iid"
            line = (
                {"ls": "-", "label": f"N = {n}, K = {k}"}
                if is_iid
                else {"ls": ":", "label": ""}
            )
            ax.plot(curve["rounds"] - n, curve["full_rank"], ms=4, **look | line)
            if is_iid:
                bound = curve["bound"].iloc[0]
                ax.plot([0], [bound], "x", ms=9, mew=2, color=draw.WARNING, zorder=5)
    ax.plot([], [], color="#444444", label="each client with chance K/N")
    ax.plot([], [], color="#444444", ls=":", label="exactly K a round")
    ax.plot([], [], "x", ms=9, mew=2, color=draw.WARNING, label="bound (32), o(1) = 0")
