"""Any quantity of a sweep over any of its axes, a curve for each value of another."""

import tempfile

import mrsa_jax as mj

study = {
    "command": "simulate",
    "rounds": 40,
    "trials": 3,
    "population": {"num_clients": 24, "cohort_size": 4},
    "grid": {
        "scheme": ["uniform", "partition", "batch_partitioning:2"],
        "population.dropout_rates": [0.1, 0.3, 0.5],
    },
}
with tempfile.TemporaryDirectory() as folder:
    table = mj.study.sweep(study, out=f"{folder}/sweep").mrsa.table()
ax = mj.plotting.plot_points(table, "aggregation_cardinality", x="dropout_rates", hue="scheme")
ax.figure.savefig("plot_points.png")
