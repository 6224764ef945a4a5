"""Readers of the participation logs of other systems, and the format of this package's own."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
