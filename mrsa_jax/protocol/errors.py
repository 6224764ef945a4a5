"""Name everything that can go wrong with a message by an exception.

The state machines raise these; `protocol.run` counts the client concerned as dropped. A
round that cannot be unmasked is a `Status`, never an exception.
"""

from __future__ import annotations

from mrsa_watch._base.errors import MrsaError


class ProtocolError(MrsaError):
    """The client or the server refuses something from the other side."""


class MalformedMessageError(ProtocolError, ValueError):
    """Bytes are no message.

    Truncated, overlong, wrong kind or version, or not canonical.
    """


class UnexpectedMessageError(ProtocolError):
    """A well-formed message does not belong here.

    Wrong step, round or client, or a second one.
    """


class AuthenticationError(ProtocolError):
    """A ciphertext fails its tag, or a signature its check.

    The ciphertext was altered, redirected, or sealed under other keys.
    """


class KeyAgreementError(ProtocolError):
    """A public key is of small order: the shared secret would be zero."""


class BothSecretsRequestedError(ProtocolError):
    """The server asks for both secrets of a client, which would bare its input."""


class TooFewSurvivorsError(ProtocolError):
    """The server's list leaves fewer clients than two, or than a threshold."""


class PartedBlockError(ProtocolError):
    """The server's list is no union of whole blocks.

    Its sums would part clients of one block.
    """


class ForgedShareError(ProtocolError):
    """Shares fit no polynomial, or not the public key that was advertised."""
