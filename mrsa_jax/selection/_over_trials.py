"""One round's choice for many trials: as passes over arrays, or by a kernel in registers.

A round of selection is a few dozen passes over the clients of each trial, between which nothing
needs to leave the chip: on an NVIDIA GPU one program holds all clients of a few trials and makes
the whole choice, random words included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from mrsa_jax._core.device import chosen_form
from mrsa_jax._core.streams import client_words, key_words, words_of_clients
from mrsa_jax.selection._ranking import device_steps

Words = Callable[[int], Array]  # which of a client's words -> uint32[N, ...]

_MOST_CLIENTS = 128  # whose blocks are counted by one product of tiles
_FEWEST_ROWS = 16  # of a product
_TILE = 2048  # clients x trials of a program: four registers an array for each of 512 threads
_WARPS = 16


def over_trials(
    choose: Callable[..., tuple[Array, ...]],
    scheme: Any,
    key: Key[Array, "*trials"],
    *columns: Array,
) -> tuple[Array, ...]:
    """Return a round's choice: `choose(scheme, steps, words, *columns)`.

    Args:
        choose: Takes the scheme, how to make its passes (`_ranking.Steps`), a function that draws
            a word of each client, and the columns; returns arrays like the columns.
        scheme: A pytree of scalars and vectors [N].
        key: Keys, whose axes are the trials'.
        columns: [N, *trials]: who is available, and the scheme's state.

    Returns:
        What `choose` returns: the cohort, and the scheme's new state.
    """
    # a GPU works on tiles of trials, whose columns stay in its registers; else XLA maps over them
    num_clients = columns[0].shape[0]
    if num_clients <= _MOST_CLIENTS and chosen_form(("xla", "pallas")) == "pallas":
        flat = [column.reshape(num_clients, -1) for column in columns]
        halves = [half.reshape(-1) for half in key_words(key)]
        found = _in_tiles(choose, scheme, halves, flat)
        return tuple(a.reshape(columns[0].shape) for a in found)
    return choose(
        scheme, device_steps(), lambda word: client_words(key, num_clients, word), *columns
    )


def _in_tiles(
    choose: Callable[..., tuple[Array, ...]], scheme: Any, halves: list[Array], columns: list[Array]
) -> tuple[Array, ...]:
    """Choose by one kernel, each program for all clients of a tile of trials."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    from mrsa_jax._core.kernels import launch

    num_clients, num_trials = columns[0].shape
    rows = max(_FEWEST_ROWS, pl.next_power_of_2(num_clients))
    tile = _TILE // rows
    leaves, structure = jax.tree.flatten(scheme)
    numbers = [leaf.reshape(-1) for leaf in leaves]
    before = len(numbers) + len(halves)

    def kernel(*refs: Any) -> None:
        row, first = jax.lax.iota(jnp.int32, rows), pl.program_id(0) * tile
        is_trial = first + jax.lax.iota(jnp.int32, tile) < num_trials
        inside = (row < num_clients)[:, None] & is_trial[None, :]
        place = (pl.ds(0, rows), pl.ds(first, tile))
        client = jnp.minimum(row, num_clients - 1)  # rows beyond the clients are never available
        own = [
            ref[0] if leaf.ndim == 0 else ref[client]
            for ref, leaf in zip(refs[: len(leaves)], leaves, strict=True)
        ]
        low, high = (
            triton.load(ref.at[pl.ds(first, tile)], mask=is_trial, other=0)
            for ref in refs[len(leaves) : before]
        )
        loaded = [
            triton.load(ref.at[place], mask=inside, other=column.dtype.type(0))
            for ref, column in zip(refs[before : -len(columns)], columns, strict=True)
        ]

        def draw(word: int) -> Array:
            return words_of_clients((low, high), rows, word)

        found = choose(jax.tree.unflatten(structure, own), "bits", draw, *loaded)
        for ref, values in zip(refs[-len(columns) :], found, strict=True):
            triton.store(ref.at[place], values, mask=inside)

    found = launch(
        "choose",
        kernel,
        (pl.cdiv(num_trials, tile),),
        columns,
        *numbers,
        *halves,
        *columns,
        num_warps=_WARPS,
        input_output_aliases={before + i: i for i in range(len(columns))},
    )
    return tuple(found)
