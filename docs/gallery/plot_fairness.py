"""How unequally often clients took part, after each round."""

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
    ax = mj.plotting.plot_study(results, "fairness_gap")
    ax.figure.savefig("plot_fairness.svg")
