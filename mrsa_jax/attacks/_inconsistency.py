"""A malicious server.

It sends one client the model, and all others one that teaches it nothing.
Pasquini, Francati, Ateniese, "Eluding Secure Aggregation in Federated Learning via
Model Inconsistency" (2022). The others' model has dead rectifiers, so their updates are
zero except for the last bias, and the sum is the target's update: secure aggregation
hides nothing. Sums over whole blocks hide nothing either. The defence, from the same
paper: pads whose seeds depend on a hash of the model, so that they do not cancel
between clients who were sent different ones. Clients who enforce blocks sign that hash
as well, and refuse the round.

This is outside the threat model of the three papers, whose server follows the protocol.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Key

from mrsa_jax import protocol
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import as_key, fold
from mrsa_jax._core.traced import needs_values
from mrsa_jax.data import ClientData
from mrsa_jax.federated import LocalTrainer, client_updates, unflatten
from mrsa_jax.quantize import StochasticQuantizer
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value


@by_value
class Inconsistency(NamedTuple):
    """The result of one round with a malicious server.

    Attributes:
        update: float64 [d], the target's update as the server reads it from the sum;
            zeros if the round fails.
        is_seen: bool [d], where the others' updates are zero by construction: all but
            the last bias.
        true_update: f32 [d], what the target sent (for scores only).
        status: Of the round of secure aggregation.
    """

    update: np.ndarray
    is_seen: np.ndarray
    true_update: np.ndarray
    status: Status

    @property
    def error(self) -> float:
        """Relative squared error of the target's update where it is seen."""
        truth = self.true_update[self.is_seen].astype(np.float64)
        wrong = np.square(self.update[self.is_seen] - truth).sum()
        return float(wrong / np.square(truth).sum())


@dataclasses.dataclass(frozen=True)
@by_value
class ModelInconsistency:
    """The scenario (built by `model_inconsistency`).

    Attributes:
        model: Flax module.
        trainer: How clients train.
        quantizer: How updates become ring elements.
        modulus_bits: Of the ring.
        is_bound: Whether the clients bind their pads to the model that they were sent.
        blocks: The blocks that they enforce, by place in the cohort; None for none.
    """

    cites = "inconsistency"

    model: nn.Module
    trainer: LocalTrainer
    quantizer: StochasticQuantizer
    modulus_bits: int
    is_bound: bool
    blocks: int | tuple[int, ...] | None = None

    @needs_values
    def run(
        self,
        key: Key[Array, ""] | int,
        parameters: Float32[Array, " dim"],
        client_data: ClientData,
        cohort: Sequence[int],
        target: int,
    ) -> Inconsistency:
        """Run one round with real messages, the target among the cohort.

        Args:
            key: JAX key or seed of local training and rounding; the round's secrets are
                the operating system's.
            parameters: f32 [d], the model that the target is sent.
            client_data: All clients' samples.
            cohort: Clients of the round, at least two.
            target: The one that the server is after.

        Raises:
            ConfigurationError: If the target is not in the cohort, a client is out of
                range, or the model cannot be silenced.
        """
        key = as_key(key)
        last = client_data.num_clients - 1
        chosen = [check_integer(client, "cohort", 0, last) for client in cohort]
        require(
            len(set(chosen)) == len(chosen) >= 2 and target in chosen,
            "cohort",
            "must be different clients, at least two, the target among them",
            chosen,
            target,
        )
        shape = tuple(client_data.inputs.shape[1:])
        alive = on_device(parameters)
        dead, is_seen = silenced(self.model, shape, alive)
        codes, digests = [], []
        true_update = np.zeros(0)
        for client in chosen:
            sent = alive if client == target else dead
            training = self.model, sent, client_data, self.trainer, [client]
            update = client_updates(key, *training)[0]
            if client == target:
                true_update = np.asarray(update)
            code = self.quantizer.encode(fold(key, client), update)
            codes.append(np.asarray(code))
            digests.append(protocol.model_digest(sent))
        is_named = self.is_bound or self.blocks is not None
        count = len(chosen)
        result = protocol.run(
            np.stack(codes),
            ~np.eye(count, dtype=bool),
            np.ones((5, count), bool),
            count // 2 + 1,
            self.modulus_bits,
            contexts=digests if is_named else None,
            blocks=self.blocks,
        )
        # the others sent zeros, so that the sum is the target's update
        total = self.quantizer.decode(on_device(result.total), count)
        is_learned = result.status == Status.OK
        return Inconsistency(
            np.asarray(total, np.float64) * is_learned,
            np.asarray(is_seen),
            true_update,
            Status(int(result.status)),
        )


