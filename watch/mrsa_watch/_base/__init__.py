"""Foundations of the log, the gate and `mrsa_jax`."""
