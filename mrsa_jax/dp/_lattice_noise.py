"""Noise on the integers, drawn exactly: Skellam and the discrete Gaussian.

The law that is drawn is that of a table of integer weights. It differs from the exact
one by a total variation distance below 2**-126 a draw (`_weights` has the proof), so a
mechanism of d coordinates and R rounds whose exact noise is (epsilon, delta) private
is, as drawn from ideal words, (epsilon, delta + (1 + exp(epsilon)) d R 2**-126)
private.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from mrsa_jax._core.array_types import Floats, PRNGKey
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.streams import block_words, entry_words
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.dp._laws import Kind, masses, reach
from mrsa_watch._base.errors import KNOWN, POSITIVE, check_number, require

# Each of 2**m columns holds 2**128 units, of one value up to its cut and of another
# beyond. A draw takes m random bits for a column and compares up to 128 further bits
# with the column's cut: no float appears, and the law drawn is exactly that of the
# integer weights.

CUT_BITS = 128
"""Bits of a column's cut."""
_OPEN = jnp.iinfo(jnp.int32).min


@pytree
class AliasTable:
    """A symmetric law on the integers, ready to be drawn from.

    Attributes:
        columns: uint32[2**m, 2], the highest word of each column's cut and the value
            beyond it; before it is the column's own index. Side by side, so that a draw
            meets one line of the cache.
        finer: uint32[3, 2**m], the lower words of the cut, the highest first.
        mask: uint32, 2**m - 1: columns that no draw takes may follow.
    """

    columns: Array
    finer: Array
    mask: Array


