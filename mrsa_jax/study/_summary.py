"""What a study found: a row for each scheme, and sentences about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.status import Status
from mrsa_jax.study._assets import text_of
from mrsa_jax.study._attributes import attributes
from mrsa_watch._base.html import hidden_words, number

if TYPE_CHECKING:
    import xarray as xr


@dataclasses.dataclass(frozen=True)
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
        fairness_gap: F.
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
    expected_cardinality: float | None
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
        """What the worst and the median client is hidden among, in words."""
        worst, median = self.hidden_among_worst, self.hidden_among_median
        if worst is None or median is None:
            return None
        return f"{hidden_words(worst)} / {hidden_words(median)}"

    @property
    def weak_privacy(self) -> str | None:
        """Weak T, or between which bounds it lies."""
        lower, upper = self.weak_lower, self.weak_upper
        if lower is None or upper is None:
            return None
        return str(lower) if lower == upper else f"{lower}-{upper}"

    @property
    def privacy_levels(self) -> str | None:
        """HeteroSAg's privacy level, or the least and the largest of the rounds."""
        least, most = self.privacy_level, self.privacy_level_most
        if least is None:
            return None
        return f"{least:.3g}" if most in (None, least) else f"{least:.3g} to {most:.3g}"

    @property
    def lasts(self) -> bool:
        """Whether weak T stays above 1 however many rounds follow."""
        return self.guaranteed_privacy > 1

    @property
    def percent_right(self) -> float | None:
        """The accuracy in percent."""
        return None if self.accuracy is None else 100 * self.accuracy


def summarise(results: xr.Dataset) -> tuple[Row, ...]:
    """Return the table of a study, one row for each scheme in its order."""
    return tuple(_row(results.sel(scheme=label)) for label in results["scheme"].values)


def _row(one: xr.Dataset) -> Row:
    rounds, clients = one.sizes["round"], one.sizes["client"]
    trials = one.sizes.get("trial", 1)
    last = one.isel(round=-1)
    strong = np.asarray(last["strong_privacy"])
    first = np.asarray(one["first_exposure"])
    seen = first[first >= 0]
    everyone = bool((first >= 0).all())
    learnt = strong[strong > 0]
    return Row(
        scheme=str(one["scheme"].values),
        strong_privacy=int(learnt.min()) if learnt.size else None,
        rank=float(last["rank"].mean()),
        num_clients=clients,
        guaranteed_privacy=_whole(_fact(one, "guaranteed_privacy")) or 1,
        exposed_clients=float(last["exposed_clients"].mean()),
        first_exposed_after=int(seen.min()) + 1 if seen.size else None,
        all_exposed_after=int(first.max()) + 1 if everyone else None,
        fairness_gap=float(last["fairness_gap"].mean()),
        aggregation_cardinality=float(last["aggregation_cardinality"].mean()),
        expected_cardinality=_finite(one["expected_cardinality"]),
        cardinality_error=_finite(
            one["cardinality_deviation"] / np.sqrt(rounds * trials)
        ),
        skipped_rounds=float(one["skipped"].sum("round").mean()),
        accuracy=_finite(one["accuracy"].isel(evaluation=-1))
        if "accuracy" in one
        else None,
        reconstruction_error=_quantile(one.get("reconstruction_error"), 0.5),
        reconstruction_tenth=_quantile(one.get("reconstruction_error"), 0.1),
        reconstruction_least=_quantile(one.get("reconstruction_error"), 0.0),
        failures=_failures(one.get("status"), trials),
        update_hidden_worst=_last(last, "update_hidden_worst", np.min),
        update_hidden_median=_last(last, "update_hidden_median", np.mean),
        hidden_among_worst=_last(last, "hidden_among_worst", np.min),
        hidden_among_median=_last(last, "hidden_among_median", np.mean),
        weak_lower=_whole(_last(last, "weak_lower", np.min)),
        weak_upper=_whole(_last(last, "weak_upper", np.min)),
        **_uploads(one),
        **_of_segments(one),
        **_drift(one),
        **_epsilons(one),
    )


