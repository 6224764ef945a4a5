"""The server of the four-step protocol: it knows what clients send it and nothing else.

`receive` takes messages while a step is open; one method a step closes it and returns
what each client is sent next. CCESA, Algorithm 1; V1..V4 are those whose messages came
in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mrsa_jax._core.status import Status
from mrsa_jax.protocol._pads import PAIR_PAD, SELF_PAD, PadSum
from mrsa_jax.protocol._primitives import KeyPair, pad_seed, refuse_small_order
from mrsa_jax.protocol._terms import Terms, checked_contexts
from mrsa_jax.protocol._wire import kind_of, limbs_of
from mrsa_jax.protocol.errors import ForgedShareError, UnexpectedMessageError
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
from mrsa_jax.protocol.shamir import recover
from mrsa_jax.secagg import PlanOutcome, SegmentPlan, admitted, segment_plan
from mrsa_jax.secagg.outcome import judged
from mrsa_jax.secagg.plans import Block, only_total
from mrsa_watch._base.errors import require

_Mail: TypeAlias = dict[int, bytes]
"""A message, a signature or a seed of each client."""
_Shares: TypeAlias = list[tuple[int, bytes]]
"""Clients, and what each sent: a sealed parcel for somebody, or a share."""


class Server:
    """The server's state in one round.

    Attributes:
        step: The step that is open, 0 to 3; 4 after the last. With the consistency
            check it is step 3 and unmasking step 4.
        survivors: bool[5, n], V0 to V4 as far as they are known.
        signed: bool[n], who signed the list of survivors in the consistency check.
        summed: bool[n], whose inputs the round sums, once Step 2 is closed: V3 less
            those who would be alone in one of their blocks, and of the blocks that
            clients keep, those that lost somebody. These count as lost: of them s_i^SK
            is recovered, never b_i, and their self pads still hide what they sent.
        padded_inputs: uint32[n, d], what the clients of V3 sent; zeros elsewhere.
        is_recovered: bool[n], whose secret (b_i of those summed, else s_i^SK) the
            shares gave back.
        rejected: Errors of shares that were found to be forged.
        outcome: What became of the round and of its blocks, with the secrets so far.
        status: What became of the round, once it is over.
        totals: For each block uint32[stop - start], the sum modulo R; zeros unless the
            block's status is OK.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> complete = ~np.eye(2, dtype=bool)
        >>> server = mj.protocol.Server(
        ...     complete,
        ...     np.asarray([2, 2]),
        ...     np.ones(2, bool),
        ...     mj.secagg.complete_plan(2, 1, 2**8),
        ... )
        >>> server.advertise_keys()  # closes step 0; nobody sent keys
        {}

    Source: CCESA, Algorithm 1.
    """

    def __init__(
        self,
        adjacency: np.ndarray,
        thresholds: np.ndarray,
        cohort: np.ndarray,
        plan: SegmentPlan,
        round_index: int = 0,
        contexts: Sequence[bytes] | None = None,
        terms: Terms | None = None,
    ) -> None:
        """Open step 0.

        Args:
            adjacency: bool[n, n], symmetric with an empty diagonal.
            thresholds: int[n], t_i.
            cohort: bool[n], V0: who may take part.
            plan: Blocks of the round, each client in at least one.
            round_index: Round.
            contexts: What each client puts into the seeds of its pair pads and signs,
                which the server knows where it is a hash of the model that it sent;
                nothing if None.
            terms: What the clients agreed on, for a round with the consistency check:
                keys are signed, signatures of the list of survivors are collected
                before unmasking, and each client is sent its neighbours'. None for a
                round without.

        Raises:
            ConfigurationError: If the plan is none of n clients, or not all of them are
                in it. If `contexts` are missing where the terms have blocks.
        """
        n = len(adjacency)
        self._plan = segment_plan(plan, n)
        self._blocks: list[list[Block]] = [[] for _ in range(n)]  # of each client
        for block in self._plan:
            for i in block.members:
                self._blocks[i].append(block)
        self._adjacency = adjacency
        self._neighbours = [
            frozenset(np.flatnonzero(row).tolist()) for row in adjacency
        ]
        self._thresholds = [int(t) for t in thresholds]
        self.round_index = round_index
        keeps_blocks = terms is not None and terms.blocks is not None
        self._contexts = checked_contexts(contexts, n, keeps_blocks=keeps_blocks)
        # the message that is due at each step
        self._takes: list[tuple[Any, Callable[[int, Any], None]]] = [
            (AdvertiseKeys, self._take_keys),
            (ShareKeys, self._take_shares),
            (MaskedInput, self._take_input),
            (UnmaskShares, self._take_unmasking),
        ]
        self._terms = terms
        self._kept = None if terms is None else terms.blocks
        if terms is not None:
            self._takes[0] = (SignedKeys, self._take_keys)
            self._takes.insert(3, (SignedSurvivors, self._take_signature))
        self.signed = np.zeros(n, bool)
        self._signatures: _Mail = {}
        self.step = 0
        self.survivors = np.zeros((5, n), bool)
        self.survivors[0] = cohort
        self.summed = np.zeros(n, bool)
        width = max(block.stop for block in self._plan)
        self.padded_inputs = np.zeros((n, width), np.uint32)
        self.is_recovered = np.zeros(n, bool)
        self.rejected: list[ForgedShareError] = []
        self.status: Status | None = None
        widths = [block.stop - block.start for block in self._plan]
        self.totals = tuple(np.zeros(width, np.uint32) for width in widths)
        self.outcome = self._judged()
        self._inbox: _Mail = {}
        self._keys: dict[int, tuple[bytes, ...]] = {}
        self._seen_keys: set[bytes] = set()
        self._mail: dict[int, _Shares] = {}
        self._self_shares: dict[int, _Shares] = {}
        self._key_shares: dict[int, _Shares] = {}
        self._self_seeds: _Mail = {}  # b_i where recovered
        self._pad_keys: dict[int, KeyPair] = {}  # s_i^SK where recovered
        self._pair_seeds: dict[tuple[int, int], bytes] = {}
        self._sums: dict[int, np.ndarray] = {}  # by row of what is learnt

    total = property(only_total)

    def receive(self, client: int, message: bytes) -> bool:
        """Take one client's message of the open step.

        Args:
            client: Whose connection it came by.
            message: Its bytes.

        Returns:
            Whether it counts: False for a copy of one that is here already and for one
            that comes after its step was closed, both of which are ignored.

        Raises:
            MalformedMessageError: If the bytes are no message of a client.
            UnexpectedMessageError: If it is of a later step, another round or another
                client, differs from the client's first, repeats a public key, or does
                not hold exactly the entries that it should.
            KeyAgreementError: If a public key is of small order.
            AuthenticationError: If a signature is not one of the list that it sent.
        """
        kind = kind_of(message)
        kinds = [due.KIND for due, _ in self._takes]
        _expect(kind in kinds, client, "sent a message of the server")
        step = kinds.index(kind)
        # too late: the client counts as lost already
        if step < self.step:
            return False
        _expect(step == self.step, client, f"is at step {step}, not {self.step}")
        _expect(self._is_in(step, client), client, f"is not in V{step}")
        _expect(step < 3 or bool(self.summed[client]), client, "counts as lost")
        if client in self._inbox:
            _expect(
                self._inbox[client] == message, client, "sent two different messages"
            )
            return False
        due, take = self._takes[step]
        # both sides know the form of an input: it is not sent
        layouts = (self._layout(client),) if due is MaskedInput else ()
        read = due.from_bytes(message, *layouts)
        number, current = read.round_index, self.round_index
        _expect(read.client == client, client, f"writes as client {read.client}")
        _expect(number == current, client, f"is in round {number}, not {current}")
        take(client, read)
        self._inbox[client] = message
        return True

    def advertise_keys(self) -> dict[int, bytes]:
        """Close step 0 and return `KeyList` for each client of V1."""
        self._close(0)
        both = {i: b"".join(keys) for i, keys in self._keys.items()}
        kind = SignedKeyList if self._is_checked else KeyList
        return {
            i: kind(
                self.round_index, tuple((j, both[j]) for j in self._near(i, 1))
            ).to_bytes()
            for i in self._members(1)
        }

    def share_keys(self) -> dict[int, bytes]:
        """Close step 1 and return `ShareList` for each client of V2."""
        self._close(1)
        return {
            i: ShareList(
                self.round_index, tuple(sorted(self._mail.get(i, ())))
            ).to_bytes()
            for i in self._members(2)
        }

    def masked_input(self) -> dict[int, bytes]:
        """Close step 2, decide who is summed, return V3's `SurvivorList`s.

        It names only clients who are summed, the recipient and its neighbours of them
        or, for the consistency check, all; and reports their number. A client who
        counts as lost learns that it is alone, which it refuses to answer.
        """
        self._close(2)
        v3 = self._members(3)
        # whoever would be alone in a block counts as lost in all of them
        self.summed[:] = admitted(self._plan, self.survivors[3], self._kept)
        summed = np.flatnonzero(self.summed).tolist()
        count = len(summed)
        named = (lambda _: summed) if self._is_checked else self._named
        return {
            i: SurvivorList(self.round_index, count, tuple(named(i))).to_bytes()
            if self.summed[i]
            else SurvivorList(self.round_index, 1, (i,)).to_bytes()
            for i in v3
        }

    def sign_survivors(self) -> dict[int, bytes]:
        """Close the consistency check, return a `SignatureList` per signer."""
        self._close(3)
        return {
            i: SignatureList(
                self.round_index,
                tuple(
                    (j, self._signatures[j])
                    for j in self._summed_near(i)
                    if self.signed[j]
                ),
            ).to_bytes()
            for i in np.flatnonzero(self.signed).tolist()
        }

    def unmask(self) -> Status:
        """Close the last step, recover secrets and remove pads.

        Set the statuses and `totals`.

        Returns:
            `TOO_FEW_SURVIVORS` if nobody is summed, `UNRELIABLE` if a pad of a block's
            sum cannot be removed or a share is found to be forged, otherwise `OK`. The
            totals of blocks that can be unmasked stand in an unreliable round too: the
            server has them anyway.
        """
        self._close(len(self._takes) - 1)
        if self.summed.any():
            for is_key, held in ((False, self._self_shares), (True, self._key_shares)):
                for owner, shares in held.items():
                    self._recover(owner, shares, is_key=is_key)
        self.outcome = self._judged()
        for number in np.flatnonzero(self.block_status == Status.OK).tolist():
            self._add_up(number)
        self.status = self.outcome.status
        return self.status

    def evidence(self) -> dict[str, Any]:
        """Return what a log needs so that nobody has to believe the server.

        Record the sum with it as soon as the consistency check is closed: the clients
        then hand out shares, so it counts as learnt whatever becomes of the round.

        Returns:
            `model`, `graph` and `head` in hex digits, and `signed`, the signature of
            each client that signed the list; `evidence` of `live.Recorder.record`.

        Raises:
            UnexpectedMessageError: If the round has no consistency check, it is still
                open, or nobody is summed.
            ConfigurationError: If clients that are summed were sent different models.
        """
        terms = self._terms
        if terms is None or self.step < 4 or not self.summed.any():
            raise UnexpectedMessageError("the round has no signed list of survivors")
        summed = np.flatnonzero(self.summed).tolist()
        models = {self._contexts[client] for client in summed}
        rule = "must be equal for all clients in the sum"
        require(len(models) == 1, "contexts", rule, len(models))
        (model,) = models
        signatures = self._signatures.items()
        return {
            "model": model.hex(),
            "graph": terms.graph_digest.hex(),
            "head": terms.head(self.round_index, summed, model).hex(),
            "signed": {client: signature.hex() for client, signature in signatures},
        }

    @property
    def block_status(self) -> np.ndarray:
        """Return int32[blocks], what became of each block's sum."""
        return self.outcome.block_status

    @property
    def learned(self) -> np.ndarray:
        """Return bool[L, n].

        The sets whose sums can be unmasked, by block and smallest member.
        In each block the components of the graph on those summed whose pads can all be
        removed, with the secrets that are really here; no rows if nobody is summed.
        """
        return self.outcome.learned

    @property
    def learned_block(self) -> np.ndarray:
        """Return int32[L], the block of each row of `learned`."""
        return self.outcome.learned_block

    def learned_sums(self) -> list[np.ndarray]:
        """Return the sums over the rows of `learned`, uint32[stop - start] each.

        An honest server computes them only for blocks all of whose pads come off, where
        they add up to the total; a curious one for any.
        """
        return [self._sum(row) for row in range(len(self.learned))]

    def is_removable(self) -> bool:
        """Return whether the secrets here remove every pad of the round's sums.

        Not where somebody sent and nobody is summed, as clients then refuse; nothing is
        in the way of empty sums.
        """
        return self.outcome.is_reliable

    def is_private(self) -> bool:
        """Return whether no sum over a part of a block's clients can be computed."""
        return self.outcome.is_private

    def _judged(self) -> PlanOutcome:
        """Judge the round with the secrets that are here."""
        return judged(
            self._adjacency,
            self.survivors,
            self.summed,
            self.is_recovered,
            self._plan,
        )

    def _sum(self, row: int) -> np.ndarray:
        if row not in self._sums:
            members = np.flatnonzero(self.learned[row]).tolist()
            self._sums[row] = self._unmasked(int(self.learned_block[row]), members)
        return self._sums[row]

    def _unmasked(self, number: int, component: list[int]) -> np.ndarray:
        """Return the sum over a component in a block; its members' pairs cancel.

        Pads with those of V2 who are not summed are in the members' inputs and nowhere
        else.
        """
        block = self._plan[number]
        lost = np.flatnonzero(self.survivors[2] & ~self.summed)
        here = set(lost.tolist()).intersection(block.members)
        zeros = np.zeros(block.stop - block.start, np.uint32)
        total = PadSum(zeros, block.modulus, number, self.round_index)
        for i in component:
            total.add_residues(self.padded_inputs[i, block.start : block.stop])
            total.add(self._self_seeds[i], SELF_PAD, -1)
            for j in sorted(here & self._neighbours[i]):
                # the smaller id has added the pad, the larger one subtracted it
                total.add(self._pair_seed(i, j), PAIR_PAD, -1 if i < j else 1)
        return total.residues()

    def _pair_seed(self, client: int, lost: int) -> bytes:
        """Return s_ij, agreed once for all blocks that the two share."""
        pair = (client, lost)
        if pair not in self._pair_seeds:
            secret = self._pad_keys[lost].agree(self._keys[client][1])
            context = self._contexts[client]
            if self._terms is not None:
                context = self._terms.bound(context)
            self._pair_seeds[pair] = pad_seed(
                secret, client, lost, self.round_index, context
            )
        return self._pair_seeds[pair]

    def _add_up(self, number: int) -> None:
        """Set a block's total."""
        total = PadSum(
            self.totals[number], self._plan[number].modulus, number, self.round_index
        )
        for row in np.flatnonzero(self.learned_block == number).tolist():
            total.add_residues(self._sum(row))
        self.totals[number][:] = total.residues()

    @property
    def _is_checked(self) -> bool:
        return self._terms is not None

    def _is_in(self, step: int, client: int) -> bool:
        here = self.signed if self._is_checked and step == 4 else self.survivors[step]
        return 0 <= client < len(here) and bool(here[client])

    def _members(self, step: int) -> list[int]:
        return np.flatnonzero(self.survivors[step]).tolist()

    def _near(self, client: int, step: int) -> list[int]:
        return sorted(j for j in self._neighbours[client] if self.survivors[step, j])

    def _named(self, client: int) -> list[int]:
        return sorted((client, *self._summed_near(client)))

    def _summed_near(self, client: int) -> list[int]:
        return sorted(j for j in self._neighbours[client] if self.summed[j])

    def _close(self, step: int) -> None:
        if step != self.step:
            raise UnexpectedMessageError(f"step {self.step} is open, not {step}")
        is_signing = self._is_checked and step == 3
        heard = self.signed if is_signing else self.survivors[min(step + 1, 4)]
        # whoever answered is in the next set; all others have dropped out
        heard[list(self._inbox)] = True
        self._inbox = {}
        self.step = step + 1

    def _layout(self, client: int) -> tuple[tuple[int, int], ...]:
        """Return the length and the modulus of each of a client's blocks."""
        return tuple(
            (block.stop - block.start, block.modulus) for block in self._blocks[client]
        )

    def _check_ids(
        self,
        client: int,
        ids: Iterable[int],
        expected: Iterable[int],
    ) -> None:
        _expect(
            set(ids) == set(expected), client, "does not send the entries it should"
        )

    def _take_keys(self, client: int, message: AdvertiseKeys) -> None:
        keys: tuple[bytes, ...] = (message.channel_key, message.pad_key)
        # one key twice would let two clients agree on one channel or pad
        is_new = keys[0] != keys[1] and not self._seen_keys & set(keys)
        _expect(is_new, client, "repeats a public key")
        for key in keys:
            refuse_small_order(key)
        self._seen_keys.update(keys)
        if self._terms is not None and isinstance(message, SignedKeys):
            signed = self.round_index, client, b"".join(keys), self._contexts[client]
            statement = self._terms.keys_statement(*signed)
            self._terms.check(client, message.signature, statement)
            keys += (message.signature,)
        self._keys[client] = keys

    def _take_shares(self, client: int, message: ShareKeys) -> None:
        self._check_ids(
            client, [j for j, _ in message.ciphertexts], self._near(client, 1)
        )
        for recipient, ciphertext in message.ciphertexts:
            self._mail.setdefault(recipient, []).append((client, ciphertext))

    def _take_input(self, client: int, message: MaskedInput) -> None:
        start = 0
        for block in self._blocks[client]:
            stop = start + block.stop - block.start
            part = message.residues[start:stop]
            self.padded_inputs[client, block.start : block.stop] = part
            start = stop

    def _take_signature(self, client: int, message: SignedSurvivors) -> None:
        assert self._terms is not None  # else nothing takes signatures
        summed = np.flatnonzero(self.summed).tolist()
        signed = self.round_index, summed, self._contexts[client]
        statement = self._terms.survivors_statement(*signed)
        self._terms.check(client, message.signature, statement)
        self._signatures[client] = message.signature

    def _take_unmasking(self, client: int, message: UnmaskShares) -> None:
        # one kind of share per neighbour: b of those summed, s^SK of the lost
        survivors = set(self._summed_near(client))
        # neighbours who shared secrets but are not summed
        lost = set(self._near(client, 2)) - survivors
        self._check_ids(
            client, [j for j, _ in message.self_shares], survivors | {client}
        )
        self._check_ids(client, [j for j, _ in message.key_shares], lost)
        for owner, share in message.self_shares:
            self._self_shares.setdefault(owner, []).append((client, share))
        for owner, share in message.key_shares:
            self._key_shares.setdefault(owner, []).append((client, share))

    def _recover(
        self,
        owner: int,
        shares: _Shares,
        *,
        is_key: bool,
    ) -> None:
        """Recover one secret if enough shares came back and none is forged."""
        threshold = self._thresholds[owner]
        if len(shares) < threshold:
            return
        # ascending holders, so that the same shares always interpolate alike
        shares = sorted(shares)
        points = [holder + 1 for holder, _ in shares]
        try:
            secret = recover(
                points, limbs_of([share for _, share in shares]), threshold
            )
            if is_key:
                pair = KeyPair(secret)
                # a secret key has a public one to check it; a self-pad seed has not
                if pair.public_key != self._keys[owner][1]:
                    raise ForgedShareError(
                        f"shares of {owner} give a key that it never advertised"
                    )
                self._pad_keys[owner] = pair
            else:
                self._self_seeds[owner] = secret
        except ForgedShareError as error:
            self.rejected.append(error)
        else:
            self.is_recovered[owner] = True


def _expect(condition: bool, client: int, problem: str) -> None:
    """Refuse a client's message unless a condition holds."""
    if not condition:
        raise UnexpectedMessageError(f"client {client} {problem}")
