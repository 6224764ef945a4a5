"""Readers of the participation logs of other systems."""

from mrsa_jax.privacy.logs._integer_rows import integer_rows
from mrsa_jax.privacy.logs._read import read_log
from mrsa_jax.privacy.logs._table import ParticipationLog

__all__ = ["ParticipationLog", "integer_rows", "read_log"]
