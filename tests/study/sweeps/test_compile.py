"""How often a sweep compiles.

Once a group, however many points it has and however it is cut.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os

import jax
import pytest

from mrsa_jax import study
from mrsa_jax.privacy._gram_loops import leverage_trials
from mrsa_jax.privacy._summary_loops import collapse, follow_trials
from mrsa_jax.selection._loops import play
from mrsa_jax.study import sweeps
from mrsa_jax.study.sweeps import Machine, parse_sweep

# Sent for each program that is asked of the backend, whether the cache on disk holds it
# or not.
COMPILED = "/jax/core/compile/backend_compile_duration"

SIMULATE = """
rounds = 17
trials = 1
[population]
num_clients = 14
cohort_size = 4
[grid]
"""
FOUR_HISTORIES = "scheme = ['uniform']\nseed = [3, 4, 5, 6]\n"
HISTORIES = """
seed = [0, 1, 2]
scheme = ["uniform", "batch_partitioning"]
privacy_target = [1, 2]
population.dropout_rates = [0.1, 0.2]
"""

TRAIN = """
command = "train"
rounds = 7
[population]
num_clients = 8
cohort_size = 4
[data]
dataset = "digits"
[training]
model = "logistic"
evaluate_every = 2
server = "momentum"
decay_rounds = [2]
[grid]
"""
ONE_TRAINING = "scheme = ['uniform']\n"
TRAININGS = """
scheme = ["uniform", "batch_partitioning:2"]
[[zip]]
seed = [0, 1, 2]
population.dropout_rates = [0.1, 0.2, 0.3]
training.learning_rate = [0.01, 0.02, 0.03]
training.server_learning_rate = [1.0, 0.9, 0.5]
training.decay_factor = [0.5, 0.4, 0.3]
training.evaluate_every = [2, 1, 3]
"""


@contextlib.contextmanager
def programs():
    """Count the programs that are compiled in the block, by name."""
    found = collections.Counter()

    def on_event(event, _, **facts):
        if event == COMPILED:
            found[facts["fun_name"].removeprefix("jit(").removesuffix(")")] += 1

    jax.monitoring.register_event_duration_secs_listener(on_event)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(on_event)


def planned(text, folder, at_once=None):
    sweep = dataclasses.replace(parse_sweep(text), out=folder)
    # of SIMULATE's histories
    bound = None if at_once is None else at_once * 4 * 17 * 14
    return sweeps.plan_sweep(sweep, Machine(memory_bytes=bound))


def compiled(text, folder, at_once=None):
    """Plan and run a sweep; return its plan and what that compiled."""
    with programs() as found:
        plan = planned(text, folder, at_once)
        sweeps.run_sweep(plan)
    return plan, found


@pytest.mark.smoke
def test_what_is_counted():
    """New numbers compile nothing, a new shape does."""
    double = jax.jit(lambda x: 2.0 * x)
    with programs() as found:
        for size in (3, 3, 4):
            double(jax.numpy.ones(size)).block_until_ready()
    assert found["<lambda>"] == 2


@pytest.mark.long
@pytest.mark.parametrize("losses", ["", "\n[protocol]\nstep_dropout_rate = 0.1\n"])
def test_simulations_compile_once_a_group(losses, tmp_path):
    main = "_roll" if losses else "_roll_cells"
    _, first = compiled(
        SIMULATE + FOUR_HISTORIES + losses, tmp_path / "four", at_once=4
    )
    # without losses the rounds are compiled loops, which know no shapes
    assert first[main] == (1 if losses else 0)
    # 18 points with settings of their own; 5 tasks of 4, 4, 4, 4 and 2
    plan, found = compiled(SIMULATE + HISTORIES + losses, tmp_path / "many", at_once=4)
    assert len(plan.groups) == 1
    assert plan.num_computed == 18
    assert [len(task.numbers) for task in plan.tasks()] == [4, 4, 4, 4, 2]
    assert not found
    # nor does a run that finds other numbers of points missing
    (log,) = (tmp_path / "many" / "log").iterdir()
    os.truncate(log, log.stat().st_size * 4 // 5)
    with programs() as again, pytest.warns(RuntimeWarning, match="are no whole record"):
        sweeps.run_sweep(plan)
    assert not again
    # a second group; with more memory free, calls are larger, and so is the first one's
    # program
    more = SIMULATE + HISTORIES + "population.num_clients = [14, 18]\n" + losses
    plan, found = compiled(more, tmp_path / "more")
    assert [len(group.numbers) for group in plan.groups] == [18, 18]
    assert found[main] == (1 if losses else 0)


@pytest.mark.long
def test_trainings_compile_once_a_group(tmp_path):
    jax.clear_caches()  # of tests that train the same model in this process
    _, first = compiled(TRAIN + ONE_TRAINING, tmp_path / "one")
    for name in ("cohort_updates", "server_step", "evaluation"):
        assert first[name] == 1, name
    plan, found = compiled(TRAIN + TRAININGS, tmp_path / "many")
    assert [len(group.numbers) for group in plan.groups] == [6]
    assert not found
    other = TRAININGS.replace("\n[[zip]]", "\ntraining.batch_size = [10, 20]\n[[zip]]")
    plan, found = compiled(TRAIN + other, tmp_path / "more")
    assert [len(group.numbers) for group in plan.groups] == [6, 6]
    assert found["cohort_updates"] == 1  # 10 is the default
    assert found["server_step"] == 0  # the server does not know of batches


@pytest.mark.long
def test_rounds_clients_and_shards_compile_nothing_within_their_buckets(tmp_path):
    train = (
        TRAIN.replace("num_clients = 8\n", "").replace("rounds = 7\n", "")
        + ONE_TRAINING
    )
    split = "data.partition = ['dirichlet']\n"
    shape = "rounds = [7]\npopulation.num_clients = [16]\n"
    _, first = compiled(train + split + shape, tmp_path / "one")
    assert first["cohort_updates"] == 1
    shapes = (
        "rounds = [5, 6, 8, 30]\npopulation.num_clients = [12, 13, 16]\nseed = [1, 2]\n"
    )
    plan, found = compiled(train + split + shapes, tmp_path / "many")
    assert plan.num_computed == 24
    assert not found
    cells = study.open_study(tmp_path / "many").load()
    for number in (0, 9, 23):  # as each is by itself
        config = plan.points[number].config
        alone = study.run(config).isel(scheme=0)
        cell = cells.isel(
            rounds=number // 6, num_clients=number // 2 % 3, seed=number % 2, scheme=0
        )
        assert cell["accuracy"] == alone["accuracy"].values[-1]
        for name in ("rank", "strong_privacy", "exposed_clients"):
            assert cell[name] == alone[name].values[-1]
        assert cell["hidden_among_median"] == pytest.approx(
            alone["hidden_among_median"].values[-1]
        )
    losses = "population.num_clients = [16]\nprotocol.step_dropout_rate = [0.1]\n"
    compiled(train + split + losses + "rounds = [17]\n", tmp_path / "lossy")
    _, found = compiled(
        train + split + losses + "rounds = [20, 30]\n", tmp_path / "losses"
    )
    assert not found
    paths, clients = "trajectories = true\n" + train, "population.num_clients = [16]\n"
    compiled(paths + clients + "rounds = [20]\n", tmp_path / "path")
    _, found = compiled(paths + clients + "rounds = [17, 30]\n", tmp_path / "paths")
    assert not found


# tables of noise in rings of more bits take seconds
NOISY = """
[aggregation]
clip_norm = 0.5
modulus_bits = 16
[grid]
scheme = ["uniform", "batch_partitioning:2"]
"""


@pytest.mark.long
def test_noise_and_the_norm_are_numbers(tmp_path):
    train = TRAIN.replace("[grid]\n", "")
    compiled(train + NOISY + "aggregation.noise_multiplier = [1.5]\n", tmp_path / "one")
    more = "aggregation.noise_multiplier = [0.7, 2.6]\naggregation.clip_norm = [0.3, 0.5]\n"
    plan, found = compiled(train + NOISY + more, tmp_path / "many")
    assert [len(group.numbers) for group in plan.groups] == [8]
    assert not found
    other = "aggregation.noise_multiplier = [0.0, 2.0]\naggregation.target_delta = [1e-5, 1e-6]\n"
    groups = planned(train + NOISY + other, tmp_path).groups
    # without noise nothing reads delta
    assert [len(group.numbers) for group in groups] == [2, 4]


SEGMENTS = """
[aggregation]
clip_norm = 0.5
modulus_bits = 18
[hetero]
segments = "sc"
group_levels = [4096, 4096]
[grid]
"""


@pytest.mark.long
def test_noise_of_segments_is_a_number(tmp_path):
    train = TRAIN.replace("[grid]\n", "") + SEGMENTS
    compiled(train + "aggregation.noise_multiplier = [1.5]\n", tmp_path / "one")
    more = "aggregation.noise_multiplier = [0.7, 2.6]\naggregation.clip_norm = [0.3, 0.5]\n"
    plan, found = compiled(train + more, tmp_path / "many")
    assert [len(group.numbers) for group in plan.groups] == [4]
    assert not found


@pytest.mark.long(
    "rounds = [7, 5]-2", "seed = [0, 1]\\ndata.partition = ['dirichlet', 'iid']-3"
)
@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ("rounds = [7, 5]", 2),
        # plain averaging, and a server with a rate
        (
            "training.server_learning_rate = [1.0, 0.9, 0.5]\ntraining.server = "
            "['average']",
            2,
        ),
        # as many slots as the largest cohort that is drawn
        ("seed = [0, 1]\nscheme = ['bernoulli:0.4', 'uniform']", 3),
        # clients' data are as long as the largest part that is drawn
        ("seed = [0, 1]\ndata.partition = ['dirichlet', 'iid']", 3),
        ("seed = [0, 1]\ndata.partition = ['dirichlet_by_client']", 1),
    ],
)
def test_what_decides_on_a_training_s_programs(settings, groups, tmp_path):
    assert len(planned(TRAIN + settings, tmp_path).groups) == groups


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "rates"),
    [
        ("independent", [0.1, 0.3]),
        ("markov:{}", [0.1, 0.3]),
        ("cyclic", [0.1, 0.3, 0.2]),
        ("diurnal:0.2:{}", [0.3]),
    ],
)
def test_ten_shapes_of_blocks_and_coins_compile_nothing(model, rates):
    points = []
    for k in range(11):
        sizes = {"num_clients": 12 + 2 * k, "cohort_size": 4}
        sizes |= {"availability": model.format(2 + k), "dropout_rates": rates}
        for schemes in (["uniform", "batch_partitioning:2"], ["bernoulli:0.4"]):
            grid = {"scheme": schemes, "seed": list(range(1 + k % 3))}
            asked = {
                "rounds": 9 + k,
                "trials": 1 + k,
                "population": sizes,
                "grid": grid,
            }
            points.append([point.config for point in sweeps.sweep_of(asked).points()])
    run = sweeps.sweep_of(asked).kind.runner().run_points
    for configs in points[:2]:
        list(run(configs, Machine(), (), 64))
    loops = play, collapse, follow_trials, leverage_trials
    before = [len(loop.signatures) for loop in loops]
    with programs() as found:
        for configs in points[2:]:
            list(run(configs, Machine(), (), 64))
    assert not found
    # shapes are no kinds of arguments: a loop is compiled once, when a history first
    # needs it
    for loop, count in zip(loops, before, strict=True):
        assert len(loop.signatures) <= max(1, count), loop
