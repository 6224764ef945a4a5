"""Strong T against mean clients per round, with your own intervals."""

import pandas as pd

import mrsa_jax as mj

rows = [
    ("Random", 1, 12.0, 11.9, 12.0),
    ("Multi-RoundSecAgg (T=4)", 4, 11.8, 11.5, 12.0),
    ("Multi-RoundSecAgg (T=6)", 6, 8.8, 7.9, 9.4),
    ("User partition", 12, 1.4, 1.1, 1.8),
]
table = pd.DataFrame(rows, columns=["scheme", "T", "C", "C_low", "C_high"])
with mj.plotting.style("single"):
    ax = mj.plotting.plot_tradeoff(table)
    ax.figure.savefig("plot_tradeoff.svg")
