"""The participation log that this package writes: version 1, JSON Lines, one per sum.

A header names the system and the kind of aggregation, and stands again each time a
recorder starts on the file; each line below it is a sum, whole or not there. Whatever
breaks a rule is named by file and line, and nothing is passed over in silence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction
from typing import Any, Literal, cast

from mrsa_watch._base.errors import nearest
from mrsa_watch._base.values import words_of
from mrsa_watch.logs._evidence import EVIDENCE, Evidence, read_evidence
from mrsa_watch.logs._identity import (
    MOST_NAME,
    AlikeError,
    Names,
    PseudonymNames,
    is_name,
    names_nobody,
)
from mrsa_watch.logs._json import MOST_LINE_BYTES, load_object, load_value, twice
from mrsa_watch.logs._names import PartNames, fault, fault_alike, listing, shown
from mrsa_watch.logs._numbers import common_denominator, exact_weight, parse_number

FORMAT = "mrsa-jax participation log"
VERSION = 1
TORN = b"#torn"
"""Ends a line that a crash cut short.

No JSON does. What it held was never acknowledged.
"""
STAGES = ("setup", "share_keys", "upload", "unmask", "train")
STATUSES = ("learnt", "aborted", "refused")
_MOST_WHOLE = 2**63
_NEEDED = ("system", "aggregation", "pseudonyms", "run")
_HEADER = ("format", "version", *_NEEDED, "extra")
_SUM = (
    *words_of("round sum status clients weights asked lost noise clip time extra part"),
    *EVIDENCE,
)
_PSEUDONYMS = re.compile(r"[0-9a-f]{8}")

Status = Literal["learnt", "aborted", "refused"]
Key = tuple[int, int, int] | tuple[int, int, int, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The line that a recorder writes when it starts.

    Attributes:
        system: What was recorded, such as `"flower 1.41.0"`.
        aggregation: `"secagg+"`, `"secagg"`, `"plain"` (the server saw every update by
            itself) or other text.
        pseudonyms: First 8 hex digits of the SHA-256 of the salt; None for names as
            they are.
        run: How often a recorder had started on the log before.
        line: Its number in the log.
        extra: Whatever else it says, such as the app and its run.
    """

    system: str
    aggregation: str
    pseudonyms: str | None
    run: int
    line: int
    extra: Any = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class SumLine:
    """One sum of a participation log.

    Attributes:
        run: Of the header above it; (run, round, sum) names a sum, with its part if it
            has one.
        round: As the system counts rounds.
        sum: Which of the round's sums, from 0 on.
        status: `"learnt"`, `"aborted"` (nothing was learnt) or `"refused"` (never
            begun).
        clients: Members of the learnt sum.
        weights: Their factors in it, exactly; None where all are 1.
        asked: The clients that the server asked, if the log has them.
        lost: Clients who were lost, by stage.
        noise: Standard deviation of the noise in the sum.
        clip: Largest norm of an update.
        line: Its number in the log.
        part: Of which coordinates it is, by a name; None for the sum of whole updates.
        evidence: What clients signed of it; None if the log has the server's word only.
    """

    run: int
    round: int
    sum: int
    status: Status
    clients: tuple[str, ...]
    weights: tuple[Fraction, ...] | None
    asked: tuple[str, ...] | None
    lost: dict[str, tuple[str, ...]]
    noise: float | None
    clip: float | None
    line: int
    part: str | None = None
    evidence: Evidence | None = None

    @property
    def key(self) -> Key:
        """Return the key that names the sum."""
        key = self.run, self.round, self.sum
        return key if self.part is None else (*key, self.part)


