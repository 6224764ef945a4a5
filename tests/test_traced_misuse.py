"""Traced numbers outside their ranges: NaN, or nobody; never a plausible value.

One table: every number that a public function takes inside a transformation, at values
just outside its range. The same values without a transformation are refused.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import (
    availability,
    federated,
    graphs,
    hetero,
    privacy,
    quantize,
    secagg,
    selection,
)
from mrsa_jax._core import array_types
from mrsa_jax._core.factories import is_whole, nan_unless
from mrsa_jax._core.streams import as_key

ALIASES = vars(array_types)
FAMILIES = ("availability", "selection", "graphs", "quantize", "federated")
P = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1]])
KERNEL = 0.5 ** np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
GRAPH, SURVIVORS = ~np.eye(4, dtype=bool), np.ones((5, 4), bool)
NAN, INF = float("nan"), float("inf")


class Row(NamedTuple):
    """A number that is given to a public function.

    Attributes:
        call: Takes the number, and returns figures, or who was asked: all NaN, or
            nobody.
        inside: Values in the range: some figure, or somebody.
        outside: Values just outside.
    """

    call: Callable[[Any], Any]
    inside: tuple[Any, ...]
    outside: tuple[Any, ...]


def asked(selector: Any, online: Any = None) -> Any:
    """Return how many take part in each round."""
    online = availability.independent(0.0) if online is None else online
    return selection.rollout(0, selector, online, 6).sum(axis=1)


def online(model: Any) -> Any:
    """Return how many a model lets take part in each round."""
    return asked(selection.bernoulli(6, 1.0), model)


def left(rate: Any) -> Any:
    """Return how many are left after each of the four steps."""
    model = availability.independent_steps(rate)
    return model.sample(jax.random.key(0), jnp.ones(64, bool))[1:].sum(axis=1)


def edges(model: Any) -> Any:
    return model.sample(jax.random.key(0)).sum()


def coded(quantizer: Any) -> Any:
    return quantizer.decode(
        quantizer.encode(jax.random.key(0), jnp.asarray([0.5], jnp.float32)), 1
    )


def trained(**numbers: Any) -> Any:
    """Return the update of a client who trains with these numbers."""
    model = federated.logistic(2)
    rate = numbers.pop("learning_rate", 0.1)
    trainer = federated.local_sgd(model, rate, batch_size=2, **numbers)
    return updated(model, trainer)


def corrected(rate: Any) -> Any:
    model = federated.logistic(2)
    return federated.scaffold(model, rate, batch_size=2).learning_rate


def updated(model: Any, trainer: Any) -> Any:
    """Return the update of a client of two samples."""
    start = federated.initial_parameters(0, model, (3,))
    inputs, labels = jnp.ones((2, 3)), jnp.asarray([0, 1], jnp.int32)
    return trainer.update(jax.random.key(0), start, inputs, labels, jnp.int32(2))


def decoded(count: Any) -> Any:
    layout = hetero.segment_layout("groups", [2], [3], 4)
    totals = [
        jnp.zeros(block.stop - block.start, jnp.uint32) for block in layout.blocks
    ]
    counts = jnp.stack([jnp.asarray(count, jnp.int32)] * len(layout.blocks))
    return hetero.decode(totals, counts, layout, (-1.0, 1.0))


SIZES = (0, -1, 2.5)
CHANCES = (-1e-3, 1.001, NAN)
ROWS = {
    "privacy.hidden_among(memory)": Row(
        lambda rho: privacy.hidden_among(P, memory=rho),
        (0.0, 0.5),
        (-0.5, 1.5, 0.9999999, NAN),
    ),
    "privacy.hidden_among(memory matrix)": Row(
        lambda size: privacy.hidden_among(P, memory=KERNEL * size), (1.0,), (1.01, NAN)
    ),
    "privacy.hidden_among(share)": Row(
        lambda share: privacy.hidden_among(P, memory=0.5, share=share),
        (0.5, 1.0),
        (-0.5, 1.001, 2.0),
    ),
    "privacy.hidden_among(each_round)": Row(
        lambda rho: jnp.asarray(privacy.hidden_among(P, memory=rho, each_round=True))[
            P > 0
        ],
        (0.5,),
        (-0.5, 1.5),
    ),
    "privacy.hidden_among_trajectory(memory)": Row(
        lambda rho: privacy.hidden_among_trajectory(P, memory=rho)[-1],
        (0.5,),
        (-0.5, 1.5),
    ),
    "privacy.hidden_among_trajectory(share)": Row(
        lambda share: privacy.hidden_among_trajectory(P, memory=0.5, share=share)[-1],
        (0.5,),
        (-0.5, 2.0),
    ),
    "privacy.information(memory)": Row(
        lambda rho: privacy.information(P, rho, noise=1.0),
        (0.5, 1.0),
        (-0.5, 1.5, 0.9999999),
    ),
    "privacy.information(spread)": Row(
        lambda spread: privacy.information(P, 0.5, spread, 1.0),
        (1.0,),
        (0.0, -1.0, INF, 1e-200),
    ),
    "privacy.information(noise)": Row(
        lambda noise: privacy.information(P, 0.5, 1.0, noise), (1.0,), (-1.0, INF)
    ),
    "privacy.information(noise matrix)": Row(
        lambda beside: privacy.information(
            P, 0.5, 1.0, jnp.eye(3).at[0, 1].set(beside)
        ),
        (0.0,),
        (0.5,),
    ),
    "secagg.reliability_bound(p)": Row(
        lambda p: secagg.reliability_bound(20, p, 0.01, 5), (0.5, 1.0), CHANCES
    ),
    "secagg.reliability_bound(q)": Row(
        lambda q: secagg.reliability_bound(20, 0.5, q, 5), (0.0, 0.01), (*CHANCES, 2.5)
    ),
    "secagg.reliability_bound(t)": Row(
        lambda t: secagg.reliability_bound(20, 0.5, 0.01, t),
        (1.0, 5.0, 30.0),
        (0.5, 0.0, -3.0, INF),
    ),
    "secagg.privacy_bound(p)": Row(
        lambda p: secagg.privacy_bound(20, p, 0.01), (0.5,), CHANCES
    ),
    "secagg.privacy_bound(q)": Row(
        lambda q: secagg.privacy_bound(20, 0.5, q), (0.0, 0.01), (*CHANCES, 2.1)
    ),
    "secagg.is_reliable(thresholds)": Row(
        lambda t: secagg.is_reliable(GRAPH, SURVIVORS, t), (1, 3), (0, -1)
    ),
    "secagg.is_private(thresholds)": Row(
        lambda t: secagg.is_private(GRAPH, SURVIVORS, t), (1, 3), (0, -1)
    ),
    "hetero.decode(counts)": Row(decoded, (1, 2), (-1, 3)),
    "selection.expected_cardinality(dropout_rate)": Row(
        lambda rate: selection.expected_cardinality(8, 4, 2, rate),
        (0.0, 0.5),
        (*CHANCES, 2.0),
    ),
    "selection.uniform(cohort_size)": Row(
        lambda k: asked(selection.uniform(6, k)), (2,), (*SIZES, 7)
    ),
    "selection.weighted(cohort_size)": Row(
        lambda k: asked(selection.weighted(6, k)), (2,), (*SIZES, 7)
    ),
    "selection.partition(cohort_size)": Row(
        lambda k: asked(selection.partition(6, k)), (2,), (*SIZES, 4, 7)
    ),
    "selection.batch_partitioning(cohort_size)": Row(
        lambda k: asked(selection.batch_partitioning(6, k, 2)), (4,), (*SIZES, 3, 8)
    ),
    "selection.batch_partitioning(privacy_target)": Row(
        lambda t: asked(selection.batch_partitioning(10, 5, t)), (1, 5), (*SIZES, 3)
    ),
    "selection.bernoulli(probability)": Row(
        lambda p: asked(selection.bernoulli(64, p)), (0.5,), CHANCES
    ),
    "selection.poisson(probability)": Row(
        lambda p: asked(selection.poisson(64, p)), (0.5,), CHANCES
    ),
    "selection.balls_in_bins(num_bins)": Row(
        lambda b: asked(selection.balls_in_bins(64, b)), (1, 2), (*SIZES, 2**16 + 1)
    ),
    "selection.minimum_separation(separation)": Row(
        lambda b: asked(selection.minimum_separation(selection.uniform(6, 2), b)),
        (1, 2),
        SIZES,
    ),
    "selection.power_of_choice(cohort_size)": Row(
        lambda k: asked(selection.power_of_choice(6, k, 4)), (2,), (*SIZES, 5)
    ),
    "selection.power_of_choice(num_candidates)": Row(
        lambda d: asked(selection.power_of_choice(6, 2, d)), (2, 6), (*SIZES, 1, 7)
    ),
    "availability.independent(dropout_rate)": Row(
        lambda rate: online(availability.independent(rate)), (0.1,), CHANCES
    ),
    "availability.markov(dropout_rate)": Row(
        lambda rate: online(availability.markov(rate, 5.0)), (0.1,), (*CHANCES, 0.9)
    ),
    "availability.markov(mean_absence)": Row(
        lambda rounds: online(availability.markov(0.3, rounds)),
        (5.0,),
        (0.5, 0.0, -1.0, INF, NAN),
    ),
    "availability.independent_steps(step_dropout_rate)": Row(left, (0.1,), CHANCES),
    "availability.cyclic(dropout_rates)": Row(
        lambda rate: online(
            availability.cyclic(jnp.stack([jnp.asarray(rate, float)] * 2))
        ),
        (0.1,),
        CHANCES,
    ),
    "availability.cyclic(phase)": Row(
        lambda phase: online(availability.cyclic([0.0, 0.5], phase)),
        (0, 1, -3),
        (0.5, NAN),
    ),
    "availability.diurnal(dropout_rate)": Row(
        lambda rate: online(availability.diurnal(rate, 0.1, 4)),
        (0.3,),
        (*CHANCES, 0.05),
    ),
    "availability.diurnal(amplitude)": Row(
        lambda size: online(availability.diurnal(0.3, size, 4)),
        (0.0, 0.1),
        (-0.1, 0.4, 1e-12, NAN),
    ),
    "availability.diurnal(phase)": Row(
        lambda phase: online(availability.diurnal(0.3, 0.1, 4, phase)), (1,), (1.5,)
    ),
    "graphs.erdos_renyi(connection_probability)": Row(
        lambda p: edges(graphs.erdos_renyi(9, p)), (0.5, 1.0), CHANCES
    ),
    "graphs.harary(degree)": Row(
        lambda k: edges(graphs.harary(8, k)), (2, 3), (-1, 8, 2.5)
    ),
    "quantize.stochastic(num_levels)": Row(
        lambda k: coded(quantize.stochastic(k, 1.0)), (2, 5), (1, 0, 4.5, 2**24)
    ),
    "quantize.stochastic(clip)": Row(
        lambda clip: coded(quantize.stochastic(4, clip)), (1.0,), (0.0, -1.0, INF, NAN)
    ),
    "quantize.stochastic(value_range)": Row(
        lambda low: coded(quantize.stochastic(4, value_range=(low, 1.0))),
        (-1.0,),
        (1.0, 2.0, -INF, NAN),
    ),
    "federated.local_sgd(learning_rate)": Row(
        lambda rate: trained(learning_rate=rate), (0.1,), (0.0, -0.1, INF)
    ),
    "federated.local_sgd(momentum)": Row(
        lambda kept: trained(momentum=kept), (0.5,), (-0.1, 1.0, 1.5)
    ),
    "federated.local_sgd(weight_decay)": Row(
        lambda decay: trained(weight_decay=decay), (0.5, 1.5), (-0.1, INF)
    ),
    "federated.local_sgd(proximal)": Row(
        lambda pull: trained(proximal=pull), (0.5, 1.5), (-0.1, INF)
    ),
    "federated.local_sgd(clip_norm)": Row(
        lambda bound: trained(clip_norm=bound), (0.5,), (0.0, -1.0, INF)
    ),
    "federated.scaffold(learning_rate)": Row(corrected, (0.1,), (0.0, -0.1, INF)),
}
# what a transformation knows of these is an array, whose shape and type are checked
ARRAYS = {"availability.replay(trace)"}
# annotated as arrays, and refused where they are traced
KNOWN = {
    "selection.power_of_choice(initial_loss)",
    "selection.power_of_choice(final_loss)",
}
# what tests check of types, the package's rules would refuse after them
REFUSED = (mj.ConfigurationError, jaxtyping.TypeCheckError)


def is_nothing(found: Any) -> bool:
    """Return whether figures are NaN, or whether nobody was asked and nothing holds."""
    values = np.asarray(found)
    return bool(
        np.isnan(values).all() if values.dtype.kind == "f" else not values.any()
    )


@pytest.mark.long(
    "federated.local_sgd(clip_norm)",
    "federated.local_sgd(learning_rate)",
    "federated.local_sgd(momentum)",
    "federated.local_sgd(proximal)",
    "federated.local_sgd(weight_decay)",
    "hetero.decode(counts)",
    "privacy.hidden_among(memory)",
    "selection.batch_partitioning(cohort_size)",
    "selection.batch_partitioning(privacy_target)",
    "selection.minimum_separation(separation)",
    "selection.partition(cohort_size)",
    "selection.power_of_choice(cohort_size)",
    "selection.power_of_choice(num_candidates)",
    "selection.uniform(cohort_size)",
    "selection.weighted(cohort_size)",
)
@pytest.mark.parametrize("name", ROWS)
def test_what_is_out_of_range_gives_no_plausible_value(name: str) -> None:
    row = ROWS[name]
    program = jax.jit(row.call)
    for value in row.inside:
        assert not is_nothing(program(value)), value
        np.testing.assert_allclose(
            np.asarray(program(value)), np.asarray(row.call(value)), rtol=2e-5
        )
    for value in row.outside:
        assert is_nothing(program(value)), value
        with pytest.raises(REFUSED):
            row.call(value)


@pytest.mark.long
def test_a_batch_has_figures_where_its_numbers_make_sense() -> None:
    rhos = jnp.asarray([0.5, -0.5, 0.9, 2.0])
    found = np.asarray(jax.vmap(lambda rho: privacy.hidden_among(P, memory=rho))(rhos))
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False, True]
    shares = jnp.asarray([0.5, 2.0])
    both = jax.vmap(lambda share: privacy.hidden_among(P, memory=0.5, share=share))(
        shares
    )
    assert np.isnan(np.asarray(both)).all(axis=1).tolist() == [False, True]
    sizes = jnp.asarray([1, 0, 2])
    counts = jax.vmap(lambda b: asked(selection.balls_in_bins(64, b)))(sizes)
    assert (np.asarray(counts).sum(axis=1) > 0).tolist() == [True, False, True]


def test_what_is_known_beside_a_traced_number_is_checked() -> None:
    rho = jnp.float32(0.5)
    with pytest.raises(
        mj.ConfigurationError, match="`share` must be a number from 0 to 1"
    ):
        jax.jit(lambda rho: privacy.hidden_among(P, memory=rho, share=2.0))(rho)
    with pytest.raises(mj.ConfigurationError, match="`memory` must be 1, or lie in"):
        jax.jit(lambda share: privacy.hidden_among(P, memory=-0.5, share=share))(rho)
    with pytest.raises(
        mj.ConfigurationError, match="`noise` must hold no negative variance"
    ):
        jax.jit(lambda rho: privacy.information(P, rho, noise=-1.0))(rho)
    with pytest.raises(
        mj.ConfigurationError, match="`spread` must be positive and finite"
    ):
        jax.jit(lambda rho: privacy.information(P, rho, -1.0, 1.0))(rho)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_what_must_be_known_is_refused_where_it_is_traced(name: str) -> None:
    argument = name.partition("(")[2][:-1]
    with pytest.raises(
        mj.ConfigurationError, match=f"`{argument}` must be known, not traced"
    ):
        jax.jit(lambda value: selection.power_of_choice(6, 2, 4, **{argument: value}))(
            0.5
        )


@pytest.mark.long
def test_integers_of_64_bits_are_not_cut_to_32() -> None:
    with jax.enable_x64(True):
        wide = np.int64(2**32 + 2)
        for call in (
            lambda k: asked(selection.uniform(6, k)),
            lambda b: asked(selection.balls_in_bins(6, b)),
            lambda b: asked(selection.minimum_separation(selection.uniform(6, 2), b)),
            lambda k: coded(quantize.stochastic(k, 1.0)),
            lambda k: edges(graphs.harary(6, k)),
            lambda t: secagg.is_reliable(GRAPH, SURVIVORS, t),
        ):
            assert is_nothing(jax.jit(call)(wide))
            assert not is_nothing(jax.jit(call)(np.int64(2)))


def test_traced_seeds_outside_their_range_draw_what_no_seed_draws() -> None:
    def words(seed: Any) -> list[int]:
        return jax.random.key_data(jax.jit(as_key)(seed)).tolist()

    with jax.enable_x64(True):
        for seed in (0, 1, 2**32 - 1):
            assert (
                words(np.int64(seed))
                == jax.random.key_data(as_key(seed)).tolist()
                == [0, seed]
            )
        for seed in (2**32, 2**33 + 1, -1, -(2**33) + 1):
            assert words(np.int64(seed))[0] != 0
            with pytest.raises(mj.ConfigurationError, match="`seed` must lie in"):
                as_key(seed)
    assert words(np.int32(7)) == [0, 7]
    assert words(np.uint32(2**32 - 1)) == [0, 2**32 - 1]
    assert words(np.int32(-1))[0] != 0
    online = availability.independent(0.0)

    def history(seed: Any) -> Any:
        return selection.rollout(seed, selection.bernoulli(64, 0.5), online, 4)

    with jax.enable_x64(True):
        both = jax.vmap(history)(jnp.asarray([1, 2**33 + 1], jnp.int64))
    assert (both[0] == history(1)).all()
    assert (both[0] != both[1]).any()


def test_every_factory_of_traced_numbers_is_in_the_table() -> None:
    takes = set()
    for family in FAMILIES:
        module = importlib.import_module(f"mrsa_jax.{family}")
        for name in module.__all__:
            one = getattr(module, name)
            if getattr(one, "takes_traced", False):
                takes.add(f"{family}.{name}")
                # numbers are annotated so; sizes of arrays, modes and schemes are not
                numbers = {
                    argument
                    for argument, about in inspect.signature(one).parameters.items()
                    if "Array" in str(ALIASES.get(about.annotation, about.annotation))
                    or argument == "dropout_rate"
                }
                listed = {
                    row
                    for row in (*ROWS, *ARRAYS, *KNOWN)
                    if row.startswith(f"{family}.{name}(")
                }
                assert listed == {
                    f"{family}.{name}({argument})" for argument in numbers
                }
    assert len(takes) >= 17


def test_noise_is_measured_in_spreads_that_floats_hold() -> None:
    for call in (
        functools.partial(privacy.hidden_among, P, noise=1.0),
        functools.partial(privacy.hidden_among, P, noise=1.0, memory=0.5),
        functools.partial(privacy.hidden_among, P, noise=np.eye(3) + 0.5, memory=0.5),
        functools.partial(privacy.hidden_among, P, noise=np.eye(3) + 0.5),
        functools.partial(privacy.hidden_among_trajectory, P, noise=1.0),
        functools.partial(privacy.information, P, noise=1.0),
        functools.partial(privacy.information, P, 0.5, noise=1.0),
        functools.partial(privacy.distinguishability, P, noise=1.0),
    ):
        for spread in (1e-200, 1e-160):
            with pytest.raises(
                mj.ConfigurationError, match="`noise` must have a standard deviation"
            ):
                call(spread=spread)
        call(spread=1e-30)
    # client 3 is in one sum: 1 / h = 1 + noise / spread^2 and the others'
    assert privacy.hidden_among(P, noise=1.0, spread=1e-150)[3] == pytest.approx(1e300)
    assert privacy.hidden_among(P, noise=1e300)[3] == pytest.approx(1e300)


def test_helpers_by_hand() -> None:
    whole = jax.jit(lambda value: is_whole(value, -300, 300))
    assert [
        bool(whole(value)) for value in (np.int8(-5), np.uint8(255), 300.0, 300.5, NAN)
    ] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert np.isnan(jax.jit(lambda value: nan_unless(value > 0, value))(np.int32(-1)))
