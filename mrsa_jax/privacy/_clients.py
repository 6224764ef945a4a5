"""Each client's own weak privacy, and the smallest coalition that exposes it.

T_i is the fewest clients in a combination of the learnt sums that involves client i:
the smallest support of the vectors v of P's rational row space with v_i != 0. Let A be
clients who tell the server their updates. Client i is exposed to A exactly if some such
v has its support in A and i (`_coalitions`), so the smallest coalition that exposes i
has T_i - 1 members: the others of a lightest v. The least T_i is weak privacy T
(Multi-RoundSecAgg, Remark 1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.traced import needs_values
from mrsa_jax.privacy._coalitions import without
from mrsa_jax.privacy._weak import (
    SECONDS_PER_EFFORT,
    Budget,
    WeakPrivacy,
    check_effort,
    weak_steps,
)
from mrsa_jax.privacy.solver import (
    CHEAP_SECONDS,
    Groups,
    Progress,
    Ranks,
    Sieve,
    Through,
    Vector,
    collapse,
    ranks_of,
    support_of,
)
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import brief, telling
from mrsa_watch._base.values import by_value

_SHARE = 0.5  # of the effort for the least of all
_MOST_SAID = 3  # sentences in a notebook
_MOST_NAMES = 10  # in a sentence
_NUMBERS = {1: "this client", 2: "these two", 3: "these three", 4: "these four"}


@dataclasses.dataclass(frozen=True)
@by_value
class ClientPrivacy:
    """The weak privacy T_i of each client: intervals, and what proves them.

    Attributes:
        lower: int64 `[clients]`: no combination that involves the client involves
            fewer; -1 for who took no part in any sum, or is in the coalition.
        upper: int64 `[clients]`: clients in a combination that was found; -1 likewise.
        certified: bool `[clients]`: whether both are equal, with the lower bound proven
            and the combination checked in exact integers.
        supports: For each client the sorted clients of that combination, itself among
            them; empty where there is none.
        witnesses: For each client an integer a round, or none: the combination's
            coefficients.
        error_bits: None where lower bounds are proven; otherwise k: one of them is
            wrong with error chance below 2**-k, and none is certified that rests on it.
    """

    __repr__ = brief
    _repr_html_ = telling

    lower: np.ndarray
    upper: np.ndarray
    certified: np.ndarray
    supports: tuple[tuple[int, ...], ...]
    witnesses: tuple[tuple[int, ...], ...]
    error_bits: int | None

    def _rows(self) -> list[tuple[str, str]]:
        """Return a summary of all clients, and the first sentences (`__str__`)."""
        summed = self.upper > 0
        ends = "-"
        if summed.any():
            ends = f"{self.lower[summed].min()} to {self.upper[summed].max()}"
        sentences = str(self).splitlines()
        fewest = "; ".join(sentences[:_MOST_SAID])
        if len(sentences) > _MOST_SAID:
            fewest += f"; and of {len(sentences) - _MOST_SAID} more"
        return [
            ("clients", f"{self.upper.size}, {int(summed.sum())} with a figure"),
            ("T of one client", f"{ends} ({int(self.certified.sum())} certified)"),
            ("the fewest", fewest),
        ]

    def coalition(self, client: Any) -> tuple[int, ...]:
        """Return clients whose updates, with the sums, reveal this client's update.

        The smallest such coalition where T_i is certified: T_i - 1 members.

        Args:
            client: Index of the client.

        Raises:
            ConfigurationError: If there is no such client, or it has no figure.

        Examples:
            >>> client_privacy([[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]).coalition(0)
            (1,)
        """
        index = check_integer(client, "client", 0, len(self.supports) - 1)
        require(
            bool(self.supports[index]), "client", "must have taken part in a sum", index
        )
        return tuple(other for other in self.supports[index] if other != index)

    def sentence(self, client: Any, names: Sequence[Hashable] | None = None) -> str:
        """Return in words who exposes a client.

        Args:
            client: Index of the client.
            names: Of all clients, such as `ParticipationLog.clients`; their indices
                unless given.

        Raises:
            ConfigurationError: If there is no such client, or another number of names.

        Examples:
            >>> found = client_privacy([[1, 1, 1, 0], [0, 0, 0, 1]])
            >>> found.sentence(0, ["site-01", "site-02", "site-03", "site-04"])
            'site-01 is exposed if these two join the server: site-02, site-03'
            >>> found.sentence(3)
            '3 is exposed: no client need join the server'
        """
        index = check_integer(client, "client", 0, len(self.supports) - 1)
        total = len(self.supports)
        fits = names is None or len(names) == total
        require(fits, "names", f"must name all {total} clients", names)
        called = names or range(total)
        if not self.supports[index]:
            return f"{called[index]} is in no sum that is left to learn from"
        others = self.coalition(index)
        if not others:
            return f"{called[index]} is exposed: no client need join the server"
        count = len(others)
        many = _NUMBERS.get(count, f"these {count}")
        names_of_others = ", ".join(
            str(called[other]) for other in others[:_MOST_NAMES]
        )
        if count > _MOST_NAMES:
            names_of_others += ", ..."
        least = int(self.lower[index]) - 1
        if 1 < least < count:
            names_of_others += f" (fewer than {least} cannot)"
        verb = "joins" if count == 1 else "join"
        return (
            f"{called[index]} is exposed if {many} {verb} the server: {names_of_others}"
        )

    def __str__(self) -> str:
        """Return the sentences of the clients that the fewest others expose.

        Examples:
            >>> print(client_privacy([[1, 1, 0], [1, 1, 1]], coalition=[0]))
            1 is exposed: no client need join the server
            2 is exposed: no client need join the server
        """
        sizes = self.upper[self.upper > 0]
        least = np.flatnonzero(self.upper == sizes.min()) if sizes.size else ()
        return "\n".join(map(self.sentence, least)) or "no client is in a sum"


@needs_values
def client_privacy(
    P: Any, *, effort: Any = 1.0, coalition: Any = (), progress: Progress | None = None
) -> ClientPrivacy:
    """Return for each client the fewest clients in a combination of sums with it.

    Use it where `weak_privacy`, their least, says too little: whom its witness does not
    involve may be hidden better. One fewer is how many others have to join the server
    to expose the client, and the witness says who.

    Args:
        P: Participation matrix, bools or integer weights, `[rounds, clients]`; a row
            for each sum that the server learnt.
        effort: How much may be tried: 1.0 allows searches of 90 seconds of one core,
            all together, as predicted before each starts. 0 does only what is cheap.
        coalition: Indices of clients who reveal their updates to the server, known and
            not all: they count as if they had taken no part.
        progress: Called with a search's name, the parts done and their number.

    Returns:
        An interval for each client with its witness (`ClientPrivacy`).

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, P has not two axes or an
            empty one, `effort` is no finite number of at least 0, or a coalition is
            none.

    Edge cases: exposed clients have 1; who took no part, or is in the coalition, -1.

    Examples:
        >>> import mrsa_jax as mj
        >>> P = [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 1]]
        >>> found = mj.privacy.client_privacy(P)
        >>> found.upper.tolist(), bool(found.certified.all())
        ([2, 2, 3, 3, 1], True)
        >>> # a member takes at most one
        >>> mj.privacy.client_privacy(P, coalition=[1]).upper.tolist()
        [1, -1, 2, 2, 1]

    Cost: NP-hard in general. Lower bounds are the least of all (`weak_privacy`), the
    client's class of equal columns, and a walk through all circuits up to a weight:
    some 10^8 sets of groups in 10 s.

    Source: Multi-RoundSecAgg, Remark 1, for the least of them; each client's is this
    package's.
    """
    array = host_array(without(P, coalition), "P")
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    whole = check_effort(effort)
    *_, weak = weak_steps(array, effort=_SHARE * whole, progress=progress)
    return clients_of(array, weak, (1 - _SHARE) * whole, progress)


def clients_of(
    array: np.ndarray,
    weak: WeakPrivacy,
    effort: float,
    progress: Progress | None = None,
) -> ClientPrivacy:
    """Return each client's T, given what is known of the least of all."""
    groups = collapse(array)
    if weak.lower is None:
        return _assembled(array, groups, None, None, None)
    budget = Budget(SECONDS_PER_EFFORT * effort)
    ranks = ranks_of(groups.matrix, max(budget.left, CHEAP_SECONDS), progress)
    through = Through(groups.matrix[ranks.kept], groups.sizes, ranks.minor_bits)
    coefficients = [weak.witness[j] for j in ranks.kept]
    # a witness that uses other rows is no combination of those that were kept
    if sum(map(bool, coefficients)) == sum(map(bool, weak.witness)):
        on = support_of(coefficients, through.rows)
        weight = int(groups.sizes[on].sum())
        through.take(Vector(weight, on, tuple(coefficients), weak.upper_method))
    through.raise_lower(np.full(groups.num_groups, weak.lower), "least of all")
    _take_single(through, groups, ranks, budget)
    _narrow(through, budget, progress)
    return _assembled(array, groups, ranks, through, weak.error_bits)


