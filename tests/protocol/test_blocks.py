"""Blocks that clients keep: twenty lies of a server, then servers that lie at random.

What such a server can open is judged by exact ranks of all that it holds: the padded
inputs as rows over the pads whose seeds it cannot recover.
"""

import contextlib
import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.protocol import Client, Pledge, Terms, run
from mrsa_jax.protocol._network import disturbed
from mrsa_jax.protocol._primitives import SigningKey
from mrsa_jax.protocol.errors import (
    AuthenticationError,
    PartedBlockError,
    ProtocolError,
    TooFewSurvivorsError,
    UnexpectedMessageError,
)
from mrsa_jax.protocol.messages import (
    ShareKeys,
    ShareList,
    SignatureList,
    SignedKeyList,
    SignedKeys,
    SignedSurvivors,
    SurvivorList,
    UnmaskShares,
)
from mrsa_jax.secagg import Block, complete_plan, segment_plan
from mrsa_jax.secagg.lists import heeded, holders, signing
from mrsa_jax.secagg.outcome import judged

N, T, LIMIT = 6, 2, 4
PAIRS = np.arange(N) // T
COMPLETE = ~np.eye(N, dtype=bool)
EVERYBODY = np.ones((5, N), bool)
INPUTS = np.random.default_rng(0).integers(0, 256, (N, 3))
MODEL = mj.protocol.model_digest(np.ones(3, np.float32), learning_rate=0.1)


def signing_keys(n, salt=0):
    return [SigningKey(bytes([i + 1, salt]) * 16) for i in range(n)]


class Room:
    """Clients of one round, and a server that passes on to each what it likes.

    Who has a pledge that forbids the round takes no part in it.
    """

    def __init__(
        self,
        blocks=PAIRS,
        limit=LIMIT,
        graph=None,
        keys=None,
        seed=0,
        pledges=None,
        **changes,
    ):
        n = len(blocks)
        self.graph = ~np.eye(n, dtype=bool) if graph is None else graph
        self.limits, self.blocks = np.broadcast_to(limit, n).tolist(), blocks
        self.keys = signing_keys(n) if keys is None else keys
        number, self.model = changes.pop("round_index", 0), changes.pop("model", MODEL)
        roster = [key.public_key for key in signing_keys(n)]
        self.terms = Terms(
            roster, self.graph, np.asarray(self.limits), blocks, **changes
        )
        plan = complete_plan(n, 1, 256)
        self.clients = [
            Client(
                i,
                self.near(i),
                self.limits[i],
                np.zeros(1, np.uint32),
                plan,
                number,
                seed * 1000 + i,
                self.model,
                self.keys[i],
                self.terms,
                None if pledges is None else pledges[i],
            )
            for i in range(n)
        ]
        self.number, self.sent = number, {}
        for i, client in enumerate(self.clients):
            with (
                contextlib.nullcontext()
                if pledges is None
                else contextlib.suppress(ProtocolError)
            ):
                self.sent[i] = client.advertise_keys()
        self.everybody = range(n) if pledges is None else sorted(self.sent)
        self.uploads, self.lists = set(), {}

    def near(self, i):
        return np.flatnonzero(self.graph[i]).tolist()

    def share(self, i, whose=None, old=None):
        """Send i the keys of all its neighbours, or of some, or old ones.

        Take its shares.
        """
        known = self.sent | (old or {})
        sent = {
            j: SignedKeys.from_bytes(known[j])
            for j in self.near(i)
            if j in known and (whose is None or j in whose)
        }
        entries = tuple(
            (j, m.channel_key + m.pad_key + m.signature) for j, m in sent.items()
        )
        return self.clients[i].share_keys(
            SignedKeyList(self.number, entries).to_bytes()
        )

    def upload(self, i, mail, whose=None):
        """Send i the shares that are for it, or those of some; take its input."""
        entries = tuple(
            (j, parcels[i])
            for j, parcels in sorted(mail.items())
            if i in parcels and (whose is None or j in whose)
        )
        self.clients[i].masked_input(ShareList(self.number, entries).to_bytes())
        self.uploads.add(i)

    def until_upload(self):
        mail = {
            i: dict(ShareKeys.from_bytes(self.share(i)).ciphertexts)
            for i in self.everybody
        }
        for i in self.everybody:
            self.upload(i, mail)
        return self

    def sign(self, i, survivors):
        members = tuple(sorted(survivors))
        message = SurvivorList(self.number, len(members), members).to_bytes()
        answer = SignedSurvivors.from_bytes(self.clients[i].sign_survivors(message))
        self.lists[i] = members
        return answer.signature

    def unmask(self, i, signatures):
        message = SignatureList(
            self.number, tuple(sorted(signatures.items()))
        ).to_bytes()
        return UnmaskShares.from_bytes(self.clients[i].unmask(message))

    def signatures(self, survivors=range(N), signers=range(1, LIMIT)):
        return {i: self.sign(i, survivors) for i in signers}


# --- twenty lies (EVERY_UPDATE, section 8)


