"""Attacks on what a server learns over many rounds of secure aggregation.

What needs flax loads when first used: commands that attack no model do not wait for it.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
