"""A gate before each round.

Does privacy hold if a cohort's sum is learnt, and who must stay out?
Multi-RoundSecAgg, Remark 1 (weak T) and equation (5) (strong T), after every sum at the
cost of the sum alone; and how many clients each client is hidden among.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch._base.errors import check_count, check_number, require
from mrsa_watch._base.files import user_path
from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import by_value
from mrsa_watch._gate_log import GateLog
from mrsa_watch._gate_names import Clients, Cohort
from mrsa_watch._gate_part import Bars, Judged
from mrsa_watch._history import Figures
from mrsa_watch._leave_out import fewest_left_out
from mrsa_watch._rows import Row
from mrsa_watch.logs import PartNames

DEFAULT_EFFORT = 0.01
# Ways to leave out so many clients that are all tried: fewer for very many clients in
# all.
_LEAST_TRIED, _MOST_TRIED = 16, 256
_ABOVE = math.nextafter(1.0, 2.0)
_UNKNOWN = (
    "not in the history, and perhaps known clients under other names "
    "(new_clients=True, --new-clients, takes new clients)"
)
_UNWEIGHTED = "without a weight, in a history of weighted sums"
_MOST_PASSED, _MOST_SEARCHED = 2 * 10**6, 2**14


@dataclasses.dataclass(frozen=True)
@by_value
class GateState:
    """What a history leaks after the sums so far.

    Attributes:
        sums: Learnt sums that were added.
        clients: Clients in at least one of them.
        rank: Sums that are no combinations of earlier ones.
        exposed: Clients whose update is a combination of the sums, in the order of
            their exposure.
        strong: Strong T; None while no client took part, as for the values below.
        lower: Weak T is at least this: no combination of the sums involves fewer
            clients.
        upper: Weak T is at most this: some combination involves this many.
        hidden: Size of a single sum that would hide the worst hidden client equally
            well; None also if it is not known to nine digits.
        hidden_client: The worst hidden client.
        error_bits: k such that a result on weak T or exposure is wrong with a chance
            below 2**-k, for any history.
        is_searched: Whether cheap bounds did not decide after this sum whether weak T
            is at least `fail_below`, so that `effort` allowed a search.
        breaches: Each requirement that does not hold, and why.
        parts: Parts of the vector, each evaluated by itself: all values above are then
            the worst of them, and `rank` is of all together. 0 if all sums are of whole
            updates.
        weak_part: The part with the smallest weak T.
        hidden_part: The part in which the worst hidden client is.
        last_round: The last round that was read from the log, as its number, or as
            "run:round" from the second run on; None without a log.
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
    last_round: int | str | None = None


@dataclasses.dataclass(frozen=True)
class GateAnswer:
    """Whether a cohort's sum may be learnt.

    Attributes:
        allowed: Whether all requirements are known to hold with this sum.
        leave_out: Clients to exclude so that they hold; empty if the sum is allowed.
        reason: The reason, in a sentence.
        asked: Clients in the cohort.
        known: Those of them that the history knows.
        last_round: The last round that was read from the log (`GateState.last_round`).
    """

    allowed: bool
    leave_out: tuple[Hashable, ...]
    reason: str
    asked: int = 0
    known: int = 0
    last_round: int | str | None = None


