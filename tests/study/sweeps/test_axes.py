"""Sweeps as they are read: every mistake by its path, every cell as its axes say."""

from typing import Any

import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.study import SimulateConfig, TrainConfig
from mrsa_jax.study.settings._load import each_once
from mrsa_jax.study.sweeps import load_sweep, parse_sweep


def parsed(text):
    return parse_sweep(text)


GRID = "[grid]\nscheme = ['uniform']\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "command = 'simulat'\n" + GRID,
            "`command` must be one that can be swept: did you",
        ),
        ("round = 3\n" + GRID, "`round` is not a field; did you mean 'rounds'?"),
        ("rounds = 'x'\n" + GRID, "`rounds` must be of type int; got 'x'"),
        (
            "[population]\nnum_client = 3\n" + GRID,
            "`population.num_client` is not a field",
        ),
        ("[grid]\nnum_clients = [4]", "did you mean 'population.num_clients'?"),
        (
            "[grid]\npopulation.num_client = [4]",
            "`grid.population.num_client` is not a field",
        ),
        ("[grid]\npopulation = [4]", "`grid.population` must name one of its fields"),
        ("[grid]\nseed = 4", "`grid.seed` must be a list of at least one value"),
        ("[grid]\nseed = []", "`grid.seed` must be a list of at least one value"),
        (
            "[grid]\nseed = [1, 2, 1]",
            "`grid.seed` must not hold a value twice; got [1, 2, 1]",
        ),
        ("[grid]\nseed = [1, true]", "`grid.seed[1]` must be of type int; got True"),
        ("[grid]\nseed = [1, 1.5]", "`grid.seed[1]` must be of type int; got 1.5"),
        ("[grid]\nout = ['a', 'b']", "`grid.out` cannot be an axis"),
        ("[grid]\nseed = {rang = [0, 3]}", "did you mean 'range'?"),
        ("[grid]\nseed = {range = [3]}", "`grid.seed.range` must be [first, end]"),
        ("[grid]\nseed = {range = [0, 3, 0]}", "`grid.seed.range` must be whole"),
        (
            "[grid]\npopulation.dropout_rates = {linspace = [0, 1]}",
            "[first, last, how many]",
        ),
        (
            "[grid]\npopulation.dropout_rates = {geomspace = [0, 1, 3]}",
            "must have positive ends",
        ),
        (
            "[[zip]]\nseed = [1, 2]\nrounds = [3]",
            "`zip[0]` must hold lists of one length",
        ),
        ("[[zip]]\n", "`zip[0]` must name at least one field"),
        ("zip = 3\n" + GRID, "`zip` must be tables of lists"),
        (
            GRID + "[[zip]]\nscheme = ['weighted']",
            "must not change a field on two axes",
        ),
        (
            "[grid]\nseed = [1]\n[[zip]]\nname = 'seed'\nrounds = [2]",
            "`name` must differ",
        ),
        (
            "[grid]\nseed = [1]\n[[zip]]\nname = 'trial'\nrounds = [2]",
            "`name` must be none of",
        ),
        (
            "[[zip]]\nname = '../x'\nrounds = [2]",
            "`name` must begin with a letter or digit",
        ),
        (
            "skip_impossible = 1\n" + GRID,
            "`skip_impossible` must be true or false; got 1",
        ),
        (
            "[grid]\nseed = {range = [0, 2000000]}",
            "`grid.seed` must have at most 1000000 points",
        ),
        (
            "[grid]\nseed = {range = [0, 1001]}\nrounds = {range = [1, 1001]}",
            "`grid` must have at most 1000000 points; got 6006000",
        ),
        (
            "scheme = 'uniform'\nschemes = ['weighted']\n" + GRID,
            "`schemes` must not be set",
        ),
        (
            "schemes = ['weighted']\n[grid]\nscheme = ['uniform', 'partition']",
            "`schemes` must not be set together with `scheme`",
        ),
        (
            "schemes = ['weighted']\n[zip]\nscheme = ['uniform']\nseed = [1]",
            "`schemes` must not be set together with `scheme`",
        ),
        (
            "[grid]\nschemes = [['uniform'], ['batch_partitioning::greedy']]",
            "`schemes` cannot be an axis, as a point has one scheme: set `scheme`",
        ),
        (
            "[zip]\nschemes = ['uniform', 'weighted']\nseed = [1, 2]",
            "`schemes` cannot be an axis",
        ),
        ("command = 'train'\nrounds = 3\n", "`grid` must name at least one field"),
    ],
)
def test_misuse(text, message):
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [None, b"[grid", b"\xff\xfe"])
def test_files_that_are_none(tmp_path, content):
    path = tmp_path / "study.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"`study` must be"):
        load_sweep(path)