def _uploads(one: xr.Dataset) -> dict[str, Any]:
    """Return how much of what clients sent was clipped, and how many updates were not finite."""
    if "failed_uploads" not in one:
        return {}
    shares = np.asarray(one["clipped_fraction"], np.float64)
    sent = shares[np.isfinite(shares)]
    return {
        "clipped_fraction": float(sent.mean()) if sent.size else None,
        "most_clipped": float(sent.max()) if sent.size else None,
        "failed_uploads": int(one["failed_uploads"].sum()),
    }


def _of_segments(one: xr.Dataset) -> dict[str, Any]:
    """Return what groups and segments mean in the study's rounds; None without."""
    return {
        "privacy_level": _fact(one, "privacy_level"),
        "privacy_level_most": _fact(one, "privacy_level_most"),
        "round_seconds": _fact(one, "round_seconds"),
        "tolerated_byzantine": _whole(_fact(one, "tolerated_byzantine")),
        "tolerated_byzantine_most": _whole(_fact(one, "tolerated_byzantine_most")),
    }


def _epsilons(one: xr.Dataset) -> dict[str, Any]:
    """Return what noise left of differential privacy; nothing without noise."""
    if "epsilon" not in one:
        return {}
    own = one["epsilon"].values
    return {
        "epsilon_mean": float(own.mean()),
        "epsilon_worst": float(own.max()),
        "epsilon_proven": float(one["epsilon_proven"]),
        "planned_epsilon": float(one["planned_epsilon"].max()),
        "target_delta": float(one["epsilon"].attrs["delta"]),
        "wrapped_coordinates": int(one["wrapped"].sum()),
    }


def _last(last: xr.Dataset, name: str, over_trials: Callable[..., Any]) -> float | None:
    """Return a quantity over the trials that have one.

    None where none has, or one is not known.
    Who took part has a figure; where it is missing all the same, floats did not know
    it.
    """
    values = np.asarray(last.get(name, np.nan), np.float64)
    if name in last and (np.isnan(values) & (np.asarray(last["rank"]) > 0)).any():
        return None
    known = values[np.isfinite(values)]
    return float(over_trials(known)) if known.size else None


def _fact(one: xr.Dataset, name: str) -> float | None:
    return _finite(one[name]) if name in one else None


_DRIFT = ("update_spread", "update_memory", "update_lasting", "update_mates_worst",
          "update_mates_correlation", "update_mates_cap", "bits_worst", "bits_median")  # fmt: skip


def _drift(one: xr.Dataset) -> dict[str, Any]:
    """Return what was measured of drifting updates by the last round.

    None where nothing was.
    """
    last = {name: float(np.ravel(one[name])[-1]) for name in _DRIFT if name in one}
    return {name: None if np.isnan(value) else value for name, value in last.items()}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _failures(status: Any, trials: int) -> dict[str, float]:
    """Return how many rounds of a trial ended in each status that is a failure."""
    if status is None:
        return {}
    codes, counts = np.unique(np.asarray(status), return_counts=True)
    return {
        Status(int(code)).name: float(count) / trials
        for code, count in zip(codes, counts, strict=True)
        if code not in (Status.OK, Status.SKIPPED)
    }


def _quantile(errors: Any, quantile: float) -> float | None:
    if errors is None or not np.isfinite(errors).any():
        return None
    return float(np.nanquantile(errors, quantile))


if TYPE_CHECKING:
    import xarray as xr


# ---- Sentences that say what a study found.


def sentences(results: xr.Dataset) -> tuple[str, ...]:
    """Say in plain sentences what the table shows.

    What leaks, what it costs, what failed.
    """
    return said_of(summarise(results), results)


