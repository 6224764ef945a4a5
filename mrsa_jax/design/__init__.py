"""Families of lines, whose disjoint ones a round sums, and what they promise whatever is summed."""

from mrsa_jax.design._families import blocks, grids, nets, rectangles
from mrsa_jax.design._judge import Judgement, judge

__all__ = ["Judgement", "blocks", "grids", "judge", "nets", "rectangles"]
