"""CCESA's Tables 3 and B.1.

Membership inference on what clients send, plain, padded and summed.
Choi, Sohn, Han, Moon, Section 5.3 and Appendix B.2: is a sample among those that a
client trained on (Shokri et al. 2017)? Open readings, stated in the item: the attack's
model, p, the rounds, and that members are those of the client whose model is overheard.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from mrsa_jax import attacks, data, federated, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, host_generator, round_key
from mrsa_papers.ccesa._guesses import Guesses, Method, curve_rows, score_rows
from mrsa_papers.ccesa._training import are_photographs, resolved_model
from mrsa_papers.ccesa._wire import PLAIN, SECAGG, Wire, ccesa_name, chance_check, wire
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    is_data_of,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import LINES, in_turn, log_ticks
from mrsa_papers.harness._rows import printed_in
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_STYLES: tuple[Any, ...] = (*LINES, (0, (1, 1)))
_LUCK = "#777777"

# n_train: accuracy and precision of FedAvg, SecAgg and CCESA, in percent
_PRINTED = {int(n): rows for n, rows in printed_in("ccesa")["membership"].items()}
_AREA_CLOSE = 0.05  # of an area to 0.5: a tenth of the way to certainty
_LEAST = 5  # samples of a client
_METHODS: dict[Method, str] = {
    "shadow": "shadow models",
    "loss": "loss threshold",
    "likelihood_ratio": "likelihood ratio",
}


def members(context: Context, settings: Values) -> Found:
    """Return Tables 3 and B.1: who can tell a client's samples from others."""
    dataset = context.images
    model = resolved_model(context, settings)
    if not settings.num_epochs:
        settings.resolve(num_epochs=3 if are_photographs(context) else 60)
    number, sums = settings.num_clients, settings.sum_sizes
    rule = f"must divide the {number} clients"
    require(all(number % size == 0 for size in sums), "sum_sizes", rule, sums)
    sizes = _sizes(settings, dataset)
    federated.num_parameters(model, dataset.input_shape)  # or it raises
    context.begin()
    jobs = itertools.product(sizes, range(settings.num_seeds))
    guesses: list[Guesses] = []
    for size, seed in context.steps(
        "membership: clients, shadow models and attacks", jobs
    ):
        is_smallest = size == min(sizes)
        guesses += _attacked(
            context, settings, model, size, seed, is_smallest=is_smallest
        )
    curves = curve_rows(guesses, "likelihood_ratio")
    measures = (("scores", score_rows(guesses)), ("curve", curves))
    frame = rows_to_frame(
        row
        for measure, rows in measures
        for row in _labelled(measure, rows, sizes, settings, dataset)
    )
    scores = frame[frame["measure"] == "scores"]
    caption = _caption(sizes, settings, dataset)
    return Found(tuple(_checks(scores, settings)), frame, caption)


