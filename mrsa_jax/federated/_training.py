"""A training: model, samples, rounds, secure aggregation, server; checked once.

A history says whom the server asked, or (`selection.RoundHistory`) also who was left
after each step of the protocol, V0 to V4 of CCESA, and which key each round's graph is
drawn from.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32

from mrsa_jax._core.arrays import host_array
from mrsa_jax.data import ClientData
from mrsa_jax.federated._evaluate import as_labels
from mrsa_jax.federated._local import RateSchedule, factors_of
from mrsa_jax.federated._models import check_loss, check_model
from mrsa_jax.federated._steps import loss_of
from mrsa_jax.federated.programs import LocalTrainer, StatefulTrainer
from mrsa_jax.quantize.budgets import check_weights
from mrsa_jax.secagg import Aggregator
from mrsa_jax.selection import RoundHistory
from mrsa_watch._base.errors import check_count, require, require_methods
from mrsa_watch._base.html import finding, shown, telling
from mrsa_watch._base.values import by_value


@finding
class Training:
    """Model, data and participants of a training.

    All that decides the model but the seed.
    `train` takes one, `train_many` several. What is wrong with it is said when it is
    made, before any work; `dataclasses.replace` makes another that differs in some
    fields.

    Attributes:
        model: Flax module from inputs to logits, or to what the trainer's loss takes.
        client_data: All clients' samples.
        participation: bool [J, N], whom the server asked, in rounds in which nobody is
            lost; or a `selection.RoundHistory`, whose rounds run with its survivors
            over its graphs: with the rule of its rollout in the aggregator, its sums
            are those that are learnt.
        trainer: Local training, e.g. `local_sgd`; `scaffold`, whose clients keep state.
        aggregator: Secure aggregation, e.g. `mrsa_jax.secagg.ring_average` with as many
            participants as the largest cohort, of vectors as long as the model, or as
            what a trainer with state sends (`sent_dim`).
        server: `optax` optimizer that takes minus the mean update for a gradient; plain
            averaging if None.
        test: Test inputs and labels; without them nothing is evaluated.
        client_test: Samples of each client to test on as well; `TrainingResult` has
            them by client.
        evaluate_every: Evaluate after rounds `evaluate_every - 1`, ... and after the
            last.
        initial_parameters: f32 [d] to start from; drawn from the seed if None.
        survivors: bool [J, 5, N], V0 to V4 of each round, whose V0 is `participation`;
            needs an aggregator that takes them, e.g. a `ring_average`. Only clients of
            V3 train.
        weights: Integers [N], e.g. `client_data.sizes`, for an aggregator of weighted
            means.
        slot_order: The clients 0 to N - 1 in the order in which they fill the
            aggregator's slots, e.g. slowest first for a `hetero.segment_average`, whose
            groups are slots; by number if None.
        rate_schedule: Factor on the trainer's learning rate by the index of the round,
            skipped rounds counted: an optax schedule, or `decay_at((400, 800), 0.4)`.
        keep_aggregates: Keep each round's sum, f32 [J', d] in host memory; not together
            with checkpoints, whose every step would have to hold them all.
        measure_drift: Measure spread and memory of the clients' updates (`Drift`), for
            `privacy.information`. Up to 64 coordinates of each layer are kept of every
            client in every round, drawn once from the seed: in host memory and in
            checkpoints, at most 16 MiB, or one coordinate of each layer. The training
            stays as it is, bit for bit.

    Raises:
        ConfigurationError: If shapes, model and data do not fit, or the history is not
            boolean.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=4)
        >>> model = mj.federated.logistic(10)
        >>> average = mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 2, 650)
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=8)
        >>> rounds = np.ones((1, 4), bool)
        >>> mj.federated.Training(model, clients, rounds, trainer, average)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `aggregator` must have a participant for each ...
    """

    _repr_html_ = telling

    model: nn.Module
    client_data: ClientData
    participation: Bool[Array, "rounds clients"] | np.ndarray | RoundHistory
    trainer: LocalTrainer | StatefulTrainer
    aggregator: Aggregator
    server: optax.GradientTransformation | None = None
    test: tuple[Any, Any] | None = None
    evaluate_every: int = 10
    initial_parameters: Float32[Array, " dim"] | np.ndarray | None = None
    survivors: Bool[Array, "rounds 5 clients"] | np.ndarray | None = None
    weights: ArrayLike | Sequence[int] | None = None
    slot_order: ArrayLike | Sequence[int] | None = None
    rate_schedule: RateSchedule | None = None
    keep_aggregates: bool = False
    measure_drift: bool = False
    client_test: ClientData | None = None

    def __post_init__(self) -> None:
        """Check everything."""
        data = self.client_data
        is_data = isinstance(data, ClientData)
        require(
            is_data, "client_data", "must be a `data.ClientData`", type(data).__name__
        )
        for name in ("keep_aggregates", "measure_drift"):
            value = getattr(self, name)
            require(isinstance(value, bool), name, "must be True or False", value)
        require_methods(self.aggregator, "aggregator", "init", "aggregate")
        if self.server is not None:
            require_methods(self.server, "server", "init", "update")
        check_count(self.evaluate_every, "evaluate_every")
        dim = self.dim
        self._check_trainer()
        if self.initial_parameters is not None:
            shape = host_array(self.initial_parameters, "initial_parameters").shape
            rule = f"must have the model's {dim} entries"
            require(shape == (dim,), "initial_parameters", rule, shape)
        check_test(self.test, self.sample_shape)
        loss = loss_of(self.trainer)
        if self.test is not None and loss is not None:
            labels = as_labels(self.test[1], is_own=True)
            check_loss(loss, self.model, self.sample_shape, labels)
        if self.client_test is not None:
            rule = (
                f"must be a `data.ClientData` with samples of {data.num_clients} "
                "clients"
            )
            counts = getattr(
                self.client_test, "num_clients", type(self.client_test).__name__
            )
            require(counts == data.num_clients, "client_test", rule, counts)
            check_model(self.model, self.client_test, loss)
        object.__setattr__(
            self, "weights", checked_weights(self.weights, data.num_clients)
        )
        object.__setattr__(
            self, "slot_order", checked_order(self.slot_order, data.num_clients)
        )
        largest = int(self.history.cohorts.sum(axis=1).max(initial=1))
        rule = "must have a participant for each member of the largest cohort"
        sizes = f"{self.width} participants", f"{largest} members"
        require(self.width >= largest, "aggregator", rule, *sizes)
        _ = self.factors

    def _check_trainer(self) -> None:
        has_state = isinstance(self.trainer, StatefulTrainer)
        require_methods(
            self.trainer, "trainer", "update_with_state" if has_state else "update"
        )
        rule = "must not be set if clients keep state, which moves by a plain mean"
        require(not has_state or self.weights is None, "weights", rule)
        trained = getattr(self.trainer, "model", self.model)
        rule = "must train the `model` given"
        require(trained == self.model, "trainer", rule, trained, self.model)
        can_scale = self.rate_schedule is None or hasattr(self.trainer, "scaled")
        rule = "must have a method `scaled` for a `rate_schedule` to act on"
        require(can_scale, "trainer", rule, type(self.trainer).__name__)

    @functools.cached_property
    def dim(self) -> int:
        """d, entries of the model."""
        return check_model(self.model, self.client_data, loss_of(self.trainer))

    @property
    def sent_dim(self) -> int:
        """Entries of what a client sends.

        Its update, and what else a trainer with state has.
        """
        trainer = self.trainer
        return self.dim + (
            trainer.state_sizes(self.dim)[0]
            if isinstance(trainer, StatefulTrainer)
            else 0
        )

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of one client's sample."""
        return tuple(self.client_data.inputs.shape[1:])

    @functools.cached_property
    def history(self) -> Rounds:
        """Cohorts and survivors of each round."""
        return checked_rounds(
            self.participation, self.survivors, self.client_data.num_clients
        )

    @functools.cached_property
    def to_train(self) -> np.ndarray:
        """The rounds in which somebody is asked."""
        return np.flatnonzero(self.history.cohorts.any(axis=1))

    @functools.cached_property
    def factors(self) -> np.ndarray | None:
        """Of the learning rate, for each round to train."""
        return factors_of(self.rate_schedule, self.to_train)

    @property
    def width(self) -> int:
        """Slots of a round."""
        largest = int(self.history.cohorts.sum(axis=1).max(initial=1))
        return int(getattr(self.aggregator, "num_participants", largest))

    def _rows(self) -> list[tuple[str, str]]:
        num_rounds, num_clients = self.history.cohorts.shape
        return [
            ("rounds", f"{num_rounds}, {len(self.to_train)} to train"),
            ("clients", f"{num_clients}, {self.width} slots"),
            ("parameters", shown(self.dim)),
            ("trainer", shown(self.trainer)),
        ]


