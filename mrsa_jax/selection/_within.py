"""Blocks of clients who train the same parts of the vector (LoRA ranks, submodels).

A sum over the coordinates of a part is of those who train it. Blocks keep T in every
part if all members of a block train the same parts; a block of mates who do not gives
the sum of fewer of them on the coordinates that only some train. Symbols: T
`privacy_target`, a[i, l] `parts`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from mrsa_jax._core.array_types import Counts, Flags, TrialKeys
from mrsa_jax._core.arrays import binary_matrix, zeros
from mrsa_jax._core.factories import also_traced, is_whole, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import Calls, pytree, static
from mrsa_jax._core.selector import Selector, SelectorState, check_selector
from mrsa_jax._core.streams import Seed, Stream, as_key, client_words, fold
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.selection._blocks import BlockSelection, batch_partitioning
from mrsa_jax.selection._ranking import Steps, Words
from mrsa_jax.selection.checks import Fairness
from mrsa_watch._base.errors import check_known, check_size, require
from mrsa_watch._base.values import by_value

# What deployed systems and differentially private training with correlated noise ask of
# a schedule ("b-min-separated participation"). A wrapper: the scheme inside sees rested
# clients only.


@by_value
class SeparationState(NamedTuple):
    """State of minimum separation between rounds.

    Attributes:
        inner: State of the scheme inside.
        rest: int32[N], further rounds in which each client may not be asked.
    """

    inner: Any
    rest: Counts

    @property
    def counts(self) -> Counts:
        """Rounds in whose sum each client was."""
        return self.inner.counts


@pytree
class SeparatedSelection:
    """A scheme that asks only rested clients; build it with `minimum_separation`.

    Attributes:
        selector: The scheme inside.
        separation: int32 scalar, b: least difference of two rounds of one client; 0
            asks nobody.
    """

    selector: Any
    separation: Array

    def typed(self) -> Calls:
        """Return the call that made it."""
        return [(minimum_separation, self.selector, int(self.separation))]

    @property
    def num_clients(self) -> int:
        """N."""
        return self.selector.num_clients

    @property
    def cohort_size(self) -> Any:
        """K of the scheme inside, if it has one."""
        return self.selector.cohort_size

    @property
    def block_size(self) -> Any:
        """T of the scheme inside, whose blocks rest as a whole, if it has any."""
        return self.selector.block_size

    @property
    def privacy_target(self) -> Any:
        """Weak T that the scheme inside keeps, if it states one."""
        return self.selector.privacy_target

    @property
    def depends_on_data(self) -> Any:
        """Whether the scheme inside looks at what clients have learnt, if it says."""
        return self.selector.depends_on_data

    @property
    def joins_alone(self) -> bool:
        """Whether clients join by their own coins: rest is each one's own matter."""
        return getattr(self.selector, "joins_alone", False)

    @property
    def of_blocks(self) -> Callable[[], SeparatedSelection]:
        """Returns the same scheme over blocks as clients, if the one inside can."""
        inside = self.selector.of_blocks
        return lambda: SeparatedSelection(inside(), self.separation)

    @property
    def takes_trials(self) -> bool:
        """Whether the scheme inside takes trials as trailing axes."""
        return getattr(self.selector, "takes_trials", False)

    def init(self) -> SeparationState:
        """Return the state before the first round: everybody is rested."""
        return SeparationState(self.selector.init(), zeros(self.num_clients, jnp.int32))

    @one_program
    def select(
        self,
        key: TrialKeys,
        state: SeparationState,
        available: Flags,
    ) -> tuple[Flags, SeparationState]:
        """Return the inner scheme's cohort among the available clients who are rested.

        A skipped round counts as a round of rest.
        """
        select = functools.partial(self.selector.select, key, state.inner)
        return self._among_rested(select, state, available)

    def _choose(
        self,
        steps: Steps,
        words: Words,
        state: SeparationState,
        available: Array,
    ) -> tuple[Array, SeparationState]:
        """Choose as `select` does, by a scheme inside that can."""
        choose = functools.partial(self.selector._choose, steps, words, state.inner)
        return self._among_rested(choose, state, available)

    def _among_rested(
        self,
        select: Callable[[Array], tuple[Array, Any]],
        state: SeparationState,
        available: Array,
    ) -> tuple[Array, SeparationState]:
        rested = (state.rest == 0) & (self.separation > 0)
        cohort, inner = select(available & rested)
        rest = jnp.where(cohort, self.separation - 1, jnp.maximum(state.rest - 1, 0))
        return cohort, SeparationState(inner, rest)


