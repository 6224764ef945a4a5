"""What any participation history leaks, computed exactly."""

from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._leverage import leverage, leverage_trajectory
from mrsa_jax.privacy._strong import strong_privacy, strong_privacy_trajectory

__all__ = [
    "first_exposure",
    "leverage",
    "leverage_trajectory",
    "strong_privacy",
    "strong_privacy_trajectory",
]
