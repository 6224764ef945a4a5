"""Seconds a round: bytes and operations over bandwidths, compute rates and stragglers.

The four steps are synchronous: the server answers when everybody it waits for has been
heard. CCESA's Table 2 times steps alone; this model adds the network and clients of
unequal speed.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._core.arrays import needs_values, on_device, pytree
from mrsa_jax._core.streams import Seed, as_key, fold
from mrsa_jax.secagg._round_costs import Operations, RoundCosts
from mrsa_jax.secagg.costs._stragglers import Slowdown, not_negative, positive, steady
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import finding

_COMPUTE, _LINK = 1, 2  # streams of a round: slow-downs of compute and of links

# Seconds for one operation on one core of a virtual machine of 2026, by `calibrate`.
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
        up_bytes_per_second: Of a client at nominal speed, towards the server.
        down_bytes_per_second: The other way.
        server_bytes_per_second: Of the server's link, each way, shared by all clients.
        round_trip_seconds: Added once to each step.
        client_seconds: Operations of a client.
        server_seconds: Operations of the server.
        compute_slowdown: Distribution of the factor by which a client computes slower.
        link_slowdown: Distribution of the factor by which its link is slower.
        quantile: Share of the expected clients that the server waits for, in (0, 1].
        timeout_seconds: Longest wait of a step; infinite for none.
    """

    up_bytes_per_second: Array
    down_bytes_per_second: Array
    server_bytes_per_second: Array
    round_trip_seconds: Array
    client_seconds: Operations
    server_seconds: Operations
    compute_slowdown: Slowdown
    link_slowdown: Slowdown
    quantile: Array
    timeout_seconds: Array


@finding
class Latency:
    """How long simulated rounds took.

    Attributes:
        seconds: float32[rounds, 4], of each step; 5 with the consistency check.
        late: int32[rounds, 4], clients whose message came after the server had stopped
            waiting. Costs are not changed by them: pass survivors without them to see
            what is lost.
    """

    seconds: np.ndarray
    late: np.ndarray

    @property
    def total_seconds(self) -> np.ndarray:
        """float32[rounds], all four steps."""
        return self.seconds.sum(axis=-1)

    @property
    def mean_seconds(self) -> float:
        """Mean of a round."""
        return float(self.total_seconds.mean())

    def quantiles(self, *shares: float) -> tuple[float, ...]:
        """Return quantiles of a round's seconds, such as `quantiles(0.5, 0.95)`."""
        return tuple(float(value) for value in np.quantile(self.total_seconds, shares))


