"""Views of adversaries: one type for each threat model, with all that it sees.

One type for each threat model, and nothing in it that is not seen.
An attack takes a view and no more, so what it needs is what its threat model grants.
Ground truth (the clients' updates, their images, who was a member) is for the scores
alone and in no view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import flax.linen as nn
import numpy as np
from jaxtyping import Array

from mrsa_watch._base.html import finding

if TYPE_CHECKING:
    from mrsa_jax.data import ClientData
    from mrsa_jax.quantize import StochasticQuantizer


@finding
class AggregateView:
    """An honest but curious server of secure aggregation: who took part, and the sums.

    Attributes:
        participation: bool or integer weights [J, N], one row for each sum that was
            learnt.
        aggregates: float [J, d], the sums P @ X.
    """

    participation: np.ndarray
    aggregates: np.ndarray


@finding
class CountView:
    """A server that is not told who took part, but how often each client did.

    Attributes:
        aggregates: float [J, d], the sums in the order of their rounds.
        counts: int [M, N], in how many sums of each interval each client was: what
            usage statistics of the devices tell.
        interval_lengths: int [M], rounds of each interval; they add up to J.

    Source: Lam, Wei, Brooks, Reddi, Mitzenmacher, "Gradient Disaggregation" (2021),
    Section 3.
    """

    aggregates: np.ndarray
    counts: np.ndarray
    interval_lengths: np.ndarray


@finding
class WireView:
    """An eavesdropper on the lines of one round: padded uploads and what is public.

    Attributes:
        uploads: uint32 [n, d], what each client sent, modulo the ring's size.
        modulus: Size of the ring.
        quantizer: How codes stand for numbers, which is public.

    Source: CCESA, Section 2 (a passive eavesdropper), Section 5.3.
    """

    uploads: np.ndarray
    modulus: int
    quantizer: StochasticQuantizer


@finding
class ModelView:
    """Whoever holds a model: its parameters, and what goes in and comes out.

    Attributes:
        model: Flax module.
        parameters: f32 [d].
        input_shape: Shape of one sample.
        num_classes: Classes that the model tells apart.
    """

    model: nn.Module
    parameters: Array
    input_shape: tuple[int, ...]
    num_classes: int


@finding
class UpdateView:
    """Whoever holds a model and updates trained from it.

    Of one client, or sums of several.

    Attributes:
        model: Flax module.
        parameters: f32 [d], the model that the clients trained from.
        input_shape: Shape of one sample.
        num_classes: Classes that the model tells apart.
        update: f32 [..., d], new minus old parameters, or the mean of several such;
            leading axes are separate updates, attacked side by side.
        num_images: Images behind each update, all in one step of SGD (a client's own
            minibatch, or those of a sum's clients, whose mean step it is).
        labels: int32 [..., num_images] where they are known, or None.
    """

    model: nn.Module
    parameters: Array
    input_shape: tuple[int, ...]
    num_classes: int
    update: Array
    num_images: int
    labels: Array | None = None


@finding
class MembershipView:
    """Whoever holds a client's model, candidates for its samples, and separate samples.

    Attributes:
        model: Flax module.
        parameters: f32 [..., d], the model that the client sent, as it was read off the
            line or solved for; leading axes are several such models, asked for the same
            candidates.
        start: f32 [d], the global model that training started from.
        input_shape: Shape of one sample.
        num_classes: Classes that the model tells apart.
        inputs: f32 [m, ...], the candidates.
        labels: int32 [m].
        own_inputs: f32 [k, ...], the adversary's own samples, from the same
            distribution.
        own_labels: int32 [k].
    """

    model: nn.Module
    parameters: Array
    start: Array
    input_shape: tuple[int, ...]
    num_classes: int
    inputs: Array
    labels: Array
    own_inputs: Array
    own_labels: Array


@finding
class AttributeView:
    """A passive server with its own shadow clients: sums, models, and data like theirs.

    Attributes:
        participation: bool or integer weights [J, N], one row for each sum that was
            learnt.
        aggregates: float [J, d], the sums P @ X.
        models: f32 [J, d], the model that the clients of each round trained from.
        shadows: Data of S simulated clients, drawn as the clients' data are.
        has_attribute: bool [S], whether each shadow client has the attribute; at least
            eight of each kind.
        sum_noise: Standard deviation of the noise in each entry of a sum, which the
            server knows; 0 without noise.
    """

    participation: np.ndarray
    aggregates: np.ndarray | Array
    models: np.ndarray | Array
    shadows: ClientData
    has_attribute: np.ndarray
    sum_noise: float = 0.0
