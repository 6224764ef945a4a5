"""`mrsa-watch check --roster`: follow the signatures and the chain of a log's sums.

A log is the word of the server that wrote it, unless its clients signed it. Each
signed statement names session, roster, blocks, graph, model, round and members, and the
round before it, so that no line can be changed, replaced or taken out between two
others. A last line that nobody has a receipt of can be taken out unseen.

The statements are those of `mrsa_jax.protocol.Terms`; this needs `cryptography` and not
that package.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import pathlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from mrsa_watch._base.errors import needed, require
from mrsa_watch._base.files import user_path
from mrsa_watch._base.untrusted import printable, read_bytes
from mrsa_watch.logs import LineParser, SumLine

_DOMAIN = b"mrsa_jax protocol v1 survivors"
_KEY_BYTES = 32
_FIRST_HEAD = bytes(32)
_RECEIPT = struct.Struct("<I32s")
_LAST_ROUND = 2**32 - 1
_MOST_SHOWN = 20
_MOST_BYTES = 2**30
_FIELDS = ("session", "colluders", "blocks", "keys")
REFUSED, CHECKED, NOTE = "REFUSED", "checked", "note"

Outcome = tuple[str, str]
"""A status and a sentence."""


class Roster(NamedTuple):
    """The terms that no round changes.

    Attributes:
        session: Name of the training.
        colluders: Clients that the thresholds allow for.
        blocks: Each client's block, or None.
        keys: Public key of each client by its name in the log, in the roster's order.
    """

    session: bytes
    colluders: int
    blocks: tuple[int, ...] | None
    keys: dict[str, bytes]

    @property
    def digest(self) -> bytes:
        """32 bytes, `Terms.lasting`."""
        blocks = self.blocks or ()
        numbers = b"".join(struct.pack("<q", block) for block in blocks)
        text = repr((self.colluders, len(self.keys), self.blocks is None)).encode()
        return _digest_of(self.session, *self.keys.values(), numbers, text)


def read_roster(content: bytes, path: str) -> Roster:
    """Read the JSON of `Terms.roster_fields`.

    Raises:
        ConfigurationError: If it is anything else.
    """
    rule = f"must be a roster, JSON with {', '.join(_FIELDS)}"
    try:
        fields = json.loads(content, object_pairs_hook=_each_once)
        session = bytes.fromhex(fields["session"])
        keys = {name: bytes.fromhex(key) for name, key in fields["keys"].items()}
        blocks = fields["blocks"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        require(False, "roster", rule, path, str(error))
        raise
    require(set(fields) == set(_FIELDS), "roster", rule, path)
    are_keys = all(len(key) == _KEY_BYTES for key in keys.values())
    require(are_keys and len(keys) > 0, "roster", "must have keys of 32 bytes", path)
    is_each_one = len(set(keys.values())) == len(keys)
    require(is_each_one, "roster", "must have another key for each client", path)
    colluders = fields["colluders"]
    require(type(colluders) is int, "roster", rule, path, f"colluders {colluders!r}")
    if blocks is not None:
        are_blocks = isinstance(blocks, list) and len(blocks) == len(keys)
        are_whole = are_blocks and all(type(block) is int for block in blocks)
        require(are_whole, "roster", "must have a block for each client", path)
        blocks = tuple(blocks)
    return Roster(session, colluders, blocks, keys)


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of JSON, or raise if it has a name twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name twice in one object")
    return fields


def read_receipts(content: bytes, path: str) -> list[tuple[int, bytes]]:
    """Read the receipts of `protocol.Pledge`: rounds and heads.

    Raises:
        ConfigurationError: If they are cut short.
    """
    rule = f"must hold receipts of {_RECEIPT.size} bytes"
    is_whole = len(content) % _RECEIPT.size == 0
    require(is_whole, "receipts", rule, path, f"{len(content)} bytes")
    return list(_RECEIPT.iter_unpack(content))


def check_evidence(
    sums: Iterable[SumLine], roster: Roster, receipts: Iterable[tuple[int, bytes]] = ()
) -> list[Outcome]:
    """Follow the signatures, the chain, the blocks and the receipts of a log.

    Args:
        sums: Lines of the log in their order.
        roster: Keys and blocks, from the clients or from where they were published.
        receipts: Rounds and heads that clients kept.

    Returns:
        REFUSED for each fault, or one sentence with CHECKED; then notes on what cannot
        be seen.
    """
    learnt = [line for line in sums if line.status == "learnt"]
    receipts = list(receipts)
    outcomes: list[Outcome] = []
    if not learnt:
        outcomes.append((REFUSED, "the log has no learnt sum, so nothing is signed"))
    before, last = _FIRST_HEAD, -1
    heads: dict[int, bytes] = {}
    for line in learnt:
        place = f"line {line.line}, round {line.round}"
        faults = list(_faults_of(line, roster, before, last))
        outcomes += [(REFUSED, f"{place}: {fault}") for fault in faults]
        if line.evidence is not None:
            before = line.evidence.head
            heads[line.round] = before
        last = max(last, line.round)
    for number, head in receipts:
        if heads.get(number) != head:
            fault = "a client has a receipt of a sum that the log does not have"
            outcomes.append((REFUSED, f"round {number}: {fault}"))
    if not outcomes:
        sizes = [
            len(json.dumps(line.evidence.fields())) for line in learnt if line.evidence
        ]
        parts = [
            f"{len(learnt)} sums are signed, and each names the one before it",
            *([] if roster.blocks is None else ["all are over whole blocks"]),
            f"{len(receipts)} receipts agree",
            f"the evidence takes {sum(sizes) // max(1, len(sizes))} bytes per sum",
        ]
        outcomes.append((CHECKED, "; ".join(parts)))
    return [*outcomes, *_notes(learnt, roster, receipts)]


def _notes(
    learnt: list[SumLine], roster: Roster, receipts: list[tuple[int, bytes]]
) -> Iterator[Outcome]:
    """Say what signatures do not show."""
    latest = max((number for number, _ in receipts), default=None)
    seen = (
        "no receipt was shown"
        if latest is None
        else f"none is of a later round than {latest}"
    )
    yield NOTE, f"sums after the last receipt may be missing at the end: {seen}"
    silent = [
        line
        for line in learnt
        if line.evidence and len(line.evidence.signed) < len(line.clients)
    ]
    if silent:
        yield NOTE, f"in {len(silent)} sums some clients did not sign; their mates did"
    if roster.blocks is None:
        yield (
            NOTE,
            "the roster has no blocks, so one honest signer vouches for each list",
        )
    yield NOTE, "clients that collude with the server may sign what it likes"


def _faults_of(
    line: SumLine, roster: Roster, before: bytes, last: int
) -> Iterator[str]:
    """Yield the faults of one sum."""
    strangers = sorted(set(line.clients) - roster.keys.keys())
    if strangers:
        yield f"client {printable(strangers[0])} is not on the roster"
        return
    evidence = line.evidence
    if evidence is None:
        yield "it has no signatures, so it is the server's word"
        return
    yield from _unsigned(line)
    if line.round > _LAST_ROUND:
        yield f"no round has a number above {_LAST_ROUND}"
        return
    if line.round <= last:
        yield f"it comes after round {last}, and clients sign rounds in ascending order"
    order = {name: place for place, name in enumerate(roster.keys)}
    members = sorted(order[name] for name in line.clients)
    if roster.blocks is not None:
        yield from _block_faults(members, order, line, roster.blocks)
        if not evidence.model:
            yield "it names no model, so mates may have had different ones"
    statement = _statement(line, members, roster, before)
    if hashlib.sha256(statement).digest() != evidence.head:
        yield (
            "its head is not that of its round, members, model and the sum before it: "
            "one of them was changed, or a sum was taken out before it"
        )
    forged = [
        name
        for name, signature in evidence.signed.items()
        if not _is_signed(roster.keys[name], signature, statement)
    ]
    if forged:
        yield f"client {printable(forged[0])} signed something else"
    if not evidence.signed:
        yield "nobody signed it"


def _unsigned(line: SumLine) -> Iterator[str]:
    """Yield what the line says that no statement of a client holds."""
    # the members of a signed sum have one weight, and it is of whole updates
    if line.weights is not None and len(set(line.weights)) > 1:
        yield "its weights differ, and clients sign no weights"
    if line.part is not None:
        yield "it is of a part of the vector, and clients sign no part"
    if line.sum:
        yield f"it is sum {line.sum} of its round, and clients sign one sum per round"


def _block_faults(
    members: list[int],
    order: Mapping[str, int],
    line: SumLine,
    blocks: tuple[int, ...],
) -> Iterator[str]:
    """Yield what is wrong with the blocks of a sum."""
    sizes = collections.Counter(blocks)
    inside = collections.Counter(blocks[member] for member in members)
    parted = [block for block, count in inside.items() if count < sizes[block]]
    if parted:
        yield f"it parts block {parted[0]}"
    assert line.evidence is not None
    vouched = {blocks[order[name]] for name in line.evidence.signed}
    silent = sorted(inside.keys() - vouched)
    if silent:
        yield f"nobody of block {silent[0]} signed it"


def _statement(
    line: SumLine, members: list[int], roster: Roster, before: bytes
) -> bytes:
    """Build the statement that the clients of a sum signed."""
    assert line.evidence is not None
    terms = _digest_of(roster.digest, line.evidence.graph, before)
    words = struct.pack(f"<{len(members) + 1}I", line.round, *members)
    return _DOMAIN + _digest_of(terms, line.evidence.model) + words


def _digest_of(*parts: bytes) -> bytes:
    digests = [hashlib.sha256(part).digest() for part in parts]
    return hashlib.sha256(b"".join(digests)).digest()


def _is_signed(key: bytes, signature: bytes, statement: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
    except InvalidSignature:
        return False
    return True


def main(words: list[str]) -> int:
    """Check the log that is named on the command line, and return the exit status."""
    parser = argparse.ArgumentParser(
        "mrsa-watch check",
        description="Check the signatures and the chain of a log's sums.",
    )
    parser.add_argument("log", type=user_path, help="participation log")
    text = "keys and blocks, JSON as `protocol.Terms.roster_fields` gives them"
    parser.add_argument("--roster", type=user_path, required=True, help=text)
    text = "receipts that clients kept (PLEDGE.receipts); may be repeated"
    parser.add_argument(
        "--receipts", type=user_path, action="append", default=[], help=text
    )
    chosen = parser.parse_args(words)
    needed("cryptography", "signed", "`roster` must not be set without cryptography")
    roster = read_roster(_content(chosen.roster, "roster"), str(chosen.roster))
    receipts = [
        receipt
        for path in chosen.receipts
        for receipt in read_receipts(_content(path, "receipts"), str(path))
    ]
    log = LineParser(str(chosen.log))
    sums = list(log.sums(_content(chosen.log, "log").splitlines(keepends=True)))
    outcomes = check_evidence(sums, roster, receipts)
    if log.is_unfinished or log.torn:
        outcomes.append((NOTE, "a line of the log was cut short and does not count"))
    faults = [text for status, text in outcomes if status == REFUSED]
    for fault in faults[:_MOST_SHOWN]:
        print(f"{REFUSED}: {fault}")
    if len(faults) > _MOST_SHOWN:
        print(f"{REFUSED}: {len(faults) - _MOST_SHOWN} more")
    for status, text in outcomes[len(faults) :]:
        print(f"{status}: {text}")
    return 1 if faults else 0


def _content(path: pathlib.Path, argument: str) -> bytes:
    try:
        return read_bytes(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        require(False, argument, "must be a file that can be read", str(error))
        raise
