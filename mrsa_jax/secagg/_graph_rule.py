"""Which sums of a round are learnt over an assignment graph.

Theorem 1 of CCESA as a rule.
The same value rolls histories out (`selection.rollout_rounds`) and decides inside an
aggregator (`ring_average`): both draw the round's graph from the round's key of the
stream `ASSIGNMENT`. Symbols: G -> `graph`; t_i -> `threshold`; V0 to V4 -> rows of
`survivors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import kept_apart, pytree, static
from mrsa_jax._core.round_rules import (
    LearntRound,
    SplitPolicy,
    block_labels,
    check_policy,
    kept_blocks,
    kept_by,
    round_status,
)
from mrsa_jax._core.status import Status
from mrsa_jax._core.traced import needs_values
from mrsa_jax.graphs import GraphModel
from mrsa_jax.secagg._conditions import learnt_components
from mrsa_jax.secagg.thresholds import Thresholds, before_graphs, more_than_half
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value


@by_value
class SlotRound(NamedTuple):
    """One round in the slots of its participants.

    Attributes:
        adjacency: bool[n, n], the assignment graph among those who were asked.
        survivors: bool[5, n], V0 to V4, with V3 as the policy leaves it: who is dropped
            with a block is a client whose input did not arrive, and still answers with
            shares of others.
        components: int32[n], smallest slot of the learnt sum that a client is in, -1
            for none.
        status: int32, a `Status`.
    """

    adjacency: Array
    survivors: Array
    components: Array
    status: Array

    @property
    def summed(self) -> Bool[Array, " slots"]:
        """Mark the slots in the round's sum; none unless the status is OK."""
        return self.survivors[3] & (self.status == jnp.int32(Status.OK))


@pytree
class GraphRule:
    """Theorem 1 over a graph drawn for each round (build it with `graph_rule`).

    Attributes:
        graph: A `graphs.GraphModel` over the n slots of a round.
        threshold: int32 or int32[n] by slot; None for more than half of each
            neighbourhood.
        labels: int32[N], the number of each client's block.
        policy: What happens to blocks that lost a member (static).
        keeps_blocks: Whether clients refuse lists that part a block (static).
    """

    graph: Any  # a GraphModel; while JAX rebuilds the pytree, anything
    threshold: Any
    labels: Array
    policy: str = static()
    keeps_blocks: bool = static(default=False)

    @property
    def num_participants(self) -> int:
        """Return n, the slots of a round."""
        return int(self.graph.num_clients)

    def thresholds(
        self, adjacency: Bool[Array, "slots slots"]
    ) -> Int32[Array, " slots"]:
        """Return t_i of each slot, given the graph among those who were asked."""
        count = adjacency.shape[0]
        if self.threshold is not None:
            return jnp.broadcast_to(self.threshold, (count,))
        return more_than_half(jnp.sum(adjacency, axis=1, dtype=jnp.int32))

    def seated(
        self,
        key: Key[Array, ""],
        cohort: Bool[Array, " slots"],
        members: Int32[Array, " slots"],
    ) -> tuple[Bool[Array, "slots slots"], Int32[Array, " slots"]]:
        """Return a round's graph and thresholds where slots are in any order.

        Clients have the neighbours that they have where the cohort fills the slots in
        the order of client ids (`decide`).

        Args:
            key: As for `decide`.
            cohort: The slots of those who were asked.
            members: Global client ids by slot; an empty slot may hold any.
        """
        return _seated(kept_apart(self), key, cohort, members)

    def decide(
        self,
        key: Key[Array, ""],
        survivors: Bool[Array, "5 slots"],
        members: Int32[Array, " slots"],
    ) -> SlotRound:
        """Decide one round in its slots.

        Args:
            key: The round's key of the stream `ASSIGNMENT`; the graph comes from it.
            survivors: V0 to V4 by slot.
            members: Global client ids by slot, ascending in the first slots; an empty
                slot may hold any.
        """
        cohort = survivors[0]
        adjacency = self.graph.sample(key) & cohort[:, None] & cohort[None, :]
        limits, labels = self.thresholds(adjacency), self.labels[members]
        if self.keeps_blocks:
            alive, sent = kept_blocks(
                self.policy, adjacency, survivors, limits, labels, self.labels
            )
            survivors, summed = survivors.at[3].set(sent), alive[3]
        else:
            summed = kept_by(self.policy, survivors, labels, self.labels.shape[0])
            alive = survivors.at[3].set(summed)
        components = learnt_components(adjacency, alive, limits)
        # V3+ is informative exactly where each client of V3 is in a component that is
        # learnt
        is_reliable = jnp.all((components >= 0) | ~summed)
        return SlotRound(
            adjacency, alive, components, round_status(survivors, summed, is_reliable)
        )

    def learn(
        self, key: Key[Array, ""], survivors: Bool[Array, "5 clients"]
    ) -> LearntRound:
        """Decide what the server learns, by client.

        The cohort, ascending, fills the first slots.
        """
        slots, clients = self.num_participants, survivors.shape[1]
        members = jnp.nonzero(survivors[0], size=slots, fill_value=0)[0].astype(
            jnp.int32
        )
        filled = jnp.arange(slots, dtype=jnp.int32) < jnp.sum(
            survivors[0], dtype=jnp.int32
        )
        decided = self.decide(key, survivors[:, members] & filled[None, :], members)
        lowest = jnp.where(decided.components >= 0, members[decided.components], -1)
        return LearntRound(
            summed=jnp.zeros(clients, jnp.bool_).at[members].max(decided.summed),
            components=jnp.full(clients, -1, jnp.int32).at[members].max(lowest),
            status=decided.status,
        )


