"""Carry messages between clients and server: honestly, or disturbed by a script.

The protocol assumes authenticated channels to the server. A network without them can
drop, delay and repeat messages, and alter what neither a tag nor a check covers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from mrsa_jax.protocol.errors import ProtocolError
from mrsa_watch._base.errors import require

SERVER = -1
"""The server's place where a client's id would stand."""

Tamper = Callable[[int, int, int, bytes], bytes | Sequence[bytes]]
"""(step, sender, recipient, message) -> what arrives instead.

One message, several or none.
"""


class Refusal(NamedTuple):
    """A message that was not accepted.

    Attributes:
        step: Step, 0 to 3 (4 with the consistency check), of the client's message
            concerned: the one that was refused, or the one that it did not send because
            it refused the server's.
        client: The client at one end.
        by_server: Whether the server refused; else the client did.
        error: Why.
    """

    step: int
    client: int
    by_server: bool
    error: ProtocolError


@runtime_checkable
class Network(Protocol):
    """Carry messages in `protocol.run`."""

    def carry(
        self,
        step: int,
        sender: int,
        recipient: int,
        message: bytes,
    ) -> Sequence[bytes]:
        """Deliver a message in time: none, one or several arrive.

        `step` is that of the client's message; for the server's, of the one that it
        asks for.
        """
        ...

    def carry_late(
        self,
        step: int,
        sender: int,
        recipient: int,
        message: bytes,
    ) -> Sequence[bytes]:
        """Deliver a client's message after its step was closed."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """Hear of a message that was not accepted."""
        ...


@dataclasses.dataclass
class ScriptedNetwork:
    """A network disturbed as a script says (build it with `disturbed`).

    Attributes:
        delayed: (step, client) whose message comes too late.
        duplicated: (step, client) whose message comes twice.
        tamper: Changes messages in either direction, or None.
        refusals: What was not accepted, in order.
    """

    delayed: frozenset[tuple[int, int]]
    duplicated: frozenset[tuple[int, int]]
    tamper: Tamper | None
    refusals: list[Refusal] = dataclasses.field(default_factory=list)

    def carry(
        self,
        step: int,
        sender: int,
        recipient: int,
        message: bytes,
    ) -> Sequence[bytes]:
        """Deliver a message in time."""
        if (step, sender) in self.delayed:
            return []
        return self._altered(step, sender, recipient, message)

    def carry_late(
        self,
        step: int,
        sender: int,
        recipient: int,
        message: bytes,
    ) -> Sequence[bytes]:
        """Deliver a message after its step was closed."""
        if (step, sender) not in self.delayed:
            return []
        return self._altered(step, sender, recipient, message)

    def refused(self, refusal: Refusal) -> None:
        """Keep a refusal."""
        self.refusals.append(refusal)

    def _altered(
        self,
        step: int,
        sender: int,
        recipient: int,
        message: bytes,
    ) -> list[bytes]:
        arrived = (
            message
            if self.tamper is None
            else self.tamper(step, sender, recipient, message)
        )
        messages = [arrived] if isinstance(arrived, bytes) else list(arrived)
        return messages * 2 if (step, sender) in self.duplicated else messages


def disturbed(
    delayed: Iterable[tuple[int, int]] = (),
    duplicated: Iterable[tuple[int, int]] = (),
    tamper: Tamper | None = None,
) -> ScriptedNetwork:
    """Return a network with scripted disturbances, for tests and research.

    Args:
        delayed: (step, client): that client's message of step 0 to 3 arrives after the
            step was closed; the server ignores it, and the client counts as dropped.
        duplicated: (step, client): it arrives twice; the second is ignored.
        tamper: A function (step, sender, recipient, message) that returns what arrives
            instead: bytes, or a list of any number of messages. The server's place is
            `SERVER`.

    Returns:
        The network; its `refusals` tell afterwards who would not accept what.

    Raises:
        ConfigurationError: If a step is not 0 to 3 or a client negative.

    Examples:
        >>> network = disturbed(delayed=[(2, 0)])
        >>> (
        ...     network.carry(2, 0, SERVER, b"input"),
        ...     network.carry_late(2, 0, SERVER, b"input"),
        ... )
        ([], [b'input'])
    """
    late, twice = frozenset(delayed), frozenset(duplicated)
    for name, entries in (("delayed", late), ("duplicated", twice)):
        for step, client in entries:
            require(
                0 <= step <= 3 and client >= 0,
                name,
                "must hold (step, client) with steps 0 to 3",
                (step, client),
            )
    return ScriptedNetwork(late, twice, tamper)
