"""Who is online in a round: availability models behind one contract."""

from mrsa_jax.availability._cyclic import Cyclic, cyclic, diurnal
from mrsa_jax.availability._independent import Independent, assign_rates, independent
from mrsa_jax.availability._markov import Markov, markov
from mrsa_jax.availability._replay import Replay, replay
from mrsa_jax.availability._types import Availability

__all__ = [
    "Availability",
    "Cyclic",
    "Independent",
    "Markov",
    "Replay",
    "assign_rates",
    "cyclic",
    "diurnal",
    "independent",
    "markov",
    "replay",
]
