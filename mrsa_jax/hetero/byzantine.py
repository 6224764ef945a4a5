"""Byzantine clients of a round of HeteroSAg.

What they do to updates, residues and block averages.
HeteroSAg, Sections V-A and VI-C. An attacker is a pytree that says who attacks and how,
at one of three places: the update before it is quantized, the residues that are sent,
or (the paper's model of its experiment) the averages of the blocks that an attacker
sits in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Integer, Key, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.prime import multiply_wide
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.streams import random_words
from mrsa_jax._core.traced import needs_values
from mrsa_watch._base.errors import check_finite, nearest, require

_Clients = ArrayLike | Sequence[Any]
_Key = Key[Array, ""]
_Mine = Bool[Array, " participants"]
_Updates = Float32[Array, "participants dim"]
_Codes = UInt32[Array, "participants dim"]
_Modulus = UInt32[Array, ""]
_Average = Float32[Array, " dim"]
_Touched = Bool[Array, ""]

UpdateAttack = Callable[[_Key, _Updates, _Mine], _Updates]
"""(key, updates, mine) -> what attackers make of updates.

The others' rows must not change.
Rows of clients that are not there are zeros, marked `mine`; what is made of them is not
read.
"""
ResidueAttack = Callable[[_Key, _Codes, _Modulus, _Mine], _Codes]
"""(key, codes, modulus, mine) -> what is sent; the others' rows must not change."""
AverageAttack = Callable[[_Key, _Average, _Touched], _Average]
"""(key, average, is_touched) -> what becomes of the average of a block."""


@pytree
class Byzantine:
    """Attackers and their attack (from `wrong_pads`, `sign_flip`, `collusion`, ...).

    Attacks on several places combine:
    `dataclasses.replace(sign_flip(who), on_residues=...)`.

    Attributes:
        is_byzantine: bool[N], by global client id.
        on_updates: An `UpdateAttack`, or None.
        on_residues: A `ResidueAttack`, or None.
        on_averages: An `AverageAttack`, or None.
    """

    is_byzantine: Array
    on_updates: Any = None
    on_residues: Any = None
    on_averages: Any = None

    @one_program
    def mine(self, members: Integer[Array, " participants"]) -> _Mine:
        """Return the attacking slots of a round, given the client of each slot."""
        return self.is_byzantine[members]

    def corrupt_updates(self, key: _Key, updates: _Updates, mine: _Mine) -> _Updates:
        """Return the updates that are quantized.

        Attackers' rows replaced, the others kept.
        """
        return (
            updates if self.on_updates is None else self.on_updates(key, updates, mine)
        )

    def corrupt_residues(
        self, key: _Key, codes: _Codes, modulus: _Modulus, mine: _Mine
    ) -> _Codes:
        """Return the codes that are sent, without pads.

        The ring has `modulus` elements (0 for 2**32).
        """
        return (
            codes
            if self.on_residues is None
            else self.on_residues(key, codes, modulus, mine)
        )

    def corrupt_average(
        self, key: _Key, average: _Average, is_touched: _Touched
    ) -> _Average:
        """Return a block's average as the server has it.

        `is_touched`: an attacker is in it.
        """
        return (
            average
            if self.on_averages is None
            else self.on_averages(key, average, is_touched)
        )


@pytree
class Scaling:
    """Multiply the attackers' updates.

    Attributes:
        factor: float32.
    """

    factor: Array

    @one_program
    def __call__(self, key: _Key, updates: _Updates, mine: _Mine) -> _Updates:
        """Return the updates that the round continues with."""
        del key
        return jnp.where(mine[:, None], self.factor * updates, updates)


@pytree
class Collusion:
    """Give all attackers one update.

    Mean_factor mean + sigma_factor std of the honest ones.

    Attributes:
        mean_factor: float32.
        sigma_factor: float32.
    """

    mean_factor: Array
    sigma_factor: Array

    def __call__(self, key: _Key, updates: _Updates, mine: _Mine) -> _Updates:
        """Return the updates that the round continues with."""
        del key
        honest = ~mine
        count = jnp.sum(honest, dtype=jnp.float32)
        divisor = jnp.maximum(count, jnp.float32(1))
        seen = jnp.where(honest[:, None], updates, jnp.float32(0))
        mean = jnp.sum(seen, axis=0) / divisor
        apart = jnp.where(honest[:, None], updates - mean[None], jnp.float32(0))
        deviation = jnp.sqrt(jnp.sum(apart * apart, axis=0) / divisor)
        agreed = self.mean_factor * mean + self.sigma_factor * deviation
        # with nobody to imitate, attackers keep their own
        return jnp.where(
            (mine & (count > jnp.float32(0)))[:, None], agreed[None], updates
        )


