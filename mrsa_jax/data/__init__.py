"""Data sets that are on this machine, and ways to spread their samples over clients."""

from mrsa_jax.data._available import available
from mrsa_jax.data._clients import (
    ClientData,
    check_client_data,
    class_counts,
    label_dropout_rates,
)
from mrsa_jax.data._dataset import Dataset
from mrsa_jax.data._dirichlet import dirichlet_by_class, dirichlet_by_client
from mrsa_jax.data._images import augment, normalise
from mrsa_jax.data._partition import iid, shards, shards_with_shared
from mrsa_jax.data._prepare import plan_preparation, prepare
from mrsa_jax.data._sources import SOURCES, load

__all__ = [
    "SOURCES",
    "ClientData",
    "Dataset",
    "augment",
    "available",
    "check_client_data",
    "class_counts",
    "dirichlet_by_class",
    "dirichlet_by_client",
    "iid",
    "label_dropout_rates",
    "load",
    "normalise",
    "plan_preparation",
    "prepare",
    "shards",
    "shards_with_shared",
]
