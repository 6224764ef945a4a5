"""Populations that change.

Clients join and leave, blocks are kept, refilled or formed anew.
A departure from the papers, whose N clients stay. What becomes of the guarantee T
depends on what is done when a member of a block leaves: T holds if no client is ever in
two blocks and no block that lacks a member is asked. Symbols: T `privacy_target`, G_i
`block`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import binary_matrix, number_or_vector, on_device
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.selector import SelectorState
from mrsa_jax._core.streams import (
    Seed,
    Stream,
    as_key,
    client_words,
    fold,
    round_key,
    trial_key,
)
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import Availability
from mrsa_jax.selection._blocks import batch_partitioning
from mrsa_jax.selection._checks import Fairness
from mrsa_jax.selection._rollout import initial_availability
from mrsa_watch._base.errors import check_known, check_size, require

BlockPolicy = Literal["keep", "refill", "reform"]


@needs_values
def changing_population(
    seed: Seed,
    num_clients: int,
    num_rounds: int,
    *,
    arrival_rate: float,
    departure_rate: float,
) -> Bool[np.ndarray, "rounds clients"]:
    """Return who is a member in each round.

    Newcomers at a steady pace, stays of random length.

    Args:
        seed: Integer or key.
        num_clients: N >= 1 members in the first round.
        num_rounds: J >= 1.
        arrival_rate: Clients who join in a round, >= 0: newcomer i (from 1) joins in
            the round ceil(i / rate), from 0, so that M = N + floor(rate (J - 1))
            clients are ever seen.
        departure_rate: Chance in [0, 1] that a member does not stay for another round;
            everybody stays for one at least. With rate = N · chance the size of the
            population holds.

    Returns:
        bool[J, M], clients in order of joining; a client who has left does not come
        back.

    Raises:
        ConfigurationError: If a number is outside its range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.changing_population(0, 2, 3, arrival_rate=1.0, departure_rate=0.0).astype(
        ...     int
        ... ).tolist()
        [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    n, rounds = (
        check_size(num_clients, "num_clients"),
        check_size(num_rounds, "num_rounds"),
    )
    arrivals = number_or_vector(arrival_rate, "arrival_rate")
    good = arrivals.ndim == 0 and float(arrivals) >= 0.0
    require(good, "arrival_rate", "must be one number, at least 0", arrivals.tolist())
    leaves = number_or_vector(departure_rate, "departure_rate")
    good = leaves.ndim == 0 and 0.0 <= float(leaves) <= 1.0
    require(good, "departure_rate", "must be one number in [0, 1]", leaves.tolist())
    rate, chance = float(arrivals), float(leaves)
    newcomers = np.arange(1, int(rate * (rounds - 1) + 1e-9) + 1)
    joins = np.zeros(n + newcomers.size, np.int64)
    joins[n:] = np.ceil(newcomers / max(rate, 1e-300) - 1e-9).astype(np.int64)
    words = np.asarray(
        client_words(fold(as_key(seed), int(Stream.PARTITION)), joins.size)
    )
    # Geometric stays by inversion: the least s >= 1 with (1 - chance)^s <= u.
    uniform = (words.astype(np.float64) + 0.5) / 2.0**32
    stays = np.full(joins.size, float(rounds))
    if chance == 1.0:
        stays[:] = 1.0
    elif chance > 0.0:
        stays = np.maximum(np.ceil(np.log(uniform) / np.log1p(-chance)), 1.0)
    rows = np.arange(rounds)[:, None]
    return (rows >= joins) & (rows < joins + np.minimum(stays, float(rounds)))


@needs_values
def form_blocks(
    members: ArrayLike | Sequence[Any],
    privacy_target: int,
    policy: BlockPolicy = "keep",
) -> Int32[np.ndarray, "rounds clients"]:
    """Return the block of each client in each round, while clients join and leave.

    Clients wait, in order of joining (of those who join together, by index), until T of
    them form a block. When a member of a block leaves:

        "keep": the block is not asked while a member is away; if one never returns, the
        others
            are lost to training. Nobody is ever in two blocks: T is kept for everybody.
        "refill": the first client who waits takes the place. Sums before and after
        differ in
            two clients, so each of them has a separate column: strong privacy 1.
        "reform": all present members are put into new blocks in order of joining,
        whenever the
            population changes. Differences of old and new blocks isolate single
            clients.

    To continue with the rest of the block is no better: the difference is the leaver
    alone.

    Args:
        members: bool[J, M], e.g. `changing_population`. A client may come back: to its
            block under "keep", else as a newcomer.
        privacy_target: T >= 1.
        policy: One of the three.

    Returns:
        int32[J, M]: the block's number, below M / T; -1 for clients that are absent,
        wait, or whose block lacks a member and is not refilled. Incomplete blocks keep
        their label under "refill" until a newcomer arrives; they are never asked.

    Raises:
        ConfigurationError: If `members` is not a binary matrix, T no positive integer,
            or the policy unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> members = [[1, 1, 1, 0], [1, 0, 1, 1]]  # client 1 leaves, client 3 joins
        >>> mj.selection.form_blocks(members, 2, "keep").tolist()
        [[0, 0, -1, -1], [-1, -1, 1, 1]]
        >>> mj.selection.form_blocks(members, 2, "refill").tolist()
        [[0, 0, -1, -1], [0, -1, 0, -1]]
    """
    present = binary_matrix(members, "members")
    t = check_size(privacy_target, "privacy_target")
    check_known(policy, "policy", _POLICIES, "known")
    return _spread(present, _POLICIES[policy](present, t))


def rollout_population(
    seed: Seed,
    members: ArrayLike | Sequence[Any],
    cohort_size: int,
    privacy_target: int,
    availability: Availability,
    *,
    policy: BlockPolicy = "keep",
    fairness: Fairness = "least_used",
) -> Bool[Array, "rounds clients"]:
    """Return who took part in each round while clients join and leave.

    Batch partitioning on the blocks of `form_blocks`: K/T of the blocks whose T members
    are all present and available, the first by least use (the mean of its members'
    counts) as `fairness` says; a round with fewer such blocks is skipped. Columns are
    all clients ever seen, so the history can be given to `mrsa_jax.privacy` as it is:
    "keep" has strong privacy T or more, "refill" and "reform" fall to 1 in general.

    Args:
        seed: Integer or typed key.
        members: bool[J, M].
        cohort_size: K, a multiple of T.
        privacy_target: T >= 1.
        availability: Who of the M clients is online; absent clients are not asked
            anyway.
        policy: What is done when a member leaves: "keep", "refill" or "reform".
        fairness: As `batch_partitioning`.

    Returns:
        bool[J, M].

    Raises:
        ConfigurationError: As `form_blocks` and `batch_partitioning`; if the
            availability is for another number of clients.

    Examples:
        >>> import mrsa_jax as mj
        >>> members = mj.selection.changing_population(
        ...     0, 12, 30, arrival_rate=0.3, departure_rate=0.03
        ... )
        >>> online = mj.availability.independent(0.1)
        >>> history = mj.selection.rollout_population(1, members, 4, 2, online)
        >>> mj.privacy.strong_privacy(history) >= 2
        True

    Cost: O(M) a round; memory of a few int32[J, M].

    Source: none of the papers; Multi-RoundSecAgg, Appendix D, Algorithm 2 is the choice
    of
        blocks.
    """
    present = binary_matrix(members, "members")
    k, t = (
        check_size(cohort_size, "cohort_size"),
        check_size(privacy_target, "privacy_target"),
    )
    require(k % t == 0, "cohort_size", "must be a multiple of `privacy_target`", k, t)
    labels = form_blocks(present, t, policy)
    chooser = batch_partitioning(
        max(present.shape[1] // t, k // t), k // t, 1, fairness
    )
    is_model = isinstance(availability, Availability)
    require(
        is_model,
        "availability",
        "must have `for_clients`, `init` and `sample`",
        availability,
    )
    online = availability.for_clients(present.shape[1])
    key = trial_key(as_key(seed), 0)
    return _roll_blocks(key, on_device(labels), chooser, online, jnp.int32(t))


@jax.jit
def _roll_blocks(
    key: Key[Array, ""],
    labels: Int32[Array, "rounds clients"],
    chooser: Any,
    online: Any,
    size: Int32[Array, ""],
) -> Bool[Array, "rounds clients"]:
    """Choose among blocks, which are the clients of `chooser`."""
    num_blocks = chooser.num_clients

    def add_up(numbers: Array, own: Array) -> Array:
        """Sum over each block; label -1 goes to a separate place."""
        place = jnp.where(own < 0, jnp.int32(num_blocks), own)
        return jax.ops.segment_sum(numbers, place, num_blocks + 1)[:num_blocks]

    def step(
        carry: tuple[Array, Any], inputs: tuple[Array, Array]
    ) -> tuple[Any, Array]:
        (counts, state), (j, own) = carry, inputs
        available, state = online.sample(round_key(key, j, Stream.AVAILABILITY), state)
        whole = add_up(available.astype(jnp.int32), own) == size
        use = SelectorState(add_up(counts, own))
        chosen, _ = chooser.select(round_key(key, j, Stream.SELECTION), use, whole)
        cohort = chosen[jnp.maximum(own, 0)] & (own >= 0)
        return (counts + cohort.astype(jnp.int32), state), cohort

    counts = jnp.zeros(labels.shape[1], jnp.int32)
    rounds = jnp.arange(labels.shape[0], dtype=jnp.uint32)
    start = (counts, initial_availability(key, online))
    start = varying_like(start, key, labels, chooser, online)
    return lax.scan(step, start, (rounds, labels))[1]


# ---- policies: bool[J, M], T -> int32[J, M]


_Changes = Iterator[tuple[int, np.ndarray]]  # (round, labels from it on)


def _events(present: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (round, who leaves, who joins) for each round in which the population changes."""
    before = np.zeros(present.shape[1], bool)
    for j, now in enumerate(present):
        if (before != now).any():
            yield j, np.flatnonzero(before & ~now), np.flatnonzero(now & ~before)
        before = now


def _spread(present: np.ndarray, changes: _Changes) -> np.ndarray:
    """Return labels that stay from each change to the next."""
    starts, labels = [0], [np.full(present.shape[1], -1, np.int32)]
    for j, following in changes:
        starts.append(j)
        labels.append(following)
    return np.repeat(labels, np.diff([*starts, len(present)]), axis=0)


def _lasting(present: np.ndarray, t: int, *, refills: bool) -> _Changes:
    """Blocks in order of joining, asked only while all their members are present.

    Where they are refilled, whoever waits longest takes the place of a leaver
    permanently.
    """
    block = np.full(present.shape[1], -1, np.int32)
    waiting: list[int] = []
    vacancies: list[int] = []  # the block's number for each free place
    num_blocks = 0
    for j, leaving, joining in _events(present):
        gone = set(leaving.tolist())
        if refills:
            vacancies += block[leaving][block[leaving] >= 0].tolist()
            block[leaving] = -1
        waiting = [client for client in waiting if client not in gone]
        waiting += joining[block[joining] < 0].tolist()
        while vacancies and waiting:
            block[waiting.pop(0)] = vacancies.pop(0)
        while len(waiting) >= t:
            block[waiting[:t]] = num_blocks
            waiting, num_blocks = waiting[t:], num_blocks + 1
        members = np.bincount(
            block[(block >= 0) & present[j]], minlength=max(num_blocks, 1)
        )
        yield (
            j,
            np.where(
                (block >= 0) & (refills | (members[block] == t)), block, np.int32(-1)
            ),
        )


def _reformed(present: np.ndarray, t: int) -> _Changes:
    """Blocks of the present clients in order of joining, formed anew at every change."""
    clients = np.zeros(0, np.int64)
    for j, _, joining in _events(present):
        clients = np.concatenate([clients[present[j, clients]], joining])
        whole = clients[: clients.size // t * t]
        block = np.full(present.shape[1], -1, np.int32)
        block[whole] = np.arange(whole.size) // t
        yield j, block


_POLICIES: dict[str, Callable[[np.ndarray, int], _Changes]] = {
    "keep": functools.partial(_lasting, refills=False),
    "refill": functools.partial(_lasting, refills=True),
    "reform": _reformed,
}
