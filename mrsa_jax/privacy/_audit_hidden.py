"""What an audit reports about how well the sums, and noise in them, hide each client."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mrsa_jax.privacy._coalitions import as_history
from mrsa_jax.privacy._distinguish import Distinguishability, distinguishability
from mrsa_jax.privacy._hidden import among, hidden_among, hidden_among_trajectory
from mrsa_jax.privacy._strong import strong_privacy
from mrsa_watch._base.errors import POSITIVE, check_number, require
from mrsa_watch._base.html import hidden_words
from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import by_value
from mrsa_watch.logs import ParticipationLog, of_part

_MOST_NOTED, _MOST_TOLD = 5, 3
_MOST_MULTIPLIED = 10**12  # of float64 numbers: a minute on two cores
_MOST_AT_ONCE = 10**9  # a fraction of a second
_ABOVE = math.nextafter(1.0, 2.0)
UNKNOWN = "is not known to nine digits"

Noted = tuple[tuple[Hashable, float], ...]


@dataclasses.dataclass(frozen=True)
@by_value
class Drifting:
    """How clients' updates are assumed to drift over the rounds of a log.

    Checked when made.

    Attributes:
        memory: rho, the correlation from round to round of what lasts of an update.
        share: Of an update's variance that lasts; the rest is fresh in each round.
    """

    memory: float
    share: float

    @staticmethod
    def checked(memory: Any, share: Any) -> Drifting | None:
        """Return it, or None where updates are only looked at as if they never changed."""
        rule = "must be a number from 0 to 1"
        lasting = check_number(share, "share", rule, 0.0, 1.0)
        if memory is None:
            require(lasting == 1.0, "share", "must be used together with memory", share)
            return None
        return Drifting(check_number(memory, "memory", rule, 0.0, 1.0), lasting)

    @property
    def has_lasting_part(self) -> bool:
        """Whether an update is a part that lasts and a part that does not, both of some size.

        With share 1 the update of a round is what lasts of it, with share 0 nothing
        lasts.
        """
        return 0.0 < self.share < 1.0

    def words(self) -> str:
        """Return under which condition a figure of the update of one round holds."""
        share = "" if self.share == 1.0 else f", share {self.share:.3g}"
        return f"if updates drift with memory {self.memory:.6g}{share} and clients are alike"

    def lasting_words(self) -> str:
        """Return under which condition a figure of what lasts holds."""
        return (
            f"if share {self.share:.3g} of updates never changes and clients are alike"
        )

    def settings(self, log: ParticipationLog) -> dict[str, Any]:
        """Return how `hidden_among` is reported for it.

        The rows of a log count as rounds that follow each other, which is never too
        kind: more time between them would hide more.
        """
        time = _times(log)
        if time[-1] == len(time) - 1:
            return {"memory": self.memory, "share": self.share}
        lags = np.abs(np.subtract.outer(time, time))
        return {"memory": np.where(lags == 0, 1.0, self.share * self.memory**lags)}

    def lasting(self, log: ParticipationLog) -> np.ndarray:
        """Return among how many what lasts of each client's updates is hidden, if it never changes.

        Client i sends sqrt(a) l_i + sqrt(1 - a) e_ir, with e fresh in each round. For l
        the sums of all e are noise, of covariance (1 - a)/a (P P^T) between sums of one
        round, and 0 between others. A score with which a server tests an attribute of a
        client is of this form.
        """
        P = log.participation
        ratio = (1.0 - self.share) / self.share
        time = _times(log)
        rows = P.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if time[-1] == len(time) - 1:
                noise = ratio * (rows**2).sum(axis=1)
            else:
                noise = ratio * np.where(np.equal.outer(time, time), rows @ rows.T, 0.0)
        # weights beyond the square root of the largest float
        if not np.isfinite(noise).all():
            return np.where((P != 0).any(axis=0), np.nan, np.inf)
        return np.asarray(hidden_among(P, noise=noise), np.float64)

    def worst_over_rounds(self, log: ParticipationLog) -> np.ndarray:
        """Return among how many the worst update so far was hidden, after each round."""
        found = hidden_among_trajectory(
            log.participation, quantiles=(0.0,), **self.settings(log)
        )
        return np.asarray(found, np.float64)[:, 0]


def _times(log: ParticipationLog) -> np.ndarray:
    """Return the place of each row's round among the rounds of a log.

    Sums of one round, named `round/sum`, are of one update, and so are those of whole
    updates and of a part, `round` and `round[part]`.
    """
    times: dict[str, int] = {}
    parts = log.parts or (None,) * len(log.rounds)
    places = []
    for name, part in zip(log.rounds, parts, strict=True):
        whole = str(name) if part is None else str(name).removesuffix(of_part(part))
        places.append(times.setdefault(whole.partition("/")[0], len(times)))
    return np.array(places)


def is_feasible(
    P: np.ndarray, drifting: Drifting | None = None, *, at_once: bool = False
) -> bool:
    """Return whether hidden among takes no more than a minute.

    With `at_once` no time to speak of.
    Its cost is that of the rounds' products with each other and with their factor;
    where updates drift, of the factor with each client's own rounds, twice.
    """
    rounds = int((P != 0).any(axis=1).sum())
    cost = rounds**2 * max(P.shape)
    if drifting is not None:
        own = (P != 0).sum(axis=0, dtype=np.int64)
        cost = max(cost, len(P) ** 3, len(P) * int(own @ own))
    return cost <= (_MOST_AT_ONCE if at_once else _MOST_MULTIPLIED)


def hidden_of(P: np.ndarray, exposed: Sequence[int]) -> np.ndarray:
    """Return the size of a single sum that hides each client equally well.

    1 if proven exposed.
    """
    # those who are exposed are known already
    nobody = np.full(P.shape[1], -1, np.int32)
    found = np.maximum(
        np.asarray(among(as_history(P), None, first=nobody), np.float64), _ABOVE
    )
    found[list(exposed)] = 1.0
    return found


@dataclasses.dataclass(frozen=True)
@by_value
class Hidden:
    """How well clients are hidden in the sums, without noise.

    Attributes:
        values: float64 `[clients]`; 1 for the exposed, inf for those in no sum, nan
            where it is not known to nine digits (six if updates drift: then it is of a
            client's worst update).
        worst: The worst hidden clients and among how many each is hidden, the exposed
            left out; nobody where not all are known.
        least: The smallest of all who took part, 1 where a client is exposed; None
            where it is not known.
        least_client: Whose it is.
        median: Of those who took part; None where not all are known.
        drifting: How updates drift; None if they never changed.
        at_least: Among how many every client is hidden in any case, where `least` is
            not known: the strong privacy T, as clients with equal columns cannot be
            distinguished.
        is_lasting: Whether it is of what lasts of a client's updates, not of the update
            of one round.
    """

    values: np.ndarray = dataclasses.field(compare=False, repr=False)
    worst: Noted
    least: float | None
    least_client: Hashable
    median: float | None
    drifting: Drifting | None = None
    at_least: int = 1
    is_lasting: bool = False

    @staticmethod
    def of_lasting(log: ParticipationLog, drifting: Drifting) -> Hidden:
        """Return the report on what lasts of clients' updates, which noise-free sums only blur."""
        found = Hidden.saying(drifting.lasting(log), log.clients, (), drifting)
        at_least = strong_privacy(log.participation) or 1
        return dataclasses.replace(found, is_lasting=True, at_least=at_least)

    @staticmethod
    def of(
        log: ParticipationLog, exposed: Sequence[int], drifting: Drifting | None = None
    ) -> Hidden:
        """Return the report on a log in which a client took part.

        Args:
            log: The history.
            exposed: The clients who are exposed if updates never changed.
            drifting: How updates drift; None if they never changed.
        """
        if drifting is None:
            values = hidden_of(log.participation, exposed)
        else:
            values = np.asarray(
                hidden_among(log.participation, **drifting.settings(log))
            )
            exposed = np.flatnonzero(values == 1.0).tolist()
        found = Hidden.saying(values, log.clients, exposed, drifting)
        if found.least is not None:
            return found
        return dataclasses.replace(
            found, at_least=strong_privacy(log.participation) or 1
        )

    @staticmethod
    def saying(
        values: np.ndarray,
        clients: Sequence[Hashable],
        exposed: Sequence[int],
        drifting: Drifting | None,
    ) -> Hidden:
        """Return the report on clients for which hidden among is known."""
        if np.isnan(values).any():
            if len(exposed):
                return Hidden(values, (), 1.0, clients[exposed[0]], None, drifting)
            return Hidden(values, (), None, None, None, drifting)
        order = np.argsort(values, kind="stable")
        noted = [
            i
            for i in order[len(exposed) : len(exposed) + _MOST_NOTED]
            if values[i] < np.inf
        ]
        return Hidden(
            values,
            tuple((clients[i], float(values[i])) for i in noted),
            float(values[order[0]]),
            clients[order[0]],
            float(np.median(values[np.isfinite(values)])),
            drifting,
        )

    @property
    def condition(self) -> str:
        """Under which condition on updates it holds."""
        if self.drifting is None:
            return "if updates never changed"
        return (
            self.drifting.lasting_words() if self.is_lasting else self.drifting.words()
        )

    @property
    def unknown(self) -> str:
        """The words for a value that floats do not know."""
        return UNKNOWN if self.drifting is None else "is not known to six digits"

    @property
    def least_words(self) -> str:
        """Among how many the worst hidden client is, and who it is."""
        if self.least is None:
            return self.unknown.removeprefix("is ")
        return (
            f"among {hidden_words(self.least)} (client {printable(self.least_client)})"
        )

    @property
    def rows(self) -> tuple[str, str]:
        """The questions that the least and the median answer."""
        if self.drifting is None:
            return "worst client hidden", "median client hidden"
        subject = "what lasts" if self.is_lasting else "update of one round"
        return f"{subject}, worst client", f"{subject}, median client"

    def sentence(self) -> str:
        """Return it in words."""
        if self.median is None and self.drifting is None:
            return f"Among how many clients each other is hidden {self.unknown}."
        told = [
            f"client {printable(name)} among {hidden_words(size)}"
            for name, size in self.worst
        ]
        told = ["the exposed among 1"] * (self.least == 1.0) + told
        text, median = "Hidden as well as in a single sum", "the median client"
        if self.drifting is not None:
            text = f"The update of one round, {self.condition}, is hidden likewise"
            median = "the worst update of the median client"
        if self.is_lasting:
            text = f"What lasts of a client's updates, {self.condition}, is hidden likewise"
            median = "that of the median client"
        if self.median is None:
            return f"{text} among a number that {self.unknown}."
        return f"{text}: {', '.join(told)}; {median} among {hidden_words(self.median)}."

    @property
    def subject(self) -> str:
        """What of a client is hidden, where updates drift."""
        return (
            "what lasts of the updates"
            if self.is_lasting
            else "the update of one round"
        )

    def gate(self, target: float | int) -> tuple[bool, str]:
        """Return whether the worst client is hidden among at least this many clients, and why."""
        whose, anyone, under = "client", "the worst client", ""
        if self.drifting is not None:
            under = f", {self.condition}"
            whose, anyone = f"{self.subject} of client", f"{self.subject} of any client"
        if self.least is None and self.at_least >= max(target, 2):
            return True, (
                f"every client is hidden among at least {self.at_least}, the fewest "
                f"clients that are in exactly the same sums{under}"
            )
        if self.least is None:
            return False, f"among how many {anyone} is hidden {self.unknown}{under}"
        value = f"{whose} {printable(self.least_client)} is hidden among {hidden_words(self.least)}"
        # what floats may take off blocks' exact figures
        passed = self.least >= target * (1 - 1e-9)
        return passed, f"{value}, {'at least' if passed else 'below'} {target:g}{under}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON."""
        found = {
            "worst": [
                {"client": plain(client), "hidden_among": size}
                for client, size in self.worst
            ],
            "least": self.least,
            "least_client": plain(self.least_client),
            "median": self.median,
            "condition": self.condition,
        }
        return found | (
            {} if self.drifting is None else dataclasses.asdict(self.drifting)
        )


def plain(name: Any) -> Any:
    """Return a name of a log as JSON has it."""
    return name if name is None or isinstance(name, int | float | str) else str(name)


@dataclasses.dataclass(frozen=True)
@by_value
class Noise:
    """Noise that was added to each learnt sum, as given to an audit; checked when made.

    Attributes:
        multiplier: Z: its standard deviation is Z times the clip.
        clip: C, the largest norm of a client's update.
        delta: Delta at which epsilon is reported.
        spread: Standard deviation of the others' updates in a direction, if that is to
            be reported.
        ratios: Z of each sum, 0 for one without noise, where the log records them:
            `multiplier` is then the least and `clip` the largest.
    """

    multiplier: float
    clip: float
    delta: float
    spread: float | None
    ratios: tuple[float, ...] | None = None

    @staticmethod
    def checked(multiplier: Any, clip: Any, delta: Any, spread: Any) -> Noise | None:
        """Return it, or None where no noise is given."""
        if multiplier is None and clip is None:
            rule = "must be used together with noise_multiplier and clip"
            require(spread is None, "spread", rule, spread)
            return None
        require(
            clip is not None,
            "clip",
            "must be used together with noise_multiplier",
            clip,
        )
        rule = "must be used together with clip"
        require(multiplier is not None, "noise_multiplier", rule, multiplier)
        rule = "must be positive and finite"
        return Noise(
            check_number(multiplier, "noise_multiplier", rule, POSITIVE),
            check_number(clip, "clip", rule, POSITIVE),
            _check_delta(delta),
            None if spread is None else check_number(spread, "spread", rule, POSITIVE),
        )

    @staticmethod
    def of_log(log: ParticipationLog, delta: Any) -> Noise | None:
        """Return the noise that a log records; None where no sum has noise and a clip."""
        count = len(log.rounds)
        noise, clip = log.noise or (None,) * count, log.clip or (None,) * count
        pairs = list(zip(noise, clip, strict=True))
        told = [(own, most) for own, most in pairs if own and most]
        if not told:
            return None
        ratios = tuple(own / most if own and most else 0.0 for own, most in pairs)
        return Noise(
            min(ratios),
            max(most for _, most in told),
            _check_delta(delta),
            None,
            ratios,
        )

    def figures(self, log: ParticipationLog) -> Noisy:
        """Return how well the worst clients of a log are distinguished.

        The shift is the clip: a client who takes part against one who sends nothing.
        Rows that were scaled to integers had their noise scaled alike. Where the log
        records the noise, each sum counts in units of its clip.
        """
        scales = np.array(
            [float(scale) for scale in log.scales or (1,) * len(log.rounds)]
        )
        P = log.participation
        sizes: Any = (
            self.multiplier * self.clip
            if self.ratios is None
            else np.array(self.ratios)
        )
        noise, shift = (sizes * scales) ** 2, self.clip if self.ratios is None else 1.0
        known = distinguishability(P, shift=shift, spread=None, noise=noise)
        gaussian = None
        if self.spread is not None and is_feasible(P):
            gaussian = distinguishability(
                P, shift=shift, spread=self.spread, noise=noise
            )
        return Noisy(
            self,
            self._worst(log, known),
            self._mean(known),
            None if gaussian is None else self._worst(log, gaussian),
        )

    def words(self) -> str:
        """Return the words for the noise."""
        if self.ratios is None:
            size = f"{self.multiplier * self.clip:g}"
            return (
                f"noise of standard deviation {size} in each sum (noise multiplier "
                f"{self.multiplier:g}, clip {self.clip:g})"
            )
        least, most = min(ratio for ratio in self.ratios if ratio), max(self.ratios)
        size = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        bare = self.ratios.count(0.0)
        more = f"; it records none, or no clip, in {bare} of {len(self.ratios)} sums"
        return f"the noise that the log records (noise multiplier {size}{more if bare else ''})"

    def _worst(self, log: ParticipationLog, found: Distinguishability) -> Told:
        noted = [
            i
            for i in np.argsort(-found.mu, kind="stable")[:_MOST_NOTED]
            if found.mu[i] > 0
        ]
        epsilon = found.epsilon(self.delta)
        return tuple(
            (log.clients[i], float(found.mu[i]), float(epsilon[i])) for i in noted
        )

    def _mean(self, found: Distinguishability) -> float:
        return float(np.mean(found.epsilon(self.delta)))


def _check_delta(delta: Any) -> float:
    return check_number(
        delta, "delta", "must lie in (0, 1)", POSITIVE, math.nextafter(1.0, 0.0)
    )


Told = tuple[tuple[Hashable, float, float], ...]


@dataclasses.dataclass(frozen=True)
@by_value
class Noisy:
    """How well a client can be distinguished beneath noise.

    (client, mu, epsilon), the worst first.

    Attributes:
        noise: The noise as given.
        known: If the others' updates are known: a guarantee.
        mean_epsilon: That of all clients of the log then; 0 counts for who is in no
            sum.
        gaussian: If they are Gaussian with the spread: none; None where it was not
            asked for, or takes too long.
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
            "Whether a client sent anything, to one who sees only the noisy sums, not "
            "the noise or "
            "a sum without it, and knows all others' updates (a guarantee of "
            "differential privacy, "
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
        found = [("distinguished, others known", self.known, "guarantee, float64")]
        if self.gaussian is not None:
            spread = f"Gaussian others, spread {self.noise.spread:g}"
            found.append(
                ("distinguished, others Gaussian", self.gaussian, f"if {spread}")
            )
        return [(question, _told(told[:1]), sure) for question, told, sure in found]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON."""

        def each(told: Told | None) -> list[dict[str, Any]] | None:
            if told is None:
                return None
            return [
                {
                    "client": plain(name),
                    "mu": mu if math.isfinite(mu) else None,
                    "epsilon": epsilon if math.isfinite(epsilon) else None,
                }
                for name, mu, epsilon in told
            ]

        own = {
            "noise_multiplier": self.noise.multiplier,
            "clip": self.noise.clip,
            "delta": self.noise.delta,
            "spread": self.noise.spread,
        }
        mean = self.mean_epsilon if math.isfinite(self.mean_epsilon) else None
        return own | {
            "others_known": each(self.known),
            "mean_epsilon": mean,
            "others_gaussian": each(self.gaussian),
        }


def _told(told: Told) -> str:
    return "; ".join(
        f"client {printable(name)} mu {mu:.3g}, epsilon {e:.3g}" for name, mu, e in told
    )
