"""Partitions: every sample exactly once, sizes, labels, determinism."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest

import mrsa_jax as mj

Partition = Callable[..., "mj.data.ClientData"]


def _dataset(counts: list[int]) -> mj.data.Dataset:
    labels = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    labels = np.random.default_rng(0).permutation(labels)
    inputs = np.arange(len(labels), dtype=np.float32).reshape(-1, 1, 1, 1)
    return mj.data.Dataset("toy", inputs, labels, inputs, labels, len(counts))


_PARTITIONS: dict[str, Partition] = {
    "iid": mj.data.iid,
    "shards": mj.data.shards,
    "two_shards": lambda *a: mj.data.shards(*a, shards_per_client=2),
    "single_label": lambda *a: mj.data.shards(*a, single_label=True),
    "dirichlet": mj.data.dirichlet_by_class,
    "sparse_dirichlet": lambda *a: mj.data.dirichlet_by_class(*a, concentration=0.01),
}


@pytest.mark.parametrize("name", _PARTITIONS)
@pytest.mark.parametrize("num_clients", [0, -1, True, 1001])
def test_bad_number_of_clients(name: str, num_clients: object) -> None:
    with pytest.raises(mj.ConfigurationError, match="`num_clients` must") as caught:
        _PARTITIONS[name](0, _dataset([500, 500]), num_clients)
    assert repr(num_clients) in str(caught.value)


@pytest.mark.parametrize("concentration", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_concentration(concentration: object) -> None:
    with pytest.raises(mj.ConfigurationError, match="`concentration` must be a positive"):
        mj.data.dirichlet_by_class(0, _dataset([5, 5]), 2, concentration=concentration)


def test_bad_shards() -> None:
    dataset = _dataset([5, 5])
    with pytest.raises(mj.ConfigurationError, match="`shards_per_client` must be a positive"):
        mj.data.shards(0, dataset, 2, shards_per_client=0)
    with pytest.raises(mj.ConfigurationError, match="at least one sample for each shard"):
        mj.data.shards(0, dataset, 4, shards_per_client=3)
    with pytest.raises(mj.ConfigurationError, match="at least one shard for each class"):
        mj.data.shards(0, dataset, 1, single_label=True)


@pytest.mark.parametrize("name", _PARTITIONS)
@pytest.mark.parametrize("num_clients", [1, 7, 40])
def test_every_sample_is_held_exactly_once(name: str, num_clients: int) -> None:
    counts = [40, 3, 57]
    if name == "single_label":
        num_clients += 2
    clients = _PARTITIONS[name](1, _dataset(counts), num_clients)
    indices, sizes = np.asarray(clients.indices), np.asarray(clients.sizes)
    held = [row[:size] for row, size in zip(indices, sizes, strict=True)]
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(100))
    assert indices.shape == (num_clients, max(sizes.max(), 1))
    assert all((row[size:] == 0).all() for row, size in zip(indices, sizes, strict=True))
    expected = np.zeros((num_clients, 3), np.int64)
    for client, row in enumerate(held):
        for index in row:
            expected[client, np.asarray(clients.labels)[index]] += 1
    np.testing.assert_array_equal(mj.data.class_counts(clients), expected)
    np.testing.assert_array_equal(expected.sum(axis=0), counts)


@pytest.mark.parametrize("name", _PARTITIONS)
def test_deterministic_in_the_seed(name: str) -> None:
    dataset = _dataset([30, 30])
    first, again, other = (_PARTITIONS[name](seed, dataset, 6) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.indices, again.indices)
    same_key = _PARTITIONS[name](mj._streams.as_key(1), dataset, 6)
    np.testing.assert_array_equal(first.indices, same_key.indices)
    assert first.indices.shape != other.indices.shape or bool(
        (np.asarray(first.indices) != np.asarray(other.indices)).any()
    )


def test_iid_and_plain_shards_are_of_equal_size() -> None:
    dataset = _dataset([50, 53])
    for clients in (mj.data.iid(0, dataset, 10), mj.data.shards(0, dataset, 10)):
        assert sorted(np.asarray(clients.sizes)) == [10] * 7 + [11] * 3


def test_120_shards_of_mnist_5k() -> None:
    dataset = mj.data.load("mnist_5k")
    plain = mj.data.class_counts(mj.data.shards(0, dataset, 120))
    labels_held = (plain > 0).sum(axis=1)
    # 10 classes sorted leave 9 borders, and none of them falls on a border of the 120 shards
    # (40 shards of 34, then 80 of 33): nine shards hold two labels
    borders = np.cumsum([34] * 40 + [33] * 80)
    inside = [c for c in range(400, 4000, 400) if c not in borders]
    assert sorted(labels_held) == [1] * (120 - len(inside)) + [2] * len(inside)
    single = mj.data.shards(0, dataset, 120, single_label=True)
    counts = mj.data.class_counts(single)
    np.testing.assert_array_equal((counts > 0).sum(axis=1), np.ones(120))
    np.testing.assert_array_equal((counts > 0).sum(axis=0), [12] * 10)
    assert set(np.asarray(single.sizes).tolist()) == {33, 34}


def test_single_label_shards_follow_unequal_classes() -> None:
    clients = mj.data.shards(0, _dataset([80, 10, 10]), 10, single_label=True)
    np.testing.assert_array_equal((mj.data.class_counts(clients) > 0).sum(axis=0), [8, 1, 1])
    np.testing.assert_array_equal(clients.sizes, [10] * 10)


def test_shards_per_client_bound_the_labels() -> None:
    clients = mj.data.shards(3, _dataset([100] * 5), 10, shards_per_client=2)
    # 20 shards of 25: four fill a class exactly
    labels_held = (mj.data.class_counts(clients) > 0).sum(axis=1)
    assert labels_held.max() == 2
    np.testing.assert_array_equal(clients.sizes, [50] * 10)


def test_dirichlet_follows_its_concentration() -> None:
    dataset = _dataset([2000] * 4)
    even = mj.data.class_counts(mj.data.dirichlet_by_class(0, dataset, 8, concentration=1e6))
    # Each share is Beta(1e6, 7e6): standard deviation 1.2e-4 of 2,000 samples, so 0.24; rounding
    # to whole samples adds at most 1
    assert np.abs(even - 250).max() <= 3
    uneven = mj.data.class_counts(mj.data.dirichlet_by_class(0, dataset, 8, concentration=0.01))
    # nearly all of a class is with one client
    assert (uneven.max(axis=0) > 1000).all()


def test_dirichlet_shares_have_the_variance_of_the_distribution() -> None:
    # A share of Dirichlet(a, ..., a) over N has mean 1/N and variance (1/N)(1-1/N)/(Na+1).
    # 40 classes x 10 clients: 400 nearly independent shares. The sampling distribution of the
    # variance (kurtosis below 9 here) has relative standard error sqrt(8/400) = 0.14; five of
    # them hold with more than 1 - 1e-6.
    concentration, clients_ = 0.5, 10
    counts = mj.data.class_counts(
        mj.data.dirichlet_by_class(7, _dataset([1000] * 40), clients_, concentration=concentration)
    )
    shares = counts / 1000
    expected = (1 / clients_) * (1 - 1 / clients_) / (clients_ * concentration + 1)
    assert abs(np.mean(np.square(shares - 1 / clients_)) / expected - 1) < 0.7


def test_client_data_is_a_pytree_with_static_classes() -> None:
    clients = mj.data.iid(0, _dataset([5, 5]), 2)
    assert clients.num_clients == 2
    leaves, tree = jax.tree.flatten(clients)
    assert len(leaves) == 4
    assert jax.tree.unflatten(tree, leaves).num_classes == 2
