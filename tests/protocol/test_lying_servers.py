"""Servers that lie about who is there.

Two attacks that clients' floors end, and what still works.
Each attack computes the victim's input from nothing but what clients sent: their padded
inputs, the shares that they handed out, and the public keys.
"""

import dataclasses
import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import mrsa_jax as mj
from mrsa_jax.protocol import Client, recover, run
from mrsa_jax.protocol._network import SERVER, disturbed
from mrsa_jax.protocol._primitives import KeyPair, pad_seed
from mrsa_jax.protocol.errors import (
    AuthenticationError,
    TooFewSurvivorsError,
    UnexpectedMessageError,
)
from mrsa_jax.protocol.messages import (
    AdvertiseKeys,
    MaskedInput,
    ShareList,
    SignatureList,
    SignedKeys,
    SurvivorList,
    UnmaskShares,
)

N, DIM, MODULUS, VICTIM = 10, 5, 2**16, 3
COMPLETE = ~np.eye(N, dtype=bool)
EVERYBODY = np.ones((5, N), bool)
INPUTS = np.random.default_rng(0).integers(0, MODULUS, (N, DIM))


class Liar:
    """A server's network.

    It keeps all that clients send, and changes what it sends to them.
    """

    def __init__(self, share_lists=None, survivor_lists=None):
        self._share_lists = share_lists or {}  # client -> those whose shares it is sent
        # client -> those it is told to be in the sum
        self.survivor_lists = survivor_lists or {}
        self.keys, self.inputs, self.shares = {}, {}, {}
        self.network = disturbed(tamper=self)

    def __call__(self, step, sender, recipient, message):
        if sender == SERVER:
            return self._lie(step, recipient, message)
        if step == 0:
            kind = {one.KIND: one for one in (AdvertiseKeys, SignedKeys)}[message[0]]
            self.keys[sender] = kind.from_bytes(message).pad_key
        elif step == 2:
            found = MaskedInput.from_bytes(message, ((DIM, MODULUS),))
            self.inputs[sender] = found.residues.astype(int)
        elif message[0] == UnmaskShares.KIND:
            answer = UnmaskShares.from_bytes(message)
            for kind, shares in (
                ("self", answer.self_shares),
                ("key", answer.key_shares),
            ):
                for owner, share in shares:
                    self.shares.setdefault((kind, owner), {})[sender] = share
        return message

    def _lie(self, step, recipient, message):
        if step == 2 and recipient in self._share_lists:
            found = ShareList.from_bytes(message)
            kept = self._share_lists[recipient]
            entries = tuple(entry for entry in found.ciphertexts if entry[0] in kept)
            return dataclasses.replace(found, ciphertexts=entries).to_bytes()
        if step == 3 and recipient in self.survivor_lists:
            found = SurvivorList.from_bytes(message)
            told = tuple(sorted(self.survivor_lists[recipient]))
            return dataclasses.replace(found, survivors=told).to_bytes()
        return message

    def secret(self, kind, owner, threshold):
        """Return a secret of which enough shares came, or None."""
        found = sorted(self.shares.get((kind, owner), {}).items())
        if len(found) < threshold:
            return None
        limbs = np.stack(
            [np.frombuffer(share, "<u4").astype(np.uint32) for _, share in found]
        )
        return recover([holder + 1 for holder, _ in found], limbs, threshold)

    def sum_over(self, members, padded_with, threshold):
        """Return what the members' inputs add up to, or None where a pad cannot be removed.

        `padded_with` says with whom each member shares pads, as its list of shares had
        it.
        """
        total = np.zeros(DIM, int)
        for i in members:
            own = self.secret("self", i, threshold)
            if i not in self.inputs or own is None:
                return None
            total += self.inputs[i] - pad(own, 2)
            for j in set(padded_with[i]) - set(members):
                key = self.secret("key", j, threshold)
                if key is None:
                    return None
                seed = pad_seed(KeyPair(key).agree(self.keys[i]), i, j, 0)
                total -= pad(seed, 1) * (1 if i < j else -1)
        return total % MODULUS


def pad(seed, label):
    stream = Cipher(
        algorithms.ChaCha20(seed, struct.pack("<4L", 0, label, 0, 0)), mode=None
    )
    return (
        np.frombuffer(stream.encryptor().update(bytes(4 * DIM)), "<u4").astype(int)
        % MODULUS
    )


