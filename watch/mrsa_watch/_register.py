"""Permanent indices of clients: names in the order in which they joined, in a file."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from mrsa_watch._base.errors import ConfigurationError, require, writing
from mrsa_watch.logs import AlikeError, PseudonymNames

# ---- Files that their owner alone may read.


def write_private(path: pathlib.Path, content: bytes) -> None:
    """Put a file that its owner alone may read in its place as a whole, flushed to the disk.

    Raises:
        OSError: If it cannot be written; what was there stays.
    """
    path = pathlib.Path(os.path.realpath(path))  # a link stays
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, path)
    flush_folder(path.parent)


def flush_folder(path: pathlib.Path) -> None:
    """Flush the names in a folder to the disk, where the system can do so."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# ---- Permanent indices of clients: names in the order in which they joined, in a file.

FORMAT, VERSION = "mrsa-jax client register", 1


class Register:
    """Give clients indices that survive a restart.

    A client's block is a matter of its index, so that an index is never given to
    another: who leaves keeps it, and who comes back has it again. The file is replaced
    as a whole.

    Args:
        path: The file; made with the first client.
        num_clients: N: that many indices are there to give.

    Raises:
        ConfigurationError: If the file is no register, or is one of more clients.
    """

    def __init__(self, path: pathlib.Path, num_clients: int) -> None:
        self.path, self.num_clients = path, num_clients
        self._names = _read(path) if path.exists() else []
        rule = f"must be at least the {len(self._names)} clients that {path} has registered"
        require(
            len(self._names) <= num_clients, "selector", rule, f"{num_clients} clients"
        )
        self.places = {name: place for place, name in enumerate(self._names)}
        self._by_likeness = PseudonymNames()
        self._by_likeness.add(self._new(self._names))

    def _new(self, names: Iterable[str]) -> dict[Any, str]:
        """Return the names that are new, by their likeness.

        Raise for two that may be one.
        """
        try:
            return self._by_likeness.new(names)
        except AlikeError as error:
            rule = f"must name each client in one way; {error.name!r} may be {error.other!r}"
            raise ConfigurationError(
                f"`name` {rule}, which has a place in {self.path}"
            ) from error

    def join(self, names: Iterable[str]) -> None:
        """Give new names the next indices, as long as there are any.

        Raises:
            ConfigurationError: If a name is like another one and not it.
            StoreError: If the file cannot be written; they have none then.
        """
        by_likeness = self._new(names)
        new = list(by_likeness.values())[: self.num_clients - len(self._names)]
        if new:
            _write(self.path, self._names + new)
            self.places |= {
                name: len(self._names) + place for place, name in enumerate(new)
            }
            self._names += new
            self._by_likeness.add(self._new(new))


def _read(path: pathlib.Path) -> list[str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    fields = found if isinstance(found, dict) else {}
    is_one = (fields.get("format"), fields.get("version")) == (FORMAT, VERSION)
    names: Any = fields.get("clients")
    require(
        is_one and isinstance(names, list), str(path), "must be a register of clients"
    )
    good = all(isinstance(name, str) for name in names) and len(set(names)) == len(
        names
    )
    require(good, str(path), "must hold each client's name once")
    return list(names)


def _write(path: pathlib.Path, names: list[str]) -> None:
    text = json.dumps({"format": FORMAT, "version": VERSION, "clients": names})
    with writing(path, "path"):
        write_private(path, f"{text}\n".encode())
