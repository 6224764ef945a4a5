"""Reports of an audit on how well the sums, and noise in them, hide each client."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax.privacy._coalitions import as_history
from mrsa_jax.privacy._distinguish import Distinguishability, distinguishability
from mrsa_jax.privacy._hidden import among, hidden_among, hidden_among_trajectory
from mrsa_jax.privacy._strong import strong_privacy
from mrsa_jax.privacy.summary import what_never_changes
from mrsa_watch._base.errors import POSITIVE, check_number, require
from mrsa_watch._base.html import hidden_words
from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import by_value
from mrsa_watch.logs import ParticipationLog, of_part

_MOST_NOTED = 5
_MOST_IN_WORDS = 3
_MOST_MULTIPLIED = 10**12  # of float64 numbers: a minute on two cores
_MOST_AT_ONCE = 10**9  # a fraction of a second
_ABOVE = math.nextafter(1.0, 2.0)
UNKNOWN = "is not known to nine digits"

Noted = tuple[tuple[Hashable, float], ...]


class _Wording(NamedTuple):
    """The words for values of one kind.

    Attributes:
        subject: What of a client is hidden.
        row: How a table's rows begin.
        opening: How the sentence begins, with the condition.
        median: Whose value the median is.
        unknown: The words for a value that floats do not know.
    """

    subject: str
    row: str
    opening: str
    median: str
    unknown: str


_SIX_DIGITS = "is not known to six digits"
_UNCHANGING = _Wording(
    "",
    "{} client hidden",
    "Hidden as well as in a single sum",
    "the median client",
    UNKNOWN,
)
_ONE_ROUND = _Wording(
    "the update of one round",
    "update of one round, {} client",
    "The update of one round, {}, is hidden likewise",
    "the worst update of the median client",
    _SIX_DIGITS,
)
_LASTING = _Wording(
    "what lasts of the updates",
    "what lasts, {} client",
    "What lasts of a client's updates, {}, is hidden likewise",
    "that of the median client",
    _SIX_DIGITS,
)


_RESEMBLING = _Wording(
    "the update with resemblance known",
    "resemblance known, {} client",
    "From a server that knows the covariance of clients' updates (an upper end of what "
    "it may know), {}, they are hidden likewise",
    "the median client",
    _SIX_DIGITS,
)


@dataclasses.dataclass(frozen=True)
@by_value
class Drifting:
    """An assumption on how clients' updates drift over the rounds of a log.

    Checked when made.

    Attributes:
        memory: rho, the correlation from round to round of what lasts of an update.
        share: Of an update's variance that lasts; the rest is fresh in each round.
    """

    memory: float
    share: float

    @staticmethod
    def checked(memory: Any, share: Any) -> Drifting | None:
        """Check memory and share; None if updates count as if they never changed."""
        rule = "must be a number from 0 to 1"
        lasting = check_number(share, "share", rule, 0.0, 1.0)
        if memory is None:
            require(lasting == 1.0, "share", "must be used together with memory", share)
            return None
        return Drifting(check_number(memory, "memory", rule, 0.0, 1.0), lasting)

    @property
    def has_lasting_part(self) -> bool:
        """Whether both the lasting and the fresh part of an update have some size.

        With share 1 the update of a round is what lasts of it, with share 0 nothing
        lasts.
        """
        return 0.0 < self.share < 1.0

    def words(self) -> str:
        """Return the condition under which a value of the update of one round holds."""
        share = "" if self.share == 1.0 else f", share {self.share:.3g}"
        memory = f"memory {self.memory:.6g}{share}"
        return f"if updates drift with {memory} and clients are alike"

    def settings(self, log: ParticipationLog) -> dict[str, Any]:
        """Return the arguments that describe the drift to `hidden_among`.

        The rows of a log count as rounds that follow each other, which is never too
        kind: more time between them would hide more.
        """
        time = _times(log)
        if time[-1] == len(time) - 1:
            return {"memory": self.memory, "share": self.share}
        lags = np.abs(np.subtract.outer(time, time))
        return {"memory": np.where(lags == 0, 1.0, self.share * self.memory**lags)}

    def settings_unlike(self, log: ParticipationLog) -> dict[str, Any]:
        """Return the drift as `hidden_among` takes it with a covariance."""
        time = _times(log)
        if time[-1] == len(time) - 1:
            return {"memory": self.memory, "share": self.share}
        rule = "must be below 1 with a covariance, for several sums of a round"
        require(self.memory < 1.0, "memory", rule, self.memory)
        lags = np.abs(np.subtract.outer(time, time))
        return {"memory": self.memory**lags, "share": self.share}

    def lasting(self, log: ParticipationLog) -> np.ndarray:
        """Return among how many what lasts of each client's updates is hidden.

        It counts as if it never changed: a score with which a server tests an attribute
        of a client is of this form.
        """
        P = log.participation
        settings = self._settings_of_lasting(log)
        if settings is None:
            return np.where((P != 0).any(axis=0), np.nan, np.inf)
        return np.asarray(hidden_among(P, **settings), np.float64)

    def worst_lasting_over_rounds(self, log: ParticipationLog) -> np.ndarray:
        """Return among how many the worst client's lasting part is hidden, by round."""
        settings = self._settings_of_lasting(log)
        if settings is None:
            return np.full(len(log.rounds), np.nan)
        worst = hidden_among_trajectory(log.participation, quantiles=(0.0,), **settings)
        return np.asarray(worst, np.float64)[:, 0]

    def _settings_of_lasting(self, log: ParticipationLog) -> dict[str, Any] | None:
        """Return the lasting part as `hidden_among` takes it; None beyond floats."""
        settings = what_never_changes(log.participation, _times(log), self.share)
        # weights beyond the square root of the largest float
        is_finite = np.isfinite(settings.get("noise", 0.0)).all()
        return settings if is_finite else None

    def worst_over_rounds(self, log: ParticipationLog) -> np.ndarray:
        """Return among how many the worst update so far is hidden after each round."""
        worst = hidden_among_trajectory(
            log.participation, quantiles=(0.0,), **self.settings(log)
        )
        return np.asarray(worst, np.float64)[:, 0]


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
    """Predict whether hidden among takes at most a minute, or no time to speak of.

    Its cost is that of the rounds' products with each other and with their factor;
    where updates drift, of the factor with each client's own rounds, twice.
    """
    rounds = int((P != 0).any(axis=1).sum())
    cost = rounds**2 * max(P.shape)
    if drifting is not None:
        counts = (P != 0).sum(axis=0, dtype=np.int64)
        cost = max(cost, len(P) ** 3, len(P) * int(counts @ counts))
    return cost <= (_MOST_AT_ONCE if at_once else _MOST_MULTIPLIED)


