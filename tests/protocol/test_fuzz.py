"""Mutated messages to every party at every step.

Named errors only, and no room made for lies.
"""

import copy
import dataclasses
import tracemalloc

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.protocol import Client, Server, Terms, run
from mrsa_jax.protocol._network import disturbed
from mrsa_jax.protocol._primitives import SigningKey
from mrsa_jax.protocol.errors import MalformedMessageError, ProtocolError
from mrsa_jax.protocol.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareKeys,
    ShareList,
    SignatureList,
    SignedKeyList,
    SignedKeys,
    SignedSurvivors,
    SurvivorList,
    UnmaskShares,
)
from mrsa_jax.secagg import Block, segment_plan

KINDS = (
    AdvertiseKeys,
    KeyList,
    ShareKeys,
    ShareList,
    MaskedInput,
    SurvivorList,
    UnmaskShares,
    SignedSurvivors,
    SignatureList,
    SignedKeys,
    SignedKeyList,
)
N, DIM = 5, 6
PLAN = segment_plan(
    [
        Block((0, 1, 2, 3, 4), 0, 3, 2**16),
        Block((0, 1), 3, 6, 37),
        Block((2, 3, 4), 3, 6, 37),
    ],
    N,
    DIM,
)
LAYOUT = ((3, 2**16), (3, 37))
GRAPH = ~np.eye(N, dtype=bool)
VALUES = np.random.default_rng(0).integers(0, 37, (N, DIM)).astype(np.uint32)
WORDS = (0, 1, 2, 9, 2**16, 2**31 - 1, 2**31, 2**32 - 1)


def state_of(attributes):
    """Return a party's attributes, containers copied, so that it can be put back as it was."""

    def copied(value):
        if isinstance(value, dict):
            return {key: copied(one) for key, one in value.items()}
        return copy.copy(value) if isinstance(value, list | set | np.ndarray) else value

    return {name: copied(value) for name, value in attributes.items()}


class Scene:
    """All parties of a round as they stand before one step, and the messages that they expect."""

    def __init__(self, is_checked):
        keys = (
            {i: SigningKey(bytes([i + 1] * 32)) for i in range(N)} if is_checked else {}
        )
        roster = [key.public_key for key in keys.values()]
        terms = Terms(roster, GRAPH, np.full(N, 3)) if is_checked else None
        self.server = Server(
            GRAPH, np.full(N, 3), np.ones(N, bool), PLAN, 7, None, terms
        )
        self.clients = [
            Client(
                i,
                np.flatnonzero(GRAPH[i]).tolist(),
                3,
                VALUES[i],
                PLAN,
                7,
                entropy=i,
                signing_key=keys.get(i),
                terms=terms,
            )
            for i in range(N)
        ]
        self.steps = ["advertise_keys", "share_keys", "masked_input", "unmask"]
        if is_checked:
            self.steps.insert(3, "sign_survivors")
        # of each step: states of the clients and the server, messages both ways
        self.before = []
        down = dict.fromkeys(range(N), b"")
        for step in range(len(self.steps)):
            states = [state_of(vars(client)) for client in self.clients]
            up = {i: self.ask(i, step, down[i]) for i in range(N)}
            self.before.append((states, state_of(vars(self.server)), down, up))
            for i, message in up.items():
                assert self.server.receive(i, message)
            down = getattr(self.server, self.steps[step])()
        both = [
            message
            for before in self.before
            for way in before[2:]
            for message in way.values()
        ]
        self.messages = [message for message in both if message]

    def ask(self, i, step, message):
        act = getattr(self.clients[i], self.steps[step])
        return act() if step == 0 else act(message)

    def put_back(self, step, i):
        """Set client i, or the server for -1, to how it stood before a step."""
        states, server, _, _ = self.before[step]
        party, own = (self.server, server) if i < 0 else (self.clients[i], states[i])
        party.__dict__.clear()
        party.__dict__.update(state_of(own))


LISTS = {
    KeyList.KIND: (KeyList, "keys"),
    ShareKeys.KIND: (ShareKeys, "ciphertexts"),
    ShareList.KIND: (ShareList, "ciphertexts"),
    SurvivorList.KIND: (SurvivorList, "survivors"),
    UnmaskShares.KIND: (UnmaskShares, "self_shares"),
    SignatureList.KIND: (SignatureList, "signatures"),
    SignedKeyList.KIND: (SignedKeyList, "keys"),
}


def thinned(message, rng):
    """Return a list, well formed, without some of its entries."""
    kind, field = LISTS[message[0]]
    found = kind.from_bytes(message)
    kept = tuple(entry for entry in getattr(found, field) if rng.random() < 0.5)
    return dataclasses.replace(found, **{field: kept}).to_bytes()


