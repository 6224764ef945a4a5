"""Every public value can be copied, pickled and sent to another process, and equals its copy."""

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import inspect
import multiprocessing
import pathlib
import pickle
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import mrsa_jax as mj
import mrsa_watch
from mrsa_jax import (
    attacks,
    availability,
    data,
    design,
    dp,
    federated,
    graphs,
    hetero,
    modular,
    privacy,
    protocol,
    quantize,
    secagg,
    selection,
    study,
)
from mrsa_jax._core import round_rules
from mrsa_jax._core.pytrees import pytree
from mrsa_jax.attacks import (
    _attribute,
    _canaries,
    _dense_recovery,
    _disaggregation,
    _distinguish,
    _exposing_server,
    _gradient_inversion,
    _inconsistency,
    _membership,
    _model_inversion,
)
from mrsa_jax.bench import harness, scaling
from mrsa_jax.dp import _mechanism
from mrsa_jax.privacy import _audit_rounds
from mrsa_jax.protocol import messages
from mrsa_jax.secagg import _graph_rule, averages
from mrsa_jax.study._findings import AttackFindings, AuditFindings, Findings
from mrsa_jax.study.publishing._report_folder import SavedReport
from mrsa_watch._base.values import contents

P = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], bool)
GRAPH = ~np.eye(4, dtype=bool)
BLOCKS = np.arange(4) // 2
SURVIVORS = np.ones((5, 4), bool)
WEIGHTS = np.arange(4, dtype=np.float32)
RING: dict[str, Any] = {"dim": 4, "num_clients": 4, "modulus_bits": 24}
LAW = scaling.Law(1.0, 2.0, None, None)


# ---- One maker for each public class; makers of the same thing share it.


@functools.cache
def _model() -> Any:
    return federated.logistic(10)


@functools.cache
def _trainer() -> Any:
    return federated.local_sgd(_model(), 0.1, batch_size=100)


@functools.cache
def _samples() -> Any:
    return data.iid(0, data.load("digits", seed=0), num_clients=4)


@functools.cache
def _quantizer() -> Any:
    return quantize.stochastic(2**16, 0.5)


@functools.cache
def _average() -> Any:
    return secagg.ring_average(_quantizer(), 2, 650)


@functools.cache
def _training() -> Any:
    return federated.Training(_model(), _samples(), P[:2], _trainer(), _average())


@functools.cache
def _layout() -> Any:
    return hetero.segment_layout("sc", [[0, 1], [2, 3]], [4, 8], 6)


def _uniform() -> Any:
    return selection.uniform(4, 2)


@functools.cache
def _coins() -> Any:
    return availability.independent(0.1)


@functools.cache
def _parameters() -> Any:
    return federated.initial_parameters(0, _model(), (8, 8, 1))


@functools.cache
def _plan() -> Any:
    return secagg.complete_plan(4, 3, 8)


@functools.cache
def _seeds() -> Any:
    return secagg.derive_seeds(secagg.key_material(0), np.arange(4), 0)


@functools.cache
def _wire() -> Any:
    return attacks.wire_round(
        0, np.ones((4, 3), np.float32), quantize.stochastic(4, 1.0)
    )


@functools.cache
def _summed() -> Any:
    start = ravel_pytree(_parameters())[0]
    history = np.ones((2, 4), bool)
    average = secagg.ring_average(_quantizer(), 4, 650)
    return attacks.summed_rounds(
        0, _model(), start, _samples(), history, trainer=_trainer(), aggregator=average
    )


@functools.cache
def _audit() -> Any:
    return privacy.audit(P, effort=0.0)


def _log() -> Any:
    return privacy.ParticipationLog(P, (1, 2, 3), ("a", "b", "c", "d"))


def _same(updates: Any, state: Any, parameters: Any = None) -> Any:
    return updates, state


# Optax makes its optimizers of functions inside functions, which Python does not
# pickle.
_OPTIMIZER = optax.GradientTransformation(optax.init_empty_state, _same)


def _filled(kind: Any) -> Any:
    size = len(inspect.signature(kind).parameters)
    return kind(*(np.full(2, float(number)) for number in range(size)))


