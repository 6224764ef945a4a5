"""Rival systems, each in a separate process and environment, behind one adapter.

A peer's folder in `peers` holds `adapter.py`, which answers one JSON line a job, and
`requirements.txt`, which pins its environment. Nothing here imports JAX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from mrsa_jax.bench.harness import Answer, PeerError

if TYPE_CHECKING:
    import numpy as np

_PEERS = pathlib.Path(__file__).parent / "peers"  # also where adapters find `serving`
_LAST_LINES = 12  # of what a peer wrote before it ended


@dataclasses.dataclass(frozen=True)
class System:
    """A system in a separate environment.

    Attributes:
        name: Of its folder in `peers`.
        title: What it calls itself.
        what: What is compared.
    """

    name: str
    title: str
    what: str

    @property
    def folder(self) -> pathlib.Path:
        """Where its adapter and its pins are."""
        return _PEERS / self.name

    @property
    def _environment(self) -> pathlib.Path:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return pathlib.Path(home) / "mrsa_jax" / "peers" / self.name

    @property
    def python(self) -> pathlib.Path | None:
        """The Python of its environment, or None if it has not been made.

        `MRSA_JAX_PEER_<NAME>` names a Python that is elsewhere than in the cache
        folder.
        """
        named = os.environ.get(f"MRSA_JAX_PEER_{self.name.upper()}")
        path = pathlib.Path(named) if named else self._environment / "bin" / "python"
        return path if path.exists() else None

    @property
    def make(self) -> tuple[str, str]:
        """The two commands that make its environment."""
        place, pins = self._environment, self.folder / "requirements.txt"
        return f"python3.11 -m venv {place}", f"{place}/bin/pip install -r {pins}"


SYSTEMS = {
    each.name: each
    for each in (
        System("pytorch", "PyTorch", "its plain loop over clients and minibatches"),
        System("breaching", "breaching", "its attack `invertinggradients`"),
        System("fedjax", "FedJAX", "whole rounds of its federated averaging"),
        System(
            "pfl", "pfl-research", "whole rounds of its federated averaging on PyTorch"
        ),
        System("jax_privacy", "jax_privacy", "its samples of privacy losses, in NumPy"),
        System(
            "flower", "Flower", "whole rounds of its simulation; its SecAgg+ protocol"
        ),
    )
}


class Peer:
    """A running peer with one workload loaded; a context manager that ends it.

    Args:
        name: A name of `SYSTEMS`.
        workload: `settings` (a dictionary for JSON) and arrays, as the peer's adapter
            reads them.
        threads: Threads it may use.

    Raises:
        PeerError: If it has no environment, or ends while it loads.
    """

    def __init__(self, name: str, workload: dict[str, Any], *, threads: int) -> None:
        import numpy as np

        self._system = SYSTEMS[name]
        python = self._system.python
        if python is None:
            how = " && ".join(self._system.make)
            raise PeerError(f"no environment for {name}; make it: {how}")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        path = pathlib.Path(self._folder.name) / "workload.npz"
        arrays = {key: value for key, value in workload.items() if key != "settings"}
        np.savez(path, settings=np.asarray(json.dumps(workload["settings"])), **arrays)
        # a file: a pipe that is not read would fill up and block the peer
        self._words = (pathlib.Path(self._folder.name) / "stderr").open("w+")
        self._process = subprocess.Popen(
            [str(python), str(self._system.folder / "adapter.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            env=_without_ours(os.environ) | {"PYTHONPATH": str(_PEERS)},
            cwd=self._folder.name,
        )
        try:
            answer = self._ask(command="load", path=str(path), threads=threads)
            self.version = answer["version"]
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
        return f"{self._system.title} {self.version}"

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
            # an empty line means that the process has ended
            status = self._process.wait()
            self._words.seek(0)
            last = "".join(self._words.readlines()[-_LAST_LINES:])
            raise PeerError(
                f"{self._system.name} ended with {status} at {job['command']}:\n{last}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self) -> Answer:
        """Do the workload once; return what the adapter reports."""
        return Answer(self._ask(command="run"))

    def saved(self, what: str = "updates") -> np.ndarray:
        """Return an array that the adapter keeps, such as the last run's updates."""
        import numpy as np

        path = pathlib.Path(self._folder.name) / f"{what}.npy"
        self._ask(command="save", what=what, path=str(path))
        array: np.ndarray = np.load(path)
        return array

    def close(self) -> None:
        """End the process and remove its files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            # an adapter ends when its input does
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
    ours = ("JAX_", "XLA_", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    # settings of this package's JAX and Python would break the peer's
    theirs = {key: environment[key] for key in environment if not key.startswith(ours)}
    if sys.prefix != sys.base_prefix:
        # the programs of an active virtual environment are ours too
        parts = theirs.get("PATH", "").split(os.pathsep)
        others = [part for part in parts if part != f"{sys.prefix}/bin"]
        theirs["PATH"] = os.pathsep.join(others)
    return theirs
