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

_HEAD = {"format": "mrsa-jax client register", "version": 1}  # of a register's file


def write_private(path: pathlib.Path, content: bytes) -> None:
    """Put a file that its owner alone may read in place as a whole, flushed to disk.

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
        self.path = path
        self.num_clients = num_clients
        self._names = _read(path) if path.exists() else []
        count = len(self._names)
        rule = f"must be at least the {count} clients that {path} has registered"
        require(count <= num_clients, "selector", rule, f"{num_clients} clients")
        self.places = {name: place for place, name in enumerate(self._names)}
        self._by_likeness = PseudonymNames()
        self._by_likeness.add(self._new(self._names))

    def _new(self, names: Iterable[str]) -> dict[Any, str]:
        """Return the new names by likeness; raise for two that may be one."""
        try:
            return self._by_likeness.new(names)
        except AlikeError as error:
            rule = (
                "must name each client in one way; "
                f"{error.name!r} may be {error.other!r}"
            )
            rule += f", which has a place in {self.path}"
            raise ConfigurationError(f"`name` {rule}") from error

    def join(self, names: Iterable[str]) -> None:
        """Give new names the next indices, as long as there are any.

        Raises:
            ConfigurationError: If a name is like another one and not it.
            StoreError: If the file cannot be written; they have none then.
        """
        by_likeness = self._new(names)
        new = list(by_likeness.values())[: self.num_clients - len(self._names)]
        if new:
            text = json.dumps({**_HEAD, "clients": self._names + new})
            with writing(self.path, "path"):
                write_private(self.path, f"{text}\n".encode())
            self.places |= {
                name: len(self._names) + place for place, name in enumerate(new)
            }
            self._names += new
            self._by_likeness.add(self._new(new))


def _read(path: pathlib.Path) -> list[str]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        fields = None
    names: Any = fields.pop("clients", None) if isinstance(fields, dict) else None
    is_register = isinstance(names, list) and _HEAD.items() <= fields.items()
    require(is_register, str(path), "must be a register of clients")
    are_names = all(isinstance(name, str) for name in names)
    is_fine = are_names and len(set(names)) == len(names)
    require(is_fine, str(path), "must hold each client's name once")
    return names
