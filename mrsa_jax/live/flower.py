"""Recorders of Flower's rounds, and strategies that select by a selector.

Import it where Flower is (the extra `flower` of this package); nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Key

from mrsa_jax._core.selector import Selector, cohort_size_of
from mrsa_jax.live._chooser import Chooser
from mrsa_watch import Recorder
from mrsa_watch._base.errors import check_integer
from mrsa_watch.flower import (  # first: says whether Flower will do
    VERSION,
    Pseudonyms,
    SecAggPlus,
    pseudonym_mod,
    record,
    whole_blocks,
)

# isort: split
from flwr.server.strategy import Strategy
from flwr.serverapp.strategy import Strategy as MessageStrategy

from mrsa_watch.flower._books import Books, GateLike
from mrsa_watch.flower._strategies import wrapped

__all__ = [
    "VERSION",
    "Pseudonyms",
    "SecAggPlus",
    "pseudonym_mod",
    "record",
    "select",
    "whole_blocks",
]


def select(
    strategy: Strategy | MessageStrategy,
    recorder: Recorder,
    selector: Selector,
    *,
    seed: int | Key[Array, ""] = 0,
    gate: GateLike | None = None,
    name: Callable[[Any], Any] = str,
    wait_for: int | None = None,
) -> Any:
    """Return a strategy that asks a selector's cohorts and records like `record`.

    Of the nodes that are there the selector chooses a cohort, which the given strategy
    then asks in its own manner. A node gets the next free index when it is first seen,
    and keeps it: its block depends on it, so it is kept in `<log>.clients`. Nodes
    beyond the selector's N are named by a warning and left out. The selector's state is
    that of the log: a server that starts again continues where the log ends. Blocks
    stay whole inside rounds with `SecAggPlus`.

    Args:
        strategy: As in `record`; it must ask all nodes that it finds (a fraction of 1).
        recorder: Of a log whose rounds this selector chose, or of a new one.
        selector: Any of `mrsa_jax.selection`, such as `batch_partitioning(12, 6, 3)`.
        seed: Of the selector's draws: integer in [0, 2**32), or a typed key.
        gate: As in `record`. Where it wants clients left out, their blocks are, and the
            selector chooses once more among the others.
        name: As in `record`.
        wait_for: Nodes that must be there before a round begins; K by default, or 1 for
            a selector without a K. A round in which the selector finds nobody to ask is
            skipped, and written down as aborted.

    Returns:
        A strategy of the same interface.

    Raises:
        ConfigurationError: As `record`; if the selector is none, or could not have
            chosen what the log holds.

    Examples:
        >>> import pathlib, tempfile
        >>> import mrsa_jax as mj
        >>> from flwr.serverapp.strategy import FedAvg
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.jsonl")
        >>> recorder = Recorder(path, system="flower", aggregation="plain")
        >>> selector = mj.selection.batch_partitioning(12, 6, 3)
        >>> select(FedAvg(), recorder, selector).nodes_to_wait_for
        6
        >>> recorder.close()
    """
    chooser = Chooser(selector, seed)
    most = cohort_size_of(selector) or 1
    nodes = most if wait_for is None else check_integer(wait_for, "wait_for", 0)
    return wrapped(strategy, lambda: Books(recorder, gate, name, chooser), nodes)
