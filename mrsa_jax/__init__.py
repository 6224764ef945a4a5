"""JAX-accelerated simulator of multi-round secure aggregation in federated learning.

Sub-packages load when first used, so that `import mrsa_jax` costs nothing:

>>> import mrsa_jax as mj
>>> mj.selection.family_size(8, 4, 2)
6
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mrsa_jax._version import __version__

_NAMES = {
    "ConfigurationError": "mrsa_jax._errors",
    "DataNotFoundError": "mrsa_jax._errors",
    "MrsaError": "mrsa_jax._errors",
    "OutputExistsError": "mrsa_jax._errors",
    "Status": "mrsa_jax._status",
    "cite": "mrsa_jax.study",
    "use_compile_cache": "mrsa_jax._compile_cache",
    "use_form": "mrsa_jax._device",
}

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
    "federated",
    "graphs",
    "hetero",
    "modular",
    "plotting",
    "privacy",
    "protocol",
    "quantize",
    "reproduce",
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
        federated,
        graphs,
        hetero,
        modular,
        plotting,
        privacy,
        protocol,
        quantize,
        reproduce,
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


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"mrsa_jax.{name}")
    raise AttributeError(f"module 'mrsa_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