@also_traced
def minimum_separation(
    selector: Selector, separation: int | Array
) -> SeparatedSelection:
    """Return a scheme in which clients take part once in b consecutive rounds at most.

    Wraps any scheme: `minimum_separation(uniform(N, K), b)` picks K uniformly among the
    available clients who did not take part in the last b - 1 rounds; around
    `batch_partitioning` blocks rest as a whole and T is kept. The scheme inside skips a
    round in which it finds too few rested clients; with cohorts of K that happens
    permanently where b K > N, whatever the availability.

    Args:
        selector: The scheme inside.
        separation: b >= 1, least difference of two rounds in which a client takes part;
            1 leaves the scheme as it is.

    Returns:
        A selector; b is data.

    Raises:
        ConfigurationError: If `selector` is none, or b is no positive integer.

    Examples:
        >>> import mrsa_jax as mj
        >>> scheme = mj.selection.minimum_separation(mj.selection.uniform(6, 2), 3)
        >>> history = mj.selection.rollout(
        ...     0, scheme, mj.availability.independent(0.0), 6
        ... )
        >>> history.reshape(2, 3, 6).sum(
        ...     axis=1
        ... ).tolist()  # everybody once in three rounds
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]

    Source: none of the papers; Choquette-Choo et al., "(Amplified) Banded Matrix
    Factorization" (2023), Definition of b-min-separation.
    """
    check_selector(selector)
    b = unless_traced(check_size, separation, "separation")
    if is_traced(b):
        b = jnp.where(is_whole(b, 1, 2**31 - 1), b, 0)
    return SeparatedSelection(selector, jnp.int32(b))


LeftOver = Literal["fewer_parts", "wait"]


@pytree
class PlacedSelection:
    """A scheme over some of the clients, in another order.

    Build it with `blocks_within`.

    Attributes:
        inner: The scheme over places.
        order: int32[places], the client at each place.
        num_clients: N, static; who is at no place is never asked.
    """

    cites = "selection of clients: so2023securing"

    inner: BlockSelection
    order: Array
    num_clients: int = static()
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = False

    @property
    def cohort_size(self) -> Array:
        """int32 scalar, K."""
        return self.inner.cohort_size

    @property
    def privacy_target(self) -> Array:
        """int32 scalar, T."""
        return self.inner.block_size

    def init(self) -> SelectorState:
        """Return the state before the first round: nobody has taken part."""
        return SelectorState(zeros(self.num_clients, jnp.int32))

    @one_program
    def select(
        self,
        key: TrialKeys,
        state: SelectorState,
        available: Flags,
    ) -> tuple[Flags, SelectorState]:
        """Return a cohort of whole blocks, or nobody, and the new state."""
        placed = SelectorState(state.counts[self.order])
        chosen, _ = self.inner.select(key, placed, available[self.order])
        cohort = jnp.zeros_like(available).at[self.order].set(chosen)
        return cohort, SelectorState(state.counts + cohort.astype(jnp.int32))


@by_value
class PartBlocks(NamedTuple):
    """Blocks whose members train the same parts.

    Attributes:
        selector: Asks whole blocks, of any parts.
        parts: bool[N, parts], what each client trains now; nothing where it waits.
        blocks: int32[N], the number of each client's block; -1 where it waits.
    """

    selector: PlacedSelection
    parts: Bool[np.ndarray, "clients parts"]
    blocks: Int32[np.ndarray, " clients"]