def model_inconsistency(
    model: nn.Module,
    trainer: LocalTrainer,
    quantizer: StochasticQuantizer,
    *,
    modulus_bits: int = 32,
    is_bound: bool = False,
    blocks: int | Sequence[int] | None = None,
) -> ModelInconsistency:
    """Return the scenario of a malicious server that sends different models.

    Args:
        model: Flax module of layers with `kernel` and `bias`, a rectifier after all but
            the last.
        trainer: How clients train.
        quantizer: How updates become ring elements.
        modulus_bits: Of the ring, 1 to 32.
        is_bound: Whether pads depend on a hash of the model, the defence.
        blocks: The blocks that clients enforce (`blocks` of `protocol.run`), by place
            in the cohort, or their size. Then each client signs the digest of the model
            that it was sent.

    Raises:
        ConfigurationError: If `modulus_bits` is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> model = mj.federated.mlp(10, hidden_sizes=(4,))
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=10)
        >>> mj.attacks.model_inconsistency(
        ...     model, trainer, mj.quantize.stochastic(2**16, 1.0)
        ... ).is_bound
        False
    """
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    groups = tuple(blocks) if isinstance(blocks, Sequence) else blocks
    return ModelInconsistency(model, trainer, quantizer, bits, bool(is_bound), groups)


@needs_values
def silenced(
    model: nn.Module,
    input_shape: tuple[int, ...],
    parameters: Float32[Array, " dim"],
) -> tuple[Float32[Array, " dim"], np.ndarray]:
    """Return parameters that train nothing but the last bias, and the entries at rest.

    All kernels but the last are 0 and their biases -1, so that every rectifier is
    closed for any input: no gradient passes, and the last layer sees zeros.

    Args:
        model: Flax module of layers with `kernel` and `bias`, a rectifier after all but
            the last.
        input_shape: Shape of one sample.
        parameters: f32 [d]; the last layer's are kept.

    Returns:
        f32 [d], and bool [d]: which entries a client with these parameters never
        changes.

    Raises:
        ConfigurationError: If the model has no hidden layer, or its answer still
            depends on the input.
    """
    layers = dict(unflatten(model, input_shape, parameters)["params"])
    noise = jax.random.uniform(jax.random.key(0), (2, *input_shape), jnp.float32)
    outputs = jax.eval_shape(model.apply, {"params": layers}, noise).shape[-1]
    # the last layer is dense and has an output for each class
    dense = [
        name
        for name in sorted(layers, key=_by_number)
        if np.shape(layers[name].get("kernel"))[1:] == (outputs,)
    ]
    require(
        len(dense) > 0 and len(layers) > 1,
        "model",
        "must have hidden layers and a dense last one",
        sorted(layers),
    )
    # closed rectifiers: zero kernels and negative biases in all but the last layer
    dead: dict[str, dict[str, Any]] = {}
    seen: dict[str, dict[str, Any]] = {}
    for name, layer in layers.items():
        dead[name], seen[name] = {}, {}
        for leaf, value in layer.items():
            is_bias = leaf == "bias"
            if name == dense[-1]:
                dead[name][leaf] = value
                seen[name][leaf] = np.full(value.shape, not is_bias)
            else:
                dead[name][leaf] = np.full_like(value, -1.0 if is_bias else 0.0)
                seen[name][leaf] = np.ones(value.shape, bool)
    answers = np.asarray(jax.jit(model.apply)({"params": dead}, noise))
    require(
        bool((answers[0] == answers[1]).all()),
        "model",
        "must be silenced by closed rectifiers",
        "an answer that varies",
    )
    flat, is_seen = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(each)])
        for each in (dead, seen)
    )
    return on_device(flat), is_seen


def _by_number(name: str) -> tuple[str, int]:
    """Sort Dense_10 behind Dense_9."""
    number = re.search(r"(\d+)$", name)
    return re.sub(r"\d+$", "", name), int(number.group(1)) if number else -1
