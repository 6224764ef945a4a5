"""Cryptography of the protocol.

X25519, Ed25519, HKDF-SHA256, AES-256-GCM and randomness.
Thin functions over `cryptography`, which is imported only when they run. Every derived
key names its purpose, parties and round, so that no key serves two ends (CCESA,
Algorithm 1: f, the authenticated encryption; RFC 7748, RFC 5869).
"""

from __future__ import annotations

import functools
import os
import struct
from typing import Any

import numpy as np

from mrsa_jax.protocol.errors import AuthenticationError, KeyAgreementError
from mrsa_watch._base.errors import check_count, require

KEY_BYTES = 32
DOMAIN = b"mrsa_jax protocol v1 "


class Entropy:
    """Random bytes: the operating system's, or a stream that a seed repeats.

    Attributes:
        is_secure: Whether the bytes come from the operating system.

    Examples:
        >>> Entropy(7, 0, 1).draw(4) == Entropy(7, 0, 1).draw(4)
        True
        >>> Entropy(7, 0, 1).draw(16) == Entropy(7, 0, 2).draw(16)
        False
    """

    def __init__(
        self,
        seed: int | np.integer | bytes | None,
        round_index: int = 0,
        client: int = 0,
    ) -> None:
        """Open the stream of one client in one round.

        Args:
            seed: None for the operating system's randomness; bytes or a non-negative
                integer for a stream that whoever knows the seed can repeat (tests and
                simulation only).
            round_index: Round; with the client part of what the stream is.
            client: Client.

        Raises:
            ConfigurationError: If the seed is none of these.
        """
        self.is_secure = seed is None
        self._stream: Any = None
        if seed is not None:
            label = b"entropy" + struct.pack("<II", round_index, client)
            self._stream = chacha20_stream(hkdf(_seed_bytes(seed), label), bytes(16))

    def draw(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        return (
            os.urandom(count)
            if self._stream is None
            else self._stream.update(bytes(count))
        )


def _seed_bytes(seed: object) -> bytes:
    rule = "must be None, bytes (at least one) or a non-negative integer"
    if isinstance(seed, bytes):
        require(len(seed) > 0, "entropy", rule, seed)
        return b"bytes" + seed
    number = check_count(seed, "entropy", rule, 0)
    return b"int" + number.to_bytes((number.bit_length() + 7) // 8, "little")


def setting_entropy(
    seed: int | np.integer | bytes | None, setting: bytes
) -> bytes | None:
    """Return a seed of the clients' streams that is another in each setting.

    None stays None.

    Examples:
        >>> setting_entropy(7, b"t = 2") == setting_entropy(7, b"t = 3")
        False
    """
    return None if seed is None else hkdf(_seed_bytes(seed), b"setting" + setting)


def hkdf(secret: bytes, info: bytes) -> bytes:
    """Derive a key of 32 bytes by HKDF-SHA256, without salt, for one purpose.

    Args:
        secret: Input key material.
        info: Purpose and context; the protocol's own domain tag is put before it.

    Returns:
        The output key material.

    Examples:
        >>> hkdf(b"secret", b"one purpose") == hkdf(b"secret", b"another")
        False

    Source: RFC 5869.
    """
    return raw_hkdf(secret, DOMAIN + info, None, 32)


def raw_hkdf(secret: bytes, info: bytes, salt: bytes | None, length: int) -> bytes:
    """Return HKDF-SHA256 as RFC 5869 defines it, without a domain tag."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, info).derive(secret)


class KeyPair:
    """An X25519 key pair.

    Attributes:
        secret_key: 32 bytes.
        public_key: 32 bytes.

    Examples:
        >>> one, two = KeyPair(bytes(range(32))), KeyPair(bytes(range(1, 33)))
        >>> one.agree(two.public_key) == two.agree(one.public_key)
        True

    Source: RFC 7748, section 6.1.
    """

    def __init__(self, secret_key: bytes) -> None:
        """Take 32 secret bytes (clamped when used, as the RFC says)."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.secret_key = secret_key
        self._private = X25519PrivateKey.from_private_bytes(secret_key)
        self.public_key = self._private.public_key().public_bytes_raw()

    def agree(self, other_public_key: bytes) -> bytes:
        """Return the shared secret with the owner of a public key.

        Args:
            other_public_key: 32 bytes.

        Returns:
            32 bytes; derive keys from them, never use them as one.

        Raises:
            KeyAgreementError: If the public key is of small order: the secret would be
                zero.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        other = X25519PublicKey.from_public_bytes(other_public_key)
        try:
            return self._private.exchange(other)
        except ValueError as error:
            message = f"the public key {other_public_key.hex()} is of small order"
            raise KeyAgreementError(message) from error


class SigningKey:
    """An Ed25519 key, whose public half all others know beforehand.

    Attributes:
        public_key: 32 bytes.

    Examples:
        >>> key = SigningKey(bytes(range(32)))
        >>> check_signature(key.public_key, key.sign(b"list"), b"list")
        >>> check_signature(key.public_key, key.sign(b"list"), b"another")
        Traceback (most recent call last):
        ...
        mrsa_jax.protocol.errors.AuthenticationError: a signature fails its check

    Source: RFC 8032, section 5.1.
    """

    def __init__(self, secret_key: bytes) -> None:
        """Take 32 secret bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(secret_key)
        self.public_key = self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._private.sign(message)


def check_signature(public_key: bytes, signature: bytes, message: bytes) -> None:
    """Raise `AuthenticationError` unless the owner of a key signed the message."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature as error:
        raise AuthenticationError("a signature fails its check") from error


@functools.cache
def _any_pair() -> KeyPair:
    return KeyPair(bytes(KEY_BYTES))


def refuse_small_order(public_key: bytes) -> None:
    """Raise `KeyAgreementError` if a public key is of small order.

    Any key pair tells, for clamped secret keys are multiples of the cofactor 8.
    """
    _any_pair().agree(public_key)


def pad_seed(
    shared_secret: bytes,
    client: int,
    other: int,
    round_index: int,
    context: bytes = b"",
) -> bytes:
    """Derive s_ij, the seed of a pair's pad: equal for both sides, new in every round.

    Args:
        shared_secret: What the two agreed on.
        client: A client's id.
        other: The other's.
        round_index: Round.
        context: What else both must agree on for their pads to cancel, such as a hash
            of the model that they were sent.

    Examples:
        >>> pad_seed(bytes(32), 3, 5, 0) == pad_seed(bytes(32), 5, 3, 0)
        True
        >>> pad_seed(bytes(32), 3, 5, 0, b"one") == pad_seed(
        ...     bytes(32), 3, 5, 0, b"another"
        ... )
        False
    """
    who = struct.pack("<III", *sorted((client, other)), round_index)
    return hkdf(shared_secret, b"pair pad" + who + context)


def channel_key(
    shared_secret: bytes,
    sender: int,
    recipient: int,
    round_index: int,
) -> bytes:
    """Derive the AES-256 key of a round's one message to a recipient.

    Examples:
        >>> channel_key(bytes(32), 3, 5, 0) == channel_key(bytes(32), 5, 3, 0)
        False
    """
    return hkdf(
        shared_secret, b"shares" + struct.pack("<III", sender, recipient, round_index)
    )


# GCM needs a nonce that never repeats under one key. Each key seals exactly one
# message: it is derived from key pairs drawn for this round alone and from (sender,
# recipient, round), and a client seals its shares once (a repeated request gets the
# same bytes again).
_NONCE = bytes(12)


def seal(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Encrypt and authenticate the only message under `key` (AES-256-GCM, 16-byte tag).

    Examples:
        >>> open_sealed(bytes(32), seal(bytes(32), b"shares", b"to 5"), b"to 5")
        b'shares'
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).encrypt(_NONCE, plaintext, associated)


def open_sealed(key: bytes, ciphertext: bytes, associated: bytes) -> bytes:
    """Decrypt what `seal` made.

    Raises:
        AuthenticationError: If the tag does not fit key, ciphertext and associated
            data.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(_NONCE, ciphertext, associated)
    except InvalidTag as error:
        raise AuthenticationError(
            "a ciphertext fails its authentication tag"
        ) from error


def chacha20_stream(key: bytes, counter_and_nonce: bytes) -> Any:
    """Return a ChaCha20 encryptor; its 16 bytes are the block counter and the nonce."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    return Cipher(ChaCha20(key, counter_and_nonce), mode=None).encryptor()
