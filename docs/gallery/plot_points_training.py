"""Accuracy over the time that uploads take, when slow clients send fewer levels (HeteroSAg)."""

import pandas as pd

import mrsa_jax as mj

rows = []
for levels in ((2, 2, 2), (2, 8, 64), (64, 64, 64)):
    study = mj.study.TrainConfig(
        scheme="uniform",
        rounds=80,
        population=mj.study.PopulationConfig(24, 12, dropout_rates=(0.1,)),
        data=mj.study.DataConfig(dataset="digits", partition="shards"),
        training=mj.study.TrainingConfig(model="logistic", evaluate_every=4),
        aggregation=mj.study.AggregationConfig(clip=0.1),
        hetero=mj.study.SegmentConfig("mc", levels, client_rates=(1.0, 4.0, 8.0)),
    )
    results = mj.study.run(study).isel(scheme=0)
    for done, accuracy in zip(
        results["evaluation"].values, results["accuracy"].values, strict=True
    ):
        seconds = float(results["round_seconds"]) * int(done)
        name = ", ".join(map(str, levels))
        rows.append(
            {"levels": name, "seconds of uploads": seconds, "accuracy": float(accuracy)}
        )
table = pd.DataFrame(rows)
table = table[table["seconds of uploads"] < 0.192]  # 80 rounds of two levels
with mj.plotting.style("single"):
    ax = mj.plotting.plot_points(
        table, "accuracy", x="seconds of uploads", hue="levels"
    )
    ax.figure.savefig("plot_points_training.svg")
