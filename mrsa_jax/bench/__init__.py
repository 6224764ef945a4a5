"""Benchmarks: what `mrsa-jax bench` runs, how it measures, and who it compares with."""

from mrsa_jax.bench._harness import (
    Measurement,
    ResultsDifferError,
    compare,
    machine,
    record,
    row,
)
from mrsa_jax.bench._peers import PEERS, how_to_make, python_of
from mrsa_jax.bench._run import Report, check_topics, run
from mrsa_jax.bench._topics import TOPICS, Case

__all__ = [
    "PEERS",
    "TOPICS",
    "Case",
    "Measurement",
    "Report",
    "ResultsDifferError",
    "check_topics",
    "compare",
    "how_to_make",
    "machine",
    "python_of",
    "record",
    "row",
    "run",
]
