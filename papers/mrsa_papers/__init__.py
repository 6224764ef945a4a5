"""Every table and figure of the papers, remade and judged against what was printed.

What needs JAX loads when first used: the command line's help lists the items and must
not wait.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
