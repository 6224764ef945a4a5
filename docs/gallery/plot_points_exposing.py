"""Clients exposed by a server that chooses its sums.

Whom clients obey, and who keep blocks.
"""

import numpy as np
import pandas as pd

import mrsa_jax as mj

clients, size, T, rounds = 24, 12, 3, 40


def keeps_blocks(listed):
    """Tell whether a list of survivors is a union of whole blocks."""
    members = listed.reshape(-1, T).sum(axis=1)
    return bool(((members == 0) | (members == T)).all())


server = mj.attacks.exposing_server(clients, size, blocks=T)
random = mj.attacks.exposing_server(clients, size, blocks=T, candidates=1)
curves = {
    "any sums, chosen to expose": server.play(0, rounds).exposed,
    "any sums, at random": random.play(0, rounds).exposed,
    "whole blocks only, whatever it asks": server.play(0, rounds, keeps_blocks).exposed,
}
table = pd.DataFrame(
    [
        {"clients unmask": label, "round": j + 1, "exposed clients": int(count)}
        for label, exposed in curves.items()
        for j, count in enumerate(np.asarray(exposed))
    ]
)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_points(
        table, "exposed clients", x="round", hue="clients unmask"
    )
    ax.figure.savefig("plot_points_exposing.svg")
