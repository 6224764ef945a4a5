"""Whether a data set is the one that a paper used."""

from __future__ import annotations

from mrsa_jax import data
from mrsa_papers.harness._rows import ANY, DATA


def is_data_of(dataset: data.Dataset, data_name: str) -> bool:
    """Return whether a data set is a known one, whatever it was read from.

    Args:
        dataset: The data set.
        data_name: `"mnist"`, `"fashion_mnist"`, `"cifar10"`, `"cifar100"` or
            `"olivetti"`.

    Examples:
        >>> is_data_of(data.load("digits"), "mnist")
        False
    """
    name = "".join(c for c in dataset.name.lower() if c.isalnum())
    # "mnist_5k", "fashion_mnist" and "emnist" are not mnist, nor is cifar100 cifar10
    rest = name.split(data_name.replace("_", ""))
    named = (
        len(rest) > 1
        and not rest[1][:1].isdigit()
        and not rest[0].endswith(("fashion", "e"))
    )
    return (
        named
        # a part of a data set reproduces nothing
        and (len(dataset.train_labels), dataset.num_classes) == DATA[data_name][1:]
    )


def substitution(dataset: data.Dataset, data_name: str) -> tuple[str, str]:
    """Return in words which data set the paper used, and which was used instead.

    The first is empty where no paper used one, the second where it is the same.

    Examples:
        >>> substitution(data.load("digits"), "mnist")
        ('MNIST', 'digits')
    """
    if data_name == ANY:
        return "", dataset.name
    return DATA[data_name].words, "" if is_data_of(dataset, data_name) else dataset.name