def _measurement() -> Any:
    return harness.Measurement(
        "pads", "small", "bytes", 1.0, 0.5, (0.1, 0.2), compiled={"f": 1}
    )


def _views() -> dict[str, Callable[[], Any]]:
    from mrsa_jax.attacks import views

    zeros = np.zeros(3, np.float32)
    shared: dict[str, Any] = {
        "model": _model(),
        "input_shape": (8, 8, 1),
        "num_classes": 10,
    }
    return {
        "AggregateView": lambda: views.AggregateView(P, zeros),
        "CountView": lambda: views.CountView(zeros, zeros, zeros),
        "WireView": lambda: views.WireView(zeros, 8, _quantizer()),
        "ModelView": lambda: views.ModelView(parameters=jnp.zeros(3), **shared),
        "UpdateView": lambda: views.UpdateView(
            parameters=jnp.zeros(3), update=jnp.ones(3), num_images=1, **shared
        ),
        "MembershipView": lambda: views.MembershipView(
            parameters=jnp.zeros(3),
            start=jnp.zeros(3),
            inputs=jnp.zeros(3),
            labels=jnp.zeros(3),
            own_inputs=jnp.zeros(3),
            own_labels=jnp.zeros(3),
            **shared,
        ),
        "AttributeView": lambda: views.AttributeView(
            P, zeros, zeros, jnp.zeros(3), zeros > 0
        ),
    }


def _messages() -> dict[str, Callable[[], Any]]:
    key = bytes(32)

    def entries(size: int) -> tuple[tuple[int, bytes], ...]:
        return (1, bytes(size)), (2, bytes(size))

    return {
        "Message": lambda: messages.Message(0),
        "AdvertiseKeys": lambda: messages.AdvertiseKeys(0, 1, key, key),
        "KeyList": lambda: messages.KeyList(0, entries(64)),
        "ShareKeys": lambda: messages.ShareKeys(0, 1, entries(88)),
        "ShareList": lambda: messages.ShareList(0, entries(88)),
        "MaskedInput": lambda: messages.MaskedInput(
            0, 1, ((3, 8),), np.arange(3, dtype=np.uint32)
        ),
        "SurvivorList": lambda: messages.SurvivorList(0, 3, (0, 1, 2)),
        "UnmaskShares": lambda: messages.UnmaskShares(0, 1, entries(36), entries(36)),
        "SignedSurvivors": lambda: messages.SignedSurvivors(0, 1, bytes(64)),
        "SignatureList": lambda: messages.SignatureList(0, entries(64)),
        "SignedKeys": lambda: messages.SignedKeys(0, 1, key, key, bytes(64)),
        "SignedKeyList": lambda: messages.SignedKeyList(0, entries(128)),
    }


