"""Multi-RoundSecAgg's claims about accuracies, and how each is read and judged.

"Comparable" is read from paired differences over seeds: an interval that ends at most
one point below (IID) or two (non-IID, where the paper calls 1.53 points comparable in
Table 5). "Above" and "worst" ask for an interval on one side of 0. An interval that
lies on both sides of its bound decides nothing, however wide. Trainings differ by their
seeds, and an accuracy by the test samples: an interval is over both, of the paired
differences. Fewer seeds than the paper's five decide nothing about schemes that are near
each other: only the gap below all other schemes is judged then, in each seed over the
test samples. What the paper measured is printed only where ours is measured on the same
data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mrsa_jax._core.statistics import half_interval
from mrsa_papers.harness import Check, Interval, difference, interval, state
from mrsa_papers.harness._intervals import every, late_by, over_samples, spread
from mrsa_papers.multiround._training import LATE

if TYPE_CHECKING:
    import pandas as pd

    from mrsa_papers.multiround._training import Setting

RANDOM, WEIGHTED, PARTITION = "Random", "Weighted random", "User partition"
T6, T4, T3 = (f"Multi-RoundSecAgg (T={t})" for t in (6, 4, 3))

RATES_PICKED = "that each scheme's learning rate was picked on one pilot seed"
"""Words for a value that no interval over the other seeds contains."""

_COMPARABLE, _COMPARABLE_NON_IID = 1.0, 2.0  # points below
_AS_PRINTED = 2.0  # points between an accuracy and the printed one
_SEEDS = 5  # of the paper
_FAILS = 0.02  # share of the rounds, below which nothing is trained


class Reading(NamedTuple):
    """How accuracies were found, and what may stand next to them.

    Attributes:
        seeds: Trainings of each scheme.
        rounds: Of each training.
        is_own: Whether data and settings are the paper's own.
        is_picked: Whether each scheme's learning rate was picked on a pilot seed.
        parts: By panel and scheme f64 [seeds, G], late accuracies on G parts of the test
            samples; empty where intervals are over seeds alone.
    """

    seeds: int
    rounds: int
    is_own: bool
    is_picked: bool = True
    parts: Mapping[tuple[str, str], np.ndarray] = {}

    @property
    def has_few(self) -> bool:
        """Whether the seeds are too few for the claims that schemes are near each other."""
        return self.seeds < _SEEDS

    @property
    def words(self) -> str:
        """Say what accuracies are means of."""
        picked = f"; they leave out {RATES_PICKED}" if self.is_picked else ""
        over = " over seeds and test samples" if self.parts else ""
        return (
            f"means over {self.seeds} paired seeds of the tests in the last fifth of "
            f"{self.rounds} rounds, {spread(self.seeds)}{over}{picked}"
        )

    def gap(
        self, late: Mapping[str, pd.Series], panel: str, first: str, other: str
    ) -> Interval:
        """Return how far a scheme lies above another, in points, seed by seed."""
        seeds = difference(late[first], late[other])
        one, two = (self.parts.get((panel, scheme)) for scheme in (first, other))
        if one is None or two is None:
            return seeds
        own = 100 * (late[first].to_numpy() - late[other].to_numpy())
        return over_samples(seeds, own, 100 * (one - two))

    def gaps(
        self, late: Mapping[str, pd.Series], panel: str, first: str
    ) -> list[tuple[str, Interval]]:
        """Return how far a scheme lies above the lowest other one, in each seed.

        In points, over the test samples, where all intervals hold at once with 95 %.
        """
        rest = [scheme for scheme in late if scheme != first]
        found = []
        for seed in range(self.seeds):
            other = min(rest, key=lambda scheme: float(late[scheme].iloc[seed]))
            one, two = (self.parts[panel, scheme][seed] for scheme in (first, other))
            mean = 100 * float(late[first].iloc[seed] - late[other].iloc[seed])
            half = half_interval(100 * (one - two), 1 - 0.05 / self.seeds)
            found.append((other, Interval(mean, float(half))))
        return found

    def printed(self, words: str, points: float) -> str:
        """Return a claim of the paper, with its number on the paper's own data."""
        return f"{words}: {points:+.2f} points" if self.is_own else words

    def beside(self, published: Mapping[str, float]) -> Mapping[str, float]:
        """Return the published accuracies that may stand beside ours."""
        return published if self.is_own else {}


def of_iid(
    frame: pd.DataFrame, panel: str, published: Mapping[str, float], read: Reading
) -> Iterator[Check]:
    """Judge the claims about IID data.

    All but user partition are alike, and that is worst.
    """
    late = late_by_scheme(frame, panel)
    if not read.has_few:
        yield from _alike(late, panel, read, read.beside(published))
        if T6 in late:
            yield _as_its_table(late, panel, published, read)
    yield _worst(late, panel, read)


