"""Models: parameter counts, flat vectors, what is rejected."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import mrsa_jax as mj
from mrsa_jax.federated._models import apply_flat

_FACTORIES = [mj.federated.lenet, mj.federated.mlp, mj.federated.logistic]


@pytest.mark.parametrize("factory", _FACTORIES)
@pytest.mark.parametrize("num_classes", [0, 1, True])
def test_bad_number_of_classes(factory: Callable[..., nn.Module], num_classes: object) -> None:
    with pytest.raises(mj.ConfigurationError, match="`num_classes` must be an integer"):
        factory(num_classes)


def test_bad_hidden_sizes() -> None:
    with pytest.raises(mj.ConfigurationError, match="`hidden_sizes` must be an integer"):
        mj.federated.mlp(10, hidden_sizes=(20, 0))


def test_lenet_says_when_images_are_too_small() -> None:
    with pytest.raises(mj.ConfigurationError, match=r"at least 12 x 12 pixels; got '8 x 8'"):
        mj.federated.num_parameters(mj.federated.lenet(), (8, 8, 1))
    assert mj.federated.num_parameters(mj.federated.lenet(), (12, 12, 1)) > 0


def test_models_with_other_state_are_rejected() -> None:
    class WithStatistics(nn.Module):
        @nn.compact
        def __call__(self, inputs: jax.Array) -> jax.Array:
            return nn.BatchNorm(use_running_average=False)(inputs.reshape(inputs.shape[0], -1))

    with pytest.raises(mj.ConfigurationError, match="parameters only") as caught:
        mj.federated.num_parameters(WithStatistics(), (4, 4, 1))
    assert "batch_stats" in str(caught.value)


@pytest.mark.parametrize(
    ("factory", "shape", "classes", "expected"),
    [
        (mj.federated.lenet, (28, 28, 1), 10, 156 + 2416 + 48120 + 10164 + 850),
        (mj.federated.lenet, (32, 32, 3), 10, 456 + 2416 + 576 * 120 + 120 + 10164 + 850),
        (mj.federated.mlp, (28, 28, 1), 10, 199_210),
        (mj.federated.logistic, (28, 28, 1), 10, 7850),
        (mj.federated.logistic, (8, 8, 1), 7, 64 * 7 + 7),
    ],
)
def test_parameter_counts(
    factory: Callable[..., nn.Module], shape: tuple[int, ...], classes: int, expected: int
) -> None:
    assert mj.federated.num_parameters(factory(classes), shape) == expected


def test_flat_vector_is_the_ravelled_tree() -> None:
    model = mj.federated.mlp(4, hidden_sizes=(5, 3))
    flat = mj.federated.initial_parameters(3, model, (2, 2, 1))
    tree = mj.federated.unflatten(model, (2, 2, 1), flat)
    np.testing.assert_array_equal(ravel_pytree(tree)[0], flat)
    inputs = jax.random.normal(jax.random.key(0), (6, 2, 2, 1))
    np.testing.assert_array_equal(apply_flat(model, flat, inputs), model.apply(tree, inputs))
    with pytest.raises(mj.ConfigurationError, match="`parameters` must have the model's"):
        mj.federated.unflatten(model, (2, 2, 1), flat[:-1])


def test_initial_parameters_depend_on_the_seed_only() -> None:
    model = mj.federated.logistic(3)
    first, again, other = (
        mj.federated.initial_parameters(seed, model, (4, 4, 1)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_logistic_is_a_matrix_product() -> None:
    model = mj.federated.logistic(3)
    flat = jnp.arange(4 * 3 + 3, dtype=jnp.float32)
    inputs = np.random.default_rng(0).normal(size=(5, 2, 2, 1)).astype(np.float32)
    bias, weights = np.arange(3), np.arange(3, 15).reshape(4, 3)  # flax sorts bias first
    np.testing.assert_allclose(
        apply_flat(model, flat, jnp.asarray(inputs)),
        inputs.reshape(5, 4) @ weights + bias,
        rtol=1e-5,
        atol=1e-5,
    )


def test_lenet_equals_the_same_network_of_flax_layers() -> None:
    class Plain(nn.Module):
        @nn.compact
        def __call__(self, inputs: jax.Array) -> jax.Array:
            values = nn.relu(nn.Conv(6, (5, 5), padding="SAME")(inputs))
            values = nn.max_pool(values, (2, 2), (2, 2))
            values = nn.relu(nn.Conv(16, (5, 5), padding="VALID")(values))
            values = nn.max_pool(values, (2, 2), (2, 2)).reshape(inputs.shape[0], -1)
            for size in (120, 84):
                values = nn.relu(nn.Dense(size)(values))
            return nn.Dense(10)(values)

    model = mj.federated.lenet(10)
    flat = mj.federated.initial_parameters(0, model, (28, 28, 1))
    tree = mj.federated.unflatten(model, (28, 28, 1), flat)["params"]
    renamed = {name.replace("_ConvReluPool", "Conv"): value for name, value in tree.items()}
    inputs = jax.random.uniform(jax.random.key(1), (4, 28, 28, 1))
    np.testing.assert_allclose(
        apply_flat(model, flat, inputs), Plain().apply({"params": renamed}, inputs), atol=1e-5
    )
