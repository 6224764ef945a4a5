"""Logs of running systems.

Recorders of who is in each learnt sum, and readers that follow them.
The format is `mrsa_watch.logs`' participation log, JSON Lines, which `mrsa-jax audit`
reads. Adapters of other systems are separate modules, imported where the system is
installed.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
