"""Accuracy of trainings against what their noise leaves to tell, by scheme."""

import pandas as pd

import mrsa_jax as mj

rows = []
for scheme in ("uniform", "batch_partitioning:2"):
    for multiplier in (0.2, 0.5, 1.0):
        study = mj.study.TrainConfig(
            scheme=scheme,
            rounds=20,
            population=mj.study.PopulationConfig(num_clients=24, cohort_size=6),
            data=mj.study.DataConfig(dataset="digits"),
            training=mj.study.TrainingConfig(model="logistic", evaluate_every=20),
            aggregation=mj.study.AggregationConfig(
                noise_multiplier=multiplier, clip_norm=1.0, modulus_bits=24
            ),
        )
        last = mj.study.run(study).isel(scheme=0, evaluation=-1)
        own = {
            name: float(last[name])
            for name in ("accuracy", "epsilon_worst", "epsilon_mean")
        }
        rows.append(
            {
                "scheme": str(last["scheme"].values),
                "noise_multiplier": multiplier,
                **own,
            }
        )
with mj.plotting.style("single"):
    ax = mj.plotting.plot_accuracy_epsilon(pd.DataFrame(rows))
    ax.figure.savefig("plot_accuracy_epsilon.svg")
