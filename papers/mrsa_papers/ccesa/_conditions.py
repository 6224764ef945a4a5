"""CCESA's Theorems 1 and 2.

Their conditions against the pads themselves, in all small rounds.
Choi, Sohn, Han, Moon, Section 4.2 and Appendices C.1 to C.3. What a round gives away is
decided without components or informative neighbourhoods: each input stands in one
padded input alone, so a sum over some clients is known exactly where adding up their
padded inputs leaves no pad whose seed is unknown. Every graph, every way to be lost and
thresholds from 1 to n + 1 are gone through.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from mrsa_jax import secagg
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import COLOURS, MARKERS
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd


class Rounds(NamedTuple):
    """Many rounds: graphs, survivors and thresholds.

    The shapes are bool [B, n, n], bool [B, 5, n] and int [B, n].
    """

    graphs: np.ndarray
    alive: np.ndarray
    thresholds: np.ndarray


def reliable(context: Context, settings: Values) -> Found:
    """Return Theorem 1: the condition for the server to learn the sum over V_3."""
    data = _counted(context, settings)
    rounds = int(data["rounds"].sum())
    wrong, withheld = (
        int(data["reliable wrong"].sum()),
        int(data["reliable withheld"].sum()),
    )
    checks = (
        state(
            "rounds in which Theorem 1 and the pads disagree about the sum over V_3",
            wrong == 0,
            depends=(),
            paper="none: if and only if",
            ours=f"{wrong} of {rounds} ({int(data['reliable'].sum())} reliable)",
            tolerance=_every(settings),
        ),
        _as_step_3_prints(withheld, rounds, "Theorem 1"),
    )
    return Found(
        checks, data, _caption(settings, "reliable", "the sum over V_3 is learnt")
    )


def private(context: Context, settings: Values) -> Found:
    """Return Theorem 2: the condition for no sum over a part of V_3 to be learnt."""
    data = _counted(context, settings)
    rounds = int(data["rounds"].sum())
    names = (
        "private wrong",
        "private withheld",
        "connected wrong",
        "converse wrong",
        "connected",
    )
    wrong, withheld, leaks, converse, connected = (
        int(data[name].sum()) for name in names
    )
    checks = (
        state(
            "rounds in which Theorem 2 and the pads disagree about sums over parts of "
            "V_3",
            wrong == 0,
            depends=(),
            paper="none: if and only if",
            ours=f"{wrong} of {rounds} ({int(data['private'].sum())} private)",
            tolerance=_every(settings),
        ),
        state(
            "rounds whose G_3 is connected in which a part's sum is learnt (Lemma 1)",
            leaks == 0,
            depends=(),
            paper="none",
            ours=f"{leaks} of {connected}",
            tolerance=_every(settings),
        ),
        state(
            "rounds that leak nothing though all nodes of a component C_l are "
            "informative",
            converse == 0,
            depends=(),
            paper="none (proof of the converse)",
            ours=f"{converse} of {rounds}",
            tolerance=_every(settings),
            otherwise="paper errs",
            note=(
                "the theorem's own C_l+ is right: a neighbour in V_2 - V_3 that is not "
                "informative keeps its pads with the component unknown, which step (a) "
                "drops"
            ),
        ),
        _as_step_3_prints(withheld, rounds, "Theorem 2"),
    )
    return Found(
        checks,
        data,
        _caption(settings, "private", "no sum over a part of V_3 is learnt"),
    )


def _as_step_3_prints(wrong: int, rounds: int, theorem: str) -> Check:
    return state(
        f"rounds in which {theorem} and the pads disagree, no client sending its own "
        "share",
        wrong == 0,
        depends=(),
        paper="Step 3 sends shares of neighbours; Definition 3 counts the own one",
        ours=f"{wrong} of {rounds}",
        otherwise="our reading",
        note=(
            "the two are read by Definition 3: a client sends the share of its own b_i "
            "too"
        ),
    )


def _every(settings: Values) -> str:
    sizes = ", ".join(map(str, settings.num_sizes))
    largest = settings.largest_at_threshold_2
    more = f", and of {largest} at t = 2" * (largest not in settings.num_sizes)
    return f"every graph, every loss, every threshold of all; n = {sizes}{more}"


def _counted(context: Context, settings: Values) -> pd.DataFrame:
    """Count for each n and t the rounds in which each condition holds or is wrong."""
    for name in ("num_sizes", "largest_at_threshold_2"):
        most = max(np.atleast_1d(settings[name]).tolist())
        # of five clients there are 8 million rounds at each threshold
        require(most <= 4, name, "must be at most 4: all rounds are gone through", most)
    context.begin()

    def made() -> pd.DataFrame:
        jobs = [(n, t) for n in settings.num_sizes for t in range(1, n + 2)]
        if settings.largest_at_threshold_2 not in settings.num_sizes:
            jobs.append((settings.largest_at_threshold_2, 2))
        steps = context.steps("Theorems 1 and 2: all small rounds", jobs)
        return rows_to_frame(
            {"n": n, "t": t} | judged(every_round(n, t)) for n, t in steps
        )

    sizes = settings.num_sizes, settings.largest_at_threshold_2
    return context.once(("all small rounds", sizes), made)


def judged(rounds: Rounds) -> dict[str, int]:
    """Count the rounds in which each condition holds or contradicts the pads."""
    learnt, withheld = known_sums(rounds), known_sums(rounds, withheld_too=False)
    third = rounds.alive[:, 3]
    size = third.sum(axis=1)
    # V_3 as the number whose bits are its clients
    whole = third @ (1 << np.arange(third.shape[1]))
    joined = _joined(rounds)
    # pairs outside V_3 do not matter
    connected = (joined | ~_pairs(third)).all(axis=(1, 2))
    # clients of V_3 whose secrets cannot be rebuilt
    silent = third & ~_informative(rounds)
    closed = (joined & silent[:, None, :]).any(axis=2) | ~third  # by C_l and not C_l+
    held = {
        "reliable": np.asarray(secagg.is_reliable(*rounds)),
        "private": np.asarray(secagg.is_private(*rounds)),
    }
    true = {
        name: _truths(sums_known, whole, size)
        for name, sums_known in (("all", learnt), ("own", withheld))
    }
    # else all nodes of some component are informative, of which the proof claims a leak
    converse = connected | closed.all(axis=1)
    return {
        "rounds": len(size),
        "connected": int(connected.sum()),
        "connected wrong": int((connected & ~true["all"]["private"]).sum()),
        "converse wrong": int((~converse & true["all"]["private"]).sum()),
    } | {
        f"{name}{suffix}": int(value.sum())
        for name, claim in held.items()
        for suffix, value in (
            ("", claim),
            (" wrong", claim != true["all"][name]),
            (" withheld", claim != true["own"][name]),
        )
    }


def _truths(
    is_known: np.ndarray, whole: np.ndarray, size: np.ndarray
) -> dict[str, np.ndarray]:
    """Decide from the known sums which rounds are reliable and which are private."""
    at_whole = is_known[np.arange(len(whole)), whole]
    # neither the empty set nor V_3
    parts = is_known.sum(axis=1) - 1 - (at_whole & (whole > 0))
    return {"reliable": at_whole, "private": (parts == 0) | (size < 2)}


def known_sums(
    rounds: Rounds, *, withheld_too: bool = True
) -> Bool[np.ndarray, "rounds sets"]:
    """Return of each set of clients (the bits of its number) whether its sum is learnt.

    Args:
        rounds: The rounds.
        withheld_too: Whether clients send the shares of their own seeds, which Step 3
            does not print.

    Returns:
        True for the empty set, False for sets that reach outside V_3.
    """
    graphs, alive, n = rounds.graphs, rounds.alive, rounds.graphs.shape[-1]
    # clients whose secrets can be rebuilt
    seen = _informative(rounds, withheld_too=withheld_too)
    summed, lost = alive[:, 3], alive[:, 2] & ~alive[:, 3]
    # bit i of a set's number: whether client i is in it
    sets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    # a self pad is left on
    hidden = (sets[None] & ~(summed & seen)[:, None, :]).any(axis=2)
    for i, j in itertools.combinations(range(n), 2):
        # a pad is in the padded inputs if both ends are in V_2
        used = graphs[:, i, j] & alive[:, 2, i] & alive[:, 2, j]
        # the pads of a lost end are removed, if its secret comes back
        is_alone = (lost[:, i] & seen[:, i]) | (lost[:, j] & seen[:, j])
        both = sets[:, i] & sets[:, j]  # both added it, one with each sign
        rest = (sets[:, i] | sets[:, j]) & ~both
        # a pad of which the set holds one end alone stays on
        hidden |= (used & ~is_alone)[:, None] & rest[None]
    return ~hidden


def _informative(
    rounds: Rounds, *, withheld_too: bool = True
) -> Bool[np.ndarray, "rounds clients"]:
    # holders of a client's shares: its neighbours and itself
    holders = rounds.graphs | (
        np.eye(rounds.graphs.shape[-1], dtype=bool) & withheld_too
    )
    return (holders & rounds.alive[:, 4, None, :]).sum(axis=2) >= rounds.thresholds


def _joined(rounds: Rounds) -> Bool[np.ndarray, "rounds clients clients"]:
    """Return the pairs of clients of V_3 that a path through G_3 joins.

    Each client is joined with itself.
    """
    third = _pairs(rounds.alive[:, 3])
    reach = (rounds.graphs | np.eye(rounds.graphs.shape[-1], dtype=bool)) & third
    # squaring doubles the length of the paths
    for _ in range(rounds.graphs.shape[-1].bit_length()):
        reach = np.matmul(reach.astype(np.uint8), reach.astype(np.uint8)) > 0
    return reach


def _pairs(members: np.ndarray) -> np.ndarray:
    return members[:, :, None] & members[:, None, :]


def every_round(n: int, threshold: int) -> Rounds:
    """Return every graph on n clients with every way to be lost, at one threshold.

    Examples:
        >>> len(every_round(3, 1).graphs) == 2**3 * 6**3
        True
    """
    # a graph is a number whose bits are its edges
    pairs = list(itertools.combinations(range(n), 2))
    graphs = np.zeros((2 ** len(pairs), n, n), bool)
    for place, (i, j) in enumerate(pairs):
        graphs[:, i, j] = graphs[:, j, i] = np.arange(len(graphs)) >> place & 1
    # six ways: to leave before one of V_0 to V_4, or never
    last: Int[np.ndarray, "ways clients"] = np.indices((6,) * n).reshape(n, -1).T
    alive = last[:, None, :] > np.arange(5)[None, :, None]  # in how many of V_0 to V_4
    count, ways = len(graphs), len(alive)
    # each graph with all ways: repeated here, tiled there
    return Rounds(
        np.repeat(graphs, ways, axis=0),
        np.tile(alive, (count, 1, 1)),
        np.full((count * ways, n), threshold, np.int32),
    )


def _caption(settings: Values, name: str, words: str) -> str:
    return (
        f"Rounds of few clients: {_every(settings)}. Shown: the share that is {name} "
        f"({words}); crosses: rounds in which the theorem and the pads disagree."
    )


def draw_reliable(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the share of reliable rounds over the threshold.

    The columns are n, t, rounds and reliable.
    """
    _draw(ax, data, "reliable")


def draw_private(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the share of private rounds by threshold (columns n, t, rounds, private)."""
    _draw(ax, data, "private")


def _draw(ax: Axes, data: pd.DataFrame, name: str) -> None:
    for number, (n, rows) in enumerate(data.groupby("n")):
        shares, mark = 100 * rows[name] / rows["rounds"], MARKERS[number]
        ax.plot(
            rows["t"],
            shares,
            ms=6,
            color=COLOURS[number],
            marker=mark,
            label=f"n = {n}",
        )
        wrong = 100 * rows[f"{name} wrong"] / rows["rounds"]
        ax.plot(rows["t"], wrong, "x", color=COLOURS[number], ms=8)
    ax.plot([], [], "x", color="#444444", ms=8, label="theorem and pads disagree")
    ax.set_xticks(sorted(data["t"].unique()))