@needs_values
def blocks_within(
    parts: Any,
    cohort_size: int,
    privacy_target: int,
    fairness: Fairness = "least_used",
    *,
    left_over: LeftOver = "fewer_parts",
    seed: Seed | None = None,
) -> PartBlocks:
    """Return blocks of T clients that train the same parts, and their selector.

    Use it instead of `batch_partitioning` if clients train different coordinates. Then
    every sum of every part is over whole blocks, so T holds in each part for any number
    of rounds. Clients that train the same parts are a class. If T does not divide a
    class, some clients are left over: they join the class with which they share most
    parts, and train only its parts.

    Args:
        parts: bool[N, parts], a[i, l]: whether client i can train part l.
        cohort_size: K, a multiple of T; at most the clients in blocks.
        privacy_target: T >= 1.
        fairness: Rule that picks blocks, as for `batch_partitioning`.
        left_over: `"fewer_parts"`, or `"wait"`: they are in no block. Clients that no
            smaller class takes are in no block either: fewer than T of each class, or
            of the smallest one.
        seed: Draws the blocks within each class. If the server must not choose them,
            use a public coin. None: by index.

    Returns:
        The selector, and for each client its parts and block. A client that waits
        trains nothing.

    Raises:
        ConfigurationError: If `parts` is no matrix of zeros and ones, a size is not
            positive, or fewer than K clients are in blocks.

    Examples:
        >>> import mrsa_jax as mj
        >>> ranks = [8, 8, 8, 4, 4, 4]  # parts: ranks 1 to 4, and 5 to 8
        >>> found = mj.selection.blocks_within([[1, rank > 4] for rank in ranks], 4, 2)
        >>> found.blocks.tolist(), found.parts.astype(int).tolist()[2]
        ([0, 0, 2, 1, 1, 2], [1, 0])

    Source: this package.
    """
    trains = binary_matrix(parts, "parts")
    t = check_size(privacy_target, "privacy_target")
    check_known(left_over, "left_over", ("fewer_parts", "wait"), "known")
    clients = np.arange(len(trains))
    if seed is not None:
        words = np.asarray(
            client_words(fold(as_key(seed), int(Stream.PARTITION)), len(trains))
        )
        clients = np.argsort(words, kind="stable")
    pools: dict[frozenset[int], list[int]] = {}
    for i in clients.tolist():
        pools.setdefault(frozenset(np.flatnonzero(trains[i]).tolist()), []).append(i)
    pools.pop(frozenset(), None)  # who trains nothing is in no sum
    order: list[int] = []
    now = np.zeros_like(trains)
    while pools:
        # largest classes first: only they can do with fewer parts
        shared_parts = max(pools, key=lambda part: (len(part), sorted(part)))
        members = sorted(
            pools.pop(shared_parts), key=lambda i: len(np.flatnonzero(trains[i]))
        )
        # those who could train no more than this stay; of the others the last to come
        # move on
        stop = len(members) // t * t
        placed = members[:stop]
        movers = members[stop:]
        now[np.ix_(placed, sorted(shared_parts))] = True
        order += placed
        shared = max(
            (shared_parts & part for part in pools),
            key=lambda part: (len(part), sorted(part)),
            default=frozenset(),
        )
        if movers and shared and left_over == "fewer_parts":
            pools.setdefault(shared, []).extend(movers)
    k = check_size(cohort_size, "cohort_size")
    rule = (
        "must be at most the number of clients in blocks of those who train "
        "the same parts"
    )
    require(k <= len(order), "cohort_size", rule, k, len(order))
    inner = batch_partitioning(len(order), k, t, fairness)
    blocks = np.full(len(trains), -1, np.int32)
    blocks[order] = np.arange(len(order), dtype=np.int32) // t
    selector = PlacedSelection(inner, jnp.asarray(order, jnp.int32), len(trains))
    return PartBlocks(selector, now, blocks)
