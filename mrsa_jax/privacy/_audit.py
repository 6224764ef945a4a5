"""Audit a participation log: what costs little first, each finding as it comes.

A log of several parts of the vector is audited part by part, and the findings are the
worst of them: for each figure, with the part that it is of. Let P_l be the sums of part
l and those of whole updates. Sums of different parts are of different unknowns, so all
of them together reveal the direct sum of the row spaces of the P_l: its lightest
vectors, smallest classes, leverages and unit vectors are those of single parts. Stacked
in one matrix they would be something else: (1, 1, 1, 1) of one part and (1, 1, 1, 0) of
another expose no client.
"""

from __future__ import annotations

import dataclasses
import itertools
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
_PLAIN = "plain sums"
_JOINING = "who exposes whom"
# parts of the vector, each with its audit
_Pairs = Sequence[tuple[Part, Audit]]
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
    covariance: Any = None,
) -> Audit:
    """Audit what a participation history leaks, with the names of its log.

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
        covariance: C [clients, clients] of clients' updates, in the order of the log's
            clients: among how many each is hidden from a server that knows C is then
            reported too (`hidden_among`).

    Returns:
        The findings.

    Raises:
        ConfigurationError: If an entry is a fraction, negative or NaN, or P has not two
            axes or an empty one; if `noise_multiplier`, `clip`, `spread` or `delta` is
            not positive and finite, delta is not below 1, or one of them lacks what it
            needs; if `memory` or `share` is out of range; if `covariance` is none
            of the log's clients, or set with a coalition or for several parts.

    Examples:
        >>> import mrsa_jax as mj
        >>> P = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 1]]
        >>> found = mj.privacy.audit(P, effort=0.1)
        >>> found.exposed, found.strong
        (((2, 1), (3, 2)), 1)
        >>> found.gate(2).passed
        False
        >>> P = [[1, 1, 1, 0], [0, 0, 1, 1]]
        >>> mj.privacy.audit(P, effort=0.1).joining[0].text
        'Client 2 is exposed if this client joins the server: 3.'
        >>> mj.privacy.audit(P, effort=0.1, coalition=[3]).exposed
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
        covariance=covariance,
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
    covariance: Any = None,
) -> Iterator[Audit]:
    """Audit step by step: yield the findings each time there are more, cheapest first.

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
        covariance: As for `audit`.

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
    resembling = None
    if covariance is not None:
        is_plain = not parts and not names
        rule = "must not be set with a coalition or for several parts of the vector"
        require(is_plain, "covariance", rule, names)
        if log.participation.any():
            resembling = Hidden.of_resembling(log, drifting, covariance)
    if not parts:
        for step in _steps(log, names, effort, report, noise, drifting):
            yield dataclasses.replace(step, resembling=resembling)
        return
    rule = "must not be set for a log of several parts of the vector"
    require(len(parts) < 2 or spread is None, "spread", rule, spread)
    # a guarantee, whose bounds add up over all sums, of whatever part
    noisy = None
    if noise is not None and log.participation.any():
        noisy = noise.figures(log)

    def steps(part: Part) -> Iterator[Audit]:
        members = [name for name in part.log.clients if name in names]
        others, members_of_part = log_without(part.log, members)
        share_of_effort = effort / len(parts)
        return _steps(others, members_of_part, share_of_effort, report, None, drifting)

    yield from steps_of_parts(log, parts, steps, {"noisy": noisy, "coalition": names})


def _steps(
    log: ParticipationLog,
    names: tuple[Hashable, ...],
    effort: float | int,
    report: Progress,
    noise: Noise | None,
    drifting: Drifting | None,
) -> Iterator[Audit]:
    """Audit the sums of one vector, the updates of some clients being known."""
    P = log.participation
    report("exposed clients", 0, 1)
    findings: Audit | None = None
    for weak in weak_steps(P, effort=effort, progress=report):
        if findings is None or weak.exposed != findings.weak.exposed:
            findings = _first(log, weak, noise, drifting)
            findings = dataclasses.replace(findings, coalition=names)
        recipe = Recipe.of(log, weak.witness, weak.support) if weak.rank else None
        findings = dataclasses.replace(findings, weak=weak, recipe=recipe)
        yield findings
        report("weak privacy", 0, 1)
    assert findings is not None
    if HIDDEN in findings.pending:
        report(HIDDEN, 0, 1)
        findings = dataclasses.replace(
            findings, **_hidden(log, findings.weak, drifting)
        )
    findings = dataclasses.replace(findings, pending=(_PLAIN, _JOINING))
    yield findings
    report(_PLAIN, 0, 1)
    is_searched = effort > 0 and 0 < findings.weak.num_groups <= _MOST_GROUPS
    if is_searched:
        group = unweighted_group(P, effort=_GROUP_EFFORT * effort)
        members = tuple(log.clients[i] for i in group.support)
        findings = dataclasses.replace(findings, group=group, group_clients=members)
    findings = dataclasses.replace(findings, pending=(_JOINING,))
    yield findings
    report(_JOINING, 0, 1)
    if is_searched:
        values = None if findings.hidden is None else findings.hidden.values
        joining = Joining.of(log, findings.weak, _JOINING_EFFORT * effort, values)
        findings = dataclasses.replace(findings, joining=joining)
    yield dataclasses.replace(findings, pending=())


