"""What can go wrong with a message, each an exception named by what failed.

The state machines raise these; `protocol.run` counts the client concerned as dropped. A
round that cannot be unmasked is a `Status`, never an exception.
"""

from __future__ import annotations

from mrsa_watch._base.errors import MrsaError


class ProtocolError(MrsaError):
    """Base of everything that a client or the server refuses to accept from the other side."""


class MalformedMessageError(ProtocolError, ValueError):
    """Bytes are no message.

    Truncated, overlong, wrong kind or version, or not canonical.
    """


class UnexpectedMessageError(ProtocolError):
    """A well-formed message does not belong here.

    Wrong step, round or client, or a second one.
    """


class AuthenticationError(ProtocolError):
    """A ciphertext fails its tag (altered, redirected, sealed under other keys), or a signature."""


class KeyAgreementError(ProtocolError):
    """A public key is a point of small order, so that the shared secret would be zero."""


class BothSecretsRequestedError(ProtocolError):
    """The server asks for shares of both secrets of one client, which would bare its input."""


class TooFewSurvivorsError(ProtocolError):
    """The server's list leaves fewer than two clients in a sum, or fewer than one's threshold."""


class PartedBlockError(ProtocolError):
    """The server's list is no union of whole blocks.

    Its sums would part clients of one block.
    """


class ForgedShareError(ProtocolError):
    """Shares that came back fit no polynomial, or not the public key that was advertised."""
