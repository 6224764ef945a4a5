"""Decide what the server learns from one round: rules as values.

Multi-RoundSecAgg takes cohort and sum for the same. Once clients drop out between the
protocol's steps, a rule decides which sums are learnt: the one here counts the answers,
`secagg.graph_rule` applies Theorem 1 of CCESA to the round's assignment graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Key, Shaped

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.status import FEWEST_IN_A_SUM, Status
from mrsa_watch._base.errors import check_known, check_size, require
from mrsa_watch._base.values import by_value

SplitPolicy = Literal["ignore", "abort", "drop_block"]
_V3, _V4 = 3, 4


@by_value
class LearntRound(NamedTuple):
    """Hold what the server learns from a round.

    Attributes:
        summed: bool[N], who is in the round's sum; zeros unless the status is OK.
        components: int32[N], for each client the number of the learnt sum that it is
            in, -1 for none. Sums over parts of V3 are learnt in rounds that are not
            private, and may be in rounds that failed. None from a rule under which a
            round's sum is all that the server learns.
        status: int32, a `Status`.
    """

    summed: Array
    components: Array | None
    status: Array


@runtime_checkable
class RoundRule(Protocol):
    """Which sums the server learns, given who survived the steps: a pytree.

    A rule for rounds of at most so many clients has an attribute `num_participants`.
    """

    def learn(
        self, key: Key[Array, ""], survivors: Bool[Array, "5 clients"]
    ) -> LearntRound:
        """Decide what is learnt; the key is the round's, stream `ASSIGNMENT`."""
        ...


@pytree
class ThresholdRule:
    """The sum over V3 is learnt if enough clients are left in V4, whatever the graph.

    Attributes:
        labels: int32[N], the number of each client's block.
        threshold: int32, t.
        policy: What happens to blocks that lost a member (static).
    """

    labels: Array
    threshold: Array
    policy: str = static()

    def learn(
        self, key: Key[Array, ""], survivors: Bool[Array, "5 clients"]
    ) -> LearntRound:
        """Decide what is learnt; nothing is drawn."""
        del key
        summed = kept_by(self.policy, survivors, self.labels, self.labels.shape[0])
        enough = jnp.sum(survivors[_V4], dtype=jnp.int32) >= self.threshold
        status = round_status(survivors, summed, enough)
        return LearntRound(summed & (status == jnp.int32(Status.OK)), None, status)


def round_status(
    survivors: Bool[Array, "5 clients"],
    summed: Bool[Array, " clients"],
    is_reliable: Array,
) -> Int32[Array, ""]:
    """Return a round's status, from what went wrong first.

    Nobody was asked; fewer than two inputs came; the policy left fewer than two; too
    few shares. `secagg.outcome.judged` decides the same for plans of many blocks,
    block by block.
    """

    def too_few(row: Array) -> Array:
        return jnp.sum(row, dtype=jnp.int32) < FEWEST_IN_A_SUM

    status = jnp.where(is_reliable, jnp.int32(Status.OK), jnp.int32(Status.UNRELIABLE))
    status = jnp.where(too_few(summed), jnp.int32(Status.ABORTED), status)
    few = jnp.int32(Status.TOO_FEW_SURVIVORS)
    status = jnp.where(too_few(survivors[_V3]), few, status)
    return jnp.where(jnp.any(survivors[0]), status, jnp.int32(Status.SKIPPED))


def kept_by(
    policy: str,
    survivors: Bool[Array, "5 clients"],
    labels: Int32[Array, " clients"],
    num_labels: int,
) -> Bool[Array, " clients"]:
    """Mark the clients of V3 that the policy keeps in the sum."""
    lost = survivors[0] & ~survivors[_V3]
    split = jnp.zeros(num_labels, jnp.bool_).at[labels].max(lost)
    return _POLICIES[policy](survivors[_V3], split[labels] & survivors[0])


# policy -> (who is in V3, who was asked and is of a split block) -> who is summed
_POLICIES: dict[str, Callable[[Array, Array], Array]] = {
    "ignore": lambda included, split: included,
    "abort": lambda included, split: included & ~jnp.any(split),
    "drop_block": lambda included, split: included & ~split,
}


