"""The compiled programs of a training.

A cohort's local training, the server's step, rounds.
What a round receives and reports, how cohorts spread over devices, and rounds of one
training or of several as one program. Everything here is traced; who calls it decides
what is trained next.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
