#!/usr/bin/env python3
"""Check a certificate of `mrsa-jax audit` against a participation log, without trust.

P has a row for each sum that the server learnt and a column for each client. The server
can solve for the combinations z P. Clients with equal columns are a *class*: z P is the
same on all of them, so M, with one column per class, is enough. Each claim has a proof
in integers:
- "exposed", "weak T at most", "plain sum": z itself, and z M is computed.
- "not exposed": u with M u = 0: then (z M) . u = 0, and a z M on class k alone has u_k
  = 0.
- "weak T at least" w: no class is smaller; or, with vectors u as the columns of U: the
  classes of a combination have dependent rows of U, but all sets of classes with fewer
  than w clients are tested, and their rows are independent modulo a prime, hence over
  the rationals.
- "hidden among at least": by Cauchy and Schwarz no y = z M has a larger share y_i^2 /
  |y|^2 than a vector u with M u = 0 leaves. Shares add up to 1: one more way to "weak T
  at least".
- "rank": a minor that is a unit modulo some number is not zero; and there are no more
  rows, or classes, or classes less independent u.
A --claim states what must follow: "weak T >= 4", "strong T = 2", "rank <= 9", "plain
sum >= 3", "not exposed" (no client, or those named), "exposed anna" ("with bob"),
"hidden among >= 3.5" (all, or those named); names with spaces are in quotes. If sums
are over parts of the vector, each part has a separate matrix and claims, with the sums
of whole updates in all of them, and the log has no other part. Claims on T, on hidden
clients and on exposed ones are then about the worst part. Exit status: 0 if every proof
is "checked", and the matrix is that of the log; 1 if something is "REFUSED", or a
--claim does not follow; 3 if a check was omitted (too many steps, a log that cannot be
read here, a reading that needs your --reading); 2: misuse.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import functools
import gzip
import hashlib
import html
import io
import itertools
import json
import math
import re
import shlex
import sys
import unicodedata
import urllib.parse
from fractions import Fraction
from typing import Any

REALS = "over the real numbers"
KNOWN_RANGE = (
    "This is over the real numbers. Values known to be whole numbers of a small range, "
    "such as bits or votes, may follow from sums that expose no client. A sum of n "
    "bits that is 0 or n reveals all of them."
)
FORMAT = "mrsa-jax certificate"
VERSION = 1
MOST_BYTES = 2**28  # of a certificate, and of a log as text
MOST_LINE = 2**24  # characters in a line of a log
MOST_ENTRIES = 10**6  # clients in sums, over all sums
MOST_ITEMS = 10**7  # in all lists and objects of a certificate
MOST_TEXT = 10**4  # characters of its remarks, and of how the log is read
MOST_DIGITS = 4300  # of an integer: what Python itself allows
MOST_STEPS = 250_000_000  # elementary operations: one to two minutes
SHARE = 2**80  # shares are counted in parts of this, rounded up
Entries = dict[Any, Fraction]  # of the matrix, by sum and client
Unchecked = TimeoutError  # something may be true, and was not looked at
INTEGER = re.compile(r"-?[0-9]+")
DECIMAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
RATIO = re.compile(r"[0-9]+/[1-9][0-9]*")
WANTED = re.compile(
    r"(?:(weak T|strong T|rank|plain sum) *(>=|<=|=)|(hidden among) *>=) *"
    r"([0-9][0-9./]{0,30})( .*)?|(not exposed|exposed)( .*)?"
)
SIGNED = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
HARDWARE = re.compile(r"(?:0x|urn:uuid:)?[{(]?[0-9a-f]{2,}(?:[-:][0-9a-f]{2,})+[)}]?")
SCHEME = r"(?:ipv[46]:|[a-z]{2,5}://)?"
BY_NUMBER = re.compile(
    SCHEME + r"(\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:.%]+\]|localhost)(?::\d{1,5})?/?"
)
BY_HOST = re.compile(SCHEME + r"([a-z0-9]+(?:[.\-_][a-z0-9\-_.]+|\d))(?::\d{4,5})?/?")
# besides those that Unicode calls dashes
DASHES = "\u2043\u2212\u02d7\u2cba\u30fc\uff70"
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
LOOKS: Any = str.maketrans(
    dict(
        zip(
            "авекмнорстухѕіјһԁԛԝьαβεζηικμνορτυχωϲѡոսօցıɑɡɪᴀʙᴄᴅᴇɢʜᴊᴋʟᴍɴᴏᴘʀᴛᴜᴠᴡʏᴢøłđħŧ",
            "abekmhopctyxsijhdqwbabezhikmnoptyxwcwnuogiagiabcdeghjklmnoprtuvwyzoldht",
        )
    )
    | {"æ": "ae", "œ": "oe", "þ": "th", "ð": "d"}
)
ROUND = "round|rnd"
CLIENT = "client|cid|user|node|participant|device|partition|site"
KEYS = dict(
    line.split(": ")
    for line in """\
certificate: no short proof,format,version,made by,log,reading,clients,rounds,sums,\
coalition,kernel,claims
certificate of parts: format,version,made by,log,reading,parts
part: part,no short proof,clients,rounds,sums,coalition,kernel,claims
log: name,sha256
lines: layout
matrix: layout,delimiter,header,left_out
long: layout,delimiter,header,columns,where
exposed: claim,clients,others,combination
not exposed: claim,clients
strong T: claim,value
rank: claim,value,rows,columns,modulus
weak T at most: claim,value,combination
plain sum: claim,value,combination
classes: claim,value,by
hidden: claim,value,by
kernel: claim,value,by,modulus,vectors,steps
hidden among at least: claim,clients,value,vector
header of the log: format,version,system,aggregation,pseudonyms,run,extra
line of the log: round,sum,status,clients,weights,asked,lost,noise,clip,time,extra,\
part,model,graph,head,signed""".splitlines()
)


class Refused(Exception):
    """Something is false, or is not what a certificate may hold."""


def need(condition: object, why: str) -> None:
    """Refuse unless something holds."""
    if not condition:
        raise Refused(why)


def listed(names: Any) -> str:
    """Return names so that nothing in them is hidden or acts on a terminal."""
    return ", ".join(map(ascii, names))


def keyed(value: Any, kind: str, whole: bool = True) -> None:
    """Refuse an object that has other keys than its kind."""
    need(type(value) is dict, f"no object for the {kind}")
    keys = set(KEYS[kind].split(","))
    odd = sorted(value.keys() - keys) or sorted(keys - value.keys()) * whole
    need(not odd, f"unknown or missing keys in the {kind}: {listed(odd)[:MOST_TEXT]}")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON in which no key is twice."""
    need(len(dict(pairs)) == len(pairs), "a key twice in one object")
    return dict(pairs)


