"""The findings of an audit: whether they meet a requirement, in words, as plain values.

Exposed clients come first, then among how many each client is hidden, then weak and
strong multi-round privacy (Multi-RoundSecAgg, Remark 1 and equation (5)).
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

import numpy as np

from mrsa_jax.privacy._attribute import attribute_bound, bound_in_words
from mrsa_jax.privacy._audit_hidden import Hidden, Noisy, plain, plain_names
from mrsa_jax.privacy._audit_rounds import OverRounds, Part, over_parts, over_rounds
from mrsa_jax.privacy._clients import clients_of
from mrsa_jax.privacy._coalitions import log_without
from mrsa_jax.privacy._recipe import Recipe, digits, join_names, listed
from mrsa_jax.privacy._unweighted import UnweightedGroup
from mrsa_jax.privacy._weak import WeakPrivacy
from mrsa_jax.privacy.solver import Progress
from mrsa_watch._base.errors import check_count, check_known, check_number
from mrsa_watch._base.html import shown, telling, told
from mrsa_watch._base.untrusted import printable
from mrsa_watch.logs import ParticipationLog, printed_round
from mrsa_watch.mrsa_check import KNOWN_RANGE, REALS

Definition = Literal["weak", "strong", "hidden"]

HIDDEN = "hidden among"  # a part of the work, as `Audit.pending` names it
_MOST_JOINING = 2  # clients whose exposure by others is put in words
_MOST_EXPOSED = 8  # that a sentence names
_MOST_PARTS = 5  # that a sentence names
_ALIKE = (
    "Hidden among is a value of clients that are alike: a client whose updates are "
    "larger than others', or resemble them, may be hidden among fewer."
)
_NOBODY = (
    "No client took part in any round: nothing is learnt; weak and strong T are "
    "undefined."
)
# fields of the report as they are in the audit, its weak privacy and its plain sum
_OF_AUDIT = (
    *("num_rounds", "num_clients", "empty_rounds", "is_weighted"),
    *("columns_used", "columns_ignored", "aggregation", "notes"),
)
_OF_WEAK = (
    *("lower", "upper", "certified", "error_bits", "rank", "num_groups"),
    *("lower_method", "upper_method"),
)
# keys of the report, and the attributes that they are made of
_NESTED = {
    "hidden_among": "hidden",
    "hidden_among_updates": "updates",
    "hidden_among_lasting": "lasting",
    "hidden_among_resembling": "resembling",
    "noise": "noisy",
}


class Joining(NamedTuple):
    """A client that is exposed as soon as some others join the server.

    Attributes:
        client: Its name.
        others: Their names.
        fewest: No fewer than this many expose it; the number of `others` where that is
            decided.
        text: The same in a sentence.
    """

    client: Hashable
    others: tuple[Hashable, ...]
    fewest: int
    text: str

    @staticmethod
    def of(
        log: ParticipationLog,
        weak: WeakPrivacy,
        effort: float,
        hidden: np.ndarray | None,
    ) -> tuple[Joining, ...]:
        """List the clients that the fewest others expose, the worst hidden first."""
        privacy = clients_of(log.participation, weak, effort)
        names = [printable(name) for name in log.clients]
        second = privacy.upper if hidden is None else hidden
        order = np.lexsort((second, privacy.upper))
        order = order[privacy.upper[order] > 1]
        return tuple(
            Joining(
                log.clients[i],
                tuple(log.clients[j] for j in privacy.coalition(i)),
                int(privacy.lower[i]) - 1,
                f"Client {privacy.sentence(i, names)}.",
            )
            for i in order[:_MOST_JOINING].tolist()
        )


class Gate(NamedTuple):
    """Whether a history keeps a privacy that somebody demands.

    Attributes:
        target: T that is demanded, or among how many clients each must be hidden.
        definition: `"weak"`, `"strong"` or `"hidden"`.
        passed: Whether it is known that the history keeps it: of T a proof, of the
            other a float.
        reason: Why, in a sentence.
    """

    target: float | int
    definition: Definition
    passed: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Audit:
    """The findings of an audit, made by `audit`.

    Attributes:
        num_rounds: Rows of the history.
        num_clients: Columns of the history.
        empty_rounds: Rows in which no client took part.
        is_weighted: Whether entries other than 0 and 1 occur.
        exposed: (client, first round after which its update can be solved for), by
            round.
        hidden: Size of a single sum that would hide each client equally well, and the
            worst of them; None where no client took part, or the history is too large.
        updates: The same of each client's worst update of one round, where the drift of
            updates was given.
        lasting: The same of what lasts of each client's updates, where a share of them
            does.
        resembling: Among how many clients are hidden from a server that knows the
            covariance of their updates, where it was given.
        noisy: How well clients are distinguished beneath the noise that was given, if
            any.
        weak: Weak privacy with its certificate; indices count rows and columns of the
            matrix.
        group: The smallest group whose plain sum follows; None where it was not
            searched for.
        group_clients: Names of its clients.
        strong: Strong privacy; None when no client took part.
        recipe: The witness of weak privacy with names; None when no client took part.
        joining: Clients not exposed whom the fewest others expose by joining the
            server.
        coalition: Names of those who have joined it, of whom all else says nothing.
        columns_used: The columns of the log that were read; empty where they had no
            names.
        columns_ignored: Its other columns.
        aggregation: How the sums were made, where the log records it.
        notes: What else its reader reports.
        pending: What was not finished (`audit_steps`); what is there is valid all the
            same.
        parts: The name and the audit of each part of the vector, of a log with sums of
            parts: all else is then the worst of them, for each figure and for each
            client.
        are_places: Whether rounds have no names: they are places from 0 in these
            attributes, and counted from 1 in words and in `to_dict`.
    """

    cites = "multi-round privacy: so2023securing"
    __repr__ = told
    _repr_html_ = telling

    num_rounds: int
    num_clients: int
    empty_rounds: int
    is_weighted: bool
    exposed: tuple[tuple[Hashable, Hashable], ...]
    weak: WeakPrivacy
    strong: int | None
    hidden: Hidden | None = None
    updates: Hidden | None = None
    lasting: Hidden | None = None
    resembling: Hidden | None = None
    noisy: Noisy | None = None
    group: UnweightedGroup | None = None
    group_clients: tuple[Hashable, ...] = ()
    recipe: Recipe | None = None
    joining: tuple[Joining, ...] = ()
    coalition: tuple[Hashable, ...] = ()
    columns_used: tuple[str, ...] = ()
    columns_ignored: tuple[str, ...] = ()
    aggregation: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    parts: tuple[tuple[str, Audit], ...] = ()
    are_places: bool = False

    def printed_round(self, name: Any) -> Any:
        """Return a round as it is printed: by its name, or counted from 1."""
        return printed_round(name, are_places=self.are_places)

    def _rows(self) -> list[tuple[str, str]]:
        weak_T = "undefined" if self.weak.lower is None else _interval(self.weak)
        return [
            ("history", f"{self.num_rounds} rounds, {self.num_clients} clients"),
            ("exposed clients", str(len(self.exposed))),
            ("weak T", weak_T),
            ("strong T", shown(self.strong)),
            ("worst hidden", self.worst_hidden),
            *((hidden.rows[0], hidden.least_words) for hidden in self.others),
        ]

    @property
    def of_drift(self) -> tuple[Hidden, ...]:
        """The values under the drift of updates: of one update, and of what lasts."""
        values = (self.updates, self.lasting)
        return tuple(hidden for hidden in values if hidden is not None)

    @property
    def others(self) -> tuple[Hidden, ...]:
        """The values besides those of clients that are alike and never change."""
        known = () if self.resembling is None else (self.resembling,)
        return (*self.of_drift, *known)

    @property
    def worst_hidden(self) -> str:
        """Among how many the worst hidden client is, and who it is."""
        return "not computed" if self.hidden is None else self.hidden.least_words

    def over_rounds(
        self, log: ParticipationLog, progress: Progress | None = None
    ) -> OverRounds:
        """Follow the exposed clients and the bounds on weak T over the rounds of a log.

        Args:
            log: The history that was audited.
            progress: Called with the work's name, the parts done and their number.

        Examples:
            >>> import mrsa_jax as mj
            >>> import numpy as np
            >>> P = np.array([[0, 0, 0], [1, 1, 1], [0, 1, 1]], bool)
            >>> log = mj.privacy.ParticipationLog(P, (1, 2, 3), ("a", "b", "c"))
            >>> after = mj.privacy.audit(log, effort=0.01).over_rounds(log)
            >>> after.exposed.tolist(), after.lower.tolist(), after.upper.tolist()
            ([0, 0, 1], [-1, 3, 1], [-1, 3, 1])
        """
        first_rounds = [first for _, first in self.exposed]
        if self.parts:
            audits = dict(self.parts)
            curves = [
                (part, audits[part.name].over_rounds(part.log, progress))
                for part in Part.all_of(log)
                if part.name in audits
            ]
            return over_parts(first_rounds, log, curves)
        log, _ = log_without(log, self.coalition)
        drifting = None if self.updates is None else self.updates.drifting
        return over_rounds(log, first_rounds, self.weak, progress, drifting)

    def gate(self, target: float | int, definition: Definition = "weak") -> Gate:
        """Compare the privacy that is proven with a requirement.

        A history fails while its privacy is uncertain. Where a proof would have cost
        more than the effort, primes drawn at random decide with the error chance that
        the reason states.

        Args:
            target: T demanded, an integer of at least 1; a weak T of 2 means that
                nobody is exposed. Of `"hidden"` any number from 1.
            definition: `"weak"` counts the clients in any combination of sums,
                `"strong"` those who only ever move together; `"hidden"` asks among how
                many the worst hidden client is (`hidden_among`, noise not counted), to
                nine digits: if updates never changed, or to six digits under the drift
                that the audit was given. Of these it is the smaller of two: that of the
                update of one round, and that of what lasts of a client's updates.

        Raises:
            ConfigurationError: If `target` is no such number or the definition unknown.

        Examples:
            >>> import mrsa_jax as mj
            >>> found = mj.privacy.audit([[1, 1, 1, 0], [0, 1, 1, 1]], effort=0)
            >>> found.gate(2.5, "hidden").reason
            'client 0 is hidden among 1.67, below 2.5'
        """
        check_known(
            definition, "definition", typing.get_args(Definition), "a known definition"
        )
        if self.parts:
            return self._gate_of_parts(target, definition)
        if definition == "hidden":
            return self._hidden_gate(target)
        check_count(target, "target", "must be an integer of at least 1")
        lower, upper = self._bounds(definition)
        if lower is None or upper is None:
            reason = (
                "no client took part, so weak and strong T are undefined and nothing "
                "is proven"
            )
            return Gate(target, definition, False, reason)
        value = f"{definition} T is {_between(lower, upper)}"
        if definition == "weak" and self.weak.error_bits is not None:
            value += f" ({self.weak.surety})"
        if upper < target:
            return Gate(target, definition, False, f"{value}, below {target}")
        value += f" {REALS}"
        if lower < target:
            value += f" at this effort: {target} is not proven"
            reason = f"{value}, more effort may decide"
            return Gate(target, definition, False, reason)
        return Gate(target, definition, True, f"{value}, at least {target}")

    def _bounds(self, definition: Definition) -> tuple[int | None, int | None]:
        """Return the bounds on weak T, or strong T twice."""
        if definition == "strong":
            return self.strong, self.strong
        return self.weak.lower, self.weak.upper

    def _gate_of_parts(self, target: float | int, definition: Definition) -> Gate:
        """Return the gate of the worst part: one that fails, or is nearest to it."""

        def rank(part: tuple[str, Audit, Gate]) -> tuple[bool, float, float]:
            _, audit, gate = part
            if definition == "hidden":
                hidden = audit.gated
                return gate.passed, (hidden and hidden.least) or 0.0, 0.0
            lower, upper = audit._bounds(definition)
            return gate.passed, float(upper or 0), float(lower or 0)

        gates = [
            (name, audit, audit.gate(target, definition))
            for name, audit in self.parts
            if audit.weak.rank or not self.weak.rank
        ]
        name, _, gate = min(gates, key=rank)
        return gate._replace(reason=f"in part {printable(name)}: {gate.reason}")

    @property
    def gated(self) -> Hidden | None:
        """The values that a gate on `"hidden"` compares: the worst under the drift."""
        if self.hidden is None:
            return None
        return min(self._compared, key=lambda hidden: hidden.least or 0.0)

    @property
    def _compared(self) -> tuple[Hidden, ...]:
        plain = () if self.of_drift or self.hidden is None else (self.hidden,)
        return (*plain, *self.others)

    def _hidden_gate(self, target: float | int) -> Gate:
        check_number(target, "target", "must be a finite number of at least 1", 1.0)
        hidden = self.gated
        if hidden is None:
            why = "no client took part" if not self.weak.rank else "it was not computed"
            reason = f"{why}, so no client is known to be hidden"
            return Gate(target, "hidden", False, reason)
        passed, reason = hidden.gate(target)
        for other in self._compared:
            if other is not hidden:
                subject = other.subject or "of clients that are alike,"
                reason += f"; {subject} {other.least_words}"
        return Gate(target, "hidden", passed, reason)

    def sentences(self) -> list[str]:
        """Return the findings in words, the most urgent first."""
        first = [*self._plain_aggregation(), *self._coalition(), *self._parts()]
        if self.recipe is None:
            return [*first, _NOBODY, *self._columns()]
        weak = self.weak
        return [
            *first,
            *self._urgent(),
            f"Weak T is {_interval(weak)} ({self._certainty()}): any combination of "
            f"the sums involves at least {weak.lower} {_clients(weak.lower)}.",
            self.recipe.text(),
            *(joining.text for joining in self.joining),
            *self._plain_sum(),
            f"Strong T is {self.strong}: {_strong_meaning(self.strong or 1)}.",
            *self._bound(),
            *(self.noisy.sentences() if self.noisy is not None else []),
            *([] if self.hidden is None else [_ALIKE]),
            KNOWN_RANGE,
            *self._columns(),
            *([f"Not finished: {', '.join(self.pending)}."] if self.pending else []),
        ]

    def _certainty(self) -> str:
        if self.weak.certified:
            return "proven"
        if self.weak.lower != self.weak.upper:
            return "not decided at this effort"
        return f"not proven at this effort, {self.weak.surety}"

    def _columns(self) -> list[str]:
        if not self.columns_used:
            return list(self.notes)
        used = listed(self.columns_used)
        ignored = listed(self.columns_ignored)
        return [*self.notes, f"Columns used: {used}; columns ignored: {ignored}."]

    def _plain_aggregation(self) -> list[str]:
        if "plain" not in self.aggregation:
            return []
        when = "In part of the runs the" if len(self.aggregation) > 1 else "The"
        return [
            f"{when} server saw every update by itself (plain aggregation): what "
            "follows is what secure aggregation of these sums would hide."
        ]

    def _coalition(self) -> list[str]:
        if not self.coalition:
            return []
        members = join_names("client", self.coalition)
        return [
            f"The server knows the updates of {members}; what follows is of all others."
        ]

    def _parts(self) -> list[str]:
        if not self.parts:
            return []

        def rank(part: tuple[str, Audit]) -> tuple[float, int]:
            _, audit = part
            return float(audit.weak.upper or math.inf), -len(audit.exposed)

        count = len(self.parts)
        words = []
        for name, audit in sorted(self.parts, key=rank)[:_MOST_PARTS]:
            size = "no client took part"
            if audit.weak.lower is not None:
                size = f"weak T {_interval(audit.weak)}, strong T {audit.strong}, "
                size += f"{len(audit.exposed)} of {audit.num_clients} clients exposed"
            if audit.hidden is not None:
                size += f", worst hidden {audit.hidden.least_words}"
            words.append(f"part {printable(name)}: {size}")
        if count > _MOST_PARTS:
            words.append(f"and {count - _MOST_PARTS} more")
        return [
            f"The sums are of {count} part{'s' if count > 1 else ''} of the vector. "
            "Each part is audited by itself, and what follows is the worst of them, "
            f"for each figure and for each client ({'; '.join(words)})."
        ]

    def _urgent(self) -> list[str]:
        exposed = (
            f"No client is exposed: no client's update follows from the sums {REALS}."
        )
        if self.exposed:
            words = [
                f"client {printable(client)} (from round "
                f"{printable(self.printed_round(first))} on)"
                for client, first in self.exposed[:_MOST_EXPOSED]
            ]
            exposed = (
                f"{len(self.exposed)} of {self.num_clients} clients are exposed, the "
                f"server can solve for their updates: {', '.join(words)}"
            )
            if len(self.exposed) > _MOST_EXPOSED:
                exposed += f" and {len(self.exposed) - _MOST_EXPOSED} others"
            exposed += "."
        if self.weak.error_bits is not None:
            exposed += f" Not proven at this effort: {self.weak.surety}."
        if self.hidden is not None:
            values = (self.hidden, *self.others)
            return [exposed, *(hidden.sentence() for hidden in values)]
        if HIDDEN in self.pending:
            return [exposed]
        too_large = "was left out: the log is too large."
        return [exposed, f"Among how many clients each is hidden {too_large}"]

    def _plain_sum(self) -> list[str]:
        group = self.group
        if group is None or group.upper is None:
            return []
        certainty = "proven"
        if not group.certified:
            certainty = f"or as few as {group.lower}, not decided"
        return [
            f"The smallest plain sum that follows is over {group.upper} "
            f"{_clients(group.upper)} ({certainty}): "
            f"{join_names('client', self.group_clients)}."
        ]

    @property
    def mates(self) -> int | None:
        """T of the bound on tests of what a client is; None if there is no bound.

        Sums of several parts of the vector may part clients that each part keeps
        together.
        """
        is_whole = len(self.parts) < 2 and (self.strong or 1) > 1
        return self.strong if is_whole else None

    def _bound(self) -> list[str]:
        if self.mates is None:
            return []
        which = f"Of {self.mates} clients that are in exactly the same sums"
        return [f"{which}, {bound_in_words(self.mates)}."]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON, large integers as text."""
        recipe = self.recipe
        report: dict[str, Any] = {}
        if self.parts:
            report["parts"] = [_part(name, audit) for name, audit in self.parts]
        report |= _fields(self, *_OF_AUDIT)
        report["exposed"] = [
            {"client": plain(client), "first_round": plain(self.printed_round(first))}
            for client, first in self.exposed
        ]
        for key, name in _NESTED.items():
            value = getattr(self, name)
            report[key] = None if value is None else value.to_dict()
        report |= _fields(self, "pending", "coalition")
        report["joining"] = [
            {
                "client": plain(joining.client),
                **_fields(joining, "others", "fewest", "text"),
            }
            for joining in self.joining
        ]
        report["weak_privacy"] = {
            **_fields(self.weak, *_OF_WEAK),
            "support": plain_names(name for name, _ in recipe.clients)
            if recipe
            else [],
            "witness": [digits(value) for value in self.weak.witness],
        }
        report["unweighted_group"] = self.group and {
            **_fields(self.group, "lower", "upper", "certified"),
            "support": plain_names(self.group_clients),
            "witness": [digits(value) for value in self.group.witness],
        }
        report["strong_privacy"] = self.strong
        report["attribute_bound"] = None
        if self.mates is not None:
            report["attribute_bound"] = {
                **_fields(attribute_bound(self.mates), "auc", "advantage"),
                "prevalence": 0.5,
                "condition": self._bound()[0],
            }
        report["recipe"] = recipe and {
            "text": recipe.text(),
            "rounds": _terms("round", recipe.printed_rounds),
            "clients": _terms("client", recipe.clients),
        }
        return report