def attack(liar, threshold, consistency=False):
    return run(
        INPUTS,
        COMPLETE,
        EVERYBODY,
        threshold,
        modulus=MODULUS,
        entropy=0,
        network=liar.network,
        consistency=consistency,
    )


def others(i):
    return [j for j in range(N) if j != i]


def refusals(liar):
    return [
        (entry.step, entry.client, type(entry.error))
        for entry in liar.network.refusals
        if not entry.by_server
    ]


@pytest.mark.parametrize("threshold", [6, 7, 8])
def test_survivors_you_and_the_victim(threshold):
    """Each gives its share of the victim's b, and those of the keys of all others."""
    result_is_safe = not mj.secagg.unmasking_risk(COMPLETE, threshold).any()
    assert result_is_safe  # the predicate does not speak of this server
    liar = Liar(survivor_lists={i: {i, VICTIM} for i in range(N)})
    attack(liar, threshold)
    assert liar.sum_over([VICTIM], {VICTIM: others(VICTIM)}, threshold) is None
    assert refusals(liar) == [(3, i, TooFewSurvivorsError) for i in range(N)]
    assert not liar.shares


@pytest.mark.parametrize("threshold", [6, 7, 8])
def test_no_shares_for_the_victim(threshold):
    """It would send its input under its self pad alone, whose seed all others give away."""
    liar = Liar(share_lists={VICTIM: ()})
    result = attack(liar, threshold)
    assert liar.sum_over([VICTIM], {VICTIM: ()}, threshold) is None
    assert refusals(liar) == [(2, VICTIM, TooFewSurvivorsError)]
    assert VICTIM not in liar.inputs
    # the others' round goes on without it
    assert result.status is mj.Status.OK
    plain = INPUTS[others(VICTIM)].sum(axis=0) % MODULUS
    assert result.total.tolist() == plain.tolist()


# --- what still works: a list of its own for each client, none below the threshold

FEW, REST = (0, 1, 2, 4, 5), (6, 7, 8, 9)


def own_lists_for_the_victim():
    """At t = 6: it pads with five others only, each of whom enough clients are told is lost."""
    lists = {i: {i, VICTIM, *REST} for i in FEW}
    lists |= {i: {VICTIM, FEW[k], *REST} for k, i in enumerate(REST)}
    lists[VICTIM] = {VICTIM, *FEW}
    return Liar(share_lists={VICTIM: FEW}, survivor_lists=lists)


def own_lists_for_a_part():
    """At t = 7: the sum over six, of whom everybody hears, with one of the four others."""
    part = set(range(6))
    lists = {i: {*part, 6 + i % 4} for i in range(6)}
    lists |= {i: {*part, i} for i in REST}
    return Liar(survivor_lists=lists), part


def test_own_lists_for_each_client_unmask_the_victim_all_the_same():
    liar = own_lists_for_the_victim()
    assert not mj.secagg.unmasking_risk(COMPLETE, 6).any()
    attack(liar, 6)
    assert not [entry for entry in liar.network.refusals if not entry.by_server]
    assert (liar.sum_over([VICTIM], {VICTIM: FEW}, 6) == INPUTS[VICTIM]).all()


def test_own_lists_for_each_client_unmask_sums_over_fewer_than_the_threshold():
    liar, part = own_lists_for_a_part()
    attack(liar, 7)
    found = liar.sum_over(part, {i: others(i) for i in part}, 7)
    assert len(part) < 7
    assert (found == INPUTS[sorted(part)].sum(axis=0) % MODULUS).all()


# --- the signed consistency check


FORWARDED = {
    # to whom which signatures: (signer's list, recipient's list, signer) -> whether;
    # the error
    "all": (lambda one, own, signer: True, UnexpectedMessageError),
    "those in its list": (lambda one, own, signer: signer in own, AuthenticationError),
    "those of its list": (lambda one, own, signer: one == own, TooFewSurvivorsError),
}


def take_any_signature(server, client, message):
    server._signatures[client] = message.signature


