"""A gate before each round: does privacy hold if a cohort's sum is learnt, and who must stay out?

Multi-RoundSecAgg, Remark 1 (weak T) and equation (5) (strong T), after every sum at the cost of the
sum alone; and how many clients each client is hidden among.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_watch._base.errors import check_count, check_number, require
from mrsa_watch._follow import follow
from mrsa_watch._gate_part import Bars, Judged
from mrsa_watch._history import Figures
from mrsa_watch._leave_out import fewest_left_out
from mrsa_watch._rows import Row
from mrsa_watch.logs import SCALE_RULE, LineParser, PartNames, common_denominator, exact_weight

DEFAULT_EFFORT = 0.01
# Ways to leave out so many clients that are all tried: fewer for very many clients in all.
_LEAST_TRIED, _MOST_TRIED = 16, 256
_ABOVE = math.nextafter(1.0, 2.0)
_MOST_PASSED, _MOST_SEARCHED = 2 * 10**6, 2**14


@dataclasses.dataclass(frozen=True)
class GateState:
    """What a history leaks after the sums so far.

    Attributes:
        sums: Learnt sums that were added.
        clients: Clients in at least one of them.
        rank: Sums that are no combinations of earlier ones.
        exposed: Clients whose update is a combination of the sums, in the order of their exposure.
        strong: Strong T; None while no client took part, as for the values below.
        lower: Weak T is at least this: no combination of the sums involves fewer clients.
        upper: Weak T is at most this: some combination involves this many.
        hidden: Size of a single sum that would hide the worst hidden client equally well; None also
            if it is not known to nine digits.
        hidden_client: The worst hidden client.
        error_bits: k such that a result on weak T or exposure is wrong with a chance below 2**-k,
            for any history.
        is_searched: Whether cheap bounds did not decide after this sum whether weak T is at least
            `fail_below`, so that `effort` allowed a search.
        breaches: Each requirement that does not hold, and why.
        parts: Parts of the vector, each evaluated by itself: all values above are then the worst of
            them, and `rank` is of all together. 0 if all sums are of whole updates.
        weak_part: The part with the smallest weak T.
        hidden_part: The part in which the worst hidden client is.
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
    parts: int = 0
    weak_part: str | None = None
    hidden_part: str | None = None


@dataclasses.dataclass(frozen=True)
class GateAnswer:
    """Whether a cohort's sum may be learnt.

    Attributes:
        allowed: Whether all requirements are known to hold with this sum.
        leave_out: Clients to exclude so that they hold; empty if the sum is allowed.
        reason: The reason, in a sentence.
    """

    allowed: bool
    leave_out: tuple[Hashable, ...]
    reason: str


