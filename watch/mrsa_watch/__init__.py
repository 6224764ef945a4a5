"""Records who is in each learnt sum of a running federation, and watches and gates what leaks.

It needs NumPy alone; numba, where it is installed, makes the gate fast, and mrsa_jax proves more
of it. Adapters of other systems are modules of their own, imported by who has the system:
`mrsa_watch.flower` and `mrsa_watch.nvflare`.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
