"""Replay of a recorded trace: who was online in each round of a real system."""

from __future__ import annotations

import typing
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from mrsa_jax._core.array_types import (
    Flags,
    Integers,
    Nested,
    Numbers,
    PRNGKey,
    TrialKeys,
)
from mrsa_jax._core.arrays import (
    binary_matrix,
    integer_or_vector,
    on_device,
    one_number,
)
from mrsa_jax._core.factories import also_traced, is_whole, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import Calls, pytree
from mrsa_jax._core.streams import (
    ALWAYS,
    chances_typed,
    check_chances,
    client_words,
    happens,
    spread,
    threshold,
)
from mrsa_jax._core.traced import is_traced
from mrsa_watch._base.errors import check_integer, check_known, require, shortened

# A departure from the papers' model, in which a client's rate never changes. Devices
# join when they charge at night, so clients of one time zone are away together.


@pytree
class Cyclic:
    """Independent dropouts at a rate that repeats; build it with `cyclic` or `diurnal`.

    Attributes:
        thresholds: uint32[L], of the chance to be offline at each place of the cycle.
        phase: int32, one for all clients or [N], in [0, L): in round j, from 0, client
            i is at place (j + phase_i) mod L.
    """

    thresholds: Array
    phase: Array
    takes_trials: ClassVar[bool] = True

    def typed(self) -> Calls:
        """Return the calls that may have made it."""
        rates, phase = chances_typed(self.thresholds), np.asarray(self.phase).tolist()
        return [(cyclic, rates), (cyclic, rates, phase)]

    def for_clients(self, num_clients: int) -> Cyclic:
        """Return the model with a phase for each of `num_clients` clients.

        Raises:
            ConfigurationError: If it holds phases of another number of clients.
        """
        return Cyclic(self.thresholds, spread(self.phase, "phase", num_clients))

    def init(self, key: PRNGKey) -> Int32[Array, ""]:
        """Return the place of phase 0 before the first round, 0; nothing is drawn."""
        del key
        return jnp.int32(0)

    @property
    def _period(self) -> int:
        return self.thresholds.size

    def _limits(self, num_rounds: int) -> np.ndarray:
        """Return each client's thresholds on the host.

        A row for each round of the first cycle.
        """
        rounds = np.arange(min(self._period, num_rounds))[:, None]
        return np.asarray(self.thresholds)[
            (rounds + np.asarray(self.phase)) % self._period
        ]

    @one_program
    def sample(
        self, key: TrialKeys, state: Int32[Array, "*trials"]
    ) -> tuple[Flags, Int32[Array, "*trials"]]:
        """Draw who is online, each client at its own place of the cycle."""
        length = self.thresholds.shape[-1]
        ends = tuple(range(1, 1 + state.ndim))
        place = (jnp.expand_dims(self.phase, ends) + state[None]) % length
        words = client_words(key, self.phase.shape[-1])
        # the place of phase 0 moves on by itself; clients are ahead of it
        return ~happens(words, self.thresholds[place]), (state + 1) % length


@also_traced
def cyclic(
    dropout_rates: Numbers,
    phase: Integers = 0,
) -> Cyclic:
    """Return the model in which the chance to be offline repeats every L rounds.

    Given a client's place in the cycle, its rounds are independent. For a cosine see
    `diurnal`.

    Args:
        dropout_rates: Chance to be offline at each of the L places of the cycle, in [0,
            1], [L].
        phase: The number of rounds that a client is ahead: an integer for everybody, or
            [N] of them. Round j, from 0, uses `dropout_rates[(j + phase) % L]`.

    Returns:
        The model, a pytree; rates and phases are data, L is a size.

    Raises:
        ConfigurationError: If a rate is outside [0, 1], there is none, or a phase is no
            integer.

    Examples:
        >>> import mrsa_jax as mj
        >>> everybody = mj.selection.bernoulli(2, 1.0)
        >>> history = mj.selection.rollout(
        ...     0, everybody, mj.availability.cyclic([0.0, 1.0], [0, 1]), num_rounds=3
        ... )
        >>> history.tolist()
        [[True, False], [False, True], [True, False]]
    """
    rates = check_chances(dropout_rates, "dropout_rates", as_data=True).reshape(-1)
    require(
        rates.size < 2**30,
        "dropout_rates",
        "must have fewer than 2**30 places",
        rates.size,
    )
    ahead = unless_traced(integer_or_vector, phase, "phase", axes=1)
    places = (ahead % rates.size).astype(np.int32)
    thresholds = on_device(threshold(rates, illegal=ALWAYS))
    if is_traced(ahead):  # of a fraction nobody is ever online
        is_place = is_whole(ahead, -(2**63), 2**63 - 1).all()
        thresholds = jnp.where(is_place, thresholds, jnp.uint32(ALWAYS))
    return Cyclic(thresholds, on_device(places))


