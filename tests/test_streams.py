"""Random streams: the generator's vectors, what a word depends on, and its statistics."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax import availability, selection
from mrsa_jax._core import streams as _streams
from mrsa_jax._core.streams import (
    Stream,
    as_key,
    client_words,
    fold,
    pair_words,
    random_words,
    round_key,
    trial_key,
)
from mrsa_watch._base.errors import ConfigurationError

FALSE_FAILURE = 1e-6
# threefry2x32: rounds, counter, key, output, from the kat_vectors file of the Random123
# library that accompanies Salmon et al. (2011).
KNOWN = [
    (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
    (13, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0xFD36D048, 0x2D17272C)),
    (13, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xBA3E4725, 0xF27D669E)),
    (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (20, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    (20, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def test_trials_and_rounds_are_folded_in() -> None:
    def folded(seed: int, *path: int) -> jax.Array:
        key = jax.random.key(seed, impl="threefry2x32")
        for number in path:
            key = jax.random.fold_in(key, number)
        return key

    trial = trial_key(as_key(7), 3)
    assert trial == folded(7, 3)
    assert round_key(trial, 2, Stream.STEPS) == folded(7, 3, 2, 9)


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (-1, r"`seed` must lie in \[0, 2\*\*32\); got -1"),
        (2**32, r"`seed` must lie in \[0, 2\*\*32\); got 4294967296"),
        (1.5, "`seed` must be an integer or a typed JAX key; got 1.5"),
        (True, "`seed` must be an integer or a typed JAX key; got True"),
        ("7", "`seed` must be an integer or a typed JAX key; got '7'"),
    ],
)
def test_seed_is_an_integer_or_a_key(seed: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        inspect.unwrap(as_key)(seed)


def test_seed_is_one_key() -> None:
    with pytest.raises(ConfigurationError, match="`seed` must be one key"):
        inspect.unwrap(as_key)(jax.random.split(jax.random.key(0), 3))


def _reference(
    key: tuple[int, int], counter: tuple[int, int], rounds: int
) -> tuple[int, int]:
    """Threefry-2x32 on Python integers, from the paper's description."""
    mask = 2**32 - 1
    schedule = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA]
    x, y = (counter[0] + key[0]) & mask, (counter[1] + key[1]) & mask
    for i in range(rounds):
        x = (x + y) & mask
        r = (13, 15, 26, 6, 17, 29, 16, 24)[i % 8]
        y = ((y << r) & mask | y >> (32 - r)) ^ x
        if (i + 1) % 4 == 0:
            s = (i + 1) // 4
            x, y = (x + schedule[s % 3]) & mask, (y + schedule[(s + 1) % 3] + s) & mask
    return x, y


def _ours(
    key: tuple[int, int], counter: tuple[int, int], rounds: int
) -> tuple[int, int]:
    program = jax.jit(_streams._threefry_2x32, static_argnums=2)
    out = program(tuple(map(np.uint32, key)), tuple(map(np.uint32, counter)), rounds)
    return int(out[0]), int(out[1])


@pytest.mark.smoke("13-counter1-key1-expected1")
@pytest.mark.parametrize(("rounds", "counter", "key", "expected"), KNOWN)
def test_generator_gives_the_published_vectors(
    rounds: int,
    counter: tuple[int, int],
    key: tuple[int, int],
    expected: tuple[int, int],
) -> None:
    found = _ours(key, counter, rounds)
    assert found == expected
    assert _reference(key, counter, rounds) == expected


def test_words_are_the_documented_counters() -> None:
    key = fold(as_key(5), 17)
    a, b = (int(v) for v in jax.random.key_data(key))
    for word in (0, 1, 3):
        expected = [
            _reference((a, b), (0x636C6900 + word, i), 20)[0] for i in range(40)
        ]
        assert client_words(key, 40, word).tolist() == expected


