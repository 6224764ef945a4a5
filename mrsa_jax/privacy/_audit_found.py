"""The findings of an audit: whether they pass a demand, in words, and as plain values.

Exposed clients first, then among how many each is hidden, then weak and strong
multi-round privacy (Multi-RoundSecAgg, Remark 1 and equation (5)).
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

import numpy as np

from mrsa_jax.privacy._audit_hidden import Hidden, Noisy, plain
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

# ---- Sentences of an audit on the clients that coalitions expose.

_MOST_TOLD = 2


class Joining(NamedTuple):
    """A client that is exposed as soon as some others join the server.

    Attributes:
        client: Its name.
        others: Their names.
        fewest: No fewer than so many expose it; as many as `others` where that is
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
        """Return the clients not exposed whom the fewest others expose, the worst hidden first."""
        found = clients_of(log.participation, weak, effort)
        names = [printable(name) for name in log.clients]
        second = found.upper if hidden is None else hidden
        order = [
            i for i in np.lexsort((second, found.upper)).tolist() if found.upper[i] > 1
        ]
        return tuple(
            Joining(
                log.clients[i],
                tuple(log.clients[j] for j in found.coalition(i)),
                int(found.lower[i]) - 1,
                f"Client {found.sentence(i, names)}.",
            )
            for i in order[:_MOST_TOLD]
        )


# ---- The findings of an audit: whether they pass a demand, in words, and as plain
# values.

Definition = Literal["weak", "strong", "hidden"]

