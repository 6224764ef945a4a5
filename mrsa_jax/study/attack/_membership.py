"""Whether samples were among those that a client trained on."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax import attacks, data, federated
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once, samples_at_once
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, as_key, fold
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._recorded import RecordedRun, bytes_to_repeat
from mrsa_jax.study.attacks_on_models import MembershipConfig
from mrsa_jax.study.runs._build import build_rate_schedule
from mrsa_jax.study.settings._parts import build, load_data
from mrsa_watch._base.errors import require

_RATES = (0.001, 0.01)  # of false positives


def run(config: MembershipConfig, report: AttackFindings, progress: Progress) -> None:
    """Score the targets' samples and as many others."""
    if config.run is not None:
        _attack_run(config, RecordedRun.read(config.run), report, progress)
        return
    key = as_key(config.seed)
    pool = _pool(config)
    shape = tuple(pool.inputs.shape[1:])
    model = build("model", config.model, pool.num_classes)
    start, trainer = _stage.start_and_trainer(
        config, model, shape, config.batch_size, momentum=config.momentum
    )
    methods = [
        attacks.membership(
            method,
            trainer,
            num_shadows=config.num_shadows,
            shadow_size=config.client_size,
        )
        for method in config.methods
    ]
    report.title = (
        f"Membership: {config.model} on {config.dataset}, {config.client_size} samples "
        "a client, "
        + (
            f"{config.num_epochs} epochs"
            if config.local_steps is None
            else f"{config.local_steps} local steps"
        )
    )
    progress.stage("clients' training", 1)
    updates = np.asarray(federated.client_updates(key, model, start, pool, trainer))
    progress.update(1, 1)
    names, seen = _seen_models(config, np.asarray(start), updates, report)
    _say_accuracy(report, model, np.asarray(start)[None] + updates, pool)
    if not names:
        return
    progress.stage("attacks", len(config.methods) * config.num_targets)
    for i, attack in enumerate(methods):
        margins = []
        for target in range(config.num_targets):
            view = _view(config, model, start, pool, target, seen[target])
            answers = attack.run(
                fold(_stage.stream(config, Stream.ATTACK), target), view
            )
            margins.append(answers.scores - answers.threshold)
            progress.update(
                i * config.num_targets + target + 1, len(config.methods) * len(seen)
            )
        labels = [
            f"sum of {config.num_summed}" if name == "sum" else name for name in names
        ]
        _score_members(report, attack.method, labels, np.stack(margins))
    report.sentences += [_AT_CHANCE]


_AT_CHANCE = "At chance: accuracy and AUC 0.5, true positives as many as false ones."


