"""The shared parts of CCESA's two reliability experiments.

Rounds over graphs, trainings, failure rates.
Choi, Sohn, Han, Moon, Section 5.2 and Appendix B.1: everybody trains in every round,
and p acts through rounds whose sum cannot be unmasked and which leave the model alone.
Runs of one seed are paired: same split, model, minibatches and dropouts for every p,
and edges that p only adds to.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import Status, data, federated, graphs, quantize, secagg, selection
from mrsa_jax.availability import independent, independent_steps
from mrsa_papers.ccesa._theory import step_rate
from mrsa_papers.harness import Values
from mrsa_papers.harness._context import (
    Context,
    Experiment,
    Split,
    model_of,
    tests_of,
)

_LEVELS = 2**16
_BY_IMAGES, _SMALL = "by_images", "small_mlp"  # models that an item may name


def are_photographs(context: Context) -> bool:
    """Return whether images have CIFAR's shape, which alone VGG-11 takes."""
    return context.images.input_shape == (32, 32, 3)


def resolved_model(context: Context, settings: Values) -> Any:
    """Build the model of an item; by its images, set in the settings, if it says so."""
    if settings.model == _BY_IMAGES:
        settings.resolve(model="vgg11" if are_photographs(context) else _SMALL)
    if settings.model == _SMALL:
        return federated.mlp(context.images.num_classes, hidden_sizes=(32,))
    return model_of(settings.model, context.images)


