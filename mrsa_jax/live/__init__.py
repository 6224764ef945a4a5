"""Logs of running systems: recorders of who is in each learnt sum, and readers that follow them.

The format is `mrsa_jax.privacy.logs`' participation log, JSON Lines, which `mrsa-jax audit` reads.
Adapters of other systems are modules of their own, imported by who has the system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax.live._follow import follow
    from mrsa_jax.live._gate import Gate, GateAnswer, GateState
    from mrsa_jax.live._recorder import Recorder

__all__ = ["Gate", "GateAnswer", "GateState", "Recorder", "follow"]

__getattr__, __dir__ = late_names(__name__)
