"""Figures 1 and 10 of Multi-RoundSecAgg: from sums through least squares to images.

So, Ali, Guler, Jiao, Avestimehr, Appendix H: the server solves its sums for updates
(eq. (34)) and inverts them (Geiping et al. 2020). What it solves for is one client's
update under random selection, and under Multi-RoundSecAgg the mean of a batch of T,
which the paper inverts as if it were one client's; a better server looks for T images
at once. Here in its worst case: every client's update is one step on one image of its
own and stays the same from round to round. Labels are told from the last layer's bias,
as the server does not have them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import (
    attacks,
    availability,
    data,
    federated,
    privacy,
    quantize,
    secagg,
    selection,
)
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, fold
from mrsa_papers.harness import (
    Context,
    Values,
    image_as_cells,
    interval,
    rows_to_frame,
)
from mrsa_papers.harness._figures import MARKERS, SHADES, draw_image_grid, in_turn
from mrsa_papers.harness._items import Check, Found, state
from mrsa_papers.harness._settings import shown
from mrsa_papers.multiround._windows import selector_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

PADDED = "one padded upload"
_LEVELS, _SHOWN = 2**16, 8
# weight of the total variation: a hundred times more halves the PSNR
_SMOOTHNESS = 1e-5
_TOGETHER = (
    "a sum of T updates is known exactly, and T images can be looked for at once: how "
    "well they hide one another is a matter of inverting batches, and which of them is "
    "whose stays hidden"
)
_RECOGNISED = 18.0  # dB from which a digit is read without doubt


class _Ground(NamedTuple):
    """The clients' data and the server's model of one seed."""

    settings: Values
    seed: int
    key: Any
    model: Any
    parameters: Any
    clients: data.ClientData
    images: np.ndarray
    updates: np.ndarray


def _check(context: Context, settings: Values, targets: Sequence[int]) -> None:
    """Raise unless the clients can be parted into the item's blocks, and all are seen."""
    clients, cohort = settings.num_clients, settings.cohort_size
    rule = f"must be at most num_clients, {clients}"
    require(cohort <= clients, "cohort_size", rule, cohort)
    name = (
        "privacy_targets" if "privacy_targets" in vars(settings) else "privacy_target"
    )
    for target in targets:
        rule = f"must divide num_clients, {clients}, and cohort_size, {cohort}"
        require(clients % target == 0 == cohort % target, name, rule, target)
    held = len(context.images.train_labels)
    rule = f"must be at most {held}, the data set's training samples"
    require(clients <= held, "num_clients", rule, clients)
    # an update of which nothing is seen has no direction to invert
    rule = "must be rounds enough for every client to be in a sum"
    for seed, target in itertools.product(range(settings.num_seeds), (1, *targets)):
        is_seen = bool(_history(context.key(seed), settings, target).any(axis=0).all())
        require(is_seen, "num_rounds", rule, settings.num_rounds)


def images_from_sums(context: Context, settings: Values) -> Found:
    """Return Figures 1 and 10.

    Images from the sums of random selection and of blocks of T.
    """
    targets = settings.privacy_targets
    _check(context, settings, targets)
    context.begin()
    steps = settings.num_steps
    attack = attacks.gradient_inversion(num_steps=steps, smoothness=_SMOOTHNESS)
    rows: list[dict[str, Any]] = []
    jobs = itertools.product(range(settings.num_seeds), (1, *targets, None))
    for seed, target in context.steps("Figures 1 and 10: inversions", jobs):
        ground = _ground(context, settings, seed)
        if target is None:
            rows += _from_upload(ground, attack)
            continue
        # once per seed
        rows += _originals(ground) if target == 1 else []
        rows += _from_sums(ground, target, attack)
    frame = rows_to_frame(rows)
    caption = (
        f"{_clients_in_words(context, settings)}; the small LeNet of Zhu et al. at its "
        f"start, updates of one step, the same in all of {settings.num_rounds} rounds "
        f"with K = {settings.cohort_size} and dropout rate {settings.dropout_rate:g}, "
        f"quantized to {_LEVELS:,} levels and summed in the ring. Least squares, then "
        f"{steps:,} iterations of signed Adam on the cosine, with labels told from the "
        "last layer's bias: for one image, as the paper does, or for T of them, then "
        "matched with the originals. The paper shows one image of CIFAR-10 and prints "
        "no numbers."
    )
    return Found(tuple(_checks(frame, targets)), frame, caption)


