"""Named random streams: which key every draw of a simulation comes from.

seed -> trial -> round -> stream -> client, each step a `fold_in` with an index or one
of the constants below. So a client's draw does not depend on the number of clients, and
a trial's draws not on the batch that it runs in. Pads never come from here: they are
ChaCha20 keystream (`mrsa_jax.modular`).
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer, Key, UInt32

from mrsa_jax._core.array_types import PRNGKey
from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.factories import unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.traced import is_traced
from mrsa_watch._base.errors import is_integer, is_number, require, shortened

MAX_PAIRED = 92_681
"""The most clients whose pairs 32 bits can number (`pair_words`)."""
# The implementation is pinned: a user's JAX settings must not change what a seed means.
_IMPLEMENTATION = "threefry2x32"


class Stream(enum.IntEnum):
    """Name the random streams of one round; values are part of a seed's meaning."""

    AVAILABILITY = 1
    SELECTION = 2
    LOCAL_TRAINING = 3
    QUANTIZATION = 4
    MODEL_INIT = 5
    PARTITION = 6
    ATTACK = 7
    ASSIGNMENT = 8
    STEPS = 9
    DRIFT = 10
    NOISE = 11
    SERVER = 12


Seed: TypeAlias = int | np.integer | Integer[Array, ""] | PRNGKey
"""The source of a function's draws: an integer, perhaps traced, or a typed key."""


def as_key(seed: Seed) -> PRNGKey:
    """Return a typed JAX key for an integer seed, or the key itself.

    Args:
        seed: Integer in [0, 2**32), or a scalar typed key (`jax.random.key`). A traced
            integer outside that range, which nothing can report, gives a key that no
            legal seed has.

    Returns:
        A scalar typed key.

    Raises:
        ConfigurationError: If `seed` is neither.

    Examples:
        >>> as_key(3) == as_key(as_key(3))
        Array(True, dtype=bool)
    """
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        require(seed.ndim == 0, "seed", "must be one key", f"{seed.shape} keys")
        return seed
    if isinstance(seed, jax.core.Tracer):
        require(
            seed.ndim == 0 and jnp.issubdtype(seed.dtype, np.integer),
            "seed",
            "must be one integer or one typed JAX key",
            shortened(seed),
        )
        words = jnp.stack([_high_word(seed), seed.astype(jnp.uint32)])
        return jax.random.wrap_key_data(words, impl=_IMPLEMENTATION)
    require(is_integer(seed), "seed", "must be an integer or a typed JAX key", seed)
    require(0 <= int(seed) < 2**32, "seed", "must lie in [0, 2**32)", seed)
    # as `jax.random.key` does
    words = jax.device_put(np.asarray([0, int(seed)], np.uint32))
    return jax.random.wrap_key_data(words, impl=_IMPLEMENTATION)


def _high_word(seed: Array) -> UInt32[Array, ""]:
    """Return the bits of a traced integer above its lowest 32.

    0 of a legal seed.
    """
    if jnp.iinfo(seed.dtype).bits > 32:
        return (seed >> 32).astype(jnp.uint32)
    return jnp.where(seed < 0, jnp.uint32(2**32 - 1), jnp.uint32(0))


def is_threefry(keys: Key[Array, "*batch"]) -> bool:
    """Return whether keys are of the implementation that integer seeds have."""
    return str(jax.random.key_impl(keys)) == _IMPLEMENTATION


def fold(key: PRNGKey, *path: int | Array) -> PRNGKey:
    """Fold each index or `Stream` of `path` into `key`, in order."""
    for step in path:
        key = jax.random.fold_in(key, step)
    return key


def trial_key(key: PRNGKey, trial: int | Array) -> PRNGKey:
    """Return the key of one trial."""
    return jax.random.fold_in(key, trial)


def round_key(
    key: PRNGKey,
    round_index: int | Array,
    stream: Stream,
) -> PRNGKey:
    """Return the key of one stream of one round of a trial."""
    return fold(key, round_index, int(stream))


