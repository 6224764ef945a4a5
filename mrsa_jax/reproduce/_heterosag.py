"""HeteroSAg's matrices, theorems, costs and experiments, remade and judged.

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated Learning":
Algorithms 1 to 6, Examples 1 to 5, Tables II and III, Theorems 1 to 4, Section VI, Figure 3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from mrsa_jax.reproduce import _heterosag_accuracy as accuracy_items
from mrsa_jax.reproduce import _heterosag_byzantine as byzantine_items
from mrsa_jax.reproduce import _heterosag_errors as error_items
from mrsa_jax.reproduce import _heterosag_matrices as matrix_items
from mrsa_jax.reproduce import _heterosag_privacy as privacy_items
from mrsa_jax.reproduce._context import Context, made_items
from mrsa_jax.reproduce._items import Item
from mrsa_jax.study import Progress

__all__ = ["MAKERS", "heterosag"]

MAKERS: dict[str, Callable[[Context], Item]] = {
    "matrices": matrix_items.matrices,
    "examples": matrix_items.examples,
    "theorem1": privacy_items.levels,
    "theorem3": privacy_items.levels_plus,
    "error_bounds": error_items.error_bounds,
    "expansion": error_items.expansion,
    "theorem4": privacy_items.dropouts,
    "byzantine_bound": privacy_items.attackers,
    "costs": error_items.costs,
    "fig3a": accuracy_items.accuracy,
    "fig3b": byzantine_items.byzantine,
}
"""What makes each item."""


def heterosag(
    items: Iterable[str] | None = None,
    *,
    fast: bool = False,
    seed: int = 0,
    dataset: str = "mnist_5k",
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[Item]:
    """Remake items of HeteroSAg and judge each against what the paper says.

    Args:
        items: Names, as in `reproduce.ITEMS["heterosag"]`; None for all.
        fast: Trainings of 20 rounds and two seeds, which can show the order of the schemes but
            not the claims about 100 rounds: a minute or two for all items instead of ten or more.
        seed: Integer in [0, 2**32) of everything random.
        dataset: What fig3a and fig3b train on, as `data.load` takes it; the paper's are MNIST
            and Fashion-MNIST.
        directory: Folder of the data set, where it needs one.
        progress: Receives how far it is.

    Returns:
        One `Item` for each name; its `verdict` is `"reproduced"`, `"paper errs"` (ours differs
        and is proven right) or `"differs"`.

    Raises:
        ConfigurationError: For an unknown item or data set (naming the nearest), or a seed out of
            range.
        DataNotFoundError: If the data set is not on this machine.

    Examples:
        >>> (item,) = heterosag(["matrices"])
        >>> item.verdict, len(item.checks)
        ('reproduced', 8)

    Source: HeteroSAg; errata and open readings as docs/errata.md lists them.
    """
    return made_items(
        "heterosag", MAKERS, items,
        fast=fast, seed=seed, dataset=dataset, directory=directory, progress=progress,
    )  # fmt: skip
