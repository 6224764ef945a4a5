"""Canaries under noise in the ring: what the best test finds, beside what the ledger allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import attacks, dp
from mrsa_jax._errors import require
from mrsa_jax._streams import Stream, fold
from mrsa_jax.study._attack_config import CanariesConfig
from mrsa_jax.study._config import parse_scheme
from mrsa_jax.study._plots import attack_plots
from mrsa_jax.study.attack import _scene
from mrsa_jax.study.attack._shifts import client_of, found_words, score
from mrsa_jax.study.attack._sums import history_of

if TYPE_CHECKING:
    from mrsa_jax.study._findings import AttackFindings
    from mrsa_jax.study._progress import Progress


def run_canaries(config: CanariesConfig, report: AttackFindings, progress: Progress) -> None:
    """Play the best test with and without a canary, for each scheme and client."""
    report.title = "Canaries: does the noise in the ring hide a client as its ledger says?"
    mechanism = dp.ring_mechanism(
        config.mechanism, config.noise_multiplier, config.clip_norm, dim=config.dim,
        num_clients=config.cohort_size, modulus_bits=config.modulus_bits,
    )  # fmt: skip
    for scheme in config.schemes:
        own = parse_scheme(scheme)
        selector = own.build(config.num_clients, config.cohort_size)
        kept = history_of(config, selector, config.rounds)
        require(bool(kept.any()), "rounds", "must leave a round with a sum", config.rounds)
        ledger = dp.ledger(
            kept, config.noise_multiplier, config.clip_norm, planned=config.cohort_size
        )
        epsilons = ledger.epsilon(config.target_delta)
        figures = np.where(ledger.mu > 0, -ledger.mu, np.inf)
        chosen = {name: client_of(figures, name) for name in config.clients}
        progress.stage(f"{own.label}: canaries", len(config.others) * len(chosen))
        for done, (kind, whose) in enumerate((k, c) for k in config.others for c in chosen):
            client = chosen[whose]
            spread = None if kind == "known" else config.spread
            audit = attacks.canaries(client, mechanism, spread=spread)
            key = fold(_scene.stream(config, Stream.ATTACK), client)
            scores, mu = audit.play(key, kept, config.trials), audit.test(kept).mu
            lower, upper = scores.interval(mu / 2)
            more = {
                "client": client,
                "sums": int(kept[:, client].sum()),
                "ledger_mu": float(ledger.mu[client]),
                "ledger_epsilon": float(epsilons[client]),
                "measured_mu": scores.mu,
                "lower": lower,
                "upper": upper,
            }
            head = {"scheme": own.label, "others": kind, "whose": whose}
            score(config.false_positive_rates, report, head, more, mu, scores)
            progress.update(done + 1, len(config.others) * len(chosen))
    report.figures |= attack_plots(report.scores)
    report.sentences += [*_verdicts(report), *found_words(report), *_MEANING]


def _verdicts(report: AttackFindings) -> list[str]:
    """Say of each canary whether it was found more often than the ledger allows."""
    words = []
    for row in report.summary:
        refuted = row["lower"] > row["ledger_mu"]
        verdict = "MORE THAN THE LEDGER ALLOWS" if refuted else "within the ledger"
        words.append(
            f"{row['scheme']}, {row['whose']} client, others {row['others']}: measured mu "
            f"{row['measured_mu']:.3g} (95 % by both error rates: {row['lower']:.3g} to "
            f"{row['upper']:.3g}); ledger {row['ledger_mu']:.3g}: {verdict}."
        )
    return words


_MEANING: tuple[Any, ...] = (
    "ledger mu: what the noise of those who were in the client's sums allows at most, whoever the "
    "others are; epsilon is that of it. mu: what the best test should reach: with the others known "
    "the ledger's, but for rounding, which hides a little more.",
    "The interval takes no law for granted: no mechanism of a smaller mu than its lower end allows "
    "both error rates that were seen.",
)
