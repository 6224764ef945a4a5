"""A gate before each round: does privacy hold with its sum, and who must stay out?

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
from mrsa_watch._gate_part import Bars, Judged, Verdict
from mrsa_watch._history import Figures, History
from mrsa_watch._leave_out import fewest_left_out
from mrsa_watch._rows import Row
from mrsa_watch.logs import PartNames

DEFAULT_EFFORT = 0.01
# Ways to leave out so many clients that are all tried: fewer for very many clients in
# all.
_LEAST_TRIED = 16
_MOST_TRIED = 256
_MOST_PASSED = 2 * 10**6  # clients in all that are looked at for them
_MOST_SEARCHED = 2**14  # the same, where verdicts may take searches
_ABOVE = math.nextafter(1.0, 2.0)
_UNKNOWN = (
    "not in the history, and perhaps known clients under other names "
    "(new_clients=True, --new-clients, takes new clients)"
)
_UNWEIGHTED = "without a weight, in a history of weighted sums"


@dataclasses.dataclass(frozen=True)
@by_value
class GateState:
    """The leakage of a history after the sums so far.

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
    """Track the privacy of a growing history and check if the next sum is acceptable.

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
        """The leakage of the sums so far; with a log, of those that were read."""
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
        """Return for each cohort if its sum may be learnt, and clients to exclude.

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
        is_several = isinstance(candidates, Sequence)
        is_several = is_several and not isinstance(candidates, str)
        require(is_several, "candidates", "must be a sequence of cohorts", candidates)
        self._follow_log()
        takes_new = self._new_clients if new_clients is None else new_clients
        cohorts = [self._clients.cohort(clients, None) for clients in candidates]
        considered = [self._considered(cohort, takes_new) for cohort in cohorts]
        histories = self._histories_of(part)
        rows = [
            [_row_of(history, each.cohort) for each in considered]
            for history in histories
        ]
        verdicts = self._verdicts(histories, rows)
        return tuple(
            self._answer(histories, *each)
            for each in zip(cohorts, considered, verdicts, strict=True)
        )

    def _considered(self, cohort: Cohort, takes_new: bool) -> _Considered:
        """Return clients whose sum can be judged, and those known too little."""
        unknown = set() if takes_new else set(cohort.new.values())
        why = _UNKNOWN
        if not unknown and self._needs_weights(cohort):
            unknown = {name for name in cohort.names if name not in self._weights}
            why = _UNWEIGHTED
        # those in no sum so far have the weight 1
        latest = [self._weights.get(name, Fraction(1)) for name in cohort.names]
        pairs = zip(cohort.names, cohort.weights or latest, strict=True)
        weights = {name: weight for name, weight in pairs if name not in unknown}
        is_plain = cohort.weights is None and not self._is_weighted
        return _Considered(
            Cohort(list(weights), None if is_plain else list(weights.values()), {}),
            [name for name in cohort.names if name in unknown],
            why,
        )

    def _needs_weights(self, cohort: Cohort) -> bool:
        """Return whether an answer depends on weights that are neither given nor known.

        Weak T does not: no combination of sums removes a client that is in one sum
        alone, with whatever weight.
        """
        is_needed = self._is_weighted and self._bars.hidden is not None
        return is_needed and cohort.weights is None

    def _answer(
        self,
        histories: Sequence[Judged],
        cohort: Cohort,
        considered: _Considered,
        verdict: Verdict,
    ) -> GateAnswer:
        is_allowed, reason = verdict
        part = considered.cohort
        unknown = considered.unknown
        left_out = list(unknown)
        if not is_allowed and part.names:
            left_out += self._left_out(histories, part)
        if unknown:
            names = map(self._clients.given, unknown[:3])
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            reason = f"{', '.join(map(printable, names))}{more}: {considered.why}"
        elif part.weights is not None and cohort.weights is None:
            reason += ", with each client's latest weight"
        return GateAnswer(
            allowed=is_allowed and not unknown,
            leave_out=tuple(map(self._clients.given, left_out)),
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
        """Take the sums that the log has gained, and its names of clients."""
        log = self._log
        if log is None:
            return
        for line in log.sums():
            self._clients = log.clients
            lost = itertools.chain(*line.lost.values())
            names = [*line.clients, *(line.asked or ()), *lost]
            self._clients.add(self._clients.new(names))
            if line.status == "learnt":
                weights = None if line.weights is None else list(line.weights)
                cohort = Cohort(list(line.clients), weights, {})
                # the caller may have added this sum before its line was read
                if not log.was_added(cohort, line.part):
                    self._take(cohort, line.part)
            last = f"{line.run}:{line.round}" if line.run else line.round
            self._state = dataclasses.replace(self._state, last_round=last)
        self._clients = log.clients  # also of a log with a header and no sum yet

    def _take(self, cohort: Cohort, part: str | None) -> None:
        """Take a sum that was learnt, of clients by their names in the history."""
        names = cohort.names
        weights = cohort.weights
        judged = self._whole if part is None else self._histories_of(part)[0]
        if part is not None and judged not in self._judged:
            self._parts.add(part)
            parts = [each for each in self._judged if each.name is not None]
            self._judged = [*parts, judged]
        if names:
            judged.add(names, weights)
            # a sum of whole updates is learnt in every part too
            is_whole = part is None and judged not in self._judged
            for each in self._judged if is_whole else ():
                each.add(names, weights)
        self._clients.add(cohort.new)
        if weights is None:
            self._weights |= dict.fromkeys(names, Fraction(1))
        else:
            self._weights |= dict(zip(names, weights, strict=True))
            self._is_weighted |= len(set(weights)) > 1
        self._state = self._stated(self._state.sums + 1)

    def _histories_of(self, part: str | None) -> list[Judged]:
        """Return the histories that a sum would be added to."""
        if part is None:
            return self._judged
        self._parts.check(part, "`part`")
        same = [each for each in self._judged if each.name == part]
        return same or [self._whole.of_part(part)]

    def _verdicts(
        self, histories: Sequence[Judged], rows: Sequence[Sequence[Row | None]]
    ) -> list[Verdict]:
        """Return of each cohort whether all bars hold with its sum, and why.

        Args:
            histories: Those that the sum would be added to.
            rows: Of each history, the rows of the cohorts.
        """
        verdicts = [
            history.verdicts(cohorts)
            for history, cohorts in zip(histories, rows, strict=True)
        ]
        names = {None, *(history.name for history in histories)}
        unchanged = [
            each.verdicts([None])[0] for each in self._judged if each.name not in names
        ]
        broken = [verdict for verdict in unchanged if not verdict.is_allowed]
        return [
            # False sorts before True: one history that forbids the sum decides
            min([*each, *broken], key=lambda verdict: verdict.is_allowed)
            for each in zip(*verdicts, strict=True)
        ]

    def _left_out(self, histories: Sequence[Judged], cohort: Cohort) -> list[str]:
        """Return whom to leave out of a cohort so that its sum is allowed."""
        full = [each.row(cohort.names, cohort.weights) for each in histories]
        order = np.argsort(full[0][1])  # as the first history has its clients
        everybody = [cohort.names[k] for k in order]
        if self._state.breaches:
            return everybody
        ordered = [(row, np.asarray(places)[order]) for row, places in full]
        kinds, sizes = _kinds(histories, everybody)

        def allowed(staying: list[np.ndarray]) -> list[bool]:
            rows = [
                [row.picked(np.sort(places[at])) for at in staying]
                for row, places in ordered
            ]
            return [verdict.is_allowed for verdict in self._verdicts(histories, rows)]

        count = len(histories) * max(len(each.history.classes.of) for each in histories)
        most = min(_MOST_TRIED, max(_LEAST_TRIED, _MOST_PASSED // max(1, count)))
        if (self._bars.weak or 0) > 3:  # whose verdicts may take searches
            most = min(most, max(_LEAST_TRIED, _MOST_SEARCHED // max(1, count)))
        codes = full[0][0].codes.tolist()
        places = fewest_left_out(kinds, codes, sizes, allowed, most)
        return [everybody[k] for k in places]

    def _stated(self, sums: int) -> GateState:
        """Return the leakage of the sums: the worst of all parts."""
        pairs = [
            (each, each.figures) for each in self._judged if each.figures is not None
        ]
        if not pairs:
            return GateState(sums, last_round=self._state.last_round)
        histories = [judged.history for judged, _ in pairs]
        all_figures = [figures for _, figures in pairs]
        written = self._clients.given
        # a dict keeps the order of exposure, and each client once
        exposed = dict.fromkeys(self._state.exposed)
        for history, figures in zip(histories, all_figures, strict=True):
            places = np.flatnonzero(figures.exposed)
            exposed |= dict.fromkeys(written(history.names[i]) for i in places)
        weakest, weak = min(pairs, key=lambda pair: (pair[1].lower, pair[1].upper))
        worst, least = min(pairs, key=lambda pair: _least(pair[1]))
        at = least.least
        breaches = [
            _of_several([why for why in each if why])
            for each in zip(*(judged.breaches() for judged, _ in pairs), strict=True)
        ]
        # each part may err by itself
        spare = (len(pairs) - 1).bit_length()
        return GateState(
            sums=sums,
            clients=_num_clients(histories),
            rank=sum(history.rank for history in histories),
            exposed=tuple(exposed),
            strong=min(figures.strong for figures in all_figures),
            lower=weak.lower,
            upper=min(figures.upper for figures in all_figures),
            hidden=None if at is None else _least(least),
            hidden_client=None if at is None else written(worst.history.names[at]),
            error_bits=min(history.error_bits for history in histories) - spare,
            is_searched=any(figures.is_searched for figures in all_figures),
            breaches=tuple(filter(None, breaches)),
            parts=sum(each.name is not None for each in self._judged),
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


def _row_of(judged: Judged, cohort: Cohort) -> Row | None:
    """Return the row of a cohort in a history; None if nobody is in it."""
    return judged.row(cohort.names, cohort.weights)[0] if cohort.names else None


def _num_clients(histories: Sequence[History]) -> int:
    """Return the number of clients in any of the histories."""
    if len(histories) == 1:  # whose names are many, and each there once
        return len(histories[0].names)
    return len(set().union(*(history.names for history in histories)))


def _least(figures: Figures) -> float:
    """Return the size that hides the worst client; just above 1 if it is unknown."""
    return _ABOVE if figures.hidden is None else float(figures.hidden.min())


def _of_several(breaches: Sequence[str]) -> str:
    """Return the first breach, and how many more parts have one; "" without any."""
    more = len(breaches) - 1
    if more < 1:
        return "".join(breaches)
    return f"{breaches[0]} (and so in {more} more part{'s' if more > 1 else ''})"


def _kinds(
    histories: Sequence[Judged], names: Sequence[str]
) -> tuple[list[int], np.ndarray]:
    """Return a number for each client, shared by equal histories, and the counts."""
    if len(histories) == 1:
        sizes = histories[0].history.classes.sizes
        return list(map(histories[0].kind, names)), sizes
    numbers: dict[tuple[int, ...], int] = {(0,) * len(histories): 0}
    kind_of: dict[str, int] = {}
    for name in itertools.chain(*(each.history.names for each in histories)):
        kinds = tuple(each.kind(name) for each in histories)
        kind_of[name] = numbers.setdefault(kinds, len(numbers))
    counts = np.bincount([*kind_of.values(), 0], minlength=len(numbers))
    return [kind_of.get(name, 0) for name in names], counts
