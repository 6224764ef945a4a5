"""Identity of clients: one text form, one likeness, one list of texts that name none.

Every name passes here: of the recorder, the readers, the gate, its command and the
adapters. A client under two names counts as two, and a row that is no client hides the
others, so that figures are safer than the truth. What is in doubt is therefore refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import numbers
import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from mrsa_watch._base.errors import is_integer, require
from mrsa_watch._base.values import words_of
from mrsa_watch.logs._numbers import parse_decimal

MOST_NAME = 1000  # characters
# from here on, several integers share one float, by its bytes
_WHOLE_FLOATS = {2: 2**11, 4: 2**24, 8: 2**53}


def client_text(client: Any, argument: str = "clients") -> str:
    """Return the one text that names a client.

    Args:
        client: Text, an integer, a float that is a whole number, bytes of UTF-8, or
            another value whose text is its own (a UUID, an address, a tuple of such).
        argument: Name used in messages.

    Raises:
        ConfigurationError: For a value without a lasting text (None, a bool, NaN, an
            object that prints its place in memory), or whose text names no client.

    Examples:
        >>> import numpy as np
        >>> [client_text(name) for name in ("anna", 7, np.int64(7), 7.0)]
        ['anna', '7', '7', '7']
        >>> client_text("null")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `clients` must name clients, which 'null' does not
    """
    text = _text_of(client, argument)
    rule = "must be names in one line, without spaces around them, of at most"
    require(is_name(text), argument, f"{rule} {MOST_NAME} characters", client)
    rule = f"must name clients, which {text!a} does not"
    require(not names_nobody(text), argument, rule)
    return text


def _text_of(client: Any, argument: str) -> str:
    if isinstance(client, str):
        return str.__str__(client)  # also of an enumeration's member
    if isinstance(client, bytes):
        try:
            return client.decode()
        except UnicodeDecodeError:
            require(False, argument, "must be text in UTF-8", client)
    if isinstance(client, bool) or client is None:
        require(False, argument, "must be text or integers", client)
    if is_integer(client):
        return str(int(client))
    if isinstance(client, numbers.Number):
        return _text_of_float(client, argument)
    # the text of a set has another order in each process, that of an object names its
    # place
    is_several = isinstance(client, type | list | dict | set | frozenset)
    is_vague = is_several or " at 0x" in (text := str(client))
    rule = "must be text or integers, or have a text that lasts"
    require(not is_vague, argument, rule, client)
    return text


def _text_of_float(client: Any, argument: str) -> str:
    """Return a whole number of a table of floats if no other integer is its float."""
    rule = (
        "must be text or integers (a float from 2**53 on stands for several integers)"
    )
    is_real = isinstance(client, numbers.Real)
    is_float = is_real and not isinstance(client, numbers.Rational)
    require(is_float and client.is_integer(), argument, rule, client)
    number = int(client)
    require(abs(number) < least_shared_float(client), argument, rule, client)
    return str(number)


def least_shared_float(value: Any) -> int:
    """Return from where on integers share a float of this value's size."""
    size = getattr(getattr(value, "dtype", None), "itemsize", 8)
    return _WHOLE_FLOATS.get(size, _WHOLE_FLOATS[8])


def is_name(name: str) -> bool:
    """Return whether a name is one line of whole characters."""
    if not 0 < len(name) <= MOST_NAME or name != name.strip():
        return False
    has_lost = any("\ud800" <= mark <= "\udfff" or mark == "\ufffd" for mark in name)
    return len(name.splitlines()) == 1 and not has_lost


_NOTHING = frozenset(
    words_of("""
    none null nil nan nat na n/a n.a. #n/a <na> <null> undefined unknown missing empty inf
    -inf infinity -infinity true false
    """)
)


def names_nobody(text: str) -> bool:
    """Return whether a text means a missing value, or has no letter and no digit.

    Examples:
        >>> [names_nobody(text) for text in ("", "None", "N/A", "?", "--", "anna", "7")]
        [True, True, True, True, True, False, False]
    """
    return text.strip().casefold() in _NOTHING or not any(map(str.isalnum, text))