def of_non_iid(
    frame: pd.DataFrame,
    panels: Sequence[str],
    published: Mapping[str, float],
    read: Reading,
) -> Iterator[Check]:
    """Judge the claims about non-IID data.

    T = 3, 4 beat random and equal weighted selection.

    Args:
        frame: The accuracies.
        panels: The panel with shuffled dropout rates, then that with rates by label, if
            any.
        published: The paper's accuracies by scheme.
        read: What the data can show.
    """
    panel, late = panels[0], late_by_scheme(frame, panels[0])
    if not read.has_few:
        trained = [scheme for scheme in (T4, T3) if scheme in late]
        for scheme in trained:
            yield _above(frame, panels, scheme, published, read)
        for scheme in trained:
            words = read.printed("comparable", published[scheme] - published[WEIGHTED])
            within = _COMPARABLE_NON_IID
            yield _comparable(late, scheme, WEIGHTED, panel, words, read, within=within)
        if T6 in late:
            yield _as_its_table(late, panel, published, read)
    yield _worst(late, panel, read)


def _above(
    frame: pd.DataFrame,
    panels: Sequence[str],
    scheme: str,
    published: Mapping[str, float],
    read: Reading,
) -> Check:
    """Judge "outperforms random selection" under the assignment of rates that fits."""
    late = [late_by_scheme(frame, panel) for panel in panels]
    gaps = [
        read.gap(of_assignment, own, scheme, RANDOM)
        for own, of_assignment in zip(panels, late, strict=True)
    ]
    how = ("shuffled rates", "rates by label")
    # one answer for each assignment of rates
    holds = [gap.exceeds(0) for gap in gaps]
    said = {True: "holds", None: "undecided", False: "fails"}
    fits = (
        "both agree"
        if all(holds)
        else " and ".join(
            f"{said[is_so]} with {words}"
            for words, is_so in zip(how, holds, strict=False)
        )
    )
    opened = (
        "the paper does not say which clients have which dropout rate; its first "
        f"version gives them by label where data are non-IID: {fits}. "
        if len(panels) > 1
        else ""
    )
    accuracies = "; ".join(
        f"{words}: {shown(of_assignment, read.beside(published))}"
        for words, of_assignment in zip(how, late, strict=False)
    )
    under = " under one of the two" if len(panels) > 1 else ""
    return state(
        f"{scheme} against random, {panels[0]}",
        True if True in holds else every(holds),
        paper=read.printed("above", published[scheme] - published[RANDOM]),
        ours="; ".join(
            f"{words} {gap.text('+.1f')} points"
            for words, gap in zip(how, gaps, strict=False)
        ),
        tolerance=f"above: an interval over 0{under}; {read.words}",
        note=opened + accuracies,
    )


def of_figure8(frame: pd.DataFrame, setting: Setting, read: Reading) -> Iterator[Check]:
    """Judge the claims at other N and K: as in the main setting, or partition fails."""
    panel = setting.panel
    late = late_by_scheme(frame, panel)
    if not read.has_few:
        yield from _alike(late, panel, read, {})
    yield _worst(late, panel, read)
    # twice the paper's cohort
    if setting.cohort_size == 24:
        share = trained_share(frame, panel, PARTITION)
        ends = 100 * float(late[PARTITION].mean())
        yield state(
            f"user partition, {panel}",
            share <= _FAILS,
            paper="fails to train: no block is ever wholly available",
            ours=f"{100 * share:.2g} % of the rounds train; {ends:.1f} % accuracy, "
            f"{read.gap(late, panel, RANDOM, PARTITION)} points below random",
            tolerance=f"at most {100 * _FAILS:.0f} % of the rounds; {read.words}",
            note=(
                "dropout rates shuffled over the clients; with sorted ones (blocks of "
                "equal rates) blocks of 24 would be available in one round of twelve"
            ),
        )


def of_accuracies(
    frame: pd.DataFrame, panel: str, published: Mapping[str, float]
) -> Iterator[Check]:
    """Return the published accuracies beside ours, on the paper's own data set."""
    late = late_by_scheme(frame, panel)
    for scheme, value in published.items():
        if scheme not in late:
            continue
        # in percent, as printed
        ours = interval(100 * late[scheme])
        holds = ours.plus(-value).lies_within(_AS_PRINTED)
        yield state(
            f"{scheme}, {panel} (%)",
            holds,
            paper=f"{value:.2f}",
            ours=str(ours),
            tolerance=f"an interval within {_AS_PRINTED:g} points",
            note="the paper states neither rounds nor the seeds' spread; intervals "
            f"leave out {RATES_PICKED}",
            of_data=False,
        )


