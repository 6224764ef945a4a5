"""jax_privacy's own samples of privacy losses (`experimental.monte_carlo`), in NumPy.

Minimum separation is its `BMinSepSampling` from a cold start, which is our law:
everybody may join in the first round. Balls in bins is its `BallsInBinsSampling`, whose
losses it computes one sample after the other.
"""

import importlib.metadata

import numpy as np
from jax_privacy import batch_selection
from jax_privacy.experimental.monte_carlo import sample_generation
from serving import serve


class Workload:
    """Losses of a client, one number per sample, without correlated noise."""

    def __init__(self, settings, arrays, threads):
        del arrays, threads  # NumPy, one thread but for its matrix products
        self.settings = settings
        if settings["bins"]:
            self.strategy = batch_selection.BallsInBinsSampling(
                iterations=settings["rounds"], cycle_length=settings["separation"]
            )
        else:
            self.strategy = batch_selection.BMinSepSampling(
                sampling_prob=settings["coin"],
                iterations=settings["rounds"],
                min_sep=settings["separation"],
                warm_start=False,
            )
        self.found = None

    def run(self):
        self.found, _ = sample_generation.get_privacy_loss_sample(
            self.strategy,
            self.settings["noise"],
            np.ones(1),
            seed=0,
            positive_sample=True,
            num_samples=self.settings["samples"],
        )

    def saved(self, what):
        return self.found


if __name__ == "__main__":
    serve(Workload, importlib.metadata.version("jax_privacy"))
