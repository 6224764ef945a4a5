"""Readers of other systems' participation logs, and the format of this package."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
