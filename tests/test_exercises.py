"""Exercises of notebooks: each number is changed as its text asks, and all cells run."""

from __future__ import annotations

import pathlib
import re

import jax
import jaxtyping
import matplotlib.pyplot as plt
import pytest

from tests.test_notebooks import PATHS, _cells

# the text that an exercise names, and what it asks to write there
CHANGES = {
    "01_multi_round_leakage": [("num_rounds", None), ("cohort_size", None)],
}
