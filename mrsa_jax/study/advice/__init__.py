"""The choice of a scheme.

What is measured in a log, what each scheme gives, which to take.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
