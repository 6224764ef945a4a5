"""SecAgg+'s degree and threshold.

Misuse, tails against exact fractions, the statements bounded.
"""

from __future__ import annotations

import inspect
import itertools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.graphs import harary, is_connected, secagg_plus_parameters
from mrsa_jax.graphs._secagg_plus import log_tails

BASE = {"num_clients": 100, "corrupt_fraction": 0.2, "dropout_fraction": 0.1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_clients": 1}, "`num_clients` must lie in"),
        ({"num_clients": 10.0}, "`num_clients` must be an integer"),
        (
            {"corrupt_fraction": 1.0},
            r"`corrupt_fraction` must lie in \[0, 1\); got 1.0",
        ),
        (
            {"corrupt_fraction": -0.1},
            r"`corrupt_fraction` must lie in \[0, 1\); got -0.1",
        ),
        (
            {"corrupt_fraction": math.nan},
            r"`corrupt_fraction` must lie in \[0, 1\); got nan",
        ),
        ({"dropout_fraction": True}, "`dropout_fraction` must be a number"),
        ({"dropout_fraction": "0"}, "`dropout_fraction` must be a number"),
        ({"dropout_fraction": 2}, r"`dropout_fraction` must lie in \[0, 1\); got 2"),
        ({"security_bits": 0}, "`security_bits` must be at least 1; got 0"),
        ({"correctness_bits": 1.5}, "`correctness_bits` must be an integer"),
        (
            {"corrupt_fraction": 0.5, "dropout_fraction": 0.49},
            "`corrupt_fraction` must leave .* 50 corrupt and 49 lost of 100 .*; got "
            "0.5 and 0.49",
        ),
        (
            {"dropout_fraction": 0.4, "lying_server": True},
            "leave room .* 20 corrupt and 40 lost",
        ),
    ],
)
def test_misuse_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        inspect.unwrap(secagg_plus_parameters)(**(BASE | change))


def test_domain_is_exact() -> None:
    """c + d <= n - 2, and c + 2 d <= n - 3 for a server that lies, are enough and needed."""
    for c, d in itertools.product(range(8), repeat=2):
        for lying in (False, True):
            arguments = (8, Fraction(c, 8), Fraction(d, 8))
            if c + d * (1 + lying) <= 6 - lying:
                found = secagg_plus_parameters(*arguments, lying_server=lying)
                assert (found.num_corrupt, found.num_dropped) == (c, d)
            else:
                with pytest.raises(ConfigurationError, match="must leave room"):
                    secagg_plus_parameters(*arguments, lying_server=lying)