@pytest.mark.parametrize("survivors", [(0, 1, 2, 4, 5), (0, 1, 2, 3, 4)])
def test_1_and_2_a_list_that_parts_its_own_block_or_anothers(survivors):
    room = Room().until_upload()
    for i in survivors:
        with pytest.raises(
            PartedBlockError, match="a list parts the blocks of clients"
        ):
            room.sign(i, survivors)


def test_3_two_whole_lists_to_two_halves():
    room = Room().until_upload()
    signed = {i: room.sign(i, range(4)) for i in (0, 1)}
    signed |= {i: room.sign(i, range(N)) for i in (2, 3, 4, 5)}
    for i in (0, 1):  # two of four
        with pytest.raises(TooFewSurvivorsError):
            room.unmask(i, {1 - i: signed[1 - i]})
    answer = room.unmask(2, {j: signed[j] for j in (3, 4, 5)})
    assert [owner for owner, _ in answer.self_shares] == list(range(N))
    assert answer.key_shares == ()


def test_4_a_second_list_to_one_client():
    room = Room().until_upload()
    first = room.sign(0, range(N))
    assert room.sign(0, range(N)) == first
    with pytest.raises(UnexpectedMessageError, match="a second, different message"):
        room.sign(0, range(4))


def test_5_a_forged_signature_or_one_of_another_list():
    for signature in (bytes(64), Room().until_upload().sign(2, range(4))):
        room = Room().until_upload()
        signed = room.signatures()
        room.sign(0, range(N))
        with pytest.raises(AuthenticationError):
            room.unmask(0, signed | {2: signature})


CHANGES = [{"round_index": 1}, {"session": b"another"}, {"model": b"another"}]


@pytest.mark.parametrize("change", CHANGES)
def test_6_and_7_signatures_of_another_round_or_session(change):
    old = Room(**change).until_upload().signatures()
    room = Room().until_upload()
    room.sign(0, range(N))
    with pytest.raises(AuthenticationError):
        room.unmask(0, old)


def test_8_too_few_signatures():
    room = Room().until_upload()
    signed = room.signatures(signers=range(1, LIMIT - 1))
    room.sign(0, range(N))
    with pytest.raises(TooFewSurvivorsError):
        room.unmask(0, signed)


def test_9_signatures_of_strangers():
    """Three blocks of two on a line: the first and the last are no neighbours."""
    near = np.abs(PAIRS[:, None] - PAIRS) <= 1
    graph = near & ~np.eye(N, dtype=bool)
    ends = Room(graph=graph, limit=4, blocks=PAIRS)
    ends.until_upload()
    signed = {i: ends.sign(i, range(N)) for i in (1, 2, 4, 5)}
    ends.sign(0, range(N))
    with pytest.raises(UnexpectedMessageError, match="signatures of"):
        ends.unmask(0, signed)


def outcome(survivors, tamper=None, **options):
    network = disturbed(tamper=tamper)
    given = {
        "entropy": 0,
        "network": network,
        "blocks": PAIRS,
        "contexts": [MODEL] * N,
    } | options
    result = run(INPUTS, COMPLETE, survivors, LIMIT, 8, **given)
    return result, [(one.step, one.client, type(one.error)) for one in network.refusals]


def test_11_a_late_upload_takes_its_block_along():
    survivors = EVERYBODY.copy()
    survivors[3:, 4] = False
    result, refused = outcome(survivors)
    assert result.status is mj.Status.OK
    assert result.learned.tolist() == [[True] * 4 + [False] * 2]
    assert result.total.tolist() == (INPUTS[:4].sum(axis=0) % 256).tolist()
    assert refused == [(3, 5, TooFewSurvivorsError)]  # it is told that it is alone
    assert result.transcript.is_informative[:4].all()


def test_12_keys_or_shares_withheld():
    room = Room()
    apart = {0: {2, 3, 4, 5}, 1: {2, 3, 4, 5}}
    mail = {
        i: dict(ShareKeys.from_bytes(room.share(i, apart.get(i))).ciphertexts)
        for i in room.everybody
    }
    with pytest.raises(
        PartedBlockError, match=r"client 0 was sent no shares of its mates \[1\]"
    ):
        room.upload(0, mail)
    room = Room()
    mail = {
        i: dict(ShareKeys.from_bytes(room.share(i)).ciphertexts) for i in room.everybody
    }
    with pytest.raises(PartedBlockError):
        room.upload(0, mail, {2, 3, 4, 5})
    room.upload(1, mail, {0, 2, 3})
    with pytest.raises(
        UnexpectedMessageError, match=r"a request for shares of \[4, 5\]"
    ):
        room.sign(1, range(N))


def test_13_keys_that_their_owner_did_not_sign():
    room = Room()
    own = SignedKeys.from_bytes(room.sent[1])
    room.sent[1] = dataclasses.replace(own, pad_key=own.channel_key[::-1]).to_bytes()
    with pytest.raises(AuthenticationError):
        room.share(0)
    for change in CHANGES:
        room, other = Room(), Room(**change)
        room.sent[1] = dataclasses.replace(
            SignedKeys.from_bytes(other.sent[1]), round_index=0
        ).to_bytes()
        with pytest.raises(AuthenticationError):
            room.share(0)


