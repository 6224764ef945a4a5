"""Histories made to deceive.

By whoever knows the primes, the searches or the floats of an engine.
Integers of at most 63 bits. Small ones are for exhaustion; the gadgets are large 0/1
histories whose rank falls modulo a number, and of which everything is known by
construction.
"""

from __future__ import annotations

import math

import numpy as np

# Primes of this package's searches, past and present, and of other libraries.
KNOWN = (
    8_179, 8_191, 32_749, 65_521, 1_199_999_963, 1_199_999_993, 2**31 - 1, 2**31 - 19,
    2**32 - 5, 2**61 - 1,
)  # fmt: skip
MOST = 2**62


def small(count: int, seed: int, shape: tuple[int, int] = (6, 8)) -> np.ndarray:
    """Return int64 histories `[count, *shape]` of all kinds, smaller ones filled up with zeros."""
    rng = np.random.default_rng(seed)
    kinds = (_planted, _around_primes, _multiples, _near_dependent, _heavy, _grouped)
    found = np.zeros((count, *shape), np.int64)
    for number in range(count):
        rounds = int(rng.integers(1, shape[0] + 1))
        clients = int(rng.integers(2, shape[1] + 1))
        history = kinds[number % len(kinds)](rng, rounds, clients)
        found[number, :rounds, rng.permutation(shape[1])[:clients]] = history.T
    return found


def _planted(rng: np.random.Generator, rounds: int, clients: int) -> np.ndarray:
    """A light vector behind a change of basis that leaves no row light."""
    rows = rng.integers(-9, 10, (rounds, clients))
    weight = int(rng.integers(1, clients + 1))
    rows[0] = 0
    rows[0, rng.permutation(clients)[:weight]] = rng.integers(1, 50, weight)
    for _ in range(3):
        rows = rng.integers(-3, 4, (rounds, rounds)) @ rows
    return rows


def _around_primes(rng: np.random.Generator, rounds: int, clients: int) -> np.ndarray:
    """Entries that are 0, 1 or -1 modulo some prime, and rarely anything over the rationals."""
    primes = rng.choice(KNOWN[:-1], 2)
    values = [0, 1, -1]
    values += [int(prime) + unit for prime in primes for unit in (-1, 0, 1)]
    if math.prod(int(prime) for prime in primes) < MOST:
        values += [int(primes[0]) * int(primes[1]) + unit for unit in (-1, 0, 1)]
    return rng.choice(values, (rounds, clients))


def _multiples(rng: np.random.Generator, rounds: int, clients: int) -> np.ndarray:
    """Rows that are equal, zero or unit vectors modulo a prime and not over the rationals."""
    prime = int(rng.choice(KNOWN))
    rows = rng.integers(0, 2, (rounds, clients))
    rows[rng.random(rounds) < 0.5] *= prime
    hidden = rng.random((rounds, clients)) < 0.3
    return rows + prime * hidden * rng.integers(0, 2, (rounds, clients))


def _near_dependent(rng: np.random.Generator, rounds: int, clients: int) -> np.ndarray:
    """Copies, multiples and sums of rows, some off by one in one place, at a scale to 2**40."""
    rows = rng.integers(0, 2 ** int(rng.integers(1, 40)), (rounds, clients))
    for j in range(1, rounds):
        kind = rng.integers(4)
        if kind == 0:
            rows[j] = rows[j - 1]
        elif kind == 1:
            rows[j] = rows[:j].sum(axis=0)
        elif kind == 2:
            rows[j] = rows[rng.integers(j)] * int(rng.integers(1, 5))
        if kind < 3 and rng.random() < 0.5:
            rows[j, rng.integers(clients)] += 1
    return rows


def _heavy(rng: np.random.Generator, rounds: int, clients: int) -> np.ndarray:
    """Weights to 2**62 beside a few small ones."""
    heavy = rng.integers(-MOST, MOST, (rounds, clients))
    return np.where(
        rng.random((rounds, clients)) < 0.5, heavy, rng.integers(-1, 2, heavy.shape)
    )


def _grouped(rng: np.random.Generator, rounds: int, clients: int) -> np.ndarray:
    """Clients with equal columns, but for a prime in one of them."""
    blocks = rng.integers(0, 2, (rounds, max(1, clients // 2)))
    rows = blocks[:, np.arange(clients) % blocks.shape[1]]
    if rng.random() < 0.5:
        rows[rng.integers(rounds), rng.integers(clients)] += int(rng.choice(KNOWN))
    return rows


def falling(number: int) -> np.ndarray:
    """Return a square 0/1 history of full rank whose rank falls modulo every factor of a number.

    Its columns hold 2**k twice and -2**k once, as their kernel modulo `number` says:
    x_k = -w_k, y_k = -w_k, x_k + y_k = -w_(k+1), and the powers that make up the number
    sum to 0. Over the rationals that leaves x_0 times `number` = 0, and so nothing but
    zero.
    """
    bits = number.bit_length()
    rows = []
    for k in range(bits):
        x, y, w = 3 * k, 3 * k + 1, 3 * k + 2
        rows += [(x, w), (y, w)] + ([(x, y, w + 3)] if k + 1 < bits else [])
    rows.append(tuple(3 * k for k in range(bits) if number >> k & 1))
    history = np.zeros((len(rows), 3 * bits), bool)
    for row, columns in zip(history, rows, strict=True):
        row[list(columns)] = True
    return history


def beside(history: np.ndarray) -> np.ndarray:
    """Return a 0/1 history in whose rounds three further clients take part, none of them exposed.

    So that the rank is not that of all clients: x + y and y + z are learnt.
    """
    rounds, clients = history.shape
    wide = np.zeros((rounds + 2, clients + 3), bool)
    wide[:rounds, :clients] = history
    wide[rounds, clients : clients + 2] = True
    wide[rounds + 1, clients + 1 :] = True
    return wide