def with_own_keys(state: Any, key: PRNGKey) -> Any:
    """Return a state whose random keys are folded with another key.

    All else stays as it is.
    An optimizer of optax begins with the key that it was made with, the same for every
    client, round and seed.

    Args:
        state: A pytree. Its keys are typed ones, and pairs or fours of words, as
            `PRNGKey` gives.
        key: From which the new keys differ with every other.
    """
    words = jax.random.key_data(key).reshape(-1)

    def folded(leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", None)
        if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
            each = jax.vmap(lambda typed_key: fold(typed_key, *words))(leaf.reshape(-1))
            return each.reshape(leaf.shape)
        implementation = _OF_WORDS.get(leaf.shape) if dtype == jnp.uint32 else None
        if implementation is None:
            return leaf
        typed = jax.random.wrap_key_data(leaf, impl=implementation)
        return jax.random.key_data(fold(typed, *words))

    return jax.tree.map(folded, state)


_OF_WORDS = {(2,): "threefry2x32", (4,): "rbg"}
"""Implementations of keys that are plain words, by their shape."""


@functools.partial(one_program, static_argnames="shape")
def random_words(key: PRNGKey, shape: tuple[int, ...]) -> UInt32[Array, "*_"]:
    """Draw the words of `jax.random.bits(key, shape, uint32)` by one expression.

    JAX runs Threefry on a CPU as a loop of passes over whole arrays; written as one
    expression it fuses with what consumes the words and takes a sixth of the time (12 x
    1,663,370 words on two cores: 0.054 s, not 0.32 s), and does not depend on the
    setting `jax_threefry_partitionable`.

    Args:
        key: One key.
        shape: Of the words.

    Returns:
        uint32 of that shape: the two outputs of Threefry-2x32 at the counter (0,
        index), joined by exclusive or.

    Examples:
        >>> key = as_key(1)
        >>> bool((random_words(key, (2, 3)) == jax.random.bits(key, (2, 3))).all())
        True
    """
    if not is_threefry(key) or math.prod(shape) >= 2**32:
        return jax.random.bits(key, shape, jnp.uint32)
    first, second = key_words(key)
    index = jax.lax.iota(jnp.uint32, math.prod(shape))
    x, y = _threefry_2x32((first, second), (jnp.zeros_like(index), index))
    return (x ^ y).reshape(shape)


@one_program
def fold_over(
    keys: Key[Array, "*batch"], indices: Array
) -> Key[Array, "*batch indices"]:
    """Return `jax.random.fold_in` of each key with each index, as one expression.

    Args:
        keys: Any number of axes.
        indices: int32 or uint32 [indices].

    Examples:
        >>> folded = fold_over(as_key(1), jnp.arange(3))
        >>> bool(folded[2] == jax.random.fold_in(as_key(1), 2))
        True
    """
    if not is_threefry(keys):
        each = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
        return each(keys.reshape(-1), indices).reshape(*keys.shape, -1)
    shape = (*keys.shape, indices.shape[0])
    index = jax.lax.broadcast_in_dim(
        indices.astype(jnp.uint32), shape, (len(shape) - 1,)
    )
    first, second = (
        jnp.broadcast_to(half[..., None], shape) for half in key_words(keys)
    )
    words = _threefry_2x32((first, second), (jnp.zeros_like(index), index))
    return jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl=_IMPLEMENTATION)


@functools.partial(one_program, static_argnames=("length", "width"))
def joined_words(
    keys: Key[Array, "*batch parts"],
    length: int,
    width: int,
) -> UInt32[Array, "*batch {width}"]:
    """Draw the first words of `random_words` of one key after the other.

    One expression that fuses with what consumes the words, however many the keys.

    Args:
        keys: Enough for `width` words; leading axes are apart.
        length: Words of each key.
        width: Words in all.

    Examples:
        >>> keys = jax.random.split(as_key(1), 2)
        >>> words = joined_words(keys, 4, 6)
        >>> bool((words[4:] == random_words(keys[1], (4,))[:2]).all())
        True
    """
    if not is_threefry(keys):
        draw = jax.vmap(lambda key: jax.random.bits(key, (length,), jnp.uint32))
        drawn = draw(keys.reshape(-1)).reshape(*keys.shape[:-1], -1)
        return drawn[..., :width]
    index = jax.lax.iota(jnp.uint32, width)
    part = index // jnp.uint32(length)
    place = index % jnp.uint32(length)
    first, second = (half[..., part] for half in key_words(keys))
    place = jax.lax.broadcast_in_dim(place, first.shape, (first.ndim - 1,))
    x, y = _threefry_2x32((first, second), (jnp.zeros_like(place), place))
    return x ^ y


