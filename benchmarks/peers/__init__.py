"""Rival frameworks, each in a folder and an environment of its own, behind one adapter.

A peer runs as a process of its own Python; it answers one JSON line a job (see
`pytorch/adapter.py`). Make its environment once:

    python -m venv benchmarks/peers/pytorch/.venv
    benchmarks/peers/pytorch/.venv/bin/pip install -r benchmarks/peers/pytorch/requirements.txt

or name the Python of one that is elsewhere in MRSA_JAX_PEER_PYTORCH; `breaching` likewise.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any

import numpy as np

_HERE = pathlib.Path(__file__).parent


def python_of(name: str) -> pathlib.Path | None:
    """Return the Python of a peer's environment, or None if it has not been made."""
    named = os.environ.get(f"MRSA_JAX_PEER_{name.upper()}")
    path = pathlib.Path(named) if named else _HERE / name / ".venv" / "bin" / "python"
    return path if path.exists() else None


class Peer:
    """A running peer with one workload loaded.

    Args:
        name: Folder of the peer, e.g. "pytorch".
        workload: Arrays and settings as `pytorch/adapter.py` reads them.
        threads: Threads it may use.
    """

    def __init__(self, name: str, workload: dict[str, Any], *, threads: int) -> None:
        python = python_of(name)
        if python is None:
            raise FileNotFoundError(f"no environment for {name}; see {__file__}")
        self._folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self._folder.name) / "workload.npz"
        arrays = {key: value for key, value in workload.items() if key != "settings"}
        np.savez(path, settings=json.dumps(workload["settings"]), **arrays)
        self._process = subprocess.Popen(
            [str(python), str(_HERE / name / "adapter.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version = self._ask(command="load", path=str(path), threads=threads)["version"]

    def _ask(self, **job: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with {self._process.wait()} at {job['command']}")
        return json.loads(line)

    def run(self) -> None:
        """Do the workload once."""
        self._ask(command="run")

    def saved(self, what: str = "updates") -> np.ndarray:
        """Return an array that the adapter keeps, such as each client's update of the last run."""
        path = pathlib.Path(self._folder.name) / f"{what}.npy"
        self._ask(command="save", what=what, path=str(path))
        return np.load(path)

    def close(self) -> None:
        """End the process and remove its files."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._folder.cleanup()
