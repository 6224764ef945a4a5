"""Benchmarks: what `mrsa-jax bench` runs, how it measures, and who it compares with."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