def _attack_run(
    config: MembershipConfig,
    run: RecordedRun,
    report: AttackFindings,
    progress: Progress,
) -> None:
    """Ask for samples of some clients in the last sum of a recorded run.

    The server adds its mean update to the model that the round began with. Candidates
    are samples of a client and the same number that no client has, of the test set,
    whose rest the server trains its shadow models on.
    """
    before, after, members, trainer = _last_round(run, progress)
    rule = f"must be at most the {len(members)} clients of the last sum"
    require(config.num_targets <= len(members), "num_targets", rule, config.num_targets)
    targets = members[: config.num_targets]
    dataset = run.dataset
    others = np.asarray(dataset.test_inputs), np.asarray(dataset.test_labels)
    pairs = [_pairs(run, int(target), others[1]) for target in targets]
    # the same number of each client, and more others for the shadow models
    size = min(*map(len, pairs), (len(others[1]) - 1) // 2)
    rule = "must have test samples of the classes of the clients of its last sum"
    require(size >= 1, "run", rule, str(config.run))
    trained = run.settings.training.model
    report.title = f"Membership: {trained} on {dataset.name}, the last sum of a run"
    progress.stage("attacks", len(config.methods) * len(targets))
    for i, method in enumerate(config.methods):
        attack = attacks.membership(
            method, trainer, num_shadows=config.num_shadows, shadow_size=size
        )
        margins = []
        for place, target in enumerate(targets):
            members_first = _candidates(run, others, pairs[place][:size])
            is_asked = np.isin(np.arange(len(others[1])), pairs[place][:size, 1])
            view = attacks.views.MembershipView(
                run.model,
                on_device(after)[None],
                on_device(before),
                tuple(dataset.train_inputs.shape[1:]),
                dataset.num_classes,
                *map(on_device, members_first),
                *(on_device(new[~is_asked]) for new in others),
            )
            stream = fold(_stage.stream(config, Stream.ATTACK), int(target))
            answers = attack.run(stream, view)
            margins.append(answers.scores - answers.threshold)
            progress.update(
                i * len(targets) + place + 1, len(config.methods) * len(targets)
            )
        label = f"sum of {len(members)}"
        _score_members(report, method, [label], np.stack(margins))
    report.sentences += [_AT_CHANCE]


def _pairs(run: RecordedRun, target: int, labels: np.ndarray) -> np.ndarray:
    """Pair samples of a client with test samples of the same class, int [pairs, 2].

    Else an attack that sees nothing but classes would tell one from the other.
    """
    rows = np.asarray(run.clients.indices[target])[: int(run.clients.sizes[target])]
    own, found = np.asarray(run.clients.labels)[rows], []
    for label in np.unique(own):
        mine, others = rows[own == label], np.flatnonzero(labels == label)
        count = min(len(mine), len(others) // 2)
        found.append(np.stack([mine[:count], others[:count]], axis=1))
    pairs: np.ndarray = np.concatenate(found)
    # a mixture of the classes, however many pairs are used
    return np.random.default_rng([target, 0x3E4]).permutation(pairs)


def _candidates(
    run: RecordedRun, others: tuple[np.ndarray, np.ndarray], pairs: np.ndarray
) -> list[np.ndarray]:
    """Return inputs and labels, members first: `_score_members` counts on it."""
    own = run.clients.inputs, run.clients.labels
    return [
        np.concatenate([np.asarray(mine)[pairs[:, 0]], theirs[pairs[:, 1]]])
        for mine, theirs in zip(own, others, strict=True)
    ]


def _last_round(
    run: RecordedRun, progress: Progress
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Return the model before and after the last sum, its clients and their trainer."""
    summed = run.summed(progress, window=1)
    members = np.flatnonzero(summed.view.participation[-1])
    after = np.asarray(summed.parameters, np.float32)
    step = np.asarray(summed.view.aggregates[-1]) / len(members)
    schedule = build_rate_schedule(run.settings.training)
    factor = 1.0 if schedule is None else schedule(int(summed.rounds[-1]))
    trainer = run.of_shadows
    trainer = trainer if schedule is None else trainer.scaled(factor)
    return (after - step).astype(np.float32), after, members, trainer


def _pool(config: MembershipConfig) -> data.ClientData:
    """Return the clients' samples, followed by others that no client trained on."""
    dataset = load_data(config.dataset, config.seed, config.directory)
    inputs, labels = dataset.train_inputs, np.asarray(dataset.train_labels)
    count, size = max(config.num_targets, config.num_summed), config.client_size
    needed = (count + 2) * size + 1  # others to ask about, and the adversary's own
    rule = (
        f"must be small enough for the data: {count} clients, as many others, and the "
        "adversary"
    )
    require(needed <= len(labels), "client_size", rule, size, f"{len(labels)} samples")
    generator = np.random.default_rng([config.seed, 0x3E3])
    # label noise: some labels are drawn again
    is_wrong = generator.random(len(labels)) < config.label_noise
    drawn = generator.integers(0, dataset.num_classes, len(labels))
    noisy = np.where(is_wrong, drawn, labels).astype(np.int32)
    # in this order: the clients' samples, further ones for candidates, the adversary's
    return _stage.equal_parts(inputs, noisy, count, size, dataset.num_classes)


def _seen_models(
    config: MembershipConfig,
    start: np.ndarray,
    updates: np.ndarray,
    report: AttackFindings,
) -> tuple[list[str], np.ndarray]:
    """Return what is seen of each target's model, float32 [targets, seen, d].

    And its names: no sum if the sum of any target was not learnt.
    """
    key = _stage.stream(config, Stream.QUANTIZATION)
    models: list[dict[str, np.ndarray]] = []
    failed = 0
    for target in range(config.num_targets):
        # a target is summed with those that follow it, around the end
        company = [(target + i) % len(updates) for i in range(config.num_summed)]
        wire = _stage.through_wire(
            fold(key, target), updates[company], config.connection_probability
        )
        failed += wire.status != Status.OK
        padded = attacks.read_models(wire.padded)[0]
        of = {"plain": updates[target], "padded": padded, "sum": wire.mean}
        models.append({name: start + of[name] for name in config.seen})
    names: list[str] = [name for name in config.seen if name != "sum" or failed == 0]
    if len(names) < len(config.seen):
        report.sentences.append(
            f"{failed} of {config.num_targets} rounds failed: sums are not attacked."
        )
    seen = [[of_target[name] for name in names] for of_target in models]
    return names, np.asarray(seen, np.float32).reshape(len(seen), len(names), -1)


def _view(
    config: MembershipConfig,
    model: Any,
    start: Any,
    pool: Any,
    target: int,
    seen: np.ndarray,
) -> attacks.views.MembershipView:
    """Return models with the target's samples and as many others for candidates."""
    size, count = config.client_size, pool.num_clients
    others = np.arange(count * size, (count + 1) * size)
    # members first: `_score_members` counts on this order
    chosen = np.concatenate([np.arange(target * size, (target + 1) * size), others])
    adversary = slice((count + 1) * size, None)
    return attacks.views.MembershipView(
        model,
        on_device(seen),
        start,
        tuple(pool.inputs.shape[1:]),
        pool.num_classes,
        pool.inputs[chosen],
        pool.labels[chosen],
        pool.inputs[adversary],
        pool.labels[adversary],
    )


def _say_accuracy(
    report: AttackFindings, model: Any, models: np.ndarray, pool: Any
) -> None:
    """Say how much better the clients' models know their own samples than others."""
    size = pool.indices.shape[1]
    others = slice(pool.num_clients * size, (pool.num_clients + 1) * size)

    def right(client: int, chosen: Any) -> float:
        logits = model.apply(
            federated.unflatten(
                model, pool.inputs.shape[1:], on_device(models[client])
            ),
            pool.inputs[chosen],
        )
        answers = np.asarray(logits).argmax(axis=1)
        return float((answers == np.asarray(pool.labels[chosen])).mean())

    each = range(pool.num_clients)
    on_members = np.mean([right(i, slice(i * size, (i + 1) * size)) for i in each])
    new = np.mean([right(i, others) for i in each])
    report.sentences.append(
        f"The clients' models are right about {on_members:.0%} of their samples and "
        f"{new:.0%} "
        "of new "
        "ones (labels as noisy): the gap is what the attacks live on."
    )


def _score_members(
    report: AttackFindings, method: str, seen: list[str], scores: np.ndarray
) -> None:
    """Add a row for each kind of model [targets, seen, candidates].

    Thresholds are at 0.
    """
    size = scores.shape[2] // 2
    # each target has `size` members, followed by as many others
    is_member = np.tile(np.arange(2 * size) < size, len(scores))
    for place, label in enumerate(seen):
        of_models = scores[:, place]
        judged = attacks.membership_score(
            of_models.ravel(), is_member, threshold=0.0, false_positive_rates=_RATES
        )
        # normal approximation of a 95 % interval
        width = 1.96 * float(
            np.sqrt(judged.accuracy * (1 - judged.accuracy) / of_models.size)
        )
        head = {"method": method, "seen": label}
        row = {
            "accuracy": judged.accuracy,
            "plus_minus": width,
            "precision": judged.precision,
            "recall": judged.recall,
            "auc": judged.auc,
            "tpr_at_0.1%": judged.true_positive_rates[0],
            "tpr_at_1%": judged.true_positive_rates[1],
        }
        report.summary.append(head | row)
        for target in range(len(of_models)):
            single = attacks.membership_score(
                of_models[target], is_member[: 2 * size], threshold=0.0
            )
            own_row = {"target": target, "accuracy": single.accuracy, "auc": single.auc}
            report.scores.append(head | own_row)


def arrays(config: Any) -> int:
    """Return the arrays of membership inference.

    The clients' models and the shadow models.
    """
    if config.run is not None:
        repeated, dim, entries = bytes_to_repeat(config.run)
        models = 4 * dim * _OF_SHADOW * config.num_shadows
        return repeated + models + 4 * entries * _OF_QUESTION * _ASKED
    pool, shape, classes = _stage.data_of(config.dataset, config.directory, config.seed)
    dim = _stage.dim_of(config.model, shape, classes)
    clients = max(config.num_targets, config.num_summed)
    models = 4 * dim * (_OF_SHADOW * config.num_shadows + 3 * clients)
    entries = _stage.activations(config.model, shape, classes)
    side_by_side = min(config.num_shadows, at_once("clients", 4 * dim))
    training = 4 * side_by_side * (4 * dim + 3 * config.batch_size * entries)
    together = samples_at_once("questions", shape)
    asking = 4 * entries * min(_OF_QUESTION * together, 2 * config.client_size + _ASKED)
    return (
        pool + models + training + asking + _stage.on_the_wire(dim, config.num_summed)
    )


_OF_SHADOW = 4  # arrays like the model, of each shadow model
# arrays like the activations, of each sample that models are asked about
_OF_QUESTION = 4
_ASKED = 1000  # samples that models are asked about at once
