"""Figures of studies: one style, one colour for each scheme everywhere, data beside the picture."""

from mrsa_jax.plotting._study import (
    plot_accuracy,
    plot_cardinality,
    plot_exposure,
    plot_fairness,
    plot_privacy,
    plot_reconstruction,
    save_study_figures,
)
from mrsa_jax.plotting._style import scheme_colour, style

__all__ = [
    "plot_accuracy",
    "plot_cardinality",
    "plot_exposure",
    "plot_fairness",
    "plot_privacy",
    "plot_reconstruction",
    "save_study_figures",
    "scheme_colour",
    "style",
]
