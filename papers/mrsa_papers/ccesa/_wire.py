"""The shared parts of CCESA's attack items.

Uploads under real pads as they are overheard, and verdicts.
Choi, Sohn, Han, Moon, Section 5.3: an eavesdropper takes what a client sends for its
model, without pads (federated averaging), under those of SecAgg and under those of
CCESA(n, p).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Key

from mrsa_jax import attacks, graphs, quantize, secagg
from mrsa_jax._core.streams import Stream, round_key
from mrsa_papers.harness._intervals import binomial_interval, every
from mrsa_papers.harness._items import Check, state

PLAIN, SECAGG = "no pads (FedAvg)", "SecAgg"
LEVELS, CLIP = 2**16, 4.0
_LEVEL = 0.99  # of the intervals that verdicts are read from


@dataclasses.dataclass(frozen=True, eq=False)
class Wire:
    """One round as seen on the lines and by the server.

    Attributes:
        codes: uint32 [n, d], the quantized models.
        uploads: What the clients sent, uint32 [n, d], by who padded it.
        quantizer: How codes stand for numbers.
        modulus: R of the pads' ring.
        seeds: Of SecAgg's pads.
        round_index: Round, part of the pads' nonces.
        clipped: Share of the models' entries outside the quantizer's range.
    """

    codes: np.ndarray
    uploads: dict[str, np.ndarray]
    quantizer: quantize.StochasticQuantizer
    modulus: int
    seeds: secagg.Seeds
    round_index: int
    clipped: float

    def read(self, name: str) -> Float32[np.ndarray, "clients dim"]:
        """Return the models that an eavesdropper reads.

        Codes above the quantizer's levels give pads away: then the ring is scaled onto
        the levels, as a model with entries far beyond any trained one's is certain of
        everything, and attacks by gradients stand still on it.
        """
        codes = self.uploads[name]
        if int(codes.max()) >= LEVELS:
            # floor division keeps the order of the codes
            codes = codes // np.uint32(self.modulus // LEVELS)
        return attacks.read_models(
            attacks.views.WireView(codes, self.modulus, self.quantizer)
        )

    def means(self, size: int) -> Float32[np.ndarray, "sums dim"]:
        """Return the mean models of secure sums over this many clients each."""
        n, dim = self.codes.shape
        # neighbours sum together
        groups = [tuple(range(first, first + size)) for first in range(0, n, size)]
        blocks = [secagg.Block(group, 0, dim, self.modulus, LEVELS) for group in groups]
        plan = secagg.segment_plan(blocks, n, dim)
        totals = secagg.ring_sum(self.seeds, self.codes, plan, self.round_index).totals
        sums = np.stack(
            [np.asarray(self.quantizer.decode(total, size)) for total in totals]
        )
        return sums / np.float32(size)


def wire(
    key: Key[Array, ""],
    models: Float32[Array, "clients dim"],
    chances: Iterable[float],
    *,
    clip: float = CLIP,
    round_index: int = 0,
) -> Wire:
    """Quantize the clients' models and pad them.

    Not at all, as SecAgg, and as CCESA(n, p).

    Args:
        key: Key of the rounding, the graphs and the pads' seeds.
        models: Local models.
        chances: p of each CCESA.
        clip: Half width of the quantizer's range.
        round_index: Round, part of the pads' nonces.

    Returns:
        The round; uploads by `PLAIN`, `SECAGG` and `ccesa_name(p)`.
    """
    n, dim = models.shape
    quantizer = quantize.stochastic(LEVELS, clip)
    codes = quantizer.encode(round_key(key, round_index, Stream.QUANTIZATION), models)
    modulus = 2 ** quantize.budget(LEVELS, n).required_bits
    plan = secagg.complete_plan(n, dim, modulus, levels=LEVELS)
    uploads = {PLAIN: np.asarray(codes)}
    drawn: dict[str, Any] = {SECAGG: graphs.complete(n)}
    drawn |= {ccesa_name(chance): graphs.erdos_renyi(n, chance) for chance in chances}
    uploads_of_kinds = []
    for number, (name, graph) in enumerate(drawn.items()):
        adjacency = graph.sample(round_key(key, round_index, Stream.ASSIGNMENT))
        words = np.asarray(jax.random.key_data(key), np.uint32)
        material = secagg.key_material(
            b"reproduce wire" + bytes(words) + bytes([number])
        )
        pairs = graphs.edges(adjacency)
        seeds = secagg.derive_seeds(material, np.arange(n), round_index, pairs)
        uploads[name] = np.asarray(secagg.pad_inputs(seeds, codes, plan, round_index))
        uploads_of_kinds.append(seeds)
    clipped = float(jnp.mean(quantizer.clipped_fraction(models)))
    return Wire(
        np.asarray(codes),
        uploads,
        quantizer,
        modulus,
        uploads_of_kinds[0],
        round_index,
        clipped,
    )


def ccesa_name(chance: float) -> str:
    """Return the name of CCESA at p."""
    return f"CCESA, p = {chance:.3g}"


def chance_check(
    claim: str,
    counts: Iterable[tuple[int, int]],
    chance: float,
    *,
    is_hidden: bool,
    paper: str,
    labels: Iterable[str] = ("",),
    note: str = "",
) -> Check:
    """Judge counts of right guesses.

    All of them at chance, or all of them well above it.
    Either is asked of whole intervals: at chance are those that hold it and end less
    than a tenth of the way to certainty from it. What is on both sides of a bound is
    undecided, as few guesses show neither.

    Args:
        claim: What is guessed.
        counts: Right guesses and guesses, of each case.
        chance: Of a right guess by luck.
        is_hidden: Whether the guesses should be at chance, or better by a tenth of the
            way to certainty at least.
        paper: What the paper says.
        labels: Of the cases.
        note: Said beside the verdict.
    """
    cases = list(counts)
    # Bonferroni: all intervals hold together
    level = 1 - (1 - _LEVEL) / max(1, len(cases))
    ends = [binomial_interval(hits, trials, level) for hits, trials in cases]
    step = 0.1 * (1 - chance)
    floor = chance + step
    holds = every(
        _is_chance(low, high, chance, step)
        if is_hidden
        else True
        if low >= floor
        else False
        if high < floor
        else None
        for low, high in ends
    )
    words = [
        f"{label}{100 * hits / trials:.2f} % ({100 * low:.1f} to {100 * high:.1f})"
        for label, (hits, trials), (low, high) in zip(labels, cases, ends, strict=True)
    ]
    joint = "simultaneous " if len(cases) > 1 else ""
    reach = (
        f"chance, {100 * chance:g} %, within the {joint}99 % interval, and its ends "
        f"within {100 * step:.3g} points of chance"
        if is_hidden
        else f"lower end of the {joint}99 % interval at least {100 * floor:g} % "
        f"(chance: {100 * chance:g} %)"
    )
    return state(
        claim,
        holds if cases else None,
        paper=paper,
        ours=", ".join(words) or "no guess",
        tolerance=reach,
        note=note,
    )


def _is_chance(low: float, high: float, chance: float, margin: float) -> bool | None:
    """Return whether an interval is that of guesses at chance.

    None where it is too wide.
    """
    if not low <= chance <= high:
        return False
    return True if max(chance - low, high - chance) <= margin else None
