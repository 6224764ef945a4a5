"""Clients who stay away for a while: an on/off Markov chain for each.

A departure from the papers' model, in which rounds do not depend on each other: devices
that go offline stay so for some rounds, with the same long-run dropout rate. p_i ->
`dropout_rate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from mrsa_jax._core.array_types import Flags, Numbers, PRNGKey, TrialKeys
from mrsa_jax._core.arrays import number_or_vector, on_device
from mrsa_jax._core.factories import also_traced, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import Calls, pytree
from mrsa_jax._core.streams import (
    ALWAYS,
    Seed,
    as_key,
    chances_typed,
    check_chances,
    client_words,
    happens,
    spread,
    threshold,
    threshold_chance,
)
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_watch._base.errors import ConfigurationError, check_count, nearest, require

# Multi-RoundSecAgg (AAAI version), Section 4: client i is available with chance 1 -
# p_i, independently over clients and rounds. p_i -> `dropout_rate`.

_WAYS = ("shuffled", "cyclic", "sorted")


@pytree
class Independent:
    """Independent dropouts; built by `independent`.

    Attributes:
        thresholds: uint32, one for all clients or [N]: a client is away in a round when
            its word is below, so that rates are exact to 2**-32.
    """

    thresholds: Array
    takes_trials: ClassVar[bool] = True
    _period: ClassVar[int] = 1

    def typed(self) -> Calls:
        """Return the call that made it."""
        return [(independent, chances_typed(self.thresholds))]

    @property
    def dropout_rates(self) -> np.ndarray:
        """float64 of the thresholds' shape.

        Chance to be offline, the same in every round.
        """
        return threshold_chance(np.asarray(self.thresholds))

    def for_clients(self, num_clients: int) -> Independent:
        """Return the model with a rate for each of `num_clients` clients.

        Raises:
            ConfigurationError: If it holds rates of another number of clients.
        """
        return Independent(spread(self.thresholds, "dropout_rate", num_clients, "rate"))

    def init(self, key: PRNGKey) -> None:
        """Return None: rounds do not depend on each other."""
        del key

    def _limits(self, num_rounds: int) -> np.ndarray:
        """Return the thresholds that compiled rollouts compare words with.

        A row for all rounds, on the host.
        """
        del num_rounds
        return np.asarray(self.thresholds)[None]

    @one_program
    def sample(self, key: TrialKeys, state: None) -> tuple[Flags, None]:
        """Draw who is online; client i's draw does not depend on the number of clients.

        Keys of many trials give trials as trailing axes. One rate for an unknown number
        of clients must be spread by `for_clients` first.
        """
        require(
            self.thresholds.ndim == 1,
            "dropout_rate",
            "must be one rate for each client (`for_clients` spreads a single one)",
            f"shape {self.thresholds.shape}",
        )
        words = client_words(key, self.thresholds.shape[-1])
        return self._drawn(lambda _: words, state)

    def _drawn(self, words: Callable[[int], Array], state: None) -> tuple[Array, None]:
        """Draw as `sample` does, by a word of each client."""
        return ~happens(words(0), self.thresholds), state


@also_traced
def independent(dropout_rate: Any) -> Independent:
    """Return the model in which clients drop out of each round independently.

    Args:
        dropout_rate: p, probability to be offline in a round: a number in [0, 1] for
            all clients (any number of them), or one for each, [N]. 0 means always
            online, 1 never; others are rounded to multiples of 2^-32.

    Returns:
        The model, a pytree; rates are traced, so that changing them compiles nothing
        new.

    Raises:
        ConfigurationError: If a rate is not a number in [0, 1], or there is none.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> model = mj.availability.independent([0.0, 1.0])
        >>> available, _ = model.sample(
        ...     jax.random.key(0), model.init(jax.random.key(1))
        ... )
        >>> available.tolist()
        [True, False]

    Source: Multi-RoundSecAgg, Section 4, and Section 6, "Modeling dropouts".
    """
    rates = check_chances(dropout_rate, "dropout_rate", as_data=True)
    return Independent(on_device(threshold(rates, illegal=ALWAYS)))


@needs_values
def assign_rates(
    seed: Seed,
    rates: Sequence[float],
    num_clients: int,
    how: Literal["shuffled", "cyclic", "sorted"] = "shuffled",
) -> Float32[np.ndarray, " clients"]:
    """Spread a few dropout rates evenly over clients.

    With blocks of consecutive clients the assignment decides who shares a block, and
    moves the aggregation cardinality a lot; the papers do not say which they use.

    Args:
        seed: Integer or key of the shuffle.
        rates: The rates; each goes to as many clients as the others, give or take one.
        num_clients: N.
        how: `"shuffled"` over the clients (mixed blocks), `"cyclic"`, or `"sorted"` in
            the order given (blocks of equal rates).

    Returns:
        float32[N].

    Raises:
        ConfigurationError: For no rates, rates outside [0, 1], or an unknown way.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.availability.assign_rates(0, [0.25, 0.5], 4, how="cyclic").tolist()
        [0.25, 0.5, 0.25, 0.5]
        >>> sorted(mj.availability.assign_rates(7, [0.25, 0.5], 4).tolist())
        [0.25, 0.25, 0.5, 0.5]
    """
    if how not in _WAYS:
        raise ConfigurationError(
            f"`how` must be a known way; got {how!r}; {nearest(how, _WAYS)}"
        )
    check_count(num_clients, "num_clients", "must be at least 1")
    exact = np.atleast_1d(check_chances(rates, "rates"))
    values = exact.astype(np.float32)
    # what is between 0 and 1 stays so in float32
    inside = np.clip(
        values, np.finfo(np.float32).tiny, np.nextafter(np.float32(1), np.float32(0))
    )
    values = np.where((exact > 0.0) & (exact < 1.0), inside, values)
    # dealt out in turn, so that no rate has two clients more than another
    place = np.arange(num_clients) % values.size
    if how == "sorted":
        place = np.sort(place)
    elif how == "shuffled" and values.size > 1:
        # drawn for more clients: a client's word does not depend on N, and few sizes
        # compile
        drawn = max(1024, 1 << (num_clients - 1).bit_length())
        words = np.asarray(client_words(as_key(seed), drawn))[:num_clients]
        place = place[np.argsort(words, kind="stable")]
    return values[place]


@pytree
class Markov:
    """On/off chains; build it with `markov`.

    Attributes:
        away: uint32, one for all clients or [N]: threshold of the stationary chance to
            be offline.
        leave: uint32, threshold of the chance that an online client is offline in the
            next round.
        back: uint32, threshold of the chance that an offline client is online in the
            next round.
    """

    away: Array
    leave: Array
    back: Array
    takes_trials: ClassVar[bool] = True
    _period: ClassVar[int] = 0  # rounds depend on those before

    def typed(self) -> Calls:
        """Return the calls that may have made it, of one rate for everybody."""
        if self.back.ndim or not int(self.back):
            return []
        rate, mean = (
            chances_typed(self.away),
            1 / float(threshold_chance(np.asarray(self.back))),
        )
        return [(markov, rate, float(f"{mean:.{digits}g}")) for digits in range(1, 11)]

    def for_clients(self, num_clients: int) -> Markov:
        """Return the model with a chain for each of `num_clients` clients.

        Raises:
            ConfigurationError: If it holds chains of another number of clients.
        """
        thresholds = self.away, self.leave, self.back
        return Markov(*(spread(a, "dropout_rate", num_clients) for a in thresholds))

    def _limits(self, num_rounds: int) -> np.ndarray:
        """Return the thresholds on the host.

        To leave, to come back, of the first state.
        """
        del num_rounds
        return np.stack(
            [
                np.asarray(thresholds)
                for thresholds in (self.leave, self.back, self.away)
            ]
        )

    @one_program
    def init(self, key: PRNGKey) -> Bool[Array, " clients"]:
        """Draw the clients online before the first round from the stationary law."""
        return ~happens(client_words(key, self.away.shape[-1]), self.away)

    @one_program
    def sample(self, key: TrialKeys, state: Flags) -> tuple[Flags, Flags]:
        """Move every chain one round on.

        Return who is online, which is also the next state.
        """
        words = client_words(key, self.away.shape[-1])
        return self._drawn(lambda _: words, state)

    def _drawn(
        self, words: Callable[[int], Array], state: Array
    ) -> tuple[Array, Array]:
        """Draw as `sample` does, by a word of each client."""
        word = words(0)
        # one word decides both: whether a client leaves, or whether it comes back
        online = jnp.where(state, ~happens(word, self.leave), happens(word, self.back))
        return online, online


@also_traced
def markov(
    dropout_rate: Numbers,
    mean_absence: Numbers,
) -> Markov:
    """Return the model in which each client is an on/off chain.

    Absences last for a while.
    For the same dropout rate, long absences leave the same few clients online round
    after round, so histories repeat; compare with `independent` (the special case m =
    1/(1 - p)). With p the stationary chance to be offline and m the mean number of
    rounds that an absence lasts, an offline client comes back with chance 1/m and an
    online one leaves with chance p / ((1 - p) m). The first round is drawn from the
    stationary law, so every round has it; the correlation of two rounds at distance d
    is (1 - 1/m - p/((1 - p) m))^d.

    Args:
        dropout_rate: p, stationary chance to be offline, in [0, 1]: a number or [N] of
            them.
        mean_absence: m, mean length of an absence in rounds, at least 1 and at least
            p/(1 - p) (shorter ones cannot make up the rate; p = 1 is always offline): a
            number or [N].

    Returns:
        The model, a pytree; its numbers are data.

    Raises:
        ConfigurationError: If a rate is outside [0, 1], an absence too short or not
            finite, or two vectors differ in length.

    Examples:
        >>> import mrsa_jax as mj
        >>> history = mj.selection.rollout(
        ...     0,
        ...     mj.selection.bernoulli(2, 1.0),
        ...     mj.availability.markov([0.0, 1.0], 5.0),
        ...     num_rounds=3,
        ... )
        >>> history.tolist()
        [[True, False], [True, False], [True, False]]

    Source: none of the papers; Multi-RoundSecAgg, Section 4, assumes independent
    rounds.
    """
    p = check_chances(dropout_rate, "dropout_rate", as_data=True)
    m = unless_traced(number_or_vector, mean_absence, "mean_absence", axes=1)
    numbers: Any = jnp if is_traced(p, m) else np
    if numbers is np:
        bad = m[~(m >= 1.0)]
        require(
            bad.size == 0, "mean_absence", "must be at least 1 round", *bad[:1].tolist()
        )
    fits = p.ndim == 0 or m.ndim == 0 or p.size == m.size
    require(
        fits,
        "mean_absence",
        "must be one number or as many as `dropout_rate`",
        f"{m.size} numbers",
        f"{p.size} rates",
    )
    p, m = numbers.broadcast_arrays(p, m)
    always = p == 1.0
    back = numbers.where(always, 0.0, 1.0 / m)
    leave = numbers.where(always, 1.0, p / numbers.where(always, 1.0, (1.0 - p) * m))
    if numbers is np:
        short = leave > 1.0 + 1e-9
        got = (*m[short][:1].tolist(), *p[short][:1].tolist())
        require(
            not short.any(),
            "mean_absence",
            "must be at least p / (1 - p) rounds for a `dropout_rate` of p",
            *got,
        )
    else:  # nobody is ever online
        legal = (p >= 0) & (p <= 1) & (m >= 1) & (m < jnp.inf) & (leave < 1.0 + 1e-5)
        p, leave, back = (
            jnp.where(legal, chance, jnp.nan) for chance in (p, leave, back)
        )
    chances = ((p, ALWAYS), (numbers.minimum(leave, 1.0), ALWAYS), (back, 0))
    return Markov(
        *(on_device(threshold(chance, illegal=illegal)) for chance, illegal in chances)
    )


@runtime_checkable
class Availability(Protocol):
    """Model of the clients online in each round: a pytree whose numbers are leaves.

    `state` is what the next round needs (None for a model without memory). `sample` is
    written for one trial; a model whose class has `takes_trials = True` also takes keys
    [B] (its state's last axis, if any, being the trials) and returns [N, B]. Other
    models are mapped by `jax.vmap`. One whose rounds and clients are independent, with
    the same chances in every round, has these as `dropout_rates`.
    """

    def for_clients(self, num_clients: int) -> Availability:
        """Return the model for a number of clients; a single rate serves them all."""

    def init(self, key: PRNGKey) -> Any:
        """Return the state before the first round."""

    def sample(self, key: PRNGKey, state: Any) -> tuple[Bool[Array, " clients"], Any]:
        """Return the clients online in a round, bool[N], and the next state."""


# CCESA, Section 2 and Algorithm 1: V0 is the cohort; V1, V2, V3 and V4 are the clients
# still there after key exchange, share distribution, masked inputs and unmasking, each
# within the one before. The sum is over V3. q -> `step_dropout_rate`, q_total = 1 - (1
# - q)^4 -> `total_dropout_rate`.

_STEPS = 4


@runtime_checkable
class StepDropout(Protocol):
    """Model of survivors of the protocol's steps: a pytree whose numbers are leaves.

    `sample` is written for one round; a model whose class has `takes_trials = True`
    also takes keys [B] and cohorts [n, B], and returns [5, n, B]. Other models are
    mapped by `jax.vmap`.
    """

    def sample(
        self, key: PRNGKey, cohort: Bool[Array, " clients"]
    ) -> Bool[Array, "5 clients"]:
        """Return V0 (the cohort) to V4 as rows, each within the one before."""


@pytree
class IndependentSteps:
    """Clients who leave at each step independently; built by `independent_steps`.

    Attributes:
        thresholds: uint32[4] or [4, N], non-decreasing: a client has left by step s
            when its word is below entry s - 1, so that one word per client decides all
            steps.
    """

    thresholds: Array
    takes_trials: ClassVar[bool] = True

    @one_program
    def sample(self, key: TrialKeys, cohort: Flags) -> Bool[Array, "5 clients *trials"]:
        """Return V0 to V4; client i's draw does not depend on the number of clients.

        Keys of many trials give trials as trailing axes.
        """
        num_clients = cohort.shape[0]
        rates = self.thresholds.shape[1:]
        require(
            rates in ((), (num_clients,)),
            "step_dropout_rate",
            f"must be one rate or {num_clients}, one for each client",
            f"shape {rates}",
        )
        words = client_words(key, num_clients)
        # thresholds do not decrease, so whoever left at a step is gone at later ones
        gone_by = [happens(words, self.thresholds[step]) for step in range(_STEPS)]
        return jnp.stack([cohort, *(cohort & ~gone for gone in gone_by)])


@also_traced
def independent_steps(
    step_dropout_rate: Numbers,
) -> IndependentSteps:
    """Return the model in which clients leave at each of four steps with chance q.

    Args:
        step_dropout_rate: q in [0, 1], for everybody or [N]: the chance to leave at one
            step of those who are still there. Chances to have left by a step are
            rounded to multiples of 2^-32.

    Returns:
        The model, a pytree; rates are traced, so that changing them compiles nothing
        new.

    Raises:
        ConfigurationError: If a rate is not a number in [0, 1], or there is none.

    Edge cases: q = 0 keeps everybody; q = 1 leaves V1 to V4 empty.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> import jax
        >>> model = mj.availability.independent_steps([0.0, 1.0])
        >>> model.sample(jax.random.key(0), jnp.asarray([True, True])).tolist()[3:]
        [[True, False], [True, False]]

    Source: CCESA, Section 2 (dropout of each step independent, with one rate q).
    """
    rates = check_chances(step_dropout_rate, "step_dropout_rate", as_data=True)
    steps = np.arange(1, _STEPS + 1, dtype=np.float64).reshape(
        (-1,) + (1,) * rates.ndim
    )
    numbers = jnp if is_traced(rates) else np
    with np.errstate(divide="ignore"):
        # 1 - (1 - q)^s, by logarithms so that small q keep their digits
        gone_by = -numbers.expm1(steps * numbers.log1p(-rates)[None])
    return IndependentSteps(on_device(threshold(gone_by, illegal=ALWAYS)))
