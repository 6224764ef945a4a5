"""Build schemes of traced numbers, and find the program that runs a scheme.

No program can raise for traced numbers outside their ranges, and none may return a
plausible value: floats become NaN, and a scheme whose numbers make no sense asks
nobody.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.traced import holds_traced, is_traced, needs_values
from mrsa_watch._base.errors import require, shortened

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def also_traced(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Make a factory take traced numbers as they are, and check known ones.

    Known ones go as `needs_values` does, so that what is built of values while a
    caller's function is traced holds values.

    """
    of_values = needs_values(function)

    # a test looks at what each of these does with traced numbers outside their ranges
    @functools.wraps(function)
    def either(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        chosen = function if holds_traced((arguments, named)) else of_values
        return chosen(*arguments, **named)

    either.takes_traced = True  # type: ignore[attr-defined]
    return either


def plain(value: Any) -> Any:
    """Return a known number of JAX as Python's; anything else as it is.

    Examples:
        >>> plain(jnp.int32(3))
        3
    """
    is_known = isinstance(value, jax.Array) and not is_traced(value)
    return value.item() if is_known and value.ndim == 0 else value


def unless_traced(
    check: Callable[..., Any],
    value: Any,
    argument: str,
    *rest: Any,
    axes: int = 0,
    **named: Any,
) -> Any:
    """Return a number as `check` does; one that a transformation knows only, as it is.

    For the numbers of schemes, so that `jax.vmap(lambda p: independent(p))` builds
    them: a program cannot raise for what it alone knows. What it does instead is its
    caller's: NaN, or a scheme that asks nobody (`nan_unless`, `is_whole`).

    Args:
        check: Takes the value, the argument's name and the rest.
        value: What a user passed.
        argument: Name used in messages.
        *rest: Further arguments of `check`.
        axes: How many a traced value may have at most.
        **named: Further arguments of `check`.

    Raises:
        ConfigurationError: As `check`; of what is traced, if it has more axes or no
            numbers.

    Examples:
        >>> from mrsa_watch._base.errors import check_size
        >>> jax.vmap(lambda size: unless_traced(check_size, size, "size"))(
        ...     jnp.arange(3)
        ... ).tolist()
        [0, 1, 2]
    """
    if not is_traced(value):
        return check(plain(value), argument, *rest, **named)
    fits = jnp.ndim(value) <= axes and jnp.issubdtype(jnp.result_type(value), np.number)
    rule = "must be a number or one number per client" if axes else "must be one number"
    require(fits, argument, rule, shortened(value))
    return value


def nan_unless(is_legal: Any, value: Any) -> Array:
    """Return a traced number or array, all NaN where it is not legal.

    Examples:
        >>> jax.jit(lambda x: nan_unless(x >= 0, x))(jnp.float32(-1)).item()
        nan
    """
    numbers = jnp.asarray(value)
    if not jnp.issubdtype(numbers.dtype, jnp.floating):
        numbers = numbers.astype(jnp.result_type(float))
    return jnp.where(is_legal, numbers, jnp.nan)


def is_chance(value: Any) -> Array:
    """Return whether a traced number is one in [0, 1]."""
    return jnp.logical_and(value >= 0, value <= 1)


def is_whole(value: object, lowest: int, highest: int) -> Array:
    """Return whether a traced number is an integer in a range; of 64 bits too.

    Examples:
        >>> jax.vmap(lambda k: is_whole(k, 1, 4))(
        ...     jnp.asarray([0.0, 1.0, 2.5, 5.0])
        ... ).tolist()
        [False, True, False, False]
    """
    numbers = jnp.asarray(value)
    if jnp.issubdtype(numbers.dtype, jnp.integer):
        ends = jnp.iinfo(numbers.dtype)
        return (numbers >= max(lowest, int(ends.min))) & (
            numbers <= min(highest, int(ends.max))
        )
    inside = (numbers >= float(lowest)) & (numbers <= float(highest))
    return inside & (numbers == jnp.floor(numbers))


def program_of(tree: object) -> tuple[Any, ...]:
    """Return the key of the program that runs a pytree of schemes.

    Numbers of the schemes do not count.

    Args:
        tree: Schemes, such as a selector and an availability model.

    Returns:
        A hashable value: the structure with its static fields, and each leaf's shape
        and type.

    Examples:
        >>> import mrsa_jax as mj
        >>> of = [program_of(mj.selection.batch_partitioning(12, 6, t)) for t in (2, 3)]
        >>> of[0] == of[1] != program_of(mj.selection.batch_partitioning(24, 6, 2))
        True
    """
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), _type_of(leaf)) for leaf in leaves)


def _type_of(leaf: object) -> np.dtype:
    return leaf.dtype if isinstance(leaf, jax.Array) else jnp.result_type(leaf)


def bucket(size: int) -> int:
    """Round a size up, so that several sizes share a program.

    The next power of two, or multiple of 4,096: never more than 4,095 beyond.

    Examples:
        >>> [bucket(size) for size in (1, 3, 12, 16, 5_000)]
        [1, 4, 16, 16, 8192]
    """
    unit = min(1 << (size - 1).bit_length(), 4096)
    return -(-size // unit) * unit
