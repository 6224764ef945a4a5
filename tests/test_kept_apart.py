"""Programs that were compiled for one class never run for another with equal fields."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.pytrees import kept_apart, pytree, static
from mrsa_jax._core.selector import SelectorState
from mrsa_jax.secagg.failures import _judging

# JAX finds a program of another class for about one class in eight, by chance; that
# structures differ, which prevents it, is tested without chance.
CLASSES = 16
N = 48


def new_class(base: type, place: int) -> Any:
    """Return a class with the fields of all others, whose instances know a place."""
    fields = [("num_clients", int, dataclasses.field(metadata={"static": True}))]
    made = dataclasses.make_dataclass("Own", fields, bases=(base,), frozen=True)
    made.place = place
    return jax.tree_util.register_dataclass(made)


class OneClient:
    def init(self):
        return SelectorState(jnp.zeros(self.num_clients, jnp.int32))

    def select(self, key, state, available):
        cohort = jnp.arange(self.num_clients) == self.place
        return cohort, state._replace(counts=state.counts + cohort.astype(jnp.int32))


class OneOnline:
    def for_clients(self, num_clients):
        return self

    def init(self, key):
        return ()

    def sample(self, key, state):
        return jnp.arange(self.num_clients) == self.place, state


class Star:
    def sample(self, key):
        is_middle = jnp.arange(self.num_clients) == self.place
        return is_middle[:, None] != is_middle[None, :]


class OneEntry:
    def update(self, key, parameters, inputs, labels, size):
        return jnp.zeros_like(parameters).at[self.place].set(0.25)


def test_jax_takes_classes_with_equal_fields_for_one():
    """What all this is for; where it fails, JAX has learnt to tell them apart."""
    first, second = (new_class(OneClient, place)(N) for place in range(2))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert jax.tree.structure(kept_apart(first)) != jax.tree.structure(
        kept_apart(second)
    )
    assert jax.tree.structure(kept_apart(first)) == jax.tree.structure(
        kept_apart(type(first)(N))
    )


def test_classes_of_the_package_have_structures_of_their_own():
    values = [
        mj.graphs.erdos_renyi(12, 0.3),
        mj.graphs.harary(12, 2),
        mj.selection.bernoulli(12, 0.3),
        mj.selection.uniform(12, 3),
        mj.selection.partition(12, 3),
        mj.availability.independent(0.1),
        mj.availability.independent_steps(0.1),
    ]
    for first, second in itertools.combinations(values, 2):
        is_one = type(first) is type(second)
        assert (jax.tree.structure(first) == jax.tree.structure(second)) == is_one
        assert kept_apart(first) is first


def test_a_pytree_flattens_and_comes_back_as_register_dataclass_does_it():
    @pytree
    class Own:
        size: int = static()
        leaf: Any
        other: Any = 3.0

    fields = ("size", "leaf", "other")
    plain = dataclasses.make_dataclass(
        "Plain", [(name, Any) for name in fields], frozen=True
    )
    plain = jax.tree_util.register_dataclass(plain, fields[1:], fields[:1])
    for own, other in [
        (Own(2, 1.0), plain(2, 1.0, 3.0)),
        (Own(0, ()), plain(0, (), 3.0)),
    ]:
        paths = [
            jax.tree_util.tree_flatten_with_path(value)[0] for value in (own, other)
        ]
        assert paths[0] == paths[1]
        assert jax.tree.leaves(own) == jax.tree.leaves(other)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, Own(2, 1.0))
    assert (doubled.size, doubled.leaf, doubled.other) == (2, 2.0, 6.0)


def test_a_scheme_that_is_kept_apart_has_its_attributes():
    own = new_class(OneClient, 5)(N)
    apart = kept_apart(own)
    assert (apart.num_clients, apart.place, repr(apart)) == (N, 5, repr(own))
    with pytest.raises(AttributeError, match="no_such"):
        _ = apart.no_such
    again = jax.tree.unflatten(jax.tree.structure(apart), [])
    assert again.value == own


@pytest.mark.long("OneOnline")
@pytest.mark.parametrize("base", [OneClient, OneOnline])
def test_each_class_plays_its_own_rounds(base):
    for place in range(CLASSES):
        own = new_class(base, place)(N)
        selector = own if base is OneClient else mj.selection.bernoulli(N, 1.0)
        online = mj.availability.independent(0.0) if base is OneClient else own
        history = np.asarray(mj.selection.rollout(0, selector, online, 1))
        assert np.flatnonzero(history[0]).tolist() == [place]


def test_each_class_of_graphs_is_judged_as_itself():
    """A star whose middle is lost after the keys has no edge left."""
    n, key = 6, jax.random.key(0)
    steps = mj.availability.independent_steps(0.0)
    for place in range(n):
        graph = new_class(Star, place)(n)
        drawn = _judging.draw_arrays(
            kept_apart(graph), steps, key, jnp.uint32(0), chunk=1
        )
        degrees = np.asarray(drawn.adjacency)[0].sum(axis=1)
        assert int(degrees.argmax()) == place


@pytest.mark.long
def test_each_class_of_trainers_trains_as_itself():
    clients = mj.data.iid(0, mj.data.load("digits"), num_clients=2)
    model = mj.federated.logistic(10)
    average = mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 2, 650)
    rounds = np.ones((1, 2), bool)
    start = np.zeros(650, np.float32)
    for place in range(CLASSES):
        trainer = new_class(OneEntry, place)(N)
        training = mj.federated.Training(
            model, clients, rounds, trainer, average, initial_parameters=start
        )
        moved = np.asarray(mj.federated.train(0, training).parameters)
        assert int(np.abs(moved).argmax()) == place