def test_cells_are_the_product_of_the_axes_in_the_order_of_the_file():
    sweep = parsed("""
rounds = 7
[population]
num_clients = 12
[grid]
seed = {range = [3, 9, 3]}
"population.dropout_rates" = [0.1, [0.2, 0.4]]
scheme = ["uniform", "partition"]
[[zip]]
name = "shape"
population.num_clients = [12, 24]
population.cohort_size = [4, 6]
""")
    assert [axis.name for axis in sweep.axes] == [
        "seed",
        "dropout_rates",
        "scheme",
        "shape",
    ]
    assert sweep.shape == (2, 2, 2, 2)
    assert sweep.size == 16
    points = list(sweep.points())
    expected = [
        (seed, rates, scheme, n, k)
        for seed in (3, 6)
        for rates in ((0.1,), (0.2, 0.4))
        for scheme in ("uniform", "partition")
        for n, k in ((12, 4), (24, 6))
    ]
    found = [
        (
            point.config.seed,
            point.config.population.dropout_rates,
            point.config.schemes[0],
            point.config.population.num_clients,
            point.config.population.cohort_size,
        )
        for point in points
    ]
    assert found == expected
    assert all(point.config.rounds == 7 for point in points)
    assert points[-1].index == (1, 1, 1, 1)
    labels = {axis.name: sweep.labels(axis) for axis in sweep.axes}
    assert labels["seed"] == {"seed": [3, 6]}
    assert labels["dropout_rates"] == {"population.dropout_rates": ["0.1", "0.2, 0.4"]}
    assert labels["scheme"] == {"scheme": ["Random", "User partition"]}
    assert labels["shape"] == {
        "population.num_clients": [12, 24],
        "population.cohort_size": [4, 6],
    }


def test_ranges_are_what_they_say():
    sweep = parsed("""
[grid]
population.dropout_rates = {linspace = [0.1, 0.5, 5]}
rounds = {range = [10, 40, 10]}
scheme = ["uniform"]
[[zip]]
seed = {range = [0, 3]}
trials = [1.0, 2, 3]
""")
    values = [axis.values for axis in sweep.axes]
    assert values[0] == (((0.1,),), ((0.2,),), ((0.3,),), ((0.4,),), ((0.5,),))
    assert values[1] == ((10,), (20,), (30,))
    assert values[3] == ((0, 1), (1, 2), (2, 3))
    assert sweep.labels(sweep.axes[0])["population.dropout_rates"] == [
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
    ]
    rates = parsed("""command = "train"
[grid]
training.learning_rate = {geomspace = [0.001, 0.1, 3]}""")
    assert rates.axes[0].values == ((0.001,), (0.01,), (0.1,))
    assert all(isinstance(point.config, TrainConfig) for point in rates.points())


def test_zipped_schemes_are_the_only_axis_of_schemes():
    zipped = parsed("[zip]\nscheme = ['uniform', 'weighted']\nseed = [1, 2]")
    assert [axis.fields for axis in zipped.axes] == [("scheme", "seed")]
    found = [(point.config.schemes, point.config.seed) for point in zipped.points()]
    assert found == [(("uniform",), 1), (("weighted",), 2)]


def test_schemes_of_the_command_are_an_axis():
    listed = parsed("schemes = ['uniform', 'weighted']\n[grid]\nseed = [1, 2]")
    assert [axis.name for axis in listed.axes] == ["scheme", "seed"]
    assert [point.config.schemes for point in listed.points()] == [
        ("uniform",),
        ("uniform",),
        ("weighted",),
        ("weighted",),
    ]
    default = parsed("[grid]\nseed = [1]")
    assert len(default.axes[0].values) == len(SimulateConfig().schemes)
    single = parsed("scheme = 'weighted'\n[grid]\nseed = [1]")
    assert [axis.name for axis in single.axes] == ["seed"]


