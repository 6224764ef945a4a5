"""Rival systems, each in a separate process and environment, behind one adapter.

A peer's folder holds `adapter.py`, which answers one JSON line a job, and `requirements.txt`, which
pins its environment. The folders lie in `benchmarks/peers` of a checkout and next to this module in
an installed package. Nothing here imports JAX.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from mrsa_watch._base.errors import MrsaError, nearest, require

if TYPE_CHECKING:
    import numpy as np

# name -> title, and what is compared
PEERS: dict[str, tuple[str, str]] = {
    "pytorch": ("PyTorch", "its plain loop over clients and minibatches"),
    "breaching": ("breaching", "its attack `invertinggradients`"),
    "fedjax": ("FedJAX", "whole rounds of its federated averaging"),
    "pfl": ("pfl-research", "whole rounds of its federated averaging on PyTorch"),
    "jax_privacy": ("jax_privacy", "its samples of privacy losses, in NumPy"),
    "flower": ("Flower", "whole rounds of its simulation; its SecAgg+ protocol"),
}

_PACKAGED = pathlib.Path(__file__).parent / "peers"
_CHECKOUT = pathlib.Path(__file__).parents[2] / "benchmarks" / "peers"
_LAST_LINES = 12  # of what a peer wrote before it ended


class PeerError(MrsaError, RuntimeError):
    """A peer has ended before its answer; the message holds its last words."""


def _folder(name: str) -> pathlib.Path:
    return (_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT) / name


def _environment(name: str) -> pathlib.Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(home) / "mrsa_jax" / "peers" / name


def python_of(name: str) -> pathlib.Path | None:
    """Return the Python of a peer's environment, or None if it has not been made.

    Args:
        name: A name of `PEERS`. `MRSA_JAX_PEER_<NAME>` names a Python that is elsewhere than in
            the cache folder.

    Raises:
        ConfigurationError: If there is no such peer.
    """
    require(name in PEERS, "name", f"must be a known peer; {nearest(name, PEERS)}", name)
    named = os.environ.get(f"MRSA_JAX_PEER_{name.upper()}")
    path = pathlib.Path(named) if named else _environment(name) / "bin" / "python"
    return path if path.exists() else None


def how_to_make(name: str) -> tuple[str, str]:
    """Return the two commands that make a peer's environment."""
    environment = _environment(name)
    return (
        f"python3.11 -m venv {environment}",
        f"{environment}/bin/pip install -r {_folder(name) / 'requirements.txt'}",
    )


class Peer:
    """A running peer with one workload loaded; a context manager that ends it.

    Args:
        name: A name of `PEERS`.
        workload: `settings` (a dictionary for JSON) and arrays, as the peer's adapter reads them.
        threads: Threads it may use.

    Raises:
        PeerError: If it has no environment, or ends while it loads.
    """

    def __init__(self, name: str, workload: dict[str, Any], *, threads: int) -> None:
        import numpy as np

        python = python_of(name)
        if python is None:
            raise PeerError(f"no environment for {name}; make it: {' && '.join(how_to_make(name))}")
        self.name = name
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        path = pathlib.Path(self._folder.name) / "workload.npz"
        arrays = {key: value for key, value in workload.items() if key != "settings"}
        np.savez(path, settings=np.asarray(json.dumps(workload["settings"])), **arrays)
        self._words = (pathlib.Path(self._folder.name) / "stderr").open("w+")
        self._process = subprocess.Popen(
            [str(python), str(_folder(name) / "adapter.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            env=_without_ours(os.environ),
            cwd=self._folder.name,
        )
        try:
            self.version = self._ask(command="load", path=str(path), threads=threads)["version"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Peer:
        """Return the peer."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{PEERS[self.name][0]} {self.version}"

    def _ask(self, **job: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            self._words.seek(0)
            last = "".join(self._words.readlines()[-_LAST_LINES:])
            raise PeerError(f"{self.name} ended with {status} at {job['command']}:\n{last}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self) -> dict[str, Any]:
        """Do the workload once; return what the adapter reports."""
        return self._ask(command="run")

    def saved(self, what: str = "updates") -> np.ndarray:
        """Return an array that the adapter keeps, such as each client's update of the last run."""
        import numpy as np

        path = pathlib.Path(self._folder.name) / f"{what}.npy"
        self._ask(command="save", what=what, path=str(path))
        found: np.ndarray = np.load(path)
        return found

    def close(self) -> None:
        """End the process and remove its files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._words.close()
        self._folder.cleanup()


def _without_ours(environment: os._Environ[str]) -> dict[str, str]:
    """Leave out what is set for this package's JAX and Python: a peer has its own."""
    own = ("JAX_", "XLA_", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {key: value for key, value in environment.items() if not key.startswith(own)}
    if sys.prefix != sys.base_prefix:
        kept["PATH"] = os.pathsep.join(
            part for part in kept.get("PATH", "").split(os.pathsep) if part != f"{sys.prefix}/bin"
        )
    return kept
