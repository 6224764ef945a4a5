"""A figure of our own: who was predicted exposed is who was recovered.

`privacy.first_exposure` is integer arithmetic on a history alone; the attack is
floating point on sums of real updates that do not change. Beside it the error that each
other client's leverage predicts. Multi-RoundSecAgg, Appendix H.2, has one history and
one scheme of each kind.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import attacks, federated, privacy, selection
from mrsa_jax._core.streams import Stream, as_key, fold
from mrsa_jax.availability import assign_rates, independent
from mrsa_papers.harness import Check, Found, Values, interval, state
from mrsa_papers.harness._context import Context, rows_to_frame
from mrsa_papers.harness._figures import SHADES, WARNING
from mrsa_papers.harness._intervals import every
from mrsa_papers.harness._items import NOT_DISCUSSED
from mrsa_papers.harness._rows import DATA
from mrsa_papers.harness._settings import shown
from mrsa_papers.multiround import _windows as played
from mrsa_papers.multiround._windows import RECOVERED, Plan, label_of, selector_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_ERROR = "relative squared error of a client"


def exposed_and_recovered(context: Context, settings: Values) -> Found:
    """Compare the clients that a history exposes with those that its sums recover."""
    lengths = settings.num_rounds
    rule = "must ascend"
    require(tuple(sorted(set(lengths))) == lengths, "num_rounds", rule, shown(lengths))
    plan = Plan.of(
        settings,
        DATA["mnist"].samples,
        lengths=lengths[-1:],
        targets=settings.privacy_targets,
        seeds=settings.num_trials,
    )
    plan.setting.experiment(context, plan.rate).check()
    context.begin()
    updates = _updates(context, plan, settings.dim)
    selectors = _selectors(plan, settings.participation_rate)
    jobs = itertools.product(selectors, (0.0, settings.loss_rate))
    rows: list[dict[str, Any]] = []
    for name, lost in context.steps("Exposure: histories to attack", jobs):
        histories = _histories(context, plan, selectors[name], lost)
        rows += _rows(name, lost, histories, updates, lengths)
    frame = rows_to_frame(rows)
    checks = [_exact(frame, kind) for kind in updates]
    checks += [
        _by_leverage(frame),
        *(_shared(frame, target) for target in settings.privacy_targets),
        _blocks(frame, settings.loss_rate),
    ]
    return Found(
        tuple(checks),
        frame,
        f"{len(frame.groupby(['scheme', 'lost', 'rounds', 'seed']))} histories of N = "
        f"{plan.num_clients}, K = {plan.cohort_size}: {', '.join(selectors)}; after "
        f"{', '.join(map(str, lengths))} rounds; cohorts whole, or each member "
        f"lost before the sum with chance {settings.loss_rate:g}, which splits blocks. "
        f"Trained updates: {plan.model} on {context.images.name}, {plan.population}, "
        f"{plan.seeds} seeds, at a model of {plan.before} rounds that does not move. "
        f"Drawn updates: {settings.dim} independent normal entries. Left: "
        "errors of those predicted exposed (modulo drawn primes) and of all others. "
        "Right: error predicted by leverage against measured, of those not exposed.",
    )


def _selectors(plan: Plan, chance: float) -> dict[str, selection.Selector]:
    n, k = plan.num_clients, plan.cohort_size
    return {
        played.RANDOM: selection.uniform(n, k),
        "Weighted random": selection.weighted(n, k),
        f"Bernoulli ({chance:g})": selection.bernoulli(n, chance),
        **{label_of(target): selector_of(n, k, target) for target in plan.targets[1:]},
    }


def _updates(context: Context, plan: Plan, dim: int) -> dict[str, np.ndarray]:
    """Return updates [trials, N, d] by kind: of trained models, and drawn."""
    rng = np.random.default_rng([context.seed, int(Stream.ATTACK)])
    trained = []
    for trial in range(plan.seeds):
        start = played.trained_start(context, plan, trial)
        updates = federated.client_updates(
            start.key,
            start.model,
            start.parameters,
            start.clients,
            start.trainer,
            mesh=context.mesh,
        )
        trained.append(np.asarray(updates, np.float64))
    drawn = rng.normal(size=(plan.seeds, plan.num_clients, dim))
    return {"trained": np.stack(trained), "drawn": drawn}


def _histories(
    context: Context, plan: Plan, selector: selection.Selector, lost: float
) -> np.ndarray:
    """Return the participation of each round, bool [trials, rounds, N]."""
    key = as_key(context.seed)
    rates = assign_rates(key, plan.dropout_rates, plan.num_clients, plan.assignment)
    whole = np.asarray(
        selection.rollout_trials(
            fold(key, int(Stream.ATTACK)),
            selector,
            independent(rates),
            plan.lengths[-1],
            plan.seeds,
        )
    )
    # each member of a cohort is lost by itself, which parts blocks
    rng = np.random.default_rng([context.seed, int(Stream.STEPS)])
    return whole & (rng.random(whole.shape) >= lost)


def _rows(
    name: str,
    lost: float,
    histories: np.ndarray,
    updates: dict[str, np.ndarray],
    lengths: tuple[int, ...],
) -> list[dict[str, Any]]:
    """Attack the beginnings of some histories; return a row for each client of each."""
    first = np.asarray(privacy.first_exposure(histories))
    rows = []
    for rounds in lengths:
        learnt = histories[:, :rounds]
        # exposure never ends, so the first round decides for every beginning
        exposed = (first >= 0) & (first < rounds)
        predicted = attacks.predicted_error(learnt)
        errors = {
            kind: attacks.streamed_errors(
                learnt, np.matmul(learnt.astype(np.float64), vectors), vectors
            )
            for kind, vectors in updates.items()
        }
        rows += [
            {
                "scheme": name,
                "lost": lost,
                "rounds": rounds,
                "seed": trial,
                "client": client,
                "exposed": bool(exposed[trial, client]),
                "predicted": predicted[trial, client].item(),
            }
            | {kind: vectors[trial, client].item() for kind, vectors in errors.items()}
            for trial, client in np.ndindex(exposed.shape)
        ]
    return rows


def confusion(exposed: np.ndarray, recovered: np.ndarray) -> tuple[float, float]:
    """Return precision and recall of a prediction.

    1 where nothing was predicted, or recovered.

    Examples:
        >>> confusion(np.array([True, True, False]), np.array([True, False, False]))
        (0.5, 1.0)
    """
    # both are counts, so equal ones give exactly 1
    both = int((exposed & recovered).sum())
    predicted, solved = int(exposed.sum()), int(recovered.sum())
    return (both / predicted if predicted else 1.0, both / solved if solved else 1.0)


def _exact(frame: pd.DataFrame, kind: str) -> Check:
    exposed, errors = frame["exposed"].to_numpy(), frame[kind].to_numpy()
    precision, recall = confusion(exposed, errors < RECOVERED)
    return state(
        f"who is predicted exposed is who is recovered, {kind} updates",
        precision == recall == 1 and 0 < int(exposed.sum()) < len(frame),
        ours=f"precision {precision:.4g}, recall {recall:.4g} of {len(frame)} clients, "
        f"{int(exposed.sum())} exposed; errors up to "
        f"{errors[exposed].max(initial=0):.1g}, of the "
        f"others from {errors[~exposed].min(initial=np.inf):.1g}",
        tolerance=f"both 1; recovered: relative squared error under {RECOVERED:g}",
        note="predicted from the history alone, modulo primes drawn at random",
    )


def _by_leverage(frame: pd.DataFrame) -> Check:
    """Judge predicted errors on drawn updates, averaged over similar predictions."""
    hidden = frame[~frame["exposed"]]
    # ten classes of predicted error; 1 belongs to the last
    levels = (hidden["predicted"] * 10).astype(int).clip(upper=9)
    means = hidden.groupby(levels)[["predicted", "drawn", "trained"]].mean()
    gaps = (means["drawn"] - means["predicted"]).abs()
    # reported and not judged: trained updates resemble each other
    trained = (means["trained"] - means["predicted"]).abs()
    return state(
        "1 - leverage is the mean error of those who are not exposed",
        bool((gaps < 0.02).all()),
        ours=(
            f"drawn updates within {gaps.max():.2g}, trained ones within "
            f"{trained.max():.2g}"
        ),
        tolerance="drawn updates: within 0.02 for each tenth of the predicted error",
        note=(
            "it is exact for unrelated updates of equal length; trained ones of a "
            "class resemble each other, and their lengths differ"
        ),
    )


def _shared(frame: pd.DataFrame, target: int) -> Check:
    """Judge the error of a block's mean instead of its T clients."""
    is_whole = (frame["lost"] == 0) & (frame["rounds"] == frame["rounds"].max())
    by_trial = frame[is_whole & (frame["scheme"] == label_of(target))].groupby("seed")
    drawn, trained = (interval(by_trial[kind].mean()) for kind in ("drawn", "trained"))
    wanted = 1 - 1 / target
    return state(
        f"blocks of T = {target}: mean error about 1 - 1/T, updates that do not change",
        every(
            (
                drawn.plus(-wanted).lies_within(0.02),
                trained.plus(-wanted).lies_within(0.2),
            )
        ),
        paper="above 1 - 1/T (Figure 9)" if target == 2 else NOT_DISCUSSED,
        ours=(
            f"drawn {drawn.text('.3g')}, trained {trained.text('.3g')}; 1 - 1/T = "
            f"{wanted:g}"
        ),
        tolerance="95 % intervals: drawn within 0.02, trained within 0.2",
        note=(
            "exact for unrelated updates of equal length, so the paper's were not; the "
            "mean of a long and a short update is far from the short one"
        )
        if target == 2
        else "",
    )


