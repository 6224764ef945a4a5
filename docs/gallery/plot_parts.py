"""Clients exposed on LoRA ranks that only some train.

Blocks of all clients, and within classes.
"""

import numpy as np
import pandas as pd

import mrsa_jax as mj

rounds, online = 150, mj.availability.independent(0.1)
# of 120 clients, in any order
ranks = np.repeat([4, 8, 16, 32, 64], [41, 30, 18, 12, 19])
ranks = np.random.default_rng(0).permutation(ranks)
trains = np.stack([ranks >= rank for rank in (4, 8, 16, 32, 64)], axis=1)
common = mj.selection.batch_partitioning(120, 12, 4)
within = mj.selection.blocks_within(trains, 12, 4)
points = []
for name, selector, parts in (
    ("Blocks of all", common, trains),
    ("Within classes", within.selector, within.parts),
):
    history = np.asarray(mj.selection.rollout(0, selector, online, rounds))
    # ranks 33 to 64: their own history
    upper = mj.privacy.first_exposure(history & parts[:, -1])
    exposed = [int(np.sum((upper >= 0) & (upper <= j))) for j in range(rounds)]
    label = f"{name}: {exposed[-1]} of {parts[:, -1].sum()} exposed"
    points += [
        {"blocks": label, "round": j + 1, "exposed clients": exposed[j]}
        for j in range(rounds)
    ]
with mj.plotting.style("single"):
    ax = mj.plotting.plot_points(
        pd.DataFrame(points), "exposed clients", x="round", hue="blocks"
    )
    ax.figure.savefig("plot_parts.svg")
