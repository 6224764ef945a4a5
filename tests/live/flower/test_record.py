"""Recorded Flower strategies, both interfaces.

Each sum's line is there before its aggregate.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.serverapp.strategy import FedAvg as MessageFedAvg
from network import Network, lines, serve, sums, weights

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.live import Recorder, flower
from mrsa_watch.flower import _strategies

NODES = range(101, 107)
LOSSES = {(1, "train"): {101, 102}, (2, "train"): {104}, (4, "train"): set(NODES)}
START = ndarrays_to_parameters([np.zeros(3)])


class Keeps(FedAvg):
    """Keeps the means, and what the log held when they were made."""

    def __init__(self, path: pathlib.Path, **settings: Any) -> None:
        super().__init__(initial_parameters=START, fraction_evaluate=0.0, **settings)
        self.path, self.means, self.held = path, {}, {}  # type: ignore[var-annotated]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        self.held[server_round] = len(lines(self.path))
        found = super().aggregate_fit(server_round, results, failures)
        if found[0] is not None:
            self.means[server_round] = parameters_to_ndarrays(found[0])[0]
        return found


class KeepsMessages(MessageFedAvg):
    def __init__(self, path: pathlib.Path, **settings: Any) -> None:
        super().__init__(fraction_evaluate=0.0, **settings)
        self.path, self.means, self.held = path, {}, {}  # type: ignore[var-annotated]

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.held[server_round] = len(lines(self.path))
        found = super().aggregate_train(server_round, replies)
        if found[0] is not None:
            self.means[server_round] = next(iter(found[0].values())).numpy()
        return found


def run(network: Network, strategy: Any, num_rounds: int) -> None:
    if isinstance(strategy, _strategies.FitWrapper):
        serve(network, strategy, None, num_rounds)
    else:
        strategy.start(network, ArrayRecord([np.zeros(3)]), num_rounds)


INTERFACES = pytest.mark.parametrize(
    "kind", [Keeps, KeepsMessages], ids=["fit", "messages"]
)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def recorder(path: pathlib.Path) -> Iterator[Recorder]:
    with Recorder(path, system="flower", aggregation="plain", salt=b"") as found:
        yield found


class Fake:
    """A gate that forbids every sum with these clients, and remembers the sums it was told."""

    def __init__(self, *forbidden: Any) -> None:
        self.forbidden, self.sums, self.asked = set(map(str, forbidden)), [], []  # type: ignore[var-annotated]

    def check(self, candidates: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
        self.asked += [sorted(clients) for clients in candidates]
        return tuple(
            SimpleNamespace(
                allowed=not self.forbidden & set(clients),
                leave_out=tuple(sorted(self.forbidden & set(clients))),
                reason="a bar",
            )
            for clients in candidates
        )

    def add(self, clients: Collection[str], weights: Any = None) -> None:
        self.sums.append((tuple(clients), tuple(weights)))


# ---- misuse


def test_a_strategy_is_recorded_once(recorder: Recorder) -> None:
    with pytest.raises(
        ConfigurationError, match="`strategy` must not be recorded already"
    ):
        flower.record(flower.record(FedAvg(), recorder), recorder)


@pytest.mark.long
def test_what_is_no_recorder_gate_name_or_selector_is_told() -> None:
    """In a process of its own: the suite checks types before the functions do."""
    code = """
import pathlib, tempfile
import mrsa_jax as mj
from flwr.server.strategy import FedAvg
from mrsa_jax.live import Recorder, flower
path = pathlib.Path(tempfile.mkdtemp(), "log")
recorder = Recorder(path, system="flower", aggregation="plain")
uniform = mj.selection.uniform(6, 2)
for call in (
    lambda: flower.record(7, recorder),
    lambda: flower.record(FedAvg(), "log.jsonl"),
    lambda: flower.record(FedAvg(), recorder, gate=3),
    lambda: flower.record(FedAvg(), recorder, name="anna"),
    lambda: flower.select(FedAvg(), recorder, "uniform"),
    lambda: flower.select(FedAvg(), recorder, uniform, seed="a"),
    lambda: flower.select(FedAvg(), recorder, uniform, wait_for=-1),
    lambda: flower.select(7, recorder, uniform),
    lambda: flower.SecAggPlus(1.0, 0.5, blocks="drop_blocks"),
):
    try:
        call()
    except mj.ConfigurationError as error:
        print(error)
