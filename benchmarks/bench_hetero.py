"""HeteroSAg's rounds against the pads that they take, their growth, and their peak memory."""

import argparse
import pathlib
import resource
from collections.abc import Callable

import numpy as np

import mrsa_jax as mj
from mrsa_jax import hetero, secagg
from mrsa_jax.bench import Measurement, compare, record, table
from mrsa_jax.modular import words_per_residue

GROUP_LEVELS = (2, 4, 8, 10, 12)


def layout_of(clients: int, groups: int, dim: int, scheme: str = "mc") -> hetero.SegmentLayout:
    sizes = [clients // groups + (g < clients % groups) for g in range(groups)]
    levels = [GROUP_LEVELS[g * len(GROUP_LEVELS) // groups] for g in range(groups)]
    return hetero.segment_layout(scheme, sizes, levels, dim)


def chunk(layout: hetero.SegmentLayout, start: int, stop: int) -> np.ndarray:
    rng = np.random.default_rng(start)
    return rng.uniform(-1, 1, (layout.num_participants, stop - start)).astype(np.float32)


def keystream_bytes(layout: hetero.SegmentLayout) -> int:
    """Bytes of keystream of all pairs and clients of all blocks."""
    total = 0
    for block in layout.blocks:
        streams = len(block.members) * (len(block.members) + 1) // 2
        total += streams * (block.stop - block.start) * 4 * words_per_residue(block.modulus)
    return total


def pads_alone(layout: hetero.SegmentLayout, size: int) -> tuple[float, Callable[[], object]]:
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


def a_round(clients: int, groups: int, dim: int, repeats: int) -> Measurement:
    """Compare a round with one block's pads: the rates of keystream are those of the same loops."""
    layout = layout_of(clients, groups, dim)
    work = keystream_bytes(layout)
    made, peer = pads_alone(layout, min(work, 2**29))

    def ours() -> np.ndarray:
        result = hetero.aggregate(
            0, lambda a, b: chunk(layout, a, b), layout, (-1.0, 1.0), fidelity="array"
        )
        assert result.status == mj.Status.OK
        return result.update

    def check(update: np.ndarray, _: object) -> None:
        plain = hetero.aggregate(0, lambda a, b: chunk(layout, a, b), layout, (-1.0, 1.0))
        np.testing.assert_array_equal(update, plain.update)

    return compare(
        "hetero",
        f"round, MC, N = {clients}, G = {groups}, d = {dim:,}",
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


def an_average(dim: int) -> Measurement:
    """One round of training's aggregator beside the homogeneous one."""
    import jax
    import jax.numpy as jnp

    layout = layout_of(20, 5, dim)
    ours = hetero.segment_average(layout, (-1.0, 1.0), fidelity="sets")
    ring = secagg.ring_average(mj.quantize.stochastic(12, 1.0), 20, dim, fidelity="sets")
    updates = jnp.asarray(chunk(layout, 0, dim))
    arguments = (updates, jnp.arange(20), jnp.ones(20, bool))
    states = ours.init(), ring.init()
    return compare(
        "hetero",
        f"aggregator without pads, N = 20, G = 5, d = {dim:,}",
        lambda: ours.aggregate(jax.random.key(0), states[0], *arguments)[0].update,
        lambda: ring.aggregate(jax.random.key(0), states[1], *arguments)[0].update,
        work=1,
        unit="rounds",
        peer_name="ring_average, K = 12 for all",
        aim=0.8,
        repeats=7,
    )


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--large", action="store_true", help="N = 1024, d = 10^5, G = 31 too")
    arguments = parser.parse_args()
    rows = [an_average(199_210)]
    rows += [a_round(128, 7, dim, 3) for dim in (10_000, 20_000)]
    rows += [a_round(256, 7, 10_000, 3), a_round(256, 15, 10_000, 3)]
    if arguments.large:
        rows.append(a_round(1024, 31, 100_000, 1))
    print(table(rows))
    print(f"peak memory {peak_megabytes():,.0f} MB")
    if arguments.record:
        record(rows, pathlib.Path(__file__).parent / "results" / "hetero.jsonl")


if __name__ == "__main__":
    main()
