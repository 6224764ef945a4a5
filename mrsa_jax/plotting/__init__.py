"""Figures of studies: one style, one colour for each scheme everywhere, data beside the picture."""

from mrsa_jax.plotting._accuracy import plot_accuracy_curves
from mrsa_jax.plotting._attack_images import plot_image_grid
from mrsa_jax.plotting._attacks import (
    plot_error_histogram,
    plot_error_of_motion,
    plot_predicted_error,
    plot_quality_of_motion,
    plot_recovered,
)
from mrsa_jax.plotting._audit import plot_audit_exposure, plot_audit_privacy
from mrsa_jax.plotting._ccesa import (
    plot_bandwidth_ratio,
    plot_connection_probability,
    plot_failure_bounds,
    plot_growth,
    plot_running_times,
    plot_share_thresholds,
    plot_unmasking,
)
from mrsa_jax.plotting._hetero import (
    plot_byzantine_tolerance,
    plot_claimed_levels,
    plot_count_growth,
    plot_expansion,
    plot_quantization_errors,
    plot_seed_curves,
    plot_segment_matrix,
    plot_survival,
    plot_unequal_moduli,
)
from mrsa_jax.plotting._membership import (
    plot_membership_accuracy,
    plot_membership_auc,
    plot_membership_roc,
)
from mrsa_jax.plotting._multiround import (
    plot_cardinality_of_target,
    plot_early_leaks,
    plot_echelon_error,
    plot_family,
    plot_family_sizes,
    plot_full_rank,
    plot_metric,
    plot_swaps,
    plot_tradeoff,
    plot_weak_privacy,
)
from mrsa_jax.plotting._points import plot_points, plot_privacy_cost
from mrsa_jax.plotting._policies import PolicyQuantity, plot_policies
from mrsa_jax.plotting._reliability import plot_failure_rates
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
    "PolicyQuantity",
    "plot_accuracy",
    "plot_accuracy_curves",
    "plot_audit_exposure",
    "plot_audit_privacy",
    "plot_bandwidth_ratio",
    "plot_byzantine_tolerance",
    "plot_cardinality",
    "plot_cardinality_of_target",
    "plot_claimed_levels",
    "plot_connection_probability",
    "plot_count_growth",
    "plot_early_leaks",
    "plot_echelon_error",
    "plot_error_histogram",
    "plot_error_of_motion",
    "plot_expansion",
    "plot_exposure",
    "plot_failure_bounds",
    "plot_failure_rates",
    "plot_fairness",
    "plot_family",
    "plot_family_sizes",
    "plot_full_rank",
    "plot_growth",
    "plot_image_grid",
    "plot_membership_accuracy",
    "plot_membership_auc",
    "plot_membership_roc",
    "plot_metric",
    "plot_points",
    "plot_policies",
    "plot_predicted_error",
    "plot_privacy",
    "plot_privacy_cost",
    "plot_quality_of_motion",
    "plot_quantization_errors",
    "plot_reconstruction",
    "plot_recovered",
    "plot_running_times",
    "plot_seed_curves",
    "plot_segment_matrix",
    "plot_share_thresholds",
    "plot_survival",
    "plot_swaps",
    "plot_tradeoff",
    "plot_unequal_moduli",
    "plot_unmasking",
    "plot_weak_privacy",
    "save_study_figures",
    "scheme_colour",
    "style",
]
