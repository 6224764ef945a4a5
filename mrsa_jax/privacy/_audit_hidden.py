"""What an audit says of how well each client is hidden, and of how noise in the sums hides it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mrsa_jax.privacy._coalitions import as_history
from mrsa_jax.privacy._distinguish import Distinguishability, distinguishability
from mrsa_jax.privacy._hidden import among
from mrsa_watch._base.errors import POSITIVE, check_number, require
from mrsa_watch._base.html import hidden_words
from mrsa_watch._base.untrusted import printable
from mrsa_watch.logs import ParticipationLog

_MOST_NOTED, _MOST_TOLD = 5, 3
_MOST_MULTIPLIED = 10**12  # of float64 numbers: a minute on two cores
_MOST_AT_ONCE = 10**9  # a fraction of a second
_ABOVE = math.nextafter(1.0, 2.0)
UNKNOWN = "is not known to nine digits"

Noted = tuple[tuple[Hashable, float], ...]


def is_feasible(P: np.ndarray, *, at_once: bool = False) -> bool:
    """Return whether hidden among takes no more than a minute; with `at_once` no time to speak of.

    Its cost is that of the rounds' products with each other and with their factor.
    """
    rounds = int((P != 0).any(axis=1).sum())
    return rounds**2 * max(P.shape) <= (_MOST_AT_ONCE if at_once else _MOST_MULTIPLIED)


def hidden_of(P: np.ndarray, exposed: Sequence[int]) -> np.ndarray:
    """Return as in one sum of how many each client is hidden, 1 for those proven exposed alone."""
    nobody = np.full(P.shape[1], -1, np.int32)  # those who are exposed are known already
    found = np.maximum(np.asarray(among(as_history(P), None, first=nobody), np.float64), _ABOVE)
    found[list(exposed)] = 1.0
    return found


@dataclasses.dataclass(frozen=True)
class Hidden:
    """How well clients are hidden in the sums, without noise.

    Attributes:
        values: float64 `[clients]`; 1 for the exposed, inf for those in no sum, nan where it is not
            known to nine digits.
        worst: The worst hidden clients and as in a sum of how many, the exposed left out; nobody
            where not all are known.
        least: The smallest of all who took part, 1 where somebody is exposed; None where it is not
            known.
        least_client: Whose it is.
        median: Of those who took part; None where not all are known.
    """

    values: np.ndarray = dataclasses.field(compare=False, repr=False)
    worst: Noted
    least: float | None
    least_client: Hashable
    median: float | None

    @staticmethod
    def of(log: ParticipationLog, exposed: Sequence[int]) -> Hidden:
        """Return what is said of a log in which somebody took part."""
        values = hidden_of(log.participation, exposed)
        if np.isnan(values).any():
            if len(exposed):
                return Hidden(values, (), 1.0, log.clients[exposed[0]], None)
            return Hidden(values, (), None, None, None)
        order = np.argsort(values, kind="stable")
        noted = [i for i in order[len(exposed) : len(exposed) + _MOST_NOTED] if values[i] < np.inf]
        return Hidden(
            values,
            tuple((log.clients[i], float(values[i])) for i in noted),
            float(values[order[0]]),
            log.clients[order[0]],
            float(np.median(values[np.isfinite(values)])),
        )

    def sentence(self) -> str:
        """Return it in words."""
        if self.median is None:
            return f"Among how many clients each other is hidden {UNKNOWN}."
        told = [f"client {printable(name)} among {hidden_words(size)}" for name, size in self.worst]
        told = ["the exposed among 1"] * (self.least == 1.0) + told
        text = f"Hidden as in one sum of so many clients: {', '.join(told)}"
        return f"{text}; the median client among {hidden_words(self.median)}."

    def gate(self, target: float | int) -> tuple[bool, str]:
        """Return whether the worst hidden client is hidden among so many, and why."""
        if self.least is None:
            return False, f"among how many the worst client is hidden {UNKNOWN}"
        value = f"client {printable(self.least_client)} is hidden among {hidden_words(self.least)}"
        passed = self.least >= target * (1 - 1e-9)  # what floats may take off blocks' exact figures
        return passed, f"{value}, {'at least' if passed else 'below'} {target:g}"


@dataclasses.dataclass(frozen=True)
class Noise:
    """Noise that was added to each learnt sum, as an audit is told of it; checked when made.

    Attributes:
        multiplier: Z: its standard deviation is Z times the clip.
        clip: C, the largest norm of a client's update.
        delta: At which epsilon is told.
        spread: Standard deviation of the others' updates in a direction, if that is to be told.
        ratios: Z of each sum, 0 for one without noise, where the log tells of them: `multiplier`
            is then the least and `clip` the largest.
    """

    multiplier: float
    clip: float
    delta: float
    spread: float | None
    ratios: tuple[float, ...] | None = None

    @staticmethod
    def checked(multiplier: Any, clip: Any, delta: Any, spread: Any) -> Noise | None:
        """Return it, or None where no noise is told of."""
        if multiplier is None and clip is None:
            require(spread is None, "spread", "must come with noise_multiplier and clip", spread)
            return None
        require(clip is not None, "clip", "must come with noise_multiplier", clip)
        require(multiplier is not None, "noise_multiplier", "must come with clip", multiplier)
        rule = "must be positive and finite"
        return Noise(
            check_number(multiplier, "noise_multiplier", rule, POSITIVE),
            check_number(clip, "clip", rule, POSITIVE),
            _check_delta(delta),
            None if spread is None else check_number(spread, "spread", rule, POSITIVE),
        )

    @staticmethod
    def of_log(log: ParticipationLog, delta: Any) -> Noise | None:
        """Return the noise that a log tells of; None where no sum has noise and a clip."""
        count = len(log.rounds)
        noise, clip = log.noise or (None,) * count, log.clip or (None,) * count
        told = [(own, most) for own, most in zip(noise, clip, strict=True) if own and most]
        if not told:
            return None
        ratios = tuple(
            own / most if own and most else 0.0 for own, most in zip(noise, clip, strict=True)
        )
        largest = max(most for _, most in told)
        return Noise(min(ratios), largest, _check_delta(delta), None, ratios)

    def figures(self, log: ParticipationLog) -> Noisy:
        """Return how well the worst clients of a log are told apart.

        The shift is the clip: a client who takes part against one who sends nothing. Rows that
        were scaled to integers had their noise scaled alike. Where the log tells of the noise,
        each sum counts in units of its own clip.
        """
        scales = np.array([float(scale) for scale in log.scales or (1,) * len(log.rounds)])
        P = log.participation
        if self.ratios is not None:
            own = (np.array(self.ratios) * scales) ** 2
            known = distinguishability(P, shift=1.0, spread=None, noise=own)
            return Noisy(self, self._worst(log, known), self._mean(known), None)
        noise = (self.multiplier * self.clip * scales) ** 2
        known = distinguishability(P, shift=self.clip, spread=None, noise=noise)
        gaussian = None
        if self.spread is not None and is_feasible(P):
            gaussian = distinguishability(P, shift=self.clip, spread=self.spread, noise=noise)
        return Noisy(
            self,
            self._worst(log, known),
            self._mean(known),
            None if gaussian is None else self._worst(log, gaussian),
        )

    def words(self) -> str:
        """Return what noise there is."""
        if self.ratios is None:
            size = f"{self.multiplier * self.clip:g}"
            return (f"noise of standard deviation {size} in each sum (noise multiplier "
                    f"{self.multiplier:g}, clip {self.clip:g})")  # fmt: skip
        least, most = min(ratio for ratio in self.ratios if ratio), max(self.ratios)
        size = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        bare = self.ratios.count(0.0)
        more = f"; it tells of none, or of no clip, in {bare} of {len(self.ratios)} sums"
        return f"the noise that the log tells of (noise multiplier {size}{more if bare else ''})"

    def _worst(self, log: ParticipationLog, found: Distinguishability) -> Told:
        order = np.argsort(-found.mu, kind="stable")[:_MOST_NOTED]
        noted = [i for i in order if found.mu[i] > 0]
        epsilon = found.epsilon(self.delta)
        return tuple((log.clients[i], float(found.mu[i]), float(epsilon[i])) for i in noted)

    def _mean(self, found: Distinguishability) -> float:
        return float(np.mean(found.epsilon(self.delta)))


def _check_delta(delta: Any) -> float:
    return check_number(delta, "delta", "must lie in (0, 1)", POSITIVE, math.nextafter(1.0, 0.0))


Told = tuple[tuple[Hashable, float, float], ...]


@dataclasses.dataclass(frozen=True)
class Noisy:
    """How well a client can be told apart beneath noise: (client, mu, epsilon), the worst first.

    Attributes:
        noise: What was told of the noise.
        known: If the others' updates are known: a guarantee.
        mean_epsilon: That of all clients of the log then; 0 counts for who is in no sum.
        gaussian: If they are Gaussian with the spread: none; None where it was not asked for, or
            takes too long.
    """

    noise: Noise
    known: Told
    mean_epsilon: float
    gaussian: Told | None

    def sentences(self) -> list[str]:
        """Return it in words."""
        own = self.noise
        text = (
            f"With {own.words()} all of this is up to that noise. "
            "Whether a client sent anything, to one who sees only the noisy sums, not the noise or "
            "a sum without it, and knows all others' updates (a guarantee of differential privacy, "
            f"delta {own.delta:g}): {_told(self.known[:_MOST_TOLD])}; "
            f"the mean of all clients: epsilon {self.mean_epsilon:.3g}."
        )
        if own.spread is None:
            return [text]
        more = f"If the others' updates are Gaussian with spread {own.spread:g}"
        if self.gaussian is None:
            return [text, f"{more}: left out, as the log is too large."]
        return [text, f"{more} (no guarantee): {_told(self.gaussian[:_MOST_TOLD])}."]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return question, answer, how sure of the worst client."""
        found = [("told apart, others known", self.known, "guarantee, float64")]
        if self.gaussian is not None:
            spread = f"Gaussian others, spread {self.noise.spread:g}"
            found.append(("told apart, others Gaussian", self.gaussian, f"if {spread}"))
        return [(question, _told(told[:1]), sure) for question, told, sure in found]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON."""

        def plain(told: Told | None) -> list[dict[str, Any]] | None:
            if told is None:
                return None
            return [
                {"client": name if isinstance(name, int | float | str) else str(name),
                 "mu": mu if math.isfinite(mu) else None,
                 "epsilon": epsilon if math.isfinite(epsilon) else None}
                for name, mu, epsilon in told
            ]  # fmt: skip

        own = {"noise_multiplier": self.noise.multiplier, "clip": self.noise.clip,
               "delta": self.noise.delta, "spread": self.noise.spread}  # fmt: skip
        mean = self.mean_epsilon if math.isfinite(self.mean_epsilon) else None
        return own | {
            "others_known": plain(self.known),
            "mean_epsilon": mean,
            "others_gaussian": plain(self.gaussian),
        }


def _told(told: Told) -> str:
    return "; ".join(
        f"client {printable(name)} mu {mu:.3g}, epsilon {epsilon:.3g}" for name, mu, epsilon in told
    )
