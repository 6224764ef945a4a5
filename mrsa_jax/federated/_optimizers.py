"""Local training beyond plain SGD.

Any optax optimizer, and SCAFFOLD, whose clients keep state.
Source: Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning".
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jax.typing import ArrayLike
from jaxtyping import Array, Float32, Int32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.factories import also_traced
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.streams import with_own_keys
from mrsa_jax.federated._local import checked_length, strength
from mrsa_jax.federated._models import unflatten
from mrsa_jax.federated._steps import Loss, checked_loss, trained_locally
from mrsa_watch._base.errors import require_methods


@pytree
class LocalOptax:
    """Minibatch steps of an optax optimizer over a client's own samples.

    See `local_optax`.

    Attributes:
        factor: f32 scalar on its steps.
        num_steps: int32 scalar, steps per round, or None for whole epochs.
        model: Flax module (static).
        optimizer: Of optax, begun anew in every round (static).
        batch_size: Samples a step (static).
        num_epochs: Passes over the client's samples, or None with `num_steps` (static).
        loss: Of each sample; None for cross-entropy (static).
    """

    compute_dtype: ClassVar[None] = None
    factor: Any
    num_steps: Any
    model: nn.Module = static()
    optimizer: Any = static()
    batch_size: int = static()
    num_epochs: int | None = static()
    loss: Loss | None = static()

    def scaled(self, factor: ArrayLike) -> LocalOptax:
        """Return the same trainer with `factor` times its steps."""
        return dataclasses.replace(
            self, factor=self.factor * on_device(factor, jnp.float32)
        )

    def update(
        self,
        key: Key[Array, ""],
        parameters: Float32[Array, " dim"],
        inputs: Float32[Array, "samples ..."],
        labels: Array,
        size: Int32[Array, ""],
    ) -> Float32[Array, " dim"]:
        """Train on the first `size` samples, as `LocalSGD.update` does."""

        def moved(
            variables: Any, memory: Any, gradient: Any, start: Any
        ) -> tuple[Any, Any]:
            # optimizers rely on standard promotion (Adam: float ** int), whatever the
            # user has set
            with jax.numpy_dtype_promotion("standard"):
                steps, memory = self.optimizer.update(gradient, memory, variables)
                return jax.tree.map(
                    lambda p, s: p + self.factor * s, variables, steps
                ), memory

        def begun(variables: Any) -> Any:
            return with_own_keys(self.optimizer.init(variables), key)

        samples = inputs, labels, jnp.arange(inputs.shape[0], dtype=jnp.int32), size
        return trained_locally(self, key, parameters, samples, begun, moved)[0]


def local_optax(
    model: nn.Module,
    optimizer: optax.GradientTransformation,
    *,
    batch_size: int,
    num_epochs: int | None = None,
    num_steps: int | None = None,
    loss: Loss | None = None,
) -> LocalOptax:
    """Return local training by an optimizer of optax, which begins again each round.

    Choose `local_sgd` for SGD with momentum, weight decay or FedProx: another learning
    rate of its compiles nothing, while each optimizer given here does.

    Args:
        model: Flax module from inputs to logits, or to what `loss` takes.
        optimizer: E.g. `optax.adamw(1e-3)`, `optax.chain(...)`. A `rate_schedule`
            multiplies its steps. Random keys in its state (`optax.noisy_sgd`) are
            folded with that of the client and the round, so that no two draw the same.
        batch_size: As for `local_sgd`.
        num_epochs: Local epochs E, as for `local_sgd`.
        num_steps: Local steps E instead, as for `local_sgd`.
        loss: As for `local_sgd`.

    Returns:
        The trainer.

    Raises:
        ConfigurationError: If an argument is outside its range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import optax
        >>> trainer = mj.federated.local_optax(
        ...     mj.federated.logistic(10), optax.adam(0.01), batch_size=10
        ... )
        >>> trainer.num_epochs
        1
    """
    require_methods(optimizer, "optimizer", "init", "update")
    return LocalOptax(
        factor=jnp.float32(1),
        model=model,
        optimizer=optimizer,
        **checked_length(model, batch_size, num_epochs, num_steps),
        loss=checked_loss(loss),
    )


@pytree
class Scaffold:
    """SCAFFOLD: SGD whose clients correct their drift by control variates.

    See `scaffold`.

    Attributes:
        learning_rate: f32 scalar.
        num_steps: int32 scalar, steps per round, or None for whole epochs.
        model: Flax module (static).
        batch_size: Samples a step (static).
        num_epochs: Passes over the client's samples, or None with `num_steps` (static).
        loss: Of each sample; None for cross-entropy (static).
    """

    cites = "SCAFFOLD: karimireddy2020scaffold"
    compute_dtype: ClassVar[None] = None

    learning_rate: Any
    num_steps: Any
    model: nn.Module = static()
    batch_size: int = static()
    num_epochs: int | None = static()
    loss: Loss | None = static()

    def scaled(self, factor: ArrayLike) -> Scaffold:
        """Return the same trainer with `factor` times its learning rate."""
        rate = self.learning_rate * on_device(factor, jnp.float32)
        return dataclasses.replace(self, learning_rate=rate)

    def state_sizes(self, dim: int) -> tuple[int, int]:
        """Return the lengths of c, which the server keeps, and of each client's c_i."""
        return dim, dim

    def update_with_state(
        self,
        key: Key[Array, ""],
        parameters: Float32[Array, " dim"],
        shared: Float32[Array, " dim"],
        own: Float32[Array, " dim"],
        inputs: Float32[Array, "samples ..."],
        labels: Array,
        size: Int32[Array, ""],
    ) -> tuple[Float32[Array, " dim"], Float32[Array, " dim"], Float32[Array, " dim"]]:
        """Train on the first `size` samples.

        Return the update, c_i's change, and the new c_i.
        """
        # SCAFFOLD's step is -rate (g - c_i + c), the same shift c_i - c in every step.
        shift = unflatten(self.model, inputs.shape[1:], own - shared)

        def moved(
            variables: Any, memory: Any, gradient: Any, start: Any
        ) -> tuple[Any, Any]:
            rate = self.learning_rate
            step = jax.tree.map(
                lambda p, g, s: p - rate * (g - s), variables, gradient, shift
            )
            return step, memory

        samples = inputs, labels, jnp.arange(inputs.shape[0], dtype=jnp.int32), size
        update, steps = trained_locally(
            self, key, parameters, samples, lambda _: None, moved
        )
        # c_i+ = c_i - c - update / (steps * rate), option II of the paper; the change
        # is sent.
        taken = steps.astype(jnp.float32) * self.learning_rate
        # who takes no step knows no gradient
        change = jnp.where(taken > 0, -shared - update / taken, jnp.float32(0))
        return update, change, own + change


