"""Rules for t, the shares that rebuild a secret.

Paper: CCESA, Algorithm 1 (one t_i per client) and Remark 4 (one t for all).
`in_graphs` serves graphs that are known, `before_graphs` graphs drawn later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.array_types import Whole
from mrsa_jax._core.arrays import check_thresholds, host_array
from mrsa_jax._core.status import ThresholdRule
from mrsa_jax.graphs import GraphModel
from mrsa_watch._base.errors import check_chance, check_integer, require

Thresholds = ArrayLike | Sequence[Any] | ThresholdRule
_RULES = get_args(ThresholdRule)


def more_than_half(neighbours: Any) -> Any:
    """Compute the least t_i of which two sets of holders always share a member.

    Args:
        neighbours: |Adj(i)|, integers of any shape, NumPy's or JAX's.

    Returns:
        floor((|Adj(i)| + 1) / 2) + 1, more than half of the neighbours and the client
        itself: 2 t_i > |Adj(i)| + 1, so CCESA's Appendix F attack fails. At least 2:
        with t = 1, a client without neighbours would reveal its input.
    """
    numbers = np if isinstance(neighbours, np.ndarray) else jnp
    return numbers.maximum((neighbours + 1) // 2 + 1, 2)


def check_rule(value: str, argument: str) -> str:
    """Return the name of a rule, or raise naming `argument`."""
    rule = "must be 'majority', 'remark4', an integer or one integer per client"
    require(value in _RULES, argument, rule, value)
    return value


def in_graphs(
    value: Any, argument: str, adjacency: Any, *, batch: bool = False
) -> np.ndarray | Any:
    """Return the thresholds that a rule gives in known graphs.

    Args:
        value: A rule's name, an integer, or one per client.
        argument: Name used in messages.
        adjacency: bool[..., n, n]; may be traced unless the rule is "remark4".
        batch: Whether thresholds may have leading axes.

    Returns:
        int32[] or int32[..., n]. Remark 4's p is the fraction of pairs that are joined.

    Raises:
        ConfigurationError: If there is no such rule, or a number breaks
            `check_thresholds`.
    """
    clients = adjacency.shape[-1]
    if not isinstance(value, str):
        return check_thresholds(value, argument, clients, batch=batch)
    if check_rule(value, argument) == "majority":
        degree = adjacency.sum(axis=-1, dtype=np.int32)
        return more_than_half(degree)
    degrees = host_array(adjacency, "adjacency").sum(axis=(-2, -1)) / clients
    require(clients > 1, argument, "must not be 'remark4' for one client", value)
    chances = np.minimum(degrees / (clients - 1), 1.0)
    limits = [share_threshold(clients, chance) for chance in chances.ravel().tolist()]
    wide = np.asarray(limits, np.int32).reshape(*chances.shape, 1)
    return np.broadcast_to(wide, (*chances.shape, clients)).copy()


def before_graphs(value: Any, argument: str, graph: GraphModel) -> np.ndarray | None:
    """Return the thresholds of clients whose graph will be drawn.

    Args:
        value: A rule's name, an integer, or one per client.
        argument: Name used in messages.
        graph: The model of the graph.

    Returns:
        int32[] or int32[n]; None for "majority", which depends on the graph drawn
        (`more_than_half`).

    Raises:
        ConfigurationError: If there is no such rule, a number breaks
            `check_thresholds`, or "remark4" is used with a graph whose edges have no
            common probability.
    """
    clients = int(graph.num_clients)
    if not isinstance(value, str):
        limits: np.ndarray = check_thresholds(value, argument, clients)
        return limits
    if check_rule(value, argument) == "majority":
        return None
    chance = getattr(graph, "connection_probability", None)
    rule = (
        "must not be 'remark4' unless the graph is erdos_renyi or complete: Remark 4 "
        "is about independent edges of one probability"
    )
    require(chance is not None and clients > 1, argument, rule, type(graph).__name__)
    assert chance is not None
    return np.asarray(share_threshold(clients, chance), np.int32)


def share_threshold(n: Whole, p: ArrayLike) -> int:
    """Return t, the least number of shares that resists the unmasking attack.

    t = ceil(((n-1) p + sqrt((n-1) log(n-1)) + 1) / 2): a server that asks one half of a
    client's neighbours for one kind of share and the rest for the other then fails for
    every client, except with a chance of n / (n - 1)^2 (Proposition 1).

    Args:
        n: Clients, at least 2.
        p: Chance of an edge, in [0, 1].

    Returns:
        t, at least 1.

    Raises:
        ConfigurationError: If n is below 2 or p is outside [0, 1].

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.share_threshold(1000, 0.3106), mj.secagg.share_threshold(40, 0.7)
        (198, 21)

    Source: CCESA, Remark 4, with its ceiling. "P_e^(r) below 1e-2" in the text on Fig.
    3 fails at n = 100 with it and holds without (docs/errata.md).
    """
    n = check_integer(n, "n", 2)
    edges = check_chance(p, "p")
    return math.ceil(
        ((n - 1) * edges + math.sqrt((n - 1) * math.log(n - 1)) + 1.0) / 2.0
    )