class Gate:
    """Track the privacy of a growing history and check whether the next sum is acceptable.

    Choose it over `privacy.audit` while a system runs: each sum costs O(t N) for t independent sums
    of N clients, and never the whole history again. `check` asks about sums that were not learnt.
    It sees which clients take part and never an update, and its answers do not depend on updates,
    so a refusal reveals nothing about them.

    Args:
        fail_below: Least weak T that must be known of the history, an integer of at least 1; 2
            means that no client is exposed. None requires nothing.
        fail_below_hidden: Least size of a single sum that would hide each client equally well, to
            nine digits, noise not counted. None requires nothing.
        effort: Computing allowance for weak T each time that cheap bounds do not decide
            `fail_below` (`mrsa_jax.privacy.weak_privacy`, if it is installed); they always decide
            values of at most 3. What is not known fails.

    Raises:
        ConfigurationError: If a requirement or the effort is no such number.

    Edge cases: while no client took part, nothing fails. A sum that is a combination of earlier
    ones changes nothing. Clients may be new at any time.

    Examples:
        >>> from mrsa_watch import Gate
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
        effort = check_number(effort, "effort", rule, 0.0)
        self._bars = Bars(fail_below, fail_below_hidden, effort)
        self._whole = Judged(self._bars)
        self._judged = [self._whole]  # or, once there are parts of the vector, those alone
        self._parts = PartNames()
        self._state = GateState()

    @property
    def state(self) -> GateState:
        """What the sums so far leak."""
        return self._state

    def add(
        self,
        clients: Collection[Hashable],
        weights: Collection[Any] | None = None,
        part: str | None = None,
    ) -> GateState:
        """Take a sum that was learnt.

        Args:
            clients: Members of the sum; a sum without clients only counts. A mapping gives weights
                too.
            weights: Their known factors: positive integers, fractions, or text such as "3/7"; all 1
                if None. Only their proportions matter.
            part: Name of the part of the vector that the sum is over. None: of whole updates, so
                that it is learnt in every part.

        Returns:
            What the sums leak now.

        Raises:
            ConfigurationError: If a client is named twice or a weight is none of these.
            MrsaError: If results contradict each other (more independent sums than clients, or a
                lower bound above the upper one). From then on, no sum is taken or checked.
        """
        names, checked = _named(clients, weights)
        (own,) = self._asked_of(part) if part is not None else [self._whole]
        if part is not None and own not in self._judged:
            self._parts.add(part)
            self._judged = [*(one for one in self._judged if one.name is not None), own]
        if names:
            own.add(names, checked)
            for one in self._judged if part is None and own not in self._judged else ():
                one.add(names, checked)
        self._state = self._stated(self._state.sums + 1)
        return self._state

    def check(
        self,
        candidates: Sequence[Collection[Hashable] | Mapping[Hashable, Any]],
        part: str | None = None,
    ) -> tuple[GateAnswer, ...]:
        """Return for each cohort whether its sum may be learnt next, and which clients to exclude.

        Nothing is remembered: a round that is refused or aborted changes nothing. Each cohort is
        checked by itself; many at once share the passes over the history.

        The excluded clients are the fewest if trying all ways to exclude this many takes at most
        256 verdicts (down to 16 for very many clients): clients with the same history are alike, so
        only the number of each kind matters. Beyond that, kinds (whole classes of clients that
        always moved together first, then new clients) are kept as long as all requirements hold,
        halving what is tried together, for up to four times as many verdicts. If nothing less is
        found, all clients are excluded.

        Args:
            candidates: Cohorts; a mapping gives each client's weight.
            part: Name of the part of the vector that their sums would be over; None: of whole
                updates, which must be acceptable in all parts.

        Raises:
            ConfigurationError: If `candidates` is one cohort and not several, or a cohort names a
                client twice.

        Cost: O(N + K) for each cohort if only weak T is required, and O(t K) with hidden among (K
        clients per sum).
        """
        is_several = isinstance(candidates, Sequence) and not isinstance(candidates, str)
        require(is_several, "candidates", "must be a sequence of cohorts", candidates)
        cohorts = [_named(cohort, None) for cohort in candidates]
        asked = self._asked_of(part)
        rows = [[own.row(*cohort)[0] if cohort[0] else None for cohort in cohorts] for own in asked]
        answers = []
        for cohort, (is_allowed, reason) in zip(cohorts, self._reasons(asked, rows), strict=True):
            left: tuple[Hashable, ...] = ()
            if not is_allowed and cohort[0]:
                left = self._left_out(asked, *cohort)
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
                gate.add(found.clients, found.weights, found.part)
        return gate

    def _asked_of(self, part: str | None) -> list[Judged]:
        """Return the histories that a sum would be added to."""
        if part is None:
            return self._judged
        self._parts.check(part, "`part`")
        known = {own.name: own for own in self._judged}
        return [known[part] if part in known else self._whole.of_part(part)]

    def _reasons(
        self, asked: Sequence[Judged], rows: Sequence[Sequence[Row | None]]
    ) -> list[tuple[bool, str]]:
        """Return of each cohort whether all bars hold with its sum, and why.

        Args:
            asked: The histories that the sum would be added to.
            rows: Of each history, the rows of the cohorts.
        """
        told = [own.reasons(cohorts) for own, cohorts in zip(asked, rows, strict=True)]
        names = {own.name for own in asked}
        others = [own.reasons([None])[0] for own in self._judged if own.name not in {*names, None}]
        found = []
        for each in zip(*told, strict=True):
            answers = [*each, *(one for one in others if not one[0])]
            found.append(min(answers, key=lambda answer: answer[0]))
        return found

    def _left_out(
        self,
        asked: Sequence[Judged],
        names: Sequence[Hashable],
        weights: Sequence[Fraction] | None,
    ) -> tuple[Hashable, ...]:
        full = [own.row(names, weights) for own in asked]
        order = np.argsort(full[0][1])  # as the first history has its clients
        everybody = tuple(names[k] for k in order)
        if self._state.breaches:
            return everybody
        own_places = [np.asarray(places)[order] for _, places in full]
        kinds, sizes = _kinds(asked, everybody)

        def rows(kept: list[np.ndarray]) -> list[list[Row | None]]:
            found: list[list[Row | None]] = []
            for (row, _), places in zip(full, own_places, strict=True):
                ats = [np.sort(places[at]) for at in kept]
                found.append([
                    None if not len(at) else Row(
                        row.places[at],
                        None if row.weights is None else tuple(row.weights[k] for k in at),
                    )
                    for at in ats
                ])  # fmt: skip
            return found

        def allowed(kept: list[np.ndarray]) -> list[bool]:
            return [is_allowed for is_allowed, _ in self._reasons(asked, rows(kept))]

        count = len(asked) * max(len(own.history.classes.of) for own in asked)
        most = min(_MOST_TRIED, max(_LEAST_TRIED, _MOST_PASSED // max(1, count)))
        if (self._bars.weak or 0) > 3:  # whose verdicts may take searches
            most = min(most, max(_LEAST_TRIED, _MOST_SEARCHED // max(1, count)))
        left = fewest_left_out(kinds, full[0][0].codes.tolist(), sizes, allowed, most)
        return tuple(everybody[k] for k in left)

    def _stated(self, sums: int) -> GateState:
        known = [(own, own.figures) for own in self._judged if own.figures is not None]
        if not known:
            return GateState(sums)
        before = self._state.exposed
        told = dict.fromkeys(before)
        for own, figures in known:
            told |= dict.fromkeys(own.history.names[i] for i in np.flatnonzero(figures.exposed))
        weakest, weak = min(known, key=lambda one: (one[1].lower, one[1].upper))
        worst, least = min(known, key=lambda one: _least(one[1]))
        at, hidden = least.least, least.hidden
        breaches = [
            _of_several([why for why in each if why])
            for each in zip(*(own.breaches() for own, _ in known), strict=True)
        ]
        spare = (len(known) - 1).bit_length()
        return GateState(
            sums=sums,
            clients=len({name for own, _ in known for name in own.history.names}),
            rank=sum(own.history.rank for own, _ in known),
            exposed=tuple(told),
            strong=min(figures.strong for _, figures in known),
            lower=weak.lower,
            upper=min(figures.upper for _, figures in known),
            hidden=None if at is None or hidden is None else float(hidden[at]),
            hidden_client=None if at is None else worst.history.names[at],
            error_bits=min(own.history.error_bits for own, _ in known) - spare,
            is_searched=any(figures.is_searched for _, figures in known),
            breaches=tuple(why for why in breaches if why),
            parts=sum(own.name is not None for own in self._judged),
            weak_part=weakest.name,
            hidden_part=worst.name,
        )


def _least(figures: Figures) -> float:
    """Return among how many the worst client is hidden; what is not known next to exposure."""
    least, hidden = figures.least, figures.hidden
    return _ABOVE if least is None or hidden is None else float(hidden[least])


def _of_several(breaches: Sequence[str]) -> str:
    """Return the first breach, and how many more parts have one; "" where there are none."""
    more = len(breaches) - 1
    if more < 1:
        return "".join(breaches)
    return f"{breaches[0]} (and so in {more} more part{'s' if more > 1 else ''})"


def _kinds(asked: Sequence[Judged], names: Sequence[Hashable]) -> tuple[list[int], np.ndarray]:
    """Return for each client a number of those with its history in all parts, and their counts."""
    if len(asked) == 1:
        return [asked[0].kind(name) for name in names], asked[0].history.classes.sizes
    numbers: dict[tuple[int, ...], int] = {(0,) * len(asked): 0}
    everybody = dict.fromkeys(name for own in asked for name in own.history.names)
    of = {
        name: numbers.setdefault(tuple(own.kind(name) for own in asked), len(numbers))
        for name in everybody
    }
    counts = np.bincount([*of.values(), 0], minlength=len(numbers))
    return [of.get(name, 0) for name in names], counts


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
        require(False, "clients", "must not contain duplicates", twice)
    if isinstance(clients, Mapping):
        require(weights is None, "weights", "must not be set if clients are a mapping")
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
