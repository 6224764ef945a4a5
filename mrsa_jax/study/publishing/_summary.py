"""Summarise a study: a row for each scheme, and sentences about the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import privacy
from mrsa_jax._core.status import Status
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.settings._attributes import attributes
from mrsa_watch._base.html import counted, hidden_words, number

if TYPE_CHECKING:
    import xarray as xr


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One scheme after the last round; means over trials where there are several.

    Attributes:
        scheme: Its label.
        strong_privacy: Strong T at the end (the smallest over trials); None if no
            client took part.
        hidden_among_worst: Size of a single sum that would hide the worst client
            equally well, of those who took part (the worst of all trials); None if
            nobody did, or the data set does not say.
        hidden_among_median: The median client of those, a mean over trials; None as
            above.
        weak_lower: Weak T is at least this; None but where plain rounds are trained on.
        weak_upper: Weak T is at most this; None as above.
        epsilon_mean: Mean over clients of the epsilon of their whole histories, from
            who really survived; None without noise.
        epsilon_worst: The worst client's.
        epsilon_proven: A bound on every client's that holds for the integers drawn.
        planned_epsilon: The worst client's if each of its sums had had all the planned
            noise.
        target_delta: At which delta these are.
        wrapped_coordinates: Coordinates of all sums that noise took out of the ring's
            window.
        rank: Rank of the participation matrix.
        num_clients: N, the largest rank possible.
        guaranteed_privacy: Weak T that lasts whatever the rounds bring; 1 where nothing
            is guaranteed, or the data set does not say.
        exposed_clients: Clients whose own update the server can solve for.
        first_exposed_after: Rounds after which the first was exposed (the earliest
            trial); None.
        all_exposed_after: Rounds after which the last of all clients was exposed; None.
        fairness_gap: F of one history, a mean over trials.
        expected_fairness_gap: F of eq. (6), the gap of expected shares; None if
            unknown.
        expected_fairness_error: Its standard error, 0 if it is exact.
        aggregation_cardinality: C.
        expected_cardinality: Its expectation; None where clients are lost inside
            rounds.
        cardinality_error: Standard error of C around it, from the number of rounds and
            trials.
        skipped_rounds: Rounds without a sum.
        accuracy: Test accuracy of the last evaluation, in [0, 1]; None without
            training.
        reconstruction_error: Median over clients of the attack's relative squared
            error; None.
        reconstruction_tenth: The error that a tenth of the clients do not exceed.
        reconstruction_least: The error of the best-known client.
        privacy_level: HeteroSAg's delta of the groups that are summed, by its
            definition, the least of any round with a sum; None without segments or such
            a round.
        privacy_level_most: The largest of any such round.
        round_seconds: Until the last input of a round has arrived, a mean over rounds
            with inputs; None as above.
        tolerated_byzantine: Byzantine clients that the rule over each segment's sums
            tolerates in every round with a sum, wherever they are.
        tolerated_byzantine_most: Those that it tolerates in some round.
        clipped_fraction: Share of the values of updates that were clipped, a mean over
            rounds; None without training.
        most_clipped: The share of the round in which it was largest; None as above.
        failed_uploads: Updates that were not finite, so that no sum contains them; None
            as above.
        failures: Rounds of each status other than OK and SKIPPED, by its name, where
            there are any: of these the server learnt no sum, and they left the model as
            it was.
        update_spread: Spread s of the clients' updates as measured; None without.
        update_memory: Memory rho of the part of them that lasts.
        update_lasting: That part's share of their variance.
        update_hidden_worst: Size of a single sum that would hide the worst update of
            any round equally well:, by that drift, or as the memory of a simulation
            says (the worst of all trials).
        update_hidden_median: The worst update of the median client, a mean over trials.
        lasting_hidden_worst: The same of what never changes of the worst client's
            updates; None without a lasting and a fresh part.
        lasting_hidden_median: That of the median client, a mean over trials.
        determined_share: Share of the clients whose whole-number value the sums
            determine, a mean over the trials with values; None without values.
        undecided_share: Share on whose value the budget ran out.
        update_mates_worst: Among at least how many mates alone hide the worst client's
            updates, by the drift that a training measured of each.
        update_mates_correlation: Measured correlation kappa of the updates of mates in
            one round.
        update_mates_cap: Among at least how many they hide each other by it, whatever
            is estimated.
        bits_worst: Bits a coordinate about the worst client's history, by that drift.
        bits_median: About the median client's, of those who took part.
    """

    scheme: str
    strong_privacy: int | None
    rank: float
    num_clients: int
    guaranteed_privacy: int
    exposed_clients: float
    first_exposed_after: int | None
    all_exposed_after: int | None
    fairness_gap: float
    aggregation_cardinality: float
    expected_fairness_gap: float | None = None
    expected_fairness_error: float | None = None
    expected_cardinality: float | None = None
    cardinality_error: float | None
    skipped_rounds: float
    accuracy: float | None = None
    reconstruction_error: float | None = None
    reconstruction_tenth: float | None = None
    reconstruction_least: float | None = None
    privacy_level: float | None = None
    privacy_level_most: float | None = None
    round_seconds: float | None = None
    tolerated_byzantine: int | None = None
    tolerated_byzantine_most: int | None = None
    failures: dict[str, float] = dataclasses.field(default_factory=dict)
    update_spread: float | None = None
    update_memory: float | None = None
    update_lasting: float | None = None
    update_hidden_worst: float | None = None
    update_hidden_median: float | None = None
    lasting_hidden_worst: float | None = None
    lasting_hidden_median: float | None = None
    determined_share: float | None = None
    undecided_share: float | None = None
    update_mates_worst: float | None = None
    update_mates_correlation: float | None = None
    update_mates_cap: float | None = None
    bits_worst: float | None = None
    bits_median: float | None = None
    hidden_among_worst: float | None = None
    hidden_among_median: float | None = None
    weak_lower: int | None = None
    weak_upper: int | None = None
    epsilon_mean: float | None = None
    epsilon_worst: float | None = None
    epsilon_proven: float | None = None
    planned_epsilon: float | None = None
    target_delta: float | None = None
    wrapped_coordinates: int | None = None
    clipped_fraction: float | None = None
    most_clipped: float | None = None
    failed_uploads: int | None = None

    @property
    def hidden_among(self) -> str | None:
        """The worst and the median client's hidden among, in words."""
        if self.hidden_among_worst is None or self.hidden_among_median is None:
            return None
        worst = hidden_words(self.hidden_among_worst)
        return f"{worst} / {hidden_words(self.hidden_among_median)}"

    @property
    def weak_privacy(self) -> str | None:
        """Weak T, or its bounds."""
        if self.weak_lower is None or self.weak_upper is None:
            return None
        # bounds that meet are one number
        ends = dict.fromkeys((self.weak_lower, self.weak_upper))
        return "-".join(map(str, ends))

    @property
    def privacy_levels(self) -> str | None:
        """HeteroSAg's privacy level, or the least and the largest of the rounds."""
        least = self.privacy_level
        most = self.privacy_level_most
        if least is None:
            return None
        return f"{least:.3g}" if most in (None, least) else f"{least:.3g} to {most:.3g}"

    @property
    def expected_fairness(self) -> str | None:
        """The gap of expected shares, with its error if it is estimated."""
        gap, error = self.expected_fairness_gap, self.expected_fairness_error
        if gap is None:
            return None
        return f"{gap:.4f}" if not error else f"{gap:.3f} ± {error:.1g}"

    @property
    def lasts(self) -> bool:
        """Whether weak T stays above 1 however many rounds follow."""
        return self.guaranteed_privacy > 1

    @property
    def percent_right(self) -> float | None:
        """The accuracy in percent."""
        return None if self.accuracy is None else 100 * self.accuracy


