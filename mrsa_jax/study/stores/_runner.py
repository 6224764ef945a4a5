"""The interface of modules that compute the points of a sweep, for any command."""

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
        """The value of cells that are not done, and of places beyond a point's size."""
        return _FILLS[np.dtype(self.dtype).kind]

    @property
    def facts(self) -> dict[str, str]:
        """Its units and description, as data sets hold them."""
        return {"units": self.units, "description": self.description}


_FILLS = {"f": np.nan, "i": -1, "b": False, "U": ""}

TRAJECTORIES = "trajectories"
"""Asks for values after each round, in addition to the ends that every sweep keeps."""
VARIABLES = {
    table: {
        name: Variable(tuple(dims), dtype, units, description)
        for name, (dtype, units, description, *dims) in rows.items()
    }
    for table, rows in tomllib.loads(
        (pathlib.Path(__file__).parent / "variables.toml").read_text(encoding="utf-8")
    ).items()
}
"""The variables of `variables.toml`, by its tables and by name."""
VARIABLES_OF_WEAK = VARIABLES["weak"] | VARIABLES["certified"]
"""Bounds of weak T after each round, and where they are proven to meet."""
DETAILS = VARIABLES["details"]
"""Variables that a sweep keeps if they are asked for by name."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """Resources that points may use.

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
        """Return the settings that select the program of a point, not its numbers."""
        ...

    def sizes(self, configs: Sequence[Any]) -> dict[str, int]:
        """Return the length of each inner dimension: the largest that a point needs."""
        ...

    def variables(
        self, configs: Sequence[Any], kept: Collection[str]
    ) -> dict[str, Variable]:
        """Return a point's variables; `kept`: `TRAJECTORIES`, some of `DETAILS`."""
        ...

    def together(self, config: Any, machine: Machine) -> int:
        """Return the number of points like this that are computed in one go."""
        ...

    def memory_bytes(
        self, config: Any, machine: Machine, count: int, kept: Collection[str] = ()
    ) -> int:
        """Return about how many bytes `count` points of this kind need at once."""
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
