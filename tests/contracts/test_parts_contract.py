"""Quantizers, robust rules, aggregators, trainers and attacks keep their contracts.

One table.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mrsa_jax import attacks, dp, federated, graphs, hetero, quantize, secagg
from mrsa_jax._core.streams import as_key

N, D = 4, 6
_VALUES = np.random.default_rng(0).uniform(-1, 1, (N, D)).astype(np.float32)
_WEIGHTS = np.asarray([1.0, 2.0, 0.0, 3.0], np.float32)
_IDS, _ASKED = np.arange(N, dtype=np.int32), np.ones(N, np.bool_)
_MODEL = federated.logistic(3)
_LABELS = np.asarray([0, 1, 2, 0], np.int32)


def _layout() -> hetero.SegmentLayout:
    return hetero.segment_layout("mc", [2, 2], [2, 4], D)


def _rule() -> Any:
    return secagg.graph_rule(graphs.complete(N), N)


def _average(levels: int, seed: int, **more: Any) -> Any:
    return secagg.ring_average(
        quantize.stochastic(levels, 1.0), N, D, key_material=seed, **more
    )


def _quantized(one: Any, key: Any) -> Any:
    return one.decode(one.encode(key, _VALUES), 1), one.clipped_fraction(_VALUES)


def _aggregated(one: Any, key: Any) -> Any:
    return one.aggregate(key, one.init(), *map(jnp.asarray, (_VALUES, _IDS, _ASKED)))


def _trained(one: Any, key: Any) -> Any:
    dim = federated.num_parameters(_MODEL, (D,))
    values, labels = jnp.asarray(_VALUES), jnp.asarray(_LABELS)
    return one.update(key, jnp.zeros(dim, jnp.float32), values, labels, jnp.int32(3))


@dataclasses.dataclass(frozen=True)
class Family:
    """A protocol, its factories' modules, what makes (a member, the same with other numbers)."""

    protocol: type
    modules: tuple[Any, ...]
    use: Callable[[Any, Any], Any]
    rows: dict[str, list[Callable[[], tuple[Any, Any]]]]


_ADAM = optax.adam(0.01)
_SGD = {"batch_size": 2, "num_epochs": 2}
FAMILIES = {
    "quantizer": Family(
        quantize.Quantizer,
        (quantize,),
        _quantized,
        {
            "stochastic": [
                lambda: (quantize.stochastic(5, 1.0), quantize.stochastic(9, 0.5))
            ],
            "lattice": [
                lambda: (
                    quantize.lattice(0.1, 1.0, D),
                    quantize.lattice(0.2, 0.5, D, key=3),
                ),
                lambda: (
                    quantize.lattice(0.1, 1.0, D, rotate=False),
                    quantize.lattice(0.2, 0.5, D, rotate=False),
                ),
            ],
        },
    ),
    "robust rule": Family(
        hetero.robust.RobustRule,
        (hetero.robust,),
        lambda one, key: one(_VALUES, _WEIGHTS),
        {
            "weighted_mean": [
                lambda: (hetero.robust.weighted_mean(), hetero.robust.weighted_mean())
            ],
            "coordinate_median": [
                lambda: (
                    hetero.robust.coordinate_median(),
                    hetero.robust.coordinate_median(),
                )
            ],
            "trimmed_mean": [
                lambda: (
                    hetero.robust.trimmed_mean(0.1),
                    hetero.robust.trimmed_mean(0.3),
                )
            ],
            "geometric_median": [
                lambda: (
                    hetero.robust.geometric_median(),
                    hetero.robust.geometric_median(7),
                )
            ],
            # its numbers are sizes: of blocks, which are counted before anything is
            # traced
            "krum": [lambda: (hetero.robust.krum(0), hetero.robust.krum(0))],
        },
    ),
    "aggregator": Family(
        secagg.Aggregator,
        (secagg, hetero),
        _aggregated,
        {
            "ring_average": [
                lambda: (_average(5, 1), _average(5, 2)),
                lambda: (_average(5, 1, rule=_rule()), _average(5, 2, rule=_rule())),
                lambda: (
                    _average(5, 1, clip_rule=quantize.following_range(4.0)),
                    _average(5, 2, clip_rule=quantize.following_range(2.0)),
                ),
                lambda: (
                    _average(5, 1, noise=dp.skellam(1.0)),
                    _average(5, 2, noise=dp.skellam(2.0)),
                ),
            ],
            "segment_average": [
                lambda: (
                    hetero.segment_average(_layout(), (-1.0, 1.0)),
                    hetero.segment_average(_layout(), (-0.5, 0.5), key_material=3),
                )
            ],
        },
    ),
    "trainer": Family(
        federated.LocalTrainer,
        (federated,),
        _trained,
        {
            "local_sgd": [
                lambda: (
                    federated.local_sgd(_MODEL, 0.1, **_SGD),
                    federated.local_sgd(_MODEL, 0.4, **_SGD),
                ),
                lambda: (
                    federated.local_sgd(
                        _MODEL, 0.1, momentum=0.5, proximal=0.1, clip_norm=0.1, **_SGD
                    ),
                    federated.local_sgd(
                        _MODEL, 0.2, momentum=0.9, proximal=0.3, clip_norm=0.3, **_SGD
                    ),
                ),
            ],
            # an optimizer is no number: another one is another program
            "local_optax": [
                lambda: (federated.local_optax(_MODEL, _ADAM, **_SGD),) * 2
            ],
        },
    ),
}
ROWS = [
    pytest.param(family, row, id=f"{factory}{i}")
    for family in FAMILIES.values()
    for factory, rows in family.rows.items()
    for i, row in enumerate(rows)
]