@pytree
class UniformResidues:
    """Send uniform residues.

    What a client's input is under pads that nobody can remove.
    """

    @one_program
    def __call__(
        self, key: _Key, codes: _Codes, modulus: _Modulus, mine: _Mine
    ) -> _Codes:
        """Return the residues that the ring sum continues with."""
        return jnp.where(
            mine[:, None], _uniform_residues(key, codes.shape, modulus), codes
        )


@pytree
class GaussianAverage:
    """Replace a block's average by noise.

    Attributes:
        std: Of each coordinate, float32.
    """

    std: Array

    def __call__(self, key: _Key, average: _Average, is_touched: _Touched) -> _Average:
        """Return the average that the server continues with."""
        noise = self.std * jax.random.normal(key, average.shape, jnp.float32)
        return jnp.where(is_touched, noise, average)


@needs_values
def wrong_pads(is_byzantine: _Clients) -> Byzantine:
    """Return clients that pad with arbitrary words.

    Each of their blocks sums to uniform residues.
    Their wrong pads never cancel, so that to the server they add uniform residues of
    the ring in every block that they are in, whatever their updates are.

    Args:
        is_byzantine: bool[N], by client.

    Returns:
        The attackers.

    Raises:
        ConfigurationError: If `is_byzantine` is no vector of bools.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> byzantine = mj.hetero.byzantine
        >>> codes = jnp.zeros((2, 3), jnp.uint32)
        >>> who = jnp.asarray([False, True])
        >>> sent = byzantine.wrong_pads(who).corrupt_residues(
        ...     jax.random.key(0), codes, jnp.uint32(9), who
        ... )
        >>> sent[0].tolist(), bool((sent < 9).all())
        ([0, 0, 0], True)

    Source: HeteroSAg, Section VI-C, Experiment 2.
    """
    return Byzantine(_checked_clients(is_byzantine), on_residues=UniformResidues())


@needs_values
def sign_flip(is_byzantine: _Clients, factor: float | int = 1.0) -> Byzantine:
    """Return clients that send -factor times their update (clipped like everybody's).

    Args:
        is_byzantine: bool[N], by client.
        factor: Positive.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> byzantine = mj.hetero.byzantine
        >>> updates, who = jnp.ones((2, 1), jnp.float32), jnp.asarray([False, True])
        >>> attack, key = byzantine.sign_flip(who, 2), jax.random.key(0)
        >>> attack.corrupt_updates(key, updates, who).tolist()
        [[1.0], [-2.0]]
    """
    number = check_finite(factor, "factor")
    require(number > 0.0, "factor", "must be positive", factor)
    return Byzantine(
        _checked_clients(is_byzantine), on_updates=Scaling(jnp.float32(-number))
    )


@needs_values
def scaling(is_byzantine: _Clients, factor: float | int = 10.0) -> Byzantine:
    """Return clients that send their update times a factor (clipped like everybody's).

    The clip range bounds what this can do: codes cannot leave it.

    Args:
        is_byzantine: bool[N], by client.
        factor: Any finite number; 0 sends nothing.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> byzantine = mj.hetero.byzantine
        >>> updates, who = jnp.ones((2, 1), jnp.float32), jnp.asarray([False, True])
        >>> attack, key = byzantine.scaling(who, 3), jax.random.key(0)
        >>> attack.corrupt_updates(key, updates, who).tolist()
        [[1.0], [3.0]]
    """
    number = jnp.float32(check_finite(factor, "factor"))
    return Byzantine(_checked_clients(is_byzantine), on_updates=Scaling(number))


