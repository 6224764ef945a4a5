"""Signed logs: nothing in them can be changed, swapped or taken out but an unseen tail.

The logs are those of real rounds: clients with keys, blocks and pledges, and a server
that records the evidence. Each tampering is made by a server without any client's key.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import random
import struct

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.protocol import Client, Pledge, Server, Terms
from mrsa_jax.protocol._primitives import SigningKey
from mrsa_watch import Recorder, _evidence
from mrsa_watch._command import main
from mrsa_watch.logs import LineParser

N, T, ROUNDS = 6, 2, 6
FIRST_HEAD = bytes(32)
LIMIT = N // 2 + 1
NAMES = [f"hospital {letter}" for letter in "abcdef"]
MODELS = [mj.protocol.model_digest(np.full(3, r, np.float32)) for r in range(ROUNDS)]
PLAN = mj.secagg.complete_plan(N, 1, 2**8)
KEYS = [SigningKey(hashlib.sha256(bytes([i])).digest()) for i in range(N)]
GRAPH = ~np.eye(N, dtype=bool)


def terms(before: bytes) -> Terms:
    roster = [key.public_key for key in KEYS]
    blocks = np.arange(N) // T
    return Terms(roster, GRAPH, np.full(N, LIMIT), blocks, b"study", 0, before)


def play(agreed: Terms, number: int, pledges, lost=(), contexts=None) -> Server:
    """Play a round to its end, in which some clients are lost before their input arrives."""
    sent = [MODELS[number]] * N if contexts is None else contexts
    cohort = np.ones(N, bool)
    server = Server(GRAPH, agreed.thresholds, cohort, PLAN, number, sent, agreed)
    clients = [
        Client(
            i,
            [j for j in range(N) if j != i],
            LIMIT,
            np.asarray([i], np.uint32),
            PLAN,
            number,
            i,
            sent[i],
            KEYS[i],
            agreed,
            pledges[i],
        )
        for i in range(N)
    ]
    for i, client in enumerate(clients):
        server.receive(i, client.advertise_keys())
    for i, message in server.advertise_keys().items():
        server.receive(i, clients[i].share_keys(message))
    for i, message in server.share_keys().items():
        upload = clients[i].masked_input(message)
        if i not in lost:
            server.receive(i, upload)
    for i, message in server.masked_input().items():
        if server.summed[i]:
            server.receive(i, clients[i].sign_survivors(message))
    for i, message in server.sign_survivors().items():
        server.receive(i, clients[i].unmask(message))
    server.unmask()
    return server


def record(path: pathlib.Path, pledges) -> list[np.ndarray]:
    """Write the log of six rounds, in two of which a block is left out."""
    before, totals = FIRST_HEAD, []
    with Recorder(path, system="test", aggregation="secagg", salt=b"") as recorder:
        for number in range(ROUNDS):
            lost = {1: (3,), 4: (0, 1)}.get(number, ())
            server = play(terms(before), number, pledges, lost)
            evidence = server.evidence()
            signed = evidence["signed"]
            evidence["signed"] = {NAMES[i]: signed[i] for i in signed}
            summed = [NAMES[i] for i in np.flatnonzero(server.summed)]
            recorder.record(number, summed, evidence=evidence)
            before = bytes.fromhex(evidence["head"])
            totals.append(server.totals[0])
    return totals


@functools.cache
def played() -> tuple[list[bytes], list[list[tuple[int, bytes]]], list[np.ndarray]]:
    """Return the lines of a log, each client's receipts, and the totals."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "log.jsonl")
        pledges = [Pledge() for _ in range(N)]
        totals = record(path, pledges)
        lines = path.read_bytes().splitlines(keepends=True)
    return lines, [pledge.receipts for pledge in pledges], totals


def roster() -> _evidence.Roster:
    fields = terms(FIRST_HEAD).roster_fields(NAMES)
    return _evidence.read_roster(json.dumps(fields).encode(), "roster")


def refused(lines: list[bytes], receipts=()) -> list[str]:
    sums = list(LineParser("log").sums(lines))
    outcomes = _evidence.check_evidence(sums, roster(), receipts)
    return [text for status, text in outcomes if status == "REFUSED"]