@pytest.mark.parametrize("forwards", FORWARDED)
@pytest.mark.parametrize("threshold", [6, 7])
def test_own_lists_for_each_client_find_too_few_signatures(
    threshold, forwards, monkeypatch
):
    """The lists that unmask without the check, by a server that checks nothing itself."""
    monkeypatch.setattr(
        mj.protocol._server.Server, "_take_signature", take_any_signature
    )
    liar = own_lists_for_the_victim() if threshold == 6 else own_lists_for_a_part()[0]
    told = liar.survivor_lists
    is_sent, error = FORWARDED[forwards]

    def forward(step, sender, recipient, message):
        if (step, sender) == (4, SERVER):
            found = SignatureList.from_bytes(message)
            kept = tuple(
                one
                for one in found.signatures
                if is_sent(told[one[0]], told[recipient], one[0])
            )
            return dataclasses.replace(found, signatures=kept).to_bytes()
        return liar(step, sender, recipient, message)

    liar.network = disturbed(tamper=forward)
    result = attack(liar, threshold, consistency=True)
    assert refusals(liar) == [(4, i, error) for i in range(N)]
    assert not liar.shares
    assert result.status is mj.Status.UNRELIABLE
    assert not result.total.any()


def test_the_server_takes_no_signature_of_another_list():
    liar = own_lists_for_the_victim()
    attack(liar, 6, consistency=True)
    assert [(entry.step, type(entry.error)) for entry in liar.network.refusals] == [
        (3, AuthenticationError)
    ] * N
    assert not liar.shares


def signers(change, threshold=6):
    """Play a checked round whose lists of signatures are changed for client 0.

    Return its error.
    """

    def alter(step, sender, recipient, message):
        if (step, sender, recipient) == (4, SERVER, 0):
            found = SignatureList.from_bytes(message)
            return change(found).to_bytes()
        return message

    network = disturbed(tamper=alter)
    result = run(
        INPUTS,
        COMPLETE,
        EVERYBODY,
        threshold,
        modulus=MODULUS,
        entropy=0,
        network=network,
        consistency=True,
    )
    errors = [
        (entry.step, entry.client, type(entry.error)) for entry in network.refusals
    ]
    return result, errors


@pytest.mark.long
def test_a_client_wants_its_threshold_of_valid_signatures():
    def first(count):
        return lambda found: dataclasses.replace(
            found, signatures=found.signatures[:count]
        )

    def spoilt(found):
        (one, signature), *rest = found.signatures
        signature = signature[:9] + bytes([signature[9] ^ 1]) + signature[10:]
        return dataclasses.replace(found, signatures=((one, signature), *rest))

    def borrowed(found):
        (one, signature), (two, _), *rest = found.signatures
        return dataclasses.replace(
            found, signatures=((one, signature), (two, signature), *rest)
        )

    def other_round(found):
        return dataclasses.replace(found, round_index=1)

    cases = [
        (first(5), None),
        (first(4), TooFewSurvivorsError),
        (spoilt, AuthenticationError),
        (borrowed, AuthenticationError),
        (other_round, UnexpectedMessageError),
    ]
    for change, error in cases:
        result, errors = signers(change)
        assert errors == ([] if error is None else [(4, 0, error)])
        assert result.transcript.survivors[4].tolist() == [error is None] + [True] * 9
        assert result.status is mj.Status.OK
        assert result.total.tolist() == (INPUTS.sum(axis=0) % MODULUS).tolist()


@pytest.mark.smoke
def test_a_list_to_sign_names_everybody_whatever_it_counts():
    """0 and 1 are no neighbours.

    Without the check 0 must believe that 1 may be in their block.
    """
    halves = mj.secagg.segment_plan(
        [
            mj.secagg.Block(members, start, start + 1, 256)
            for members, start in (((0, 1), 0), ((2, 3), 0), ((0, 1, 2, 3), 1))
        ],
        4,
        2,
    )
    graph = ~np.eye(4, dtype=bool)
    graph[0, 1] = graph[1, 0] = False

    def lie(step, sender, recipient, message):
        if (step, sender, recipient) == (3, SERVER, 0):
            return SurvivorList(0, 4, (0, 2, 3)).to_bytes()
        return message

    for consistency, errors in ((False, []), (True, [(3, 0, TooFewSurvivorsError)])):
        network = disturbed(tamper=lie)
        run(
            np.ones((4, 2), int),
            graph,
            np.ones((5, 4), bool),
            2,
            plan=halves,
            entropy=0,
            network=network,
            consistency=consistency,
        )
        assert [
            (one.step, one.client, type(one.error)) for one in network.refusals
        ] == errors


