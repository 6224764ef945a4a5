"""What computes the points of a sweep has to offer, whatever command is swept."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable that each point has.

    Attributes:
        dims: Its dimensions within a point, such as `("trial",)`.
        dtype: Of NumPy.
        units: As text; `"1"` for pure numbers.
        description: What it is, in a sentence.
    """

    dims: tuple[str, ...]
    dtype: str
    units: str
    description: str

    @property
    def fill(self) -> Any:
        """What cells hold that are not done, and places beyond a point's own size."""
        return _FILLS[np.dtype(self.dtype).kind]


# What is known of who took part, whatever command is swept: type, units, description.
# The store holds -1 where an integer has no value, and `open_study` gives nan.
_HIDDEN = "As in a sum of how many clients one is hidden"
AT_END = {
    "strong_privacy": ("int32", "clients", "Strong T; nan before any sum"),
    "hidden_among_worst": ("float64", "clients", f"{_HIDDEN}, the worst client of those in sums"),
    "hidden_among_median": ("float64", "clients", f"{_HIDDEN}, the median client of those"),
    "rank": ("int32", "1", "Rank of the participation matrix"),
    "exposed_clients": ("int32", "clients", "Clients whose update follows from the sums"),
    "first_exposed_round": ("int32", "rounds", "Round, from 0, that exposes the first; nan: none"),
    "skipped_rounds": ("int32", "rounds", "Rounds in which nobody was summed"),
    "fairness_gap": ("float32", "1", "F: most less least often summed, a round"),
    "aggregation_cardinality": ("float32", "clients", "C: mean number of clients in a sum"),
}
AFTER_EACH_ROUND = (
    "strong_privacy",
    "hidden_among_worst",
    "hidden_among_median",
    "rank",
    "exposed_clients",
    "fairness_gap",
    "aggregation_cardinality",
)
_FILLS = {"f": np.nan, "i": -1, "b": False, "U": ""}


def history_variables(dims: tuple[str, ...], by_round: bool) -> dict[str, Variable]:
    """Return what is known of who took part: at the end, after each round, and for ever."""
    found = {name: Variable(dims, *facts) for name, facts in AT_END.items()}
    words = "Weak T that lasts whatever the rounds bring; 1 where nothing is guaranteed"
    found["guaranteed_privacy"] = Variable((), "int32", "clients", words)
    found["largest_rank"] = Variable((), "int32", "1", "N, the rank at which all are exposed")
    if by_round:
        for name in AFTER_EACH_ROUND:
            dtype, units, text = AT_END[name]
            words = f"{text}, after each round"
            found[f"{name}_by_round"] = Variable((*dims, "round"), dtype, units, words)
    return found


@dataclasses.dataclass(frozen=True)
class Machine:
    """What points may use.

    Attributes:
        memory_bytes: Bound on the memory of what runs at once; None for the default.
        devices: How many devices a point's trials, or clients, are dealt out to; None: one for
            trials, and for clients as `mrsa-jax train` chooses.
    """

    memory_bytes: int | None = None
    devices: int | None = None


class Runner(Protocol):
    """A module with these functions computes the points of one command."""

    def group_of(self, config: Any) -> Hashable:
        """Return what decides which program runs a point; its numbers do not."""
        ...

    def sizes(self, configs: Sequence[Any]) -> dict[str, int]:
        """Return the length of each inner dimension: the largest that a point needs."""
        ...

    def variables(self, configs: Sequence[Any], trajectories: bool) -> dict[str, Variable]:
        """Return what each point has."""
        ...

    def together(self, config: Any, machine: Machine) -> int:
        """Return how many points like this are computed in one go."""
        ...

    def memory_bytes(self, config: Any, machine: Machine, count: int) -> int:
        """Return about how much memory `count` points of this kind need at once."""
        ...

    def run(
        self, configs: Sequence[Any], machine: Machine, trajectories: bool, together: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Compute points of one group; give each one's variables, in order.

        There are at most `together` of them. A program whose shapes depend on how many it
        computes is made for that many, so that a shorter list compiles nothing new.
        """
        ...
