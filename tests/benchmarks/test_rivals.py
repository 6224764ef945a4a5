"""Peers: what is missing is said, and what a peer's process answers or breaks is passed on."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

from benchmarks import rivals
from mrsa_jax import bench
from mrsa_jax.bench.harness import PeerError

_ADAPTER = """
from serving import serve

class Workload:
    def __init__(self, settings, arrays, threads):
        print("noise that is no answer")
        self.total = arrays["values"] * settings["factor"] * threads
    def run(self):
        if self.total[0] < 0:
            raise ValueError("negative")
        return {"seconds": 7.0}
    def saved(self, what):
        return self.total

serve(Workload, "1.2")
"""


@pytest.fixture
def peer(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stand in for FedJAX: an adapter that this Python runs."""
    (tmp_path / "adapter.py").write_text(_ADAPTER)
    monkeypatch.setattr(rivals.System, "folder", tmp_path)
    monkeypatch.setenv("MRSA_JAX_PEER_FEDJAX", sys.executable)
    return "fedjax"


def _workload(value: float) -> dict[str, object]:
    return {"settings": {"factor": 10}, "values": np.asarray([value])}


def test_a_peer_without_an_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MRSA_JAX_PEER_PFL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert rivals.SYSTEMS["pfl"].python is None
    with pytest.raises(PeerError, match=r"no environment for pfl; make it: python3"):
        rivals.Peer("pfl", _workload(1.0), threads=1)
    make, install = rivals.SYSTEMS["pfl"].make
    assert str(tmp_path) in make
    assert install.endswith("requirements.txt")
    python = tmp_path / "mrsa_jax" / "peers" / "pfl" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert rivals.SYSTEMS["pfl"].python == python


def test_a_peer_answers(peer: str) -> None:
    with rivals.Peer(peer, _workload(3.0), threads=2) as running:
        assert running.title == "FedJAX 1.2"
        assert running.run()["seconds"] == 7.0
        np.testing.assert_array_equal(running.saved(), [60.0])
        process = running._process
    assert process.poll() is not None


def test_a_peer_that_breaks_down_says_why(peer: str) -> None:
    running = rivals.Peer(peer, _workload(-3.0), threads=2)
    with pytest.raises(PeerError, match=r"(?s)fedjax ended with 1 at run:.*negative"):
        running.run()
    running.close()


def test_every_peer_has_an_adapter_and_pins() -> None:
    for name, system in rivals.SYSTEMS.items():
        compile((system.folder / "adapter.py").read_text(), name, "exec")
        pins = (system.folder / "requirements.txt").read_text().splitlines()
        assert all("==" in pin for pin in pins if not pin.startswith("#"))
    named = {name for topic in bench.TOPICS.values() for name in topic.peers}
    assert named == set(rivals.SYSTEMS)
