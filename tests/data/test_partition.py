"""Partitions: every sample exactly once, sizes, labels, determinism."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.streams import as_key
from mrsa_jax.data import _partition

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
    "by_client": mj.data.dirichlet_by_client,
    "sparse_by_client": lambda *a: mj.data.dirichlet_by_client(*a, concentration=1e-9),
    "nothing_shared": lambda *a: mj.data.shards_with_shared(*a, shared_size=0),
}
SPLITS = {
    "dirichlet_by_class": mj.data.dirichlet_by_class,
    "dirichlet_by_client": mj.data.dirichlet_by_client,
}
# of the training set
MNIST = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def _held(clients: mj.data.ClientData) -> list[np.ndarray]:
    indices, sizes = np.asarray(clients.indices), np.asarray(clients.sizes)
    return [row[:size] for row, size in zip(indices, sizes, strict=True)]


def _num_mixed(clients: mj.data.ClientData, shared_size: int = 0) -> int:
    """Count the clients whose own samples, behind the shared ones, have several labels."""
    labels = np.asarray(clients.labels)
    return sum(len(np.unique(labels[row[shared_size:]])) > 1 for row in _held(clients))


@pytest.mark.parametrize("name", _PARTITIONS)
@pytest.mark.parametrize("num_clients", [0, -1, True, 1001])
def test_bad_number_of_clients(name: str, num_clients: object) -> None:
    with pytest.raises(mj.ConfigurationError, match="`num_clients` must") as caught:
        _PARTITIONS[name](0, _dataset([500, 500]), num_clients)
    assert repr(num_clients) in str(caught.value)


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize(
    "concentration", [0.0, -1.0, float("nan"), float("inf"), True, "0.5"]
)
def test_bad_concentration(name: str, concentration: Any) -> None:
    # a string breaks the annotation, which only the tests check, before the rule
    with pytest.raises((mj.ConfigurationError, TypeError)) as caught:
        SPLITS[name](0, _dataset([5, 5]), 2, concentration=concentration)
    if not isinstance(concentration, str):
        assert "`concentration` must be a positive" in str(caught.value)


@pytest.mark.parametrize("name", _PARTITIONS)
def test_unsound_data_sets_are_refused(name: str) -> None:
    dataset = dataclasses.replace(_dataset([5, 5]), num_classes=1)
    with pytest.raises(
        mj.ConfigurationError, match=r"`train_labels` must lie in \[0, 1\) .*; got 1"
    ):
        _PARTITIONS[name](0, dataset, 2)
    none = np.zeros((0, 1, 1, 1), np.float32)
    dataset = dataclasses.replace(
        dataset, train_inputs=none, train_labels=np.zeros(0, np.int32)
    )
    with pytest.raises(
        mj.ConfigurationError, match="`train_labels` must hold at least one"
    ):
        _PARTITIONS[name](0, dataset, 1)


@pytest.mark.parametrize(
    ("shared_size", "num_clients", "message"),
    [
        (-1, 2, "`shared_size` must be 0 or positive; got -1"),
        (True, 2, "`shared_size` must be 0 or positive; got True"),
        (29, 2, "`shared_size` must leave at least one sample for each client; got 29"),
        (
            12,
            2,
            "must not take more of a class than it has, or come with balanced=False; "
            "got 12",
        ),
    ],
)
def test_bad_shared_set(shared_size: int, num_clients: int, message: str) -> None:
    dataset = _dataset([25, 5])
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.shards_with_shared(0, dataset, num_clients, shared_size=shared_size)
    assert message in str(caught.value)
    if shared_size == 12:
        clients = mj.data.shards_with_shared(
            0, dataset, 2, shared_size=12, balanced=False
        )
        np.testing.assert_array_equal(clients.sizes, [21, 21])


def test_bad_shards() -> None:
    dataset = _dataset([5, 5])
    with pytest.raises(
        mj.ConfigurationError, match="`shards_per_client` must be a positive"
    ):
        mj.data.shards(0, dataset, 2, shards_per_client=0)
    with pytest.raises(
        mj.ConfigurationError, match="at least one sample for each shard"
    ):
        mj.data.shards(0, dataset, 4, shards_per_client=3)
    with pytest.raises(
        mj.ConfigurationError, match="at least one shard for each class"
    ):
        mj.data.shards(0, dataset, 1, single_label=True)


@pytest.mark.parametrize("name", _PARTITIONS)
@pytest.mark.parametrize("num_clients", [1, 7, 40])
def test_every_sample_is_held_exactly_once(name: str, num_clients: int) -> None:
    counts = [40, 3, 57]
    if name == "single_label":
        num_clients += 2
    clients = _PARTITIONS[name](1, _dataset(counts), num_clients)
    indices, sizes, held = (
        np.asarray(clients.indices),
        np.asarray(clients.sizes),
        _held(clients),
    )
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(100))
    assert indices.shape == (num_clients, max(sizes.max(), 1))
    assert all(
        (row[size:] == 0).all() for row, size in zip(indices, sizes, strict=True)
    )
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
    same_key = _PARTITIONS[name](as_key(1), dataset, 6)
    np.testing.assert_array_equal(first.indices, same_key.indices)
    assert first.indices.shape != other.indices.shape or bool(
        (np.asarray(first.indices) != np.asarray(other.indices)).any()
    )


@pytest.mark.smoke
def test_iid_and_plain_shards_are_of_equal_size() -> None:
    dataset = _dataset([50, 53])
    for name in ("iid", "shards", "by_client", "sparse_by_client", "nothing_shared"):
        clients = _PARTITIONS[name](0, dataset, 10)
        assert sorted(np.asarray(clients.sizes)) == [10] * 7 + [11] * 3


def test_120_shards_of_mnist_5k() -> None:
    dataset = mj.data.load("mnist_5k")
    plain = mj.data.class_counts(mj.data.shards(0, dataset, 120))
    labels_held = (plain > 0).sum(axis=1)
    # 10 classes sorted leave 9 borders, and none of them falls on a border of the 120
    # shards (40 shards of 34, then 80 of 33): nine shards hold two labels
    borders = np.cumsum([34] * 40 + [33] * 80)
    inside = [c for c in range(400, 4000, 400) if c not in borders]
    assert sorted(labels_held) == [1] * (120 - len(inside)) + [2] * len(inside)
    single = mj.data.shards(0, dataset, 120, single_label=True)
    counts = mj.data.class_counts(single)
    np.testing.assert_array_equal((counts > 0).sum(axis=1), np.ones(120))
    np.testing.assert_array_equal((counts > 0).sum(axis=0), [12] * 10)
    assert set(np.asarray(single.sizes).tolist()) == {33, 34}


def test_120_shards_of_mnist_are_those_of_the_paper() -> None:
    clients = mj.data.shards(0, _dataset(MNIST), 120)
    np.testing.assert_array_equal(clients.sizes, [500] * 120)
    assert _num_mixed(clients) == 9  # the paper says "only one digit label"
    np.testing.assert_array_equal(mj.data.class_counts(clients).sum(axis=0), MNIST)


@pytest.mark.smoke
def test_cifar_10_of_the_paper() -> None:
    dataset = _dataset([5000] * 10)
    iid = mj.data.iid(0, dataset, 120)
    assert sorted(np.asarray(iid.sizes).tolist()) == [416] * 40 + [417] * 80
    clients = mj.data.shards_with_shared(3, dataset, 120)
    np.testing.assert_array_equal(clients.sizes, [615] * 120)
    assert clients.inputs.shape[0] == 50_000  # each sample is stored once
    common = np.asarray(clients.indices)[:, :200]
    assert (common == common[:1]).all()
    own = np.asarray(clients.indices)[:, 200:]
    everything = np.concatenate([common[0], own.ravel()])
    np.testing.assert_array_equal(np.sort(everything), np.arange(50_000))
    counts = mj.data.class_counts(clients)
    np.testing.assert_array_equal(np.sort(counts, axis=1), [[20] * 9 + [435]] * 120)
    np.testing.assert_array_equal((counts == 435).sum(axis=0), [12] * 10)


def test_a_random_shared_set_leaves_eight_mixed_shards() -> None:
    # A border between classes c - 1 and c lies after 5,000 c samples less those in G,
    # which are hypergeometric; the shard there is of one label only where 415 divides
    # the place. For 12 seeds the count of mixed shards is a mean of 108 indicators,
    # positively correlated within a seed at most: its variance is below 12 * 9**2 / 4;
    # 4.9 standard deviations of a seed's count (below 0.8, found by drawing G 10,000
    # times) over sqrt(12) is 1.13.
    dataset = _dataset([5000] * 10)
    found = [
        _num_mixed(mj.data.shards_with_shared(seed, dataset, 120, balanced=False), 200)
        for seed in range(12)
    ]

    def chance(border: int, drawn: int) -> float:
        ways = math.comb(5000 * border, drawn) * math.comb(
            50_000 - 5000 * border, 200 - drawn
        )
        return ways / math.comb(50_000, 200)

    expected = 9 - sum(
        chance(border, drawn)
        for border in range(1, 10)
        for drawn in range(201)
        if (5000 * border - drawn) % 415 == 0
    )
    assert 7.5 < expected < 9
    assert abs(np.mean(found) - expected) < 1.13


def test_a_balanced_shared_set_that_does_not_divide() -> None:
    clients = mj.data.shards_with_shared(0, _dataset([10, 10, 10]), 2, shared_size=8)
    common = np.asarray(clients.labels)[np.asarray(clients.indices)[0, :8]]
    np.testing.assert_array_equal(np.bincount(common), [3, 3, 2])
    np.testing.assert_array_equal(clients.sizes, [19, 19])


def test_single_label_shards_follow_unequal_classes() -> None:
    clients = mj.data.shards(0, _dataset([80, 10, 10]), 10, single_label=True)
    np.testing.assert_array_equal(
        (mj.data.class_counts(clients) > 0).sum(axis=0), [8, 1, 1]
    )
    np.testing.assert_array_equal(clients.sizes, [10] * 10)


def test_shards_per_client_bound_the_labels() -> None:
    clients = mj.data.shards(3, _dataset([100] * 5), 10, shards_per_client=2)
    # 20 shards of 25: four fill a class exactly
    labels_held = (mj.data.class_counts(clients) > 0).sum(axis=1)
    assert labels_held.max() == 2
    np.testing.assert_array_equal(clients.sizes, [50] * 10)


def test_dirichlet_follows_its_concentration() -> None:
    dataset = _dataset([2000] * 4)
    even = mj.data.class_counts(
        mj.data.dirichlet_by_class(0, dataset, 8, concentration=1e6)
    )
    # Each share is Beta(1e6, 7e6): standard deviation 1.2e-4 of 2,000 samples, so 0.24;
    # rounding to whole samples adds at most 1
    assert np.abs(even - 250).max() <= 3
    uneven = mj.data.class_counts(
        mj.data.dirichlet_by_class(0, dataset, 8, concentration=0.01)
    )
    # nearly all of a class is with one client
    assert (uneven.max(axis=0) > 1000).all()


def test_dirichlet_shares_have_the_variance_of_the_distribution() -> None:
    # A share of Dirichlet(a, ..., a) over N has mean 1/N and variance
    # (1/N)(1-1/N)/(Na+1). 40 classes x 10 clients: 400 nearly independent shares. The
    # sampling distribution of the variance (kurtosis below 9 here) has relative
    # standard error sqrt(8/400) = 0.14; five of them hold with more than 1 - 1e-6.
    concentration, clients_ = 0.5, 10
    counts = mj.data.class_counts(
        mj.data.dirichlet_by_class(
            7, _dataset([1000] * 40), clients_, concentration=concentration
        )
    )
    shares = counts / 1000
    expected = (1 / clients_) * (1 - 1 / clients_) / (clients_ * concentration + 1)
    assert abs(np.mean(np.square(shares - 1 / clients_)) / expected - 1) < 0.7


def _effective_classes(counts: np.ndarray) -> float:
    """Average 1 / (sum of squared shares) over the clients."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(np.mean(1 / np.square(shares).sum(axis=1)))


