"""The searches behind weak privacy: light vectors of a row space, found or proved absent."""

from mrsa_jax.privacy.solver._bounds import bounds, random_projection
from mrsa_jax.privacy.solver._candidates import (
    few_rounds,
    information_sets,
    program_seconds,
    sparse_remainder,
)
from mrsa_jax.privacy.solver._costs import girth_work, lifting_work, light_sets, num_parts
from mrsa_jax.privacy.solver._exact import (
    combination_on,
    combination_through,
    independent_rows,
    reduced_echelon,
    residues_of,
    solve_each,
    support_of,
)
from mrsa_jax.privacy.solver._groups import Groups, collapse, column_codes
from mrsa_jax.privacy.solver._leverage_bound import leverage_bound, leverage_seconds
from mrsa_jax.privacy.solver._ranks import CHEAP_SECONDS, Ranks, ranks_of
from mrsa_jax.privacy.solver._search import Plan, Progress, run
from mrsa_jax.privacy.solver._sieve import Alone, Sieve
from mrsa_jax.privacy.solver._space import Space, Vector
from mrsa_jax.privacy.solver._through import Through
from mrsa_jax.privacy.solver._two_adic import parity_checks

__all__ = [
    "CHEAP_SECONDS",
    "Alone",
    "Groups",
    "Plan",
    "Progress",
    "Ranks",
    "Sieve",
    "Space",
    "Through",
    "Vector",
    "bounds",
    "collapse",
    "column_codes",
    "combination_on",
    "combination_through",
    "few_rounds",
    "girth_work",
    "independent_rows",
    "information_sets",
    "leverage_bound",
    "leverage_seconds",
    "lifting_work",
    "light_sets",
    "num_parts",
    "parity_checks",
    "program_seconds",
    "random_projection",
    "ranks_of",
    "reduced_echelon",
    "residues_of",
    "run",
    "solve_each",
    "sparse_remainder",
    "support_of",
]
