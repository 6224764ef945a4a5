"""The complete graph of SecAgg and the Erdős-Rényi graph of CCESA.

Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation": SecAgg is the
case of the complete graph, CCESA(n, p) that of G(n, p). p -> `connection_probability`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Key

from mrsa_jax._arrays import on_device
from mrsa_jax._chance import happens, threshold
from mrsa_jax._checks import check_number
from mrsa_jax._html import brief
from mrsa_jax._streams import pair_words
from mrsa_jax._tracing import needs_values
from mrsa_jax.graphs._lists import check_num_clients


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Complete:
    """Everybody with everybody; built by `complete`.

    Attributes:
        num_clients: n.
    """

    __repr__ = brief

    num_clients: int = dataclasses.field(metadata={"static": True})

    @jax.jit
    def sample(self, key: Key[Array, ""]) -> Bool[Array, "clients clients"]:
        """Return the complete graph, whatever the key."""
        del key
        return ~jnp.eye(self.num_clients, dtype=jnp.bool_)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ErdosRenyi:
    """Every pair joined independently with one chance; built by `erdos_renyi`.

    Attributes:
        threshold: uint32[], a pair is joined when its word is below it; the largest value
            stands for chance 1.
        num_clients: n.
    """

    __repr__ = brief

    threshold: Array
    num_clients: int = dataclasses.field(metadata={"static": True})

    @jax.jit
    def sample(self, key: Key[Array, ""]) -> Bool[Array, "clients clients"]:
        """Return one graph; whether i and j are joined does not depend on n."""
        words = pair_words(key, self.num_clients)
        return happens(words, self.threshold) & ~jnp.eye(self.num_clients, dtype=jnp.bool_)


def complete(num_clients: int | np.integer) -> Complete:
    """Return the complete graph: SecAgg, in which everybody shares a pad with everybody.

    Choose it for small rounds; its pads grow as n^2, those of the others as n k.

    Args:
        num_clients: n, at least 1.

    Returns:
        The model, a pytree; `sample(key)` does not depend on the key.

    Raises:
        ConfigurationError: If n is no integer from 1 on.

    Edge cases: n = 1 is a graph without edges.

    Examples:
        >>> complete(3).sample(jax.random.key(0)).sum(1).tolist()
        [2, 2, 2]

    Source: Bonawitz et al., "Practical secure aggregation" (2017).
    """
    return Complete(check_num_clients(num_clients))


@needs_values
def erdos_renyi(num_clients: int | np.integer, connection_probability: ArrayLike) -> ErdosRenyi:
    """Return G(n, p): each of the n (n - 1) / 2 pairs is joined independently with chance p.

    CCESA's assignment graph. `secagg.connection_probability` gives the paper's p*.

    Args:
        num_clients: n, at least 1.
        connection_probability: p in [0, 1], rounded to a multiple of 2^-32; 1 is certain.

    Returns:
        The model, a pytree; p is traced, so that changing it compiles nothing new. A pair's draw
        depends on the key and the pair alone: the graph on the first m clients of n is the graph
        that the same key gives for m, and a graph for a smaller p is part of that for a larger.

    Raises:
        ConfigurationError: If n is no integer from 1 on, or p no number in [0, 1].

    Examples:
        >>> graph = erdos_renyi(6, 0.5).sample(jax.random.key(1))
        >>> bool((erdos_renyi(4, 0.5).sample(jax.random.key(1)) == graph[:4, :4]).all())
        True

    Source: CCESA, Section 4.3.
    """
    clients = check_num_clients(num_clients)
    rule, kind = "must lie in [0, 1]", "must be a number in [0, 1]"
    chance = check_number(
        connection_probability, "connection_probability", rule, 0.0, 1.0, kind=kind
    )
    return ErdosRenyi(on_device(threshold(np.asarray(chance))), clients)
