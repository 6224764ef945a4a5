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
    Stated,
    bands,
    interval,
    late_accuracy,
)
from mrsa_papers.harness._datasets import is_data_of
from mrsa_papers.harness._figures import by_scheme, draw_seeds, panels, short
from mrsa_papers.harness._rows import DATA, catalog_of, printed_in
from mrsa_papers.multiround import _claims as claims, _training as training
from mrsa_papers.multiround._training import Setting

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

LABELS = tuple(scheme for scheme, *_ in printed_in("multiround")["sizes"])

PUBLISHED = printed_in("multiround")["accuracies"]
"""Test accuracies in percent, IID and non-IID, by table; the schemes as in `LABELS`."""


@dataclasses.dataclass(frozen=True)
class _Size:
    """The size of the experiment."""

    seeds: int
    lenet: int  # rounds
    larger: int  # rounds of LeNet at other N and K
    cnn: int  # rounds; at the fast size of an MLP
    tests: int  # tests in a training


_FULL, _FAST = _Size(5, 120, 80, 50, 25), _Size(2, 8, 8, 24, 4)
# on the data set of the paper, which states no rounds
_PAPER = _Size(5, 1000, 1000, 500, 50)
_RATE = 0.1  # of all schemes at the fast size
_PAPER_MODELS = {"cifar100": "vgg11", "cifar10": "lenet", "mnist": "cnn"}
_LAST_FALL = 800  # round at which the learning rate falls for the last time


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


def table3(context: Context) -> Found:
    """Return Table 3 with Figures 5b and 5c: CIFAR-100, IID and Dirichlet by class."""
    return _table(context, "table3", ("iid", "dirichlet"))


def table4(context: Context) -> Found:
    """Return Table 4 with Figure 7: CIFAR-10, IID and sorted shards."""
    return _table(context, "table4", ("iid", "shards_with_shared"))


def table5(context: Context) -> Found:
    """Return Table 5 with Figure 6: MNIST, IID and one sorted shard a client."""
    return _table(context, "table5", ("iid", "shards"))


