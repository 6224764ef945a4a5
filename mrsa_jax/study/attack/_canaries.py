"""Canaries under noise in the ring.

Findings of the best test against what the ledger allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from mrsa_jax import attacks, dp
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress, steps
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._distinguish import client_of, found_words, score
from mrsa_jax.study.attack._recorded import (
    bytes_to_repeat,
    labelled_history,
    settings_of,
)
from mrsa_jax.study.attacks_on_sums import CanariesConfig
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.runs._build import build_mechanism
from mrsa_watch._base.errors import require

AS_PLANNED = "within the ledger, noise as planned"


def run(config: CanariesConfig, report: AttackFindings, progress: Progress) -> None:
    """Play the best test with and without a canary, for each scheme and client."""
    report.title = (
        "Canaries: does the noise in the ring hide a client as its ledger says?"
    )
    mechanism, histories = _planned(config)
    for label, history in histories:
        require(
            bool(history.any()),
            "rounds",
            "must leave a round with a sum",
            config.rounds,
        )
        ledger = dp.ledger(history, mechanism=mechanism)
        epsilons = ledger.epsilon(config.target_delta)
        # the client with the largest mu is the worst, and clients in no sum are left
        # aside
        figures = np.where(ledger.mu > 0, -ledger.mu, np.inf)
        chosen = {name: client_of(figures, name) for name in config.clients}
        pairs = list(itertools.product(config.others, chosen))
        for kind, whose in steps(progress, f"{label}: canaries", pairs):
            client = chosen[whose]
            spread = None if kind == "known" else config.spread
            audit = attacks.canaries(client, mechanism, spread=spread)
            key = fold(_stage.stream(config, Stream.ATTACK), client)
            scores, mu = audit.play(key, history, config.trials), audit.test(history).mu
            # the threshold halfway between both means errs least
            lower, upper = scores.interval(mu / 2)
            residuals = _residuals(scores)
            allowed = float(ledger.mu[client])
            more = {
                "client": client,
                "sums": int(history[:, client].sum()),
                "ledger_mu": allowed,
                "ledger_epsilon": float(epsilons[client]),
                "measured_mu": scores.mu,
                "lower": lower,
                "upper": upper,
                "smallest_found": scores.smallest_found(allowed),
                **residuals,
                "verdict": _verdict(lower, upper, allowed, mu, scores),
            }
            head = {"scheme": label, "others": kind, "whose": whose}
            pair = (scores.without, scores.shifted)
            score(config.false_positive_rates, report, head, more, mu, pair)
    report.sentences += [*_verdicts(report), *found_words(report)]
    report.sentences += [text_of("canaries_ledger"), text_of("canaries_interval")]


def _planned(
    config: CanariesConfig,
) -> tuple[dp.RingMechanism, Iterable[tuple[str, np.ndarray]]]:
    """Return the noise as planned and the histories: of a recorded run, or simulated.

    Raises:
        ConfigurationError: If the run added no noise.
    """
    if config.run is not None:
        run, (_, dim, _) = settings_of(config.run), bytes_to_repeat(config.run)
        rule = "must be of a run with noise, whose ledger canaries examine"
        require(run.aggregation.is_noisy, "run", rule, str(config.run))
        rule = "must be of whole sums: canaries know no lattices of segments"
        require(run.hetero.is_plain, "run", rule, str(config.run))
        planned = build_mechanism(run.aggregation, run.population.cohort_size, dim)
        return planned, [labelled_history(config.run)]
    planned = dp.ring_mechanism(
        config.mechanism,
        config.noise_multiplier,
        config.clip_norm,
        dim=config.dim,
        num_clients=config.cohort_size,
        modulus_bits=config.modulus_bits,
    )
    return planned, config.histories(config.rounds)


def _residuals(scores: attacks.CanaryScores) -> dict[str, float]:
    """Return the least scale and the largest correlation of noise, with margins."""
    residuals = scores.residuals
    assert residuals is not None  # `play` keeps them
    # the covariance over rounds, relative to the plan: 1 on its diagonal, else 0
    scale, margins = np.diagonal(residuals.covariance), residuals.margins()
    others = ~np.eye(len(scale), dtype=bool)
    return {
        "noise_scale": float(scale.min()),
        "noise_margin": float((np.diagonal(margins) + residuals.slack).max()),
        "correlation": float(np.abs(residuals.covariance[others]).max(initial=0.0)),
        "correlation_margin": float(margins[others].max(initial=0.0)),
    }


def _verdict(
    lower: float, upper: float, allowed: float, mu: float, scores: attacks.CanaryScores
) -> str:
    """Compare both statistics with the ledger and the plan."""
    residuals = scores.residuals
    assert residuals is not None
    # noise that is missing or repeated shows without any canary
    words = [*residuals.faults()]
    if lower > allowed:
        words.insert(0, "more than the ledger allows")
    # rounding hides a canary too: by its share of each sum's variance at the most
    elif upper < mu / np.sqrt(1.0 + residuals.slack.max()):
        words.insert(0, "less than the plan lets see")
    return " and ".join(words).upper() or AS_PLANNED


def _verdicts(report: AttackFindings) -> list[str]:
    """Report for each canary whether it was found more often than the ledger allows."""
    words = text_of("canary_found")
    margins = ("noise_margin", "correlation_margin")
    doubled = [{name: 2 * row[name] for name in margins} for row in report.summary]
    return [
        words.format(**(row | margin))
        for row, margin in zip(report.summary, doubled, strict=True)
    ]


def arrays(config: Any) -> int:
    """Return the arrays of canaries.

    Scores, and the cohorts' vectors of some trials at once.
    """
    clients, dim, rounds = config.cohort_size, config.dim, config.rounds
    if config.run is not None:
        run = settings_of(config.run)
        clients, rounds = run.population.cohort_size, run.rounds
        _, dim, _ = bytes_to_repeat(config.run)
    cohort = 4 * clients * 2 * dim  # padded to a power of two
    # of all rounds, as scanned and as multiplied
    remainders = 2 * 4 * rounds * dim
    # a covariance over rounds for each trial, with its square, in float64 as in float32
    grams = 28 * min(config.trials * rounds**2, 2**21 + rounds**2)
    scores = 2 * 8 * config.trials * rounds
    return scores + grams + 2 * _stage.IN_A_ROUND * max(cohort, 2**21) + remainders
