"""Families of lines, of which a round sums disjoint ones, and their privacy."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