class LineParser:
    r"""Read a participation log line by line, and hold each line to the format's rules.

    Args:
        name: The file, for messages.

    Attributes:
        line: How many lines were read.
        headers: All headers so far; one that adds to what it said under `extra` is
            there twice.
        repeated: Numbers of lines that say what an earlier one says; they count once.
        torn: Numbers of lines that a crash cut short and a later recorder marked.
        is_unfinished: Whether `sums` came to a last line without an end, which it left
            out.

    Examples:
        >>> parser = LineParser("log.jsonl")
        >>> parser.feed(b'{"format": "mrsa-jax participation log", "version": 1, '
        ...             b'"system": "my", "aggregation": "secagg+", '
        ...             b'"pseudonyms": null, "run": 0}\n')
        >>> line = parser.feed(b'{"round": 7, "clients": ["anna", "bob"], '
        ...                    b'"weights": [1, "1/3"]}')
        >>> line.key, line.clients, line.weights
        ((0, 7, 0), ('anna', 'bob'), (Fraction(1, 1), Fraction(1, 3)))
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 0
        self.headers: list[Header] = []
        self.repeated: list[int] = []
        self.torn: list[int] = []
        self.is_unfinished = False
        self._run = 0
        self._runs: dict[int, Header] = {}
        # what a sum's line said, and where
        self._seen: dict[Key, tuple[bytes, int]] = {}
        self._names = Names()
        self._fresh: dict[Any, str] = {}  # names that the last sum brought
        self._parts = PartNames()

    def feed(self, line: bytes) -> SumLine | None:
        """Return the next line's sum; None for a header, repetition or torn line.

        Args:
            line: A complete line, with or without its end.

        Raises:
            ConfigurationError: Naming file and line, if the line breaks a rule of the
                format or contradicts an earlier one; the parser is then as before it,
                except for `line`.
        """
        self.line += 1
        where = f"{self.name}:{self.line}"
        if line.rstrip(b"\r\n").endswith(TORN):
            self.torn.append(self.line)
            return None
        fields = load_object(line, where, _exactly)
        if "format" in fields:
            self._take_header(fields, where)
            return None
        if not self.headers:
            expected = (
                f'the header of a participation log ({{"format": "{FORMAT}", ...}})'
            )
            fault(where, expected, f"an object with {_listing(fields)}")
        read = _read_sum(fields, self._run, self.line, where)
        new_names = self._new_names(read, where)
        new_part = self._parts.check(read.part, where)
        content = _digest(read, fields.get("extra"))
        before, first = self._seen.setdefault(read.key, (content, self.line))
        if first == self.line:
            self._fresh = new_names
            self._names.add(new_names)
            self._parts.add(new_part)
            return read
        if before != content:
            name = f"round {read.round}, sum {read.sum} of run {read.run}"
            name += "" if read.part is None else f", part {shown(read.part)}"
            fault(where, f"of {name} what line {first} says", "something else")
        self.repeated.append(self.line)
        return None

    def sums(self, lines: Iterable[bytes]) -> Iterator[SumLine]:
        """Yield the sums of lines, as `feed` does.

        Args:
            lines: Lines with their ends; a last one without is not there yet.

        Raises:
            ConfigurationError: As `feed`.
        """
        for line in lines:
            is_cut = not line.endswith(b"\n") and len(line) <= MOST_LINE_BYTES
            self.is_unfinished = is_cut
            read = None if is_cut else self.feed(line)
            if read is not None:
                yield read

    def forget(self, line: SumLine | None) -> None:
        """Take back the last line, a sum or header (None), if it was not written."""
        self.line -= 1
        if line is None:
            del self.headers[-1]
            self._runs = {header.run: header for header in self.headers}
            return
        del self._seen[line.key]
        self._names.forget(self._fresh)
        self._parts.forget()

    def _new_names(self, line: SumLine, where: str) -> dict[Any, str]:
        """Return names that no line before had; raise if one may be another's."""
        lost = itertools.chain(*line.lost.values())
        try:
            new = self._names.new([*line.clients, *(line.asked or ()), *lost])
        except AlikeError as error:
            fault_alike(error.name, error.other, "client", where)
        for name in new.values():
            if not is_name(name):
                expected = "names in one line, without spaces around them, of at most"
                fault(where, f"{expected} {MOST_NAME} characters", shown(name))
            if names_nobody(name):
                fault(where, "names of clients", f"{shown(name)}, which names none")
        return new

    def _take_header(self, fields: dict[str, Any], where: str) -> None:
        header = _read_header(fields, self.line, where)
        before = self._runs.get(header.run)
        if before is not None and dataclasses.replace(before, line=self.line) == header:
            if before.extra == header.extra:
                self.repeated.append(self.line)
                self._run = header.run
                return
        elif self.headers:
            first = self.headers[0]
            last = self._runs[max(self._runs)]
            if header.pseudonyms != first.pseudonyms:
                fault(
                    where,
                    f"pseudonyms of the salt of line {first.line} "
                    f"({first.pseudonyms}): with another, clients would count twice",
                    str(header.pseudonyms),
                )
            if header.run <= last.run:
                expected = f"a run above {last.run}, that of line {last.line}"
                fault(where, expected, str(header.run))
        if not self.headers and header.pseudonyms is not None:
            self._names = PseudonymNames()
        self.headers.append(header)
        self._runs[header.run] = header
        self._run = header.run