def images_against_motion(context: Context, settings: Values) -> Found:
    """Return the quality of images from sums whose models move between rounds."""
    targets = (1, settings.privacy_target)
    steps, speeds = settings.num_steps, settings.server_rates
    rule = "must be two rates or more, falling"
    is_falling = tuple(sorted(set(speeds), reverse=True)) == speeds and len(speeds) > 1
    require(is_falling, "server_rates", rule, shown(speeds))
    _check(context, settings, targets[1:])
    context.begin()
    attack = attacks.gradient_inversion(num_steps=steps, smoothness=_SMOOTHNESS)
    rows: list[dict[str, Any]] = []
    jobs = itertools.product(range(settings.num_seeds), (None, *speeds), targets)
    for seed, rate, target in context.steps("images against motion: inversions", jobs):
        ground = _ground(context, settings, seed)
        rows += _from_moving_sums(ground, target, rate, attack)
    frame = rows_to_frame(rows)
    caption = (
        f"{_clients_in_words(context, settings)}; the small LeNet trained over "
        f"{settings.num_rounds} rounds, all of them one window, by a server that adds "
        f"{speeds[-1]:g} to {speeds[0]:g} of the mean update; {steps:,} iterations on "
        f"the estimates of least squares, for T images (T = 1 and {targets[1]}). "
        "Motion: mean squared distance of a client's updates from their mean, relative "
        "to its square. Dashed: updates that never change."
    )
    return Found(tuple(_motion_checks(frame, targets)), frame, caption)


def _clients_in_words(context: Context, settings: Values) -> str:
    clients, seeds = settings.num_clients, settings.num_seeds
    return f"{context.images.name} ({clients} clients of one image, {seeds} seeds)"


def _from_moving_sums(
    ground: _Ground, target: int, rate: float | None, attack: attacks.Attack
) -> list[dict[str, Any]]:
    played = _played(ground, target, rate)
    solved = attacks.least_squares(played.view.participation, played.view.aggregates)
    errors = attacks.reconstruction_error(played.sent, solved)
    motion = np.zeros(len(errors)) if rate is None else played.change
    blocks, images = _inverted_blocks(ground, solved, target, attack)
    rows = _scored(ground, f"T = {target}", blocks, images, is_shown=False)
    return [
        row
        | {
            "target": target,
            "rate": rate or 0.0,
            "error": float(errors[row["client"]]),
            "motion": float(motion[row["client"]]),
        }
        for row in rows
    ]


def _motion_checks(frame: pd.DataFrame, targets: tuple[int, ...]) -> Iterator[Check]:
    fastest = frame["rate"].max()
    slowest = frame.loc[frame["rate"] > 0, "rate"].min()

    def by_seed(rate: float, target: int) -> np.ndarray:
        rows = frame[(frame["rate"] == rate) & (frame["target"] == target)]
        return rows.groupby("seed")["psnr"].mean().to_numpy()

    for target in targets:
        still = by_seed(0.0, target)
        lost = interval(still - by_seed(fastest, target))
        near = interval(still - by_seed(slowest, target))
        # mean over all clients and seeds
        moved = frame[(frame["rate"] == fastest) & (frame["target"] == target)][
            "motion"
        ].mean()
        yield state(
            f"moving models leak less, T = {target}",
            lost.exceeds(0),
            paper="the guarantee becomes even stronger when models change (Remark 3)",
            ours=f"PSNR {lost} dB lower at a motion of {moved:.2g}",
            tolerance="a 95 % interval above 0, paired seeds",
        )
        yield state(
            f"models that hardly move are the worst case, T = {target}",
            (-near).exceeds(-3),
            paper="models that do not change are the worst case (Remark 3)",
            ours=(
                f"PSNR {near} dB lower where the server adds {slowest:g} of the update"
            ),
            tolerance="at most 3 dB lower, 95 % interval over paired seeds",
        )


def _ground(context: Context, settings: Values, seed: int) -> _Ground:
    made = functools.partial(_new_ground, context, settings, seed)
    names = ("num_clients", "cohort_size", "num_rounds", "dropout_rate")
    given = tuple(settings[name] for name in (*names, "learning_rate"))
    return context.once(("ground", seed, given), made)


def _new_ground(context: Context, settings: Values, seed: int) -> _Ground:
    dataset, count = context.images, settings.num_clients
    key = context.key(seed)
    # a client per sample, of which the first are taken
    clients = data.iid(
        fold(key, int(Stream.PARTITION)), dataset, len(dataset.train_labels)
    )
    chosen = np.asarray(clients.indices)[:count, 0]
    images, labels = dataset.train_inputs[chosen], dataset.train_labels[chosen]
    low, high = float(images.min()), float(images.max())
    # PSNR is defined for values in [0, 1]
    images = ((images - low) / (high - low)).astype(np.float32)
    dealt = data.ClientData(
        inputs=on_device(images),
        labels=on_device(labels, jnp.int32),
        indices=jnp.arange(count, dtype=jnp.int32)[:, None],
        sizes=jnp.ones(count, jnp.int32),
        num_classes=dataset.num_classes,
    )
    model = federated.smooth_lenet(dataset.num_classes)
    parameters = federated.initial_parameters(key, model, images.shape[1:])
    trainer = federated.local_sgd(model, settings.learning_rate, batch_size=1)
    updates = np.asarray(
        federated.client_updates(key, model, parameters, dealt, trainer)
    )
    return _Ground(settings, seed, key, model, parameters, dealt, images, updates)


