"""Record the members of sums of a running federation; watch and gate their leaks.

It needs only NumPy. If numba is installed, the gate is fast, and if mrsa_jax is, it
proves more. Adapters of other systems are separate modules, to be imported where the
system is installed: `mrsa_watch.flower` and `mrsa_watch.nvflare`.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
