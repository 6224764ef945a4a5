"""Chance of being exposed when clients collude with the server, by either route."""

import mrsa_jax as mj

away = mj.availability.independent(0.2)
schemes = {
    "Random": mj.selection.uniform(48, 8),
    "Multi-RoundSecAgg (T=4)": mj.selection.batch_partitioning(48, 8, 4),
}
routes = {
    label: mj.privacy.collusion_risk(
        0,
        mj.selection.rollout(0, scheme, away, 30),
        [0.1, 0.2, 0.3, 0.4],
        num_coalitions=200,
    )
    for label, scheme in schemes.items()
}
with mj.plotting.style("single"):
    ax = mj.plotting.plot_exposure_routes(routes)
    ax.figure.savefig("plot_exposure_routes.svg")
