"""Configurations: misuse first, then files, flags and hashes."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any

import jax
import pytest

from mrsa_jax import ConfigurationError, selection
from mrsa_jax.selection.registry import ROWS
from mrsa_jax.study import (
    AggregationConfig,
    DataConfig,
    DemoConfig,
    PopulationConfig,
    ResourceConfig,
    SegmentConfig,
    SimulateConfig,
    TrainConfig,
    TrainingConfig,
    config_hash,
    load_config,
    parse_scheme,
    to_dict,
    to_toml,
    validate,
)
from mrsa_jax.study.attacks_on_sums import CanariesConfig
from mrsa_jax.study.settings._config import (
    Scheme,
    different_settings,
    secret_seed,
    without_wishes,
)
from mrsa_jax.study.sweeps import parse_sweep

POPULATION = PopulationConfig(num_clients=12, cohort_size=4)
NOISY = {"noise_multiplier": 1.0, "clip_norm": 1.0}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DemoConfig(rounds=0), "`rounds` must be at least 1; got 0"),
        (DemoConfig(seed=-1), "`seed` must lie in"),
        (DemoConfig(schemes=()), "`schemes` must name at least one"),
        (
            DemoConfig(schemes=("uniform", "uniform")),
            "`schemes` must not contain duplicates",
        ),
        (DemoConfig(schemes=("unifrom",)), "did you mean 'uniform'"),
        (
            DemoConfig(schemes=("batch_partitioning",)),
            "`schemes` must give a privacy target",
        ),
        (
            DemoConfig(schemes=("batch_partitioning:x",)),
            "`schemes` must give a privacy target",
        ),
        (DemoConfig(schemes=("batch_partitioning:4:greddy",)), "did you mean 'greedy'"),
        (DemoConfig(schemes=("bernoulli:1.5",)), "`schemes` must give a probability"),
        (DemoConfig(schemes=("bernoulli:nan",)), "`schemes` must give a probability"),
        (DemoConfig(schemes=("uniform:3",)), "it has no parameter"),
        (DemoConfig(schemes=("poisson",)), "`schemes` must give probabilities"),
        (DemoConfig(schemes=("poisson:0.1:2",)), "`schemes` must give probabilities"),
        (
            DemoConfig(schemes=("power_of_choice:x",)),
            "`schemes` must give a number of candidates",
        ),
        (
            DemoConfig(schemes=("power_of_choice:11",)),
            "candidates; got 'power_of_choice:11' and '12 to 120'",
        ),
        (
            DemoConfig(schemes=("balls_in_bins:0",)),
            "`schemes` must give a number of bins",
        ),
        (
            DemoConfig(schemes=("power_of_choice:²",)),
            "`schemes` must give a number of candidates",
        ),
        (
            DemoConfig(schemes=("minimum_separation:3",)),
            "`schemes` must give rounds and a scheme",
        ),
        (
            DemoConfig(schemes=("minimum_separation:0:uniform",)),
            "must give rounds and a scheme",
        ),
        (
            DemoConfig(schemes=("minimum_separation:2:unifrom",)),
            "did you mean 'uniform'",
        ),
        (DemoConfig(schemes=("crossing_partitions",)), "as in 'crossing_partitions:4'"),
        (
            DemoConfig(schemes=("crossing_partitions:12",)),
            "`num_clients` must be at least the privacy target of `schemes` squared; "
            "got 120 and 12",
        ),
        (
            DemoConfig(schemes=("minimum_separation:2:batch_partitioning:5",)),
            "`cohort_size` must be a multiple of the privacy target of `schemes`; got 12",
        ),
        (
            SimulateConfig(schemes=("batch_partitioning:5",)),
            "`cohort_size` must be a multiple of the privacy target of `schemes`; got 12",
        ),
        (
            SimulateConfig(population=PopulationConfig(13, 12), schemes=("partition",)),
            "`num_clients` must be a multiple of `cohort_size`; got 13 and 12, which "
            "the scheme "
            "'partition' asks for",
        ),
        (DemoConfig(schemes=("Random",)), "got 'Random'; did you mean 'uniform'?"),
        (DemoConfig(schemes=("weighted-random",)), "did you mean 'weighted'?"),
        (DemoConfig(schemes=("User partition",)), "did you mean 'partition'?"),
        (
            DemoConfig(schemes=("Multi-RoundSecAgg (T=4)",)),
            "did you mean 'batch_partitioning'?",
        ),
        (
            DemoConfig(schemes=("uniform, partition",)),
            "separate several with spaces: uniform partition",
        ),
        (
            SimulateConfig(population=PopulationConfig(4, 5)),
            r"`cohort_size` must lie in \[2, num_clients\]; got 5 and 4",
        ),
        (
            SimulateConfig(
                population=PopulationConfig(dropout_rates=(0.1, float("nan")))
            ),
            r"`dropout_rates` must lie in \[0, 1\]; got nan",
        ),
        (
            SimulateConfig(population=PopulationConfig(dropout_rates=(1.2,))),
            r"`dropout_rates` must lie in \[0, 1\]; got 1.2",
        ),
        (SimulateConfig(trials=0), "`trials` must be at least 1"),
        (
            TrainConfig(training=TrainingConfig(learning_rate=0.0)),
            "`learning_rate` must be positive",
        ),
        (TrainConfig(training=TrainingConfig(momentum=1.0)), "`momentum` must lie in"),
        (
            TrainConfig(training=TrainingConfig(batch_size=0)),
            "`batch_size` must be at least 1",
        ),
        (
            TrainConfig(data=DataConfig(concentration=float("inf"))),
            "`concentration` must be",
        ),
        (
            TrainConfig(data=DataConfig(shared_size=0)),
            "`shared_size` must be at least 1; got 0",
        ),
        (
            TrainConfig(training=TrainingConfig(weight_decay=-1.0)),
            "`weight_decay` must be 0 or positive; got -1.0",
        ),
        (
            TrainConfig(training=TrainingConfig(proximal=float("nan"))),
            "`proximal` must be 0 or positive; got nan",
        ),
        (
            TrainConfig(training=TrainingConfig(decay_rounds=(400, 400))),
            r"`decay_rounds` must ascend; got \(400, 400\)",
        ),
        (
            TrainConfig(training=TrainingConfig(local_steps=3, num_epochs=2)),
            "`num_epochs` must not be set with local_steps; got 2",
        ),
        (
            TrainConfig(training=TrainingConfig(decay_rounds=(0, 400))),
            "`decay_rounds` must be at least 1",
        ),
        (
            TrainConfig(training=TrainingConfig(decay_factor=0.0)),
            r"`decay_factor` must lie in \(0, 1\]; got 0.0",
        ),
        (
            TrainConfig(training=TrainingConfig(server_learning_rate=0.0)),
            "`server_learning_rate` must be positive; got 0.0",
        ),
        (
            TrainConfig(resources=ResourceConfig(memory_gib=0.0)),
            "`memory_gib` must be positive; got 0.0",
        ),
        (
            TrainConfig(resources=ResourceConfig(devices=0)),
            "`devices` must be at least 1; got 0",
        ),
        (
            TrainConfig(checkpoint_every=0),
            "`checkpoint_every` must be at least 1; got 0",
        ),
        (
            TrainConfig(resume=True, overwrite=True),
            "`resume` must not be set with `overwrite`",
        ),
        (
            SimulateConfig(population=PopulationConfig(assignment="by_label")),
            "`assignment` must be another: a simulation without data knows no labels",
        ),
        (
            TrainConfig(aggregation=AggregationConfig(clip=-1.0)),
            "`clip` must be positive",
        ),
        *(
            (dataclasses.replace(base, aggregation=AggregationConfig(**own)), message)
            for base, own, message in (
                (
                    TrainConfig(),
                    {"noise_multiplier": -1.0},
                    "`noise_multiplier` must be 0 or pos",
                ),
                (
                    TrainConfig(),
                    {"noise_multiplier": float("inf")},
                    "`noise_multiplier` must be 0",
                ),
                (
                    TrainConfig(),
                    {"noise_multiplier": float("nan")},
                    "`noise_multiplier` .* nan",
                ),
                (
                    TrainConfig(),
                    {"noise_multiplier": 1.0},
                    "`clip_norm` must be given .* None and",
                ),
                (
                    TrainConfig(),
                    {"clip_norm": 0.0},
                    "`clip_norm` must be positive .*; got 0.0",
                ),
                (
                    TrainConfig(),
                    {"clip_norm": float("inf")},
                    "`clip_norm` must be positive and f",
                ),
                (
                    TrainConfig(),
                    {"target_delta": 0.0},
                    r"`target_delta` must lie in \(0, 1\)",
                ),
                (
                    TrainConfig(),
                    {"target_delta": 1.0},
                    r"`target_delta` must lie in .*; got 1.0",
                ),
                *(
                    (
                        TrainConfig(),
                        NOISY | {name: value},
                        f"`{name}` must not be set with `clip",
                    )
                    for name, value in (
                        ("num_levels", 2**12),
                        ("clip", 1.0),
                        ("clip_rule", "last_max"),
                        ("weighted", True),
                    )
                ),
                (
                    TrainConfig(scheme="bernoulli:0.1"),
                    NOISY,
                    "`clip_norm` .* cohorts differ in s",
                ),
                (
                    DemoConfig(schemes=("uniform", "poisson:0.1")),
                    NOISY,
                    "`clip_norm` .* cohorts",
                ),
                (
                    TrainConfig(hetero=SegmentConfig("sc", (2, 4))),
                    NOISY | {"num_levels": 2**12},
                    "`num_levels` must not be set with `clip_norm`",
                ),
                (
                    TrainConfig(
                        hetero=SegmentConfig(
                            "sc", (2, 4), attack="gaussian", num_byzantine=1
                        )
                    ),
                    NOISY,
                    "`attack` must be none with noise.*; got 'gaussian'",
                ),
            )
        ),
        (
            TrainConfig(
                aggregation=AggregationConfig(num_levels=2**20, modulus_bits=20)
            ),
            "`modulus_bits` must leave room for the largest sum",
        ),
    ],
)
def test_misuse_names_argument_rule_and_value(config: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        validate(config)  # type: ignore[arg-type]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Silent:
    """A user's own, which does not say whether it looks at data."""

    cohort_size: int
    num_clients: int = dataclasses.field(metadata={"static": True})

    def init(self) -> Any:
        return ()

    def select(self, key: Any, state: Any, available: Any) -> Any:
        return available, state


