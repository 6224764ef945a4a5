"""Model inversion: images that a model takes for the most typical of each class.

Fredrikson, Jha, Ristenpart, "Model inversion attacks that exploit confidence
information" (2015), Algorithm 1 (MI-Face), whose target is softmax regression on faces,
one class a person. CCESA (Fig. 2, B.2) runs it on models that an eavesdropper reads off
the line, plain and padded.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._gradient_inversion import total_variation
from mrsa_jax.attacks._view import (
    check_finite_values,
    check_not_negative,
    checked_parameters,
    checked_range,
    checked_view,
    logits_of,
)
from mrsa_jax.attacks.views import ModelView, WireView
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value


@by_value
class InvertedClasses(NamedTuple):
    """Images of a model's classes; leading axes as of the view's parameters.

    Attributes:
        images: f32 [..., classes, height, width, channels].
        confidence: f32 [..., classes], the model's chance that an image is of its
            class.
    """

    images: np.ndarray
    confidence: np.ndarray


@dataclasses.dataclass(frozen=True)
class ModelInversion:
    """The attack (built by `model_inversion`).

    Attributes:
        num_steps: Most steps of gradient descent.
        step_size: Of the descent.
        smoothness: Weight of the total variation.
        enough: Chance of the class at which the descent stops.
        pixel_range: Smallest and largest value of a pixel.
    """

    num_steps: int
    step_size: float
    smoothness: float
    enough: float
    pixel_range: tuple[float, float]

    @needs_values
    def run(self, key: Key[Array, ""] | int | None, view: ModelView) -> InvertedClasses:
        """Return an image of each class; nothing is drawn from `key`.

        Args:
            key: Not used: the descent starts from black.
            view: A model; its parameters may have leading axes, models attacked side by
                side.

        Raises:
            ConfigurationError: If the view is of another type, or its parameters do not
                fit.
        """
        del key
        seen = checked_view(view, ModelView)
        parameters = checked_parameters(seen)
        flat = parameters.reshape(-1, parameters.shape[-1])
        shape = tuple(seen.input_shape)
        images, confidence = _invert(self, seen.model, shape, seen.num_classes, flat)
        lead = (*parameters.shape[:-1], seen.num_classes)
        return InvertedClasses(
            np.asarray(images).reshape(*lead, *seen.input_shape),
            np.asarray(confidence).reshape(lead),
        )


def model_inversion(
    *,
    num_steps: int = 500,
    step_size: float = 0.1,
    smoothness: float = 0.0,
    enough: float = 0.99,
    pixel_range: tuple[float, float] = (0.0, 1.0),
) -> ModelInversion:
    """Return the attack that looks for the image of which a model is most certain.

    Args:
        num_steps: Most steps of gradient descent from black.
        step_size: Length of each step, as a share of the pixels' range: the gradient is
            scaled to a largest entry of 1, since how steep a trained model is varies by
            orders of magnitude.
        smoothness: Weight of the total variation, at least 0.
        enough: Chance in (0, 1] at which an image is kept as it is.
        pixel_range: Smallest and largest value of a pixel.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> model = mj.federated.logistic(2)
        >>> weights = jnp.tile(jnp.asarray([-1.0, 1.0]), 4)
        >>> bright_is_one = jnp.concatenate([jnp.zeros(2), weights])
        >>> view = mj.attacks.views.ModelView(model, bright_is_one, (2, 2, 1), 2)
        >>> images = mj.attacks.model_inversion(num_steps=20).run(None, view).images
        >>> (images.mean(axis=(1, 2, 3)) > 0.5).tolist()
        [False, True]

    Source: Fredrikson et al. (2015), Algorithm 1, without its auxiliary term.
    """
    check_not_negative(step_size=step_size, smoothness=smoothness)
    require(bool(0 < enough <= 1), "enough", "must lie in (0, 1]", enough)
    return ModelInversion(
        check_integer(num_steps, "num_steps", 1),
        float(step_size),
        float(smoothness),
        float(enough),
        checked_range(pixel_range),
    )


@needs_values
def read_models(view: WireView) -> Float32[np.ndarray, "clients dim"]:
    """Read each upload as a quantized model, as an eavesdropper does.

    Without pads that is the model up to its rounding; a padded upload is uniform in the
    ring, and what is read from it has nothing to do with the model.

    Args:
        view: Uploads of one round.

    Returns:
        f32 [n, d].

    Raises:
        ConfigurationError: If the view is of another type, or uploads are not in the
            ring.
    """
    seen = checked_view(view, WireView)
    uploads = np.asarray(seen.uploads)
    is_ring = uploads.ndim == 2 and np.issubdtype(uploads.dtype, np.integer)
    received = f"{uploads.dtype} {uploads.shape}"
    require(is_ring, "uploads", "must be integers [n, d]", received)
    require(
        bool(((uploads >= 0) & (uploads < seen.modulus)).all()),
        "uploads",
        f"must lie in [0, {seen.modulus})",
        "others",
    )
    models = [seen.quantizer.decode(on_device(upload), 1) for upload in uploads]
    return np.stack([np.asarray(model) for model in models])


@needs_values
def identified(images: Any, references: Any) -> Bool[np.ndarray, "*_"]:
    """Return for each image whether its own reference is the most similar one.

    By correlation of the pixels, which leaves brightness and contrast aside. An image
    without any contrast identifies nobody.

    Args:
        images: Real [..., n, height, width, channels], one of each class or person.
        references: Real [n, height, width, channels], e.g. the mean image of each.

    Returns:
        bool [..., n].

    Raises:
        ConfigurationError: If shapes do not fit or a pixel is not finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> people = np.eye(3).reshape(3, 3, 1, 1)
        >>> mj.attacks.identified(people[[0, 2, 2]] * 5 + 1, people).tolist()
        [True, False, True]
    """
    guesses, known = (np.asarray(each, np.float64) for each in (images, references))
    require(
        known.ndim == 4,
        "references",
        "must be [n, height, width, channels]",
        known.shape,
    )
    require(
        guesses.shape[-4:] == known.shape,
        "images",
        "must have one image for each reference",
        guesses.shape,
        known.shape,
    )
    check_finite_values(images=guesses, references=known)
    pixels = _standardised(guesses)
    nearest = (pixels @ _standardised(known).T).argmax(axis=-1)
    return (nearest == np.arange(len(known))) & pixels.any(axis=-1)


def _standardised(images: np.ndarray) -> np.ndarray:
    """Return each image's pixels as a vector of mean 0 and length 1.

    Zeros where all are equal.
    """
    flat = images.reshape(*images.shape[:-3], -1)
    centred = flat - flat.mean(axis=-1, keepdims=True)
    size = np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.divide(
        centred,
        size,
        out=np.zeros_like(centred),
        where=size > 1e-12,
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _invert(
    attack: ModelInversion,
    model: Any,
    input_shape: tuple[int, ...],
    num_classes: int,
    parameters: Float32[Array, "models dim"],
) -> tuple[Array, Array]:
    low, high = (jnp.float32(edge) for edge in attack.pixel_range)

    def invert(flat: Array, label: Array) -> tuple[Array, Array]:
        def cost(image: Array) -> tuple[Array, Array]:
            chance = jax.nn.softmax(logits_of(model, flat, image[None])[0])[label]
            rough = total_variation(image) if attack.smoothness else jnp.float32(0)
            # the logarithm has a slope also where the chance itself is flat near 0
            return jnp.float32(attack.smoothness) * rough - jnp.log(
                jnp.maximum(chance, jnp.float32(1e-30))
            ), chance

        def step(
            _: Array, state: tuple[Array, Array, Array]
        ) -> tuple[Array, Array, Array]:
            image, best, most = state
            slope, chance = jax.grad(cost, has_aux=True)(image)
            best = jnp.where(chance > most, image, best)
            most = jnp.where(chance > most, chance, most)
            # steepness varies by orders of magnitude between models: only the direction
            scale = jnp.max(jnp.abs(slope))
            unit = slope / jnp.where(scale > 0, scale, jnp.float32(1))
            moved = jnp.clip(
                image - jnp.float32(attack.step_size) * (high - low) * unit, low, high
            )
            is_enough = most >= jnp.float32(attack.enough)
            return jnp.where(is_enough, image, moved), best, most

        # black, as in MI-Face
        start = jnp.full(input_shape, low, jnp.float32)
        state = (start, start, jnp.float32(-1))
        last, best, most = jax.lax.fori_loop(0, attack.num_steps, step, state)
        chance = cost(last)[1]
        return jnp.where(chance > most, last, best), jnp.maximum(chance, most)

    labels = jnp.arange(num_classes, dtype=jnp.int32)
    of_classes = jax.vmap(invert, in_axes=(None, 0))
    return jax.lax.map(lambda flat: of_classes(flat, labels), parameters)
