"""Strong T after each round: how many clients at least always move together."""

import mrsa_jax as mj

study = mj.study.SimulateConfig(
    rounds=80,
    trials=5,
    schemes=(
        "uniform",
        "weighted",
        "partition",
        "batch_partitioning:4",
        "batch_partitioning:2",
    ),
    population=mj.study.PopulationConfig(num_clients=48, cohort_size=8),
)
results = mj.study.run(study)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_study(results, "strong_privacy")
    ax.figure.savefig("plot_privacy.svg")
