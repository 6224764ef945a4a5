"""Build models, data sets, trainers and quantizers by the names that settings use.

A name is `name` or `name:parameters`, as for schemes; users register more. Nothing here
imports JAX before a part is built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mrsa_jax._core.registry import made, no_parameters, own_row, read_member
from mrsa_jax.study.settings._tables import check_unset
from mrsa_jax.study.settings._training_tables import local_length
from mrsa_watch._base.errors import check_known, require


@dataclasses.dataclass(frozen=True)
class Row:
    """A part that a name stands for.

    Attributes:
        build: (values of the kind, then parameters) -> the part.
        rule: The form of the text, if it has parameters.
        read: Texts behind the name -> parameters; by default there are none.
        papers: Keys of papers, or BibTeX entries; the package's own stand at the
            settings.
        code: () -> digests of a user's code, by module; the package's own has its
            version.
    """

    build: Callable[..., Any]
    rule: str = ""
    read: Callable[[list[str]], tuple[Any, ...]] = no_parameters
    papers: tuple[str, ...] = ()
    code: Callable[[], dict[str, str]] = dict


class Kind(NamedTuple):
    """A kind of part that users may register.

    Attributes:
        given: The first arguments of a factory, in words.
        has: The attributes that a part of the kind must have.
        rows: By name.
    """

    given: tuple[str, ...]
    has: tuple[str, ...]
    rows: dict[str, Row]


def _model(name: str, **more: Any) -> Row:
    def build(num_classes: int) -> Any:
        from mrsa_jax import federated

        return getattr(federated, name)(num_classes, **more)

    return Row(build)


def _sgd(model: Any, training: Any) -> Any:
    from mrsa_jax import federated

    return federated.local_sgd(
        model,
        learning_rate=training.learning_rate,
        batch_size=training.batch_size,
        **local_length(training),
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        proximal=training.proximal,
        compute_dtype=None if training.precision == "float32" else training.precision,
    )


def _scaffold(model: Any, training: Any) -> Any:
    from mrsa_jax import federated

    names = ("momentum", "weight_decay", "proximal", "precision")
    check_unset(training, "must not be set with the trainer scaffold", *names)
    return federated.scaffold(
        model,
        training.learning_rate,
        batch_size=training.batch_size,
        **local_length(training),
    )


def _stochastic(dim: int, aggregation: Any) -> Any:
    from mrsa_jax import quantize

    clip = aggregation.clip
    return quantize.stochastic(aggregation.num_levels, value_range=(-clip, clip))


_MODELS = {
    name: _model(name)
    for name in ("lenet", "smooth_lenet", "mlp", "logistic", "cnn", "vgg11")
}
KINDS: dict[str, Kind] = {
    "model": Kind(
        ("the number of classes",),
        ("init", "apply"),
        _MODELS | {"vgg11_group": _model("vgg11", norm="group")},
    ),
    "dataset": Kind(("the seed",), ("train_inputs", "test_labels", "num_classes"), {}),
    "trainer": Kind(
        ("the model", "the settings of training"),
        ("update or update_with_state",),
        {"sgd": Row(_sgd), "scaffold": Row(_scaffold)},
    ),
    "quantizer": Kind(
        ("entries of what clients send", "the settings of the aggregation"),
        ("encode", "decode"),
        {"stochastic": Row(_stochastic)},
    ),
}
"""Kinds of parts by the setting that names one; `data` has the package's data sets."""
_BUILT_IN = {kind: tuple(kind_row.rows) for kind, kind_row in KINDS.items()}


def read(kind: str, text: Any) -> tuple[Row, tuple[Any, ...]]:
    """Return the row of a part as settings write it, and its parameters.

    Raises:
        ConfigurationError: For an unknown name (naming the nearest), or parameters that
            its factory does not take.
    """
    name, parameters = read_member(text, KINDS[kind].rows, kind, kind)
    return KINDS[kind].rows[name], parameters


def build(kind: str, text: str, *values: Any) -> Any:
    """Build the part that settings name, of the values that its kind takes."""
    row, parameters = read(kind, text)
    return row.build(*values, *parameters)


def check_parts(config: Any, check_table: Callable[[Any], None] | None = None) -> None:
    """Raise for a setting, in any table, that names an unknown part.

    `check_table` checks a table; by default this function does.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            (check_table or check_parts)(value)
        elif field.name in KINDS and field.name != "dataset" and value is not None:
            read(field.name, value)


def load_data(name: str, seed: int, directory: Any = None) -> Any:
    """Load a data set that a user registered, or one of `data.load`."""
    if name.split(":")[0] in KINDS["dataset"].rows:
        rule = "must not be set for a data set of your own"
        require(directory is None, "directory", rule, str(directory))
        return build("dataset", name, seed)
    from mrsa_jax import data

    return data.load(name, directory=directory, seed=seed)


def register(
    kind: str,
    name: str,
    factory: Callable[..., Any],
    *,
    papers: str | Sequence[str] = (),
    depends: Any = None,
) -> None:
    """Add a model, data set, trainer or quantizer for flags, files, sweeps and `cite`.

    It is written `name`, or `name:3:0.5` where the factory takes parameters behind what
    its kind is given. On the command line, `--plugin FILE.py` runs the file that
    registers it. Registering a name again replaces it.

    Args:
        kind: The setting that names one: `"model"` (the factory takes the number of
            classes and returns a flax module), `"dataset"` (the seed; a
            `data.Dataset`), `"trainer"` (the model and a `TrainingConfig`; as
            `federated.Training` takes it) or `"quantizer"` (the number of entries that
            a client sends and an `AggregationConfig`; as `secagg.ring_average` takes
            it).
        name: Lower-case letters, digits and underscores; none of the package's own.
        factory: `(*given, *parameters) -> part`. Parameters are an int or a float where
            they are written as one, else text.
        papers: BibTeX entries for `cite`, or keys of papers that it knows.
        depends: As in `selection.register`: what results depend on in addition to what
            the factory reaches.

    Raises:
        ConfigurationError: If there is no such kind, the name is taken or ill-formed,
            or the factory cannot take what the kind is given.

    Examples:
        >>> import mrsa_jax as mj
        >>> def wide(classes, size):
        ...     return mj.federated.mlp(classes, hidden_sizes=(size,))
        >>> mj.study.register("model", "wide", wide)
        >>> training = mj.study.TrainingConfig("wide:64")
        >>> mj.study.validate(mj.study.TrainConfig(training=training))
    """
    row = KINDS[check_known(kind, "kind", KINDS, "a kind of part")]
    taken = _BUILT_IN[kind]
    if kind == "dataset":
        from mrsa_jax.data import SOURCES

        taken = (*SOURCES, "tfds")
    facts = own_row(
        name,
        factory,
        None,
        papers,
        nouns=f"{kind}s",
        given=row.given,
        taken=taken,
        depends=depends,
    )

    def built(*values: Any) -> Any:
        part = made(factory, f"a {kind}", *values)
        rule = f"must make a {kind}, with {' and '.join(row.has)}"
        for names in row.has:
            has_one = any(hasattr(part, name) for name in names.split(" or "))
            require(has_one, "factory", rule, part)
        return part

    row.rows[name] = Row(
        built, facts["rule"], facts["read"], facts["papers"], facts["code"]
    )