print(len(path.read_text().splitlines()))
"""
    kinds = "a flwr.server.strategy.Strategy or a flwr.serverapp.strategy.Strategy"
    assert _run(code).splitlines() == [
        f"`strategy` must be {kinds}; got 7",
        "`recorder` must have methods record, name; got 'log.jsonl'",
        "`gate` must have methods check, add; got 3",
        "`name` must be a function of a node's number; got 'anna'",
        "`selector` must have `num_clients`, `init` and `select`; got 'uniform'",
        "`seed` must be an integer or a typed JAX key; got 'a'",
        "`wait_for` must be at least 0; got -1",
        f"`strategy` must be {kinds}; got 7",
        "`blocks` must be a known policy: did you mean 'drop_block'? "
        "(known: ignore, abort, drop_block); got 'drop_blocks'",
        "1",
    ]


def _run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _import_with(version: str) -> str:
    code = (
        "import importlib.metadata as m, sys\n"
        f"def version(name):\n    {version}\n"
        "m.version = version\n"
        "try:\n    import mrsa_watch.flower\n"
        "except ImportError as error:\n    print(error, 'flwr' in sys.modules)\n"
    )
    return _run(code)


NEEDED = "`mrsa_watch.flower` must have flwr>=1.38,<1.43 (pip install 'flwr>=1.38,<1.43'); got "


def test_an_unsupported_flower_is_told_at_import() -> None:
    for version in ("1.43.0", "1.37.2", "2.0"):
        assert _import_with(f"return '{version}'") == f"{NEEDED}flwr {version} False\n"


def test_a_missing_flower_is_told_at_import() -> None:
    assert _import_with("raise m.PackageNotFoundError(name)") == f"{NEEDED}none False\n"


@INTERFACES
@pytest.mark.parametrize("count", [-1, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_told(
    recorder: Recorder, kind: Any, count: float
) -> None:
    if kind is Keeps and count != -1:
        pytest.skip("integers alone travel in this interface")
    network = Network(NODES)
    network.examples[103] = count
    with pytest.raises(
        ConfigurationError, match="`num_examples` of node 103 must be finite and"
    ):
        run(network, flower.record(kind(recorder.path), recorder), 1)
    assert lines(recorder.path) == []


@INTERFACES
def test_two_nodes_of_one_name_are_told(recorder: Recorder, kind: Any) -> None:
    strategy = flower.record(kind(recorder.path), recorder, name=lambda node: node // 2)
    with pytest.raises(
        ConfigurationError, match="`name` must tell all nodes of a round apart"
    ):
        run(Network(NODES), strategy, 1)


# ---- what is recorded


@INTERFACES
def test_the_log_is_the_truth_and_before_the_aggregate(
    recorder: Recorder, kind: Any
) -> None:
    inside = kind(recorder.path)
    network = Network(NODES, LOSSES)
    network.examples = {node: node - 100 for node in NODES}
    run(network, flower.record(inside, recorder), 5)
    everybody = set(NODES)
    assert sums(recorder.path) == [
        (1, "learnt", everybody - {101, 102}, {"train": {101, 102}}),
        (2, "learnt", everybody - {104}, {"train": {104}}),
        (3, "learnt", everybody, {}),
        (4, "aborted", set(), {"train": everybody}),
        (5, "learnt", everybody, {}),
    ]
    assert inside.held == {number: number for number in range(1, 6)}
    for line in lines(recorder.path):
        assert line.asked == tuple(map(str, NODES))
        own = weights(line)
        assert own == {node: Fraction(node - 100) for node in own}
        if own:
            expected = network.mean(line.round, own)
            np.testing.assert_allclose(inside.means[line.round], expected, atol=1e-12)
    assert inside.means.keys() == {1, 2, 3, 5}


@INTERFACES
def test_who_counts_nothing_is_not_in_the_sum(recorder: Recorder, kind: Any) -> None:
    network = Network(NODES)
    network.examples = {104: 0}
    run(network, flower.record(kind(recorder.path), recorder), 1)
    assert sums(recorder.path) == [(1, "learnt", set(NODES) - {104}, {})]


@pytest.mark.smoke
def test_fractions_of_examples_are_kept_exactly(recorder: Recorder) -> None:
    network = Network(NODES)
    network.examples = {101: 0.1}
    run(network, flower.record(KeepsMessages(recorder.path), recorder), 1)
    (line,) = lines(recorder.path)
    assert weights(line)[101] == Fraction(0.1)


@INTERFACES
def test_pseudonyms_and_lasting_names(tmp_path: pathlib.Path, kind: Any) -> None:
    path = tmp_path / "log.jsonl"
    with Recorder(path, system="flower", aggregation="plain") as recorder:
        strategy = flower.record(
            kind(path), recorder, name=lambda node: f"phone {node}"
        )
        run(Network(NODES), strategy, 1)
        expected = sorted(recorder.name(f"phone {node}") for node in NODES)
    (line,) = lines(path)
    assert list(line.clients) == expected
    assert "phone" not in path.read_text()


@INTERFACES
def test_all_else_goes_through(recorder: Recorder, kind: Any) -> None:
    inside = kind(recorder.path)
    wrapped = flower.record(inside, recorder)
    assert wrapped.path is inside.path
    assert isinstance(wrapped, kind.__mro__[2])  # of the same interface
    with pytest.raises(AttributeError, match="nothing"):
        _ = wrapped.nothing
    nobody = kind(
        recorder.path,
        **(
            {"fraction_fit": 0.0, "min_fit_clients": 0}
            if kind is Keeps
            else {"fraction_train": 0.0}
        ),
    )
    run(Network(NODES), flower.record(nobody, recorder), 2)
    assert lines(recorder.path) == []  # it asked nobody


@pytest.mark.smoke
def test_a_strategys_own_loop_is_recorded(recorder: Recorder) -> None:
    class Twice(KeepsMessages):
        def start(
            self, grid: Any, initial_arrays: Any, num_rounds: int = 3, **more: Any
        ) -> Any:
            return super().start(grid, initial_arrays, 2 * num_rounds, **more)

    inside = Twice(recorder.path)
    run(Network(NODES), flower.record(inside, recorder), 2)
    assert [line.round for line in lines(recorder.path)] == [1, 2, 3, 4]


# ---- whose log it is


def _app(network: Network, path: pathlib.Path, kind: Any, way: str) -> None:
    """Run an app for two rounds as `flwr run` does, with a relative path."""
    with Recorder(
        path.name, system="flower", aggregation="plain", salt=b""
    ) as recorder:
        if way == "select":
            selector = mj.selection.batch_partitioning(6, 6, 3)
            strategy = flower.select(kind(path), recorder, selector)
        else:
            strategy = flower.record(kind(path), recorder)
        run(network, strategy, 2)


@pytest.mark.long("select-fit")
@INTERFACES
@pytest.mark.parametrize("way", ["record", "select"])
def test_an_app_does_not_write_into_the_log_of_another(
    path: pathlib.Path, kind: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are run in the folder of the first; another run of the first one goes on."""
    monkeypatch.chdir(path.parent)
    for run_id in (71, 72):
        network = Network(NODES)
        network.app, network.run_id = "somebody/one", run_id
        _app(network, path, kind, way)
    before = lines(path)
    assert [line.key for line in before] == [(0, 1, 0), (0, 2, 0), (1, 1, 0), (1, 2, 0)]
    assert path.read_text().count('"extra": {"app": "somebody/one", "run_id": "7') == 2
    network = Network(NODES)
    network.app, network.run_id = "somebody/two", 73
    with pytest.raises(
        ConfigurationError,
        match=f"`path` must be the log of somebody/two; .* absolute path; got '{path}, which is of "
        "somebody/one'",
    ):
        _app(network, path, kind, way)
    assert network.asked == {}
    assert lines(path) == before