def late_by_scheme(frame: pd.DataFrame, panel: str) -> dict[str, pd.Series]:
    """Return each scheme's accuracy of each seed, late in its trainings."""
    return late_by(frame[frame["panel"] == panel], "scheme", share=LATE)


def trained_share(frame: pd.DataFrame, panel: str, scheme: str) -> float:
    """Return the share of rounds that were not skipped, over all seeds."""
    rows = frame[(frame["panel"] == panel) & (frame["scheme"] == scheme)]
    # the last test of each seed counts all of its rounds
    ends = rows.groupby("seed")[["trained rounds", "round"]].max().sum()
    return float(ends["trained rounds"] / ends["round"])


def shown(late: Mapping[str, pd.Series], published: Mapping[str, float]) -> str:
    """Return every scheme's accuracy with its interval and the published one."""
    beside = {scheme: f" (paper {value:.2f})" for scheme, value in published.items()}
    return ", ".join(
        f"{scheme} {interval(100 * values)} %{beside.get(scheme, '')}"
        for scheme, values in late.items()
    )


def _alike(
    late: Mapping[str, pd.Series],
    panel: str,
    read: Reading,
    published: Mapping[str, float],
) -> Iterator[Check]:
    """Judge that T = 4 and 3 equal random selection."""
    words, note = "comparable to random selection's", shown(late, published)
    return (
        _comparable(late, scheme, RANDOM, panel, words, read, note=note)
        for scheme in (T4, T3)
        if scheme in late
    )


def _comparable(
    late: Mapping[str, pd.Series],
    scheme: str,
    other: str,
    panel: str,
    words: str,
    read: Reading,
    *,
    note: str = "",
    within: float = _COMPARABLE,
) -> Check:
    # in points, seed by seed
    gap = read.gap(late, panel, scheme, other)
    return state(
        f"{scheme} against {other.lower()}, {panel}",
        gap.reaches(-within),
        paper=words,
        ours=f"{gap.text('+.1f')} points",
        note=note,
        tolerance=f"an interval that ends at most {within:g} points below; "
        f"{read.words}",
    )


def _as_its_table(
    late: Mapping[str, pd.Series],
    panel: str,
    published: Mapping[str, float],
    read: Reading,
) -> Check:
    """Judge T = 6 by the sign of its own table.

    The text speaks of all T, the tables differ.
    """
    gap = read.gap(late, panel, T6, RANDOM)
    paper = published[T6] - published[RANDOM]
    is_alike = abs(paper) <= _COMPARABLE
    # the table's own sign decides how its claim is read
    words, side = ("above", "over 0") if paper > 0 else ("below", "below 0")
    if is_alike:
        words, side = "alike", f"within {_COMPARABLE:g} point"
    holds = (
        gap.lies_within(_COMPARABLE)
        if is_alike
        else (gap if paper > 0 else -gap).exceeds(0)
    )
    return state(
        f"{T6} against random, {panel}",
        holds,
        paper=read.printed(words, paper),
        ours=f"{gap.text('+.1f')} points",
        tolerance=f"an interval {side}; {read.words}",
        note=(
            "the text speaks of all Multi-RoundSecAgg schemes; for T = 6 its own table "
            "is what counts here"
        ),
    )


def _worst(late: Mapping[str, pd.Series], panel: str, read: Reading) -> Check:
    """Judge that user partition is worst."""
    if read.has_few and read.parts:
        gaps = read.gaps(late, panel, PARTITION)
        holds = every((-gap).exceeds(0) for _, gap in gaps)
        words = "; ".join(f"{gap.text('+.1f')} points, {rest}" for rest, gap in gaps)
        ours = f"user partition against the next worst, by seed: {words}"
        rule = (
            "in each seed an interval below 0 over the test samples, which both "
            "trainings classify, all at once with 95 %; means of the tests in the last "
            f"fifth of {read.rounds} rounds; fewer than {_SEEDS} seeds decide no other "
            "claim"
        )
    else:
        means = {scheme: float(values.mean()) for scheme, values in late.items()}
        # the worst of all other schemes
        rest = min((s for s in means if s != PARTITION), key=lambda s: means[s])
        gap = read.gap(late, panel, PARTITION, rest)
        holds = (-gap).exceeds(0)
        ours = (
            f"user partition {gap.text('+.1f')} points against the next worst, {rest}"
        )
        rule = f"a 95 % interval below 0; {read.words}"
    return state(
        f"worst scheme, {panel}",
        holds,
        paper="user partition",
        ours=ours,
        tolerance=rule,
    )
