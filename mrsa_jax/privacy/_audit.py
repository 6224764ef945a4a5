"""Audit a participation log: what costs little first, each finding told as it comes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mrsa_jax._core.arrays import host_array
from mrsa_jax.privacy._audit_found import HIDDEN, Audit, Joining
from mrsa_jax.privacy._audit_hidden import Drifting, Hidden, Noise, is_feasible
from mrsa_jax.privacy._audit_rounds import Part
from mrsa_jax.privacy._coalitions import as_history, as_log, in_time, log_without
from mrsa_jax.privacy._recipe import Recipe
from mrsa_jax.privacy._strong import strong_privacy
from mrsa_jax.privacy._unweighted import UnweightedGroup, unweighted_group
from mrsa_jax.privacy._weak import WeakPrivacy, weak_steps
from mrsa_jax.privacy.solver import Progress
from mrsa_watch._base.errors import require
from mrsa_watch._base.untrusted import printable
from mrsa_watch.logs import ParticipationLog

_MOST_GROUPS = 2000  # of clients with equal columns, for a search of plain sums
_PLAIN, _JOINING = "plain sums", "who exposes whom"
_GROUP_EFFORT = 0.25  # a sixth of what weak privacy may take
_JOINING_EFFORT = 0.25


def audit(
    log_or_P: Any,
    *,
    effort: float | int = 1.0,
    coalition: Sequence[Hashable] = (),
    progress: Callable[[str, int, int], None] | None = None,
    noise_multiplier: float | int | None = None,
    clip: float | int | None = None,
    delta: float | int = 1e-5,
    spread: float | int | None = None,
    memory: float | int | None = None,
    share: float | int = 1.0,
) -> Audit:
    """Return what a participation history leaks, with the names of its log.

    Args:
        log_or_P: A log (`read_log`), a table that `read_log` takes, or a participation
            matrix of bools or integer weights, `[rounds, clients]`, whose rows and
            columns are then named by their places from 0, as arrays are; words and
            tables count its rounds from 1. Sums of several parts of the vector
            (`ParticipationLog.parts`) are audited part by part: the findings are then
            the worst of them.
        effort: How much may be tried, by all parts together: 1.0 allows searches and
            proofs of 90 seconds of one core for weak privacy (`weak_privacy`), a sixth
            of that for plain sums, and as much for who exposes whom.
        coalition: Names of clients who tell the server their updates: the audit is of
            the others.
        progress: Called with the name of a stage, the parts of it that are done, and
            their number.
        noise_multiplier: Z, where noise of standard deviation Z times the clip was
            added to each learnt sum: then mu and epsilon of the worst clients are
            reported, for one who takes part against one who sends nothing. None: what
            the log records for each sum, if it does.
        clip: C, the largest norm of a client's update; with `noise_multiplier`, and
            never without.
        delta: Delta at which epsilon is reported.
        spread: Standard deviation of the others' updates in a direction: mu and epsilon
            are then told for Gaussian others too, which is no guarantee.
        memory: rho, if clients' updates drift: among how many the worst update of each
            client is hidden is then reported next to what holds if updates never
            changed (`hidden_among`). Rows count as rounds that follow each other, which
            is never too kind.
        share: Of an update's variance that has this memory; the rest is fresh in each
            round. Below 1, among how many what lasts of a client's updates is hidden is
            reported as well.

    Returns:
        The findings.

    Raises:
        ConfigurationError: If an entry is a fraction, negative or NaN, or P has not two
            axes or an empty one; if `noise_multiplier`, `clip`, `spread` or `delta` is
            not positive and finite, delta is not below 1, or one of them lacks what it
            needs; if `memory` or `share` is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> found = mj.privacy.audit([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 1]], effort=0.1)
        >>> found.exposed, found.strong
        (((2, 1), (3, 2)), 1)
        >>> found.gate(2).passed
        False
        >>> mj.privacy.audit([[1, 1, 1, 0], [0, 0, 1, 1]], effort=0.1).joining[0].text
        'Client 2 is exposed if this client joins the server: 3.'
        >>> mj.privacy.audit([[1, 1, 1, 0], [0, 0, 1, 1]], effort=0.1, coalition=[3]).exposed
        ((2, 1),)

    Source: Multi-RoundSecAgg, Remark 1 and equation (5); hidden among and recipes are
    this package's.
    """
    *_, last = audit_steps(
        log_or_P,
        effort=effort,
        coalition=coalition,
        progress=progress,
        noise_multiplier=noise_multiplier,
        clip=clip,
        delta=delta,
        spread=spread,
        memory=memory,
        share=share,
    )
    return last


def audit_steps(
    log_or_P: Any,
    *,
    effort: float | int = 1.0,
    coalition: Sequence[Hashable] = (),
    progress: Callable[[str, int, int], None] | None = None,
    noise_multiplier: float | int | None = None,
    clip: float | int | None = None,
    delta: float | int = 1e-5,
    spread: float | int | None = None,
    memory: float | int | None = None,
    share: float | int = 1.0,
) -> Iterator[Audit]:
    """Yield what `audit` has found, each time it has found more, in order of what it costs.

    Choose it over `audit` to show findings as they come, or to keep what is known when
    the rest is given up. The first one has the exposed clients, strong T and the
    lightest sum; each is valid as it is (`Audit.pending` names what it lacks), and the
    last is what `audit` returns.

    Args:
        log_or_P: As for `audit`.
        effort: As for `audit`.
        coalition: As for `audit`.
        progress: As for `audit`.
        noise_multiplier: As for `audit`.
        clip: As for `audit`.
        delta: As for `audit`.
        spread: As for `audit`.
        memory: As for `audit`.
        share: As for `audit`.

    Yields:
        The findings so far.

    Raises:
        ConfigurationError: As `audit`.

    Examples:
        >>> import mrsa_jax as mj
        >>> first, *_, last = mj.privacy.audit_steps(
        ...     [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 1]], effort=0.1
        ... )
        >>> first.exposed == last.exposed, first.pending, last.pending
        (True, ('weak privacy', 'plain sums', 'who exposes whom'), ())
    """
    noise = Noise.checked(noise_multiplier, clip, delta, spread)
    drifting = Drifting.checked(memory, share)
    whole = as_log(log_or_P) or _unnamed(log_or_P)
    if drifting is not None:
        in_time(whole)
    log, names = log_without(whole, coalition)
    noise = noise or Noise.of_log(log, delta)
    report = progress or (lambda stage, done, total: None)
    parts = [
        part for part in Part.all_of(whole) if not set(part.log.clients) <= set(names)
    ]
    if not parts:
        yield from _steps(log, names, effort, report, noise, drifting)
        return
    rule = "must not be set for a log of several parts of the vector"
    require(len(parts) < 2 or spread is None, "spread", rule, spread)
    # a guarantee, whose bounds add up over all sums, of whatever part
    noisy = (
        noise.figures(log) if noise is not None and log.participation.any() else None
    )

    def steps(part: Part) -> Iterator[Audit]:
        own, known = log_without(
            part.log, [name for name in part.log.clients if name in names]
        )
        return _steps(own, known, effort / len(parts), report, None, drifting)

    yield from steps_of_parts(log, parts, steps, {"noisy": noisy, "coalition": names})


def _steps(
    log: ParticipationLog,
    names: tuple[Hashable, ...],
    effort: float | int,
    report: Progress,
    noise: Noise | None,
    drifting: Drifting | None,
) -> Iterator[Audit]:
    """Yield what the sums of one vector, of clients who do not tell, are found to leak."""
    P = log.participation
    report("exposed clients", 0, 1)
    found: Audit | None = None
    for weak in weak_steps(P, effort=effort, progress=report):
        if found is None or weak.exposed != found.weak.exposed:
            found = _first(log, weak, strong_privacy(P), noise, drifting)
            found = dataclasses.replace(found, coalition=names)
        recipe = Recipe.of(log, weak.witness, weak.support) if weak.rank else None
        found = dataclasses.replace(found, weak=weak, recipe=recipe)
        yield found
        report("weak privacy", 0, 1)
    assert found is not None
    if HIDDEN in found.pending:
        report(HIDDEN, 0, 1)
        found = dataclasses.replace(found, **_hidden(log, found.weak, drifting))
    found = dataclasses.replace(found, pending=(_PLAIN, _JOINING))
    yield found
    report(_PLAIN, 0, 1)
    is_searched = effort > 0 and 0 < found.weak.num_groups <= _MOST_GROUPS
    if is_searched:
        group = unweighted_group(P, effort=_GROUP_EFFORT * effort)
        whose = tuple(log.clients[i] for i in group.support)
        found = dataclasses.replace(found, group=group, group_clients=whose)
    found = dataclasses.replace(found, pending=(_JOINING,))
    yield found
    report(_JOINING, 0, 1)
    if is_searched:
        values = None if found.hidden is None else found.hidden.values
        joining = Joining.of(log, found.weak, _JOINING_EFFORT * effort, values)
        found = dataclasses.replace(found, joining=joining)
    yield dataclasses.replace(found, pending=())


def _first(
    log: ParticipationLog,
    weak: WeakPrivacy,
    strong: int | None,
    noise: Noise | None,
    drifting: Drifting | None,
) -> Audit:
    """Return what is known at once.

    How well clients are hidden too, unless that takes its time.
    """
    P = log.participation
    is_at_once = bool(weak.rank) and is_feasible(P, drifting, at_once=True)
    is_later = bool(weak.rank) and not is_at_once and is_feasible(P, drifting)
    since = sorted(zip(weak.exposed_since, weak.exposed, strict=True))
    return Audit(
        num_rounds=P.shape[0],
        num_clients=P.shape[1],
        empty_rounds=int((~(P != 0).any(axis=1)).sum()),
        is_weighted=P.dtype != np.bool_ and not bool(((P == 0) | (P == 1)).all()),
        exposed=tuple((log.clients[i], log.rounds[j]) for j, i in since),
        weak=weak,
        strong=strong,
        **(_hidden(log, weak, drifting) if is_at_once else {}),
        noisy=noise.figures(log) if noise is not None and weak.rank else None,
        pending=("weak privacy", *([HIDDEN] if is_later else []), _PLAIN, _JOINING),
        columns_used=log.columns_used,
        columns_ignored=log.columns_ignored,
        aggregation=log.aggregation,
        notes=log.notes,
        are_places=log.are_places,
    )


def _hidden(
    log: ParticipationLog, weak: WeakPrivacy, drifting: Drifting | None
) -> dict[str, Any]:
    """Return among how many clients are hidden if updates never changed, and if they drift."""
    found: dict[str, Any] = {"hidden": Hidden.of(log, weak.exposed)}
    if drifting is not None:
        found["updates"] = Hidden.of(log, (), drifting)
        if drifting.has_lasting_part:
            found["lasting"] = Hidden.of_lasting(log, drifting)
    return found


def _unnamed(P: Any) -> ParticipationLog:
    array = host_array(as_history(P), "P")
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    require(
        not (array < 0).any(),
        "P",
        "must not be negative",
        array[array < 0][:1].tolist(),
    )
    places = tuple(range(array.shape[0])), tuple(range(array.shape[1]))
    return ParticipationLog(array, *places, are_places=True)


# ---- Audits of the parts of a vector as one: of each figure the worst, and in which
# part it is.
#
# P_l has the sums of part l, and those of whole updates. Sums of different parts are of
# different
# unknowns, so that what all of them say together is the direct sum of the row spaces of
# the P_l:
# its lightest vectors, smallest classes, leverages and unit vectors are those of single
# parts.
# Stacked in one matrix they would be something else: (1, 1, 1, 1) of one part and (1,
# 1, 1, 0) of
# another expose nobody.


def steps_of_parts(
    log: ParticipationLog,
    parts: Sequence[Part],
    steps: Callable[[Part], Iterator[Audit]],
    whole: Mapping[str, Any],
) -> Iterator[Audit]:
    """Yield what the audits of all parts have found together, each time they have found more.

    Args:
        log: Of all of them.
        parts: Those that are judged.
        steps: Audits one.
        whole: Fields of an `Audit` that are of all parts together.
    """
    running = [steps(part) for part in parts]
    found: list[Audit] = [next(each) for each in running]
    yield merged(log, parts, found, whole)
    ended: set[int] = set()
    while len(ended) < len(running):
        for k, each in enumerate(running):
            own = None if k in ended else next(each, None)
            if own is None:
                ended.add(k)
            else:
                found[k] = own
        if len(ended) < len(running):
            yield merged(log, parts, found, whole)


def merged(
    log: ParticipationLog,
    parts: Sequence[Part],
    audits: Sequence[Audit],
    whole: Mapping[str, Any],
) -> Audit:
    """Return the audit of a log, given those of its parts."""
    spare = math.ceil(math.log2(len(parts)))  # all of them are right together
    audits = [_surely(own, spare) for own in audits]
    weak = _weak(log, parts, audits)
    exposed = _exposed(log, audits)
    group, named = _group(log, parts, audits)
    known = {client for client, _ in exposed}
    joining = sorted(
        (
            one._replace(text=f"In part {printable(part.name)}: {one.text}")
            for part, own in zip(parts, audits, strict=True)
            for one in own.joining
            if one.client not in known
        ),
        key=lambda one: one.fewest,
    )
    return Audit(
        num_rounds=len(log.rounds),
        num_clients=len(log.clients),
        empty_rounds=int((~(log.participation != 0).any(axis=1)).sum()),
        is_weighted=any(own.is_weighted for own in audits),
        exposed=exposed,
        weak=weak,
        strong=min(
            (own.strong for own in audits if own.strong is not None), default=None
        ),
        hidden=_hidden_of_parts(log, parts, audits, "hidden", weak),
        updates=_hidden_of_parts(log, parts, audits, "updates", weak),
        lasting=_hidden_of_parts(log, parts, audits, "lasting", weak),
        group=group,
        group_clients=named,
        recipe=Recipe.of(log, weak.witness, weak.support) if weak.rank else None,
        joining=tuple(joining[: max((len(own.joining) for own in audits), default=0)]),
        columns_used=log.columns_used,
        columns_ignored=log.columns_ignored,
        aggregation=log.aggregation,
        notes=log.notes,
        pending=tuple(dict.fromkeys(stage for own in audits for stage in own.pending)),
        parts=tuple((part.name, own) for part, own in zip(parts, audits, strict=True)),
        are_places=log.are_places,
        **whole,
    )


def _surely(own: Audit, spare: int) -> Audit:
    """Return an audit that says less of how sure it is, so that several hold together."""
    if own.weak.error_bits is None:
        return own
    bits = max(0, own.weak.error_bits - spare)
    return dataclasses.replace(own, weak=dataclasses.replace(own.weak, error_bits=bits))


def _weak(
    log: ParticipationLog, parts: Sequence[Part], audits: Sequence[Audit]
) -> WeakPrivacy:
    """Return the least of weak privacies, with the witness of the part that it is of."""
    known = [
        (part, own.weak)
        for part, own in zip(parts, audits, strict=True)
        if own.weak.rank
    ]
    if not known:
        return dataclasses.replace(audits[0].weak, witness=(0,) * len(log.rounds))
    part, best = min(known, key=lambda one: one[1].upper or 0)
    lowest = min((weak for _, weak in known), key=lambda weak: weak.lower or 0)
    lower, upper = lowest.lower or 0, best.upper or 0
    own_rows = dict(zip(part.rows, best.witness, strict=True))
    proven = all(
        weak.error_bits is None or weak.certified or lower <= (weak.strong or 0)
        for _, weak in known
    )
    since: dict[int, int] = {}
    for own, weak in known:
        for client, row in zip(weak.exposed, weak.exposed_since, strict=True):
            i, j = own.clients[client], own.rows[row]
            since[i] = min(j, since.get(i, j))
    exposed = sorted(since)
    sure = [weak.error_bits for _, weak in known if weak.error_bits is not None]
    return WeakPrivacy(
        lower=lower,
        upper=upper,
        certified=proven and lower == upper,
        rank=sum(weak.rank for _, weak in known),
        exposed=tuple(exposed),
        support=tuple(part.clients[i] for i in best.support),
        witness=tuple(own_rows.get(row, 0) for row in range(len(log.rounds))),
        num_groups=sum(weak.num_groups for _, weak in known),
        strong=min(weak.strong or 0 for _, weak in known),
        lower_method=lowest.lower_method,
        upper_method=best.upper_method,
        exposed_since=tuple(since[i] for i in exposed),
        error_bits=min(sure, default=None),
    )


def _exposed(
    log: ParticipationLog, audits: Iterable[Audit]
) -> tuple[tuple[Any, Any], ...]:
    """Return each exposed client once, with the first round of any part that exposes it."""
    place = {name: j for j, name in enumerate(log.rounds)}
    column = {name: i for i, name in enumerate(log.clients)}
    told = sorted(
        (place[first], column[client])
        for own in audits
        for client, first in own.exposed
    )
    since: dict[int, int] = {}
    for row, client in told:
        since.setdefault(client, row)
    return tuple(
        (log.clients[client], log.rounds[row]) for client, row in since.items()
    )


def _hidden_of_parts(
    log: ParticipationLog,
    parts: Sequence[Part],
    audits: Sequence[Audit],
    name: str,
    weak: WeakPrivacy,
) -> Hidden | None:
    """Return among how many each client is hidden in the part that hides it worst, if known."""
    own, exposed = [getattr(audit, name) for audit in audits], list(weak.exposed)
    is_known = all(
        hidden is not None or audit.weak.lower is None
        for hidden, audit in zip(own, audits, strict=True)
    )
    if not is_known or not weak.rank:
        return None
    values = np.full(len(log.clients), np.inf)
    drifting, is_lasting = None, False
    for part, hidden in zip(parts, own, strict=True):
        if hidden is not None:
            drifting, is_lasting = hidden.drifting, hidden.is_lasting
            values[part.clients] = np.minimum(values[part.clients], hidden.values)
    for part, hidden in zip(parts, own, strict=True):
        if hidden is not None:  # whatever is not known of other parts
            values[np.array(part.clients)[hidden.values == 1.0]] = 1.0
    if drifting is not None:
        exposed = np.flatnonzero(values == 1.0).tolist()
    found = Hidden.saying(values, log.clients, exposed, drifting)
    return dataclasses.replace(found, is_lasting=is_lasting)


def _group(
    log: ParticipationLog, parts: Sequence[Part], audits: Sequence[Audit]
) -> tuple[UnweightedGroup | None, tuple[Any, ...]]:
    """Return the smallest group whose plain sum follows in a part.

    None until all are searched.
    """
    known = [
        (part, own, own.group)
        for part, own in zip(parts, audits, strict=True)
        if own.weak.rank
    ]
    groups = [group for _, _, group in known if group is not None]
    if not groups or len(groups) < len(known):
        return None, ()
    sizes = [group.upper for group in groups if group.upper is not None]
    lowers = [group.lower for group in groups if group.lower is not None]
    lower = min(lowers, default=None)
    if not sizes:
        certified = all(group.certified for group in groups)
        return dataclasses.replace(groups[0], lower=lower, certified=certified), ()
    part, own, best = next(
        (part, own, group)
        for part, own, group in known
        if group is not None and group.upper == min(sizes)
    )
    own_rows = dict(zip(part.rows, best.witness, strict=True))
    witness = tuple(own_rows.get(row, 0) for row in range(len(log.rounds)))
    support = tuple(part.clients[i] for i in best.support)
    found = dataclasses.replace(
        best,
        lower=lower,
        certified=lower == best.upper,
        support=support,
        witness=witness,
    )
    return found, own.group_clients
