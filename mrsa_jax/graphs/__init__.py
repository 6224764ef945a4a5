"""Assignment graphs: who shares keys, shares and pads with whom, and what losses leave of them.

Modules load when first used: names of graphs, which settings need, load without JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax.graphs._connectivity import component_labels, degrees, is_connected
    from mrsa_jax.graphs._harary import harary
    from mrsa_jax.graphs._lists import check_adjacency, edges, neighbour_lists
    from mrsa_jax.graphs._random import Complete, ErdosRenyi, complete, erdos_renyi
    from mrsa_jax.graphs._random_regular import random_regular
    from mrsa_jax.graphs._registry import register
    from mrsa_jax.graphs._secagg_plus import secagg_plus_parameters
    from mrsa_jax.graphs._types import GraphModel

__all__ = [
    "Complete",
    "ErdosRenyi",
    "GraphModel",
    "check_adjacency",
    "complete",
    "component_labels",
    "degrees",
    "edges",
    "erdos_renyi",
    "harary",
    "is_connected",
    "neighbour_lists",
    "random_regular",
    "register",
    "secagg_plus_parameters",
]

__getattr__, __dir__ = late_names(__name__)