@needs_values
def collusion(
    is_byzantine: _Clients, kind: str = "little_is_enough", strength: float | int = 1.5
) -> Byzantine:
    """Return clients that know all honest updates and agree on a false one.

    "little_is_enough": mean - z std of the honest updates, coordinate by coordinate:
    near enough to pass for honest, and always on the same side. "inner_product":
    -epsilon mean: the inner product of the average with the honest mean turns negative.
    Everybody else in the round counts as honest, also who is lost later. If nobody else
    is, attackers send their true updates.

    Args:
        is_byzantine: bool[N], by client.
        kind: "little_is_enough" or "inner_product".
        strength: z or epsilon, positive.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> updates = jnp.asarray([[1.0], [3.0], [7.0]])
        >>> who = jnp.asarray([False, False, True])
        >>> attack = mj.hetero.byzantine.collusion(who, strength=2)
        >>> attack.corrupt_updates(jax.random.key(0), updates, who).tolist()
        [[1.0], [3.0], [0.0]]

    Source: Baruch, Baruch, Goldberg, "A little is enough" (2019); Xie, Koyejo, Gupta,
    "Fall of empires" (2020). HeteroSAg tries neither.
    """
    names = ("little_is_enough", "inner_product")
    require(
        kind in names,
        "kind",
        f"must be a known attack ({nearest(str(kind), names)})",
        kind,
    )
    number = check_finite(strength, "strength")
    require(number > 0.0, "strength", "must be positive", strength)
    # mean - z deviations ("little is enough") against -z means ("inner product").
    factors = (1.0, -number) if kind == "little_is_enough" else (-number, 0.0)
    attack = Collusion(jnp.float32(factors[0]), jnp.float32(factors[1]))
    return Byzantine(_checked_clients(is_byzantine), on_updates=attack)


@needs_values
def gaussian_blocks(is_byzantine: _Clients, std: float | int = 0.1) -> Byzantine:
    """Return the paper's model of wrong pads.

    Touched averages are replaced by N(0, std^2).
    `wrong_pads` is what really happens; there a touched average is spread over the
    whole clip range, here it is as small as `std`.

    Args:
        is_byzantine: bool[N], by client.
        std: Of each coordinate, at least 0.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> byzantine = mj.hetero.byzantine
        >>> attack = byzantine.gaussian_blocks([True, False])
        >>> key, average = jax.random.key(0), jnp.ones(4, jnp.float32)
        >>> attack.corrupt_average(key, average, jnp.bool_(False)).tolist()
        [1.0, 1.0, 1.0, 1.0]

    Source: HeteroSAg, Section VI-C, Experiment 2: "a centered Gaussian distribution
    with isotropic covariance matrix and standard deviation 0.1".
    """
    number = check_finite(std, "std")
    require(number >= 0.0, "std", "must be at least 0", std)
    attack = GaussianAverage(jnp.float32(number))
    return Byzantine(_checked_clients(is_byzantine), on_averages=attack)


def _checked_clients(is_byzantine: _Clients) -> Array:
    flags = np.asarray(is_byzantine)
    rule = "must be a vector of bools, one for each client"
    proper = flags.dtype == np.bool_ and flags.ndim == 1 and flags.size > 0
    require(proper, "is_byzantine", rule, f"dtype {flags.dtype}, shape {flags.shape}")
    return on_device(flags)


@functools.partial(jax.jit, static_argnames=("shape",))
def _uniform_residues(key: Array, shape: tuple[int, ...], modulus: Array) -> Array:
    """Return residues floor(U R / 2**64) of 64-bit words U.

    The bias is below R / 2**64.
    A key for each slot, so that its residues do not depend on the size of the round.
    """
    keys = jax.vmap(jax.random.fold_in, (None, 0))(
        key, jnp.arange(shape[0], dtype=jnp.uint32)
    )
    words = jax.vmap(lambda key: random_words(key, (2, *shape[1:])))(keys)
    # U R / 2^64 in 32-bit limbs: the upper word of high R, plus the carry of its lower
    # word and the upper word of low R.
    high, low = words[:, 0], words[:, 1]
    spread = jnp.broadcast_to(modulus, shape)
    top, middle = multiply_wide(high, spread)
    carried, _ = multiply_wide(low, spread)
    carry = (middle + carried < middle).astype(jnp.uint32)
    # For R = 2^32, written 0, the residue is the upper word itself.
    return jnp.where(spread == jnp.uint32(0), high, top + carry)