MAKERS: dict[str, Callable[[], Any]] = {
    "Status": lambda: mj.Status.OK,
    # attacks
    **_views(),
    "Attribute": lambda: attacks.attribute(_trainer()),
    "Canaries": lambda: attacks.canaries(
        0, dp.ring_mechanism("skellam", 1.0, 1.0, **RING)
    ),
    "CanaryScores": lambda: attacks.CanaryScores(np.zeros(2), np.ones(2)),
    "DenseRecovery": attacks.dense_recovery,
    "Disaggregation": attacks.disaggregation,
    "Distinguish": lambda: attacks.distinguish(0, kernel=np.eye(3)),
    "ExposingServer": lambda: attacks.exposing_server(4, 2),
    "GradientInversion": attacks.gradient_inversion,
    "LeastSquares": attacks.least_squares_attack,
    "Membership": lambda: attacks.membership("loss", _trainer(), shadow_size=3),
    "MembershipScore": lambda: attacks.membership_score([0.1, 0.9], [False, True]),
    "ModelInconsistency": lambda: attacks.model_inconsistency(
        _model(), _trainer(), _quantizer()
    ),
    "ModelInversion": attacks.model_inversion,
    "SummedRounds": _summed,
    "WireRound": _wire,
    # availability
    "Cyclic": lambda: availability.cyclic([0.1, 0.5]),
    "Independent": lambda: availability.independent(WEIGHTS / 8),
    "IndependentSteps": lambda: availability.independent_steps(0.1),
    "Markov": lambda: availability.markov(0.1, 3.0),
    "Replay": lambda: availability.replay(P),
    # bench
    "Answer": lambda: harness.Answer(seconds=1.0),
    "Case": lambda: harness.Case("small", _measurement),
    "Change": lambda: scaling.Change("pads", "small", 1.0, 0.9, 1.1, "same"),
    "Curve": lambda: scaling.Curve(
        "pads", "", "n", (1.0,), (1.0,), (), LAW, "wall", None, False
    ),
    "Law": lambda: LAW,
    "Measurement": _measurement,
    "Row": lambda: harness.Row("pads", note="floor"),
    "Report": lambda: mj.bench.Report((_measurement(),), (), {}, {"cores": 2}, "now"),
    "Sized": lambda: harness.Sized(3, _measurement),
    # data
    "ClientData": _samples,
    "Dataset": lambda: data.load("digits", seed=0),
    "PreparationPlan": lambda: data.plan_preparation("mnist"),
    "SourceStatus": lambda: data.available()[0],
    # design
    "Judgement": lambda: design.judge(
        np.eye(4, dtype=int), 2, 0.1, num_rounds=2, num_trials=2
    ),
    # dp
    "Account": lambda: dp.account(_uniform(), _coins(), 4, 1.0, trials=20),
    "Amplification": lambda: dp.amplification(4, 2, [1, 2], 3, 1.0),
    "LatticeNoise": lambda: dp.skellam(4.0),
    "Ledger": lambda: dp.ledger(P, 1.0),
    "RingMechanism": lambda: dp.ring_mechanism("skellam", 1.0, 1.0, **RING),
    # federated
    "Checkpoints": lambda: federated.checkpoints("folder"),
    "Decay": lambda: federated.decay_at([1, 2], 0.5),
    "ConvexConstants": lambda: federated.ConvexConstants(2.0, 1.0, 1.0, 3.0, 4.0),
    "QuadraticProblem": lambda: federated.quadratic_problem(0, 4, 3),
    "Drift": lambda: federated.measure_drift(
        np.ones((3, 2, 4)), np.array([[0, 1], [1, 2], [0, 2]])
    ),
    "Evaluation": lambda: federated.evaluate(
        _model(),
        _parameters(),
        np.zeros((2, 8, 8, 1), np.float32),
        np.zeros(2, np.int32),
    ),
    "LocalOptax": lambda: federated.local_optax(_model(), _OPTIMIZER, batch_size=3),
    "LocalSGD": _trainer,
    "MemoryEstimate": lambda: federated.memory_estimate(
        _model(), _samples(), trainer=_trainer(), cohort_size=2
    ),
    "Scaffold": lambda: federated.scaffold(_model(), 0.1, batch_size=3),
    "Training": _training,
    "TrainingResult": lambda: federated.train(0, _training()),
    # graphs
    "Complete": lambda: graphs.complete(4),
    "ErdosRenyi": lambda: graphs.erdos_renyi(4, 0.5),
    "Harary": lambda: graphs.harary(4, 2),
    "OverBlocks": lambda: graphs.over_blocks(graphs.complete(2), 2),
    "RandomRegular": lambda: graphs.random_regular(4, 2),
    "SecAggPlusParameters": lambda: graphs.secagg_plus_parameters(100, 0.1, 0.1),
    # hetero
    "Byzantine": lambda: hetero.byzantine.wrong_pads([True, False]),
    "ByzantineTolerance": lambda: hetero.tolerated_byzantine(
        hetero.segment_matrix("sc", 4)
    ),
    "CohortGroups": lambda: hetero.ranked_groups(GRAPH, np.arange(1.0, 5.0), 2)[0],
    "Collusion": lambda: hetero.byzantine.Collusion(jnp.ones(()), jnp.ones(())),
    "CommunicationTimes": lambda: hetero.costs.communication_times(
        _layout(), np.ones(4)
    ),
    "CoordinateMedian": hetero.robust.coordinate_median,
    "GaussianAverage": lambda: hetero.byzantine.GaussianAverage(jnp.ones(())),
    "GeometricMedian": hetero.robust.geometric_median,
    "Krum": lambda: hetero.robust.krum(1),
    "PrivacyReport": lambda: hetero.privacy_report(hetero.segment_matrix("sc", 4)),
    "RoundRates": lambda: hetero.round_rates(_layout(), 0.1, num_trials=2),
    "Scaling": lambda: hetero.byzantine.Scaling(jnp.ones(())),
    "SegmentAverage": lambda: hetero.segment_average(_layout(), (-1.0, 1.0)),
    "SegmentCosts": lambda: hetero.costs.segment_costs(_layout()),
    "SegmentHistory": lambda: hetero.segment_participation(_layout(), num_rounds=2),
    "SegmentLayout": _layout,
    "SegmentLeakage": lambda: hetero.segment_leakage(
        hetero.segment_participation(_layout(), num_rounds=2)
    ),
    "SegmentResult": lambda: hetero.aggregate(
        0, np.zeros((4, 6), np.float32), _layout(), (-1.0, 1.0)
    ),
    "TrimmedMean": lambda: hetero.robust.trimmed_mean(0.1),
    "UniformResidues": hetero.byzantine.UniformResidues,
    "WeightedMean": hetero.robust.weighted_mean,
    # live
    "GateAnswer": lambda: mrsa_watch.GateAnswer(True, ("a",), "fine"),
    "GateState": mrsa_watch.GateState,
    "Preflight": lambda: mrsa_watch.preflight(4, 2, num_rounds=3),
    # modular
    "Ring": lambda: modular.ring_of(37),
    # privacy
    "Audit": _audit,
    "ClientPrivacy": lambda: privacy.client_privacy(P, effort=0.0),
    "AttributeBound": lambda: privacy.attribute_bound(4),
    "CollusionRisk": lambda: privacy.collusion_risk(0, P, [0.25], 10),
    "Determined": lambda: privacy.determined([[1, 1], [1, 0]], [1, 0]),
    "DeterminedRate": lambda: privacy.determined_rate([[1, 1]], "bits:0.5"),
    "Distinguishability": lambda: privacy.distinguishability(P),
    "Gate": lambda: _audit().gate(2),
    "ParticipationLog": _log,
    "PolicyPrivacy": lambda: privacy.policy_privacy(
        0, _uniform(), _coins(), 0.1, 3, 2, blocks=2
    ),
    "Recipe": lambda: privacy.Recipe(((1, 1),), (("a", 1),)),
    "UnweightedGroup": lambda: privacy.unweighted_group(P),
    "WeakPrivacy": lambda: privacy.weak_privacy(P),
    "WeakPrivacyTrajectory": lambda: privacy.weak_privacy_trajectory(P, "bounds"),
    # protocol
    **_messages(),
    "Terms": lambda: protocol.Terms([bytes(32)] * 4, GRAPH, np.full(4, 3), BLOCKS),
    # quantize
    "FollowingRange": lambda: quantize.following_range(4.0),
    "LatticeQuantizer": lambda: quantize.lattice(0.1, 1.0, 4),
    "RingBudget": lambda: quantize.budget(16, 4),
    "StochasticQuantizer": _quantizer,
    # secagg
    "AggregateResult": lambda: secagg.aggregate(
        0, np.zeros((4, 3), np.uint32), GRAPH, SURVIVORS, 2, 8
    ),
    "Block": lambda: _plan()[0],
    "FailureRates": lambda: secagg.failure_rates(0, 6, 0.9, 0.1, 3, 50),
    "GraphRule": lambda: secagg.graph_rule(graphs.complete(4), 4),
    "PlanOutcome": lambda: secagg.plan_outcome(GRAPH, SURVIVORS, 2, _plan()),
    "PlannedRound": lambda: secagg.plan(12, 0.01).rounds[0],
    "RareFailureRates": lambda: secagg.rare_failure_rates(0, 6, 0.9, 0.1, 3, 50),
    "RingAverage": _average,
    "RingResult": lambda: secagg.ring_sum(
        _seeds(), np.zeros((4, 3), np.uint32), _plan(), 0
    ),
    "RoundPlan": lambda: secagg.plan(12, 0.01),
    "RoundCosts": lambda: secagg.fedavg_costs(4, 3, 8),
    "Seeds": _seeds,
    "StepReport": lambda: secagg.StepReport("keys", 4, 0.1, 0.1, 3, 3),
    "Transcript": lambda: secagg.Transcript(SURVIVORS, P, np.ones(4, bool)),
    # selection
    "BernoulliSelection": lambda: selection.bernoulli(4, 0.5),
    "BinSelection": lambda: selection.balls_in_bins(4, 2),
    "BlockSelection": lambda: selection.batch_partitioning(4, 2, 2),
    "ExpectedGap": lambda: selection.expected_fairness_gap(_uniform(), _coins()),
    "LineSelection": lambda: selection.from_lines(np.eye(4, dtype=int), 2),
    "PartBlocks": lambda: selection.blocks_within(np.ones((8, 2), bool), 4, 2),
    "PowerOfChoice": lambda: selection.power_of_choice(4, 2, 3),
    "RolloutMetrics": lambda: selection.rollout_metrics(0, _uniform(), _coins(), 2, 2),
    "RoundHistory": lambda: selection.rollout_rounds(
        0,
        _uniform(),
        _coins(),
        availability.independent_steps(0.1),
        2,
        policy="abort",
        blocks=[0, 0, 1, 1],
    ),
    "Scheme": lambda: study.parse_scheme("batch_partitioning:4"),
    "SeparatedSelection": lambda: selection.minimum_separation(_uniform(), 2),
    # study
    "Advice": lambda: study.advise(12, 4, 0.1),
    "SavedReport": lambda: SavedReport(
        pathlib.Path("report.html"), "demo", ("so2023",)
    ),
    **{
        name: getattr(module, name)
        for module in (study, study.attacks_on_models, study.attacks_on_sums)
        for name in dir(module)
        if name.endswith("Config")
    },
    "SumsOfRounds": study.SumsOfRounds,
    "AuditFindings": lambda: AuditFindings(pathlib.Path("log.csv"), _log(), _audit()),
    "Findings": lambda: Findings("a", ["b"], {"c": 1}),
}