_MOST_PARTS = 5  # that sentences name
HIDDEN = "hidden among"  # a part of the work, as `Audit.pending` names it
_ALIKE = (
    "Hidden among is a value of clients that are alike: a client whose updates are "
    "larger than "
    "others', or resemble them, may be hidden among fewer."
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
    """What a participation history leaks; made by `audit`.

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
        weak = self.weak
        undefined = weak.lower is None or weak.upper is None
        return [
            ("history", f"{self.num_rounds} rounds, {self.num_clients} clients"),
            ("exposed clients", str(len(self.exposed))),
            (
                "weak T",
                "undefined"
                if undefined
                else _interval(weak.lower or 0, weak.upper or 0),
            ),
            ("strong T", shown(self.strong)),
            ("worst hidden", self.worst_hidden),
            *((own.rows[0], own.least_words) for own in self.of_drift),
        ]

    @property
    def of_drift(self) -> tuple[Hidden, ...]:
        """The values under the drift of updates that was given.

        Of the update, of what lasts.
        """
        return tuple(own for own in (self.updates, self.lasting) if own is not None)

    @property
    def worst_hidden(self) -> str:
        """Among how many the worst hidden client is, and who it is."""
        return "not computed" if self.hidden is None else self.hidden.least_words

    def over_rounds(
        self, log: ParticipationLog, progress: Progress | None = None
    ) -> OverRounds:
        """Return who was exposed, and between which bounds weak T lay, after each round of a log.

        Args:
            log: The history that was audited.
            progress: Called with what is done, parts done and their number.

        Examples:
            >>> import mrsa_jax as mj
            >>> import numpy as np
            >>> P = np.array([[0, 0, 0], [1, 1, 1], [0, 1, 1]], bool)
            >>> log = mj.privacy.ParticipationLog(P, (1, 2, 3), ("a", "b", "c"))
            >>> after = mj.privacy.audit(log, effort=0.01).over_rounds(log)
            >>> after.exposed.tolist(), after.lower.tolist(), after.upper.tolist()
            ([0, 0, 1], [-1, 3, 1], [-1, 3, 1])
        """
        if self.parts:
            audits = dict(self.parts)
            own = [
                (part, audits[part.name].over_rounds(part.log, progress))
                for part in Part.all_of(log)
                if part.name in audits
            ]
            return over_parts([first for _, first in self.exposed], log, own)
        log, _ = log_without(log, self.coalition)
        drifting = None if self.updates is None else self.updates.drifting
        return over_rounds(
            log, [first for _, first in self.exposed], self.weak, progress, drifting
        )

    def gate(self, target: float | int, definition: Definition = "weak") -> Gate:
        """Return whether privacy of at least `target` is known.

        What is uncertain fails.
        Where a proof would have cost more than the effort, primes drawn at random
        decide with the error chance that the reason states.

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
            >>> mj.privacy.audit([[1, 1, 1, 0], [0, 1, 1, 1]], effort=0).gate(2.5, "hidden").reason
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
        lower = self.strong if definition == "strong" else self.weak.lower
        upper = self.strong if definition == "strong" else self.weak.upper
        if lower is None or upper is None:
            reason = "no client took part, so weak and strong T are undefined and nothing is proven"
            return Gate(target, definition, False, reason)
        value = f"{definition} T is {_interval(lower, upper)}"
        if definition == "weak" and self.weak.error_bits is not None:
            value += f" ({self.weak.surety})"
        if upper < target:
            return Gate(target, definition, False, f"{value}, below {target}")
        value += f" {REALS}"
        if lower < target:
            reason = f"{value} at this effort: {target} is not proven, more effort may decide"
            return Gate(target, definition, False, reason)
        return Gate(target, definition, True, f"{value}, at least {target}")

    def _gate_of_parts(self, target: float | int, definition: Definition) -> Gate:
        """Return the gate of the worst part.

        One that fails, or the one that is nearest to it.
        """

        def rank(one: tuple[str, Audit, Gate]) -> tuple[bool, float, float]:
            _, own, gate = one
            if definition == "hidden":
                hidden = own.gated
                least = None if hidden is None else hidden.least
                return gate.passed, least or 0.0, 0.0
            sizes = (
                (own.strong, 0)
                if definition == "strong"
                else (own.weak.upper, own.weak.lower)
            )
            return gate.passed, float(sizes[0] or 0), float(sizes[1] or 0)

        judged = [
            (name, own, own.gate(target, definition))
            for name, own in self.parts
            if own.weak.rank or not self.weak.rank
        ]
        name, _, gate = min(judged, key=rank)
        return gate._replace(reason=f"in part {printable(name)}: {gate.reason}")

    @property
    def gated(self) -> Hidden | None:
        """What a gate on `"hidden"` compares.

        The smallest under the drift, or without a drift.
        """
        if self.of_drift:
            return min(self.of_drift, key=lambda own: own.least or 0.0)
        return self.hidden

    def _hidden_gate(self, target: float | int) -> Gate:
        check_number(target, "target", "must be a finite number of at least 1", 1.0)
        hidden = self.gated
        if hidden is not None:
            passed, reason = hidden.gate(target)
            others = [own for own in self.of_drift if own is not hidden]
            reason += "".join(f"; {own.subject} {own.least_words}" for own in others)
            return Gate(target, "hidden", passed, reason)
        why = "no client took part" if not self.weak.rank else "it was not computed"
        return Gate(
            target, "hidden", False, f"{why}, so no client is known to be hidden"
        )

    def sentences(self) -> list[str]:
        """Return the findings in words, the most urgent first."""
        if self.weak.lower is None or self.weak.upper is None or self.recipe is None:
            nobody = (
                "No client took part in any round: nothing is learnt; weak and strong "
                "T are "
                "undefined."
            )
            return [
                *self._seen_anyway(),
                *self._known(),
                *self._parts(),
                nobody,
                *self._columns(),
            ]
        sure = "proven" if self.weak.certified else self._unsure()
        interval = _interval(self.weak.lower, self.weak.upper)
        return [
            *self._seen_anyway(),
            *self._known(),
            *self._parts(),
            *self._urgent(),
            f"Weak T is {interval} ({sure}): any combination of the sums involves at "
            f"least {self.weak.lower} {_clients(self.weak.lower)}.",
            self.recipe.text(),
            *(joining.text for joining in self.joining),
            *self._plain_sum(),
            f"Strong T is {self.strong}: {_strong_meaning(self.strong or 1)}.",
            *(self.noisy.sentences() if self.noisy is not None else []),
            *([] if self.hidden is None else [_ALIKE]),
            KNOWN_RANGE,
            *self._columns(),
            *([f"Not finished: {', '.join(self.pending)}."] if self.pending else []),
        ]

    def _unsure(self) -> str:
        if self.weak.lower != self.weak.upper:
            return "not decided at this effort"
        return f"not proven at this effort, {self.weak.surety}"

    def _columns(self) -> list[str]:
        if not self.columns_used:
            return list(self.notes)
        used, ignored = listed(self.columns_used), listed(self.columns_ignored)
        return [*self.notes, f"Columns used: {used}; columns ignored: {ignored}."]

    def _seen_anyway(self) -> list[str]:
        if "plain" not in self.aggregation:
            return []
        when = "In part of the runs the" if len(self.aggregation) > 1 else "The"
        return [
            f"{when} server saw every update by itself (plain aggregation): what "
            "follows is "
            "what secure aggregation of these sums would hide."
        ]

    def _known(self) -> list[str]:
        if not self.coalition:
            return []
        known = join_names("client", self.coalition)
        return [
            f"The server knows the updates of {known}; what follows is of all others."
        ]

    def _parts(self) -> list[str]:
        if not self.parts:
            return []
        order = sorted(
            self.parts,
            key=lambda one: (one[1].weak.upper or math.inf, -len(one[1].exposed)),
        )
        told = []
        for name, own in order[:_MOST_PARTS]:
            weak = own.weak
            size = "no client took part"
            if weak.lower is not None and weak.upper is not None:
                size = f"weak T {_interval(weak.lower, weak.upper)}, strong T {own.strong}, "
                size += f"{len(own.exposed)} of {own.num_clients} clients exposed"
            hidden = (
                "" if own.hidden is None else f", worst hidden {own.hidden.least_words}"
            )
            told.append(f"part {printable(name)}: {size}{hidden}")
        more = len(order) - len(told)
        count = f"{len(order)} part{'s' if len(order) > 1 else ''}"
        return [
            f"The sums are of {count} of the vector. Each part is audited by itself, "
            "and what "
            "follows is the worst of them, for each figure and for each client "
            f"({'; '.join(told)}{f'; and {more} more' if more else ''})."
        ]

    def _urgent(self) -> list[str]:
        if self.exposed:
            shown = [
                f"client {printable(client)} (from round "
                f"{printable(self.printed_round(first))} on)"
                for client, first in self.exposed
            ]
            more = f" and {len(shown) - 8} others" if len(shown) > 8 else ""
            exposed = (
                f"{len(shown)} of {self.num_clients} clients are exposed, the server "
                "can "
                f"solve for their updates: {', '.join(shown[:8])}{more}."
            )
        else:
            exposed = f"No client is exposed: no client's update follows from the sums {REALS}."
        if self.weak.error_bits is not None:
            exposed += f" Not proven at this effort: {self.weak.surety}."
        if self.hidden is not None:
            drifting = [own.sentence() for own in self.of_drift]
            return [exposed, self.hidden.sentence(), *drifting]
        left_out = (
            "Among how many clients each is hidden was left out: the log is too large."
        )
        return [exposed] if HIDDEN in self.pending else [exposed, left_out]

    def _plain_sum(self) -> list[str]:
        group = self.group
        if group is None or group.upper is None:
            return []
        sure = (
            "proven" if group.certified else f"or as few as {group.lower}, not decided"
        )
        return [
            f"The smallest plain sum that follows is over {group.upper} "
            f"{_clients(group.upper)} "
            f"({sure}): {join_names('client', self.group_clients)}."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Large integers as decimal strings.
        """
        weak, recipe = self.weak, self.recipe
        parts = (
            {} if not self.parts else {"parts": [_part(*each) for each in self.parts]}
        )
        return parts | {
            **_fields(
                self,
                "num_rounds",
                "num_clients",
                "empty_rounds",
                "is_weighted",
                "columns_used",
                "columns_ignored",
                "aggregation",
                "notes",
            ),
            "exposed": [
                {
                    "client": plain(client),
                    "first_round": plain(self.printed_round(first)),
                }
                for client, first in self.exposed
            ],
            "hidden_among": None if self.hidden is None else self.hidden.to_dict(),
            "hidden_among_updates": None
            if self.updates is None
            else self.updates.to_dict(),
            "hidden_among_lasting": None
            if self.lasting is None
            else self.lasting.to_dict(),
            "noise": None if self.noisy is None else self.noisy.to_dict(),
            "pending": list(self.pending),
            "coalition": [plain(name) for name in self.coalition],
            "joining": [
                {
                    "client": plain(own.client),
                    "others": [plain(name) for name in own.others],
                    "fewest": own.fewest,
                    "text": own.text,
                }
                for own in self.joining
            ],
            "weak_privacy": {
                **_fields(
                    weak,
                    "lower",
                    "upper",
                    "certified",
                    "error_bits",
                    "rank",
                    "num_groups",
                    "lower_method",
                    "upper_method",
                ),
                "support": [plain(name) for name, _ in recipe.clients]
                if recipe
                else [],
                "witness": [digits(value) for value in weak.witness],
            },
            "unweighted_group": None
            if self.group is None
            else {
                **_fields(self.group, "lower", "upper", "certified"),
                "support": [plain(name) for name in self.group_clients],
                "witness": [digits(value) for value in self.group.witness],
            },
            "strong_privacy": self.strong,
            "recipe": None
            if recipe is None
            else {
                "text": recipe.text(),
                "rounds": _terms("round", recipe.printed_rounds),
                "clients": _terms("client", recipe.clients),
            },
        }


def _part(name: str, own: Audit) -> dict[str, Any]:
    """Return the report on one part of the vector as plain values."""
    hidden = own.hidden
    return {
        "part": name,
        **_fields(own, "num_rounds", "num_clients", "strong"),
        **_fields(own.weak, "lower", "upper", "certified", "error_bits", "rank"),
        "exposed": [plain(client) for client, _ in own.exposed],
        "hidden_among_least": None if hidden is None else hidden.least,
        "hidden_among_client": None if hidden is None else plain(hidden.least_client),
    }


def _interval(lower: int, upper: int) -> str:
    return str(lower) if lower == upper else f"between {lower} and {upper}"


def _strong_meaning(strong: int) -> str:
    if strong == 1:
        return "some combination gives a client a coefficient that no other has"
    return f"in any combination a client shares its coefficient with at least {strong - 1} more"


def _clients(count: int) -> str:
    return "client" if count == 1 else "clients"


def _fields(of: Any, *names: str) -> dict[str, Any]:
    """Return attributes by their names, tuples as lists."""
    values = {name: getattr(of, name) for name in names}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _terms(kind: str, terms: tuple[tuple[Hashable, int], ...]) -> list[dict[str, Any]]:
    return [{kind: plain(name), "coefficient": digits(value)} for name, value in terms]