def load_exactly(line: bytes, where: str) -> Any:
    """Return the JSON value of a line with exact numbers, or raise with the place."""
    return load_value(line, where, _exactly)


def _exactly(text: str) -> int | Fraction:
    """Return a JSON number exactly; a whole one without a point is an int."""
    value = parse_number(text)
    if value is None:
        raise ValueError(f"{text[:40]}..., a number of too many digits")
    return value if "." in text or "e" in text.lower() else int(value)


def _read_header(fields: dict[str, Any], line: int, where: str) -> Header:
    if fields["format"] != FORMAT:
        fault(where, f"the format {FORMAT!r}", shown(fields["format"]))
    version = fields.get("version")
    if version != VERSION or isinstance(version, bool):
        more = " (a newer mrsa-jax may read it)" if isinstance(version, int) else ""
        fault(where, f"version {VERSION} of the format", f"{shown(version)}{more}")
    _check_keys(fields, _HEADER, where)
    for key in _NEEDED:
        if key not in fields:
            fault(where, f"{key!r} in a header", _listing(fields))
    for key in ("system", "aggregation"):
        text = fields[key]
        if not (isinstance(text, str) and is_name(text)):
            fault(where, f"a text in one line as {key!r}", shown(text))
    pseudonyms = fields["pseudonyms"]
    is_digest = isinstance(pseudonyms, str) and _PSEUDONYMS.fullmatch(pseudonyms)
    if pseudonyms is not None and not is_digest:
        fault(where, "8 hex digits or null as 'pseudonyms'", shown(pseudonyms))
    return Header(
        fields["system"],
        fields["aggregation"],
        pseudonyms,
        _whole(fields, "run", where),
        line,
        fields.get("extra"),
    )


def _read_sum(fields: dict[str, Any], run: int, line: int, where: str) -> SumLine:
    _check_keys(fields, _SUM, where)
    if "round" not in fields:
        fault(where, "'round' in the line of a sum", _listing(fields))
    status = fields.get("status", "learnt")
    if status not in STATUSES:
        fault(where, f"a status ({', '.join(STATUSES)})", shown(status))
    is_learnt = status == "learnt"
    clients = _names(fields.get("clients", []), "'clients'", where)
    if is_learnt != bool(clients):
        expected = (
            "clients in a learnt sum" if is_learnt else f"no clients in one {status}"
        )
        fault(where, expected, f"{len(clients)}")
    if not isinstance(fields.get("time", ""), str):
        fault(where, "a text as 'time'", shown(fields["time"]))
    asked = _names(fields["asked"], "'asked'", where) if "asked" in fields else None
    lost = _read_lost(fields.get("lost", {}), where)
    _check_sets(status, clients, asked, lost, where)
    round_ = _whole(fields, "round", where)
    number = _whole(fields, "sum", where)
    weights = None
    if "weights" in fields:
        weights = _read_weights(fields["weights"], clients, where)
    return SumLine(
        run,
        round_,
        number,
        cast("Status", status),
        clients,
        weights,
        asked,
        lost,
        _size(fields, "noise", "a number of 0 or more", where),
        _size(fields, "clip", "a positive number", where),
        line,
        fields.get("part"),
        read_evidence(fields, clients, where),
    )


def _check_keys(
    fields: Iterable[str],
    known: tuple[str, ...],
    where: str,
    expected: str = "known keys (others stand under 'extra')",
) -> None:
    for key in fields:
        if key not in known:
            fault(where, expected, f"{shown(key)}, {nearest(key, known)}")