# Letters that look like Latin ones, in lower case: Cyrillic, Greek, Armenian, small
# capitals, ...
_LOOKS = str.maketrans(
    dict(
        zip(
            "авекмнорстухѕіјһԁԛԝьαβεζηικμνορτυχωϲѡոսօցıɑɡɪᴀʙᴄᴅᴇɢʜᴊᴋʟᴍɴᴏᴘʀᴛᴜᴠᴡʏᴢøłđħŧ",
            "abekmhopctyxsijhdqwbabezhikmnoptyxwcwnuogiagiabcdeghjklmnoprtuvwyzoldht",
            strict=True,
        )
    )
    | {"æ": "ae", "œ": "oe", "þ": "th", "ð": "d"}
)
_DIGITS_LIKE_LETTERS = str.maketrans("01", "ol")
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_DASHES = frozenset(
    "\u2043\u2212\u02d7\u2cba\u30fc\uff70"
)  # besides those that Unicode calls dashes
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_SEPARATORS = re.compile(r"[\s_\-]+")
_QUOTED = re.compile(r"b?(['\"`])(.*)\1")
_GROUPED_NUMBER = re.compile(r"\d{1,3}(?:[, ']\d{3})+")
_LEADING_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")
_HEXADECIMAL = re.compile(r"(?=.*[a-f])[0-9a-f]{8,}")
_GROUPED_HEXADECIMAL = re.compile(
    r"(?:0x|urn:uuid:)?[{(]?[0-9a-f]{2,}(?:[-:][0-9a-f]{2,})+[)}]?"
)
_LEAST_GROUPED = 12  # digits, of an address of hardware
_SCHEME = r"(?:ipv[46]:|[a-z]{2,5}://)?"
_BY_NUMBER = re.compile(
    rf"{_SCHEME}(\d{{1,3}}(?:\.\d{{1,3}}){{3}}|\[[0-9a-f:.%]+\]|localhost)(?::\d{{1,5}})?/?"
)
_BY_HOST = re.compile(
    rf"{_SCHEME}([a-z0-9]+(?:[.\-_][a-z0-9\-_.]+|\d))(?::\d{{4,5}})?/?"
)
_WHOLE_FLOAT = re.compile(r"(?<=\d)\.0+$")


def likeness(name: Any) -> Any:
    """Return a key that two names share if a reader or a system may mix them up.

    Folded are case, spaces, dashes and underscores, accents, invisible marks, letters
    of other alphabets that look like Latin ones, 0 and O, 1 and l, leading zeros, forms
    of one number (1 and 1.0), quotes, the port of an address, and letters that were
    read in another encoding.

    What it returns is part of each pseudonym: a change of it changes pseudonyms, and
    needs another mark in `Pseudonyms`.

    Examples:
        >>> likeness("Site-01") == likeness("site_1"), likeness("1.0") == likeness(1)
        (True, True)
        >>> likeness("10.0.0.7:5001") == likeness("ipv4:10.0.0.7:5002")
        True
        >>> likeness("site-1") == likeness("site-11")
        False
        >>> likeness("node:1") == likeness("node:2")
        False
    """
    if not isinstance(name, str):
        number = number_of(name)
        return name if number is None else number
    text = _unescaped(name)
    if not text.isascii() or not text.isprintable():
        text = _latin(text)
    text = " ".join(text.casefold().split())
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        text = quoted[2].strip()
    return _likeness_of_plain(text)


def _likeness_of_plain(text: str) -> Any:
    """Return the likeness of a text in small letters without quotes."""
    if _HEXADECIMAL.fullmatch(text):  # before numbers: 12345e78 is both
        return text
    digits = re.sub("[, ']", "", text) if _GROUPED_NUMBER.fullmatch(text) else text
    number = parse_decimal(digits.lstrip("#"))
    if number is not None:
        return number
    if _GROUPED_HEXADECIMAL.fullmatch(text):
        bare = text.removeprefix("urn:uuid:").removeprefix("0x")
        compact = re.sub("[^0-9a-f]", "", bare)
        if len(compact) >= _LEAST_GROUPED:
            return compact
    text = _SEPARATORS.sub("-", text).strip("-") or text
    if address := _BY_NUMBER.fullmatch(text):
        text = address[1]
    elif address := _BY_HOST.fullmatch(text):
        text = _WHOLE_FLOAT.sub("", address[1])
    return _LEADING_ZEROS.sub("", text).translate(_DIGITS_LIKE_LETTERS)


def _unescaped(text: str) -> str:
    """Return a text with letters instead of codes, as in URLs, HTML and JSON."""
    if "%" in text:
        from urllib.parse import unquote

        text = unquote(text)
    if "&" in text:
        from html import unescape

        text = unescape(text)
    if "\\" in text and text.isascii():
        text = _CODE.sub(lambda code: chr(int(code[1] or code[2], 16)), text)
    return text


