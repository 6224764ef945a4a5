"""Bytes and operations of one round of secure aggregation, for each step and role.

SecAgg, SecAgg+ and CCESA are one protocol over different graphs, so one count over an
adjacency serves them all; FedAvg sends residues alone. CCESA, Appendix D: |Adj(i)|, t,
m -> `dim`, R -> `modulus`, a_K -> `key_bits`, a_S -> `share_bits`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from mrsa_jax._core.array_types import Whole
from mrsa_jax._core.prime import words_per_residue
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.status import STEPS, STEPS_WITH_CHECK
from mrsa_jax._core.traced import needs_values
from mrsa_jax.modular import check_modulus
from mrsa_jax.secagg._conditions import check_rounds
from mrsa_jax.secagg.lists import without_lonely
from mrsa_jax.secagg.plans import Block, SegmentPlan, memberships, segment_plan
from mrsa_jax.secagg.thresholds import Thresholds
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import finding, telling

# The wire format of `mrsa_jax.protocol`, in bytes.
HEADER, IDENTITY, COUNT = 8, 4, 4
PUBLIC_KEYS = 64  # two X25519 keys
LIMBS = 9  # of 30 bits each, of a 256-bit secret
SHARE = 4 * LIMBS
TAG = 16
SIGNATURE = 64
SEALED_SHARES = 2 * SHARE + TAG  # a share of b_i and one of s_i, encrypted

_SECRETS = 2  # b_i and s_i


@pytree
class Operations:
    """Count how often one role does each operation, at each step.

    Clients' fields have shape [..., 4, n], the server's [..., 4]; 5 with the
    consistency check. Float32 scalars where they are the seconds that one operation
    takes (`costs.operation_seconds`).

    Attributes:
        key_pairs: X25519 key pairs drawn.
        key_agreements: X25519 agreements, with the derivation of a key from each.
        share_products: Multiplications in the prime field to evaluate sharing
            polynomials: for each limb of each secret t products a share.
        encryptions: AES-GCM messages of two shares sealed or opened.
        prg_words: 32-bit words of ChaCha20 keystream expanded.
        interpolation_products: Multiplications in the prime field to recover secrets
            from t shares: t^2 for the Lagrange coefficients, t for each limb.
        signatures: Ed25519 signatures made or checked.
    """

    key_pairs: np.ndarray | Array
    key_agreements: np.ndarray | Array
    share_products: np.ndarray | Array
    encryptions: np.ndarray | Array
    prg_words: np.ndarray | Array
    interpolation_products: np.ndarray | Array
    signatures: np.ndarray | Array


_KINDS = tuple(field.name for field in dataclasses.fields(Operations))


@finding
class RoundCosts:
    """Hold the costs of one round, or of many: leading axes are rounds.

    Integers where counted, float64 where expected. A client counts at a step when its
    message of that step arrives (V1 to V4), and receives the server's answer then. With
    the consistency check the steps are five (`STEPS_WITH_CHECK`).

    Attributes:
        sends: bool[..., 4, n], whose message of each step arrives; chances when
            expected.
        bytes_up: [..., 4, n], bytes from each client to the server.
        bytes_down: [..., 4, n], bytes of the server's answer to each client; 0 at the
            last step.
        client: Operations of each client.
        server: Operations of the server.
    """

    _repr_html_ = telling

    sends: np.ndarray
    bytes_up: np.ndarray
    bytes_down: np.ndarray
    client: Operations
    server: Operations

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps, in order."""
        return STEPS if self.sends.shape[-2] == len(STEPS) else STEPS_WITH_CHECK

    @property
    def server_bytes_up(self) -> np.ndarray:
        """[..., 4], bytes that reach the server at each step."""
        return self.bytes_up.sum(axis=-1)

    @property
    def server_bytes_down(self) -> np.ndarray:
        """[..., 4], bytes that the server sends at each step."""
        return self.bytes_down.sum(axis=-1)