def test_the_two_dirichlet_splits_of_cifar_100() -> None:
    dataset = _dataset([500] * 100)
    by_class = mj.data.dirichlet_by_class(0, dataset, 120)
    # Independent draws of 100 classes: FACTS found 35.8 effective classes and 262..616
    # samples. A client's size is 500 sums of 100 shares of mean 1/120 and variance
    # (1/120)(119/120)/61: mean 417, deviation 58; of 120 clients all lie within 6.5 of
    # them (skewness included).
    assert 33 < _effective_classes(mj.data.class_counts(by_class)) < 39
    sizes = np.asarray(by_class.sizes)
    assert 417 - 4.5 * 58 < sizes.min() < 320
    assert 520 < sizes.max() < 417 + 6.5 * 58
    by_client = mj.data.dirichlet_by_client(0, dataset, 120)
    assert sorted(np.asarray(by_client.sizes).tolist()) == [416] * 40 + [417] * 80
    # 1.7 before any class has run out; late clients take what is left (next tests)
    assert 1.4 < _effective_classes(mj.data.class_counts(by_client)) < 3


def test_mixtures_by_client_are_dirichlet_of_the_total_concentration() -> None:
    # Two clients and two classes of m samples: no class runs out for the client served
    # first, and the other takes what is left, so both hold (k, m - k), k beta-binomial
    # with a / 2 twice: E[sum_c k_c (k_c - 1)] / (m (m - 1)) = (1 + a / 2) / (1 + a) =
    # 0.833. Reading the concentration as that of each class would give 0.75. The
    # tolerance is 4.9 standard errors.
    m, a, num = 20, 0.5, 160
    ways = [
        math.comb(m, k) * math.gamma(k + a / 2) * math.gamma(m - k + a / 2)
        for k in range(m)
    ]
    chances = np.array([*ways, ways[0]]) / (sum(ways) + ways[0])
    values = np.array(
        [(k * (k - 1) + (m - k) * (m - k - 1)) / (m * (m - 1)) for k in range(m + 1)]
    )
    expected = (1 + a / 2) / (1 + a)
    assert abs(chances @ values - expected) < 1e-12
    tolerance = 4.9 * math.sqrt(chances @ np.square(values - expected) / num)
    assert tolerance < 0.08
    dataset = _dataset([m, m])
    found = []
    for seed in range(num):
        k = mj.data.class_counts(
            mj.data.dirichlet_by_client(seed, dataset, 2, concentration=np.float64(a))
        )[0]
        assert k.sum() == m
        found.append((k * (k - 1)).sum() / (m * (m - 1)))
    assert abs(np.mean(found) - expected) < tolerance


