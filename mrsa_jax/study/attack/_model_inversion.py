"""A typical image of each class, from a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mrsa_jax import attacks, data, federated, plotting
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress, steps
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._recorded import (
    RecordedRun,
    bytes_to_repeat,
    check_pixels,
)
from mrsa_jax.study.attack._stage import rows_of
from mrsa_jax.study.attacks_on_models import ModelInversionConfig
from mrsa_jax.study.runs import _build
from mrsa_watch._base.errors import require

_MOST_DRAWN = 12  # images in a row of the grid


def run(
    config: ModelInversionConfig, report: AttackFindings, progress: Progress
) -> None:
    """Invert softmax regression.

    One client's model in the clear and padded, and the mean.
    """
    if config.run is not None:
        _invert_run(config, RecordedRun.read(config.run), report, progress)
        return
    report.title = f"Model inversion: softmax regression on {config.dataset}"
    dataset, clients = _build.build_clients(config.seed, config, config.num_clients)
    shape, model = (
        tuple(dataset.train_inputs.shape[1:]),
        federated.logistic(dataset.num_classes),
    )
    start, trainer = _stage.start_and_trainer(config, model, shape, batch_size=10)
    models = np.asarray(start)[None]
    for number in steps(progress, "clients' training", range(config.rounds)):
        # the mean of the clients' models is the model of the next round
        start = models.mean(axis=0)
        updates = federated.client_updates(
            config.seed, model, start, clients, trainer, round_index=number
        )
        models = start + np.asarray(updates)
    key = _stage.stream(config, Stream.QUANTIZATION)
    wire = _stage.through_wire(key, models, config.connection_probability)
    means, drawn = _class_means(dataset)
    attack = _inversion(config)
    seen = {
        "plain": attacks.read_models(wire.plain)[0],
        "padded": attacks.read_models(wire.padded)[0],
        "aggregate": wire.mean,
    }
    rows, texts = [("mean of class", means[drawn])], [[str(label) for label in drawn]]
    try:
        for name in steps(progress, "models", config.seen):
            if name == "aggregate" and wire.status != Status.OK:
                words = f"The round failed ({wire.status.name}): no mean was learnt."
                report.sentences.append(words)
                continue
            view = attacks.views.ModelView(
                model, on_device(seen[name]), shape, dataset.num_classes
            )
            recovered = attack.run(None, view)
            _score_classes(report, name, recovered, means)
            report.arrays[name] = recovered.images
            rows.append((name, recovered.images[drawn]))
            texts.append([f"{value:.2f}" for value in recovered.confidence[drawn]])
    finally:  # once, and what an interruption leaves too
        if len(rows) > 1:
            grid = plotting.plot_image_grid(rows, scores=texts, value_range=None)
            report.figures["images"] = grid
    report.arrays["class_means"] = means
    _say_identified(report)


def _inversion(config: ModelInversionConfig) -> Any:
    return attacks.model_inversion(
        num_steps=config.iterations,
        step_size=config.step_size,
        smoothness=config.smoothness,
    )


def _invert_run(
    config: ModelInversionConfig,
    run: RecordedRun,
    report: AttackFindings,
    progress: Progress,
) -> None:
    """Invert the model of all clients after the last round of a recorded run."""
    trained, dataset = run.settings, run.dataset
    check_pixels(trained.data, "run")
    report.title = f"Model inversion: {trained.training.model} on {dataset.name}"
    means, drawn = _class_means(dataset)
    view = attacks.views.ModelView(
        run.model,
        on_device(run.summed(progress).parameters),
        tuple(dataset.train_inputs.shape[1:]),
        dataset.num_classes,
    )
    recovered, name = _inversion(config).run(None, view), "aggregate"
    _score_classes(report, name, recovered, means)
    report.arrays |= {name: recovered.images, "class_means": means}
    rows = [("mean of class", means[drawn]), (name, recovered.images[drawn])]
    texts = [
        [str(label) for label in drawn],
        [f"{value:.2f}" for value in recovered.confidence[drawn]],
    ]
    grid = plotting.plot_image_grid(rows, scores=texts, value_range=None)
    report.figures["images"] = grid
    _say_identified(report)


def _say_identified(report: AttackFindings) -> None:
    report.sentences += [
        f"{row['seen']}: {row['identified']} of {row['classes']} images are most like "
        "the class "
        f"that they are of; by chance {row['by_chance']:.2g} would be."
        for row in report.summary
    ]


def _class_means(dataset: data.Dataset) -> tuple[np.ndarray, Sequence[int]]:
    """Return the mean image of each class, and the classes that are drawn."""
    labels, images = np.asarray(dataset.train_labels), np.asarray(dataset.train_inputs)
    counts = np.bincount(labels, minlength=dataset.num_classes)
    rule = "must have samples of each of its classes"
    require(
        bool((counts > 0).all()), "dataset", rule, np.flatnonzero(counts == 0).tolist()
    )
    means = np.stack(
        [images[labels == c].mean(axis=0) for c in range(dataset.num_classes)]
    )
    return means, list(range(min(dataset.num_classes, _MOST_DRAWN)))


def _score_classes(
    report: AttackFindings, name: str, recovered: Any, means: np.ndarray
) -> None:
    is_identified = attacks.identified(recovered.images, means)
    flat = recovered.images.reshape(len(means), -1).astype(np.float64)
    real = means.reshape(len(means), -1).astype(np.float64)
    likeness = np.full(len(means), np.nan)
    # a picture of one value has no correlation
    for c in np.flatnonzero((flat.std(axis=1) > 0) & (real.std(axis=1) > 0)):
        likeness[c] = np.corrcoef(flat[c], real[c])[0, 1]
    numbers = {"class": np.arange(len(means)), "confidence": recovered.confidence}
    report.scores += rows_of(
        seen=name, **numbers, likeness=likeness, identified=is_identified
    )
    row = {
        "seen": name,
        "classes": len(means),
        "identified": int(is_identified.sum()),
        "by_chance": 1.0,
        "confidence": float(recovered.confidence.mean()),
        "likeness": float(np.nanmean(likeness))
        if np.isfinite(likeness).any()
        else None,
    }
    report.summary.append(row)


def arrays(config: Any) -> int:
    """Return the arrays of model inversion: the clients' models and their uploads."""
    if config.run is not None:
        return bytes_to_repeat(config.run)[0]
    pool, shape, classes = _stage.data_of(config.dataset, config.directory, config.seed)
    dim = _stage.dim_of("logistic", shape, classes)
    return (
        pool
        + _stage.on_the_wire(dim, config.num_clients)
        + 8 * 4 * len(config.seen) * dim
    )
