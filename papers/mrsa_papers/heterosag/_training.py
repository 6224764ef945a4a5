"""Shared parts of HeteroSAg's two experiments: users, layouts, and the clip range.

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning", Section VI-C.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, hetero
from mrsa_jax._core.arrays import on_device
from mrsa_papers.harness._context import Context, Experiment, Split

NUM_CLIENTS = 20
GROUP_SIZE = 4
LEVELS = (2, 4, 8, 10, 12)
SCHEMES: dict[str, tuple[str, int | None]] = {
    "SC": ("sc", None),
    "MC": ("mc", None),
    "HC (T = 2)": ("hc", 2),
    "HC (T = 3)": ("hc", 3),
}
"""The paper's schemes as `hetero` names them, with the threshold of the hybrid ones."""


@functools.cache
def layout_of(name: str, dim: int) -> hetero.SegmentLayout:
    """Return the layout of a scheme over the paper's groups, or one quantizer for all.

    Five groups of four with K = (2, 4, 8, 10, 12); `"K = 2"`: everybody sums the whole
    update with the same quantizer.
    """
    if name.startswith("K = "):
        return hetero.segment_layout("groups", [NUM_CLIENTS], [int(name[4:])], dim)
    scheme, threshold = SCHEMES[name]
    sizes = [GROUP_SIZE] * len(LEVELS)
    return hetero.segment_layout(scheme, sizes, LEVELS, dim, hybrid_threshold=threshold)


def one_class_each(seed: Key[Array, ""], dataset: data.Dataset) -> data.ClientData:
    """Deal shards of one class.

    Clients by ascending class, two of each where they are ten.
    """
    clients = data.shards(seed, dataset, NUM_CLIENTS, single_label=True)
    classes = data.class_counts(clients).argmax(axis=1)
    return ordered(clients, np.argsort(classes, kind="stable"))


def ordered(clients: data.ClientData, order: np.ndarray) -> data.ClientData:
    """Return the clients in another order: groups are cut from them in order."""
    chosen = on_device(order, jnp.int32)
    return dataclasses.replace(
        clients, indices=clients.indices[chosen], sizes=clients.sizes[chosen]
    )


def experiment_of(context: Context, model: Any, split: Split, every: int) -> Experiment:
    """Return the paper's training.

    One local epoch in batches of 50 at the fixed rate .01.
    """
    return Experiment(
        context, model, split, federated.local_sgd(model, 0.01, batch_size=50), every
    )


def clip_range(updates: np.ndarray) -> float:
    """Return r of the clip range [-r, r].

    The first updates' largest entry, rounded to two digits.
    The paper assumes that all entries fall in its range and does not say which range
    that is: this is the smallest symmetric one (rounded up) of which that is true at
    the start.
    """
    largest = float(np.abs(updates).max())
    # of the second digit
    unit = 10.0 ** (np.floor(np.log10(largest)) - 1)
    return float(np.round(np.ceil(largest / unit - 1e-9) * unit, 12))
