"""What CCESA's two reliability experiments share: rounds over graphs, trainings, failure rates.

Choi, Sohn, Han, Moon, Section 5.2 and Appendix B.1: everybody trains in every round, and p acts
through rounds whose sum cannot be unmasked and which leave the model alone. Runs of one seed are
paired: same split, model, minibatches and dropouts for every p, and edges that p only adds to.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, graphs, quantize, secagg, selection
from mrsa_jax._status import Status
from mrsa_jax._streams import as_key, trial_key
from mrsa_jax.availability import independent, independent_steps
from mrsa_jax.reproduce.ccesa._theory import step_rate
from mrsa_jax.reproduce.harness._context import Context

__all__ = ["Runs", "Setting", "first_samples"]

_LEVELS = 2**16


@dataclasses.dataclass(frozen=True)
class Setting:
    """One of the two experiments.

    Attributes:
        num_clients: n, all of whom are asked in every round.
        totals: q_total of each panel.
        splits: How the samples are spread, by name.
        chances: p of the trainings, descending from SecAgg's 1.
        grid: p at which rounds are simulated.
        threshold: t for every p; None for Remark 4's.
        rounds: Rounds of a training.
        every: Rounds between two tests.
        seeds: Trainings of each kind.
        trials: Simulated rounds for each p of the grid.
        model: Number of classes -> flax module.
        trainer: Module -> local training.
        clip: Half width of the quantizer's range.
    """

    num_clients: int
    totals: tuple[float, ...]
    splits: dict[str, Callable[[Key[Array, ""], data.Dataset], data.ClientData]]
    chances: tuple[float, ...]
    grid: tuple[float, ...]
    threshold: int | None
    rounds: int
    every: int
    seeds: int
    trials: int
    model: Callable[[int], Any]
    trainer: Callable[[Any], federated.LocalSGD]
    clip: float

    def shares(self, chance: float) -> int:
        """Return t at p."""
        own = self.threshold
        return secagg.share_threshold(self.num_clients, chance) if own is None else own


@dataclasses.dataclass(eq=False)
class Runs:
    """The experiment's rounds and trainings, each played once."""

    context: Context
    setting: Setting
    dataset: data.Dataset

    @functools.cached_property
    def model(self) -> Any:
        """Return the flax module that everybody trains."""
        return self.setting.model(self.dataset.num_classes)

    @functools.cached_property
    def dim(self) -> int:
        """Return the model's number of parameters."""
        return federated.num_parameters(self.model, self.dataset.input_shape)

    @functools.cached_property
    def _known(self) -> dict[Any, Any]:
        return {}

    def key(self, seed: int) -> Key[Array, ""]:
        """Return the key of a seed, 0 and up."""
        return trial_key(as_key(self.context.seed), seed)

    def rule(self, chance: float) -> secagg.GraphRule:
        """Return what the server learns of a round over G(n, p)."""
        n = self.setting.num_clients
        return secagg.graph_rule(
            graphs.erdos_renyi(n, chance), n, threshold=self.setting.shares(chance)
        )

    def history(self, total: float, chance: float, seed: int) -> selection.RoundHistory:
        """Roll the rounds of a seed out: survivors, graphs, and whether the sums are learnt."""
        words = ("history", total, chance, seed)
        if words not in self._known:
            n = self.setting.num_clients
            self._known[words] = selection.rollout_rounds(
                self.key(seed),
                selection.uniform(n, n),
                independent(0.0),
                independent_steps(step_rate(total)),
                self.setting.rounds,
                rule=self.rule(chance),
            )
        own: selection.RoundHistory = self._known[words]
        return own

    def learnt(self, total: float, chance: float, seed: int) -> np.ndarray:
        """Return in which rounds the server learns the sum, bool[J]."""
        return np.asarray(self.history(total, chance, seed).status) == int(Status.OK)

    def clients(self, split: str, seed: int) -> data.ClientData:
        """Return the clients of a seed."""
        words = ("clients", split, seed)
        if words not in self._known:
            spread = self.setting.splits[split]
            self._known[words] = spread(self.key(seed), self.dataset)
        own: data.ClientData = self._known[words]
        return own

    def result(
        self, split: str, total: float, chance: float, seed: int
    ) -> federated.TrainingResult:
        """Train over the rounds that are learnt; those that fail leave the model alone.

        Values of p under which the same rounds are learnt train the same model (`same_model`
        checks it), which is then trained once.
        """
        learnt = self.learnt(total, chance, seed)
        words = ("result", split, total, seed, learnt.tobytes())
        if words not in self._known:
            self._known[words] = self.train(split, total, chance, seed)
        own: federated.TrainingResult = self._known[words]
        return own

    def train(
        self, split: str, total: float, chance: float, seed: int, rounds: int | None = None
    ) -> federated.TrainingResult:
        """Train over the first rounds, in all of which the aggregator draws and judges the graph.

        Rounds that the rollout knows to fail would be trained for nothing, and are left out.
        """
        played: selection.RoundHistory = jax.tree.map(
            lambda leaf: leaf[:rounds], self.history(total, chance, seed)
        )
        is_learnt = played.status == jnp.int32(Status.OK)
        played = played._replace(survivors=played.survivors & is_learnt[:, None, None])
        setting = self.setting
        result = federated.train(
            self.key(seed),
            self.model,
            self.clients(split, seed),
            played,
            trainer=setting.trainer(self.model),
            aggregator=secagg.ring_average(
                quantize.stochastic(_LEVELS, setting.clip),
                setting.num_clients,
                self.dim,
                rule=self.rule(chance),
                fidelity="sets",
            ),
            test=(self.dataset.test_inputs, self.dataset.test_labels),
            evaluate_every=setting.every,
        )
        jax.block_until_ready(result.parameters)
        return result

    def same_model(self, chance: float, rounds: int) -> bool:
        """Say whether p and p = 1 train the same bits over first rounds that both learn."""
        split, total = next(iter(self.setting.splits)), self.setting.totals[0]
        sparse, whole = (self.train(split, total, p, 0, rounds) for p in (chance, 1.0))
        both = self.learnt(total, chance, 0)[:rounds] & self.learnt(total, 1.0, 0)[:rounds]
        same = np.array_equal(sparse.parameters, whole.parameters)
        return bool(both.all()) and same and bool((sparse.status == int(Status.OK)).all())

    def accuracy_rows(self) -> list[dict[str, Any]]:
        """Return a row for each test of each training."""
        setting = self.setting
        jobs = [
            (split, total, chance, seed)
            for seed in range(setting.seeds)
            for split in setting.splits
            for total in setting.totals
            for chance in setting.chances
        ]
        self.context.progress.stage(f"n = {setting.num_clients}: trainings", len(jobs))
        rows: list[dict[str, Any]] = []
        for done, job in enumerate(jobs):
            rows += self._tests(*job)
            self.context.progress.update(done + 1, len(jobs))
        return rows

    def _tests(self, split: str, total: float, chance: float, seed: int) -> list[dict[str, Any]]:
        result = self.result(split, total, chance, seed)
        learnt = self.learnt(total, chance, seed)
        agreed = bool(((result.status == int(Status.OK)) == learnt).all())
        clipped = result.clipped_fraction[learnt]
        return [
            {"measure": "accuracy", "split": split, "q_total": total, "p": chance,
             "t": self.setting.shares(chance), "seed": seed, "round": int(index) + 1,
             "accuracy": float(accuracy), "learnt rounds": int(learnt[: index + 1].sum()),
             "as judged before": agreed, "most clipped": float(clipped.max(initial=0.0))}
            for index, accuracy in zip(result.evaluated_rounds, result.accuracy, strict=True)
        ]  # fmt: skip

    def rate_rows(self) -> list[dict[str, Any]]:
        """Return how often simulated rounds fail at each p, beside what theory says."""
        setting = self.setting
        jobs = [(total, chance) for total in setting.totals for chance in setting.grid]
        self.context.progress.stage(f"n = {setting.num_clients}: simulated rounds", len(jobs))
        rows = []
        for done, (total, chance) in enumerate(jobs):
            n, q, t = setting.num_clients, step_rate(total), setting.shares(chance)
            rates = secagg.failure_rates(self.context.seed, n, chance, q, t, setting.trials)
            found = rates.unreliable
            rows.append(
                {"measure": "failure", "q_total": total, "p": chance, "t": t,
                 "count": found.count, "trials": found.trials, "rate": found.rate,
                 "lower": found.lower, "upper": found.upper,
                 "theorem 5": math.exp(secagg.reliability_bound(n, chance, q, t)),
                 "exact union": math.exp(secagg.exact_reliability_union_bound(n, chance, q, t)),
                 "not private": rates.not_private.count}
            )  # fmt: skip
            self.context.progress.update(done + 1, len(jobs))
        return rows


def first_samples(clients: data.ClientData, count: int) -> data.ClientData:
    """Return the clients with at most so many samples each."""
    return dataclasses.replace(
        clients,
        indices=clients.indices[:, :count],
        sizes=jnp.minimum(clients.sizes, jnp.int32(count)),
    )