def test_the_log_is_told_of_by_its_whole_path(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        _strategies, "log", lambda level, text, *values: told.append(text % values)
    )
    monkeypatch.chdir(path.parent)
    with Recorder("log.jsonl", system="flower", aggregation="plain") as recorder:
        flower.record(FedAvg(), recorder)
        flower.select(FedAvg(), recorder, mj.selection.uniform(6, 2))
    assert told == [f"The participation log of this run is {path}"] * 2


# ---- the gate


@INTERFACES
def test_a_forbidden_round_is_not_begun(recorder: Recorder, kind: Any) -> None:
    gate, network = Fake(103), Network(NODES)
    run(network, flower.record(kind(recorder.path), recorder, gate=gate), 2)
    assert sums(recorder.path) == [(1, "refused", set(), {}), (2, "refused", set(), {})]
    assert network.asked == {}
    assert gate.sums == []


@INTERFACES
def test_the_gate_takes_learnt_sums_in(tmp_path: pathlib.Path, kind: Any) -> None:
    gate, network = Fake(), Network([101, 102, 103], {(1, "train"): {102}})
    network.examples = {103: 5}
    with Recorder(tmp_path / "log", system="flower", aggregation="plain") as recorder:
        run(network, flower.record(kind(recorder.path), recorder, gate=gate), 1)
        names = {node: recorder.name(node) for node in network.nodes}
    assert gate.asked == [sorted(names.values())]
    ((clients, factors),) = gate.sums
    assert dict(zip(clients, factors, strict=True)) == {names[101]: 1, names[103]: 5}


