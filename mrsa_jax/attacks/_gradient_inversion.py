"""Gradient inversion: images whose gradient points where an update does.

Geiping, Bauermeister, Dröge, Moeller, "Inverting Gradients" (2020): cosine distance,
total variation, Adam on the gradient's signs. Zhu, Liu, Han, "Deep Leakage from
Gradients" (2019): squared distance and L-BFGS. Multi-RoundSecAgg applies the first to
what least squares recovers (Fig. 1, 10).

All restarts of all updates descend side by side in one compiled loop, shared among the
devices.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32, Int32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.mesh import spread
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.streams import as_key
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import (
    check_not_negative,
    checked_parameters,
    checked_range,
    checked_view,
    logits_of,
)
from mrsa_jax.attacks.views import UpdateView
from mrsa_jax.federated import unflatten
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value

_STEPS_AT_ONCE = 100  # between two reports
_DROPS, _DROP = (3 / 8, 5 / 8, 7 / 8), 0.1  # of the step size, as in Geiping et al.


@by_value
class InvertedImages(NamedTuple):
    """Images behind a view's updates; leading axes as of the updates.

    Attributes:
        images: f32 [..., m, height, width, channels], of the restart with the least
            distance.
        labels: int32 [..., m], known or inferred.
        distance: f32 [..., restarts], how far each restart's gradient is from the
            update.
        best: int [...], the restart that was taken.
    """

    images: np.ndarray
    labels: np.ndarray
    distance: np.ndarray
    best: np.ndarray


@dataclasses.dataclass(frozen=True)
class GradientInversion:
    """The attack (built by `gradient_inversion`).

    Attributes:
        method: `"cosine"` or `"euclidean"`.
        num_steps: Steps of the optimizer.
        restarts: Random starts of each update.
        step_size: Of signed Adam.
        smoothness: Weight of the total variation.
        pixel_range: Smallest and largest value of a pixel.
    """

    cites = "gradient inversion: geiping2020inverting zhu2019deep zhao2020idlg"

    method: Literal["cosine", "euclidean"]
    num_steps: int
    restarts: int
    step_size: float
    smoothness: float
    pixel_range: tuple[float, float]

    @needs_values
    def run(
        self,
        key: Key[Array, ""] | int,
        view: UpdateView,
        progress: Callable[[int, int], None] | None = None,
    ) -> InvertedImages:
        """Look for the images behind each update of a view.

        Args:
            key: JAX key or seed of the starts.
            view: Model, updates, how many images, their labels if known.
            progress: Called with (steps done, steps).

        Returns:
            The images of each update's best restart. Their order within an update is
            arbitrary among equal labels (`matched_images`).

        Raises:
            ConfigurationError: If the view is of another type or its shapes do not fit,
                an update is zero (it points nowhere) or not finite, or labels can
                neither be known nor inferred.
        """
        seen = checked_view(view, UpdateView)
        updates = _checked(seen)
        lead = updates.shape[:-1]
        labels = (
            inferred_labels(seen) if seen.labels is None else on_device(seen.labels)
        )
        flat = labels.reshape(-1, seen.num_images).astype(jnp.int32)
        shape = (len(flat) * self.restarts, seen.num_images, *seen.input_shape)
        low, high = self.pixel_range
        start = jax.random.uniform(as_key(key), shape, jnp.float32, low, high)
        problem = _Problem(seen.model, self)
        state, mesh = problem.start(start), _shared_mesh(shape[0])
        if mesh is not None:  # where the steps leave it: one program does all of them
            state = jax.device_put(
                state, NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
            )
        targets = -updates.reshape(-1, updates.shape[-1])
        of_update = jnp.repeat(jnp.arange(len(flat), dtype=jnp.int32), self.restarts)
        # a step of SGD goes against the gradient
        seen_by_all = (seen.parameters, targets, flat)
        done = 0
        while done < self.num_steps:
            steps = min(_STEPS_AT_ONCE, self.num_steps - done)
            state = _descend(
                problem, seen_by_all, of_update, state, np.int32(steps), mesh
            )
            done += steps
            if progress is not None:
                jax.block_until_ready(state.images)
                progress(done, self.num_steps)
        distance = np.asarray(state.least).reshape(len(flat), self.restarts)
        # restarts that ran away have no finite distance
        best = np.argmin(np.where(np.isfinite(distance), distance, np.inf), axis=1)
        images = np.asarray(state.nearest)[np.arange(len(best)) * self.restarts + best]
        return InvertedImages(
            images.reshape(*lead, *images.shape[1:]),
            np.asarray(flat).reshape(*lead, seen.num_images),
            distance.reshape(*lead, self.restarts),
            best.reshape(lead),
        )


def gradient_inversion(
    method: Literal["cosine", "euclidean"] = "cosine",
    *,
    num_steps: int = 2400,
    restarts: int = 1,
    step_size: float = 0.1,
    smoothness: float = 1e-5,
    pixel_range: tuple[float, float] = (0.0, 1.0),
) -> GradientInversion:
    """Return the attack that looks for images whose gradient is the update.

    Args:
        method: `"cosine"` (Geiping et al.: the angle to the update, Adam on signs,
            pixels kept in their range) or `"euclidean"` (Zhu et al.: squared distance,
            L-BFGS, of a gradient that is known to scale).
        num_steps: Steps of the optimizer.
        restarts: Random starts of each update, side by side.
        step_size: Of signed Adam, a tenth after each of 3/8, 5/8 and 7/8 of the steps;
            L-BFGS chooses its own.
        smoothness: Weight of the total variation, at least 0.
        pixel_range: Smallest and largest value of a pixel.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.attacks.gradient_inversion(restarts=8).restarts
        8
    """
    require(method in _METHODS, "method", f"must be one of {tuple(_METHODS)}", method)
    check_not_negative(step_size=step_size, smoothness=smoothness)
    return GradientInversion(
        method,
        check_integer(num_steps, "num_steps", 1),
        check_integer(restarts, "restarts", 1),
        float(step_size),
        float(smoothness),
        checked_range(pixel_range),
    )


def total_variation(
    images: Float[Array, "*lead height width channels"],
) -> Float[Array, "*lead"]:
    """Return each image's mean absolute difference of neighbours, down plus across.

    Examples:
        >>> stripes = jnp.tile(jnp.asarray([0.0, 1.0]), (4, 2))[..., None]
        >>> float(total_variation(stripes))
        1.0
    """
    down = jnp.abs(images[..., 1:, :, :] - images[..., :-1, :, :])
    across = jnp.abs(images[..., :, 1:, :] - images[..., :, :-1, :])
    axes = (-3, -2, -1)
    return jnp.mean(down, axis=axes) + jnp.mean(across, axis=axes)


@needs_values
def inferred_labels(view: UpdateView) -> Int32[Array, "*_"]:
    """Infer the labels behind an update from the last layer's bias.

    The gradient of that bias is the mean of (predicted chance - 1 if it is the label)
    over the images, so m times (predicted - gradient) counts them. What the model
    predicts for the images is taken from what it predicts for noise, which is close for
    a model that has learnt little; the scale of the update is taken from the gradient's
    positive part.

    Args:
        view: Model and updates; its labels are not looked at.

    Returns:
        int32 [..., m], ascending.

    Raises:
        ConfigurationError: If the model has not one bias with an entry for each class.

    Source: Zhao, Mopuri, Bilen, "iDLG" (2020), for one image; the count of several as
    in Wainakh et al., "User-level label leakage from gradients" (2022).
    """
    updates = _checked(view)
    each = -updates.reshape(-1, updates.shape[-1])
    gradient = jax.vmap(lambda flat: _last_bias(view, flat))(each)
    noise = jax.random.uniform(jax.random.key(0), (64, *view.input_shape), jnp.float32)
    answers = jax.nn.softmax(logits_of(view.model, view.parameters, noise))
    chance = jnp.mean(answers, axis=0)
    rows = []
    mean = np.asarray(chance, np.float64)
    for slopes in np.asarray(gradient, np.float64):
        # entries of absent classes are their mean chances: that gives the learning rate
        absent = slopes > 0
        scale = np.abs(slopes).max()
        if absent.any():
            scale = slopes[absent].sum() / mean[absent].sum()
        wanted = view.num_images * (mean - slopes / max(scale, 1e-300))
        counts = np.floor(np.maximum(wanted, 0)).astype(int)
        # round the wanted counts so that they add up, by the largest remainders
        while counts.sum() > view.num_images:
            counts[np.argmax(np.where(counts > 0, counts - wanted, -np.inf))] -= 1
        while counts.sum() < view.num_images:
            counts[np.argmax(wanted - counts)] += 1
        rows.append(np.repeat(np.arange(view.num_classes), counts))
    return on_device(np.stack(rows), jnp.int32).reshape(
        *updates.shape[:-1], view.num_images
    )


def _last_bias(view: UpdateView, flat: Array) -> Array:
    leaves = jax.tree.leaves(unflatten(view.model, view.input_shape, flat))
    biases = [leaf for leaf in leaves if leaf.shape == (view.num_classes,)]
    require(
        len(biases) == 1,
        "model",
        "must have one bias with an entry for each class, or `labels` be known",
        f"{len(biases)} of {view.num_classes} entries",
    )
    return biases[0]


def _checked(view: UpdateView) -> Float32[Array, "... dim"]:
    """Return the updates after checking the view."""
    check_integer(view.num_images, "num_images", 1)
    require(
        len(view.input_shape) == 3,
        "input_shape",
        "must be an image's",
        view.input_shape,
    )
    checked_parameters(view)
    updates = checked_parameters(view, "update")
    is_pointing = bool(np.asarray(updates).any(axis=-1).all())
    require(
        is_pointing,
        "update",
        "must not be zero: it points nowhere",
        "a zero update",
    )
    if view.labels is not None:
        labels = np.asarray(view.labels)
        shape = (*updates.shape[:-1], view.num_images)
        require(
            labels.shape == shape,
            "labels",
            "must be one for each image",
            labels.shape,
            shape,
        )
        require(
            bool(((labels >= 0) & (labels < view.num_classes)).all()),
            "labels",
            f"must lie in [0, {view.num_classes})",
            labels.tolist(),
        )
    return updates


class _State(NamedTuple):
    """Of all restarts of all updates [V * R, ...]."""

    images: Array
    optimizer: Any
    nearest: Array  # the best images so far
    least: Array  # and their distance


@dataclasses.dataclass(frozen=True)
class _Problem:
    """The static part of the descent: the model and the attack."""

    model: nn.Module
    attack: GradientInversion

    @property
    def method(self) -> _Method:
        return _METHODS[self.attack.method]

    @functools.partial(one_program, static_argnums=0)
    def start(self, images: Array) -> _State:
        with jax.numpy_dtype_promotion("standard"):
            states = jax.vmap(self.method.optimizer(self.attack).init)(images)
        infinite = jnp.full(images.shape[0], jnp.inf, jnp.float32)
        state = _State(images, states, images, infinite)
        # a weak type would not survive the first steps, and the next ones be another
        # program
        return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), state)

    def objective(
        self,
        parameters: Array,
        target: Array,
        labels: Array,
        images: Array,
    ) -> Any:
        """Return distance plus roughness of the images, and the distance alone."""

        def loss(flat: Array) -> Array:
            logits = logits_of(self.model, flat, images)
            return jnp.mean(
                optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            )

        distance = self.method.distance(jax.grad(loss)(parameters), target)
        rough = jnp.mean(total_variation(images))
        return distance + jnp.float32(self.attack.smoothness) * rough, distance

    def moved(
        self,
        parameters: Array,
        target: Array,
        labels: Array,
        restart: _State,
    ) -> _State:
        """Take one restart's step."""
        images, optimizer, nearest, least = restart
        at = functools.partial(self.objective, parameters, target, labels)
        (value, distance), slope = jax.value_and_grad(at, has_aux=True)(images)
        is_nearer = distance < least
        nearest = jnp.where(is_nearer, images, nearest)
        least = jnp.where(is_nearer, distance, least)
        # optax relies on promotions that a user may have forbidden
        with jax.numpy_dtype_promotion("standard"):
            more = {"value": value, "grad": slope, "value_fn": lambda x: at(x)[0]}
            change, optimizer = self.method.optimizer(self.attack).update(
                slope, optimizer, images, **more
            )
            images = optax.apply_updates(images, change)
        if self.method.is_kept_in_range:
            images = jnp.clip(images, *map(jnp.float32, self.attack.pixel_range))
        return _State(images, optimizer, nearest, least)