@functools.partial(one_program, static_argnames=("num_clients", "word"))
def client_words(
    key: Key[Array, "*trials"],
    num_clients: int,
    word: int = 0,
) -> UInt32[Array, {num_clients} * trials]:
    """Return one uniform 32-bit word for each client.

    Word i does not depend on `num_clients`.
    Word i is the first output of Threefry-2x32 with 20 rounds under the key, at the
    counter (`_CLIENTS` + word, i): the generator behind `jax.random`, at counters that
    JAX leaves unused (its `fold_in`, `split` and `bits` have a first half of 0 for
    fewer than 2^32 draws), written as array operations that fuse with what consumes the
    words.

    Args:
        key: One key, or an array of keys, whose axes then follow the clients'.
        num_clients: N.
        word: Which of several independent words of a client, from 0.

    Returns:
        uint32[N, ...], trials (the key's axes) innermost.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3"
    (2011).
    """
    return words_of_clients(key_words(key), num_clients, word)


def words_of_clients(
    halves: tuple[UInt32[Array, "*trials"], UInt32[Array, "*trials"]],
    num_clients: int,
    word: int,
) -> UInt32[Array, {num_clients} * trials]:
    """Return `client_words` of keys given as their two words, as kernels hold them."""
    shape = (num_clients, *halves[0].shape)
    index = jax.lax.broadcasted_iota(jnp.uint32, shape, 0)
    stream = jnp.full(shape, _CLIENTS + word, jnp.uint32)
    spread = [jnp.broadcast_to(half[None], shape) for half in halves]
    return _threefry_2x32((spread[0], spread[1]), (stream, index))[0]


def folded_words(
    halves: tuple[UInt32[Array, "*trials"], UInt32[Array, "*trials"]],
    *path: int | Array,
) -> tuple[UInt32[Array, "*trials"], UInt32[Array, "*trials"]]:
    """Return `fold` of keys given as their two words, as kernels hold them."""
    for step in path:
        index = jnp.broadcast_to(jnp.asarray(step).astype(jnp.uint32), halves[0].shape)
        halves = _threefry_2x32(halves, (jnp.zeros_like(index), index))
    return halves


@functools.partial(one_program, static_argnames=("num_clients", "word"))
def pair_words(
    key: Key[Array, "*trials"],
    num_clients: int,
    word: int = 0,
) -> UInt32[Array, "{num_clients} {num_clients} *trials"]:
    """Draw one uniform 32-bit word per pair, independent of `num_clients`.

    The word of i <= j is the first output of Threefry-2x32 with 20 rounds under the
    key, at the counter (`_PAIRS` + word, j (j + 1) / 2 + i). Entries (i, j) and (j, i)
    are both computed: measured against half the work and a gather, that is twice as
    fast on the CPU.

    Args:
        key: One key, or an array of keys, whose axes then follow the clients'.
        num_clients: n, at most 92,681, so that the counters of pairs fit 32 bits.
        word: Which of several independent words of a pair, from 0.

    Returns:
        uint32[n, n, ...], symmetric, trials (the key's axes) innermost.

    Source: as `client_words`, at other counters.
    """
    require(num_clients <= MAX_PAIRED, "num_clients", f"must be at most {MAX_PAIRED}")
    keys = key_words(key)
    shape = (num_clients, num_clients, *key.shape)
    row = jax.lax.broadcasted_iota(jnp.uint32, shape, 0)
    column = jax.lax.broadcasted_iota(jnp.uint32, shape, 1)
    high, low = jnp.maximum(row, column), jnp.minimum(row, column)
    # j (j + 1) may pass 2^32 although its half does not, so the even factor is halved
    # first
    even, odd = high + (high & 1), high | 1
    index = (even >> 1) * odd + low
    stream = jnp.full(shape, _PAIRS + word, jnp.uint32)
    spread = [jnp.broadcast_to(half[None, None], shape) for half in keys]
    return _threefry_2x32((spread[0], spread[1]), (stream, index))[0]


