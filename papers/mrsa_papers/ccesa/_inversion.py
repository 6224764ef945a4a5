"""CCESA's Figures 2 and B.2: model inversion of what clients send, plain and padded.

Choi, Sohn, Han, Moon, Section 5.3 and Appendix B.2: softmax regression on the faces of
40 people, a person a client; an eavesdropper reads the clients' models off the line and
looks for the face of each (Fredrikson et al. 2015). Open readings, stated in the item:
p, the minibatch, the split into training and test images, which round is overheard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import attacks, data, federated, quantize, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_papers.ccesa import _wire as lines
from mrsa_papers.ccesa._reliability import check_classes, faces_trainer, one_class
from mrsa_papers.ccesa._theory import bandwidth_share
from mrsa_papers.harness import (
    Context,
    Values,
    image_as_cells,
    rows_to_frame,
    stretched,
)
from mrsa_papers.harness._datasets import has_size_of, is_data_of
from mrsa_papers.harness._figures import draw_image_grid
from mrsa_papers.harness._items import Check, Found, state
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Figure, pd

_SHOWN = 10  # clients of the figure
_TOTAL = "sum of all"


def inversion(context: Context, settings: Values) -> Found:
    """Return Figures 2 and B.2: faces or digits from plain and padded local models."""
    dataset, number = context.images, settings.num_clients
    check_classes(settings, dataset)
    threshold = secagg.connection_probability(number, 0.0)
    rule = "must leave a p* of at most 1 (29 or more do)"
    require(threshold <= 1.0, "num_clients", rule, f"{number}: {threshold:.3f}")
    chances = tuple(dict.fromkeys((threshold, settings.connection_probability)))
    seeds, rounds = settings.num_seeds, settings.num_rounds
    context.begin()
    rows: list[dict[str, Any]] = []
    for seed in context.steps("model inversion: trainings and attacks", range(seeds)):
        rows += _attacked(context, settings, dataset, chances, seed)
    frame = rows_to_frame(rows)
    names = [
        lines.PLAIN,
        lines.SECAGG,
        *(lines.ccesa_name(chance) for chance in chances),
    ]
    guess = 1 / dataset.num_classes
    total = frame[frame["scheme"] == _TOTAL]["identified"].astype(bool)
    adversary = (
        "from the sum of all, which every scheme gives the server and which is sent "
        f"back to all, {int(total.sum())} of {len(total)} are identified"
    )
    checks = (
        _seen(
            frame,
            lines.PLAIN,
            guess,
            "reveals the individual's identity",
            is_hidden=False,
        ),
        *(
            _seen(
                frame,
                name,
                guess,
                "no clue",
                is_hidden=True,
                note=adversary if k == 0 else "",
            )
            for k, name in enumerate(names[1:])
        ),
        _forty_percent(context, settings),
    )
    clipped = float(frame["clipped"].max())
    return Found(
        checks,
        frame,
        f"{_source(dataset)}: {number} clients of one class and at most "
        f"{settings.samples_per_client} training images each, "
        f"{dataset.num_classes} classes; softmax regression, {settings.num_epochs} "
        f"local epochs, rate {settings.learning_rate:g}, batch {settings.batch_size} "
        f"(a reading). The models of round {rounds}, "
        f"{lines.LEVELS} "
        f"levels on +-{lines.CLIP:g} ({100 * clipped:.2g} % clipped), under real pads, "
        "are read "
        f"off the line as if they had none. Of {seeds} seeds; a client counts as "
        "identified if "
        "the image that its model gives for its class is most like that class's mean. "
        "p is lost: "
        f"p* ({threshold:.3f}) and {settings.connection_probability:g}. Total "
        f"variation weighs {settings.smoothness:g}. Shown: "
        "a client "
        "of each class, seed 0, each image from its darkest to its lightest pixel; r "
        "is the "
        "correlation with the class's mean, a tick means identified.",
    )


def _source(dataset: data.Dataset) -> str:
    """Name the data set, and whether it is the paper's."""
    if is_data_of(dataset, "olivetti"):
        return f"{dataset.name} (the AT&T faces)"
    if has_size_of(dataset, "olivetti"):
        return f"{dataset.name} (not recognised as the AT&T faces)"
    return (
        f"{dataset.name} (instead of the AT&T faces: --dataset att or olivetti where "
        "they are)"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _People:
    """The people that the attack looks for.

    The clients' classes, the classes' mean images, who is shown where.
    """

    labels: np.ndarray
    means: np.ndarray
    columns: dict[int, int]  # client -> column of the figure


def _attacked(
    context: Context,
    settings: Values,
    dataset: data.Dataset,
    chances: Iterable[float],
    seed: int,
) -> list[dict[str, Any]]:
    """Train, overhear the last round, invert what is read.

    A row for each client and scheme.
    """
    key = context.key(seed)
    number, images = settings.num_clients, settings.samples_per_client
    clients = one_class(key, dataset, number, images)
    model = federated.logistic(dataset.num_classes)
    line = _overheard(key, dataset, clients, model, chances, settings)
    people = _people(dataset, clients, is_shown=seed == 0)
    attack = attacks.model_inversion(
        num_steps=settings.num_steps, smoothness=settings.smoothness
    )
    rows = [] if seed else _originals(dataset, clients, people)
    rows += _inverted(line, dataset, model, attack, people)
    return [{"seed": seed, "clipped": line.clipped, **row} for row in rows]


def _inverted(
    line: lines.Wire,
    dataset: data.Dataset,
    model: Any,
    attack: Any,
    people: _People,
) -> list[dict[str, Any]]:
    """Invert what each scheme lets see, and the sum; a row for each client."""

    def images(models: np.ndarray) -> np.ndarray:
        shape, classes = dataset.input_shape, dataset.num_classes
        view = attacks.views.ModelView(model, on_device(models), shape, classes)
        return attack.run(None, view).images

    rows: list[dict[str, Any]] = []
    for name in line.uploads:
        rows += _judged(name, images(line.read(name)), people)
    count = len(people.labels)
    # one image for all: the sum is the same for each client
    everybody = np.broadcast_to(images(line.means(count)), (count, *people.means.shape))
    return rows + _judged(_TOTAL, everybody, people)


def _overheard(
    key: Key[Array, ""],
    dataset: data.Dataset,
    clients: data.ClientData,
    model: Any,
    chances: Iterable[float],
    settings: Values,
) -> lines.Wire:
    """Train all rounds but one; return what is sent in the last."""
    trainer = faces_trainer(model, settings)
    number, rounds = settings.num_clients, settings.num_rounds
    dim = federated.num_parameters(model, dataset.input_shape)
    average = secagg.ring_average(
        quantize.stochastic(lines.LEVELS, lines.CLIP), number, dim, fidelity="sets"
    )
    # all clients in each round, as in the paper
    cohorts = np.ones((rounds - 1, number), np.bool_)
    before = federated.train(
        key, federated.Training(model, clients, cohorts, trainer, average)
    )
    start = on_device(before.parameters, jnp.float32)
    updates = federated.client_updates(
        key, model, start, clients, trainer, round_index=rounds - 1
    )
    # the models that are sent: start and update together
    return lines.wire(key, start[None, :] + updates, chances, round_index=rounds - 1)


def _people(
    dataset: data.Dataset, clients: data.ClientData, *, is_shown: bool
) -> _People:
    # each client holds one class, which its first sample shows
    class_of_client = np.asarray(clients.labels)[np.asarray(clients.indices)[:, 0]]
    labels = np.asarray(dataset.train_labels)
    classes = range(dataset.num_classes)
    means = np.stack([dataset.train_inputs[labels == c].mean(axis=0) for c in classes])
    first = (
        [int(np.flatnonzero(class_of_client == c)[0]) for c in classes][:_SHOWN]
        if is_shown
        else []
    )
    return _People(
        class_of_client, means, {client: column for column, client in enumerate(first)}
    )


def _originals(
    dataset: data.Dataset, clients: data.ClientData, people: _People
) -> list[dict[str, Any]]:
    """Return a training image and the class's mean for each client in the figure."""
    indices = np.asarray(clients.indices)
    kinds = (
        ("training image", lambda client: dataset.train_inputs[indices[client, 0]]),
        ("mean of the class", lambda client: people.means[people.labels[client]]),
    )
    return [
        {
            "scheme": name,
            "client": client,
            "class": int(people.labels[client]),
            "column": column,
            **image_as_cells(stretched(image(client))),
        }
        for name, image in kinds
        for client, column in people.columns.items()
    ]


def _judged(name: str, images: np.ndarray, people: _People) -> list[dict[str, Any]]:
    """Return for each client whether its class's image is most like that class."""
    places = attacks.identified(images, people.means)
    rows: list[dict[str, Any]] = []
    for client, label in enumerate(people.labels.tolist()):
        image = images[client, label]
        row = {
            "scheme": name,
            "client": client,
            "class": label,
            "identified": bool(places[client, label]),
            "r": _likeness(image, people.means[label]),
        }
        if client in people.columns:
            row |= {
                "column": people.columns[client],
                **image_as_cells(stretched(image)),
            }
        rows.append(row)
    return rows


def _likeness(image: np.ndarray, reference: np.ndarray) -> float:
    """Return the correlation of two images' pixels; 0 where one has no contrast."""
    first, second = (
        np.asarray(each, np.float64).ravel() for each in (image, reference)
    )
    # brightness is no likeness
    first, second = first - first.mean(), second - second.mean()
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / size if size > 1e-12 else 0.0


def _seen(
    frame: pd.DataFrame,
    name: str,
    guess: float,
    paper: str,
    *,
    is_hidden: bool,
    note: str = "",
) -> Check:
    rows = frame[frame["scheme"] == name]
    counts = [(int(rows["identified"].sum()), len(rows))]
    claim = f"clients identified from what is sent, {name}"
    return lines.chance_check(
        claim, counts, guess, is_hidden=is_hidden, paper=paper, note=note
    )


def _forty_percent(context: Context, settings: Values) -> Check:
    """Judge the printed share of resources.

    Appendix D.1's count gives the share, and n = 40 what its p can do.
    """
    n, p = settings.num_clients, settings.connection_probability
    trials = settings.num_trials
    share, enough = bandwidth_share(n, p), bandwidth_share(n, 0.7)
    rule = secagg.share_threshold(n, p)
    rates = {
        t: secagg.failure_rates(context.seed, n, p, 0.0, t, trials)
        for t in dict.fromkeys((rule, settings.threshold))
    }
    failed = ", ".join(
        f"{rate.unreliable.count} of {trials} cannot be unmasked at t = {t}"
        for t, rate in rates.items()
    )
    return state(
        f"CCESA with {100 * p:g} % of SecAgg's resources, n = {n}, q_total = 0",
        any(rate.unreliable.upper < 0.5 for rate in rates.values()),
        depends=("num_clients", "connection_probability", "threshold"),
        paper=f"required resources are only {100 * p:g} % of those of SA",
        ours=f"p = {p:g} ({100 * share:.1f} % by Appendix D.1): {failed}; "
        f"{rates[rule].not_private.count} are not private",
        tolerance="fewer than half of the rounds fail, nobody lost",
        otherwise="our reading",
        of_data=False,
        note=(
            f"resources are read as p, by Appendix D.1. t = {rule} is Remark 4's, "
            f"{settings.threshold} that of Figure B.1, whose p = 0.7 costs "
            f"{100 * enough:.1f} %. Pads hide the models at p = {p:g} too, but their "
            "sum is lost"
        ),
    )


def draw_inverted(figure: Figure, data: pd.DataFrame) -> None:
    """Draw what each scheme lets see of some clients' classes beside their images."""

    def words(row: pd.Series) -> str:
        return f"r = {round(row['r'], 2) + 0.0:.2f} {'✓' if row['identified'] else ''}"

    draw_image_grid(figure, data, "scheme", "column", "r", words)
