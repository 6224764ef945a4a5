"""Certificates.

What an audit claims with short proofs in integers, for an independent checker.
`mrsa_check.py` (the standard library only) checks them against the log.
"""

from __future__ import annotations

import hashlib
import itertools
import pathlib
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_jax._version import __version__
from mrsa_jax.privacy._audit_found import Audit
from mrsa_jax.privacy._certificate_claims import Proofs, plain
from mrsa_watch import mrsa_check
from mrsa_watch._base.errors import DataNotFoundError, require
from mrsa_watch._base.untrusted import packing_of
from mrsa_watch.logs import ParticipationLog


def certificate(
    log: ParticipationLog, found: Audit, file: str | pathlib.Path
) -> dict[str, Any]:
    r"""Write the claims of an audit with short proofs in integers, as plain values.

    Choose it where somebody who trusts neither you nor this package must believe an
    audit: write it to a file, and let them run `mrsa_check.py`, which needs Python
    alone. What has no short proof (a lower bound of weak T beyond what the checker can
    search, figures in floats) is listed under `"no short proof"`.

    Args:
        log: The log that was audited, whole: the audit's coalition is left out here.
        found: The audit of it.
        file: Where the log was read: the certificate is bound to its SHA-256. A text is
            read once more as the checker will read it; of other formats the checker has
            but the digest.

    Returns:
        Log, matrix, vectors of the kernel, claims with proofs, and claims without; of a
        log with sums of parts of the vector, matrix and all that follows of each part.

    Raises:
        ConfigurationError: If the audit is of another log, the log of another file, or
            larger than the checker holds (a million clients in sums).
        DataNotFoundError: If the file cannot be read.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.csv")
        >>> _ = path.write_text("round,client\n1,anna\n1,bob\n2,bob\n")
        >>> log = mj.privacy.read_log(path)
        >>> made = mj.privacy.certificate(log, mj.privacy.audit(log, effort=0), path)
        >>> [claim["claim"] for claim in made["claims"]]
        ['strong T', 'rank', 'exposed', 'exposed', 'weak T at most', 'weak T at least']

    Cost: rank**2 times the classes of clients, and exact solutions of as many unknowns
    as the rank: seconds for 120 clients in 120 rounds, and for 2,000 in 500.

    Source: this package.
    """
    try:
        data = pathlib.Path(file).read_bytes()
    except OSError as error:
        raise DataNotFoundError(
            f"{file}: expected a log; found none that can be read"
        ) from error
    audits: dict[str | None, Audit] = {**dict(found.parts)} or {None: found}
    logs = log.by_part()
    require(set(audits) <= set(logs), "found", "must be the audit of this log")
    missing = sorted(str(name) for name in set(logs) - set(audits))
    rule = "must leave a client of each part of the vector out for a certificate"
    require(not missing, "coalition", rule, *missing)
    entries, most = int(np.count_nonzero(log.participation)), mrsa_check.MOST_ENTRIES
    rule = (
        f"must have at most {most} clients in sums, over all sums, as the checker can "
        "hold"
    )
    require(entries <= most, "log", rule, entries)
    alike = len(log.clients) - len(
        set(map(mrsa_check.alike_client, map(str, log.clients)))
    )
    rule = (
        "must have names of clients that the checker takes apart: rename them for a "
        "certificate"
    )
    require(alike == 0, "log", rule, f"{alike} like others")
    proofs = {
        name: _proofs(logs[name], claims_of) for name, claims_of in audits.items()
    }
    wanted: dict[Any, Fraction] = {}
    for part, claims_of in zip(logs, proofs.values(), strict=True):
        of = dict(
            zip(map(str, logs[part].rounds), logs[part].parts or (), strict=False)
        )
        for (j, i), weight in claims_of.entries().items():
            wanted[(j, i) if of.get(j) is None else (j, i, of[j])] = weight
    reading = _reading(data, log, wanted)
    if reading is None:
        rule = (
            "must be a plain text that the checker reads, for a certificate: save it "
            "as CSV in "
            "UTF-8, unpacked, a row for each client in each sum, each under one name"
        )
        require(not _is_restated(data, log), "file", rule, str(file))
    common = {
        "format": mrsa_check.FORMAT,
        "version": mrsa_check.VERSION,
        "made by": f"mrsa_jax {__version__}",
        "log": {
            "name": pathlib.Path(file).name,
            "sha256": hashlib.sha256(data).hexdigest(),
        },
        "reading": reading,
    }
    if not found.parts:
        return common | _content(log, proofs[None])
    parts = [
        {"part": name} | _content(logs[name], claims_of)
        for name, claims_of in proofs.items()
    ]
    return common | {"parts": parts}


def _proofs(log: ParticipationLog, found: Audit) -> Proofs:
    """Return the proofs for a history of one part, or of whole updates."""
    shape = (found.num_rounds, found.num_clients)
    is_of = log.participation.shape == shape and len(found.weak.witness) == shape[0]
    require(is_of, "found", "must be the audit of this log", *shape)
    return Proofs(log, found)


def _content(log: ParticipationLog, proofs: Proofs) -> dict[str, Any]:
    """Return matrix, vectors of the kernel, claims with proofs, and claims without."""
    claims = list(proofs.claims())
    return {
        "clients": list(map(str, log.clients)),
        "rounds": list(map(str, log.rounds)),
        "sums": proofs.sums(),
        "coalition": proofs.coalition,
        "kernel": [plain(vector) for vector in proofs.vectors],
        "claims": claims,
        "no short proof": proofs.unproven,
    }


def _reading(data: bytes, log: ParticipationLog, wanted: dict[Any, Fraction]) -> Any:
    """Find how the checker reads the same from the file; None if it cannot."""
    for reading in _readings(log):
        try:
            if mrsa_check.read_log(data, reading)[0] == wanted:
                return reading
        except Exception:  # a reading that does not fit, in one way or another
            continue
    return None


def _is_restated(data: bytes, log: ParticipationLog) -> bool:
    """Return whether a text was packed, encoded, or read by the user's decisions."""
    packing = packing_of(data)
    is_encoded = data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]
    is_commented = data.lstrip()[:1] == b"#" or data[:5].lower().strip(b'"').startswith(
        b"sep="
    )
    is_text = not data.startswith((b"PAR1", b"PK", b"\x93NUMPY"))
    is_new = packing not in (None, "gzip") or is_encoded or is_commented
    return is_text and (is_new or bool(log.decisions))


def _readings(log: ParticipationLog) -> Iterator[dict[str, Any]]:
    """Yield ways to read a text as a log."""
    yield {"layout": "lines"}
    used, where = (
        list(log.columns_used),
        [[name, list(texts)] for name, texts in log.where],
    )
    for delimiter in (",", ";", "\t", "|", " ", None):
        for header in (0, 1):
            format_ = {"delimiter": delimiter, "header": header}
            left_out = list(log.columns_ignored)
            for numbers in ([], used[:1]):  # of the rows, where a table wrote its index
                yield {"layout": "matrix", **format_, "left_out": [*left_out, *numbers]}
            names = used if header else ["0", "1", "2"]
            parts = [[]] if log.parts is None else [names[2:3], names[3:4]]
            for weight, part in itertools.product({None, *names[2:3]}, parts):
                columns = [*names[:2], weight, *part]
                yield {"layout": "long", **format_, "columns": columns, "where": where}
