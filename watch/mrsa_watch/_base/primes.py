"""Primes that are drawn, and how likely they are to err. The standard library alone."""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Sequence

# All primes lie between 2**30 and 2**32 / 3.5: 31 bits, and 3.5 p still fits in a word
# (`scale`).
_LEAST, _MOST = 2**30, 1_227_133_513
NUM_PRIMES = 7_000_000  # there are a few more
# What is decided in bulk by drawn primes errs with a chance below 2**-30 a matrix.
ERROR_BITS = 30
_MOST_DRAWN = 64  # for integers of millions of digits
# Between 2**60 and 2**61 there are more primes (x / log x within 1.8 %: Rosser,
# Schoenfeld 1962).
NUM_WIDE_PRIMES = 26 * 10**15
_WIDE_BITS = 60
# No composite below 3.1 * 10**23 passes the strong test to all of these bases
# (Sorenson, Webster).
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def draw_primes(count: int, without: Sequence[int] = ()) -> tuple[int, ...]:
    """Draw different primes between 2**30 and 2**32 / 3.5 by the system's randomness.

    Nobody who writes a matrix can know them, so that a non-zero integer of b bits, of
    which fewer than b / 30 such primes are divisors, is zero modulo each of k of them
    with a chance below (b / 30 / `NUM_PRIMES`)**k (`error_bits`).
    """
    drawn: list[int] = []
    while len(drawn) < count:
        value = _LEAST + secrets.randbelow(_MOST - _LEAST) | 1
        if value not in without and value not in drawn and is_prime(value):
            drawn.append(value)
    return tuple(drawn)


def draw_wide_primes(count: int, without: Sequence[int] = ()) -> tuple[int, ...]:
    """Draw different primes between 2**60 and 2**61 by the system's randomness.

    For integers on the host that grow as data comes: two of them err with a chance that
    no such growth exhausts (`wide_error_bits`).
    """
    drawn: list[int] = []
    while len(drawn) < count:
        value = 2**_WIDE_BITS + secrets.randbelow(2**_WIDE_BITS) | 1
        if value not in without and value not in drawn and is_prime(value):
            drawn.append(value)
    return tuple(drawn)


def wide_error_bits(minor_bits: float, count: int, cases: int = 1) -> int:
    """Return k such that `draw_wide_primes` err with a chance below 2**-k."""
    odds = NUM_WIDE_PRIMES / max(1.0, minor_bits / _WIDE_BITS)
    return max(0, math.floor(count * math.log2(odds) - math.log2(cases)))


def is_prime(number: int) -> bool:
    """Return whether an integer below 3.1 * 10**23 is a prime, by the strong test.

    Examples:
        >>> [number for number in range(-3, 20) if is_prime(number)]
        [2, 3, 5, 7, 11, 13, 17, 19]
        >>> is_prime(2**31 - 1), is_prime(2**31 - 3)
        (True, False)
    """
    if number < 2 or any(number % base == 0 for base in _BASES):
        return number in _BASES
    rest = number - 1
    # number - 1 is 2**twos times an odd number
    twos = (rest & -rest).bit_length() - 1
    # four suffice below 3,215,031,751
    for base in _BASES if number >> 31 else _BASES[:4]:
        value = pow(base, rest >> twos, number)
        if value in (1, rest):
            continue
        # modulo a prime, 1 has no square roots but 1 and -1
        for _ in range(twos - 1):
            value = value * value % number
            if value == rest:
                break
        else:
            return False
    return True


def error_bits(minor_bits: float, count: int, cases: int = 1) -> int:
    """Return k such that drawn primes err with a chance below 2**-k.

    Args:
        minor_bits: log2 of a bound on the integers that must not be zero modulo all
            primes.
        count: How many primes were drawn.
        cases: The number of such integers.
    """
    odds = NUM_PRIMES / max(1.0, minor_bits / 30)
    return max(0, math.floor(count * math.log2(odds) - math.log2(cases)))


def enough_primes(minor_bits: float, cases: int = 1, bits: int = ERROR_BITS) -> int:
    """Return a number of primes, two or more, that err with a chance below 2**-bits."""
    if error_bits(minor_bits, 1) < 1:
        return _MOST_DRAWN
    return next(
        n for n in itertools.count(2) if error_bits(minor_bits, n, cases) >= bits
    )
