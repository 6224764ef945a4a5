"""Audits of the parts of a vector as one: of each figure the worst, and in which part it is.

P_l has the sums of part l, and those of whole updates. Sums of different parts are of different
unknowns, so that what all of them say together is the direct sum of the row spaces of the P_l: its
lightest vectors, smallest classes, leverages and unit vectors are those of single parts. Stacked in
one matrix they would be something else: (1, 1, 1, 1) of one part and (1, 1, 1, 0) of another expose
nobody.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mrsa_jax.privacy._audit_found import Audit
from mrsa_jax.privacy._audit_hidden import Hidden
from mrsa_jax.privacy._audit_rounds import Part
from mrsa_jax.privacy._recipe import Recipe
from mrsa_jax.privacy._unweighted import UnweightedGroup
from mrsa_jax.privacy._weak import WeakPrivacy
from mrsa_watch._base.untrusted import printable
from mrsa_watch.logs import ParticipationLog


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
    log: ParticipationLog, parts: Sequence[Part], audits: Sequence[Audit], whole: Mapping[str, Any]
) -> Audit:
    """Return the audit of a log, given those of its parts."""
    spare = math.ceil(math.log2(len(parts)))  # all of them are right together
    audits = [_surely(own, spare) for own in audits]
    weak = _weak(log, parts, audits)
    exposed = _exposed(log, audits)
    hidden = None
    if all(own.hidden is not None or own.weak.lower is None for own in audits) and weak.rank:
        hidden = _hidden(log, parts, [own.hidden for own in audits], weak.exposed)
    updates = None
    if all(own.updates is not None or own.weak.lower is None for own in audits) and weak.rank:
        updates = _hidden(log, parts, [own.updates for own in audits], ())
    group, named = _group(log, parts, audits)
    known = {client for client, _ in exposed}
    joining = sorted(
        (one._replace(text=f"In part {printable(part.name)}: {one.text}")
         for part, own in zip(parts, audits, strict=True) for one in own.joining
         if one.client not in known),
        key=lambda one: one.fewest,
    )  # fmt: skip
    return Audit(
        num_rounds=len(log.rounds),
        num_clients=len(log.clients),
        empty_rounds=int((~(log.participation != 0).any(axis=1)).sum()),
        is_weighted=any(own.is_weighted for own in audits),
        exposed=exposed,
        weak=weak,
        strong=min((own.strong for own in audits if own.strong is not None), default=None),
        hidden=hidden,
        updates=updates,
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
        **whole,
    )


def _surely(own: Audit, spare: int) -> Audit:
    """Return an audit that says less of how sure it is, so that several hold together."""
    if own.weak.error_bits is None:
        return own
    bits = max(0, own.weak.error_bits - spare)
    return dataclasses.replace(own, weak=dataclasses.replace(own.weak, error_bits=bits))


def _weak(log: ParticipationLog, parts: Sequence[Part], audits: Sequence[Audit]) -> WeakPrivacy:
    """Return the least of weak privacies, with the witness of the part that it is of."""
    known = [(part, own.weak) for part, own in zip(parts, audits, strict=True) if own.weak.rank]
    if not known:
        return dataclasses.replace(audits[0].weak, witness=(0,) * len(log.rounds))
    part, best = min(known, key=lambda one: one[1].upper or 0)
    lowest = min((weak for _, weak in known), key=lambda weak: weak.lower or 0)
    lower, upper = lowest.lower or 0, best.upper or 0
    witness = [0] * len(log.rounds)
    for row, value in zip(part.rows, best.witness, strict=True):
        witness[row] = value
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
        witness=tuple(witness),
        num_groups=sum(weak.num_groups for _, weak in known),
        strong=min(weak.strong or 0 for _, weak in known),
        lower_method=lowest.lower_method,
        upper_method=best.upper_method,
        exposed_since=tuple(since[i] for i in exposed),
        error_bits=min(sure, default=None),
    )


def _exposed(log: ParticipationLog, audits: Iterable[Audit]) -> tuple[tuple[Any, Any], ...]:
    """Return each exposed client once, with the first round of any part that exposes it."""
    place = {name: j for j, name in enumerate(log.rounds)}
    column = {name: i for i, name in enumerate(log.clients)}
    told = sorted((place[first], column[client]) for own in audits for client, first in own.exposed)
    since: dict[int, int] = {}
    for row, client in told:
        since.setdefault(client, row)
    return tuple((log.clients[client], log.rounds[row]) for client, row in since.items())


def _hidden(
    log: ParticipationLog,
    parts: Sequence[Part],
    own: Sequence[Hidden | None],
    exposed: Sequence[int],
) -> Hidden:
    """Return among how many each client is hidden in the part that hides it worst."""
    values = np.full(len(log.clients), np.inf)
    drifting = None
    for part, hidden in zip(parts, own, strict=True):
        if hidden is not None:
            drifting = hidden.drifting
            values[part.clients] = np.minimum(values[part.clients], hidden.values)
    for part, hidden in zip(parts, own, strict=True):
        if hidden is not None:  # whatever is not known of other parts
            values[np.array(part.clients)[hidden.values == 1.0]] = 1.0
    if drifting is not None:
        exposed = np.flatnonzero(values == 1.0).tolist()
    return Hidden.saying(values, log.clients, exposed, drifting)


def _group(
    log: ParticipationLog, parts: Sequence[Part], audits: Sequence[Audit]
) -> tuple[UnweightedGroup | None, tuple[Any, ...]]:
    """Return the smallest group whose plain sum follows in a part; None until all are searched."""
    known = [(part, own, own.group) for part, own in zip(parts, audits, strict=True)
             if own.weak.rank]  # fmt: skip
    groups = [group for _, _, group in known if group is not None]
    if not groups or len(groups) < len(known):
        return None, ()
    sizes = [group.upper for group in groups if group.upper is not None]
    lowers = [group.lower for group in groups if group.lower is not None]
    lower = min(lowers, default=None)
    if not sizes:
        certified = all(group.certified for group in groups)
        return dataclasses.replace(groups[0], lower=lower, certified=certified), ()
    part, own, best = next((part, own, group) for part, own, group in known
                           if group is not None and group.upper == min(sizes))  # fmt: skip
    witness = [0] * len(log.rounds)
    for row, value in zip(part.rows, best.witness, strict=True):
        witness[row] = value
    support = tuple(part.clients[i] for i in best.support)
    found = dataclasses.replace(best, lower=lower, certified=lower == best.upper,
                                support=support, witness=tuple(witness))  # fmt: skip
    return found, own.group_clients
