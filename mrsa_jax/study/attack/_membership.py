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
from mrsa_jax.study.attacks_on_models import MembershipConfig
from mrsa_jax.study.settings._parts import build, load_data
from mrsa_watch._base.errors import require

_RATES = (0.001, 0.01)  # of false positives


def run(config: MembershipConfig, report: AttackFindings, progress: Progress) -> None:
    """Score the targets' samples and as many others."""
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
        _score_members(config, report, attack.method, names, np.stack(margins))
    report.sentences += [
        "At chance: accuracy and AUC 0.5, true positives as many as false ones."
    ]


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
    config: MembershipConfig,
    report: AttackFindings,
    method: str,
    names: list[str],
    scores: np.ndarray,
) -> None:
    """Add a row for each kind of model [targets, seen, candidates].

    Thresholds are at 0.
    """
    size = config.client_size
    # each target has `size` members, followed by as many others
    is_member = np.tile(np.arange(2 * size) < size, len(scores))
    for place, name in enumerate(names):
        of_models = scores[:, place]
        judged = attacks.membership_score(
            of_models.ravel(), is_member, threshold=0.0, false_positive_rates=_RATES
        )
        label = f"sum of {config.num_summed}" if name == "sum" else name
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
    pool, shape, classes = _stage.data_of(config.dataset, config.directory, config.seed)
    dim = _stage.dim_of(config.model, shape, classes)
    clients = max(config.num_targets, config.num_summed)
    models = 4 * dim * (_OF_SHADOW * config.num_shadows + 3 * clients)
    entries = _stage.activations(config.model, shape, classes)
    side_by_side = min(config.num_shadows, at_once("clients", 4 * dim))
    training = 4 * side_by_side * (4 * dim + 3 * config.batch_size * entries)
    together = samples_at_once("questions", shape)
    asking = 4 * entries * min(_OF_QUESTION * together, 2 * config.client_size + 1000)
    return (
        pool + models + training + asking + _stage.on_the_wire(dim, config.num_summed)
    )


_OF_SHADOW = 4  # arrays like the model, of each shadow model
# arrays like the activations, of each sample that models are asked about
_OF_QUESTION = 4
