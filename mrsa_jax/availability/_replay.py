"""Replay of a recorded trace: who was online in each round of a real system."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._arrays import binary_matrix, on_device
from mrsa_jax._checks import check_known
from mrsa_jax._errors import require
from mrsa_jax._html import brief
from mrsa_jax._streams import client_words
from mrsa_jax._tracing import needs_values, one_program

Start = Literal["first", "random"]
Beyond = Literal["repeat", "absent"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Replay:
    """A recorded trace, played round by round; build it with `replay`.

    Attributes:
        trace: bool[L, N], who was online in each recorded round.
        repeats: bool scalar, whether the first row follows the last; else nobody is online then.
        is_random: bool scalar, whether a trial starts at a row drawn uniformly.
    """

    __repr__ = brief

    trace: Array
    repeats: Array
    is_random: Array

    def for_clients(self, num_clients: int) -> Replay:
        """Return the model itself.

        Raises:
            ConfigurationError: If the trace is of another number of clients.
        """
        shape = self.trace.shape
        rule = f"must have {num_clients} columns, one for each client"
        require(shape[-1] == num_clients, "trace", rule, f"shape {shape}")
        return self

    @one_program
    def init(self, key: Key[Array, ""]) -> Int32[Array, ""]:
        """Return the row of the first round: 0, or a uniform one."""
        word = client_words(key, 1)[0]
        row = (word % jnp.uint32(self.trace.shape[-2])).astype(jnp.int32)
        return jnp.where(self.is_random, row, jnp.int32(0))

    @one_program
    def sample(
        self, key: Key[Array, ""], state: Int32[Array, ""]
    ) -> tuple[Bool[Array, " clients"], Int32[Array, ""]]:
        """Return the next row of the trace; nothing is drawn."""
        del key
        length = jnp.int32(self.trace.shape[-2])
        row = self.trace[jnp.minimum(state, length - 1)] & (state < length)
        following = jnp.minimum(state + 1, length)
        return row, jnp.where(self.repeats, following % length, following)


@needs_values
def replay(
    trace: ArrayLike | Sequence[Any], *, beyond: Beyond = "repeat", start: Start = "first"
) -> Replay:
    """Return the model that replays a recorded trace of who was online.

    Args:
        trace: bool[L, N] (0/1 integers are taken too): row j is round j of the record.
        beyond: What follows the last recorded round: `"repeat"`, the first one again; `"absent"`,
            nobody is online, so that every further round is skipped. No length of rollout raises.
        start: `"first"`, every trial starts at row 0, so that trials differ in the selection
            only; `"random"`, each at a row of its own, uniform (needs `beyond="repeat"`).

    Returns:
        The model, a pytree; the trace is data, its shape a size.

    Raises:
        ConfigurationError: If the trace is not a binary matrix with a row and a column at least,
            a mode is unknown, or a random start is asked of a trace that does not repeat.

    Examples:
        >>> import mrsa_jax as mj
        >>> trace = [[1, 0], [1, 1], [0, 1]]
        >>> everybody = mj.selection.bernoulli(2, 1.0)
        >>> history = mj.selection.rollout(0, everybody, replay(trace), num_rounds=4)
        >>> history.astype(int).tolist()
        [[1, 0], [1, 1], [0, 1], [1, 0]]
    """
    array = binary_matrix(trace, "trace")
    require(array.shape[0] < 2**31 - 1, "trace", "must have fewer rows", array.shape[0])
    check_known(beyond, "beyond", typing.get_args(Beyond), "a known mode")
    check_known(start, "start", typing.get_args(Start), "a known mode")
    legal = start == "first" or beyond == "repeat"
    require(legal, "start", 'must be "first" unless the trace repeats', start)
    return Replay(on_device(array), on_device(beyond == "repeat"), on_device(start == "random"))
