"""What clients agree on and keep.

Terms that one digest stands for, and pledges that hold.
Terms are right if equal digests mean equal rules. A pledge is right if, whatever
processes share its file, the rounds that are taken part in rise and all have the first
one's lasting terms.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from collections import OrderedDict, defaultdict
from typing import Any

import flax.struct
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.protocol import Client, Pledge, Terms, model_digest
from mrsa_jax.protocol._primitives import SigningKey
from mrsa_jax.protocol.errors import AuthenticationError, UnexpectedMessageError

N = 4
COMPLETE = ~np.eye(N, dtype=bool)
ROSTER = [bytes([i + 1]) * 32 for i in range(N)]
ARRAYS = ("adjacency", "thresholds", "blocks")


def terms(blocks=(0, 0, 1, 1), limit=3, **changes):
    labels = None if blocks is None else np.asarray(blocks)
    return Terms(ROSTER, COMPLETE, np.full(N, limit), labels, **changes)


# --- misuse


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"blocks": np.asarray([0.0, 0.5, 1.0, 1.0])},
            "`blocks` must be a block size, or 4",
        ),
        (
            {"blocks": np.asarray([0, 0, -1, -1])},
            r"`blocks` must lie in \[0, num_clients\)",
        ),
        (
            {"blocks": np.asarray([0, 0, 4, 4])},
            r"`blocks` must lie in \[0, num_clients\)",
        ),
        ({"blocks": np.asarray([0, 0, 2**32, 2**32])}, "`blocks` must lie in"),
        (
            {"blocks": np.asarray([False, False, True, True])},
            "`blocks` must be a block size",
        ),
        ({"blocks": np.asarray([0, 0])}, "`blocks` must be a block size, or 4 numbers"),
        ({"thresholds": np.full(N, 3.5)}, "`thresholds` must hold integers"),
        (
            {"thresholds": np.full(N, -3)},
            r"`thresholds` must lie in \[1, 2\*\*31\); got -3",
        ),
        (
            {"thresholds": np.full(3, 3)},
            "`thresholds` must be one for all or one for each",
        ),
        ({"adjacency": np.triu(COMPLETE)}, "`adjacency` must be symmetric"),
        (
            {"adjacency": np.ones((N, N), bool)},
            "`adjacency` must not join a client to itself",
        ),
        ({"adjacency": COMPLETE.astype(float)}, "`adjacency` must hold bools"),
        ({"roster": [b""] * N}, "`roster` must hold public keys of 32 bytes; got b''"),
        (
            {"roster": [*ROSTER, bytes(32)]},
            "`roster` must hold the signing key of each client",
        ),
        ({"colluders": -4}, r"`colluders` must lie in \[0, 4\]; got -4"),
        ({"colluders": 5}, r"`colluders` must lie in \[0, 4\]; got 5"),
    ],
)
def test_terms_that_are_refused(change, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        dataclasses.replace(terms(), **change)


@pytest.mark.parametrize(
    "act",
    [
        lambda own: own.mates(-1),
        lambda own: own.mates(N),
        lambda own: own.check_list((-1, -2)),
        lambda own: own.check_list((0, N)),
        lambda own: own.check(N, bytes(64), b""),
        lambda own: own.survivors_statement(0, (0, N)),
        lambda own: own.survivors_statement(-1, (0, 1)),
        lambda own: own.survivors_statement(2**32, (0, 1)),
        lambda own: own.keys_statement(0, -1, bytes(64)),
        lambda own: own.keys_statement(0, 0, bytes(63)),
    ],
)
def test_strangers_and_rounds_beyond_a_word_are_named(act):
    with pytest.raises(mj.ConfigurationError, match=r"`\w+` must .*; got"):
        act(terms())
    with pytest.raises(AuthenticationError):  # what a server may send is no misuse
        terms().check(0, b"", b"statement")


def test_thresholds_are_those_that_no_two_lists_reach():
    """Of 4 clients and c colluders.

    Two lists with t signatures each share more than c clients.
    """
    for limit in range(-1, 8):
        for colluders in range(-5, 6):
            fits = limit >= 1 and 0 <= colluders <= N and 2 * limit - N > colluders
            if fits:
                assert terms(limit=limit, colluders=colluders).colluders == colluders
            else:
                with pytest.raises(mj.ConfigurationError):
                    terms(limit=limit, colluders=colluders)


def test_a_client_needs_terms_that_fit():
    plan = mj.secagg.complete_plan(N, 1, 256)
    own = (np.zeros(1, np.uint32), plan)
    with pytest.raises(
        mj.ConfigurationError, match=r"`pledge` must be .* together with `terms`"
    ):
        Client(0, [1, 2, 3], 3, *own, pledge=Pledge())
    unchecked = inspect.unwrap(Client.__init__)
    for name, value in (
        ("neighbours", [1.9]),
        ("neighbours", ["1"]),
        ("neighbours", None),
        ("context", "model"),
        ("context", None),
        ("pledge", "file"),
        ("terms", ROSTER),
    ):
        given = {
            "neighbours": [1, 2, 3],
            "threshold": 3,
            "values": own[0],
            "plan": plan,
        }
        with pytest.raises(mj.ConfigurationError, match=rf"`{name}` must .*; got"):
            unchecked(object.__new__(Client), 0, **(given | {name: value}))
    key = SigningKey(bytes(32))
    with pytest.raises(mj.ConfigurationError, match="`client` must be on the roster"):
        Client(N, [1, 2, 3], 3, *own, 0, None, b"model", key, terms())


# --- one digest for one set of rules

partitions = st.lists(st.integers(0, N - 1), min_size=N, max_size=N)
TYPES = (np.int8, np.uint16, np.int64)


@hypothesis.given(
    partitions, partitions, st.sampled_from(TYPES), st.sampled_from(TYPES)
)
def test_equal_digests_mean_equal_mates(one, two, first, second):
    left, right = terms(np.asarray(one, first)), terms(np.asarray(two, second))
    is_same = left.lasting == right.lasting
    assert is_same == (left.digest == right.digest) == (one == two)
    for client in range(N):
        mates = {other for other in range(N) if one[other] == one[client]}
        assert left.mates(client) == mates
        assert not is_same or right.mates(client) == mates


def test_every_field_is_in_the_digest():
    changes = [
        {"blocks": np.asarray([0, 1, 0, 1])},
        {"blocks": None},
        {"session": b"another"},
        {"roster": ROSTER[::-1]},
        {"thresholds": np.full(N, 4)},
        {"colluders": 1},
        {"before": bytes([1]) * 32},
        {"adjacency": np.kron(np.eye(2, dtype=bool), np.ones((2, 2), bool)) & COMPLETE},
    ]
    seen = [terms(), *(dataclasses.replace(terms(), **change) for change in changes)]
    assert len({own.digest for own in seen}) == len(seen)
    assert {field.name for field in dataclasses.fields(Terms)} == {
        name for own in changes for name in own
    }
    assert terms(colluders=np.int64(0)).digest == terms().digest


def test_every_part_of_a_statement_is_in_it():
    own, keys = terms(), bytes(64)
    statements = [
        own.keys_statement(0, 0, keys),
        own.keys_statement(1, 0, keys),
        own.keys_statement(0, 1, keys),
        own.keys_statement(0, 0, bytes([1]) * 64),
        own.keys_statement(0, 0, keys, b"model"),
        own.keys_statement(0, 0, keys, b"another"),
        own.survivors_statement(0, (0, 1)),
        own.survivors_statement(1, (0, 1)),
        own.survivors_statement(0, (0, 1, 2, 3)),
        own.survivors_statement(0, ()),
        own.survivors_statement(0, (0, 1), b"model"),
        terms(session=b"another").survivors_statement(0, (0, 1)),
    ]
    assert len(set(statements)) == len(statements)


def copies(own):
    return [
        own,
        copy.copy(own),
        copy.deepcopy(own),
        pickle.loads(pickle.dumps(own)),
        dataclasses.replace(own),
    ]


@pytest.mark.parametrize("is_asked_before", [True, False])
def test_nothing_that_is_changed_later_changes_terms(is_asked_before):
    """Neither the arrays that they were made of nor their own, whichever copy of them."""
    given = {
        "adjacency": COMPLETE.copy(),
        "thresholds": np.full(N, 3),
        "roster": list(ROSTER),
        "blocks": np.asarray([0, 0, 1, 1]),
    }
    own, expected = Terms(**given), terms()
    if is_asked_before:
        assert own.digest == expected.digest
    given["blocks"][:] = [0, 1, 0, 1]
    given["thresholds"][:] = 1
    given["adjacency"][:] = False
    given["roster"][0] = bytes(32)
    for one in copies(own):
        assert one.digest == expected.digest
        assert one.mates(0) == {0, 1}
        assert one.roster == tuple(ROSTER)
        for name in ARRAYS:
            array = getattr(one, name)
            assert np.array_equal(array, getattr(expected, name))
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.setflags(write=True)
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.blocks = None


# --- the digest of a model


def test_a_model_has_one_digest_wherever_its_arrays_are():
    host = {
        "layer": {
            "kernel": np.ones((2, 3), np.float32),
            "bias": np.zeros(3, np.float32),
        }
    }
    device = {"layer": {name: jnp.asarray(own) for name, own in host["layer"].items()}}
    turned = {
        "layer": {
            "bias": host["layer"]["bias"],
            "kernel": np.asfortranarray(host["layer"]["kernel"]),
        }
    }
    big = {"layer": {name: own.astype(">f4") for name, own in host["layer"].items()}}
    assert len({model_digest(own) for own in (host, device, turned, big)}) == 1
    assert len(model_digest(host)) == 32


@flax.struct.dataclass
class Model:
    """A model with a field that is no array, of which JAX keeps the text only."""

    kernel: Any
    fixed: Any = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class OtherModel(Model):
    """The same fields under another name."""


class LooksLikeAny:
    """An object whose text tells it from no other of its kind."""

    def __repr__(self):
        return "0.1"


def different_models():
    ones = np.ones((2, 3), np.float32)
    nearly = ones.copy()
    nearly[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    signed = np.zeros(6, np.float32)
    yield from (ones, nearly, ones.reshape(3, 2), ones.ravel(), ones.astype(np.float64))
    yield from (
        ones.astype(np.int32),
        ones.astype(bool),
        signed,
        -signed,
        [ones],
        (ones,),
    )
    yield from (
        {"a": ones},
        {"b": ones},
        {"a": ones, "b": None},
        {"a": ones, "b": ones},
    )
    yield from (jnp.ones((2, 3), jnp.bfloat16), jnp.ones((2, 3), jnp.float16))
    yield from (
        Model(ones, 0.1),
        Model(ones, 0.2),
        Model(ones, "0.1"),
        Model(ones, (0.1, None)),
    )
    yield from (
        OtherModel(ones, 0.1),
        OrderedDict(a=ones, b=ones),
        OrderedDict(b=ones, a=ones),
    )


def test_different_models_have_different_digests():
    digests = [model_digest(own) for own in different_models()]
    assert len(set(digests)) == len(digests)


def test_settings_are_part_of_what_decides_an_update():
    model = np.ones(3, np.float32)
    settings = [
        {},
        {"rate": 0.1},
        {"rate": 0.0},
        {"rate": -0.0},
        {"rate": 0},
        {"rate": False},
        {"rate": None},
        {"rate": "0.1"},
        {"rate": b"0.1"},
        {"rate": float(np.nextafter(0.1, 1))},
        {"epochs": 1},
        {"rate": 0.1, "epochs": 1},
        {"rate": [0.1]},
        {"rate": [0.1, 1]},
        {"rate": [[0.1], 1]},
    ]
    digests = [model_digest(model, **own) for own in settings]
    assert len(set(digests)) == len(digests)
    assert model_digest(model, b=1, a=2) == model_digest(model, a=np.int64(2), b=1)
    assert model_digest(model, a=(1, 2)) == model_digest(model, a=[1, 2])


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ({}, {}, "`model` must hold at least one array"),
        (None, {}, "`model` must hold at least one array"),
        (np.asarray(["weights"]), {}, "`model` must hold arrays"),
        (np.ma.masked_array(np.ones(2), [True, False]), {}, "`model` must hold arrays"),
        ("weights.npz", {}, "`model` must hold arrays"),
        ([np.ones(2), object()], {}, "`model` must hold arrays"),
        (
            Model(np.ones(2), LooksLikeAny()),
            {},
            "`model: the fixed fields of .*Model` must be a n",
        ),
        (
            [Model(np.ones(2), [LooksLikeAny()])],
            {},
            "`model: the fixed fields of .*Model`",
        ),
        (
            Model(np.ones(2), np.zeros(2000)),
            {},
            "`model: the fixed fields of .*Model` must be a n",
        ),
        (
            jax.tree_util.Partial(np.add, np.ones(2)),
            {},
            "`model: the fixed fields of .*Partial`",
        ),
        (
            defaultdict(list, a=np.ones(2)),
            {},
            "`model: the fixed fields of .*defaultdict`",
        ),
        (np.ones(2), {"rate": object()}, "`rate` must be a number, a text"),
        (np.ones(2), {"schedule": lambda step: step}, "`schedule` must be a number"),
        (np.ones(2), {"rate": np.ones(2)}, "`rate` must be a number"),
        (np.ones(2), {"rates": [0.1, {}]}, "`rates` must be a number"),
    ],
)
def test_what_has_no_digest_is_refused(model, settings, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        model_digest(model, **settings)


# --- pledges

VARIANTS = [terms(), terms((0, 1, 0, 1)), terms(session=b"another"), terms(blocks=None)]
tries = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 6),
        st.sampled_from([0, 0, 0, 1, 2, 3]),
        st.booleans(),
    ),
    max_size=12,
)


@hypothesis.given(tries, st.booleans())
def test_rounds_rise_and_terms_last_whoever_keeps_them(
    tmp_path_factory, played, has_file
):
    """Three holders of one file, some of whom open it again; or one that remembers."""
    path = tmp_path_factory.mktemp("pledge") / "client" if has_file else None
    holders = [Pledge(path) for _ in range(3)] if has_file else [Pledge()] * 3
    first, last = None, -1
    for who, number, variant, is_opened in played:
        if is_opened and has_file:
            holders[who] = Pledge(str(path))
        is_kept = number > last and first in (None, variant)
        try:
            holders[who].keep(VARIANTS[variant], number)
        except UnexpectedMessageError:
            assert not is_kept
        else:
            assert is_kept
            first, last = variant, number


def test_a_pledge_stays_with_its_file(tmp_path, monkeypatch):
    """Whatever folder the process goes to, and by whichever name the file is opened."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    relative, linked = Pledge("file"), Pledge("link")
    monkeypatch.chdir(tmp_path / "other")
    relative.keep(terms(), 1)
    with pytest.raises(UnexpectedMessageError, match="round 1 is not above round 1"):
        linked.keep(terms(), 1)
    linked.keep(terms(), 2)
    with pytest.raises(UnexpectedMessageError, match="round 2 is not above round 2"):
        relative.keep(terms(), 2)
    assert [path.name for path in (tmp_path / "other").iterdir()] == []
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("content", [b"", bytes(35), bytes(37)])
def test_a_file_that_is_no_pledge_is_refused(tmp_path, content):
    path = tmp_path / "file"
    opened = Pledge(path)
    path.write_bytes(content)
    for act in (lambda: Pledge(path), lambda: opened.keep(terms(), 0)):
        with pytest.raises(
            mj.ConfigurationError, match=r"`path` must be a pledge's file of 36"
        ):
            act()
    assert path.read_bytes() == content