_Number = int | float | None

# How each field is read from the data set of one scheme, where it has that variable.
_MEANS = ("rank", "exposed_clients", "fairness_gap", "aggregation_cardinality")
_OVER_TRIALS: dict[str, Callable[..., float]] = {
    "update_hidden_worst": np.min,
    "update_hidden_median": np.mean,
    "lasting_hidden_worst": np.min,
    "lasting_hidden_median": np.mean,
    "hidden_among_worst": np.min,
    "hidden_among_median": np.mean,
    "weak_lower": np.min,
    "weak_upper": np.min,
}
_OF_VALUES = ("determined_share", "undecided_share")
_QUANTILES = {
    "reconstruction_error": 0.5,
    "reconstruction_tenth": 0.1,
    "reconstruction_least": 0.0,
}
_FIELDS = {field.name: str(field.type) for field in dataclasses.fields(Row)}
_WHOLE = {name for name, kind in _FIELDS.items() if kind.startswith("int")}


def summarise(results: xr.Dataset) -> tuple[Row, ...]:
    """Return the table of a study, one row for each scheme in its order."""
    return tuple(_row(results.sel(scheme=label)) for label in results["scheme"].values)


def _row(scheme: xr.Dataset) -> Row:
    num_trials = scheme.sizes.get("trial", 1)
    last = scheme.isel(round=-1)
    strong = np.asarray(last["strong_privacy"])
    # 0 where no client took part
    learnt = strong[strong > 0]
    first = np.asarray(scheme["first_exposure"])
    exposed = first[first >= 0]
    deviation = scheme["cardinality_deviation"]
    # standard error of a mean over all rounds of all trials
    error = float(deviation / np.sqrt(scheme.sizes["round"] * num_trials))
    # a variable of a field's name is its value, unless a rule below reads it otherwise
    named = {name for name in _FIELDS if name in scheme.data_vars} - {"strong_privacy"}
    numbers: dict[str, Any] = {
        **{name: _latest(scheme, name) for name in named},
        **{name: float(last[name].mean()) for name in _MEANS},
        **{name: _last(last, name, over) for name, over in _OVER_TRIALS.items()},
        **_errors_of_attack(scheme),
        **{name: _mean_of_some(scheme, name) for name in _OF_VALUES},
        **_uploads(scheme),
        **_epsilons(scheme),
    }
    numbers["guaranteed_privacy"] = numbers.get("guaranteed_privacy") or 1
    return Row(
        scheme=str(scheme["scheme"].values),
        strong_privacy=int(learnt.min()) if learnt.size else None,
        num_clients=scheme.sizes["client"],
        # after round j, j + 1 rounds are done
        first_exposed_after=int(exposed.min()) + 1 if exposed.size else None,
        # only if every client of every trial is exposed
        all_exposed_after=int(first.max()) + 1 if exposed.size == first.size else None,
        cardinality_error=error if np.isfinite(error) else None,
        skipped_rounds=float(scheme["skipped"].sum("round").mean()),
        failures=_failures(scheme, num_trials),
        **numbers,
    )