@also_traced
def diurnal(
    dropout_rate: float | Array,
    amplitude: float | Array,
    period: int,
    phase: Integers = 0,
) -> Cyclic:
    """Return the model in which clients are away by day.

    A cosine cycle, a phase for each client.
    In round j, from 0, client i is offline with chance
    p + a cos(2 pi (j + phase_i) / L). Equal phases make whole populations vanish
    together and rounds be skipped; phases that follow the blocks keep blocks whole,
    mixed ones break them.

    Args:
        dropout_rate: p, mean over the cycle, in [0, 1].
        amplitude: a, from 2^-32 to min(p, 1 - p), or 0 for `independent(p)`.
        period: L >= 1, rounds a cycle.
        phase: Rounds that a client is ahead: an integer for everybody, or [N] of them.

    Returns:
        The model, a pytree; p, a and phases are data, L is a size.

    Raises:
        ConfigurationError: If p is outside [0, 1], the amplitude leads out of [0, 1],
            the period is no positive integer, or a phase no integer.

    Examples:
        >>> import mrsa_jax as mj
        >>> flat, plain = (
        ...     mj.availability.diurnal(0.3, 0.0, 24),
        ...     mj.availability.independent(0.3),
        ... )
        >>> online = [
        ...     mj.selection.rollout(
        ...         0, mj.selection.uniform(9, 2), model, num_rounds=20
        ...     )
        ...     for model in (flat, plain)
        ... ]
        >>> bool((online[0] == online[1]).all())
        True
    """
    rate = check_chances(dropout_rate, "dropout_rate", as_data=True)
    require(rate.ndim == 0, "dropout_rate", "must be one number", f"shape {rate.shape}")
    a = unless_traced(one_number, amplitude, "amplitude")
    length = check_integer(period, "period", 1)
    cosine = np.cos(2.0 * np.pi * np.arange(length) / length)
    if is_traced(rate, a):
        is_seen = (a == 0) | (a >= 2.0**-32)
        legal = is_seen & (a <= jnp.minimum(rate, 1 - rate) + 1e-6)
        return cyclic(
            jnp.where(legal, jnp.clip(rate + a * cosine, 0.0, 1.0), jnp.nan), phase
        )
    p = float(rate)
    require(
        0.0 <= a <= min(p, 1.0 - p) + 1e-12,
        "amplitude",
        "must lie between 0 and min(p, 1 - p) for a `dropout_rate` of p",
        a,
        p,
    )
    require(
        a == 0.0 or a >= 2.0**-32,
        "amplitude",
        "must be 0 or at least 2**-32, the unit of chances",
        a,
    )
    return cyclic(np.clip(p + a * cosine, 0.0, 1.0), phase)


Start = Literal["first", "random"]
Beyond = Literal["repeat", "absent"]


@pytree
class Replay:
    """A recorded trace, played round by round; build it with `replay`.

    Attributes:
        trace: bool[L, N], who was online in each recorded round.
        repeats: bool scalar, whether the first row follows the last; else nobody is
            online then.
        is_random: bool scalar, whether a trial starts at a row drawn uniformly.
    """

    trace: Array
    repeats: Array
    is_random: Array

    def _cells(self) -> np.ndarray:
        """Rounds: a row each, of the clients online."""
        return np.asarray(self.trace)

    def for_clients(self, num_clients: int) -> Replay:
        """Return the model itself.

        Raises:
            ConfigurationError: If the trace is of another number of clients.
        """
        shape = self.trace.shape
        require(
            shape[-1] == num_clients,
            "trace",
            f"must have {num_clients} columns, one for each client",
            f"shape {shape}",
        )
        return self

    @one_program
    def init(self, key: PRNGKey) -> Int32[Array, ""]:
        """Return the row of the first round: 0, or a uniform one."""
        row = (client_words(key, 1)[0] % jnp.uint32(self.trace.shape[-2])).astype(
            jnp.int32
        )
        return jnp.where(self.is_random, row, 0)

    @one_program
    def sample(
        self, key: PRNGKey, state: Int32[Array, ""]
    ) -> tuple[Bool[Array, " clients"], Int32[Array, ""]]:
        """Return the next row of the trace; nothing is drawn."""
        del key
        length = jnp.int32(self.trace.shape[-2])
        # past its end the trace shows nobody, unless it repeats and never gets there
        row = self.trace[jnp.minimum(state, length - 1)] & (state < length)
        following = jnp.minimum(state + 1, length)
        return row, jnp.where(self.repeats, following % length, following)


@also_traced
def replay(
    trace: Nested,
    *,
    beyond: Beyond = "repeat",
    start: Start = "first",
) -> Replay:
    """Return the model that replays a recorded trace of who was online.

    Args:
        trace: bool[L, N] (0/1 integers are taken too): row j is round j of the record.
        beyond: What follows the last recorded round: `"repeat"`, the first one again;
            `"absent"`, nobody is online, so that every further round is skipped. No
            length of rollout raises.
        start: `"first"`, every trial starts at row 0, so that trials differ in the
            selection only; `"random"`, each at a separate row, uniform (needs
            `beyond="repeat"`).

    Returns:
        The model, a pytree; the trace is data, its shape a size.

    Raises:
        ConfigurationError: If the trace is not a binary matrix with a row and a column
            at least, a mode is unknown, or a random start is asked of a trace that does
            not repeat.

    Examples:
        >>> import mrsa_jax as mj
        >>> trace = [[1, 0], [1, 1], [0, 1]]
        >>> everybody = mj.selection.bernoulli(2, 1.0)
        >>> history = mj.selection.rollout(
        ...     0, everybody, mj.availability.replay(trace), num_rounds=4
        ... )
        >>> history.astype(int).tolist()
        [[1, 0], [1, 1], [0, 1], [1, 0]]
    """
    array: Any = trace
    if is_traced(trace):
        require(
            array.ndim == 2 and array.size > 0 and array.dtype == np.bool_,
            "trace",
            "must be a boolean matrix [rounds, clients]",
            shortened(array),
        )
    else:
        array = binary_matrix(trace, "trace")
    require(array.shape[0] < 2**31 - 1, "trace", "must have fewer rows", array.shape[0])
    check_known(beyond, "beyond", typing.get_args(Beyond), "a known mode")
    check_known(start, "start", typing.get_args(Start), "a known mode")
    require(
        start == "first" or beyond == "repeat",
        "start",
        'must be "first" unless the trace repeats',
        start,
    )
    return Replay(
        on_device(array), on_device(beyond == "repeat"), on_device(start == "random")
    )
