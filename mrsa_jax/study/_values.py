"""Whole-number values of a log's clients: which of them its sums determine."""

from __future__ import annotations

import csv
import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import privacy
from mrsa_watch._base.errors import ConfigurationError, require
from mrsa_watch._base.untrusted import printable, start_of

if TYPE_CHECKING:
    from mrsa_jax.privacy import ParticipationLog
    from mrsa_jax.study.settings._commands import AuditConfig

_NODES = 10_000  # branches of an integer program at effort 1
_MOST_NAMED = 5
_RULE = "must hold one whole number for each sum of the log"


def values_of(config: AuditConfig, log: ParticipationLog) -> dict[str, Any] | None:
    """Return the values of clients that agree with all sums; None if not asked for.

    Raises:
        ConfigurationError: If the sums are not those of the log, or of no values in the
            range, or the log has fractional weights or parts of the vector.
    """
    if config.values is None or config.sums is None:
        return None
    # weights that were scaled to integers no longer sum whole values
    is_whole = log.scales is None or all(scale == 1 for scale in log.scales)
    rule = "must not be set for a log with fractional weights"
    require(is_whole, "values", rule, config.values)
    rule = "must not be set for a log of parts of the vector"
    require(log.parts is None, "values", rule, config.values)
    low, high = map(int, config.values.split(":"))
    sums = read_sums(config.sums, log)
    found = privacy.determined(
        log.participation, sums, low, high, nodes=int(_NODES * config.effort)
    )
    clients = [
        {"client": _plain(name), "lower": lower, "upper": upper, "is_decided": decided}
        for name, lower, upper, decided in zip(
            log.clients,
            found.lower.tolist(),
            found.upper.tolist(),
            found.is_decided.tolist(),
            strict=True,
        )
    ]
    return {
        "low": low,
        "high": high,
        "determined": int(found.is_determined.sum()),
        "undecided": int((~found.is_decided).sum()),
        "clients": clients,
    }


def _plain(name: Any) -> Any:
    return name if isinstance(name, int | float | str) else str(name)


def values_row(values: dict[str, Any]) -> tuple[str, str, str]:
    """Return question, answer and certainty."""
    answer = f"{values['determined']} of {len(values['clients'])}"
    if values["undecided"]:
        answer += f", {values['undecided']} undecided"
    condition = f"if whole numbers from {values['low']} to {values['high']}"
    return "values determined", answer, f"HiGHS, {condition}"


def values_sentence(values: dict[str, Any]) -> str:
    """State whose value the sums determine, and on whose the budget ran out."""
    known = [
        each
        for each in values["clients"]
        if each["is_decided"] and each["lower"] == each["upper"]
    ]
    shown = ", ".join(
        f"client {printable(each['client'])} has {each['lower']}"
        for each in known[:_MOST_NAMED]
    )
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    ends = f"{values['low']} to {values['high']}"
    text = (
        f"If values are whole numbers from {ends} and stay the same over the rounds, "
        f"the sums determine those of {len(known)} of {len(values['clients'])} clients"
    )
    text += f": {shown}{more}." if known else "."
    if values["undecided"]:
        text += (
            f" On {values['undecided']} more the budget ran out; more --effort may "
            "decide."
        )
    return text


def read_sums(file: pathlib.Path, log: ParticipationLog) -> np.ndarray:
    """Read the sums of a log's rounds, in the order of its rows.

    NPY, or a CSV of one column, in the order of the log's rows; a CSV with the columns
    round and sum, or JSON Lines with these keys, in any order.

    Raises:
        ConfigurationError: If a sum is missing, unknown, repeated or no whole number.
    """
    try:
        if start_of(file, 6) == b"\x93NUMPY":
            sums = np.asarray(np.load(file, allow_pickle=False))
            is_list = sums.dtype.kind in "iu" and sums.shape == (len(log.rounds),)
            require(is_list, "sums", _RULE, f"{sums.dtype}{list(sums.shape)}")
            return sums
        text = file.read_text(encoding="utf-8-sig")
        pairs = _pairs(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"`sums` {_RULE}; got {error}") from error
    names = [str(name) for name in log.printed_rounds]
    if all(name is None for name, _ in pairs):
        require(len(pairs) == len(names), "sums", _RULE, f"{len(pairs)} sums")
        return np.array([number for _, number in pairs], np.int64)
    rule = "must be one per row of the log, in its order, if a round has several sums"
    require(len(set(names)) == len(names), "sums", rule, "sums with names of rounds")
    by_name = dict(pairs)
    require(len(by_name) == len(pairs), "sums", "must not name a round twice", None)
    # names in one of both only
    apart = sorted(set(names) ^ {str(name) for name in by_name})
    rule = "must be of the log's rounds, each of them once"
    require(not apart, "sums", rule, apart[:3])
    return np.array([by_name[name] for name in names], np.int64)


def _pairs(text: str) -> list[tuple[str | None, int]]:
    """Return rounds and sums of CSV or JSON Lines; None for rounds without names."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].lstrip().startswith("{"):
        records = [json.loads(line) for line in lines]
        is_good = all({"round", "sum"} <= record.keys() for record in records)
        require(is_good, "sums", "must have the keys round and sum in each line", None)
        return [(str(each["round"]), _whole(each["sum"])) for each in records]
    rows = list(csv.reader(lines))
    if rows and all(len(row) == 1 for row in rows):
        # a header, if the first line is no number
        start = 0 if rows[0][0].strip().lstrip("-").isdecimal() else 1
        return [(None, _whole(row[0])) for row in rows[start:]]
    header = [name.strip() for name in rows[0]] if rows else []
    is_good = {"round", "sum"} <= set(header)
    require(is_good, "sums", "must have the columns round and sum", header)
    places = header.index("round"), header.index("sum")
    return [(row[places[0]].strip(), _whole(row[places[1]])) for row in rows[1:]]


def _whole(value: Any) -> int:
    """Return a sum as an integer; no rounding."""
    if isinstance(value, str):
        return int(value.strip())
    # not isinstance: True is no sum
    if type(value) is not int:
        raise ValueError(f"{value!r}")
    return value