@pytest.mark.long
def test_word_does_not_depend_on_how_many_clients_there_are() -> None:
    many = np.asarray(client_words(as_key(1), 1000))
    for n in (1, 2, 7, 120):
        assert (np.asarray(client_words(as_key(1), n)) == many[:n]).all()


@pytest.mark.long
def test_trials_are_trailing_axes() -> None:
    keys = jax.vmap(lambda t: trial_key(as_key(3), t))(jnp.arange(6, dtype=jnp.uint32))
    batch = client_words(keys.reshape(2, 3), 9)
    assert batch.shape == (9, 2, 3)
    for t in range(6):
        assert (batch[:, t // 3, t % 3] == client_words(keys[t], 9)).all()
    mapped = jax.vmap(lambda key: client_words(key, 9))(keys)
    assert (batch.reshape(9, 6) == mapped.T).all()


def test_words_do_not_depend_on_the_users_settings() -> None:
    plain = np.asarray(client_words(round_key(as_key(2), 3, Stream.SELECTION), 50))
    with jax.enable_x64(True):
        wide = client_words(round_key(as_key(2), 3, Stream.SELECTION), 50)
    assert wide.dtype == jnp.uint32
    assert (np.asarray(wide) == plain).all()


def test_keys_of_another_implementation_work() -> None:
    words = [
        np.asarray(client_words(jax.random.key(s, impl="rbg"), 64)) for s in (0, 1)
    ]
    assert len(np.unique(np.concatenate(words))) == 128


def _block(num_rounds: int, clients: int) -> np.ndarray:
    """uint32[rounds, streams, words, clients] of one trial."""

    def one(j: jax.Array) -> jax.Array:
        keys = [round_key(trial_key(as_key(11), 4), j, s) for s in list(Stream)[:2]]
        return jnp.stack(
            [jnp.stack([client_words(k, clients, w) for w in (0, 1)]) for k in keys]
        )

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(num_rounds, dtype=jnp.uint32)))


@pytest.fixture(scope="module")
def words() -> np.ndarray:
    return _block(4000, 60)


def _assert_balanced(bits: np.ndarray) -> None:
    """Fail when any mean of fair bits along axis 0 is off (normal limit, Bonferroni)."""
    z = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(bits.shape[0])
    assert np.abs(z).max() < stats.norm.isf(FALSE_FAILURE / 2 / z.size)


@pytest.mark.long
def test_every_bit_of_every_client_is_fair(words: np.ndarray) -> None:
    for bit in range(32):
        _assert_balanced((words >> np.uint32(bit) & 1).reshape(words.shape[0], -1))


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_bytes_are_uniform(words: np.ndarray, shift: int) -> None:
    counts = np.bincount((words >> np.uint32(shift) & 255).ravel(), minlength=256)
    statistic = ((counts - words.size / 256) ** 2 / (words.size / 256)).sum()
    low, high = stats.chi2.ppf([FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2], 255)
    assert low < statistic < high  # too even is wrong as well


@pytest.mark.parametrize("bit", [31, 30, 16, 0])
def test_neighbours_are_independent(words: np.ndarray, bit: int) -> None:
    """Equal bits half of the time, between clients, rounds, streams, and a client's words."""
    bits = words >> np.uint32(bit) & 1
    flat = bits.reshape(bits.shape[0], -1)
    _assert_balanced(flat[1:] ^ flat[:-1])
    _assert_balanced((bits[:, 0] ^ bits[:, 1]).reshape(bits.shape[0], -1))
    _assert_balanced((bits[:, :, 0] ^ bits[:, :, 1]).reshape(bits.shape[0], -1))
    for lag in (1, 2, 30):
        _assert_balanced(
            (bits[..., lag:] ^ bits[..., :-lag]).reshape(bits.shape[0], -1)
        )


def test_pairs_of_clients_fill_the_square(words: np.ndarray) -> None:
    top = (words >> np.uint32(28)).astype(np.int64)
    cells = top[..., 1:] * 16 + top[..., :-1]
    counts = np.bincount(cells[..., ::2].ravel(), minlength=256)
    expected = counts.sum() / 256
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < stats.chi2.isf(FALSE_FAILURE, 255)


