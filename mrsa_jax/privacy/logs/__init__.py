"""Readers of the participation logs of other systems."""

from mrsa_jax.privacy.logs._integer_rows import integer_rows
from mrsa_jax.privacy.logs._read import ParticipationLog, read_log

__all__ = ["ParticipationLog", "integer_rows", "read_log"]