def texts(value: Any) -> list[str]:
    """Return a list of different texts."""
    are_texts = type(value) is list and all(type(text) is str for text in value)
    need(are_texts, "no list of texts")
    need(len(set(value)) == len(value), "a text twice in a list")
    return list(value)


def integer(value: Any, least: int | None = None) -> int:
    """Return an integer, which may be written as text."""
    if type(value) is str and len(value) <= MOST_DIGITS and INTEGER.fullmatch(value):
        value = int(value)
    if type(value) is not int or (least is not None and value < least):
        raise Refused(f"no integer that fits: {value!a:.40}")
    return int(value)


def places(value: Any, below: int) -> list[int]:
    """Return a list of different places, from 0 on."""
    need(type(value) is list, "no list of places")
    numbers = [integer(item, 0) for item in value]
    fits = len(set(numbers)) == len(numbers) and max(numbers, default=0) < below
    need(fits, "wrong places in a list")
    return numbers


@functools.lru_cache(2**16)
def number(text: str) -> Fraction:
    """Return a number of 0 or more exactly as it is written."""
    text = {"true": "1", "false": "0"}.get(text.lower(), text)
    good = len(text) <= 300 and (DECIMAL.fullmatch(text) or RATIO.fullmatch(text))
    need(good, f"no number: {text[:40]!a}")
    return Fraction(text)


@functools.lru_cache(2**16)
def is_number(text: str) -> bool:
    """Return whether a text is a number, of any sign."""
    try:
        return number(text.strip().lstrip("+-")) >= 0
    except Refused:
        return False


def alike(name: str) -> Any:
    """Return a key that two names of rounds share if a reader may take them for one."""
    name = "".join(
        c for c in unicodedata.normalize("NFKC", name) if c.isprintable() or c.isspace()
    )
    name = " ".join(name.split())
    return Fraction(name) if len(name) <= 300 and DECIMAL.fullmatch(name) else name


def alike_client(name: str) -> Any:
    """Return a key that names share if they may be of one client, or of one part.

    Case, spaces, dashes, accents, letters that look alike or were read in another
    encoding, 0 and O, 1 and l, leading zeros, forms of one number, quotes, and the port
    of an address are one.
    """
    # codes of URLs and HTML may stand for letters, spaces and quotes, so they go first
    name = html.unescape(urllib.parse.unquote(name))
    if "\\" in name and name.isascii():
        codes = r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})"
        name = re.sub(codes, lambda code: chr(int(code[1] or code[2], 16)), name)
    if not name.isascii() or not name.isprintable():
        name = latin(name)
    name = " ".join(name.casefold().split())
    quoted = re.fullmatch(r"b?(['\"`])(.*)\1", name)
    name = quoted[2].strip() if quoted else name
    if re.fullmatch("[0-9a-f]{32}", name):
        return name[:16]  # of pseudonyms, of which the first half is of what is alike
    # before numbers are tried: 12345e78 is hexadecimal and a float
    if re.fullmatch(r"(?=.*[a-f])[0-9a-f]{8,}", name):
        return name
    grouped = re.fullmatch(r"\d{1,3}(?:[, ']\d{3})+", name)
    digits = (re.sub("[, ']", "", name) if grouped else name).lstrip("#").strip()
    if len(digits) <= 300 and SIGNED.fullmatch(digits):
        return Fraction(digits)
    # addresses of hardware and UUIDs, with any marks between their digits; what is
    # shorter is a word
    if HARDWARE.fullmatch(name):
        digits = name.removeprefix("urn:uuid:").removeprefix("0x")
        digits = re.sub("[^0-9a-f]", "", digits)
        if len(digits) >= 12:
            return digits
    name = re.sub(r"[\s_\-]+", "-", name).strip("-") or name
    # an address counts without its port: a client that connects again has another one
    if number := BY_NUMBER.fullmatch(name):
        name = number[1]
    elif host := BY_HOST.fullmatch(name):
        name = re.sub(r"(?<=\d)\.0+$", "", host[1])
    return re.sub(r"(?<![\d.])0+(?=\d)", "", name).translate(str.maketrans("01", "ol"))


def latin(name: str) -> str:
    """Return a name in the Latin letters it looks like, without invisible marks."""
    # UTF-8 that was read in another encoding is turned back
    for encoding in ("cp1252", "latin-1"):
        with contextlib.suppress(UnicodeError):
            name = name.encode(encoding).decode()
            break
    marks = []
    for mark in unicodedata.normalize("NFKD", name):
        kind = unicodedata.category(mark)
        if unicodedata.combining(mark) or (kind in ("Cf", "Cc") and not mark.isspace()):
            continue
        if kind == "Nd":
            mark = str(unicodedata.decimal(mark))
        marks.append("-" if kind == "Pd" or mark in DASHES else mark)
    return INVISIBLE.sub("", "".join(marks)).casefold().translate(LOOKS)


