"""Attacks on updates, models and rounds: settings, rules, rows.

Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Literal

from mrsa_jax._core import flags
from mrsa_jax.study._attack_rows import (
    AttackSettings,
    FinitePositive,
    FromZero,
    OfRun,
    Unread,
    plain,
    row,
)
from mrsa_jax.study.settings._tables import check_unset
from mrsa_jax.study.settings._training_tables import (
    DataSource,
    DataSplit,
    LocalLength,
    ModelName,
)
from mrsa_watch._base.errors import require

_MethodName = Annotated[
    Literal["cosine", "euclidean"],
    flags.Cites(
        cosine="gradient inversion: geiping2020inverting",
        euclidean="gradient inversion: zhu2019deep",
    ),
]
_MethodNames = Annotated[
    tuple[Literal["loss", "shadow", "likelihood_ratio"], ...],
    flags.Cites(
        loss="membership inference: yeom2018privacy",
        shadow="membership inference: shokri2017membership",
        likelihood_ratio="membership inference: carlini2022membership",
    ),
]
_PICTURES = (".png", ".jpg", ".jpeg")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientsConfig(OfRun, DataSource):
    """Look for the images behind an update, or behind a sum of several updates.

    An update of few images shows them (Zhu et al. 2019; Geiping et al. 2020), a sum of
    few updates too, but not whose they are; an upload under pads shows nothing.
      mrsa-jax attack gradients
      mrsa-jax attack gradients --photo china --seen plain --iterations 4800 --random-starts 8
      mrsa-jax attack gradients --dataset mnist_5k --model lenet --num-summed 4
      mrsa-jax attack gradients --folder ~/pictures --method euclidean
      mrsa-jax attack gradients --from results/attack/least_squares --client 3
      mrsa-jax attack gradients --run results/train --client 3
    """

    out: pathlib.Path = pathlib.Path("results/attack/gradients")
    photo: Annotated[
        Literal["flower", "china"] | None, flags.shown("{flower,china}")
    ] = None
    """Invert the two photographs of the package, this one first, in 32 x 32 pixels.
    Default: flower, if neither --dataset nor --folder is set."""
    dataset: flags.Name = None  # type: ignore[assignment]
    """Invert images of a data set instead (mrsa-jax data list). Default: the
    photographs."""
    folder: flags.Folder = None
    """Invert the first pictures of this folder instead, in 32 x 32 pixels (.png, .jpg).
    Default: the photographs."""
    solved: Annotated[pathlib.Path | None, flags.shown("DIR", name="from")] = None
    """Invert the update of --client that `mrsa-jax attack least-squares` estimated in
    this folder, with its model, data and learning rate. Default: not used."""
    client: Annotated[flags.Count, flags.Within(0)] = None
    """Client of --from or --run, counted from 0. It is required with both. Default: not
    used."""
    seen: tuple[Literal["plain", "padded", "sum"], ...] = ("plain", "sum", "padded")
    """View of the adversary: one client's plain update, its padded upload, or the sum
    of the clients."""
    num_summed: flags.Several = 2
    """Clients in the sum, T."""
    num_images: flags.Whole = 1
    """Images of each client, all in one step of SGD."""
    model: ModelName = "smooth_lenet"
    """Model at the start of training; smooth_lenet is Zhu et al.'s."""
    learning_rate: FinitePositive = 0.1
    """Step size of the clients' SGD."""
    method: _MethodName = "cosine"
    """cosine (Geiping et al. 2020, Adam on signs) or euclidean (Zhu et al. 2019,
    L-BFGS)."""
    iterations: flags.Whole = 1200
    """Steps of the optimizer."""
    restarts: Annotated[flags.Whole, flags.shown(name="random-starts")] = 2
    """Random starts, side by side; the one that fits best is taken."""
    step_size: FromZero = 0.1
    """Step size of signed Adam; L-BFGS chooses its steps."""
    smoothness: FromZero = 1e-5
    """Weight of the total variation."""
    known_labels: bool = False
    """Give the labels to the adversary, which otherwise infers them from the last bias.
    """


