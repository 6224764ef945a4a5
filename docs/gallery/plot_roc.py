"""How well a shift of one client can be detected.

The formula, and the best test played.
"""

import tempfile

import pandas as pd

import mrsa_jax as mj

with tempfile.TemporaryDirectory() as folder:
    study = mj.study.attacks_on_sums.DistinguishConfig(
        out=f"{folder}/distinguish", trials=2000
    )
    mj.study.run_and_save(study)
    scores = pd.read_csv(f"{folder}/distinguish/scores.csv").query(
        "others == 'gaussian'"
    )
with mj.plotting.style("single"):
    ax = mj.plotting.plot_roc(scores)
    ax.figure.savefig("plot_roc.svg")
