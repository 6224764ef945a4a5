"""Which sums a round's shares reveal: Theorems 1 and 2 of CCESA as predicates on sets.

Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation", Section
4.2. Symbols: Adj(i) -> row i of `adjacency`; V_0 to V_4 -> rows of `survivors`; t_i ->
`thresholds`; G_3 -> the graph that V_3 induces, C_l its components, C_l+ those and
their neighbours in V_2. The functions `_informative`, `_reliable`, `_private`,
`_learnt_components` are pure and traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.factories import is_whole
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.graphs import check_adjacency, component_labels
from mrsa_jax.secagg.thresholds import Thresholds, in_graphs
from mrsa_watch._base.errors import require

_Matrix = ArrayLike | Sequence[Any]
# one round of checked arrays
_Graph = Bool[Array, "n n"]
_Alive = Bool[Array, "5 n"]
_Limits = Int32[Array, " n"]


def is_reliable(
    adjacency: _Matrix,
    survivors: _Matrix,
    thresholds: _Matrix | Thresholds,
) -> bool | Bool[np.ndarray | Array, "*rounds"]:
    """Return whether the sum over V_3 can be unmasked (Theorem 1).

    It can if and only if every client of V_3+ = V_3 u {i in V_2: Adj(i) n V_3 not
    empty} is informative: |(Adj(i) u {i}) n V_4| >= t_i shares came back, of those in
    V_3 of b_i, which the server needs, of their neighbours who were lost in between of
    s_i.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.
        survivors: bool[5, n], rows V_0 to V_4, each within the one before.
        thresholds: t_i, integers of at least 1, one for all or [n], or the name of a
            rule (`check_round`); above |Adj(i)| + 1 the secrets of i can never be
            recovered.

    Each may have leading axes for rounds; they broadcast against each other.

    Returns:
        A bool for one round, an array over the leading axes for several. Of traced
        arguments an array of JAX; their values are not checked.

    Raises:
        ConfigurationError: See `check_round`.

    Edge cases: True for an empty V_3. For |V_3| = 1 the theorem speaks of shares alone:
    clients refuse to unmask such a sum.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import numpy as np
        >>> everybody = np.ones((5, 3), bool)
        >>> complete = mj.graphs.complete(3).sample(jax.random.key(0))
        >>> (
        ...     mj.secagg.is_reliable(complete, everybody, 3),
        ...     mj.secagg.is_reliable(complete, everybody, 4),
        ... )
        (True, False)

    Source: CCESA, Definition 3 and Theorem 1; as written there, a client's own share
    counts.
    """
    return _verdict(_reliable_rounds, adjacency, survivors, thresholds)


def is_private(
    adjacency: _Matrix,
    survivors: _Matrix,
    thresholds: _Matrix | Thresholds,
) -> bool | Bool[np.ndarray | Array, "*rounds"]:
    """Return whether no sum over a part of V_3 can be unmasked (Theorem 2).

    None can if and only if G_3 is connected, or every component C_l has in C_l+ = C_l u
    {i in V_2: Adj(i) n C_l not empty} a client who is not informative.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.
        survivors: bool[5, n], rows V_0 to V_4, each within the one before.
        thresholds: t_i, integers of at least 1, one for all or [n].

    Each may have leading axes for rounds; they broadcast against each other.

    Returns:
        A bool for one round, an array over the leading axes for several. Of traced
        arguments an array of JAX; their values are not checked.

    Raises:
        ConfigurationError: See `check_round`.

    Edge cases: True for |V_3| of 0 and 1, which have no proper part. The adversary is
    honest but curious and alone: see `unmasking_risk` for one attack by a server that
    is not.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> nobody_joined = np.zeros((2, 2), bool)
        >>> mj.secagg.is_private(nobody_joined, np.ones((5, 2), bool), 1)
        False
        >>> mj.secagg.is_private(nobody_joined, np.ones((5, 2), bool), 2)
        True

    Source: CCESA, Theorem 2. Differs from the paper's proof, whose converse asks for
    C_l where C_l+ is meant: a neighbour in V_2 - V_3 who is not informative protects
    the component.
    """
    return _verdict(_private_rounds, adjacency, survivors, thresholds)


def learned_sets(
    adjacency: _Matrix,
    survivors: _Matrix,
    thresholds: _Matrix | Thresholds,
) -> Bool[np.ndarray, "sets clients"]:
    """Return the sets of clients whose sums can be unmasked, one a row.

    Args:
        adjacency: bool[n, n].
        survivors: bool[5, n].
        thresholds: Integer or int[n].

    Returns:
        bool[L, n], disjoint sets in the order of their smallest members: V_3 alone for
        a round that is reliable and private; the components of `learnt_components`
        otherwise; no rows where nothing can be unmasked.

    Raises:
        ConfigurationError: See `check_round`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> mj.secagg.learned_sets(
        ...     np.zeros((3, 3), bool), np.ones((5, 3), bool), [1, 2, 1]
        ... ).astype(int)
        array([[1, 0, 0],
               [0, 0, 1]])
    """
    round_ = check_round(adjacency, survivors, thresholds)
    label = np.asarray(_jitted_components(*map(on_device, round_)))
    return label[None, :] == np.unique(label[label >= 0])[:, None]


@needs_values
def unmasking_risk(
    adjacency: _Matrix, thresholds: _Matrix | Thresholds
) -> Bool[np.ndarray, " clients"]:
    """Return the clients that the attack in CCESA's Appendix F can unmask.

    2 t_i <= |Adj(i)| + 1.
    The server reports i as present to t_i holders and asks for b_i, reports i as lost
    to t_i others and asks for its secret key, and has both. This is outside Theorems 1
    and 2, whose server is honest but curious.

    False means that no client reveals both of its secrets. It is no statement about
    other attacks by a lying server. Clients of `protocol` refuse lists below their
    threshold, which stops lists of too few clients. A server that invents a different
    list for each client still unmasks sums over few of them, or one (in tests: one of
    10 at t = 6, six of 10 at t = 7, over the complete graph), unless the round has the
    consistency check. Without it, a server that invents clients or their keys reads
    their shares.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.
        thresholds: Integer or int[n], at least 1.

    Returns:
        bool[n].

    Raises:
        ConfigurationError: See `check_round`.

    Examples:
        >>> import mrsa_jax as mj
        >>> pair = [[False, True], [True, False]]
        >>> (
        ...     mj.secagg.unmasking_risk(pair, 1).tolist(),
        ...     mj.secagg.unmasking_risk(pair, 2).tolist(),
        ... )
        ([True, True], [False, False])

    Source: CCESA, Appendix F; Remark 4 sets t just above the limit at the mean degree.
    """
    matrix = np.asarray(check_adjacency(adjacency))
    limits = in_graphs(thresholds, "thresholds", matrix)
    return can_be_unmasked(matrix, limits)


def can_be_unmasked(
    adjacency: np.ndarray, thresholds: np.ndarray
) -> Bool[np.ndarray, " clients"]:
    """Return `unmasking_risk` of checked arrays."""
    return 2 * thresholds.astype(np.int64) <= adjacency.sum(axis=1) + 1


@needs_values
def check_round(
    adjacency: _Matrix,
    survivors: _Matrix,
    thresholds: _Matrix | Thresholds,
) -> tuple[
    Bool[np.ndarray, "clients clients"],
    Bool[np.ndarray, "5 clients"],
    Int32[np.ndarray, " clients"],
]:
    """Return one round's graph, survivors and thresholds as checked NumPy arrays.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.
        survivors: bool[5, n], rows V_0 to V_4, each within the one before.
        thresholds: Integers in [1, 2^31), one for all or [n]; or "majority", more than
            half of each neighbourhood, floor((|Adj(i)| + 1) / 2) + 1 and at least 2; or
            "remark4", `share_threshold` at the fraction of pairs that are joined.

    Returns:
        bool[n, n], bool[5, n] and int32[n].

    Raises:
        ConfigurationError: If a shape or a type is wrong, the graph is asymmetric or
            joins a client to itself, survivors are not nested, or a threshold is no
            integer or below 1.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.check_round([[False]], [[True]] * 5, 1)[2]
        array([1], dtype=int32)
    """
    matrix = np.asarray(check_adjacency(adjacency))
    clients = len(matrix)
    alive = _check_survivors(survivors, clients)
    require(
        alive.ndim == 2, "survivors", f"must have shape (5, {clients})", alive.shape
    )
    limits = in_graphs(thresholds, "thresholds", matrix)
    return matrix, alive, np.broadcast_to(limits, (clients,)).copy()


def _check_survivors(survivors: _Matrix, clients: int) -> Any:
    """Return bool[..., 5, n], nested unless it is traced."""
    is_known = not isinstance(survivors, jax.core.Tracer)
    alive: Any = host_array(survivors, "survivors") if is_known else survivors
    require(alive.dtype == np.bool_, "survivors", "must hold bools", str(alive.dtype))
    require(
        alive.shape[-2:] == (5, clients),
        "survivors",
        f"must have shape (5, {clients}): V_0 to V_4 of the graph's clients",
        alive.shape,
    )
    if is_traced(alive):
        return alive
    back = np.argwhere(alive[..., 1:, :] & ~alive[..., :-1, :])
    problems = [
        f"client {at[-1]} in V_{at[-2] + 1} and not in V_{at[-2]}" for at in back[:1]
    ]
    require(
        not problems,
        "survivors",
        "must be nested, each set within the one before",
        *problems,
    )
    return alive


def check_rounds(
    adjacency: _Matrix,
    survivors: _Matrix,
    thresholds: _Matrix | Thresholds,
) -> tuple[Any, Any, Any]:
    """Check one round or, along leading axes, many; arrays may be traced."""
    graphs = check_adjacency(adjacency, batch=True)
    clients = graphs.shape[-1]
    alive = _check_survivors(survivors, clients)
    limits = in_graphs(thresholds, "thresholds", graphs, batch=True)
    return graphs, alive, limits


def _verdict(core: Callable[..., Array], *round_: _Matrix) -> Any:
    """Apply a predicate to one round or to all rounds of the leading axes."""
    graphs, alive, limits = check_rounds(*round_)
    # one threshold for all clients, of which there is always one at least
    limits = limits + np.zeros(graphs.shape[-1:], np.int32)
    try:
        np.broadcast_shapes(graphs.shape[:-2], alive.shape[:-2], limits.shape[:-1])
    except ValueError:
        shapes = [str(a.shape) for a in (graphs, alive, limits)]
        require(
            False,
            "survivors",
            "must have leading axes that broadcast with the rest",
            *shapes,
        )
    # axes that broadcast are meant to, whatever a user forbids elsewhere
    with jax.numpy_rank_promotion("allow"):
        verdict = core(*map(on_device, (graphs, alive, limits)))
    if is_traced(round_[-1]):  # neither holds of thresholds that are none
        legal = is_whole(jnp.asarray(round_[-1]), 1, 2**31 - 1)
        legal = legal.all(axis=-1) if legal.ndim else legal
        verdict = verdict & jnp.broadcast_to(legal, verdict.shape)
    if is_traced(verdict):
        return verdict
    return np.asarray(verdict) if verdict.ndim else bool(verdict)


def _informative(
    adjacency: _Graph,
    survivors: _Alive,
    thresholds: _Limits,
) -> Bool[Array, " n"]:
    """Return of whom enough shares came back (Definition 3).

    |(Adj(i) u {i}) n V_4| >= t_i.
    For a client of V_3 the shares are those of b_i, for one of V_2 - V_3 those of its
    secret key. Clients outside V_2 have shared no secret; the count is taken all the
    same.
    """
    answered = survivors[4]
    # shares that its neighbours hold, and its own
    from_others = jnp.sum(adjacency & answered[None, :], axis=1, dtype=jnp.int32)
    return from_others + answered.astype(jnp.int32) >= thresholds


def _reliable(
    adjacency: _Graph,
    survivors: _Alive,
    thresholds: _Limits,
) -> Bool[Array, ""]:
    """Return `is_reliable` of checked arrays."""
    summed = survivors[3]
    beside = survivors[2] & jnp.any(adjacency & summed[None, :], axis=1)
    return jnp.all(_informative(adjacency, survivors, thresholds) | ~(summed | beside))


def _private(
    adjacency: _Graph,
    survivors: _Alive,
    thresholds: _Limits,
) -> Bool[Array, ""]:
    """Return `is_private` of checked arrays."""
    label = component_labels(adjacency, survivors[3])
    connected = (
        jnp.sum(label == jax.lax.iota(jnp.int32, label.shape[0]), dtype=jnp.int32) <= 1
    )
    return connected | ~jnp.any(_unmasked(adjacency, survivors, thresholds, label))


def learnt_components(
    adjacency: _Graph,
    survivors: _Alive,
    thresholds: _Limits,
) -> Int32[Array, " n"]:
    """Label the clients of V_3 whose component's sum can be unmasked.

    What can be computed from a round are exactly the sums over the components C_l of
    G_3 all of whose C_l+ is informative, and the sums of those. A label is the smallest
    member of the client's component; -1 for clients outside V_3, for those whose
    component's pads stay on, and for all if |V_3| < 2, because clients then refuse to
    unmask. A component of one client among others counts: its input is exposed.

    Source: CCESA, proof of Theorem 2, with C_l+ for C_l in its converse.
    """
    label = component_labels(adjacency, survivors[3])
    enough = jnp.sum(survivors[3], dtype=jnp.int32) >= FEWEST_IN_A_SUM
    learnt = _unmasked(adjacency, survivors, thresholds, label) & enough
    return jnp.where(learnt, label, -1)


def _unmasked(
    adjacency: _Graph,
    survivors: _Alive,
    thresholds: _Limits,
    label: Int32[Array, " n"],
) -> Bool[Array, " n"]:
    """Mark the clients in components of G_3 all of whose C_l+ is informative."""
    silent = ~_informative(adjacency, survivors, thresholds)
    # a lost neighbour whose key stays secret keeps its pad on the component
    beside = jnp.any(adjacency & (survivors[2] & silent)[None, :], axis=1)
    # one row per client: its component, in which a single silent client protects all
    together = label[:, None] == label[None, :]
    protected = jnp.any(together & (silent | beside)[None, :], axis=1)
    return survivors[3] & ~protected


def _over_rounds(predicate: Callable[..., Array]) -> Callable[..., Array]:
    """Map a predicate of one round over leading axes that broadcast, as one program."""
    return jax.jit(jnp.vectorize(predicate, signature="(n,n),(steps,n),(n)->()"))


_reliable_rounds = _over_rounds(_reliable)
_private_rounds = _over_rounds(_private)
_jitted_components = jax.jit(learnt_components)
