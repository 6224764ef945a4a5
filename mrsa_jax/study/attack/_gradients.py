"""Images, from an update or a sum of some."""

from __future__ import annotations

import pathlib
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax import attacks, federated, plotting
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.packaged import packaged_file
from mrsa_jax._core.streams import Stream
from mrsa_jax.attacks.views import UpdateView
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._recorded import (
    RecordedRun,
    bytes_to_repeat,
    check_pixels,
    settings_of,
)
from mrsa_jax.study.attack._stage import rows_of
from mrsa_jax.study.attacks_on_models import GradientsConfig, pictures
from mrsa_jax.study.attacks_on_sums import LeastSquaresConfig
from mrsa_jax.study.runs._build import build_clients, build_rate_schedule
from mrsa_jax.study.settings._load import from_dict
from mrsa_jax.study.settings._parts import build, load_data
from mrsa_jax.study.stores._files import read_json
from mrsa_watch._base.errors import ConfigurationError, require
from mrsa_watch._base.html import counted

_SIDE = 32  # pixels of a photograph's side
_CLASSES = 10  # of a model for pictures without labels
_MOST_DRAWN = 12  # images in a row of the grid


def run(config: GradientsConfig, report: AttackFindings, progress: Progress) -> None:
    """Invert updates of a model that is not trained yet, or one solved from sums."""
    if config.run is not None:
        solved = _Solved.of_run(config.run, progress)
        source = f"the least-squares estimate from the sums of {config.run}"
        _invert_solved(config, solved, source, report, progress)
        return
    if config.solved is not None:
        solved = _Solved.read(config.solved)
        source = f"the estimate of {config.solved}/estimates.npy"
        _invert_solved(config, solved, source, report, progress)
        return
    report.title = (
        f"Gradient inversion ({config.method}): images from an update of {config.model}"
    )
    num_clients = config.num_summed
    images, labels, classes = _chosen_images(config, num_clients * config.num_images)
    shape, per_client = tuple(images.shape[1:]), config.num_images
    model = build("model", config.model, classes)
    start, trainer = _stage.start_and_trainer(
        config, model, shape, batch_size=per_client
    )
    # each makes one step
    clients = _stage.equal_parts(images, labels, num_clients, per_client, classes)
    updates = np.asarray(
        federated.client_updates(config.seed, model, start, clients, trainer)
    )
    wire = _stage.through_wire(_stage.stream(config, Stream.QUANTIZATION), updates)
    attack = _inversion(config)
    seen = {
        "plain": (updates[0], per_client),
        "padded": (attacks.read_models(wire.padded)[0], per_client),
        "sum": (wire.mean, len(images)),
    }
    rows = [("original", images if "sum" in config.seen else images[:per_client])]
    scores: list[Any] = [None]
    report.arrays["original"] = rows[0][1]
    try:
        for name in config.seen:
            sent, count = seen[name]
            # the server knows the learning rate: as long as a gradient
            update = sent / np.float32(config.learning_rate)
            given_labels = on_device(labels[:count]) if config.known_labels else None
            view = UpdateView(
                model, start, shape, classes, on_device(update), count, given_labels
            )
            progress.stage(f"{name}: {counted(count, 'image')}", config.iterations)
            recovered = attack.run(
                _stage.stream(config, Stream.ATTACK), view, progress.update
            )
            label = f"sum of {config.num_summed}" if name == "sum" else name
            ordered = _score_images(
                report, label, recovered, images[:count], labels[:count]
            )
            report.arrays[name] = ordered
            rows.append((label, ordered))
            quality = attacks.psnr(ordered, images[:count])
            scores.append([f"{value:.1f} dB" for value in quality])
    finally:  # once, and what an interruption leaves too
        if len(rows) > 1:
            drawn = [(label, row[:_MOST_DRAWN]) for label, row in rows]
            words = [text and text[:_MOST_DRAWN] for text in scores]
            report.figures["images"] = plotting.plot_image_grid(drawn, scores=words)
    grey = attacks.psnr(np.full_like(images, images.mean()), images).mean()
    report.sentences.append(
        f"For comparison: an image of one even grey has {grey:.1f} dB."
    )


