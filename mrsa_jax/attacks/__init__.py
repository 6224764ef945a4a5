"""Attacks on what a server learns over many rounds of secure aggregation."""

from mrsa_jax.attacks._least_squares import (
    AggregateView,
    least_squares,
    reconstruction_error,
)

__all__ = ["AggregateView", "least_squares", "reconstruction_error"]
