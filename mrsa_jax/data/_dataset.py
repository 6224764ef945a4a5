"""Data sets, the samples that clients hold of them, and their checks.

A `Dataset` is plain NumPy; it may come from `load` or be built by hand, so whatever
spreads one over clients checks it first. A sample that many clients hold
(Multi-RoundSecAgg's globally shared set) is stored once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Int

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import static, told_apart
from mrsa_jax._core.traced import needs_values
from mrsa_watch._base.errors import check_count, check_number, require
from mrsa_watch._base.html import brief, finding
from mrsa_watch._base.values import by_value


@finding
class Dataset:
    """Labelled images, split into training and test samples.

    Attributes:
        name: Where it came from, e.g. `"mnist_5k"`.
        train_inputs: f32 [M, height, width, channels]; values in [0, 1] as `load`
            returns them.
        train_labels: int32 [M], in [0, num_classes).
        test_inputs: f32 [m, height, width, channels].
        test_labels: int32 [m].
        num_classes: Number of classes.
    """

    name: str
    train_inputs: np.ndarray
    train_labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray
    num_classes: int

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of one sample: height, width, channels."""
        height, width, channels = self.train_inputs.shape[1:]
        return (height, width, channels)


def check_dataset(dataset: Dataset) -> None:
    """Raise unless a data set is valid.

    The partitions call this, so a data set built by hand is refused before anything is
    trained on it. A test set may be empty; a training set may not.

    Raises:
        ConfigurationError: If there is no class or no training sample; if images are
            not float32 [M, height, width, channels], finite and of one shape in both
            parts; if there is not one integer label for each image; if a label lies
            outside [0, num_classes).
    """
    classes = dataset.num_classes
    check_count(classes, "num_classes")
    require(
        len(dataset.train_labels) > 0,
        "train_labels",
        "must hold at least one sample",
        0,
    )
    for part in ("train", "test"):
        inputs, labels = (
            getattr(dataset, f"{part}_inputs"),
            getattr(dataset, f"{part}_labels"),
        )
        _check_images(f"{part}_inputs", inputs)
        check_labels(f"{part}_labels", labels, len(inputs), int(classes))
    train, test = dataset.train_inputs.shape[1:], dataset.test_inputs.shape[1:]
    rule = "must be images of the shape of `train_inputs`"
    require(train == test, "test_inputs", rule, test, train)


def check_labels(
    name: str, labels: np.ndarray, num_samples: int, num_classes: int
) -> None:
    """Raise unless there is one integer label in [0, num_classes) for each sample."""
    fits = labels.shape == (num_samples,) and np.issubdtype(labels.dtype, np.integer)
    rule = f"must be one integer for each of {num_samples} samples"
    require(fits, name, rule, f"{labels.dtype} {labels.shape}")
    is_outside = (labels < 0) | (labels >= num_classes)
    if is_outside.any():
        first = int(np.argmax(is_outside))
        where = f"{int(is_outside.sum())} do not, the first at index {first}"
        require(
            False, name, f"must lie in [0, {num_classes}) ({where})", int(labels[first])
        )


def _check_images(name: str, inputs: np.ndarray) -> None:
    fits = (
        inputs.dtype == np.float32
        and inputs.ndim == 4
        and min(inputs.shape[1:], default=0) > 0
    )
    rule = "must be float32 images [samples, height, width, channels]"
    require(fits, name, rule, f"{inputs.dtype} {inputs.shape}")
    # finite float32 values cannot sum to infinity in float64: one pass and no array of
    # booleans
    with np.errstate(invalid="ignore"):  # infinities of both signs
        total = float(inputs.sum(dtype=np.float64))
    require(math.isfinite(total), name, "must be finite", f"values that sum to {total}")


# A sample that many clients share (Multi-RoundSecAgg's globally shared set) is stored
# once.
@told_apart
@dataclasses.dataclass(frozen=True)
@by_value
class ClientData:
    """Training samples of all clients.

    One pool, and for each client the indices that it holds.

    Attributes:
        inputs: f32 [M, ...], the pooled samples.
        labels: int32 [M]; without classes what a loss of one's own takes, [M, ...].
        indices: int32 [N, m_max]; row i starts with the samples of client i, zeros
            after them.
        sizes: int32 [N], how many samples each client holds (0 is allowed).
        num_classes: Number of classes (static); 0 where labels are none.
    """

    __repr__ = brief

    inputs: Any  # arrays, but while JAX rebuilds the pytree, anything
    labels: Any
    indices: Any
    sizes: Any
    num_classes: int = static()

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return self.indices.shape[0]