def hidden_of(P: np.ndarray, exposed: Sequence[int]) -> np.ndarray:
    """Return among how many each client is hidden, 1 for those known to be exposed."""
    no_client = np.full(P.shape[1], -1, np.int32)
    values = np.asarray(among(as_history(P), None, first=no_client), np.float64)
    values = np.maximum(values, _ABOVE)
    values[list(exposed)] = 1.0
    return values


@dataclasses.dataclass(frozen=True)
@by_value
class Hidden:
    """A report on how well clients are hidden in the sums, without noise.

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
        is_resembling: Whether the server knows the covariance of clients' updates.
    """

    values: np.ndarray = dataclasses.field(compare=False, repr=False)
    worst: Noted
    least: float | None
    least_client: Hashable
    median: float | None
    drifting: Drifting | None = None
    at_least: int = 1
    is_lasting: bool = False
    is_resembling: bool = False

    @staticmethod
    def of_lasting(log: ParticipationLog, drifting: Drifting) -> Hidden:
        """Return the report on what lasts of clients' updates, without noise."""
        hidden = Hidden.saying(drifting.lasting(log), log.clients, (), drifting)
        at_least = strong_privacy(log.participation) or 1
        return dataclasses.replace(hidden, is_lasting=True, at_least=at_least)

    @staticmethod
    def of_resembling(
        log: ParticipationLog, drifting: Drifting | None, covariance: Any
    ) -> Hidden:
        """Return the report on clients whose covariance the server knows.

        Raises:
            ConfigurationError: If the covariance is none of the log's clients, or the
                log is too large.
        """
        P = log.participation
        rule = "must be of a log that takes at most a minute"
        require(is_feasible(P, drifting), "covariance", rule, P.shape)
        settings = {} if drifting is None else drifting.settings_unlike(log)
        values = np.asarray(hidden_among(P, covariance=covariance, **settings))
        exposed = np.flatnonzero(values == 1.0).tolist()
        hidden = Hidden.saying(values, log.clients, exposed, drifting)
        # mates that are not alike may be distinguished: T says nothing of them
        return dataclasses.replace(hidden, is_resembling=True)

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
        P = log.participation
        if drifting is None:
            values = hidden_of(P, exposed)
        else:
            values = np.asarray(hidden_among(P, **drifting.settings(log)))
            exposed = np.flatnonzero(values == 1.0).tolist()
        hidden = Hidden.saying(values, log.clients, exposed, drifting)
        if hidden.least is not None:
            return hidden
        return dataclasses.replace(hidden, at_least=strong_privacy(P) or 1)

    @staticmethod
    def saying(
        values: np.ndarray,
        clients: Sequence[Hashable],
        exposed: Sequence[int],
        drifting: Drifting | None,
    ) -> Hidden:
        """Return the report on clients whose values are known."""
        if np.isnan(values).any():
            first = clients[exposed[0]] if len(exposed) else None
            least = 1.0 if len(exposed) else None
            return Hidden(values, (), least, first, None, drifting)
        order = np.argsort(values, kind="stable")
        worst = order[len(exposed) : len(exposed) + _MOST_NOTED]
        return Hidden(
            values,
            tuple((clients[i], float(values[i])) for i in worst if values[i] < np.inf),
            float(values[order[0]]),
            clients[order[0]],
            float(np.median(values[np.isfinite(values)])),
            drifting,
        )

    @property
    def _wording(self) -> _Wording:
        if self.is_resembling:
            return _RESEMBLING
        if self.drifting is None:
            return _UNCHANGING
        return _LASTING if self.is_lasting else _ONE_ROUND

    @property
    def condition(self) -> str:
        """The condition on updates under which the values hold."""
        if self.drifting is None:
            return "if updates never changed"
        if self.is_resembling:
            alike = "clients are alike"
            return self.drifting.words().replace(alike, "resemblance is known")
        if not self.is_lasting:
            return self.drifting.words()
        share = f"share {self.drifting.share:.3g}"
        return f"if {share} of updates never changes and clients are alike"

    @property
    def least_words(self) -> str:
        """Among how many the worst hidden client is, and who it is."""
        if self.least is None:
            return self._wording.unknown.removeprefix("is ")
        return (
            f"among {hidden_words(self.least)} (client {printable(self.least_client)})"
        )

    @property
    def rows(self) -> tuple[str, str]:
        """The questions that the least and the median answer."""
        row = self._wording.row
        return row.format("worst"), row.format("median")

    def sentence(self) -> str:
        """Return the values in words."""
        words = self._wording
        opening = words.opening.format(self.condition)
        if self.median is None and words is _UNCHANGING:
            return f"Among how many clients each other is hidden {words.unknown}."
        if self.median is None:
            return f"{opening} among a number that {words.unknown}."
        worst = ["the exposed among 1"] if self.least == 1.0 else []
        worst += [
            f"client {printable(name)} among {hidden_words(size)}"
            for name, size in self.worst
        ]
        median = f"{words.median} among {hidden_words(self.median)}"
        return f"{opening}: {', '.join(worst)}; {median}."

    @property
    def subject(self) -> str:
        """The part of a client's updates that is hidden, where updates drift."""
        return self._wording.subject

    def gate(self, target: float | int) -> tuple[bool, str]:
        """Decide whether the worst client is hidden among some number, and why."""
        of = f"{self.subject} of " if self.subject else ""
        under = f", {self.condition}" if self.subject else ""
        if self.least is None and self.at_least >= max(target, 2):
            return True, (
                f"every client is hidden among at least {self.at_least}, the fewest "
                f"clients that are in exactly the same sums{under}"
            )
        if self.least is None:
            anyone = f"{of}any client" if of else "the worst client"
            why = f"among how many {anyone} is hidden {self._wording.unknown}{under}"
            return False, why
        value = f"{of}client {printable(self.least_client)} is hidden"
        # what floats may take off blocks' exact figures
        passed = self.least >= target * (1 - 1e-9)
        verdict = f"{'at least' if passed else 'below'} {target:g}"
        return passed, f"{value} among {hidden_words(self.least)}, {verdict}{under}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON."""
        report = {
            "worst": [
                {"client": plain(client), "hidden_among": size}
                for client, size in self.worst
            ],
            "least": self.least,
            "least_client": plain(self.least_client),
            "median": self.median,
            "condition": self.condition,
        }
        if self.drifting is not None:
            report |= dataclasses.asdict(self.drifting)
        return report