_LOOKS = ("power_of_choice:12", "minimum_separation:2:power_of_choice:12")


@pytest.mark.parametrize("text", [*_LOOKS, "silent", "minimum_separation:3:silent"])
def test_what_may_look_at_data_gets_no_epsilon(text: str) -> None:
    """In every command that tells one.

    Without noise there is none, and all are studied.
    """

    selection.register("silent", lambda n, k: Silent(k, n))
    noise = AggregationConfig(noise_multiplier=2.0, clip_norm=1.0)
    rule = "must not look at what" if text in _LOOKS else "must say whether it looks at"
    message = f"`schemes?` {rule} .*; got '{text}'"
    asked = (
        TrainConfig(scheme=text, aggregation=noise),
        DemoConfig(schemes=("uniform", text), aggregation=noise),
        CanariesConfig(schemes=(text,)),
    )
    for config in asked:
        with pytest.raises(ConfigurationError, match=message):
            validate(config)
    swept = f"command = 'train'\n[aggregation]\nclip_norm = 1.0\n[grid]\nscheme = ['{text}']\n"
    points = parse_sweep(swept + "aggregation.noise_multiplier = [0.0, 2.0]").points()
    quiet, noisy = (point.problem for point in points)
    assert not quiet
    assert re.search(message, noisy)
    validate(SimulateConfig(schemes=(text,)))
    labels = PopulationConfig(assignment="by_label")
    validate(TrainConfig(population=labels))
    with pytest.raises(
        ConfigurationError, match="`assignment` must be another with noise"
    ):
        validate(TrainConfig(population=labels, aggregation=noise))