def _shared_mesh(num_rows: int) -> Mesh | None:
    """Return the devices that the rows can be dealt out to evenly, or None for one."""
    devices = jax.local_devices()
    count = math.gcd(num_rows, len(devices))
    return Mesh(np.asarray(devices[:count]), ("restarts",)) if count > 1 else None


@functools.partial(jax.jit, static_argnames=("problem", "mesh"))
def _descend(
    problem: _Problem,
    seen_by_all: tuple[Array, Array, Array],
    of_update: Int32[Array, " rows"],
    state: _State,
    num_steps: Int32[Array, ""],
    mesh: Mesh | None,
) -> _State:
    """Take steps with all restarts of all updates side by side.

    Args:
        problem: Model and attack.
        seen_by_all: Parameters [d], targets [V, d], labels [V, m].
        of_update: Which update each row of the state is for.
        state: Of all rows.
        num_steps: How many; a number of the program, so that the last few take no other
            one.
        mesh: Devices that the rows are dealt out to.
    """

    def walk(
        num_steps: Array,
        parameters: Array,
        targets: Array,
        labels: Array,
        of_update: Array,
        state: _State,
    ) -> _State:
        move = jax.vmap(functools.partial(problem.moved, parameters))
        of_rows = targets[of_update], labels[of_update]

        def step(_: Array, state: _State) -> _State:
            return move(*of_rows, state)

        return jax.lax.fori_loop(jnp.int32(0), num_steps, step, state)

    if mesh is not None:
        walk = spread(walk, mesh, num_shared=1 + len(seen_by_all), num_sharded=2)
    return walk(num_steps, *seen_by_all, of_update, state)


