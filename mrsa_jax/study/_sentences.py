"""Sentences that say what a study found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax.study._summary import Row, summarise
from mrsa_watch._base.html import hidden_words

if TYPE_CHECKING:
    import xarray as xr


def sentences(results: xr.Dataset) -> tuple[str, ...]:
    """Say in plain sentences what the table shows: what leaks, what it costs, what failed."""
    return said_of(summarise(results), results)


def said_of(rows: tuple[Row, ...], results: xr.Dataset) -> tuple[str, ...]:
    """Return the sentences of a table's rows, which are of this data set."""
    rounds = results.sizes["round"]
    said = [_leak_sentence(rows, rounds), _cost_sentence(rows)]
    early = [row for row in rows if row.exposed_clients == 0 and not row.lasts]
    if early:
        said[0] += " " + _yet_sentence(early)
    if any(row.failures for row in rows):
        protocol = results.attrs.get("config", {}).get("protocol", {})
        said.append(_failure_sentence(rows, rounds) + _REFUSED * bool(protocol.get("whole_blocks")))
    if any(row.privacy_level is not None for row in rows):
        said.append(_segment_sentence(rows))
    if any(row.epsilon_worst is not None for row in rows):
        said.append(_noise_sentence(rows, rounds))
    if drift := _drift_sentence(rows, rounds):
        said.append(drift)
    return tuple(said)


def _noise_sentence(rows: tuple[Row, ...], rounds: int) -> str:
    """Say what noise promises, to whom, and what it asks of whom."""
    known = [row for row in rows if row.epsilon_worst is not None]
    parts = [
        f"{row.epsilon_proven:.3g} under {row.scheme} (if noise were Gaussian "
        f"{row.epsilon_worst:.3g} for the worst client, {row.planned_epsilon:.3g} as planned, and "
        f"{row.epsilon_mean:.3g} on average)"
        for row in known
    ]
    text = (
        f"With the clients' noise a client's whole history of updates is differentially private "
        f"against the server and all who see sums or models: at delta "
        f"{known[0].target_delta:g} its epsilon {_after(rounds)} is proven to be at most "
        f"{_join(parts)}. The server "
        "knows who took part, so sampling amplifies nothing"
    )
    wrapped = sum(row.wrapped_coordinates or 0 for row in known)
    return text + (f"; in {wrapped} coordinates of all sums the ring wrapped." if wrapped else ".")


def _drift_sentence(rows: tuple[Row, ...], rounds: int) -> str:
    """Say what drift hides, and what T does not cap; "" where nothing was measured."""
    known = sorted(
        (row for row in rows if row.bits_worst is not None and row.update_lasting is not None),
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
    return (
        f"Updates changed during training: {lasts} % of their variance lasts, as measured, and the "
        f"rest is fresh in each round. If the updates of all clients drift like this, the worst "
        f"update of any one round is hidden among {hidden} {_after(rounds)}. T limits what is "
        "learnt of each update. The total grows with every participation for any T. In bits per "
        f"coordinate of the worst client's history, the sums reveal {bits}, if updates are "
        f"Gaussian.{_mates_sentence(rows)}"
    )


def _mates_sentence(rows: tuple[Row, ...]) -> str:
    """Say what mates hide whatever is estimated; "" if no client has mates."""
    words = "{0.update_mates_cap:.2f} under {0.scheme} (kappa {0.update_mates_correlation:.2g})"
    caps = [words.format(row) for row in rows if (row.update_mates_cap or 0.0) > 1]
    start = " Models react to the sums, so updates of mates correlate. For any estimate, mates hide"
    return f"{start} an update among at least {_join(caps)}." if caps else ""


def _segment_sentence(rows: tuple[Row, ...]) -> str:
    """Say what segments and groups mean for the table, and what they cost in time."""
    first = next(row for row in rows if row.privacy_level is not None)
    levels = {round(row.privacy_level or 0.0, 4) for row in rows}
    level = f"{levels.pop():.3g}" if len(levels) == 1 else "different for each scheme"
    text = (
        f"Updates are summed segment by segment, at privacy level {level} in one round (the share "
        "of segments that stay hidden of any union of groups). Strong T, rank and exposure are of "
        "the worst segment over all rounds: a client counts as exposed once any segment of its "
        f"update is. A round waits {first.round_seconds:.3g} s for the slowest group; a median "
        f"over each segment's sums would tolerate {first.tolerated_byzantine} Byzantine client"
    )
    return text + ("." if first.tolerated_byzantine == 1 else "s.")


_REFUSED = " Unreliable: clients refused a list that parts a block, or too few of them answered."


def _failure_sentence(rows: tuple[Row, ...], rounds: int) -> str:
    parts = []
    for row in rows:
        if row.failures:
            why = [f"{n:.4g} {k.lower().replace('_', ' ')}" for k, n in row.failures.items()]
            total = sum(row.failures.values())
            parts.append(f"{total:.4g} of {rounds} under {row.scheme} ({', '.join(why)})")
    return f"Rounds that failed inside the protocol, and left the model as it was: {_join(parts)}."


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
    text += _join([f"{row.exposed_clients:.4g} of {row.num_clients} clients under {row.scheme} "
                   f"(from round {row.first_exposed_after})" for row in exposed])  # fmt: skip
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
    return (
        f"No client is exposed yet under {_join(parts)}. Nothing keeps {its} weak T up: after this "
        "many more rounds with new sums, or sooner, every client's update can be solved for."
    )


def _errors(rows: list[Row], before: str = "") -> str:
    """Return how far reconstructions are off, "" where that is not known."""
    errors = [row.reconstruction_error for row in rows if row.reconstruction_error is not None]
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
    kept = [row for row in rows if row.lasts and not row.exposed_clients
            and row.strong_privacy is not None]  # fmt: skip
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
            f" {strictest.scheme} has the highest strong T of these, {strictest.strong_privacy}, "
            f"but {_use(strictest)}."
        )
    return text


def _usefulness(row: Row) -> tuple[float, float]:
    return (row.accuracy or 0.0, row.aggregation_cardinality)


def _use(row: Row) -> str:
    accuracy = "" if row.accuracy is None else f" and {100 * row.accuracy:.1f} % test accuracy"
    return f"{row.aggregation_cardinality:.3g} clients per round on average{accuracy}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
