"""Turn bytes and operations into seconds, by bandwidths and compute rates.

The steps of a round are synchronous: the server answers when every client that sends
has been heard. CCESA's Table 2 times steps alone; this model adds the network.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.traced import needs_values
from mrsa_jax.secagg._round_costs import Operations, RoundCosts
from mrsa_watch._base.errors import POSITIVE, check_number, require

# Seconds for one operation on one core of a virtual machine of 2026, with X25519,
# HKDF-SHA256, AES-256-GCM, ChaCha20 and Ed25519 of `cryptography` and field products of
# NumPy, as `mrsa_jax.protocol` uses them.
_MEASURED = {
    "key_pairs": 3.9e-5,
    "key_agreements": 3.9e-5,
    "share_products": 7.3e-9,
    "encryptions": 2.5e-6,
    "prg_words": 2.1e-9,
    "interpolation_products": 7.3e-9,
    "signatures": 8.3e-5,
}


@pytree
class LatencyModel:
    """Rates that turn costs into seconds.

    A pytree of float32 leaves, built by `latency_model`.

    Attributes:
        up_bytes_per_second: Of a client, towards the server.
        down_bytes_per_second: The other way.
        server_bytes_per_second: Of the server's link, each way, shared by all clients.
        round_trip_seconds: Added once to each step.
        client_seconds: Operations of a client.
        server_seconds: Operations of the server.
    """

    up_bytes_per_second: Array
    down_bytes_per_second: Array
    server_bytes_per_second: Array
    round_trip_seconds: Array
    client_seconds: Operations
    server_seconds: Operations


def operation_seconds(**seconds: float | int) -> Operations:
    """Return the seconds of one operation of each kind, by default as measured.

    Args:
        **seconds: By the names of `Operations`, each at least 0.

    Raises:
        ConfigurationError: For an unknown name, or a time that is negative or not
            finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> float(mj.secagg.costs.operation_seconds(prg_words=0).prg_words)
        0.0
    """
    unknown = sorted(set(seconds) - set(_MEASURED))
    names = ", ".join(_MEASURED)
    require(not unknown, "seconds", f"must name operations ({names})", *unknown)
    every = _MEASURED | seconds
    return Operations(**{name: _not_negative(every[name], name) for name in every})


def latency_model(
    *,
    up_bytes_per_second: float | int = 1.25e6,
    down_bytes_per_second: float | int = 1.25e7,
    server_bytes_per_second: float | int = 1.25e9,
    round_trip_seconds: float | int = 0.05,
    client_seconds: Operations | None = None,
    server_seconds: Operations | None = None,
) -> LatencyModel:
    """Build a model of rates, by default those of a home connection.

    Args:
        up_bytes_per_second: Of a client, towards the server (10 Mbit/s).
        down_bytes_per_second: The other way (100 Mbit/s).
        server_bytes_per_second: Of the server, each way (10 Gbit/s).
        round_trip_seconds: Added once to each step.
        client_seconds: Of a client's operations; as measured when None.
        server_seconds: Of the server's operations; as measured, on one core, when None.

    Returns:
        The model, a pytree: changing numbers compiles nothing new.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> float(
        ...     mj.secagg.costs.latency_model(
        ...         round_trip_seconds=0.25
        ...     ).round_trip_seconds
        ... )
        0.25
    """
    return LatencyModel(
        _positive(up_bytes_per_second, "up_bytes_per_second"),
        _positive(down_bytes_per_second, "down_bytes_per_second"),
        _positive(server_bytes_per_second, "server_bytes_per_second"),
        _not_negative(round_trip_seconds, "round_trip_seconds"),
        client_seconds or operation_seconds(),
        server_seconds or operation_seconds(),
    )


def _positive(value: float | int, argument: str) -> Float32[Array, ""]:
    rule = "must be positive and finite"
    return jnp.float32(
        check_number(value, argument, rule, POSITIVE, kind="must be a number")
    )


def _not_negative(value: float | int, argument: str) -> Float32[Array, ""]:
    rule = "must be at least 0 and finite"
    return jnp.float32(
        check_number(value, argument, rule, 0.0, kind="must be a number")
    )


@needs_values
def round_latency(
    costs: RoundCosts, model: LatencyModel
) -> Float32[np.ndarray, "*rounds steps"]:
    """Compute how long each step of a round takes.

    At each step a client reads the server's last answer, computes, and sends; the
    server waits for every client that sends, then computes its own part. A step takes
    no less than its bytes need on the server's link, nor than a round trip.

    Args:
        costs: Of one round (`round_costs`; `expected_costs` without dropouts), or of
            many rounds on leading axes.
        model: Rates.

    Returns:
        Seconds of each step of each round: four, five with the consistency check.

    Raises:
        ConfigurationError: If costs are expectations over dropouts.

    Examples:
        >>> import mrsa_jax as mj
        >>> costs = mj.secagg.expected_costs(8, 7, 5, 1000, 2**16)
        >>> model = mj.secagg.costs.latency_model
        >>> fast = mj.secagg.costs.round_latency(costs, model())
        >>> slow = mj.secagg.costs.round_latency(costs, model(up_bytes_per_second=1000))
        >>> slow.sum() > fast.sum()
        np.True_

    Source: the steps of CCESA, Algorithm 1; rates are ours.
    """
    sends = np.asarray(costs.sends)
    require(
        bool(np.isin(sends, (0, 1)).all()),
        "costs",
        "must be of rounds whose dropouts are known (`round_costs`)",
    )
    seconds = _seconds(
        model,
        on_device(sends.astype(np.bool_)),
        on_device(costs.bytes_up, jnp.float32),
        on_device(costs.bytes_down, jnp.float32),
        on_device(np.stack(jax.tree.leaves(costs.client), axis=-1), jnp.float32),
        on_device(np.stack(jax.tree.leaves(costs.server), axis=-1), jnp.float32),
    )
    return np.asarray(seconds)


@jax.jit
def _seconds(
    model: LatencyModel,
    sends: Array,
    up: Array,
    down: Array,
    client: Array,
    server: Array,
) -> Float32[Array, "*rounds steps"]:
    # the answer of a step is read at the next one
    answers = jnp.concatenate(
        [jnp.zeros_like(down[..., :1, :]), down[..., :-1, :]], axis=-2
    )
    # An answer is on its way to everybody who was heard, but only those heard again
    # wait for it.
    moving = answers / model.down_bytes_per_second + up / model.up_bytes_per_second
    working = client @ jnp.stack(jax.tree.leaves(model.client_seconds))
    wait = jnp.max(jnp.where(sends, moving + working, 0), axis=-1)
    shared = jnp.maximum(up.sum(axis=-1), answers.sum(axis=-1))
    wait = jnp.maximum(wait, shared / model.server_bytes_per_second)
    removing = server @ jnp.stack(jax.tree.leaves(model.server_seconds))
    return wait + removing + model.round_trip_seconds
