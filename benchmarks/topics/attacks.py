"""Attacks: gradient inversion beside `breaching`, its restarts, and least squares.

`breaching` 0.1.2 runs in an environment of its own (see `peers/`) and attacks the same
image through the same network; its gradient is compared with ours before anything is
timed. A photograph ("flower.jpg", 32 x 32) stands for CIFAR's images.
"""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from benchmarks.rivals import Peer
from benchmarks.topics.training import in_order
from mrsa_jax import attacks, availability, federated, selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.packaged import packaged_file
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, compare

_SHAPE, _LABEL = (32, 32, 3), 3
_SMOOTHNESS = 1e-4


def _photograph() -> np.ndarray:
    from PIL import Image

    picture = Image.open(packaged_file("flower.jpg")).resize(_SHAPE[:2])
    return np.asarray(picture, np.float32) / np.float32(255)


def _view() -> tuple[attacks.views.UpdateView, np.ndarray]:
    """Return the view of one client's step on the photograph, and its gradient."""
    model = federated.smooth_lenet(10)
    start = federated.initial_parameters(0, model, _SHAPE)
    image = on_device(_photograph())[None]

    def loss(flat: jax.Array) -> jax.Array:
        logits = model.apply(federated.unflatten(model, _SHAPE, flat), image)
        label = on_device([_LABEL])
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    # one step of SGD at rate 1: the update is the negative gradient
    gradient = jax.grad(loss)(start)
    labels = on_device([_LABEL], jnp.int32)
    view = attacks.views.UpdateView(model, start, _SHAPE, 10, -gradient, 1, labels)
    return view, np.asarray(gradient)


def inversion(num_steps: int) -> Measurement:
    """Time gradient inversion beside `breaching`."""
    view, gradient = _view()
    attack = attacks.gradient_inversion(num_steps=num_steps, smoothness=_SMOOTHNESS)
    settings = {"num_classes": 10, "num_steps": num_steps, "smoothness": _SMOOTHNESS}
    workload = {
        "settings": settings,
        "image": _photograph(),
        "label": np.asarray(_LABEL),
        "start": in_order(view.model, _SHAPE, view.parameters),
    }
    decibels: dict[str, float] = {}

    with Peer("breaching", workload, threads=num_cores()) as peer:
        theirs = peer.saved("gradient")
        wrong = in_order(view.model, _SHAPE, gradient) - theirs
        error = np.linalg.norm(wrong) / np.linalg.norm(theirs)
        if not error < 1e-4:
            text = f"gradients differ, relative to their norm, by {error}"
            raise ResultsDifferError(text)

        def check(ours: Any, _: Any) -> None:
            truth = _photograph()[None]
            for side, images in (("ours", ours), ("theirs", peer.saved("images"))):
                decibels[side] = float(attacks.psnr(images, truth)[0])
            if num_steps >= 200 and not min(decibels.values()) > 12:
                text = f"one side has not found the photograph: PSNR {decibels}"
                raise ResultsDifferError(text)

        measured = compare(
            lambda: attack.run(0, view).images,
            peer.run,
            work=num_steps,
            peer_name=f"{peer.title}, {num_cores()} threads",
            check=check,
        )
    words = ", ".join(f"{name} {value:.1f} dB" for name, value in decibels.items())
    return dataclasses.replace(measured, note=f"PSNR of the photograph: {words}")


def restarts(count: int, num_steps: int) -> Measurement:
    """Time restarts side by side against one after another."""
    view, _ = _view()
    many = attacks.gradient_inversion(
        num_steps=num_steps, restarts=count, smoothness=_SMOOTHNESS
    )
    single = dataclasses.replace(many, restarts=1)

    def check(ours: np.ndarray, theirs: list[np.ndarray]) -> None:
        # seeds of restarts differ, and so do their images
        shapes = [ours.shape, *(each.shape for each in theirs)]
        if len(set(shapes)) != 1 or not np.isfinite(ours).all():
            raise ResultsDifferError(f"images of the shapes {shapes}")

    return compare(
        lambda: many.run(0, view).images,
        lambda: [single.run(seed, view).images for seed in range(count)],
        work=count * num_steps,
        check=check,
    )


def least_squares(num_clients: int, num_rounds: int, dim: int) -> Measurement:
    """Sums in a file, estimates to a file.

    NumPy's pseudo-inverse on a tenth of the coordinates.
    """
    with tempfile.TemporaryDirectory() as name:
        history, sums = _sums_on_disk(pathlib.Path(name), num_clients, num_rounds, dim)
        path = pathlib.Path(name) / "estimates.npy"
        shape = (num_clients, dim)
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
        part = dim // 10

        def ours() -> np.ndarray:
            return np.asarray(attacks.least_squares(history, sums, out=out))

        def theirs() -> np.ndarray:
            inverse = np.linalg.pinv(history.astype(np.float64))
            return inverse @ sums[:, :part].astype(np.float64)

        def check(estimates: np.ndarray, other: np.ndarray) -> None:
            most = 1e-6 * np.abs(other).max()
            np.testing.assert_allclose(estimates[:, :part], other, atol=most)

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        measured = compare(
            ours,
            theirs,
            work=dim,
            peer_work=part,
            check=check,
        )
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    note = (
        f"floor: {2e-9 * num_clients * num_rounds * dim:.3g} GFLOP of products; the "
        "process grew "
        f"by {grown:.2f} GiB, file pages and the peer's included"
    )
    return dataclasses.replace(measured, note=note)


def _sums_on_disk(
    folder: pathlib.Path, num_clients: int, num_rounds: int, dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a participation history and the file of its sums of random updates."""
    selector = selection.uniform(num_clients, num_clients // 10)
    online = availability.independent(0.3)
    history = np.asarray(selection.rollout(0, selector, online, num_rounds))
    generator = np.random.default_rng(0)
    sums = np.lib.format.open_memmap(
        folder / "sums.npy", mode="w+", dtype=np.float32, shape=(num_rounds, dim)
    )
    # the updates never lie in memory all at once
    width = min(dim, 10_000)
    for first in range(0, dim, width):
        updates = generator.standard_normal((num_clients, width), np.float32)
        sums[:, first : first + width] = history.astype(np.float32) @ updates
    sums.flush()
    return history, sums
