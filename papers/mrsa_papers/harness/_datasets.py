"""Whether a data set is the one that a paper used."""

from __future__ import annotations

from mrsa_jax import data
from mrsa_papers.harness._rows import ANY, DATA


def is_data_of(dataset: data.Dataset, data_name: str) -> bool:
    """Return whether a data set holds exactly the samples of a published one.

    Neither its name nor its size decides, but the digest of all pixels and labels
    (`mrsa_jax.data.recognise`). A part of a data set reproduces nothing.

    Args:
        dataset: The data set, from any source.
        data_name: `"mnist"`, `"fashion_mnist"`, `"cifar10"`, `"cifar100"` or
            `"olivetti"`.

    Examples:
        >>> is_data_of(data.load("digits"), "mnist")
        False
    """
    return (
        has_size_of(dataset, data_name)
        # of another size the samples need no look
        and data.recognise(dataset) == data_name
    )


def has_size_of(dataset: data.Dataset, data_name: str) -> bool:
    """Return whether a data set has the training samples and classes of another."""
    size = len(dataset.train_labels), dataset.num_classes
    return size == DATA[data_name][1:]


def substitution(dataset: data.Dataset, data_name: str) -> tuple[str, str]:
    """Return in words which data set the paper used, and which was used instead.

    The first is empty where no paper used one, the second where it is the same. Of a
    data set of that size whose samples differ, or cannot be recognised, the second says
    so.

    Examples:
        >>> substitution(data.load("digits"), "mnist")
        ('MNIST', 'digits')
    """
    if data_name == ANY:
        return "", dataset.name
    words = DATA[data_name].words
    if is_data_of(dataset, data_name):
        return words, ""
    doubt = " (not recognised)" * has_size_of(dataset, data_name)
    return words, dataset.name + doubt
