"""Grids of settings of a command: their axes, one store, and what computes its points."""
