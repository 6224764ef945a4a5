"""Exposed clients over the rounds of a log, as `mrsa-jax audit --out` draws it."""

import pathlib
import tempfile

import numpy as np
import pandas as pd

import mrsa_jax as mj

random = mj.selection.uniform(30, 6)
history = mj.selection.rollout(0, random, mj.availability.independent(0.2), 40)
with tempfile.TemporaryDirectory() as folder:
    log, out = pathlib.Path(folder, "log.npy"), pathlib.Path(folder, "audit")
    np.save(log, np.asarray(history))
    mj.study.run_and_save(mj.study.AuditConfig(file=log, out=out))
    rounds = pd.read_csv(out / "rounds.csv")
with mj.plotting.style("single"):
    ax = mj.plotting.plot_audit_exposure(rounds, num_clients=30)
    ax.figure.savefig("plot_audit_exposure.svg")
