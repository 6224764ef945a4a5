"""Data sets that are on this machine, and ways to spread their samples over clients."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
