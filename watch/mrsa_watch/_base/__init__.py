"""What the log, the gate and `mrsa_jax` build on."""
