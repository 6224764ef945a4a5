"""How the updates of mates correlate.

What of T is left where updates react to the sums.
Given the released models mates are exchangeable, but no longer independent. With the
correlation kappa of any two, about a centre that is public, no estimate explains more
than (1 + (T - 1) kappa) / T of an update (`docs/hidden_among.md`).
"""

from __future__ import annotations

import math

import numpy as np


def is_in(members: np.ndarray) -> np.ndarray:
    """Return who was in which round, bool `[rounds, clients]`."""
    found = np.zeros((len(members), int(members.max(initial=0)) + 1), np.bool_)
    row, slot = np.nonzero(members >= 0)
    found[row, members[row, slot]] = True
    return found


def same_rounds(members: np.ndarray) -> np.ndarray:
    """Return a number for each client that those who were in the same rounds have in common."""
    columns = np.packbits(is_in(members), axis=0)
    return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)


def correlation_of_mates(
    centred: np.ndarray, members: np.ndarray, variances: np.ndarray, blocks: np.ndarray
) -> float:
    """Return the correlation of mates, nan if no round has pairs of mates and other pairs.

    Sums of squared distances of pairs follow from sums alone: within a block of T
    clients, T sum |e_i|^2 - |sum e_i|^2.

    Args:
        centred: `[rounds, slots, S]`, scaled so that a squared length is a mean over
            coordinates.
        members: `[rounds, slots]`.
        variances: `[rounds]`, s_r^2.
        blocks: Of each client; negative for one without mates.
    """
    known = (members >= 0).sum(axis=1)
    at, slot = np.nonzero((members >= 0) & (variances > 0)[:, None])
    own = blocks[members[at, slot]]
    at, slot, own = at[own >= 0], slot[own >= 0], own[own >= 0]
    if not len(at):
        return math.nan
    order = np.lexsort((own, at))
    at, own, entries = at[order], own[order], centred[at[order], slot[order]]
    starts = np.flatnonzero(np.diff(at, prepend=-1) | np.diff(own, prepend=-1))
    size = np.diff(starts, append=len(at))
    squares = np.add.reduceat((entries**2).sum(axis=1), starts)
    apart = size * squares - (np.add.reduceat(entries, starts) ** 2).sum(axis=1)
    sums = apart, size * (size - 1.0)
    mates, num_mates = (np.bincount(at[starts], own, len(members)) for own in sums)
    num_others = known * (known - 1) - num_mates
    used = (num_mates > 0) & (num_others > 0)
    if not used.any():
        return math.nan
    own = mates[used] / variances[used]
    others = ((known * (known - 1))[used] - own) / num_others[used]
    return float(1 - own.sum() / (num_mates[used] * others).sum())