def plain_names(names: Iterable[Any]) -> list[Any]:
    """Return names of a log as JSON holds them."""
    return [plain(name) for name in names]


def plain(name: Any) -> Any:
    """Return a name of a log as JSON holds it."""
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
        """Check the numbers of the noise; None where there are none."""
        with_both = "must be used together with noise_multiplier and clip"
        with_noise = "must be used together with noise_multiplier"
        with_clip = "must be used together with clip"
        if multiplier is None and clip is None:
            require(spread is None, "spread", with_both, spread)
            return None
        require(clip is not None, "clip", with_noise, clip)
        require(multiplier is not None, "noise_multiplier", with_clip, multiplier)
        rule = "must be positive and finite"
        return Noise(
            check_number(multiplier, "noise_multiplier", rule, POSITIVE),
            check_number(clip, "clip", rule, POSITIVE),
            _check_delta(delta),
            None if spread is None else check_number(spread, "spread", rule, POSITIVE),
        )

    @staticmethod
    def of_log(log: ParticipationLog, delta: Any) -> Noise | None:
        """Return the noise that a log records; None if no sum has noise and a clip."""
        if log.noise is None or log.clip is None:
            return None
        pairs = list(zip(log.noise, log.clip, strict=True))
        clips = [clip for noise, clip in pairs if noise and clip]
        if not clips:
            return None
        ratios = tuple(noise / clip if noise and clip else 0.0 for noise, clip in pairs)
        return Noise(min(ratios), max(clips), _check_delta(delta), None, ratios)

    def figures(self, log: ParticipationLog) -> Noisy:
        """Compute how well the worst clients of a log are distinguished.

        The shift is the clip: a client who takes part against one who sends nothing.
        Rows that were scaled to integers had their noise scaled alike. Where the log
        records the noise, each sum counts in units of its clip.
        """
        P = log.participation
        scales = np.ones(len(P)) if log.scales is None else np.array(log.scales, float)
        deviations = np.full(len(P), self.multiplier * self.clip)
        shift = self.clip
        if self.ratios is not None:
            deviations = np.array(self.ratios)
            shift = 1.0
        noise = (deviations * scales) ** 2
        guarantee = distinguishability(P, shift=shift, spread=None, noise=noise)
        mean = float(np.mean(guarantee.epsilon(self.delta)))
        gaussian = None
        if self.spread is not None and is_feasible(P):
            others = distinguishability(P, shift=shift, spread=self.spread, noise=noise)
            gaussian = self._worst(log, others)
        return Noisy(self, self._worst(log, guarantee), mean, gaussian)

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
        size += more if bare else ""
        return f"the noise that the log records (noise multiplier {size})"

    def _worst(self, log: ParticipationLog, clients: Distinguishability) -> Losses:
        mu = clients.mu
        epsilon = clients.epsilon(self.delta)
        return tuple(
            (log.clients[i], float(mu[i]), float(epsilon[i]))
            for i in np.argsort(-mu, kind="stable")[:_MOST_NOTED]
            if mu[i] > 0
        )


