"""Assignment graphs.

Who shares keys, shares and pads with whom, and what losses leave of them.
Modules load when first used: names of graphs, which settings need, load without JAX.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
