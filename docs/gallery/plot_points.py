"""Any quantity of a sweep over any of its axes, a curve for each value of another."""

import tempfile

import mrsa_jax as mj

study = {
    "command": "simulate",
    "rounds": 60,
    "trials": 20,
    "population": {"num_clients": 48, "cohort_size": 12},
    "grid": {
        "scheme": ["uniform", "partition", "batch_partitioning"],
        "privacy_target": [2, 3, 4, 6],
        "population.dropout_rates": {"linspace": [0.1, 0.5, 5]},
    },
}
with tempfile.TemporaryDirectory() as folder:
    table = mj.study.sweep(study, out=f"{folder}/sweep").mrsa.table()
blocks = table[table["scheme"] == "Multi-RoundSecAgg"]
with mj.plotting.style("single"):
    ax = mj.plotting.plot_points(
        blocks, "aggregation_cardinality", x="dropout_rates", hue="privacy_target"
    )
    ax.figure.savefig("plot_points.svg")
