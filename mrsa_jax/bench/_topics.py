"""The topics of `mrsa-jax bench`: what each measures, and the cases of one when it is wanted.

Nothing here imports JAX: `--help` and `--list` answer at once. A topic `x` lives in the module
`_x.py`, whose `cases(quick)` returns its cases in order.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from mrsa_jax.bench._harness import Measurement


class Case(NamedTuple):
    """One measurement to be made.

    Attributes:
        name: What is run, with its sizes.
        measure: Sets up, compares and times.
        needs: The system of `PEERS` that it is compared with; None if it needs none.
    """

    name: str
    measure: Callable[[], Measurement]
    needs: str | None = None


class Topic(NamedTuple):
    """What a topic measures.

    Attributes:
        ours: What of ours is timed.
        beside: What it is compared with in this process.
        peers: Systems in environments of their own that `--peers` compares it with.
    """

    ours: str
    beside: str
    peers: tuple[str, ...] = ()


TOPICS: dict[str, Topic] = {
    "selection": Topic(
        "rounds a second of each selection scheme, many trials at once",
        "a NumPy loop over rounds, one core",
    ),
    "rank": Topic(
        "ranks of participation matrices modulo primes, batched",
        "a loop over numpy.linalg.matrix_rank",
    ),
    "privacy": Topic(
        "exact questions, bounds in bulk, certificates and coalitions",
        "NumPy's decomposition for each coalition; else times aimed at",
    ),
    "live": Topic(
        "a growing history: seconds a sum, cohorts before one, the log read again",
        "the batch functions on the same history",
    ),
    "pads": Topic(
        "bytes of ChaCha20 pads a second inside a ring sum",
        "OpenSSL's ChaCha20 alone, one core",
    ),
    "secagg": Topic(
        "whole protocol rounds, Shamir shares, time as edges grow",
        "the real protocol; CCESA beside SecAgg; NumPy",
        ("flower",),
    ),
    "failures": Topic(
        "judged rounds a second of the failure studies",
        "a NumPy loop over rounds",
    ),
    "hetero": Topic(
        "HeteroSAg rounds with pads; its aggregator without",
        "its largest block's pads alone; ring_average",
    ),
    "dp": Topic(
        "exact integer draws a second of noise in the ring; ledgers, accounts, privacy losses",
        "NumPy's, by floats; the random words alone",
        ("jax_privacy",),
    ),
    "training": Topic(
        "samples a second of a cohort as one mapped function",
        "a loop over clients, one jitted step at a time",
        ("pytorch",),
    ),
    "rounds": Topic(
        "whole rounds of federated averaging",
        "nothing",
        ("fedjax", "pfl", "flower"),
    ),
    "cohorts": Topic(
        "seeds side by side, bfloat16, random words, first calls",
        "our own other way to the same result",
    ),
    "sweep": Topic(
        "cells of a sweep, each written whole into its store",
        "the same points, not kept",
    ),
    "startup": Topic(
        "seconds from each command's start to its first compilation",
        "those of JAX by itself",
    ),
    "attacks": Topic(
        "gradient inversion, restarts, least squares from file to file",
        "one restart after another; NumPy's pseudo-inverse",
        ("breaching",),
    ),
}


def cases_of(topic: str, *, quick: bool) -> list[Case]:
    """Return the cases of a topic; imports JAX and what the topic needs.

    Args:
        topic: A name of `TOPICS`.
        quick: Sizes of seconds instead of those that the records hold.

    Returns:
        The cases in the order in which they are run.
    """
    module = importlib.import_module(f"mrsa_jax.bench._{topic}")
    found: list[Case] = module.cases(quick)
    return found