def _first(
    log: ParticipationLog,
    weak: WeakPrivacy,
    noise: Noise | None,
    drifting: Drifting | None,
) -> Audit:
    """Collect the findings that cost little.

    How well clients are hidden is among them, unless that takes its time.
    """
    P = log.participation
    hidden: dict[str, Any] = {}
    pending = ["weak privacy"]
    if weak.rank and is_feasible(P, drifting, at_once=True):
        hidden = _hidden(log, weak, drifting)
    elif weak.rank and is_feasible(P, drifting):
        pending.append(HIDDEN)
    since = sorted(zip(weak.exposed_since, weak.exposed, strict=True))
    return Audit(
        is_weighted=P.dtype != np.bool_ and not bool(((P == 0) | (P == 1)).all()),
        exposed=tuple((log.clients[i], log.rounds[j]) for j, i in since),
        weak=weak,
        strong=strong_privacy(P),
        noisy=noise.figures(log) if noise is not None and weak.rank else None,
        pending=(*pending, _PLAIN, _JOINING),
        **hidden,
        **_of_log(log),
    )


def _of_log(log: ParticipationLog) -> dict[str, Any]:
    """Return the fields of an audit that are those of its log."""
    P = log.participation
    names = (
        *("columns_used", "columns_ignored", "aggregation"),
        *("notes", "are_places"),
    )
    return {
        "num_rounds": P.shape[0],
        "num_clients": P.shape[1],
        "empty_rounds": int((~(P != 0).any(axis=1)).sum()),
        **{name: getattr(log, name) for name in names},
    }


def _hidden(
    log: ParticipationLog, weak: WeakPrivacy, drifting: Drifting | None
) -> dict[str, Any]:
    """Collect the values of hidden among: if updates never changed, and under drift."""
    fields = {"hidden": Hidden.of(log, weak.exposed)}
    if drifting is not None:
        fields["updates"] = Hidden.of(log, (), drifting)
        if drifting.has_lasting_part:
            fields["lasting"] = Hidden.of_lasting(log, drifting)
    return fields


def _unnamed(P: Any) -> ParticipationLog:
    array = host_array(as_history(P), "P")
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    negative = array[array < 0]
    require(not negative.size, "P", "must not be negative", negative[:1].tolist())
    rounds, clients = map(range, array.shape)
    return ParticipationLog(array, tuple(rounds), tuple(clients), are_places=True)


def steps_of_parts(
    log: ParticipationLog,
    parts: Sequence[Part],
    steps: Callable[[Part], Iterator[Audit]],
    whole: Mapping[str, Any],
) -> Iterator[Audit]:
    """Audit all parts side by side: yield the findings each time there are more.

    Args:
        log: Of all of them.
        parts: The parts that are audited.
        steps: Audits one.
        whole: Fields of an `Audit` that are of all parts together.
    """
    running = [steps(part) for part in parts]
    audits = [next(each) for each in running]
    yield merged(log, parts, audits, whole)
    while any(news := [next(each, None) for each in running]):
        audits = [new or old for new, old in zip(news, audits, strict=True)]
        yield merged(log, parts, audits, whole)


def merged(
    log: ParticipationLog,
    parts: Sequence[Part],
    audits: Sequence[Audit],
    whole: Mapping[str, Any],
) -> Audit:
    """Return the audit of a log, given those of its parts."""
    # all of them are right together with a smaller probability than each alone
    spare = math.ceil(math.log2(len(parts)))
    audits = [_with_fewer_bits(audit, spare) for audit in audits]
    pairs = list(zip(parts, audits, strict=True))
    # parts with a sum of some clients
    summed = [(part, audit) for part, audit in pairs if audit.weak.rank]
    weak = _weak(log, summed)
    if weak is None:
        weak = dataclasses.replace(audits[0].weak, witness=(0,) * len(log.rounds))
    exposed = _exposed(log, audits)
    group, members = _group(log, summed)
    exposed_clients = {client for client, _ in exposed}
    joining = [
        each._replace(text=f"In part {printable(part.name)}: {each.text}")
        for part, audit in pairs
        for each in audit.joining
        if each.client not in exposed_clients
    ]
    joining.sort(key=lambda each: each.fewest)
    most = max((len(audit.joining) for audit in audits), default=0)
    hidden: dict[str, Any] = {
        name: _hidden_of_parts(log, pairs, name, weak)
        for name in ("hidden", "updates", "lasting")
    }
    strong = [audit.strong for audit in audits if audit.strong is not None]
    return Audit(
        is_weighted=any(audit.is_weighted for audit in audits),
        exposed=exposed,
        weak=weak,
        strong=min(strong, default=None),
        group=group,
        group_clients=members,
        recipe=Recipe.of(log, weak.witness, weak.support) if weak.rank else None,
        joining=tuple(joining[:most]),
        pending=tuple(dict.fromkeys(itertools.chain(*(a.pending for a in audits)))),
        parts=tuple((part.name, audit) for part, audit in pairs),
        **hidden,
        **_of_log(log),
        **whole,
    )