def _check_gradients(config: GradientsConfig) -> None:
    is_solved = config.solved is not None or config.run is not None
    rule = "must be set together with --from or --run"
    require(is_solved == (config.client is not None), "client", rule, config.client)
    if config.run is not None:
        rule = "must not be set with --run, whose sums are solved first"
        require(config.solved is None, "from", rule, str(config.solved))
        return
    if config.solved is not None:
        rule = "must not be set with --from, whose folder decides it"
        check_unset(config, rule, *_DECIDED)
        return
    sources = [
        n for n in ("photo", "dataset", "folder") if getattr(config, n) is not None
    ]
    rule = "must not be set if the images are from elsewhere"
    require(len(sources) <= 1, sources[0] if sources else "photo", rule, *sources)
    has_source = config.directory is None or config.dataset is not None
    rule = "must not be set without --dataset"
    require(has_source, "directory", rule, str(config.directory))
    if config.folder is not None:
        rule = f"must be a folder with pictures ({', '.join(_PICTURES)})"
        require(bool(pictures(config.folder)), "folder", rule, str(config.folder))


def _unread_by_gradients(config: GradientsConfig) -> Unread:
    if config.method == "euclidean":
        rule = "must not be set with --method euclidean, whose L-BFGS chooses its steps"
        yield rule, ("step_size",)
    if config.seen == ("plain",):
        yield "must not be set unless --seen has padded or sum", ("num_summed",)


