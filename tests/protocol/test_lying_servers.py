"""Servers that lie about who is there: two attacks that clients' floors end, and what still works.

Each attack computes the victim's input from nothing but what clients sent: their padded inputs,
the shares that they handed out, and the public keys.
"""

import dataclasses
import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import mrsa_jax as mj
from mrsa_jax.protocol import (
    SERVER,
    AdvertiseKeys,
    MaskedInput,
    ShareList,
    SurvivorList,
    TooFewSurvivorsError,
    UnmaskShares,
    disturbed,
    recover,
    run,
)
from mrsa_jax.protocol._primitives import KeyPair, pad_seed

N, DIM, MODULUS, VICTIM = 10, 5, 2**16, 3
COMPLETE = ~np.eye(N, dtype=bool)
EVERYBODY = np.ones((5, N), bool)
INPUTS = np.random.default_rng(0).integers(0, MODULUS, (N, DIM))


class Liar:
    """A server's network: it keeps all that clients send, and changes what it sends to them."""

    def __init__(self, share_lists=None, survivor_lists=None):
        self._share_lists = share_lists or {}  # client -> those whose shares it is sent
        self._survivor_lists = survivor_lists or {}  # client -> those it is told to be in the sum
        self.keys, self.inputs, self.shares = {}, {}, {}
        self.network = disturbed(tamper=self)

    def __call__(self, step, sender, recipient, message):
        if sender == SERVER:
            return self._lie(step, recipient, message)
        if step == 0:
            self.keys[sender] = AdvertiseKeys.from_bytes(message).pad_key
        elif step == 2:
            found = MaskedInput.from_bytes(message, ((DIM, MODULUS),))
            self.inputs[sender] = found.residues.astype(int)
        elif step == 3:
            answer = UnmaskShares.from_bytes(message)
            for kind, shares in (("self", answer.self_shares), ("key", answer.key_shares)):
                for owner, share in shares:
                    self.shares.setdefault((kind, owner), {})[sender] = share
        return message

    def _lie(self, step, recipient, message):
        if step == 2 and recipient in self._share_lists:
            found = ShareList.from_bytes(message)
            kept = self._share_lists[recipient]
            entries = tuple(entry for entry in found.ciphertexts if entry[0] in kept)
            return dataclasses.replace(found, ciphertexts=entries).to_bytes()
        if step == 3 and recipient in self._survivor_lists:
            found = SurvivorList.from_bytes(message)
            told = tuple(sorted(self._survivor_lists[recipient]))
            return dataclasses.replace(found, survivors=told).to_bytes()
        return message

    def secret(self, kind, owner, threshold):
        """Return a secret of which enough shares came, or None."""
        found = sorted(self.shares.get((kind, owner), {}).items())
        if len(found) < threshold:
            return None
        limbs = np.stack([np.frombuffer(share, "<u4").astype(np.uint32) for _, share in found])
        return recover([holder + 1 for holder, _ in found], limbs, threshold)

    def sum_over(self, members, padded_with, threshold):
        """Return what the members' inputs add up to, or None where a pad cannot be removed.

        `padded_with` says with whom each member shares pads, as its list of shares had it.
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
    stream = Cipher(algorithms.ChaCha20(seed, struct.pack("<4L", 0, label, 0, 0)), mode=None)
    return np.frombuffer(stream.encryptor().update(bytes(4 * DIM)), "<u4").astype(int) % MODULUS


def attack(liar, threshold, **options):
    return run(INPUTS, COMPLETE, EVERYBODY, threshold, modulus=MODULUS, entropy=0,
               network=liar.network, **options)  # fmt: skip


def others(i):
    return [j for j in range(N) if j != i]


def refusals(liar):
    return [(entry.step, entry.client, type(entry.error)) for entry in liar.network.refusals
            if not entry.by_server]  # fmt: skip


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
