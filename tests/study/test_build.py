"""The registry: what a configuration's names and numbers become."""

from __future__ import annotations

import dataclasses
import pathlib
import typing

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax._core.round_rules import SplitPolicy
from mrsa_jax.dp._laws import Kind
from mrsa_jax.study import (
    AggregationConfig,
    DataConfig,
    PopulationConfig,
    ProtocolConfig,
    ResourceConfig,
    TrainingConfig,
    parse_scheme,
)
from mrsa_jax.study.runs._build import (
    PARTITIONS,
    _new_online,
    build_clients,
    build_mesh,
    build_online,
    build_rate_schedule,
    build_rates,
    build_rule,
    build_selector,
    build_server,
    build_trainer,
    guaranteed_privacy,
)
from mrsa_jax.study.runs._servers import SERVERS
from mrsa_jax.study.settings._tables import graph_of, least_safe_threshold

HINTS = typing.get_type_hints(DataConfig) | typing.get_type_hints(TrainingConfig)

NAMES = {field: typing.get_args(hint) for field, hint in HINTS.items()}
DIGITS = DataConfig(dataset="digits", partition="shards")


@pytest.mark.smoke
def test_literals_equal_the_registry() -> None:
    assert NAMES["partition"] == tuple(PARTITIONS)
    assert NAMES["server"] == tuple(SERVERS)


def test_more_devices_than_there_are_is_misuse() -> None:
    there = len(jax.local_devices())
    with pytest.raises(
        ConfigurationError, match=f"`devices` must be no more .* got {there + 1}"
    ):
        build_mesh(ResourceConfig(devices=there + 1))


def test_clients_share_all_devices_unless_fewer_or_bounded_memory_is_asked_for() -> (
    None
):
    for asked in (
        ResourceConfig(),
        ResourceConfig(devices=2),
        ResourceConfig(1.0, devices=2),
    ):
        mesh = build_mesh(asked)
        assert mesh is not None
        assert (mesh.axis_names, mesh.size) == (("clients",), 2)
    assert build_mesh(ResourceConfig(devices=1)) is None
    assert build_mesh(ResourceConfig(memory_gib=1.0)) is None
    assert build_mesh(ResourceConfig(), work=2.0**23) is not None
    assert build_mesh(ResourceConfig(), work=2.0**23 - 1) is None
    assert build_mesh(ResourceConfig(devices=2), work=1.0) is not None


def test_rates_by_label_need_the_clients() -> None:
    population = PopulationConfig(num_clients=20, cohort_size=4, assignment="by_label")
    with pytest.raises(
        ConfigurationError, match="`clients` must be given for rates by label"
    ):
        build_rates(0, population)
    _, clients = build_clients(0, DIGITS, 20)
    rates = build_rates(0, population, clients)
    label = mj.data.class_counts(clients).argmax(axis=1)  # shards of one label each
    np.testing.assert_allclose(rates, 0.1 + 0.4 * label / 9, rtol=1e-6)


@pytest.mark.parametrize("partition", ["shards_with_shared", "dirichlet_by_client"])
def test_splits_have_the_numbers_of_the_configuration(partition: str) -> None:
    config = DataConfig(
        "digits", partition=partition, shared_size=50, concentration=0.01
    )
    dataset, clients = build_clients(0, config, 20)
    held = np.asarray(clients.indices)
    if partition == "shards_with_shared":
        common = set(held[0, : clients.sizes[0]].tolist())
        for row, size in zip(held, np.asarray(clients.sizes), strict=True):
            common &= set(row[:size].tolist())
        assert len(common) == 50
        # 50 of 10 classes, as many of each as of any other
        labels = np.asarray(clients.labels)[sorted(common)]
        assert np.bincount(labels).tolist() == [5] * 10
    else:  # so small a concentration leaves nearly one class a client, whatever its size
        counts = mj.data.class_counts(clients)
        assert np.median(counts.max(axis=1) / counts.sum(axis=1)) > 0.9
    assert dataset.name == "digits"