def _latest(scheme: xr.Dataset, name: str) -> _Number:
    """Return the last value of a quantity without trials; None where unknown."""
    value = float(np.ravel(scheme[name])[-1])
    if np.isnan(value):
        return None
    return int(value) if name in _WHOLE else value


def _last(last: xr.Dataset, name: str, over_trials: Callable[..., float]) -> _Number:
    """Return a quantity over the trials that have it; None if one of them is unknown.

    A trial without sums has none. If clients took part and it is missing all the same,
    floats could not decide it.
    """
    if name not in last:
        return None
    values = np.asarray(last[name], np.float64)
    has_sums = np.asarray(last["rank"]) > 0
    is_known = np.isfinite(values)
    if (np.isnan(values) & has_sums).any() or not is_known.any():
        return None
    value = float(over_trials(values[is_known]))
    return int(value) if name in _WHOLE else value


def _mean_of_some(scheme: xr.Dataset, name: str) -> _Number:
    """Return the mean over the trials that have a quantity; None if none has it."""
    values = np.asarray(scheme.get(name, np.nan), np.float64)
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def _errors_of_attack(scheme: xr.Dataset) -> dict[str, _Number]:
    errors = np.asarray(scheme.get("reconstruction_error", np.nan))
    if not np.isfinite(errors).any():
        return dict.fromkeys(_QUANTILES)
    return {name: float(np.nanquantile(errors, q)) for name, q in _QUANTILES.items()}


