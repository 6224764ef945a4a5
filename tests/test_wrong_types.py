"""Values of wrong types at every public entry point.

Errors that name the argument and the rule.
The suite checks annotations at run time, which users' processes do not: the table is
tried in a process of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import pathlib
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

WRONG = {
    "text": "5",
    "none": None,
    "dict": {},
    "words": ["a"],
    "nan": float("nan"),
    "negative": -1,
    "true": True,
    "object": object(),
    "half": 2.5,
    "ragged": [[1], [1, 2]],
    "huge": 10**30,
    "complex": 1j,
}

# what is right for an argument although it stands above, by function and argument
RIGHT = {
    "selection.bernoulli.probability": "true traced",
    "secagg.connection_probability.n": "huge",
    "secagg.share_threshold.n": "huge",
    "secagg.reliability_bound.n": "huge",
    "secagg.reliability_bound.t": "half huge traced",
    **{
        f"secagg.{name}_bound.{argument}": "traced"
        for name in ("reliability", "privacy")
        for argument in "pq"
    },
    **{
        f"secagg.{name}.{argument}": "traced"
        for name in ("is_reliable", "is_private")
        for argument in ("adjacency", "survivors", "thresholds")
    },
    **{
        f"selection.{name}.{argument}": "traced"
        for name, argument in (
            ("uniform", "cohort_size"),
            ("weighted", "cohort_size"),
            ("partition", "cohort_size"),
            ("batch_partitioning", "cohort_size"),
            ("batch_partitioning", "privacy_target"),
            ("rollout", "seed"),
            ("rollout_trials", "seed"),
            ("expected_cardinality", "dropout_rate"),
        )
    },
    "availability.independent.dropout_rate": "traced",
    "protocol.Pledge.path": "text none",
    "protocol.Terms.blocks": "none",
    "protocol.share.threshold": "huge",
    "secagg.aggregate.seed": "huge",
    "secagg.aggregate.modulus_bits": "none",
    "hetero.quantization_error_bound.group_size": "huge",
    "hetero.quantization_error_bound.dim": "huge",
    "selection.fairness_gap.participation": "traced",
    "selection.aggregation_cardinality.participation": "traced",
    "privacy.first_exposure.P": "traced",
    "privacy.strong_privacy.P": "traced",
    "privacy.weak_privacy_trajectory.P": "traced",  # of bounds
    "privacy.distinguishability.shift": "half huge",
    "privacy.distinguishability.spread": "half huge none",
    "privacy.distinguishability.noise": "half",
    "dp.ledger.noise_multiplier": "half",
    "dp.ledger.clip": "half none",
    "dp.ledger.strategy": "none",
    "dp.ledger.planned": "huge none",
    "attacks.distinguish.client": "huge",
    "attacks.distinguish.shift": "half negative",
    "attacks.distinguish.spread": "half huge none",
    "attacks.distinguish.noise": "half",
    "attacks.distinguish.kernel": "none",
    "secagg.ring_average.dim": "huge",
    # one too large to be drawn is brought to a larger step
    "dp.skellam.variance": "half huge",
    "dp.discrete_gaussian.variance": "half huge",
    "DemoConfig.trim": "nan",  # of no use without segments
    "TrainConfig.trim": "nan",
    "federated.Training.evaluate_every": "huge",
    "federated.Training.keep_aggregates": "true",
    "federated.Training.measure_drift": "true",
    "federated.train.memory_bytes": "huge none",
    "federated.local_sgd.learning_rate": "half huge traced",
    "federated.local_sgd.batch_size": "huge",
}


class NoTree:
    """A selector's and an availability's methods, on what JAX knows no leaves of."""

    def init(self, *args: Any) -> None:
        """Return no state."""

    def select(self, key: Any, state: Any, available: Any) -> tuple[Any, Any]:
        """Return everybody."""
        return available, state

    sample = select


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments that may be left out, by their names."""
    unset = inspect.signature(function).parameters.items()
    return {name: one.default for name, one in unset if one.default is not one.empty}


