"""Sections on blocks that clients enforce, on evidence, and on thresholds."""

from __future__ import annotations

import hashlib
import json
import pathlib
import tempfile
from typing import Any

import numpy as np

import mrsa_jax as mj
from mrsa_jax.protocol._primitives import SigningKey
from mrsa_watch import Recorder, _evidence
from mrsa_watch.logs import LineParser


def enforced() -> dict[str, Any]:
    """Return what a server that chooses its sums exposes, and how often honest rounds work."""
    own: dict[str, Any] = {"clients": 24, "cohort": 12, "T": 3, "rounds": 40}

    def keeps_blocks(listed: np.ndarray) -> bool:
        members = listed.reshape(-1, own["T"]).sum(axis=1)
        return bool(((members == 0) | (members == own["T"])).all())

    asked = (own["clients"], own["cohort"], own["T"])
    server = mj.attacks.exposing_server(*asked)
    chance = mj.attacks.exposing_server(*asked, candidates=1)
    games = {
        "any sums, chosen to expose": server.play(0, own["rounds"]),
        "any sums, at random": chance.play(0, own["rounds"]),
        "whole blocks only": server.play(0, own["rounds"], keeps_blocks),
    }
    curves = {label: game.exposed.tolist() for label, game in games.items()}
    obeyed, _, kept = games.values()
    own |= {
        "exposed": int(obeyed.exposed[-1]),
        "kept_exposed": int(kept.exposed[-1]),
        "all_exposed": int(np.argmax(obeyed.exposed == own["clients"])) + 1,
        "refused": kept.refused,
        "kept_sums": int(kept.participation.any(axis=1).sum()),
        "kept_strong": mj.privacy.strong_privacy(kept.participation),
        "kept_weak": mj.privacy.weak_privacy(kept.participation).lower,
    }
    works = {}
    for blocks, size, threshold, loss, later in (
        (3, 4, 7, 0.05, 0.02),
        (3, 4, 7, 0.02, 0.01),
        (8, 3, 13, 0.05, 0.02),
        (10, 10, 51, 0.01, 0.005),
    ):
        rate = mj.secagg.failures.whole_blocks_rate(
            blocks, size, threshold, loss, 1 - (1 - later) ** 2
        )
        works[str(len(works))] = {
            "blocks": blocks,
            "T": size,
            "threshold": threshold,
            "loss": 100 * loss,
            "later": 100 * later,
            "works": rate,
            "insists": (1 - loss) ** (blocks * size),
        }
    return own | {"works": works, "curves": curves}


def two_models() -> dict[str, Any]:
    """Return how many clients a server reads from whole blocks by a model for one of them."""
    own: dict[str, Any] = {"clients": 6, "T": 3}
    model = mj.federated.mlp(10, hidden_sizes=(12, 6))
    trainer = mj.federated.local_sgd(model, 0.2, batch_size=20, num_epochs=2)
    quantizer = mj.quantize.stochastic(2**16 + 1, 0.5)
    data = mj.data.iid(0, mj.data.load("digits", seed=0), 30)
    start = mj.federated.initial_parameters(0, model, (8, 8, 1))

    def read(blocks: int | None) -> int:
        attack = mj.attacks.model_inconsistency(
            model, trainer, quantizer, blocks=blocks
        )
        clients = range(own["clients"])
        errors = [
            attack.run(5, start, data, clients, target).error for target in clients
        ]
        return sum(error < 0.01 for error in errors)

    return own | {"read": read(None), "kept_read": read(own["T"])}


