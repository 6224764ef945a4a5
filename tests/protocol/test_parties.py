"""Client and server by hand: what each refuses, what duplicates do, what each knows."""

import dataclasses
import re

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.protocol import Client, Server, recover
from mrsa_jax.protocol.errors import (
    AuthenticationError,
    BothSecretsRequestedError,
    KeyAgreementError,
    MalformedMessageError,
    TooFewSurvivorsError,
    UnexpectedMessageError,
)
from mrsa_jax.protocol.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareList,
    SurvivorList,
    UnmaskShares,
)
from mrsa_jax.secagg import Block, Seeds, complete_plan, pad_inputs, segment_plan

ShareKeys = mj.protocol.messages.ShareKeys
N, DIM, MODULUS = 4, 6, 2**8
PLAN = complete_plan(N, DIM, MODULUS)
COMPLETE = ~np.eye(N, dtype=bool)
VALUES = (np.arange(N * DIM, dtype=np.uint32).reshape(N, DIM) * 37) % 256


def parties(graph=COMPLETE, threshold=2, round_index=3, plan=PLAN, values=VALUES):
    clients = [
        Client(
            i,
            np.flatnonzero(row).tolist(),
            threshold,
            values[i],
            plan,
            round_index,
            entropy=i,
        )
        for i, row in enumerate(graph)
    ]
    thresholds = np.full(len(graph), threshold)
    own = complete_plan(len(graph), values.shape[1], MODULUS) if plan is PLAN else plan
    server = Server(graph, thresholds, np.ones(len(graph), bool), own, round_index)
    return clients, server


def play(clients, server, steps):
    """Play so many steps without losses; return the server's last messages."""
    mail = {client.client: b"" for client in clients}
    for step in range(steps):
        for i, message in mail.items():
            server.receive(i, answer(clients[i], step, message))
        mail = (
            server.advertise_keys,
            server.share_keys,
            server.masked_input,
            server.unmask,
        )[step]()
    return mail


def answer(client, step, message):
    if step == 0:
        return client.advertise_keys()
    return (client.share_keys, client.masked_input, client.unmask)[step - 1](message)


READERS = (None, KeyList, ShareList, SurvivorList)