@needs_values
def check_client_data(clients: ClientData) -> ClientData:
    """Raise unless clients' data are valid; return them.

    The partitions build valid data; use this for clients that you put together by hand.

    Args:
        clients: Data of the clients.

    Returns:
        The same clients.

    Raises:
        ConfigurationError: If there are no samples or no clients; if a label lies
            outside [0, num_classes); if a size is negative or beyond the row; if an
            index of a held sample lies outside the pool.

    Examples:
        >>> import mrsa_jax as mj
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=3)
        >>> mj.data.check_client_data(clients) is clients
        True
    """
    labels, sizes = np.asarray(clients.labels), np.asarray(clients.sizes)
    indices = np.asarray(clients.indices)
    num_samples = len(clients.inputs)
    require(
        num_samples > 0, "inputs", "must hold at least one sample", clients.inputs.shape
    )
    if clients.num_classes:
        check_labels("labels", labels, num_samples, clients.num_classes)
    rule = f"must be finite, one for each of {num_samples} samples"
    is_sound = len(labels) == num_samples and bool(np.isfinite(labels).all())
    require(is_sound, "labels", rule, f"{labels.dtype} {labels.shape}")
    fits = (
        indices.ndim == 2
        and len(indices) > 0
        and np.issubdtype(indices.dtype, np.integer)
    )
    rule = "must be integers [clients, samples] of at least one client"
    require(fits, "indices", rule, f"{indices.dtype} {indices.shape}")
    fits = sizes.shape == indices.shape[:1] and np.issubdtype(sizes.dtype, np.integer)
    rule, count = "must be one integer for each client", f"{len(indices)} clients"
    require(fits, "sizes", rule, f"{sizes.dtype} {sizes.shape}", count)
    is_wrong = (sizes < 0) | (sizes > indices.shape[1])
    rule = f"must lie in [0, {indices.shape[1]}], the width of `indices`"
    require(not is_wrong.any(), "sizes", rule, sizes[is_wrong][:4].tolist())
    # Only the first `sizes` entries of a row are samples; padding may hold anything.
    held = indices[np.arange(indices.shape[1])[None, :] < sizes[:, None]]
    is_wrong = (held < 0) | (held >= num_samples)
    rule = f"must lie in [0, {num_samples}), the pool"
    require(not is_wrong.any(), "indices", rule, held[is_wrong][:4].tolist())
    return clients


