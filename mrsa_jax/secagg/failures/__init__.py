"""How often a round fails, by bounds, exact sums and simulation: Theorems 1 to 6 of CCESA."""

from mrsa_jax.secagg.failures._judging import draw_arrays, judge_arrays
from mrsa_jax.secagg.failures._rare import RareRate
from mrsa_jax.secagg.failures._theory import proposition1_bound

__all__ = ["RareRate", "draw_arrays", "judge_arrays", "proposition1_bound"]