def line(limit=LIMIT):
    near = np.abs(PAIRS[:, None] - PAIRS) <= 1
    return {"graph": near & ~np.eye(N, dtype=bool), "limit": limit}


@pytest.mark.parametrize(
    "change", [{"blocks": PAIRS[[0, 2, 1, 3, 4, 5]]}, {"limit": 5}, line()]
)
def test_14_other_terms_for_some(change):
    """Whose keys were signed under other terms are not those of neighbours."""
    room, other = Room(), Room(**change)
    room.sent[1] = other.sent[1]
    with pytest.raises(AuthenticationError):
        room.share(0)


def test_14_and_15_a_pledge_survives_a_restart(tmp_path):
    terms, file = Room().terms, tmp_path / "pledge"
    plan, key = complete_plan(N, 1, 256), signing_keys(N)[0]

    def client(number, agreed=terms):
        others = [1, 2, 3, 4, 5]
        return Client(
            0,
            others,
            LIMIT,
            np.zeros(1, np.uint32),
            plan,
            number,
            None,
            MODEL,
            key,
            agreed,
            Pledge(file),
        )

    client(4).advertise_keys()
    for number in (4, 3):
        with pytest.raises(UnexpectedMessageError, match="is not above round 4"):
            client(number).advertise_keys()
    client(5).advertise_keys()
    for change in (
        {"blocks": PAIRS[::-1]},
        {"session": b"another"},
        {"blocks": None},
        {"roster": [one.public_key for one in signing_keys(N, 1)]},
    ):
        with pytest.raises(UnexpectedMessageError, match="not those agreed on"):
            client(6, dataclasses.replace(terms, **change)).advertise_keys()
    file.write_bytes(bytes(35))
    with pytest.raises(mj.ConfigurationError, match="36 bytes"):
        Pledge(file)


def ring_of_each(plan):
    return run(
        INPUTS,
        COMPLETE,
        EVERYBODY,
        LIMIT,
        plan=plan,
        blocks=PAIRS,
        entropy=0,
        contexts=[MODEL] * N,
    )


def test_16_segments_that_part_a_block():
    parts = segment_plan([Block((0, 1, 2), 0, 1, 256), Block((3, 4, 5), 0, 1, 256)], N)
    with pytest.raises(mj.ConfigurationError, match="must sum whole blocks"):
        ring_of_each(parts)
    whole = segment_plan([Block((0, 1), 0, 1, 256), Block((2, 3, 4, 5), 0, 1, 256)], N)
    result = ring_of_each(whole)
    assert [int(total[0]) for total in result.totals] == [
        INPUTS[:2, 0].sum() % 256,
        INPUTS[2:, 0].sum() % 256,
    ]


def test_17_a_list_of_one_block_alone_is_a_sum_of_t():
    survivors = EVERYBODY.copy()
    survivors[3:, 4:] = False
    result, refused = outcome(survivors, blocks=[0, 0, 0, 0, 1, 1])
    assert result.total.tolist() == (INPUTS[:4].sum(axis=0) % 256).tolist()
    assert not refused


SILENT = np.where(np.arange(N)[:, None] == 1, 200, 0) + np.zeros((N, 3), int)


def test_18_another_model_to_one_mate():
    """A round of clients who all refuse the keys of some neighbour.

    Nothing is padded, or summed.
    Client 1 alone has the model, the others one that teaches them nothing.
    """
    contexts = [MODEL if i == 1 else b"silenced" for i in range(N)]
    network = disturbed()
    result = run(
        SILENT,
        COMPLETE,
        EVERYBODY,
        LIMIT,
        8,
        entropy=0,
        blocks=PAIRS,
        contexts=contexts,
        network=network,
    )
    assert result.status is mj.Status.TOO_FEW_SURVIVORS
    assert not result.total.any()
    assert not result.transcript.padded_inputs.any()
    assert {type(one.error) for one in network.refusals} == {AuthenticationError}
    assert {one.client for one in network.refusals} == set(range(N))


def test_18_pads_of_mates_with_other_models_do_not_cancel(monkeypatch):
    """Even for clients who do not look at signatures.

    With one model the target is read.
    """
    monkeypatch.setattr(Terms, "check", lambda *_: None)
    for models, is_read in (
        ([MODEL] * N, True),
        ([b"silenced", MODEL, *[b"silenced"] * 4], False),
    ):
        result = run(
            SILENT,
            COMPLETE,
            EVERYBODY,
            LIMIT,
            32,
            entropy=0,
            blocks=PAIRS,
            contexts=models,
        )
        assert result.status is mj.Status.OK
        wrong = np.abs(result.total.astype(np.int64) - SILENT[1]).max()
        assert (wrong == 0) == is_read
        assert is_read or wrong > 1e6


