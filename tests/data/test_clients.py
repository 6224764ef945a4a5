"""Clients' data.

What is refused when built by hand, counts with shared samples, label rates.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device, zeros


def _clients(**changes: Any) -> mj.data.ClientData:
    """Four samples of three classes.

    Client 1 shares sample 3 with client 0, client 2 has none.
    """
    content = {
        "inputs": zeros((4, 1), np.float32),
        "labels": jnp.asarray([0, 2, 1, 2], jnp.int32),
        "indices": on_device([[3, 0, 1], [3, 2, 0], [0, 0, 0]], jnp.int32),
        "sizes": jnp.asarray([3, 2, 0], jnp.int32),
        "num_classes": 3,
    }
    return mj.data.ClientData(**(content | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": np.asarray([0, 2, 3, -1])},
            "`labels` must lie in [0, 3) (2 do not, the first at index 2); got 3",
        ),
        (
            {"labels": np.asarray([0.0, 1, 2, 1])},
            "`labels` must be one integer for each of 4",
        ),
        (
            {"labels": np.asarray([0, 1])},
            "`labels` must be one integer for each of 4 samples",
        ),
        (
            {"inputs": np.zeros((0, 1))},
            "`inputs` must hold at least one sample; got (0, 1)",
        ),
        ({"indices": np.zeros((0, 3), np.int32)}, "`indices` must be integers"),
        ({"sizes": np.asarray([3, 2])}, "`sizes` must be one integer for each client"),
        (
            {"sizes": np.asarray([4, 2, -1])},
            "`sizes` must lie in [0, 3], the width of `indices`",
        ),
        (
            {"indices": np.asarray([[3, 4, 1], [-1, 2, 9], [9, 9, 9]])},
            "`indices` must lie in [0, 4), the pool; got [4, -1]",
        ),
    ],
)
def test_unsound_clients_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.check_client_data(_clients(**jax.tree.map(on_device, changes)))
    assert message in str(caught.value)


@pytest.mark.parametrize("rates", [[], [1.0], [-0.1], [float("nan")], [True], [0.1, 2]])
def test_bad_rates(rates: list[float]) -> None:
    with pytest.raises(mj.ConfigurationError, match="`rates` must"):
        mj.data.label_dropout_rates(_clients(), rates)


@pytest.mark.smoke
def test_shared_samples_count_for_each_holder() -> None:
    clients = mj.data.check_client_data(_clients())
    expected = [[1, 0, 2], [0, 1, 1], [0, 0, 0]]
    np.testing.assert_array_equal(mj.data.class_counts(clients), expected)


def test_rates_by_hand() -> None:
    # client 0 holds label 2 most; client 1 labels 1 and 2 once each: the smaller;
    # client 2 none
    rates = mj.data.label_dropout_rates(_clients(), (0.1, 0.2, 0.6))
    np.testing.assert_allclose(rates, [0.6, 0.2, 0.3], rtol=1e-6)
    # fewer rates than labels: interpolated; one rate: the same for all
    np.testing.assert_allclose(
        mj.data.label_dropout_rates(_clients(), (0.1, 0.5)), [0.5, 0.3, 0.3], rtol=1e-6
    )
    np.testing.assert_allclose(
        mj.data.label_dropout_rates(_clients(), [0.25]), [0.25] * 3, rtol=1e-6
    )
    # more rates than labels: the ends and the middle of the same line
    np.testing.assert_allclose(
        mj.data.label_dropout_rates(_clients()), [0.5, 0.3, 0.3], rtol=1e-6
    )


@pytest.mark.smoke
def test_rates_of_the_paper_are_linear_in_the_label() -> None:
    labels = np.repeat(np.arange(10, dtype=np.int32), 24)
    inputs = np.zeros((240, 1, 1, 1), np.float32)
    dataset = mj.data.Dataset("toy", inputs, labels, inputs, labels, 10)
    # two samples of each class for everybody do not change whose label it is
    clients = mj.data.shards_with_shared(0, dataset, 20, shared_size=20)
    rates = mj.data.label_dropout_rates(clients)
    assert rates.dtype == np.float32
    own = np.asarray(clients.labels)[np.asarray(clients.indices)[:, -1]]
    np.testing.assert_allclose(rates, 0.1 + 0.4 * own / 9, rtol=1e-6)
    mj.availability.independent(rates)  # legal as they are


def test_a_changed_pool_is_seen() -> None:
    clients = mj.data.iid(0, mj.data.load("digits"), 3)
    mj.data.check_client_data(clients)
    labels = np.array(clients.labels)
    labels[7] = 10
    broken = dataclasses.replace(clients, labels=on_device(labels))
    with pytest.raises(mj.ConfigurationError, match=r"first at index 7\); got 10"):
        mj.data.check_client_data(broken)
