"""Runs attacks from their settings, alone and as points of a sweep, and saves what they found."""

from __future__ import annotations

import functools
import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import attacks, data, federated, quantize
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.memory import memory_words
from mrsa_jax._core.streams import Stream, as_key, fold
from mrsa_jax.study import _store
from mrsa_jax.study._attack_rows import AttackSettings
from mrsa_jax.study._config import studied
from mrsa_jax.study._files import restore_replaced, write_json, write_rows
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._load import to_dict
from mrsa_jax.study._parts import build, load_data
from mrsa_jax.study._plots import attack_charts, save_charts
from mrsa_jax.study._progress import Progress, Silent, note
from mrsa_jax.study._runner import Machine, Variable
from mrsa_jax.study.kinds import attack_of
from mrsa_watch._base.errors import ConfigurationError, require

if TYPE_CHECKING:
    from mrsa_jax.study._store import StudyFolder


def rows_of(**columns: Any) -> list[dict[str, Any]]:
    """Return a row for each place of some columns.

    What is one value is the same in all.
    """
    lists = [own.tolist() for own in np.broadcast_arrays(*columns.values())]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)
    ]


def save(report: AttackFindings, folder: StudyFolder) -> None:
    """Write scores, figures and arrays into a folder."""
    folder.manifest["is_complete"] = report.is_complete
    for name, rows in (("summary", report.summary), ("scores", report.scores)):
        if rows:
            write_rows(folder.path / f"{name}.csv", rows)
    content = {**report.content, "manifest": folder.manifest}
    write_json(folder.path / "scores.json", content)
    save_charts(report.figures, folder.path)
    for name, array in report.arrays.items():
        np.save(folder.path / f"{name}.npy", array, allow_pickle=False)


def attack(config: AttackSettings, found: AttackFindings, progress: Progress) -> None:
    """Run an attack and add to what was found, thing by thing; then draw it."""
    row = attack_of(config)
    found.title = row.does
    row.run(config, found, progress)
    found.figures |= attack_charts(found.summary, found.scores)


def check(config: AttackSettings) -> str:
    """Say what memory is needed, or refuse what the machine has not."""
    reduce = "the sizes of what is attacked"
    row = attack_of(config)
    return memory_words(row.memory_bytes(config), "attack", row.name, reduce)


def run(config: AttackSettings, progress: Progress) -> AttackFindings:
    """Run an attack and hold all that it found."""
    note(progress, check(config))
    found = AttackFindings()
    attack(config, found, progress)
    return found


def run_and_save(
    config: AttackSettings, progress: Progress, show: Callable[[AttackFindings], None]
) -> AttackFindings:
    """Run an attack and write scores, figures and what was recovered.

    An interruption saves what was finished by then, unless the same is there complete.
    """
    words = check(config)
    restore_replaced(config.out.absolute())
    with _store.study_folder(config) as folder:
        found = AttackFindings(folder.path)
        try:
            note(progress, words)
            attack(config, found, progress)
        except KeyboardInterrupt:
            if not found.scores or (config.out / "study.json").exists():
                raise
            found.is_complete = False
        show(found)
        save(found, folder)
    return found


# ---- What attacks are staged on: data dealt out, training on it, what lines carry,
# memory.

# arrays of a cohort's updates: trained, masked, drawn, coded, decoded, float64
IN_A_ROUND = 10
_IN_A_WIRE = 14  # codes, draws, pads, padded codes, and what is read from them


def on_the_wire(dim: int, senders: int) -> int:
    """Return the arrays of one round of secure aggregation over vectors, all senders' at once."""
    return 4 * _IN_A_WIRE * dim * senders


@functools.cache
def data_of(name: str, directory: Any, seed: int) -> tuple[int, tuple[int, ...], int]:
    """Return the bytes of a data set, on the host and on the device, a sample's shape, classes."""
    found = load_data(name, seed, directory)
    size = sum(
        np.asarray(one).nbytes for one in (found.train_inputs, found.test_inputs)
    )
    return 2 * size, tuple(found.train_inputs.shape[1:]), found.num_classes


