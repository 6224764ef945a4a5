"""Tables of settings of trainings, without JAX: data, training, resources."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Annotated, Any, Literal

from mrsa_jax._core import flags
from mrsa_jax.study.settings._tables import check_unset
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import Shown

# A type of names also says which papers its names stand on.
DatasetName = Annotated[
    str,
    flags.Cites(
        mnist_5k="data: lecun1998gradient raschka2018mlxtend",
        mnist="data: lecun1998gradient",
        digits="data: alpaydin1998optical",
        fashion_mnist="data: xiao2017fashion",
        **dict.fromkeys(
            ("cifar", "cifar10", "cifar100"), "data: krizhevsky2009learning"
        ),
        **dict.fromkeys(("olivetti", "att"), "data: samaria1994parameterisation"),
    ),
]
PartitionName = Annotated[
    Literal["iid", "shards", "shards_with_shared", "dirichlet", "dirichlet_by_client"],
    flags.Cites(
        shards="split of the data: mcmahan2017communication",
        shards_with_shared="split of the data: zhao2018federated",
        **dict.fromkeys(
            ("dirichlet", "dirichlet_by_client"), "split of the data: hsu2019measuring"
        ),
    ),
]
PARTITIONS: dict[str, tuple[str, ...]] = {
    "iid": ("iid",),
    "shards": ("shards", "shards_per_client", "single_label"),
    "shards_with_shared": ("shards_with_shared", "shared_size", "balanced"),
    "dirichlet": ("dirichlet_by_class", "concentration"),
    "dirichlet_by_client": ("dirichlet_by_client", "concentration"),
}
"""Splits of a data set over clients.

The function of `data`, and the settings that it takes.
"""
ModelName = Annotated[
    str,
    flags.Cites(
        lenet="model: lecun1998gradient",
        smooth_lenet="model: zhu2019deep",
        **dict.fromkeys(("mlp", "cnn"), "model: mcmahan2017communication"),
        vgg11="model: simonyan2015very",
        vgg11_group="model: simonyan2015very wu2018group",
    ),
]
PrecisionName = Literal["float32", "tf32", "bfloat16"]
ServerName = Annotated[
    Literal["average", "momentum", "adam"],
    flags.Cites(
        average="federated averaging: mcmahan2017communication",
        momentum="server momentum: hsu2019measuring",
        adam="server Adam: reddi2021adaptive",
    ),
]
TrainerName = Annotated[
    flags.Name, flags.Cites(scaffold="local training: karimireddy2020scaffold")
]


@dataclasses.dataclass(frozen=True)
class DataSource(Shown):
    """Data that the clients train on."""

    dataset: DatasetName = "mnist_5k"
    """mnist_5k and digits are included; mrsa-jax data prepare fetches mnist,
    fashion_mnist, cifar10 and cifar100; idx, cifar and att read files of --directory;
    olivetti (faces); tfds:NAME; or your own (--plugin)."""
    directory: flags.Folder = None
    """Folder of the data set's files, for sets that are read from a folder. Default:
    the folder of prepared sets."""


@dataclasses.dataclass(frozen=True)
class DataSplit(DataSource):
    """Data that the clients train on, and how they are split."""

    partition: PartitionName = "iid"
    """iid; shards (sorted by label, so one label per client); shards_with_shared (the
    same, plus a set that all clients share); dirichlet (by class); dirichlet_by_client.
    """
    shards_per_client: flags.Whole = 1
    """Shards per client, for --partition shards."""
    single_label: bool = True
    """Let no shard hold two labels; --no-single-label cuts equal shards, as in the
    papers."""
    shared_size: flags.Whole = 200
    """Samples that all clients share, for --partition shards_with_shared."""
    balanced: bool = True
    """Take the same number of each class into the shared set; --no-balanced takes any.
    """
    concentration: flags.Positive = 0.5
    """Dirichlet concentration, for --partition dirichlet and dirichlet_by_client."""


@dataclasses.dataclass(frozen=True)
class DataConfig(DataSplit):
    """Data that the clients train on, and how they are split."""

    normalise: bool = False
    """Shift and scale each channel to mean 0 and deviation 1 over the training images.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalLength(Shown):
    """Length of a client's training in a round."""

    num_epochs: flags.Whole = 1
    """Local epochs per round, E; must not be set with --local-steps."""
    local_steps: Annotated[flags.Count, flags.Within(1, 2**31 - 1)] = None
    """Local steps per round, E as in the first paper, instead of whole epochs: each is
    over a minibatch drawn from the client's samples. Default: whole epochs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSchedule(LocalLength):
    """Length of a client's training in a round, and the decay of its learning rate."""

    decay_rounds: Annotated[tuple[int, ...], flags.Within(1), flags.shown()] = ()
    """Rounds after which the learning rate is multiplied by --decay-factor, skipped
    ones counted, such as 400 800 in the papers' CIFAR runs. Default: it does not fall.
    """
    decay_factor: flags.AtMostOne = 0.4
    """Factor of the learning rate after --decay-rounds."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig(LocalSchedule):
    """Local training of clients, the server's step, and tests of the model."""

    model: ModelName = "lenet"
    """lenet (61,706 parameters on 28x28x1), mlp (784-200-200-10; 199,210), logistic,
    cnn (McMahan's; 1,663,370), vgg11, vgg11_group (with group normalisation),
    smooth_lenet (Zhu et al.'s, for gradient inversion), or your own (--plugin)."""
    learning_rate: flags.Positive = 0.1
    """Step size of the clients' SGD."""
    momentum: flags.Share = 0.0
    """Momentum of the clients' SGD."""
    weight_decay: flags.NotNegative = 0.0
    """Weight decay of the clients' SGD, added to the gradient as this multiple of the
    weights."""
    proximal: flags.NotNegative = 0.0
    """FedProx's mu: pulls a client's weights towards the round's global model; 0 is
    FedAvg."""
    batch_size: flags.Whole = 10
    """Samples in a client's minibatch."""
    precision: PrecisionName = "float32"
    """bfloat16 computes the clients' layers in half precision, tf32 their matrix
    products with NVIDIA's tensor cores; the weights stay float32."""
    server: ServerName = "average"
    """Use of the mean update by the server: add it (FedAvg, average), or take it as a
    gradient of SGD with momentum 0.9 (momentum) or of Adam (adam)."""
    server_learning_rate: Annotated[flags.Number, flags.IS_POSITIVE] = None
    """Step size of the server. Default: 1, and 0.01 for adam."""
    evaluate_every: flags.Whole = 10
    """Rounds between two tests of the global model."""
    measure_drift: bool = True
    """Measure how the clients' updates drift over the rounds, and how many bits the
    sums reveal about them."""
    trainer: TrainerName = None
    """sgd; scaffold, whose clients keep control variates and send two numbers per
    parameter; or your own (--plugin). Default: sgd."""


