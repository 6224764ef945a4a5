"""Compiled ranks of many matrices modulo a small prime, on the CPU.

Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import bring_up, compiled

# A Mersenne prime: a product of two residues is reduced by one shift and one subtraction.
SMALL = 8191
_BITS = 13


@compiled
def _rank(work, inverses):
    rows, columns = work.shape
    rank = 0
    for column in range(columns):
        if rank == rows:
            break
        if not bring_up(work, rank, column):
            continue
        inverse = inverses[work[rank, column]]
        top = work[rank, column + 1 :]
        for i in range(rank + 1, rows):
            head = work[i, column]
            if head != 0:
                product = head * inverse
                folded = (product & SMALL) + (product >> _BITS)
                factor = np.int32(SMALL - (folded - SMALL if folded >= SMALL else folded))
                row = work[i, column + 1 :]
                for j in range(row.shape[0]):
                    value = row[j] + factor * top[j]
                    value = (value & np.int32(SMALL)) + (value >> np.int32(_BITS))
                    row[j] = value - np.int32(SMALL) if value >= SMALL else value
        rank += 1
    return rank


@compiled
def ranks(matrices, inverses):
    """Return the rank modulo `SMALL` of residues int32 `[batch, rows, columns]` (overwritten)."""
    count = matrices.shape[0]
    found = np.zeros(count, np.int32)
    for b in range(count):
        found[b] = _rank(matrices[b], inverses)
    return found
