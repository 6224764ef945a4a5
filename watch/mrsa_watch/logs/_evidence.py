"""Evidence in a line of the log: the clients' signed digests and signatures."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

from mrsa_watch.logs._names import fault, shown

EVIDENCE = ("model", "graph", "head", "signed")
_DIGITS = re.compile(r"([0-9a-f]{2})*")
_DIGEST_BYTES, _SIGNATURE_BYTES = 32, 64


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """Values that clients signed, and their signatures.

    Attributes:
        model: Digest of the model that the clients were sent; empty for none.
        graph: Digest of the round's graph and thresholds.
        head: Digest of the signed statement, which names the round before it.
        signed: Signature of each client that signed, by name.
    """

    model: bytes
    graph: bytes
    head: bytes
    signed: Mapping[str, bytes]

    def fields(self) -> dict[str, Any]:
        """Return the fields of the log's line."""
        names = sorted(self.signed)
        return {
            "model": self.model.hex(),
            "graph": self.graph.hex(),
            "head": self.head.hex(),
            "signed": {name: self.signed[name].hex() for name in names},
        }


def read_evidence(
    fields: Mapping[str, Any], clients: Collection[str], where: str
) -> Evidence | None:
    """Return the evidence of a line; None if it has none.

    Raises:
        ConfigurationError: Naming the place, if a part is missing or malformed, or
            somebody signed who is not in the sum.
    """
    present = [key for key in EVIDENCE if key in fields]
    if not present:
        return None
    if len(present) < len(EVIDENCE):
        fault(where, f"all of {', '.join(EVIDENCE)}, or none", ", ".join(present))
    signed = fields["signed"]
    if not isinstance(signed, dict):
        fault(where, "an object of clients and signatures as 'signed'", shown(signed))
    strangers = signed.keys() - set(clients)
    if strangers:
        fault(where, "signatures of clients in the sum", shown(min(strangers)))
    return Evidence(
        _bytes(fields["model"], "model", None, where),
        _bytes(fields["graph"], "graph", _DIGEST_BYTES, where),
        _bytes(fields["head"], "head", _DIGEST_BYTES, where),
        {
            client: _bytes(signature, "signed", _SIGNATURE_BYTES, where)
            for client, signature in signed.items()
        },
    )


def _bytes(value: Any, key: str, size: int | None, where: str) -> bytes:
    is_hex = isinstance(value, str) and _DIGITS.fullmatch(value) is not None
    if not is_hex or (size is not None and len(value) != 2 * size):
        count = "hex digits" if size is None else f"{2 * size} hex digits"
        fault(where, f"{count} in {key!r}", shown(value))
    return bytes.fromhex(value)
