"""Families of lines: weak T, hidden among, strong T and mean clients per round of each."""

import mrsa_jax as mj

families = {
    "blocks of 4": mj.design.blocks(48, 4),
    "grids 4 x 4": mj.design.grids(48, 4),
    "two rows of 2": mj.design.rectangles(48, 2, 2),
    "blocks of 2": mj.design.blocks(48, 2),
}
judged = {
    name: mj.design.judge(lines, 8, 0.3, num_rounds=40, num_trials=3)
    for name, lines in families.items()
}
with mj.plotting.style("single"):
    ax = mj.plotting.plot_designs(judged)
    ax.figure.savefig("plot_designs.svg")