def _tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P[H >= least], by counting."""
    ways = sum(
        math.comb(marked, x) * math.comb(population - marked, drawn - x)
        for x in range(max(least, 0), min(marked, drawn) + 1)
    )
    return Fraction(ways, math.comb(population, drawn))


def _log(value: Fraction) -> float:
    return (
        math.log(value.numerator) - math.log(value.denominator) if value else -math.inf
    )


@pytest.mark.smoke("1-0-1")
@pytest.mark.parametrize(
    ("population", "marked", "drawn"),
    [
        (1, 0, 1),
        (5, 2, 3),
        (9, 9, 4),
        (9, 0, 4),
        (20, 7, 20),
        (99, 33, 40),
        (999, 200, 57),
    ],
)
def test_tails_against_exact_fractions(
    population: int, marked: int, drawn: int
) -> None:
    upper, lower = log_tails(population, marked, drawn)
    assert len(upper) == len(lower) == drawn + 2
    for x in range(drawn + 2):
        tail = _tail(population, marked, drawn, x)
        for ours, exact in ((upper[x], tail), (lower[x], 1 - tail)):
            assert ours == pytest.approx(_log(exact), rel=1e-11, abs=1e-11)


def _fewest_who_unmask(k: int, t: int) -> int:
    """Least x such that a lying server, with x corrupt neighbours, gets both secrets.

    It tells some of the k - x honest neighbours and the client itself that the client
    is there, and the others that it is lost.
    """
    return next(
        x
        for x in range(k + 2)
        if any(min(here + 1 + x, k - here) >= t for here in range(k - x + 1)) or x > k
    )


def _bounds(
    n: int, c: int, d: int, k: int, t: int, lying: bool
) -> tuple[Fraction, ...]:
    """The three statements' bounds as fractions."""
    least = _fewest_who_unmask(k, t) if lying else t
    exposed = n * _tail(n - 1, c, k, least)
    unrecoverable = n * (1 - _tail(n - 1, n - d - 1, k, t))
    run = Fraction(n)
    for j in range(k // 2):
        run *= Fraction(max(c + d - j, 0), n - j)
    never = k == n - 1 or (k >= 2 and c + d < k)
    return exposed, Fraction(0) if never else run, unrecoverable


@pytest.mark.parametrize("lying", [False, True])
@pytest.mark.parametrize(
    ("n", "c", "d", "sigma", "eta"),
    [
        (12, 1, 2, 5, 3),
        (25, 3, 4, 6, 4),
        (40, 0, 10, 20, 10),
        (40, 10, 0, 10, 10),
        (61, 6, 6, 12, 8),
    ],
)
def test_smallest_degree_by_trying_all(
    n: int, c: int, d: int, sigma: int, eta: int, lying: bool
) -> None:
    found = secagg_plus_parameters(
        n, Fraction(c, n), Fraction(d, n), sigma, eta, lying_server=lying
    )
    works = {}
    for k in range(min(2, n - 1), n):
        for t in range(1, k + 1):
            exposed, run, unrecoverable = _bounds(n, c, d, k, t, lying)
            secure = max(exposed, run) <= Fraction(1, 2**sigma)
            if n * k % 2 == 0 and secure and unrecoverable <= Fraction(1, 2**eta):
                works.setdefault(k, []).append(t)
    assert (found.degree, found.threshold) == (min(works), max(works[min(works)]))
    exact = _bounds(n, c, d, found.degree, found.threshold, lying)
    ours = (found.log2_exposed, found.log2_disconnected, found.log2_unrecoverable)
    for logarithm, bound in zip(ours, exact, strict=True):
        assert logarithm == pytest.approx(min(0.0, _log(bound) / math.log(2)), rel=1e-9)


def test_fractions_count_whole_clients() -> None:
    """0.29 of 100 is 29 clients, although the float nearest to 0.29 is below."""
    for fraction, count in (
        (0.29, 29),
        (Fraction(29, 100), 29),
        (1 / 3, 33),
        (0, 0),
        (0.999e-2, 0),
    ):
        assert secagg_plus_parameters(100, fraction, 0.0).num_corrupt == count
        assert secagg_plus_parameters(100, 0.0, fraction).num_dropped == count


def test_smallest_rounds() -> None:
    pair = secagg_plus_parameters(2, 0.0, 0.0)
    assert (pair.degree, pair.threshold) == (1, 1)
    three = secagg_plus_parameters(3, 0.0, 0.0)
    assert (three.degree, three.threshold) == (2, 2)
    quiet = secagg_plus_parameters(1000, 0.0, 0.0)  # nobody corrupt or lost: a ring
    assert (quiet.degree, quiet.threshold) == (2, 2)
    assert (
        quiet.log2_disconnected
        == quiet.log2_exposed
        == quiet.log2_unrecoverable
        == -math.inf
    )


@pytest.mark.parametrize("gamma", [1 / 5, 1 / 3])
@pytest.mark.parametrize("delta", [1 / 20, 1 / 5, 1 / 3])
def test_degrees_are_a_few_hundred_and_grow_slowly(gamma: float, delta: float) -> None:
    degrees = [
        secagg_plus_parameters(n, gamma, delta, 40, 30).degree
        for n in (1000, 10_000, 10**8)
    ]
    assert 50 <= degrees[0] < degrees[1] < degrees[2] < 850
    assert degrees[1] < 0.05 * 10_000
    # logarithmic: five decades take less than twice what the first three take
    assert degrees[2] < 2.2 * degrees[0]


def test_more_is_asked_of_more_neighbours() -> None:
    plain = secagg_plus_parameters(500, 0.2, 0.1)
    for harder in (
        secagg_plus_parameters(500, 0.3, 0.1),
        secagg_plus_parameters(500, 0.2, 0.2),
        secagg_plus_parameters(500, 0.2, 0.1, 60),
        secagg_plus_parameters(500, 0.2, 0.1, 40, 40),
        secagg_plus_parameters(500, 0.2, 0.1, lying_server=True),
    ):
        assert harder.degree > plain.degree
    lying = secagg_plus_parameters(500, 0.2, 0.1, lying_server=True)
    # outside the attack of CCESA, Appendix F
    assert 2 * lying.threshold > lying.degree + 1


@pytest.mark.long
def test_bounds_hold_in_simulation() -> None:
    """Where bounds are loose enough to see.

    Each statement fails no more often than promised.
    """
    n, sigma, eta = 40, 3, 3
    found = secagg_plus_parameters(n, 0.2, 0.2, sigma, eta)
    model, count = harary(n, found.degree), 4000
    keys = jax.vmap(lambda t: trial_key(as_key(6), t))(
        jnp.arange(count, dtype=jnp.uint32)
    )
    corrupt = np.arange(n) < found.num_corrupt
    lost = (np.arange(n) >= 5) & (np.arange(n) < 5 + found.num_dropped)

    def fails(key: jax.Array) -> tuple[jax.Array, ...]:
        graph = model.sample(key)
        bad = (graph & corrupt[None]).sum(1) >= found.threshold
        few = (graph & ~lost[None]).sum(1) < found.threshold
        split = ~is_connected(graph, jnp.asarray(~corrupt & ~lost))
        return (bad & ~corrupt).any(), split, few.any()

    rates = [float(jnp.mean(f)) for f in jax.jit(jax.vmap(fails))(keys)]
    logs = (found.log2_exposed, found.log2_disconnected, found.log2_unrecoverable)
    for rate, log2 in zip(rates, logs, strict=True):
        slack = 5 * math.sqrt(2.0**log2 / count) + 5 / count  # 1e-6, Chernoff
        assert rate <= 2.0**log2 + slack
    assert rates[2] > 0.2 * 2.0**found.log2_unrecoverable  # and the bound is not idle
