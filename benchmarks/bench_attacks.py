"""Attacks: gradient inversion against `breaching`, restarts side by side, least squares on sums.

`breaching` 0.1.2 runs in an environment of its own (see `peers/`) and attacks the same image
through the same network; its gradient is compared with ours before anything is timed. A photograph
of scikit-learn's ("flower.jpg", 32 x 32) stands for CIFAR's images.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import resource
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from peers import Peer, python_of
from PIL import Image
from sklearn.datasets import load_sample_image

import mrsa_jax as mj
from mrsa_jax.bench import Measurement, compare, record, table

_RESULTS = pathlib.Path(__file__).parent / "results" / "attacks.jsonl"
_SHAPE, _LABEL = (32, 32, 3), 3
_SMOOTHNESS = 1e-4
_CORES = os.cpu_count() or 1


def _photograph() -> np.ndarray:
    picture = Image.fromarray(load_sample_image("flower.jpg")).resize(_SHAPE[:2])
    return np.asarray(picture, np.float32) / np.float32(255)


def _view() -> tuple[mj.attacks.UpdateView, np.ndarray]:
    """Return what one step of one client on the photograph shows, and its gradient."""
    model = mj.federated.smooth_lenet(10)
    start = mj.federated.initial_parameters(0, model, _SHAPE)
    image = jnp.asarray(_photograph())[None]

    def loss(flat: jax.Array) -> jax.Array:
        logits = model.apply(mj.federated.unflatten(model, _SHAPE, flat), image)
        label = jnp.asarray([_LABEL])
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    gradient = jax.grad(loss)(start)
    labels = jnp.asarray([_LABEL], jnp.int32)
    view = mj.attacks.UpdateView(model, start, _SHAPE, 10, -gradient, 1, labels)
    return view, np.asarray(gradient)


def _in_order(flat: np.ndarray) -> np.ndarray:
    """Return biases and kernels, convolutions first, as the peer's network has them."""
    layers = mj.federated.unflatten(mj.federated.smooth_lenet(10), _SHAPE, jnp.asarray(flat))
    names = sorted(layers["params"], key=lambda name: ("Conv" not in name, name))
    parts = [layers["params"][name][kind] for name in names for kind in ("bias", "kernel")]
    return np.concatenate([np.asarray(part).ravel() for part in parts])


def inversion(num_steps: int) -> Measurement:
    view, gradient = _view()
    attack = mj.attacks.gradient_inversion(num_steps=num_steps, smoothness=_SMOOTHNESS)
    peer = None
    if python_of("breaching") is not None:
        peer = Peer(
            "breaching",
            {
                "settings": {
                    "num_classes": 10,
                    "num_steps": num_steps,
                    "smoothness": _SMOOTHNESS,
                },
                "image": _photograph(),
                "label": np.asarray(_LABEL),
                "start": _in_order(np.asarray(view.parameters)),
            },
            threads=_CORES,
        )
        theirs = peer.saved("gradient")
        error = np.linalg.norm(_in_order(gradient) - theirs) / np.linalg.norm(theirs)
        if not error < 1e-4:
            raise AssertionError(f"the gradients differ, relative to their norm, by {error}")
    found: dict[str, float] = {}

    def check(ours: np.ndarray, _: None) -> None:
        found["ours"] = float(mj.attacks.psnr(ours, _photograph()[None])[0])
        found["theirs"] = float(mj.attacks.psnr(peer.saved("images"), _photograph()[None])[0])
        if not min(found.values()) > 12:
            raise AssertionError(f"one side has not found the photograph: PSNR {found}")

    measured = compare(
        "attacks",
        f"gradient inversion, small LeNet, 32 x 32 x 3, {num_steps} iterations",
        lambda: attack.run(0, view).images,
        None if peer is None else peer.run,
        work=num_steps,
        unit="iterations",
        peer_name=None if peer is None else f"breaching {peer.version}, {_CORES} threads",
        check=check,
        aim=3.0,
        repeats=5,
    )
    if peer is not None:
        peer.close()
    words = ", ".join(f"{name} {value:.1f} dB" for name, value in found.items())
    return dataclasses.replace(measured, note=f"PSNR of the photograph: {words}")


def restarts(count: int, num_steps: int) -> Measurement:
    view, _ = _view()
    many = mj.attacks.gradient_inversion(
        num_steps=num_steps, restarts=count, smoothness=_SMOOTHNESS
    )
    one = dataclasses.replace(many, restarts=1)
    return compare(
        "attacks",
        f"gradient inversion, {count} restarts x {num_steps} iterations",
        lambda: many.run(0, view).images,
        lambda: [one.run(seed, view).images for seed in range(count)],
        work=count * num_steps,
        unit="iterations",
        peer_name="one restart after another",
        aim=1.0,
        repeats=3,
    )


def least_squares(num_clients: int, num_rounds: int, dim: int) -> Measurement:
    """Sums in a file, estimates to a file; NumPy's pseudo-inverse on a tenth of the coordinates."""
    history = np.asarray(
        mj.selection.rollout(
            0,
            mj.selection.uniform(num_clients, num_clients // 10),
            mj.availability.independent(0.3),
            num_rounds,
        )
    )
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sums = np.lib.format.open_memmap(
            folder / "sums.npy", mode="w+", dtype=np.float32, shape=(num_rounds, dim)
        )
        for first in range(0, dim, 10_000):
            updates = generator.standard_normal((num_clients, 10_000), np.float32)
            sums[:, first : first + 10_000] = history.astype(np.float32) @ updates
        sums.flush()
        out = np.lib.format.open_memmap(
            folder / "found.npy", mode="w+", dtype=np.float64, shape=(num_clients, dim)
        )
        part = dim // 10

        def ours() -> np.ndarray:
            return mj.attacks.least_squares(history, sums, out=out)

        def theirs() -> np.ndarray:
            return np.linalg.pinv(history.astype(np.float64)) @ sums[:, :part].astype(np.float64)

        def check(mine: np.ndarray, other: np.ndarray) -> None:
            np.testing.assert_allclose(mine[:, :part], other, atol=1e-6 * np.abs(other).max())

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        measured = compare(
            "attacks",
            f"least squares, N = {num_clients}, J = {num_rounds}, d = {dim:,}",
            ours,
            theirs,
            work=dim,
            unit="coordinates",
            peer_work=part,
            peer_name="numpy.linalg.pinv and one product, on a tenth",
            check=check,
            repeats=2,
        )
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        note = (
            f"floor: {2e-9 * num_clients * num_rounds * dim:.0f} GFLOP of products; the process "
            f"grew by {grown:.2f} GiB, file pages and the peer's included"
        )
        return dataclasses.replace(measured, note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    record_it = parser.parse_args().record
    # restarts are dealt out to the devices: one a core
    jax.config.update("jax_num_cpu_devices", _CORES)
    if python_of("breaching") is None:
        print("breaching is left out: no environment for it (see benchmarks/peers/__init__.py)")
    rows = [inversion(500), restarts(8, 200), least_squares(1000, 1000, 100_000)]
    for row in rows:
        print(f"{row.case}: {row.note}")
    print(table(rows))
    if record_it:
        record(rows, _RESULTS)


if __name__ == "__main__":
    main()