@needs_values
def class_counts(client_data: ClientData) -> Int[np.ndarray, "clients classes"]:
    """Count each client's samples of each class.

    A shared sample counts for each who holds it.

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
    # `add.at` counts repeated (client, class) pairs; plain indexing would count each
    # once.
    clients = np.broadcast_to(np.arange(len(sizes))[:, None], indices.shape)
    np.add.at(counts, (clients[is_held], labels[is_held]), 1)
    return counts


@needs_values
def label_dropout_rates(
    client_data: ClientData,
    rates: Sequence[Any] | np.ndarray = (0.1, 0.2, 0.3, 0.4, 0.5),
) -> Float32[np.ndarray, " clients"]:
    """Give each client a chance to be offline that follows its most frequent label.

    The setting in which unfair selection costs accuracy: classes whose holders are
    often away are learnt badly. The first rate goes to label 0, the last to the last
    label, and labels between are interpolated along `rates`; so the default is linear
    in the label, .1 to .5, and as many rates as classes give each label its own.

    Args:
        client_data: The clients' samples.
        rates: At least one chance in [0, 1), in order of the labels.

    Returns:
        f32[N], ready for `availability.independent`. Among equally frequent labels the
        smallest counts; a client without samples, which has no label, gets the mean
        over the labels.

    Raises:
        ConfigurationError: If there is no rate, or one is not a number in [0, 1).

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> clients = mj.data.shards(0, mj.data.load("digits"), 20, single_label=True)
        >>> by_label = [label / 10 for label in range(10)]
        >>> rates = mj.data.label_dropout_rates(clients, by_label)
        >>> held = mj.data.class_counts(clients).argmax(axis=1)
        >>> bool(np.allclose(rates, held / 10))
        True

    Source: Multi-RoundSecAgg, arXiv version, Section 6 (users of label 0: .1; of label
    9: .5). The text gives the two ends only; the labels between are read as linear.
    """
    values = list(rates)
    require(
        client_data.num_classes > 0,
        "client_data",
        "must have labels that are classes",
        0,
    )
    require(len(values) > 0, "rates", "must hold at least one rate", values)
    for rate in values:
        check_number(
            rate, "rates", "must be numbers in [0, 1)", 0.0, math.nextafter(1.0, 0.0)
        )
    places = np.linspace(0.0, 1.0, client_data.num_classes)
    knots = np.linspace(0.0, 1.0, len(values))
    # Stretch the rates over the labels: first rate at label 0, last at the last label.
    by_label = np.interp(places, knots, np.asarray(values, np.float64))
    counts = class_counts(client_data)
    # A client without samples has no frequent label and gets the mean rate.
    chosen = np.where(
        counts.sum(axis=1) > 0, by_label[counts.argmax(axis=1)], by_label.mean()
    )
    return chosen.astype(np.float32)


def client_data(dataset: Dataset, held: Sequence[np.ndarray]) -> ClientData:
    """Put clients together from the training samples that each holds."""
    sizes = np.asarray([len(part) for part in held], np.int32)
    indices = np.zeros((len(held), max(int(sizes.max()), 1)), np.int32)
    for row, part in zip(indices, held, strict=True):
        # Padding is index 0, which is in the pool: reading it is safe.
        row[: len(part)] = part
    return ClientData(
        inputs=on_device(dataset.train_inputs),
        labels=on_device(dataset.train_labels.astype(np.int32)),
        indices=on_device(indices),
        sizes=on_device(sizes),
        num_classes=int(dataset.num_classes),
    )


PerChannel = float | int | np.floating | Sequence[Any] | np.ndarray | None


def normalise(
    dataset: Dataset, mean: PerChannel = None, std: PerChannel = None
) -> Dataset:
    """Shift and scale each channel: (inputs - mean) / std.

    Args:
        dataset: What to scale, training and test images alike.
        mean: One number, or one for each channel; None for the mean of the training
            images.
        std: One positive number, or one for each channel; None for the standard
            deviation of the training images.

    Returns:
        The data set with the same labels. With None for both, the training images have
        mean 0 and standard deviation 1 in every channel; test images are scaled by the
        same numbers.

    Raises:
        ConfigurationError: If a number is not finite, `std` is not positive (a channel
            without variation needs a separate `std`), or there is not one for each
            channel.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> digits = mj.data.normalise(mj.data.load("digits"))
        >>> bool(abs(digits.train_inputs.std() - 1) < 1e-4)
        True
    """
    check_dataset(dataset)
    channels = dataset.train_inputs.shape[-1]
    shift = _per_channel("mean", mean, channels)
    if shift is None:
        shift = dataset.train_inputs.mean(axis=(0, 1, 2), dtype=np.float64)
    scale = _per_channel("std", std, channels)
    if scale is None:
        scale = np.asarray(
            [_deviation(dataset.train_inputs[..., c]) for c in range(channels)]
        )
    require(
        bool((scale > 0).all()),
        "std",
        "must be positive in every channel",
        scale.tolist(),
    )
    shift, scale = shift.astype(np.float32), scale.astype(np.float32)
    return dataclasses.replace(
        dataset,
        train_inputs=(dataset.train_inputs - shift) / scale,
        test_inputs=(dataset.test_inputs - shift) / scale,
    )


def _deviation(values: np.ndarray) -> float:
    """Return the standard deviation of float32 values, exactly 0 if all are equal."""
    # In float32, so that equal values have a difference of exactly 0.
    centre = np.float32(values.mean(dtype=np.float64))
    return math.sqrt(np.square(values - centre).mean(dtype=np.float64))


def _per_channel(name: str, value: Any, channels: int) -> np.ndarray | None:
    """Return float64 [channels] of one number or one per channel; None stays None."""
    if value is None:
        return None
    try:
        numbers_ = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        numbers_ = np.full(0, math.nan)
    rule = f"must be one finite number or one for each of {channels} channels"
    is_one = numbers_.ndim == 0 or numbers_.shape == (channels,)
    require(is_one and bool(np.isfinite(numbers_).all()), name, rule, value)
    return np.broadcast_to(numbers_, (channels,))