def test_targets_and_rules_are_fields_of_blocks_only():
    sweep = parsed("""
[population]
num_clients = 24
[grid]
scheme = ["uniform", "batch_partitioning", "batch_partitioning:6"]
privacy_target = [2, 3]
fairness = ["greedy"]
""")
    texts = [point.config and point.config.schemes[0] for point in sweep.points()]
    assert texts == [
        "uniform",
        "uniform",
        "batch_partitioning:2:greedy",
        "batch_partitioning:3:greedy",
        None,
        None,
    ]
    assert "`privacy_target` must be given once" in list(sweep.points())[-1].problem
    assert sweep.labels(sweep.axes[0])["scheme"][1:] == [
        "Multi-RoundSecAgg",
        "Multi-RoundSecAgg (T=6)",
    ]


def test_cells_without_sense_say_why():
    sweep = parsed("""
[population]
num_clients = 12
cohort_size = 6
[grid]
scheme = ["batch_partitioning"]
privacy_target = [2, 4, 5]
""")
    problems = [point.problem for point in sweep.points()]
    assert problems[0] == ""
    assert (
        "`cohort_size` must be a multiple of `privacy_target`; got 6 and 4"
        in problems[1]
    )
    assert sweep.named((0, 2)) == "scheme = Multi-RoundSecAgg, privacy_target = 5"


@pytest.mark.smoke
def test_a_single_table_of_zipped_lists():
    sweep = parsed("[zip]\nseed = [1, 2]\nrounds = [3, 4]")
    assert sweep.axes[-1].fields == ("seed", "rounds")


def test_whether_clients_enforce_blocks_is_an_axis():
    sweep = parsed("""
[protocol]
step_dropout_rate = 0.04
[grid]
scheme = ["uniform", "batch_partitioning:3"]
protocol.whole_blocks = [false, true]
""")
    asked = [one.config.protocol.whole_blocks for one in sweep.points() if one.config]
    assert asked == [False, True] * 2


def test_impossible_cells_are_grouped_by_cause() -> None:
    """A line says which places on which axes a cause is at, and the first of its cells."""
    grid = {
        "scheme": ["uniform", "batch_partitioning:5"],
        "population.num_clients": [10, 12, 20],
        "population.cohort_size": [4, 12, 15],
    }
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.study.sweep({"rounds": 5, "trials": 1, "grid": grid})
    _, first, second = str(caught.value).splitlines()
    assert first.startswith(
        "  num_clients = 10 or 12, cohort_size = 12 or 15 (6 cells, the first of "
        "which): `cohort_"
    )
    assert second.startswith(
        "  scheme = Multi-RoundSecAgg (T=5), cohort_size = 4 or 12 (5 cells,"
    )


def test_cells_share_the_tables_that_no_axis_changes_between_them() -> None:
    sweep = parsed("""
trials = 2
[grid]
scheme = ["uniform", "weighted"]
seed = [0, 1, 2]
population.dropout_rates = [[0.1], [0.2, 0.3]]
""")
    configs = [point.config for point in sweep.points()]
    assert len({id(config.population) for config in configs}) == 2
    assert len({id(config.protocol) for config in configs}) == 1
    for point, config in zip(sweep.points(), configs, strict=True):
        assert (
            point.config == config == sweep.kind.resolve(sweep.settings_at(point.index))
        )


def test_equal_tables_of_other_types_are_looked_at_each() -> None:
    seen: list[Any] = []
    asked = each_once(seen.append)
    tables: list[Any] = [(1,), (1.0,), (True,)]
    assert tables[0] == tables[1] == tables[2]
    for table in (*tables, *tables):
        asked(table)
    assert list(map(id, seen)) == list(map(id, tables))


@pytest.mark.parametrize(
    "text",
    [
        'scheme = ["uniform", "batch_partitioning::greedy"]',
        'scheme = ["uniform", "batch_partitioning:3:gready"]',
        'scheme = ["unifrom"]',
        'scheme = ["uniform:3"]',
        'population.availability = ["markov:often"]',
        'protocol.graph = ["harary:many"]',
    ],
)
def test_a_malformed_value_is_an_error_where_impossible_cells_are_skipped(
    text: str,
) -> None:
    with pytest.raises(ConfigurationError, match=r"`grid\.[a-z._]+\[[01]\]`"):
        parse_sweep(f"skip_impossible = true\n[grid]\n{text}\n")


def test_a_bare_name_may_get_its_numbers_from_another_axis() -> None:
    text = 'scheme = ["batch_partitioning", "minimum_separation:2:weighted"]'
    parse_sweep(f"[grid]\n{text}\nprivacy_target = [2]\n")
