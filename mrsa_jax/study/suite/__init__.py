"""A suite that ranks selectors, and cards that anyone can verify.

What is frozen, what is measured, and what is compared.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
