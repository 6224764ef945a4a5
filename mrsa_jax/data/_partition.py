"""Spread a data set's samples over clients: at random, by sorted shards, or Dirichlet by class.

Source: Multi-RoundSecAgg (So, Ali, Guler, Jiao, Avestimehr), Section 5 and appendix: IID and
sorted shards of one label (MNIST, CIFAR-10), Dirichlet over classes (CIFAR-100).
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from mrsa_jax._errors import require
from mrsa_jax._streams import Stream, as_key
from mrsa_jax.data._sources import Dataset, host_generator

__all__ = ["ClientData", "class_counts", "dirichlet_by_class", "iid", "shards"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class ClientData:
    """Training samples of all clients: one pool, and for each client the indices that it holds.

    Attributes:
        inputs: f32 [M, ...], the pooled samples.
        labels: int32 [M].
        indices: int32 [N, m_max]; row i starts with the samples of client i, zeros after them.
        sizes: int32 [N], how many samples each client holds (0 is allowed).
        num_classes: Number of classes (static).
    """

    inputs: Array
    labels: Array
    indices: Array
    sizes: Array
    num_classes: int = dataclasses.field(metadata={"static": True})

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return self.indices.shape[0]


def iid(seed: int | Key[Array, ""], dataset: Dataset, num_clients: int | np.integer) -> ClientData:
    """Deal the shuffled training samples to the clients in turn; sizes differ by at most one.

    Args:
        seed: Integer or key.
        dataset: What to spread.
        num_clients: Number of clients N, at most one for each sample.

    Returns:
        The clients' samples; each training sample is held exactly once.

    Raises:
        ConfigurationError: If `num_clients` is not an integer in [1, M].

    Examples:
        >>> import mrsa_jax as mj
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=10)
        >>> int(clients.sizes.sum()), int(clients.sizes.max() - clients.sizes.min())
        (1442, 1)

    Source: Multi-RoundSecAgg, Section 5 (IID setting).
    """
    _check_num_clients(num_clients, len(dataset.train_labels))
    generator = host_generator(as_key(seed), Stream.PARTITION, 1)
    order = generator.permutation(len(dataset.train_labels))
    return _client_data(dataset, np.array_split(order, num_clients))


def shards(
    seed: int | Key[Array, ""],
    dataset: Dataset,
    num_clients: int | np.integer,
    *,
    shards_per_client: int | np.integer = 1,
    single_label: bool = False,
) -> ClientData:
    """Sort the samples by label, cut them into equal shards, give each client a few at random.

    The shards are the papers' non-IID setting. Equal shards do not end where a class ends: some
    hold two labels (in the paper's own MNIST setting 9 of 120 do, against its "only one digit
    label"). `single_label=True` cuts inside the classes instead: each class gets shards in
    proportion to its samples, and every shard holds one label.

    Args:
        seed: Integer or key; orders the samples inside a class and deals the shards.
        dataset: What to spread.
        num_clients: Number of clients N.
        shards_per_client: Shards that each client receives.
        single_label: Let no shard hold two labels (shard sizes then differ a little more).

    Returns:
        The clients' samples; each training sample is held exactly once.

    Raises:
        ConfigurationError: If there are fewer samples than shards, or, for `single_label`, fewer
            shards than classes.

    Examples:
        >>> import numpy as np
        >>> import mrsa_jax as mj
        >>> digits = mj.data.load("digits")
        >>> clients = mj.data.shards(0, digits, num_clients=20, single_label=True)
        >>> bool(np.all((mj.data.class_counts(clients) > 0).sum(axis=1) == 1))
        True

    Source: Multi-RoundSecAgg, appendix (MNIST: 120 sorted shards of 500, one a client). Differs
    from the paper only with `single_label`.
    """
    num_samples = len(dataset.train_labels)
    _check_num_clients(num_clients, num_samples)
    _check_count(shards_per_client, "shards_per_client")
    num_shards = num_clients * shards_per_client
    require(
        num_shards <= num_samples,
        "shards_per_client",
        "must leave at least one sample for each shard",
        f"{num_shards} shards",
        f"{num_samples} samples",
    )
    generator = host_generator(as_key(seed), Stream.PARTITION, 1)
    shuffled = generator.permutation(num_samples)
    by_label = shuffled[np.argsort(dataset.train_labels[shuffled], kind="stable")]
    if single_label:
        pieces = _single_label_shards(by_label, dataset.train_labels[by_label], num_shards)
    else:
        pieces = np.array_split(by_label, num_shards)
    dealt = generator.permutation(num_shards).reshape(num_clients, shards_per_client)
    return _client_data(dataset, [np.concatenate([pieces[s] for s in row]) for row in dealt])


def dirichlet_by_class(
    seed: int | Key[Array, ""],
    dataset: Dataset,
    num_clients: int | np.integer,
    *,
    concentration: float | int | np.floating = 0.5,
) -> ClientData:
    """Spread each class over the clients in proportions drawn from a symmetric Dirichlet.

    For each class c draw d_c ~ Dirichlet(concentration, ..., concentration) over the N clients;
    client i receives the share d_{c,i} of the class. Clients become ragged, in size and in
    labels. With few samples or a small concentration some receive nothing: such a client stays,
    with size 0, and its update is zero (it still counts in the mean of a cohort's updates).

    Args:
        seed: Integer or key.
        dataset: What to spread.
        num_clients: Number of clients N.
        concentration: Positive; small is uneven, large approaches equal shares.

    Returns:
        The clients' samples; each training sample is held exactly once.

    Raises:
        ConfigurationError: If `concentration` is not a positive finite number.

    Examples:
        >>> import mrsa_jax as mj
        >>> digits = mj.data.load("digits")
        >>> clients = mj.data.dirichlet_by_class(0, digits, 10, concentration=0.5)
        >>> int(clients.sizes.sum()) == len(digits.train_labels)
        True

    Source: Multi-RoundSecAgg in its anonymous version (each class over the users, concentration
    0.5). Differs from the AAAI text, whose per-user form gives 1.7 classes to a user and does
    not fit its published accuracies.
    """
    _check_num_clients(num_clients, len(dataset.train_labels))
    is_number = isinstance(concentration, numbers.Real) and not isinstance(concentration, bool)
    require(
        is_number and math.isfinite(concentration) and bool(concentration > 0),
        "concentration",
        "must be a positive finite number",
        concentration,
    )
    generator = host_generator(as_key(seed), Stream.PARTITION, 1)
    num_clients = int(num_clients)
    held: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
    for label in range(dataset.num_classes):
        members = generator.permutation(np.flatnonzero(dataset.train_labels == label))
        shares = _dirichlet(generator, float(concentration), num_clients)
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            held[client].append(part)
    return _client_data(dataset, [np.concatenate(parts) for parts in held])


def class_counts(client_data: ClientData) -> Int[np.ndarray, "clients classes"]:
    """Count each client's samples of each class.

    Examples:
        >>> import mrsa_jax as mj
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=10)
        >>> bool((mj.data.class_counts(clients).sum(axis=1) == clients.sizes).all())
        True
    """
    indices, sizes = np.asarray(client_data.indices), np.asarray(client_data.sizes)
    labels = np.asarray(client_data.labels)[indices]
    counts = np.zeros((len(sizes), client_data.num_classes), np.int64)
    is_held = np.arange(indices.shape[1])[None, :] < sizes[:, None]
    clients = np.broadcast_to(np.arange(len(sizes))[:, None], indices.shape)
    np.add.at(counts, (clients[is_held], labels[is_held]), 1)
    return counts


def _single_label_shards(
    by_label: np.ndarray, sorted_labels: np.ndarray, num_shards: int
) -> list[np.ndarray]:
    """Cut each class by itself, into shards in proportion to its size (at least one each)."""
    _, starts, counts = np.unique(sorted_labels, return_index=True, return_counts=True)
    require(
        num_shards >= len(counts),
        "single_label",
        "must come with at least one shard for each class",
        f"{num_shards} shards",
        f"{len(counts)} classes",
    )
    allotted = np.ones(len(counts), np.int64)
    for _ in range(num_shards - len(counts)):  # the next shard goes where shards are largest
        allotted[np.argmax(counts / allotted)] += 1
    pieces: list[np.ndarray] = []
    for start, count, parts in zip(starts, counts, allotted, strict=True):
        pieces.extend(np.array_split(by_label[start : start + count], parts))
    return pieces


def _dirichlet(generator: np.random.Generator, concentration: float, size: int) -> np.ndarray:
    """Draw proportions through logarithms, so that tiny concentrations do not give 0/0."""
    # Gamma(a) = Gamma(a + 1) * U**(1/a)
    logs = np.log(generator.gamma(concentration + 1.0, size=size))
    logs += np.log(generator.random(size) + np.finfo(np.float64).tiny) / concentration
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _client_data(dataset: Dataset, held: Sequence[np.ndarray]) -> ClientData:
    sizes = np.asarray([len(part) for part in held], np.int32)
    indices = np.zeros((len(held), max(int(sizes.max()), 1)), np.int32)
    for row, part in zip(indices, held, strict=True):
        row[: len(part)] = part
    return ClientData(
        inputs=jnp.asarray(dataset.train_inputs),
        labels=jnp.asarray(dataset.train_labels),
        indices=jnp.asarray(indices),
        sizes=jnp.asarray(sizes),
        num_classes=dataset.num_classes,
    )


def _check_count(value: Any, argument: str) -> None:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(is_integer and value >= 1, argument, "must be a positive integer", value)


def _check_num_clients(num_clients: Any, num_samples: int) -> None:
    _check_count(num_clients, "num_clients")
    require(
        num_clients <= num_samples,
        "num_clients",
        "must not exceed the number of training samples",
        num_clients,
        num_samples,
    )