def _take_single(
    through: Through, groups: Groups, ranks: Ranks, budget: Budget
) -> None:
    """Take the groups that stand alone; others are hidden in two groups at least."""
    sieve = Sieve(groups, through.rows, ranks.minor_bits)
    for vector in sieve.alone(sieve.suspects, max(budget.left, CHEAP_SECONDS)).vectors:
        through.take(vector)
    if groups.num_groups > 1:
        others = np.full(groups.num_groups, groups.sizes[0])
        others[0] = groups.sizes[1]
        others[sieve.suspects] = 0
        through.raise_lower(groups.sizes + others, "column basis")


def _narrow(through: Through, budget: Budget, progress: Progress | None) -> None:
    """Search up from below, each time for longer, and by programs in between."""
    has_programs = False
    seconds = CHEAP_SECONDS
    while len(through.open):
        most = max(budget.left, CHEAP_SECONDS)
        best = through.best_limit(min(seconds, most))
        if best is not None:
            limit, predicted = best
            budget.spend(predicted)
            if progress is not None:
                stage = f"circuits: weight up to {limit}, about {predicted:.0f} core-s"
                progress(stage, 0, 1)
            if not through.search(limit, predicted):
                return
        elif not has_programs:
            has_programs = True
            each = through.program_seconds()
            share = max(budget.left / 3, CHEAP_SECONDS)
            count = min(len(through.open), int(share / each))
            budget.spend(count * each)
            through.programs(count, progress)
        elif seconds >= most:
            return
        else:
            seconds *= 4