def mutate(message, others, rng):
    """Change a message in one of many ways.

    What comes may be as long as it and another.
    """
    data, size = bytearray(message), len(message)
    way = rng.integers(13)
    at = int(rng.integers(size)) if size else 0
    if size == 0 or way == 0:
        return rng.bytes(int(rng.integers(0, 200)))
    if way == 1:
        data[at] ^= 1 << int(rng.integers(8))
    elif way == 2:
        data[at] = int(rng.integers(256))
    elif way == 3:
        del data[at:]
    elif way == 4:
        data += rng.bytes(int(rng.integers(1, 100)))
    elif way == 5:  # a word of the header, of a count or an id
        word = 4 * int(rng.integers(0, min(8, size // 4)))
        data[word : word + 4] = int(rng.choice(WORDS)).to_bytes(4, "little")
    elif way == 6:
        stop = at + int(rng.integers(1, 100))
        data[at:at] = data[at:stop]
    elif way == 7:
        del data[at : at + int(rng.integers(1, 100))]
    elif way == 8:
        other = others[int(rng.integers(len(others)))]
        data[at:] = other[at:]
    elif way == 9:
        data[0] = int(rng.integers(12))
    elif way == 10 and data[0] in LISTS:
        return thinned(message, rng)
    elif way == 11:
        return bytes(others[int(rng.integers(len(others)))])
    else:
        for _ in range(int(rng.integers(2, 20))):
            data[int(rng.integers(size))] = int(rng.integers(256))
    return bytes(data)


def read_all(data):
    """Let every reader read a message: whatever is read has this one encoding."""
    for kind in KINDS:
        try:
            found = (
                kind.from_bytes(data, LAYOUT)
                if kind is MaskedInput
                else kind.from_bytes(data)
            )
        except MalformedMessageError:
            continue
        assert found.to_bytes() == data


def fuzz(count, seed):
    """Send mutants to clients and servers.

    Return how many were refused, by name of the error.
    """
    rng = np.random.default_rng(seed)
    scenes = [Scene(is_checked) for is_checked in (False, True)]
    refused = {}
    for number in range(count):
        scene = scenes[number % 2]
        step = int(rng.integers(len(scene.steps)))
        _, _, down, up = scene.before[step]
        i, to_server = int(rng.integers(N)), bool(step == 0 or rng.random() < 0.5)
        data = mutate((up if to_server else down)[i], scene.messages, rng)
        if number % 4 == 0:
            read_all(data)
        scene.put_back(step, -1 if to_server else i)
        try:
            if to_server:
                scene.server.receive(i, data)
                close(scene, step, i, up)
            else:
                go_on(scene, step, i, data)
        except ProtocolError as error:
            name = type(error).__name__
            refused[name] = refused.get(name, 0) + 1
    return refused


def close(scene, step, changed, up):
    """After a mutant that the server took.

    The others' messages, and the end of the step.
    """
    for i, message in up.items():
        if i != changed:
            scene.server.receive(i, message)
    getattr(scene.server, scene.steps[step])()
    if step == len(scene.steps) - 1:
        assert scene.server.status is not None
        assert len(scene.server.learned_sums()) == len(scene.server.learned)


def go_on(scene, step, i, data):
    """A mutant to a client, and if it takes that, what comes next."""
    scene.ask(i, step, data)
    if step + 1 < len(scene.steps):
        scene.ask(i, step + 1, scene.before[step + 1][2][i])


@pytest.mark.long
def test_mutants_meet_named_errors_only():
    refused = fuzz(1500, 0)
    assert sum(refused.values()) > 900
    assert {
        "MalformedMessageError",
        "UnexpectedMessageError",
        "AuthenticationError",
        "TooFewSurvivorsError",
    } <= set(refused)


@pytest.mark.slow
def test_a_hundred_thousand_mutants_meet_named_errors_only():
    refused = fuzz(100_000, 1)
    assert sum(refused.values()) > 60_000


def rounds(count, seed, is_checked):
    """Whole rounds of which each message may be a mutant: a status, whatever comes."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        seen = [b"\x01"]

        def disturb(step, sender, recipient, message, seen=seen):
            seen.append(message)
            return mutate(message, seen, rng) if rng.random() < 0.1 else message

        network = disturbed(tamper=disturb)
        result = run(
            VALUES,
            GRAPH,
            np.ones((5, N), bool),
            3,
            plan=PLAN,
            entropy=0,
            network=network,
            consistency=is_checked,
        )
        assert isinstance(result.status, mj.Status)
        assert all(isinstance(entry.error, ProtocolError) for entry in network.refusals)


@pytest.mark.parametrize("is_checked", [False, True])
def test_rounds_of_mutants_end_with_a_status(is_checked):
    rounds(6, 2, is_checked)


@pytest.mark.slow
@pytest.mark.parametrize("is_checked", [False, True])
def test_many_rounds_of_mutants_end_with_a_status(is_checked):
    rounds(400, 3, is_checked)


@pytest.mark.long
def test_lies_about_counts_make_no_room():
    """A count of up to 2**32 - 1 in a short message.

    Refused within a few times its bytes.
    """
    scene = Scene(True)
    lies = []
    for message in scene.messages:
        for word in range(min(6, len(message) // 4)):
            for value in WORDS[-3:]:
                data = bytearray(message)
                data[4 * word : 4 * word + 4] = value.to_bytes(4, "little")
                lies.append(bytes(data))
    tracemalloc.start()
    try:
        for data in lies[::7]:
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]
            read_all(data)
            for i in (0, 1):
                scene.put_back(3, i)
                for act in (scene.clients[i].unmask, scene.clients[i].sign_survivors):
                    with pytest.raises(ProtocolError):
                        act(data[:-1])
            assert tracemalloc.get_traced_memory()[1] - held < 300_000
    finally:
        tracemalloc.stop()
