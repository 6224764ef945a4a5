"""An attribute of each client, from the sums of many rounds."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Int32

from mrsa_jax import attacks, data, federated, privacy
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.streams import Stream
from mrsa_jax.attacks.views import AttributeView
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._recorded import RecordedRun, bytes_to_repeat, settings_of
from mrsa_jax.study.attacks_on_sums import AttributeConfig
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.settings._parts import build, load_data
from mrsa_jax.study.stores._store import measured_drift, measured_spread
from mrsa_watch._base.errors import ConfigurationError, require

_RATES = (0.01, 0.1)  # of false positives
_STOPS = 8  # rounds after which the estimate is scored
_COORDINATES = 1024  # of each update, that tell how updates drift


def run(config: AttributeConfig, report: AttackFindings, progress: Progress) -> None:
    """Train with and without the attribute, and infer it from the sums."""
    if config.run is not None:
        _attack_run(config, RecordedRun.read(config.run), report, progress)
        return
    report.title = (
        f"Attribute: {config.attribute}, {config.model} on {config.dataset}, "
        f"{config.client_size} samples per client"
    )
    settings = [
        dataclasses.replace(config, seed=config.seed + number)
        for number in range(config.trainings)
    ]
    for text in config.schemes:
        progress.stage(text, config.trainings * len(config.estimators))
        results: dict[Any, list[_Result]] = {name: [] for name in config.estimators}
        for each in settings:
            one_scheme = dataclasses.replace(each, schemes=(text,))
            ((label, history),) = one_scheme.histories(config.rounds)
            scene = _Scene.trained(each, history[history.any(axis=1)])
            for method, of_method in results.items():
                attack = attacks.attribute(
                    scene.trainer, prevalence=config.prevalence, method=method
                )
                scores = attack.run(_stage.stream(each, Stream.ATTACK), scene.view)
                of_method.append(_Result(attack, scene, scores))
                done = sum(map(len, results.values()))
                progress.update(done, config.trainings * len(config.estimators))
        _add_rows(report, label, results, config.prevalence)
    _say_found(report)


def _add_rows(
    report: AttackFindings,
    label: str,
    results: dict[Any, list[_Result]],
    prevalence: float,
    is_bounded: bool = True,
) -> None:
    """Add what each estimator found under a scheme."""
    for method, of_method in results.items():
        head = {"scheme": label, "method": method}
        report.summary.append(head | _summary(of_method, prevalence, is_bounded))
        for training, result in enumerate(of_method):
            # the bound is of the scheme: the same in all of its trainings
            rows = result.trajectory(report.summary[-1]["bound_auc"])
            report.scores += [head | {"training": training} | row for row in rows]
    # the same of all estimators: it is of the rounds
    of_scheme = [row for row in report.scores if row["scheme"] == label]
    report.sentences += _hidden_words(label, of_scheme)


def _say_found(report: AttackFindings) -> None:
    words = text_of("attribute_found")
    for row in report.summary:
        report.sentences.append(words.format(**row))
        if row["bound_auc"] is not None:
            report.sentences.append(text_of("attribute_bound").format(**row))
    report.sentences.append(text_of("attribute_limits"))


def _attack_run(
    config: AttributeConfig,
    run: RecordedRun,
    report: AttackFindings,
    progress: Progress,
) -> None:
    """Infer from the sums of a recorded run which clients hold samples of a class.

    Shadow clients hold samples of the test set: as many as clients of the run do in the
    median, and of the class as many as those with the attribute.
    """
    trained, target = run.settings, config.target_class
    report.title = (
        f"Attribute: class {target}, {trained.training.model} on {run.dataset.name}, "
        "the sums of a run"
    )
    rule = "must be of one learning rate, at which the shadow clients train"
    require(not trained.training.decay_rounds, "run", rule, str(config.run))
    counts = _held(run, target)
    has_attribute = counts > 0
    rule = "must be a class that at least two clients hold, and at least two do not"
    fits = 2 <= has_attribute.sum() <= len(has_attribute) - 2
    require(fits, "target_class", rule, target, f"{has_attribute.sum()} clients")
    summed = run.summed(progress)
    sums, history = np.asarray(summed.view.aggregates), summed.view.participation
    # the model before each sum: each adds the mean of its updates
    steps = sums / history.sum(axis=1)[:, None]
    models = np.asarray(run.start, np.float64) + np.cumsum(steps, axis=0) - steps
    shadows_have = np.arange(config.num_shadows) % 2 == 0
    size = max(int(np.median(run.clients.sizes)), 1)
    inputs, labels = (
        np.asarray(run.dataset.test_inputs),
        np.asarray(run.dataset.test_labels),
    )
    special, others = np.flatnonzero(labels == target), np.flatnonzero(labels != target)
    _check_places(special, others)
    generator = np.random.default_rng([config.seed, 0xA77])
    shadows = _dealt(
        generator,
        (inputs, labels),
        special,
        generator.choice(others, (len(shadows_have), size)),
        shadows_have,
        min(int(np.median(counts[has_attribute])), size),
        run.dataset.num_classes,
    )
    view = AttributeView(
        history,
        sums,
        models.astype(np.float32),
        shadows,
        shadows_have,
        summed.sum_noise,
    )
    assert config.run is not None
    tested = federated.evaluate(
        run.model, on_device(models[-1] + steps[-1], jnp.float32), inputs, labels
    )
    accuracy = float(tested.accuracy)
    drift, trainer = _measured(config.run), run.of_shadows
    scene = _Scene(view, has_attribute, trainer, drift, accuracy)
    prevalence = float(has_attribute.mean())
    results: dict[Any, list[_Result]] = {}
    progress.stage(run.label, len(config.estimators))
    for method in config.estimators:
        attack = attacks.attribute(trainer, prevalence=prevalence, method=method)
        scores = attack.run(_stage.stream(config, Stream.ATTACK), view)
        results[method] = [_Result(attack, scene, scores)]
        progress.update(len(results), len(config.estimators))
    # who has the attribute follows from the data, not from independent draws
    _add_rows(report, run.label, results, prevalence, is_bounded=False)
    _say_found(report)


def _held(run: RecordedRun, target: int) -> np.ndarray:
    """Return how many samples of a class each client of a run holds."""
    labels = np.asarray(run.clients.labels)[np.asarray(run.clients.indices)]
    places = np.arange(labels.shape[1]) < np.asarray(run.clients.sizes)[:, None]
    held: np.ndarray = ((labels == target) & places).sum(axis=1)
    return held


def _measured(folder: pathlib.Path) -> _Memory:
    """Return how updates drifted, as the run measured them; NaN if it did not."""
    try:
        return _Memory(*measured_drift(folder), measured_spread(folder))
    except ConfigurationError:
        return _Memory(float("nan"), float("nan"), float("nan"))


class _Memory(NamedTuple):
    """How updates drift: their memory, the share that has it, and their spread."""

    memory: float
    lasting: float
    spread: float


def _hidden_words(scheme: str, rows: list[dict[str, Any]]) -> list[str]:
    """Say among how many clients updates and what lasts of them are hidden.

    Means over the trainings after all of their rounds; nothing where no client came
    twice.
    """
    last = max(row["rounds"] for row in rows)
    names = ("hidden_among_worst", "lasting_hidden_worst")
    worst = {
        name: float(np.mean([row[name] for row in rows if row["rounds"] == last]))
        for name in names
    }
    if not np.isfinite(worst["hidden_among_worst"]):
        return []
    return [text_of("attribute_hidden").format(scheme=scheme, **worst)]


@pytree
class _Minibatches:
    """Local training on some of a client's samples, drawn again in each round.

    Attributes:
        trainer: Training of the drawn samples.
        count: Samples that are drawn (static).
    """

    trainer: Any
    count: int = static()

    def update(
        self, key: Array, parameters: Array, inputs: Array, labels: Array, size: Array
    ) -> Array:
        """Train on `count` samples, or on all if the client has fewer."""
        of_draw, of_steps = jax.random.split(key)
        drawn = jax.random.uniform(of_draw, inputs.shape[:1], jnp.float32)
        is_held = jnp.arange(len(drawn), dtype=jnp.int32) < size
        # the client's samples come first, in random order
        ranks = jnp.where(is_held, drawn, jnp.float32(2))
        order = jnp.argsort(ranks)[: self.count]
        size = jnp.minimum(size, jnp.int32(self.count))
        return self.trainer.update(
            of_steps, parameters, inputs[order], labels[order], size
        )


@dataclasses.dataclass(frozen=True, eq=False)
class _Scene:
    """One training: the server's view, its secret, and how the updates drift."""

    view: AttributeView
    has_attribute: np.ndarray
    trainer: Any
    drift: federated.Drift | _Memory
    accuracy: float

    @classmethod
    def trained(cls, config: AttributeConfig, history: np.ndarray) -> _Scene:
        require(len(history) > 0, "rounds", "must leave a round with a sum", 0)
        dataset = load_data(config.dataset, config.seed, config.directory)
        generator = np.random.default_rng([config.seed, 0xA77])
        has_attribute = _mask(config, generator)
        # half of the shadows have it, not a share of `prevalence`: both classes are
        # learnt alike
        shadows_have = np.arange(config.num_shadows) % 2 == 0
        # clients and shadows hold samples of different halves, as strangers would
        halves = np.array_split(generator.permutation(len(dataset.train_labels)), 2)
        # a record of the clients' half: shadows that hold it do so on purpose
        record = int(halves[0][0])
        clients, shadows = (
            _holders(config, generator, dataset, pool, have, record)
            for pool, have in zip(halves, (has_attribute, shadows_have), strict=True)
        )
        model = build("model", config.model, dataset.num_classes)
        shape = dataset.train_inputs.shape[1:]
        start, trainer = _stage.start_and_trainer(
            config, model, shape, config.batch_size, config.clip_norm
        )
        if config.local_steps:
            trainer = _Minibatches(trainer, config.local_steps * config.batch_size)
        slots = int(history.sum(axis=1).max())
        # members first, in their order; slots beyond a cohort count nothing
        members = np.argsort(~history, axis=1, kind="stable")[:, :slots]
        is_member = np.take_along_axis(history, members, axis=1)
        coordinates = generator.permutation(len(start))[:_COORDINATES]
        sum_noise = config.noise_multiplier * (config.clip_norm or 0.0)
        final, (models, sums, sent) = _trained_rounds(
            _stage.stream(config, Stream.LOCAL_TRAINING),
            _stage.stream(config, Stream.NOISE),
            jnp.float32(sum_noise),
            trainer,
            clients,
            start,
            on_device(members, jnp.int32),
            on_device(is_member, jnp.float32),
            on_device(coordinates, jnp.int32),
        )
        drift = federated.measure_drift(
            np.asarray(sent), np.where(is_member, members, -1)
        )
        view = AttributeView(
            history,
            np.asarray(sums),
            np.asarray(models),
            shadows,
            shadows_have,
            sum_noise,
        )
        tested = federated.evaluate(
            model, final, dataset.test_inputs, dataset.test_labels
        )
        return cls(view, has_attribute, trainer, drift, float(tested.accuracy))