def said_of(rows: tuple[Row, ...], results: xr.Dataset) -> tuple[str, ...]:
    """Return the sentences of a table's rows, which are of this data set."""
    rounds = results.sizes["round"]
    said = [_leak_sentence(rows, rounds), _cost_sentence(rows)]
    early = [row for row in rows if row.exposed_clients == 0 and not row.lasts]
    if early:
        said[0] += " " + _yet_sentence(early)
    if any(row.failures for row in rows):
        protocol = attributes(results).get("config", {}).get("protocol", {})
        said.append(
            _failure_sentence(rows, rounds)
            + _REFUSED * bool(protocol.get("whole_blocks"))
        )
    if "weights" in results:
        said.append(text_of("said_weights"))
    said += _upload_sentences(rows, results)
    if "expansion" in results:
        combine = (
            attributes(results).get("config", {}).get("hetero", {}).get("combine", "")
        )
        said.append(_segment_sentence(rows, combine))
    if any(row.epsilon_worst is not None for row in rows):
        said.append(_noise_sentence(rows, rounds))
    if drift := _drift_sentence(rows, rounds):
        said.append(drift)
    if attained := _attained_sentence(rows):
        said.append(attained)
    return tuple(said)


def _noise_sentence(rows: tuple[Row, ...], rounds: int) -> str:
    """Say what noise promises, to whom, and what it asks of whom."""
    known = [row for row in rows if row.epsilon_worst is not None]
    parts = [
        f"{row.epsilon_proven:.3g} under {row.scheme} (if noise were Gaussian "
        f"{row.epsilon_worst:.3g} for the worst client, {row.planned_epsilon:.3g} as "
        "planned, and "
        f"{row.epsilon_mean:.3g} on average)"
        for row in known
    ]
    text = text_of("said_noise").format(
        delta=known[0].target_delta, after=_after(rounds), epsilons=_join(parts)
    )
    wrapped = sum(row.wrapped_coordinates or 0 for row in known)
    return text + (
        f"; in {wrapped} coordinates of all sums the ring wrapped." if wrapped else "."
    )


def _drift_sentence(rows: tuple[Row, ...], rounds: int) -> str:
    """Say what drift hides, and what T does not cap; "" where nothing was measured."""
    known = sorted(
        (
            row
            for row in rows
            if row.bits_worst is not None and row.update_lasting is not None
        ),
        key=lambda row: row.bits_worst or 0.0,
    )
    if not known:
        return ""
    ends = known[:: max(1, len(known) - 1)]
    bits = " to ".join(f"{row.bits_worst:.3g} under {row.scheme}" for row in ends)
    sizes = [row for row in rows if row.update_hidden_worst is not None]
    sizes = sorted(sizes, key=lambda row: row.update_hidden_worst or 0.0)
    hidden = " to ".join(
        f"{hidden_words(row.update_hidden_worst or 1.0)} under {row.scheme}"
        for row in sizes[:: max(1, len(sizes) - 1)]
    )
    shares = sorted({round(100 * (row.update_lasting or 0.0)) for row in known})
    lasts = " to ".join(f"{share}" for share in shares[:: max(1, len(shares) - 1)])
    text = text_of("said_drift").format(
        lasts=lasts, hidden=hidden, after=_after(rounds), bits=bits
    )
    return text + _mates_sentence(rows)


def _attained_sentence(rows: tuple[Row, ...]) -> str:
    """Say how well attacks knew single clients, next to what is computed of alike ones.

    "" where no scheme that exposes nobody was attacked.
    """
    parts = []
    for row in rows:
        attained = (
            row.reconstruction_least,
            row.reconstruction_tenth,
            row.reconstruction_error,
        )
        if row.exposed_clients or None in attained:
            continue
        least, tenth, median = (error or 0.0 for error in attained)
        computed = ""
        if row.hidden_among_worst is not None:
            computed = (
                f" (the worst among {hidden_words(row.hidden_among_worst)} as computed)"
            )
        parts.append(
            f"{attained_words(least, tenth, median)} under {row.scheme}{computed}"
        )
    return text_of("said_attained").format(parts="; ".join(parts)) if parts else ""


def attained_words(least: float, tenth: float, median: float) -> str:
    """Return how well an attack knew clients' updates, in the unit of hidden among.

    Args:
        least: Relative squared error of the best-known client.
        tenth: The error that a tenth of the clients do not exceed.
        median: That of the median client.

    Examples:
        >>> attained_words(0.25, 0.5, 1.25)
        'the best-known client among 1.33, the best-known tenth among 2.00 or fewer, the median \
client no better than by guessing zero'
    """
    return (
        f"the best-known client {attained_word(least)}, the best-known tenth "
        f"{attained_word(tenth)}"
        f"{' or fewer' if tenth < 1 else ''}, the median client {attained_word(median)}"
    )


