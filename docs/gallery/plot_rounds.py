"""Which clients each round asked, which of them it lost, and which are in its sum."""

import mrsa_jax as mj

selector = mj.selection.batch_partitioning(24, 12, 3)
away, lost = mj.availability.independent(0.2), mj.availability.independent_steps(0.02)
played = mj.selection.rollout_rounds(
    0, selector, away, lost, 40, policy="drop_block", blocks=3
)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_rounds(played, block_size=3)
    ax.figure.savefig("plot_rounds.svg")
