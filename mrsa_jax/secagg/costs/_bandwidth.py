"""The papers' counts of bandwidth, and what the wire carries beyond them.

CCESA, Section 1 and Appendix D.1: a_K -> `key_bits`, a_S -> `share_bits`, m -> `dim`,
R -> `residue_bits`, L -> `num_groups` of Turbo-aggregate.
"""

from __future__ import annotations

from mrsa_jax.secagg._round_costs import COUNT, HEADER, IDENTITY, SHARE, TAG
from mrsa_watch._base.errors import check_integer, require

_KEY_BYTES = 32
_SECRET_BYTES = 32


def ccesa_bandwidth_bits(
    degree: float | int, *, key_bits: float | int = 256, share_bits: float | int = 256
) -> float:
    """Return B_CCESA, the bits per client beyond FedAvg's residues, as the paper counts them.

    B_CCESA = 2 (|Adj| + 1) a_K + (5 |Adj| + 1) a_S: two public keys up and 2 |Adj| down, 2 |Adj|
    shares up and down, |Adj| + 1 shares up to unmask. `wire_terms` says what it leaves out.

    Args:
        degree: |Adj(i)|, or its mean: the formula is linear.
        key_bits: a_K.
        share_bits: a_S.

    Returns:
        Bits a client and round, with nobody lost.

    Raises:
        ConfigurationError: If an argument is negative.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.costs.ccesa_bandwidth_bits(99) == mj.secagg.costs.secagg_bandwidth_bits(100)
        True

    Source: CCESA, Appendix D.1.
    """
    for name, value in (("degree", degree), ("key_bits", key_bits), ("share_bits", share_bits)):
        require(float(value) >= 0, name, "must be at least 0", value)
    return float(2 * (degree + 1) * key_bits + (5 * degree + 1) * share_bits)


def secagg_bandwidth_bits(
    num_clients: int, *, key_bits: float | int = 256, share_bits: float | int = 256
) -> float:
    """Return B_SA = 2 n a_K + (5 n - 4) a_S, B_CCESA on the complete graph.

    Args:
        num_clients: n, at least 1.
        key_bits: a_K.
        share_bits: a_S.

    Returns:
        Bits a client and round, with nobody lost.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.costs.secagg_bandwidth_bits(100)
        178176.0

    Source: CCESA, Appendix D.1.
    """
    n = check_integer(num_clients, "num_clients", 1)
    return ccesa_bandwidth_bits(n - 1, key_bits=key_bits, share_bits=share_bits)


def turbo_aggregate_bandwidth_bits(
    num_clients: int, dim: int, residue_bits: int, num_groups: int
) -> float:
    """Return 4 m n R / L, the least that a client of Turbo-aggregate moves, in bits.

    Args:
        num_clients: n, at least 1.
        dim: m, at least 1.
        residue_bits: R, bits of a parameter, at least 1.
        num_groups: L, at least 1.

    Returns:
        Bits a client and round.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.costs.turbo_aggregate_bandwidth_bits(100, 10**6, 32, 10) == 1.28e9
        True

    Source: CCESA, Section 1, on So et al., "Turbo-aggregate" (2020).
    """
    n, m = check_integer(num_clients, "num_clients", 1), check_integer(dim, "dim", 1)
    bits = check_integer(residue_bits, "residue_bits", 1)
    return 4.0 * m * n * bits / check_integer(num_groups, "num_groups", 1)


def wire_terms(degree: float | int) -> dict[str, float]:
    """Split what a client really sends and receives, residues apart, into what it is made of.

    The paper's count is the first two terms at a_K = a_S = 256; the rest is what it leaves out.
    On the wire a share is 36 bytes (9 limbs of 31 bits in 32-bit words), not 32.

    Args:
        degree: |Adj(i)|, nobody lost.

    Returns:
        Bytes by term; their sum is that of `round_costs` less the packed residues.

    Raises:
        ConfigurationError: If `degree` is negative.

    Examples:
        >>> import mrsa_jax as mj
        >>> terms = mj.secagg.costs.wire_terms(63)
        >>> 8 * (terms["public keys"] + terms["shares"]) == mj.secagg.costs.ccesa_bandwidth_bits(63)
        True

    Source: CCESA, Appendix D.1, with the message formats of `mrsa_jax.protocol`.
    """
    require(float(degree) >= 0, "degree", "must be at least 0", degree)
    shares = 5 * degree + 1
    return {
        "public keys": 2.0 * _KEY_BYTES * (degree + 1),
        "shares": float(_SECRET_BYTES * shares),
        "limbs of 32 bits": float((SHARE - _SECRET_BYTES) * shares),
        "authentication tags": 2.0 * TAG * degree,
        # of the sender (4 messages), of neighbours (keys, shares up and down), of those in V3,
        # of the owners of the shares sent at last
        "identities": float(IDENTITY * (4 + 3 * degree + 2 * (degree + 1))),
        # entries of a list: one a list, two of the last message, one of residues
        "counts": float(7 * COUNT),
        "headers": float(7 * HEADER),
    }
