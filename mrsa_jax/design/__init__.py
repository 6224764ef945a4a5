"""Families of lines, whose disjoint ones a round sums, and what they promise whatever is summed."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
