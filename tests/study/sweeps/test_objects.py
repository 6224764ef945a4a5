"""Objects on axes.

What a registered name gives, known by all that they hold, or refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, study
from mrsa_jax._core.sources import Code
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as selection
from mrsa_jax.study.settings import _parts
from mrsa_jax.study.stores._records import Index

SMALL: dict[str, Any] = {
    "rounds": 8,
    "trials": 2,
    "population": {"num_clients": 12, "cohort_size": 4},
}
REGISTRIES = (
    selection.ROWS,
    availability.ROWS,
    graphs.ROWS,
    *(kind.rows for kind in _parts.KINDS.values()),
)


class State(NamedTuple):
    counts: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class First:
    """Asks the first K who are there."""

    cohort_size: jax.Array
    num_clients: int = dataclasses.field(metadata={"static": True})

    def init(self) -> Any:
        return State(jnp.zeros(self.num_clients, jnp.int32))

    def select(self, key: Any, state: Any, available: Any) -> Any:
        chosen = available & (
            jnp.cumsum(available.astype(jnp.int32)) <= self.cohort_size
        )
        cohort = chosen & (available.sum() >= self.cohort_size)
        return cohort, State(state.counts + cohort.astype(jnp.int32))


def own_first(num_clients: int, cohort_size: int) -> First:
    return First(jnp.int32(cohort_size), num_clients)


def blocks_of(target: int) -> Any:
    def blocks(num_clients: int, cohort_size: int) -> Any:
        return mj.selection.batch_partitioning(num_clients, cohort_size, target)

    return blocks


@contextlib.contextmanager
def registered(**own: Any) -> Iterator[None]:
    """Register parts by the names of their settings for the time of a block."""
    before = [dict(rows) for rows in REGISTRIES]
    for setting, parts in own.items():
        for name, factory in parts.items():
            if setting in ("selection", "availability", "graphs"):
                getattr(mj, setting).register(name, factory)
            else:
                study.register(setting, name, factory)
    try:
        yield
    finally:
        for rows, old in zip(REGISTRIES, before, strict=True):
            rows.clear()
            rows.update(old)


def equal(one: Any, other: Any) -> None:
    assert {*one.data_vars} == {*other.data_vars}
    for name in one.data_vars:
        if name != "seconds":
            np.testing.assert_array_equal(
                one[name].values, other[name].values, err_msg=name
            )


def beside_names(
    folder: pathlib.Path, factory: Any, target: int, away: Any, availability: list[Any]
) -> Any:
    """Return cells of a factory, a value and a model that equal those of names, to the bit."""
    names = {
        "scheme": ["theirs", "mine"],
        "population.availability": [*availability, "away"],
    }
    with registered(
        selection={"theirs": factory, "mine": blocks_of(target)},
        availability={"away": lambda rates: away},
    ):
        expected = study.sweep(SMALL | {"grid": names}, out=folder / "names").load()
    held = [dict(rows) for rows in REGISTRIES]
    mine = mj.selection.batch_partitioning(12, 4, target)
    grid = {
        "scheme": [{"theirs": factory}, {"mine": mine}],
        "population": {"availability": [*availability, {"away": away}]},
    }
    found = study.sweep(SMALL | {"grid": grid}, out=folder / "objects").load()
    assert found["scheme"].values.tolist() == ["theirs", "mine"]
    equal(found, expected)
    assert [dict(rows) for rows in REGISTRIES] == held
    return found


def test_an_object_gives_what_its_name_gives(tmp_path: pathlib.Path) -> None:
    away = mj.availability.independent(0.3)
    found = beside_names(tmp_path, blocks_of(4), 2, away, [])
    assert (found["strong_privacy"].sel(scheme="theirs").values == 4).all()


@pytest.mark.long
def test_an_own_class_gives_what_its_name_gives_and_what_it_gives_alone(
    tmp_path: pathlib.Path,
) -> None:
    away = mj.availability.markov(0.3, 2.0)
    found = beside_names(tmp_path, own_first, 2, away, ["independent"])
    population = SMALL["population"] | {"availability": {"away": away}}
    own = {"population": population, "schemes": [{"theirs": own_first}]}
    alone = study.sweep(SMALL | own, out=tmp_path / "alone").load()
    one = found.sel(scheme="theirs", availability="away")
    for name in (
        "rank",
        "exposed_clients",
        "aggregation_cardinality",
        "hidden_among_worst",
    ):
        np.testing.assert_array_equal(
            alone[name].values[0], one[name].values, err_msg=name
        )


def test_a_folder_opens_without_the_objects_and_its_points_are_found_again(
    tmp_path: pathlib.Path,
) -> None:
    own = {"mine": blocks_of(2)}
    asked = SMALL | {"grid": {"scheme": ["uniform", own], "seed": [0, 1]}}
    made = study.sweep(asked, out=tmp_path / "a").load()
    found = study.open_study(tmp_path / "a").load()
    equal(found, made)
    assert found.mrsa.table()["scheme"].tolist() == ["Random"] * 2 + ["mine"] * 2
    assert "4 points are done" in found.mrsa.sentences()[0]
    there = study.sweep(asked, out=tmp_path / "a", dry_run=True)
    assert (there["there"], there["changed"]) == (4, [])
    own["mine"] = blocks_of(4)  # the same code, another value
    there = study.sweep(asked, out=tmp_path / "a", dry_run=True)
    words = "mine has changed (scheme mine) since 2 points were computed: they are computed anew"
    assert (there["there"], there["new"], there["changed"]) == (2, 2, [words])
    again = study.sweep(asked, out=tmp_path / "a").load()
    assert (again["strong_privacy"].sel(scheme="mine").values == 4).all()
    assert sum(map(len, Index(tmp_path / "a").refresh().records.values())) == 6


@pytest.mark.long
def test_graphs_of_rounds_and_zipped_axes(tmp_path: pathlib.Path) -> None:
    ring = mj.graphs.harary(6, 2)
    base = {"command": "secagg", "num_clients": 6, "trials": 20}
    zipped = {"graph": ["complete", "ring"], "step_dropout_rate": [0.1, 0.2]}
    with registered(graphs={"ring": lambda n: mj.graphs.harary(n, 2)}):
        expected = study.sweep(base | {"zip": [zipped]}, out=tmp_path / "names").load()
    found = study.sweep(
        base | {"zip": [zipped | {"graph": ["complete", {"ring": ring}]}]},
        out=tmp_path / "objects",
    ).load()
    equal(found, expected)


def test_misuse_is_refused_before_any_work(tmp_path: pathlib.Path) -> None:
    selector = mj.selection.uniform(12, 4)
    with (tmp_path / "file").open("w") as file:
        refused = {
            "must have a name that tables can show": lambda n, k: selector,
            "must have a name that tables can show, .*'a:b'": {"a:b": selector},
            "must have a name that nothing else has, .* got 'uniform'": {
                "uniform": selector
            },
            r"`grid.scheme\[1\].mine` must be an object, or a function": {"mine": 3},
            "digest can be made of; got <_io.TextIOWrapper": {
                "mine": lambda n, k: file.mode
            },
            "must take the number of clients, the cohort size": {
                "mine": lambda n: selector
            },
            "clients and the cohort .*; got .24, 4. and .12, 4.": {
                "mine": mj.selection.uniform(24, 4)
            },
        }
        for words, item in refused.items():
            with pytest.raises(ConfigurationError, match=words):
                study.sweep(
                    SMALL | {"grid": {"scheme": ["weighted", item]}},
                    out=tmp_path / "out",
                )
    several = [{"mine": selector}, {"mine": mj.selection.weighted(12, 4)}]
    with pytest.raises(
        ConfigurationError, match=r"name that nothing else has, .* got 'mine'"
    ):
        study.sweep(SMALL | {"grid": {"scheme": several}}, out=tmp_path / "out")
    with pytest.raises(
        ConfigurationError, match=r"plain 'mine' .it has no parameter.; got 'mine:3"
    ):
        study.sweep(
            SMALL | {"grid": {"scheme": [*several[:1], "mine:3"]}}, out=tmp_path / "out"
        )
    with pytest.raises(
        ConfigurationError, match=r"`workers` must not be set with objects, .*mine"
    ):
        study.sweep(
            SMALL | {"grid": {"scheme": several[:1]}}, out=tmp_path / "out", workers=2
        )
    with pytest.raises(
        ConfigurationError, match=r"`grid.scheme\[0\]` must be of type str; got 3"
    ):
        study.sweep(SMALL | {"grid": {"scheme": [3]}}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "mine" not in selection.ROWS


# ---- what an object is known by


def digest(thing: Any) -> str:
    return Code(thing, "mine", "grid")()[""].partition(" ")[0]


class Wide(nn.Module):
    """A model of a user's own."""

    size: int

    @nn.compact
    def __call__(self, inputs: Any) -> Any:
        return nn.Dense(3)(nn.Dense(self.size)(inputs.reshape(len(inputs), -1)))