@needs_values
def graph_rule(
    graph: GraphModel,
    num_clients: int | np.integer,
    *,
    threshold: Thresholds = "majority",
    policy: SplitPolicy = "ignore",
    blocks: ArrayLike | Sequence[int] = 1,
    keeps_blocks: bool = False,
) -> GraphRule:
    """Build the rule by which the server learns what Theorem 1 lets it learn.

    In each round a new graph is drawn over the n slots, which the cohort fills in the
    order of client ids; a smaller cohort has the graph that the first slots induce. The
    sum over V3, as the policy leaves it, is learnt if it can be unmasked; sums over
    parts of it too, if the graph becomes disconnected (Theorem 2), even in a round that
    fails.

    Args:
        graph: E.g. `graphs.erdos_renyi(n, p)`; n is the largest cohort.
        num_clients: N, clients of the population, at least n.
        threshold: t, one for all or [n] by slot; "majority" for more than half of each
            client's neighbourhood, floor((|Adj(i)| + 1) / 2) + 1, at which the
            unmasking attack is impossible; "remark4" for `share_threshold` at the
            graph's p.
        policy: What happens to a block that loses a member before V3
            (`selection.learnt_sums`).
        blocks: T, for blocks i // T of client i; or [N], the number of each client's
            block.
        keeps_blocks: Clients keep blocks whatever the server does, as in
            `protocol.run(..., blocks=)`: `policy` is then what the server asks for. A
            list that parts a block is refused by all: the round is UNRELIABLE.
            Thresholds must be more than half of each neighbourhood, and mates have one
            (`graphs.over_blocks`); else clients send nothing.

    Returns:
        A frozen pytree; graph and thresholds are leaves, so other values compile
        nothing new.

    Raises:
        ConfigurationError: If a threshold is below 1, not an integer or no rule, a size
            does not fit, the policy is unknown, or "remark4" is used with a graph that
            is neither `erdos_renyi` nor `complete`.

    Edge cases: fewer than two inputs give `TOO_FEW_SURVIVORS`, a policy that leaves
    fewer than two `ABORTED`; a threshold above |Adj(i)| + 1 is never reached.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> import jax
        >>> rule = mj.secagg.graph_rule(mj.graphs.complete(3), 5, threshold=2)
        >>> cohort = jnp.asarray([True, False, True, True, False])
        >>> answers = cohort & jnp.asarray([True, True, True, False, False])
        >>> learnt = rule.learn(
        ...     jax.random.key(0), jnp.stack([cohort] * 3 + [answers] * 2)
        ... )
        >>> (
        ...     learnt.summed.astype(int).tolist(),
        ...     learnt.components.tolist(),
        ...     int(learnt.status),
        ... )
        ([1, 0, 1, 0, 0], [0, -1, 0, -1, -1], 0)

    Source: CCESA, Definition 3, Theorems 1 and 2; Remark 4 for t.
    """
    require(
        isinstance(graph, GraphModel),
        "graph",
        "must be a `GraphModel`, e.g. `graphs.complete(n)`",
        graph,
    )
    slots = int(graph.num_clients)
    clients = check_integer(num_clients, "num_clients", 1)
    require(
        slots <= clients, "num_clients", "must be at least the graph's", clients, slots
    )
    limits = before_graphs(threshold, "threshold", graph)
    bounds = None if limits is None else on_device(limits)
    labels, split_policy = block_labels(blocks, clients), check_policy(policy)
    return GraphRule(graph, bounds, labels, split_policy, bool(keeps_blocks))


@jax.jit
def _seated(
    rule: GraphRule,
    key: Key[Array, ""],
    cohort: Bool[Array, " slots"],
    members: Int32[Array, " slots"],
) -> tuple[Bool[Array, "slots slots"], Int32[Array, " slots"]]:
    last = jnp.iinfo(jnp.int32).max
    order = jnp.argsort(jnp.where(cohort, members, last), stable=True)
    places = jnp.argsort(order)
    adjacency = rule.graph.sample(key)[places][:, places]
    adjacency = adjacency & cohort[:, None] & cohort[None, :]
    limits = rule.threshold
    if limits is not None and jnp.ndim(limits):
        return adjacency, limits[places]
    return adjacency, rule.thresholds(adjacency)
