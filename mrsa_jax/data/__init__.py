"""Data sets that need no download, and ways to spread their samples over clients."""

from mrsa_jax.data._partition import (
    ClientData,
    class_counts,
    dirichlet_by_class,
    iid,
    shards,
)
from mrsa_jax.data._sources import SOURCES, Dataset, load

__all__ = [
    "SOURCES",
    "ClientData",
    "Dataset",
    "class_counts",
    "dirichlet_by_class",
    "iid",
    "load",
    "shards",
]
