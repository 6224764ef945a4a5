"""Whom the server asks in each round, and what that does to fairness and to the sums' sizes.

Modules load when first used: names of schemes, which the command line needs, load
without JAX.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