def _mask(config: AttributeConfig, generator: np.random.Generator) -> np.ndarray:
    """Return the clients with the attribute, of a file or drawn independently."""
    count = config.num_clients
    if config.mask is None:
        mask = generator.random(count) < config.prevalence
    else:
        mask = np.asarray(_stage.read_array(config.mask, "mask"))
    argument = "prevalence" if config.mask is None else "mask"
    fits = mask.dtype == np.bool_ and mask.shape == (count,)
    require(fits, argument, f"must be {count} booleans", f"{mask.dtype} {mask.shape}")
    rule = "must give clients with the attribute and clients without it"
    require(0 < mask.sum() < count, argument, rule, int(mask.sum()))
    return mask


def _holders(
    config: AttributeConfig,
    generator: np.random.Generator,
    dataset: Any,
    pool: np.ndarray,
    have: np.ndarray,
    record: int,
) -> data.ClientData:
    """Deal out samples of a pool, with repetition, by who has the attribute."""
    labels = np.asarray(dataset.train_labels)
    if config.attribute == "record":
        special, others = np.array([record]), pool[pool != record]
        held = 1
    else:
        is_special = labels[pool] == config.target_class
        special, others = pool[is_special], pool[~is_special]
        held = config.num_held
    _check_places(special, others)
    return _dealt(
        generator,
        (np.asarray(dataset.train_inputs), labels),
        special,
        _drawn(config, generator, labels, others, len(have)),
        have,
        held,
        dataset.num_classes,
    )


