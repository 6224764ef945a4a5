"""What a data set is here, and what makes one sound.

A `Dataset` is plain NumPy; it may come from `load` or be built by hand, so whatever spreads one
over clients checks it first.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from mrsa_watch._base.errors import check_count, require
from mrsa_watch._base.html import brief


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images, split into training and test samples.

    Attributes:
        name: Where it came from, e.g. `"mnist_5k"`.
        train_inputs: f32 [M, height, width, channels]; values in [0, 1] as `load` returns them.
        train_labels: int32 [M], in [0, num_classes).
        test_inputs: f32 [m, height, width, channels].
        test_labels: int32 [m].
        num_classes: Number of classes.
    """

    __repr__ = brief

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
    """Raise unless a data set is sound.

    The partitions call this, so a data set built by hand is refused before anything is trained
    on it. A test set may be empty; a training set may not.

    Raises:
        ConfigurationError: If there is no class or no training sample; if images are not float32
            [M, height, width, channels], finite and of one shape in both parts; if there is not
            one integer label for each image; if a label lies outside [0, num_classes).
    """
    classes = dataset.num_classes
    check_count(classes, "num_classes")
    require(len(dataset.train_labels) > 0, "train_labels", "must hold at least one sample", 0)
    for part in ("train", "test"):
        inputs, labels = getattr(dataset, f"{part}_inputs"), getattr(dataset, f"{part}_labels")
        _check_images(f"{part}_inputs", inputs)
        check_labels(f"{part}_labels", labels, len(inputs), int(classes))
    require(
        dataset.train_inputs.shape[1:] == dataset.test_inputs.shape[1:],
        "test_inputs",
        "must be images of the shape of `train_inputs`",
        dataset.test_inputs.shape[1:],
        dataset.train_inputs.shape[1:],
    )


def check_labels(name: str, labels: np.ndarray, num_samples: int, num_classes: int) -> None:
    """Raise unless there is one integer label in [0, num_classes) for each sample."""
    require(
        labels.shape == (num_samples,) and np.issubdtype(labels.dtype, np.integer),
        name,
        f"must be one integer for each of {num_samples} samples",
        f"{labels.dtype} {labels.shape}",
    )
    is_outside = (labels < 0) | (labels >= num_classes)
    if is_outside.any():
        first = int(np.argmax(is_outside))
        where = f"{int(is_outside.sum())} do not, the first at index {first}"
        require(False, name, f"must lie in [0, {num_classes}) ({where})", int(labels[first]))


def _check_images(name: str, inputs: np.ndarray) -> None:
    require(
        inputs.dtype == np.float32 and inputs.ndim == 4 and min(inputs.shape[1:], default=0) > 0,
        name,
        "must be float32 images [samples, height, width, channels]",
        f"{inputs.dtype} {inputs.shape}",
    )
    # finite float32 values cannot sum to infinity in float64: one pass and no array of booleans
    with np.errstate(invalid="ignore"):  # infinities of both signs
        total = float(inputs.sum(dtype=np.float64))
    require(math.isfinite(total), name, "must be finite", f"values that sum to {total}")
