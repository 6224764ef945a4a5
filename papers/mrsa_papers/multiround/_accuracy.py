"""Tables 3, 4, 5 and Figures 5b, 5c, 6, 7, 8 of Multi-RoundSecAgg.

Accuracy of six schemes.
So, Ali, Guler, Jiao, Avestimehr, Section 6, Appendices E to G. Each item runs on its
own data set where that is given, and else on what is here with its settings scaled; the
published accuracies are compared on their own data set only, the claims about schemes
on any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mrsa_jax import data
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    bands,
    interval,
    late_accuracy,
)
from mrsa_papers.harness._datasets import is_data_of
from mrsa_papers.harness._figures import by_scheme, draw_seeds, panels, short
from mrsa_papers.harness._rows import DATA, catalog_of, printed_in
from mrsa_papers.harness._settings import shown
from mrsa_papers.multiround import _claims as claims, _training as training
from mrsa_papers.multiround._training import Setting
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

LABELS = tuple(scheme for scheme, *_ in printed_in("multiround")["sizes"])

PUBLISHED = printed_in("multiround")["accuracies"]
"""Test accuracies in percent, IID and non-IID, by table; the schemes as in `LABELS`."""


def _data(item: str) -> str:
    """Return the data set of an item in the paper."""
    return str(catalog_of("multiround")["items"][item].data or "")


def is_own(dataset: data.Dataset, item: str) -> bool:
    """Return whether a data set is the one that the paper used for an item.

    Examples:
        >>> is_own(data.load("digits"), "table5")
        False
    """
    return is_data_of(dataset, _data(item))


def table3(context: Context, settings: Values) -> Found:
    """Return Table 3 with Figures 5b and 5c: CIFAR-100, IID and Dirichlet by class."""
    return _table(context, "table3", settings, ("iid", "dirichlet"))


def table4(context: Context, settings: Values) -> Found:
    """Return Table 4 with Figure 7: CIFAR-10, IID and sorted shards."""
    return _table(context, "table4", settings, ("iid", "shards_with_shared"))


def table5(context: Context, settings: Values) -> Found:
    """Return Table 5 with Figure 6: MNIST, IID and one sorted shard a client."""
    return _table(context, "table5", settings, ("iid", "shards"))


def more_clients(context: Context, settings: Values) -> Found:
    """Return Figure 8: CIFAR-10 IID with twice the clients or twice the cohort."""
    pairs = tuple(zip(settings.num_clients, settings.cohort_sizes, strict=False))
    lengths = len(settings.num_clients), len(settings.cohort_sizes)
    rule = "must have one value for each of num_clients"
    require(lengths[0] == lengths[1], "cohort_sizes", rule, lengths[1])
    rule = "must not name a pair twice"
    require(len(set(pairs)) == len(pairs), "num_clients", rule, shown(pairs))
    for clients, cohort in pairs:
        _check(settings, clients, cohort, "cohort_sizes")
    # the rates of the main setting, whose N and K are the least of both
    searched = (min(settings.num_clients), min(settings.cohort_sizes))
    _check(settings, *searched, "cohort_sizes")
    base = _setting(context, "fig8", settings, "iid", searched)
    panels_of_pairs = tuple(
        dataclasses.replace(
            base, panel=f"N = {n}, K = {k}", num_clients=n, cohort_size=k
        )
        for n, k in pairs
    )
    frame, read = _trained(context, "fig8", panels_of_pairs, settings)
    checks = [c for s in panels_of_pairs for c in claims.of_figure8(frame, s, read)]
    caption = _caption(context, "fig8", panels_of_pairs, settings, frame)
    return Found(tuple(checks), frame, caption)


def _check(settings: Values, clients: int, cohort: int, name: str) -> None:
    """Raise unless the clients can be parted as every scheme needs."""
    rule = f"must divide num_clients, {clients}"
    require(clients % cohort == 0, name, rule, cohort)
    for target in settings.privacy_targets:
        rule = f"must divide {name}, {cohort}"
        require(cohort % target == 0, "privacy_targets", rule, target)
    rates = settings.learning_rates
    is_falling = tuple(sorted(set(rates), reverse=True)) == rates
    require(is_falling, "learning_rates", "must fall", shown(rates))


def _is_same(context: Context, item: str, settings: Values) -> bool:
    """Return whether published numbers are of these data and settings."""
    return settings.are_papers and is_own(context.images, item)


def _table(
    context: Context, name: str, values: Values, splits: tuple[str, str]
) -> Found:
    sizes = values.num_clients, values.cohort_size
    _check(values, *sizes, "cohort_size")
    settings = [_setting(context, name, values, split, sizes) for split in splits]
    # the paper leaves open which clients have which rate, so both readings are trained
    if splits[1].startswith("shards") and values.by_label:
        words = {"panel": f"{settings[1].panel}, rates by label", "dropouts": "label"}
        settings.append(dataclasses.replace(settings[1], **words))  # type: ignore[arg-type]
    frame, read = _trained(context, name, settings, values)
    published = [dict(zip(LABELS, row, strict=True)) for row in PUBLISHED[name]]
    if read.is_own:
        # the published row of each point, which the legend shows
        named = zip(frame["panel"], frame["scheme"], strict=True)
        frame["published"] = [
            published[panel != "IID"][scheme] for panel, scheme in named
        ]
    checks: list[Check] = [
        *claims.of_iid(frame, "IID", published[0], read),
        *claims.of_non_iid(frame, [s.panel for s in settings[1:]], published[1], read),
    ]
    if read.is_own:
        for setting, row in zip(settings, published, strict=False):
            checks += claims.of_accuracies(frame, setting.panel, row)
    caption = _caption(context, name, settings, values, frame)
    return Found(tuple(checks), frame, caption)


_MODELS = {
    "lenet": "LeNet",
    "smooth_lenet": "the small LeNet of Zhu et al.",
    "cnn": "a CNN",
    "vgg11": "VGG-11",
    "mlp": "an MLP",
    "logistic": "softmax regression",
}
_PANELS = {
    "iid": "IID",
    "dirichlet": "non-IID (Dirichlet by class)",
    "shards_with_shared": "non-IID (sorted shards, shared set)",
    "shards": "non-IID (one sorted shard each)",
}


def _setting(
    context: Context, item: str, settings: Values, split: str, sizes: tuple[int, int]
) -> Setting:
    """Return a panel's setting; equal ones are trained once."""
    data_name = _data(item)
    return Setting(
        panel=_PANELS[split],
        model=settings.model,
        split=split,
        rounds=settings.num_rounds,
        every=max(1, settings.num_rounds // settings.num_tests),
        batch=settings.batch_size,
        samples=DATA[data_name].samples,
        rates=settings.learning_rates,
        decays=data_name != "mnist",
        num_clients=sizes[0],
        cohort_size=sizes[1],
        targets=settings.privacy_targets,
        dropout_rates=settings.dropout_rates,
        searched=sizes,
    )


def _trained(
    context: Context, item: str, settings: Sequence[Setting], values: Values
) -> tuple[pd.DataFrame, claims.Reading]:
    """Train all panels; return their accuracies, and how they are to be read."""
    import pandas as pd

    for each in settings:
        each.experiment(context, each.rates[0]).check()
    context.begin()
    context.expect(training.rounds_to_train(settings, values.num_seeds))
    panels = [training.curves(context, each, values.num_seeds) for each in settings]
    parts = {
        (each.panel, scheme): late
        for each, curves in zip(settings, panels, strict=True)
        for scheme, late in curves.parts.items()
    }
    read = claims.Reading(
        values.num_seeds,
        values.num_rounds,
        _is_same(context, item, values),
        len(values.learning_rates) > 1,
        parts,
    )
    return pd.concat([each.frame for each in panels], ignore_index=True), read


def _caption(
    context: Context,
    item: str,
    settings: Sequence[Setting],
    values: Values,
    frame: pd.DataFrame,
) -> str:
    """Say what was run, and where it is not what the paper ran."""
    dataset, first = context.images, settings[0]
    is_papers_data = is_own(dataset, item)
    paper = f"The paper: {DATA[_data(item)].words}"
    paper += " with VGG-11" if item == "table3" else ""
    where = (
        f"{dataset.name}, the paper's data set"
        if is_papers_data
        else f"{dataset.name} instead of the paper's data set, so ours is compared "
        f"with no published accuracy. {paper}"
    )
    clients = (
        "" if item == "fig8" else f"N = {first.num_clients}, K = {first.cohort_size}, "
    )
    each = len(dataset.train_labels) / first.num_clients
    batch = first.minibatch(dataset)
    shared = (
        f" Shared set: {training.shared_size(dataset)} samples."
        if any(s.split == "shards_with_shared" for s in settings)
        else ""
    )
    labelled = any(s.dropouts == "label" for s in settings)
    spread = ", ".join(f"{rate:g}" for rate in first.dropout_rates)
    by_label = ", or by label (the first rate for the first)" if labelled else ""
    falls = (
        ", falling to .4 of itself after 40 % and 80 % of the rounds"
        if first.decays
        else ""
    )
    rates = (
        f"Learning rate {first.rates[0]:g} for all schemes"
        if len(first.rates) == 1
        else f"Learning rate of each scheme: the best of {len(first.rates)} on one "
        "pilot seed, a choice that the intervals leave out; in brackets the share of "
        "bootstrap draws of its test samples in which the same rate is the best "
        f"({_rates(frame)})"
    )
    return (
        f"{where}. {_MODELS[first.model]}, {clients}dropout rates {spread} shuffled "
        f"over the clients by each seed{by_label}, about {each:.0f} samples a client "
        f"in minibatches of {batch} (the paper: "
        f"{first.samples / first.num_clients:.0f} in {first.batch}; as many local "
        f"steps), E = 1, {values.num_seeds} paired seeds, {first.rounds} rounds, "
        f"skipped ones counted.{shared} {rates}{falls}. Sums in the ring of 32 bits, "
        "2^16 levels over 16 times the last mean update's largest entry: at most "
        f"{100 * frame['most clipped'].max():.2g} % of a round's entries were "
        f"clipped.{bands(values.num_seeds)}"
    )


def _rates(frame: pd.DataFrame) -> str:
    parts = []
    columns = ["rate", "certainty of the rate"]
    for panel, rows in frame.groupby("panel", sort=False):
        chosen = rows.groupby("scheme", sort=False)[columns].first()
        parts.append(
            f"{panel}: "
            + ", ".join(
                f"{scheme} {rate:g} [{share:.2f}]"
                for scheme, rate, share in chosen.itertuples()
            )
        )
    return "; ".join(parts)


def draw_accuracy(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy over rounds, IID and non-IID (or two settings) side by side."""
    figure.set_size_inches(6.2 * data["panel"].nunique(), 5.2)
    for ax in panels(figure, data, "panel", draw_curves, sharey=True)[1:]:
        ax.set_ylabel("")


def draw_curves(ax: Axes, data: pd.DataFrame) -> None:
    """Draw accuracy over rounds, a curve a scheme.

    Means over seeds with 95 % intervals.
    Of two seeds the band and the legend give the range: an interval would be wider than
    the axes. The legend gives each scheme's accuracy late in the training, and the
    published one where the data have it.
    """
    for name, rows, look in by_scheme(data):
        late = 100 * late_accuracy(rows, share=training.LATE)
        look["label"] = f"{short(name)}: {interval(late)} %"
        if "published" in rows:
            look["label"] += f" (paper {rows['published'].iloc[0]:.2f})"
        draw_seeds(ax, rows, look | {"lw": 1.6}, alpha=0.13, limits=(0.0, 100.0))
    ax.set(xlabel="rounds", ylabel="test accuracy (%)", xlim=(0, None), ylim=(0, 100))
    tight = {
        "fontsize": 8,
        "columnspacing": 1.2,
        "handlelength": 2.6,
        "handletextpad": 0.6,
    }
    ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.13), ncols=2, **tight)