def _assembled(
    array: np.ndarray,
    groups: Groups,
    ranks: Ranks | None,
    through: Through | None,
    bits: int | None,
) -> ClientPrivacy:
    """Return the figures of groups for their clients."""
    clients = array.shape[1]
    lower, upper = np.full((2, clients), -1, np.int64)
    certified = np.zeros(clients, np.bool_)
    supports: list[tuple[int, ...]] = [()] * clients
    witnesses: list[tuple[int, ...]] = [()] * clients
    error_bits = None
    if through is not None and ranks is not None:
        every = (bits, ranks.error_bits, through.error_bits)
        error_bits = min((each for each in every if each is not None), default=None)
        proofs = {
            id(vector): (
                groups.clients(np.flatnonzero(vector.columns)),
                vector.witness(ranks.kept, groups),
            )
            for vector in through.vectors
        }
        for k, vector in enumerate(through.vectors):
            is_met = through.lower[k] == vector.weight
            is_class = through.lower[k] <= groups.sizes[k]
            is_proven = is_class or error_bits is None
            for client in groups.members[k]:
                lower[client] = through.lower[k]
                upper[client] = vector.weight
                certified[client] = is_met and is_proven
                supports[client], witnesses[client] = proofs[id(vector)]
    return ClientPrivacy(
        lower, upper, certified, tuple(supports), tuple(witnesses), error_bits
    )
