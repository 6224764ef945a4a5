"""A gate before each round: does privacy hold if a cohort's sum is learnt, and who must stay out?

Multi-RoundSecAgg, Remark 1 (weak T) and equation (5) (strong T), after every sum at the cost of the
sum alone; among how many each client is hidden beside them.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_watch._base.errors import check_count, check_number, require
from mrsa_watch._base.html import hidden_words
from mrsa_watch._base.untrusted import printable
from mrsa_watch._follow import follow
from mrsa_watch._history import Figures, History
from mrsa_watch._leave_out import fewest_left_out
from mrsa_watch._rows import Row
from mrsa_watch.logs import SCALE_RULE, LineParser, common_denominator, exact_weight

DEFAULT_EFFORT = 0.01
# Ways to leave out so many clients that are all tried: fewer for very many clients in all.
_LEAST_TRIED, _MOST_TRIED = 16, 256
_MOST_PASSED, _MOST_SEARCHED = 2 * 10**6, 2**14
_TOLERANCE = 1e-9  # of how well one is hidden: what floats may take off blocks' exact figures


@dataclasses.dataclass(frozen=True)
class GateState:
    """What a history leaks after the sums so far.

    Attributes:
        sums: Learnt sums that were added.
        clients: Clients who are in one of them.
        rank: Sums that are no combinations of earlier ones.
        exposed: Clients whose own update is a combination of the sums, in the order in which they
            came to be.
        strong: Strong T; None while nobody took part, as the figures below.
        lower: No combination of the sums involves fewer clients (weak T).
        upper: Some combination involves so many.
        hidden: As in one sum of how many the worst hidden client is; None also where it is not
            known to nine digits.
        hidden_client: Who that is.
        error_bits: k: something that was said of weak T or exposure is wrong with a chance below
            2**-k, whatever the history was made for.
        is_searched: Whether bounds that cost little left open after this sum whether weak T is at
            least `fail_below`, so that `effort` was spent on it.
        breaches: Each bar that does not hold, and why.
    """

    sums: int = 0
    clients: int = 0
    rank: int = 0
    exposed: tuple[Hashable, ...] = ()
    strong: int | None = None
    lower: int | None = None
    upper: int | None = None
    hidden: float | None = None
    hidden_client: Hashable = None
    error_bits: int = 0
    is_searched: bool = False
    breaches: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class GateAnswer:
    """Whether a cohort's sum may be learnt.

    Attributes:
        allowed: Whether all bars are known to hold with that sum.
        leave_out: Clients without whom they hold; nobody where it is allowed.
        reason: Why, in a sentence.
    """

    allowed: bool
    leave_out: tuple[Hashable, ...]
    reason: str


class Gate:
    """The privacy of a history that grows, and whether it bears one more sum.

    Choose it over `privacy.audit` while a system runs: each sum costs O(t N) for t independent sums
    of N clients and never the whole history again, and `check` asks about sums that have not been.
    It sees who takes part and never an update, and says the same whatever the updates are, so that
    a refusal tells nothing about them.

    Args:
        fail_below: Weak T that must be known of the history, an integer of at least 1; 2 means that
            nobody is exposed. None asks nothing.
        fail_below_hidden: As in one sum of how many each client must be hidden, noise not counted;
            to nine digits. None asks nothing.
        effort: What may be spent on weak T each time that cheap bounds leave `fail_below` open
            (`mrsa_jax.privacy.weak_privacy`, where it is installed); they never do for one of at
            most 3. What is not known fails.

    Raises:
        ConfigurationError: If a bar or the effort is no such number.

    Edge cases: while nobody took part nothing fails. A sum that is a combination of earlier ones
    changes nothing. Clients may be new at any time.

    Examples:
        >>> gate = Gate(fail_below=2)
        >>> gate.add(["anna", "bob", "cleo"]).lower
        3
        >>> yes, no = gate.check([["anna", "bob", "cleo"], ["anna", "bob", "cleo", "dan"]])
        >>> yes.allowed, no.leave_out
        (True, ('dan',))
        >>> no.reason
        'weak T would be 1, below 2'

    Source: Multi-RoundSecAgg, Remark 1 and equation (5); the gate is this package's.
    """

    def __init__(
        self,
        fail_below: int | None = None,
        fail_below_hidden: float | int | None = None,
        effort: float | int = DEFAULT_EFFORT,
    ) -> None:
        if fail_below is not None:
            check_count(fail_below, "fail_below", "must be an integer of at least 1")
        if fail_below_hidden is not None:
            rule = "must be a finite number of at least 1"
            check_number(fail_below_hidden, "fail_below_hidden", rule, 1.0)
        rule = "must be a finite number of at least 0"
        self._effort = check_number(effort, "effort", rule, 0.0)
        self._weak, self._hidden = fail_below, fail_below_hidden
        self._history = History()
        self._figures: Figures | None = None
        self._state = GateState()

    @property
    def state(self) -> GateState:
        """What the sums so far leak."""
        return self._state

    def add(
        self, clients: Collection[Hashable], weights: Collection[Any] | None = None
    ) -> GateState:
        """Take a sum that was learnt.

        Args:
            clients: Who is in it; a sum of nobody only counts. A mapping gives weights too.
            weights: Their known factors: positive integers, fractions, or text such as "3/7"; all 1
                if None. Only their proportions matter.

        Returns:
            What the sums leak now.

        Raises:
            ConfigurationError: If a client is named twice or a weight is none of these.
            MrsaError: If figures contradict each other (more independent sums than clients, or a
                lower bound above the upper one); from then on, no sum is taken or judged.
        """
        names, checked = _named(clients, weights)
        if names:
            self._history.join(names)
            row = Row.of([self._history.numbers[name] for name in names], checked)
            if self._history.add(row):
                self._figures = self._history.figures(self._search, self._weak or 0)
            elif self._figures is not None:
                self._figures = dataclasses.replace(self._figures, is_searched=False)
        self._state = self._stated(self._state.sums + 1)
        return self._state

    def check(
        self, candidates: Sequence[Collection[Hashable] | Mapping[Hashable, Any]]
    ) -> tuple[GateAnswer, ...]:
        """Return of each cohort whether its sum may be learnt next, and who must be left out.

        Nothing is remembered: a round that is refused or aborted changes nothing. Cohorts are
        judged each by itself; many at once share the passes over the history.

        The clients to leave out are the fewest wherever trying all ways to leave out so few takes
        at most 256 verdicts (down to 16 for very many clients): clients with the same history are
        alike, so only how many of each kind stay matters. Beyond that, kinds (whole classes of
        clients who only ever moved together first, then new clients) are kept as long as all bars
        hold, halving what is tried together, for up to four times as many verdicts. Everybody is
        left out where nothing less was found.

        Args:
            candidates: Cohorts; a mapping gives each client's weight.

        Raises:
            ConfigurationError: If `candidates` is one cohort and not several, or a cohort names a
                client twice.

        Cost: O(N + K) for each cohort where only weak T is asked for, and O(t K) with how well
        clients are hidden (K clients a sum).
        """
        is_several = isinstance(candidates, Sequence) and not isinstance(candidates, str)
        require(is_several, "candidates", "must be a sequence of cohorts", candidates)
        asked = [self._cohort(cohort) for cohort in candidates]
        reasons = self._reasons([row for _, row in asked])
        answers = []
        for (names, row), (is_allowed, reason) in zip(asked, reasons, strict=True):
            left: tuple[Hashable, ...] = ()
            if not is_allowed and row is not None:
                left = self._left_out(names, row)
            answers.append(GateAnswer(is_allowed, left, reason))
        return tuple(answers)

    @staticmethod
    def from_log(path: str | pathlib.Path, **settings: Any) -> Gate:
        """Return the gate after the learnt sums of a participation log, as far as lines are whole.

        Args:
            path: A log of `live.Recorder`.
            **settings: As for `Gate`.
        """
        gate = Gate(**settings)
        require(pathlib.Path(path).is_file(), "path", "must be a participation log", str(path))
        parser = LineParser(str(path))
        for found in parser.sums(follow(path, poll_seconds=None)):
            if found.status == "learnt":
                gate.add(found.clients, found.weights)
        return gate

    def _cohort(self, cohort: Collection[Hashable] | Mapping[Hashable, Any]) -> Any:
        """Return the names of a cohort by their numbers, and its row; None for that of nobody."""
        names, checked = _named(cohort, None)
        numbers = self._history.numbers
        own = {name: len(numbers) + k for k, name in enumerate(self._history.fresh(names))}
        places = [numbers.get(name, own.get(name, -1)) for name in names]
        return dict(zip(places, names, strict=True)), Row.of(places, checked) if names else None

    def _reasons(self, rows: Sequence[Row | None]) -> list[tuple[bool, str]]:
        """Return of each row whether all bars hold with it, and why."""
        now = self._state.breaches
        same = (not now, "; ".join(now) or "nothing new would be learnt")
        found = [same] * len(rows)
        asked = []
        for at, row in enumerate(rows):
            if row is None or not self._history.adds(row):
                continue
            figures = self._history.figures_with(row, self._search, self._weak or 0)
            why = self._weak_breach(figures, "would be")
            found[at] = not why, why or self._weak_words(figures, "would be")
            if not why:
                asked.append((at, row, figures))
        if self._hidden is None or not asked:
            return found
        exposed = [figures.exposed for _, _, figures in asked]
        hidden = self._history.hidden_with([row for _, row, _ in asked], exposed)
        for (at, _, figures), values in zip(asked, hidden, strict=True):
            figures = dataclasses.replace(figures, hidden=values)
            why = self._hidden_breach(figures, "would be")
            found[at] = not why, why or f"{found[at][1]}; {self._hidden_words(figures, 'would be')}"
        return found

    def _left_out(self, names: dict[int, Hashable], row: Row) -> tuple[Hashable, ...]:
        everybody = tuple(names[i] for i in row.places.tolist())
        if self._state.breaches:
            return everybody
        own = self._history.classes.of
        kinds = [int(own[i]) if i < len(own) else 0 for i in row.places.tolist()]

        def allowed(kept: list[np.ndarray]) -> list[bool]:
            parts = [
                None if not len(at) else Row(
                    row.places[at],
                    None if row.weights is None else tuple(row.weights[k] for k in at),
                )
                for at in kept
            ]  # fmt: skip
            return [is_allowed for is_allowed, _ in self._reasons(parts)]

        most = min(_MOST_TRIED, max(_LEAST_TRIED, _MOST_PASSED // max(1, len(own))))
        if (self._weak or 0) > 3:  # whose verdicts may take searches
            most = min(most, max(_LEAST_TRIED, _MOST_SEARCHED // max(1, len(own))))
        sizes = self._history.classes.sizes
        left = fewest_left_out(kinds, row.codes.tolist(), sizes, allowed, most)
        return tuple(everybody[k] for k in left)

    def _search(self, matrix: np.ndarray) -> tuple[int, int] | None:
        """Return bounds of weak T by a search; None where mrsa_jax, which has one, is not there."""
        try:
            from mrsa_jax.privacy import weak_privacy
        except ImportError:
            return None
        found = weak_privacy(matrix, effort=self._effort)
        assert found.lower is not None
        assert found.upper is not None
        return found.lower, found.upper

    def _stated(self, sums: int) -> GateState:
        figures = self._figures
        if figures is None:
            return GateState(sums)
        names, before = self._history.names, self._state
        known = set(before.exposed)
        new = (names[i] for i in np.flatnonzero(figures.exposed) if names[i] not in known)
        least, hidden = figures.least, figures.hidden
        breaches = (self._weak_breach(figures, "is"), self._hidden_breach(figures, "is"))
        return GateState(
            sums=sums,
            clients=int(np.count_nonzero(self._history.classes.of)),
            rank=self._history.rank,
            exposed=(*before.exposed, *new),
            strong=figures.strong,
            lower=figures.lower,
            upper=figures.upper,
            hidden=None if least is None or hidden is None else float(hidden[least]),
            hidden_client=None if least is None else names[least],
            error_bits=self._history.error_bits,
            is_searched=figures.is_searched,
            breaches=tuple(why for why in breaches if why),
        )

    def _weak_words(self, figures: Figures, verb: str) -> str:
        low, high = figures.lower, figures.upper
        interval = str(low) if low == high else f"between {low} and {high}"
        return f"weak T {verb} {interval}"

    def _weak_breach(self, figures: Figures, verb: str) -> str:
        if self._weak is None or figures.lower >= self._weak:
            return ""
        words = self._weak_words(figures, verb)
        if figures.upper < self._weak:
            return f"{words}, below {self._weak}"
        if figures.is_searched:
            return f"{words} at this effort: {self._weak} is not proven, more effort may decide"
        return (
            f"{words}: {self._weak} is not proven, and nothing was searched for it (mrsa_jax does)"
        )

    def _hidden_words(self, figures: Figures, verb: str) -> str:
        least, hidden = figures.least, figures.hidden
        if least is None or hidden is None:
            return "among how many the worst client is hidden is not known to nine digits"
        names = self._history.names
        who = f"client {printable(names[least])}" if least < len(names) else "a new client"
        return f"{who} {verb} hidden among {hidden_words(float(hidden[least]))}"

    def _hidden_breach(self, figures: Figures, verb: str) -> str:
        if self._hidden is None:
            return ""
        words = self._hidden_words(figures, verb)
        hidden = figures.hidden
        if hidden is None:
            return words
        is_held = hidden.min() >= self._hidden * (1 - _TOLERANCE)
        return "" if is_held else f"{words}, below {self._hidden:g}"


def _named(clients: Any, weights: Any) -> tuple[list[Hashable], list[Fraction] | None]:
    """Return the clients of a sum, and their weights as exact numbers, after checking them."""
    rule = "must be a collection of hashable names"
    is_one = isinstance(clients, Collection) and not isinstance(clients, str | bytes)
    require(is_one, "clients", rule, clients)
    names = list(clients)
    try:
        count = len(set(names))
    except TypeError:
        count = -1
    require(count >= 0, "clients", rule, clients)
    if count < len(names):
        twice = next(name for name, often in Counter(names).items() if often > 1)
        require(False, "clients", "must be named once each", twice)
    if isinstance(clients, Mapping):
        require(weights is None, "weights", "must be left out where clients are a mapping")
        weights = clients.values()
    if weights is None:
        return names, None
    given = list(weights) if isinstance(weights, Iterable) else []
    rule = f"must be {len(names)}, one for each client"
    require(len(given) == len(names), "weights", rule, weights)
    exact: list[Fraction] = []
    for weight in given:
        number = exact_weight(weight)
        rule = "must be positive integers, fractions, or text such as '3/7'"
        require(number is not None, "weights", rule, weight)
        exact += [] if number is None else [number]
    require(common_denominator(exact) is not None, "weights", SCALE_RULE)
    return names, exact