def test_a_file_that_is_gone_or_older_than_what_is_remembered_is_refused(tmp_path):
    path = tmp_path / "file"
    pledge = Pledge(path)
    pledge.keep(terms(), 1)
    backup = path.read_bytes()
    pledge.keep(terms(), 2)
    path.write_bytes(backup)
    with pytest.raises(UnexpectedMessageError, match="round 2 is not above round 2"):
        pledge.keep(terms(), 2)
    path.unlink()
    with pytest.raises(
        mj.ConfigurationError, match="`path` must still hold the pledge"
    ):
        pledge.keep(terms(), 3)
    with pytest.raises(mj.ConfigurationError, match="can be read"):
        Pledge(tmp_path)
    with pytest.raises(mj.MrsaError, match="`path` must have room to be written"):
        Pledge(tmp_path / "nowhere" / "file").keep(terms(), 0)


@pytest.mark.parametrize("number", [-1, 2**32])
def test_rounds_that_no_message_holds_are_refused(number):
    with pytest.raises(mj.ConfigurationError, match="`round_index` must lie in"):
        Pledge().keep(terms(), number)


def test_threads_take_part_in_a_round_once(tmp_path):
    path, kept = tmp_path / "file", []
    start = threading.Barrier(4)

    def take_part():
        pledge = Pledge(path)
        start.wait()
        for number in range(6):
            try:
                pledge.keep(terms(), number)
            except UnexpectedMessageError:
                continue
            kept.append(number)

    threads = [threading.Thread(target=take_part) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == len(set(kept)) > 0
    assert max(kept) == 5


PROCESS = """
import sys
import numpy as np
from mrsa_jax.protocol import Pledge, Terms
from mrsa_jax.protocol.errors import UnexpectedMessageError

path, block = sys.argv[1], int(sys.argv[2])
terms = Terms([bytes(32)] * 4, ~np.eye(4, dtype=bool), np.full(4, 3), np.roll([0, 0, 1, 1], block))
pledge = Pledge(path)
print("ready", flush=True)
sys.stdin.readline()
for number in range(200):
    try:
        pledge.keep(terms, number)
    except UnexpectedMessageError:
        continue
    print(number, flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("blocks", [(0, 0, 0, 0), (0, 1, 0, 1)])
def test_processes_take_part_in_a_round_once(tmp_path, blocks):
    """Four at a time, with equal blocks or not.

    Each round for one of them, one partition.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path / "file"), str(block)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for block in blocks
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all wait: they start as nearly together as they can
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(blocks)
    rounds = [int(number) for own in told for number in own]
    assert len(rounds) == len(set(rounds)) > 100
    assert len({block for block, own in zip(blocks, told, strict=True) if own}) == 1
