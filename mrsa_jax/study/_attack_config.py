"""Settings of attacks, one class for each; nothing here imports JAX."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Literal

from mrsa_jax._flags import Count, File, Folder, Name
from mrsa_jax._html import Shown
from mrsa_jax.study._training_config import ModelName


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackSettings(Shown):
    """What all attacks share."""

    seed: int = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/attack")
    """Folder for scores (CSV and JSON), figures and what was recovered."""
    overwrite: bool = False
    """Replace another attack in --out."""
    json: bool = False
    """Print the scores as JSON on standard output."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SumsOfRounds(AttackSettings):
    """Who took part in the rounds whose sums are attacked."""

    schemes: tuple[str, ...] = ("uniform", "batch_partitioning:4")
    """Who is asked: schemes as of mrsa-jax simulate, e.g. uniform or batch_partitioning:T."""
    num_clients: int = 24
    """Clients, N."""
    cohort_size: int = 8
    """Clients asked in a round, K."""
    dropout_rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    """Chances to be offline in a round, spread over the clients."""
    availability: str = "independent"
    """Who is away when, as of mrsa-jax simulate: independent, markov:ROUNDS, cyclic, ..."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeastSquaresConfig(_SumsOfRounds):
    """Solve the sums of many rounds for each client's update (an honest but curious server).

    A server that keeps every sum and knows who was in it solves the linear
    system (Multi-RoundSecAgg, eq. (33) to (35)). Random selection exposes single clients; blocks
    of T leave only their sums.
      mrsa-jax attack least-squares --frozen
      mrsa-jax attack least-squares --schemes uniform batch_partitioning:2 --learning-rate 0.01
      mrsa-jax attack least-squares --run results/train --window 60
      mrsa-jax attack least-squares --aggregates sums.npy --participation who.npy
    """

    out: pathlib.Path = pathlib.Path("results/attack/least_squares")
    rounds: int = 80
    """Rounds whose sums the server keeps."""
    warm_up: int = 40
    """Rounds before them: the longer the training, the less the updates change."""
    frozen: bool = False
    """Worst case: the model does not move, so each client sends the same update again."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    model: ModelName = "logistic"
    """What they train."""
    learning_rate: float = 0.01
    """Step size of their SGD; the smaller, the less the updates change."""
    batch_size: int = 10
    """Samples in a minibatch."""
    num_epochs: int = 1
    """Local epochs a round."""
    run: Folder = None
    """Attack a run of mrsa-jax train instead, in its folder: repeats its rounds, keeping sums."""
    aggregates: File = None
    """Attack your own sums instead: .npy or .npz of reals [rounds, d], sums and not means."""
    participation: File = None
    """Who was in each of them: .npy or .npz of booleans or integer weights [rounds, N]."""
    updates: File = None
    """The clients' true updates [N, d], to score the estimates; estimates are saved without."""
    window: Count = None
    """Use only the last so many sums."""
    prior: Literal["zero", "mean"] = "zero"
    """What a client is taken to send of which the sums say nothing: zero, or the mean update."""
    ridge: float = 0.0
    """Penalty on the length of the estimates; 0 for the pseudo-inverse."""
    noise: float = 0.0
    """How much an update changes from sum to sum, for the best linear estimate; 0: not at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistinguishConfig(_SumsOfRounds):
    """Tell from the sums whether a client's updates were shifted, by the best test there is.

    Plays the likelihood ratio on rounds with a shift and without, and sets how often it is right
    beside the formula of mrsa_jax.privacy.distinguishability. The server knows all but the others'
    updates: Gaussian ones, which do not change over rounds (where the formula is exact), or those
    of real training, whose spread and drift are measured.
      mrsa-jax attack distinguish
      mrsa-jax attack distinguish --others gaussian --shift 0.5 --noise 2
      mrsa-jax attack distinguish --schemes batch_partitioning:2 batch_partitioning:4 --rounds 40
      mrsa-jax attack distinguish --others trained --learning-rate 2 --trainings 1000
    """

    out: pathlib.Path = pathlib.Path("results/attack/distinguish")
    others: tuple[Literal["gaussian", "trained"], ...] = ("gaussian", "trained")
    """What the others send: Gaussian numbers, the same in all rounds, or what they train."""
    clients: tuple[Literal["worst", "median"], ...] = ("worst", "median")
    """Whose updates are shifted: of the client hidden among the fewest, or of the median one."""
    rounds: int = 12
    """Rounds whose sums the server keeps."""
    shift: float = 1.0
    """Length of the shift, in standard deviations (spreads) of the others' updates along it."""
    noise: float = 0.0
    """Variance of each sum's noise along the shift, in squared spreads."""
    false_positive_rates: tuple[float, ...] = (0.001, 0.01, 0.1, 0.5)
    """Rates of false positives at which that of true positives is measured."""
    trials: int = 20_000
    """Simulated histories, as many again with the shift."""
    trainings: int = 400
    """Trained histories, as many again with the shift of each client."""
    warm_up: int = 20
    """Rounds that are trained before, without a shift."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    model: ModelName = "logistic"
    """What they train."""
    client_size: int = 20
    """Samples of a client, drawn anew in each training; a step of all of them is its update."""
    learning_rate: float = 0.5
    """Length of that step: the more, the more the updates change from round to round."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CanariesConfig(_SumsOfRounds):
    """Measure with canaries whether the noise in the ring hides clients as its ledger says.

    A client sends a vector of four clip norms in its rounds, to be clipped to one, or nothing; the
    server applies the best test to what it decodes. With the others known the measured mu is the
    ledger's, less what rounding hides; with Gaussian updates of others it is lower. More would
    refute the ledger. What is left of the sums without the updates shows noise that is missing, or
    the same in several rounds; the smallest violation that the trials would find is printed.
      mrsa-jax attack canaries
      mrsa-jax attack canaries --mechanism discrete_gaussian --noise-multiplier 0.5 --trials 10000
      mrsa-jax attack canaries --others known --modulus-bits 16 --dim 1024
    """

    out: pathlib.Path = pathlib.Path("results/attack/canaries")
    others: tuple[Literal["known", "gaussian"], ...] = ("known", "gaussian")
    """What the server knows of the others: their updates, or that they are Gaussian."""
    clients: tuple[Literal["worst", "median"], ...] = ("worst", "median")
    """Who is the canary: the client whose ledger shows the most, or the median one."""
    rounds: int = 12
    """Rounds whose sums the server keeps."""
    mechanism: Literal["skellam", "discrete_gaussian"] = "skellam"
    """What each client adds to its codes."""
    noise_multiplier: float = 1.0
    """Standard deviation of a full cohort's noise, in clip norms."""
    clip_norm: float = 1.0
    """L2 norm to which updates are clipped; the canary is four times as long."""
    dim: int = 256
    """Entries of an update."""
    modulus_bits: int = 20
    """Ring of 2^b elements."""
    spread: float = 0.02
    """Standard deviation of the entries of the others' updates, where they are not known."""
    false_positive_rates: tuple[float, ...] = (0.001, 0.01, 0.1, 0.5)
    """Rates of false positives at which that of true positives is measured."""
    trials: int = 2000
    """Simulated histories, as many again with the canary."""
    target_delta: float = 1e-5
    """Delta at which epsilon is told."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DisaggregationConfig(_SumsOfRounds):
    """Recover who was in each sum from the sums and how often each client took part.

    A server that is not told who took part finds out from how often each client did (Lam et
    al. 2021).
      mrsa-jax attack disaggregation --num-clients 40 --rounds 100
      mrsa-jax attack disaggregation --drift 0.1
      mrsa-jax attack disaggregation --aggregates sums.npy --counts counts.npy
    """

    out: pathlib.Path = pathlib.Path("results/attack/disaggregation")
    schemes: tuple[str, ...] = ("uniform", "batch_partitioning:2")
    num_clients: int = 20
    rounds: int = 60
    """Rounds, J; more than clients, or any history explains the sums."""
    interval: int = 10
    """Rounds of an interval, at whose end the server knows how often each client took part."""
    dim: int = 1000
    """Entries of an update, drawn at random."""
    drift: float = 0.0
    """How much an update changes from round to round, relative to its length."""
    aggregates: File = None
    """Attack your own sums instead: .npy or .npz of reals [rounds, d], sums and not means."""
    counts: File = None
    """How often each client was in the sums of each interval: .npy or .npz [intervals, N]."""
    participation: File = None
    """Who was in each sum [rounds, N]: to score, and in place of --counts to count from."""
    interval_lengths: tuple[int, ...] = ()
    """Rounds of each interval of --counts; equal ones when left out."""
    restarts: int = 4
    """Random starts a client."""
    seconds: float = 5.0
    """Limit of the integer program for a column that the relaxation does not settle."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientsConfig(AttackSettings):
    """Look for the images behind an update, or behind a sum of several clients' updates.

    An update of few images shows them (Zhu et al. 2019; Geiping et al. 2020), a sum of few updates
    too, but not whose they are; an upload under pads shows nothing.
      mrsa-jax attack gradients
      mrsa-jax attack gradients --photo china --seen plain --iterations 4800 --restarts 8
      mrsa-jax attack gradients --dataset mnist_5k --model lenet --num-summed 4
      mrsa-jax attack gradients --folder ~/pictures --method euclidean
    """

    out: pathlib.Path = pathlib.Path("results/attack/gradients")
    photo: Literal["flower", "china"] | None = None
    """Invert scikit-learn's sample photographs, this one first, in 32 x 32 pixels; flower if
    neither --dataset nor --folder is given."""
    dataset: Name = None
    """Invert images of a data set instead (mrsa-jax data list)."""
    folder: Folder = None
    """Invert the first pictures of this folder instead, in 32 x 32 pixels (.png, .jpg)."""
    seen: tuple[Literal["plain", "padded", "sum"], ...] = ("plain", "sum", "padded")
    """What the adversary has: one client's update as it is, under its pads, or the clients' sum."""
    num_summed: int = 2
    """Clients in the sum, T."""
    num_images: int = 1
    """Images of each client, all in one step of SGD."""
    model: ModelName = "smooth_lenet"
    """The model, as it is at the start of training; smooth_lenet is Zhu et al.'s."""
    learning_rate: float = 0.1
    """Step size of the clients' SGD."""
    method: Literal["cosine", "euclidean"] = "cosine"
    """cosine (Geiping et al. 2020, Adam on signs) or euclidean (Zhu et al. 2019, L-BFGS)."""
    iterations: int = 1200
    """Steps of the optimizer."""
    restarts: int = 2
    """Random starts, side by side; the one that fits best is taken."""
    step_size: float = 0.1
    """Of signed Adam; L-BFGS chooses its own."""
    smoothness: float = 1e-5
    """Weight of the total variation."""
    known_labels: bool = False
    """Tell the adversary the labels, which it infers from the last bias otherwise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInversionConfig(AttackSettings):
    """Draw what a model takes for the typical image of each class: a digit, or a face.

    Softmax regression shows its classes (Fredrikson et al. 2015): a face where a class is a person.
      mrsa-jax attack model-inversion
      mrsa-jax attack model-inversion --dataset olivetti --num-epochs 50 --num-clients 4
      mrsa-jax attack model-inversion --connection-probability 0.7 --num-clients 40
    """

    out: pathlib.Path = pathlib.Path("results/attack/model_inversion")
    dataset: str = "mnist_5k"
    """mnist_5k, digits, olivetti (faces), or another set (mrsa-jax data list)."""
    seen: tuple[Literal["plain", "padded", "aggregate"], ...] = ("plain", "padded", "aggregate")
    """Whose model: a client's as it is, a client's under its pads, or the mean of all clients'."""
    num_clients: int = 10
    """Clients of the round; each holds an equal part of the data."""
    connection_probability: float = 1.0
    """Chance that two clients share a pad: 1 is SecAgg, less is CCESA."""
    learning_rate: float = 0.05
    """Step size of the clients' SGD."""
    num_epochs: int = 10
    """Local epochs."""
    iterations: int = 500
    """Most steps of the attack."""
    step_size: float = 0.02
    """Length of its steps, as a share of the pixels' range."""
    smoothness: float = 0.0
    """Weight of the total variation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MembershipConfig(AttackSettings):
    """Tell whether samples were among those that a client trained on.

    A model that knows its samples by heart gives them away; AUC 0.5 is chance.
      mrsa-jax attack membership
      mrsa-jax attack membership --methods loss --num-epochs 100 --label-noise 0
      mrsa-jax attack membership --seen sum --num-summed 8
    """

    out: pathlib.Path = pathlib.Path("results/attack/membership")
    methods: tuple[Literal["loss", "shadow", "likelihood_ratio"], ...] = (
        "loss",
        "shadow",
        "likelihood_ratio",
    )
    """loss (Yeom et al. 2018), shadow (Shokri et al. 2017), likelihood_ratio (Carlini 2022)."""
    seen: tuple[Literal["plain", "padded", "sum"], ...] = ("plain", "sum", "padded")
    """What the adversary has: one client's model as it is, under its pads, or in a sum."""
    num_summed: int = 4
    """Clients in the sum, T."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    label_noise: float = 0.3
    """Share of wrong labels, which a model can only know by heart."""
    model: ModelName = "mlp"
    """What they train."""
    learning_rate: float = 0.1
    """Step size of the clients' SGD."""
    batch_size: int = 10
    """Samples in a minibatch."""
    num_epochs: int = 30
    """Local epochs: the more, the more a model knows by heart."""
    client_size: int = 50
    """Samples of a client, and of each shadow model."""
    num_targets: int = 2
    """Clients attacked; scores are of all of them together."""
    num_shadows: int = 16
    """Shadow models of the adversary."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InconsistencyConfig(AttackSettings):
    """A malicious server sends one client the model, the others one that teaches them nothing.

    Outside the papers' threat model: the server lies (Pasquini et al. 2022). The others' updates
    are zero, so the sum is the target's. Pads bound to the model's hash do not cancel then.
      mrsa-jax attack inconsistency
      mrsa-jax attack inconsistency --cohort-size 20 --target 7 --pads bound
    """

    out: pathlib.Path = pathlib.Path("results/attack/inconsistency")
    pads: tuple[Literal["plain", "bound"], ...] = ("plain", "bound")
    """SecAgg as it is, and with pads bound to a hash of the model that a client was sent."""
    cohort_size: int = 8
    """Clients of the round, with real messages and cryptography."""
    target: int = 0
    """The one that the server is after, 0 to --cohort-size - 1."""
    dataset: str = "digits"
    """Data that the clients train on (mrsa-jax data list)."""
    hidden_size: int = 32
    """Width of the model's hidden layer; its closed rectifiers silence the others."""
    learning_rate: float = 0.1
    """Step size of the clients' SGD."""
    num_epochs: int = 1
    """Local epochs."""
