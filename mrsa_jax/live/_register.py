"""Which client has which index, for good: names in the order in which they joined, in a file."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable
from typing import Any

from mrsa_jax._errors import require, writing
from mrsa_jax.live._private import write_private

FORMAT, VERSION = "mrsa-jax client register", 1


class Register:
    """Give clients indices that survive a restart.

    A client's block is a matter of its index, so that an index is never given to another: who
    leaves keeps it, and who comes back has it again. The file is replaced as a whole.

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
        require(len(self._names) <= num_clients, "selector", rule, f"{num_clients} clients")
        self.places = {name: place for place, name in enumerate(self._names)}

    def join(self, names: Iterable[str]) -> None:
        """Give new names the next indices, as long as there are any.

        Raises:
            StoreError: If the file cannot be written; they have none then.
        """
        new = [name for name in dict.fromkeys(names) if name not in self.places]
        new = new[: self.num_clients - len(self._names)]
        if new:
            _write(self.path, self._names + new)
            self.places |= {name: len(self._names) + place for place, name in enumerate(new)}
            self._names += new


def _read(path: pathlib.Path) -> list[str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    fields = found if isinstance(found, dict) else {}
    is_one = (fields.get("format"), fields.get("version")) == (FORMAT, VERSION)
    names: Any = fields.get("clients")
    require(is_one and isinstance(names, list), str(path), "must be a register of clients")
    good = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    require(good, str(path), "must hold each client's name once")
    return list(names)


def _write(path: pathlib.Path, names: list[str]) -> None:
    text = json.dumps({"format": FORMAT, "version": VERSION, "clients": names})
    with writing(path, "path"):
        write_private(path, f"{text}\n".encode())
