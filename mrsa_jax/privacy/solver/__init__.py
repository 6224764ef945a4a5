"""The searches behind weak privacy.

Light vectors of a row space, found or proved absent.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
