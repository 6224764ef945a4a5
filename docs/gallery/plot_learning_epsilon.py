"""Test accuracy against the epsilon that it took."""

import mrsa_jax as mj

study = mj.study.TrainConfig(
    scheme="batch_partitioning:2",
    rounds=40,
    population=mj.study.PopulationConfig(num_clients=24, cohort_size=6),
    data=mj.study.DataConfig(dataset="digits"),
    training=mj.study.TrainingConfig(model="logistic", evaluate_every=4),
    aggregation=mj.study.AggregationConfig(
        noise_multiplier=0.5, clip_norm=1.0, modulus_bits=24
    ),
)
results = mj.study.run(study)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_study(results, "accuracy_epsilon")
    ax.figure.savefig("plot_learning_epsilon.svg")