# What attacks and simulations give, as arrays that tell its fields apart.
ARRAYS = (
    _attribute.AttributeScores,
    _canaries.Residuals,
    _dense_recovery.RecoveredInputs,
    _disaggregation.Disaggregated,
    _exposing_server.ExposingRounds,
    _gradient_inversion.InvertedImages,
    _inconsistency.Inconsistency,
    _membership.MembershipScores,
    _model_inversion.InvertedClasses,
    _distinguish.BestTest,
    averages.AggregateOut,
    averages.AggregatorState,
    _audit_rounds.OverRounds,
    _graph_rule.SlotRound,
    _mechanism.Composed,
    round_rules.LearntRound,
)
MAKERS |= {kind.__name__: functools.partial(_filled, kind) for kind in ARRAYS}

# What has a state of its own: two of them are two, whatever they hold.
STATEFUL: dict[str, Callable[[pathlib.Path], Any]] = {
    "AttackFindings": lambda _: AttackFindings(title="a", summary=[{"a": 1}]),
    "Checker": lambda _: mrsa_watch.mrsa_check.Checker(),
    "Client": lambda _: protocol.Client(
        0, [1, 2, 3], 2, np.zeros(3, np.uint32), _plan()
    ),
    "Explorer": lambda _: mj.explore(12, 6, 2),
    "Gate": lambda _: mrsa_watch.Gate(fail_below=2),
    "JsonLines": lambda folder: federated.json_lines(folder / "lines.jsonl"),
    "Pledge": lambda _: protocol.Pledge(),
    "Recorder": lambda folder: mrsa_watch.Recorder(
        folder / "log.jsonl", system="s", aggregation="secagg"
    ),
    "Server": lambda _: protocol.Server(
        GRAPH, np.full(4, 2), np.ones(4, bool), _plan()
    ),
}