@pytest.mark.smoke
def test_schemes_have_the_papers_labels() -> None:
    assert parse_scheme("batch_partitioning:3:greedy") == Scheme(
        "batch_partitioning", (3, "greedy")
    )
    labels = [parse_scheme(text).label for text in DemoConfig().schemes]
    assert labels == [
        "Random",
        "Weighted random",
        "User partition",
        "Multi-RoundSecAgg (T=6)",
        "Multi-RoundSecAgg (T=4)",
        "Multi-RoundSecAgg (T=3)",
    ]


def test_a_file_sets_what_it_names_and_keeps_the_rest(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        'rounds = 7\nschemes = ["uniform"]\n[population]\nnum_clients = 24\n'
        "dropout_rates = [0, 0.25]\n[data]\ndirectory = "
        '"somewhere"\n[training]\nmomentum = 0.5\n'
    )
    config = load_config(DemoConfig, path)
    assert config == dataclasses.replace(
        DemoConfig(),
        rounds=7,
        schemes=("uniform",),
        population=PopulationConfig(num_clients=24, dropout_rates=(0.0, 0.25)),
        data=DataConfig(directory=pathlib.Path("somewhere")),
        # a demo's own model
        training=dataclasses.replace(DemoConfig().training, momentum=0.5),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ronds = 3", "`ronds` is not a field; did you mean 'rounds'"),
        (
            "[population]\nnum_client = 3",
            "`population.num_client` is not a field; did you mean",
        ),
        ("rounds = 1.5", "`rounds` must be of type int; got 1.5"),
        ("rounds = true", "`rounds` must be of type int; got True"),
        ("population = 3", "`population` must be a table"),
        ("schemes = 'uniform'", "`schemes` must be a list"),
        ("[aggregation]\nfidelity = 'arrays'", "did you mean 'array'"),
        ("rounds = ", "`config` must be valid TOML"),
    ],
)
def test_a_bad_file_is_named_by_its_field(
    tmp_path: pathlib.Path, text: str, message: str
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_config(DemoConfig, path)


def test_a_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ConfigurationError, match="`config` must be an existing TOML file"
    ):
        load_config(DemoConfig, tmp_path / "none.toml")


