"""A client of the job.

Linear regression in NumPy on points that each site draws for itself.
"""

import numpy as np
import nvflare.client as flare

flare.init()
site = int(flare.get_site_name().rpartition("-")[2])
draws = np.random.default_rng(site)
points = draws.normal(size=(20 + 10 * site, 8))
values = points.sum(axis=1) + draws.normal(size=len(points))
while flare.is_running():
    weights = np.asarray(flare.receive().params["numpy_key"])
    for _ in range(20):
        weights = weights - 0.1 * points.T @ (points @ weights - values) / len(points)
    meta = {"NUM_STEPS_CURRENT_ROUND": len(points)}
    flare.send(
        flare.FLModel(params={"numpy_key": weights}, params_type="FULL", meta=meta)
    )
