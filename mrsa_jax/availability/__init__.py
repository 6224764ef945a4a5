"""Who is online in a round: availability models behind one contract.

Modules load when first used: names of models, which settings need, load without JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax.availability._cyclic import cyclic, diurnal
    from mrsa_jax.availability._independent import Independent, assign_rates, independent
    from mrsa_jax.availability._markov import markov
    from mrsa_jax.availability._registry import register
    from mrsa_jax.availability._replay import replay
    from mrsa_jax.availability._steps import IndependentSteps, StepDropout, independent_steps
    from mrsa_jax.availability._types import Availability

__all__ = [
    "Availability",
    "Independent",
    "IndependentSteps",
    "StepDropout",
    "assign_rates",
    "cyclic",
    "diurnal",
    "independent",
    "independent_steps",
    "markov",
    "register",
    "replay",
]

__getattr__, __dir__ = late_names(__name__)
