"""Quantizers: real updates to ring elements and back, and the ring that a sum needs."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
