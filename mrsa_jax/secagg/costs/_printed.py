"""Bits of a round as papers count them: CCESA's B and Turbo-aggregate's.

They leave out ids, headers and tags, which `secagg.round_costs` counts.
"""

from __future__ import annotations

import numpy as np

from mrsa_watch._base.errors import check_integer, check_number


def printed_bits(
    degree: float | int | np.number,
    key_bits: int | np.integer = 256,
    share_bits: int | np.integer = 256,
) -> float:
    """Return B_CCESA: the bits per client beyond FedAvg's residues without losses.

    2 (|Adj| + 1) a_K + (5 |Adj| + 1) a_S: two public keys up and 2 |Adj| down, 2 |Adj|
    shares up and down, |Adj| + 1 shares up to unmask.

    Args:
        degree: |Adj|, neighbours of the client, at least 0, or their mean; n - 1 gives
            SecAgg's B_SA = 2 n a_K + (5 n - 4) a_S.
        key_bits: a_K, bits of a public key.
        share_bits: a_S, bits of a secret share.

    Returns:
        Bits up and down of one client.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.costs.printed_bits(99)
        178176.0

    Source: CCESA, Appendix D.1.
    """
    count = check_number(degree, "degree", "must be finite and at least 0", 0.0)
    key = check_integer(key_bits, "key_bits", 1)
    share = check_integer(share_bits, "share_bits", 1)
    return float(2 * (count + 1) * key + (5 * count + 1) * share)


def turbo_aggregate_bits(
    num_clients: int | np.integer,
    dim: int | np.integer,
    residue_bits: int | np.integer = 32,
    num_groups: int | np.integer = 10,
) -> float:
    """Return the bits per client of Turbo-aggregate, 4 m n R / L, as CCESA counts them.

    Args:
        num_clients: n, at least 1.
        dim: m, residues of a client's update, at least 1.
        residue_bits: R, bits of a residue.
        num_groups: L, groups of clients, at most n.

    Returns:
        Bits of one client.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.costs.turbo_aggregate_bits(100, 10**6)
        1280000000.0

    Source: CCESA, Section 1.
    """
    n = check_integer(num_clients, "num_clients", 1)
    m = check_integer(dim, "dim", 1)
    bits = check_integer(residue_bits, "residue_bits", 1)
    groups = check_integer(
        num_groups, "num_groups", 1, n, rule="must lie in [1, num_clients]"
    )
    return 4 * m * n * bits / groups
