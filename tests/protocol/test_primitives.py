"""Keys, derivation, sealing and randomness against the RFCs and by their own rules."""

import hashlib
import hmac
import inspect
import itertools
import json
import pathlib

import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.protocol import _primitives as primitives
from mrsa_jax.protocol.errors import AuthenticationError, KeyAgreementError

VECTORS = pathlib.Path(__file__).parents[1] / "vectors"
X25519 = json.loads((VECTORS / "rfc7748.json").read_text())
HKDF = json.loads((VECTORS / "rfc5869.json").read_text())


def hexed(text):
    return bytes.fromhex(text)


@pytest.mark.parametrize("entropy", [-1, 1.5, True, "seed", b""])
def test_entropy_must_be_a_seed_or_none(entropy):
    with pytest.raises(ConfigurationError, match="`entropy` must be None, bytes"):
        inspect.unwrap(primitives._seed_bytes)(entropy)


@pytest.mark.parametrize("point", X25519["small_order"])
def test_small_order_keys_are_refused(point):
    with pytest.raises(KeyAgreementError, match="small order"):
        primitives.refuse_small_order(hexed(point))
    with pytest.raises(KeyAgreementError, match=point):
        primitives.KeyPair(bytes(range(32))).agree(hexed(point))


@pytest.mark.parametrize("case", X25519["functions"], ids=lambda case: case["name"])
def test_x25519(case):
    pair = primitives.KeyPair(hexed(case["scalar"]))
    assert pair.agree(hexed(case["u"])).hex() == case["output"]


def test_x25519_iterated():
    scalar = u = hexed(X25519["iterated"]["start"])
    for count in range(1, 1001):
        scalar, u = primitives.KeyPair(scalar).agree(u), scalar
        if count in (1, 1000):
            assert scalar.hex() == X25519["iterated"][str(count)]


def test_x25519_agreement():
    case = X25519["agreement"]
    alice, bob = (
        primitives.KeyPair(hexed(case[f"{who}_secret"])) for who in ("alice", "bob")
    )
    assert alice.public_key.hex() == case["alice_public"]
    assert bob.public_key.hex() == case["bob_public"]
    assert alice.agree(bob.public_key).hex() == case["shared"]
    assert bob.agree(alice.public_key).hex() == case["shared"]


@pytest.mark.parametrize("case", HKDF["cases"], ids=lambda case: case["name"])
def test_hkdf(case):
    ikm, salt, info = (hexed(case[name]) for name in ("ikm", "salt", "info"))
    assert primitives.raw_hkdf(ikm, info, salt, case["length"]).hex() == case["okm"]
    # and once more from the definition
    key = hmac.digest(salt or bytes(32), ikm, hashlib.sha256)
    blocks, last = b"", b""
    for index in range(1, 5):
        last = hmac.digest(key, last + info + bytes([index]), hashlib.sha256)
        blocks += last
    assert blocks[: case["length"]].hex() == case["okm"]


@pytest.mark.smoke
def test_derived_keys_differ_by_purpose_parties_direction_and_round():
    secret = bytes(range(32))
    parties = [(1, 2), (2, 1), (1, 3), (258, 1), (1, 258)]
    keys = [
        primitives.channel_key(secret, i, j, r)
        for (i, j), r in itertools.product(parties, (0, 1, 256))
    ]
    seeds = [
        primitives.pad_seed(secret, i, j, r)
        for (i, j), r in itertools.product([(1, 2), (1, 3), (1, 258)], (0, 1, 256))
    ]
    assert len(set(keys + seeds)) == len(keys + seeds)
    assert primitives.pad_seed(secret, 2, 1, 0) == primitives.pad_seed(secret, 1, 2, 0)


def test_seal_is_bound_to_key_text_and_associated_data():
    sealed = primitives.seal(bytes(32), b"text", b"to 5")
    assert len(sealed) == 4 + 16
    assert primitives.open_sealed(bytes(32), sealed, b"to 5") == b"text"
    wrong = [(bytes(31) + b"\x01", sealed, b"to 5"), (bytes(32), sealed, b"to 6")]
    wrong += [
        (bytes(32), sealed[:k] + bytes([sealed[k] ^ 1]) + sealed[k + 1 :], b"to 5")
        for k in range(len(sealed))
    ]
    wrong += [(bytes(32), sealed[:-1], b"to 5"), (bytes(32), b"", b"to 5")]
    for arguments in wrong:
        with pytest.raises(AuthenticationError):
            primitives.open_sealed(*arguments)


def test_entropy_repeats_by_seed_alone():
    seeds = [0, 1, 256, b"\x00", b"\x01", b"int\x01", 2**300]
    places = [(0, 0), (0, 1), (1, 0)]
    streams = {
        (s, p): primitives.Entropy(s, *p).draw(16) for s in seeds for p in places
    }
    assert len(set(streams.values())) == len(streams)
    again = primitives.Entropy(1, 0, 1)
    assert again.draw(5) + again.draw(11) == streams[1, (0, 1)]
    assert primitives.Entropy(None).draw(16) != primitives.Entropy(None).draw(16)
    assert primitives.Entropy(None).is_secure
    assert not primitives.Entropy(0).is_secure