def asked_for(text: str) -> tuple[str, str, Fraction, list[str], list[str]]:
    """Return the parts of a --claim.

    Of what, a comparison, a number, and names, also of others.
    """
    parts = WANTED.fullmatch(text.strip())
    rule = "--claim must be as the head of this file shows ('weak T >= 4')"
    need(parts, f"{rule}; got {text!a}")
    figure, sign, hidden, value, names, kind, more = parts.groups()  # type: ignore[union-attr]
    words = shlex.split(names or more or "")
    cut = words.index("with") if kind == "exposed" and "with" in words else len(words)
    fits = not words if figure else kind != "exposed" or words[:cut]
    rule = "--claim must name clients after `exposed`, and none after T"
    need(fits, f"{rule}; got {text!a}")
    what = figure or hidden or kind
    return what, sign or "", number(value or "0"), words[:cut], words[cut + 1 :]


def lines_of(data: bytes, newline: str | None, spend: Any) -> Any:
    """Yield the lines of a text, packed or not, of which no more is held than one."""
    raw: Any = io.BytesIO(data)
    if data[:2] == b"\x1f\x8b":
        raw = gzip.GzipFile(fileobj=raw)
    text = io.TextIOWrapper(raw, "utf-8-sig", newline=newline)
    total = 0
    while line := text.readline(MOST_LINE + 1):
        # counted after unpacking: a small file may unpack to any size
        total += len(line)
        need(len(line) <= MOST_LINE, f"a line of more than {MOST_LINE} characters")
        need(total <= MOST_BYTES, f"a log of more than {MOST_BYTES} bytes")
        spend(3 * len(line) + 20)
        yield line


def put(entries: Entries, key: Any, weight: Fraction) -> None:
    """Add an entry of the matrix, one of not too many."""
    need(key not in entries, "a client twice in one sum of the log")
    need(len(entries) < MOST_ENTRIES, f"more than {MOST_ENTRIES} clients in sums")
    entries[key] = weight


def is_plain(reading: Any) -> bool:
    """Return whether a reading takes a whole log, from columns of clear names."""
    columns = reading.get("columns", (ROUND, CLIENT))
    j, i = (str(name).lower() for name in columns[:2])
    named = reading.get("header", 1) or reading["layout"] == "matrix"
    cut = reading.get("left_out") or reading.get("where") or len(columns) > 3
    return bool(named and not cut and re.search(ROUND, j) and re.search(CLIENT, i))


def read_log(data: bytes, reading: Any, spend: Any = abs) -> tuple[Entries, list[str]]:
    """Return a log's nonzero weights of (round, client), and the ignored rest.

    A sum of a part of the vector has the part as a third in its keys, and behind its
    round's name.
    """
    layout = reading.get("layout") if type(reading) is dict else None
    need(layout in ("lines", "matrix", "long"), "an unknown layout")
    keyed(reading, str(layout))
    is_short = len(json.dumps(reading)) <= MOST_TEXT
    need(is_short, "more words on reading than anybody reads")
    if layout == "lines":
        entries, remarks = read_lines(lines_of(data, "\n", spend))
    else:
        entries, remarks = read_table(lines_of(data, None, spend), reading)
    entries = {key: weight for key, weight in entries.items() if weight}
    need(entries or is_plain(reading), "nothing of the log is left")
    return entries, remarks


def read_table(lines: Any, reading: Any) -> tuple[Entries, list[str]]:
    """Read a table whose first line shows the delimiter, and if it is a header."""
    lines = (line.rstrip("\n") for line in lines if line.strip())
    first = next(lines, "{")
    need(first.lstrip()[0] not in "{[", "no table")
    # without any of these marks, spaces part numbers as NumPy writes them
    mark: Any = max(",;\t|", key=first.count)
    if mark not in first:
        mark = None if is_number(first.split()[0]) else " "

    def split(line: str) -> list[str]:
        words = line.split(mark)
        if mark is not None and '"' in line:
            (words,) = csv.reader([line], delimiter=mark, strict=True)
        return [word.strip() for word in words]

    names = split(first)
    header = int(not all(map(is_number, names)))
    same = (reading["delimiter"], integer(reading["header"])) == (mark, header)
    need(same, f"the delimiter is {mark!a}, and the lines of header {header}")
    if not header:
        lines = itertools.chain([first], lines)
        names = [str(k) for k in range(len(names))]
    need(len(set(names)) == len(names), "two columns of one name")
    read = read_matrix if reading["layout"] == "matrix" else read_rows
    return read(names, map(split, lines), reading)


def read_matrix(names: list[str], rows: Any, reading: Any) -> tuple[Entries, list[str]]:
    """Read a row for each sum, with a column for each client."""
    entries: Entries = {}
    count = 0
    cut = dict.fromkeys(texts(reading["left_out"]), 0)
    need(cut.keys() <= set(names), "a column that is not there")
    for row in rows:
        need(len(row) == len(names), "rows of different lengths")
        for name, text in zip(names, row):
            if name in cut:
                cut[name] += not is_number(text) or number(text.lstrip("+-")) > 0
            elif weight := number(text):
                put(entries, (str(count), name), weight)
        count += 1
    remarks = []
    if cut:
        columns = f"{len(cut)} of {len(names)} columns"
        remarks.append(f"LEFT OUT: {columns}, each a client if it is one")
    for name, some in cut.items():
        zeros = f"which is not 0 in {some} of {count} rows"
        remarks.append(f"LEFT OUT: column {name!a}, {zeros}")
    return entries, remarks


