"""What an audit says where clients add the noise of its sums: planned beside realised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._untrusted import printable

if TYPE_CHECKING:
    from mrsa_jax.privacy import ParticipationLog
    from mrsa_jax.study._audit_config import AuditConfig

_MOST_NOTED, _MOST_TOLD = 5, 3


def shares_of(config: AuditConfig, log: ParticipationLog) -> dict[str, Any] | None:
    """Return the ledger's account of a log as plain values; None where it is not asked for.

    Raises:
        ConfigurationError: If a client who colludes is not of the log, or all are.
    """
    if not config.counts_shares:
        return None
    from mrsa_jax import dp

    names = [name.strip() for name in config.colluding.split(",")] if config.colluding else []
    told = dp.ledger(
        log, config.noise_multiplier, config.clip, planned=config.planned, colluding=names
    )
    epsilon, planned = told.epsilon(config.delta), told.planned.epsilon(config.delta)
    order = np.argsort(-np.nan_to_num(told.mu, nan=-1.0), kind="stable")[:_MOST_NOTED]
    worst = [
        {
            "client": printable(log.clients[i]),
            "mu": _number(told.mu[i]),
            "epsilon": _number(epsilon[i]),
            "planned_mu": _number(told.planned_mu[i]),
            "planned_epsilon": _number(planned[i]),
        }
        for i in order.tolist()
        if told.mu[i] > 0
    ]
    return {
        "planned": config.planned,
        "colluding": [printable(name) for name in names],
        "noise_multiplier": config.noise_multiplier,
        "clip": config.clip,
        "delta": config.delta,
        "short": told.short,
        "notes": list(told.notes),
        "mean_epsilon": _number(np.nanmean(epsilon)),
        "planned_mean_epsilon": _number(np.nanmean(np.where(np.isnan(epsilon), np.nan, planned))),
        "worst": worst,
    }


def shares_row(found: dict[str, Any]) -> tuple[str, str, str]:
    """Return question, answer, how sure of the worst client."""
    told = _told(found["worst"][0]) if found["worst"] else "nobody took part"
    return "told apart by shares that were added", told, "guarantee, float64"


def shares_sentence(found: dict[str, Any]) -> str:
    """Say what is left of the planned noise, and whom it protects how well."""
    who = f"With noise of {found['noise_multiplier']:g} clips in a sum"
    if found["planned"] is not None:
        who += f", of which each survivor adds one share in {found['planned']}"
    if found["colluding"]:
        who += f", and clients {', '.join(found['colluding'][:_MOST_TOLD])}"
        more = len(found["colluding"]) - _MOST_TOLD
        who += f" and {more} more tell theirs" if more > 0 else " telling theirs"
    worst = "; ".join(_told(one) for one in found["worst"][:_MOST_TOLD]) or "nobody took part"
    text = (
        f"{who}, all others' updates known (a guarantee, delta {found['delta']:g}): {worst}; the "
        f"mean: epsilon {_words(found['mean_epsilon'])}, "
        f"{_words(found['planned_mean_epsilon'])} as planned."
    )
    return " ".join((text, *found["notes"]))


def _told(one: dict[str, Any]) -> str:
    return (
        f"client {one['client']} mu {_words(one['mu'])}, epsilon {_words(one['epsilon'])} "
        f"({_words(one['planned_epsilon'])} as planned)"
    )


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _words(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3g}"
