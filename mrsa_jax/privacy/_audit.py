"""What a participation log leaks, in order of urgency, with names, certificate and recipe.

Exposed clients first, then the largest leverage, then weak and strong multi-round privacy
(Multi-RoundSecAgg, Remark 1 and equation (5)).
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import numpy as np

from mrsa_jax._errors import nearest, require
from mrsa_jax._html import Markup, card, shown, tidy
from mrsa_jax._untrusted import printable
from mrsa_jax.privacy import _wide
from mrsa_jax.privacy._history import as_history, as_log
from mrsa_jax.privacy._log_table import ParticipationLog
from mrsa_jax.privacy._recipe import Recipe, join_names, listed, recipe_of
from mrsa_jax.privacy._strong import strong_privacy
from mrsa_jax.privacy._unweighted import UnweightedGroup, unweighted_group
from mrsa_jax.privacy._weak import WeakPrivacy, weak_privacy

__all__ = ["Audit", "Definition", "Gate", "audit"]

Definition = Literal["weak", "strong"]

_MOST_GROUPS = 2000  # of clients with equal columns, for a search of plain sums
_GROUP_EFFORT = 0.2  # of the audit's effort


class Gate(NamedTuple):
    """Whether a history keeps a privacy that somebody demands.

    Attributes:
        target: T that is demanded.
        definition: `"weak"` or `"strong"`.
        passed: Whether it is proven that T is at least the target.
        reason: Why, in a sentence.
    """

    target: int
    definition: Definition
    passed: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Audit:
    """What a participation history leaks; made by `audit`.

    Attributes:
        num_rounds: Rows of the history.
        num_clients: Columns of the history.
        empty_rounds: Rows in which nobody took part.
        is_weighted: Whether entries other than 0 and 1 occur.
        exposed: (client, first round after which its update can be solved for), by round.
        max_leverage: Largest share of a client's variance that a linear estimate explains; None
            where nobody took part or the history is too large.
        max_leverage_client: Whose it is.
        weak: Weak privacy with its certificate; indices count rows and columns of the matrix.
        group: The smallest group whose plain sum follows; None where it was not searched for.
        group_clients: Names of its clients.
        strong: Strong privacy; None when nobody took part.
        recipe: The witness of weak privacy with names; None when nobody took part.
        columns_used: The columns of the log that were read; empty where they had no names.
        columns_ignored: Its other columns.
    """

    num_rounds: int
    num_clients: int
    empty_rounds: int
    is_weighted: bool
    exposed: tuple[tuple[Hashable, Hashable], ...]
    max_leverage: float | None
    max_leverage_client: Hashable | None
    weak: WeakPrivacy
    group: UnweightedGroup | None
    group_clients: tuple[Hashable, ...]
    strong: int | None
    recipe: Recipe | None
    columns_used: tuple[str, ...] = ()
    columns_ignored: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return the audit for a notebook: its findings in words, and its numbers."""
        weak, leverage = self.weak, self.max_leverage
        undefined = weak.lower is None or weak.upper is None
        rows = [
            ("history", f"{self.num_rounds} rounds, {self.num_clients} clients"),
            ("exposed clients", str(len(self.exposed))),
            ("weak T", "undefined" if undefined else _interval(weak.lower or 0, weak.upper or 0)),
            ("strong T", shown(self.strong)),
            ("largest leverage", "not computed" if leverage is None else share(leverage)),
        ]
        words = "".join(f"<p>{tidy(shown(text, 400))}</p>" for text in self.sentences())
        return card("Audit", rows, note=Markup(words))

    def gate(self, target: int, definition: Definition = "weak") -> Gate:
        """Return whether privacy of at least `target` is proven; what is uncertain fails.

        Args:
            target: T demanded, at least 1. A weak T of 2 means that nobody is exposed.
            definition: `"weak"` counts the clients in any combination of sums, `"strong"` those
                who only ever move together.

        Raises:
            ConfigurationError: If `target` is no positive integer or the definition unknown.
        """
        is_count = isinstance(target, int) and not isinstance(target, bool) and target >= 1
        require(is_count, "target", "must be an integer of at least 1", target)
        known = typing.get_args(Definition)
        rule = f"must be a known definition: {nearest(str(definition), known)}"
        require(definition in known, "definition", rule, definition)
        lower = self.strong if definition == "strong" else self.weak.lower
        upper = self.strong if definition == "strong" else self.weak.upper
        if lower is None or upper is None:
            reason = "nobody took part, so T is undefined and nothing is proven"
            return Gate(target, definition, False, reason)
        value = f"{definition} privacy T is {_interval(lower, upper)}"
        if upper < target:
            return Gate(target, definition, False, f"{value}, below {target}")
        if lower < target:
            reason = f"{value} at this effort: {target} is not proven, more effort may decide"
            return Gate(target, definition, False, reason)
        return Gate(target, definition, True, f"{value}, at least {target}")

    def sentences(self) -> list[str]:
        """Return the findings in words, the most urgent first."""
        if self.weak.lower is None or self.weak.upper is None or self.recipe is None:
            nobody = "Nobody took part in any round: nothing is learnt, and T is undefined."
            return [nobody, *self._columns()]
        sure = "proven" if self.weak.certified else "not decided at this effort"
        interval = _interval(self.weak.lower, self.weak.upper)
        return [
            *self._urgent(),
            f"Weak privacy T is {interval} ({sure}): any combination of the sums involves at "
            f"least {self.weak.lower} {_clients(self.weak.lower)}.",
            self.recipe.text(),
            *self._plain_sum(),
            f"Strong privacy T is {self.strong}: {_strong_meaning(self.strong or 1)}.",
            *self._columns(),
        ]

    def _columns(self) -> list[str]:
        if not self.columns_used:
            return []
        used, ignored = listed(self.columns_used), listed(self.columns_ignored)
        return [f"Columns used: {used}; columns ignored: {ignored}."]

    def _urgent(self) -> list[str]:
        if self.exposed:
            shown = [
                f"client {printable(client)} (from round {printable(first)} on)"
                for client, first in self.exposed
            ]
            more = f" and {len(shown) - 8} others" if len(shown) > 8 else ""
            exposed = (f"{len(shown)} of {self.num_clients} clients are exposed, the server can "
                       f"solve for their own updates: {', '.join(shown[:8])}{more}.")  # fmt: skip
        else:
            exposed = "No client is exposed: nobody's own update follows from the sums."
        if self.max_leverage is None:
            return [exposed]
        mean = self.weak.rank / self.num_clients
        client = printable(self.max_leverage_client)
        return [
            exposed,
            f"The best linear estimate explains {share(self.max_leverage)} of the variance of "
            f"client {client}'s update, and {mean:.1%} of a client's on average.",
        ]

    def _plain_sum(self) -> list[str]:
        group = self.group
        if group is None or group.upper is None:
            return []
        sure = "proven" if group.certified else f"or as few as {group.lower}, not decided"
        return [
            f"The smallest plain sum that follows is over {group.upper} {_clients(group.upper)} "
            f"({sure}): {join_names('client', self.group_clients)}."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; large integers as decimal strings."""
        weak, recipe = self.weak, self.recipe
        return {
            "num_rounds": self.num_rounds,
            "num_clients": self.num_clients,
            "empty_rounds": self.empty_rounds,
            "is_weighted": self.is_weighted,
            "columns_used": list(self.columns_used),
            "columns_ignored": list(self.columns_ignored),
            "exposed": [
                {"client": _plain(client), "first_round": _plain(first)}
                for client, first in self.exposed
            ],
            "max_leverage": self.max_leverage,
            "max_leverage_client": _plain(self.max_leverage_client),
            "weak_privacy": {
                "lower": weak.lower,
                "upper": weak.upper,
                "certified": weak.certified,
                "rank": weak.rank,
                "num_groups": weak.num_groups,
                "lower_method": weak.lower_method,
                "upper_method": weak.upper_method,
                "support": [_plain(name) for name, _ in recipe.clients] if recipe else [],
                "witness": [str(value) for value in weak.witness],
            },
            "unweighted_group": None if self.group is None else {
                "lower": self.group.lower,
                "upper": self.group.upper,
                "certified": self.group.certified,
                "support": [_plain(name) for name in self.group_clients],
                "witness": [str(value) for value in self.group.witness],
            },
            "strong_privacy": self.strong,
            "recipe": None if recipe is None else {
                "text": recipe.text(),
                "rounds": _terms("round", recipe.rounds),
                "clients": _terms("client", recipe.clients),
            },
        }  # fmt: skip


def audit(
    log_or_P: Any,
    *,
    effort: float | int = 1.0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Audit:
    """Return what a participation history leaks, with the names of its log.

    Args:
        log_or_P: A log (`read_log`), a table that `read_log` takes, or a participation matrix of
            bools or integer weights, `[rounds, clients]`, whose rows and columns are then named
            from 0.
        effort: How hard weak privacy is tried, in about a minute of two cores (`weak_privacy`).
        progress: Called with the name of a stage, the parts of it that are done, and their number.

    Returns:
        The findings.

    Raises:
        ConfigurationError: If an entry is a fraction, negative or NaN, or P has not two axes or an
            empty one.

    Examples:
        >>> found = audit([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 1]], effort=0.1)
        >>> found.exposed, found.strong
        (((2, 1), (3, 2)), 1)
        >>> found.gate(2).passed
        False

    Source: Multi-RoundSecAgg, Remark 1 and equation (5); leverage and recipes are this package's.
    """
    log = as_log(log_or_P) or _unnamed(log_or_P)
    report = progress or (lambda stage, done, total: None)
    P = log.participation
    report("weak privacy", 0, 1)
    weak = weak_privacy(P, effort=effort, progress=report)
    report("first rounds of exposure", 0, 1)
    firsts = _wide.first_rounds(P, weak.exposed)
    by_round = sorted(zip(firsts, weak.exposed, strict=True))
    report("leverage", 0, 1)
    leverage = _wide.leverages(P, weak.rank) if weak.rank else None
    top = None if leverage is None else int(np.argmax(leverage))
    report("plain sums", 0, 1)
    group = None
    if effort > 0 and 0 < weak.num_groups <= _MOST_GROUPS:
        group = unweighted_group(P, effort=_GROUP_EFFORT * effort)
    report("strong privacy", 0, 1)
    return Audit(
        num_rounds=P.shape[0],
        num_clients=P.shape[1],
        empty_rounds=int((~(P != 0).any(axis=1)).sum()),
        is_weighted=P.dtype != np.bool_ and not bool(((P == 0) | (P == 1)).all()),
        exposed=tuple((log.clients[i], log.rounds[j]) for j, i in by_round),
        max_leverage=None if leverage is None or top is None else float(leverage[top]),
        max_leverage_client=None if top is None else log.clients[top],
        weak=weak,
        group=group,
        group_clients=tuple(log.clients[i] for i in group.support) if group else (),
        strong=strong_privacy(P),
        recipe=recipe_of(log, weak.witness, weak.support) if weak.rank else None,
        columns_used=log.columns_used,
        columns_ignored=log.columns_ignored,
    )


def _unnamed(P: Any) -> ParticipationLog:
    array = np.asarray(as_history(P))
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    require(not (array < 0).any(), "P", "must not be negative", array[array < 0][:1].tolist())
    return ParticipationLog(array, tuple(range(array.shape[0])), tuple(range(array.shape[1])))


def share(leverage: float) -> str:
    """Return a leverage in percent; what is below 1 never reads as all."""
    if leverage < 1.0 and round(leverage, 3) == 1.0:
        return "more than 99.9%"
    return f"{leverage:.1%}"


def _interval(lower: int, upper: int) -> str:
    return str(lower) if lower == upper else f"between {lower} and {upper}"


def _strong_meaning(strong: int) -> str:
    if strong == 1:
        return "some combination gives a client a coefficient of its own"
    return f"in any combination a client shares its coefficient with at least {strong - 1} more"


def _clients(count: int) -> str:
    return "client" if count == 1 else "clients"


def _plain(name: Any) -> Any:
    return name if name is None or isinstance(name, int | float | str) else str(name)


def _terms(kind: str, terms: tuple[tuple[Hashable, int], ...]) -> list[dict[str, Any]]:
    return [{kind: _plain(name), "coefficient": str(value)} for name, value in terms]
