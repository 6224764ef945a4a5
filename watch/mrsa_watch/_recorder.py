"""Writes a participation log so that a crash costs no line that it confirmed."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import pathlib
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from mrsa_watch._base.errors import (
    ConfigurationError,
    StoreError,
    check_integer,
    check_known,
    check_number,
    require,
    writing,
)
from mrsa_watch._base.files import user_path
from mrsa_watch._base.locks import locked
from mrsa_watch._register import flush_folder, write_private
from mrsa_watch.logs import (
    EVIDENCE,
    FORMAT,
    MOST_LINE_BYTES,
    STATUSES,
    TORN,
    VERSION,
    AlikeError,
    LineParser,
    Names,
    Pseudonyms,
    client_text,
    exact_value,
)


class HeldFile:
    """A file that this process alone extends, readable by its owner alone.

    What `append` cannot write and flush as a whole is cut off again. Nothing is written
    to a file that another process renamed, deleted or changed, since whoever reads the
    path would miss it.

    Args:
        path: The file, absolute; made if it is not there.

    Raises:
        ConfigurationError: If another recorder holds it.
        StoreError: If it cannot be written.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._size = 0  # as this process left it
        self._fault = ""  # why nothing more may be written
        with writing(path, "path"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if not locked(self._file):
            self.close()
            rule = "must be a log that no other recorder holds"
            require(False, "path", rule, str(path))
        flush_folder(path.parent)

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def lines(self, most: int) -> Iterator[bytes]:
        """Yield the lines of the file with their ends, cut after `most` bytes."""
        with open(self._file, "rb", closefd=False) as stream:
            for line in iter(lambda: stream.readline(most), b""):
                self._size += len(line)
                yield line

    def start(self, count: int) -> bytes:
        """Return the first bytes."""
        return os.pread(self._file, count, 0)

    def empty(self) -> None:
        """Take away all that the file holds."""
        with writing(self._path, "path"):
            os.ftruncate(self._file, 0)
        self._size = 0

    def check(self) -> None:
        """Raise unless the file is open, in its place, and as this process left it.

        Raises:
            ConfigurationError: If it is closed, or was opened before this process was
                forked.
            StoreError: If it was renamed, deleted, replaced, shortened or extended.
        """
        require(self._file >= 0, "recorder", "must be open")
        rule = "must be used in the process that made it, not in a fork of it"
        require(os.getpid() == self._process, "recorder", rule)
        if self._fault:
            self._refuse(self._fault)
        with writing(self._path, "path"):
            opened = os.fstat(self._file)
            now = None
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                now = self._path.stat()
        if now is None or not os.path.samestat(opened, now):
            # no name leads to the file any more: it lasts as long as it is open
            if not opened.st_nlink:
                self._refuse(
                    "it was deleted or replaced; until this process ends, its lines "
                    f"can be copied from /proc/{self._process}/fd/{self._file}"
                )
            self._refuse(
                "it was renamed or replaced; put it back, or close this recorder and "
                "make another (before a log is rotated, close its recorder)"
            )
        if opened.st_size != self._size:
            self._refuse(
                f"it has {opened.st_size} bytes, and this recorder left {self._size}; "
                "stop what else writes to it, close this recorder and make another"
            )

    def append(self, data: bytes) -> None:
        """Write at once and flush to disk; on failure the file ends as before.

        Raises:
            StoreError: As `check`, or if it cannot be written. If what was written of
                it cannot be cut off either, the error states this, and nothing more is
                written.
        """
        self.check()
        before = self._size
        try:
            with writing(self._path, "path"):
                rest = data
                while rest:
                    # a write may take only a part of the bytes
                    count = os.write(self._file, rest)
                    if not count:
                        raise OSError(errno.EIO, "nothing more is taken")
                    rest = rest[count:]
                os.fsync(self._file)
            self._size += len(data)
            self.check()  # it may have been renamed meanwhile
        except BaseException as error:
            self._size = before
            self._cut_off(data)
            if isinstance(error, StoreError):
                end = self._fault or "the line is not in it"
                raise StoreError(f"{error}; {end}") from error
            raise

    def _cut_off(self, data: bytes) -> None:
        """Take back the written part of `data`; on failure forbid to write more."""
        self._fault = (
            "what was written of a line could not be cut off, so that the line may be "
            "in it; close this recorder and make another"
        )
        # the fault stays unless all that was written is known to be gone
        with contextlib.suppress(OSError):
            more = os.fstat(self._file).st_size - self._size
            rest = os.pread(self._file, len(data) + 1, self._size)
            # else another process wrote as well
            if more >= 0 and data.startswith(rest):
                if more:
                    os.ftruncate(self._file, self._size)
                self._fault = ""

    def _refuse(self, why: str) -> NoReturn:
        rule = "must stay as it is and where it is while it is recorded"
        raise StoreError(f"`path` {rule}; got {str(self._path)!r}: {why}")


_SALT_BYTES = 32
_START = json.dumps({"format": FORMAT}).encode()[:-1]  # of every header


class Recorder:
    """Write the members of each sum that a server learns, one line per sum.

    A log records which clients took part when, which is sensitive itself: names are
    pseudonyms by a salted hash, in sorted order, and only their owner can read log and
    salt. A line is written at once and flushed to the disk before `record` returns, so
    a confirmed line outlives a crash. If `record` fails, the log ends as it did before.
    One recorder holds the log at a time. If anything else renames, deletes, shortens or
    extends it, `record` raises an error and writes nothing: close the recorder before
    you rotate its log.

    An existing log is read and continued: a header with the next number of the run
    marks the restart. A last line that a crash cut short is ended by `#torn`; every
    reader reports it and ignores it, because its content was never confirmed.

    Args:
        path: The log; made if it does not exist. A relative path is in the folder of
            the process.
        system: The recorded system, with its version.
        aggregation: `"secagg+"`, `"secagg"`, `"plain"` (the server sees every update by
            itself) or other text.
        salt: Salt of the pseudonyms. None keeps 32 random bytes in the file
            `<path>.salt`, made at first use and used again after a restart: anyone who
            has it can recompute the names. `b""` keeps names as they are.

    Attributes:
        path: The log, absolute.

    Raises:
        ConfigurationError: If another recorder holds the log, if it is no participation
            log or breaks a rule of it, or if its pseudonyms are of another salt.
        StoreError: If it cannot be written.

    Examples:
        >>> from mrsa_watch import Recorder, read_log
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.jsonl")
        >>> names = {"system": "my server 2", "aggregation": "secagg"}
        >>> with Recorder(path, **names, salt=b"") as recorder:
        ...     recorder.record(1, ["anna", "bob"], weights=[10, 30])
        ...     lost = {"upload": ["anna", "bob"]}
        ...     recorder.record(2, [], status="aborted", lost=lost)
        >>> log = read_log(path)
        >>> log.rounds, log.clients, log.participation.tolist()
        ((1,), ('anna', 'bob'), [[10, 30]])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        system: str,
        aggregation: str,
        salt: bytes | None = None,
    ) -> None:
        is_path = isinstance(path, str | os.PathLike)
        require(is_path, "path", "must be the path of a file", path)
        is_salt = salt is None or isinstance(salt, bytes)
        require(is_salt, "salt", "must be bytes or None", salt)
        self.path = user_path(path).absolute()
        self._guard = threading.Lock()
        self._clients = Names()  # as this process was given them
        self._file = HeldFile(self.path)
        try:
            self._parser = LineParser(str(self.path))
            mark = self._read()
            if salt is None:
                with writing(self.path, "path"):
                    salt = _kept_salt(self.path)
            headers = self._parser.headers
            before = headers[0].pseudonyms if headers else None
            self._pseudonyms = Pseudonyms(salt, before) if salt else None
            self._header: dict[str, Any] = {
                "format": FORMAT,
                "version": VERSION,
                "system": system,
                "aggregation": aggregation,
                "pseudonyms": self._pseudonyms and self._pseudonyms.digest,
                "run": max((header.run + 1 for header in headers), default=0),
            }
            self._append(self._header, mark)
        except BaseException:
            self._file.close()
            raise

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or sent to another process, which cannot hold the log."""
        raise TypeError(
            "a Recorder holds its log: it cannot be copied, nor leave its process"
        )

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the log; a second call does nothing."""
        with self._guard:
            self._file.close()

    def identify(self, app: str, run_id: str) -> None:
        """Name the recorded app and its run; refuse a log that names another app.

        The header is written once more, with both under `extra`. Another run of the
        same app continues the log, as a restart does. The strategies of `live.flower`
        call this in every app that `flwr run` started.

        Args:
            app: A name that the app keeps over its runs.
            run_id: The system's name of the run.

        Raises:
            ConfigurationError: If a header of the log names another app.
            StoreError: If the header cannot be written.
        """
        extras = [header.extra for header in self._parser.headers]
        others = {
            str(extra["app"])
            for extra in extras
            if isinstance(extra, dict) and extra.get("app", app) != app
        }
        rule = f"must be the log of {app}; give each app its own absolute path"
        names = ", ".join(sorted(others))
        require(not others, "path", rule, f"{self.path}, which is of {names}")
        header = {**self._header, "extra": {"app": app, "run_id": run_id}}
        if header != self._header:
            self._append(header)
            self._header = header

    def name(self, client: Any) -> str:
        """Return a client's name in the log: its pseudonym, 32 hex digits, or its text.

        Raises:
            ConfigurationError: If it has no text that lasts (None, a bool, NaN), or one
                that names no client ("null", "?").
        """
        if self._pseudonyms is None:
            return client_text(client)
        return self._pseudonyms.of(client)

    def record(
        self,
        round: int,
        clients: Iterable[Any],
        *,
        sum: int = 0,
        weights: Sequence[Any] | None = None,
        status: str = "learnt",
        asked: Iterable[Any] | None = None,
        lost: Mapping[str, Iterable[Any]] | None = None,
        noise: float | int | None = None,
        clip: float | int | None = None,
        part: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the line of a sum; when this returns, it is on the disk.

        The same sum with the same content is written once.

        Args:
            round: The number of the round, as the system counts it.
            clients: Members of the learnt sum, names or numbers; empty if `status` is
                another than learnt.
            sum: Which of the round's sums, counted from 0.
            weights: Their factors in the sum, in the order of `clients`: positive
                integers, fractions, floats or `Decimal`s, each kept exactly. None: all
                are 1.
            status: `"learnt"`, `"aborted"` (nothing was learnt) or `"refused"` (a gate
                forbade the round before it began).
            asked: The clients that the server asked.
            lost: Clients that were lost, by stage: `setup`, `share_keys`, `upload`,
                `unmask` (of SecAgg+), `train`. Those lost at `unmask` are in the sum,
                all others are not.
            noise: Standard deviation of the noise in the learnt sum.
            clip: Largest norm of an update.
            part: Name of the coordinates that the sum is over, if not all clients train
                them (LoRA ranks, submodels), and `clients` are those who do. None for a
                sum of whole updates, which every client in it trains. Each part is
                audited by itself.
            evidence: `model`, `graph`, `head` and `signed` (signatures by client) in
                hex digits, as `protocol.Server.evidence` returns them with its clients'
                numbers. None: the line is the server's word.

        Raises:
            ConfigurationError: If the line would break a rule of the format, or
                contradict an earlier one; nothing is written.
            StoreError: If it cannot be written, or something else moved or changed the
                log. The line is not in the log then, and may be recorded again. If a
                partly written line could not be cut off either, the error states this:
                continue in a new recorder.
        """
        check_known(status, "status", STATUSES, "a known status")
        members = _listed(clients, "clients")
        inside = self._names(members, "clients")
        # sorted, so that the line does not show in which order clients came
        order = sorted(range(len(inside)), key=inside.__getitem__)
        fields: dict[str, Any] = {
            "round": check_integer(round, "round", 0),
            "sum": check_integer(sum, "sum", 0),
            "status": status,
            "clients": [inside[i] for i in order],
        }
        if part is not None:
            rule = "must be a name, or None for the whole"
            require(isinstance(part, str), "part", rule, part)
            fields["part"] = part
        if weights is not None:
            factors = [_factor(weight) for weight in weights]
            counts = len(factors), len(inside)
            rule = "must be as many as the clients"
            require(counts[0] == counts[1], "weights", rule, *counts)
            fields["weights"] = [factors[i] for i in order]
        if asked is not None:
            fields["asked"] = sorted(self._names(asked, "asked"))
        if lost is not None:
            rule = "must map stages to clients"
            require(isinstance(lost, Mapping), "lost", rule, lost)
            fields["lost"] = {
                str(at): sorted(self._names(who, "lost")) for at, who in lost.items()
            }
        rule = "must be finite and not negative"
        for key, value in (("noise", noise), ("clip", clip)):
            if value is not None:
                fields[key] = check_number(value, key, rule, 0.0)
        if evidence is not None:
            fields |= self._evidence(evidence)
        now = datetime.datetime.now(datetime.UTC)
        fields["time"] = now.isoformat(timespec="seconds").replace("+00:00", "Z")
        self._append(fields)
        if self._pseudonyms is not None:  # whose line is in the log now
            self._clients.add(self._clients.new(map(client_text, members)))

    def _evidence(self, evidence: Mapping[str, Any]) -> dict[str, Any]:
        """Return evidence with the log's names of those who signed."""
        rule = f"must map {', '.join(EVIDENCE)} to their values"
        is_whole = isinstance(evidence, Mapping) and set(evidence) == set(EVIDENCE)
        require(is_whole, "evidence", rule, evidence)
        signed = evidence["signed"]
        require(isinstance(signed, Mapping), "evidence", rule, signed)
        by_name = {self.name(client): signed[client] for client in signed}
        return {**evidence, "signed": dict(sorted(by_name.items()))}

    def _names(self, clients: Any, argument: str) -> list[str]:
        """Return names; raise if two may be one's, by what pseudonyms do not show."""
        members = _listed(clients, argument)
        names = [self.name(client) for client in members]
        if self._pseudonyms is not None:
            try:
                self._clients.new(map(client_text, members))
            except AlikeError as error:
                rule = (
                    "must be written in one way "
                    "(or have names that nobody takes for one)"
                )
                require(False, argument, rule, error.name, error.other)
        return names

    def _read(self) -> bytes:
        """Read the log, and return the bytes to end a last line that was cut short."""
        for _ in self._parser.sums(self._file.lines(MOST_LINE_BYTES + 2)):
            pass
        if not self._parser.is_unfinished:
            return b""
        if self._parser.line:
            self._parser.feed(TORN)
            return b" " + TORN + b"\n"
        first = self._file.start(len(_START))
        rule = "must be a participation log or a new file"
        require(_START.startswith(first), "path", rule, str(self.path))
        self._file.empty()  # it held nothing but a header that was cut short
        return b""

    def _append(self, fields: dict[str, Any], mark: bytes = b"") -> None:
        line = json.dumps(fields).encode() + b"\n"
        with self._guard:
            self._file.check()
            # the parser holds the line to all rules before a byte of it is written
            number = self._parser.line
            try:
                read = self._parser.feed(line)
            except ConfigurationError:
                self._parser.line = number
                raise
            if read is None and "format" not in fields:  # it is there already
                self._parser.line = number
                return
            try:
                self._file.append(mark + line)
            except BaseException:
                self._parser.forget(read)
                raise


def _listed(clients: Any, argument: str) -> list[Any]:
    """Return the clients of an iterable, which text is not."""
    is_several = isinstance(clients, Iterable) and not isinstance(clients, str | bytes)
    require(is_several, argument, "must be names of clients", clients)
    return list(clients)


def _factor(weight: Any) -> int | str:
    """Return a weight as the log holds it, exactly."""
    value = exact_value(weight) or 0
    rule = "must be positive integers, fractions, floats or decimals"
    require(value > 0, "weights", rule, weight)
    return int(value) if value.denominator == 1 else str(value)


def _kept_salt(log: pathlib.Path) -> bytes:
    """Return the salt next to a log, made if missing; the log is held meanwhile."""
    path = log.with_name(log.name + ".salt")
    if not path.exists():
        write_private(path, secrets.token_bytes(_SALT_BYTES))
    salt = path.read_bytes()
    rule = f"must hold the {_SALT_BYTES} bytes of a salt"
    require(len(salt) == _SALT_BYTES, str(path), rule, f"{len(salt)} bytes")
    return salt