@needs_values
def round_costs(
    adjacency: ArrayLike | Sequence,
    survivors: ArrayLike | Sequence,
    thresholds: Thresholds,
    dim: Whole | None = None,
    modulus: Whole | None = None,
    *,
    plan: SegmentPlan | None = None,
    signers: ArrayLike | Sequence | None = None,
    blocks: np.ndarray | None = None,
) -> RoundCosts:
    """Count the bytes and operations of a round on a graph with dropouts.

    Args:
        adjacency: bool[..., n, n], symmetric with an empty diagonal.
        survivors: bool[..., 5, n], V0 to V4, each within the one before: whose messages
            arrive. Of a round that fails these are `transcript.survivors`, without
            those who refused.
        thresholds: t_i, one integer or [..., n], at least 1, or the name of a rule
            (`check_round`).
        dim: Residues of each input, at least 1.
        modulus: R of the ring.
        plan: Blocks of the round, instead of `dim` and `modulus` for one block of
            everybody.
        signers: bool[..., n], who signs in the consistency check of `protocol.run`: V4,
            and in a round that fails those who find too few signatures too. None for a
            round without.
        blocks: int[n], the blocks that clients keep; None for none.

    Returns:
        Exact integers; bytes are those of `protocol.run(...).steps`. The server's
        operations are those that remove every pad: a round that fails is charged what
        it would have cost.

    Raises:
        ConfigurationError: If the graph is not symmetric, survivors are not nested, or
            an argument has a wrong shape or range.

    Edge cases: nobody in V1 costs nothing. Clients of V3 who count as lost (`admitted`)
    learn that they are alone and refuse: Step 3 costs nothing with |V3| < 2.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> complete = ~np.eye(3, dtype=bool)
        >>> costs = mj.secagg.round_costs(
        ...     complete, np.ones((5, 3), bool), 2, dim=10, modulus=2**16
        ... )
        >>> costs.bytes_up[:, 0].tolist(), costs.bytes_down[:, 0].tolist()
        ([76, 200, 36, 140], [148, 196, 24, 0])

    Source: CCESA, Algorithm 1 and Appendix D; differs from the paper in counting ids,
    headers, tags and one's own share (docs/errata.md).
    """
    graph, alive, limits = check_rounds(adjacency, survivors, thresholds)
    sums = _blocks(plan, graph.shape[-1], dim, modulus)
    summed = without_lonely(sums, alive[..., 3, :], blocks)
    signs = None if signers is None else np.asarray(signers)
    if signs is not None:
        require(
            signs.dtype == np.bool_ and signs.shape == summed.shape,
            "signers",
            f"must be bool{list(summed.shape)}",
            signs.dtype,
            signs.shape,
        )
    return count_costs(CheckedRounds(graph, alive, limits, summed, sums), signs)


class CheckedRounds(NamedTuple):
    """Checked rounds, along leading axes.

    Attributes:
        adjacency: bool[..., n, n].
        survivors: bool[..., 5, n], V0 to V4.
        thresholds: integers, one or [..., n].
        summed: bool[..., n], V3 less those who count as lost (`admitted`).
        plan: Blocks of the rounds.
    """

    adjacency: np.ndarray
    survivors: np.ndarray
    thresholds: np.ndarray
    summed: np.ndarray
    plan: SegmentPlan


