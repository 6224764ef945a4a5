"""Membership inference: was a sample among those that a model was trained on?

Three attacks, by what they ask of a model: a threshold on the loss (Yeom et al. 2018);
shadow models and a classifier of their outputs (Shokri, Stronati, Song, Shmatikov 2017,
the attack of CCESA's Table 3); the likelihood ratio of each sample's own confidence
under shadow models that saw it and that did not (Carlini, Chien, Nasr, Song, Terzis,
Tramer 2022, "LiRA"), which is strongest where many shadow models saw each sample.

Shadow models are trained as clients are: from the global model that everybody has, all
of them as one cohort.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Float64, Int32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import samples_at_once
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.streams import as_key
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import checked_parameters, checked_view, logits_of
from mrsa_jax.attacks.views import MembershipView
from mrsa_jax.data import ClientData
from mrsa_jax.federated import LocalTrainer, client_updates
from mrsa_watch._base.errors import check_integer, needed, require
from mrsa_watch._base.values import by_value

_LEAST_DEVIATION = 1e-3  # of a confidence over shadow models, in units of its logit


@by_value
class MembershipScores(NamedTuple):
    """A membership attack's findings on each candidate.

    Leading axes as of the view's parameters.

    Attributes:
        scores: float64 [..., m], higher for samples taken for members.
        threshold: From which score on a candidate is called a member; set by what the
            adversary knows, not by the truth.
    """

    scores: np.ndarray
    threshold: float

    @property
    def called(self) -> Bool[np.ndarray, "*_"]:
        """The candidates that are called members."""
        return self.scores >= self.threshold


@dataclasses.dataclass(frozen=True)
@by_value
class Membership:
    """The attack (built by `membership`).

    Attributes:
        method: `"loss"`, `"shadow"` or `"likelihood_ratio"`.
        trainer: How clients train, which the adversary knows.
        num_shadows: Shadow models.
        shadow_size: Samples that each is trained on.
    """

    cites = "membership inference:"  # papers by its method

    method: Literal["loss", "shadow", "likelihood_ratio"]
    trainer: LocalTrainer
    num_shadows: int
    shadow_size: int

    @needs_values
    def run(self, key: Key[Array, ""] | int, view: MembershipView) -> MembershipScores:
        """Score every candidate of a view.

        Args:
            key: JAX key or seed, for the shadow models' samples and training.
            view: Target models, candidates, and samples of the adversary's own.

        Raises:
            ConfigurationError: If the view is of another type, shapes do not fit, or
                the adversary has too few separate samples.
        """
        seen = checked_view(view, MembershipView)
        targets = _checked(seen)
        shadows = self._shadows(as_key(key), seen)
        flat = targets.reshape(-1, targets.shape[-1])
        scores, threshold = _METHODS[self.method](seen, flat, shadows)
        return MembershipScores(scores.reshape(*targets.shape[:-1], -1), threshold)

    def _shadows(self, key: Array, view: MembershipView) -> _Shadows:
        """Train shadow models, each on its own draw of samples."""
        # of this method about half of the shadow models see a candidate
        candidates = len(view.labels) if self.method == "likelihood_ratio" else 0
        seen = min(candidates // 2, self.shadow_size)
        rest, count = self.shadow_size - seen, len(view.own_labels)
        rule = (
            "must leave samples of the adversary's own that a shadow model did not see"
        )
        received = self.shadow_size, f"{count} own samples"
        require(rest < count, "shadow_size", rule, *received)
        inputs, labels = (
            jnp.concatenate([on_device(some)[:candidates], on_device(others)])
            for some, others in (
                (view.inputs, view.own_inputs),
                (view.labels, view.own_labels),
            )
        )
        draw_key, train_key = jax.random.split(key)
        pools = (candidates, seen), (count, rest)
        indices = _drawn(draw_key, self.num_shadows, *pools)
        clients = ClientData(
            inputs=inputs.astype(jnp.float32),
            labels=labels.astype(jnp.int32),
            indices=indices,
            sizes=jnp.full(self.num_shadows, self.shadow_size, jnp.int32),
            num_classes=view.num_classes,
        )
        # shadow models begin where the clients did
        start = on_device(view.start, jnp.float32)
        updates = client_updates(train_key, view.model, start, clients, self.trainer)
        is_member = np.zeros((self.num_shadows, len(labels)), np.bool_)
        np.put_along_axis(is_member, np.asarray(indices), True, axis=1)
        return _Shadows(start[None, :] + updates, clients, is_member)


@functools.partial(one_program, static_argnums=(1, 2, 3))
def _drawn(
    key: Array,
    models: int,
    candidates: tuple[int, int],
    rest: tuple[int, int],
) -> Array:
    """Draw some candidates for each model, then some of the adversary's samples.

    Args:
        key: Randomness.
        models: How many.
        candidates: Number of candidates, and how many each model sees.
        rest: The same of the adversary's samples.
    """

    def draw(model_key: Array) -> Array:
        first, second = jax.random.split(model_key)
        some = jax.random.permutation(first, candidates[0])[: candidates[1]]
        more = jax.random.permutation(second, rest[0])[: rest[1]]
        more += jnp.int32(candidates[0])  # they follow in the pool
        return jnp.concatenate([some, more]).astype(jnp.int32)

    return jax.vmap(draw)(jax.random.split(key, models))


class _Shadows(NamedTuple):
    """Shadow models [S, d], the pool of their samples, and the members of each."""

    parameters: Array
    clients: ClientData
    is_member: np.ndarray


def membership(
    method: Literal["loss", "shadow", "likelihood_ratio"],
    trainer: LocalTrainer,
    *,
    num_shadows: int = 16,
    shadow_size: int,
) -> Membership:
    """Return a membership attack.

    Args:
        method: `"loss"` (candidates whose loss is below a threshold that is best on the
            shadow models), `"shadow"` (a classifier of the sorted chances, the loss and
            whether the answer is right, trained on the shadow models' answers) or
            `"likelihood_ratio"` (each candidate's confidence against normal
            distributions fitted to shadow models with and without it).
        trainer: Local training, as the clients do it.
        num_shadows: Shadow models, at least 2; at least 16 for the likelihood ratio to
            find many.
        shadow_size: Samples of each; as many as the target's client has, to be like it.

    Raises:
        ConfigurationError: If an argument is out of range, or scikit-learn is missing,
            which the classifier needs.

    Examples:
        >>> import mrsa_jax as mj
        >>> model = mj.federated.logistic(10)
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=10)
        >>> mj.attacks.membership("loss", trainer, shadow_size=50).num_shadows
        16
    """
    require(method in _METHODS, "method", f"must be one of {tuple(_METHODS)}", method)
    if method == "shadow":
        _classifiers()  # before anything is trained
    return Membership(
        method,
        trainer,
        check_integer(num_shadows, "num_shadows", 2),
        check_integer(shadow_size, "shadow_size", 1),
    )


@needs_values
def true_logits(
    model: Any,
    parameters: Float32[Array, "models dim"],
    inputs: Float32[Array, "samples ..."],
    labels: Int32[Array, " samples"],
) -> Float64[np.ndarray, "models samples"]:
    """Return log(p / (1 - p)) of each model's chance p of each sample's label.

    Stable where p is near 0 or 1: the label's logit minus the logarithm of the others'
    sum. It is a decreasing function of the loss, and close to normal over models
    (Carlini et al., Fig. 4).

    Examples:
        >>> import mrsa_jax as mj
        >>> zeros = jnp.zeros((1, 15), jnp.float32)
        >>> images = jnp.ones((1, 2, 2, 1), jnp.float32)
        >>> model, labels = mj.federated.logistic(3), jnp.asarray([2], jnp.int32)
        >>> true_logits(model, zeros, images, labels).round(4).tolist()
        [[-0.6931]]
    """
    parts = [
        _true_logits(model, parameters, inputs[some], labels[some])
        for some in _pieces(inputs)
    ]
    return np.concatenate(parts, axis=1, dtype=np.float64)


def _pieces(inputs: Array) -> list[slice]:
    step = samples_at_once("questions", inputs.shape[1:])
    return [slice(start, start + step) for start in range(0, len(inputs), step)]


@functools.partial(jax.jit, static_argnums=0)
def _logits(model: Any, parameters: Array, inputs: Array) -> Array:
    return jax.lax.map(lambda flat: logits_of(model, flat, inputs), parameters)


@functools.partial(jax.jit, static_argnums=0)
def _true_logits(model: Any, parameters: Array, inputs: Array, labels: Array) -> Array:
    logits = _logits(model, parameters, inputs)
    is_label = jax.nn.one_hot(labels, logits.shape[-1], dtype=jnp.bool_)[None]
    # log(p / (1 - p)): the label's logit less the log of the others' exponentials
    true = jnp.sum(jnp.where(is_label, logits, jnp.float32(0)), axis=-1)
    return true - jax.nn.logsumexp(jnp.where(is_label, -jnp.inf, logits), axis=-1)


def _checked(view: MembershipView) -> Array:
    targets = checked_parameters(view)
    dim = targets.shape[-1]
    start = np.shape(view.start)
    require(start == (dim,), "start", f"must have {dim} entries", start)
    for name, labels in (("inputs", view.labels), ("own_inputs", view.own_labels)):
        images = getattr(view, name)
        shape = (len(labels), *view.input_shape)
        require(
            np.shape(images) == shape,
            name,
            "must be one for each label",
            images.shape,
            shape,
        )
        require(len(labels) > 0, name, "must not be empty", shape)
    return targets


def _by_loss(
    view: MembershipView,
    targets: Array,
    shadows: _Shadows,
) -> tuple[np.ndarray, float]:
    """Score by the true label's logit; the threshold is the best on shadow models."""
    pool = shadows.clients
    known = true_logits(view.model, shadows.parameters, pool.inputs, pool.labels)
    values, members = known.ravel(), shadows.is_member.ravel()
    order = np.argsort(-values, kind="stable")
    # members and others count alike, however many there are of each
    weight = np.where(members[order], 1 / members.sum(), -1 / (~members).sum())
    threshold = float(values[order][int(np.argmax(np.cumsum(weight)))])
    labels = on_device(view.labels, jnp.int32)
    return true_logits(view.model, targets, on_device(view.inputs), labels), threshold