def _inversion(config: GradientsConfig) -> Any:
    """Build the attack, whose `run` reports its iterations, too."""
    return attacks.gradient_inversion(
        config.method,
        num_steps=config.iterations,
        restarts=config.restarts,
        step_size=config.step_size,
        smoothness=config.smoothness,
    )


class _Solved(NamedTuple):
    """Settings of the training whose sums were solved, and the folder's arrays."""

    seed: int
    data: Any
    num_clients: int
    model: str
    rate: float
    estimates: np.ndarray
    parameters: np.ndarray

    @classmethod
    def read(cls, folder: pathlib.Path) -> _Solved:
        """Read the folder of a complete `attack least-squares`."""
        manifest = read_json(folder / "study.json") or {}
        is_attack = manifest.get("command") == "leastsquares"
        rule = "must be the folder of a complete `mrsa-jax attack least-squares`"
        complete = is_attack and bool(manifest.get("is_complete"))
        require(complete, "from", rule, str(folder))
        config = from_dict(LeastSquaresConfig, manifest["config"], "")
        seed: int
        data: Any
        population: Any
        training: Any
        rule = (
            "must have a model: that of simulated rounds or of --run, not sums of "
            "--aggregates"
        )
        require(config.aggregates is None, "from", rule, str(folder))
        is_whole = config.memory is None or config.prior == "zero"
        rule = "must hold whole updates, not differences from the mean update"
        require(is_whole, "from", rule, str(folder))
        paths = [folder / f"{name}.npy" for name in ("estimates", "model")]
        rule = (
            "must hold estimates.npy and model.npy, which `mrsa-jax attack "
            "least-squares` writes if it attacks a single scheme"
        )
        are_files = all(path.is_file() for path in paths)
        require(are_files, "from", rule, str(folder))
        estimates, parameters = (_stage.read_array(path, "from") for path in paths)
        if config.run is None:
            seed, data, population = config.seed, config, config
            training, rounds = config, config.warm_up + config.rounds
        else:
            trained = settings_of(config.run)
            seed, data, population = trained.seed, trained.data, trained.population
            training, rounds = trained.training, trained.rounds
        rate = _last_rate(training, rounds)
        settings = seed, data, population.num_clients, training.model, rate
        solved = cls(*settings, estimates, parameters)
        solved.check(folder)
        return solved

    @classmethod
    def of_run(cls, folder: pathlib.Path, progress: Progress) -> _Solved:
        """Repeat the rounds of a recorded run, and solve their sums."""
        run = RecordedRun.read(folder)
        trained, summed = run.settings, run.summed(progress)
        view = summed.view
        estimates = attacks.least_squares_attack().estimates(
            view.participation, view.aggregates
        )
        return cls(
            trained.seed,
            trained.data,
            trained.population.num_clients,
            trained.training.model,
            _last_rate(trained.training, trained.rounds),
            np.asarray(estimates),
            summed.parameters,
        )

    def check(self, folder: pathlib.Path) -> None:
        """Compare the arrays with the model on a sample of the data."""
        _, shape, classes = self.sizes()
        dim = _stage.dim_of(self.model, shape, classes)
        rule = f"must hold the {dim} parameters of {self.model}, for each client"
        shapes = self.parameters.shape, self.estimates.shape
        fits = shapes == ((dim,), (self.num_clients, dim))
        require(fits, "from", rule, str(folder), *shapes)

    def sizes(self) -> tuple[int, tuple[int, ...], int]:
        return _stage.data_of(self.data.dataset, self.data.directory, self.seed)


def _last_rate(training: Any, rounds: int) -> float:
    """Return the learning rate of a training's last round."""
    schedule = build_rate_schedule(training)
    factor = 1.0 if schedule is None else float(schedule(rounds - 1))
    return float(training.learning_rate * factor)