@functools.partial(one_program, static_argnames=("shape", "block"))
def block_words(
    key: PRNGKey,
    shape: tuple[int, ...],
    block: int = 0,
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Return two uniform 32-bit words for each entry of a shape.

    One block of the generator each.
    Entry i (in order of rows) of block b has both outputs of Threefry-2x32 with 20
    rounds under the key, at the counter (`_BLOCKS` + b, i).

    Args:
        key: One key.
        shape: Of each of the two, fewer than 2^32 entries.
        block: Which of several independent blocks of an entry, from 0.

    Source: as `client_words`, at other counters.
    """
    count = math.prod(shape)
    require(count < 2**32, "shape", "must have fewer than 2**32 entries", shape)
    x, y = entry_words(key, jax.lax.iota(jnp.uint32, count), block)
    return x.reshape(shape), y.reshape(shape)


@functools.partial(one_program, static_argnames="block")
def entry_words(
    key: PRNGKey,
    index: UInt32[Array, "*entries"],
    block: int = 0,
) -> tuple[UInt32[Array, "*entries"], UInt32[Array, "*entries"]]:
    """Return the words of `block_words` for some entries alone, by their index."""
    return _threefry_2x32(
        key_words(key), (jnp.full_like(index, _BLOCKS + block), index)
    )


def host_generator(key: PRNGKey, *path: int) -> np.random.Generator:
    """Make a NumPy generator for shuffles, seeded by a folded key's words."""
    words = np.asarray(jax.random.key_data(fold(key, *path)))
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(words.tolist())))


def by_words(change: Callable[[Any], Any], tree: Any) -> Any:
    """Change every leaf of a pytree, random keys by the words that they are."""

    def changed(leaf: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
            return change(leaf)
        words = change(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))

    return jax.tree.map(changed, tree)


_CLIENTS = 0x636C6900  # "cli\0": room for 256 words per client
_PAIRS = 0x70616900  # "pai\0": room for 256 words a pair
_BLOCKS = 0x626C6F00  # "blo\0": room for 256 blocks an entry
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@one_program
def key_words(key: Array) -> tuple[Array, Array]:
    """Return two words for each key, whatever its implementation."""
    data = jax.random.key_data(key)
    first = (data[..., 0], data[..., 1])
    if data.shape[-1] == 2:
        return first
    return _threefry_2x32(first, (data[..., 2], data[..., 3]))


def _threefry_2x32(
    key: tuple[Array, Array],
    counter: tuple[Array, Array],
    num_rounds: int = 20,
) -> tuple[Array, Array]:
    """Return both words of Threefry-2x32, elementwise over arrays of one shape."""
    schedule = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = counter[0] + key[0], counter[1] + key[1]
    for i in range(num_rounds):
        turn = _ROTATIONS[i // 4 % 2][i % 4]
        x = x + y
        y = ((y << turn) | (y >> (32 - turn))) ^ x
        if i % 4 == 3:
            step = i // 4 + 1
            x = x + schedule[step % 3]
            y = y + schedule[(step + 1) % 3] + step
    return x, y


# Chances are rounded to a multiple of 2^-32; 0 never happens and 1 always does, and
# what is between
# them, however near, is rounded to neither.

ALWAYS = 2**32 - 1
"""The largest threshold, which stands for chance 1."""


def check_chances(value: object, argument: str, *, as_data: bool = False) -> Any:
    """Return a chance or a vector of chances as float64, or raise naming `argument`.

    Args:
        value: What a user passed.
        argument: Name used in messages.
        as_data: Whether it may be traced; what is then comes back as it is, checked in
            type and shape only.
    """
    if as_data and is_traced(value):
        return unless_traced(check_chances, value, argument, axes=1)
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array | list | tuple)
    require(
        is_array or is_number(value),
        argument,
        "must be a number or one number per client",
        value,
    )
    array = host_array(value, argument)
    require(array.dtype.kind in "fiu", argument, "must hold real numbers", value)
    array = array.astype(np.float64)
    require(
        array.ndim <= 1 and array.size > 0,
        argument,
        "must be a number or a vector with one entry per client",
        f"shape {array.shape}",
    )
    bad = array[~((array >= 0.0) & (array <= 1.0))]
    require(bad.size == 0, argument, "must lie in [0, 1]", *bad[:1].tolist())
    return array


