"""A witness of weak privacy in words.

Which rounds to add and subtract, and whose sum is left.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_watch._base.untrusted import cell, printable
from mrsa_watch.logs import ParticipationLog, printed_round

_MOST_NAMES = 10
_MOST_TERMS = 12
_MOST_DIGITS = 6
_MOST_BITS = 10_000


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A combination of learnt sums that involves few clients.

    Attributes:
        rounds: (name of a round, coefficient of its sum), coefficients not 0.
        clients: (name of a client, coefficient of its update in the combination).
        are_places: Whether rounds have no names: they are places from 0 here, and
            counted from 1 in words and lines.
    """

    rounds: tuple[tuple[Hashable, int], ...]
    clients: tuple[tuple[Hashable, int], ...]
    are_places: bool = False

    @property
    def printed_rounds(self) -> tuple[tuple[Hashable, int], ...]:
        """The rounds as they are printed, with their coefficients."""
        return tuple(
            (printed_round(name, are_places=self.are_places), c)
            for name, c in self.rounds
        )

    @staticmethod
    def of(
        log: ParticipationLog, witness: Sequence[int], support: Sequence[int]
    ) -> Recipe:
        """Return the recipe of a witness z.

        Coefficients of the sums as the server learnt them.
        Common factors are taken out, and signs chosen so that more clients are added
        than subtracted.

        Args:
            log: The history.
            witness: z, an integer for each round.
            support: The clients on which z P is not zero.
        """
        rows = [j for j, value in enumerate(witness) if value]
        scales = log.scales or (Fraction(1),) * len(witness)
        times = math.lcm(*(scales[j].denominator for j in rows))
        sums = [int(times * witness[j] * scales[j]) for j in rows]
        part = log.participation[np.ix_(rows, list(support))].astype(object) * 1
        exact = np.array([times * int(witness[j]) for j in rows], dtype=object)
        sums_of_clients = [int(value) for value in exact @ part]
        common = math.gcd(*sums, *sums_of_clients)
        if sum(map(np.sign, sums_of_clients)) < 0:
            common = -common
        rounds = tuple(
            (log.rounds[j], c // common) for j, c in zip(rows, sums, strict=True)
        )
        clients = tuple(
            (log.clients[i], v // common)
            for i, v in zip(support, sums_of_clients, strict=True)
        )
        return Recipe(rounds, clients, log.are_places)

    def text(self) -> str:
        """Return the recipe as one sentence, shortened where numbers or lists are long.

        Examples:
            >>> import mrsa_jax as mj
            >>> mj.privacy.Recipe(((3, 1), (9, 1), (12, -1)), ((41, 1),)).text()
            "The sum of rounds 3 and 9 minus round 12 is client 41's update alone."
        """
        text = f"{_combination(self.printed_rounds)} is {_result(self.clients)}."
        return text[0].upper() + text[1:]

    def lines(self) -> list[str]:
        """Return the whole recipe as lines of CSV: kind, name, coefficient.

        A name that a spreadsheet would take for a formula gets an apostrophe before it.
        """
        lines = ["kind,name,coefficient"]
        for kind, terms in (("round", self.printed_rounds), ("client", self.clients)):
            lines += [
                f"{kind},{_quoted(name)},{digits(value)}" for name, value in terms
            ]
        return lines


def join_names(kind: str, names: Sequence[Any]) -> str:
    """Return "round 3", "rounds 3 and 9" or "rounds 1, 2, ..., 60 (60 of them)"."""
    return f"{kind}{'s' if len(names) > 1 else ''} {listed(names)}"


def listed(names: Sequence[Any]) -> str:
    """Return "3", "3 and 9", "1, 2, ..., 60 (60 of them)", or "none"."""
    words = [printable(name) for name in names]
    if len(words) > _MOST_NAMES:
        first = ", ".join(words[: _MOST_NAMES - 4])
        return f"{first}, ..., {words[-1]} ({len(words)} of them)"
    if len(words) < 2:
        return words[0] if words else "none"
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _combination(terms: Sequence[tuple[Hashable, int]]) -> str:
    coefficients = [value for _, value in terms]
    if all(abs(value) == 1 for value in coefficients):
        signs = {"": 1, "minus ": -1}
        rounds = {
            word: [name for name, value in terms if value == sign]
            for word, sign in signs.items()
        }
        return " ".join(word + _sum_of(each) for word, each in rounds.items() if each)
    if _is_long(coefficients):
        names = join_names("round", [name for name, _ in terms])
        return f"a combination of {names} with {_sizes(coefficients)}"
    return _terms("round", terms)


def _sum_of(rounds: Sequence[Any]) -> str:
    return ("the sum of " if len(rounds) > 1 else "") + join_names("round", rounds)


def _result(terms: Sequence[tuple[Hashable, int]]) -> str:
    names, values = zip(*terms, strict=True)
    if len(set(values)) == 1:
        times = "" if values[0] == 1 else f"{_number(values[0])} times "
        if len(terms) == 1:
            return f"{times}client {printable(names[0])}'s update alone"
        return f"{times}the sum of {join_names('client', names)} alone"
    if _is_long(values):
        clients = join_names("client", names)
        return f"a combination of {clients} alone, with {_sizes(values)}"
    return f"{_terms('client', terms)} alone"


def _is_long(coefficients: Sequence[int]) -> bool:
    is_many = len(coefficients) > _MOST_TERMS
    return is_many or max(map(abs, coefficients)) >= 10**_MOST_DIGITS


def digits(value: int) -> str:
    """Return an integer in decimal; Python refuses those of thousands of digits."""
    if value.bit_length() <= _MOST_BITS:
        return str(value)
    import flint

    return str(flint.fmpz(value))


def _num_digits(value: int) -> int:
    return max(1, math.ceil(abs(value).bit_length() * math.log10(2)))


def _sizes(coefficients: Sequence[int]) -> str:
    largest = max(map(abs, coefficients))
    if largest < 10**_MOST_DIGITS:
        return f"whole coefficients up to {largest}"
    return f"whole coefficients of up to {_num_digits(largest)} digits"


def _number(value: int) -> str:
    if abs(value) < 10**_MOST_DIGITS:
        return str(value)
    return f"(a whole number of {_num_digits(value)} digits)"


def _terms(kind: str, terms: Sequence[tuple[Hashable, int]]) -> str:
    words = []
    for i, (name, value) in enumerate(terms):
        sign = "-" if value < 0 else "+" if i else ""
        times = "" if abs(value) == 1 else f"{abs(value)} × "
        words.append(f"{sign} {times}{kind} {printable(name)}".strip())
    return " ".join(words)


def _quoted(name: Any) -> str:
    text = str(cell(name))
    if any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
