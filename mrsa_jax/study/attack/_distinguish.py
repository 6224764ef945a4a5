"""Whether a client's updates were shifted.

How often the best test is right, and the formula.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Key

from mrsa_jax import attacks, privacy
from mrsa_jax._core import gaussian as _gaussian
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once, map_tiles
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attack._recorded import labelled_history, noise_of, settings_of
from mrsa_jax.study.attacks_on_sums import DistinguishConfig
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.settings._parts import build, load_data
from mrsa_jax.study.stores._store import measured_spread
from mrsa_watch._base.errors import require

_Scores = tuple[np.ndarray, np.ndarray]
_COPIES = 4  # of a client's update while it is trained


def run(config: DistinguishConfig, report: AttackFindings, progress: Progress) -> None:
    """Play the best test with and without a shift, for each scheme and client."""
    report.title = (
        "Distinguishing: was a client's update shifted? The best test, and the formula"
    )
    for label, history in _histories(config):
        warm_up = config.warm_up if config.run is None else 0
        attacked = history[warm_up:]
        require(
            bool(attacked.any()),
            "rounds",
            "must leave a round with a sum",
            config.rounds,
        )
        # only the attacked rounds count: the server knows the model after the warm-up
        among = np.asarray(privacy.hidden_among(attacked, noise=config.noise))
        chosen = {name: client_of(among, name) for name in config.clients}
        for kind in config.others:
            is_drawn = kind == "gaussian"
            # trainings without a shift serve all clients; each shifted client needs its
            # own
            total = len(chosen) if is_drawn else (1 + len(chosen)) * config.trainings
            progress.stage(f"{label}: {kind} updates", total)
            play = _simulated if is_drawn else _Trained(config, history, progress)
            if isinstance(play, _Trained):
                report.sentences.append(f"{label}: {play.words()}")
            for done, (name, client) in enumerate(chosen.items()):
                attack, scores = play(config, attacked, client)
                head = {"scheme": label, "others": kind, "whose": name}
                unchanged = privacy.distinguishability(
                    attacked, config.shift, noise=config.noise
                )
                more = {
                    "client": client,
                    "sums": int(attacked.any(axis=1).sum()),
                    "hidden_among": float(among[client]),
                    "formula_mu": float(unchanged.mu[client]),
                }
                score(
                    config.false_positive_rates,
                    report,
                    head,
                    more,
                    attack.test(attacked).mu,
                    scores,
                )
                if is_drawn:
                    progress.update(done + 1, total)
    report.sentences += [*found_words(report)]
    report.sentences += [text_of("distinguish_mu"), text_of("distinguish_rates")]


def _histories(config: DistinguishConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Go through the histories that are attacked: a recorded run's, or simulated."""
    if config.run is not None:
        labelled = labelled_history(config.run)
        _check_noise(config, config.run)
        yield labelled
    else:
        yield from config.histories(config.warm_up + config.rounds)


def _check_noise(config: DistinguishConfig, folder: pathlib.Path) -> None:
    """Refuse to take the sums of a run with noise for sums without."""
    noise = noise_of(folder)
    if noise == 0 or config.noise > 0:
        return
    spread = measured_spread(folder)
    known = (
        f"{(noise / spread) ** 2:.3g} as measured"
        if spread > 0
        else "a training with --measure-drift measures the spread"
    )
    rule = (
        f"must be set for a run with noise: {noise:.3g}**2 over the squared spread of "
        f"an update's entries ({known})"
    )
    require(False, "noise", rule, config.noise)


