"""Blocks of clients who train the same parts of the vector (LoRA ranks, submodels).

A sum over the coordinates of a part is of those who train it. Blocks keep T in every part if all
members of a block train the same parts; a block of mates who do not gives the sum of fewer of them
on the coordinates that only some train. Symbols: T `privacy_target`, a[i, l] `parts`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import binary_matrix, needs_values, one_program, pytree, zeros
from mrsa_jax._core.selector import SelectorState
from mrsa_jax._core.streams import Stream, as_key, client_words, fold
from mrsa_jax.selection._blocks import BlockSelection, batch_partitioning
from mrsa_jax.selection._checks import Fairness
from mrsa_watch._base.errors import check_known, check_size, require

LeftOver = Literal["fewer_parts", "wait"]


@pytree
class PlacedSelection:
    """A scheme over some of the clients, in another order; build it with `blocks_within`.

    Attributes:
        inner: The scheme over places.
        order: int32[places], the client at each place.
        num_clients: N, static; who is at no place is never asked.
    """

    cites = "selection of clients: so2023securing"

    inner: BlockSelection
    order: Array
    num_clients: int = dataclasses.field(metadata={"static": True})
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
        key: Key[Array, "*trials"],
        state: SelectorState,
        available: Bool[Array, " clients *trials"],
    ) -> tuple[Bool[Array, " clients *trials"], SelectorState]:
        """Return a cohort of whole blocks, or nobody, and the new state."""
        own = SelectorState(state.counts[self.order])
        chosen, _ = self.inner.select(key, own, available[self.order])
        cohort = jnp.zeros_like(available).at[self.order].set(chosen)
        return cohort, SelectorState(state.counts + cohort.astype(jnp.int32))


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
    seed: int | Key[Array, ""] | None = None,
) -> PartBlocks:
    """Return blocks of T clients who train the same parts of the vector, and who asks them.

    Use it in place of `batch_partitioning` where clients train different coordinates: then every
    sum of every part is of whole blocks, so that T holds in each part for any number of rounds.
    Clients who train the same parts are a class. Where T does not divide a class, some are left
    over: they join the class whose parts they share most of, and train these alone.

    Args:
        parts: bool[N, parts], a[i, l]: whether client i can train part l.
        cohort_size: K, a multiple of T; at most the clients in blocks.
        privacy_target: T >= 1.
        fairness: Which blocks are asked, as for `batch_partitioning`.
        left_over: `"fewer_parts"`, or `"wait"`: they are in no block. So are those whom no smaller
            class takes: fewer than T of each class, or of the smallest one.
        seed: Draws who is in which block within its class; where the server may not choose, of a
            public coin. None: by index.

    Returns:
        The selector, what each client trains, and its block. A client who waits trains nothing.

    Raises:
        ConfigurationError: If `parts` is no matrix of zeros and ones, a size is not positive, or
            fewer than K clients are in blocks.

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
        words = np.asarray(client_words(fold(as_key(seed), int(Stream.PARTITION)), len(trains)))
        clients = np.argsort(words, kind="stable")
    pools: dict[frozenset[int], list[int]] = {}
    for i in clients.tolist():
        pools.setdefault(frozenset(np.flatnonzero(trains[i]).tolist()), []).append(i)
    pools.pop(frozenset(), None)  # who trains nothing is in no sum
    order: list[int] = []
    now = np.zeros_like(trains)
    while pools:
        own = max(pools, key=lambda part: (len(part), sorted(part)))
        members = sorted(pools.pop(own), key=lambda i: len(np.flatnonzero(trains[i])))
        rest = len(members) % t
        # those who could train no more than this stay; of the others the last to come move on
        kept, left = members[: len(members) - rest], members[len(members) - rest :]
        now[np.ix_(kept, sorted(own))] = True
        order += kept
        shared = max((own & part for part in pools), key=lambda part: (len(part), sorted(part)),
                     default=frozenset())  # fmt: skip
        if left and shared and left_over == "fewer_parts":
            pools.setdefault(shared, []).extend(left)
    k = check_size(cohort_size, "cohort_size")
    rule = "must be at most the number of clients in blocks of those who train the same parts"
    require(k <= len(order), "cohort_size", rule, k, len(order))
    inner = batch_partitioning(len(order), k, t, fairness)
    blocks = np.full(len(trains), -1, np.int32)
    blocks[order] = np.arange(len(order), dtype=np.int32) // t
    selector = PlacedSelection(inner, jnp.asarray(order, jnp.int32), len(trains))
    return PartBlocks(selector, now, blocks)