def read_rows(names: list[str], rows: Any, reading: Any) -> tuple[Entries, list[str]]:
    """Read a row for each client in each sum."""
    columns = reading["columns"]
    where = reading["where"]
    need(type(columns) is list and len(columns) in (3, 4), "other columns")
    need(len(where) <= 20, "other rules")
    used = texts(columns[:2] + [name for name in columns[2:] if name is not None])
    used += [name for name, _ in where]
    need(set(used) <= set(names), "a column that is not there")
    j, i, w, part = (
        None if name is None else names.index(name) for name in [*columns, None][:4]
    )
    rules = [(names.index(name), set(texts(wanted))) for name, wanted in where]
    entries: Entries = {}
    words: dict[str, str] = {}  # each text once in memory
    count = 0
    cut = [0] * (len(rules) + 1)
    # of each client, in bits: who has a row that passes each rule, and all
    seen: dict[str, int] = {}
    for row in rows:
        need(len(row) == len(names), "rows of different lengths")
        count += 1
        key = tuple([words.setdefault(row[k], row[k]) for k in (j, i)])
        good = [row[k] in wanted for k, wanted in rules]
        good.append(all(good))
        cut = [some + (not passed) for some, passed in zip(cut, good)]
        bits = sum(passed << n for n, passed in enumerate(good))
        seen[key[1]] = seen.get(key[1], 0) | bits
        need(len(words) <= 2 * MOST_ENTRIES, "too many names in the log")
        name = "" if part is None else row[part]
        # without a part a row is of a sum of whole updates
        if name not in ("", "nan", "NaN"):
            key = (f"{key[0]}[{name}]", key[1], words.setdefault(name, name))
        if good[-1]:
            put(entries, key, number("1" if w is None else row[w]))
    remarks = [f"not used: column {name!a}" for name in names if name not in used]
    said = [
        f"where {name!a} is not {' or '.join(map(ascii, wanted))}"
        for name, wanted in where
    ]
    for n, rule in enumerate(said + ["by all of these together"] * (len(said) > 1)):
        lost = [name for name, bits in seen.items() if not bits >> n & 1]
        some = ": " * bool(lost) + listed(lost[:20]) + " and others" * (len(lost) > 20)
        remarks.append(
            f"LEFT OUT {rule}: {cut[n]} of {count} rows, with all rows of {len(lost)} "
            f"of {len(seen)} clients{some}"
        )
    return entries, remarks


def read_lines(lines: Any) -> tuple[Entries, list[str]]:
    """Read mrsa-jax's participation log: JSON Lines, a sum each, and headers."""
    run = -1
    count = 0
    sums: dict[Any, Any] = {}
    words: dict[str, str] = {}
    cut = collections.Counter[str]()
    for line in lines:
        if not line.endswith("\n") or line.rstrip("\r\n").endswith("#torn"):
            cut["torn, or without their end"] += 1
            continue
        read = json.loads(line, object_pairs_hook=once, parse_float=str, parse_int=str)
        is_header = "format" in read
        keyed(read, f"{'header' if is_header else 'line'} of the log", whole=False)
        if is_header:
            is_ours = read["format"] == "mrsa-jax participation log"
            need(is_ours, "another format of log")
            run = integer(read["run"], 0)
            continue
        status = read.get("status", "learnt")
        is_good = run >= 0 and status in ("learnt", "aborted", "refused")
        need(is_good, "no header, or no status")
        cut[f"of sums that were {status}"] += 1
        if status != "learnt":
            continue
        names = texts(read["clients"])
        weights = read.get("weights", ["1"] * len(names))
        part = read.get("part")
        is_named = part is None or (type(part) is str and part)
        need(is_named, "a part of the vector without a name")
        key = (run, integer(read["round"], 0), integer(read.get("sum", 0), 0), part)
        count += len(names) * (key not in sums)
        fits = len(names) == len(weights) and count <= MOST_ENTRIES
        need(fits, "too many clients in sums")
        # a sum that is written twice in the same way counts once
        row = {words.setdefault(i, i): number(w) for i, w in zip(names, weights)}
        need(sums.setdefault(key, row) == row, "a sum that the log has in two ways")
    has_runs = any(key[0] for key in sums)
    has_sums = any(key[2] for key in sums)
    entries: Entries = {}
    for (r, j, k, part), row in sums.items():
        name = f"{r}:" * has_runs + str(j) + f"/{k}" * has_sums
        more: tuple[Any, ...] = ()
        if part is not None:
            name += f"[{part}]"
            more = (part,)
        entries.update({(name, i, *more): weight for i, weight in row.items()})
    return entries, [f"{some} lines are {what}" for what, some in cut.items()]


def are_independent(vectors: list[list[int]], modulus: int) -> bool:
    """Return whether elimination modulo a number, prime or not, has units as pivots.

    If it has, a minor is not zero.
    """
    echelon: list[tuple[int, list[int]]] = []
    for vector in vectors:
        rest = [value % modulus for value in vector]
        for pivot, other in echelon:
            if factor := rest[pivot]:
                rest = [(x - factor * y) % modulus for x, y in zip(rest, other)]
        # modulo a composite number only units can be divided by; without one nothing is
        # shown
        units = (k for k, value in enumerate(rest) if math.gcd(value, modulus) == 1)
        pivot = next(units, -1)
        if pivot < 0:
            return False
        scale = pow(rest[pivot], -1, modulus)
        echelon.append((pivot, [value * scale % modulus for value in rest]))
    return True