def count_costs(rounds: CheckedRounds, signs: np.ndarray | None) -> RoundCosts:
    """Count the costs of checked rounds; `signs`, bool[..., n], add the check."""
    alive = rounds.survivors
    summed = rounds.summed
    num_clients = rounds.adjacency.shape[-1]
    t = rounds.thresholds.astype(np.int64)
    pads = _pads_of(rounds.plan, num_clients)
    # counts as products of matrices, exact in float64
    joined = rounds.adjacency.astype(np.float64)
    shares_pads = joined
    if np.ndim(pads.shared_words) > 0:
        shares_pads = joined * (pads.shared_words > 0.0)
    in_v2 = alive[..., 2, :].astype(np.float64)
    in_sum = summed.astype(np.float64)
    lost = in_v2 - in_sum  # their pads with those summed must be removed
    near2 = _near(joined, in_v2)
    crossing = lost * _near(shares_pads, in_sum)
    removed = in_sum * pads.self_words + lost * _near(joined, in_sum, pads.shared_words)
    # t^2 for the Lagrange coefficients and t for each limb, of each recovered secret
    used = np.minimum(t, num_clients)  # more shares than clients are never gathered
    products = (in_sum + (crossing > 0)) * (used * used + LIMBS * used)
    counted = _Counts(
        near1=_near(joined, alive[..., 1, :].astype(np.float64)),
        near2=near2,
        near3=in_sum * _near(joined, in_sum),
        near_in_block=_near(shares_pads, in_v2),
        shares_sent=near2 + in_sum,
        pad_words=pads.self_words + _near(joined, in_v2, pads.shared_words),
        removed_words=removed.sum(axis=-1),
        agreements=crossing.sum(axis=-1),
        products=products.sum(axis=-1),
    )
    counts = _Counts(*(np.asarray(count, np.int64) for count in counted))
    answers = alive[..., 4, :] & summed
    sends = np.concatenate([alive[..., 1:4, :], answers[..., None, :]], axis=-2)
    limits = np.broadcast_to(t, counts.near1.shape)
    costs = _assemble(sends, counts, limits, pads.residue_bytes)
    if signs is None:
        return costs
    near = _near(joined, signs.astype(np.float64)).astype(np.int64)
    return _with_check(costs, summed, counts, signs, near)


def _with_check(
    costs: RoundCosts,
    summed: np.ndarray,
    counts: _Counts,
    signs: np.ndarray,
    near: np.ndarray,
) -> RoundCosts:
    """Add signed keys, and the consistency check before the last step.

    The server names all who are summed to each of them; a client makes a signature and
    checks those of its neighbours, the server checks all: of keys, then of the list.
    """

    def inserted(values: Any, row: Any, axis: int = -2) -> np.ndarray:
        return np.insert(values, 3, row, axis=axis)

    up, down = costs.bytes_up.copy(), costs.bytes_down.copy()
    has_keys, shares = costs.sends[..., 0, :], costs.sends[..., 1, :]
    # step 0: keys are signed, and checked by every neighbour
    up[..., 0, :] += SIGNATURE * has_keys
    down[..., 0, :] += SIGNATURE * has_keys * counts.near1
    down[..., 2, :] += (
        IDENTITY * summed * (summed.sum(axis=-1, keepdims=True) - counts.near3 - 1)
    )
    signatures = inserted(costs.client.signatures, signs)
    signatures[..., 0, :], signatures[..., 1, :] = has_keys, shares * counts.near1
    signatures[..., 4, :] = costs.sends[..., 3, :] * near
    client = {name: inserted(getattr(costs.client, name), 0) for name in _KINDS}
    server = {name: inserted(getattr(costs.server, name), 0, -1) for name in _KINDS}
    server["signatures"][..., 0] = has_keys.sum(axis=-1)
    server["signatures"][..., 3] = signs.sum(axis=-1)
    return RoundCosts(
        inserted(costs.sends, signs),
        inserted(up, signs * (HEADER + IDENTITY + SIGNATURE)),
        inserted(down, signs * (HEADER + COUNT + (IDENTITY + SIGNATURE) * near)),
        Operations(**client | {"signatures": signatures}),
        Operations(**server),
    )


def _near(edges: np.ndarray, members: np.ndarray, weights: Any = 1.0) -> np.ndarray:
    """Count each client's neighbours among members, or sum their weights."""
    if np.ndim(weights) > 0:
        return _near(edges * weights, members)
    # members is [rounds, n] here
    if edges.ndim == 2:  # one product of matrices for all rounds
        return np.asarray(members @ edges) * weights
    return np.asarray((members[..., None, :] @ edges)[..., 0, :]) * weights


