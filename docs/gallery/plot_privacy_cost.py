"""What each scheme promises against what its sums are worth: strong T and cardinality."""

import mrsa_jax as mj

study = mj.study.SimulateConfig(
    rounds=80,
    trials=5,
    schemes=("uniform", "partition", "batch_partitioning:4"),
    population=mj.study.PopulationConfig(num_clients=48, cohort_size=8),
)
results = mj.study.run(study)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_privacy_cost(results.mrsa.table())
    ax.figure.savefig("plot_privacy_cost.svg")
