"""How many bits each client of a layout sends, and how long the round's slowest group takes.

HeteroSAg, Section VI: the padded input is what grows with the model, so it is what is timed; keys
and shares are in `secagg.round_costs`. Symbols: R -> a block's modulus, ceil(log2 R) bits for
each coordinate on the wire against ceil(log2 K) plain bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._errors import require
from mrsa_jax._html import brief, telling
from mrsa_jax._tracing import needs_values
from mrsa_jax.hetero._costs import segment_costs
from mrsa_jax.hetero._grouping import check_rates
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.protocol import MaskedInput


@dataclasses.dataclass(frozen=True, eq=False)
class CommunicationTimes:
    """What the clients of a round send, and how long it takes them.

    Attributes:
        bits: int64[n], residues of each slot's padded input, ceil(log2 R) for each coordinate.
        plain_bits: int64[n], the same without secure sums, ceil(log2 K) for each coordinate.
        message_bytes: int64[n], of the message, rounded up to bytes, with its header.
        rates: float64[n], bits per second.
        columns: Slots of each group (or subgroup).
        expansion: float64[n], bandwidth expansion factor: `bits` over log2 K for each coordinate.
    """

    __repr__ = brief
    _repr_html_ = telling

    bits: np.ndarray
    plain_bits: np.ndarray
    message_bytes: np.ndarray
    rates: np.ndarray
    columns: tuple[tuple[int, ...], ...]
    expansion: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """float64[n], of each slot's residues."""
        return self.bits / self.rates

    @property
    def plain_seconds(self) -> np.ndarray:
        """float64[n], of each slot's plain bits, as the paper counts."""
        return self.plain_bits / self.rates

    @property
    def group_seconds(self) -> np.ndarray:
        """float64[columns], of each group's slowest client; 0 for a group of nobody."""
        return _slowest(self.seconds, self.columns)

    @property
    def plain_group_seconds(self) -> np.ndarray:
        """float64[columns], `group_seconds` in plain bits."""
        return _slowest(self.plain_seconds, self.columns)

    @property
    def slowest_group(self) -> int:
        """The group that the round waits for (the first of equals)."""
        return int(np.argmax(self.group_seconds))

    @property
    def round_seconds(self) -> float:
        """Seconds until the slowest client has sent its residues."""
        return float(self.seconds.max())

    @property
    def plain_round_seconds(self) -> float:
        """`round_seconds` in plain bits."""
        return float(self.plain_seconds.max())

    def __str__(self) -> str:
        """Say which group the round waits for."""
        slowest, group_seconds = self.slowest_group, self.group_seconds
        fastest = group_seconds[[len(column) > 0 for column in self.columns]].min()
        return (
            f"the round waits {self.round_seconds:.3g} s for group {slowest} of "
            f"{len(self.columns)}; the fastest group takes {fastest:.3g} s"
        )


@needs_values
def communication_times(
    layout: SegmentLayout, rates_bits_per_second: ArrayLike | Sequence[Any]
) -> CommunicationTimes:
    """Return what each client sends in a round, and the time of clients, groups and the round.

    Compare with K levels for all by the times of `segment_layout("groups", [n], [K], dim)`.

    Args:
        layout: Who sums what with whom.
        rates_bits_per_second: Of each slot [n], towards the server, positive.

    Returns:
        Bits and seconds by slot, and by group.

    Raises:
        ConfigurationError: If a rate is not positive, or there is not one for each slot.

    Examples:
        >>> from mrsa_jax.hetero import segment_layout
        >>> same = [communication_times(segment_layout("groups", [20], [K], 1000), [1e3] * 20)
        ...         for K in (2, 12)]
        >>> [times.plain_round_seconds for times in same], [times.round_seconds for times in same]
        ([1.0, 4.0], [5.0, 8.0])

    Source: HeteroSAg, Section VI-A (expansion) and VI-B, Experiment 1, whose 4 x is of plain bits;
    on the wire it is 8 / 5, and 2 against blocks of eight clients.
    """
    rates = check_rates(rates_bits_per_second, "rates_bits_per_second")
    number = layout.num_participants
    fits = len(rates) == number
    require(fits, "rates_bits_per_second", "must have one rate for each slot", len(rates), number)
    plain, needed = np.zeros(number, np.int64), np.zeros(number, np.float64)
    stretches: list[list[tuple[int, int]]] = [[] for _ in range(number)]
    for block in layout.blocks:
        width, members = block.stop - block.start, list(block.members)
        plain[members] += width * (block.num_levels - 1).bit_length()
        needed[members] += width * np.log2(block.num_levels)
        for slot in members:
            stretches[slot].append((width, block.modulus))
    sizes = np.asarray([MaskedInput.size(own) for own in stretches], np.int64)
    bits = segment_costs(layout).payload_bits
    return CommunicationTimes(bits, plain, sizes, rates, layout.columns, bits / needed)


def _slowest(seconds: np.ndarray, columns: tuple[tuple[int, ...], ...]) -> np.ndarray:
    return np.asarray([seconds[list(slots)].max(initial=0.0) for slots in columns], np.float64)