def test_statistics_see_a_bad_generator() -> None:
    bad = (np.arange(4000 * 60, dtype=np.uint32) * np.uint32(2654435761)).reshape(
        4000, 60
    )

    def check() -> None:
        for bit in range(32):
            _assert_balanced(bad >> np.uint32(bit) & 1)
            _assert_balanced((bad[1:] ^ bad[:-1]) >> np.uint32(bit) & 1)

    with pytest.raises(AssertionError):
        check()


def _folded(key: tuple[int, int], *path: int) -> tuple[int, int]:
    for number in path:  # what `jax.random.fold_in` does
        key = _reference(key, (0, number), 20)
    return key


def test_rollouts_draw_the_documented_words() -> None:
    """Who is online by first words, who is chosen by second ones, under the keys of each round."""
    rate, wanted, first = 0.4, 3, 5
    found = selection.rollout_trials(
        7,
        selection.uniform(6, wanted),
        availability.independent(rate),
        30,
        2,
        first=first,
    )
    numbers = set()
    for (trial, j), chosen in np.ndenumerate(
        np.asarray(found).astype(int) @ 2 ** np.arange(6)
    ):
        key = _folded((0, 7), first + trial, j)
        words = [
            [
                _reference(_folded(key, stream), (0x636C6900 + word, i), 20)[0]
                for i in range(6)
            ]
            for stream, word in ((Stream.AVAILABILITY, 0), (Stream.SELECTION, 1))
        ]
        online = [i for i in range(6) if words[0][i] >= rate * 2**32]
        cohort = sorted(online, key=lambda i: words[1][i])[:wanted]
        assert chosen == (sum(2**i for i in cohort) if len(online) >= wanted else 0)
        numbers.add(len(online))
    assert {2, 3, 4} <= numbers


@pytest.mark.parametrize("rates", [[0.4, 0.6, 0.25], 0.5])
def test_chains_draw_the_documented_words(rates: float | list[float]) -> None:
    """In whole numbers.

    Who is online moves on by first words, from the last round's number.
    """
    n, rounds, mean = 3, 90, 4.0
    found = selection.rollout_trials(
        7, selection.bernoulli(n, 1.0), availability.markov(rates, mean), rounds, 2
    )
    p = np.broadcast_to(rates, n)
    away, leave, back = (
        np.round(c * 2.0**32) for c in (p, p / ((1 - p) * mean), 1 / mean + 0 * p)
    )
    for trial in range(2):
        online = [True] * n
        for j in range(-1, rounds):
            key = _folded((0, 7), trial, j % 2**32, Stream.AVAILABILITY)
            words = [_reference(key, (0x636C6900, i), 20)[0] for i in range(n)]
            chances = away if j < 0 else leave
            online = [
                words[i] >= chances[i] if there else words[i] < back[i]
                for i, there in enumerate(online)
            ]
            assert j < 0 or found[trial, j].tolist() == online


# -- pairs
# ----


