"""Differential privacy in the ring.

Integer noise that clients add, and the account of it.
What needs an accountant loads when first used.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