@dataclasses.dataclass(frozen=True)
class ResourceConfig(Shown):
    """Resources that a training may use; results change by no more than rounding."""

    memory_gib: Annotated[flags.Number, flags.IS_POSITIVE] = None
    """Bound on the memory of a round, in GiB, such as 4; it decides how many clients
    train side by side. Default: the number that is fastest."""
    devices: Annotated[flags.Count, flags.Within(1)] = None
    """Devices over which the clients of a round are distributed, each with a copy of
    the data. Default: all accelerators of this machine; without one, the cores of the
    CPU, at most 8; one device if `memory_gib` is set."""


def validate_training(training: LocalSchedule) -> None:
    """Check the rounds of the decay, and that epochs or steps are set but not both.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.

    Examples:
        >>> validate_training(TrainingConfig(decay_rounds=(400, 800)))
        >>> validate_training(TrainingConfig(decay_rounds=(800, 400)))
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `decay_rounds` must ascend; got (800, 400)
    """
    rounds = training.decay_rounds
    ascending = all(a < b for a, b in itertools.pairwise(rounds))
    require(ascending, "decay_rounds", "must ascend", rounds)
    local_length(training)


def local_length(training: LocalLength) -> dict[str, Any]:
    """Return the argument of `federated.local_sgd` for the length of a local training.

    Args:
        training: Settings of a training or an attack.

    Raises:
        ConfigurationError: If both are set.

    Examples:
        >>> local_length(TrainingConfig(local_steps=3))
        {'num_steps': 3}
        >>> local_length(TrainingConfig(local_steps=3, num_epochs=2))
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `num_epochs` must not be set with local_steps; ...
    """
    if training.local_steps is None:
        return {"num_epochs": training.num_epochs}
    check_unset(training, "must not be set with local_steps", "num_epochs")
    return {"num_steps": training.local_steps}