@also_traced
def scaffold(
    model: nn.Module,
    learning_rate: float | Array,
    *,
    batch_size: int,
    num_epochs: int | None = None,
    num_steps: int | None = None,
    loss: Loss | None = None,
) -> Scaffold:
    """Return SCAFFOLD.

    Each client's steps are corrected by what other clients' gradients are.
    Client i keeps a control variate c_i, the server c, both zero at first. A step moves
    the client's model y by minus `learning_rate` times gradient - c_i + c; after K of
    them

        c_i <- c_i - c + (x - y) / (K * learning_rate),

    and the server moves c by the sum of the changes over N. Clients send both their
    update and the change of c_i, in one vector twice as long as the model: so long must
    the aggregator be. Where a round's sum is not learnt, its clients keep the c_i that
    they had.

    Args:
        model: Flax module from inputs to logits, or to what `loss` takes.
        learning_rate: Positive, finite.
        batch_size: As for `local_sgd`.
        num_epochs: Local epochs E, as for `local_sgd`.
        num_steps: Local steps E instead, as for `local_sgd`.
        loss: As for `local_sgd`.

    Returns:
        The trainer, a `StatefulTrainer`.

    Raises:
        ConfigurationError: If an argument is outside its range.

    Examples:
        >>> import mrsa_jax as mj
        >>> model = mj.federated.logistic(10)
        >>> trainer = mj.federated.scaffold(model, 0.1, batch_size=10)
        >>> trainer.state_sizes(650)
        (650, 650)

    Source: Karimireddy et al. 2020, Algorithm 1 with option II for c_i.
    """
    rate = strength(
        learning_rate, "learning_rate", "must be positive", lambda value: value > 0
    )
    length = checked_length(model, batch_size, num_epochs, num_steps)
    return Scaffold(learning_rate=rate, model=model, **length, loss=checked_loss(loss))
