"""What each extra of the package installs, so that a hint to install says one thing everywhere.

A hint names the requirement, never this package: a requirement is installed in the same way beside
a wheel, beside a clone, and where the package's name stands in no registry.
"""

from __future__ import annotations

import importlib
from typing import Any

from mrsa_watch._base.errors import ConfigurationError, MrsaError

_TFDS = "tensorflow-datasets>=4.9.10 importlib_resources>=6"
EXTRAS = {
    "bench": "threadpoolctl>=3.5",
    "cuda12": "jax[cuda12]>=0.10.2,<0.13",
    "cuda13": "jax[cuda13]>=0.10.2,<0.13",
    "dask": "distributed>=2025.1",
    "dp-accounting": "dp-accounting>=0.6",
    "flower": "flwr>=1.38,<1.43",
    "jax-privacy": "jax-privacy>=2.0",
    "nvflare": "nvflare>=2.9,<2.10",
    "parquet": "pyarrow>=20",
    "scikit-learn": "scikit-learn>=1.8",
    "tensorboard": "tensorboardX>=2.6.4",
    "tfds": _TFDS,
    "tfds-prepare": f"tensorflow-cpu>=2.21 {_TFDS}",
    "wandb": "wandb>=0.23",
}
"""The requirements of each extra, as `pyproject.toml` has them: a test holds them equal."""


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra to the environment that runs.

    Args:
        extra: A name of `EXTRAS`.

    Examples:
        >>> how_to_install("dask")
        "pip install 'distributed>=2025.1'"
    """
    return " ".join(["pip install", *(f"'{one}'" for one in EXTRAS[extra].split())])


def needed(module: str, extra: str, rule: str, kind: type[MrsaError] = ConfigurationError) -> Any:
    """Import a module that an extra brings.

    Args:
        module: Its full name.
        extra: A name of `EXTRAS`.
        rule: What is not possible without it; begins the message.
        kind: Of the error where it cannot be imported.

    Examples:
        >>> needed("nowhere", "dask", "`workers` must be left out where dask is missing")
        Traceback (most recent call last):
            ...
        mrsa_jax.ConfigurationError: `workers` must be left out where dask is missing (No
        module named 'nowhere'): pip install 'distributed>=2025.1'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise kind(f"{rule} ({error}): {how_to_install(extra)}") from error
