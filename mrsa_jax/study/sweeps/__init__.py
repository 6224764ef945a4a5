"""Grids of settings of a command: their axes, one store, and what computes its points."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