def _history(key: Any, settings: Values, target: int) -> np.ndarray:
    """Return the participation of a seed's rounds."""
    selector = selector_of(settings.num_clients, settings.cohort_size, target)
    online = availability.independent(settings.dropout_rate)
    return np.asarray(selection.rollout(key, selector, online, settings.num_rounds))


def _played(ground: _Ground, target: int, rate: float | None) -> Any:
    """Return all rounds' sums; of updates that never change where the rate is None."""
    settings = ground.settings
    history = _history(ground.key, settings, target)
    # updates of a model that moves may grow
    # nothing may be clipped, which would be another experiment
    clip = float(np.abs(ground.updates).max()) * (1.001 if rate is None else 3)
    words = np.asarray(jax.random.key_data(ground.key))
    aggregator = secagg.ring_average(
        quantize.stochastic(_LEVELS, clip),
        settings.cohort_size,
        ground.updates.shape[1],
        key_material=f"reproduce images {target} {rate} {words.tolist()}".encode(),
    )
    return attacks.summed_rounds(
        ground.key,
        ground.model,
        ground.parameters,
        ground.clients,
        history,
        trainer=federated.local_sgd(ground.model, settings.learning_rate, batch_size=1),
        aggregator=aggregator,
        is_frozen=rate is None,
        server_rate=rate or 0.0,
    )


def _from_sums(
    ground: _Ground, target: int, attack: attacks.Attack
) -> list[dict[str, Any]]:
    """Return a row for each client: how well its image comes out of the sums."""
    seen = _played(ground, target, None).view
    solved = attacks.least_squares(seen.participation, seen.aggregates)
    errors = attacks.reconstruction_error(ground.updates, solved)
    exposed = privacy.first_exposure(seen.participation) >= 0
    # least squares of least norm gives each of a block the block's estimated mean
    rows = _scored(ground, _name(target), *_inverted_blocks(ground, solved, 1, attack))
    if target > 1:
        both = _inverted_blocks(ground, solved, target, attack)
        rows += _scored(ground, _name(target, together=True), *both)
    return [
        row
        | {
            "target": target,
            "error": float(errors[row["client"]]),
            "exposed": bool(exposed[row["client"]]),
        }
        for row in rows
    ]


def _inverted_blocks(
    ground: _Ground, solved: np.ndarray, target: int, attack: attacks.Attack
) -> tuple[np.ndarray, np.ndarray]:
    """Return the members of each block of T, and the T images behind its mean."""
    # batch partitioning's blocks are neighbours
    blocks = np.arange(len(ground.images)).reshape(-1, target)
    # estimates within a block are equal up to rounding
    means = np.asarray([solved[block].mean(axis=0) for block in blocks])
    view = attacks.views.UpdateView(
        ground.model,
        ground.parameters,
        ground.images.shape[1:],
        ground.clients.num_classes,
        on_device(means, jnp.float32),
        target,
    )
    images = attack.run(jax.random.fold_in(ground.key, int(Stream.ATTACK)), view).images
    return blocks, images  # [blocks, images of a block, ...]


def _from_upload(ground: _Ground, attack: attacks.Attack) -> list[dict[str, Any]]:
    """Return the same for what each client sends under its pads."""
    # just above the largest entry, so that nothing is clipped
    clip = float(np.abs(ground.updates).max()) * 1.001
    quantizer = quantize.stochastic(_LEVELS, clip)
    sent = attacks.wire_round(
        ground.key, ground.updates, quantizer, modulus_bits=20
    ).padded
    seen = _inverted_blocks(ground, attacks.read_models(sent), 1, attack)
    return _scored(ground, PADDED, *seen)