def attained_word(error: float) -> str:
    """Return in a word among how many a client is hidden whose estimate has this error."""
    if error >= 1.0:
        return "no better than by guessing zero"
    return f"among {hidden_words(1.0 / (1.0 - error))}"


def _mates_sentence(rows: tuple[Row, ...]) -> str:
    """Say what mates hide whatever is estimated; "" if no client has mates."""
    words = "{0.update_mates_cap:.2f} under {0.scheme} (kappa {0.update_mates_correlation:.2g})"
    caps = [words.format(row) for row in rows if (row.update_mates_cap or 0.0) > 1]
    start = " Models react to the sums, so updates of mates correlate. For any estimate, mates hide"
    return f"{start} an update among at least {_join(caps)}." if caps else ""


_RULES = {
    "mean": "The mean",
    "median": "The median",
    "trimmed": "The trimmed mean",
    "geometric": "The geometric median",
    "krum": "Krum",
}
"""What rules over a segment's sums are called in sentences, by the name in the settings.
"""


def _segment_sentence(rows: tuple[Row, ...], combine: str) -> str:
    """Say what segments and groups mean in the study's rounds, and what they cost in time."""
    text = text_of("said_segments").format(
        level=_of_each(rows, _level_words),
        seconds=_of_each(rows, _seconds_words),
        rule=_RULES.get(combine, "The rule"),
        tolerated=_of_each(rows, _tolerance_words),
    )
    return f"{text}."


def _of_each(rows: tuple[Row, ...], words: Callable[[Row], str]) -> str:
    """Return what holds for all schemes, or for each."""
    parts = [words(row) for row in rows]
    if len(set(parts)) == 1:
        return parts[0]
    return _join(
        [f"{part} under {row.scheme}" for part, row in zip(parts, rows, strict=True)]
    )


def _level_words(row: Row) -> str:
    return row.privacy_levels or "unknown (no sum was learnt)"


def _seconds_words(row: Row) -> str:
    return (
        "no time"
        if row.round_seconds is None
        else f"{row.round_seconds:.3g} s on average"
    )


def _tolerance_words(row: Row) -> str:
    least, most = row.tolerated_byzantine, row.tolerated_byzantine_most
    if least is None:
        return "an unknown number of Byzantine clients (no sum was learnt)"
    if most not in (None, least):
        return f"{least} to {most} Byzantine clients, by the round"
    if least == 0:
        return "no Byzantine client"
    return f"{least} Byzantine client{'' if least == 1 else 's'}, in any group"


_REFUSED = " Unreliable: clients refused a list that parts a block, or too few of them answered."


def _failure_sentence(rows: tuple[Row, ...], rounds: int) -> str:
    parts = []
    for row in rows:
        if row.failures:
            why = [
                f"{n:.4g} {k.lower().replace('_', ' ')}"
                for k, n in row.failures.items()
            ]
            total = sum(row.failures.values())
            parts.append(
                f"{total:.4g} of {rounds} under {row.scheme} ({', '.join(why)})"
            )
    return f"Rounds that failed inside the protocol, and left the model as it was: {_join(parts)}."


_MUCH_CLIPPED = 0.01
"""A share of clipped values, of any round, from which sentences report it."""


def _upload_sentences(rows: tuple[Row, ...], results: xr.Dataset) -> list[str]:
    """Report updates that were not finite, and clipping where it changed much of any round."""
    said = []
    failed = [
        f"{row.failed_uploads} under {row.scheme}" for row in rows if row.failed_uploads
    ]
    if failed:
        said.append(text_of("said_failed_uploads").format(failed=_join(failed)))
    clipped = [
        f"{_percent(row.clipped_fraction)} under {row.scheme} "
        f"(at most {_percent(row.most_clipped)} in a round)"
        for row in rows
        if (row.most_clipped or 0.0) >= _MUCH_CLIPPED
    ]
    if clipped:
        config = attributes(results).get("config", {})
        norm = config.get("aggregation", {}).get("clip_norm")
        is_norm = (
            norm is not None
            and config.get("hetero", {}).get("segments", "none") == "none"
        )
        name = "said_shortened" if is_norm else "said_clipped"
        said.append(text_of(name).format(clipped=_join(clipped)))
    return said