def _invert_solved(
    config: GradientsConfig,
    solved: _Solved,
    source: str,
    report: AttackFindings,
    progress: Progress,
) -> None:
    """Invert one client's update as least squares estimated it."""
    client, count = config.client, config.num_images
    check_pixels(solved.data, "from" if config.run is None else "run")
    assert client is not None
    rule = f"must be one of the {solved.num_clients} clients, counted from 0"
    require(client < solved.num_clients, "client", rule, client)
    update = np.asarray(solved.estimates[client], np.float32)
    rule = "must have taken part in a sum: its estimate is zero"
    require(bool(update.any()), "client", rule, client)
    dataset, clients = build_clients(solved.seed, solved.data, solved.num_clients)
    rows = np.asarray(clients.indices[client])[: int(clients.sizes[client])]
    images, labels = (
        np.asarray(array)[rows] for array in (clients.inputs, clients.labels)
    )
    rule = f"must be at most the {len(rows)} images that the client holds"
    require(count <= len(rows), "num_images", rule, count)
    # a part of the samples has labels that the adversary cannot be given
    rule = f"must not be set unless --num-images is {len(rows)}, all that it holds"
    is_sure = not config.known_labels or count == len(rows)
    require(is_sure, "known_labels", rule, config.known_labels)
    report.title = (
        f"Gradient inversion ({config.method}): images of client {client} from the "
        f"sums, by an update of {solved.model}"
    )
    view = UpdateView(
        build("model", solved.model, dataset.num_classes),
        on_device(solved.parameters),
        tuple(images.shape[1:]),
        dataset.num_classes,
        on_device(update / np.float32(solved.rate)),  # as long as a gradient
        count,
        on_device(labels) if config.known_labels else None,
    )
    progress.stage(f"client {client}: {counted(count, 'image')}", config.iterations)
    recovered = _inversion(config).run(
        _stage.stream(config, Stream.ATTACK), view, progress.update
    )
    # each recovered image is compared with the likest image that the client holds
    nearest = attacks.matched_images(images, recovered.images)
    truth, label = images[nearest], f"client {client}"
    ordered = _score_images(report, label, recovered, truth, labels[nearest])
    report.arrays |= {"original": truth, "recovered": ordered}
    quality = [f"{value:.1f} dB" for value in attacks.psnr(ordered, truth)]
    drawn = [("original", truth[:_MOST_DRAWN]), (label, ordered[:_MOST_DRAWN])]
    report.figures["images"] = plotting.plot_image_grid(
        drawn, scores=[None, quality[:_MOST_DRAWN]]
    )
    report.sentences.append(
        f"The update is {source}, and the model that of the last round. An image is "
        f"compared with the most similar of the {len(rows)} that client {client} holds."
    )