def test_words_of_pairs_are_the_documented_counters() -> None:
    key = fold(as_key(5), 17)
    halves = tuple(int(v) for v in jax.random.key_data(key))
    words = np.asarray(pair_words(key, 9, 2))
    for j in range(9):
        for i in range(j + 1):
            expected = _reference(halves, (0x70616900 + 2, j * (j + 1) // 2 + i), 20)[0]
            assert int(words[i, j]) == int(words[j, i]) == expected


def test_words_are_symmetric_and_distinct() -> None:
    words = np.asarray(pair_words(as_key(0), 200))
    assert words.dtype == np.uint32
    assert (words == words.T).all()
    lower = words[np.tril_indices(200)]
    # 20,100 words: about 0.05 equal pairs expected, three or more have chance 2e-5
    assert len(lower) - len(np.unique(lower)) <= 2


@pytest.mark.long
def test_trials_are_trailing_axes_of_pairs() -> None:
    keys = jax.vmap(lambda t: trial_key(as_key(3), t))(jnp.arange(6, dtype=jnp.uint32))
    batch = pair_words(keys.reshape(2, 3), 5)
    assert batch.shape == (5, 5, 2, 3)
    for t in range(6):
        assert (batch[:, :, t // 3, t % 3] == pair_words(keys[t], 5)).all()


def test_words_of_a_pair_are_several() -> None:
    words = [np.asarray(pair_words(as_key(0), 40, word)) for word in (0, 1)]
    assert (words[0] == words[1]).sum() == 0
    with jax.enable_x64(True):
        assert np.array_equal(pair_words(as_key(0), 40), words[0])


def test_numbers_of_pairs_do_not_wrap() -> None:
    """j (j + 1) / 2 + i as 32-bit arithmetic computes it, at the largest numbers."""
    largest = 92_681
    assert (largest - 1) * (largest + 2) // 2 < 2**32 <= largest * (largest + 3) // 2
    for j in (0, 1, 2, 65_535, 65_536, largest - 2, largest - 1):
        even, odd = j + (j & 1), j | 1
        assert (even >> 1) * odd == j * (j + 1) // 2
        assert (even >> 1) * odd + j < 2**32
    with pytest.raises(ConfigurationError, match="`num_clients` must be at most 92681"):
        pair_words(as_key(0), largest + 1)


def test_words_of_pairs_are_fair_and_independent() -> None:
    """Every bit of every pair, pairs that share a client, and a pair beside its clients."""
    clients, rounds = 12, 6000

    def one(j: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = round_key(as_key(13), j, Stream.ASSIGNMENT)
        return pair_words(key, clients), client_words(key, clients)

    pairs, own = jax.jit(jax.vmap(one))(jnp.arange(rounds, dtype=jnp.uint32))
    pairs, own = np.asarray(pairs), np.asarray(own)
    i, j = np.triu_indices(clients, 1)
    flat = pairs[:, i, j]
    for bit in (31, 30, 24, 16, 8, 1, 0):
        bits = flat >> np.uint32(bit) & 1
        _assert_balanced(bits)
        _assert_balanced(bits[1:] ^ bits[:-1])
        for lag in range(1, bits.shape[1]):  # all pairs of pairs
            _assert_balanced(bits[:, lag:] ^ bits[:, :-lag])
        _assert_balanced(bits ^ (own[:, i] >> np.uint32(bit) & 1))
        _assert_balanced(bits ^ (own[:, j] >> np.uint32(bit) & 1))
    counts = np.bincount((flat >> np.uint32(24)).ravel(), minlength=256)
    statistic = ((counts - flat.size / 256) ** 2 / (flat.size / 256)).sum()
    low, high = stats.chi2.ppf([FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2], 255)
    assert low < statistic < high


_bits = jax.jit(jax.random.bits, static_argnums=1)  # uint32


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 3, 4), (100_003,)])
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_random_words_are_those_of_jax(seed: int, shape: tuple[int, ...]) -> None:
    key = fold(as_key(seed), 5)
    expected = _bits(key, shape)
    np.testing.assert_array_equal(random_words(key, shape), expected)


def test_random_words_of_many_keys_and_of_other_generators() -> None:
    keys = jax.random.split(as_key(4), 3)
    got = jax.jit(jax.vmap(lambda key: random_words(key, (11,))))(keys)
    expected = jax.vmap(lambda key: _bits(key, (11,)))(keys)
    np.testing.assert_array_equal(got, expected)
    other = jax.random.key(4, impl="rbg")
    np.testing.assert_array_equal(random_words(other, (5,)), _bits(other, (5,)))


def test_random_words_ignore_how_jax_is_set_to_count() -> None:
    key = as_key(9)
    expected = random_words(key, (6,))
    with jax.threefry_partitionable(False):
        np.testing.assert_array_equal(random_words(key, (6,)), expected)
        # the setting does change JAX's own
        assert not np.array_equal(_bits(key, (6,)), expected)
