"""Stage attacks: deal out data, train on it, send it through a round; memory."""

from __future__ import annotations

import functools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import attacks, data, federated, quantize
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, as_key, fold
from mrsa_jax.study.settings._parts import build, load_data
from mrsa_jax.study.settings._training_tables import LocalLength, local_length
from mrsa_watch._base.errors import ConfigurationError, require


def rows_of(**columns: Any) -> list[dict[str, Any]]:
    """Return a row for each place of some columns.

    What is one value is the same in all.
    """
    lists = [column.tolist() for column in np.broadcast_arrays(*columns.values())]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)
    ]


# arrays of a cohort's updates: trained, masked, drawn, coded, decoded, float64
IN_A_ROUND = 10
_IN_A_WIRE = 14  # codes, draws, pads, padded codes, and what is read from them


def on_the_wire(dim: int, senders: int) -> int:
    """Return the arrays of one round of secure aggregation, all senders' at once."""
    return 4 * _IN_A_WIRE * dim * senders


@functools.cache
def data_of(name: str, directory: Any, seed: int) -> tuple[int, tuple[int, ...], int]:
    """Return a data set's bytes (host and device), a sample's shape, its classes."""
    dataset = load_data(name, seed, directory)
    size = sum(
        np.asarray(inputs).nbytes
        for inputs in (dataset.train_inputs, dataset.test_inputs)
    )
    return 2 * size, tuple(dataset.train_inputs.shape[1:]), dataset.num_classes


def dim_of(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return a model's number of parameters."""
    return int(federated.num_parameters(build("model", model, classes), shape))


@functools.cache
def activations(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Count the outputs of a model's layers for one sample."""
    module = build("model", model, classes)
    sample = jnp.zeros((1, *shape), jnp.float32)

    # shapes only: nothing is computed
    def answers(key: Any) -> Any:
        variables = module.init(key, sample)
        return module.apply(
            variables, sample, capture_intermediates=True, mutable=["intermediates"]
        )

    shapes = jax.eval_shape(answers, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)) + math.prod(
        shape
    )


def model_sizes(config: Any) -> tuple[int, int, int]:
    """Return the bytes of the data, the model's parameters, and outputs per sample."""
    pool, shape, classes = data_of(config.dataset, config.directory, config.seed)
    return (
        pool,
        dim_of(config.model, shape, classes),
        activations(config.model, shape, classes),
    )


def shape_of(config: Any, name: str) -> tuple[int, ...]:
    """Return the shape of an array in a user's file, by the setting that names it."""
    return tuple(read_array(getattr(config, name), name).shape)


def sizes_of(*paths: Any) -> int:
    """Return the bytes of some files, None for none."""
    return sum(path.stat().st_size for path in paths if path is not None)


_LEVELS = 2**16


def stream(config: Any, of: Stream) -> Any:
    """Return an attack's key of one stream."""
    return fold(as_key(config.seed), int(of))


def equal_parts(
    inputs: Any, labels: Any, count: int, size: int, classes: int
) -> data.ClientData:
    """Return clients that hold `size` samples each, in their order.

    What is left is nobody's.
    """
    return data.ClientData(
        inputs=on_device(inputs),
        labels=on_device(labels),
        indices=jnp.arange(count * size, dtype=jnp.int32).reshape(count, size),
        sizes=jnp.full(count, size, jnp.int32),
        num_classes=classes,
    )


def start_and_trainer(
    config: Any,
    model: Any,
    shape: tuple[int, ...],
    batch_size: int,
    clip_norm: Any = None,
    momentum: float = 0.0,
) -> tuple[Any, federated.LocalTrainer]:
    """Return a model's first parameters, and how an attack's clients train it."""
    length = local_length(config) if isinstance(config, LocalLength) else {}
    trainer = federated.local_sgd(
        model,
        config.learning_rate,
        batch_size=batch_size,
        **length,
        clip_norm=clip_norm,
        momentum=momentum,
    )
    return federated.initial_parameters(config.seed, model, shape), trainer


def through_wire(seed: Any, values: Any, connection_probability: float = 1.0) -> Any:
    """Send vectors through a round of secure aggregation.

    What `attacks.wire_round` returns.
    The quantizer's range clips nothing, and the ring is no larger than the sum needs.
    """
    # the largest entry must not be clipped, and rounding may raise it
    clip = float(np.abs(np.asarray(values)).max()) or 1.0
    return attacks.wire_round(
        seed,
        values,
        quantize.stochastic(_LEVELS, clip * 1.001),
        modulus_bits=(len(values) * (_LEVELS - 1)).bit_length(),
        connection_probability=connection_probability,
    )


def read_array(path: pathlib.Path, name: str) -> np.ndarray:
    """Open an array of a user's file, without reading it where that can wait.

    Args:
        path: A .npy, or an .npz with one array or one of this name.
        name: The flag that it comes from.

    Raises:
        ConfigurationError: If the file is broken, holds objects or several arrays of
            other names.
    """
    try:
        if path.suffix == ".npy":
            return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            names = archive.files
            key = name if name in names else names[0] if len(names) == 1 else None
            rule = f"must hold one array, or one named {name!r}"
            require(key is not None, name, rule, names)
            return np.asarray(archive[key or name])
    except ConfigurationError:
        raise
    except Exception as error:  # NumPy raises whatever it meets in a broken file
        words = f"{path}: {str(error)[:200]}"
        raise ConfigurationError(
            f"`{name}` must be a sound array file; {words}"
        ) from error
