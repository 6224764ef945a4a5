"""Few array shapes where sizes vary from round to round, so that little is compiled."""

from __future__ import annotations

_LEAST, _STEPS = 8, 8


def padded_length(count: int) -> int:
    """Return the next of the lengths of which there are eight to each doubling, from 8 on.

    Examples:
        >>> [padded_length(count) for count in (0, 8, 9, 17, 100, 1000)]
        [8, 8, 9, 18, 104, 1024]
    """
    step = max(1, (1 << max(count - 1, 0).bit_length()) // (2 * _STEPS))
    return max(_LEAST, -(-count // step) * step)
