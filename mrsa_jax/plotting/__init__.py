"""Figures of studies: one style, one colour for each scheme everywhere, data beside the picture."""

from mrsa_jax.plotting._amplification import plot_amplification
from mrsa_jax.plotting._attack_images import plot_image_grid
from mrsa_jax.plotting._attacks import plot_error_histogram, plot_roc
from mrsa_jax.plotting._audit import plot_audit_exposure, plot_audit_privacy
from mrsa_jax.plotting._collusion import plot_exposure_routes
from mrsa_jax.plotting._colours import scheme_colour, scheme_dashes
from mrsa_jax.plotting._designs import plot_designs
from mrsa_jax.plotting._files import save_figure
from mrsa_jax.plotting._points import (
    plot_accuracy_epsilon,
    plot_points,
    plot_privacy_cost,
    plot_tradeoff,
)
from mrsa_jax.plotting._policies import plot_policies
from mrsa_jax.plotting._saved import save_study_figures
from mrsa_jax.plotting._study import (
    plot_accuracy,
    plot_bits,
    plot_cardinality,
    plot_drift,
    plot_epsilon,
    plot_exposure,
    plot_fairness,
    plot_hidden_among,
    plot_learning_epsilon,
    plot_privacy,
    plot_reconstruction,
)
from mrsa_jax.plotting._style import style

__all__ = [
    "plot_accuracy",
    "plot_accuracy_epsilon",
    "plot_amplification",
    "plot_audit_exposure",
    "plot_audit_privacy",
    "plot_bits",
    "plot_cardinality",
    "plot_designs",
    "plot_drift",
    "plot_epsilon",
    "plot_error_histogram",
    "plot_exposure",
    "plot_exposure_routes",
    "plot_fairness",
    "plot_hidden_among",
    "plot_image_grid",
    "plot_learning_epsilon",
    "plot_points",
    "plot_policies",
    "plot_privacy",
    "plot_privacy_cost",
    "plot_reconstruction",
    "plot_roc",
    "plot_tradeoff",
    "save_figure",
    "save_study_figures",
    "scheme_colour",
    "scheme_dashes",
    "style",
]