# ---- Which classes are public.

_FAMILIES = [
    mj,
    *(own for own in map(mj.__getattr__, mj.__dir__()) if inspect.ismodule(own)),
]


def _is_value_class(kind: Any) -> bool:
    is_ours = inspect.isclass(kind) and kind.__module__.startswith("mrsa_")
    return is_ours and not getattr(kind, "_is_protocol", False)


def _public() -> Iterator[Any]:
    """Give what families and their public modules offer."""
    for family in (*_FAMILIES, mrsa_watch):
        stub = ast.parse(
            pathlib.Path(str(family.__file__)).with_suffix(".pyi").read_text()
        )
        names = [own.asname for line in stub.body for own in getattr(line, "names", ())]
        for value in (getattr(family, name) for name in names if name):
            yield value
            if inspect.ismodule(value) and value not in _FAMILIES:
                yield from (
                    own for own in vars(value).values() if _is_made_in(own, value)
                )


def _is_made_in(value: Any, module: Any) -> bool:
    is_public = not getattr(value, "__name__", "_").startswith("_")
    return is_public and getattr(value, "__module__", None) == module.__name__


def _returned(kind: Any) -> Iterator[Any]:
    """Give the classes that a function, or a method of a class, says that it returns."""
    functions = [kind]
    if inspect.isclass(kind):
        functions = [
            own for name, own in vars(kind).items() if not name.startswith("_")
        ]
    for function in functions:
        function = getattr(function, "__func__", getattr(function, "fget", function))
        with contextlib.suppress(NameError, TypeError, AttributeError):
            yield from _classes(typing.get_type_hints(function).get("return"))


