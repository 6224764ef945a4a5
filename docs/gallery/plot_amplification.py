"""What blocks of T cost in amplification by sampling, and what they buy."""

import mrsa_jax as mj

costs = mj.dp.amplification(
    24, 12, privacy_targets=[1, 2, 4, 6], rounds=20, noise_multiplier=4.0
)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_amplification(costs)
    ax.figure.savefig("plot_amplification.svg")