def _uploads(scheme: xr.Dataset) -> dict[str, _Number]:
    """Return the clipped part of uploads, and the number that were not finite."""
    if "failed_uploads" not in scheme:
        return {}
    fractions = np.asarray(scheme["clipped_fraction"], np.float64)
    fractions = fractions[np.isfinite(fractions)]  # of rounds with uploads
    return {
        "clipped_fraction": float(fractions.mean()) if fractions.size else None,
        "most_clipped": float(fractions.max()) if fractions.size else None,
        "failed_uploads": int(scheme["failed_uploads"].sum()),
    }


def _epsilons(scheme: xr.Dataset) -> dict[str, _Number]:
    """Return the privacy losses that noise leaves; nothing without noise."""
    if "epsilon" not in scheme:
        return {}
    epsilon = scheme["epsilon"]
    return {
        "epsilon_mean": float(epsilon.mean()),
        "epsilon_worst": float(epsilon.max()),
        "epsilon_proven": float(scheme["epsilon_proven"]),
        "planned_epsilon": float(scheme["planned_epsilon"].max()),
        "target_delta": float(epsilon.attrs["delta"]),
        "wrapped_coordinates": int(scheme["wrapped"].sum()),
    }


def _failures(scheme: xr.Dataset, num_trials: int) -> dict[str, float]:
    """Count the rounds of a trial that ended in each status that is a failure."""
    if "status" not in scheme:
        return {}
    codes, counts = np.unique(np.asarray(scheme["status"]), return_counts=True)
    by_status = zip(map(Status, codes.tolist()), counts.tolist(), strict=True)
    return {
        status.name: count / num_trials
        for status, count in by_status
        if status not in (Status.OK, Status.SKIPPED)
    }


def sentences(results: xr.Dataset) -> tuple[str, ...]:
    """Say in plain sentences what the table shows.

    What leaks, what it costs, what failed.
    """
    return said_of(summarise(results), results)


def said_of(rows: tuple[Row, ...], results: xr.Dataset) -> tuple[str, ...]:
    """Return the sentences of a table's rows, which are of this data set."""
    after = f"after {counted(results.sizes['round'], 'round')}"
    config = attributes(results).get("config", {})
    combine = config.get("hetero", {}).get("combine", "")
    said = (
        _leak_sentence(rows, after) + _yet_sentence(rows),
        _cost_sentence(rows),
        "" if "expansion" in results else _attribute_sentence(rows),
        _failure_sentence(rows, results.sizes["round"], config),
        text_of("said_weights") if "weights" in results else "",
        *_upload_sentences(rows, config),
        _segment_sentence(rows, combine) if "expansion" in results else "",
        _noise_sentence(rows, after),
        _drift_sentence(rows, after),
        _attained_sentence(rows),
    )
    return tuple(sentence for sentence in said if sentence)


def _under(
    rows: Sequence[Row],
    words: Callable[[Row], str],
    more: Callable[[Row], str] | None = None,
) -> str:
    """Join words about each scheme, with more about it behind its name in brackets."""
    parts = [f"{words(row)} under {row.scheme}" for row in rows]
    if more is not None:
        parts = [f"{part} ({more(row)})" for part, row in zip(parts, rows, strict=True)]
    return _join(parts)


def _ends(values: list[str]) -> str:
    """Return the first and the last of some sorted words, or the only ones."""
    # a step of the whole length takes the first and the last
    return " to ".join(values[:: max(1, len(values) - 1)])


def _attribute_sentence(rows: tuple[Row, ...]) -> str:
    """Report the bound of blocks on tests of what a client is; "" without blocks."""
    targets = {
        # a history may look better than what its scheme keeps for any number of rounds
        row.scheme: min(row.strong_privacy, row.guaranteed_privacy)
        for row in rows
        if row.lasts and row.strong_privacy is not None and row.strong_privacy > 1
    }
    if not targets:
        return ""
    return f"Of the clients of a block, {privacy.bound_in_words(targets)}."


