"""Disturbed networks: messages late, twice, lost or altered, at every step and byte."""

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import Status
from mrsa_jax.protocol import run
from mrsa_jax.protocol._network import SERVER, Network, disturbed
from mrsa_jax.protocol.errors import (
    AuthenticationError,
    BothSecretsRequestedError,
    ForgedShareError,
    KeyAgreementError,
    MalformedMessageError,
    TooFewSurvivorsError,
    UnexpectedMessageError,
)
from mrsa_jax.protocol.messages import SurvivorList

N = 3
INPUTS = np.asarray([[1, 2, 3], [10, 20, 30], [100, 200, 7]])
COMPLETE = ~np.eye(N, dtype=bool)
EVERYBODY = np.ones((5, N), bool)


def play(network, survivors=EVERYBODY, threshold=2, modulus=256, entropy=0, **more):
    return run(
        INPUTS,
        COMPLETE,
        survivors,
        threshold,
        modulus=modulus,
        entropy=entropy,
        network=network,
        **more,
    )


def lost_at(step, client=1):
    survivors = EVERYBODY.copy()
    survivors[step + 1 :, client] = False
    return survivors


def names(network):
    return [
        (type(entry.error).__name__, entry.step, entry.client, entry.by_server)
        for entry in network.refusals
    ]


@pytest.mark.parametrize("entry", [(4, 0), (-1, 0), (0, -1)])
@pytest.mark.parametrize("argument", ["delayed", "duplicated"])
def test_scripts_are_checked(argument, entry):
    with pytest.raises(
        mj.ConfigurationError, match=rf"`{argument}` must hold \(step, client\)"
    ):
        disturbed(**{argument: [entry]})


def test_scripted_network_is_a_network():
    assert isinstance(disturbed(), Network)


@pytest.mark.smoke("3")
@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_late_message_counts_as_lost(step):
    network = disturbed(delayed=[(step, 1)])
    late, lost = play(network), play(None, lost_at(step))
    assert (late.transcript.survivors == lost_at(step)).all()
    assert (late.total == lost.total).all()
    assert late.status is lost.status is Status.OK
    assert (late.transcript.padded_inputs == lost.transcript.padded_inputs).all()
    assert network.refusals == []


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_copy_changes_nothing_but_the_bytes(step):
    network = disturbed(duplicated=[(step, 1)])
    twice, once = play(network), play(None)
    assert (twice.total == once.total).all()
    assert (twice.transcript.padded_inputs == once.transcript.padded_inputs).all()
    assert network.refusals == []
    up = [[report.bytes_up for report in result.steps] for result in (twice, once)]
    more = np.subtract(*up)
    assert (more > 0).tolist() == [k == step for k in range(4)]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_servers_message_twice_changes_nothing(step):
    def twice(_, sender, __, message):
        return [message, message] if sender == SERVER else message

    network = disturbed(tamper=twice)
    assert play(network).total.tolist() == play(None).total.tolist()
    assert network.refusals == []


@pytest.mark.parametrize("step", [0, 1, 2, 3])
@pytest.mark.parametrize("from_server", [False, True])
def test_a_message_that_vanishes_counts_as_lost(step, from_server):
    def swallow(at, sender, recipient, message):
        gone = at == step and (recipient if sender == SERVER else sender) == 1
        return [] if gone and (sender == SERVER) == from_server else message

    result = play(disturbed(tamper=swallow))
    # nothing is sent before
    expected = EVERYBODY if from_server and step == 0 else lost_at(step)
    assert (result.transcript.survivors == expected).all()
    assert result.status is Status.OK


def sniff(step, from_server):
    """Return the message of client 1 at a step, or the server's to it."""
    seen = []

    def look(at, sender, recipient, message):
        if at == step and (sender, recipient) == (
            (SERVER, 1) if from_server else (1, SERVER)
        ):
            seen.append(message)
        return message

    play(disturbed(tamper=look))
    return seen[0]


def altering(step, from_server, change):
    def alter(at, sender, recipient, message):
        here = at == step and (sender, recipient) == (
            (SERVER, 1) if from_server else (1, SERVER)
        )
        return change(message) if here else message

    return disturbed(tamper=alter)


DIRECTIONS = [
    (0, False),
    (1, True),
    (1, False),
    (2, True),
    (2, False),
    (3, True),
    (3, False),
]


