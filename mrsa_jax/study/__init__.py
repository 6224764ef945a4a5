"""Studies: configurations, their stages, their results on disk, tables and reports.

What needs JAX loads when first used: the command line's help shows configurations and
must not wait for it.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