def _by_shadow(
    view: MembershipView,
    targets: Array,
    shadows: _Shadows,
) -> tuple[np.ndarray, float]:
    """Score by a classifier of shadow models' answers to samples seen and not seen."""
    linear_model, pipeline, preprocessing = _classifiers()
    pool = shadows.clients
    answers = _features(view.model, shadows.parameters, pool.inputs, pool.labels)
    classifier = pipeline.make_pipeline(
        preprocessing.StandardScaler(),
        linear_model.LogisticRegression(class_weight="balanced", max_iter=1000),
    )
    classifier.fit(_flat(answers), shadows.is_member.ravel())
    labels = on_device(view.labels, jnp.int32)
    features = _features(view.model, targets, on_device(view.inputs), labels)
    scores = classifier.decision_function(_flat(features))
    return scores.reshape(features.shape[:2]), 0.0


def _flat(features: np.ndarray) -> np.ndarray:
    return features.reshape(-1, features.shape[-1])


def _classifiers() -> tuple[Any, ...]:
    rule = "`method` must not be shadow where scikit-learn is missing"
    names = ("linear_model", "pipeline", "preprocessing")
    return tuple(needed(f"sklearn.{name}", "scikit-learn", rule) for name in names)


def _features(
    model: Any,
    parameters: Array,
    inputs: Array,
    labels: Array,
) -> np.ndarray:
    """Return the answers' [models, samples, features]: sorted, right, of the label."""
    parts = [_logits(model, parameters, inputs[some]) for some in _pieces(inputs)]
    logits = np.concatenate(parts, axis=1, dtype=np.float64)
    # the largest logit taken off, or the exponential overflows
    spread = logits - logits.max(axis=-1, keepdims=True)
    log_chance = spread - np.log(np.exp(spread).sum(axis=-1, keepdims=True))
    order = np.sort(log_chance, axis=-1)[..., ::-1]
    is_right = logits.argmax(axis=-1) == np.asarray(labels)
    true = true_logits(model, parameters, inputs, labels)
    last = np.stack([is_right, np.clip(true, -30.0, 30.0)], axis=-1)
    return np.concatenate([np.maximum(order, -30.0), last], axis=-1)