def alias_table(weights: list[int], room: int) -> AliasTable:
    """Return the table of magnitudes with these weights.

    Args:
        weights: Non-negative integers, 2**m of them, whose sum is 2**(m + 128).
        room: Columns of the table, at least 2**m: laws with the same room share
            programs.

    Source:
        A. J. Walker, "An efficient method for generating discrete random variables with
        general distributions" (1977); M. D. Vose, "A linear algorithm for generating
        random numbers with a given distribution" (1991). In integers nothing is left
        over.
    """
    size, capacity = len(weights), 1 << CUT_BITS
    rest = list(weights)
    cuts, others = [0] * size, list(range(size))
    low = [i for i, weight in enumerate(rest) if weight < capacity]
    high = [i for i, weight in enumerate(rest) if weight > capacity]
    while low:
        column, giver = low.pop(), high[-1]
        cuts[column], others[column] = rest[column], giver
        rest[giver] -= capacity - rest[column]
        if rest[giver] <= capacity:
            high.pop()
            if rest[giver] < capacity:
                low.append(giver)
    words = np.frombuffer(
        b"".join(cut.to_bytes(CUT_BITS // 8, "big") for cut in cuts), ">u4"
    )
    words = words.reshape(size, -1).astype(np.uint32)
    columns = np.stack([words[:, 0], np.asarray(others, np.uint32)], axis=1)
    more = ((0, room - size), (0, 0))
    columns, finer = np.pad(columns, more), np.pad(words[:, 1:], more).T
    return AliasTable(
        on_device(columns), on_device(finer), on_device(np.uint32(size - 1))
    )


@functools.partial(jax.jit, static_argnames="shape")
def draw(table: AliasTable, key: PRNGKey, shape: tuple[int, ...]) -> Int32[Array, "*_"]:
    """Return independent draws: entry i depends on the key and on i alone.

    A first pass decides by 32 bits of the cut and marks the draws that these leave
    open, one in 2**32; a loop, which seldom runs, decides them one after another by the
    other 96.

    Args:
        table: The law.
        key: One key.
        shape: Of the draws.
    """
    first = _draws(table, block_words(key, shape), None).ravel()
    if not first.size:
        return first.reshape(shape)

    def decide(state: Any) -> Any:
        _, draws = state
        place = jax.lax.argmax(draws == _OPEN, 0, jnp.uint32)
        words, *further = (entry_words(key, place, block) for block in range(4))
        draws = draws.at[place].set(_draws(table, words, [each for each, _ in further]))
        return jnp.any(draws == _OPEN), draws

    # Whether any draw is open is asked outside the condition, where all cores take
    # part.
    state = jnp.any(first == _OPEN), first
    return jax.lax.while_loop(lambda state: state[0], decide, state)[1].reshape(shape)


def _draws(
    table: AliasTable,
    words: tuple[Array, Array],
    further: list[UInt32[Array, "*_"]] | None,
) -> Int32[Array, "*_"]:
    """Return draws by their words.

    Those that need `further` ones are `_OPEN` without them.
    """
    place, fine = words
    column = (place & table.mask).astype(jnp.int32)
    cut, other = table.columns[column, 0], table.columns[column, 1]
    is_own, is_open = fine < cut, fine == cut
    if further is not None:
        for word, cuts in zip(further, table.finer, strict=True):
            is_own |= is_open & (word < cuts[column])
            is_open &= word == cuts[column]
    magnitude = jnp.where(is_own, column, other.astype(jnp.int32))
    draws = jnp.where(place >> 31 == 1, -magnitude, magnitude)
    return draws if further is not None else jnp.where(is_open, _OPEN, draws)


MAX_VARIANCE = 2.0**32
"""Of what is drawn: a standard deviation of 2**16 steps, a table of 2**20 columns."""
_LEAST_SIZE = 2**8
_TAIL_BITS = CUT_BITS + 1.0


@pytree
class LatticeNoise:
    """One client's noise on integers (build it with `skellam` or `discrete_gaussian`).

    Attributes:
        kind: "skellam" or "discrete_gaussian".
        words: uint32[2], the bits of the variance as a float64, the higher first: exact
            whatever width JAX's numbers have.
        table: What is drawn from; None where the variance is above 2**32.
    """

    cites = (
        "noise in the ring: kairouz2021distributed agarwal2021skellam dong2022gaussian"
    )

    kind: Kind = static()
    words: Array
    table: AliasTable | None

    @property
    def variance(self) -> float:
        """Return the variance (the discrete Gaussian's parameter), in squared steps."""
        require(not is_traced(self.words), "noise", KNOWN, self.words)
        return float(np.asarray(self.words).astype(">u4").view(">f8")[0])

    def on(self, step: float | int | np.number) -> LatticeNoise:
        """Return the same noise on the lattice of a step: of variance / step**2.

        Args:
            step: Distance of neighbouring lattice points, positive.

        Returns:
            The noise whose variance is the float64 nearest to that quotient.

        Raises:
            ConfigurationError: If the step is not positive and finite, or so small that
                the noise's standard deviation would pass 2**16 steps.

        Examples:
            >>> import mrsa_jax as mj
            >>> mj.dp.skellam(4.0).on(0.5).variance
            16.0
        """
        width = check_number(step, "step", "must be positive", POSITIVE)
        exact = Fraction(self.variance) / Fraction(width) ** 2
        least = math.sqrt(self.variance / MAX_VARIANCE)
        rule = f"must be at least {least:.3g}: the noise is drawn up to 2**16 steps"
        require(exact <= MAX_VARIANCE, "step", rule, step)
        require(
            float(exact) > 0.0, "step", "must leave noise of a positive variance", step
        )
        return _noise(self.kind, float(exact))

    def sample(self, key: PRNGKey, shape: tuple[int, ...]) -> Int32[Array, "*_"]:
        """Draw independent integers by integer arithmetic alone.

        Entry i (in order of rows) depends on the key and on i, not on the shape: 64
        bits of Threefry decide it, and 96 further ones where these do not.

        Args:
            key: One key.
            shape: Of the draws.

        Raises:
            ConfigurationError: If the variance is above 2**32.

        Examples:
            >>> import mrsa_jax as mj
            >>> import jax
            >>> noise, key = mj.dp.skellam(4.0), jax.random.key(1)
            >>> draws = noise.sample(key, (6,))
            >>> bool((draws[:3] == noise.sample(key, (3,))).all())
            True
        """
        rule = (
            "must be at most 2**32 where it is drawn: "
            "use a larger step (a smaller scale)"
        )
        require(self.table is not None, "variance", rule, self.words)
        return draw(self.table, key, tuple(shape))

    def mass(self, k: Any) -> Floats:
        """Return P(X = k) to float64's digits.

        Args:
            k: Integers of any shape.

        Examples:
            >>> import mrsa_jax as mj
            >>> mj.dp.discrete_gaussian(0.5).mass([0, 1, -1]).round(6).tolist()
            [0.564131, 0.207532, 0.207532]
        """
        points = np.asarray(k)
        require(points.dtype.kind in "iu", "k", "must hold integers", k)
        unique, places = np.unique(np.abs(points.astype(np.int64)), return_inverse=True)
        values = np.zeros(unique.shape, np.float64)
        for run in np.split(
            np.arange(unique.size), np.flatnonzero(np.diff(unique) > 64) + 1
        ):
            if run.size:
                first, last = int(unique[run[0]]), int(unique[run[-1]])
                here = masses(self.kind, self.variance, first, last)
                values[run] = [
                    float(here[value - first]) for value in unique[run].tolist()
                ]
        return np.asarray(values[places]).reshape(points.shape)


@needs_values
def skellam(variance: float | int | np.number) -> LatticeNoise:
    """Return Skellam noise: the difference of two Poisson counts of mean variance / 2.

    A sum of n draws is Skellam noise of n times the variance, exactly.

    Args:
        variance: In squared units of what the noise is added to, positive;
            `LatticeNoise.on` brings it to a lattice of another step than 1.

    Raises:
        ConfigurationError: If the variance is not positive and finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> noise = mj.dp.skellam(4.0)
        >>> noise.kind, noise.variance, noise.sample(jax.random.key(0), (2, 3)).shape
        ('skellam', 4.0, (2, 3))

    Source:
        N. Agarwal, P. Kairouz, Z. Liu, "The Skellam mechanism for differentially
        private federated learning" (2021).
    """
    return _noise(
        "skellam", check_number(variance, "variance", "must be positive", POSITIVE)
    )


@needs_values
def discrete_gaussian(variance: float | int | np.number) -> LatticeNoise:
    """Return discrete Gaussian noise: masses in proportion to exp(-k^2 / (2 variance)).

    Args:
        variance: The parameter sigma^2, positive; the variance of the law itself is
            below it, by less than 1e-6 of it from 1 on.

    Raises:
        ConfigurationError: If the variance is not positive and finite.

    Source:
        C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential
        privacy" (2020).
    """
    number = check_number(variance, "variance", "must be positive", POSITIVE)
    return _noise("discrete_gaussian", number)


def _noise(kind: Kind, variance: float) -> LatticeNoise:
    words = on_device(np.asarray([variance], ">f8").view(">u4").astype(np.uint32))
    return LatticeNoise(
        kind, words, _table(kind, variance) if variance <= MAX_VARIANCE else None
    )


@functools.lru_cache(maxsize=32)
def _table(kind: Kind, variance: float) -> AliasTable:
    """Return the table, with room for 2**8, 2**12, 2**16 or 2**20 columns."""
    weights = _weights(kind, variance)
    length = len(weights).bit_length() - 1
    return alias_table(weights, 1 << -(-length // 4) * 4)


def _weights(kind: Kind, variance: float) -> list[int]:
    """Return weights of the 2**m magnitudes 0, 1, ..., whose sum is 2**(m + 128).

    Weight k > 0 is the floor of P(|X| = k) 2**(m + 128), up to a point K < 2**m beyond
    which P(|X| > K) < 2**-129; what the floors leave goes to 0. So the law of the
    weights has more mass than the exact one at 0 alone, and the total variation
    distance is what was moved there, less than 2**m 2**-(m + 128) + 2**-129 < 2**-126.
    """
    import flint

    last = reach(kind, variance, _TAIL_BITS)
    exact = masses(kind, variance, 0, last)
    size = max(_LEAST_SIZE, 1 << last.bit_length())
    shift = size.bit_length() - 1 + CUT_BITS
    with flint.ctx.workprec(1024):
        rest = 1 - exact[0] - 2 * sum(exact[1:], flint.arb(0))
        assert bool(rest < flint.arb(2) ** flint.arb(-_TAIL_BITS))
        unit = flint.arb(2) ** (shift + 1)
        scaled = (mass * unit for mass in exact[1:])
        floors = [
            0 if bool(units < 1) else int(units.floor().unique_fmpz())
            for units in scaled
        ]
    weights = [0, *floors] + [0] * (size - last - 1)
    weights[0] = (1 << shift) - sum(weights)
    return weights