def _noise_sentence(rows: tuple[Row, ...], after: str) -> str:
    """Say which epsilon noise promises, and how often the ring wrapped; "" without."""
    noisy = [row for row in rows if row.epsilon_worst is not None]
    if not noisy:
        return ""
    epsilons = _under(
        noisy,
        lambda row: f"{row.epsilon_proven:.3g}",
        lambda row: (
            f"if noise were Gaussian {row.epsilon_worst:.3g} for the worst client, "
            f"{row.planned_epsilon:.3g} as planned, and {row.epsilon_mean:.3g} on "
            "average"
        ),
    )
    text = text_of("said_noise").format(
        delta=noisy[0].target_delta, after=after, epsilons=epsilons
    )
    wrapped = sum(row.wrapped_coordinates or 0 for row in noisy)
    more = f"; in {wrapped} coordinates of all sums the ring wrapped" if wrapped else ""
    return f"{text}{more}."


def _drift_sentence(rows: tuple[Row, ...], after: str) -> str:
    """Say what drift hides, and what T does not cap; "" where nothing was measured."""
    measured = [
        row
        for row in rows
        if row.bits_worst is not None and row.update_lasting is not None
    ]
    if not measured:
        return ""
    measured.sort(key=lambda row: row.bits_worst or 0.0)
    sized = [row for row in rows if row.update_hidden_worst is not None]
    sized.sort(key=lambda row: row.update_hidden_worst or 0.0)
    hidden = [
        f"{hidden_words(row.update_hidden_worst)} under {row.scheme}" for row in sized
    ]
    lasting = {round(100 * (row.update_lasting or 0.0)) for row in measured}
    text = text_of("said_drift").format(
        lasts=_ends([str(percent) for percent in sorted(lasting)]),
        hidden=_ends(hidden),
        after=after,
        bits=_ends([f"{row.bits_worst:.3g} under {row.scheme}" for row in measured]),
    )
    constant = [row for row in rows if row.lasting_hidden_worst is not None]
    constant.sort(key=lambda row: row.lasting_hidden_worst or 0.0)
    if constant:
        among = _ends(
            [
                f"{hidden_words(row.lasting_hidden_worst)} under {row.scheme}"
                for row in constant
            ]
        )
        text += f" What lasts of the worst client's updates is hidden among {among}."
    if any(row.epsilon_proven is not None for row in rows):
        text += f" {text_of('said_drift_of_noise')}"
    caps = [row for row in rows if (row.update_mates_cap or 0.0) > 1]
    if not caps:  # no client has mates
        return text
    each = _under(
        caps,
        lambda row: f"{row.update_mates_cap:.2f}",
        lambda row: f"kappa {row.update_mates_correlation:.2g}",
    )
    start = (
        " Models react to the sums, so updates of mates correlate. For any estimate, "
        "mates hide"
    )
    return f"{text}{start} an update among at least {each}."


def _attained_sentence(rows: tuple[Row, ...]) -> str:
    """Say how well attacks knew single clients, next to the value for alike clients.

    "" where no scheme that exposes nobody was attacked.
    """
    parts = []
    for row in rows:
        least = row.reconstruction_least
        tenth = row.reconstruction_tenth
        median = row.reconstruction_error
        if row.exposed_clients or least is None or tenth is None or median is None:
            continue
        words = f"{attained_words(least, tenth, median)} under {row.scheme}"
        if row.hidden_among_worst is not None:
            among = hidden_words(row.hidden_among_worst)
            words += f" (the worst among {among} as computed)"
        parts.append(words)
    return text_of("said_attained").format(parts="; ".join(parts)) if parts else ""


