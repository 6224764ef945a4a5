"""A server that chooses its lists of survivors to expose clients.

It knows what clients accept, and of the lists that they would accept asks for the one
after which most clients are exposed; among equals, the one with the largest sum of
squared leverages.

Lists are often equally good, and floats would break such ties by how a CPU rounds. So
integers decide: with G the Gram matrix of the independent sums so far and d = det G,
the projector on their span is A / d, A of integers. Of a further sum x, u = d x - A x
is d times the part outside the span and L = x^T u is the determinant with it; the
projector is then ((L A + u u^T) / d) / L, and the division by d leaves no rest
(Sylvester's identity, as in Bareiss's elimination).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int

from mrsa_jax._core.round_rules import block_labels
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.streams import as_key, host_generator
from mrsa_jax._core.traced import needs_values
from mrsa_jax.privacy import first_exposure
from mrsa_watch._base.errors import check_integer
from mrsa_watch._base.html import brief_tuple
from mrsa_watch._base.values import by_value


class _Span(NamedTuple):
    """The span of learnt sums.

    Its projector is a matrix of Python integers over one of them.
    """

    matrix: np.ndarray
    divisor: int

    @staticmethod
    def of_nothing(clients: int) -> _Span:
        """Return the span before the first sum."""
        return _Span(np.zeros((clients, clients), object), 1)

    def outside(self, listed: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the divisor times a sum's part outside the span; and the next divisor.

        That is 0 for a sum in the span.
        """
        members = np.flatnonzero(listed)
        rest = -self.matrix[:, members].sum(axis=1)
        rest[members] += self.divisor
        return rest, int(rest[members].sum())

    def worth(self, listed: np.ndarray) -> tuple[int, Fraction]:
        """Count the exposed clients after a further sum, and add squared leverages."""
        # over the divisor: a client is exposed if its leverage is 1
        leverages = np.diagonal(self.matrix)
        divisor = self.divisor
        rest, volume = self.outside(listed)
        if volume:
            leverages = (leverages * volume + rest * rest) // divisor
            divisor = volume
        exposed = int((leverages == divisor).sum())
        return exposed, Fraction(int((leverages * leverages).sum()), divisor**2)

    def with_sum(self, listed: np.ndarray) -> _Span:
        """Return the span with a further sum."""
        rest, volume = self.outside(listed)
        if not volume:
            return self
        matrix = (self.matrix * volume + np.outer(rest, rest)) // self.divisor
        return _Span(matrix, volume)


@brief_tuple
@by_value
class ExposingRounds(NamedTuple):
    """Sums that the server asked for and got (of `ExposingServer.play`).

    Attributes:
        participation: bool[J, N], the sums that it learnt; no clients in a round in
            which every list that it thought of would have been refused.
        refused: Lists that it thought of and clients would have refused.
    """

    participation: Bool[np.ndarray, "rounds clients"]
    refused: int

    @property
    def exposed(self) -> Int[np.ndarray, " rounds"]:
        """Return int[J], the number of exposed clients after each round."""
        first = np.asarray(first_exposure(self.participation))
        counts = np.bincount(first[first >= 0], minlength=len(self.participation))
        return np.cumsum(counts)