def dim_of(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return a model's number of parameters."""
    return int(federated.num_parameters(build("model", model, classes), shape))


@functools.cache
def activations(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return how many numbers a model's layers put out for one sample."""
    module = build("model", model, classes)
    sample = jnp.zeros((1, *shape), jnp.float32)

    def answers(key: Any) -> Any:
        variables = module.init(key, sample)
        return module.apply(
            variables, sample, capture_intermediates=True, mutable=["intermediates"]
        )

    found = jax.eval_shape(answers, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(found)) + math.prod(
        shape
    )


def model_sizes(config: Any) -> tuple[int, int, int]:
    """Return the bytes of the data, the model's parameters, and its entries for a sample."""
    pool, shape, classes = data_of(config.dataset, None, config.seed)
    return (
        pool,
        dim_of(config.model, shape, classes),
        activations(config.model, shape, classes),
    )


def shape_of(config: Any, name: str) -> tuple[int, ...]:
    """Return the shape of an array in a user's file, by the setting that names it."""
    return tuple(read_array(getattr(config, name), name).shape)


def sizes_of(*paths: Any) -> int:
    """Return the bytes of some files, None for none."""
    return sum(path.stat().st_size for path in paths if path is not None)


_LEVELS = 2**16


def stream(config: Any, of: Stream) -> Any:
    """Return an attack's key of one stream."""
    return fold(as_key(config.seed), int(of))


def dealt_out(config: Any, count: int) -> tuple[data.Dataset, data.ClientData]:
    """Return an attack's data set, and equal random parts of it for this many clients."""
    dataset = load_data(config.dataset, config.seed)
    return dataset, data.iid(stream(config, Stream.PARTITION), dataset, count)


def equal_parts(
    inputs: Any, labels: Any, count: int, size: int, classes: int
) -> data.ClientData:
    """Return clients that hold `size` samples each, in their order.

    What is left is nobody's.
    """
    return data.ClientData(
        inputs=on_device(inputs),
        labels=on_device(labels),
        indices=jnp.arange(count * size, dtype=jnp.int32).reshape(count, size),
        sizes=jnp.full(count, size, jnp.int32),
        num_classes=classes,
    )


def start_and_trainer(
    config: Any,
    model: Any,
    shape: tuple[int, ...],
    batch_size: int,
    clip_norm: Any = None,
) -> tuple[Any, federated.LocalTrainer]:
    """Return a model's first parameters, and how an attack's clients train it."""
    epochs = getattr(config, "num_epochs", 1)
    trainer = federated.local_sgd(
        model,
        config.learning_rate,
        batch_size=batch_size,
        num_epochs=epochs,
        clip_norm=clip_norm,
    )
    return federated.initial_parameters(config.seed, model, shape), trainer


def through_wire(seed: Any, values: Any, connection_probability: float = 1.0) -> Any:
    """Send vectors through a round of secure aggregation.

    What `attacks.wire_round` returns.
    The quantizer's range clips nothing, and the ring is no larger than the sum needs.
    """
    clip = float(np.abs(np.asarray(values)).max()) or 1.0
    return attacks.wire_round(
        seed,
        values,
        quantize.stochastic(_LEVELS, clip * 1.001),
        modulus_bits=(len(values) * (_LEVELS - 1)).bit_length(),
        connection_probability=connection_probability,
    )


def read_array(path: pathlib.Path, name: str) -> np.ndarray:
    """Open an array of a user's file, without reading it where that can wait.

    Args:
        path: A .npy, or an .npz with one array or one of this name.
        name: The flag that it comes from.

    Raises:
        ConfigurationError: If the file is broken, holds objects or several arrays of
            other names.
    """
    try:
        if path.suffix == ".npy":
            return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            names = archive.files
            key = name if name in names else names[0] if len(names) == 1 else None
            rule = f"must hold one array, or one named {name!r}"
            require(key is not None, name, rule, names)
            return np.asarray(archive[key or name])
    except ConfigurationError:
        raise
    except Exception as error:  # NumPy raises whatever it meets in a broken file
        words = f"{path}: {str(error)[:200]}"
        raise ConfigurationError(
            f"`{name}` must be a sound array file; {words}"
        ) from error


# ---- Points of a sweep over attacks: the rows of each attack's summary.

_LABEL_LENGTH = 48
# columns of a summary that name a row
_LABELS = ("scheme", "updates", "whose", "method", "seen", "pads")


def _num_rows(config: Any) -> int:
    """Return how many things an attack is about.

    Those of its settings that are lists of them.
    """
    if (
        getattr(config, "aggregates", None) is not None
        or getattr(config, "run", None) is not None
    ):
        return 1
    listed = ("schemes", "others", "clients", "methods", "seen", "pads")
    return math.prod(
        len(getattr(config, name)) for name in listed if hasattr(config, name)
    )


def group_of(config: AttackSettings) -> Hashable:
    """Return all settings but the seed.

    What is a number of a program differs between attacks.
    """
    content = studied(to_dict(config))
    return json.dumps(
        {name: value for name, value in content.items() if name != "seed"}
    )


def sizes(configs: Sequence[AttackSettings]) -> dict[str, int]:
    """Return the most rows of a summary."""
    return {"row": max(map(_num_rows, configs))}


def variables(
    configs: Sequence[AttackSettings], kept: Collection[str]
) -> dict[str, Variable]:
    """Return the summary's columns."""
    label = Variable(("row",), f"<U{_LABEL_LENGTH}", "1", "What the row is of")
    numbers = {
        name: Variable(
            ("row",), "float64", units, f"{name.replace('_', ' ')} of the row"
        )
        for name, units in attack_of(configs[0]).units.items()
    }
    return {"label": label} | numbers


def is_trained(name: str) -> bool:
    """Return True: what an attack finds follows from trained numbers, or from sums as rounded."""
    return True


def together(config: AttackSettings, machine: Machine) -> int:
    """Return 1: an attack fills the machine."""
    return 1


def memory_bytes(
    config: AttackSettings, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return about what an attack needs, its programs and libraries among it."""
    return count * attack_of(config).memory_bytes(config)


def run_points(
    configs: Sequence[AttackSettings],
    machine: Machine,
    kept: Collection[str],
    together: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Run each attack and give its summary."""
    for config in configs:
        with tempfile.TemporaryDirectory() as folder:
            found = AttackFindings(pathlib.Path(folder))
            attack_of(config).run(config, found, Silent())
        # one that has no summary has a single row for each thing attacked
        yield _columns(attack_of(config).units, found.summary or found.scores)


def _columns(names: Iterable[str], rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    labels = [", ".join(str(row[key]) for key in _LABELS if key in row) for row in rows]
    found = {"label": np.asarray([label[:_LABEL_LENGTH] for label in labels])}
    for name in names:
        values = [row.get(name) for row in rows]
        found[name] = np.asarray([math.nan if v is None else float(v) for v in values])
    return found
