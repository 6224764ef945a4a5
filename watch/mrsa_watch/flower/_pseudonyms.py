"""Pseudonyms that clients make of a secret, so that several runs know one person."""

from __future__ import annotations

import contextlib
import hmac
import os
import pathlib
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from mrsa_watch._base.errors import require
from mrsa_watch.flower._strategies import GridView

_KEY = "pseudonym"  # of the record, and of what it holds
_ACTION = f"query.{_KEY}"
_NAME = re.compile(r"[0-9a-f]{32}")
_SECRET_BYTES = 32


def pseudonym_mod(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Add the node's pseudonym to its reply: a mod for `app.query("pseudonym")`.

    The secret is 32 random bytes in a file that its owner alone can read, made at first
    use. A node's configuration names the file (`--node-config 'secret="/path"'`).
    Without it, the file is `~/.mrsa_watch.secret`, and nodes on one machine differ by
    their `partition-id`, as in Flower's simulation. A node that loses its secret is
    another person.

    Args:
        message: What the server asks.
        context: Of the node.
        call_next: What answers.

    Returns:
        The answer of `call_next`, and the pseudonym.

    Raises:
        ConfigurationError: If the file holds no such secret.
    """
    reply = call_next(message, context)
    if not reply.has_error():
        reply.content[_KEY] = ConfigRecord({_KEY: _pseudonym(context.node_config)})
    return reply


def _pseudonym(node_config: Any) -> str:
    """Hash the node by its secret, of which several simulated nodes may have one."""
    path = str(node_config.get("secret", "~/.mrsa_watch.secret"))
    who = "" if "secret" in node_config else node_config.get("partition-id", "")
    secret = _kept_secret(pathlib.Path(path).expanduser())
    return hmac.digest(secret, f"mrsa_watch {who}".encode(), "sha256")[:16].hex()


def _kept_secret(path: pathlib.Path) -> bytes:
    """Return the secret; if there is none, one of those who start makes it."""
    if not path.exists():
        handle, draft = tempfile.mkstemp(dir=path.parent)  # readable by its owner alone
        try:
            with open(handle, "wb") as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
            # a link never replaces a file: of several processes, the first one wins
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
    secret = path.read_bytes()
    rule = f"must hold {_SECRET_BYTES} bytes"
    require(len(secret) >= _SECRET_BYTES, "secret", rule, str(path))
    return secret


class Pseudonyms(GridView):
    """A grid whose nodes are those that told their pseudonym, and what each told.

    The pseudonym is a keyed hash by a secret that stays at the node (`pseudonym_mod`),
    so that a log over several runs knows one person by one name, whatever number Flower
    gives the node. Nodes that are new are asked when a strategy looks for nodes. One
    that does not answer in time is left out, and is asked again at the next look. If
    two nodes tell the same pseudonym, the later one counts, as when a node connects
    again. A node can lie about its pseudonym: Flower's own keys of nodes decide which
    nodes may connect.

    Args:
        grid: Flower's.
        timeout: Seconds to wait for the answers of new nodes.

    Examples:
        In a server app, with `recorder` and `strategy` as in `record`:

            people = Pseudonyms(grid)
            strategy = record(strategy, recorder, name=people.name)
            strategy.start(people, ...)

        In a client app:

            @app.query("pseudonym", mods=[pseudonym_mod])
            def tell(message, context):
                return Message(RecordDict(), reply_to=message)
    """

    def __init__(self, grid: Grid, timeout: float = 30.0) -> None:
        super().__init__(grid)
        self._timeout = timeout
        self._names: dict[int, str] = {}
        self._nodes: dict[str, int] = {}  # the node of each name now

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes whose pseudonym is known, each person once."""
        present = list(self._grid.get_node_ids())
        messages = [
            Message(RecordDict(), dst_node_id=node, message_type=_ACTION)
            for node in present
            if node not in self._names
        ]
        if messages:
            for reply in self._grid.send_and_receive(messages, timeout=self._timeout):
                if not reply.has_error():
                    self._learn(reply.metadata.src_node_id, reply.content)
        return [
            node
            for node in present
            if self._nodes.get(self._names.get(node, "")) == node
        ]

    def name(self, node: int) -> str:
        """Return the pseudonym that a node told, for `record` and `select`."""
        return self._names[node]

    def _learn(self, node: int, content: RecordDict) -> None:
        name = content.config_records.get(_KEY, ConfigRecord()).get(_KEY)
        if isinstance(name, str) and _NAME.fullmatch(name):
            self._names[node] = name
            self._nodes[name] = node
