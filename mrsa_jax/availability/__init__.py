"""Availability of clients in each round: models behind one contract.

Modules load when first used: names of models, which settings need, load without JAX.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