def operation_seconds(**seconds: float | int) -> Operations:
    """Return the seconds of one operation of each kind.

    Those not given as measured here.

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
    unknown = set(seconds) - set(_MEASURED)
    known = ", ".join(_MEASURED)
    require(not unknown, "seconds", f"must name operations ({known})", *sorted(unknown))
    every = {**_MEASURED, **seconds}
    return Operations(
        **{name: not_negative(value, name) for name, value in every.items()}
    )


def latency_model(
    *,
    up_bytes_per_second: float | int = 1.25e6,
    down_bytes_per_second: float | int = 1.25e7,
    server_bytes_per_second: float | int = 1.25e9,
    round_trip_seconds: float | int = 0.05,
    client_seconds: Operations | None = None,
    server_seconds: Operations | None = None,
    compute_slowdown: Slowdown | None = None,
    link_slowdown: Slowdown | None = None,
    quantile: float | int = 1.0,
    timeout_seconds: float | int = math.inf,
) -> LatencyModel:
    """Return rates and straggler distributions, by default those of a home connection.

    Args:
        up_bytes_per_second: Of a client, towards the server (10 Mbit/s).
        down_bytes_per_second: The other way (100 Mbit/s).
        server_bytes_per_second: Of the server, each way (10 Gbit/s).
        round_trip_seconds: Added once to each step.
        client_seconds: Of a client's operations; as measured when None.
        server_seconds: Of the server's operations; as measured, on one core, when None.
        compute_slowdown: By how much clients compute slower; all at nominal speed when
            None.
        link_slowdown: By how much their links are slower; all at nominal speed when
            None.
        quantile: Share in (0, 1] of the clients expected at a step that the server
            waits for.
        timeout_seconds: Longest wait of a step.

    Returns:
        The model, a pytree: changing numbers compiles nothing new.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> float(mj.secagg.costs.latency_model(round_trip_seconds=0.25).round_trip_seconds)
        0.25
    """
    require(0.0 < float(quantile) <= 1.0, "quantile", "must lie in (0, 1]", quantile)
    wait = float(timeout_seconds)
    require(wait > 0.0, "timeout_seconds", "must be positive", timeout_seconds)
    return LatencyModel(
        positive(up_bytes_per_second, "up_bytes_per_second"),
        positive(down_bytes_per_second, "down_bytes_per_second"),
        positive(server_bytes_per_second, "server_bytes_per_second"),
        not_negative(round_trip_seconds, "round_trip_seconds"),
        client_seconds or operation_seconds(),
        server_seconds or operation_seconds(),
        compute_slowdown or steady(),
        link_slowdown or steady(),
        jnp.float32(quantile),
        jnp.float32(wait),
    )


@needs_values
def round_latency(
    seed: Seed, costs: RoundCosts, model: LatencyModel, num_rounds: int | None = None
) -> Latency:
    """Simulate how long rounds take, slow-downs drawn anew for each client and round.

    At each step a client reads the server's last answer, computes, and sends; the
    server waits until `quantile` of those that it expects (who sent at the step before;
    at the first step, who sends at all) have been heard, at most `timeout_seconds`. If
    so many never come, it waits for the timeout, or without one until the last that
    comes. Then it computes its own part. A step takes no less than its bytes need on
    the server's link, nor than a round trip.

    Args:
        seed: Integer or key.
        costs: Of one round (`round_costs`; `expected_costs` without dropouts),
            simulated `num_rounds` times, or of many rounds on one leading axis.
        model: Rates and distributions.
        num_rounds: Rounds to simulate; needed for the costs of one round, and no other
            number than theirs is legal for many.

    Returns:
        Seconds of each step of each round.

    Raises:
        ConfigurationError: If `num_rounds` does not fit, or costs are expectations over
            dropouts.

    Examples:
        >>> import mrsa_jax as mj
        >>> model = mj.secagg.costs.latency_model
        >>> costs = mj.secagg.expected_costs(8, 7, 5, 1000, 2**16)
        >>> fast, slow = (
        ...     mj.secagg.costs.round_latency(0, costs, own, 1).mean_seconds
        ...     for own in (model(), model(up_bytes_per_second=1000))
        ... )
        >>> slow > fast
        True

    Source: the steps of CCESA, Algorithm 1; rates and stragglers are ours.
    """
    sends = np.asarray(costs.sends)
    sure = bool(np.isin(sends, (0, 1)).all())
    require(sure, "costs", "must be of rounds whose dropouts are known (`round_costs`)")
    require(
        sends.ndim in (2, 3), "costs", "must have at most one leading axis", sends.shape
    )
    is_many = sends.ndim == 3
    if is_many and num_rounds is None:
        num_rounds = len(sends)
    count = check_integer(num_rounds, "num_rounds", 1)
    fits = not is_many or count == len(sends)
    require(fits, "num_rounds", "must be the number of rounds of `costs`", num_rounds)
    amounts = _Amounts(
        on_device(sends.astype(np.bool_)),
        on_device(costs.bytes_up, jnp.float32),
        on_device(costs.bytes_down, jnp.float32),
        on_device(np.stack(jax.tree.leaves(costs.client), axis=-1), jnp.float32),
        on_device(np.stack(jax.tree.leaves(costs.server), axis=-1), jnp.float32),
    )
    seconds, late = _simulate(as_key(seed), model, amounts, count, is_many)
    return Latency(np.asarray(seconds), np.asarray(late))


class _Amounts(NamedTuple):
    """Costs as arrays: bytes [..., 4, n]; operations with their kinds as last axis."""

    sends: Array
    up: Array
    down: Array
    client: Array
    server: Array


@functools.partial(jax.jit, static_argnums=(3, 4))
def _simulate(
    key: Key[Array, ""],
    model: LatencyModel,
    amounts: _Amounts,
    num_rounds: int,
    is_many: bool,
) -> tuple[Array, Array]:
    keys = jax.vmap(lambda index: fold(key, index))(
        jnp.arange(num_rounds, dtype=jnp.int32)
    )
    one = functools.partial(_one_round, model)
    return jax.vmap(one, in_axes=(0, 0 if is_many else None))(keys, amounts)


def _one_round(
    model: LatencyModel, key: Key[Array, ""], amounts: _Amounts
) -> tuple[Float32[Array, " steps"], Any]:
    num_clients = amounts.sends.shape[-1]
    compute = model.compute_slowdown.sample(fold(key, _COMPUTE), num_clients)
    link = model.link_slowdown.sample(fold(key, _LINK), num_clients)
    answers = jnp.concatenate([jnp.zeros_like(amounts.down[:1]), amounts.down[:-1]])
    # An answer is on its way to everybody who was heard, but only those heard again
    # wait for it.
    moving = (
        answers / model.down_bytes_per_second + amounts.up / model.up_bytes_per_second
    )
    working = amounts.client @ jnp.stack(jax.tree.leaves(model.client_seconds))
    taken = link[None] * moving + compute[None] * working
    expected = jnp.concatenate([amounts.sends[:1], amounts.sends[:-1]]).sum(axis=-1)
    wait = jax.vmap(_wait, in_axes=(None, 0, 0, 0))(
        model, taken, amounts.sends, expected
    )
    late = (amounts.sends & (taken > wait[:, None])).sum(axis=-1, dtype=jnp.int32)
    shared = jnp.maximum(amounts.up.sum(axis=-1), answers.sum(axis=-1))
    wait = jnp.maximum(wait, shared / model.server_bytes_per_second)
    removing = amounts.server @ jnp.stack(jax.tree.leaves(model.server_seconds))
    return wait + removing + model.round_trip_seconds, late


def _wait(
    model: LatencyModel,
    taken: Float32[Array, " clients"],
    sends: Bool[Array, " clients"],
    expected: Array,
) -> Float32[Array, ""]:
    """Return how long the server listens at one step."""
    times = jnp.sort(jnp.where(sends, taken, jnp.float32(jnp.inf)))
    heard = sends.sum(dtype=jnp.int32)
    # exact for shares such as 0.9 of 10, which float32 rounds up
    scaled = model.quantile * expected.astype(jnp.float32)
    wanted = jnp.ceil(scaled - jnp.float32(1e-4)).astype(jnp.int32)
    index = jnp.clip(jnp.minimum(wanted, heard) - 1, 0, taken.shape[0] - 1)
    last = jnp.where(heard > 0, times[index], jnp.float32(0))
    limited = jnp.isfinite(model.timeout_seconds) & (wanted > heard)
    return jnp.where(
        limited, model.timeout_seconds, jnp.minimum(last, model.timeout_seconds)
    )


# ---- How long this machine takes for each operation of the protocol, with the real
# primitives.
#
# For `latency_model`: X25519, HKDF-SHA256, AES-256-GCM and ChaCha20 through
# `cryptography`, field
# products in NumPy, as `mrsa_jax.protocol` uses them.

_PRIME = 2**31 - 1
_WORDS = 10_000  # of keystream, a pad of Table 2
_FIELD = (50, 18)  # points and limbs: a step of sharing among 50 neighbours


def calibrate(budget_seconds: float | int = 0.2) -> Operations:
    """Measure the time of each operation on one core of this machine.

    Each is the least time of many short batches, so that other load matters little.

    Args:
        budget_seconds: About how long to measure each of the six kinds, positive.

    Returns:
        Seconds for `latency_model`; interpolation products count as those of sharing.

    Raises:
        ConfigurationError: If the budget is not positive and finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> measured = mj.secagg.costs.calibrate(0.01)
        >>> bool(measured.key_agreements > measured.prg_words)
        True
    """
    budget = float(budget_seconds)
    fits = 0.0 < budget < float("inf")
    require(fits, "budget_seconds", "must be positive and finite", budget_seconds)
    seconds = {
        name: _least(operation, budget) for name, operation in _operations().items()
    }
    field = seconds.pop("field") / (_FIELD[0] * _FIELD[1])
    seconds["prg_words"] /= _WORDS
    return operation_seconds(
        share_products=field, interpolation_products=field, **seconds
    )


def _least(operation: Callable[[], Any], budget: float) -> float:
    """Return the least mean time of ten operations within the budget."""
    operation()
    best, end = float("inf"), time.perf_counter() + budget
    while True:
        start = time.perf_counter()
        for _ in range(10):
            operation()
        now = time.perf_counter()
        best = min(best, (now - start) / 10)
        if now > end:
            return best


def _operations() -> dict[str, Callable[[], Any]]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    signer = Ed25519PrivateKey.generate()
    signature, public = signer.sign(bytes(400)), signer.public_key()
    zeros, total = bytes(4 * _WORDS), np.zeros(_WORDS, np.uint32)

    def add_pad() -> np.ndarray:
        stream = Cipher(ChaCha20(bytes(32), bytes(16)), None).encryptor().update(zeros)
        return np.add(total, np.frombuffer(stream, "<u4"), out=total)

    values = np.full(_FIELD, _PRIME - 2, np.uint64)
    points = np.arange(1, _FIELD[0] + 1, dtype=np.uint64)[:, None]
    row, prime = np.full(_FIELD[1], _PRIME - 3, np.uint64)[None], np.uint64(_PRIME)
    return {
        "key_pairs": lambda: (
            X25519PrivateKey.generate().public_key().public_bytes_raw()
        ),
        "key_agreements": lambda: HKDF(SHA256(), 32, None, b"pad").derive(
            own.exchange(other)
        ),
        "field": lambda: (values * points + row) % prime,
        "encryptions": lambda: AESGCM(bytes(32)).encrypt(bytes(12), bytes(72), b""),
        "prg_words": add_pad,
        "signatures": lambda: public.verify(signature, bytes(400)),
    }
