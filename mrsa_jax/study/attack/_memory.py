"""Shapes that an attack's memory follows from; nothing here is compiled or trained."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import data, federated
from mrsa_jax.study import _build
from mrsa_jax.study.attack import _scene

IN_A_ROUND = 10  # arrays of a cohort's updates: trained, masked, drawn, coded, decoded, float64
_IN_A_WIRE = 14  # codes, draws, pads, padded codes, and what is read from them


def on_the_wire(dim: int, senders: int) -> int:
    """Return the arrays of one round of secure aggregation over vectors, all senders' at once."""
    return 4 * _IN_A_WIRE * dim * senders


@functools.cache
def data_of(name: str, directory: Any, seed: int) -> tuple[int, tuple[int, ...], int]:
    """Return the bytes of a data set, on the host and on the device, a sample's shape, classes."""
    found = data.load(name, directory=directory, seed=seed)
    size = sum(np.asarray(one).nbytes for one in (found.train_inputs, found.test_inputs))
    return 2 * size, tuple(found.train_inputs.shape[1:]), found.num_classes


def dim_of(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return a model's number of parameters."""
    return int(federated.num_parameters(_build.MODELS[model](classes), shape))


@functools.cache
def activations(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return how many numbers a model's layers put out for one sample."""
    module = _build.MODELS[model](classes)
    sample = jnp.zeros((1, *shape), jnp.float32)

    def answers(key: Any) -> Any:
        variables = module.init(key, sample)
        return module.apply(
            variables, sample, capture_intermediates=True, mutable=["intermediates"]
        )

    found = jax.eval_shape(answers, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(found))


def shape_of(config: Any, name: str) -> tuple[int, ...]:
    """Return the shape of an array in a user's file, by the setting that names it."""
    return tuple(_scene.read_array(getattr(config, name), name).shape)


def sizes_of(*paths: Any) -> int:
    """Return the bytes of some files, None for none."""
    return sum(path.stat().st_size for path in paths if path is not None)
