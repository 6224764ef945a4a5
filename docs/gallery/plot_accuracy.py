"""Test accuracy over rounds, by scheme."""

import mrsa_jax as mj

study = mj.study.DemoConfig(
    rounds=40,
    schemes=("uniform", "partition", "batch_partitioning:2"),
    population=mj.study.PopulationConfig(num_clients=24, cohort_size=6),
    data=mj.study.DataConfig(dataset="digits"),
    training=mj.study.TrainingConfig(model="logistic", evaluate_every=4),
)
results = mj.study.run(study)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_study(results, "accuracy")
    ax.figure.savefig("plot_accuracy.svg")