def _check_places(special: np.ndarray, others: np.ndarray) -> None:
    rule = "must be a class with samples, next to others"
    fits = min(len(special), len(others)) > 0
    require(fits, "target_class", rule, len(special), len(others))


def _dealt(
    generator: np.random.Generator,
    samples: tuple[np.ndarray, np.ndarray],
    special: np.ndarray,
    indices: np.ndarray,
    have: np.ndarray,
    held: int,
    classes: int,
) -> data.ClientData:
    """Deal out samples with repetition.

    Args:
        generator: Randomness.
        samples: Inputs and labels.
        special: Places of the samples that only those with the attribute hold.
        indices: Places of other samples, [clients, size]; the first are replaced.
        have: The clients with the attribute.
        held: How many of their samples are of the attribute.
        classes: Classes of the labels.
    """
    # only holders' first places are overwritten, so that all have equally many samples
    indices[have, :held] = generator.choice(special, (int(have.sum()), held))
    inputs, labels = samples
    count, size = indices.shape
    return data.ClientData(
        inputs=on_device(inputs),
        labels=on_device(labels, jnp.int32),
        indices=on_device(indices, jnp.int32),
        sizes=jnp.full(count, size, jnp.int32),
        num_classes=classes,
    )


def _drawn(
    config: AttributeConfig,
    generator: np.random.Generator,
    labels: np.ndarray,
    pool: np.ndarray,
    count: int,
) -> np.ndarray:
    """Draw every client's samples from a pool, by the client's mixture of its classes.

    The mixtures are independent and alike in law, so mates stay alike in advance.
    """
    if config.partition == "iid":
        return generator.choice(pool, (count, config.client_size))
    classes, sizes = np.unique(labels[pool], return_counts=True)
    if config.partition == "shards":
        held = 2 if config.shards_per_client is None else config.shards_per_client
        rule = f"must be at most the {len(classes)} classes to draw from"
        require(held <= len(classes), "shards_per_client", rule, held)
        places = np.argsort(generator.random((count, len(classes))), axis=1)
        shares = (places < held).astype(np.float64)
    else:
        concentration = 0.5 if config.concentration is None else config.concentration
        # Dirichlet shares of a class are Gamma numbers over their sum
        gammas = generator.gamma(concentration, size=(count, len(classes)))
        shares = np.maximum(gammas, np.finfo(np.float64).tiny) * sizes
    mixtures = shares / shares.sum(axis=1, keepdims=True)
    members = [pool[labels[pool] == label] for label in classes]
    rows = []
    for mixture in mixtures:
        drawn = generator.choice(len(classes), config.client_size, p=mixture)
        rows.append([generator.choice(members[place]) for place in drawn])
    return np.asarray(rows)