def test_a_client_without_a_signing_key_signs_nothing():
    plan = mj.secagg.complete_plan(N, DIM, MODULUS)
    client = Client(0, [1, 2], 2, INPUTS[0].astype(np.uint32), plan, entropy=0)
    client.advertise_keys()
    client._answers |= {1: (b"", b""), 2: (b"", b"")}
    with pytest.raises(
        UnexpectedMessageError, match="client 0 has no key to sign survivors with"
    ):
        client.sign_survivors(SurvivorList(0, 3, (0, 1, 2)).to_bytes())


@pytest.mark.long
def test_a_checked_round_gives_what_an_unchecked_one_does():
    """Over sparse graphs and losses.

    Shares are asked for as ever, and the steps are five.
    """
    rng = np.random.default_rng(3)
    for trial in range(12):
        n = int(rng.integers(2, 9))
        graph = np.triu(rng.random((n, n)) < 0.7, 1)
        graph |= graph.T
        alive = np.logical_and.accumulate(rng.random((5, n)) > 0.06, axis=0)
        limits = np.maximum((graph.sum(axis=1) + 1) // 2 + 1, 2)
        inputs = rng.integers(0, 256, (n, 3))
        plain, signed = (
            run(inputs, graph, alive, limits, 8, entropy=trial, consistency=consistency)
            for consistency in (False, True)
        )
        assert plain.status is signed.status
        assert plain.total.tolist() == signed.total.tolist()
        if plain.status is mj.Status.OK:
            assert (plain.transcript.survivors == signed.transcript.survivors).all()
        array = mj.secagg.aggregate(
            0, inputs, graph, alive, limits, 8, consistency=True, seeds=signed.seeds
        )
        assert array.status is signed.status
        assert (array.transcript.survivors == signed.transcript.survivors).all()
        rows = [
            [
                (step.name, step.num_clients, step.bytes_up, step.bytes_down)
                for step in result.steps
            ]
            for result in (array, signed)
        ]
        assert rows[0] == rows[1]
        assert [row[0] for row in rows[0]][3:] == ["check survivors", "unmask"]


@pytest.mark.smoke
def test_the_check_costs_what_is_counted_by_hand():
    """Four clients: 76 bytes up and 12 + 68 k down, with k neighbours who signed.

    Their keys are signed too: 64 bytes more up, and 64 more of each neighbour down.
    """
    graph = ~np.eye(4, dtype=bool)
    graph[0, 3] = graph[3, 0] = False
    alive = np.ones((5, 4), bool)
    plain = mj.secagg.round_costs(graph, alive, 2, 3, 256)
    costs = mj.secagg.round_costs(graph, alive, 2, 3, 256, signers=alive[4])
    assert costs.bytes_up[3].tolist() == [76] * 4
    assert costs.bytes_down[3].tolist() == [
        12 + 2 * 68,
        12 + 3 * 68,
        12 + 3 * 68,
        12 + 2 * 68,
    ]
    more = costs.bytes_down[2] - plain.bytes_down[2]
    assert more.tolist() == [4, 0, 0, 4]  # all four are named, to non-neighbours too
    made, checked = [1] * 4, [2, 3, 3, 2]
    assert costs.client.signatures.tolist() == [made, checked, [0] * 4, made, checked]
    assert costs.server.signatures.tolist() == [4, 0, 0, 4, 0]
    assert (costs.bytes_up[0] - plain.bytes_up[0]).tolist() == [64] * 4
    assert (costs.bytes_down[0] - plain.bytes_down[0]).tolist() == [
        64 * k for k in checked
    ]
    assert (costs.bytes_up[1:3] == plain.bytes_up[1:3]).all()
    rest = [0, 1, 2, 4]
    assert (costs.bytes_up[4] == plain.bytes_up[3]).all()
    assert costs.client.prg_words[rest].tolist() == plain.client.prg_words.tolist()
