"""Shared parts of HeteroSAg's two experiments: users, layouts, and the clip range.

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning", Section VI-C.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, hetero
from mrsa_jax._core.arrays import on_device
from mrsa_papers.harness import Values
from mrsa_papers.harness._context import Context, Experiment, Split, model_of
from mrsa_watch._base.errors import require

SCHEMES: dict[str, tuple[str, int | None]] = {"SC": ("sc", None), "MC": ("mc", None)}
"""The paper's schemes as `hetero` names them, with the threshold of the hybrid ones."""


def hybrid(threshold: int) -> str:
    """Return the name of HC at T.

    Examples:
        >>> scheme_of(hybrid(2))
        ('hc', 2)
    """
    return f"HC (T = {threshold})"


def equal(num_levels: int) -> str:
    """Return the name of the same quantizer for all clients, who sum together."""
    return f"K = {num_levels}"


def scheme_of(name: str) -> tuple[str, int | None]:
    """Return a scheme as `hetero` names it, with its threshold."""
    if name in SCHEMES:
        return SCHEMES[name]
    return "hc", int(name.removeprefix("HC (T = ").removesuffix(")"))


class Groups(NamedTuple):
    """The clients: levels K_g of each group's quantizer, and the size of a group."""

    levels: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, settings: Values) -> Groups:
        """Return the groups of an item.

        Raises:
            ConfigurationError: If levels fall, or there are fewer than two groups.
        """
        levels = settings.levels
        rule = "must have two values or more, one for each group, none below another"
        rises = list(levels) == sorted(levels)
        require(len(levels) >= 2 and rises, "levels", rule, levels)
        return cls(levels, settings.group_size)

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.levels) * self.size

    @property
    def words(self) -> str:
        """The groups in words."""
        return f"G = {len(self.levels)} groups of {self.size}, K = {self.levels}"


@functools.cache
def layout_of(name: str, dim: int, groups: Groups) -> hetero.SegmentLayout:
    """Return the layout of a scheme over groups, or one quantizer for all.

    `"K = 2"`: everybody sums the whole update with the same quantizer.
    """
    if name.startswith("K = "):
        return hetero.segment_layout(
            "groups", [groups.num_clients], [int(name[4:])], dim
        )
    scheme, threshold = scheme_of(name)
    sizes = [groups.size] * len(groups.levels)
    return hetero.segment_layout(
        scheme, sizes, groups.levels, dim, hybrid_threshold=threshold
    )


def one_class_each(
    seed: Key[Array, ""], dataset: data.Dataset, num_clients: int
) -> data.ClientData:
    """Deal shards of one class.

    Clients by ascending class, two of each where they are ten of twenty clients.
    """
    clients = data.shards(seed, dataset, num_clients, single_label=True)
    classes = data.class_counts(clients).argmax(axis=1)
    return ordered(clients, np.argsort(classes, kind="stable"))


def ordered(clients: data.ClientData, order: np.ndarray) -> data.ClientData:
    """Return the clients in another order: groups are cut from them in order."""
    chosen = on_device(order, jnp.int32)
    return dataclasses.replace(
        clients, indices=clients.indices[chosen], sizes=clients.sizes[chosen]
    )


def experiment_of(context: Context, settings: Values, split: Split) -> Experiment:
    """Return the settings' training; the paper's rate does not fall."""
    model = model_of(settings.model, context.images)
    trainer = federated.local_sgd(
        model,
        settings.learning_rate,
        batch_size=settings.batch_size,
        num_epochs=settings.num_epochs,
    )
    return Experiment(context, model, split, trainer, settings.evaluate_every)


def clip_of(settings: Values, experiment: Experiment) -> float:
    """Return r of the clip range [-r, r], measured where the settings give none."""
    return settings.clip or clip_range(experiment.first_updates(0))


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
