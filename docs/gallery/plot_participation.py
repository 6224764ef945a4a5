"""Which client is in which sum, and how well the worst client is hidden, after each round."""

import matplotlib.pyplot as plt
import numpy as np

import mrsa_jax as mj

away = mj.availability.independent(dropout_rate=0.2)
schemes = {
    "random": mj.selection.uniform(24, 6),
    "blocks of 3": mj.selection.batch_partitioning(24, 6, privacy_target=3),
}
histories = {
    name: mj.selection.rollout(0, one, away, 60) for name, one in schemes.items()
}
with mj.plotting.style():
    figure, axes = plt.subplots(1, 3, figsize=(5.4, 3.2), layout="constrained", dpi=250)
    for ax, (name, history) in zip(axes, histories.items(), strict=False):
        size = 3 if name == "blocks of 3" else None
        mj.plotting.plot_participation(history, block_size=size, title=name, ax=ax)
    for name, scheme in zip(
        histories, ("Random", "Multi-RoundSecAgg (T=3)"), strict=True
    ):
        colour = mj.plotting.scheme_colour(scheme)
        hidden = np.asarray(mj.privacy.hidden_among_trajectory(histories[name]))
        axes[2].step(
            range(60), hidden.min(axis=1), color=colour, where="post", label=name
        )
    axes[2].set(
        title="worst hidden among", xlabel="round", ylabel="clients", ylim=(0, None)
    )
    axes[2].legend(handlelength=1.0)
    key = axes[0].get_legend()  # of both pictures
    figure.legend(handles=key.legend_handles, loc="outside lower left", ncols=2)
    key.remove()
figure.savefig("plot_participation.png")