def _classes(hint: Any) -> Iterator[Any]:
    if _is_value_class(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from _classes(part)


def _named(kinds: Iterable[Any]) -> set[str]:
    return {kind.__name__ for kind in kinds if not issubclass(kind, Exception)}


@pytest.mark.long
def test_every_public_class_has_a_row() -> None:
    kinds = _named(filter(_is_value_class, _public()))
    assert len(kinds) > 90
    assert not sorted(kinds - {*MAKERS, *STATEFUL})


def _inside(value: Any) -> Iterator[Any]:
    """Give a value and the values of this package that it is made of."""
    if _is_value_class(type(value)):
        yield value
    parts: Any = ()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, tuple | list):
        parts = value[:2]
    for part in parts:
        yield from _inside(part)


@pytest.mark.long
def test_what_public_functions_return_has_a_row_or_is_inside_of_one() -> None:
    made = _named(type(part) for maker in MAKERS.values() for part in _inside(maker()))
    kinds = [kind for value in _public() for kind in (value, *_returned(value))]
    wanted = _named(filter(_is_value_class, kinds))
    assert len(wanted) > 130
    assert not sorted(wanted - made - {*STATEFUL, "TensorBoard", "Wandb"})


# ---- What holds of each.


@pytest.fixture(scope="module")
def other_process() -> Iterator[concurrent.futures.Executor]:
    spawned = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawned) as executor:
        yield executor


@pytest.mark.long
@pytest.mark.parametrize("name", MAKERS)
def test_copies_are_equal(
    name: str, other_process: concurrent.futures.Executor
) -> None:
    value = MAKERS[name]()
    assert type(value).__name__ == name
    copies = (
        copy.copy(value),
        copy.deepcopy(value),
        pickle.loads(pickle.dumps(value)),
        other_process.submit(copy.copy, value).result(),
    )
    for copied in copies:
        _check_equal(copied, value)
    for part in _inside(value):
        _check_equal(copy.deepcopy(part), part)
        assert (part == 3, part != 3) == (False, True)
        if dataclasses.is_dataclass(part):
            assert list(dataclasses.asdict(part)) == [
                own.name for own in dataclasses.fields(part)
            ]