def _with_fewer_bits(audit: Audit, spare: int) -> Audit:
    """Return an audit of a larger chance of error, so that several hold together."""
    if audit.weak.error_bits is None:
        return audit
    bits = max(0, audit.weak.error_bits - spare)
    return dataclasses.replace(
        audit, weak=dataclasses.replace(audit.weak, error_bits=bits)
    )


def _of_whole(part: Part, witness: Sequence[int], count: int) -> tuple[int, ...]:
    """Return a coefficient for each round of a log, given those of a part's sums."""
    of_row = dict(zip(part.rows, witness, strict=True))
    return tuple(of_row.get(row, 0) for row in range(count))


def _weak(log: ParticipationLog, summed: _Pairs) -> WeakPrivacy | None:
    """Return the least of the parts' weak privacies, with the witness of its part.

    None where no part has a sum.
    """
    if not summed:
        return None
    every = [audit.weak for _, audit in summed]
    part, least = min(summed, key=lambda each: each[1].weak.upper or 0)
    best = least.weak
    lowest = min(every, key=lambda weak: weak.lower or 0)
    lower = lowest.lower or 0
    is_proven = all(
        weak.error_bits is None or weak.certified or lower <= (weak.strong or 0)
        for weak in every
    )
    since: dict[int, int] = {}
    for each, audit in summed:
        weak = audit.weak
        for client, row in zip(weak.exposed, weak.exposed_since, strict=True):
            i = each.clients[client]
            j = each.rows[row]
            since[i] = min(j, since.get(i, j))
    bits = [weak.error_bits for weak in every if weak.error_bits is not None]
    return dataclasses.replace(
        best,
        lower=lower,
        certified=is_proven and lower == best.upper,
        rank=sum(weak.rank for weak in every),
        exposed=tuple(sorted(since)),
        support=tuple(part.clients[i] for i in best.support),
        witness=_of_whole(part, best.witness, len(log.rounds)),
        num_groups=sum(weak.num_groups for weak in every),
        strong=min(weak.strong or 0 for weak in every),
        lower_method=lowest.lower_method,
        exposed_since=tuple(since[i] for i in sorted(since)),
        error_bits=min(bits, default=None),
    )


def _exposed(
    log: ParticipationLog, audits: Iterable[Audit]
) -> tuple[tuple[Any, Any], ...]:
    """Return each exposed client once, with its first round in any part."""
    row_of = {name: j for j, name in enumerate(log.rounds)}
    column_of = {name: i for i, name in enumerate(log.clients)}
    since: dict[Any, Any] = {}
    for client, first in sorted(
        itertools.chain(*(audit.exposed for audit in audits)),
        key=lambda pair: (row_of[pair[1]], column_of[pair[0]]),
    ):
        since.setdefault(client, first)
    return tuple(since.items())


def _hidden_of_parts(
    log: ParticipationLog, pairs: _Pairs, name: str, weak: WeakPrivacy
) -> Hidden | None:
    """Merge the parts' values of hidden among: the worst of each client.

    None unless that is known of every part in which a client took part.
    """
    reports = [
        (part, getattr(audit, name))
        for part, audit in pairs
        if audit.weak.lower is not None or getattr(audit, name) is not None
    ]
    if not weak.rank or any(hidden is None for _, hidden in reports):
        return None
    values = np.full(len(log.clients), np.inf)
    for part, hidden in reports:
        values[part.clients] = np.minimum(values[part.clients], hidden.values)
    # whoever is exposed by one part is so whatever floats do not know of the others
    for part, hidden in reports:
        values[np.array(part.clients)[hidden.values == 1.0]] = 1.0
    _, last = reports[-1]
    exposed = list(weak.exposed)
    if last.drifting is not None:
        exposed = np.flatnonzero(values == 1.0).tolist()
    worst = Hidden.saying(values, log.clients, exposed, last.drifting)
    return dataclasses.replace(worst, is_lasting=last.is_lasting)


def _group(
    log: ParticipationLog, summed: _Pairs
) -> tuple[UnweightedGroup | None, tuple[Any, ...]]:
    """Return the smallest group whose plain sum follows in a part, and its names.

    None until all parts are searched.
    """
    searched = [
        (part, audit, audit.group) for part, audit in summed if audit.group is not None
    ]
    if not searched or len(searched) < len(summed):
        return None, ()
    groups = [group for _, _, group in searched]
    lower = min((g.lower for g in groups if g.lower is not None), default=None)
    smallest = min((g.upper for g in groups if g.upper is not None), default=None)
    if smallest is None:
        certified = all(group.certified for group in groups)
        return dataclasses.replace(groups[0], lower=lower, certified=certified), ()
    part, audit, best = next(each for each in searched if each[2].upper == smallest)
    group = dataclasses.replace(
        best,
        lower=lower,
        certified=lower == smallest,
        support=tuple(part.clients[i] for i in best.support),
        witness=_of_whole(part, best.witness, len(log.rounds)),
    )
    return group, audit.group_clients
