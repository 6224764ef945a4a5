"""ChaCha20 against RFC 8439's vectors and against OpenSSL through `cryptography`."""

import json
import pathlib
import struct

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax.modular import chacha20_columns, keystream

VECTORS = json.loads(
    (pathlib.Path(__file__).parent.parent / "vectors" / "rfc8439.json").read_text()
)


def words(data: bytes) -> jax.Array:
    return on_device(np.frombuffer(data, "<u4").astype(np.uint32))


def openssl(key: bytes, nonce: bytes, counter: int, length: int) -> bytes:
    initial = struct.pack("<L", counter) + nonce
    return (
        Cipher(algorithms.ChaCha20(key, initial), mode=None)
        .encryptor()
        .update(bytes(length))
    )


def stream_bytes(stream: jax.Array) -> bytes:
    return np.asarray(stream).astype("<u4").tobytes()


@pytest.mark.parametrize("num_words", [-1, 2**36 + 1])
def test_rejects_lengths_that_no_counter_covers(num_words):
    key, nonce = zeros(8, np.uint32), zeros(3, np.uint32)
    with pytest.raises(
        mj.ConfigurationError, match=r"`num_words` must lie in .* got -?\d+"
    ):
        keystream(key, nonce, num_words)


@pytest.mark.smoke("-1")
@pytest.mark.parametrize("counter", [-1, 2**32])
def test_rejects_counters_that_are_no_word(counter):
    key, nonce = jnp.zeros(8, jnp.uint32), jnp.zeros(3, jnp.uint32)
    with pytest.raises(mj.ConfigurationError, match="`counter` must lie in"):
        keystream(key, nonce, 16, counter)


EVERY_FORM = pytest.mark.parametrize("form", ["xla", "pallas"])


@pytest.mark.long("2.3.2-pallas")
@EVERY_FORM
@pytest.mark.parametrize("vector", VECTORS["blocks"], ids=lambda vector: vector["name"])
def test_blocks_of_the_rfc(vector, form):
    key, nonce = (
        words(bytes.fromhex(vector["key"])),
        words(bytes.fromhex(vector["nonce"])),
    )
    with mj.use_form(form):
        counter = jnp.asarray([vector["counter"]], jnp.uint32)
        block = chacha20_columns(key[:, None], counter, nonce[:, None])[:, 0]
    assert stream_bytes(block).hex() == vector["keystream"]


@EVERY_FORM
def test_cipher_of_the_rfc(form):
    vector = VECTORS["cipher"]
    key, nonce = (
        words(bytes.fromhex(vector["key"])),
        words(bytes.fromhex(vector["nonce"])),
    )
    plain, cipher = (
        bytes.fromhex(vector[name]) for name in ("plaintext", "ciphertext")
    )
    with mj.use_form(form):
        stream = stream_bytes(
            keystream(key, nonce, -(-len(plain) // 4), vector["counter"])
        )
    assert bytes(a ^ b for a, b in zip(plain, stream, strict=False)) == cipher


@pytest.mark.long
@hypothesis.given(
    key=st.binary(min_size=32, max_size=32),
    nonce=st.binary(min_size=12, max_size=12),
    num_words=st.sampled_from([0, 1, 15, 16, 17, 250, 1024]),
    counter=st.integers(0, 2**32 - 65),
)
def test_keystream_equals_openssl(key, nonce, num_words, counter):
    stream = keystream(words(key), words(nonce), num_words, jnp.uint32(counter))
    assert stream_bytes(stream) == openssl(key, nonce, counter, 4 * num_words)


# the last tile of a kernel's blocks is partly filled
@pytest.mark.parametrize(
    ("form", "num_words"), [("xla", 16 * 4796 + 3), ("pallas", 16 * 128 + 35)]
)
def test_long_keystream_equals_openssl(form, num_words):
    rng = np.random.default_rng(5)
    key, nonce = rng.bytes(32), rng.bytes(12)
    with mj.use_form(form):
        stream = keystream(words(key), words(nonce), num_words, 9)
    assert stream_bytes(stream) == openssl(key, nonce, 9, 4 * num_words)


@EVERY_FORM
def test_no_words_and_no_blocks(form):
    key, nonce = zeros((8, 0), np.uint32), zeros((3, 0), np.uint32)
    with mj.use_form(form):
        assert chacha20_columns(key, zeros(0, np.uint32), nonce).shape == (16, 0)
        assert keystream(zeros(8, np.uint32), zeros(3, np.uint32), 0).shape == (0,)


@pytest.mark.long
@EVERY_FORM
def test_columns_mix_keys_counters_and_nonces(form):
    rng = np.random.default_rng(6)
    count = 5 if form == "xla" else 131  # a kernel's tiles hold 128 blocks
    keys, nonces = (
        [rng.bytes(32) for _ in range(count)],
        [rng.bytes(12) for _ in range(count)],
    )
    counters = [0, 1, 7, 2**31, 2**32 - 1, *range(count - 5)]
    with mj.use_form(form):
        columns = chacha20_columns(
            jnp.stack([words(key) for key in keys], axis=1),
            jnp.asarray(counters, jnp.uint32),
            jnp.stack([words(nonce) for nonce in nonces], axis=1),
        )
    for place, case in enumerate(zip(keys, nonces, counters, strict=True)):
        assert stream_bytes(columns[:, place]) == openssl(*case, 64)


@pytest.mark.long
def test_jit_vmap_and_x64_change_nothing():
    rng = np.random.default_rng(7)
    keys = jnp.asarray(rng.integers(0, 2**32, (3, 8), dtype=np.uint32))
    nonce = jnp.asarray([1, 2, 3], jnp.uint32)
    single = [np.asarray(keystream(key, nonce, 40)) for key in keys]
    mapped = jax.jit(jax.vmap(lambda key: keystream(key, nonce, 40)))(keys)
    assert np.array_equal(mapped, single)
    with jax.enable_x64(True):
        wide = keystream(keys[0], nonce, 40)
        assert wide.dtype == jnp.uint32
        assert np.array_equal(wide, single[0])