def changed(line: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


# --- tamperings by a server: each takes the lines of a log and a generator


def drop_in_the_middle(lines, draw):
    place = draw.randrange(1, len(lines) - 1)
    return lines[:place] + lines[place + 1 :]


def drop_and_patch(lines, draw):
    """Take a line out, and let the next one claim the head that it would need."""
    place = draw.randrange(1, len(lines) - 1)
    return [
        *lines[:place],
        changed(lines[place + 1], head=json.loads(lines[place])["head"]),
        *lines[place + 2 :],
    ]


def alter_a_list(lines, draw):
    """Add a block that was left out, or leave one out."""
    place = draw.randrange(1, len(lines))
    fields = json.loads(lines[place])
    members = set(fields["clients"])
    blocks = [set(NAMES[start : start + T]) for start in range(0, N, T)]
    absent = [block for block in blocks if not block & members]
    members = members | draw.choice(absent) if absent else members - draw.choice(blocks)
    signed = {name: own for name, own in fields["signed"].items() if name in members}
    other = changed(lines[place], clients=sorted(members), signed=signed)
    return [*lines[:place], other, *lines[place + 1 :]]


def another_model(lines, draw):
    place = draw.randrange(1, len(lines))
    model = draw.choice([own.hex() for own in MODELS if own != MODELS[place - 1]])
    return [*lines[:place], changed(lines[place], model=model), *lines[place + 1 :]]


def swap_rounds(lines, draw):
    one, two = sorted(draw.sample(range(1, len(lines)), 2))
    numbers = [json.loads(lines[place])["round"] for place in (one, two)]
    swapped = list(lines)
    if draw.random() < 0.5:  # the lines, or only their numbers
        swapped[one], swapped[two] = lines[two], lines[one]
    else:
        swapped[one] = changed(lines[one], round=numbers[1])
        swapped[two] = changed(lines[two], round=numbers[0])
    return swapped


TAMPERINGS = [
    drop_in_the_middle,
    drop_and_patch,
    alter_a_list,
    another_model,
    swap_rounds,
]


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_every_tampering_is_refused(tamper):
    lines, _, _ = played()
    assert refused(lines) == []
    for seed in range(20):
        other = tamper(lines, random.Random(seed))
        assert other != lines
        assert refused(other)


@pytest.mark.slow
@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_200_of_200_tamperings_are_refused(tamper):
    lines, _, _ = played()
    found = [bool(refused(tamper(lines, random.Random(seed)))) for seed in range(200)]
    assert sum(found) == 200


def test_a_missing_tail_is_seen_by_receipts_alone():
    lines, receipts, _ = played()
    for count in range(1, ROUNDS):
        tail = lines[:-count]
        assert refused(tail) == []
        assert all(refused(tail, own) for own in receipts[:1])
    # who was not in the missing sums has no receipt of them
    left_out = receipts[0]
    assert 4 not in [number for number, _ in left_out]
    assert refused(lines[:-1], left_out)


def test_the_first_lines_cannot_be_taken_out_either():
    lines, _, _ = played()
    assert refused([lines[0], *lines[2:]])


def test_lines_without_signatures_are_the_server_s_word():
    lines, _, _ = played()
    plain = json.dumps({"round": ROUNDS, "clients": NAMES}).encode() + b"\n"
    (fault,) = refused([*lines, plain])
    assert "server's word" in fault


def test_each_block_needs_a_signer():
    lines, _, _ = played()
    fields = json.loads(lines[1])
    signed = {name: own for name, own in fields["signed"].items() if name != NAMES[0]}
    assert refused([lines[0], changed(lines[1], signed=signed), *lines[2:]]) == []
    del signed[NAMES[1]]
    (fault,) = refused([lines[0], changed(lines[1], signed=signed), *lines[2:]])
    assert fault.endswith("nobody of block 0 signed it")


def test_sums_are_those_of_rounds_without_a_chain():
    _, _, totals = played()
    values = np.arange(N)
    lost = {1: (2, 3), 4: (0, 1)}
    for number, total in enumerate(totals):
        inside = np.setdiff1d(values, lost.get(number, ()))
        assert total.tolist() == [inside.sum()]


def test_mates_with_different_models_never_sign():
    mixed = [MODELS[0]] * 3 + [MODELS[1]] * 3
    with pytest.raises(mj.protocol.errors.AuthenticationError):
        play(terms(FIRST_HEAD), 0, [None] * N, contexts=mixed)


# --- clients follow the chain


def test_a_client_follows_one_chain(tmp_path):
    pledges = [Pledge(tmp_path / f"pledge {i}") for i in range(N)]
    server = play(terms(FIRST_HEAD), 0, pledges)
    head = bytes.fromhex(server.evidence()["head"])
    assert Pledge(tmp_path / "pledge 2").receipts == [(0, head)]
    assert (tmp_path / "pledge 2.receipts").stat().st_size == 36
    refusal = mj.protocol.errors.UnexpectedMessageError
    with pytest.raises(refusal, match="may not begin again"):
        play(terms(FIRST_HEAD), 1, pledges)
    with pytest.raises(refusal, match="does not name round 0"):
        play(terms(bytes([1]) * 32), 1, [Pledge(tmp_path / "pledge 2")] * N)
    # round 1 may have been without it, so any head may come before round 2
    play(terms(bytes([1]) * 32), 2, [None, *pledges[1:]])


def test_damaged_receipts_are_refused(tmp_path):
    (tmp_path / "pledge.receipts").write_bytes(bytes(35))
    with pytest.raises(mj.ConfigurationError, match="receipts of 36 bytes"):
        Pledge(tmp_path / "pledge")


# --- the command


def files(tmp_path: pathlib.Path) -> list[str]:
    lines, receipts, _ = played()
    (tmp_path / "log.jsonl").write_bytes(b"".join(lines))
    fields = terms(FIRST_HEAD).roster_fields(NAMES)
    (tmp_path / "roster.json").write_text(json.dumps(fields))
    own = b"".join(struct.pack("<I", number) + head for number, head in receipts[0])
    (tmp_path / "receipts").write_bytes(own)
    return [str(tmp_path / name) for name in ("log.jsonl", "roster.json", "receipts")]


def test_the_command_checks_and_says_what_it_cannot_see(tmp_path, capsys):
    log, keys, receipts = files(tmp_path)
    assert main(["check", "--roster", keys, "--receipts", receipts, log]) == 0
    printed = capsys.readouterr().out
    assert "checked: 6 sums are signed, and each names the one before it" in printed
    assert "5 receipts agree" in printed
    assert "may be missing at the end: none is of a later round than 5" in printed
    lines = pathlib.Path(log).read_bytes().splitlines(keepends=True)
    pathlib.Path(log).write_bytes(b"".join(lines[:3] + lines[4:]))
    assert main(["check", f"--roster={keys}", log]) == 1
    printed = capsys.readouterr().out
    assert "REFUSED: line 4, round 3: its head is not that of" in printed
    assert "no receipt was shown" in printed


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("{", "must be a roster"),
        ('{"session": "", "colluders": 0, "blocks": null, "keys": {}}', "32 bytes"),
        ('{"session": "", "colluders": 0, "blocks": null, "keys": {"a": "00"}}', "32"),
        ('{"session": "", "colluders": 0, "keys": {}}', "must be a roster"),
    ],
)
def test_what_is_no_roster_is_refused(tmp_path, capsys, content, rule):
    log, keys, _ = files(tmp_path)
    pathlib.Path(keys).write_text(content)
    assert main(["check", "--roster", keys, log]) == 2
    assert rule in capsys.readouterr().err