def _attacks() -> dict[str, Any]:
    trainer = federated.local_sgd(_MODEL, 0.1, **_SGD)
    return {
        "attribute": attacks.attribute(trainer),
        "dense_recovery": attacks.dense_recovery(),
        "disaggregation": attacks.disaggregation(),
        "distinguish": attacks.distinguish(0),
        "gradient_inversion": attacks.gradient_inversion(),
        "least_squares_attack": attacks.least_squares_attack(),
        "membership": attacks.membership("loss", trainer, shadow_size=4),
        "model_inconsistency": attacks.model_inconsistency(
            _MODEL, trainer, quantize.stochastic(5, 1.0)
        ),
        "model_inversion": attacks.model_inversion(),
    }


def _members(kind: type) -> set[str]:
    plain = {name for name in vars(kind) if not name.startswith("_")} | set(
        kind.__annotations__
    )
    return plain | ({"__call__"} & set(vars(kind)))


def _factories(protocol: type, modules: tuple[Any, ...]) -> set[str]:
    """Public functions that return a class with all members of a protocol."""
    found = set()
    for module in modules:
        for name in getattr(module, "__all__", vars(module)):
            function = inspect.unwrap(getattr(module, name))
            if inspect.isfunction(function):
                built = function.__globals__.get(
                    str(inspect.signature(function).return_annotation)
                )
                if inspect.isclass(built) and _members(protocol) <= _members(built):
                    found.add(name)
    return found


@pytest.mark.smoke("aggregator")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_factory_is_in_its_table(name: str) -> None:
    family = FAMILIES[name]
    assert _factories(family.protocol, family.modules) == set(family.rows)


def test_every_attack_is_in_the_table_and_is_a_value() -> None:
    assert _factories(attacks.Attack, (attacks,)) == set(_attacks())
    for attack in _attacks().values():
        assert isinstance(attack, attacks.Attack)
        assert dataclasses.is_dataclass(attack)
        with pytest.raises(dataclasses.FrozenInstanceError):
            attack.other = 1  # type: ignore[attr-defined]
        view = next(iter(inspect.signature(attack.run).parameters.values()))
        # what an attack draws comes from a key, never from itself
        assert view.name == "key"


def _same(one: Any, other: Any) -> None:
    """Compare up to the rounding that another program may bring; whole numbers exactly."""

    def close(ours: Any, theirs: Any) -> None:
        slack = 1e-5 if jnp.issubdtype(ours.dtype, jnp.floating) else 0
        np.testing.assert_allclose(ours, theirs, rtol=slack, atol=slack)

    jax.tree.map(close, one, other)


@pytest.mark.long
@pytest.mark.parametrize(("family", "row"), ROWS)
def test_a_member_is_a_value(
    family: Family, row: Callable[[], tuple[Any, Any]]
) -> None:
    """Its numbers are leaves.

    The same under `jit`, alone or in a batch, and compiled once.
    """
    pair = row()
    assert isinstance(pair[0], family.protocol)
    key = as_key(7)
    alone = [family.use(each, key) for each in pair]
    has_numbers = bool(jax.tree.leaves(pair))
    for leaf in jax.tree.leaves(pair):
        assert isinstance(leaf, jax.Array)

    @jax.jit
    def run(*members: Any) -> Any:
        if not has_numbers:
            return jax.tree.map(lambda leaf: leaf[None], family.use(members[0], key))
        both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
        return jax.vmap(family.use, (0, None))(both, key)

    for members, expected in ((pair, alone), (pair[::-1], alone[::-1])):
        batch = jax.device_get(run(*members))
        for place, own in enumerate(expected if has_numbers else expected[:1]):
            _same(jax.tree.map(lambda leaf, place=place: leaf[place], batch), own)
    assert run._cache_size() == 1