@pytest.mark.long
@pytest.mark.parametrize(("step", "from_server"), DIRECTIONS)
def test_bytes_of_every_message_altered(step, from_server):
    """Whatever one flipped bit does, the sum is that over V3 exactly or is withheld.

    Except for the padded input itself, which nothing authenticates: the sum then moves
    by just that much. Channels to the server must be authenticated.
    """
    size = len(sniff(step, from_server))
    # ids, counts, keys, texts, tags and limbs are all met
    every = 1 if size < 30 else 7
    for at in range(0, size, every):
        bit = 1 << (at * 5 + step) % 8

        def flip(message, at=at, bit=bit):
            return message[:at] + bytes([message[at] ^ bit]) + message[at + 1 :]

        network = altering(step, from_server, flip)
        result = play(network)
        plain = INPUTS[result.transcript.survivors[3]].sum(axis=0) % 256
        if (step, from_server) == (2, False) and at >= 16:
            moved = np.zeros(3, int)
            moved[at - 16] = 1
            difference = (result.total.astype(int) - plain) % 256
            assert set(np.flatnonzero(difference)) == set(np.flatnonzero(moved))
            assert network.refusals == []
        elif result.status is Status.OK:
            assert result.total.tolist() == plain.tolist(), at
        else:
            assert result.total.tolist() == [0, 0, 0]
        if result.transcript.survivors.all() and result.status is Status.OK:
            # only what says the same in other bytes may go unseen
            harmless = (
                (step, from_server) == (2, False)
                # how many of 3 survive
                or ((step, from_server) == (3, True) and at in (2, 3))
                or (at + 1) % 32 == 12  # the top bit of a public key is not used
            )
            assert harmless, at