def _table() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return each entry point of arrays and numbers with right arguments."""
    import numpy as np

    import mrsa_jax as mj

    P = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], bool)
    protocol = {
        "inputs": np.arange(8, dtype=np.uint32).reshape(4, 2),
        "adjacency": ~np.eye(4, dtype=bool),
        "survivors": np.ones((5, 4), bool),
        "thresholds": 2,
    }
    conditions = {
        name: protocol[name] for name in ("adjacency", "survivors", "thresholds")
    }
    sizes = {"num_clients": 4, "cohort_size": 2}
    target = sizes | {"privacy_target": 2}
    rolled = {
        "seed": 0,
        "selector": mj.selection.uniform(4, 2),
        "availability": mj.availability.independent(0.1),
        "num_rounds": 3,
    }
    bound = {
        "matrix": mj.hetero.segment_matrix("sc", 4),
        "levels": [4, 8, 16, 32],
        "group_size": 2,
        "dim": 10,
        "value_range": (-1.0, 1.0),
    }
    rate = {"p": 0.9, "q": 0.1}
    data = mj.data.iid(0, mj.data.load("digits", seed=0), num_clients=4)
    model = mj.federated.logistic(10)
    quantizer = mj.quantize.stochastic(2**16, 0.5)
    training = {
        "model": model,
        "client_data": data,
        "participation": P[:2],
        "trainer": mj.federated.local_sgd(model, 0.1, batch_size=100),
        "aggregator": mj.secagg.ring_average(quantizer, 2, 650),
    }
    trained = {"seed": 0, "training": mj.federated.Training(**training)}
    training |= _defaults(mj.federated.Training)
    trained |= _defaults(mj.federated.train)
    arguments: dict[str, dict[str, Any]] = {
        "selection.uniform": sizes,
        "selection.weighted": sizes,
        "selection.partition": sizes,
        "selection.batch_partitioning": target | {"fairness": "uniform"},
        "selection.crossing_partitions": target | {"fairness": "uniform"},
        "selection.from_lines": {"lines": np.eye(4, dtype=int), "cohort_size": 2},
        "selection.bernoulli": {"num_clients": 4, "probability": 0.5},
        "availability.independent": {"dropout_rate": 0.1},
        "selection.rollout": rolled,
        "selection.rollout_trials": rolled | {"num_trials": 2},
        "selection.fairness_gap": {"participation": P},
        "selection.aggregation_cardinality": {"participation": P},
        "selection.expected_cardinality": target | {"dropout_rate": 0.1},
        "selection.family_size": target,
        "selection.enumerate_family": target,
        "privacy.strong_privacy": {"P": P, "coalition": (1,)},
        "privacy.weak_privacy": {"P": P, "coalition": (1,)},
        "privacy.weak_privacy_trajectory": {
            "P": P,
            "method": "bounds",
            "coalition": (1,),
        },
        "privacy.first_exposure": {"P": P, "coalition": (1,)},
        "design.judge": {
            "lines": np.eye(4, dtype=int),
            "cohort_size": 2,
            "dropout_rate": 0.1,
            "num_rounds": 2,
            "num_trials": 2,
        },
        "privacy.distinguishability": {
            "P": P,
            "shift": 1.0,
            "spread": 1.0,
            "noise": 0.0,
            "coalition": (1,),
        },
        "dp.ledger": {
            "participation": P,
            "noise_multiplier": 1.0,
            "clip": 1.0,
            "strategy": np.eye(3),
            "planned": 2,
            "colluding": (1,),
        },
        "dp.toeplitz": {"coefficients": [1.0, 0.5], "rounds": 3},
        "attacks.distinguish": {
            "client": 0,
            "shift": 1.0,
            "spread": 1.0,
            "noise": 0.5,
            "kernel": np.eye(3),
        },
        "secagg.connection_probability": {"n": 10, "total_dropout_rate": 0.1},
        "secagg.share_threshold": {"n": 10, "p": 0.9},
        "secagg.reliability_bound": {"n": 10, **rate, "t": 5},
        "secagg.privacy_bound": {"n": 10, **rate},
        "secagg.is_reliable": conditions,
        "secagg.is_private": conditions,
        "secagg.aggregate": {"seed": 0} | protocol | {"modulus_bits": 8},
        "secagg.failure_rates": {"seed": 0, "n": 6, **rate, "t": 3, "num_trials": 50},
        "secagg.ring_average": {
            "quantizer": quantizer,
            "num_participants": 2,
            "dim": 650,
        },
        "dp.skellam": {"variance": 4.0},
        "dp.discrete_gaussian": {"variance": 4.0},
        "modular.ring_of": {"modulus": 37},
        "protocol.run": protocol | {"modulus_bits": 8},
        "protocol.Terms": {
            "roster": [bytes(32)] * 4,
            "adjacency": protocol["adjacency"],
            "thresholds": np.full(4, 3),
            "blocks": np.arange(4) // 2,
            "session": b"",
            "colluders": 0,
        },
        "protocol.Pledge": {"path": "file"},
        "protocol.share": {"secret": bytes(32), "threshold": 2, "points": [1, 2]},
        "protocol.recover": {
            "points": [1, 2],
            "shares": np.zeros((2, 9), np.uint32),
            "threshold": 2,
        },
        "hetero.segment_matrix": {"scheme": "sc", "num_groups": 4},
        "hetero.segment_matrix_plus": {"scheme": "sc", "subgroups": [2, 1]},
        "hetero.privacy_level": {"matrix": bound["matrix"]},
        "hetero.quantization_error_bound": bound,
        "attacks.least_squares": {
            "participation": P,
            "aggregates": P @ np.ones((4, 2)),
        },
        "federated.local_sgd": {"model": model, "learning_rate": 0.1, "batch_size": 3},
        "federated.Training": training,
        "federated.train": trained,
    }
    found = {}
    for name, own in arguments.items():
        family, _, function = name.partition(".")
        found[name] = getattr(getattr(mj, family), function), own
    return found


def _studies() -> Iterator[tuple[str, str, str, Callable[[], Any]]]:
    """Give the entry points of studies, and each field of their configurations."""
    import mrsa_jax as mj

    study = mj.study
    for label, value in WRONG.items():
        for name, argument in (
            ("run", "config"),
            ("run_and_save", "config"),
            ("validate", "config"),
            ("sweep", "study"),
            ("open_study", "path"),
        ):
            if (name, label) != ("sweep", "dict"):  # a sweep of one point
                call = getattr(study, name)
                yield f"study.{name}", argument, label, lambda c=call, v=value: c(v)
        yield "study.merge", "folders", label, lambda v=value: study.merge(v, "out")
        if label != "text":
            yield "study.merge", "out", label, lambda v=value: study.merge(["in"], v)
        for argument in (
            "out",
            "overwrite",
            "memory_bytes",
            "devices",
            "workers",
            "dry_run",
            "progress",
        ):
            is_right = argument not in ("overwrite", "dry_run") and value is None
            is_right |= (argument, label) in {
                ("out", "text"),
                ("overwrite", "true"),
                ("dry_run", "true"),
            }
            if not is_right and (argument, label) not in {
                ("memory_bytes", "huge"),
                ("devices", "huge"),
                ("workers", "huge"),
            }:
                more = {argument: value}
                yield (
                    "study.sweep",
                    argument,
                    label,
                    lambda m=more: study.sweep({}, **m),
                )
    for kind in (study.SimulateConfig, study.DemoConfig, study.TrainConfig):
        for path, hint in _fields(kind, ()):
            for label, value in WRONG.items():
                if not _is_right(hint, label):
                    config = _with(kind(), path, value)
                    call = lambda c=config: study.validate(c)  # noqa: E731
                    yield kind.__name__, path[-1], label, call


def _fields(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        inner = getattr(kind(), field.name)
        # a name of a text that says which papers it stands on is a text
        hint = hints[field.name]
        plain = hint.__name__ if hint in (bool, int, float, str) else str(hint)
        yield (*path, field.name), "pathlib.Path" if hint is pathlib.Path else plain
        if dataclasses.is_dataclass(inner):
            yield from _fields(type(inner), (*path, field.name))


def _is_right(hint: str, label: str) -> bool:
    """Return whether a value is of a field's type.

    Whether it makes sense is another question.
    """
    plain = hint.removesuffix(" | None")
    return (
        (label == "none" and plain != hint)
        or (label == "true" and plain == "bool")
        or (
            label in ("text", "words")
            and plain in ("str", "pathlib.Path", "tuple[str, ...]")
        )
        or (label in ("huge", "half", "negative") and plain in ("int", "float"))
        # a number of shares, or the name of a rule
        or (label in ("huge", "none") and "majority" in hint)
    )


def _with(config: Any, path: tuple[str, ...], value: Any) -> Any:
    first, *rest = path
    inner = _with(getattr(config, first), tuple(rest), value) if rest else value
    return dataclasses.replace(config, **{first: inner})


def _cases() -> Iterator[tuple[str, str, str, Callable[[], Any]]]:
    import jax
    import numpy as np

    table = _table()
    for name, (function, own) in table.items():
        for argument, value in own.items():
            for label, wrong in WRONG.items():
                if wrong is None and value is None:  # the default
                    continue
                more = own | {argument: wrong}
                yield name, argument, label, lambda f=function, m=more: f(**m)
            if isinstance(value, int | float | np.ndarray) and not isinstance(
                value, bool
            ):

                def traced(
                    x: Any, f: Any = function, own: Any = own, a: str = argument
                ) -> int:
                    f(**(own | {a: x}))
                    return 0

                yield name, argument, "traced", lambda t=traced, v=value: jax.jit(t)(v)
    rollout, own = table["selection.rollout"]
    for argument, swapped in (
        ("selector", "availability"),
        ("availability", "selector"),
    ):
        for label, wrong in (
            ("tree", NoTree()),
            ("class", NoTree),
            ("other", own[swapped]),
        ):
            more = own | {argument: wrong}
            yield "selection.rollout", argument, label, lambda m=more: rollout(**m)
    yield from _studies()


def _try() -> dict[str, Any]:
    """Return what was said wrongly, what was let through, and how many cases there were."""
    import mrsa_jax as mj

    unnamed, accepted, count = [], [], 0
    for name, argument, label, call in _cases():
        count += 1
        try:
            call()
        except (mj.MrsaError, TypeError, ValueError) as error:
            said = str(error)
            # `schemes` holds each `scheme`
            is_named = (
                f"`{argument}" in said or f"`{argument.removesuffix('s')}`" in said
            )
            if not (is_named and "must" in said):
                unnamed.append(
                    f"{name} {argument}={label}: {type(error).__name__}: {said[:150]}"
                )
        except Exception as error:
            unnamed.append(
                f"{name} {argument}={label}: {type(error).__name__}: {str(error)[:150]}"
            )
        else:
            if label not in RIGHT.get(f"{name}.{argument}", "").split():
                accepted.append(f"{name} {argument}={label}")
    return {"unnamed": unnamed, "accepted": accepted, "count": count}


@pytest.mark.long
def test_wrong_types_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["unnamed"] == []
    assert found["accepted"] == []
    assert found["count"] > 2000


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_try()) + "\n")