def _check_equal(copied: Any, value: Any) -> None:
    assert (copied == value) is True
    assert (copied != value) is False
    assert hash(copied) == hash(value)
    assert len({copied, value}) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", STATEFUL)
def test_what_has_a_state_is_itself_alone(name: str, tmp_path: pathlib.Path) -> None:
    value = STATEFUL[name](tmp_path)
    assert (value == value, value == 3) == (True, False)
    assert isinstance(hash(value), int)
    if name == "Recorder":
        with (
            value,
            pytest.raises(
                TypeError, match="a Recorder holds its log: it cannot be copied"
            ),
        ):
            pickle.dumps(value)
        return
    for copied in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert (copied == value) is False


@pytest.mark.parametrize("name", [name for name in dir(mj) if name.endswith("Error")])
def test_errors_keep_their_sentence(name: str) -> None:
    error = getattr(mj, name)("`x` must be 1; got 2")
    assert (
        str(pickle.loads(pickle.dumps(error))) == str(error) == "`x` must be 1; got 2"
    )


# ---- How schemes compare.


@pytree
class _Scheme:
    rate: Any
    size: int = dataclasses.field(metadata={"static": True})


def test_schemes_compare_by_what_they_hold() -> None:
    rates = np.array([0.1, np.nan], np.float32)
    value = _Scheme(rates, 3)
    assert value == _Scheme(rates.copy(), 3) == _Scheme(jnp.asarray(rates), 3)
    different = [
        _Scheme(rates, 4),
        _Scheme(rates[:1], 3),
        _Scheme(rates[None], 3),
        _Scheme(rates.astype(np.float64), 3),
        _Scheme(np.array([0.1, 0.0], np.float32), 3),
        _Scheme(np.array([0.0, -0.0], np.float32), 3),
        _Scheme(np.zeros(2, np.float32), 3),
        _Scheme(None, 3),
        _Scheme((rates, 3), 3),
    ]
    for other in different:
        assert (value == other) is False
    assert len({value, *different}) == 1 + len(different)


def test_keys_compare_by_their_words_and_traced_values_by_identity() -> None:
    assert _Scheme(jax.random.key(3), 1) == _Scheme(jax.random.key(3), 1)
    assert _Scheme(jax.random.key(3), 1) != _Scheme(jax.random.key(4), 1)
    assert _Scheme(jax.random.key(3), 1) != _Scheme(
        jax.random.key_data(jax.random.key(3)), 1
    )
    seen = []

    @jax.jit
    def compare(a: Any, b: Any) -> Any:
        seen.append((a == b, a == _Scheme(a.rate, a.size), len({a, b})))
        return a.rate

    compare(_Scheme(1.0, 3), _Scheme(1.0, 3))
    assert seen == [(False, True, 2)]


def test_a_class_that_says_how_it_compares_keeps_that() -> None:
    @pytree
    class Loose:
        rate: Any

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Loose)

        def __hash__(self) -> int:
            return 0

    assert Loose(1.0) == Loose(2.0)
    assert len({Loose(1.0), Loose(2.0)}) == 1


def test_a_scheme_as_a_static_argument_compiles_once() -> None:
    traced = []

    @functools.partial(jax.jit, static_argnums=0)
    def rate_of(scheme: Any, x: Any) -> Any:
        traced.append(scheme)
        return x * np.float32(scheme.size)

    for size in (2, 2, 3, 2):
        assert rate_of(_Scheme(np.ones(2), size), np.float32(2)) == 2 * size
    assert len(traced) == 2


def test_contents_of_containers() -> None:
    values = [{"a": np.ones(2), "b": [1, {2}]}, {"b": [1, {2}], "a": np.ones(2)}]
    assert contents(values[0]) == contents(values[1])
    assert contents([1]) != contents((1,))
    assert contents(np.array([None, "a"], object)) == contents(
        np.array([None, "a"], object)
    )
    assert contents(functools.partial(int, "1")) == contents(
        functools.partial(int, "1")
    )
    assert contents("nan") != contents(float("nan")) == contents(np.nan)