def _latin(text: str) -> str:
    """Return a text in small letters, by the Latin letters that it looks like."""
    # its UTF-8 may have been read as another encoding
    for encoding in ("cp1252", "latin-1"):
        with contextlib.suppress(UnicodeError):
            text = text.encode(encoding).decode()
            break
    marks = []
    for mark in unicodedata.normalize("NFKD", text):
        kind = unicodedata.category(mark)
        if unicodedata.combining(mark) or (kind in ("Cf", "Cc") and not mark.isspace()):
            continue
        if kind == "Pd" or mark in _DASHES:
            mark = "-"
        elif kind == "Nd":
            mark = str(unicodedata.decimal(mark))
        marks.append(mark)
    return _INVISIBLE.sub("", "".join(marks)).casefold().translate(_LOOKS)


def number_of(name: Any) -> Fraction | None:
    """Return the number that a name of a round or client is, or None."""
    if isinstance(name, str):
        return parse_decimal(name)
    is_number = isinstance(name, int) or (
        isinstance(name, float) and math.isfinite(name)
    )
    return Fraction(name) if is_number else None


class Names:
    """The names so far of one kind of thing, by their likeness.

    One thing under two names counts as two, which hides what the sums reveal of it.
    """

    def __init__(self) -> None:
        self._by_likeness: dict[Any, str] = {}
        self._texts: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def __len__(self) -> int:
        return len(self._texts)

    def new(self, names: Iterable[str]) -> dict[Any, str]:
        """Return the names that are new, by their likeness.

        Raises:
            AlikeError: If one is like another name, of these or of those before, and is
                not it.
        """
        fresh: dict[Any, str] = {}
        for name in names:
            if name in self._texts:
                continue
            like = self.likeness(name)
            other = self._by_likeness.get(like) or fresh.setdefault(like, name)
            if other != name:
                raise AlikeError(name, other)
        return fresh

    def add(self, fresh: dict[Any, str]) -> None:
        """Keep new names, as `new` returned them."""
        self._by_likeness |= fresh
        self._texts.update(fresh.values())

    def forget(self, fresh: dict[Any, str]) -> None:
        """Take back names that were kept last."""
        self._texts.difference_update(fresh.values())
        for like in fresh:
            self._by_likeness.pop(like, None)

    def likeness(self, name: str) -> Any:
        """Return a key that a name shares with those that may be meant by it."""
        return likeness(name)


class AlikeError(ValueError):
    """Two names that may be one.

    Attributes:
        name: The later one.
        other: The earlier one.
    """

    def __init__(self, name: str, other: str) -> None:
        super().__init__(name, other)
        self.name, self.other = name, other


_HALF_BYTES = 8
_PSEUDONYM = re.compile(rf"[0-9a-f]{{{4 * _HALF_BYTES}}}")


class Pseudonyms:
    """Names of clients as keyed hashes.

    The first half of a pseudonym is a hash of the name's likeness, the second one of
    the name: two names that may be one have equal first halves, so that readers of the
    log see this too. Logs of version 1.0 have one hash of the name, and are continued
    with it.

    Args:
        salt: The key.
        digest: What names the salt in the header of a log; None for a new log.

    Attributes:
        digest: What names the salt in a header.

    Raises:
        ConfigurationError: If the log's pseudonyms are of another salt.
    """

    def __init__(self, salt: bytes, digest: str | None = None) -> None:
        self._salt = salt
        whole = hashlib.sha256(salt).hexdigest()[:8]
        halves = hashlib.sha256(b"likeness and name" + salt).hexdigest()[:8]
        self._is_whole = digest == whole
        self.digest = whole if self._is_whole else halves
        rule = f"must be the one that made the log's pseudonyms ({digest})"
        require(digest in (None, self.digest), "salt", rule, f"a salt of {halves}")

    def of(self, client: Any) -> str:
        """Return a client's pseudonym, 32 hex digits."""
        text = client_text(client)
        if self._is_whole:
            text = client if isinstance(client, str) else str(client)
            return self._hash(text.encode(), 2 * _HALF_BYTES)
        # a number and a text of the same digits must not share their first half
        like = likeness(text)
        kind = "number" if isinstance(like, Fraction) else "text"
        first = self._hash(f"likeness, {kind} {like}".encode(), _HALF_BYTES)
        return first + self._hash(f"name {text}".encode(), _HALF_BYTES)

    def _hash(self, text: bytes, count: int) -> str:
        return hmac.digest(self._salt, text, "sha256")[:count].hex()


class PseudonymNames(Names):
    """The names of a log of pseudonyms: what is alike has one first half."""

    def likeness(self, name: str) -> Any:
        """Return the first half of a pseudonym."""
        folded = name.casefold()
        if is_pseudonym(folded):
            return folded[: 2 * _HALF_BYTES]
        return super().likeness(name)


def is_pseudonym(text: str) -> bool:
    """Return whether a text has the form of a recorder's pseudonym."""
    return _PSEUDONYM.fullmatch(text) is not None
