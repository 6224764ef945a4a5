"""How much slower than its nominal speed a client is.

Distributions of slow-down factors.
Small pytrees for `latency_model`. The shifted exponential is the usual model of
stragglers in distributed computing, the Pareto the one with heavy tails.
"""

from __future__ import annotations

import functools
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Key

from mrsa_jax._core.arrays import one_program, pytree
from mrsa_jax._core.streams import client_words
from mrsa_watch._base.errors import POSITIVE, check_number


@runtime_checkable
class Slowdown(Protocol):
    """A distribution of slow-down factors: a pytree whose numbers are leaves."""

    def sample(
        self, key: Key[Array, ""], num_clients: int
    ) -> Float32[Array, " clients"]:
        """Return one factor for each client; 1 is the nominal speed, 2 half of it."""
        ...


@pytree
class Steady:
    """Everybody slower by the same factor; built by `steady`."""

    factor: Array

    def sample(
        self, key: Key[Array, ""], num_clients: int
    ) -> Float32[Array, " clients"]:
        """Return the factor for each client."""
        del key
        return jnp.broadcast_to(self.factor, (num_clients,))


@pytree
class ExponentialTail:
    """A fastest factor plus an exponential excess; built by `exponential_tail`."""

    fastest: Array
    mean_excess: Array

    @functools.partial(one_program, static_argnums=2)
    def sample(
        self, key: Key[Array, ""], num_clients: int
    ) -> Float32[Array, " clients"]:
        """Return one factor for each client."""
        return self.fastest - self.mean_excess * jnp.log(_uniform(key, num_clients))


@pytree
class LogNormal:
    """Factors whose logarithm is normal; built by `lognormal`."""

    median: Array
    sigma: Array

    @functools.partial(one_program, static_argnums=2)
    def sample(
        self, key: Key[Array, ""], num_clients: int
    ) -> Float32[Array, " clients"]:
        """Return one factor for each client."""
        normal = jax.scipy.special.ndtri(_uniform(key, num_clients))
        return self.median * jnp.exp(self.sigma * normal)


@pytree
class Pareto:
    """Factors above the fastest with a tail of power -shape; built by `pareto`."""

    fastest: Array
    shape: Array

    @functools.partial(one_program, static_argnums=2)
    def sample(
        self, key: Key[Array, ""], num_clients: int
    ) -> Float32[Array, " clients"]:
        """Return one factor for each client."""
        return self.fastest * jnp.exp(-jnp.log(_uniform(key, num_clients)) / self.shape)


def steady(factor: float | int = 1.0) -> Steady:
    """Return the distribution in which every client is slower by the same factor.

    Args:
        factor: Positive; 1 for the nominal speed.

    Raises:
        ConfigurationError: If `factor` is not positive and finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> mj.secagg.costs.steady(2).sample(jax.random.key(0), 3).tolist()
        [2.0, 2.0, 2.0]
    """
    return Steady(positive(factor, "factor"))


def exponential_tail(
    mean_excess: float | int, fastest: float | int = 1.0
) -> ExponentialTail:
    """Return the shifted exponential: a fastest factor plus an exponential excess.

    The slowest of n clients is slower by `fastest` + `mean_excess` (1 + 1/2 + ... +
    1/n) on average. Draws come from 24 bits, so an excess never exceeds 18 times its
    mean.

    Args:
        mean_excess: Mean of the excess, at least 0.
        fastest: Positive.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> bool((mj.secagg.costs.exponential_tail(0.5).sample(jax.random.key(0), 50) > 1.0).all())
        True
    """
    return ExponentialTail(
        positive(fastest, "fastest"), not_negative(mean_excess, "mean_excess")
    )


def lognormal(sigma: float | int, median: float | int = 1.0) -> LogNormal:
    """Return the distribution of median exp(sigma Z), Z standard normal.

    Args:
        sigma: Deviation of the logarithm, at least 0.
        median: Positive.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> costs = mj.secagg.costs
        >>> sample = jax.jit(costs.lognormal(0.0, 3.0).sample, static_argnums=1)  # one program
        >>> sample(jax.random.key(0), 2).tolist()
        [3.0, 3.0]
    """
    return LogNormal(positive(median, "median"), not_negative(sigma, "sigma"))


def pareto(shape: float | int, fastest: float | int = 1.0) -> Pareto:
    """Return the distribution with P(factor > x) = (fastest / x)^shape above `fastest`.

    Args:
        shape: Positive; the mean is infinite up to 1, the variance up to 2.
        fastest: Positive.

    Raises:
        ConfigurationError: If an argument is not positive and finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> bool((mj.secagg.costs.pareto(3.0).sample(jax.random.key(0), 50) >= 1.0).all())
        True
    """
    return Pareto(positive(fastest, "fastest"), positive(shape, "shape"))


def positive(value: float | int, argument: str) -> Float32[Array, ""]:
    """Return a positive finite number as float32, or raise naming `argument`."""
    rule = "must be positive and finite"
    return jnp.float32(
        check_number(value, argument, rule, POSITIVE, kind="must be a number")
    )


def not_negative(value: float | int, argument: str) -> Float32[Array, ""]:
    """Return a finite number of at least 0 as float32, or raise naming `argument`."""
    rule = "must be at least 0 and finite"
    return jnp.float32(
        check_number(value, argument, rule, 0.0, kind="must be a number")
    )


@functools.partial(one_program, static_argnums=1)
def _uniform(key: Key[Array, ""], num_clients: int) -> Float32[Array, " clients"]:
    """Return draws in (0, 1), multiples of 2^-24 plus half of that; never 0 or 1."""
    words = client_words(key, num_clients) >> jnp.uint32(8)
    return jnp.minimum(
        (words.astype(jnp.float32) + jnp.float32(0.5)) * jnp.float32(2.0**-24),
        jnp.float32(1.0 - 2.0**-24),
    )