@jax.jit
def _trained_rounds(
    key: Array,
    noise_key: Array,
    sum_noise: Float32[Array, ""],
    trainer: federated.LocalTrainer,
    clients: data.ClientData,
    start: Float32[Array, " dim"],
    members: Int32[Array, "rounds slots"],
    present: Float32[Array, "rounds slots"],
    coordinates: Int32[Array, " some"],
) -> tuple[
    Float32[Array, " dim"],
    tuple[
        Float32[Array, "rounds dim"],
        Float32[Array, "rounds dim"],
        Float32[Array, "rounds slots some"],
    ],
]:
    """Train by averaging noisy sums.

    Return the last model, and the model before each round, its sum, and some
    coordinates of its updates.
    """

    def one_round(flat: Array, each: tuple[Array, Array, Array]) -> tuple[Array, Any]:
        index, cohort, weights = each
        round_key = jax.random.fold_in(key, index)

        def update(client: Array) -> Array:
            indices = clients.indices[client]
            inputs, labels = clients.inputs[indices], clients.labels[indices]
            # a client's draws depend on the round and on it, not on its slot
            client_key = jax.random.fold_in(round_key, client)
            return trainer.update(
                client_key, flat, inputs, labels, clients.sizes[client]
            )

        # weights are 0 in empty slots, whose repeated client counts nothing
        updates = jax.vmap(update)(cohort)
        total = jnp.sum(weights[:, None] * updates, axis=0)
        drawn = jax.random.normal(jax.random.fold_in(noise_key, index), total.shape)
        total += sum_noise * drawn
        following = flat + total / jnp.sum(weights)
        return following, (flat, total, updates[:, coordinates])

    numbers = jnp.arange(members.shape[0], dtype=jnp.uint32)
    return lax.scan(one_round, start, (numbers, members, present))