def _scored(
    ground: _Ground,
    name: str,
    blocks: np.ndarray,
    images: np.ndarray,
    *,
    is_shown: bool = True,
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for block, inverted in zip(blocks, images, strict=True):
        truth = ground.images[block]
        # which of T images belongs to whom the sums cannot tell
        best = inverted[attacks.matched_images(inverted, truth)]
        scores = (
            attacks.psnr(best, truth),
            attacks.mean_squared_error(best, truth),
            attacks.ssim(best, truth),
        )
        for client, image, psnr, error, likeness in zip(
            block, best, *scores, strict=True
        ):
            row: dict[str, Any] = {
                "seed": ground.seed,
                "seen": name,
                "client": int(client),
                "psnr": float(psnr),
                "mse": float(error),
                "ssim": float(likeness),
            }
            # images of the first seed only: each is many cells of the table
            if is_shown and ground.seed == 0 and client < _SHOWN:
                row |= image_as_cells(image)
            rows.append(row)
    return rows


def _originals(ground: _Ground) -> list[dict[str, Any]]:
    """Return the originals in the figure, and the guess of a blind server."""
    mean = np.broadcast_to(ground.images.mean(axis=0), ground.images.shape)
    rows = _scored(
        ground, "mean of all images", np.arange(len(mean))[:, None], mean[:, None]
    )
    if ground.seed == 0:
        clients_shown = range(min(_SHOWN, len(mean)))
        rows += [
            {
                "seed": 0,
                "seen": "original",
                "client": c,
                **image_as_cells(ground.images[c]),
            }
            for c in clients_shown
        ]
    return rows


def _name(target: int, *, together: bool = False) -> str:
    if target == 1:
        return "random selection (T = 1)"
    return (
        f"T = {target}, for {target} images"
        if together
        else f"T = {target}, for one image"
    )


def _checks(frame: pd.DataFrame, targets: tuple[int, ...]) -> Iterator[Check]:
    def by_seed(name: str, column: str = "psnr") -> np.ndarray:
        return frame[frame["seen"] == name].groupby("seed")[column].mean().to_numpy()

    single = by_seed(_name(1))
    random = frame[frame["seen"] == _name(1)]
    guess = by_seed("mean of all images")
    yield state(
        "images from the sums of random selection",
        interval(single).exceeds(_RECOGNISED),
        paper="reconstructed (Fig. 1)",
        ours=f"PSNR {interval(single)} dB; updates to a mean squared error of "
        f"{random['error'].mean():.1e}; {int(random['exposed'].sum())} of "
        f"{len(random)} "
        "clients predicted exposed",
        tolerance=f"a mean PSNR over {_RECOGNISED:g} dB, 95 % interval over seeds",
    )
    for target in targets:
        exposed = int(frame[frame["seen"] == _name(target)]["exposed"].sum())
        for together in (False, True):
            block_scores = by_seed(_name(target, together=together))
            # paired by seed
            less, over = interval(single - block_scores), interval(block_scores - guess)
            number = f"{target} images" if together else "one image, as the paper does"
            yield state(
                f"random selection leaks much more than T = {target}, inverted for "
                f"{number}",
                less.exceeds(3),
                paper="much more (Fig. 1, 10)",
                ours=(
                    f"PSNR {less} dB higher; T = {target}: {interval(block_scores)} "
                    f"dB, {over} above guessing the mean image; {exposed} clients "
                    "predicted exposed"
                ),
                tolerance=(
                    "by 3 dB (half the squared error), 95 % interval over paired seeds"
                ),
                note=_TOGETHER if together else "",
            )
    padded = interval(by_seed(PADDED) - guess)
    yield state(
        "the attack on one padded upload",
        (-padded).exceeds(0),
        paper="pads are uniform: nothing",
        ours=f"PSNR {padded} dB against guessing the mean image",
        tolerance="below the guess, 95 % interval over paired seeds",
    )


def draw_images(figure: Figure, data: pd.DataFrame) -> None:
    """Draw inverted images next to the originals, one row per kind of view."""
    first = data.sort_values("seen", key=lambda seen: seen != "original", kind="stable")
    draw_image_grid(
        figure, first, "seen", "client", "psnr", lambda row: f"{row['psnr']:.1f} dB"
    )


def draw_motion(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the quality of recovered images against motion, one curve per T."""
    for _, rows, look in in_turn(data, "seen", color=SHADES[::-2], marker=MARKERS):
        seeds = rows.groupby(["rate", "seed"])[["motion", "psnr"]].mean()
        still, moving = seeds.loc[[0.0]], seeds.drop(index=0.0, level="rate")
        middle = moving.groupby("rate").mean()
        ax.plot(middle["motion"], middle["psnr"], lw=1.4, ms=5, **look)
        ax.plot(
            moving["motion"],
            moving["psnr"],
            ls="",
            ms=2.5,
            alpha=0.4,
            **look | {"label": ""},
        )
        ax.axhline(float(still["psnr"].mean()), color=look["color"], ls="--", lw=0.9)
    ax.legend(fontsize=8)