CASES = {
    # (step, from server?): altered how, who drops where, which error
    "keys cut off": (0, False, lambda m: m[:-1], 0, MalformedMessageError),
    "small order": (
        0,
        False,
        lambda m: m[:12] + bytes(32) + m[44:],
        0,
        KeyAgreementError,
    ),
    "other sender": (
        0,
        False,
        lambda m: m[:8] + bytes(4) + m[12:],
        0,
        UnexpectedMessageError,
    ),
    "other round": (
        0,
        False,
        lambda m: m[:4] + b"\x01" + m[5:],
        0,
        UnexpectedMessageError,
    ),
    "key list cut off": (1, True, lambda m: m[:-3], 1, MalformedMessageError),
    "key list of small order": (
        1,
        True,
        lambda m: m[:16] + bytes(32) + m[48:],
        1,
        KeyAgreementError,
    ),
    "shares for a stranger": (
        1,
        False,
        lambda m: m[:16] + b"\x01" + m[17:],
        1,
        UnexpectedMessageError,
    ),
    "fewer shares": (
        1,
        False,
        lambda m: m[:12] + b"\x01" + m[13 : 16 + 92],
        1,
        UnexpectedMessageError,
    ),
    "share list altered": (
        2,
        True,
        lambda m: m[:40] + bytes([m[40] ^ 4]) + m[41:],
        2,
        AuthenticationError,
    ),
    "share list swapped": (
        2,
        True,
        lambda m: m[:16] + m[108:196] + m[104:108] + m[16:104],
        2,
        AuthenticationError,
    ),
    "input cut off": (2, False, lambda m: m[:-1], 2, MalformedMessageError),
    "alone": (
        3,
        True,
        lambda m: SurvivorList(0, 1, (1,)).to_bytes(),
        3,
        TooFewSurvivorsError,
    ),
    "not listed": (
        3,
        True,
        lambda m: SurvivorList(0, 2, (0, 2)).to_bytes(),
        3,
        UnexpectedMessageError,
    ),
    "false dropout": (
        3,
        True,
        lambda m: SurvivorList(0, 2, (0, 1)).to_bytes(),
        3,
        # the server refuses the share it did not ask for
        UnexpectedMessageError,
    ),
    "limb outside the field": (
        3,
        False,
        lambda m: m[:24] + b"\xff" * 4 + m[28:],
        3,
        MalformedMessageError,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_altered_messages_drop_their_client(case):
    step, from_server, change, dropped_at, error = CASES[case]
    network = altering(step, from_server, change)
    result = play(network)
    assert (result.transcript.survivors == lost_at(dropped_at)).all()
    assert result.status is Status.OK
    plain = INPUTS[lost_at(dropped_at)[3]].sum(axis=0) % 256
    assert result.total.tolist() == plain.tolist()
    ((at, client, by_server, found),) = network.refusals
    assert (at, client, type(found)) == (dropped_at, 1, error)
    assert by_server == (not from_server or case == "false dropout")


@pytest.mark.parametrize("which", [0, 1])
def test_an_altered_public_key_ends_the_round_before_any_input_leaves(which):
    at = 12 + 32 * which
    network = altering(0, False, lambda m: m[:at] + bytes([m[at] ^ 1]) + m[at + 1 :])
    result = play(network)
    assert result.status is Status.TOO_FEW_SURVIVORS
    assert names(network) == [("AuthenticationError", 2, i, False) for i in range(3)]
    assert not result.transcript.padded_inputs.any()


def test_a_redirected_ciphertext_is_refused():
    """The server's message for one client is handed to another."""
    kept = {}

    def swap(step, sender, recipient, message):
        if step == 2 and sender == SERVER:
            kept[recipient] = message
            return kept.get(0, message)
        return message

    network = disturbed(tamper=swap)
    result = play(network)
    assert result.transcript.survivors[3].tolist() == [True, False, False]
    assert result.status is Status.TOO_FEW_SURVIVORS
    errors = {type(entry.error) for entry in network.refusals if entry.step == 2}
    assert errors == {UnexpectedMessageError}  # 1 and 2 are among the senders to 0
    assert [entry.step for entry in network.refusals] == [2, 2, 3]


def test_a_server_that_asks_twice_is_refused():
    """The network adds a request that calls client 2 lost.

    Nobody hands out its second secret.
    """

    def ask_again(step, sender, recipient, message):
        if step == 3 and sender == SERVER and recipient != 2:
            return [message, SurvivorList(0, 2, (0, 1)).to_bytes()]
        return message

    network = disturbed(tamper=ask_again)
    result = play(network)
    assert [(entry.client, type(entry.error)) for entry in network.refusals] == [
        (0, BothSecretsRequestedError),
        (1, BothSecretsRequestedError),
    ]
    assert result.total.tolist() == (INPUTS.sum(axis=0) % 256).tolist()


def test_the_first_of_two_different_messages_counts():
    def again(step, sender, _, message):
        if step == 2 and sender == 1:
            return [message, message[:-1] + bytes([message[-1] ^ 1])]
        return message

    network = disturbed(tamper=again)
    assert play(network).total.tolist() == (INPUTS.sum(axis=0) % 256).tolist()
    assert names(network) == [("UnexpectedMessageError", 2, 1, True)]


def replay(network_step, old):
    """Send client 1's message of an old round instead."""
    return altering(network_step, False, lambda _: old[network_step])


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_messages_of_another_round_are_refused(step):
    old = {}

    def keep(at, sender, _, message):
        if sender == 1:
            old[at] = message
        return message

    play(disturbed(tamper=keep))
    network = replay(step, old)
    result = play(network, round_index=1)
    assert (result.transcript.survivors == lost_at(step)).all()
    assert names(network) == [("UnexpectedMessageError", step, 1, True)]


def forge(owner_at, limb_at=1):
    """Add 1 to a limb of the share of one owner in client 1's answer."""

    def change(message):
        at = 20 + 40 * owner_at + 4 + 4 * limb_at
        limb = int.from_bytes(message[at : at + 4], "little")
        return (
            message[:at]
            + ((limb + 1) % (2**31 - 1)).to_bytes(4, "little")
            + message[at + 4 :]
        )

    return altering(3, False, change)


def servers_kept(monkeypatch):
    servers = []

    class Kept(mj.protocol.Server):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            servers.append(self)

    monkeypatch.setattr(mj.protocol._run, "Server", Kept)
    return servers


@pytest.mark.parametrize("owner", [0, 1, 2])
def test_a_forged_share_of_a_self_seed_is_found_if_more_than_t_came(owner, monkeypatch):
    servers = servers_kept(monkeypatch)
    result = play(forge(owner))
    assert result.status is Status.UNRELIABLE
    assert result.total.tolist() == [0, 0, 0]
    assert result.learned.shape == (0, 3)
    (error,) = servers[0].rejected
    assert isinstance(error, ForgedShareError)
    assert "lie on no polynomial" in str(error)
    assert result.transcript.is_informative.tolist() == [i != owner for i in range(3)]


def test_a_forged_share_of_a_key_is_found_even_with_exactly_t(monkeypatch):
    servers = servers_kept(monkeypatch)
    # shares of 0, 1 and, of the key, of 2
    result = play(forge(2), lost_at(2, client=2))
    assert result.status is Status.UNRELIABLE
    (error,) = servers[0].rejected
    assert "never advertised" in str(error) or "256-bit" in str(error)


def test_a_forgery_that_moves_only_what_clamping_clears_is_harmless():
    """The three low bits of a secret key are never used: the same pads come off.

    The key becomes less by one, which moves no other bit unless those three are 0: one
    in eight.
    """
    results = [
        play(forge(2, limb_at=0), lost_at(2, client=2), entropy=k) for k in range(6)
    ]
    good = [result for result in results if result.status is Status.OK]
    assert len(good) >= 2  # else by a chance of 2e-4, drawn once for all
    for result in good:
        assert result.total.tolist() == INPUTS[:2].sum(axis=0).tolist()


def test_forgery_of_exactly_t_self_seed_shares_goes_unseen():
    """The known limit: no public value tells a self seed, so the sum is wrong."""
    result = play(forge(0), threshold=3)
    plain = INPUTS.sum(axis=0) % 256
    assert result.status is Status.UNRELIABLE or result.total.tolist() != plain.tolist()