def _sizes(settings: Values, dataset: data.Dataset) -> dict[int, int]:
    """Return the paper's n_train by the samples of a client here.

    They are the paper's shares of CIFAR-10's 50,000 samples.
    """
    number, count = settings.num_clients, len(dataset.train_labels)
    # leaves others for the attack
    # a client's samples, those of as many non-members, and two shadow sets must fit
    most = (count + len(dataset.test_labels)) // (number + 3)
    # the paper's share of the data for each client; small data sets merge sizes
    sizes = {min(count * n // 50_000 // number, most): n for n in settings.num_train}
    sizes = {size: n for size, n in sizes.items() if size >= _LEAST}
    rule = f"must leave each of {number} clients {_LEAST} training samples"
    require(len(sizes) > 0, "dataset", rule, dataset.name, f"{count} samples")
    return sizes


def _attacked(
    context: Context,
    settings: Values,
    model: Any,
    size: int,
    seed: int,
    *,
    is_smallest: bool,
) -> list[Guesses]:
    """Train clients of one size, overhear their first models, and attack them."""
    key = jax.random.fold_in(context.key(seed), size)
    dataset = context.images
    trainer = federated.local_sgd(
        model,
        settings.learning_rate,
        batch_size=settings.batch_size,
        num_epochs=settings.num_epochs,
        momentum=settings.momentum,
    )
    names, view, num_others = _overheard(key, dataset, size, model, trainer, settings)
    places = _places(size, num_others, settings.num_clients)
    guesses = []
    for method in _METHODS:
        is_ratio = method == "likelihood_ratio"
        # it needs many shadow models: the smallest set only
        if is_ratio and not is_smallest:
            continue
        count = settings.num_ratio_shadows if is_ratio else settings.num_shadows
        attack = attacks.membership(
            method, trainer, num_shadows=count, shadow_size=size
        )
        got = attack.run(round_key(key, 0, Stream.ATTACK), view)
        guesses += [
            Guesses(
                size, name, method, np.take_along_axis(scores, places, 1), got.threshold
            )
            for name, scores in zip(names, got.scores, strict=True)
        ]
    return guesses


def _overheard(
    key: Key[Array, ""],
    dataset: data.Dataset,
    size: int,
    model: Any,
    trainer: federated.LocalSGD,
    settings: Values,
) -> tuple[tuple[str, ...], attacks.views.MembershipView, int]:
    """Return the names of the overheard models, and the adversary's view of samples.

    Training and test samples are dealt to the clients, to those who are asked about
    though nobody trained on them (as many, where there are so many) and to the
    adversary.
    """
    inputs = jnp.concatenate(
        [on_device(dataset.train_inputs), on_device(dataset.test_inputs)]
    )
    pair = (dataset.train_labels, dataset.test_labels)
    labels = jnp.concatenate([on_device(each, jnp.int32) for each in pair])
    order = host_generator(key, Stream.PARTITION).permutation(len(labels))
    # the first samples are members, the next are asked about, the rest is the
    # adversary's
    number = settings.num_clients
    held = number * size
    # a small data set leaves fewer non-members than members
    num_others = min(held, len(order) - held - 2 * size)
    clients = data.ClientData(
        inputs=inputs,
        labels=labels,
        indices=on_device(order[:held].reshape(number, size), jnp.int32),
        sizes=jnp.full(number, size, jnp.int32),
        num_classes=dataset.num_classes,
    )
    start = federated.initial_parameters(key, model, dataset.input_shape)
    updates = federated.client_updates(key, model, start, clients, trainer)
    line = wire(key, start[None, :] + updates, (settings.connection_probability,))
    seen = _seen(line, settings.sum_sizes)
    candidates, shadows = np.split(order, [held + num_others])
    view = attacks.views.MembershipView(
        model,
        on_device(np.stack(list(seen.values()))),
        start,
        dataset.input_shape,
        dataset.num_classes,
        inputs[candidates],
        labels[candidates],
        inputs[shadows],
        labels[shadows],
    )
    return tuple(seen), view, num_others


def _seen(line: Wire, sums: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the models of each kind, [targets, d].

    For each client its own or its sum's mean.
    """
    models = {PLAIN: line.read(PLAIN)}
    # each client of a sum is attacked through the sum's mean
    models |= {
        _sum_name(size): np.repeat(line.means(size), size, axis=0) for size in sums
    }
    hidden = (name for name in line.uploads if name != PLAIN)
    return models | {name: line.read(name) for name in hidden}


def _sum_name(size: int) -> str:
    return f"sum of {size}"


def sum_size(scheme: str) -> int:
    """Return the number of clients in an overheard model; 0 for padded ones.

    Examples:
        >>> sum_size("sum of 4"), sum_size("SecAgg")
        (4, 0)
    """
    if scheme == PLAIN:
        return 1
    words, _, size = scheme.rpartition(" ")
    return int(size) if words == "sum of" else 0


def _places(
    size: int, num_others: int, num_clients: int
) -> Int[np.ndarray, "targets candidates"]:
    """Return the places of each client's samples, and of equally many of no client."""
    first = size * np.arange(num_clients)[:, None]
    samples = first + np.arange(size)
    # others are repeated where there are fewer of them than members
    return np.concatenate([samples, num_clients * size + samples % num_others], axis=1)


def _labelled(
    measure: str,
    rows: list[dict[str, Any]],
    sizes: Mapping[int, int],
    settings: Values,
    dataset: data.Dataset,
) -> Iterator[dict[str, Any]]:
    """Yield rows with the names of the tables and the printed values for these data."""
    columns = (PLAIN, SECAGG, ccesa_name(settings.connection_probability))
    is_own = settings.are_papers and is_data_of(dataset, "cifar10")
    for row in rows:
        size, method, scheme = (row.pop(name) for name in ("size", "method", "scheme"))
        printed_size = sizes[size]
        has_print = is_own and method == "shadow" and scheme in columns
        printed = (
            _PRINTED[printed_size][columns.index(scheme)]
            if has_print and printed_size in _PRINTED
            else (math.nan, math.nan)
        )
        yield {
            "measure": measure,
            "n_train": settings.num_clients * size,
            "printed n_train": printed_size,
            "scheme": scheme,
            "method": _METHODS[method],
            **row,
            "printed": printed[0],
            "printed precision": printed[1],
        }


def _checks(scores: pd.DataFrame, settings: Values) -> Iterator[Check]:
    """Yield the claims of both tables, on recall, and on all attacks under pads."""
    shadow_scores = scores[scores["method"] == _METHODS["shadow"]]
    hidden = (SECAGG, ccesa_name(settings.connection_probability))
    for what, hits, trials, printed in (
        ("accuracy", "right", "trials", "printed"),
        ("precision", "hits", "called", "printed precision"),
    ):
        for scheme in (PLAIN, *hidden):
            rows = shadow_scores[
                (shadow_scores["scheme"] == scheme) & (shadow_scores[trials] > 0)
            ]
            words = "random guess" if scheme in hidden else "better than a guess"
            paper = (
                ", ".join(f"{value:.2f} %" for value in rows[printed].dropna()) or words
            )
            # the note on sums stands with one claim only
            is_first = what == "accuracy" and scheme == PLAIN
            yield chance_check(
                f"{what} of the attack, {scheme}",
                list(
                    zip(rows[hits].astype(int), rows[trials].astype(int), strict=True)
                ),
                0.5,
                is_hidden=scheme in hidden,
                paper=paper,
                labels=[f"n_train = {n}: " for n in rows["n_train"]],
                note=_sums_note(scores, settings.sum_sizes) if is_first else "",
            )
    yield _recall(shadow_scores)
    yield _areas(scores[scores["scheme"].isin(hidden)])


def _sums_note(scores: pd.DataFrame, sums: Sequence[int]) -> str:
    """Say what the attacks make of sums, at the smallest training set."""
    first = scores[scores["n_train"] == scores["n_train"].min()]
    names = [PLAIN, *map(_sum_name, sums)]
    parts = [
        f"{method}: "
        + ", ".join(
            f"{rows.set_index('scheme').loc[name, 'auc']:.2f}" for name in names
        )
        for method, rows in first.groupby("method", sort=False)
    ]
    ratio = first[first["method"] == _METHODS["likelihood_ratio"]].set_index("scheme")
    words = ", ".join(
        f"{100 * ratio.loc[name, 'found at 0.1 %']:.1f} %" for name in names
    )
    return (
        f"area under the curve for T = 1, {', '.join(map(str, sums))} at the smallest "
        f"set: {'; '.join(parts)}. Members found at 0.1 % false positives by "
        f"likelihood ratio: {words}"
    )


def _recall(shadow_scores: pd.DataFrame) -> Check:
    """Judge the recall that both tables imply for FedAvg, at equal numbers.

    With r found and f of the others called, accuracy is (1 + r - f) / 2 and precision r
    / (r + f).
    """
    # accuracy gives r - f, and precision f / r; both together give r
    implied = [
        100 * (2 * accuracy - 100) / 100 / (1 - (100 - precision) / precision)
        for (accuracy, precision), *_ in _PRINTED.values()
    ]
    ours = shadow_scores[shadow_scores["scheme"] == PLAIN]["recall"]
    return state(
        "recall of the attack, FedAvg, by Tables 3 and B.1",
        min(implied) >= 90,
        depends=(),
        paper="close to 1",
        ours=", ".join(f"{value:.1f} %" for value in implied),
        tolerance="at least 90 %",
        otherwise="paper errs",
        of_data=False,
        note=(
            "members and others are as many: accuracy (1 + r - f)/2 and precision r/(r "
            "+ f) give the recall r. In our runs: "
            f"{', '.join(f'{100 * value:.1f} %' for value in ours)}"
        ),
    )


def _areas(hidden: pd.DataFrame) -> Check:
    """Judge all three attacks on padded models, whatever their thresholds."""
    off = (hidden["auc"] - 0.5).abs()
    half = hidden["auc half at 99.9 %"]
    # at chance by the interval, and narrow enough to show it
    within = off <= half
    is_narrow = bool((off + half <= _AREA_CLOSE).all())
    worst = hidden.iloc[int(off.to_numpy().argmax())]
    return state(
        "area under the curve, padded, all attacks and training sets",
        False if not within.all() else True if is_narrow else None,
        paper="random guess",
        ours=f"{within.sum()} of {len(hidden)} at chance; furthest {worst['auc']:.3f} "
        f"+- {worst['auc half at 99.9 %']:.3f} ({worst['method']}, {worst['scheme']}, "
        f"n_train = {worst['n_train']:.0f})",
        tolerance="0.5 within the 99.9 % interval over models, and its ends within "
        f"{_AREA_CLOSE:g} of it",
    )


def _caption(sizes: Mapping[int, int], settings: Values, dataset: data.Dataset) -> str:
    number, ratio = settings.num_clients, settings.num_ratio_shadows
    words = ", ".join(
        f"{number * size} ({paper:,} in the paper)" for size, paper in sizes.items()
    )
    return (
        f"{dataset.name} (CIFAR-10 in the paper): {number} clients (10 in the paper; "
        f"12 make even sums), n_train = {words}: its shares of the data set. Model "
        f"{settings.model}, {settings.num_epochs} local epochs, rate "
        f"{settings.learning_rate:g}, momentum {settings.momentum:g}, batch "
        f"{settings.batch_size}. Overheard are the models of the first round, "
        f"{settings.num_seeds} seeds, each client attacked with its own samples and as "
        f"many that nobody trained on. Shadow models: {settings.num_shadows} of the "
        f"adversary's own samples, {ratio} for the likelihood ratio (smallest "
        f"n_train alone; about {ratio // (2 * number)} saw each "
        "sample that is asked about, so it is weaker than one of hundreds of models). "
        "Padded models are read as if they had no pads; CCESA at p = "
        f"{settings.connection_probability:g} (at n = {number} p* is "
        f"{secagg.connection_probability(number, 0.0):.2f}). Thresholds are fitted to "
        "single models, so for sums read the area. "
        "Intervals: Clopper-Pearson (left) and Student's over models (middle), 95 %; "
        "grey: where curves lie by luck."
    )


def draw_members(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy by training set, areas by size of the sum, and curves."""
    figure.set_size_inches(14.5, 4.3)
    first, middle, right = figure.subplots(1, 3)
    scores = data[data["measure"] == "scores"]
    main = scores[scores["method"] == "shadow models"]
    _draw_accuracy(first, main[main["scheme"].map(sum_size) <= 1])
    sizes = scores["scheme"].map(sum_size)
    smallest = scores["n_train"] == scores["n_train"].min()
    sums = scores.assign(size=sizes)[(sizes > 0) & smallest]
    _draw_areas(middle, sums)
    _draw_roc(right, data[data["measure"] == "curve"])
    first.set_title("Shadow models")
    middle.set_title("Sums of T, smallest training set")
    right.set_title("Likelihood ratio, smallest training set")


def _draw_accuracy(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the share of candidates told right for each size of the training set."""
    count = data["scheme"].nunique()
    sizes = sorted(data["n_train"].unique())
    schemes = in_turn(data, "scheme", color=_COLOURS, marker=_MARKERS)
    for k, (_, scores_of_scheme, look) in enumerate(schemes):
        rows = scores_of_scheme.set_index("n_train").reindex(sizes)
        places = np.arange(len(sizes)) + 0.2 * (k - (count - 1) / 2)
        middle, low, high = (
            100 * rows[name] for name in ("accuracy", "lower", "upper")
        )
        reach = [middle - low, high - middle]
        ax.errorbar(
            places, middle, yerr=reach, ls="none", capsize=3, ms=6, lw=1.4, **look
        )
        ax.plot(
            places,
            rows["printed"],
            ls="none",
            marker="_",
            ms=14,
            mew=2,
            color=look["color"],
            alpha=0.55,
        )
    if data["printed"].notna().any():
        ax.plot(
            [], [], ls="none", marker="_", ms=12, mew=2, color=_LUCK, label="printed"
        )
    ax.axhline(50, color=_LUCK, lw=0.9, ls=":")
    ax.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    ax.set(xlabel="training samples of all clients", ylabel="candidates told right (%)")
    ax.set(ylim=(40, 102), xlim=(-0.5, len(sizes) - 0.5))
    ax.grid(axis="x", visible=False)
    ax.legend(loc="upper right")


def _draw_areas(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the area under the curve over how many clients are in a sum."""
    for _, rows, look in in_turn(
        data, "method", color=_COLOURS, marker=_MARKERS, ls=_STYLES
    ):
        curve = rows.sort_values("size")
        reach = [curve["auc"] - curve["auc low"], curve["auc high"] - curve["auc"]]
        ax.errorbar(
            curve["size"], curve["auc"], yerr=reach, ms=6, lw=1.4, capsize=3, **look
        )
    ax.axhline(0.5, color=_LUCK, lw=0.9, ls=":")
    ax.set_xscale("log", base=2)
    log_ticks(ax, data["size"])
    ax.set(
        xlabel="clients in the sum, T", ylabel="area under the curve", ylim=(0.45, 1.02)
    )
    ax.legend(loc="upper right")


def _draw_roc(ax: Axes, data: pd.DataFrame, lowest: float = 1e-3) -> None:
    """Draw the share of members found over false alarms, on log axes."""
    for _, rows, look in in_turn(data, "scheme", color=_COLOURS, ls=_STYLES):
        # points at 0 have no place on log axes
        curve = rows[(rows["fpr"] >= lowest) & (rows["tpr"] >= lowest)].sort_values(
            "fpr"
        )
        ax.plot(curve["fpr"], curve["tpr"], **look)
    if "chance low" in data:
        band = data[data["scheme"] == data["scheme"].iloc[0]].sort_values("fpr")
        ends = (
            band[name].clip(lower=lowest / 10) for name in ("chance low", "chance high")
        )
        ax.fill_between(band["fpr"], *ends, color=_LUCK, alpha=0.2, lw=0)
    ax.plot([lowest, 1], [lowest, 1], color=_LUCK, lw=0.9, ls=":", label="chance")
    ax.set(xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.15))
    ax.set(xlabel="false positives (log axis)", ylabel="members found (log axis)")
    ax.legend(loc="lower right")
