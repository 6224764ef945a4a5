"""Selection of each round's clients, and its effect on fairness and size of sums.

Modules load when first used: names of schemes, which the command line needs, load
without JAX.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
