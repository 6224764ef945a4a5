"""The correlation of the updates of mates.

What of T is left where updates react to the sums.
Given the released models mates are exchangeable, but no longer independent. With the
correlation kappa of any two, about a centre that is public, no estimate explains more
than (1 + (T - 1) kappa) / T of an update (`docs/hidden_among.md`).
"""

from __future__ import annotations

import math

import numpy as np


def is_in(members: np.ndarray) -> np.ndarray:
    """Return the participation bool `[rounds, clients]`."""
    is_member = np.zeros((len(members), int(members.max(initial=0)) + 1), np.bool_)
    row, slot = np.nonzero(members >= 0)
    is_member[row, members[row, slot]] = True
    return is_member


def same_rounds(members: np.ndarray) -> np.ndarray:
    """Give clients that were in the same rounds one common number."""
    columns = np.packbits(is_in(members), axis=0)
    return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)


def correlation_of_mates(
    centred: np.ndarray, members: np.ndarray, variances: np.ndarray, blocks: np.ndarray
) -> float:
    """Return the correlation of mates; NaN without pairs of mates and of others.

    Sums of squared distances of pairs follow from sums alone: within a block of T
    clients, T sum |e_i|^2 - |sum e_i|^2.

    Args:
        centred: `[rounds, slots, S]`, scaled so that a squared length is a mean over
            coordinates.
        members: `[rounds, slots]`.
        variances: `[rounds]`, s_r^2.
        blocks: Of each client; negative for one without mates.
    """
    count = (members >= 0).sum(axis=1)
    at, slot = np.nonzero((members >= 0) & (variances > 0)[:, None])
    block = blocks[members[at, slot]]
    at, slot, block = at[block >= 0], slot[block >= 0], block[block >= 0]
    if not len(at):
        return math.nan
    order = np.lexsort((block, at))
    at, block, entries = at[order], block[order], centred[at[order], slot[order]]
    # A new stretch begins where the round or the block changes.
    starts = np.flatnonzero(np.diff(at, prepend=-1) | np.diff(block, prepend=-1))
    size = np.diff(starts, append=len(at))
    squares = np.add.reduceat((entries**2).sum(axis=1), starts)
    # Half of |x_i - x_j|^2 over all ordered pairs, without forming a pair: that is
    # size * sum |x_i|^2 - |sum x_i|^2.
    apart = size * squares - (np.add.reduceat(entries, starts) ** 2).sum(axis=1)
    sums = apart, size * (size - 1.0)
    mates, num_mates = (np.bincount(at[starts], block, len(members)) for block in sums)
    # Ordered pairs: all of the round less those of mates.
    num_others = count * (count - 1) - num_mates
    used = (num_mates > 0) & (num_others > 0)
    if not used.any():
        return math.nan
    ratio = mates[used] / variances[used]
    # All pairs of a round add up to K (K - 1) variances, as centring fixes it.
    others = ((count * (count - 1))[used] - ratio) / num_others[used]
    return float(1 - ratio.sum() / (num_mates[used] * others).sum())