def attained_words(least: float, tenth: float, median: float) -> str:
    """Describe an attack's knowledge of clients, in the unit of hidden among.

    Args:
        least: Relative squared error of the best-known client.
        tenth: The error that a tenth of the clients do not exceed.
        median: That of the median client.

    Examples:
        >>> attained_words(0.25, 0.5, 1.25)
        'the best-known client among 1.33, the best-known tenth among 2.00 or \
fewer, the median client no better than by guessing zero'
    """
    return (
        f"the best-known client {attained_word(least)}, the best-known tenth "
        f"{attained_word(tenth)}"
        f"{' or fewer' if tenth < 1 else ''}, the median client {attained_word(median)}"
    )


def attained_word(error: float) -> str:
    """Return the number of clients that hide one whose estimate has this error."""
    if error >= 1.0:
        return "no better than by guessing zero"
    # hidden among h means an error of 1 - 1/h, solved for h
    return f"among {hidden_words(1.0 / (1.0 - error))}"


_RULES = {
    "mean": "The mean",
    "median": "The median",
    "trimmed": "The trimmed mean",
    "geometric": "The geometric median",
    "krum": "Krum",
}
"""Names in sentences of the rules over a segment's sums, by their name in settings."""


def _segment_sentence(rows: tuple[Row, ...], combine: str) -> str:
    """Say what segments and groups mean in the study's rounds, and their time."""
    text = text_of("said_segments").format(
        level=_of_each(rows, _level_words),
        seconds=_of_each(rows, _seconds_words),
        rule=_RULES.get(combine, "The rule"),
        tolerated=_of_each(rows, _tolerance_words),
    )
    return f"{text}."


def _of_each(rows: tuple[Row, ...], words: Callable[[Row], str]) -> str:
    """Return the words that hold for all schemes, or those of each."""
    alike = {words(row) for row in rows}
    return alike.pop() if len(alike) == 1 else _under(rows, words)


def _level_words(row: Row) -> str:
    return row.privacy_levels or "unknown (no sum was learnt)"


def _seconds_words(row: Row) -> str:
    if row.round_seconds is None:
        return "no time"
    return f"{row.round_seconds:.3g} s on average"


def _tolerance_words(row: Row) -> str:
    least = row.tolerated_byzantine
    most = row.tolerated_byzantine_most
    if least is None:
        return "an unknown number of Byzantine clients (no sum was learnt)"
    if most not in (None, least):
        return f"{least} to {most} Byzantine clients, by the round"
    if least == 0:
        return "no Byzantine client"
    return f"{counted(least, 'Byzantine client')}, in any group"


_REFUSED = (
    " Unreliable: clients refused a list that parts a block, or too few of them "
    "answered."
)


def _failure_sentence(
    rows: tuple[Row, ...], num_rounds: int, config: Mapping[str, Any]
) -> str:
    def causes(row: Row) -> str:
        return ", ".join(
            f"{count:.4g} {status.lower().replace('_', ' ')}"
            for status, count in row.failures.items()
        )

    failing = [row for row in rows if row.failures]
    if not failing:
        return ""
    each = _under(
        failing,
        lambda row: f"{sum(row.failures.values()):.4g} of {num_rounds}",
        causes,
    )
    are_enforced = bool(config.get("protocol", {}).get("whole_blocks"))
    start = "Rounds that failed inside the protocol, and left the model as it was"
    return f"{start}: {each}.{_REFUSED * are_enforced}"


_MUCH_CLIPPED = 0.01
"""A fraction of clipped values, of any round, from which sentences report it."""


def _upload_sentences(rows: tuple[Row, ...], config: Mapping[str, Any]) -> list[str]:
    """Report updates that were not finite, and rounds that were much clipped."""
    said = []
    failed = [row for row in rows if row.failed_uploads]
    if failed:
        words = _under(failed, lambda row: str(row.failed_uploads))
        said.append(text_of("said_failed_uploads").format(failed=words))
    clipped = [row for row in rows if (row.most_clipped or 0.0) >= _MUCH_CLIPPED]
    if clipped:
        words = _under(
            clipped,
            lambda row: _percent(row.clipped_fraction),
            lambda row: f"at most {_percent(row.most_clipped)} in a round",
        )
        has_norm = config.get("aggregation", {}).get("clip_norm") is not None
        is_whole = config.get("hetero", {}).get("segments", "none") == "none"
        name = "said_shortened" if has_norm and is_whole else "said_clipped"
        said.append(text_of(name).format(clipped=words))
    return said


