"""The four-step protocol as array operations: shares, pads, losses, unmasking.

CCESA, Algorithm 1 (SecAgg over the complete graph), for all clients at once: what
`protocol` does with messages is here secrets, shares and keystreams in uint32 arrays,
with the same bits.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool

from mrsa_jax._core.array_types import PRNGKey, Whole
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.round_rules import block_numbers
from mrsa_jax._core.status import Status
from mrsa_jax._core.traced import needs_values
from mrsa_jax.modular import chacha20_columns
from mrsa_jax.modular.shamir import (
    LIMBS,
    MOST_POINTS,
    SHAMIR_PRIME,
    limbs_of,
    recover_secrets,
    share_secrets,
    words_of_limbs,
)
from mrsa_jax.secagg._conditions import can_be_unmasked
from mrsa_jax.secagg._pad_tables import Round
from mrsa_jax.secagg._ring_sum import padded_and_sum
from mrsa_jax.secagg._round_costs import CheckedRounds, RoundCosts, count_costs
from mrsa_jax.secagg.lists import check_blocks, check_plan, heeded, signing
from mrsa_jax.secagg.outcome import AggregateResult, StepReport, Transcript, judged
from mrsa_jax.secagg.plans import SegmentPlan
from mrsa_jax.secagg.seeds import Seeds, key_material, padded_length, seeds_of_pairs
from mrsa_jax.secagg.setting import RoundSetting, check_setting
from mrsa_jax.secagg.thresholds import Thresholds
from mrsa_watch._base.errors import require

# First nonce word of a derivation, after those of `seeds`: secret keys and sharing
# polynomials.
_SECRET_KEY = 3
_SELF_SHARES = 4
_KEY_SHARES = 5
# Under `jit` the points are not checked: padded slots repeat one, and nothing reads
# their shares.
_shares_of = jax.jit(share_secrets)


@needs_values
def aggregate(
    seed: Whole | bytes | PRNGKey,
    inputs: ArrayLike | list[object],
    adjacency: ArrayLike | list[object],
    survivors: ArrayLike | list[object],
    thresholds: Thresholds,
    modulus_bits: Whole | None = None,
    *,
    modulus: Whole | None = None,
    seeds: Seeds | None = None,
    round_index: Whole = 0,
    keep_padded: bool = True,
    plan: SegmentPlan | None = None,
    consistency: bool = False,
    blocks: ArrayLike | Sequence[int] | None = None,
) -> AggregateResult:
    """Run one round of secure aggregation as array operations.

    The fast twin of `protocol.run`: every client draws secrets, shares them, pads its
    input; the server collects the shares that come back, recovers secrets, and removes
    pads. Choose it for sweeps and sizes; it knows no messages, and secret keys stand in
    for key agreement (a pair's seed is derived from the round's key material, and
    counts as recovered with the key).

    Args:
        seed: Integer, bytes or key from which every secret is derived, with the graph,
            thresholds and blocks; reproducible, so no secret. Rounds that differ in
            inputs and losses alone need their own seeds or numbers.
        inputs: Integers in [0, R), [n, d]; with a plan, of each block's ring in its
            members' coordinates of it. What a client holds elsewhere is never read.
        adjacency: bool[n, n], symmetric with an empty diagonal: who shares secrets and
            pads.
        survivors: bool[5, n], V0 to V4, nested: whose message of each step arrives.
        thresholds: t_i, at least 1, one integer or [n], or the name of a rule,
            "majority" or "remark4" (`secagg.check_round`); above |Adj(i)| + 1 the
            secrets of i can never be recovered.
        modulus_bits: b of the ring of R = 2**b, 1 to 32; exactly one of this, `modulus`
            and `plan`.
        modulus: R: 2**b, or any integer in [2, 2**31).
        seeds: Seeds of the pads, e.g. those of a run of `protocol`; derived from `seed`
            if None.
        round_index: Round, part of every nonce.
        keep_padded: Keep what each client sent in the transcript, uint32[n, d].
        plan: Blocks of the round, each client in at least one; pads are shared by
            neighbours in the same block. None for one block of everybody.
        consistency: Count the consistency check of `protocol.run` too: its bytes, and
            that who finds fewer than t_i signatures does not unmask.
        blocks: int[n] or T, the blocks that clients keep, with the consistency check:
            as `protocol.run` where all clients were sent one model.

    Returns:
        The round's outcome, with `total` the sum over V3 (zeros unless `status` is OK);
        with a plan `totals`, one sum for each block over those of its members who are
        `summed`. A block whose pads cannot be removed has zeros and leaves the round
        UNRELIABLE; the totals of the other blocks stand, since the server knows them.
        With the seeds of a run of `protocol` and the same arguments, the same bits,
        down to each client's padded input. In `steps`, times are of all clients
        together (the server's part of making pads is counted with the clients', since
        each keystream is made once) and bytes those that `protocol` would send.

    Raises:
        ConfigurationError: If an argument breaks a rule; more than 65,535 clients have
            no points in the field of shares.

    Edge cases: with |V3| < 2 clients refuse to unmask: V4 is empty, the status is
    TOO_FEW_SURVIVORS and nothing is learned. A client of V3 who would be alone in one
    of its blocks counts as lost in all of them (`admitted`), and is in V4 no more; what
    it sent stays in the transcript. A client sends no input where of it and its
    neighbours t_i were in V1 and fewer are in V2, and no shares where fewer than t_i of
    them are summed: clients refuse such lists. `transcript.survivors` are V0 to V4
    without those; no round that Theorem 1 calls reliable is changed.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> complete = ~np.eye(3, dtype=bool)
        >>> survivors = np.ones((5, 3), bool)
        >>> survivors[3:, 2] = False  # lost before its padded input arrived
        >>> result = mj.secagg.aggregate(
        ...     0, [[1, 2], [10, 20], [100, 200]], complete, survivors, 2, 8
        ... )
        >>> result.status.name, result.total.tolist()
        ('OK', [11, 22])

    Cost: a keystream of d words for each client and edge (two of them for R no power of
    two), and 18 t field multiplications for each client and neighbour. Memory: n d
    words and n (|Adj| + 1) shares of 9 words.

    Source: CCESA, Algorithm 1 and eq. (4); differs from the paper in sending one's own
    share of b_i (docs/errata.md) and in the signs of its eq. (2).
    """
    setting = check_setting(
        inputs,
        adjacency,
        survivors,
        thresholds,
        modulus_bits,
        modulus,
        plan,
        round_index,
    )
    graph, alive, limits, _, segments, index = setting
    n = len(graph)
    number = np.uint32(index)
    require(n <= MOST_POINTS, "adjacency", "must join at most 65,535 clients", n)
    labels = None if blocks is None else block_numbers(blocks, n)
    if labels is not None:
        check_blocks(labels, graph, limits)
        check_plan(labels, segments)
    alive, summed = heeded(segments, graph, alive, limits, labels)
    signs: np.ndarray | None = None
    if consistency or labels is not None:
        alive, signs = signing(graph, alive, limits)
    # whoever refuses a list is gone from here on
    setting = setting._replace(survivors=alive)
    clock = [time.perf_counter()]
    material = _material(seed, setting.digest)
    pairs = np.argwhere(np.triu(graph)).astype(np.int32)
    if seeds is None:
        clients = on_device(np.arange(n, dtype=np.int32))
        seeds = seeds_of_pairs(material, clients, on_device(number), pairs)
    else:
        _check_fits(seeds, n, pairs)
    keys = _secret_keys(material, n, number)
    clock.append(time.perf_counter())
    holders = _Holders.of(graph, limits)
    shares = _share(material, seeds.self_seed, keys, holders, number)
    clock.append(time.perf_counter())
    padded, totals = _padded_and_totals(seeds, setting, summed, keep_padded)
    clock.append(time.perf_counter())
    recovered = _recovered(shares, (seeds.self_seed, keys), holders, alive, summed)
    clock.append(time.perf_counter())
    outcome = judged(graph, alive, summed, recovered, segments)
    for total, status in zip(totals, outcome.block_status, strict=True):
        if status != Status.OK:
            total[:] = 0
    costs = count_costs(CheckedRounds(graph, alive, limits, summed, segments), signs)
    return AggregateResult(
        totals,
        *outcome,
        bool(can_be_unmasked(graph, limits).any()),
        Transcript(alive, padded, recovered),
        seeds,
        _reports(np.diff(clock).tolist(), costs),
    )


def _padded_and_totals(
    seeds: Seeds,
    setting: RoundSetting,
    summed: np.ndarray,
    keep_padded: bool,
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return the inputs that V3 sent, and the sums over those who are summed."""
    alive = setting.survivors
    sends = alive[3] if keep_padded else summed
    number = np.uint32(setting.number)
    round_ = Round(seeds, setting.inputs, alive[2], sends, number, np.uint32(0))
    padded, result = padded_and_sum(round_, setting.plan, padded=keep_padded)
    # rare: some of those who sent count as lost
    if not np.array_equal(sends, summed):
        round_ = round_._replace(sends=summed)
        result = padded_and_sum(round_, setting.plan, padded=False)[1]
    return np.asarray(padded), tuple(map(np.array, result.totals))