def _percent(share: float | None) -> str:
    return f"{number(100 * (share or 0.0), 2)} %"


def _after(rounds: int) -> str:
    return f"after {rounds} round{'s' if rounds > 1 else ''}"


def _leak_sentence(rows: tuple[Row, ...], rounds: int) -> str:
    exposed = [row for row in rows if row.exposed_clients > 0]
    safe = [row for row in rows if row.exposed_clients == 0]
    error = _errors(exposed or safe)
    with_error = error and f", with {error}"
    if not exposed:
        where = rows[0].scheme if len(rows) == 1 else "any of the schemes"
        text = f"{_after(rounds).capitalize()}, the server can solve for no client's update"
        return f"{text} under {where}{with_error}."
    text = "The server sees only securely aggregated sums. Even so, "
    text += f"{_after(rounds)} it can solve for the individual updates of "
    text += _join(
        [
            f"{row.exposed_clients:.4g} of {row.num_clients} clients under "
            f"{row.scheme} "
            f"(from round {row.first_exposed_after})"
            for row in exposed
        ]
    )
    text += f"{with_error}."
    if safe:
        error = _errors(safe, "that error")
        text += f" It can solve for no client's update under {_join([row.scheme for row in safe])}"
        text += f"{error and f', where {error}'}."
    return text


def _yet_sentence(rows: list[Row]) -> str:
    """Report how far schemes are that will expose clients, in a study that stops too early."""
    parts = [
        f"{row.scheme} (rounds left: N - rank = {row.num_clients} - {row.rank:.4g} = "
        f"{row.num_clients - row.rank:.4g})"
        for row in rows
    ]
    its = "its" if len(rows) == 1 else "their"
    return text_of("said_not_yet").format(schemes=_join(parts), its=its)


def _errors(rows: list[Row], before: str = "") -> str:
    """Return how far reconstructions are off, "" where that is not known."""
    errors = [
        row.reconstruction_error for row in rows if row.reconstruction_error is not None
    ]
    if not errors:
        return ""
    low, high = f"{min(errors):.2g}", f"{max(errors):.2g}"
    error = low if low == high else f"{low} to {high}"
    if before:
        return f"{before} is {error}"
    return f"a median relative squared error of {error} if updates never changed"


def _cost_sentence(rows: tuple[Row, ...]) -> str:
    """Say what privacy costs; a scheme whose strong T does not last is never advised."""
    exposed = [row for row in rows if row.exposed_clients > 0]
    kept = [
        row
        for row in rows
        if row.lasts and not row.exposed_clients and row.strong_privacy is not None
    ]
    if len(rows) == 1 and rows[0].strong_privacy is not None:
        return f"{rows[0].scheme} has {_use(rows[0])}."
    if not kept:
        return "None of the schemes both sums updates and protects every client permanently."
    best = max(kept, key=_usefulness)
    text = (
        "Of the schemes that keep their weak T for any number of rounds, "
        f"{best.scheme} is the most useful: {_use(best)}."
    )
    if exposed:
        other = max(exposed, key=_usefulness)
        text += f" {other.scheme}, which exposes clients, reaches {_use(other)}."
    strictest = max(kept, key=lambda row: row.strong_privacy or 0)
    if strictest is not best:
        text += (
            f" {strictest.scheme} has the highest strong T of these, "
            f"{strictest.strong_privacy}, "
            f"but {_use(strictest)}."
        )
    return text


def _usefulness(row: Row) -> tuple[float, float]:
    return (row.accuracy or 0.0, row.aggregation_cardinality)


def _use(row: Row) -> str:
    accuracy = (
        "" if row.accuracy is None else f" and {100 * row.accuracy:.1f} % test accuracy"
    )
    return f"{row.aggregation_cardinality:.3g} clients per round on average{accuracy}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
