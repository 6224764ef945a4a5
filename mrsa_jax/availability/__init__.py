"""Who is online in a round: availability models behind one contract."""

from mrsa_jax.availability._independent import Independent, assign_rates, independent
from mrsa_jax.availability._types import Availability

__all__ = ["Availability", "Independent", "assign_rates", "independent"]