@by_value
class Rounds(NamedTuple):
    """The rounds to train.

    Who survived, and the keys of their graphs where there are any.
    """

    survivors: np.ndarray  # bool [J, 5, N]; [J, 1, N] without steps
    keys: Any

    @property
    def cohorts(self) -> np.ndarray:
        """The cohorts, bool [J, N]."""
        return np.asarray(self.survivors[:, 0])


def checked_order(order: Any, num_clients: int) -> np.ndarray | None:
    """Return the clients in the order in which slots are filled, or raise."""
    if order is None:
        return None
    slots = host_array(order, "slot_order")
    rule = f"must hold the clients 0 to {num_clients - 1}, each once"
    proper = slots.shape == (num_clients,) and slots.dtype.kind in "iu"
    require(
        proper and np.array_equal(np.sort(slots), np.arange(num_clients)),
        "slot_order",
        rule,
        slots.shape,
    )
    return slots.astype(np.int32)


def checked_rounds(participation: Any, survivors: Any, num_clients: int) -> Rounds:
    keys = None
    if isinstance(participation, RoundHistory):
        require(
            survivors is None, "survivors", "must not be set: the history has its own"
        )
        survivors, keys = participation.survivors, participation.assignment_keys
        participation = host_array(survivors, "survivors")[..., 0, :]
    history = host_array(participation, "participation")
    require(
        history.dtype == np.bool_,
        "participation",
        "must be boolean",
        f"dtype {history.dtype}",
    )
    rule = (
        f"must have one row for each round and {num_clients} columns, one for each "
        "client"
    )
    fits = history.ndim == 2 and history.shape[1] == num_clients
    require(fits, "participation", rule, history.shape)
    if survivors is None:
        return Rounds(history[:, None], None)
    alive = host_array(survivors, "survivors")
    require(
        alive.dtype == np.bool_, "survivors", "must be boolean", f"dtype {alive.dtype}"
    )
    shape = (len(history), 5, num_clients)
    require(
        alive.shape == shape, "survivors", f"must have the shape {shape}", alive.shape
    )
    # No client may be in a step without having been in the one before.
    is_nested = not (alive[:, 1:] & ~alive[:, :-1]).any()
    require(
        is_nested, "survivors", "must be nested, each of V0 to V4 within the one before"
    )
    starts = bool((alive[:, 0] == history).all())
    require(
        starts,
        "survivors",
        "must start with `participation`, the clients who were asked",
    )
    return Rounds(alive, keys)


def checked_weights(weights: Any, num_clients: int) -> np.ndarray | None:
    if weights is None:
        return None
    checked = check_weights(weights, "weights")
    rule = f"must be {num_clients} integers, one for each client"
    require(checked.shape == (num_clients,), "weights", rule, checked.shape)
    return checked


def check_test(test: Any, sample_shape: tuple[int, ...]) -> None:
    """Raise unless there is no test set, or one of the clients' kind of samples."""
    if test is None:
        return
    is_pair = isinstance(test, tuple | list) and len(test) == 2
    require(is_pair, "test", "must be a pair of inputs and labels", test)
    shape = tuple(np.shape(test[0])[1:])
    rule = f"must have inputs of the clients' shape {sample_shape}"
    require(shape == sample_shape, "test", rule, shape)
