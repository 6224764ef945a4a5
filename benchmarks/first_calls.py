"""First calls of public functions at a new size, from empty caches.

Prints the processor seconds of each, how many programs JAX compiled for it, and what a
second call takes; loops that numba compiles are in the seconds only.
`python benchmarks/first_calls.py [NAME ...]`
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

_CACHES = tempfile.TemporaryDirectory()
os.environ["NUMBA_CACHE_DIR"] = _CACHES.name
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

import jax  # noqa: E402
import numpy as np  # noqa: E402

import mrsa_jax as mj  # noqa: E402
from mrsa_jax import attacks, graphs, hetero, modular, quantize, secagg  # noqa: E402

_RNG = np.random.default_rng(0)
_HISTORY = _RNG.random((18, 27)) < 0.4
_UPDATE = _RNG.standard_normal(1_237).astype(np.float32)
_CODES = _RNG.integers(0, 37, (11, 1_237)).astype(np.uint32)
_KEY = jax.random.key(0)


def _arrays(*values: np.ndarray) -> list[jax.Array]:
    return [jax.device_put(each) for each in values]


def _quantize(quantizer: Any, values: np.ndarray) -> Any:
    return quantizer.decode(quantizer.encode(_KEY, *_arrays(values)), 1)


def _aggregate() -> Any:
    inputs, joined = _RNG.integers(0, 1000, (13, 21)), ~np.eye(13, dtype=bool)
    return secagg.aggregate(
        0, inputs, joined, np.ones((5, 13), bool), 5, modulus_bits=16
    ).total


def _select() -> Any:
    selector = mj.selection.batch_partitioning(39, 12, 3)
    return selector.select(_KEY, selector.init(), *_arrays(np.ones(39, np.bool_)))


CALLS: dict[str, Callable[[], Any]] = {
    "rollout": lambda: mj.selection.rollout(
        0, mj.selection.uniform(26, 12), mj.availability.independent(0.1), 17
    ),
    "rollout_trials": lambda: mj.selection.rollout_trials(
        0,
        mj.selection.batch_partitioning(24, 12, 3),
        mj.availability.independent(0.1),
        19,
        7,
    ),
    "fairness_gap": lambda: mj.selection.fairness_gap(_HISTORY),
    "select": _select,
    "available": lambda: (
        mj.availability.independent(0.1).for_clients(37).sample(_KEY, None)
    ),
    "weak_privacy": lambda: mj.privacy.weak_privacy(_HISTORY).lower,
    "hidden_among": lambda: mj.privacy.hidden_among(_HISTORY),
    "secagg.aggregate": _aggregate,
    "failure_rates": lambda: (
        secagg.failure_rates(0, 23, 0.6, 0.1, 7, 50).unreliable.rate
    ),
    "stochastic": lambda: _quantize(quantize.stochastic(16, 1.0), _UPDATE),
    "lattice": lambda: _quantize(quantize.lattice(0.01, 1.0, 29), _UPDATE[:29]),
    "add": lambda: modular.add(*_arrays(_CODES[0], _CODES[1]), 37),
    "ring_sum_over": lambda: modular.ring_sum_over(*_arrays(_CODES), 37),
    "reduce_words": lambda: modular.reduce_words(*_arrays(_CODES[0], _CODES[1]), 37),
    "median": lambda: hetero.robust.coordinate_median()(_CODES[:9], np.ones(9)),
    "least_squares": lambda: attacks.least_squares(
        _HISTORY, _RNG.standard_normal((18, 5))
    ),
    "random graph": lambda: graphs.erdos_renyi(31, 0.5).sample(_KEY),
}


class _Programs(logging.Handler):
    """Counts what JAX says that it compiles."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.getMessage().startswith("Compiling")


def main() -> None:
    """Print the table."""
    # JAX logs each program that it compiles
    programs, logger = _Programs(), logging.getLogger("jax._src.interpreters.pxla")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(programs)
    logger.propagate = False
    start = time.process_time()
    for name in sys.argv[1:] or CALLS:
        before, begin = programs.count, time.process_time()
        jax.block_until_ready(CALLS[name]())
        first, compiled = time.process_time() - begin, programs.count - before
        begin = time.perf_counter()
        jax.block_until_ready(CALLS[name]())
        again = 1e3 * (time.perf_counter() - begin)
        print(f"{name:16} {first:7.2f} s {compiled:4d} programs, again {again:8.1f} ms")

    print(
        f"{'all':16} {time.process_time() - start:7.2f} s {programs.count:4d} programs"
    )


if __name__ == "__main__":
    main()