@dataclasses.dataclass(frozen=True)
@by_value
class ExposingServer:
    """The adversary (built by `exposing_server`).

    Attributes:
        cohort_size: K, the most clients that it lists in a round.
        blocks: int[N], the number of each client's block.
        candidates: Lists that it thinks of in each round.
    """

    cohort_size: int
    blocks: Int[np.ndarray, " clients"]
    candidates: int

    @functools.cached_property
    def _labels(self) -> tuple[np.ndarray, list[int]]:
        """The number of each client's block, counted from 0, and the blocks' sizes."""
        _, labels, sizes = np.unique(
            self.blocks, return_inverse=True, return_counts=True
        )
        return labels, sizes.tolist()

    @needs_values
    def play(
        self,
        seed: Any,
        num_rounds: int | np.integer,
        accepts: Callable[[Any], bool] | None = None,
    ) -> ExposingRounds:
        """Ask for sums in some rounds.

        Args:
            seed: Integer or key.
            num_rounds: J.
            accepts: Whether clients unmask a list, bool[N]: their policy, which the
                server knows. None for clients who unmask every sum over two or more.

        Returns:
            The sums that it learns.
        """
        rounds = check_integer(num_rounds, "num_rounds", 1)
        rng, n = host_generator(as_key(seed)), len(self.blocks)
        sums, refused = np.zeros((rounds, n), bool), 0
        span = _Span.of_nothing(n)
        for number in range(rounds):
            best = (-1, Fraction(-1))
            for _ in range(self.candidates):
                listed = self._thought_of(rng, sums[:number])
                is_sum = listed.sum() >= FEWEST_IN_A_SUM
                if not is_sum or not (accepts is None or accepts(listed)):
                    refused += 1
                    continue
                worth = span.worth(listed)
                if worth > best:
                    best, sums[number] = worth, listed
            span = span.with_sum(sums[number])
        return ExposingRounds(sums, refused)

    def _thought_of(self, rng: np.random.Generator, before: np.ndarray) -> np.ndarray:
        """Draw clients, whole blocks, or blocks or an earlier sum less one client."""
        n, way = len(self.blocks), int(rng.integers(4 if len(before) else 3))
        listed = np.zeros(n, bool)
        if way == 0:
            listed[rng.permutation(n)[: self.cohort_size]] = True
            return listed
        if way == 3:
            listed |= before[rng.integers(len(before))]
        else:
            # fill the cohort with whole blocks, in random order
            labels, sizes = self._labels
            is_listed, room = np.zeros(len(sizes), bool), self.cohort_size
            for block in rng.permutation(len(sizes)).tolist():
                if sizes[block] <= room:
                    is_listed[block] = True
                    room -= sizes[block]
            listed = is_listed[labels]
        if way != 1 and listed.any():
            listed[rng.choice(np.flatnonzero(listed))] = False
        return listed


@needs_values
def exposing_server(
    num_clients: int | np.integer,
    cohort_size: int | np.integer,
    blocks: ArrayLike | int = 1,
    candidates: int | np.integer = 32,
) -> ExposingServer:
    """Build a server that chooses its sums to expose as many clients as it can.

    Use it to see what a client's policy is worth: with clients who unmask what they are
    asked for, it exposes one in nearly every round; with clients who keep blocks
    (`protocol.run(..., blocks=)`) nobody. It sends one model to all;
    `model_inconsistency` is a server that does not.

    Args:
        num_clients: N.
        cohort_size: K, the most clients in a sum.
        blocks: T, for blocks i // T of client i, or int[N]: the blocks that it is
            supposed to ask for.
        candidates: Lists that it thinks of in a round, of which it takes the best; 1
            for a server that asks at random.

    Returns:
        A frozen value; `play` asks for the sums.

    Raises:
        ConfigurationError: If a number is out of range, or `blocks` are no blocks of N
            clients.

    Examples:
        >>> import mrsa_jax as mj
        >>> server = mj.attacks.exposing_server(12, 6, blocks=3)
        >>> int(server.play(0, 20).exposed[-1])
        12
        >>> def whole(listed):
        ...     return (listed.reshape(4, 3).sum(axis=1) % 3 == 0).all()
        >>> int(server.play(0, 20, whole).exposed[-1])
        0

    Cost: for each candidate N times K additions, and for each round N^2 products, of
    integers of up to J log2(K) bits: two seconds for 120 clients and 200 rounds. The
    same on every machine.

    Source: Multi-RoundSecAgg assumes a server that selects as it should; this one does
    not.
    """
    clients = check_integer(num_clients, "num_clients", 2)
    size = check_integer(cohort_size, "cohort_size", 2, clients)
    count = check_integer(candidates, "candidates", 1)
    return ExposingServer(size, np.asarray(block_labels(blocks, clients)), count)