class _Holders(NamedTuple):
    """List the holders of each client's shares: its neighbours and itself, padded."""

    clients: np.ndarray  # int32[n, h], ascending
    valid: np.ndarray  # bool[n, h]
    thresholds: np.ndarray  # int32[n], how many shares rebuild a secret

    @classmethod
    def of(cls, graph: np.ndarray, thresholds: np.ndarray) -> _Holders:
        closed = graph | np.eye(len(graph), dtype=bool)
        count = closed.sum(axis=1)
        # few widths, so that other graphs of about this degree compile nothing new
        valid = np.arange(padded_length(int(count.max())))[None, :] < count[:, None]
        clients = np.zeros(valid.shape, np.int32)
        clients[valid] = np.nonzero(closed)[1]
        return cls(clients, valid, thresholds)

    @property
    def points(self) -> np.ndarray:
        """uint32[n, h], where the holders' shares are taken: j + 1."""
        return self.clients.astype(np.uint32) + np.uint32(1)


def _material(seed: Any, setting: bytes) -> Array:
    """Derive the round's key material from seed, graph, thresholds and blocks."""
    if isinstance(seed, jax.Array):
        require(
            jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) and seed.ndim == 0,
            "seed",
            "must be an integer, bytes or one typed JAX key",
            seed.dtype,
        )
        seed = np.asarray(jax.random.key_data(seed)).astype("<u4").tobytes()
    return key_material(
        np.asarray(key_material(seed)).astype("<u4").tobytes() + setting
    )


