"""The gap of expected shares, and clients per round, by T, assignment and rule."""

import matplotlib.pyplot as plt

import mrsa_jax as mj

rates, targets = [0.1, 0.2, 0.3, 0.4, 0.5], (3, 4, 6, 12)
colors = {"sorted": "#D55E00", "shuffled": "#0072B2", "cyclic": "#009E73"}
lines = {"uniform": ":", "least_used": "-", "greedy": "--"}

with mj.plotting.style("double"):
    figure, (fair, full) = plt.subplots(1, 2, sharex=True, layout="constrained")
    for assignment, color in colors.items():
        offline = mj.availability.assign_rates(1, rates, 120, assignment)
        online = mj.availability.independent(offline)
        for rule, line in lines.items():
            gaps = [
                mj.selection.expected_fairness_gap(
                    mj.selection.batch_partitioning(120, 12, T, rule), online
                ).value
                for T in targets
            ]
            label = f"{assignment}, {rule}"
            fair.plot(targets, gaps, line, marker=".", color=color, label=label)
        C = [mj.selection.expected_cardinality(120, 12, T, offline) for T in targets]
        full.plot(targets, C, marker=".", color=color)
    random = mj.selection.expected_fairness_gap(mj.selection.uniform(120, 12), online)
    fair.axhline(random.value, color="black", lw=1, label="random selection")
    full.axhline(12, color="black", lw=1)
    fair.set(xlabel="block size T", ylabel="expected gap F, eq. (6)")
    full.set(xlabel="block size T", ylabel="mean clients per round C", ylim=(0, 12.5))
    key = "assignment of rates, rule that picks blocks"
    handles, _ = fair.get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside lower center", ncols=4, title=key)
    figure.savefig("plot_expected_fairness.svg")
