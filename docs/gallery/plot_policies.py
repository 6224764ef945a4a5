"""What a policy for blocks that lose a member keeps of T."""

import mrsa_jax as mj

kept = mj.privacy.policy_privacy(
    0,
    mj.selection.batch_partitioning(24, 8, 4),
    mj.availability.independent(0.1),
    [0.0, 0.02, 0.05, 0.1],
    20,
    5,
    blocks=4,
)
with mj.plotting.style("single"):
    ax = mj.plotting.plot_policies(kept)
    ax.figure.savefig("plot_policies.svg")