class Gate:
    """Track the privacy of a growing history and check whether the next sum is acceptable.

    Choose it over `privacy.audit` while a system runs: each sum costs O(t N) for t
    independent sums of N clients, and never the whole history again. `check` asks about
    sums that were not learnt. It sees which clients take part and never an update, and
    its answers do not depend on updates, so a refusal reveals nothing about them.

    Args:
        fail_below: Least weak T that must be known of the history, an integer of at
            least 1; 2 means that no client is exposed. None requires nothing.
        fail_below_hidden: Least size of a single sum that would hide each client
            equally well, to nine digits, noise not counted. None requires nothing.
        effort: Computing allowance for weak T each time that cheap bounds do not decide
            `fail_below` (`mrsa_jax.privacy.weak_privacy`, if it is installed); they
            always decide values of at most 3. What is not known fails.
        new_clients: Whether `check` takes a name that the history does not know as a
            new client. By default it refuses such a cohort: an unknown name may be a
            known client's.

    Raises:
        ConfigurationError: If a requirement or the effort is no such number.

    Edge cases: while no client took part, nothing fails, and every name is new. A sum
    that is a combination of earlier ones changes nothing.

    Examples:
        >>> from mrsa_watch import Gate
        >>> gate = Gate(fail_below=2)
        >>> gate.add(["anna", "bob", "cleo"]).lower
        3
        >>> yes, no = gate.check([["anna", "bob", "cleo"], ["anna", "bob"]])
        >>> yes.allowed, no.leave_out
        (True, ('anna', 'bob'))
        >>> no.reason
        'weak T would be 1, below 2'
        >>> (stranger,) = gate.check([["anna", "bob", "cleo", "dan"]])
        >>> stranger.allowed, stranger.leave_out, (stranger.known, stranger.asked)
        (False, ('dan',), (3, 4))
        >>> gate.check([["dan", "eve"]], new_clients=True)[0].allowed
        True

    Source: Multi-RoundSecAgg, Remark 1 and equation (5); the gate is this package's.
    """

    def __init__(
        self,
        fail_below: int | None = None,
        fail_below_hidden: float | int | None = None,
        effort: float | int = DEFAULT_EFFORT,
        new_clients: bool = False,
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
        # or, once there are parts of the vector, those alone
        self._judged = [self._whole]
        self._parts = PartNames()
        self._state = GateState()
        self._new_clients = new_clients
        self._clients = Clients()
        self._weights: dict[str, Fraction] = {}  # what each client had last
        self._is_weighted = False
        self._log: GateLog | None = None

    @property
    def state(self) -> GateState:
        """What the sums so far leak; of a gate with a log, those that it has read."""
        return self._state

    def add(
        self,
        clients: Collection[Hashable],
        weights: Collection[Any] | None = None,
        part: str | None = None,
    ) -> GateState:
        """Take a sum that was learnt.

        A gate with a log takes a sum once, whether its line is read before or after.

        Args:
            clients: Members of the sum; a sum without clients only counts. A mapping
                gives weights too.
            weights: Their known factors: positive integers, fractions, or text such as
                "3/7"; all 1 if None. Only their proportions matter.
            part: Name of the part of the vector that the sum is over. None: of whole
                updates, so that it is learnt in every part.

        Returns:
            What the sums leak now.

        Raises:
            ConfigurationError: If a client is named twice, is like another one and not
                it, or has no lasting name (`None`, a bool, NaN), or a weight is none of
                these.
            MrsaError: If results contradict each other (more independent sums than
                clients, or a lower bound above the upper one). From then on, no sum is
                taken or checked.
        """
        self._follow_log()
        cohort = self._clients.cohort(clients, weights)
        if self._log is None or not self._log.has_read(cohort, part):
            self._take(cohort, part)
        return self._state

    def check(
        self,
        candidates: Sequence[Collection[Hashable] | Mapping[Hashable, Any]],
        part: str | None = None,
        new_clients: bool | None = None,
    ) -> tuple[GateAnswer, ...]:
        """Return for each cohort whether its sum may be learnt next, and which clients to exclude.

        A gate with a log reads first what the log has gained. In a history of weighted
        sums, a cohort without weights is taken with the latest weight of each client.
        Every client must have one then if `fail_below_hidden` is set.

        Nothing is remembered: a round that is refused or aborted changes nothing. Each
        cohort is checked by itself; many at once share the passes over the history.

        The excluded clients are the fewest if trying all ways to exclude this many
        takes at most 256 verdicts (down to 16 for very many clients): clients with the
        same history are alike, so only the number of each kind matters. Beyond that,
        kinds (whole classes of clients that always moved together first, then new
        clients) are kept as long as all requirements hold, halving what is tried
        together, for up to four times as many verdicts. If nothing less is found, all
        clients are excluded.

        Args:
            candidates: Cohorts; a mapping gives each client's weight.
            part: Name of the part of the vector that their sums would be over; None: of
                whole updates, which must be acceptable in all parts.
            new_clients: As for `Gate`; None: as the gate was made.

        Raises:
            ConfigurationError: If `candidates` is one cohort and not several, if a
                cohort names a client twice, or one that is like a known client and not
                it, or if the log cannot be followed (it was replaced or shortened, or
                has a line that breaks a rule).

        Cost: O(N + K) for each cohort if only weak T is required, and O(t K) with
        hidden among (K clients per sum).
        """
        is_several = isinstance(candidates, Sequence) and not isinstance(
            candidates, str
        )
        require(is_several, "candidates", "must be a sequence of cohorts", candidates)
        self._follow_log()
        takes_new = self._new_clients if new_clients is None else new_clients
        cohorts = [self._clients.cohort(clients, None) for clients in candidates]
        considered = [self._considered(cohort, takes_new) for cohort in cohorts]
        asked = self._asked_of(part)
        rows = [[_row_of(judged, one.cohort) for one in considered] for judged in asked]
        verdicts = self._reasons(asked, rows)
        return tuple(
            self._answer(asked, *each)
            for each in zip(cohorts, considered, verdicts, strict=True)
        )

    def _considered(self, cohort: Cohort, takes_new: bool) -> _Considered:
        """Return the clients whose sum can be judged, and those of whom too little is known."""
        unknown = set() if takes_new else set(cohort.new.values())
        why = _UNKNOWN
        if not unknown and self._needs_weights(cohort):
            unknown = {name for name in cohort.names if name not in self._weights}
            why = _UNWEIGHTED
        given = cohort.weights or self._latest(cohort.names)
        pairs = zip(cohort.names, given, strict=True)
        kept = {name: weight for name, weight in pairs if name not in unknown}
        weights = list(kept.values())
        is_plain = cohort.weights is None and not self._is_weighted
        return _Considered(
            Cohort(list(kept), None if is_plain else weights, {}),
            [name for name in cohort.names if name in unknown],
            why,
        )

    def _needs_weights(self, cohort: Cohort) -> bool:
        """Return whether an answer depends on weights that are neither given nor known.

        Weak T does not: no combination of sums removes a client that is in one sum
        alone, with whatever weight.
        """
        return (
            cohort.weights is None
            and self._is_weighted
            and self._bars.hidden is not None
        )

    def _latest(self, names: Sequence[str]) -> list[Fraction]:
        """Return the latest weight of each client, 1 for those in no sum so far."""
        return [self._weights.get(name, Fraction(1)) for name in names]

    def _answer(
        self,
        asked: Sequence[Judged],
        cohort: Cohort,
        considered: _Considered,
        verdict: tuple[bool, str],
    ) -> GateAnswer:
        is_allowed, reason = verdict
        kept, unknown = considered.cohort, considered.unknown
        left_out = list(unknown)
        if not is_allowed and kept.names:
            left_out += self._left_out(asked, kept.names, kept.weights)
        if unknown:
            shown = ", ".join(
                printable(self._clients.given(name)) for name in unknown[:3]
            )
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            reason = f"{shown}{more}: {considered.why}"
        elif kept.weights is not None and cohort.weights is None:
            reason += ", with each client's latest weight"
        return GateAnswer(
            allowed=is_allowed and not unknown,
            leave_out=tuple(self._clients.given(name) for name in left_out),
            reason=reason,
            asked=len(cohort.names),
            known=len(cohort.names) - len(cohort.new),
            last_round=self._state.last_round,
        )

    @staticmethod
    def from_log(
        path: str | pathlib.Path,
        *,
        salt: bytes | str | pathlib.Path | None = None,
        **settings: Any,
    ) -> Gate:
        """Return a gate that follows a participation log.

        It takes the learnt sums of complete lines, and before each answer those that
        other processes have added since.

        Args:
            path: A log of `live.Recorder`.
            salt: Of the log's pseudonyms, or the file that holds it (`<log>.salt`):
                clients are then named as they are. Without it, a log of pseudonyms
                takes pseudonyms alone.
            **settings: As for `Gate`.

        Raises:
            ConfigurationError: If there is no such log, if a line breaks a rule of its
                format, or if its pseudonyms are of another salt.
        """
        gate = Gate(**settings)
        gate._log = GateLog(user_path(path), salt)
        gate._follow_log()
        # what was there before is nothing that the caller adds
        gate._log.forget_ahead()
        return gate

    def _follow_log(self) -> None:
        """Take the sums that the log has gained, and the names of clients that it has."""
        log = self._log
        if log is None:
            return
        for line in log.sums():
            self._clients = log.clients
            named = [
                *line.clients,
                *(line.asked or ()),
                *itertools.chain(*line.lost.values()),
            ]
            self._clients.add(self._clients.new(named))
            if line.status == "learnt":
                cohort = Cohort(list(line.clients), _as_list(line.weights), {})
                if not log.was_added(cohort, line.part):
                    self._take(cohort, line.part)
            last = line.round if not line.run else f"{line.run}:{line.round}"
            self._state = dataclasses.replace(self._state, last_round=last)
        self._clients = log.clients  # also of a log with a header and no sum yet

    def _take(self, cohort: Cohort, part: str | None) -> None:
        """Take a sum that was learnt, of clients by their names in the history."""
        names, weights = cohort.names, cohort.weights
        (judged,) = self._asked_of(part) if part is not None else [self._whole]
        if part is not None and judged not in self._judged:
            self._parts.add(part)
            self._judged = [
                *(each for each in self._judged if each.name is not None),
                judged,
            ]
        if names:
            judged.add(names, weights)
            is_whole = part is None and judged not in self._judged
            for each in self._judged if is_whole else ():
                each.add(names, weights)
        self._clients.add(cohort.new)
        factors = [Fraction(1)] * len(names) if weights is None else weights
        self._weights |= dict(zip(names, factors, strict=True))
        self._is_weighted |= len(set(factors)) > 1
        self._state = self._stated(self._state.sums + 1)

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
        others = [
            own.reasons([None])[0]
            for own in self._judged
            if own.name not in {*names, None}
        ]
        found = []
        for each in zip(*told, strict=True):
            answers = [*each, *(one for one in others if not one[0])]
            found.append(min(answers, key=lambda answer: answer[0]))
        return found

    def _left_out(
        self,
        asked: Sequence[Judged],
        names: Sequence[str],
        weights: Sequence[Fraction] | None,
    ) -> list[str]:
        full = [own.row(names, weights) for own in asked]
        order = np.argsort(full[0][1])  # as the first history has its clients
        everybody = [names[k] for k in order]
        if self._state.breaches:
            return everybody
        own_places = [np.asarray(places)[order] for _, places in full]
        kinds, sizes = _kinds(asked, everybody)

        def rows(kept: list[np.ndarray]) -> list[list[Row | None]]:
            found: list[list[Row | None]] = []
            for (row, _), places in zip(full, own_places, strict=True):
                ats = [np.sort(places[at]) for at in kept]
                found.append(
                    [
                        None
                        if not len(at)
                        else Row(
                            row.places[at],
                            None
                            if row.weights is None
                            else tuple(row.weights[k] for k in at),
                        )
                        for at in ats
                    ]
                )
            return found

        def allowed(kept: list[np.ndarray]) -> list[bool]:
            return [is_allowed for is_allowed, _ in self._reasons(asked, rows(kept))]

        count = len(asked) * max(len(own.history.classes.of) for own in asked)
        most = min(_MOST_TRIED, max(_LEAST_TRIED, _MOST_PASSED // max(1, count)))
        if (self._bars.weak or 0) > 3:  # whose verdicts may take searches
            most = min(most, max(_LEAST_TRIED, _MOST_SEARCHED // max(1, count)))
        left = fewest_left_out(kinds, full[0][0].codes.tolist(), sizes, allowed, most)
        return [everybody[k] for k in left]

    def _stated(self, sums: int) -> GateState:
        known = [(own, own.figures) for own in self._judged if own.figures is not None]
        if not known:
            return GateState(sums, last_round=self._state.last_round)
        before = self._state.exposed
        given = self._clients.given
        told = dict.fromkeys(before)
        for own, figures in known:
            names = own.history.names
            told |= dict.fromkeys(
                given(names[i]) for i in np.flatnonzero(figures.exposed)
            )
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
            hidden_client=None if at is None else given(worst.history.names[at]),
            error_bits=min(own.history.error_bits for own, _ in known) - spare,
            is_searched=any(figures.is_searched for _, figures in known),
            breaches=tuple(why for why in breaches if why),
            parts=sum(own.name is not None for own in self._judged),
            weak_part=weakest.name,
            hidden_part=worst.name,
            last_round=self._state.last_round,
        )


class _Considered(NamedTuple):
    """The part of a cohort whose sum can be judged.

    Attributes:
        cohort: Clients of whom enough is known.
        unknown: The others.
        why: What is not known of these.
    """

    cohort: Cohort
    unknown: list[str]
    why: str


def _as_list(weights: Sequence[Fraction] | None) -> list[Fraction] | None:
    return None if weights is None else list(weights)


def _row_of(judged: Judged, cohort: Cohort) -> Row | None:
    """Return the row of a cohort in a history; None if nobody is in it."""
    return judged.row(cohort.names, cohort.weights)[0] if cohort.names else None


def _least(figures: Figures) -> float:
    """Return among how many the worst client is hidden.

    What is not known next to exposure.
    """
    least, hidden = figures.least, figures.hidden
    return _ABOVE if least is None or hidden is None else float(hidden[least])


def _of_several(breaches: Sequence[str]) -> str:
    """Return the first breach, and how many more parts have one.

    "" where there are none.
    """
    more = len(breaches) - 1
    if more < 1:
        return "".join(breaches)
    return f"{breaches[0]} (and so in {more} more part{'s' if more > 1 else ''})"


def _kinds(
    asked: Sequence[Judged], names: Sequence[str]
) -> tuple[list[int], np.ndarray]:
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
