"""A kernel for NVIDIA GPUs that chooses cohorts (Pallas, through Triton).

A program holds all clients of a few trials in the registers of one warp, draws their
random words and makes the whole choice: its lanes count without waiting for others. Of
many rounds nothing leaves it but who takes part, a bit for each client.

Import inside functions only, where the form is "pallas".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from mrsa_jax._core.array_types import Flags, TrialKeys
from mrsa_jax._core.kernels import launch
from mrsa_jax._core.streams import Stream, folded_words, key_words, words_of_clients
from mrsa_jax.selection._ranking import count, packed

WORD = 32
"""Clients whose flags fill a word of a history."""
# clients x trials of a program: 16 registers an array for each thread of its warp
_TILE = 512
_MOST = 2**31 - 1

Kept = Literal["history", "counts", "statistics"]
_Slice: TypeAlias = slice | pl.Slice
_Ref: TypeAlias = Any  # to an array in the device's memory
_Tree: TypeAlias = Any  # of numbers, of arrays, of references


class _Place(NamedTuple):
    """Clients and trials of a program: rows and columns of its tiles.

    Attributes:
        clients: int32[rows], some beyond the last client.
        is_client: bool[rows, 1].
        trials: Slice of those that the columns are of.
        is_trial: bool[columns].
    """

    clients: Array
    is_client: Array
    trials: _Slice
    is_trial: Array

    @staticmethod
    def here(num_clients: int, num_trials: int) -> _Place:
        """Return the place of the program that asks."""
        rows = _rows(num_clients)
        tile = _TILE // rows
        first = pl.program_id(0) * tile
        row = lax.iota(jnp.int32, rows)
        is_trial = first + lax.iota(jnp.int32, tile) < num_trials
        return _Place(row, (row < num_clients)[:, None], pl.ds(first, tile), is_trial)

    @property
    def both(self) -> tuple[_Slice, _Slice]:
        """Slices of the rows and the columns."""
        return pl.ds(0, len(self.clients)), self.trials

    @property
    def inside(self) -> Array:
        """bool[rows, columns]."""
        return self.is_client & self.is_trial[None]

    def number(self, ref: _Ref, ndim: int) -> Array:
        """Load a number of the scheme, or one for each client."""
        # rows beyond the last client have those of client 0
        return ref[jnp.where(self.is_client[:, 0], self.clients, 0)] if ndim else ref[0]

    def load(self, ref: _Ref) -> Array:
        """Load an array of trials, or of clients and trials; zeros beyond them."""
        if ref.ndim == 1:
            return triton.load(ref.at[self.trials], mask=self.is_trial, other=0)
        nothing = ref.dtype.type(0)
        return triton.load(ref.at[self.both], mask=self.inside, other=nothing)

    def store(self, ref: _Ref, values: Array) -> None:
        """Store an array of clients and trials."""
        triton.store(ref.at[self.both], values, mask=self.inside)


def _rows(num_clients: int) -> int:
    """Count the clients of a tile, which fill words and are a power of two."""
    return max(WORD, 1 << (num_clients - 1).bit_length())


def one_round(scheme: _Tree, key: TrialKeys, columns: _Tree) -> tuple[Flags, _Tree]:
    """Choose a cohort; `columns` are who is available, and the state, [N, *trials]."""
    num_clients, *trials = columns[0].shape
    flat = jax.tree.map(lambda column: column.reshape(num_clients, -1), columns)
    leaves, structure = jax.tree.flatten(flat)

    def play(
        place: _Place,
        rule: _Tree,
        halves: _Tree,
        loaded: _Tree,
        results: Sequence[_Ref],
    ) -> None:
        available, state = loaded

        def draw(word: int) -> Array:
            return words_of_clients(halves, len(place.clients), word)

        chosen = rule._choose("bits", draw, state, available)
        for ref, values in zip(results, jax.tree.leaves(chosen), strict=True):
            place.store(ref, values)

    columns = _run(
        "choose", play, scheme, key, flat, num_clients, leaves, in_place=True
    )
    shaped = [array.reshape(num_clients, *trials) for array in columns]
    cohort, state = jax.tree.unflatten(structure, shaped)
    return cohort, state


def all_rounds(
    key: TrialKeys, schemes: _Tree, states: _Tree, num_rounds: int, keep: Kept
) -> list[Array]:
    """Play all rounds in one launch.

    Args:
        key: Keys of trials.
        schemes: The selector, and who is online among its clients.
        states: Theirs before the first round, trials innermost.
        num_rounds: J.
        keep: What is returned.

    Returns:
        The history, uint32[B, J, words], client i the bit i % 32 of word i // 32. Or
        the counts of clients, int32[N, B], behind them for statistics the size of each
        round's cohort and the largest difference of counts after it, int32[B, J].
    """
    num_clients = schemes[0].num_clients
    flat = jax.tree.map(
        lambda leaf: leaf.reshape(*leaf.shape[: leaf.ndim - key.ndim], -1), states
    )

    def play(
        place: _Place,
        rules: _Tree,
        halves: _Tree,
        loaded: _Tree,
        results: Sequence[_Ref],
    ) -> None:
        selector, availability = rules

        def step(j: Array, states: _Tree) -> _Tree:
            chosen, online = states

            def words(stream: Stream) -> Callable[[int], Array]:
                folded = folded_words(halves, j, int(stream))
                return lambda word: words_of_clients(folded, len(place.clients), word)

            available, online = availability._drawn(words(Stream.AVAILABILITY), online)
            available &= place.is_client
            drawn = words(Stream.SELECTION)
            cohort, chosen = selector._choose("bits", drawn, chosen, available)
            for values, (ref, *at) in of_round(place, cohort, chosen.counts, results):
                triton.store(ref.at[place.trials, j, *at], values, mask=place.is_trial)
            return chosen, online

        chosen, _ = lax.fori_loop(0, num_rounds, step, loaded)
        if keep != "history":
            place.store(results[0], chosen.counts)

    def of_round(
        place: _Place, cohort: Array, counts: Array, results: Sequence[_Ref]
    ) -> _Tree:
        """Return numbers of each trial that a round leaves, and their places."""
        if keep == "history":
            words = packed(cohort)
            return [(w, (results[0], jnp.int32(i))) for i, w in enumerate(words)]
        if keep == "counts":
            return []
        least = jnp.min(jnp.where(place.is_client, counts, _MOST), axis=0)
        spread = jnp.max(counts, axis=0) - least
        return [(count(cohort), results[1:2]), (spread, results[2:])]

    shapes: dict[Kept, list[tuple[int, ...]]] = {
        "history": [(key.size, num_rounds, _rows(num_clients) // WORD)],
        "counts": [(num_clients, key.size)],
        "statistics": [(num_clients, key.size), *[(key.size, num_rounds)] * 2],
    }
    dtype = jnp.uint32 if keep == "history" else jnp.int32
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes[keep]]
    return _run("play", play, schemes, key, flat, num_clients, results)


def _run(
    name: str,
    play: Callable[..., None],
    schemes: _Tree,
    key: TrialKeys,
    columns: _Tree,
    num_clients: int,
    results: list[Any],
    *,
    in_place: bool = False,
) -> list[Array]:
    """Run a kernel over tiles of trials.

    Args:
        name: Of the kernel.
        play: Takes the place, the loaded schemes, keys as two words, columns, and the
            references to the results.
        schemes: A pytree of scalars and vectors [N].
        key: Keys, whose axes are the trials'.
        columns: A pytree of arrays [N, B] and [B].
        num_clients: N.
        results: What has their shapes and types.
        in_place: Whether the results take the place of the columns.
    """
    numbers, of_schemes = jax.tree.flatten(schemes)
    halves = tuple(half.reshape(-1) for half in key_words(key))
    arrays, of_columns = jax.tree.flatten((halves, columns))

    def kernel(*refs: _Ref) -> None:
        place = _Place.here(num_clients, key.size)
        rules = [
            place.number(ref, n.ndim) for ref, n in zip(refs, numbers, strict=False)
        ]
        inputs = refs[len(numbers) : -len(results)]
        loaded = jax.tree.unflatten(of_columns, map(place.load, inputs))
        play(
            place, jax.tree.unflatten(of_schemes, rules), *loaded, refs[-len(results) :]
        )

    before = len(numbers) + len(halves)
    aliases = {before + i: i for i in range(len(results))} if in_place else {}
    return launch(
        name,
        kernel,
        (-(-key.size // (_TILE // _rows(num_clients))),),
        results,
        *(number.reshape(-1) for number in numbers),
        *arrays,
        num_warps=1,
        input_output_aliases=aliases,
    )
