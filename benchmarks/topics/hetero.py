"""HeteroSAg's rounds against the pads that they take, and its aggregator without pads."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import hetero, quantize, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.prime import words_per_residue
from mrsa_jax._core.status import Status
from mrsa_jax.bench.harness import Case, Measurement, ResultsDifferError, compare

_GROUP_LEVELS = (2, 4, 8, 10, 12)


def _layout_of(
    clients: int, groups: int, dim: int, scheme: str = "mc"
) -> hetero.SegmentLayout:
    sizes = [clients // groups + (g < clients % groups) for g in range(groups)]
    levels = [_GROUP_LEVELS[g * len(_GROUP_LEVELS) // groups] for g in range(groups)]
    return hetero.segment_layout(scheme, sizes, levels, dim)


def _chunk(layout: hetero.SegmentLayout, start: int, stop: int) -> np.ndarray:
    rng = np.random.default_rng(start)
    return rng.uniform(-1, 1, (layout.num_participants, stop - start)).astype(
        np.float32
    )


def _keystream_bytes(layout: hetero.SegmentLayout) -> int:
    """Bytes of keystream of all pairs and clients of all blocks."""
    total = 0
    for block in layout.blocks:
        streams = len(block.members) * (len(block.members) + 1) // 2
        total += (
            streams * (block.stop - block.start) * 4 * words_per_residue(block.modulus)
        )
    return total


def _pads_alone(
    layout: hetero.SegmentLayout, size: int
) -> tuple[int, Callable[[], object]]:
    """Pad and sum zeros of one block of the layout's usual kind until `size` bytes are made."""
    block = max(layout.blocks, key=lambda own: len(own.members))
    count = len(block.members)
    streams = count * (count + 1) // 2
    width = max(1, size // (streams * 4 * words_per_residue(block.modulus)))
    plan = secagg.complete_plan(count, width, block.modulus)
    seeds = secagg.derive_seeds(secagg.key_material(0), np.arange(count), 0)
    inputs = np.zeros((count, width), np.uint32)
    made = streams * width * 4 * words_per_residue(block.modulus)
    return made, lambda: secagg.ring_sum(seeds, inputs, plan, 0).total


def _a_round(clients: int, groups: int, dim: int, repeats: int) -> Measurement:
    """Compare a round with one block's pads.

    The rates of keystream are those of the same loops.
    """
    layout = _layout_of(clients, groups, dim)
    work = _keystream_bytes(layout)
    made, peer = _pads_alone(layout, min(work, 2**29))

    def ours() -> np.ndarray:
        result = hetero.aggregate(
            0, lambda a, b: _chunk(layout, a, b), layout, (-1.0, 1.0), fidelity="array"
        )
        if result.status != Status.OK:
            raise ResultsDifferError(f"the round ended with {result.status!r}")
        return result.update

    def check(update: np.ndarray, _: object) -> None:
        plain = hetero.aggregate(
            0, lambda a, b: _chunk(layout, a, b), layout, (-1.0, 1.0)
        )
        np.testing.assert_array_equal(update, plain.update)

    return compare(
        ours,
        peer,
        work=work,
        unit="bytes",
        peer_work=made,
        peer_name="pads of its largest block alone, as many bytes of them",
        check=check,
        aim=0.8,
        repeats=repeats,
        note="keystream bytes a second; ours reads the updates, rounds, derives seeds and decodes "
        "besides",
    )


def _an_average(dim: int) -> Measurement:
    """One round of training's aggregator beside the homogeneous one."""
    layout = _layout_of(20, 5, dim)
    ours = hetero.segment_average(layout, (-1.0, 1.0), fidelity="sets")
    ring = secagg.ring_average(quantize.stochastic(12, 1.0), 20, dim, fidelity="sets")
    updates = on_device(_chunk(layout, 0, dim))
    arguments = (updates, jnp.arange(20), jnp.ones(20, bool))
    states = ours.init(), ring.init()
    return compare(
        lambda: ours.aggregate(jax.random.key(0), states[0], *arguments)[0].update,
        lambda: ring.aggregate(jax.random.key(0), states[1], *arguments)[0].update,
        work=1,
        unit="rounds",
        peer_name="ring_average, K = 12 for all",
        aim=0.8,
        repeats=7,
    )


def cases(quick: bool) -> list[Case]:
    """Return the aggregator, then rounds whose segments grow shorter and whose blocks multiply."""
    dim = 5_000 if quick else 199_210
    sizes = [(128, 7, 10_000), (128, 7, 20_000), (256, 7, 10_000), (256, 15, 10_000)]
    sizes = [(24, 3, 3_000)] if quick else [*sizes, (1024, 31, 100_000)]

    def a_round(clients: int, groups: int, dim: int) -> Case:
        repeats = 1 if clients > 1000 else 3
        return Case(
            f"round, MC, N = {clients}, G = {groups}, d = {dim:,}",
            lambda: _a_round(clients, groups, dim, repeats),
        )

    average = f"aggregator without pads, N = 20, G = 5, d = {dim:,}"
    return [
        Case(average, lambda: _an_average(dim)),
        *(a_round(*size) for size in sizes),
    ]
