"""Attacks on what a server learns over many rounds of secure aggregation.

What needs flax loads when first used: commands that attack no model do not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax.attacks._canaries import Canaries, CanaryScores, canaries
    from mrsa_jax.attacks._dense_recovery import dense_recovery
    from mrsa_jax.attacks._disaggregation import Disaggregation, disaggregation
    from mrsa_jax.attacks._distinguish import Distinguish, distinguish
    from mrsa_jax.attacks._gradient_inversion import (
        GradientInversion,
        gradient_inversion,
        inferred_labels,
        total_variation,
    )
    from mrsa_jax.attacks._inconsistency import model_inconsistency, silenced
    from mrsa_jax.attacks._least_squares import (
        LeastSquares,
        least_squares,
        least_squares_attack,
        predicted_error,
        reconstruction_error,
        streamed_errors,
        windows,
    )
    from mrsa_jax.attacks._membership import Membership, membership, true_logits
    from mrsa_jax.attacks._model_inversion import (
        ModelInversion,
        identified,
        model_inversion,
        read_models,
    )
    from mrsa_jax.attacks._scenarios import summed_rounds, wire_round
    from mrsa_jax.attacks._scores import (
        matched_images,
        mean_squared_error,
        membership_score,
        psnr,
        ssim,
    )
    from mrsa_jax.attacks._view import (
        AggregateView,
        Attack,
        CountView,
        MembershipView,
        ModelView,
        UpdateView,
        WireView,
        checked_view,
    )

__all__ = [
    "AggregateView",
    "Attack",
    "Canaries",
    "CanaryScores",
    "CountView",
    "Disaggregation",
    "Distinguish",
    "GradientInversion",
    "LeastSquares",
    "Membership",
    "MembershipView",
    "ModelInversion",
    "ModelView",
    "UpdateView",
    "WireView",
    "canaries",
    "checked_view",
    "dense_recovery",
    "disaggregation",
    "distinguish",
    "gradient_inversion",
    "identified",
    "inferred_labels",
    "least_squares",
    "least_squares_attack",
    "matched_images",
    "mean_squared_error",
    "membership",
    "membership_score",
    "model_inconsistency",
    "model_inversion",
    "predicted_error",
    "psnr",
    "read_models",
    "reconstruction_error",
    "silenced",
    "ssim",
    "streamed_errors",
    "summed_rounds",
    "total_variation",
    "true_logits",
    "windows",
    "wire_round",
]

__getattr__, __dir__ = late_names(__name__)
