"""The sums of one part of the vector, or of whole updates, as a gate judges them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mrsa_watch._base.html import hidden_words
from mrsa_watch._base.untrusted import printable
from mrsa_watch._history import Figures, History
from mrsa_watch._rows import Row

# of how well one is hidden: what floats may take off blocks' exact figures
_TOLERANCE = 1e-9


class Verdict(NamedTuple):
    """Whether all bars hold with a sum, and why."""

    is_allowed: bool
    reason: str


class Bars(NamedTuple):
    """The requirements of a gate, and the effort to spend on them."""

    weak: int | None
    hidden: float | int | None
    effort: float


class Judged:
    """A history of sums of one vector, and which bars hold of it.

    Attributes:
        history: The sums.
        figures: What they leak; None while no client took part.
        name: Of the part of the vector; None for whole updates.
    """

    def __init__(self, bars: Bars) -> None:
        self.bars = bars
        self.history = History()
        self.figures: Figures | None = None
        self.name: str | None = None

    def of_part(self, name: str) -> Judged:
        """Return the same sums as those of a part, which were learnt in it too."""
        part = copy.deepcopy(self)
        part.name = name
        return part

    def add(self, names: Sequence[str], weights: Iterable[Fraction] | None) -> None:
        """Take a sum that was learnt."""
        self.history.join(names)
        row = Row.of(list(map(self.history.numbers.__getitem__, names)), weights)
        if self.history.add(row):
            self.figures = self.history.figures(self._search, self.bars.weak or 0)
        elif self.figures is not None:
            self.figures = dataclasses.replace(self.figures, is_searched=False)

    def row(
        self, names: Sequence[str], weights: Iterable[Fraction] | None
    ) -> tuple[Row, list[int]]:
        """Return the row of a cohort, and where in it each client is."""
        numbers = self.history.numbers
        new = self.history.fresh(names)
        if new:
            numbers = numbers | {
                name: number for number, name in enumerate(new, len(numbers))
            }
        places = [numbers[name] for name in names]
        rank = {place: at for at, place in enumerate(sorted(places))}
        return Row.of(places, weights), [rank[place] for place in places]

    def kind(self, name: str) -> int:
        """Return the class of clients with the same history; 0 without any sum."""
        number = self.history.numbers.get(name)
        return 0 if number is None else int(self.history.classes.of[number])

    def breaches(self) -> tuple[str, str]:
        """Return why weak T or hidden among is below its bar; "" where neither is."""
        figures = self.figures
        if figures is None:
            return "", ""
        return self._weak_breach(figures, "is"), self._hidden_breach(figures, "is")

    def verdicts(self, rows: Sequence[Row | None]) -> list[Verdict]:
        """Return of each row whether all bars hold with it, and why."""
        verb = "would be"
        now = "; ".join(filter(None, self.breaches()))
        verdicts = [Verdict(not now, now or "nothing new would be learnt")] * len(rows)
        open_cases = []
        for at, row in enumerate(rows):
            # a combination of earlier sums changes no figure, so that today's verdict
            # holds
            if row is None or not self.history.adds(row):
                continue
            figures = self.history.figures_with(row, self._search, self.bars.weak or 0)
            why = self._weak_breach(figures, verb)
            verdicts[at] = Verdict(not why, why or self._weak_words(figures, verb))
            if not why:
                open_cases.append((at, row, figures))
        if self.bars.hidden is None or not open_cases:
            return verdicts
        exposed = [figures.exposed for _, _, figures in open_cases]
        hidden = self.history.hidden_with([row for _, row, _ in open_cases], exposed)
        for (at, _, figures), values in zip(open_cases, hidden, strict=True):
            figures = dataclasses.replace(figures, hidden=values)
            why = self._hidden_breach(figures, verb)
            words = f"{verdicts[at].reason}; {self._hidden_words(figures, verb)}"
            verdicts[at] = Verdict(not why, why or words)
        return verdicts

    def _search(self, matrix: np.ndarray) -> tuple[int, int] | None:
        """Return bounds of weak T by a search; None if mrsa_jax is missing."""
        try:
            from mrsa_jax.privacy import weak_privacy
        except ImportError:
            return None
        weak = weak_privacy(matrix, effort=self.bars.effort)
        assert weak.lower is not None
        assert weak.upper is not None
        return weak.lower, weak.upper

    def _named(self, words: str) -> str:
        return f"in part {printable(self.name)}, {words}" if self.name else words

    def _weak_words(self, figures: Figures, verb: str) -> str:
        interval = str(figures.lower)
        if figures.lower != figures.upper:
            interval = f"between {figures.lower} and {figures.upper}"
        return self._named(f"weak T {verb} {interval}")

    def _weak_breach(self, figures: Figures, verb: str) -> str:
        bar = self.bars.weak
        if bar is None or figures.lower >= bar:
            return ""
        words = self._weak_words(figures, verb)
        if figures.upper < bar:
            return f"{words}, below {bar}"
        if figures.is_searched:
            more = "more effort may decide"
            return f"{words} at this effort: {bar} is not proven, {more}"
        more = "and nothing was searched for it (mrsa_jax does)"
        return f"{words}: {bar} is not proven, {more}"

    def _hidden_words(self, figures: Figures, verb: str) -> str:
        least = figures.least
        if least is None or figures.hidden is None:
            return self._named(
                "among how many the worst client is hidden is not known to nine digits"
            )
        names = self.history.names
        client = "a new client"
        if least < len(names):
            client = f"client {printable(names[least])}"
        size = hidden_words(float(figures.hidden[least]))
        return self._named(f"{client} {verb} hidden among {size}")

    def _hidden_breach(self, figures: Figures, verb: str) -> str:
        if self.bars.hidden is None:
            return ""
        words = self._hidden_words(figures, verb)
        hidden = figures.hidden
        if hidden is None:
            return words
        is_held = hidden.min() >= self.bars.hidden * (1 - _TOLERANCE)
        return "" if is_held else f"{words}, below {self.bars.hidden:g}"
