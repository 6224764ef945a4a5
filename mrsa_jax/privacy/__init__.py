"""What any participation history leaks, computed exactly."""

from mrsa_jax.privacy._audit import audit, audit_steps
from mrsa_jax.privacy._audit_found import Audit, Gate
from mrsa_jax.privacy._certificate import certificate
from mrsa_jax.privacy._clients import ClientPrivacy, client_privacy
from mrsa_jax.privacy._collusion import CollusionRisk, collusion_risk
from mrsa_jax.privacy._distinguish import Distinguishability, distinguishability
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._hidden import hidden_among, hidden_among_trajectory
from mrsa_jax.privacy._information import information
from mrsa_jax.privacy._policies import PolicyPrivacy, policy_privacy
from mrsa_jax.privacy._recipe import Recipe
from mrsa_jax.privacy._strong import strong_privacy, strong_privacy_trajectory
from mrsa_jax.privacy._trajectory import weak_privacy_trajectory
from mrsa_jax.privacy._unweighted import UnweightedGroup, unweighted_group
from mrsa_jax.privacy._weak import WeakPrivacy, weak_privacy
from mrsa_jax.privacy._weights import integer_weights
from mrsa_jax.privacy.logs import ParticipationLog, read_log

__all__ = [
    "Audit",
    "ClientPrivacy",
    "CollusionRisk",
    "Distinguishability",
    "Gate",
    "ParticipationLog",
    "PolicyPrivacy",
    "Recipe",
    "UnweightedGroup",
    "WeakPrivacy",
    "audit",
    "audit_steps",
    "certificate",
    "client_privacy",
    "collusion_risk",
    "distinguishability",
    "first_exposure",
    "hidden_among",
    "hidden_among_trajectory",
    "information",
    "integer_weights",
    "policy_privacy",
    "read_log",
    "strong_privacy",
    "strong_privacy_trajectory",
    "unweighted_group",
    "weak_privacy",
    "weak_privacy_trajectory",
]
