"""Power-of-choice.

The K clients of highest loss among d candidates, on simulated losses.
Cho, Wang, Joshi, "Client Selection in Federated Learning: Convergence Analysis and
Power-of-Choice Selection Strategies" (2020). Symbols: K `cohort_size`, d
`num_candidates`, F_k(w) `losses`. Losses live in the selector's state, so that
histories can be rolled out without training.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from mrsa_jax._core.array_types import Counts, Flags, Numbers, TrialKeys
from mrsa_jax._core.arrays import number_or_vector, on_device, one_number, zeros
from mrsa_jax._core.factories import also_traced, is_whole, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import Calls, pytree, static
from mrsa_jax._core.traced import is_traced
from mrsa_jax.selection import _ranking
from mrsa_jax.selection._blocks import sizes_as_data
from mrsa_jax.selection._by_kernel import over_trials
from mrsa_jax.selection._metrics import all_or_none
from mrsa_jax.selection._ranking import Steps, Words
from mrsa_watch._base.errors import check_size, require
from mrsa_watch._base.values import by_value

# logarithms of losses are multiples of this: integers, equal on every machine
_UNIT = 2.0**-23


@by_value
class PowerOfChoiceState(NamedTuple):
    """State of power-of-choice between rounds.

    Attributes:
        counts: int32[N], rounds in whose sum each client was.
        log_losses: int32[N], natural logarithm of each client's loss, in units of
            2^-23.
    """

    counts: Counts
    log_losses: Counts

    @property
    def losses(self) -> Float32[Array, " clients *trials"]:
        """Each client's simulated loss."""
        return jnp.exp(self.log_losses.astype(jnp.float32) * _UNIT)


@pytree
class PowerOfChoice:
    """The K clients of highest loss among d candidates.

    Build it with `power_of_choice`.

    Attributes:
        cohort_size: int32 scalar, K.
        num_candidates: int32 scalar, d.
        highest: int32[N], logarithm of the initial loss (also its ceiling), in units of
            2^-23.
        lowest: int32[N], logarithm of the loss that training cannot go below.
        fall: int32 scalar, what the logarithm loses in a round with the client.
        rise: int32 scalar, what it gains in one without.
        num_clients: N, static.
    """

    cites = "selection of clients: cho2020client"

    cohort_size: Array
    num_candidates: Array
    highest: Array
    lowest: Array
    fall: Array
    rise: Array
    num_clients: int = static()
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = True

    def typed(self) -> Calls:
        """Return the call that may have made it."""
        sizes = self.num_clients, int(self.cohort_size), int(self.num_candidates)
        return [(power_of_choice, *sizes)]

    def cardinality(self, dropout_rates: np.ndarray) -> tuple[float, float]:
        """Return mean and standard deviation of the size of a round's sum."""
        return all_or_none(self.num_clients, self.cohort_size, 1, dropout_rates)

    def init(self) -> PowerOfChoiceState:
        """Return the state before the first round: nobody has taken part."""
        return PowerOfChoiceState(zeros(self.num_clients, jnp.int32), self.highest)

    @one_program
    def select(
        self,
        key: TrialKeys,
        state: PowerOfChoiceState,
        available: Flags,
    ) -> tuple[Flags, PowerOfChoiceState]:
        """Return a cohort of K available clients, or nobody, and the new losses.

        Takes trials as trailing axes.
        """
        return over_trials(self, key, state, available)

    def _choose(
        self,
        steps: Steps,
        words: Words,
        state: PowerOfChoiceState,
        available: Array,
    ) -> tuple[Array, PowerOfChoiceState]:
        """Choose as `select` does."""
        counts, log_losses = state
        online = _ranking.count(available)
        works = online >= self.cohort_size
        wanted = jnp.where(works, jnp.minimum(self.num_candidates, online), 0)
        candidates = _ranking.k_smallest(words(0), available, wanted, steps)
        # at least 0, smallest for the highest loss
        gain = jnp.max(self.highest) - log_losses
        asked = jnp.where(works, self.cohort_size, 0)
        cohort = _ranking.k_smallest(words(1), candidates, asked, steps, gain)
        # A skipped round trains nothing: losses stay.
        moves = works.astype(jnp.int32)[None]
        ends = tuple(range(1, available.ndim))
        highest, lowest = (
            jnp.expand_dims(self.highest, ends),
            jnp.expand_dims(self.lowest, ends),
        )
        lower = jnp.maximum(log_losses - self.fall, lowest)
        higher = jnp.minimum(log_losses + self.rise * moves, highest)
        log_losses = jnp.where(cohort, lower, higher)
        return cohort, PowerOfChoiceState(counts + cohort.astype(jnp.int32), log_losses)