class _Method(NamedTuple):
    """A way to look for images."""

    distance: Callable[[Array, Array], Array]  # of a gradient from the target
    optimizer: Callable[[GradientInversion], Any]
    is_kept_in_range: bool  # whether each step ends in the pixels' range


def _angle(gradient: Array, target: Array) -> Array:
    """Return 1 minus the cosine."""
    tiny = jnp.float32(1e-30)
    size = jnp.sqrt(jnp.sum(jnp.square(gradient)) * jnp.sum(jnp.square(target)) + tiny)
    return jnp.float32(1) - jnp.vdot(gradient, target) / size


def _signed_adam(attack: GradientInversion) -> Any:
    drops = {int(share * attack.num_steps): _DROP for share in _DROPS}
    # Adam sees signs alone, as the scale of a gradient means nothing here
    signs = optax.stateless(lambda slope, _: jnp.sign(slope))
    adam = optax.adam(optax.piecewise_constant_schedule(attack.step_size, drops))
    return optax.with_extra_args_support(optax.chain(signs, adam))


def _squared(gradient: Array, target: Array) -> Array:
    return jnp.sum(jnp.square(gradient - target))


_METHODS: dict[str, _Method] = {
    "cosine": _Method(_angle, _signed_adam, is_kept_in_range=True),
    "euclidean": _Method(_squared, lambda _: optax.lbfgs(), is_kept_in_range=False),
}
