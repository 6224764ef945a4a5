"""Flower's own commands on loopback.

Each in a home of its own, and ended with what it started.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

PATIENCE_SECONDS = 400


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(programs: pathlib.Path, home: pathlib.Path) -> dict[str, str]:
    """Return the variables of Flower's commands, with these programs first and this home."""
    home.mkdir(exist_ok=True)
    strange = ("PYTHON", "VIRTUAL_ENV", "XLA_", "MRSA_", "JAX_", "FLWR_", "RAY_")
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(strange)
    }
    return own | {
        "HOME": str(home),
        "FLWR_HOME": str(home / ".flwr"),
        "PATH": f"{programs}{os.pathsep}{own['PATH']}",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }


def run(
    command: str,
    variables: dict[str, str],
    folder: pathlib.Path,
    statuses: tuple[int, ...] = (0,),
) -> str:
    """Run lines of bash to their end, and return what they printed."""
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode in statuses, (
        f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    )
    return done.stdout + done.stderr


@contextlib.contextmanager
def started(
    words: list[str], variables: dict[str, str], log: pathlib.Path
) -> Iterator[None]:
    """Keep a command running, with its output in a file, until the block ends."""
    with log.open("ab") as out:
        server = subprocess.Popen(
            words,
            cwd=log.parent,
            env=variables,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def wait_for(port: int) -> None:
    """Return as soon as somebody listens."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 1.0),
        ):
            return
        time.sleep(0.2)
    raise AssertionError(f"nobody listens on {port}")


@contextlib.contextmanager
def link(variables: dict[str, str], name: str, *more: str) -> Iterator[int]:
    """Keep a link running, on a port that is returned, which Flower's commands know by a name.

    The link that `flwr run` would start by itself must answer in 15 seconds, and then
    in 0.4.
    """
    home, port = pathlib.Path(variables["HOME"]), free_port()
    words = ["flower-superlink", "--insecure", "--port", str(port), *more]
    config = home / ".flwr" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(f"""[superlink]
default = "{name}"
[superlink.{name}]
address = "127.0.0.1:{port}"
insecure = true
""")
    with started(words, variables, home / f"{name}.log"):
        wait_for(port)
        yield port