@also_traced
def power_of_choice(
    num_clients: int,
    cohort_size: int | Array,
    num_candidates: int | Array,
    *,
    initial_loss: Numbers = 1.0,
    final_loss: Numbers = 0.01,
    decay: float = 0.9,
    recovery: float = 1.01,
) -> PowerOfChoice:
    """Return power-of-choice selection on simulated losses.

    The K worst off of d candidates.
    Of the available clients d are drawn uniformly (all, where fewer are online), and
    the K with the highest loss are asked, ties uniformly; a round with fewer than K
    available is skipped. d = K is `uniform`. Larger d chases losses: fairer where
    losses are equal, biased to clients whose loss stays high, and like every scheme
    without blocks, T = 1 before long.

    The losses are a model, not measured: a round with client k multiplies F_k by
    `decay`, a round without by `recovery` (the others' updates undo some of it), within
    [final, initial]; a skipped round leaves them. Progress that all clients share does
    not change the ranking and is left out. Logarithms are integers in units of 2^-23,
    the same on every machine: losses that differ by less than 1e-7 of themselves may
    count as equal.

    Args:
        num_clients: N >= 1.
        cohort_size: K, from 1 to N.
        num_candidates: d, from K to N.
        initial_loss: F_k before training, positive: a number for everybody, or [N].
        final_loss: What F_k cannot fall below, positive, at most the initial: a number,
            or [N].
        decay: Factor of a client's loss in a round with it: 1, or from 1e-9 to 1 -
            6e-8.
        recovery: Factor in a round without it: 1, or from 1 + 6e-8 to 1e9.

    Returns:
        A selector; all numbers but N are data; K and d may be traced, and are not
        checked then.

    Raises:
        ConfigurationError: If a size is no positive integer, K <= d <= N does not hold,
            or a loss or a factor is outside its range or not finite, or so near 1 that
            it would count as 1.

    Examples:
        >>> import mrsa_jax as mj
        >>> scheme = mj.selection.power_of_choice(
        ...     4, 1, 4, initial_loss=[4.0, 1.0, 3.0, 2.0], decay=0.5
        ... )
        >>> history = mj.selection.rollout(
        ...     0, scheme, mj.availability.independent(0.0), 2
        ... )
        >>> history.argmax(axis=1).tolist()  # first the loss of 4, then the 3
        [0, 2]

    Source: Cho, Wang, Joshi (2020), Section 4, pi_pow-d. Differs in that candidates are
    drawn uniformly (equal data sets) among the available, and losses are simulated.
    """
    n, k, _ = sizes_as_data(num_clients, cohort_size)
    d = unless_traced(check_size, num_candidates, "num_candidates")
    if is_traced(k, d):
        # else nobody is asked
        k = jnp.where(is_whole(d, 1, n) & (k >= 1) & (k <= d), k, n + 1)
    else:
        require(k <= d, "num_candidates", "must be at least `cohort_size`", d, k)
        require(d <= n, "num_candidates", "must be at most `num_clients`", d, n)
    high = _losses(initial_loss, "initial_loss", n)
    low = _losses(final_loss, "final_loss", n)
    over = low > high
    wrong = low[over][:1].tolist() + high[over][:1].tolist()
    require(not wrong, "final_loss", "must be at most `initial_loss`", *wrong)
    down = one_number(decay, "decay")
    up = one_number(recovery, "recovery")
    require(0.0 < down <= 1.0, "decay", "must lie in (0, 1]", down)
    require(1.0 <= up <= 1e9, "recovery", "must lie in [1, 1e9]", up)
    require(down >= 1e-9, "decay", "must be at least 1e-9", down)
    fall, rise = np.negative(_units(np.asarray(down))), _units(np.asarray(up))
    for name, factor, step in (("decay", down, fall), ("recovery", up, rise)):
        require(
            factor == 1.0 or int(step) != 0,
            name,
            "must be 1 or differ from it by 6e-8 or more, not to be rounded to it",
            factor,
        )
    numbers = (_units(high), _units(low), fall, rise)
    highest, lowest, falls, rises = map(on_device, numbers)
    return PowerOfChoice(
        jnp.int32(k),
        jnp.int32(d),
        highest,
        lowest,
        falls,
        rises,
        n,
    )


def _losses(value: object, argument: str, num_clients: int) -> np.ndarray:
    losses = number_or_vector(value, argument)
    require(
        losses.ndim == 0 or losses.size == num_clients,
        argument,
        "must be one number or one for each client",
        f"{losses.size} numbers, {num_clients} clients",
    )
    bad = losses[~((losses >= 1e-30) & (losses <= 1e30))]
    require(bad.size == 0, argument, "must lie in [1e-30, 1e30]", *bad[:1].tolist())
    return np.broadcast_to(losses, (num_clients,))


def _units(values: np.ndarray) -> np.ndarray:
    """Return natural logarithms in units of 2^-23, int32."""
    return np.asarray(np.round(np.log(values) / _UNIT), np.int32)