def test_normalised_images_have_mean_0_and_deviation_1() -> None:
    dataset, _ = build_clients(0, DataConfig("digits", normalise=True), 10)
    assert abs(float(dataset.train_inputs.mean())) < 1e-4
    assert abs(float(dataset.train_inputs.std()) - 1) < 1e-4
    assert dataset.train_inputs.dtype == np.float32


def test_the_learning_rate_falls_after_the_rounds_given() -> None:
    assert build_rate_schedule(TrainingConfig()) is None
    schedule = build_rate_schedule(
        TrainingConfig(decay_rounds=(4, 8), decay_factor=0.4)
    )
    factors = [float(schedule(index)) for index in (0, 3, 4, 7, 8, 100)]
    np.testing.assert_allclose(factors, [1, 1, 0.4, 0.4, 0.16, 0.16], rtol=1e-6)


def test_the_trainer_has_every_option_and_costs_nothing_for_those_left_out() -> None:
    model = mj.federated.logistic(10)
    plain = build_trainer(TrainingConfig(), model)
    assert plain.momentum is None
    assert plain.weight_decay is None
    assert plain.proximal is None
    assert plain.compute_dtype is None
    config = TrainingConfig(
        learning_rate=0.2,
        momentum=0.5,
        weight_decay=1e-3,
        proximal=0.1,
        precision="bfloat16",
    )
    full = build_trainer(config, model)
    own = [full.learning_rate, full.momentum, full.weight_decay, full.proximal]
    np.testing.assert_allclose(
        [float(number) for number in own], [0.2, 0.5, 1e-3, 0.1], rtol=1e-6
    )
    assert full.compute_dtype in NAMES["precision"]


def test_servers_step_along_the_mean_update() -> None:
    """Two rounds by hand, of the mean update (1, -2) each time."""
    update = np.array([1.0, -2.0], np.float32)

    def after_two(config: TrainingConfig) -> np.ndarray:
        server = build_server(config)
        assert server is not None
        weights = np.zeros_like(update)
        state, step = jax.jit(server.init)(weights), jax.jit(server.update)
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam mixes its own
            for _ in range(2):
                change, state = step(-update, state, weights)
                weights = weights + np.asarray(change)
        return weights

    assert build_server(TrainingConfig()) is None  # plain averaging
    assert build_server(TrainingConfig(server_learning_rate=1.0)) is None
    half = after_two(TrainingConfig(server_learning_rate=0.5))
    np.testing.assert_allclose(half, [1.0, -2.0])
    # u, then 0.9 u + u
    momentum = after_two(TrainingConfig(server="momentum"))
    np.testing.assert_allclose(momentum, [2.9, -5.8], rtol=1e-6)
    # of a constant gradient Adam's step is rate * g / (|g| + 0.001)
    adam = after_two(TrainingConfig(server="adam"))
    np.testing.assert_allclose(adam, [0.02 / 1.001, -0.04 / 2.001], rtol=1e-4)


def test_servers_of_all_rates_share_their_update() -> None:
    """The update is what is compiled.

    The rate is data, to the bit what optax does with it.
    """
    gradient = jnp.array([0.3, -1.7], jnp.float32)
    for name, make in (
        ("average", lambda rate: optax.sgd(rate)),
        ("momentum", lambda rate: optax.sgd(rate, momentum=0.9)),
        ("adam", lambda rate: optax.adam(rate, b1=0.9, b2=0.99, eps=1e-3)),
    ):
        servers = [
            build_server(TrainingConfig(server=name, server_learning_rate=rate))
            for rate in (0.5, 0.07)
        ]
        assert servers[0].update is servers[1].update
        theirs, ours = make(0.07), servers[1]
        with jax.numpy_dtype_promotion("standard"):
            states = theirs.init(gradient), ours.init(gradient)
            for _ in range(3):
                expected, first = theirs.update(gradient, states[0])
                step, second = ours.update(gradient, states[1])
                np.testing.assert_array_equal(step, expected)
                states = first, second


def test_names_are_those_of_the_registry() -> None:
    hints = typing.get_type_hints(ProtocolConfig) | typing.get_type_hints(
        AggregationConfig
    )
    names = {field: typing.get_args(hint) for field, hint in hints.items()}
    assert names["noise"] == typing.get_args(Kind)
    assert names["split_policy"] == typing.get_args(SplitPolicy)