def _blocks(
    plan: object,
    num_clients: int,
    dim: object,
    modulus: object,
) -> SegmentPlan:
    """Return the checked plan, or one block of everybody."""
    if plan is None:
        require(
            dim is not None and modulus is not None,
            "dim",
            "must be given, with `modulus`, where there is no `plan`",
            dim,
            modulus,
        )
        d, ring = check_integer(dim, "dim", 1), check_modulus(modulus)
        return (Block(tuple(range(num_clients)), 0, d, ring),)
    require(
        dim is None and modulus is None,
        "plan",
        "must be given without `dim` and `modulus`",
        dim,
        modulus,
    )
    return segment_plan(plan, num_clients)


class _Pads(NamedTuple):
    """Bytes and keystream of a plan.

    Attributes:
        residue_bytes: int64[n], of each client's packed input.
        self_words: float64[n], keystream words of each client's self pads.
        shared_words: float64[n, n], of its pads with each other client, 0 without a
            common block; one number for a single block, which holds everybody.
    """

    residue_bytes: np.ndarray
    self_words: np.ndarray
    shared_words: Any


def _pads_of(plan: SegmentPlan, num_clients: int) -> _Pads:
    members = memberships(plan, num_clients).astype(np.float64)
    widths = np.asarray([block.stop - block.start for block in plan], np.float64)
    bits = widths * [(block.modulus - 1).bit_length() for block in plan]
    words = widths * [words_per_residue(block.modulus) for block in plan]
    residue_bytes = -(-(bits @ members).astype(np.int64) // 8)
    shared = words[0] if len(plan) == 1 else (members * words[:, None]).T @ members
    return _Pads(residue_bytes, words @ members, shared)


def expected_costs(
    num_clients: Whole,
    degree: float | int,
    threshold: Whole,
    dim: Whole,
    modulus: Whole,
    *,
    step_dropout_rate: float | int = 0.0,
) -> RoundCosts:
    """Return the expected bytes and operations of a round, from a mean degree.

    Everything but the server's interpolations is linear in the neighbours that are
    still there, so the mean degree is all that matters: n - 1 for SecAgg, k for
    SecAgg+, (n - 1) p for CCESA.

    Args:
        num_clients: n, at least 2.
        degree: Mean number of neighbours k in [0, n - 1].
        threshold: t, the same for everybody.
        dim: Residues of each input.
        modulus: R of the ring.
        step_dropout_rate: q, the chance to leave at each step.

    Returns:
        float64 expectations, the same for every client. The server is charged an
        interpolation for every client of V2 outside V3, whether or not it has a
        neighbour in V3, and rounds with |V3| < 2 as if they continued: both matter only
        to tiny rounds.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> sparse, dense = (
        ...     mj.secagg.expected_costs(100, k, 43, 10000, 2**16) for k in (63, 99)
        ... )
        >>> [int(costs.client.prg_words[2, 0]) // 10000 for costs in (sparse, dense)]
        [64, 100]

    Source: CCESA, Appendix D; expectations over independent dropouts are ours.
    """
    n = check_integer(num_clients, "num_clients", 2)
    k, q = float(degree), float(step_dropout_rate)
    require(0.0 <= k <= n - 1, "degree", "must lie in [0, n - 1]", degree)
    require(
        0.0 <= q <= 1.0, "step_dropout_rate", "must lie in [0, 1]", step_dropout_rate
    )
    t = check_integer(threshold, "threshold", 1)
    pads = _pads_of(_blocks(None, n, dim, modulus), n)
    words = pads.shared_words
    # chance to be in V0 to V4
    stay = (1.0 - q) ** np.arange(5)
    sends = np.repeat(stay[1:, None], n, axis=1)
    near1, near2, near3 = (np.full(n, k * stay[s]) for s in (1, 2, 3))
    present, lost = n * stay[3], n * (stay[2] - stay[3])
    # expected pairs of a client lost after V2 and a neighbour in V3
    crossing = lost * k * stay[3]
    counts = _Counts(
        near1,
        near2,
        near3,
        near2,
        near2 + 1.0,
        (near2 + 1.0) * words,
        np.asarray((present + crossing) * words),
        np.asarray(crossing),
        np.asarray((present + lost) * (t * t + LIMBS * t)),
    )
    return _assemble(sends, counts, np.full(n, float(t)), pads.residue_bytes)


def fedavg_costs(
    num_clients: Whole,
    dim: Whole,
    modulus: Whole,
) -> RoundCosts:
    """Count the costs of a plain sum: the residues of each client, nothing else.

    Args:
        num_clients: n, at least 1.
        dim: Residues of each input.
        modulus: R of the ring.

    Returns:
        Costs whose only entries are ceil(dim ceil(log2 R) / 8) bytes up at the third
        step.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.fedavg_costs(3, 10, 2**16).server_bytes_up.tolist()
        [0, 0, 60, 0]

    Source: CCESA, Table 1 and Appendix D.1 (mR bits).
    """
    n = check_integer(num_clients, "num_clients", 1)
    nothing = np.zeros((4, n), np.int64)
    up = nothing.copy()
    up[2] = _pads_of(_blocks(None, n, dim, modulus), n).residue_bytes
    idle, server = (
        Operations(*[zeros] * len(_KINDS)) for zeros in (nothing, nothing[:, 0])
    )
    return RoundCosts(up > 0, up, nothing, idle, server)


class _Counts(NamedTuple):
    """Count the neighbours, shares and pads that remain at each step.

    The server's three are [...], the others [..., n].
    """

    near1: np.ndarray  # neighbours in V1
    near2: np.ndarray  # in V2
    near3: np.ndarray  # in the sum, of a client in the sum
    near_in_block: np.ndarray  # in V2, and in a block with the client
    shares_sent: np.ndarray
    pad_words: np.ndarray  # keystream that the client expands
    removed_words: np.ndarray  # keystream that the server expands
    agreements: np.ndarray  # pairs of a lost client and one summed that share a block
    products: np.ndarray  # to recover secrets


def _assemble(
    sends: np.ndarray,
    counts: _Counts,
    t: np.ndarray,
    residue_bytes: np.ndarray,
) -> RoundCosts:
    """Compute costs from the messages that arrive and the neighbours that remain."""
    near1, near2, near3 = counts[:3]
    zero = np.zeros_like(near1)
    listed = HEADER + COUNT
    up = (
        zero + HEADER + IDENTITY + PUBLIC_KEYS,
        HEADER + IDENTITY + COUNT + (IDENTITY + SEALED_SHARES) * near1,
        zero + HEADER + IDENTITY + COUNT + residue_bytes,
        HEADER + IDENTITY + COUNT + COUNT + (IDENTITY + SHARE) * counts.shares_sent,
    )
    down = (
        listed + (IDENTITY + PUBLIC_KEYS) * near1,
        listed + (IDENTITY + SEALED_SHARES) * near2,
        listed + IDENTITY * (near3 + 1),
        zero,
    )
    # by kind, at which steps who does what
    client = {
        "key_pairs": {0: zero + _SECRETS},
        "key_agreements": {1: near1, 2: counts.near_in_block},
        "share_products": {1: _SECRETS * LIMBS * t * (near1 + 1)},
        "encryptions": {1: near1, 2: near2},
        "prg_words": {2: counts.pad_words},
    }
    server = {
        "key_agreements": {3: counts.agreements},
        "prg_words": {3: counts.removed_words},
        "interpolation_products": {3: counts.products},
    }
    bytes_up = sends * np.stack(up, axis=-2)
    # clients who are lost do nothing: 0 where they do not send
    of_clients = _operations(client, zero, -2)
    return RoundCosts(
        np.broadcast_to(sends, bytes_up.shape),
        bytes_up,
        sends * np.stack(down, axis=-2),
        Operations(*(sends * amounts for amounts in of_clients)),
        Operations(*_operations(server, np.zeros_like(counts.removed_words), -1)),
    )


def _operations(
    amounts: dict[str, dict[int, np.ndarray]],
    zero: np.ndarray,
    axis: int,
) -> list[np.ndarray]:
    """Lay out the operations of each kind at each of the four steps."""
    operations = []
    for name in _KINDS:
        by_step = amounts.get(name, {})
        steps = [by_step.get(step, zero) for step in range(4)]
        operations.append(np.stack(steps, axis=axis))
    return operations