@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
    """One of the two experiments: its rounds and trainings, each played once.

    Attributes:
        context: Seed, data set, and what has been played.
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
        model: A flax module.
        trainer: Local training.
        clip: Half width of the quantizer's range.
    """

    context: Context
    num_clients: int
    totals: tuple[float, ...]
    splits: dict[str, Split]
    chances: tuple[float, ...]
    grid: tuple[float, ...]
    threshold: int | None
    rounds: int
    every: int
    seeds: int
    trials: int
    model: Any
    trainer: federated.LocalSGD
    clip: float

    def begin(self) -> None:
        """Raise unless the data suffice, and begin."""
        for split in self.splits:
            self.experiment(split).check()
        self.context.begin()

    def shares(self, chance: float) -> int:
        """Return t at p."""
        threshold = self.threshold
        return (
            secagg.share_threshold(self.num_clients, chance)
            if threshold is None
            else threshold
        )

    def rule(self, chance: float) -> secagg.GraphRule:
        """Return the rule by which the server learns a round over G(n, p)."""
        graph = graphs.erdos_renyi(self.num_clients, chance)
        return secagg.graph_rule(graph, self.num_clients, threshold=self.shares(chance))

    def history(self, total: float, chance: float, seed: int) -> selection.RoundHistory:
        """Roll the rounds of a seed out.

        Survivors, graphs, and whether the sums are learnt.
        """

        def rolled() -> selection.RoundHistory:
            everybody = selection.uniform(self.num_clients, self.num_clients)
            return selection.rollout_rounds(
                self.context.key(seed),
                everybody,
                independent(0.0),
                independent_steps(step_rate(total)),
                self.rounds,
                rule=self.rule(chance),
            )

        return self.context.once((self, "history", total, chance, seed), rolled)

    def learnt(self, total: float, chance: float, seed: int) -> np.ndarray:
        """Return in which rounds the server learns the sum, bool[J]."""
        return np.asarray(self.history(total, chance, seed).status) == int(Status.OK)

    def experiment(self, split: str) -> Experiment:
        """Return the training on one split."""
        return Experiment(
            self.context, self.model, self.splits[split], self.trainer, self.every
        )

    def result(
        self, split: str, total: float, chance: float, seed: int
    ) -> federated.TrainingResult:
        """Train over the rounds that are learnt; those that fail leave the model alone.

        Values of p under which the same rounds are learnt train the same model
        (`same_model` checks it), which is then trained once.
        """
        # equal rounds, equal model: p is no part of the key
        learnt = self.learnt(total, chance, seed).tobytes()
        return self.context.once(
            (self, split, total, seed, learnt),
            lambda: self.train(split, total, chance, seed),
        )

    def train(
        self,
        split: str,
        total: float,
        chance: float,
        seed: int,
        rounds: int | None = None,
    ) -> federated.TrainingResult:
        """Train over the first rounds.

        The aggregator draws and judges the graph in each of them.

        Rounds that the rollout knows to fail would be trained for nothing, and are left
        out.
        """
        played: selection.RoundHistory = jax.tree.map(
            lambda leaf: leaf[:rounds], self.history(total, chance, seed)
        )
        is_learnt = played.status == jnp.int32(Status.OK)
        # nobody survives a round that fails
        played = played._replace(survivors=played.survivors & is_learnt[:, None, None])
        experiment = self.experiment(split)
        ring = secagg.ring_average(
            quantize.stochastic(_LEVELS, self.clip),
            self.num_clients,
            experiment.dim,
            rule=self.rule(chance),
            fidelity="sets",
        )
        return experiment.train(seed, played, ring)

    def same_model(self, chance: float, rounds: int) -> bool:
        """Tell whether p and p = 1 train the same bits over rounds that both learn."""
        split, total = next(iter(self.splits)), self.totals[0]
        sparse, whole = (self.train(split, total, p, 0, rounds) for p in (chance, 1.0))
        # rounds that one of them fails would differ for that reason alone
        both = (
            self.learnt(total, chance, 0)[:rounds] & self.learnt(total, 1.0, 0)[:rounds]
        )
        same = np.array_equal(sparse.parameters, whole.parameters)
        return (
            bool(both.all()) and same and bool((sparse.status == int(Status.OK)).all())
        )

    def accuracy_rows(self) -> list[dict[str, Any]]:
        """Return a row for each test of each training."""
        jobs = itertools.product(
            range(self.seeds), self.splits, self.totals, self.chances
        )
        rows: list[dict[str, Any]] = []
        for seed, split, total, chance in self.context.steps(
            f"n = {self.num_clients}: trainings", jobs
        ):
            result = self.result(split, total, chance, seed)
            learnt = self.learnt(total, chance, seed)
            # the aggregator judges each round again: it must agree with the rollout
            agreed = bool(((result.status == int(Status.OK)) == learnt).all())
            clipped = float(result.clipped_fraction[learnt].max(initial=0.0))
            rows += [
                {
                    "measure": "accuracy",
                    "split": split,
                    "q_total": total,
                    "p": chance,
                    "t": self.shares(chance),
                    "seed": seed,
                    "round": done,
                    "accuracy": accuracy,
                    "learnt rounds": int(learnt[:done].sum()),
                    "as judged before": agreed,
                    "most clipped": clipped,
                }
                for done, accuracy, _ in tests_of(result)
            ]
        return rows

    def rate_rows(self) -> list[dict[str, Any]]:
        """Return the failure rates of simulated rounds at each p, with their theory."""
        n, rows = self.num_clients, []
        jobs = itertools.product(self.totals, self.grid)
        for total, chance in self.context.steps(f"n = {n}: simulated rounds", jobs):
            words = (n, chance, step_rate(total), self.shares(chance))
            rates = secagg.failure_rates(self.context.seed, *words, self.trials)
            rate = rates.unreliable
            rows.append(
                {
                    "measure": "failure",
                    "q_total": total,
                    "p": chance,
                    "t": words[-1],
                    "count": rate.count,
                    "trials": rate.trials,
                    "rate": rate.rate,
                    "lower": rate.lower,
                    "upper": rate.upper,
                    "theorem 5": math.exp(secagg.reliability_bound(*words)),
                    "exact union": math.exp(
                        secagg.failures.exact_reliability_union_bound(*words)
                    ),
                    "not private": rates.not_private.count,
                }
            )
        return rows


def first_samples(clients: data.ClientData, count: int) -> data.ClientData:
    """Return the clients with at most so many samples each."""
    return dataclasses.replace(
        clients,
        indices=clients.indices[:, :count],
        sizes=jnp.minimum(clients.sizes, jnp.int32(count)),
    )