def _check_fits(seeds: Seeds, n: int, pairs: np.ndarray) -> None:
    """Check that a caller's seeds belong to this graph, slots being clients."""
    shapes = (tuple(seeds.self_seed.shape), tuple(seeds.pair_seed.shape))
    expected = ((n, 8), (len(pairs), 8))
    require(shapes == expected, "seeds", f"must have shapes {expected}", shapes)
    require(
        np.array_equal(seeds.edges, pairs),
        "seeds",
        "must belong to the edges of `adjacency`, in lexicographic order",
    )
    ids = np.asarray(seeds.client_ids)
    require(
        np.array_equal(ids, np.arange(n)),
        "seeds",
        "must number the clients from 0",
        ids.tolist(),
    )


@functools.partial(jax.jit, static_argnames=("n",))
def _secret_keys(material: Array, n: int, round_index: ArrayLike) -> Array:
    """Return uint32[n, 8], what stands in for the secret keys s_i^SK."""
    clients = jnp.arange(n, dtype=jnp.uint32)
    index = jnp.full((n,), round_index, jnp.uint32)
    nonces = jnp.stack([jnp.full((n,), _SECRET_KEY, jnp.uint32), clients, index])
    keys = jnp.broadcast_to(material[:, None], (8, n))
    return chacha20_columns(keys, jnp.zeros(n, jnp.uint32), nonces)[:8].T


def _share(
    material: Array,
    self_seed: Array,
    keys: Array,
    holders: _Holders,
    round_index: np.uint32,
) -> tuple[Array, Array]:
    """Return the shares of b_i and of s_i^SK, each uint32[n, 9, h]."""
    # With t_i above the number of holders all shares together fall short, whatever the
    # degree.
    degree = (
        np.minimum(holders.thresholds, holders.valid.shape[1] + 1).astype(np.int32) - 1
    )
    rows = padded_length(int(degree.max()))
    shares = [
        _shares_of(
            limbs_of(secrets),
            _coefficients(material, degree, rows, np.uint32(label), round_index),
            on_device(holders.points),
        )
        for label, secrets in ((_SELF_SHARES, self_seed), (_KEY_SHARES, keys))
    ]
    return jax.block_until_ready((shares[0], shares[1]))