_DECIDED = (
    "photo",
    "dataset",
    "directory",
    "folder",
    "seen",
    "num_summed",
    "model",
    "learning_rate",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInversionConfig(OfRun, DataSplit, LocalLength):
    """Draw what a model takes for the typical image of each class: a digit, or a face.

    Softmax regression shows its classes (Fredrikson et al. 2015): a face where a class
    is a person.
      mrsa-jax attack model-inversion
      mrsa-jax attack model-inversion --dataset olivetti --num-epochs 50 --num-clients 4
      mrsa-jax attack model-inversion --connection-probability 0.7 --num-clients 40
      mrsa-jax attack model-inversion --dataset olivetti --partition shards --num-clients 40
        --rounds 50 --num-epochs 50
      mrsa-jax attack model-inversion --run results/train
    """

    out: pathlib.Path = pathlib.Path("results/attack/model_inversion")
    dataset: str = "mnist_5k"
    """mnist_5k, digits, olivetti (faces), or another set (mrsa-jax data list)."""
    seen: tuple[Literal["plain", "padded", "aggregate"], ...] = (
        "plain",
        "padded",
        "aggregate",
    )
    """Model that the adversary sees: a client's plain model, its padded upload, or the
    mean of all clients' models."""
    num_clients: flags.Several = 10
    """Clients of the round; each holds an equal part of the data."""
    connection_probability: flags.AtMostOne = 1.0
    """Probability that two clients share a pad: 1 is SecAgg, less is CCESA."""
    learning_rate: FinitePositive = 0.05
    """Step size of the clients' SGD."""
    num_epochs: flags.Whole = 10
    """Local epochs."""
    rounds: flags.Whole = 1
    """Rounds of training, each of them by all clients; the models of the last are seen.
    """
    iterations: flags.Whole = 500
    """Most steps of the attack."""
    step_size: FinitePositive = 0.02
    """Length of its steps, as a fraction of the range of the pixels."""
    smoothness: FromZero = 0.0
    """Weight of the total variation."""


def _unread_by_model_inversion(config: ModelInversionConfig) -> Unread:
    if config.seen == ("plain",):
        rule = "must not be set unless --seen has padded or aggregate"
        yield rule, ("connection_probability",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MembershipConfig(OfRun, DataSource, LocalLength):
    """Tell whether samples were among those that a client trained on.

    A model that knows its samples by heart gives them away; AUC 0.5 is chance.
      mrsa-jax attack membership
      mrsa-jax attack membership --methods loss --num-epochs 100 --label-noise 0
      mrsa-jax attack membership --seen sum --num-summed 8
      mrsa-jax attack membership --seen padded --num-summed 20 --connection-probability 0.7
      mrsa-jax attack membership --run results/train --num-targets 1
    """

    out: pathlib.Path = pathlib.Path("results/attack/membership")
    methods: _MethodNames = ("loss", "shadow", "likelihood_ratio")
    """loss (Yeom et al. 2018), shadow (Shokri et al. 2017), likelihood_ratio (Carlini
    2022)."""
    seen: tuple[Literal["plain", "padded", "sum"], ...] = ("plain", "sum", "padded")
    """View of the adversary: one client's plain model, its padded upload, or a sum."""
    num_summed: flags.Several = 4
    """Clients in the sum, T."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    label_noise: flags.Chance = 0.3
    """Fraction of wrong labels, which a model can only memorise."""
    model: ModelName = "mlp"
    """Model that they train."""
    learning_rate: FinitePositive = 0.1
    """Step size of the clients' SGD."""
    momentum: flags.Share = 0.0
    """Momentum of the clients' SGD."""
    connection_probability: flags.AtMostOne = 1.0
    """Probability that two clients of a sum share a pad: 1 is SecAgg, less is CCESA."""
    batch_size: flags.Whole = 10
    """Samples in a minibatch."""
    num_epochs: flags.Whole = 30
    """Local epochs; with more, a model memorises more."""
    client_size: flags.Several = 50
    """Samples of a client, and of each shadow model."""
    num_targets: flags.Whole = 2
    """Attacked clients; scores are of all of them together."""
    num_shadows: flags.Several = 16
    """Shadow models of the adversary."""


def _unread_by_membership(config: MembershipConfig) -> Unread:
    if config.seen == ("plain",):
        yield (
            "must not be set unless --seen has padded or sum",
            (
                "num_summed",
                "connection_probability",
            ),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InconsistencyConfig(AttackSettings, DataSplit, LocalLength):
    """A malicious server sends one client the model, the others one without lessons.

    Outside the papers' threat model: the server lies (Pasquini et al. 2022). The
    others' updates are zero, so the sum is the target's. Pads bound to the model's hash
    do not cancel then.
      mrsa-jax attack inconsistency
      mrsa-jax attack inconsistency --cohort-size 20 --target 7 --pads bound
    """

    out: pathlib.Path = pathlib.Path("results/attack/inconsistency")
    pads: tuple[Literal["plain", "bound"], ...] = ("plain", "bound")
    """plain SecAgg, or pads that are bound to a hash of the model that a client
    received."""
    cohort_size: flags.Several = 8
    """Clients of the round, with real messages and cryptography."""
    target: flags.Natural = 0
    """Client that the server attacks, 0 to --cohort-size - 1."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    hidden_size: flags.Whole = 32
    """Width of the model's hidden layer; its closed rectifiers silence the others."""
    learning_rate: FinitePositive = 0.1
    """Step size of the clients' SGD."""
    num_epochs: flags.Whole = 1
    """Local epochs."""


def _check_inconsistency(config: InconsistencyConfig) -> None:
    rule = "must be one of the round's clients, below --cohort-size"
    require(
        config.target < config.cohort_size,
        "target",
        rule,
        config.target,
        config.cohort_size,
    )


def pictures(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return a folder's pictures in the order of their names."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _PICTURES)


ROWS = (
    row(
        "gradients",
        GradientsConfig,
        "images, from one update or a sum of several",
        {
            "images": "images",
            "psnr_db": "dB",
            "best_psnr_db": "dB",
            **plain("ssim mse distance restarts"),
        },
        "attack on updates",
        ("geiping2020inverting", "zhu2019deep"),
        check=_check_gradients,
        of_rounds=(
            "client",
            "num_images",
            "method",
            "iterations",
            "restarts",
            "step_size",
            "smoothness",
            "known_labels",
        ),
        unread=_unread_by_gradients,
        needs=520,
        images="images_of_gradients",
    ),
    row(
        "model-inversion",
        ModelInversionConfig,
        "a typical image of each class, from a model",
        {
            **dict.fromkeys(("classes", "identified", "by_chance"), "classes"),
            **plain("confidence likeness"),
        },
        "attack on models",
        ("fredrikson2015model",),
        of_rounds=("iterations", "step_size", "smoothness"),
        unread=_unread_by_model_inversion,
        needs=350,
        images="images_of_model_inversion",
    ),
    row(
        "membership",
        MembershipConfig,
        "whether a sample was among those trained on",
        plain("accuracy plus_minus precision recall auc tpr_at_0.1% tpr_at_1%"),
        "attack on models",
        ("carlini2022membership",),
        of_rounds=("methods", "num_targets", "num_shadows"),
        unread=_unread_by_membership,
        needs=450,
    ),
    row(
        "inconsistency",
        InconsistencyConfig,
        "a server that breaks the protocol, and the defence",
        {"clients": "clients", **plain("error recovered")},
        "attack by a server that sends different models",
        ("pasquini2022eluding",),
        check=_check_inconsistency,
        not_run="must not be set: the server lies while a round runs, and those of a "
        "run have happened",
        needs=200,
    ),
)
