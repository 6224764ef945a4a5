"""One text form, one likeness, one list of what names nobody, and pseudonyms that keep both."""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
import itertools
import random
import uuid
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_watch.logs._identity import (
    AlikeError,
    Names,
    PseudonymNames,
    Pseudonyms,
    client_text,
    likeness,
    names_nobody,
)


class Site(enum.StrEnum):
    NORTH = "north"


class Rank(enum.IntEnum):
    FIRST = 1


class Opaque:
    """Prints its place in memory."""


TEXTS: list[tuple[Any, str]] = [
    ("anna", "anna"),
    (np.str_("anna"), "anna"),
    (Site.NORTH, "north"),
    (7, "7"),
    (-7, "-7"),
    (10**30, "1" + "0" * 30),
    (np.int8(7), "7"),
    (np.uint64(2**64 - 1), "18446744073709551615"),
    (Rank.FIRST, "1"),
    (7.0, "7"),
    (np.float32(7), "7"),
    (b"anna", "anna"),
    ("Å".encode(), "Å"),
    (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (ipaddress.ip_address("10.0.0.7"), "10.0.0.7"),
    (("north", 3), "('north', 3)"),
]
NO_CLIENTS: list[Any] = [
    None,
    True,
    np.bool_(True),
    float("nan"),
    float("inf"),
    0.5,
    2.0**53,
    -(2.0**60),
    np.float32(2**24),
    np.float16(2**11),
    1j,
    Fraction(1, 2),
    b"\xff",
    Opaque(),
    Opaque,
    ["a"],
    {"a": 1},
    frozenset({"a", "b"}),
    lambda: None,
    "",
    " ",
    "a ",
    "\ta",
    "a\nb",
    "a\u2028b",
    "x" * 1001,
    "Z\ufffdrich",
    "\ud800",
    "None",
    "null",
    "NaN",
    "N/A",
    "?",
    "-",
    "--",
    "*",
    "\u202e",
    "<NA>",
    "nil",
    "#N/A",
    "undefined",
]


@pytest.mark.parametrize(("client", "text"), TEXTS)
def test_a_client_has_one_text(client: Any, text: str) -> None:
    assert client_text(client) == text


@pytest.mark.parametrize("client", NO_CLIENTS)
def test_what_has_no_lasting_text_names_no_client(client: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^`who` must "):
        client_text(client, "who")


ALIKE = [
    [
        "Site-1",
        "site-1",
        "SITE-1",
        "site_1",
        "site 1",
        "site-01",
        "site‐1",
        "site–1",
        "site−1",
        "site\u00ad-1",
        "s\u200bite-1",
        "site-1\ufe0f",
        "ｓｉｔｅ-1",
        "Ѕіtе-1",
        "sιte-1",
        "site-l",
        "sìte-1",
        "site-١",
        "'site-1'",
        '"site-1"',
        "b'site-1'",
        "site-1:5001",
        "site-1:50551",
        "site%2D1",
    ],
    [
        "Zürich",
        "zurich",
        "Zu\u0308rich",
        "ZÃ¼rich",
        "Z\\u00fcrich",
        "Z\\xfcrich",
        "Z%C3%BCrich",
        "Z&uuml;rich",
    ],
    ["1", "01", "1.0", "1.", "+1", "١", "１", "#1", 1, 1.0, "'1'"],
    ["1000", "1,000", "1000.0", 1000],
    [
        "10.0.0.7",
        "10.0.0.7:80",
        "10.0.0.7:5001",
        "ipv4:10.0.0.7:5002",
        "http://10.0.0.7/",
    ],
    ["[::1]:5000", "ipv6:[::1]:5001", "[::1]"],
    ["localhost:1", "localhost:2"],
    ["node.example.org:8080", "node.example.org", "https://Node.example.org/"],
    [
        "550e8400-e29b-41d4-a716-446655440000",
        "550E8400E29B41D4A716446655440000",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
    ],
    ["00:1A:2b:3c:4d:5e", "00-1a-2b-3c-4d-5e", "001a2b3c4d5e"],
    ["straße", "STRASSE", "strasse"],
]


@pytest.mark.parametrize("names", ALIKE, ids=lambda names: str(names[0]))
def test_names_of_one_client_are_alike(names: list[Any]) -> None:
    assert len({likeness(name) for name in names}) == 1


def test_names_of_several_clients_are_not_alike() -> None:
    first = [names[0] for names in ALIKE]
    others = [
        *(f"site-{i}" for i in range(2, 30)),
        "site-1-1",
        "site-111",
        "sites-1",
        "1.5",
        "-1",
        "2",
        "node:1",
        "node:2",
        "user:2048",
        "user:2049",
        "g1:3",
        "g1:4",
        "a",
        "b",
        "é1",
        "東京",
        "京都",
        "anna@north",
        "anna@south",
        "12345e78",
        "12345e79",
    ]
    everyone = [*first, *others]
    assert len({likeness(name) for name in everyone}) == len(everyone)


def test_alphabets_and_numbers_stay_apart() -> None:
    """Clients that are letters, or numbered in bases up to 16, are no cause for a question."""
    for names in (
        [chr(65 + i) for i in range(26)],
        [chr(97 + i) for i in range(26)],
        [chr(0x3B1 + i) for i in range(17)],
        list(map(str, range(2000))),
        [f"{i:04d}" for i in range(2000)],
        [f"client_{i}" for i in range(2000)],
        [f"{i:08x}" for i in range(0, 2**32, 2**21)],
        [hashlib.sha256(b"%d" % i).hexdigest() for i in range(2000)],
        [str(uuid.UUID(int=i << 64)) for i in range(2000)],
        [f"10.0.{i // 200}.{i % 200}:5000" for i in range(2000)],
    ):
        assert len({likeness(name) for name in names}) == len(names)


def test_nobody() -> None:
    assert all(
        map(
            names_nobody,
            ("", "none", "NULL", "n/a", "?", "...", "—", "<NA>", "nan", "-"),
        )
    )
    assert not any(
        map(names_nobody, ("anna", "7", "nancy", "nanny", "null-island", "東", "-7"))
    )


@pytest.mark.parametrize("kind", [Names, PseudonymNames])
def test_names_know_what_is_new_and_forget_it(kind: type[Names]) -> None:
    names = kind()
    fresh = names.new(["anna", "bob", "anna"])
    assert list(fresh.values()) == ["anna", "bob"]
    assert "anna" not in names
    names.add(fresh)
    assert ("anna" in names, "Anna" in names, len(names)) == (True, False, 2)
    with pytest.raises(AlikeError) as raised:
        names.new(["carl", "Anna"])
    assert (raised.value.name, raised.value.other) == ("Anna", "anna")
    with pytest.raises(AlikeError):
        names.new(["carl", "CARL"])
    names.forget(fresh)
    assert names.new(["Anna"]) == {"anna": "Anna"}


def test_pseudonyms_keep_what_is_alike() -> None:
    """Equal names have one pseudonym, alike ones one first half, others neither."""
    pseudonyms = Pseudonyms(b"s" * 32)
    of = {name: pseudonyms.of(name) for names in ALIKE for name in names}
    assert all(
        len(text) == 32 and set(text) <= set("0123456789abcdef") for text in of.values()
    )
    texts = {client_text(name) for name in of}
    assert len(set(of.values())) == len(texts)
    for (one, first), (other, second) in itertools.combinations(of.items(), 2):
        assert (first[:16] == second[:16]) == (likeness(one) == likeness(other))
    assert (
        pseudonyms.of(7)
        == pseudonyms.of("7")
        == pseudonyms.of(np.int64(7))
        == pseudonyms.of(7.0)
    )
    assert not set(of.values()) & {Pseudonyms(b"t" * 32).of(name) for name in of}


def test_a_log_of_version_1_0_keeps_its_pseudonyms() -> None:
    salt = b"s" * 32
    digest = hashlib.sha256(salt).hexdigest()[:8]
    pseudonyms = Pseudonyms(salt, digest)
    assert pseudonyms.digest == digest != Pseudonyms(salt).digest
    for client, text in (("anna", "anna"), (7, "7"), (b"x", "b'x'")):
        assert (
            pseudonyms.of(client)
            == hmac.digest(salt, text.encode(), "sha256")[:16].hex()
        )


def test_pseudonyms_of_another_salt_are_refused() -> None:
    for salt in (b"s" * 32, b"u" * 32):
        digest = Pseudonyms(salt).digest
        assert Pseudonyms(salt, digest).digest == digest
        with pytest.raises(
            ConfigurationError, match="^`salt` must be the one that made .*" + digest
        ):
            Pseudonyms(b"t" * 32, digest)


def test_likeness_is_an_equivalence_of_texts() -> None:
    """Spelling a name in any of the ways that systems do leaves its likeness."""
    spellings = [
        str.upper,
        str.lower,
        str.title,
        lambda text: text.replace("-", "_"),
        lambda text: f'"{text}"',
        lambda text: text.replace("-", "\u2011"),
        lambda text: text.replace("a", "а"),
        lambda text: text.replace("o", "ο"),
        lambda text: text + "\u200d",
        lambda text: f"  {text}",
        lambda text: (
            text.encode().decode("cp1252", "ignore") if text.isascii() else text
        ),
    ]
    generator = random.Random(7)
    letters = "abcdoxyz"
    for _ in range(300):
        word = "".join(
            generator.choice(letters) for _ in range(generator.randint(2, 6))
        )
        name = f"{word}-{generator.randint(1, 99)}"
        spelled = name
        for spell in generator.sample(spellings, 3):
            spelled = spell(spelled)
        assert likeness(spelled) == likeness(name), (name, spelled)