class Linear(nnx.Module):
    """Another, of the other kind."""

    def __init__(self, rngs: Any) -> None:
        self.last = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return self.last(inputs.reshape(len(inputs), -1))


class Slots:
    __slots__ = ("rate",)

    def __init__(self, rate: float) -> None:
        self.rate = rate


class Pair(tuple):  # type: ignore[type-arg]
    """Has methods, and so code."""


class OtherPair(tuple):  # type: ignore[type-arg]
    """Has another."""

    def both(self) -> Any:
        return self


PAIRS: dict[str, tuple[Any, Any]] = {
    "leaf": (First(np.int32(3), 12), First(np.int32(4), 12)),
    "static": (First(np.int32(3), 12), First(np.int32(3), 24)),
    "closure": (blocks_of(2), blocks_of(4)),
    "closure of a library": (optax.sgd(0.1), optax.sgd(0.2)),
    "partial": (
        functools.partial(blocks_of, target=3),
        functools.partial(blocks_of, target=4),
    ),
    "code": (lambda n, k: n + k, lambda n, k: n - k),
    "constant": (lambda n, k: n + 1, lambda n, k: n + 2),
    "default": (lambda n, k=1: n, lambda n, k=2: n),
    "slots": (Slots(0.1), Slots(0.2)),
    "state of a library": (np.random.default_rng(0), np.random.default_rng(1)),
    "class": (Pair((1, 2)), OtherPair((1, 2))),
    "array": (np.zeros(3), np.zeros(3, np.float32)),
    "objects": (np.array([1, "a"], object), np.array([1, "b"], object)),
    "model": (Wide(3), Wide(4)),
    "bound method": (Slots(0.1).__reduce__, Slots(0.2).__reduce__),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_a_digest_changes_with_code_and_values(name: str) -> None:
    one, other = PAIRS[name]
    assert digest(one) == digest(one) != digest(other)


def test_keys_are_told_by_their_data() -> None:
    same = [digest(jax.random.key(seed)) for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


def test_a_digest_is_that_of_another_process_and_sees_code_that_was_imported_before_an_edit(
    tmp_path: pathlib.Path,
) -> None:
    """Sets have another order there; a module's text may be newer than what runs."""
    module = tmp_path / "own.py"
    module.write_text(
        textwrap.dedent("""
        import dataclasses

        RATE = 1

        @dataclasses.dataclass
        class A:
            x: int

            def f(self):
                return {"a", "b", "c"}, RATE
    """)
    )
    program = textwrap.dedent("""
        import pathlib
        import own
        from mrsa_jax._core.sources import Code
        print(Code(own.A(3), "mine", "grid")())
        file = pathlib.Path(own.__file__)
        text = file.read_text()
        file.write_text(text.replace("RATE = 1", "RATE = 2"))
        print(Code(own.A(3), "mine", "grid")())
        import importlib
        importlib.reload(own)
        print(Code(own.A(3), "mine", "grid")())
        file.write_text(text)
    """)
    paths = [str(tmp_path), *sys.path]
    found = [
        subprocess.run(
            [sys.executable, "-B", "-c", program],
            env={"PYTHONPATH": ":".join(paths), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in (1, 2)
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == 3  # the old code under the new text is neither


# ---- trainings


def adam(model: Any, training: Any) -> Any:
    return mj.federated.local_optax(
        model, optax.adam(0.01), batch_size=training.batch_size
    )


@pytest.mark.long
def test_parts_of_trainings_give_what_their_names_give(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90).astype(np.int32)
    inputs = (rng.standard_normal((90, 4, 4, 1)) + labels[:, None, None, None]).astype(
        np.float32
    )
    clouds = mj.data.Dataset(
        "clouds", inputs[:60], labels[:60], inputs[60:], labels[60:], 3
    )
    coarse, linear = mj.quantize.stochastic(64, 1.0), nnx.bridge.to_linen(Linear)
    sgd = mj.federated.local_sgd(linear, 0.2, batch_size=20)
    base = {
        "command": "train",
        "rounds": 3,
        "scheme": "uniform",
        "population": {"num_clients": 6, "cohort_size": 3},
    }
    model, trainer = "training.model", "training.trainer"
    with registered(
        dataset={"clouds": lambda seed: clouds},
        model={"wide": lambda classes: Wide(5), "linear": lambda classes: linear},
        trainer={"adam": adam, "mine": lambda model, training: sgd},
        quantizer={"coarse": lambda dim, aggregation: coarse},
    ):
        named = base | {
            "data": {"dataset": "clouds"},
            "aggregation": {"quantizer": "coarse"},
        }
        grid = {model: ["wide", "linear"], trainer: ["sgd", "adam"]}
        expected = study.sweep(named | {"grid": grid}, out=tmp_path / "names").load()
        grid = {model: ["linear"], trainer: ["mine"]}
        last = study.sweep(named | {"grid": grid}, out=tmp_path / "last").load()
    named = base | {
        "data": {"dataset": {"clouds": clouds}},
        "aggregation": {"quantizer": {"coarse": coarse}},
    }
    grid = {model: [{"wide": Wide(5)}, {"linear": Linear}], trainer: ["sgd", adam]}
    equal(
        study.sweep(named | {"grid": grid}, out=tmp_path / "objects").load(), expected
    )
    grid = {model: [{"linear": linear}], trainer: [{"mine": sgd}]}
    equal(study.sweep(named | {"grid": grid}, out=tmp_path / "more").load(), last)
    grid = {model: [{"wide": Wide(5)}], trainer: [{"mine": sgd}]}
    with pytest.raises(
        ConfigurationError, match="`trainer` must be made for the model that is"
    ):
        study.sweep(named | {"grid": grid}, out=tmp_path / "none")
