"""Alias tables in integers: any law whose masses are multiples of 2**-128 drawn without error.

Each of 2**m columns holds 2**128 units, of one value up to its cut and of another beyond. A draw
takes m random bits for a column and compares up to 128 further bits with the column's cut: no
float appears, and the law drawn is exactly that of the integer weights.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Key, UInt32

from mrsa_jax._arrays import on_device
from mrsa_jax._html import brief
from mrsa_jax._streams import block_words, entry_words

CUT_BITS = 128
"""Bits of a column's cut."""
_OPEN = jnp.iinfo(jnp.int32).min


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AliasTable:
    """A symmetric law on the integers, ready to be drawn from.

    Attributes:
        columns: uint32[2**m, 2], the highest word of each column's cut and the value beyond it;
            before it is the column's own index. Side by side, so that a draw meets one line of
            the cache.
        finer: uint32[3, 2**m], the lower words of the cut, the highest first.
        mask: uint32, 2**m - 1 where columns that no draw takes follow; None where none do.
    """

    __repr__ = brief

    columns: Array
    finer: Array
    mask: Any = None


def alias_table(weights: list[int], room: int) -> AliasTable:
    """Return the table of magnitudes with these weights.

    Args:
        weights: Non-negative integers, 2**m of them, whose sum is 2**(m + 128).
        room: Columns of the table, at least 2**m: laws with the same room share programs.

    Source:
        A. J. Walker, "An efficient method for generating discrete random variables with general
        distributions" (1977); M. D. Vose, "A linear algorithm for generating random numbers with a
        given distribution" (1991). In integers nothing is left over.
    """
    size, capacity = len(weights), 1 << CUT_BITS
    left = list(weights)
    cuts, others = [0] * size, list(range(size))
    low = [i for i, weight in enumerate(left) if weight < capacity]
    high = [i for i, weight in enumerate(left) if weight > capacity]
    while low:
        column, giver = low.pop(), high[-1]
        cuts[column], others[column] = left[column], giver
        left[giver] -= capacity - left[column]
        if left[giver] <= capacity:
            high.pop()
            if left[giver] < capacity:
                low.append(giver)
    words = np.frombuffer(b"".join(cut.to_bytes(CUT_BITS // 8, "big") for cut in cuts), ">u4")
    words = words.reshape(size, -1).astype(np.uint32)
    columns = np.stack([words[:, 0], np.asarray(others, np.uint32)], axis=1)
    more = ((0, room - size), (0, 0))
    columns, finer = np.pad(columns, more), np.pad(words[:, 1:], more).T
    return AliasTable(on_device(columns), on_device(finer), on_device(np.uint32(size - 1)))


@functools.partial(jax.jit, static_argnames="shape")
def draw(table: AliasTable, key: Key[Array, ""], shape: tuple[int, ...]) -> Int32[Array, "*_"]:
    """Return independent draws: entry i depends on the key and on i alone.

    A first pass decides by 32 bits of the cut and marks the draws that these leave open, one in
    2**32; a loop, which seldom runs, decides them one after another by the other 96.

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
        decided = _draws(table, words, [each for each, _ in further])
        draws = draws.at[place].set(decided)
        return jnp.any(draws == _OPEN), draws

    # Whether any draw is open is asked outside the condition, where all cores take part.
    state = jnp.any(first == _OPEN), first
    return jax.lax.while_loop(lambda state: state[0], decide, state)[1].reshape(shape)


def _draws(
    table: AliasTable, words: tuple[Array, Array], further: list[UInt32[Array, "*_"]] | None
) -> Int32[Array, "*_"]:
    """Return draws by their words; those that need `further` ones are `_OPEN` without them."""
    place, fine = words
    mask = jnp.uint32(table.columns.shape[0] - 1) if table.mask is None else table.mask
    column = (place & mask).astype(jnp.int32)
    cut, other = table.columns[column, 0], table.columns[column, 1]
    is_own, is_open = fine < cut, fine == cut
    if further is not None:
        for word, cuts in zip(further, table.finer, strict=True):
            is_own |= is_open & (word < cuts[column])
            is_open &= word == cuts[column]
    magnitude = jnp.where(is_own, column, other.astype(jnp.int32))
    draws = jnp.where(place >> jnp.uint32(31) == 1, -magnitude, magnitude)
    return draws if further is not None else jnp.where(is_open, _OPEN, draws)
