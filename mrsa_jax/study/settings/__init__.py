"""Settings of commands: fields, tables of names, files, and checks without JAX."""
