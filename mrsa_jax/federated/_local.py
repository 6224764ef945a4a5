"""Local training by minibatch SGD, and schedules of its learning rate.

Clients are ragged: each takes the number of steps that its own size asks for, its last
minibatch of an epoch is a mean over the samples that it has, and a padded sample never
touches a gradient. Source: McMahan et al., FederatedAveraging; Multi-RoundSecAgg,
Section 3.1 (E local epochs).
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float32, Int32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.factories import also_traced, nan_unless, unless_traced
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.streams import Seed, as_key
from mrsa_jax._core.traced import is_traced
from mrsa_jax.data import ClientData
from mrsa_jax.federated._models import check_model
from mrsa_jax.federated._steps import Loss, checked_loss, loss_of, trained_locally
from mrsa_jax.federated.programs import LocalTrainer, in_buckets, trained_cohort
from mrsa_watch._base.errors import (
    check_count,
    check_number,
    check_size,
    require,
    require_methods,
)

# A schedule is what optax calls one, a function from an integer to a number; here it
# gives the factor on the trainer's learning rate in round j, skipped rounds counted.
RateSchedule = Callable[[int], Any]

_FACTOR = "must be a finite number from 0"


@dataclasses.dataclass(frozen=True)
class Decay:
    """The factor of a learning rate that falls at fixed rounds (`decay_at` builds it).

    Attributes:
        rounds: Ascending; each from which on the rate is lower.
        factor: By how much.
    """

    rounds: tuple[int, ...]
    factor: float

    def __call__(self, round_index: int) -> float:
        """Return the factor in a round."""
        return self.factor ** sum(round_index >= first for first in self.rounds)


def decay_at(rounds: int | Sequence[int], factor: float) -> Decay:
    """Return a schedule that multiplies the learning rate by `factor` at some rounds.

    Choose it over `optax.piecewise_constant_schedule`, which gives the same factors, if
    runs are stored or compared: it is a plain value without closures.

    Args:
        rounds: Rounds (from 0, skipped rounds counted) at which the rate falls, such as
            (400, 800).
        factor: Positive and finite.

    Returns:
        A function from the round's index to the factor.

    Raises:
        ConfigurationError: If a round is no integer from 0, or the factor is not
            positive.

    Examples:
        >>> import mrsa_jax as mj
        >>> papers = mj.federated.decay_at((400, 800), 0.4)
        >>> papers(399), papers(400), round(papers(800), 6)
        (1.0, 0.4, 0.16)

    Source: Multi-RoundSecAgg, Section 5 (CIFAR: 0.4 times the rate "every 400 and 800
    rounds", read as at 400 and at 800).
    """
    at: tuple[Any, ...] = (rounds,) if np.ndim(rounds) == 0 else tuple(rounds)  # type: ignore[arg-type]
    for round_ in at:
        check_count(round_, "rounds", "must be integers from 0", 0)
    check_number(factor, "factor", _FACTOR, 0.0)
    require(factor > 0, "factor", "must be positive", factor)
    return Decay(tuple(sorted(int(round_) for round_ in at)), float(factor))


def factors_of(schedule: RateSchedule | None, rounds: np.ndarray) -> np.ndarray | None:
    """Return the factors f32 of these rounds.

    Raise before any work where one is no factor.
    """
    if schedule is None:
        return None
    require(
        callable(schedule), "rate_schedule", "must be a function of the round", schedule
    )
    factors = [schedule(int(index)) for index in rounds]
    checked = [
        check_number(factor, f"rate_schedule({index})", _FACTOR, 0.0)
        for index, factor in zip(rounds, factors, strict=True)
    ]
    return np.asarray(checked, np.float32)


@pytree
class LocalSGD:
    """Minibatch SGD over a client's own samples; see `local_sgd`.

    Attributes:
        learning_rate: f32 scalar.
        momentum: f32 scalar, or None for plain SGD.
        weight_decay: f32 scalar, or None for none.
        proximal: f32 scalar mu of FedProx, or None for none.
        clip_norm: f32 scalar, the largest length of an update, or None for any.
        num_steps: int32 scalar, steps per round, or None for whole epochs.
        model: Flax module (static).
        batch_size: Samples a step (static).
        num_epochs: Passes over the client's samples, or None with `num_steps` (static).
        compute_dtype: Of the forward and backward pass, "bfloat16", "tf32" or None for
            float32 (static).
        loss: Of each sample, from outputs and labels; None for cross-entropy (static).
    """

    cites = "federated averaging: mcmahan2017communication"

    learning_rate: Any  # arrays, but while JAX rebuilds the pytree, anything
    momentum: Any
    weight_decay: Any
    proximal: Any
    clip_norm: Any
    num_steps: Any
    model: nn.Module = static()
    batch_size: int = static()
    num_epochs: int | None = static()
    compute_dtype: str | None = static()
    loss: Loss | None = static(default=None)

    def scaled(self, factor: ArrayLike) -> LocalSGD:
        """Return the same trainer with `factor` times its learning rate.

        Args:
            factor: Scalar, e.g. what a schedule gives for the round; it is traced, so
                another factor compiles nothing. A Python number must be finite and not
                negative.

        Returns:
            The trainer.

        Raises:
            ConfigurationError: If the factor is a number that is negative or not
                finite.

        Examples:
            >>> import mrsa_jax as mj
            >>> model = mj.federated.logistic(10)
            >>> trainer = mj.federated.local_sgd(model, 0.5, batch_size=10)
            >>> float(trainer.scaled(0.5).learning_rate)
            0.25
        """
        if isinstance(factor, numbers.Real):
            check_number(factor, "factor")
            require(bool(factor >= 0), "factor", "must not be negative", factor)
        rate = self.learning_rate * on_device(factor, jnp.float32)
        return dataclasses.replace(self, learning_rate=rate)

    def update(
        self,
        key: Key[Array, ""],
        parameters: Float32[Array, " dim"],
        inputs: Float32[Array, "samples ..."],
        labels: Array,
        size: Int32[Array, ""],
    ) -> Float32[Array, " dim"]:
        """Train on the first `size` samples; return new minus old parameters.

        Args:
            key: Shuffles the samples, anew in each epoch.
            parameters: f32 [d], where training starts.
            inputs: f32 [m, ...]; what lies behind the first `size` is never used.
            labels: int32 [m]; with a `loss` of one's own, [m, ...].
            size: int32, from 0 (a zero update) to m.

        Returns:
            f32 [d].
        """
        everything = jnp.arange(inputs.shape[0], dtype=jnp.int32)
        return self.update_from_pool(key, parameters, inputs, labels, everything, size)

    def update_from_pool(
        self,
        key: Key[Array, ""],
        parameters: Float32[Array, " dim"],
        inputs: Float32[Array, "pool ..."],
        labels: Array,
        indices: Int32[Array, " samples"],
        size: Int32[Array, ""],
    ) -> Float32[Array, " dim"]:
        """Train on the samples at the first `size` of `indices`, as `update` would.

        Each minibatch is taken from the pool when it is needed, so that no client's
        samples are copied.

        Args:
            key: As for `update`.
            parameters: f32 [d].
            inputs: f32 [M, ...], all clients' samples.
            labels: int32 [M], likewise.
            indices: int32 [m]; what lies behind the first `size` is never used.
            size: int32, from 0 to m.

        Returns:
            f32 [d].
        """

        def begun(start: Any) -> Any:
            return (
                None if self.momentum is None else jax.tree.map(jnp.zeros_like, start)
            )

        samples = inputs, labels, indices, size
        moved = trained_locally(self, key, parameters, samples, begun, self._moved)[0]
        if self.clip_norm is None:
            return moved
        length = jnp.sqrt(jnp.sum(moved * moved))
        # The maximum leaves short updates as they are, and divides by no zero.
        return moved * (self.clip_norm / jnp.maximum(length, self.clip_norm))

    def _moved(
        self, variables: Any, velocity: Any, gradient: Any, start: Any
    ) -> tuple[Any, Any]:
        """Take one step; what is None costs nothing."""
        # The order is torch's: decay and proximal pull are part of the gradient, which
        # then enters the velocity.
        if self.weight_decay is not None:
            gradient = jax.tree.map(
                lambda g, p: g + self.weight_decay * p, gradient, variables
            )
        if self.proximal is not None:
            gradient = jax.tree.map(
                lambda g, p, old: g + self.proximal * (p - old),
                gradient,
                variables,
                start,
            )
        if self.momentum is not None:
            velocity = jax.tree.map(
                lambda old, g: self.momentum * old + g, velocity, gradient
            )
            gradient = velocity
        moved = jax.tree.map(
            lambda p, g: p - self.learning_rate * g, variables, gradient
        )
        return moved, velocity


@also_traced
def local_sgd(
    model: nn.Module,
    learning_rate: float | Array,
    *,
    batch_size: int,
    num_epochs: int | None = None,
    num_steps: int | None = None,
    momentum: float | Array | None = None,
    weight_decay: float | Array | None = None,
    proximal: float | Array | None = None,
    clip_norm: float | Array | None = None,
    compute_dtype: str | None = None,
    loss: Loss | None = None,
) -> LocalSGD:
    """Return local minibatch SGD.

    E epochs over the client's samples, reshuffled in each, or E single steps.
    A client of 33 samples with batches of 10 takes 4 steps per epoch, the last over its
    remaining 3 samples (their mean). With `num_steps`, it takes this many steps, each
    over 10 samples that are drawn uniformly, without repetition inside a minibatch and
    independently of the other steps. Each step moves the parameters w by minus
    `learning_rate` times

        v <- momentum * v + gradient + weight_decay * w + proximal * (w - w_global),

    where w_global is the model that the round began with; v starts at zero in every
    round.

    Args:
        model: Flax module from inputs to logits, or to what `loss` takes.
        learning_rate: Positive, finite.
        batch_size: Samples a step, at least 1; a smaller client takes all its samples
            at once.
        num_epochs: Local epochs E, at least 1. Default: 1, unless `num_steps` is set.
        num_steps: Local steps E, at least 1, as the papers count them. It must not be
            set together with `num_epochs`. It is traced: another number compiles
            nothing. A client without samples takes no step.
        momentum: In [0, 1); None or 0 is plain SGD, which keeps no velocity.
        weight_decay: L2 penalty's weight, at least 0; None or 0 is none.
        proximal: FedProx's mu, the weight of |w - w_global|^2 / 2 in a client's loss,
            at least 0; None or 0 is none. It holds clients of unlike data together over
            many local steps.
        clip_norm: An update that is longer is scaled down to this length before it is
            sent.
        compute_dtype: "bfloat16" runs the forward and backward pass in bfloat16 while
            weights, steps, loss and updates stay float32: faster on accelerators, not
            on most CPUs, and gradients keep about 3 digits. "tf32" keeps everything
            float32 but the factors inside matrix products, whose 10 bits tensor cores
            of NVIDIA multiply 7 times as fast; on a CPU it is float32. None computes in
            float32, matrix products on accelerators too
            (`jax.default_matmul_precision`, where it is set, says otherwise).
        loss: `(outputs, labels) -> f32 [batch]`, of each sample; labels may then be of
            any kind and shape. Cross-entropy of classes if None.

    Returns:
        The trainer; its numbers are traced, so changing them compiles nothing
        (switching one on or off does). They may be traced where they are given, too:
        what is outside its range then gives NaN.

    Raises:
        ConfigurationError: If an argument is outside its range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> model = mj.federated.logistic(10)
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=10)
        >>> trainer.num_epochs, len(jax.tree.leaves(trainer))
        (1, 1)

    Source: Multi-RoundSecAgg, Section 3.1 (E local steps of SGD), Section 5 (batch 50
    or 100, E = 1 epoch); CCESA, Fig. 4
    (momentum 0.5, E = 3); Li et al. 2020, "Federated Optimization in Heterogeneous
    Networks", eq. (2).
    """
    length = checked_length(model, batch_size, num_epochs, num_steps)
    rate = strength(
        learning_rate, "learning_rate", "must be positive", lambda value: value > 0
    )
    rule = "must lie in [0, 1)"
    momentum_kept = _optional_strength(
        momentum, "momentum", rule, lambda value: (value >= 0) & (value < 1)
    )
    rule = "must not be negative"
    decay = _optional_strength(
        weight_decay, "weight_decay", rule, lambda value: value >= 0
    )
    pull = _optional_strength(proximal, "proximal", rule, lambda value: value >= 0)
    rule = "must be positive"
    bound = _optional_strength(clip_norm, "clip_norm", rule, lambda value: value > 0)
    rule = "must be None or 'bfloat16' or 'tf32'"
    is_known = compute_dtype in (None, "float32", "bfloat16", "tf32")
    require(is_known, "compute_dtype", rule, compute_dtype)
    return LocalSGD(
        learning_rate=rate,
        momentum=momentum_kept,
        weight_decay=decay,
        proximal=pull,
        clip_norm=bound,
        model=model,
        **length,
        compute_dtype=None if compute_dtype == "float32" else compute_dtype,
        loss=checked_loss(loss),
    )


def checked_length(
    model: Any, batch_size: Any, num_epochs: Any, num_steps: Any
) -> dict[str, Any]:
    """Return the size of a batch, and the number of epochs or of steps, or raise."""
    kind = type(model).__name__
    require(isinstance(model, nn.Module), "model", "must be a flax module", kind)
    check_count(batch_size, "batch_size")
    if num_steps is None:
        num_epochs = 1 if num_epochs is None else num_epochs
        check_count(num_epochs, "num_epochs")
        return {
            "batch_size": int(batch_size),
            "num_epochs": int(num_epochs),
            "num_steps": None,
        }
    rule = "must not be set together with `num_steps`"
    require(num_epochs is None, "num_epochs", rule, num_epochs)
    return {
        "batch_size": int(batch_size),
        "num_epochs": None,
        "num_steps": jnp.int32(check_size(num_steps, "num_steps")),
    }


def strength(
    value: Any, argument: str, rule: str, is_legal: Callable[[Any], bool]
) -> Float32[Array, ""]:
    """Return a number that training uses; NaN for a traced one that is not legal."""

    def check(value: Any, argument: str) -> Any:
        check_number(value, argument)
        require(bool(is_legal(value)), argument, rule, value)
        return value

    number = unless_traced(check, value, argument)
    if is_traced(number):
        number = nan_unless(is_legal(number) & jnp.isfinite(number), number)
    return jnp.float32(number)


def _optional_strength(
    value: Any, argument: str, rule: str, is_legal: Callable[[Any], bool]
) -> Float32[Array, ""] | None:
    """Return a number that training uses; None for None and 0, which cost nothing."""
    number = None if value is None else strength(value, argument, rule, is_legal)
    return number if is_traced(value) or value else None


def client_updates(
    seed: Seed,
    model: nn.Module,
    parameters: Float32[Array, " dim"] | np.ndarray,
    client_data: ClientData,
    trainer: LocalTrainer,
    clients: Any = None,
    *,
    round_index: int = 0,
    mesh: Any = None,
) -> Float32[Array, "chosen dim"]:
    """Return the update that each client would send, all trained from one frozen model.

    What the least-squares attack tries to recover. With the seed of `train` these are
    the updates of that training's round `round_index`, had its model been `parameters`.

    Args:
        seed: Integer or key.
        model: Flax module.
        parameters: f32 [d], the frozen model.
        client_data: All clients' samples.
        trainer: Local training.
        clients: Client indices; all if None.
        round_index: Round whose random stream is used.
        mesh: As for `train`: clients are spread over its devices.

    Returns:
        f32 [len(clients), d]. A few clients are trained at a time, so beyond this
        result the memory does not grow with their number.

    Raises:
        ConfigurationError: If the model does not fit the data, or an index is out of
            range.

    Examples:
        >>> import mrsa_jax as mj
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=30)
        >>> model = mj.federated.logistic(10)
        >>> start = mj.federated.initial_parameters(0, model, (8, 8, 1))
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=16)
        >>> mj.federated.client_updates(0, model, start, clients, trainer, [4, 2]).shape
        (2, 650)
    """
    key = as_key(seed)
    require_methods(trainer, "trainer", "update")
    check_model(model, client_data, loss_of(trainer))
    chosen = (
        np.arange(client_data.num_clients) if clients is None else np.asarray(clients)
    )
    in_range = chosen.ndim == 1 and np.all(
        (chosen >= 0) & (chosen < client_data.num_clients)
    )
    rule = f"must be client indices in [0, {client_data.num_clients})"
    require(
        bool(in_range) and np.issubdtype(chosen.dtype, np.integer),
        "clients",
        rule,
        chosen,
    )
    members = on_device(chosen, jnp.int32)
    start = on_device(parameters, jnp.float32)
    present = jnp.ones(members.shape, bool)
    index = jnp.int32(round_index)
    over = checked_mesh(mesh)
    data = in_buckets(client_data, trainer)
    return trained_cohort(
        trainer, start, data, key, index, members, present, mesh=over
    )[0]