def client_of(figures: np.ndarray, name: str) -> int:
    """Return the client of the least figure, or the median one; inf: took no part."""
    # rounded, so that rounding does not choose among clients of one block; nan goes to
    # the end
    finite = np.where(np.isinf(figures), np.nan, figures.round(9))
    order = np.argsort(finite, kind="stable")
    count = int(np.isfinite(figures).sum())
    # the lower median, so that it is a client that exists
    return int(order[0 if name == "worst" else (count - 1) // 2])


def _simulated(
    config: DistinguishConfig, attacked: np.ndarray, client: int
) -> tuple[attacks.Distinguish, _Scores]:
    attack = attacks.distinguish(client, config.shift, noise=config.noise)
    key = fold(_stage.stream(config, Stream.ATTACK), client)
    return attack, attack.play(key, attacked, config.trials)


def score(
    rates: Sequence[float],
    report: AttackFindings,
    head: dict[str, Any],
    more: dict[str, Any],
    mu: float,
    scores: _Scores,
) -> None:
    """Add a row of the summary, and one for each rate of false positives."""
    from scipy import special

    (without, shifted), inside = scores, 0
    # a score is standard normal without the shift, and moved by mu with it
    for rate in rates:
        # the quantile of a standard normal that `rate` of its draws exceed
        threshold = -float(special.ndtri(rate))
        hits = int((shifted > threshold).sum())
        low, high = binomial_interval(hits, len(shifted))
        formula = float(_gaussian.true_positive_rate(mu, rate))
        inside += low <= formula <= high
        measured = {
            "mu": mu,
            "fpr": rate,
            "measured_fpr": float((without > threshold).mean()),
            "tpr": hits / len(shifted),
            "lower": low,
            "upper": high,
            "formula": formula,
        }
        report.scores.append(head | measured)
    ordered = np.sort(without)  # ties, of those who are exposed, count half
    # the area under the curve is the chance that a shifted score is the larger
    below = sum(
        np.searchsorted(ordered, shifted, side).mean() for side in ("left", "right")
    )
    measures = {
        "mu": mu,
        # the difference of two unit normals has variance 2
        "formula_auc": float(special.ndtr(mu / np.sqrt(2))),
        "auc": float(below / 2 / len(without)),
        "rates_inside": inside,
        "rates": len(rates),
    }
    report.summary.append(head | more | measures)


class _Trained:
    """Trainings of one scheme's history, and what was measured of the updates in them.

    All along one random direction. The clients' samples are drawn anew from the data in
    each training, with repetition, so that updates at the same model are independent.
    What the server expects of anybody is the mean update, which a step on all samples
    of the data gives.
    """

    def __init__(
        self, config: DistinguishConfig, history: np.ndarray, progress: Progress
    ) -> None:
        dataset = load_data(config.dataset, config.seed, config.directory)
        self.model = build("model", config.model, dataset.num_classes)
        shape = dataset.train_inputs.shape[1:]
        self.pool = (on_device(dataset.train_inputs), on_device(dataset.train_labels))
        whole = len(self.pool[1])
        self.start, self.trainer = _stage.start_and_trainer(
            config, self.model, shape, config.client_size
        )
        _, self.of_all = _stage.start_and_trainer(config, self.model, shape, whole)
        drawn = jax.random.normal(
            _stage.stream(config, Stream.ASSIGNMENT), self.start.shape
        )
        self.direction = drawn / jnp.linalg.norm(drawn)
        self.history, self.config = history, config
        self.progress, self.done = progress, 0
        # before the spread is known: it is measured in these updates
        self.without = self._updates(None, 0.0)
        flat = self.without.reshape(-1, config.rounds, history.shape[1])
        # second moments over rounds, averaged over trainings and clients
        covariance = np.einsum("brn,bsn->rs", flat, flat) / (len(flat) * flat.shape[2])
        self.spread = float(np.sqrt(np.trace(covariance) / len(covariance)))
        rule = "must give updates that differ between clients, and are finite"
        fits = 0 < self.spread < np.inf
        require(fits, "learning_rate", rule, config.learning_rate)
        # a trace of J: the mean variance of an update is 1
        self.kernel = covariance / self.spread**2

    def __call__(
        self, config: DistinguishConfig, attacked: np.ndarray, client: int
    ) -> tuple[attacks.Distinguish, _Scores]:
        """Train with a client's updates shifted; score these sums and those without."""
        shift, noise = config.shift * self.spread, config.noise * self.spread**2
        attack = attacks.distinguish(
            client, shift, spread=self.spread, noise=noise, kernel=self.kernel
        )
        test, others = attack.test(attacked), attacked.astype(np.float64)
        others[:, client] = 0.0  # its own update without the shift is known
        # one generator for both worlds, whose noise is independent
        generator = np.random.default_rng([config.seed, client, 0xD15])
        scores = []
        for updates, added in (
            (self.without, 0.0),
            (self._updates(client, shift), shift),
        ):
            # the client's own update is 0 there, so only its shift is added
            sums = (
                np.einsum("rn,brn->br", others, updates) + added * attacked[:, client]
            )
            drawn = generator.standard_normal(sums.shape)
            scores.append(test.scores(sums + np.sqrt(noise) * drawn))
        return attack, (scores[0], scores[1])

    def _updates(self, client: int | None, shift: float) -> np.ndarray:
        """Return the distances of updates from the expected ones, [B, J, N]."""
        config, count = self.config, self.config.trainings
        shifts = np.zeros(self.history.shape, np.float32)
        if client is not None:
            shifts[config.warm_up :, client] = shift
        # another stream for each client whose updates are shifted
        key = fold(
            _stage.stream(config, Stream.LOCAL_TRAINING),
            0 if client is None else 1 + client,
        )
        # bytes of the samples that a training gathers
        samples = 4 * config.client_size * int(np.prod(self.pool[0].shape[1:]))
        in_flight = config.num_clients * (4 * _COPIES * len(self.start) + samples)
        tile = min(at_once("repeated", in_flight), count)
        distances = np.empty((count, config.rounds, config.num_clients))
        for start in range(0, count, tile):
            each = jnp.arange(start, start + tile)  # the last ones may be too many
            updates = _trained(
                jax.vmap(functools.partial(jax.random.fold_in, key))(each),
                (self.trainer, self.of_all),
                self.pool,
                self.start,
                self.direction,
                on_device(shifts),
                on_device(self.history, jnp.float32),
                config.client_size,
                tile,
            )
            # without what the last tile computed in excess, and without the warm-up
            distances[start : start + tile] = np.asarray(updates)[
                : count - start, config.warm_up :
            ]
            self.done += min(tile, count - start)
            self.progress.update(self.done, (1 + len(config.clients)) * count)
        return distances

    def words(self) -> str:
        """Say what was measured of the updates."""
        steps = np.sqrt(np.diagonal(self.kernel))
        alike = self.kernel / np.outer(steps, steps)
        near = float(np.diagonal(alike, 1).mean()) if len(alike) > 1 else 1.0
        from_mean = self.without - self.without.mean()
        kurtosis = float(np.mean(from_mean**4) / np.mean(from_mean**2) ** 2) - 3.0
        return text_of("distinguish_trained").format(
            spread=self.spread, near=near, far=float(alike[0, -1]), kurtosis=kurtosis
        )


@functools.partial(jax.jit, static_argnames=("size", "tile"))
def _trained(
    keys: Key[Array, " batch"],
    trainers: Any,
    pool: tuple[Array, Array],
    start: Float32[Array, " dim"],
    direction: Float32[Array, " dim"],
    shifts: Float32[Array, "rounds clients"],
    history: Float32[Array, "rounds clients"],
    size: int,
    tile: int,
) -> Float32[Array, "batch rounds clients"]:
    """Train by averaging over a history, each key's clients on separate samples."""
    inputs, labels = pool
    trainer, of_all = trainers
    everything = jnp.arange(inputs.shape[0], dtype=jnp.int32)

    def one_training(key: Array) -> Array:
        shape = (history.shape[1], size)
        # drawn once a training: a client keeps its samples in all rounds
        samples = jax.random.randint(key, shape, 0, inputs.shape[0], jnp.int32)

        def one_round(flat: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            row, added = step

            def update(indices: Array, by: Any = trainer) -> Array:
                count = jnp.int32(indices.shape[0])
                return by.update_from_pool(key, flat, inputs, labels, indices, count)

            updates = jax.vmap(update)(samples)
            # a step on all of the data is the mean update that the server expects
            expected = update(everything, of_all)
            seen = jnp.sum((updates - expected[None]) * direction[None], axis=-1)
            sent = updates + added[:, None] * direction[None]
            total = jnp.sum(row[:, None] * sent, axis=0)
            # an empty round divides 0 by 1, and leaves the model as it is
            return flat + total / jnp.maximum(jnp.sum(row), jnp.float32(1)), seen

        return lax.scan(one_round, start, (history, shifts))[1]

    return map_tiles(one_training, keys, tile)


def found_words(report: AttackFindings) -> list[str]:
    """Say how often shifts are found, and how to read it."""
    rate = min((row["fpr"] for row in report.scores), key=lambda fpr: abs(fpr - 0.1))
    words = []
    for label in dict.fromkeys(row["scheme"] for row in report.scores):
        rates = [
            f"{row['tpr']:.1%} ({row['whose']} client, {row['others']} updates; "
            "formula "
            f"{row['formula']:.1%})"
            for row in report.scores
            if row["scheme"] == label and row["fpr"] == rate
        ]
        at = f"{label}: at {rate:.3g} false positives"
        words.append(f"{at} a shift is found in {', '.join(rates)}.")
    return words


def arrays(config: Any) -> int:
    """Return the arrays of distinguishing.

    Sums of all trials, or updates of all trainings.
    """
    simulated, rounds, clients = 0, config.rounds, config.num_clients
    if config.run is not None:
        run = settings_of(config.run)
        rounds, clients = run.rounds, run.population.num_clients
    if "gaussian" in config.others:
        together = min(config.trials, 2**21 // rounds)
        simulated = 2 * 8 * config.trials + 4 * together * (clients + 3 * rounds)
    if "trained" not in config.others:
        return simulated
    pool, dim, entries = _stage.model_sizes(config)
    updates = 3 * 8 * config.trainings * config.rounds * config.num_clients
    return pool + simulated + updates + 4 * 4 * config.num_clients * (dim + entries)