def evidence() -> dict[str, Any]:
    """Return what signatures add to a log, and which of a server's changes they show."""
    own: dict[str, Any] = {"clients": 24, "cohort": 12, "T": 4, "rounds": 8}
    count = own["clients"]
    keys = [SigningKey(hashlib.sha256(bytes([i])).digest()) for i in range(count)]
    selector = mj.selection.batch_partitioning(count, own["cohort"], own["T"])
    cohorts = np.asarray(
        mj.selection.rollout(
            0, selector, mj.availability.independent(0.0), own["rounds"]
        )
    )
    pledges = [mj.protocol.Pledge() for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        signed, plain = (pathlib.Path(folder, name) for name in ("signed", "plain"))
        before = bytes(32)
        with _recorder(signed) as with_signatures, _recorder(plain) as without:
            for number, cohort in enumerate(cohorts):
                server = _played(keys, cohort, number, before, pledges, own["T"])
                listed = server.evidence()
                names = {str(i): text for i, text in listed["signed"].items()}
                listed = listed | {"signed": names}
                summed = [str(i) for i in np.flatnonzero(server.summed)]
                with_signatures.record(number, summed, evidence=listed)
                without.record(number, summed)
                before = bytes.fromhex(listed["head"])
        lines = signed.read_bytes().splitlines(keepends=True)
        unsigned = plain.read_bytes().splitlines(keepends=True)
    terms = _terms(keys, cohorts[0], before, own["T"])
    roster = _evidence.read_roster(json.dumps(terms.roster_fields()).encode(), "roster")

    def is_refused(told: list[bytes], receipts: Any = ()) -> bool:
        sums = list(LineParser("log").sums(told))
        outcomes = _evidence.check_evidence(sums, roster, receipts)
        return any(status == _evidence.REFUSED for status, _ in outcomes)

    middle = range(1, len(lines) - 1)
    dropped = [lines[:place] + lines[place + 1 :] for place in middle]
    altered = [
        [*lines[:place], _another_list(lines[place], own["T"]), *lines[place + 1 :]]
        for place in middle
    ]
    holder = int(np.flatnonzero(cohorts[-1])[0])
    added = sum(map(len, lines[1:])) - sum(map(len, unsigned[1:]))
    return own | {
        "bytes": round(added / own["rounds"]),
        "receipt": 36,
        "whole_refused": is_refused(lines),
        "middle": len(dropped),
        "dropped": sum(map(is_refused, dropped)),
        "altered": sum(map(is_refused, altered)),
        "tail": int(is_refused(lines[:-1])),
        "tail_receipts": int(is_refused(lines[:-1], pledges[holder].receipts)),
    }


def _recorder(path: pathlib.Path) -> Recorder:
    return Recorder(path, system="report", aggregation="secagg", salt=b"")


def _complete(cohort: np.ndarray) -> np.ndarray:
    return np.logical_and.outer(cohort, cohort) & ~np.eye(len(cohort), dtype=bool)


def _terms(keys: Any, cohort: np.ndarray, before: bytes, target: int) -> Any:
    """Return the terms of a round, on the complete graph of its cohort."""
    graph = _complete(cohort)
    limits = np.full(len(cohort), int(cohort.sum()) // 2 + 1)
    roster = [key.public_key for key in keys]
    blocks = np.arange(len(cohort)) // target
    return mj.protocol.Terms(roster, graph, limits, blocks, b"report", 0, before)


def _played(
    keys: Any,
    cohort: np.ndarray,
    number: int,
    before: bytes,
    pledges: Any,
    target: int,
) -> Any:
    """Play one round with real messages, in which no client is lost."""
    terms, graph = _terms(keys, cohort, before, target), _complete(cohort)
    asked = np.flatnonzero(cohort).tolist()
    plan = mj.secagg.complete_plan(len(cohort), 1, 2**8)
    digest = mj.protocol.model_digest(np.full(3, number, np.float32))
    server = mj.protocol.Server(
        graph, terms.thresholds, cohort, plan, number, [digest] * len(cohort), terms
    )
    clients = {
        i: mj.protocol.Client(
            i,
            [j for j in asked if j != i],
            int(terms.thresholds[i]),
            np.asarray([i], np.uint32),
            plan,
            number,
            i,
            digest,
            keys[i],
            terms,
            pledges[i],
        )
        for i in asked
    }
    for i, client in clients.items():
        server.receive(i, client.advertise_keys())
    for step, answer in (
        ("advertise_keys", "share_keys"),
        ("share_keys", "masked_input"),
        ("masked_input", "sign_survivors"),
        ("sign_survivors", "unmask"),
    ):
        for i, message in getattr(server, step)().items():
            server.receive(i, getattr(clients[i], answer)(message))
    server.unmask()
    return server


def _another_list(line: bytes, target: int) -> bytes:
    """Return a line of the log without the first block of its sum."""
    fields = json.loads(line)
    block = int(fields["clients"][0]) // target
    left = [name for name in fields["clients"] if int(name) // target != block]
    signed = {name: fields["signed"][name] for name in left if name in fields["signed"]}
    return json.dumps(fields | {"clients": left, "signed": signed}).encode() + b"\n"


def thresholds() -> dict[str, Any]:
    """Return how often sparse rounds of CCESA fail, by the rule for the threshold."""
    own: dict[str, Any] = {"clients": 1000, "lost": 0.1, "trials": 300}
    step = 1 - (1 - own["lost"]) ** 0.25
    rows = {}
    for chance, rule, label in (
        (0.04, "majority", "more than half of each client's neighbourhood"),
        (0.02, "majority", "more than half of each client's neighbourhood"),
        (0.04, "remark4", "one for all clients (Remark 4 of the paper)"),
    ):
        rates = mj.secagg.failure_rates(
            0, own["clients"], chance, step, rule, own["trials"]
        )
        log_lost = mj.secagg.failures.log_reliability_first_moment(
            own["clients"], chance, step, rule
        )
        rows[f"{rule}{chance:g}"] = {
            "label": label,
            "chance": chance,
            "failed": rates.unreliable.count,
            "high": rates.unreliable.upper,
            "low": rates.unreliable.lower,
            "separated": rates.not_private.count,
            "lost_secrets": float(np.exp(log_lost)),
        }
    paper = mj.secagg.connection_probability(own["clients"], own["lost"])
    return own | {"rows": rows, "paper": paper}