def test_a_graph_over_blocks_keeps_what_the_scheme_does() -> None:
    """Mates of a round share a neighbourhood, so that the clients of a round keep their blocks."""
    config = ProtocolConfig("over_blocks:2:2", split_policy="drop_block")
    selector = parse_scheme("batch_partitioning:2").build(24, 12)
    rule = build_rule(config, selector)
    assert rule is not None
    adjacency = np.asarray(rule.graph.sample(jax.random.key(0))) | np.eye(
        12, dtype=bool
    )
    # two mates, and two blocks of two
    assert adjacency.sum(axis=1).tolist() == [6] * 12
    assert (adjacency[::2] == adjacency[1::2]).all()
    # of a neighbourhood of six
    assert least_safe_threshold(graph_of(config, 12), 12) == 4
    assert guaranteed_privacy(selector, config) == 2
    # pairs of blocks, and no more
    apart = dataclasses.replace(config, graph="over_blocks:2:1")
    lossy = dataclasses.replace(config, step_dropout_rate=0.1)
    assert [guaranteed_privacy(selector, one) for one in (apart, lossy)] == [1, 1]
    enforced = dataclasses.replace(lossy, whole_blocks=True)
    assert guaranteed_privacy(selector, enforced) == 2
    assert [rule.keeps_blocks, build_rule(enforced, selector).keeps_blocks] == [
        False,
        True,
    ]


def test_rules_have_the_configured_thresholds_and_blocks() -> None:
    assert build_rule(ProtocolConfig(), parse_scheme("uniform").build(24, 12)) is None
    config = ProtocolConfig("erdos_renyi", connection_probability=0.8)
    rule = build_rule(config, parse_scheme("batch_partitioning:4").build(24, 12))
    assert rule is not None
    assert int(rule.threshold) == mj.secagg.share_threshold(12, 0.8)
    assert rule.labels.tolist() == [i // 4 for i in range(24)]
    config = ProtocolConfig("harary", degree=4, split_policy="abort")
    rule = build_rule(config, parse_scheme("partition").build(24, 12))
    assert rule is not None
    assert (rule.threshold, rule.policy) == (None, "abort")
    assert rule.labels.tolist() == [i // 12 for i in range(24)]


def test_what_settings_decide_is_built_once_and_what_files_decide_is_read_again(
    tmp_path: pathlib.Path,
) -> None:
    population = PopulationConfig(num_clients=4, cohort_size=2, dropout_rates=(0.25,))
    scheme = parse_scheme("batch_partitioning:2")
    assert build_selector(scheme, population) is build_selector(scheme, population)
    assert build_online(3, population)[0] is build_online(3, population)[0]
    with jax.default_prng_impl("rbg"):  # other words deal the rates out
        inside = build_online(3, population)[0]
    assert build_online(3, population)[0] is not inside
    file = tmp_path / "trace.npy"
    replayed = dataclasses.replace(population, availability=f"replay:{file}")
    for share in (True, False):
        np.save(file, np.full((2, 4), share))
        _, rates = build_online(3, replayed)
        np.testing.assert_array_equal(rates, np.full(4, 1.0 - share))


@pytest.mark.parametrize(
    "model", ["independent", "markov:3", "cyclic", "diurnal:0.1:4"]
)
def test_a_kept_model_is_that_of_its_seed(model: str) -> None:
    """Where all clients are alike, all seeds share one; else each has its own."""
    one = PopulationConfig(num_clients=12, dropout_rates=(0.3,), availability=model)
    several = dataclasses.replace(one, dropout_rates=(0.1, 0.3))
    for population in (one, several) if model != "diurnal:0.1:4" else (one,):
        for seed in (1, 2):
            kept = build_online(seed, population)
            own = _new_online(seed, population, None)
            for x, y in zip(jax.tree.leaves(kept), jax.tree.leaves(own), strict=True):
                np.testing.assert_array_equal(x, y)
