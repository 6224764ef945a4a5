"""Readers of the participation logs of other systems, and the format of this package's own."""

from mrsa_jax.privacy.logs._integer_rows import integer_rows
from mrsa_jax.privacy.logs._json import MOST_LINE_BYTES
from mrsa_jax.privacy.logs._jsonl import FORMAT, STATUSES, TORN, VERSION, LineParser, SumLine
from mrsa_jax.privacy.logs._numbers import (
    SCALE_RULE,
    common_denominator,
    exact_value,
    exact_weight,
)
from mrsa_jax.privacy.logs._participation import sums_of
from mrsa_jax.privacy.logs._read import read_log
from mrsa_jax.privacy.logs._table import ParticipationLog

__all__ = [
    "FORMAT",
    "MOST_LINE_BYTES",
    "SCALE_RULE",
    "STATUSES",
    "TORN",
    "VERSION",
    "LineParser",
    "ParticipationLog",
    "SumLine",
    "common_denominator",
    "exact_value",
    "exact_weight",
    "integer_rows",
    "read_log",
    "sums_of",
]
