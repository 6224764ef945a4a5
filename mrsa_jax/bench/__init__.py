"""Benchmark harness: what `benchmarks/` calls and how a measurement is recorded."""

from mrsa_jax.bench._harness import Measurement, compare, machine, record, table

__all__ = ["Measurement", "compare", "machine", "record", "table"]
