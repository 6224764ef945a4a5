"""Cholesky factors in balls: numbers with a proven bound of what they are wrong by.

Arb, in python-flint. A pivot that is a positive ball is positive, so what is found
needs no other proof that it exists.
"""

from __future__ import annotations

from typing import Any


def inverse_of_factor(gram: list[list[Any]]) -> list[list[Any]] | None:
    """Return the inverse of the lower Cholesky factor.

    None where a pivot may not be positive.
    By halves, so that products of whole matrices do the work. Of [[A, B^T], [B, D]] it
    is [[a, 0], [-c B a^T a, c]], where a is that of A and c that of D - (B a^T)(B
    a^T)^T.
    """
    import flint

    if len(gram) == 1:
        pivot = gram[0][0]
        return [[1 / pivot.sqrt()]] if pivot > 0 else None
    half = len(gram) // 2
    first = inverse_of_factor([row[:half] for row in gram[:half]])
    if first is None:
        return None
    above = flint.arb_mat(first)
    below = flint.arb_mat([row[:half] for row in gram[half:]]) * above.transpose()
    rest = (
        flint.arb_mat([row[half:] for row in gram[half:]]) - below * below.transpose()
    )
    second = inverse_of_factor(rest.tolist())
    if second is None:
        return None
    corner = (-(flint.arb_mat(second) * below * above)).tolist()
    nothing = [flint.arb(0)] * len(second)
    upper = [row + nothing for row in first]
    return upper + [zeros + other for zeros, other in zip(corner, second, strict=True)]