def _score_images(
    report: AttackFindings,
    label: str,
    recovered: Any,
    truth: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """Add a row for each image, and return images in the order of the originals."""
    # the sums do not tell which image is whose: each is compared with its likeness
    order = attacks.matched_images(recovered.images, truth)
    images = recovered.images[order]
    quality = attacks.psnr(images, truth)
    likeness = attacks.ssim(images, truth)
    error = attacks.mean_squared_error(images, truth)
    report.scores += rows_of(
        seen=label,
        image=np.arange(len(truth)),
        recovered_as=order,
        psnr_db=quality,
        ssim=likeness,
        mse=error,
        label=labels,
        label_seen=np.asarray(recovered.labels)[order],
    )
    row = {
        "seen": label,
        "images": len(truth),
        "psnr_db": float(quality.mean()),
        "best_psnr_db": float(quality.max()),
        "ssim": float(likeness.mean()),
        "mse": float(error.mean()),
        "distance": float(recovered.distance[int(recovered.best)]),
        "restarts": len(recovered.distance),
    }
    report.summary.append(row)
    return images


def _chosen_images(
    config: GradientsConfig, count: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return images, labels and the number of classes."""
    if config.dataset is not None:
        dataset = load_data(config.dataset, config.seed, config.directory)
        class_of = np.asarray(dataset.train_labels)
        rule = f"must hold the {count} images that are asked for"
        require(len(class_of) >= count, "dataset", rule, len(class_of))
        # one of each class first, so that they can be distinguished
        firsts = np.unique(class_of, return_index=True)[1]
        others = np.setdiff1d(np.arange(len(class_of)), firsts)
        chosen = np.concatenate([np.sort(firsts), others])[:count]
        images = np.asarray(dataset.train_inputs)[chosen]
        return images, class_of[chosen].astype(np.int32), dataset.num_classes
    if config.folder is None:
        images = _sample_photographs(config.photo or "flower", count)
    else:
        paths = pictures(config.folder)[:count]
        rule = (
            f"must hold the {count} pictures that are asked for (--num-summed x "
            "--num-images)"
        )
        require(len(paths) == count, "folder", rule, len(paths))
        images = np.stack([_picture(path) for path in paths])
    # pictures have no classes: they get labels in turn
    return images, np.arange(count, dtype=np.int32) % _CLASSES, _CLASSES


def _sample_photographs(name: str, count: int) -> np.ndarray:
    """Return the package's photographs: this one, the other, and then parts of both."""
    from PIL import Image

    other = "china" if name == "flower" else "flower"
    whole = [
        _square(Image.open(packaged_file(f"{picture}.jpg")))
        for picture in (name, other)
    ]
    # cut both pictures ever finer until there are enough parts
    cut, pieces = 2, list(whole)
    while len(pieces) < count:
        for place in range(cut * cut):
            for picture in whole:
                side = picture.width // cut
                left, top = place % cut * side, place // cut * side
                pieces.append(picture.crop((left, top, left + side, top + side)))
        cut += 1
    return np.stack([_small(picture) for picture in pieces[:count]])


def _picture(path: pathlib.Path) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(path) as opened:
            return _small(_square(opened.convert("RGB")))
    except OSError as error:
        raise ConfigurationError(
            f"`folder` must hold sound pictures; {path}: {error}"
        ) from error


def _square(picture: Any) -> Any:
    """Cut the middle out."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side))


def _small(picture: Any) -> np.ndarray:
    return np.asarray(picture.resize((_SIDE, _SIDE)), np.float32) / np.float32(255)


def arrays(config: Any) -> int:
    """Return the arrays of gradient inversion: second gradients of all restarts."""
    count = config.num_summed * config.num_images
    shape: tuple[int, ...]
    if config.run is not None:
        repeated, dim, entries = bytes_to_repeat(config.run)
        images = config.num_images
        walked = config.restarts * (_OF_MODEL * dim + _OF_IMAGE * images * entries)
        return repeated + 4 * walked
    if config.solved is not None:
        solved = _Solved.read(config.solved)
        pool, shape, classes = solved.sizes()
        images, dim = config.num_images, len(solved.parameters)
        entries = _stage.activations(solved.model, shape, classes)
        walked = config.restarts * (_OF_MODEL * dim + _OF_IMAGE * images * entries)
        return pool + 4 * walked
    pool, shape, classes = 0, (_SIDE, _SIDE, 3), _CLASSES
    if config.dataset is not None:
        pool, shape, classes = _stage.data_of(
            config.dataset, config.directory, config.seed
        )
    dim = _stage.dim_of(config.model, shape, classes)
    images = count if "sum" in config.seen else config.num_images
    entries = _stage.activations(config.model, shape, classes)
    walked = config.restarts * (_OF_MODEL * dim + _OF_IMAGE * images * entries)
    return pool + 4 * walked + _stage.on_the_wire(dim, config.num_summed)


_OF_MODEL = 6  # arrays like the model, of each restart
_OF_IMAGE = 24  # arrays like the activations, of each image
