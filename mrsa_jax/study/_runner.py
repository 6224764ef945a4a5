"""What computes the points of a sweep has to offer, whatever command is swept."""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from collections.abc import Collection, Hashable, Iterator, Sequence
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

    @property
    def facts(self) -> dict[str, str]:
        """Its units and description, as data sets hold them."""
        return {"units": self.units, "description": self.description}


_FILLS = {"f": np.nan, "i": -1, "b": False, "U": ""}

TRAJECTORIES = "trajectories"
"""Asks for what there is after each round, in addition to the ends that every sweep keeps.
"""
VARIABLES = {
    table: {
        name: Variable(tuple(dims), dtype, units, description)
        for name, (dtype, units, description, *dims) in own.items()
    }
    for table, own in tomllib.loads(
        (pathlib.Path(__file__).parent / "variables.toml").read_text(encoding="utf-8")
    ).items()
}
"""The variables of `variables.toml`, by its tables and by name."""
DETAILS = VARIABLES["details"]
"""What a sweep keeps where it is asked for by name."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What points may use.

    Attributes:
        memory_bytes: Bound on the memory of what runs at once; None for the default.
        devices: How many devices a point's trials, or clients, are dealt out to; None:
            one for trials, and for clients as `mrsa-jax train` chooses.
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

    def variables(
        self, configs: Sequence[Any], kept: Collection[str]
    ) -> dict[str, Variable]:
        """Return what each point has, with what is `kept`.

        `TRAJECTORIES`, some of `DETAILS`.
        """
        ...

    def together(self, config: Any, machine: Machine) -> int:
        """Return how many points like this are computed in one go."""
        ...

    def memory_bytes(
        self, config: Any, machine: Machine, count: int, kept: Collection[str] = ()
    ) -> int:
        """Return about how much memory `count` points of this kind need at once."""
        ...

    def run_points(
        self,
        configs: Sequence[Any],
        machine: Machine,
        kept: Collection[str],
        together: int,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Compute points of one group; give each one's variables, in order.

        There are at most `together` of them. A program whose shapes depend on how many
        it computes is made for that many, so that a shorter list compiles nothing new.
        A runner whose points are trials also takes `first`, the number of the first of
        them; one whose results are of all trials together has `joined`, which makes one
        result of two that follow each other. One of whose floats some follow from
        trained numbers has `is_trained(name)`.
        """
        ...
