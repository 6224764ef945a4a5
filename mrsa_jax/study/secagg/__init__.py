"""One round of secure aggregation at any fidelity, and studies of when rounds fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax.study.secagg._failures import RATES, power
    from mrsa_jax.study.secagg._setting import Setting

__all__ = ["RATES", "Setting", "power"]

__getattr__, __dir__ = late_names(__name__)