def test_every_setting_but_presentation_changes_the_hash() -> None:
    base = TrainConfig(population=POPULATION)
    same = dataclasses.replace(
        base, out=pathlib.Path("other"), json=True, overwrite=True
    )
    assert config_hash(base) == config_hash(same)
    # nor how a run is carried out: it may be continued on another machine
    there = dataclasses.replace(
        base, resume=True, checkpoint_every=50, resources=ResourceConfig(4.0, devices=2)
    )
    assert config_hash(base) == config_hash(there)
    variants = [
        dataclasses.replace(base, seed=1),
        dataclasses.replace(base, scheme="uniform"),
        dataclasses.replace(
            base, population=PopulationConfig(num_clients=24, cohort_size=4)
        ),
        dataclasses.replace(base, data=DataConfig(partition="shards")),
        dataclasses.replace(base, training=TrainingConfig(learning_rate=0.2)),
        dataclasses.replace(base, training=TrainingConfig(decay_rounds=(3,))),
        dataclasses.replace(base, training=TrainingConfig(precision="bfloat16")),
        dataclasses.replace(base, training=TrainingConfig(server="adam")),
        dataclasses.replace(base, data=DataConfig(normalise=True)),
        dataclasses.replace(base, aggregation=AggregationConfig(fidelity="sets")),
        dataclasses.replace(base, aggregation=AggregationConfig(clip_norm=1.0)),
        dataclasses.replace(base, aggregation=AggregationConfig(**NOISY)),
        dataclasses.replace(base, aggregation=AggregationConfig(target_delta=1e-6)),
    ]
    hashes = {config_hash(base), *map(config_hash, variants)}
    assert len(hashes) == len(variants) + 1
    assert config_hash(DemoConfig()) != config_hash(SimulateConfig())


def test_a_configuration_survives_the_round_trip_through_plain_values() -> None:
    config = DemoConfig(data=DataConfig(directory=pathlib.Path("a")))
    content = to_dict(config)
    assert content["data"]["directory"] == "a"
    assert "directory" not in to_dict(DemoConfig())["data"]


