"""Clients that a gate's caller means, by their names in the history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from mrsa_watch._base.errors import ConfigurationError, require
from mrsa_watch.logs import (
    SCALE_RULE,
    AlikeError,
    Names,
    PseudonymNames,
    Pseudonyms,
    client_text,
    common_denominator,
    exact_weight,
    is_pseudonym,
)


class Cohort(NamedTuple):
    """The clients of a sum, by their names in the history.

    Attributes:
        names: Each client's name.
        weights: Their factors in the sum, exactly; None if they were not given.
        new: Those of them that the history does not know, by their likeness.
    """

    names: list[str]
    weights: list[Fraction] | None
    new: dict[Any, str]


class Clients:
    """The clients that a gate knows, and how its caller names them.

    Args:
        salt: Makes the pseudonyms of a log of real names; None takes names as they are.
        digest: What names the salt in the log; None if its names are no pseudonyms.
    """

    def __init__(self, salt: bytes | None = None, digest: str | None = None) -> None:
        self._names = Names() if digest is None else PseudonymNames()
        rule = "must not be set for a log of plain names"
        require(salt is None or digest is not None, "salt", rule)
        self._pseudonyms = None if salt is None else Pseudonyms(salt, digest)
        self._takes_pseudonyms = digest is not None and salt is None
        self._given: dict[str, Hashable] = {}

    def cohort(self, clients: Any, weights: Any) -> Cohort:
        """Return the clients of a sum, after checking their names and weights.

        Raises:
            ConfigurationError: If a client has no name, comes twice, or is like another
                one and not it; if names are plain and the log has pseudonyms; or for a
                weight that is none.
        """
        is_several = isinstance(clients, Collection)
        is_several = is_several and not isinstance(clients, str | bytes)
        require(is_several, "clients", "must be a collection of names", clients)
        names = list(map(self._name, clients))
        if len(set(names)) < len(names):
            twice, _ = Counter(names).most_common(1)[0]
            require(False, "clients", "must not contain duplicates", self.given(twice))
        for name, client in zip(names, clients, strict=True):
            self._given.setdefault(name, client)  # as the caller wrote it first
        if isinstance(clients, Mapping):
            rule = "must not be set if clients are a mapping"
            require(weights is None, "weights", rule)
            weights = clients.values()
        return Cohort(names, _exact(weights, len(names)), self.new(names))

    def new(self, names: Iterable[str]) -> dict[Any, str]:
        """Return the names that are not known, by their likeness.

        Raises:
            ConfigurationError: If one is like a known one, or like another of them.
        """
        try:
            return self._names.new(names)
        except AlikeError as error:
            name, other = self.given(error.name), self.given(error.other)
            rule = f"must name a client as before: {name!r} may be {other!r}"
            raise ConfigurationError(f"`clients` {rule}, which is known") from error

    def add(self, new: dict[Any, str]) -> None:
        """Take clients that are new."""
        self._names.add(new)

    def given(self, name: str) -> Hashable:
        """Return a client as the caller wrote it, or its name in the log."""
        return self._given.get(name, name)

    def _name(self, client: Any) -> str:
        if self._pseudonyms is not None:
            pseudonym = self._pseudonyms.of(client)
            # the adapters ask by pseudonyms, which their recorder makes
            is_other = pseudonym not in self._names and client in self._names
            return client if is_other else pseudonym
        if type(client) is str and client in self._names:
            return client  # was checked when it was new
        text = client_text(client)
        rule = (
            "must be pseudonyms as in the log "
            "(real names need its salt: --salt LOG.salt)"
        )
        is_fine = not self._takes_pseudonyms or is_pseudonym(text.casefold())
        require(is_fine, "clients", rule, client)
        return text


def _exact(weights: Any, count: int) -> list[Fraction] | None:
    """Return positive weights exactly; None if there are none."""
    if weights is None:
        return None
    values = list(weights) if isinstance(weights, Iterable) else []
    rule = f"must be {count}, one for each client"
    require(len(values) == count, "weights", rule, weights)
    exact: list[Fraction] = []
    rule = "must be positive integers, fractions, or text such as '3/7'"
    for weight in values:
        number = exact_weight(weight)
        require(number is not None, "weights", rule, weight)
        exact += [number or Fraction(0)]
    require(common_denominator(exact) is not None, "weights", SCALE_RULE)
    return exact