def _check_sets(
    status: str,
    clients: tuple[str, ...],
    asked: tuple[str, ...] | None,
    lost: dict[str, tuple[str, ...]],
    where: str,
) -> None:
    """Raise where asked, lost and members of a sum contradict each other."""
    inside = set(clients)
    missing: set[str] = set()

    def need_none(odd: Collection[str], expected: str, received: str) -> None:
        if odd:
            fault(where, expected, received.format(shown(min(odd))))

    for stage, names in lost.items():
        again = missing.intersection(names)
        need_none(again, "each client lost once", f"{{}} again at {stage!r}")
        missing.update(names)
        if stage != "unmask":
            present = inside.intersection(names)
            need_none(present, f"a sum without those lost at {stage!r}", "{} in it")
        elif status == "learnt":
            outside = set(names) - inside
            need_none(outside, "those lost at 'unmask' in the sum", "{} outside it")
    if asked is not None:
        strangers = (inside | missing).difference(asked)
        need_none(strangers, "only clients who were asked", "{}")


def _names(value: Any, what: str, where: str) -> tuple[str, ...]:
    """Return a list of names, each once."""
    if not isinstance(value, list):
        fault(where, f"a list of clients as {what}", shown(value))
    if not set(map(type, value)) <= {str}:
        odd = next(name for name in value if type(name) is not str)
        fault(where, f"clients as text in {what}", shown(odd))
    if len(set(value)) < len(value):
        fault(where, f"each client once in {what}", f"{shown(twice(value))} again")
    return tuple(value)


def _read_lost(value: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        fault(where, "an object of stages and lists of clients as 'lost'", shown(value))
    _check_keys(value, STAGES, where, "known stages in 'lost'")
    return {
        stage: _names(names, f"'lost' at {stage!r}", where)
        for stage, names in value.items()
    }


def _read_weights(
    value: Any, clients: tuple[str, ...], where: str
) -> tuple[Fraction, ...]:
    if not isinstance(value, list) or len(value) != len(clients):
        count = f"{len(value)} values" if isinstance(value, list) else shown(value)
        fault(where, f"a list of {len(clients)} 'weights', one for each client", count)
    odd = [weight for weight in value if type(weight) not in (str, int, Fraction)]
    # most are alike
    exact = {weight: _weight(weight, where) for weight in odd[:1] or set(value)}
    if common_denominator(exact.values()) is None:
        expected = "weights of one sum with a common denominator of at most 4300 bits"
        fault(where, expected, "a larger one")
    return tuple([exact[weight] for weight in value])


def _weight(value: Any, where: str) -> Fraction:
    number = exact_weight(value)
    if number is None:
        expected = "positive numbers, or fractions such as \"3/7\", as 'weights'"
        fault(where, expected, shown(value))
    return number


def _whole(fields: dict[str, Any], key: str, where: str) -> int:
    value = fields.get(key, 0)
    if type(value) is not int or not 0 <= value < _MOST_WHOLE:
        fault(where, f"an integer of 0 or more as {key!r}", shown(value))
    return value


def _size(fields: dict[str, Any], key: str, rule: str, where: str) -> float | None:
    """Return a number of 0 or more (`clip`: above 0), None where there is none."""
    value = fields.get(key)
    if value is None:
        return None
    number = math.nan
    if type(value) in (int, Fraction):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    # what is not zero may be too small for a float
    is_zero = number == 0 and (key == "clip" or value != 0)
    if not 0 <= number < math.inf or is_zero:
        fault(where, f"{rule}, finite as a float, as {key!r}", shown(value))
    return number


def _digest(line: SumLine, extra: Any) -> bytes:
    """Return a digest of what a line says, whatever the order of its clients."""
    weights = line.weights or [1] * len(line.clients)
    inside = dict(zip(line.clients, map(str, weights), strict=True))
    asked = None if line.asked is None else sorted(line.asked)
    lost = {stage: sorted(names) for stage, names in line.lost.items() if names}
    evidence = None if line.evidence is None else line.evidence.fields()
    sizes = line.noise, line.clip
    content = [line.status, inside, asked, lost, *sizes, extra, evidence]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _listing(names: Iterable[str]) -> str:
    return listing([shown(name) for name in names]) or "no keys"
