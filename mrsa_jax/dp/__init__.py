"""Differential privacy in the ring: integer noise that clients add, and the account of it.

What needs an accountant loads when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax.dp._account import Account, account
    from mrsa_jax.dp._amplification import Amplification, amplification
    from mrsa_jax.dp._lattice_noise import LatticeNoise, discrete_gaussian, skellam
    from mrsa_jax.dp._ledger import Ledger, ledger
    from mrsa_jax.dp._mechanism import RingMechanism, ring_mechanism
    from mrsa_jax.dp._privacy_losses import privacy_losses
    from mrsa_jax.dp._strategies import toeplitz

__all__ = [
    "Account",
    "Amplification",
    "LatticeNoise",
    "Ledger",
    "RingMechanism",
    "account",
    "amplification",
    "discrete_gaussian",
    "ledger",
    "privacy_losses",
    "ring_mechanism",
    "skellam",
    "toeplitz",
]

__getattr__, __dir__ = late_names(__name__)
