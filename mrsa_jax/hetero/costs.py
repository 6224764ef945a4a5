"""Costs of a round of a layout: operations, bits on the wire, and time to send them.

HeteroSAg, Section VI. The padded input grows with the model, so it alone is timed; keys
and shares are in `secagg.round_costs`. Symbols: R -> a block's modulus,
ceil(log2 R) bits for each coordinate on the wire against ceil(log2 K) plain bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float64

from mrsa_jax._core.prime import words_per_residue
from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.protocol.messages import MaskedInput
from mrsa_jax.quantize.budgets import ring_size
from mrsa_jax.secagg import admitted
from mrsa_watch._base.errors import check_chance, check_integer, require
from mrsa_watch._base.html import finding, telling


@finding
class SegmentCosts:
    """Costs of a round of a layout (build it with `segment_costs`).

    No headers, ids or tags.
    Fields of clients are int64[N] unless said otherwise, those of the server integers.

    Attributes:
        key_agreements: Of each client: N - 1 for the channels of its shares, and one
            with each client that it shares a block with for pads.
        shares: Shares that it makes, of two secrets for N clients, its own included.
        keystream_words: 32-bit words of PRG that it expands, self pads included.
        payload_bits: Bits of its masked input, ceil(log2 R) for each coordinate.
        plain_bits: float64[N], log2 K for each coordinate: the same without secure
            sums.
        server_key_agreements: Between clients lost after sharing keys and those in the
            sum.
        server_secrets: Secrets recovered from shares: b_i of those in the sum, s_i of
            those lost who had common blocks with them.
        server_keystream_words: Words that the server expands to remove all pads.
    """

    key_agreements: np.ndarray
    shares: np.ndarray
    keystream_words: np.ndarray
    payload_bits: np.ndarray
    plain_bits: np.ndarray
    server_key_agreements: int
    server_secrets: int
    server_keystream_words: int

    @property
    def expansion(self) -> np.ndarray:
        """float64[N], `payload_bits` over `plain_bits`."""
        return self.payload_bits / self.plain_bits


@needs_values
def segment_costs(
    layout: SegmentLayout, present: ArrayLike | Sequence[bool] | None = None
) -> SegmentCosts:
    """Count a round's costs for its users and server, on the complete graph.

    A user of subgroups of n-bar clients makes O(N) agreements, O(N) shares of O(N)
    products each, and expands O(n-bar m) words, against O(N m) in one sum of everybody;
    it sends O(N + m), in smaller rings. The server expands m words for each client of
    the sum and, for each client lost after sharing keys, up to 2 n-bar m words, against
    N m. For bytes and field products, or sparse graphs, `secagg.round_costs` with
    `plan=layout.plan`.

    Args:
        layout: Who sums what with whom; `segment_layout("groups", [N], [K], dim)` for
            one sum of everybody.
        present: bool[N], whose masked input arrives; all if None. All shared keys.

    Returns:
        The counts, those of the clients as if each sent its input.

    Raises:
        ConfigurationError: If `present` is not a bool for each slot.

    Examples:
        >>> import mrsa_jax as mj
        >>> costs = mj.hetero.costs
        >>> one = mj.hetero.segment_layout(
        ...     "groups", [20], [2], dim=100, modulus_rule="power_of_two"
        ... )
        >>> chains = mj.hetero.segment_layout(
        ...     "mc", [4] * 5, [2] * 5, 100, modulus_rule="power_of_two"
        ... )
        >>> counted = [costs.segment_costs(layout) for layout in (one, chains)]
        >>> [int(cost.keystream_words[0]) for cost in counted]
        [2000, 720]
        >>> [int(cost.payload_bits[0]) for cost in counted]
        [500, 380]

    Source: HeteroSAg, Section VI-A, whose user makes 2 N agreements: N - 1 for channels
    and N - 1 for pads. Pads with clients of no common block are never needed and not
    counted here.
    """
    number = layout.num_participants
    sends = np.ones(number, bool) if present is None else np.asarray(present)
    proper = sends.dtype == np.bool_ and sends.shape == (number,)
    require(proper, "present", "must be a bool for each slot", sends.dtype, sends.shape)
    summed = admitted(layout.plan, sends)
    mates = np.zeros((number, number), bool)
    words = np.zeros(number, np.int64)
    bits = np.zeros(number, np.int64)
    plain = np.zeros(number, np.float64)
    server_words = 0
    for block in layout.blocks:
        members = np.asarray(block.members)
        width = block.stop - block.start
        of_pad = width * words_per_residue(block.modulus)
        mates[np.ix_(members, members)] = True
        # One self pad, and one pad with each of the other members.
        words[members] += of_pad * len(members)
        bits[members] += width * (block.modulus - 1).bit_length()
        plain[members] += width * math.log2(block.num_levels)
        inside = int(summed[members].sum())
        # the self pads of those inside, and their pads with each of the block who is
        # not
        server_words += of_pad * inside * (1 + len(members) - inside)
    np.fill_diagonal(mates, False)
    # Pairs of a lost client and a summed one: the server makes their pads again.
    crossing = mates & ~summed[:, None] & summed[None, :]
    return SegmentCosts(
        key_agreements=mates.sum(axis=1) + (number - 1),
        shares=np.full(number, 2 * number, np.int64),
        keystream_words=words,
        payload_bits=bits,
        plain_bits=plain,
        server_key_agreements=int(crossing.sum()),
        server_secrets=int(summed.sum() + crossing.any(axis=1).sum()),
        server_keystream_words=server_words,
    )


@finding
class CommunicationTimes:
    """Bytes that the clients of a round send, and their times.

    Attributes:
        bits: int64[n], residues of each slot's padded input, ceil(log2 R) for each
            coordinate.
        plain_bits: int64[n], the same without secure sums, ceil(log2 K) for each
            coordinate.
        message_bytes: int64[n], of the message, rounded up to bytes, with its header.
        rates: float64[n], bits per second.
        columns: Slots of each group (or subgroup).
        expansion: float64[n], bandwidth expansion factor: `bits` over log2 K for each
            coordinate.
    """

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
        seconds = self.seconds
        slowest = [seconds[list(slots)].max(initial=0.0) for slots in self.columns]
        return np.asarray(slowest, np.float64)

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
        is_present = [len(column) > 0 for column in self.columns]
        fastest = self.group_seconds[is_present].min()
        return (
            f"the round waits {self.round_seconds:.3g} s for group "
            f"{self.slowest_group} of "
            f"{len(self.columns)}; the fastest group takes {fastest:.3g} s"
        )


@needs_values
def communication_times(
    layout: SegmentLayout, rates_bits_per_second: ArrayLike | Sequence[Any]
) -> CommunicationTimes:
    """Return the bytes of each client in a round, and times of clients and groups.

    Compare with K levels for all by the times of
    `segment_layout("groups", [n], [K], dim)`.

    Args:
        layout: Who sums what with whom.
        rates_bits_per_second: Of each slot [n], towards the server, positive.

    Returns:
        Bits and seconds by slot, and by group.

    Raises:
        ConfigurationError: If a rate is not positive, or there is not one for each
            slot.

    Examples:
        >>> import mrsa_jax as mj
        >>> costs = mj.hetero.costs
        >>> same = [
        ...     costs.communication_times(
        ...         mj.hetero.segment_layout("groups", [20], [K], 1000), [1e3] * 20
        ...     )
        ...     for K in (2, 12)
        ... ]
        >>> [times.plain_round_seconds for times in same]
        [1.0, 4.0]
        >>> [times.round_seconds for times in same]
        [5.0, 8.0]

    Source: HeteroSAg, Section VI-A (expansion) and VI-B, Experiment 1, whose 4 x is of
    plain bits; on the wire it is 8 / 5, and 2 against blocks of eight clients.
    """
    costs = segment_costs(layout)
    plain = np.zeros(layout.num_participants, np.int64)
    stretches: list[list[tuple[int, int]]] = [[] for _ in plain]
    for block in layout.blocks:
        width = block.stop - block.start
        plain[list(block.members)] += width * (block.num_levels - 1).bit_length()
        for slot in block.members:
            stretches[slot].append((width, block.modulus))
    return CommunicationTimes(
        costs.payload_bits,
        plain,
        np.asarray([MaskedInput.size(sent) for sent in stretches], np.int64),
        _checked_rates(rates_bits_per_second, layout.num_participants),
        layout.columns,
        costs.expansion,
    )


def expansion_factor(
    num_levels: int | np.integer, num_summed: int | np.integer, *, rounded: bool = True
) -> float:
    """Return the bandwidth expansion factor of one sum, keys and shares apart.

    log2(|S| (K - 1) + 1) / log2 K: bits for each coordinate on the wire over plain
    bits.

    Args:
        num_levels: K, at least 2.
        num_summed: |S|, clients that sum together, at least 1; 2 n-bar bounds the
            schemes'.
        rounded: Count whole bits on the wire (ceil of the numerator), as the paper's
            numbers do; its formula does not.

    Returns:
        The factor, at least 1.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> factor = mj.hetero.costs.expansion_factor
        >>> factor(2, 2**14), factor(2, 14)  # the paper's 15 x and 4 x
        (15.0, 4.0)

    Source: HeteroSAg, Section VI-A.
    """
    levels = check_integer(num_levels, "num_levels", 2)
    ring = ring_size(levels, check_integer(num_summed, "num_summed", 1))
    # a ring of this many values needs the bits of its largest one
    bits = (ring - 1).bit_length() if rounded else math.log2(ring)
    return bits / math.log2(levels)


def survival_probability(
    subgroup_size: int | np.integer,
    dropout_rate: float,
    num_subgroups: int | np.integer = 1,
) -> float:
    """Return the chance that every subgroup keeps two or more clients, equation (19).

    (1 - [n (1 - p) p^(n - 1) + p^n])^Z with n = n-bar; Z = 1 is the paper's theorem.
    The protocol needs less: a subgroup without survivors exposes nobody, nor does a
    single survivor in a sum with another subgroup (`hetero.round_rates` counts those).

    Args:
        subgroup_size: n-bar, at least 1.
        dropout_rate: p in [0, 1], of each client.
        num_subgroups: Z, at least 1.

    Returns:
        The probability, without cancellation.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> round(mj.hetero.costs.survival_probability(4, 0.1), 4)
        0.9963

    Source: HeteroSAg, Theorem 4.
    """
    size = check_integer(subgroup_size, "subgroup_size", 1)
    rate = check_chance(dropout_rate, "dropout_rate")
    number = check_integer(num_subgroups, "num_subgroups", 1)
    nobody, alone = 1.0, 0.0  # stay, without cancellation
    for _ in range(size):
        # one client more: the chances that none stays, and that exactly one does
        nobody, alone = nobody * rate, alone * rate + nobody * (1.0 - rate)
    failure = nobody + alone
    # by logarithms, as a power of a number near 1 would lose digits
    if number == 1 or failure >= 1.0:
        return max(0.0, 1.0 - failure)
    return math.exp(number * math.log1p(-failure))


def _checked_rates(rates: Any, count: int) -> Float64[np.ndarray, " n"]:
    argument = "rates_bits_per_second"
    values = np.asarray(rates)
    is_numeric = values.dtype.kind in "fiu"
    require(is_numeric, argument, "must hold numbers", f"dtype {values.dtype}")
    proper = values.ndim == 1 and values.size > 0
    rule = "must be a vector with one entry each"
    require(proper, argument, rule, f"shape {values.shape}")
    values = values.astype(np.float64)
    bad = values[~((values > 0) & np.isfinite(values))]
    require(bad.size == 0, argument, "must be positive and finite", *bad[:1].tolist())
    rule = "must have one rate for each slot"
    require(len(values) == count, argument, rule, len(values), count)
    return values