def test_draws_from_a_class_that_has_run_out_are_drawn_again() -> None:
    # One sample of label 0 and two of label 1 are left; two are drawn, label 0 with
    # chance 0.8. Only twice label 1 (0.2 ** 2) avoids label 0. 4,000 trials: deviation
    # 0.0031, times 5.
    generator = np.random.default_rng(0)
    logs, left = np.log(np.array([0.8, 0.2])) - 900.0, np.array([1, 2])
    counts = [
        tuple(_partition._draw_counts(generator, logs, left, 2)) for _ in range(4_000)
    ]
    assert set(counts) == {(1, 1), (0, 2)}
    assert abs(counts.count((0, 2)) / len(counts) - 0.04) < 0.0155
    # shares far below the smallest float still fill a client
    logs = np.array([0.0, -1e6, -2e6, -np.inf])
    drawn = _partition._draw_counts(generator, logs, np.array([3, 2, 9, 0]), 6)
    np.testing.assert_array_equal(drawn, [3, 2, 1, 0])


def test_client_data_is_a_pytree_with_static_classes() -> None:
    clients = mj.data.iid(0, _dataset([5, 5]), 2)
    assert clients.num_clients == 2
    leaves, tree = jax.tree.flatten(clients)
    assert len(leaves) == 4
    assert jax.tree.unflatten(tree, leaves).num_classes == 2