@functools.partial(jax.jit, static_argnames=("rows",))
def _coefficients(
    material: Array,
    degree: ArrayLike,
    rows: int,
    label: ArrayLike,
    index: ArrayLike,
) -> Array:
    """Return uint32[n, rows, 9] uniform below p, zeros from each client's degree on.

    31 bits of keystream each; the one value in 2^31 that is p itself becomes 0.
    """
    n = jnp.shape(degree)[0]
    # a block of keystream holds 16 words
    blocks = -(-rows * LIMBS // 16)
    total = n * blocks
    clients = jnp.repeat(
        jnp.arange(n, dtype=jnp.uint32), blocks, total_repeat_length=total
    )
    counters = jnp.tile(jnp.arange(blocks, dtype=jnp.uint32), n)
    what, when = (
        jnp.broadcast_to(on_device(word), (total,)) for word in (label, index)
    )
    nonces = jnp.stack([what, clients, when])
    words = chacha20_columns(
        jnp.broadcast_to(material[:, None], (8, total)), counters, nonces
    )
    flat = words.T.reshape(n, blocks * 16)[:, : rows * LIMBS].reshape(n, rows, LIMBS)
    field = flat & SHAMIR_PRIME
    field = jnp.where(field == SHAMIR_PRIME, 0, field)
    used = (
        jnp.arange(rows, dtype=jnp.int32)[None, :]
        < on_device(degree, jnp.int32)[:, None]
    )
    return jnp.where(used[:, :, None], field, 0)


def _recovered(
    shares: tuple[Array, Array],
    secrets: tuple[Array, Array],
    holders: _Holders,
    alive: np.ndarray,
    summed: np.ndarray,
) -> Bool[np.ndarray, " clients"]:
    """Mark the clients whose secret the returned shares give back.

    That is b_i of those summed, the secret key of the others. Only as many shares as
    the threshold are used. A secret counts as recovered if interpolation really gives
    back the one that made the pads.
    """
    back = holders.valid & alive[4][holders.clients]
    thresholds = holders.thresholds
    # clients outside V2 have shared nothing
    enough = alive[2] & (back.sum(axis=1) >= thresholds)
    used = back & (np.cumsum(back, axis=1) <= thresholds[:, None]) & enough[:, None]
    # bring the used shares to the front: interpolation is quadratic in the holders it
    # looks at
    width = min(used.shape[1], padded_length(int(used.sum(axis=1).max())))
    front = np.argsort(~used, axis=1, kind="stable")[:, :width]
    arguments = (front, holders.points, used, summed)
    words = _interpolated(shares, *map(on_device, arguments))
    self_seeds, keys = map(np.asarray, secrets)
    made_pads = np.where(summed[:, None], self_seeds, keys)
    return enough & (np.asarray(words) == made_pads).all(axis=1)


@jax.jit
def _interpolated(
    shares: tuple[Array, Array],
    front: Array,
    points: Array,
    used: Array,
    sends: Array,
) -> Array:
    self_shares, key_shares = (
        jnp.take_along_axis(part, front[:, None, :], axis=2) for part in shares
    )
    chosen = jnp.where(sends[:, None, None], self_shares, key_shares)
    at = jnp.take_along_axis(points, front, axis=1)
    counts = jnp.take_along_axis(used, front, axis=1)
    return words_of_limbs(recover_secrets(chosen, at, counts))


def _reports(seconds: list[float], costs: RoundCosts) -> tuple[StepReport, ...]:
    """Report each step: the clients' times, and the server's of the last one."""
    unmeasured = [float("nan")] * len(costs.steps)
    columns = zip(
        costs.steps,
        costs.sends.sum(axis=-1).tolist(),
        seconds[:3] + unmeasured[3:],
        unmeasured[:-1] + seconds[3:],
        costs.server_bytes_up.tolist(),
        costs.server_bytes_down.tolist(),
        strict=True,
    )
    return tuple(StepReport(*column) for column in columns)
