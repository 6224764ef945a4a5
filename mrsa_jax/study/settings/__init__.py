"""Settings of commands: their fields, tables of names, files, and checks without JAX."""