# --- misuse


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, [1], 1), "`client` must lie in"),
        # its point would be 0 in the field
        ((2**31 - 2, [1], 1), "`client` must lie in"),
        ((0, [1, 1], 1), "`neighbours` must be other clients, each once"),
        ((0, [0, 1], 1), "`neighbours` must be other clients, each once"),
        ((0, [1], 0), "`threshold` must be at least 1; got 0"),
    ],
)
def test_client_refuses_arguments(arguments, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        Client(*arguments, VALUES[0], PLAN)


def test_server_takes_plans_of_everybody():
    some = segment_plan([Block((0, 1), 0, 3, 8)], 3, 3)
    for plan, message in (
        (some, "`plan` must put each client into a block; got 'client 2 in none'"),
        ((), "`plan` must be a tuple of `Block`s"),
        (
            (Block((0, 1, 3), 0, 3, 8), Block((2,), 0, 3, 8)),
            r"`members` must lie in \[0, num_par",
        ),
    ):
        with pytest.raises(mj.ConfigurationError, match=message):
            Server(~np.eye(3, dtype=bool), np.ones(3, int), np.ones(3, bool), plan)


# --- what a client refuses


def test_clients_answer_in_order():
    client = parties()[0][0]
    for act in (client.share_keys, client.masked_input, client.unmask):
        with pytest.raises(
            UnexpectedMessageError, match=r"client 0 is at step 0, not [123]"
        ):
            act(b"")
    client.advertise_keys()
    with pytest.raises(UnexpectedMessageError, match="is at step 1, not 2"):
        client.masked_input(b"")


@pytest.mark.parametrize("step", [1, 2, 3])
def test_client_refuses_malformed_messages_and_goes_on(step):
    clients, server = parties()
    mail = play(clients, server, step)
    bad = [mail[0][:-1], mail[0] + b"\0", b"", b"\xff" * 40, bytes([7]) + mail[0][1:]]
    for message in bad:
        with pytest.raises(MalformedMessageError):
            answer(clients[0], step, message)
    answer(clients[0], step, mail[0])  # nothing was lost by it


@pytest.mark.parametrize("step", [1, 2, 3])
def test_client_refuses_another_round(step):
    clients, server = parties()
    mail = play(clients, server, step)
    other = dataclasses.replace(
        READERS[step].from_bytes(mail[0]), round_index=4
    ).to_bytes()
    with pytest.raises(UnexpectedMessageError, match="client 0 is in round 3, not 4"):
        answer(clients[0], step, other)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_client_repeats_its_answer_and_refuses_a_second_message(step):
    clients, server = parties()
    mail = play(clients, server, step)
    first = answer(clients[0], step, mail[0])
    assert answer(clients[0], step, mail[0]) == first
    message = READERS[step].from_bytes(mail[0])
    if step == 3:
        second = dataclasses.replace(message, num_survivors=5)
    else:
        field = "keys" if step == 1 else "ciphertexts"
        second = dataclasses.replace(message, **{field: getattr(message, field)[:-1]})
    with pytest.raises(UnexpectedMessageError, match="second, different message"):
        answer(clients[0], step, second.to_bytes())


def test_client_refuses_strangers():
    line = np.zeros((4, 4), bool)
    for i, j in ((0, 1), (1, 2), (2, 3)):
        line[i, j] = line[j, i] = True
    clients, server = parties(line)
    mail = play(clients, server, 1)
    stranger = KeyList.from_bytes(mail[2]).keys[1]
    keys = dataclasses.replace(KeyList.from_bytes(mail[0]), keys=(stranger,))
    with pytest.raises(
        UnexpectedMessageError, match=r"was sent keys of \[3\], unknown to it"
    ):
        clients[0].share_keys(keys.to_bytes())
    clients, server = parties(line)
    mail = play(clients, server, 2)
    shares = dataclasses.replace(
        ShareList.from_bytes(mail[0]),
        ciphertexts=ShareList.from_bytes(mail[3]).ciphertexts,
    )
    with pytest.raises(UnexpectedMessageError, match=r"was sent shares of \[2\]"):
        clients[0].masked_input(shares.to_bytes())
    mail = {i: answer(clients[i], 2, mail[i]) for i in mail}
    for survivors, message in (
        ((0, 3), r"of \[3\], unknown"),
        ((1,), "a sum without it"),
    ):
        with pytest.raises(UnexpectedMessageError, match=message):
            clients[0].unmask(SurvivorList(3, 4, survivors).to_bytes())


def test_client_refuses_a_key_that_comes_twice():
    clients, server = parties()
    key_list = KeyList.from_bytes(play(clients, server, 1)[0])
    (one, first), (two, _), third = key_list.keys
    own = AdvertiseKeys.from_bytes(clients[0].advertise_keys())
    for both in (first, own.channel_key + bytes(range(32)), bytes(range(32)) * 2):
        keys = ((one, first), (two, both), third)
        with pytest.raises(
            UnexpectedMessageError, match="was sent one public key twice"
        ):
            clients[0].share_keys(dataclasses.replace(key_list, keys=keys).to_bytes())


def test_client_leaves_over_a_key_of_small_order():
    clients, server = parties()
    key_list = KeyList.from_bytes(play(clients, server, 1)[0])
    (one, first), *rest = key_list.keys
    bad = dataclasses.replace(key_list, keys=((one, bytes(32) + first[32:]), *rest))
    with pytest.raises(KeyAgreementError, match="small order"):
        clients[0].share_keys(bad.to_bytes())
    with pytest.raises(UnexpectedMessageError, match="client 0 has left the round"):
        clients[0].share_keys(key_list.to_bytes())


def tampered_share_list(kind, mail):
    """One way to spoil what client 0 is sent at step 1."""
    share_list = ShareList.from_bytes(mail[0])
    (one, first), (two, second), (three, third) = share_list.ciphertexts
    flipped = first[:50] + bytes([first[50] ^ 1]) + first[51:]
    meant_for_2 = dict(ShareList.from_bytes(mail[2]).ciphertexts)[1]
    entries = {
        "altered": ((one, flipped), (two, second), (three, third)),
        "swapped senders": ((one, second), (two, first), (three, third)),
        "meant for another": ((one, meant_for_2), (two, second), (three, third)),
        "tag removed": ((one, first[:72] + bytes(16)), (two, second), (three, third)),
    }[kind]
    return dataclasses.replace(share_list, ciphertexts=entries).to_bytes()


@pytest.mark.parametrize(
    "kind", ["altered", "swapped senders", "meant for another", "tag removed"]
)
def test_client_leaves_over_a_spoilt_ciphertext(kind):
    clients, server = parties()
    mail = play(clients, server, 2)
    with pytest.raises(AuthenticationError):
        clients[0].masked_input(tampered_share_list(kind, mail))
    with pytest.raises(UnexpectedMessageError, match="client 0 has left the round"):
        clients[0].masked_input(mail[0])


def test_ciphertexts_of_another_round_or_direction_fail():
    (clients, server), (old_clients, old_server) = parties(), parties(round_index=2)
    for i in range(N):  # even if all key pairs were the same
        old_clients[i]._entropy = mj.protocol._primitives.Entropy(i)
        clients[i]._entropy = mj.protocol._primitives.Entropy(i)
    mail, old = play(clients, server, 2), play(old_clients, old_server, 2)
    assert clients[0]._channel.public_key == old_clients[0]._channel.public_key
    replayed = dataclasses.replace(ShareList.from_bytes(old[0]), round_index=3)
    assert replayed.to_bytes() != mail[0]
    with pytest.raises(AuthenticationError):
        clients[0].masked_input(replayed.to_bytes())
    sent = dict(ShareKeys.from_bytes(clients[1]._answers[1][1]).ciphertexts)
    share_list = ShareList.from_bytes(mail[1])
    reflected = tuple(
        (j, sent[j] if j == 0 else text) for j, text in share_list.ciphertexts
    )
    with pytest.raises(AuthenticationError):
        clients[1].masked_input(
            dataclasses.replace(share_list, ciphertexts=reflected).to_bytes()
        )


@pytest.mark.parametrize("which", [0, 1])
def test_a_public_key_altered_on_its_way_is_noticed_before_any_input_leaves(which):
    """Even the pad key, which takes no part in the encryption."""
    clients, server = parties()
    fake = mj.protocol._primitives.KeyPair(bytes(range(32))).public_key
    for i in range(N):
        message = clients[i].advertise_keys()
        if i == 1:
            at = 12 + 32 * which
            message = message[:at] + fake + message[at + 32 :]
        server.receive(i, message)
    mail = server.advertise_keys()
    for i in range(N):
        server.receive(i, clients[i].share_keys(mail[i]))
    mail = server.share_keys()
    for i in range(N):  # 1 notices through everybody, everybody through 1
        with pytest.raises(AuthenticationError):
            clients[i].masked_input(mail[i])


def test_asking_for_both_secrets_of_a_client_is_refused():
    clients, server = parties()
    mail = play(clients, server, 3)
    first = clients[0].unmask(mail[0])
    assert [j for j, _ in UnmaskShares.from_bytes(first).self_shares] == [0, 1, 2, 3]
    with pytest.raises(BothSecretsRequestedError, match=r"both secrets of \[2\]"):
        clients[0].unmask(SurvivorList(3, 3, (0, 1, 3)).to_bytes())
    assert clients[0].unmask(mail[0]) == first
    # the other way round: first the key of 2 as lost, then b_2 as survivor
    lost = UnmaskShares.from_bytes(
        clients[1].unmask(SurvivorList(3, 3, (0, 1, 3)).to_bytes())
    )
    assert [j for j, _ in lost.key_shares] == [2]
    with pytest.raises(BothSecretsRequestedError, match=r"both secrets of \[2\]"):
        clients[1].unmask(mail[1])


def test_one_request_cannot_name_a_client_twice():
    clients, server = parties()
    play(clients, server, 3)
    words = np.asarray([4, 0, 1, 1, 3], "<u4").tobytes()
    with pytest.raises(MalformedMessageError, match="not ascending"):
        clients[0].unmask(bytes.fromhex("06 01 0400 03000000") + words)


@pytest.mark.parametrize("count", [0, 1])
def test_client_refuses_to_unmask_itself_alone(count):
    clients, server = parties()
    play(clients, server, 3)
    request = SurvivorList(3, 1, (0,)).to_bytes()
    request = request[:2] + bytes([count]) + request[3:]
    error = TooFewSurvivorsError if count else MalformedMessageError
    with pytest.raises(error):
        clients[0].unmask(request)
    # nothing had been handed out
    clients[0].unmask(SurvivorList(3, 2, (0, 1)).to_bytes())


@pytest.mark.parametrize("threshold", [3, 4])
def test_client_refuses_lists_below_its_threshold(threshold):
    """Of shares before it sends its input, and of survivors before it unmasks."""
    clients, server = parties(threshold=threshold)
    shares = ShareList.from_bytes(play(clients, server, 2)[0])
    refusal = (
        rf"learns that {threshold - 1} of it .* fewer than its threshold of {threshold}"
    )
    few, enough = (
        dataclasses.replace(shares, ciphertexts=shares.ciphertexts[:others]).to_bytes()
        for others in (threshold - 2, threshold - 1)
    )
    with pytest.raises(TooFewSurvivorsError, match=refusal):
        clients[0].masked_input(few)
    clients[0].masked_input(enough)
    for count in (threshold - 1, N):  # whatever is said of others
        request = SurvivorList(3, count, tuple(range(threshold - 1)))
        with pytest.raises(TooFewSurvivorsError, match=refusal):
            clients[0].unmask(request.to_bytes())
    clients[0].unmask(SurvivorList(3, threshold, tuple(range(threshold))).to_bytes())


HALVES = segment_plan(
    [
        Block((0, 1), 0, 3, MODULUS),
        Block((2, 3), 0, 3, MODULUS),
        Block((0, 1, 2, 3), 3, 6, MODULUS),
    ],
    N,
    DIM,
)


def test_client_refuses_to_be_alone_in_one_of_its_blocks():
    """Three clients are in the sum, none of them but 0 itself in its first block."""
    clients, server = parties(plan=HALVES)
    play(clients, server, 3)
    with pytest.raises(
        TooFewSurvivorsError, match=r"client 0 is asked to .* alone in block 0"
    ):
        clients[0].unmask(SurvivorList(3, 3, (0, 2, 3)).to_bytes())
    # nothing had been handed out
    clients[0].unmask(SurvivorList(3, 3, (0, 1, 2)).to_bytes())
    with pytest.raises(
        TooFewSurvivorsError, match=r"client 2 is asked to .* alone in block 1"
    ):
        clients[2].unmask(SurvivorList(3, 3, (0, 1, 2)).to_bytes())


def test_client_sees_only_its_neighbours():
    """0 is joined to 2 and 3 and cannot know whether 1 is summed, unless too few are in all."""
    graph = COMPLETE.copy()
    graph[0, 1] = graph[1, 0] = False
    for count, is_refused in ((3, True), (4, False), (65535, False)):
        clients, server = parties(graph, plan=HALVES)
        play(clients, server, 3)
        request = SurvivorList(3, count, (0, 2, 3)).to_bytes()
        if is_refused:
            with pytest.raises(TooFewSurvivorsError, match="alone in block 0"):
                clients[0].unmask(request)
        else:
            clients[0].unmask(request)
    clients, server = parties()  # one block of all: its neighbours are everybody
    play(clients, server, 3)
    with pytest.raises(
        TooFewSurvivorsError, match=r"client 0 is asked to .* alone in block 0"
    ):
        clients[0].unmask(SurvivorList(3, 2, (0,)).to_bytes())


# --- what the server refuses


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_server_refuses_what_does_not_belong_and_goes_on(step):
    clients, server = parties()
    mail = play(clients, server, step) or dict.fromkeys(range(N), b"")
    good = {i: answer(clients[i], step, mail[i]) for i in range(N)}
    cases = [
        (0, good[1], UnexpectedMessageError, "client 0 writes as client 1"),
        (0, b"", MalformedMessageError, "cut off"),
        (0, good[0][:-1], MalformedMessageError, "cut off"),
        (0, good[0] + b"\0", MalformedMessageError, "too many"),
        (N, good[0], UnexpectedMessageError, f"client {N} is not in V{step}"),
        (-1, good[0], UnexpectedMessageError, f"client -1 is not in V{step}"),
        (
            0,
            good[0][:4] + b"\x09" + good[0][5:],
            UnexpectedMessageError,
            "in round 9, not 3",
        ),
        (
            0,
            KeyList(3, ()).to_bytes(),
            UnexpectedMessageError,
            "a message of the server",
        ),
    ]
    if step < 3:
        later = (
            ShareKeys(3, 0, ()),
            MaskedInput(3, 0, ((DIM, MODULUS),), VALUES[0]),
            UnmaskShares(3, 0, (), ()),
        )[step]
        cases.append(
            (0, later.to_bytes(), UnexpectedMessageError, f"is at step {step + 1}, not")
        )
    for client, message, error, text in cases:
        with pytest.raises(error, match=re.escape(text)):
            server.receive(client, message)
    assert server.receive(0, good[0])
    assert not server.receive(0, good[0])  # a copy
    changed = good[0][:-1] + bytes([good[0][-1] ^ 1])
    with pytest.raises(UnexpectedMessageError, match="two different messages"):
        server.receive(0, changed)


def test_server_ignores_what_comes_late():
    clients, server = parties()
    for i in range(1, N):
        server.receive(i, clients[i].advertise_keys())
    server.advertise_keys()
    assert not server.receive(0, clients[0].advertise_keys())
    assert server.survivors[1].tolist() == [False, True, True, True]
    with pytest.raises(UnexpectedMessageError, match="client 0 is not in V1"):
        server.receive(0, ShareKeys(3, 0, ()).to_bytes())


def test_server_closes_steps_in_order():
    server = parties()[1]
    for close in (server.share_keys, server.masked_input, server.unmask):
        with pytest.raises(UnexpectedMessageError, match="step 0 is open, not"):
            close()


def test_server_refuses_keys():
    clients, server = parties()
    server.receive(0, clients[0].advertise_keys())
    taken = AdvertiseKeys.from_bytes(clients[0].advertise_keys())
    own = AdvertiseKeys.from_bytes(clients[1].advertise_keys())
    copies = [
        dataclasses.replace(own, pad_key=taken.channel_key),
        dataclasses.replace(own, pad_key=own.channel_key),
    ]
    for message in copies:
        with pytest.raises(
            UnexpectedMessageError, match="client 1 repeats a public key"
        ):
            server.receive(1, message.to_bytes())
    for field in ("channel_key", "pad_key"):
        bad = dataclasses.replace(own, **{field: bytes(32)})
        with pytest.raises(KeyAgreementError, match="small order"):
            server.receive(1, bad.to_bytes())
    assert server.receive(1, own.to_bytes())


@pytest.mark.smoke
def test_server_wants_exactly_the_entries_that_it_should_get():
    clients, server = parties()
    mail = play(clients, server, 1)
    shares = ShareKeys.from_bytes(clients[0].share_keys(mail[0]))
    for entries in (shares.ciphertexts[:-1], (), ((0, bytes(88)), *shares.ciphertexts)):
        with pytest.raises(
            UnexpectedMessageError, match="does not send the entries it should"
        ):
            server.receive(
                0, dataclasses.replace(shares, ciphertexts=entries).to_bytes()
            )
    clients, server = parties()
    mail = play(clients, server, 2)
    for i in range(N - 1):
        server.receive(i, clients[i].masked_input(mail[i]))
    mail = server.masked_input()
    good = UnmaskShares.from_bytes(clients[0].unmask(mail[0]))
    assert [j for j, _ in good.key_shares] == [3]
    bad = [
        dataclasses.replace(good, self_shares=good.self_shares[1:]),
        dataclasses.replace(good, key_shares=()),
        dataclasses.replace(
            good, key_shares=good.self_shares[1:2], self_shares=good.self_shares
        ),
    ]
    for message in bad:
        with pytest.raises(
            UnexpectedMessageError, match="does not send the entries it should"
        ):
            server.receive(0, message.to_bytes())


def test_server_counts_as_lost_who_would_be_alone_in_a_block():
    """3 is lost before its input.

    2 is told that it is alone, and its shares are not taken.
    """
    clients, server = parties(plan=HALVES)
    mail = play(clients, server, 2)
    for i in range(3):
        server.receive(i, clients[i].masked_input(mail[i]))
    mail = server.masked_input()
    lists = {i: SurvivorList.from_bytes(message) for i, message in mail.items()}
    assert server.summed.tolist() == [True, True, False, False]
    assert server.survivors[3].tolist() == [True, True, True, False]
    assert {
        i: (found.num_survivors, found.survivors) for i, found in lists.items()
    } == {
        0: (2, (0, 1)),
        1: (2, (0, 1)),
        2: (1, (2,)),
    }
    with pytest.raises(TooFewSurvivorsError, match="sum over 1 client"):
        clients[2].unmask(mail[2])
    answers = {i: UnmaskShares.from_bytes(clients[i].unmask(mail[i])) for i in (0, 1)}
    for found in answers.values():  # b_2 never comes, s_2^SK does
        assert [j for j, _ in found.self_shares] == [0, 1]
        assert [j for j, _ in found.key_shares] == [2, 3]
    with pytest.raises(UnexpectedMessageError, match="client 2 counts as lost"):
        server.receive(2, UnmaskShares(3, 2, (), ()).to_bytes())
    for i, found in answers.items():
        assert server.receive(i, found.to_bytes())
    assert server.unmask() is mj.Status.OK
    assert server.padded_inputs[2].any()
    wanted = (VALUES[0] + VALUES[1]) % MODULUS
    assert server.totals[0].tolist() == wanted[:3].tolist()
    assert server.totals[1].tolist() == [0, 0, 0]
    assert server.totals[2].tolist() == wanted[3:].tolist()


def test_server_reads_an_input_block_by_block():
    plan = segment_plan(
        [
            Block((0, 1), 0, 2, 37),
            Block((2, 3), 1, 3, 2**9),
            Block((0, 1, 2, 3), 3, 6, 8),
        ],
        N,
        DIM,
    )
    values = np.zeros((N, DIM), np.uint32)
    clients, server = parties(plan=plan, values=values)
    mail = play(clients, server, 2)
    message = clients[0].masked_input(mail[0])
    # 12 + 9 bits, not 18 + 9
    with pytest.raises(MalformedMessageError, match="cut off"):
        server.receive(2, message)
    for i in range(N):
        sent = clients[i].masked_input(mail[i])
        layout = ((2, 37), (3, 8)) if i < 2 else ((2, 512), (3, 8))
        assert server.receive(i, sent)
        residues = MaskedInput.from_bytes(sent, layout).residues
        own = [0, 1, 3, 4, 5] if i < 2 else [1, 2, 3, 4, 5]
        assert server.padded_inputs[i, own].tolist() == residues.tolist()
        assert not np.delete(server.padded_inputs[i], own).any()


# --- what they know and send


def test_shares_are_those_of_the_secrets():
    """t of what the neighbours hold give b_i and s_i^SK back; the server holds neither."""
    clients, server = parties(threshold=3)
    mail = play(clients, server, 2)
    for i in range(N):
        clients[i].masked_input(mail[i])
    for owner in range(N):
        for kind, secret in enumerate(
            (clients[owner].self_seed, clients[owner]._pads.secret_key)
        ):
            held = np.stack(
                [np.frombuffer(clients[j]._held[owner][kind], "<u4") for j in range(N)]
            )
            held = held.astype(np.uint32)
            for left_out in range(N):
                holders = [j for j in range(N) if j != left_out]
                assert recover([j + 1 for j in holders], held[holders], 3) == secret
    assert clients[1].pair_seed(2) == clients[2].pair_seed(1)


def test_each_derived_key_seals_one_message(monkeypatch):
    """The nonce of AES-GCM is fixed, so that no key may ever come twice."""
    keys = []

    def record(key, plaintext, associated):
        keys.append(key)
        return seal(key, plaintext, associated)

    seal = mj.protocol._primitives.seal
    monkeypatch.setattr(mj.protocol._client, "seal", record)
    for round_index in (0, 1):
        clients, server = parties(round_index=round_index)
        play(clients, server, 1)
        for client in clients:
            message = KeyList(
                round_index,
                tuple((j, b"".join(server._keys[j])) for j in client.neighbours),
            ).to_bytes()
            assert client.share_keys(message) == client.share_keys(message)
    assert len(keys) == 2 * N * (N - 1)
    assert len(set(keys)) == len(keys)


def test_multi_block_inputs_are_padded_as_the_array_code_does():
    """A plan of several blocks and rings: the block's number is in the nonce."""
    plan = segment_plan(
        [Block((0, 1, 2, 3), 0, 3, 2**5), Block((0, 2), 3, 6, 37)], 4, 6
    )
    values = np.asarray(VALUES % 32, np.uint32)
    clients, server = parties(plan=plan, values=values)
    mail = play(clients, server, 2)
    layouts = [((3, 32), (3, 37)), ((3, 32),)]
    sent = [
        MaskedInput.from_bytes(
            clients[i].masked_input(mail[i]), layouts[i % 2]
        ).residues
        for i in range(N)
    ]
    edges = np.stack(np.triu_indices(N, 1), axis=1)
    own = np.stack([np.frombuffer(client.self_seed, "<u4") for client in clients])
    pairs = np.stack(
        [np.frombuffer(clients[i].pair_seed(int(j)), "<u4") for i, j in edges]
    )
    seeds = Seeds(*map(on_device, (np.arange(N), own, pairs, edges)))
    padded = np.asarray(pad_inputs(seeds, values, plan, 3))
    for i in range(N):
        assert (sent[i] == padded[i, : 3 + 3 * (i % 2 == 0)]).all()


@pytest.mark.parametrize("modulus", [2**8, 2**32, 37, 2**31 - 1])
def test_pad_sums_are_keystream_across_chunks(modulus):
    """Longer than several chunks of keystream, against one call of OpenSSL."""
    d, key = 40_000, bytes(range(32))
    nonce = np.asarray([0, 1, 5, 9], "<u4").tobytes()
    size = 4 if modulus & (modulus - 1) == 0 else 8
    stream = (
        Cipher(algorithms.ChaCha20(key, nonce), mode=None)
        .encryptor()
        .update(bytes(size * d))
    )
    words = np.frombuffer(stream, f"<u{size}").astype(np.uint64) % np.uint64(modulus)
    start = np.arange(d, dtype=np.uint32) % np.uint32(min(modulus, 2**31))
    total = mj.protocol._pads.PadSum(start, modulus, 5, 9)
    total.add(key, 1, 1)
    expected = (start.astype(np.uint64) + words) % np.uint64(modulus)
    assert (total.residues() == expected).all()
    for _ in range(2):
        total.add(key, 1, -1)
    expected = (start.astype(np.uint64) + np.uint64(modulus) - words) % np.uint64(
        modulus
    )
    assert (total.residues() == expected).all()
