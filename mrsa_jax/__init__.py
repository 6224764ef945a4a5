"""JAX-accelerated simulator of multi-round secure aggregation in federated learning.

Sub-packages load when first used, so that `import mrsa_jax` costs nothing:

>>> import mrsa_jax as mj
>>> mj.selection.family_size(8, 4, 2)
6
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names
from mrsa_jax._version import __version__

__all__ = [
    "ConfigurationError",
    "DataNotFoundError",
    "MrsaError",
    "OutputExistsError",
    "Status",
    "__version__",
    "attacks",
    "availability",
    "bench",
    "cite",
    "data",
    "design",
    "dp",
    "federated",
    "graphs",
    "hetero",
    "live",
    "modular",
    "plotting",
    "privacy",
    "protocol",
    "quantize",
    "secagg",
    "selection",
    "study",
    "use_compile_cache",
    "use_form",
]

if TYPE_CHECKING:
    from mrsa_jax import (
        attacks,
        availability,
        bench,
        data,
        design,
        dp,
        federated,
        graphs,
        hetero,
        live,
        modular,
        plotting,
        privacy,
        protocol,
        quantize,
        secagg,
        selection,
        study,
    )
    from mrsa_jax._compile_cache import use_compile_cache
    from mrsa_jax._device import use_form
    from mrsa_jax._errors import (
        ConfigurationError,
        DataNotFoundError,
        MrsaError,
        OutputExistsError,
    )
    from mrsa_jax._status import Status
    from mrsa_jax.study import cite

__getattr__, __dir__ = late_names(__name__)