@pytest.mark.parametrize("target", range(N))
def test_18_a_server_that_withholds_the_keys_of_other_models(target):
    """It sends each only keys that were signed for the same model.

    Then mates' keys are missing.
    """
    rooms = {name: Room(model=name) for name in (b"model", b"silenced")}
    sent = {i: rooms[b"model" if i == target else b"silenced"] for i in range(N)}
    mail, refused = {}, {}
    for i in range(N):
        room = sent[i]
        alike = {j for j in range(N) if sent[j] is room}
        with contextlib.suppress(ProtocolError):
            mail[i] = dict(ShareKeys.from_bytes(room.share(i, alike)).ciphertexts)
    for i in mail:
        try:
            sent[i].upload(i, mail, {j for j in range(N) if sent[j] is sent[i]})
        except ProtocolError as error:
            refused[i] = type(error)
    mates = {2 * (target // T), 2 * (target // T) + 1}
    assert mates <= refused.keys()
    assert refused[target ^ 1] is PartedBlockError


@pytest.mark.parametrize("contexts", [None, [b""] * N, [MODEL] * (N - 1) + [b""]])
def test_blocks_need_the_digest_of_each_model(contexts):
    with pytest.raises(
        mj.ConfigurationError, match=r"`contexts` must .*`blocks`: the digest of"
    ):
        outcome(EVERYBODY, contexts=contexts)
    room, plan = Room(), complete_plan(N, 1, 256)
    with pytest.raises(
        mj.ConfigurationError, match="`context` must be the digest of the model"
    ):
        Client(
            0,
            room.near(0),
            LIMIT,
            np.zeros(1, np.uint32),
            plan,
            signing_key=room.keys[0],
            terms=room.terms,
        )
    with pytest.raises(
        mj.ConfigurationError, match=r"`contexts` must .*: the digest of the model"
    ):
        mj.protocol.Server(
            COMPLETE, room.terms.thresholds, EVERYBODY[0], plan, 0, contexts, room.terms
        )


def test_equal_contexts_change_no_sum():
    survivors = EVERYBODY.copy()
    survivors[3:, 4] = False
    plain, bound = (
        run(
            INPUTS,
            COMPLETE,
            survivors,
            LIMIT,
            8,
            entropy=0,
            consistency=True,
            contexts=contexts,
        )
        for contexts in (None, [MODEL] * N)
    )
    for name in ("total", "learned", "summed", "status", "is_private"):
        assert np.array_equal(getattr(plain, name), getattr(bound, name))


def test_no_sum_is_over_a_client_whose_neighbour_got_another_model():
    """Of any graph of blocks and any models, which differ by chance or by component."""
    rng, sums = np.random.default_rng(8), 0
    for trial in range(40):
        size, graph, limits, _ = random_setting(rng)
        n = len(graph)
        models = rng.integers(0, 2, n)
        if trial % 2:
            reached = np.linalg.matrix_power(graph + np.eye(n), n) > 0
            models = models[reached.argmax(axis=1)]
        contexts = [b"model %d" % model for model in models]
        result = run(
            np.ones((n, 1), int),
            graph,
            np.ones((5, n), bool),
            limits,
            8,
            entropy=trial,
            blocks=size,
            contexts=contexts,
        )
        has_another = (graph & (models[:, None] != models)).any(axis=1)
        for row in result.learned:
            assert not (row & has_another).any()
            assert set(np.bincount(np.flatnonzero(row) // size)) <= {0, size}
        sums += len(result.learned)
        assert (len(result.learned) > 0) or has_another.any()
    assert sums > 20


def test_19_a_client_leaves_between_signing_and_unmasking():
    def lose(step, sender, recipient, message):
        return [] if (step, sender) == (4, 3) else message

    result, refused = outcome(EVERYBODY, lose)
    assert result.total.tolist() == (INPUTS.sum(axis=0) % 256).tolist()
    assert not refused


def test_20_a_union_that_leaves_too_few():
    room = Room().until_upload()
    with pytest.raises(TooFewSurvivorsError):
        room.sign(0, range(T))


# --- terms


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"roster": [bytes(32)]},
            "`roster` must hold the signing key of each client; got 1 and 6",
        ),
        (
            {"thresholds": np.full(N, 3)},
            "half of a client's .*got '3 for client 0, not 4'",
        ),
        ({"colluders": 2}, "`thresholds` must be more than half"),
        (
            {"thresholds": np.asarray([4, 5, 4, 4, 4, 4])},
            "the same neighbours and the same thres",
        ),
        (
            {"blocks": np.asarray([0, 1, 0, 1, 2, 2]), "adjacency": line()["graph"]},
            "`adjacency`",
        ),
    ],
)
def test_terms_that_keep_no_blocks(change, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        dataclasses.replace(Room().terms, **change)


def test_blocks_that_are_not_in_the_round_need_no_neighbours():
    asked = np.arange(N) < 4
    graph = COMPLETE & asked & asked[:, None]
    terms = Terms([bytes(32)] * N, graph, np.full(N, 3), PAIRS)
    assert terms.mates(5) == {4, 5}
    nobody = dataclasses.replace(terms, adjacency=np.zeros((N, N), bool))
    assert not nobody.adjacency.any()
    one = np.arange(N) < 5  # of the last block
    with pytest.raises(mj.ConfigurationError, match="`adjacency`"):
        dataclasses.replace(terms, adjacency=COMPLETE & one & one[:, None])


def test_a_client_holds_terms_of_its_own_neighbours():
    room, plan = Room(), complete_plan(N, 1, 256)
    for near, limit, key in (
        ([1, 2], LIMIT, room.keys[0]),
        ([1, 2, 3, 4, 5], 5, room.keys[0]),
        ([1, 2, 3, 4, 5], LIMIT, None),
    ):
        with pytest.raises(
            mj.ConfigurationError,
            match="`terms` must be used together with `signing_key`",
        ):
            Client(
                0,
                near,
                limit,
                np.zeros(1, np.uint32),
                plan,
                0,
                None,
                MODEL,
                key,
                room.terms,
            )


# --- arrays


def random_setting(rng):
    """Return a graph of blocks of two or three, complete or sparse, and losses."""
    size, count = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    near = np.triu(rng.random((count, count)) < rng.choice([0.6, 1.0]), 1)
    graph = np.kron(
        near | near.T | np.eye(count, dtype=bool), np.ones((size, size), bool)
    )
    graph &= ~np.eye(len(graph), dtype=bool)
    limits = (graph.sum(axis=1) + 1) // 2 + 1
    alive = np.logical_and.accumulate(rng.random((5, len(graph))) > 0.04, axis=0)
    return size, graph, limits, alive


@pytest.mark.long
def test_arrays_give_what_messages_give():
    rng, statuses = np.random.default_rng(4), set()
    for trial in range(12):
        size, graph, limits, alive = random_setting(rng)
        inputs = rng.integers(0, 256, (len(graph), 2))
        real = run(
            inputs,
            graph,
            alive,
            limits,
            8,
            entropy=trial,
            blocks=size,
            contexts=[MODEL] * len(graph),
        )
        array = mj.secagg.aggregate(
            0,
            inputs,
            graph,
            alive,
            limits,
            8,
            seeds=real.seeds,
            blocks=np.arange(len(graph)) // size,
        )
        for one, two in ((real, array), (real.transcript, array.transcript)):
            for name in (
                "totals",
                "status",
                "summed",
                "learned",
                "is_reliable",
                "is_private",
                "survivors",
                "padded_inputs",
                "is_informative",
            ):
                if hasattr(one, name):
                    assert np.array_equal(getattr(one, name), getattr(two, name)), (
                        trial,
                        name,
                    )
        rows = [
            [
                (step.name, step.num_clients, step.bytes_up, step.bytes_down)
                for step in result.steps
            ]
            for result in (real, array)
        ]
        assert rows[0] == rows[1]
        numbers = np.arange(len(graph)) // size
        counts = [
            np.bincount(numbers[row], minlength=len(graph)) for row in real.learned
        ]
        assert all(set(count.tolist()) <= {0, size} for count in counts)
        statuses.add(real.status)
    assert {mj.Status.OK, mj.Status.TOO_FEW_SURVIVORS} <= statuses


def test_sets_give_what_messages_give():
    rng, statuses = np.random.default_rng(6), set()
    for trial in range(6):
        size, graph, limits, alive = random_setting(rng)
        alive[4] &= rng.random(len(graph)) > 0.2 * trial  # at last nobody answers
        plan, numbers = complete_plan(len(graph), 1, 256), np.arange(len(graph)) // size
        real = run(
            np.ones((len(graph), 1), int),
            graph,
            alive,
            limits,
            8,
            entropy=trial,
            blocks=numbers,
            contexts=[MODEL] * len(graph),
        )
        before, summed = heeded(plan, graph, alive, limits, numbers)
        left, _ = signing(graph, before, limits)
        assert np.array_equal(real.transcript.survivors, left)
        found = judged(graph, left, summed, holders(graph, left[4]) >= limits, plan)
        for name in ("status", "summed", "learned", "is_reliable", "is_private"):
            assert np.array_equal(getattr(real, name), getattr(found, name))
        statuses.add(real.status)
    assert {mj.Status.OK, mj.Status.UNRELIABLE} <= statuses


def models_alike(*arguments, **named):
    return run(*arguments, contexts=[MODEL] * N, **named)


@pytest.mark.parametrize(
    "act", [models_alike, lambda *args, **kw: mj.secagg.aggregate(0, *args, **kw)]
)
@pytest.mark.parametrize(
    ("thresholds", "blocks", "message"),
    [
        (3, T, "`thresholds` must be more than half"),
        (
            [4, 5, 4, 4, 4, 4],
            T,
            "`adjacency` must give the clients of a block the same",
        ),
        (4, [0] * 5, "`blocks` must be a block size, or 6 numbers"),
    ],
)
def test_both_refuse_what_keeps_no_blocks(act, thresholds, blocks, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        act(INPUTS, COMPLETE, EVERYBODY, thresholds, 8, blocks=blocks)


# --- servers that lie at random


def rank(rows):
    """Return the rank of a matrix of integers, exactly."""
    left, found = [[Fraction(int(x)) for x in row] for row in rows], 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        left.remove(pivot)
        found += 1
        for row in left:
            if row[column]:
                ratio = row[column] / pivot[column]
                row[:] = [x - ratio * y for x, y in zip(row, pivot, strict=True)]
    return found


def known_secrets(room, colluders, answers):
    """Return the secrets of which the server has t shares.

    In answers, and held by colluders.
    """
    count = {}
    held = [
        (i, owner, kinds)
        for i in colluders
        for owner in room.clients[i]._held
        for kinds in ("b", "s")
    ]
    for i, answer in answers.items():
        held += [(i, owner, "b") for owner, _ in answer.self_shares]
        held += [(i, owner, "s") for owner, _ in answer.key_shares]
    for _, owner, kind in set(held):
        count[owner, kind] = count.get((owner, kind), 0) + 1
    return {what for what, shares in count.items() if shares >= room.limits[what[0]]}


def parted(rounds, colluders, blocks=PAIRS):
    """Return whether some combination of inputs that the server can open parts honest mates.

    Rounds are rooms with the clients that the server made up and the answers that it
    got. It has the shares in the answers and all that colluders, and clients whom it
    made up, were sent. Rows are the honest inputs of all rounds, a client's the same in
    each, columns the pads that it does not know: each is named by the two keys that
    make it, which may be of different rounds. Clients in whose place it made up others
    are honest and sent none.
    """
    honest = set(range(len(blocks))) - colluders
    rows, unknown, open_keys = [], {}, set()
    secrets = [
        known_secrets(room, colluders | made_up, answers)
        for room, made_up, answers in rounds
    ]
    for (room, _, _), known in zip(rounds, secrets, strict=True):
        open_keys |= {
            room.clients[i]._pads.public_key for i, kind in known if kind == "s"
        }
    for number, ((room, made_up, _), known) in enumerate(
        zip(rounds, secrets, strict=True)
    ):
        for i in sorted(room.uploads - colluders - made_up):
            client, row = room.clients[i], len(rows)
            rows.append(i)
            if (i, "b") not in known:
                unknown[number, i] = {row: 1}
            for j in client._held.keys() - {i} - colluders - made_up:
                ends = frozenset((client._pads.public_key, client._others[j][1]))
                if not ends & open_keys:
                    unknown.setdefault((number, ends), {})[row] = 1 if i < j else -1
    pads = [[pad.get(row, 0) for row in range(len(rows))] for pad in unknown.values()]
    tests = [
        [(i == one) - (i == two) for i in rows]
        for one, two in itertools.combinations(sorted(honest), 2)
        if blocks[one] == blocks[two]
    ]
    return rank(pads + tests) > rank(pads)


def unions(blocks, rng):
    """Return a list of survivors: whole blocks, or now and then less one or one more."""
    numbers = np.unique(blocks)
    kept = rng.random(len(numbers)) < rng.choice([0.5, 0.7, 1.0])
    here = kept[np.searchsorted(numbers, blocks)]
    if rng.random() < 0.3:
        here[rng.integers(len(here))] ^= True
    return tuple(np.flatnonzero(here).tolist())


def hostile_room(
    rng, seed, blocks=PAIRS, limit=LIMIT, graph=None, pledges=None, old=(), **changes
):
    """Return a room up to the inputs, of a server that withholds keys and shares at random.

    One time in eight it sits in the middle: it makes up all clients but one, with keys
    of its own. One time in eight it passes on some keys of an earlier round, if it has
    any.
    """
    n = len(blocks)
    keys, made_up = signing_keys(n), set()
    rate = rng.choice([0.0, 0.0, 0.05, 0.3])
    if rng.random() < 0.125:
        victim, rate = int(rng.integers(n)), 0.0
        keys = [
            keys[i] if i == victim else key for i, key in enumerate(signing_keys(n, 1))
        ]
        made_up = set(range(n)) - {victim}
    room = Room(blocks, limit, graph, keys, seed, pledges, **changes)
    is_replay = len(old) > 0 and rng.random() < 0.125

    def some():
        return {j for j in room.everybody if rng.random() >= rate}

    mail = {}
    for i in room.everybody:
        replayed = (
            {j: own for j, own in old[-1].items() if rng.random() < 0.5}
            if is_replay
            else {}
        )
        with contextlib.suppress(ProtocolError):
            mail[i] = dict(
                ShareKeys.from_bytes(room.share(i, some(), replayed)).ciphertexts
            )
    for i in mail:
        with contextlib.suppress(ProtocolError):
            room.upload(i, mail, some())
    return room, made_up


def unmasked(rng, room, colluders, before=()):
    """Ask each client for its shares by one of a few lists, and return the answers.

    Lists and signatures of earlier rounds may come again.
    """
    lists = [unions(room.blocks, rng) for _ in range(int(rng.integers(1, 4)))]
    archive = [one for one in before if rng.random() < 0.5]
    lists += [survivors for survivors, _ in archive[:1]]
    signed, answers = {}, {}
    for i in sorted(room.uploads - colluders):
        room.clients[i]._answers = {
            step: room.clients[i]._answers[step] for step in range(3)
        }
        for survivors in [lists[k] for k in rng.permutation(len(lists))]:
            with contextlib.suppress(ProtocolError):
                signed[i] = room.sign(i, survivors)
                break
    for i in signed:
        own = room.lists[i]
        statement = room.terms.survivors_statement(room.number, own, room.model)
        near = set(room.near(i)) & set(own)
        found = {j: room.keys[j].sign(statement) for j in near & colluders}
        found |= {j: signed[j] for j in near & signed.keys() if room.lists[j] == own}
        for survivors, signatures in archive:
            if survivors == own and len(found) + 1 < room.limits[i]:
                found = {j: sign for j, sign in signatures.items() if j in near} | found
        with contextlib.suppress(ProtocolError):
            answers[i] = room.unmask(i, found)
    return signed, answers


def games(rooms, seed, num_colluders, **setting):
    """Play twelve rounds in each room.

    Return in how many mates are parted, and some answer.
    The rounds of a room differ in what is asked after the inputs came, and know nothing
    of each other: what clients remember of it is taken from them.
    """
    rng, found = np.random.default_rng(seed), []
    blocks = setting.get("blocks", PAIRS)
    for number in range(rooms):
        colluders = set(rng.permutation(len(blocks))[:num_colluders].tolist())
        room, made_up = hostile_room(rng, seed + number, **setting)
        for _ in range(12):
            _, answers = unmasked(rng, room, colluders | made_up)
            found.append(
                (parted([(room, made_up, answers)], colluders, blocks), bool(answers))
            )
    return np.sum(found, axis=0).tolist()


def long_games(count, seed, num_colluders, rounds=5, **setting):
    """Play games of several rounds.

    Return in how many mates are parted, and some answer twice.
    Clients have pledges. The server may play a round number again, open another session
    and draw the blocks again, and it replays keys, lists and signatures of the rounds
    before.
    """
    rng, found = np.random.default_rng(seed), []
    blocks = setting.get("blocks", PAIRS)
    for game in range(count):
        colluders = set(rng.permutation(len(blocks))[:num_colluders].tolist())
        pledges, played, sent, lists = [Pledge() for _ in blocks], [], [], []
        for number in range(rounds):
            changes = {"round_index": number - int(rng.random() < 0.1 and number > 0)}
            if number > 0 and rng.random() < 0.25:
                changes |= {"session": b"another", "blocks": rng.permutation(blocks)}
            # the server names the round that most clients have a receipt of
            heads = [pledge.receipts[-1][1] for pledge in pledges if pledge.receipts]
            if heads:
                changes["before"] = max(heads, key=heads.count)
            seeded = seed * 1000 + game * rounds + number
            room, made_up = hostile_room(
                rng, seeded, pledges=pledges, old=sent, **(setting | changes)
            )
            signed, answers = unmasked(rng, room, colluders | made_up, lists)
            played.append((room, made_up, answers))
            sent.append(room.sent)
            for own in set(room.lists.values()):
                lists.append(
                    (own, {j: signed[j] for j in signed if room.lists[j] == own})
                )
        answered = sum(bool(answers) for _, _, answers in played) > 1
        found.append((parted(played, colluders, blocks), answered))
    return np.sum(found, axis=0).tolist()


def over_five_blocks():
    """A ring of five blocks of two: each joined to its two neighbours, |N| = 6, t = 4."""
    blocks = np.arange(10) // 2
    apart = (blocks[:, None] - blocks) % 5
    graph = ((apart <= 1) | (apart == 4)) & ~np.eye(10, dtype=bool)
    return {"blocks": blocks, "limit": 4, "graph": graph}


SETTINGS = {
    "pairs": {},
    "threes": {"blocks": np.arange(9) // 3, "limit": 6},
    "ring": over_five_blocks(),
}
MOST = {"pairs": 1, "threes": 2, "ring": 1}  # 2 t - |N| - 1


def test_servers_that_lie_at_random_part_no_mates():
    found, answered = games(3, 0, MOST["pairs"])
    assert found == 0
    assert answered > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_ten_thousand_servers_that_lie_part_no_mates(name, colluders):
    found, answered = games(
        100, 1000 * colluders, min(colluders, MOST[name]), **SETTINGS[name]
    )
    assert found == 0
    assert answered > 300


def test_blocks_merely_joined_in_a_sparse_graph_are_refused_and_would_be_parted(
    monkeypatch,
):
    """Two cliques of five with one edge, whose ends are mates: b_0 and s_1 come out."""
    cliques = np.zeros((10, 10), bool)
    for members in ([0, 2, 3, 4, 5], [1, 6, 7, 8, 9], [0, 1]):
        cliques[np.ix_(members, members)] = True
    graph = cliques & ~np.eye(10, dtype=bool)
    setting = {
        "blocks": np.arange(10) // 2,
        "limit": cliques.sum(axis=1) // 2 + 1,
        "graph": graph,
    }
    with pytest.raises(mj.ConfigurationError, match="the same neighbours"):
        Room(**setting)
    monkeypatch.setattr("mrsa_jax.protocol._terms.check_blocks", lambda *_: None)
    room, told = Room(**setting).until_upload(), {}
    for i in range(2, 10):
        told[i] = range(10) if i < 6 else range(2, 10)
    signed = {i: room.sign(i, survivors) for i, survivors in told.items()}
    answers = {
        i: room.unmask(
            i, {j: signed[j] for j in set(room.near(i)) & set(told) - {0, 1}}
        )
        for i in told
    }
    assert parted([(room, set(), answers)], set(), setting["blocks"])


@pytest.mark.parametrize("colluders", [{0}, {0, 1}])
def test_10_colluders_who_sign_both_lists(colluders):
    """Half of the others hear that the last block is lost, it hears that the second is.

    Two colluders, 2 t - |N|, give each list its signatures, and shares of both kinds.
    """
    room = Room().until_upload()
    lists = {i: (0, 1, 4, 5) if i > 3 else (0, 1, 2, 3) for i in range(N)}
    signed = {i: room.sign(i, lists[i]) for i in range(N) if i not in colluders}
    answers = {}
    for i in signed:
        statement = room.terms.survivors_statement(0, lists[i], MODEL)
        found = {j: signed[j] for j in signed if j != i and lists[j] == lists[i]}
        found |= {j: room.keys[j].sign(statement) for j in colluders}
        with contextlib.suppress(TooFewSurvivorsError):
            answers[i] = room.unmask(i, found)
    assert set(answers) == ({1, 2, 3} if colluders == {0} else {2, 3, 4, 5})
    assert parted([(room, set(), answers)], colluders) == (colluders == {0, 1})


@pytest.mark.long
def test_one_more_colluder_parts_mates():
    found, answered = games(100, 4, MOST["pairs"] + 1)
    assert 0 < found < answered / 10


def test_without_whole_blocks_mates_are_parted(monkeypatch):
    monkeypatch.setattr(Terms, "check_list", lambda *_: None)
    assert games(3, 0, 0)[0] > 0


def test_without_signed_keys_mates_are_parted(monkeypatch):
    monkeypatch.setattr(Terms, "check", lambda *_: None)
    assert games(3, 0, 0)[0] > 0


def shares_of_one_withheld():
    """Nobody is sent client 1's shares, and then the others sign that all are there."""
    room, rest = Room(), set(range(N)) - {1}
    mail = {
        i: dict(ShareKeys.from_bytes(room.share(i)).ciphertexts) for i in room.everybody
    }
    for i in room.everybody:
        room.upload(i, mail, None if i == 1 else rest)
    signed = {i: room.sign(i, range(N)) for i in rest}
    answers = {i: room.unmask(i, {j: signed[j] for j in rest - {i}}) for i in rest}
    return parted([(room, set(), answers)], set())


def test_the_shares_of_mates_are_asked_for_twice(monkeypatch):
    """By P0, and by lists that hold only clients whose shares came.

    Without both, mates are parted.
    Without P0 alone nothing parts them. A client that lacks a mate's shares refuses
    every list with that mate, and every other list lacks its block.
    """
    with pytest.raises(PartedBlockError):
        shares_of_one_withheld()
    monkeypatch.setattr(Terms, "mates", lambda *_: set())
    with pytest.raises(UnexpectedMessageError, match=r"a request for shares of \[1\]"):
        shares_of_one_withheld()
    monkeypatch.setattr(Client, "_check_known", lambda *_: None)
    assert shares_of_one_withheld()


# --- games of several rounds


def test_servers_that_replay_earlier_rounds_part_no_mates():
    found, answered = long_games(4, 0, MOST["pairs"])
    assert found == 0
    assert answered > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs", "threes"])
@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_thousands_of_rounds_with_replays_part_no_mates(name, colluders):
    """100 games of five rounds for each setting: 3,000 rounds in all."""
    found, answered = long_games(
        100, 100 + colluders, min(colluders, MOST[name]), **SETTINGS[name]
    )
    assert found == 0
    assert answered > 10


@pytest.mark.long("check_list-2", "lasting-3")
@pytest.mark.parametrize(
    ("name", "seed"), [("check", 0), ("check_list", 2), ("lasting", 3)]
)
def test_several_rounds_without_a_rule_part_mates(monkeypatch, name, seed):
    """Without signatures, whole lists, or session and blocks in what is signed and kept."""
    instead = property(lambda _: bytes(32)) if name == "lasting" else lambda *_: None
    monkeypatch.setattr(Terms, name, instead)
    assert long_games(4, seed, 0)[0] > 0