def _by_likelihood_ratio(
    view: MembershipView,
    targets: Array,
    shadows: _Shadows,
) -> tuple[np.ndarray, float]:
    """Score by the log ratio of two normal densities, each fitted to shadow models.

    The deviations are those of all candidates together, which for few shadow models is
    better than each candidate's own (Carlini et al., Section VI-C).
    """
    inputs, labels = on_device(view.inputs), on_device(view.labels, jnp.int32)
    known = true_logits(view.model, shadows.parameters, inputs, labels)
    is_in = shadows.is_member[:, : len(labels)]
    seen = true_logits(view.model, targets, inputs, labels)
    scores = np.zeros_like(seen)
    for side, sign in ((is_in, 1.0), (~is_in, -1.0)):
        # shadow models of this side, for each candidate
        count = side.sum(axis=0)
        total = np.where(side, known, 0.0).sum(axis=0)
        overall = known[side].mean() if side.any() else known.mean()
        mean = np.where(count > 0, total / np.maximum(count, 1), overall)
        spread = np.where(side, np.square(known - mean[None, :]), 0.0).sum()
        freedom = max(int(np.maximum(count - 1, 0).sum()), 1)
        deviation = max(float(np.sqrt(spread / freedom)), _LEAST_DEVIATION)
        scores += sign * (
            -0.5 * np.square((seen - mean[None, :]) / deviation) - np.log(deviation)
        )
    return scores, 0.0


_METHODS = {
    "loss": _by_loss,
    "shadow": _by_shadow,
    "likelihood_ratio": _by_likelihood_ratio,
}