# ---- Flower's own SecAgg+


@pytest.mark.long
def test_flowers_own_workflow_is_recorded(recorder: Recorder) -> None:
    losses = {(1, "upload"): {101}, (2, "share_keys"): {102}, (4, "setup"): {103}}
    inside = Keeps(recorder.path)
    own = SecAggPlusWorkflow(1.0, 0.5, max_weight=10.0)
    strategy = flower.record(inside, recorder)
    network = Network(NODES, losses)
    serve(network, strategy, own, 4)
    everybody = set(NODES)
    assert sums(recorder.path) == [
        (1, "learnt", everybody - {101}, {"train": {101}}),
        # it cannot go on without the shares of who shared none
        (2, "aborted", set(), {}),
        (3, "learnt", everybody, {}),
    ]  # round 4 came to nothing, and nobody has said so yet
    assert inside.held == {1: 1, 3: 3}
    strategy.books.close()
    assert sums(recorder.path)[3] == (4, "aborted", set(), {})


def test_sums_of_a_part_of_the_vector_are_written_and_gated_as_such(
    tmp_path: pathlib.Path,
) -> None:
    gate, path = mj.live.Gate(fail_below=2), tmp_path / "log.jsonl"
    with Recorder(path, system="flower", aggregation="secagg+", salt=b"") as recorder:
        books = flower.record(FedAvg(), recorder, gate=gate, part="upper").books
        assert books.open(1, [1, 2, 3])
        books.learn(1, {1: 5, 2: 5, 3: 5})
        # the first sum less this one would be client 3's
        assert not books.open(2, [1, 2])
        whole = flower.record(FedAvg(), recorder, gate=gate).books
        # as a sum of whole updates is learnt in that part too
        assert not whole.open(3, [1, 2])
        assert whole.open(4, [1, 2, 3])
        whole.close()
    log = mj.privacy.read_log(path)
    assert (log.rounds, log.parts) == (("1[upper]",), ("upper",))
    assert [line.part for line in lines(path)] == ["upper", "upper", None, None]
    assert gate.state.parts == 1
