"""Compute how often a round fails: bounds, exact sums and simulation.

Theorems 1 to 6 of CCESA.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