def threshold(chances: object, *, illegal: int = 0) -> Any:
    """Return uint32 thresholds for float64 chances in [0, 1], on the host.

    Traced chances give traced thresholds, exact to the digits of their type: float32
    has 24 bits.

    Args:
        chances: Numbers or arrays of them.
        illegal: Threshold of a traced chance outside [0, 1] or NaN, which nothing
            reports.
    """
    if isinstance(chances, jax.core.Tracer):
        wide = jnp.promote_types(chances.dtype, jnp.float32)
        chances = chances.astype(wide)
        below = float(np.nextafter(wide.type(2**32), wide.type(0)))
        top = jnp.clip(
            jnp.round(chances * 2.0**32), 1.0, min(below, ALWAYS - 1)
        ).astype(jnp.uint32)
        rest = jnp.where(chances == 1, jnp.uint32(ALWAYS), jnp.uint32(illegal))
        rest = jnp.where(chances == 0, 0, rest)
        return jnp.where((chances > 0) & (chances < 1), top, rest)
    exact = np.asarray(chances, np.float64)
    scaled = np.clip(np.round(exact * 2.0**32), 1.0, float(ALWAYS - 1))
    sure = np.where(exact >= 1.0, float(ALWAYS), 0.0)
    return np.where((exact > 0.0) & (exact < 1.0), scaled, sure).astype(np.uint32)


def threshold_chance(thresholds: np.ndarray) -> np.ndarray:
    """Return the float64 chances that thresholds stand for."""
    return np.where(thresholds == ALWAYS, 1.0, thresholds.astype(np.float64) / 2.0**32)


def chances_typed(thresholds: object) -> Any:
    """Return the shortest decimals that thresholds come from.

    A number or a list of them.
    Of more than six, which nobody types, an empty list.

    Examples:
        >>> chances_typed(threshold(np.asarray([0.1, 1.0])))
        [0.1, 1.0]
    """
    limits = np.asarray(thresholds)
    if limits.ndim:
        return (
            [chances_typed(candidate) for candidate in limits]
            if limits.size <= 6
            else []
        )
    exact = float(threshold_chance(limits))
    near = (float(f"{exact:.{digits}g}") for digits in range(1, 12))
    for candidate in near:
        if threshold(np.float64(candidate)) == limits:
            return candidate
    return exact


@one_program
def happens(
    words: UInt32[Array, " clients *trials"], thresholds: UInt32[Array, "*clients"]
) -> Bool[Array, " clients *trials"]:
    """Return whether each event happens, from one uniform word each.

    Args:
        words: One for each client, trials as trailing axes.
        thresholds: One for all clients, or [N].
    """
    limits = jnp.expand_dims(thresholds, tuple(range(thresholds.ndim, words.ndim)))
    limits = jnp.broadcast_to(limits, words.shape)
    return (words < limits) | (limits == jnp.uint32(ALWAYS))


def spread(
    array: Array,
    argument: str,
    num_clients: int,
    kind: str = "number",
) -> Array:
    """Return one number for each client from one for all, or the [N] given.

    Args:
        array: One number, or [N].
        argument: Name used in the message.
        num_clients: N.
        kind: What the message calls a number.

    Raises:
        ConfigurationError: If there are numbers for another number of clients.
    """
    shape = array.shape
    require(
        len(shape) == 0 or shape[-1] == num_clients,
        argument,
        f"must be one {kind} or {num_clients}, one for each client",
        f"shape {shape}",
    )
    if len(shape) > 0:
        return array
    if is_traced(array):
        return jnp.broadcast_to(array, (num_clients,))
    return on_device(np.broadcast_to(np.asarray(array), num_clients))