def _check_delta(delta: Any) -> float:
    return check_number(
        delta, "delta", "must lie in (0, 1)", POSITIVE, math.nextafter(1.0, 0.0)
    )


Losses = tuple[tuple[Hashable, float, float], ...]


@dataclasses.dataclass(frozen=True)
@by_value
class Noisy:
    """A report on how well a client can be distinguished beneath noise.

    (client, mu, epsilon), the worst first.

    Attributes:
        noise: The noise as given.
        known: If the others' updates are known: a guarantee.
        mean_epsilon: That of all clients of the log then; a client in no sum counts 0.
        gaussian: If they are Gaussian with the spread: no guarantee; None where it was
            not requested, or takes too long.
    """

    noise: Noise
    known: Losses
    mean_epsilon: float
    gaussian: Losses | None

    def sentences(self) -> list[str]:
        """Return the losses in words."""
        noise = self.noise
        worst = _words(self.known[:_MOST_IN_WORDS])
        text = (
            f"With {noise.words()} all of this is up to that noise. Whether a client "
            "sent anything, to one who sees only the noisy sums, not the noise or "
            "a sum without it, and knows all others' updates (a guarantee of "
            f"differential privacy, delta {noise.delta:g}): {worst}; "
            f"the mean of all clients: epsilon {self.mean_epsilon:.3g}."
        )
        if noise.spread is None:
            return [text]
        more = f"If the others' updates are Gaussian with spread {noise.spread:g}"
        if self.gaussian is None:
            return [text, f"{more}: left out, as the log is too large."]
        worst = _words(self.gaussian[:_MOST_IN_WORDS])
        return [text, f"{more} (no guarantee): {worst}."]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return question, answer and certainty of the worst client."""
        worst = _words(self.known[:1])
        rows = [("distinguished, others known", worst, "guarantee, float64")]
        if self.gaussian is not None:
            condition = f"if Gaussian others, spread {self.noise.spread:g}"
            worst = _words(self.gaussian[:1])
            rows.append(("distinguished, others Gaussian", worst, condition))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the losses as plain values for JSON."""
        gaussian = None if self.gaussian is None else _plain_losses(self.gaussian)
        return {
            "noise_multiplier": self.noise.multiplier,
            "clip": self.noise.clip,
            "delta": self.noise.delta,
            "spread": self.noise.spread,
            "others_known": _plain_losses(self.known),
            "mean_epsilon": _finite(self.mean_epsilon),
            "others_gaussian": gaussian,
        }


def _plain_losses(losses: Losses) -> list[dict[str, Any]]:
    return [
        {"client": plain(name), "mu": _finite(mu), "epsilon": _finite(epsilon)}
        for name, mu, epsilon in losses
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _words(losses: Losses) -> str:
    return "; ".join(
        f"client {printable(name)} mu {mu:.3g}, epsilon {e:.3g}"
        for name, mu, e in losses
    )