def _part(name: str, audit: Audit) -> dict[str, Any]:
    """Return the report on one part of the vector as plain values."""
    hidden = audit.hidden
    return {
        "part": name,
        **_fields(audit, "num_rounds", "num_clients", "strong"),
        **_fields(audit.weak, *_OF_WEAK[:5]),
        "exposed": plain_names(client for client, _ in audit.exposed),
        "hidden_among_least": hidden and hidden.least,
        "hidden_among_client": hidden and plain(hidden.least_client),
    }


def _interval(weak: WeakPrivacy) -> str:
    return _between(weak.lower, weak.upper)


def _between(lower: int | None, upper: int | None) -> str:
    return str(lower) if lower == upper else f"between {lower} and {upper}"


def _strong_meaning(strong: int) -> str:
    if strong == 1:
        return "some combination gives a client a coefficient that no other has"
    more = f"at least {strong - 1} more"
    return f"in any combination a client shares its coefficient with {more}"


def _clients(count: int | None) -> str:
    return "client" if count == 1 else "clients"


def _fields(value: Any, *names: str) -> dict[str, Any]:
    """Return attributes by their names, tuples of names as lists."""
    values = {name: getattr(value, name) for name in names}
    return {
        name: plain_names(each) if isinstance(each, tuple) else each
        for name, each in values.items()
    }


def _terms(kind: str, terms: tuple[tuple[Hashable, int], ...]) -> list[dict[str, Any]]:
    return [{kind: plain(name), "coefficient": digits(value)} for name, value in terms]