class Checker:
    """The certificate's matrix, and what of it has been checked so far."""

    left = MOST_STEPS
    doubt = "of a matrix that is not known to be the log's"

    def __init__(
        self, coalition: Any = None, reading: Any = None, part: Any = None
    ) -> None:
        self.coalition = coalition
        self.reading = reading
        self.part = part
        self.least = collections.Counter[str]()
        self.most: dict[str, Any] = {}
        self.exposed: list[tuple[int, set[int]]] = []
        self.free: set[int] = set()

    def spend(self, steps: int, bits: int = 0, others: int = 0) -> None:
        """Give up before a step too many; products of long integers count as more."""
        steps *= 1 + ((bits + 64) * (others + 64) >> 16)
        if steps > self.left:
            why = f"it takes {steps} steps, and {self.left} are left (--steps)"
            raise Unchecked(why)
        self.left -= steps

    def load(self, data: bytes) -> list[dict[str, Any]]:
        """Return a certificate's content, by parts of the vector if it has any."""
        need(len(data) <= MOST_BYTES, f"more than {MOST_BYTES} bytes")
        # counted before parsing, which would need memory for all of them
        items = sum(map(data.count, (b",", b"[", b"{")))
        need(items <= MOST_ITEMS, f"more than {MOST_ITEMS} items")
        self.spend(len(data) // 8 + 10 * items)
        kinds = ("parse_int", "parse_float", "parse_constant")
        numbers: Any = dict.fromkeys(kinds, integer)
        content: Any = json.loads(data.decode(), object_pairs_hook=once, **numbers)
        if type(content) is not dict or "parts" not in content:
            return [self.checked(content)]
        keyed(content, "certificate of parts")
        parts = content.pop("parts")
        need(type(parts) is list and parts, "no parts")
        for each in parts:
            keyed(each, "part")
        names = texts([each["part"] for each in parts])
        need(len(set(map(alike_client, names))) == len(names), "parts that may be one")
        return [self.checked({**content, **each}, each["part"]) for each in parts]

    def checked(self, content: Any, part: Any = None) -> dict[str, Any]:
        """Return the content of a certificate with all it needs and no more."""
        whole = content
        if part is not None:
            whole = {key: value for key, value in content.items() if key != "part"}
        keyed(whole, "certificate")
        log = content["log"]
        keyed(log, "log")
        is_ours = content["format"] == FORMAT and integer(content["version"]) == VERSION
        need(is_ours, "no format")
        remarks = [content["made by"], log["name"], *texts(content["no short proof"])]
        need({*map(type, remarks)} == {str}, "remarks that are no text")
        is_short = sum(map(len, remarks)) <= MOST_TEXT
        need(is_short, f"remarks of more than {MOST_TEXT} characters")
        need(type(content["claims"]) is list and content["claims"], "it claims nothing")
        return dict(content)

    def read(self, content: dict[str, Any]) -> str:
        """Read the matrix, fractions made integers row by row, and the vectors u."""
        self.content = content
        clients = texts(content["clients"])
        rounds = texts(content["rounds"])
        sums = content["sums"]
        for names, form in ((clients, alike_client), (rounds, alike)):
            need(len(set(map(form, names))) == len(names), "names that may be one")
        need(type(sums) is list and len(sums) == len(rounds), "other sums than rounds")
        self.names = [*map(ascii, clients)]
        self.places = {name: i for i, name in enumerate(clients)}
        self.known = dict.fromkeys(places(content["coalition"], len(clients)))
        joined = {clients[i] for i in self.known}
        wanted: Any = joined if self.coalition is None else self.coalition
        if self.part is not None:
            wanted = {*wanted} & {*clients}
        listing = ", ".join(self.names[i] for i in self.known) or "nobody"
        need(
            joined == set(wanted),
            f"the server knows {listing}, which is another --coalition than "
            f"{listed(wanted) or 'nobody'}",
        )
        self.entries: Entries = {}
        columns: list[list[tuple[int, int]]] = [[] for _ in clients]
        for j, terms in enumerate(sums):
            weights = [number(str(weight)) for _, weight in terms]
            kinds = {type(weight) for _, weight in terms}
            need(kinds <= {int, str}, "a weight that is no number")
            # a row times a number has the same combinations, so that integers suffice
            scale = 1
            for weight in weights:
                scale = math.lcm(scale, weight.denominator)
                is_usual = weight and scale.bit_length() <= MOST_DIGITS
                need(is_usual, "a weight of 0, or odd ones")
            self.spend(len(weights) * (1 + scale.bit_length() // 32))
            for i, weight in zip(places([i for i, _ in terms], len(clients)), weights):
                put(self.entries, (rounds[j], clients[i]), weight)
                if i not in self.known:  # their updates are known
                    columns[i].append((j, int(weight * scale)))
        classes: dict[tuple[tuple[int, int], ...], int] = {}
        # -1: in no sum, or known to the server
        self.class_of = [
            classes.setdefault(tuple(column), len(classes)) if column else -1
            for column in columns
        ]
        counts = collections.Counter(self.class_of)
        self.sizes = [counts[k] for k in range(len(classes))]
        self.rows: list[list[tuple[int, int]]] = [[] for _ in rounds]
        for k, column in enumerate(classes):
            for j, value in column:
                self.rows[j].append((k, value))
        entries = (value for row in self.rows for _, value in row)
        self.bits = max(map(int.bit_length, entries), default=1)
        self.among = [Fraction(size) for size in self.sizes]  # clients, at least
        self.longest = 0  # bits in a vector u
        self.kernel = [self.in_kernel(vector) for vector in content["kernel"]]
        absent = counts[-1] - len(self.known)
        others = f" ({absent} clients in none)" * (absent > 0)
        said = f"{sum(map(bool, sums))} sums, {len(classes)} classes of clients"
        return f"{said}{others}; the server knows {listing}"

    def run(self, claim: Any) -> str:
        """Check a claim of any kind."""
        self.spend(len(self.names) + 20)
        need(type(claim) is dict and type(claim.get("claim")) is str, "no claim")
        kind = claim["claim"]
        work = getattr(self, "check_" + kind.replace(" ", "_"), None)
        if work is None:
            raise Unchecked(f"{kind!a:.40} is not known here")
        keyed(claim, claim["by"] if kind == "weak T at least" else kind)
        return str(work(claim))

    def is_matrix(self, log: bytes, parts: Any = ()) -> str:
        """Check that the log is the certificate's, and gives its matrix again.

        Of a certificate of parts: those of all parts that are in it.
        """
        need(len(log) <= MOST_BYTES, f"more than {MOST_BYTES} bytes")
        digest = hashlib.sha256(log).hexdigest()
        reading = self.content["reading"]
        is_same = self.content["log"]["sha256"] == digest
        need(is_same, f"the certificate is not of SHA-256 {digest}")
        need(self.reading in (None, reading), "it is not read as --reading says")
        if reading is None:
            raise Unchecked(f"SHA-256 {digest}, but its matrix cannot be read here")
        entries, remarks = read_log(log, reading, self.spend)
        names = {key[2] for key in entries if len(key) > 2}
        need(
            not parts or names == {each.part for each in parts},
            f"its parts of the vector are {listed(sorted(names)) or 'none'}",
        )
        how = json.dumps(reading)
        agree = (
            "of the log as it is read; "
            f"if you agree to that, add --reading {shlex.quote(how)}"
        )
        for each in parts or [self]:
            self.spend(len(entries) * bool(parts))
            of_part = {
                key[:2]: weight
                for key, weight in entries.items()
                if key[2:] in ((), (each.part,))
            }
            need(
                (of_part if parts else entries) == each.entries,
                "it has another matrix" + f" of part {each.part!a}" * bool(parts),
            )
        for each in parts or [self]:
            each.doubt = "" if self.reading or is_plain(reading) else agree
        head = f"SHA-256 {digest}, with this matrix if read as {how}"
        return "\n  ".join([head, *remarks])

    def in_kernel(self, vector: Any) -> list[int]:
        """Return integers u with M u = 0."""
        fits = type(vector) is list and len(vector) == len(self.sizes)
        need(fits, "a vector of a wrong length")
        u = [integer(value) for value in vector]
        self.longest = max([self.longest, *map(int.bit_length, u)])
        self.spend(sum(map(len, self.rows)) + len(self.rows), self.longest, self.bits)
        zero = all(sum(value * u[k] for k, value in row) == 0 for row in self.rows)
        need(zero, "a vector u with M u that is not zero")
        return u

    def combination(self, terms: Any) -> dict[int, int]:
        """Return z M where not zero; z has pairs of a sum and an integer."""
        total: dict[int, int] = collections.defaultdict(int)
        factors = [z for _, z in terms]
        for j, text in zip(places([j for j, _ in terms], len(self.rows)), factors):
            z = integer(text)
            self.spend(len(self.rows[j]) + 1, z.bit_length(), self.bits)
            for k, value in self.rows[j]:
                total[k] += z * value
        return {k: value for k, value in total.items() if value}

    def note(self, what: str, least: int, most: Any = math.inf) -> None:
        """Keep bounds that are checked."""
        self.least[what] = max(least, self.least[what])
        self.most[what] = min(most, self.most.get(what, most))

    def check_exposed(self, claim: Any) -> str:
        """Check that a combination has one client, others only in the coalition."""
        (i,) = places(claim["clients"], len(self.names))
        others = places(claim["others"], len(self.names))
        total = self.combination(claim["combination"])
        inside = collections.Counter(self.class_of[i] for i in {i, *others})
        is_in = self.class_of[i] in total and i not in others
        need(is_in, "the client is not in the combination")
        alone = all(inside[k] == self.sizes[k] for k in total)
        need(alone, "others are in the combination")
        self.exposed.append((i, set(others)))
        self.note("weak T", 0, sum(self.sizes[k] for k in total))
        names = ", ".join(self.names[j] for j in others)
        joined = f" if these join: {names}" * bool(others)
        return f"client {self.names[i]} is exposed{joined}"

    def check_not_exposed(self, claim: Any) -> str:
        """Check that each client moves with another, or is nonzero in some u."""
        clients = places(claim["clients"], len(self.names))
        are_others = clients and self.known.keys().isdisjoint(clients)
        need(are_others, "the server knows some of their updates")
        classes = {self.class_of[i] for i in clients} - {-1}
        self.spend(len(classes) * len(self.kernel))
        single = [k for k in classes if self.sizes[k] == 1]
        bare = [k for k in single if not any(u[k] for u in self.kernel)]
        need(not bare, f"{len(bare)} clients without a vector")
        self.free.update(clients)
        absent = sum(self.class_of[i] < 0 for i in clients)
        absence = f", {absent} in no sum" * (absent > 0)
        return f"{len(clients)} clients are not exposed {REALS}{absence}"

    def check_strong_T(self, claim: Any) -> str:
        """Check the size of the smallest class."""
        least = min(self.sizes, default=None)
        value = None if claim["value"] is None else integer(claim["value"])
        need(value == least, f"it is {least}")
        self.note("strong T", least or 0, least or math.inf)
        self.note("weak T", least or 0)
        return f"strong T is {least or 'undefined: no client took part'}"

    def check_rank(self, claim: Any) -> str:
        """Check a minor, and that there is no room for a larger one."""
        rank = integer(claim["value"], 1)
        modulus = integer(claim["modulus"], 2)
        rows = places(claim["rows"], len(self.rows))
        columns = places(claim["columns"], len(self.sizes))
        fits = len(rows) == len(columns) == rank and modulus < 2**64
        need(fits, "no minor of that size")
        count = len(self.kernel)
        width = len(self.sizes)
        self.spend(rank**3 // 2)
        self.spend(2 * rank**2 + count * width, self.bits, self.longest)
        self.spend(count**2 * width // 2)
        picked = [dict(self.rows[j]) for j in rows]
        minor = [[row.get(k, 0) for k in columns] for row in picked]
        need(are_independent(minor, modulus), "a minor that may be zero")
        # a rank is at most the classes, and at most the different rows; independent
        # vectors u leave one less each
        most = min(width, len({tuple(row) for row in self.rows if row}))
        if rank == width - count and are_independent(self.kernel, modulus):
            most = rank
        need(rank == most, f"it may be {most}")
        self.note("rank", rank, rank)
        return f"the rank is {rank}"

    def check_plain_sum(self, claim: Any) -> str:
        """Count the clients of a combination; in a plain sum coefficients agree."""
        total = self.combination(claim["combination"])
        clients = sum(self.sizes[k] for k in total)
        is_right = 0 < clients == integer(claim["value"])
        need(is_right, f"the combination has {clients} clients")
        if claim["claim"] == "weak T at most":
            self.note("weak T", 0, clients)
            return f"weak T is at most {clients}"
        need(len(set(total.values())) == 1, "different coefficients")
        self.note("weak T", 0, clients)
        self.note("plain sum", 0, clients)
        return f"a plain sum of {clients} clients follows"

    check_weak_T_at_most = check_plain_sum

    def check_weak_T_at_least(self, claim: Any) -> str:
        """Check by classes, by small sets of classes, or by shares that add to 1."""
        value = integer(claim["value"], 1)
        by = claim["by"]
        most = min(self.sizes, default=0)
        if by == "kernel":
            # is believed where it says that they are too many
            stated = integer(claim["steps"])
            self.spend(0 if stated <= self.left else stated)
            prime = integer(claim["modulus"], 3)
            limit = value - 1
            need(limit < sum(self.sizes) and prime < 2**20, "too large a number")
            kernel = self.kernel[: integer(claim["vectors"], 1)]
            work = len(kernel) * len(self.sizes) * (2 + self.longest // 1000)
            self.spend(8 * prime + work)
            is_prime = all(prime % d for d in range(2, math.isqrt(prime) + 1))
            need(is_prime, "no prime as modulus")
            self.prime = prime
            self.inverse = [0, 1]
            for x in range(2, prime):
                # of p = q x + r, as r < x: 1 / x = -q / r
                last = self.inverse[prime % x]
                self.inverse.append((prime - prime // x) * last % prime)
            rows = [tuple(u[k] % prime for u in kernel) for k in range(len(self.sizes))]
            points = sorted(zip(self.sizes, rows), key=lambda point: point[0])
            is_free = self.all_independent(points, limit)
            need(is_free, f"rows of U are dependent modulo {prime}")
            most = value
        elif by == "hidden":
            self.spend(20 * len(self.sizes))
            shares = [-(-SHARE * x.denominator // x.numerator) for x in self.among]
            most = 0
            rest = SHARE
            # the fewest clients whose shares add up to 1: the largest shares first
            for share, size in sorted(zip(shares, self.sizes), reverse=True):
                some = min(size, -(-rest // share))
                most += some
                rest = max(rest - some * share, 0)
        need(value <= most, f"this shows {most} only")
        self.note("weak T", value)
        return f"weak T is at least {value}, by {by}"

    def all_independent(self, points: list[Any], limit: int) -> bool:
        """Return whether sets of points (client, row of U) are independent."""
        self.spend(3 * len(points) + 20)
        points = [point for point in points if point[0] <= limit]
        prime = self.prime
        inverse = self.inverse
        if not all(any(vector) for _, vector in points):
            return False
        sizes = itertools.accumulate(size for size, _ in points[:4])
        # the most points that a set within the limit may have; 4 stands for more
        few = sum(size <= limit for size in sizes)
        plane: list[tuple[int, ...]] = []
        is_plane = few == 3 and all(vector[0] for _, vector in points)
        if is_plane:
            plane = [
                tuple(x * inverse[vector[0]] % prime for x in vector[1:3])
                for _, vector in points
            ]
            is_plane = len(set(plane)) == len(plane)
        # a set's later points are projected along its first, and must not become
        # dependent; three points of a plane have not, where all slopes from the first
        # are different
        for place, (size, vector) in enumerate(points if few > 1 else []):
            self.spend(len(points) - place)
            if is_plane:
                a, b = plane[place]
                later = plane[place + 1 :]
                slopes = {(x - a) * inverse[y - b] % prime for x, y in later}
                if len(slopes) == len(later):
                    continue
            self.spend((len(points) - place) * (len(vector) + 4))
            pivot = next(k for k, value in enumerate(vector) if value)
            unit = [value * inverse[vector[pivot]] % prime for value in vector]
            del unit[pivot]
            rest = []
            for other_size, other in points[place + 1 :]:
                if size + other_size <= limit:
                    pairs = zip(other[:pivot] + other[pivot + 1 :], unit)
                    row = [(x - other[pivot] * y) % prime for x, y in pairs]
                    rest.append((other_size, tuple(row)))
            if not self.all_independent(rest, limit - size):
                return False
        return True

    def check_hidden_among_at_least(self, claim: Any) -> str:
        """Check that no y = z M has y_i^2 / |y|^2 above 1 / value, by class or u."""
        clients = places(claim["clients"], len(self.names))
        value = number(claim["value"])
        (k,) = {self.class_of[i] for i in clients}
        is_usual = k >= 0 and 0 < len(claim["value"]) < 50 and value
        need(is_usual, "clients in no sum, or an odd number")
        square, rest = 0, 1  # u_k^2 / A is square / rest
        if claim["vector"] is not None:
            u = self.in_kernel(claim["vector"])
            common = math.lcm(*self.sizes)
            self.spend(4 * len(u), self.longest, self.longest)
            # u spread evenly over the m clients of a class has there the square u^2 / m
            squares = [x * x * (common // m) for x, m in zip(u, self.sizes)]
            square = u[k] ** 2 * common
            rest = sum(squares) - squares[k]
        need(rest > 0 and (value - self.sizes[k]) * rest <= square, "less is shown")
        self.among[k] = max(value, self.among[k])
        return (
            f"hidden among at least {value}: "
            f"{', '.join(self.names[i] for i in clients)}"
        )

    def follows(
        self, what: str, sign: str, value: Any, names: Any, others: Any
    ) -> bool:
        """Return whether something that is asked for follows from what is checked."""
        inside = [i for i, k in enumerate(self.class_of) if k >= 0]
        clients = [self.places[name] for name in names] or inside
        are_inside = clients and {*clients} <= {*inside}
        need(are_inside, "a client in no sum, or whom the server knows")
        joined = {self.places[name] for name in others}
        least = self.least[what]
        most = self.most.get(what, math.inf)
        weak = self.least["weak T"]
        if what == "plain sum":  # which is a combination too
            least = max(least, weak)
        among = [self.among[self.class_of[i]] for i in clients]
        if what == "exposed":
            good = all(
                any(i == k and needs <= joined for k, needs in self.exposed)
                for i in clients
            )
        elif what == "not exposed":
            pairs = zip(clients, among)
            # weak T above 1 leaves no client alone, and a client hidden among more than
            # 1 is not either
            good = all(weak > 1 or i in self.free or size > 1 for i, size in pairs)
        elif what == "hidden among":
            good = all(size >= value for size in among)
        else:
            good = (sign == "<=" or least >= value) and (sign == ">=" or most <= value)
        return bool(good)


def shows(parts: list[Checker], text: str) -> str:
    """Check that a requested claim follows from the worst part, or from the whole."""
    what, sign, value, names, others = asked_for(text)
    several = parts[0].part is not None
    is_possible = what != "rank" or not several
    need(is_possible, "the rank is of one matrix, not of several parts")
    everybody = {name for each in parts for name in each.places}
    need(everybody >= {*names, *others}, "no such client in the log as it is read")

    def follows(part: Checker, sign: str, clients: Any) -> bool:
        joined = [name for name in others if name in part.places]
        return part.follows(what, sign, value, clients, joined)

    if what == "exposed":
        good = all(
            any(follows(each, sign, [name]) for each in parts if name in each.places)
            for name in names
        )
    elif what in ("not exposed", "hidden among"):
        trained = [
            (each, [name for name in names if name in each.places]) for each in parts
        ]
        good = all(
            follows(each, sign, some) for each, some in trained if some or not names
        )
    else:
        # the worst part counts: ">=" must follow in each of them, "<=" in one
        good = sign == "<=" or all(follows(each, ">=", []) for each in parts)
        good = good and (sign == ">=" or any(follows(each, "<=", []) for each in parts))
    need(good, "no claim that is checked shows it")
    if any(each.doubt for each in parts):
        raise Unchecked(parts[0].doubt)
    return "it follows from claims that are checked" + ", of the worst part" * several


def check(
    certificate: bytes,
    log: bytes,
    steps: int = MOST_STEPS,
    asked: Any = (),
    coalition: Any = None,
    reading: Any = None,
) -> list[tuple[str, str]]:
    """Return a status and words for the certificate, log, claims and requests."""
    outcomes: list[tuple[str, str]] = []

    def attempt(label: str, work: Any, argument: Any) -> str:
        status = "checked"
        try:
            text = work(argument)
        except Unchecked as why:
            status = "not checked"
            text = str(why)
        except Refused as why:
            status = "REFUSED"
            text = str(why)
        except Exception as why:
            status = "REFUSED"
            text = f"malformed ({type(why).__name__})"
        outcomes.append((status, f"{label}: {text}"))
        return status

    wanted = () if asked and coalition is None else coalition
    parts: list[Checker] = []

    def read(data: bytes) -> str:
        first = Checker(wanted, reading)
        first.left = steps
        remarks = []
        for content in first.load(data):
            part = Checker(wanted, reading, content.pop("part", None))
            part.left = parts[-1].left if parts else first.left
            label = "" if part.part is None else f"part {part.part!a}: "
            remarks.append(label + part.read(content))
            parts.append(part)
        names = {name for part in parts for name in part.places}
        is_there = wanted is None or {*wanted} <= names
        need(is_there, "another --coalition than the certificate's")
        return "\n  ".join(remarks)

    def is_log(data: bytes) -> str:
        several = [part for part in parts if part.part is not None]
        parts[0].left = parts[-1].left
        return parts[0].is_matrix(data, several)

    if attempt("certificate", read, certificate) != "checked":
        return outcomes
    if attempt("log", is_log, log) == "REFUSED":
        return outcomes
    # all parts draw on one allowance of steps, which each hands to the next
    left = parts[0].left
    for part in parts:
        part.left = left
        label = "" if part.part is None else f"part {part.part!a}, "
        for place, claim in enumerate(part.content["claims"], start=1):
            attempt(f"{label}claim {place}", part.run, claim)
        for text in part.content["no short proof"]:
            outcomes.append(("not checked, no short proof", label + ascii(text)))
        left = part.left
    for text in asked:
        attempt(f"--claim {text!a}", functools.partial(shows, parts), text)
    return outcomes


def main(words: list[str] | None = None) -> int:
    """Check the files on the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("certificate")
    add("log")
    add(
        "--claim",
        action="append",
        default=[],
        help="what must follow, as 'weak T >= 4' or 'not exposed' (more at the head of "
        "this file); may be repeated",
    )
    add(
        "--coalition",
        metavar="NAMES",
        help="comma-separated clients that reveal their updates to the server; none "
        "with --claim unless set",
    )
    text = "the only way to read the log to accept"
    add("--reading", type=json.loads, metavar="JSON", help=text)
    text = "most elementary operations (%(default)s)"
    add("--steps", type=int, default=MOST_STEPS, help=text)
    chosen = parser.parse_args(words)
    names = chosen.coalition and [name.strip() for name in chosen.coalition.split(",")]
    data = []
    try:
        for text in chosen.claim:
            asked_for(text)
        for path in (chosen.certificate, chosen.log):
            with open(path, "rb") as file:
                data.append(file.read(MOST_BYTES + 1))
    except (OSError, Refused, ValueError) as error:
        parser.error(str(error))
    outcomes = check(
        data[0], data[1], chosen.steps, chosen.claim, names, chosen.reading
    )
    for status, text in outcomes:
        print(f"{status}: {text}")
    print(f"note: {KNOWN_RANGE}")
    statuses = [status for status, _ in outcomes]
    return 1 if "REFUSED" in statuses else 3 if "not checked" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