def _blocks(frame: pd.DataFrame, chance: float) -> Check:
    whole = frame[frame["scheme"].str.startswith("Multi")]
    split = float(whole[whole["lost"] > 0]["exposed"].mean())
    exposed_in_whole = int(whole[whole["lost"] == 0]["exposed"].sum())
    return state(
        "blocks expose nobody, unless their members are lost one by one",
        exposed_in_whole == 0 and split > 0,
        paper="T of Theorem 1 assumes that a block comes or stays away as one",
        ours=(
            f"{exposed_in_whole} exposed with whole blocks, {100 * split:.0f} % of the "
            f"clients where each is lost with chance {chance:g}"
        ),
        tolerance="none with whole blocks, some with split ones",
        depends=(),
    )


def draw_exposure(figure: Figure, data: pd.DataFrame) -> None:
    """Draw recovery against predicted exposure, and errors against leverage."""
    figure.set_size_inches(11.5, 4.2)
    first, right = figure.subplots(1, 2)
    _draw_recovered(first, data)
    _draw_predicted(right, data)
    first.set_title("Trained updates that do not change")
    right.set_title("Clients who are not exposed")


def _draw_recovered(ax: Axes, data: pd.DataFrame) -> None:
    """Draw errors of clients predicted exposed and of all others, as two histograms."""
    bins = np.logspace(-33, 3, 73).tolist()
    looks = ((True, "predicted exposed", WARNING), (False, "all others", SHADES[2]))
    for exposed, words, colour in looks:
        values = np.clip(
            data.loc[data["exposed"] == exposed, "trained"].dropna(), 1.1e-33, 0.9e3
        )
        label = f"{words}: {len(values)}"
        ax.hist(values, bins, color=colour, alpha=0.7, label=label, log=True)
    ax.set(xscale="log", xlabel=_ERROR, ylabel="clients", ylim=(0.6, None))
    ax.legend(fontsize=8, loc="upper center")


def _draw_predicted(ax: Axes, data: pd.DataFrame) -> None:
    """Draw measured against predicted errors of clients who are not exposed."""
    hidden = data[~data["exposed"]]
    thinned = hidden.iloc[:: max(1, len(hidden) // 2500)]
    for column, colour, marker in (
        ("trained", SHADES[1], "o"),
        ("drawn", SHADES[4], "s"),
    ):
        ax.plot(
            thinned["predicted"],
            thinned[column],
            marker,
            color=colour,
            ms=2,
            alpha=0.35,
            label=f"{column} updates",
            rasterized=True,
        )
    ax.plot([1e-3, 1], [1e-3, 1], color=WARNING, lw=1.2, label="measured = predicted")
    ax.set(xscale="log", yscale="log", xlim=(1e-3, 1.15), ylim=(1e-4, 30))
    ax.set(xlabel="predicted error, 1 \N{MINUS SIGN} leverage", ylabel=_ERROR)
    ax.legend(fontsize=8, loc="upper left", markerscale=3)
