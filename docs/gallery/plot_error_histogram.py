"""Errors of least squares, by scheme: exposed clients stand on the left."""

import numpy as np
import pandas as pd

import mrsa_jax as mj

away = mj.availability.independent(0.2)
schemes = {
    "Random": mj.selection.uniform(24, 6),
    "Multi-RoundSecAgg (T=2)": mj.selection.batch_partitioning(24, 6, 2),
}
updates = np.random.default_rng(0).normal(size=(24, 50))
errors = []
for label, scheme in schemes.items():
    who = np.asarray(mj.selection.rollout(0, scheme, away, 40), float)
    found = mj.attacks.least_squares(who, who @ updates)
    for error in np.asarray(mj.attacks.reconstruction_error(updates, found)):
        # below is rounding
        errors.append({"scheme": label, "error": max(float(error), 1e-12)})
with mj.plotting.style("single"):
    ax = mj.plotting.plot_error_histogram(pd.DataFrame(errors))
    ax.figure.savefig("plot_error_histogram.svg")
