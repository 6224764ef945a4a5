"""Exact arithmetic.

The ring of a sum, the ChaCha20 keystream, linear algebra modulo a prime.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
