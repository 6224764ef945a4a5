"""One round of the protocol from end to end.

All clients, the server and what is lost between.
CCESA, Algorithm 1; SecAgg over the complete graph. Simulates the parties in one
process: each holds its own secrets only, and nothing but bytes passes between them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.round_rules import block_numbers
from mrsa_jax._core.status import CHECK, STEPS, STEPS_WITH_CHECK
from mrsa_jax.protocol._client import Client
from mrsa_jax.protocol._network import SERVER, Network, Refusal, disturbed
from mrsa_jax.protocol._primitives import (
    KEY_BYTES,
    Entropy,
    SigningKey,
    setting_entropy,
)
from mrsa_jax.protocol._server import Server
from mrsa_jax.protocol._terms import Terms, checked_contexts, digest_of
from mrsa_jax.protocol.errors import ProtocolError
from mrsa_jax.secagg import (
    AggregateResult,
    Seeds,
    SegmentPlan,
    StepReport,
    Transcript,
    unmasking_risk,
)
from mrsa_jax.secagg.setting import RoundSetting, check_setting
from mrsa_jax.secagg.thresholds import Thresholds

Progress = Callable[[str, int, int], None]
_SIGNERS = 2**32 - 1  # streams of signing keys, counted down from here: no client's id


def run(
    inputs: ArrayLike | list[object],
    adjacency: ArrayLike | list[object],
    survivors: ArrayLike | list[object],
    thresholds: Thresholds,
    modulus_bits: int | np.integer | None = None,
    *,
    modulus: int | np.integer | None = None,
    entropy: int | np.integer | bytes | None = None,
    round_index: int | np.integer = 0,
    network: Network | None = None,
    progress: Progress | None = None,
    plan: SegmentPlan | None = None,
    contexts: Sequence[bytes] | None = None,
    consistency: bool = False,
    blocks: ArrayLike | Sequence[int] | None = None,
) -> AggregateResult:
    """Run one round with real messages and real cryptography.

    Use it to see and measure the protocol itself; `secagg.aggregate` computes the same
    round, bit for bit, as array operations.

    Args:
        inputs: Integers in [0, R), [n, d]; with a plan, of each block's ring in its
            members' coordinates of it. What a client holds elsewhere is never read.
        adjacency: bool[n, n], symmetric with an empty diagonal: the clients that share
            keys.
        survivors: bool[5, n], V0 to V4, nested: a client in V_s but not in V_(s+1)
            computes its message of step s, which never arrives.
        thresholds: t_i, at least 1, one integer or [n], or the name of a rule,
            "majority" or "remark4" (`secagg.check_round`); above |Adj(i)| + 1 the
            secrets of i can never be recovered.
        modulus_bits: b of the ring of R = 2**b, 1 to 32; exactly one of this, `modulus`
            and `plan`.
        modulus: R: 2**b, or any integer in [2, 2**31).
        entropy: None for the operating system's randomness; bytes or a non-negative
            integer for a round that can be repeated (tests and simulation only). All
            keys come from it and from the graph, thresholds, blocks, contexts and
            round; rounds that differ in inputs and losses alone need another.
        round_index: Round, part of every derived key and nonce.
        network: What carries the messages; see `disturbed`.
        progress: Called with (step's name, clients done, clients in all).
        plan: Blocks of the round, each client in at least one: keys and shares once
            along the whole graph, pads between neighbours in the same block. None for
            one block of all clients.
        contexts: n byte strings, what decides each client's update besides its data:
            the digest of the model that it was sent (`model_digest`). They go into the
            seeds of the pair pads, which cancel only between clients with equal ones,
            so a server that sends different models gets a sum without meaning. With the
            consistency check clients sign them too, and refuse the keys of neighbours
            with another one. None for none; `blocks` needs them.
        consistency: Add the signed consistency check of Bonawitz et al. between the
            padded inputs and unmasking: the server names all of V3 to each client, each
            signs it, and none unmasks before t_i of it and its neighbours have signed
            the list that it signed. Each client knows the others' signing keys in
            advance (a PKI), and step 0 is signed too. A client outside V4 is lost
            before it signs. `network` sees the signatures as step 3, unmasking as step
            4.
        blocks: int[n], the number of each client's block, or T for blocks i // T, which
            clients keep against any server, with the consistency check: see
            `protocol.Terms`. An honest server excludes the blocks that lost a member
            before V3. Mates must have the same neighbours and the same threshold, above
            half of their neighbourhood. Blocks protect a client only if all its mates
            had the same model, so `contexts` must be set.

    Returns:
        The round's outcome. `total` is the sum over V3, zeros unless `status` is OK;
        with a plan `totals`, one for each block over those of its members who are
        `summed`. A block whose pads cannot be removed has zeros and leaves the round
        `UNRELIABLE`; the totals of the other blocks stand, since the server knows them.
        `learned`, `is_reliable`, `is_private` and `transcript` follow from the secrets
        that the server really recovered; `seeds` are all clients', which the server
        never sees. A client whose message is refused, or who refuses the server's,
        counts as dropped from that step on (`network.refused` hears why); shares that
        are found to be forged leave the round `UNRELIABLE`. With |V3| < 2 the status is
        `TOO_FEW_SURVIVORS`: the client refuses to unmask, so that V4 is empty and
        nothing is learned. A client of V3 who would be alone in one of its blocks
        counts as lost in all of them (`secagg.admitted`): it learns that it is alone,
        refuses to answer, and what it sent stays hidden by its self pads.

        A client sends no input where of it and its neighbours t_i were in V1 and fewer
        are in V2, and no shares where fewer than t_i are summed: it refuses such lists,
        an honest server's as a lying one's. What then still works is a different list
        for each client, which gives sums over few or single clients
        (`secagg.unmasking_risk`). The consistency check ends that: over the complete
        graph with 2 t > n all who unmask have signed one list. On a sparse graph a
        client can check its own neighbourhood only: i and j who unmask have signed one
        list if fewer than t_i + t_j clients are in Adj(i), Adj(j) or these two. Without
        the check advertised keys are not signed: a server that makes up keys reads all
        shares.

    Raises:
        ConfigurationError: If an argument breaks a rule, or `blocks` are set without
            `contexts`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> complete = ~np.eye(3, dtype=bool)
        >>> survivors = np.ones((5, 3), bool)
        >>> survivors[3:, 2] = False  # lost before its padded input arrived
        >>> result = mj.protocol.run(
        ...     [[1, 2], [10, 20], [100, 200]], complete, survivors, 2, 8, entropy=0
        ... )
        >>> result.status.name, result.total.tolist()
        ('OK', [11, 22])

    Cost: for each edge four X25519 agreements (36 microseconds each) and two keystreams
    of d words (of 2 d if R is no power of two); one of each for each edge between V3
    and V2 less V3. The consistency check adds one signature per client and one check
    per edge, each way.

    Source: CCESA, Algorithm 1; differs from the paper in sending one's own share of
    b_i, in the signs of its eq. (2) (docs/errata.md), and in binding ciphertexts to the
    public pad keys. The consistency check: Bonawitz et al., "Practical secure
    aggregation for privacy-preserving machine learning" (CCS 2017), Figure 4.
    """
    setting = check_setting(
        inputs,
        adjacency,
        survivors,
        thresholds,
        modulus_bits,
        modulus,
        plan,
        round_index,
    )
    graph, script, limits, values, sums, index = setting
    carrier = disturbed() if network is None else network
    labels = None if blocks is None else block_numbers(blocks, len(graph))
    bound = checked_contexts(contexts, len(graph), keeps_blocks=labels is not None)
    digest = digest_of(*bound) + bytes([consistency])
    if labels is not None:
        digest += labels.tobytes()
    # rounds that differ in any of this must not share a key
    seed = setting_entropy(entropy, setting.digest + digest)
    keys: dict[int, SigningKey] = {}
    terms = None
    if consistency or labels is not None:
        sources = [Entropy(seed, client=_SIGNERS - i) for i in range(len(graph))]
        keys = {
            i: SigningKey(source.draw(KEY_BYTES)) for i, source in enumerate(sources)
        }
        terms = Terms([key.public_key for key in keys.values()], graph, limits, labels)
    server = Server(graph, limits, script[0], sums, index, bound, terms)
    clients = {
        i: Client(
            i,
            np.flatnonzero(graph[i]).tolist(),
            int(limits[i]),
            values[i],
            sums,
            index,
            seed,
            bound[i],
            keys.get(i),
            terms,
        )
        for i in np.flatnonzero(script[0]).tolist()
    }
    steps = STEPS if terms is None else STEPS_WITH_CHECK
    return _Round(setting, server, clients, carrier, progress, steps).play()


@dataclasses.dataclass
class _Round:
    """All parties of one round, and a stopwatch."""

    setting: RoundSetting
    server: Server
    clients: dict[int, Client]
    network: Network
    progress: Progress | None
    steps: tuple[str, ...]

    def play(self) -> AggregateResult:
        server = self.server
        close: list[Callable[[], Any]] = [
            server.advertise_keys,
            server.share_keys,
            server.masked_input,
            server.unmask,
        ]
        if len(self.steps) > len(close):
            close.insert(3, server.sign_survivors)
        inbox = {i: [b""] for i in self.clients}
        reports = []
        for step, name in enumerate(self.steps):
            client_seconds, server_seconds, bytes_up, late = self._collect(step, inbox)
            start = time.perf_counter()
            answers: Any = close[step]()
            # closing a step is the work of the server alone
            server_seconds += time.perf_counter() - start
            outbox: dict[int, bytes] = answers if close[step] != server.unmask else {}
            # after the step was closed: the server must ignore it
            for i, message in late:
                self._receive(step, i, message)
            heard = (
                server.signed if name == CHECK else server.survivors[min(step + 1, 4)]
            )
            count = int(heard.sum())
            bytes_down = sum(len(message) for message in outbox.values())
            costs = client_seconds, server_seconds, bytes_up, bytes_down
            reports.append(StepReport(name, count, *costs))
            inbox = {
                i: list(self.network.carry(step + 1, SERVER, i, message))
                for i, message in outbox.items()
            }
        return self._result(tuple(reports))

    def _collect(
        self, step: int, inbox: dict[int, list[bytes]]
    ) -> tuple[float, float, int, list[tuple[int, bytes]]]:
        """Let clients answer one step and the server hear them.

        Returns:
            Seconds of the clients and of the server, bytes that reached it, and what
            comes late.
        """
        client_seconds = server_seconds = 0.0
        bytes_up, late = 0, []
        for done, (i, received) in enumerate(inbox.items()):
            start = time.perf_counter()
            answers = self._answers(step, i, received)
            middle = time.perf_counter()
            client_seconds += middle - start
            # a client that is lost at this step has computed its message in vain
            if self.setting.survivors[min(step + 1, 4), i]:
                for answer in answers:
                    for message in self.network.carry(step, i, SERVER, answer):
                        bytes_up += len(message)
                        self._receive(step, i, message)
                    delayed = self.network.carry_late(step, i, SERVER, answer)
                    late += [(i, message) for message in delayed]
            server_seconds += time.perf_counter() - middle
            if self.progress is not None:
                self.progress(self.steps[step], done + 1, len(inbox))
        return client_seconds, server_seconds, bytes_up, late

    def _answers(self, step: int, i: int, received: list[bytes]) -> list[bytes]:
        """Return a client's messages: one, unless it was sent copies or refuses."""
        client = self.clients[i]
        # the first step answers nothing: it has no message to read
        acts = (
            lambda _: client.advertise_keys(),
            client.share_keys,
            client.masked_input,
            client.sign_survivors,
            client.unmask,
        )
        act = dict(zip(STEPS_WITH_CHECK, acts, strict=True))[self.steps[step]]
        answers: list[bytes] = []
        for message in received:
            try:
                answer = act(message)
            except ProtocolError as error:
                self.network.refused(Refusal(step, i, False, error))
            else:
                # a copy gets the same bytes again, which are sent once
                answers += [] if answer in answers else [answer]
        return answers

    def _receive(self, step: int, i: int, message: bytes) -> None:
        try:
            self.server.receive(i, message)
        except ProtocolError as error:
            self.network.refused(Refusal(step, i, True, error))

    def _result(self, reports: tuple[StepReport, ...]) -> AggregateResult:
        server = self.server
        transcript = Transcript(
            server.survivors, server.padded_inputs, server.is_recovered
        )
        risk = unmasking_risk(self.setting.graph, self.setting.thresholds).any()
        return AggregateResult(
            server.totals,
            *server.outcome,
            bool(risk),
            transcript,
            self._seeds(),
            reports,
        )

    def _seeds(self) -> Seeds:
        """Return every client's seeds.

        Zeros for those who drew none, edges never agreed.
        """
        n = len(self.setting.graph)
        self_seed = np.zeros((n, 8), np.uint32)
        edges = np.argwhere(np.triu(self.setting.graph)).astype(np.int32)
        pair_seed = np.zeros((len(edges), 8), np.uint32)
        drawn = {
            i: client
            for i, client in self.clients.items()
            if client.self_seed is not None
        }
        for i, client in drawn.items():
            assert client.self_seed is not None
            self_seed[i] = np.frombuffer(client.self_seed, "<u4")
        for row, (i, j) in zip(pair_seed, edges.tolist(), strict=True):
            if i in drawn and j in drawn and drawn[i].knows(j):
                row[:] = np.frombuffer(drawn[i].pair_seed(j), "<u4")
        return Seeds(
            on_device(np.arange(n, dtype=np.int32)),
            self_seed=on_device(self_seed),
            pair_seed=on_device(pair_seed),
            edges=on_device(edges),
        )
