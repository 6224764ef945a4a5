"""Federated training in which a cohort's local training is one vectorised pure function.

What needs flax loads when first used: commands that train nothing do not wait for it.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
