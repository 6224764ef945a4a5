"""Strategies that select: blocks stay whole, indices and state outlive the server."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import pytest
from network import Losses, Network, lines, serve, sums
from test_record import INTERFACES, Fake, Keeps, KeepsMessages, run

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.live import Gate, Recorder, flower

# a node's index is its number less 301: new ones are taken in order
NODES = range(301, 313)
_selector = functools.cache(lambda: mj.selection.batch_partitioning(12, 6, 3))


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log.jsonl"


def _recorder(path: pathlib.Path) -> Recorder:
    return Recorder(path, system="flower", aggregation="secagg+", salt=b"")


def _play(
    path: pathlib.Path,
    network: Network,
    num_rounds: int,
    kind: Any = Keeps,
    selector: Any = None,
    **settings: Any,
) -> None:
    """Run a server from its start to its end."""
    with _recorder(path) as recorder:
        run(
            network,
            flower.select(kind(path), recorder, selector or _selector(), **settings),
            num_rounds,
        )


def _asked(path: pathlib.Path) -> list[list[int]]:
    return [
        sorted(int(name) - 301 for name in line.asked or ()) for line in lines(path)
    ]


# ---- misuse


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        (KeepsMessages, {"fraction_train": 0.5}, "fraction_train"),
        (
            KeepsMessages,
            {"min_train_nodes": 7},
            "min_train_nodes and min_available_nodes",
        ),
        (
            KeepsMessages,
            {"min_available_nodes": 12},
            "min_train_nodes and min_available_nodes",
        ),
    ],
)
def test_a_strategy_that_wants_others_than_the_cohort_is_told(
    path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    settings: Any,
    name: str,
) -> None:
    monkeypatch.setattr(
        "flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None
    )
    with _recorder(path) as recorder, pytest.raises(ConfigurationError, match=name):
        run(
            Network(NODES),
            flower.select(kind(path, **settings), recorder, _selector()),
            1,
        )


def test_a_strategy_that_asks_a_part_of_the_cohort_is_told(path: pathlib.Path) -> None:
    class Half(Keeps):
        def configure_fit(self, *args: Any, **named: Any) -> Any:
            return super().configure_fit(*args, **named)[::2]

    with (
        _recorder(path) as recorder,
        pytest.raises(ConfigurationError, match="fraction_fit must"),
    ):
        run(Network(NODES), flower.select(Half(path), recorder, _selector()), 1)
    assert lines(path) == []


def test_a_log_of_another_selection_is_told(path: pathlib.Path) -> None:
    _play(path, Network(NODES), 3)
    with _recorder(path) as recorder:
        for selector in (
            mj.selection.uniform(12, 4),
            mj.selection.batch_partitioning(12, 6, 2),
        ):
            with pytest.raises(
                ConfigurationError, match="`selector` must be the one that chose"
            ):
                flower.select(Keeps(path), recorder, selector)
        with pytest.raises(
            ConfigurationError, match="`selector` must be at least the 12 clients"
        ):
            flower.select(
                Keeps(path), recorder, mj.selection.batch_partitioning(9, 6, 3)
            )
    other = path.with_name("recorded")
    with _recorder(other) as recorder:
        recorder.record(1, ["301"])
        with pytest.raises(
            ConfigurationError, match=r"in line 2 of .* whom the server asked"
        ):
            flower.select(Keeps(other), recorder, _selector())
        path.with_name("recorded.clients").write_text("[]")
        with pytest.raises(
            ConfigurationError, match=r"recorded\.clients` must be a register"
        ):
            flower.select(Keeps(other), recorder, _selector())


def test_a_log_whose_register_is_gone_is_told(path: pathlib.Path) -> None:
    _play(path, Network(NODES), 1)
    path.with_name("log.jsonl.clients").unlink()
    with (
        _recorder(path) as recorder,
        pytest.raises(ConfigurationError, match=r"line 2 of .*log"),
    ):
        flower.select(Keeps(path), recorder, _selector())


# ---- who is asked


@INTERFACES
def test_with_everybody_there_it_is_the_rollout(path: pathlib.Path, kind: Any) -> None:
    _play(path, Network(NODES), 8, kind, seed=7)
    history = mj.selection.rollout(7, _selector(), mj.availability.independent(0.0), 8)
    assert _asked(path) == [np.flatnonzero(row).tolist() for row in np.asarray(history)]


@INTERFACES
def test_a_server_that_starts_again_goes_on(path: pathlib.Path, kind: Any) -> None:
    """At three moments, under losses that change the counts; and once without."""
    losses: Losses = {(number, "train"): {301 + number, 305} for number in range(1, 11)}
    whole = path.with_name("whole")
    _play(whole, Network(NODES, losses), 10, kind, seed=3)
    played = 0
    for more in (1, 4, 0, 5):
        late = {(number - played, "train"): who for (number, _), who in losses.items()}
        _play(path, Network(NODES, late), more, kind, seed=3)
        played += more
    assert _asked(path) == _asked(whole)
    assert [line.clients for line in lines(path)] == [
        line.clients for line in lines(whole)
    ]
    assert [line.run for line in lines(path)] == [0] + [1] * 4 + [3] * 5


def test_who_was_asked_in_vain_is_not_served(path: pathlib.Path) -> None:
    """The least used are asked first: those who were lost come again at once."""
    network = Network(NODES, {(1, "train"): set(NODES)})
    _play(path, network, 3, selector=mj.selection.weighted(12, 6))
    (_, first, *_), (second, third) = sums(path)[0], _asked(path)[1:]
    assert first == "aborted"
    assert sorted(second + third) == list(range(12))


@pytest.mark.smoke("fit")
@INTERFACES
def test_nodes_join_leave_and_come_back(path: pathlib.Path, kind: Any) -> None:
    """Blocks of clients 0 to 2 and so on, by the order of joining, whoever is there."""
    network = Network([309, 305, 302], size=1)
    _play(path, network, 1, kind, wait_for=0)  # three there, and six needed
    network.nodes = [305, 302, 301, 303, 311]  # 309 left; 301, 303 and 311 join
    _play(path, network, 1, kind, wait_for=0)
    network.nodes = [311, 301, 303, 302, 305, 309]  # and it came back
    _play(path, network, 1, kind, wait_for=0)
    assert [status for _, status, *_ in sums(path)] == ["aborted", "aborted", "learnt"]
    assert network.asked.keys() == {(1, "train")}
    network.nodes = [301, 303, 311, 312, 313, 314]  # another block instead of the first
    _play(path, network, 1, kind, wait_for=0)
    assert sorted(int(name) for name in lines(path)[3].asked or ()) == network.nodes


@INTERFACES
def test_more_nodes_than_the_selector_has_clients_are_told(
    path: pathlib.Path, kind: Any
) -> None:
    network = Network([*NODES, 401, 402])
    with pytest.warns(
        RuntimeWarning, match="is of 12 clients.*: 2 more are left out"
    ) as told:
        _play(path, network, 6, kind)
    assert len(told) == 1
    assert set().union(*_asked(path)) <= set(range(12))


@INTERFACES
def test_rounds_wait_for_nodes(
    path: pathlib.Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(NODES[:4])

    def join(*args: Any, **named: Any) -> bool:
        network.nodes = list(NODES)
        return True

    monkeypatch.setattr("mrsa_watch.flower._strategies.time.sleep", join)
    monkeypatch.setattr("flwr.server.client_manager.SimpleClientManager.wait_for", join)
    _play(path, network, 1, kind)
    assert sums(path)[0][1] == "learnt"


@INTERFACES
def test_the_gate_wants_a_block_left_out(path: pathlib.Path, kind: Any) -> None:
    """Of four blocks the one with client 304 is never asked; another takes its place."""
    _play(path, Network(NODES), 8, kind, gate=Fake(304))
    assert {status for _, status, *_ in sums(path)} == {"learnt"}
    assert set().union(*_asked(path)) == set(range(12)) - {3, 4, 5}
    few = path.with_name("few")
    _play(few, Network(NODES), 2, kind, gate=Fake(301, 304, 307))
    assert sums(few) == [(1, "refused", set(), {}), (2, "refused", set(), {})]
    _play(few, Network(NODES), 1, kind)  # which it goes on from
    assert sums(few)[2][1] == "learnt"


@pytest.mark.slow
def test_a_gate_keeps_its_bar_whatever_is_lost(path: pathlib.Path) -> None:
    """Cohorts without blocks, before rounds and again before unmasking.

    T stays at the bar.
    """
    draws, num_rounds = np.random.default_rng(6), 10
    losses: Losses = {
        (number, "upload"): {node for node in NODES if draws.random() < 0.2}
        for number in range(1, num_rounds + 1)
    }
    found = {}
    for bar in (None, 3):
        log = path.with_name(f"bar {bar}")
        gate = Gate(fail_below=bar)
        with _recorder(log) as recorder:
            strategy = flower.select(
                Keeps(log), recorder, mj.selection.uniform(12, 4), gate=gate
            )
            workflow = flower.SecAggPlus(1.0, 2, max_weight=10.0)
            network = Network(NODES, losses, size=1)
            network.examples = {node: node - 300 for node in NODES}
            serve(network, strategy, workflow, num_rounds)
        found[bar] = mj.privacy.weak_privacy(_participation(log))
        assert gate.state.sums == len(_participation(log))
        assert gate.state.lower == found[bar].lower
    assert found[None].upper < 3
    assert found[3].lower >= 3


# ---- T


def _participation(path: pathlib.Path) -> np.ndarray:
    return np.asarray(
        [
            [str(node) in line.clients for node in NODES]
            for line in lines(path)
            if line.clients
        ]
    )


@pytest.mark.slow
def test_blocks_keep_t_where_losses_split_them(path: pathlib.Path) -> None:
    """The same losses with Flower's way of summing whoever is left.

    T falls below the block.
    """
    draws, num_rounds = np.random.default_rng(2), 12
    losses: Losses = {
        (number, "upload"): {node for node in NODES if draws.random() < 0.1}
        for number in range(1, num_rounds + 1)
    }
    found = {}
    for policy in ("ignore", "drop_block"):
        log = path.with_name(policy)
        with _recorder(log) as recorder:
            strategy = flower.select(Keeps(log), recorder, _selector())
            workflow = flower.SecAggPlus(1.0, 2, blocks=policy, max_weight=10.0)  # type: ignore[arg-type]
            serve(Network(NODES, losses, size=1), strategy, workflow, num_rounds)
        found[policy] = mj.privacy.weak_privacy(_participation(log))
    assert found["drop_block"].certified
    assert found["drop_block"].lower == 3
    assert found["ignore"].upper < 3