@pytest.mark.parametrize(
    "fields",
    [
        {"head": "00"},
        {"head": None},
        {"signed": []},
        {"signed": {"nobody": "00" * 64}},
        {"model": "xyz"},
    ],
)
def test_malformed_evidence_is_an_error_of_the_line(fields):
    lines, _, _ = played()
    with pytest.raises(mj.ConfigurationError, match="log:2"):
        refused([lines[0], changed(lines[1], **fields)])


def test_pseudonyms_are_put_to_signers_too(tmp_path):
    lines, _, _ = played()
    fields = json.loads(lines[1])
    evidence = {key: fields[key] for key in ("model", "graph", "head", "signed")}
    path = tmp_path / "log.jsonl"
    with Recorder(path, system="test", aggregation="secagg") as recorder:
        recorder.record(0, fields["clients"], evidence=evidence)
        names = set(map(recorder.name, NAMES))
    line = json.loads(path.read_bytes().splitlines()[1])
    assert set(line["signed"]) == set(line["clients"]) == names


# --- what no client signs is not taken for signed


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"weights": [1, 2, 3, 4, 5, 6]}, "clients sign no weights"),
        ({"part": "head"}, "clients sign no part"),
        ({"sum": 1}, "one sum per round"),
        ({"round": 2**32}, "no round has a number above"),
    ],
)
def test_what_clients_do_not_sign_is_refused(fields, fault):
    lines, _, _ = played()
    assert json.loads(lines[1])["round"] == 0
    faults = refused([lines[0], changed(lines[1], **fields)])
    assert any(fault in found for found in faults)


def test_a_log_without_a_sum_is_not_checked():
    lines, _, _ = played()
    assert refused(lines[:1]) == ["the log has no learnt sum, so nothing is signed"]


@pytest.mark.parametrize("keys", ['"a": "{0}", "b": "{0}"', '"a": "{0}", "a": "{1}"'])
def test_a_roster_has_each_client_and_each_key_once(keys):
    text = keys.format("00" * 32, "11" * 32)
    roster = '{"session": "", "colluders": 0, "blocks": null, "keys": {KEYS}}'
    content = roster.replace("KEYS", text).encode()
    with pytest.raises(mj.ConfigurationError, match="roster"):
        _evidence.read_roster(content, "roster.json")


def test_receipts_may_come_one_by_one():
    lines, receipts, _ = played()
    sums = list(LineParser("log").sums(lines))
    outcomes = _evidence.check_evidence(sums, roster(), iter(receipts[0]))
    assert any("none is of a later round than 5" in text for _, text in outcomes)