def more_clients(context: Context) -> Found:
    """Return Figure 8: CIFAR-10 IID with twice the clients or twice the cohort."""
    size = _size(context, "fig8")
    base = _setting(context, "fig8", "iid")
    settings = tuple(
        dataclasses.replace(
            base,
            panel=f"N = {n}, K = {k}",
            rounds=size.larger,
            every=max(1, size.larger // size.tests),
            num_clients=n,
            cohort_size=k,
        )
        # twice the clients, and twice the cohort
        for n, k in ((240, 12), (120, 24))
    )
    frame = _frames(context, settings, size)
    is_same = is_own(context.images, "fig8")
    read = claims.Reading(context.fast, size.seeds, size.larger, is_same)
    checks = [c for s in settings for c in claims.of_figure8(frame, s, read)]
    caption = _caption(context, "fig8", settings, size, frame)
    return Found(tuple(checks), frame, caption, _stated("fig8", settings, size))


def _table(context: Context, name: str, splits: tuple[str, str]) -> Found:
    size = _size(context, name)
    settings = [_setting(context, name, split) for split in splits]
    # the paper leaves open which clients have which rate, so both readings are trained
    if not context.fast and splits[1].startswith("shards"):
        words = {"panel": f"{settings[1].panel}, rates by label", "dropouts": "label"}
        settings.append(dataclasses.replace(settings[1], **words))  # type: ignore[arg-type]
    frame = _frames(context, settings, size)
    is_same = is_own(context.images, name)
    published = [dict(zip(LABELS, row, strict=True)) for row in PUBLISHED[name]]
    if is_same:
        # the published row of each point, which the legend shows
        named = zip(frame["panel"], frame["scheme"], strict=True)
        frame["published"] = [
            published[panel != "IID"][scheme] for panel, scheme in named
        ]
    read = claims.Reading(context.fast, size.seeds, settings[0].rounds, is_same)
    checks: list[Check] = [
        *claims.of_iid(frame, "IID", published[0], read),
        *claims.of_non_iid(frame, [s.panel for s in settings[1:]], published[1], read),
    ]
    # the interval of two seeds would hold any accuracy
    if is_same and not context.fast:
        for setting, row in zip(settings, published, strict=False):
            checks += claims.of_accuracies(frame, setting.panel, row)
    caption = _caption(context, name, settings, size, frame)
    return Found(tuple(checks), frame, caption, _stated(name, settings, size))


def _stated(item: str, settings: Sequence[Setting], size: _Size) -> tuple[Stated, ...]:
    """Return the settings that the paper states for the trainings of an item.

    It states no number of rounds; where a learning rate falls at round 800 there are as
    many.
    """
    first = settings[0]
    statements = [Stated("model", _PAPER_MODELS[_data(item)], first.model)]
    if first.decays:
        statements.append(Stated("rounds", _LAST_FALL, first.rounds, is_least=True))
    if item in ("table4", "table5"):
        statements.append(Stated("seeds", _PAPER.seeds, size.seeds, is_least=True))
    return tuple(statements)


_MODELS = {"lenet": "LeNet", "cnn": "a CNN", "vgg11": "VGG-11", "mlp": "an MLP"}
_PANELS = {
    "iid": "IID",
    "dirichlet": "non-IID (Dirichlet by class)",
    "shards_with_shared": "non-IID (sorted shards, shared set)",
    "shards": "non-IID (one sorted shard each)",
}


def _size(context: Context, item: str) -> _Size:
    if context.fast:
        return _FAST
    return _PAPER if is_own(context.images, item) else _FULL


def _setting(context: Context, item: str, split: str) -> Setting:
    """Return a panel's setting; equal ones are trained once."""
    dataset, size, data_name = context.images, _size(context, item), _data(item)
    # a CNN of 1.7 million parameters is not trained in a few rounds, nor in a minute
    # the fast size has the same layers of classes, but trains in seconds
    large = "mlp" if context.fast else "cnn"
    model = large if data_name == "mnist" else "lenet"
    if data_name == "cifar100" and is_own(dataset, item):
        model = "vgg11"
    rounds = size.cnn if data_name == "mnist" else size.lenet
    return Setting(
        panel=_PANELS[split],
        model=model,
        split=split,
        rounds=rounds,
        every=max(1, rounds // size.tests),
        batch=100 if data_name == "mnist" else 50,
        samples=DATA[data_name].samples,
        rate=_RATE if context.fast else None,
        decays=data_name != "mnist",
    )


def _frames(context: Context, settings: Sequence[Setting], size: _Size) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(
        [training.curves(context, s, size.seeds) for s in settings], ignore_index=True
    )


def _caption(
    context: Context,
    item: str,
    settings: Sequence[Setting],
    size: _Size,
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
    by_label = ", or by label (.1 for the first, .5 for the last)" if labelled else ""
    falls = (
        ", falling to .4 of itself after 40 % and 80 % of the rounds"
        if first.decays
        else ""
    )
    rates = (
        f"Learning rate {_RATE} for all schemes"
        if context.fast
        else "Learning rate of each scheme: the best of the paper's grid on one pilot "
        f"seed, a choice that the intervals leave out ({_rates(frame)})"
    )
    return (
        f"{where}. {_MODELS[first.model]}, {clients}dropout rates .1 to .5 shuffled "
        f"over the clients by each seed{by_label}, about {each:.0f} samples a client "
        f"in minibatches of {batch} (the paper: "
        f"{first.samples / first.num_clients:.0f} in {first.batch}; as many local "
        f"steps), E = 1, {size.seeds} paired seeds, {first.rounds} rounds, skipped "
        f"ones counted.{shared} {rates}{falls}. Sums in the ring of 32 bits, 2^16 "
        "levels over 16 times the last mean update's largest entry: at most "
        f"{100 * frame['most clipped'].max():.2g} % of a round's entries were "
        f"clipped.{bands(size.seeds)}"
    )


def _rates(frame: pd.DataFrame) -> str:
    parts = []
    for panel, rows in frame.groupby("panel", sort=False):
        chosen = rows.groupby("scheme", sort=False)["rate"].first()
        parts.append(
            f"{panel}: " + ", ".join(f"{s} {rate:g}" for s, rate in chosen.items())
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
