"""Bytes of pads a second inside `ring_sum` against OpenSSL's ChaCha20 on one core."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax._core.arrays import on_device
from mrsa_jax.bench.harness import Measurement, Sized, compare
from mrsa_jax.graphs.registry import ROWS, Graph
from mrsa_jax.secagg import complete_plan, derive_seeds, key_material, ring_sum
from mrsa_watch._base.errors import require


def keystreams(
    streams: int,
    dim: int,
    modulus: int,
) -> Callable[[], int]:
    """Return a function that makes this many keystreams with OpenSSL."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    # OpenSSL needs room for one more block
    size = stream_bytes(dim, modulus)
    zeros, out = bytes(size), bytearray(size + 64)

    def openssl() -> int:
        for stream in range(streams):
            key, nonce = stream.to_bytes(32, "little"), bytes(16)
            Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor().update_into(
                zeros, out
            )
        return streams

    return openssl


def stream_bytes(dim: int, modulus: int) -> int:
    """Return the bytes of keystream of one pad."""
    return 4 * dim * (1 if modulus & (modulus - 1) == 0 else 2)


def _named(graph: str) -> Graph:
    """Return a graph by its name, with its degree or chance: `harary:20`."""
    name, _, number = graph.partition(":")
    row = ROWS.get(name)
    if row is None or not row.setting:
        return Graph.parse(graph)
    kind = int if row.setting == "degree" else float
    value = (
        kind(number)
        if re.fullmatch(r"\d+" if kind is int else r"[\d.]+", number)
        else None
    )
    require(
        value is not None, "graph", f"must be {name}:X with its {row.setting} X", graph
    )
    return Graph(row, (value,))


def num_edges(graph: str, n: int, modulus: int) -> int:
    """Return about how many edges a graph has, after checks of all three settings."""
    require(n >= 2, "n", "must be at least 2", n)
    is_power = modulus & (modulus - 1) == 0 and modulus <= 2**32
    require(
        modulus >= 2 and (is_power or modulus < 2**31),
        "modulus",
        "must be a power of two up to 2**32, or in [2, 2**31)",
        modulus,
    )
    named = _named(graph)
    named.build(n)
    degree = named.degree(n)
    return n * (n - 1 if degree is None else degree) // 2


def adjacency_of(graph: str, n: int) -> np.ndarray:
    """Return bool[n, n]."""
    return np.asarray(_named(graph).build(n).sample(jax.random.key(0)))


def ring_sums(
    n: int,
    dim: int,
    modulus: int,
    graph: str = "complete",
) -> Measurement:
    """Time the pads of a sum in the ring against their keystreams alone."""
    rng = np.random.default_rng(0)
    limit = min(modulus, 2**16)
    inputs = on_device(rng.integers(0, limit, (n, dim), np.uint32))
    plan = complete_plan(n, dim, modulus)
    # a pad per edge, and one per client
    edges = np.argwhere(np.triu(adjacency_of(graph, n)))
    seeds = derive_seeds(key_material(0), jnp.arange(n), 0, edges)
    # each pad is a separate keystream
    streams, size = len(edges) + n, stream_bytes(dim, modulus)

    def check(ours: jax.Array, _: int) -> None:
        expected = np.asarray(inputs).sum(axis=0, dtype=np.uint64) % modulus
        np.testing.assert_array_equal(np.asarray(ours, np.uint64), expected)

    return compare(
        lambda: ring_sum(seeds, inputs, plan, 0).total,
        keystreams(streams, dim, modulus),
        work=streams * size,
        check=check,
        made_bytes=streams * size,
    )


def sized(
    n: int,
    dim: int,
    graph: str,
    modulus: int,
) -> Sized:
    """Return a ring sum over a graph."""
    edges = num_edges(graph, n, modulus)
    # inputs twice; seeds; the graph
    memory = 8 * n * dim + 8 * dim + 100 * edges + 2 * n * n
    return Sized(memory, lambda: ring_sums(n, dim, modulus, graph))