def _percent(fraction: float | None) -> str:
    return f"{number(100 * (fraction or 0.0), 2)} %"


def _leak_sentence(rows: tuple[Row, ...], after: str) -> str:
    exposed = [row for row in rows if row.exposed_clients > 0]
    safe = [row for row in rows if row.exposed_clients == 0]
    error = _errors(exposed or safe)
    if error:
        words = f", with a median relative squared error of {error}"
        error = f"{words} if updates never changed"
    if not exposed:
        where = rows[0].scheme if len(rows) == 1 else "any of the schemes"
        text = f"{after.capitalize()}, the server can solve for no client's update"
        return f"{text} under {where}{error}."
    solved = _under(
        exposed,
        lambda row: f"{row.exposed_clients:.4g} of {row.num_clients} clients",
        lambda row: f"from round {row.first_exposed_after}",
    )
    text = (
        "The server sees only securely aggregated sums. Even so, "
        f"{after} it can solve for the individual updates of {solved}{error}."
    )
    if not safe:
        return text
    names = _join([row.scheme for row in safe])
    error = _errors(safe)
    error = error and f", where that error is {error}"
    return f"{text} It can solve for no client's update under {names}{error}."


def _yet_sentence(rows: tuple[Row, ...]) -> str:
    """Report schemes that will expose clients, in a study that stops too early."""
    early = [row for row in rows if row.exposed_clients == 0 and not row.lasts]
    if not early:
        return ""
    parts = [
        f"{row.scheme} (rounds left: N - rank = {row.num_clients} - {row.rank:.4g} = "
        f"{row.num_clients - row.rank:.4g})"
        for row in early
    ]
    its = "its" if len(early) == 1 else "their"
    text = text_of("said_not_yet").format(schemes=_join(parts), its=its)
    return f" {text}"


def _errors(rows: list[Row]) -> str:
    """Return the errors of reconstructions, or their range; "" where none is known."""
    errors = [row.reconstruction_error for row in rows]
    numbers = [error for error in errors if error is not None]
    if not numbers:
        return ""
    return " to ".join(dict.fromkeys((f"{min(numbers):.2g}", f"{max(numbers):.2g}")))


def _cost_sentence(rows: tuple[Row, ...]) -> str:
    """Say what privacy costs; a scheme whose T does not last is never advised."""
    if len(rows) == 1 and rows[0].strong_privacy is not None:
        return f"{rows[0].scheme} has {_use(rows[0])}."
    lasting = [
        row
        for row in rows
        if row.lasts and not row.exposed_clients and row.strong_privacy is not None
    ]
    if not lasting:
        return (
            "None of the schemes both sums updates and protects every client "
            "permanently."
        )
    best = max(lasting, key=_usefulness)
    text = (
        "Of the schemes that keep their weak T for any number of rounds, "
        f"{best.scheme} is the most useful: {_use(best)}."
    )
    exposed = [row for row in rows if row.exposed_clients > 0]
    if exposed:
        other = max(exposed, key=_usefulness)
        text += f" {other.scheme}, which exposes clients, reaches {_use(other)}."
    strictest = max(lasting, key=lambda row: row.strong_privacy or 0)
    if strictest is not best:
        text += (
            f" {strictest.scheme} has the highest strong T of these, "
            f"{strictest.strong_privacy}, but {_use(strictest)}."
        )
    return text


def _usefulness(row: Row) -> tuple[float, float]:
    return (row.accuracy or 0.0, row.aggregation_cardinality)


def _use(row: Row) -> str:
    words = f"{row.aggregation_cardinality:.3g} clients per round on average"
    if row.percent_right is None:
        return words
    return f"{words} and {row.percent_right:.1f} % test accuracy"


def _join(parts: list[str]) -> str:
    # a, b and c
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