def whole_blocks(here: Any, labels: Any, sizes: Any = None) -> Any:
    """Return those of `here` whose blocks are all in it: bool[..., n], of NumPy or JAX.

    `labels` are the numbers of their blocks; `sizes` how many clients those blocks
    have, where not all of them are among the n.
    """
    mates = labels[:, None] == labels[None, :]
    if sizes is None:
        sizes = mates.sum(axis=1, dtype=np.int32)
    return here & ((mates & here[..., None, :]).sum(axis=-1, dtype=np.int32) == sizes)


class Kept(NamedTuple):
    """Hold a round of clients who keep blocks.

    Attributes:
        survivors: bool[5, n], V0 to V4: V3 are those whose inputs the server lists.
        sent: bool[n], whose inputs arrived.
    """

    survivors: Array
    sent: Array


def kept_blocks(
    policy: str,
    adjacency: Bool[Array, "n n"],
    survivors: Bool[Array, "5 n"],
    thresholds: Int32[Array, " n"],
    labels: Int32[Array, " n"],
    everyone: Int32[Array, " clients"],
) -> Kept:
    """Apply the rules by which clients of `protocol.Terms` send and unmask.

    The policy is the server's: a list that parts a block is refused by all. So are
    thresholds of no more than half of a neighbourhood, and graphs over which mates have
    different neighbours.
    """
    closed, most = adjacency | jnp.eye(len(labels), dtype=jnp.bool_), everyone.shape[0]

    def holders(here: Array) -> Array:
        return jnp.sum(closed & here[None, :], axis=1, dtype=jnp.int32)

    ones = closed.astype(jnp.float32)  # sums of ones, exact in float32
    common = (ones @ ones.T).astype(jnp.int32)
    size = jnp.diagonal(common)
    sizes = jnp.zeros(most, jnp.int32).at[everyone].add(1)[labels]
    mates = (
        (labels[:, None] == labels[None, :])
        & survivors[0][:, None]
        & survivors[0][None, :]
    )
    alike = (common == size[:, None]) & (thresholds[:, None] == thresholds[None, :])
    fits = (alike | ~mates).all(axis=1) & (thresholds > size // 2)
    enough = (holders(survivors[2]) >= thresholds) | (
        holders(survivors[1]) < thresholds
    )
    sent = survivors[_V3] & enough & fits & whole_blocks(survivors[2], labels, sizes)
    listed = kept_by(policy, survivors.at[_V3].set(sent), labels, most)
    is_whole = (whole_blocks(listed, labels, sizes) == listed).all()
    signs = survivors[_V4] & listed & is_whole & (holders(listed) >= thresholds)
    answers = signs & (holders(signs) >= thresholds)
    return Kept(survivors.at[_V3].set(listed).at[_V4].set(answers), sent)


def check_policy(name: object, argument: str = "policy") -> str:
    """Return the name of a policy, or raise naming the nearest."""
    return check_known(name, argument, _POLICIES, "a known policy")


def block_labels(blocks: object, num_clients: int) -> Int32[Array, " clients"]:
    """Return each client's block number, from T or from the numbers."""
    return on_device(block_numbers(blocks, num_clients))


def block_numbers(blocks: object, num_clients: int) -> Int32[np.ndarray, " clients"]:
    """Return `block_labels` on the host."""
    if isinstance(blocks, int | np.integer) and not isinstance(blocks, bool):
        size = check_size(blocks, "blocks")
        return np.arange(num_clients, dtype=np.int32) // np.int32(size)
    array = host_array(blocks, "blocks")
    require(
        array.dtype.kind in "iu" and array.shape == (num_clients,),
        "blocks",
        f"must be a block size, or {num_clients} numbers of blocks",
        f"{array.dtype} of shape {array.shape}",
    )
    require(
        bool(array.min() >= 0 and array.max() < num_clients),
        "blocks",
        "must lie in [0, num_clients)",
        int(array.min()),
        int(array.max()),
    )
    return array.astype(np.int32)


def with_weights(
    rows: Shaped[np.ndarray, "*trials sums clients"], weights: object
) -> Shaped[np.ndarray, "*trials sums clients"]:
    """Return P of learnt sums: who is in each, times the weights that the sums had.

    Every figure of sums is of this matrix. With weights, clients of one block have
    unequal columns, and the sums hide the heaviest of them less well than their number
    says.

    Args:
        rows: Who is in each sum.
        weights: Integers [N], by which each client's update was multiplied; None for 1
            each.
    """
    return rows if weights is None else rows * np.asarray(weights).astype(np.int64)
