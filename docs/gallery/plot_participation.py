"""Which client is in which sum, and how well the worst client is hidden, after each round."""

import matplotlib.pyplot as plt
import numpy as np

import mrsa_jax as mj

away = mj.availability.independent(dropout_rate=0.2)
schemes = {
    "random selection": mj.selection.uniform(24, 6),
    "blocks of 3": mj.selection.batch_partitioning(24, 6, privacy_target=3),
}
histories = {name: mj.selection.rollout(0, one, away, 60) for name, one in schemes.items()}
with mj.plotting.style():
    figure, axes = plt.subplots(1, 3, figsize=(7.16, 3.4), layout="constrained", dpi=200)
    for ax, (name, history) in zip(axes, histories.items(), strict=False):
        size = 3 if name == "blocks of 3" else None
        mj.plotting.plot_participation(history, block_size=size, title=name, ax=ax)
    for name, colour in zip(histories, ("#D55E00", "#0072B2"), strict=True):
        hidden = np.asarray(mj.privacy.hidden_among_trajectory(histories[name]))
        axes[2].step(range(60), hidden.min(axis=1), color=colour, where="post", label=name)
    axes[2].set(title="worst client hidden among", xlabel="round", ylabel="clients", ylim=(0, None))
    axes[2].legend()
figure.savefig("plot_participation.png")