@dataclasses.dataclass(frozen=True, eq=False)
class _Result:
    """An attack's answer to one training."""

    attack: Any
    scene: _Scene
    scores: Any

    def judged(self, estimates: np.ndarray) -> Any:
        """Score estimates; mates of a block share one, and count as a group."""
        return attacks.membership_score(
            estimates,
            self.scene.has_attribute,
            false_positive_rates=_RATES,
            groups=self.groups,
        )

    @property
    def groups(self) -> np.ndarray:
        """The class of equal columns of each client."""
        columns = self.scene.view.participation.T
        # ravel: some versions of numpy return the inverse with another shape
        return np.unique(columns, axis=0, return_inverse=True)[1].ravel()

    @property
    def counts(self) -> np.ndarray:
        """The number of mates with the attribute, all that a block can reveal."""
        groups = self.groups
        return np.bincount(groups, self.scene.has_attribute)[groups]

    @functools.cached_property
    def hidden_worst(self) -> dict[str, np.ndarray]:
        """Return among how many the worst update and lasting part are hidden by then.

        After each round; NaN where no client came twice, so that nothing is known of a
        memory.
        """
        drift, history = self.scene.drift, self.scene.view.participation
        names = ("hidden_among_worst", "lasting_hidden_worst")
        if not np.isfinite(drift.memory):
            return dict.fromkeys(names, np.full(len(history), np.nan))
        known = {
            "share": drift.lasting,
            "noise": self.scene.view.sum_noise**2,
            "spread": drift.spread,
        }
        among = functools.partial(privacy.hidden_among_trajectory, history, **known)
        update = among(memory=drift.memory)
        # an attribute never changes
        lasting = among(memory=1.0, of="lasting")
        worst = (np.min(hidden, axis=1) for hidden in (update, lasting))
        return dict(zip(names, worst, strict=True))

    def trajectory(self, bound: float | None) -> list[dict[str, Any]]:
        """Return a row for each number of rounds after which estimates are scored."""
        history, scores = self.scene.view.participation, self.scores
        stops = np.unique(np.linspace(0, len(history), _STOPS + 1).astype(int))[1:]
        rows = []
        for stop in stops.tolist():
            # the totals so far are solved alone: later rounds may not help earlier
            # estimates
            parts = (each[:stop] for each in (history, scores.totals, scores.noise))
            estimates = self.attack.solve(*parts).estimates
            auc = self.judged(estimates).auc
            row = {"rounds": stop, "auc": auc, "bound_auc": bound}
            worst = self.hidden_worst.items()
            rows.append(row | {name: float(each[stop - 1]) for name, each in worst})
        return rows


def _summary(
    results: list[_Result], prevalence: float, is_bounded: bool
) -> dict[str, Any]:
    """Summarise the trainings of a scheme; rates are of their clients together."""
    judged = [each.judged(each.scores.estimates) for each in results]
    auc = float(np.mean([each.auc for each in judged]))
    # trainings are independent, so the variances of their errors add up
    error = float(np.sqrt(np.sum([each.auc_error**2 for each in judged])) / len(judged))
    estimates = np.concatenate([each.scores.estimates for each in results])
    truth = np.concatenate([each.scene.has_attribute for each in results])
    together = attacks.membership_score(estimates, truth, false_positive_rates=_RATES)
    squares = np.square(estimates - truth).mean()
    variance = prevalence * (1 - prevalence)
    explained = np.concatenate([each.scores.explained for each in results])
    histories = [each.scene.view.participation for each in results]
    # no strong T without a sum: 1 then claims nothing
    mates = min(privacy.strong_privacy(each) or 1 for each in histories)
    bound = counted = None
    # a client by itself has no mates to hide among, so nothing is bounded
    if mates > 1:
        if is_bounded:
            bound = privacy.attribute_bound(mates, prevalence).auc
        counted = float(np.mean([each.judged(each.counts).auc for each in results]))
    at_few, at_more = together.true_positive_rates
    return {
        "trainings": len(results),
        "sums": float(np.mean([len(each) for each in histories])),
        "working_rounds": float(
            np.mean([np.isfinite(each.scores.noise).sum() for each in results])
        ),
        "auc": auc,
        "lower": max(auc - 1.96 * error, 0.0),
        "upper": min(auc + 1.96 * error, 1.0),
        "tpr_at_1%": at_few,
        "tpr_at_10%": at_more,
        "predicted_share": float(explained.mean()),
        "attained_share": float(1 - squares / variance),
        "strong_T": mates,
        "bound_auc": bound,
        "counted_auc": counted,
        "accuracy": float(np.mean([each.scene.accuracy for each in results])),
    }


def arrays(config: Any) -> int:
    """Return the arrays of attribute inference.

    Models and sums of all rounds, the shadows' updates and what they train on.
    """
    if config.run is not None:
        run = settings_of(config.run)
        repeated, dim, _ = bytes_to_repeat(config.run)
        of_rounds = 4 * 4 * run.rounds * dim + 3 * 8 * run.rounds**2
        return repeated + of_rounds + 4 * 4 * config.num_shadows * dim
    pool, shape, classes = _stage.data_of(config.dataset, config.directory, config.seed)
    dim = _stage.dim_of(config.model, shape, classes)
    of_rounds = 4 * 4 * config.rounds * dim
    of_shadows = 4 * 4 * config.num_shadows * dim
    samples = 4 * config.num_shadows * config.client_size * int(np.prod(shape))
    of_drift = 4 * config.rounds * config.num_clients * min(dim, _COORDINATES)
    return pool + of_rounds + of_drift + of_shadows + samples + 3 * 8 * config.rounds**2