@pytest.mark.parametrize(
    "config",
    [
        DemoConfig(),
        SimulateConfig(schemes=("uniform", "bernoulli:0.1"), trials=3),
        TrainConfig(
            out=pathlib.Path('a "quoted"\\ \t name\x7f é'),
            population=PopulationConfig(dropout_rates=(1e-7, 0.5)),
            data=DataConfig(directory=pathlib.Path("d"), balanced=False),
            training=TrainingConfig(decay_rounds=(400, 800), server_learning_rate=1e16),
            resources=ResourceConfig(memory_gib=2.5),
        ),
    ],
)
def test_a_configuration_survives_the_round_trip_through_a_file(
    tmp_path: pathlib.Path, config: DemoConfig | SimulateConfig | TrainConfig
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(type(config), path) == config


def test_what_differs_is_named_by_its_path() -> None:
    first, second = to_dict(TrainConfig()), to_dict(TrainConfig(resume=True, rounds=3))
    assert different_settings(first, second) == [("rounds", "150", "3")]
    folder = to_dict(TrainConfig(data=DataConfig(directory=pathlib.Path("x"))))
    assert different_settings(first, folder) == [("data.directory", "None", "x")]


@pytest.mark.long
def test_what_asks_for_a_size_that_nobody_chose_is_named() -> None:
    """Of the default schemes: whichever refuses a size is named as it is written."""
    refused = set()
    for clients in range(12, 145):
        for cohort in (6, 8, 10, 12):
            config = SimulateConfig(population=PopulationConfig(clients, cohort))
            try:
                validate(config)
            except ConfigurationError as error:
                (scheme,) = [
                    s
                    for s in config.schemes
                    if f"the scheme '{s}' asks for" in str(error)
                ]
                refused.add(scheme)
                own = dataclasses.replace(config, schemes=(scheme,))
                with pytest.raises(ConfigurationError, match=scheme):
                    validate(own)
    assert refused == {"partition", "batch_partitioning:6", "batch_partitioning:4"}


@pytest.mark.parametrize(
    "text",
    [
        "uniform",
        "partition",
        "batch_partitioning:4",
        "batch_partitioning:4:greedy",
        "bernoulli:0.1",
        "bernoulli:1",
        "poisson:0.1:0.25",
        "balls_in_bins:5",
        "power_of_choice:24",
        "minimum_separation:3:weighted",
        "minimum_separation:2:batch_partitioning:4:greedy",
        "crossing_partitions:3:uniform",
        "minimum_separation:2:crossing_partitions:2",
    ],
)
def test_a_scheme_is_written_as_it_was_read(text: str) -> None:
    assert parse_scheme(text).written == text


@pytest.mark.parametrize("wish", ["json", "overwrite", "resume"])
def test_what_is_kept_of_settings_repeats_no_wish(wish: str) -> None:
    """A file of settings that is used again replaces nothing, as its own run was allowed to."""
    config = TrainConfig(scheme="uniform", population=POPULATION)
    asked = dataclasses.replace(config, **{wish: True})
    assert without_wishes(asked) == config
    assert without_wishes(SimulateConfig(overwrite=True)) == SimulateConfig()


def test_schemes_of_one_study_have_seeds_of_their_own() -> None:
    config = TrainConfig(scheme="uniform", seed=5, population=POPULATION)
    seeds = {
        secret_seed(config, *parts)
        for parts in (
            (),
            ("Random",),
            ("Uniform",),
            ("Random", "attack"),
            ("Random, attack",),
        )
    }
    assert len(seeds) == 5
    shown = dataclasses.replace(config, json=True, overwrite=True)
    assert secret_seed(config) == secret_seed(shown)


def test_an_error_in_a_users_scheme_is_told_of_that_scheme() -> None:
    """It called `batch_partitioning`, whose T is no setting of the study."""
    selection.register(
        "blocks_of_five", lambda n, k: selection.batch_partitioning(n, k, 5)
    )
    try:
        config = SimulateConfig(schemes=("blocks_of_five",))
        with pytest.raises(ConfigurationError) as caught:
            validate(config)
    finally:
        del ROWS["blocks_of_five"]
    rule = "`schemes` must be possible: the factory of blocks_of_five raised: 'cohort_"
    assert rule in str(caught.value)
    assert "the privacy target of" not in str(caught.value)
