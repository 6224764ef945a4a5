"""A client of the four-step protocol.

It knows its own secrets and what the server sends it.
One method a step turns the server's message into the client's next one. CCESA,
Algorithm 1, with one's own share of b_i sent too (docs/errata.md); n, t_i, Adj(i), c_i,
s_i, b_i as there.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable

import numpy as np

from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.protocol._pads import PAIR_PAD, SELF_PAD, PadSum
from mrsa_jax.protocol._pledge import Pledge
from mrsa_jax.protocol._primitives import (
    KEY_BYTES,
    Entropy,
    KeyPair,
    SigningKey,
    channel_key,
    open_sealed,
    pad_seed,
    seal,
)
from mrsa_jax.protocol._terms import Terms, check_context
from mrsa_jax.protocol._wire import SHARE_BYTES, header
from mrsa_jax.protocol.errors import (
    AuthenticationError,
    BothSecretsRequestedError,
    KeyAgreementError,
    PartedBlockError,
    ProtocolError,
    TooFewSurvivorsError,
    UnexpectedMessageError,
)
from mrsa_jax.protocol.messages import (
    SATURATED,
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
from mrsa_jax.protocol.shamir import share_all
from mrsa_jax.secagg import SegmentPlan
from mrsa_watch._base.errors import check_integer, is_integer, require

_LAST_CLIENT = 2**31 - 3


class Client:
    """One client's state in one round.

    A message that comes twice gets the same answer again; a second, different one is
    refused. A ciphertext or public key that fails ends the client's part in the round:
    leaving out the neighbour alone would leave pads that nobody can cancel.

    Attributes:
        client: Its id i, from 0.
        neighbours: Adj(i), ascending.
        threshold: t_i.
        round_index: Round.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> plan = mj.secagg.complete_plan(2, 3, 2**8)
        >>> values = np.zeros(3, np.uint32)
        >>> client = mj.protocol.Client(0, [1], 2, values, plan, entropy=0)
        >>> client.advertise_keys() == client.advertise_keys()
        True

    Source: CCESA, Algorithm 1.
    """

    def __init__(
        self,
        client: int,
        neighbours: Iterable[int],
        threshold: int,
        values: np.ndarray,
        plan: SegmentPlan,
        round_index: int = 0,
        entropy: int | np.integer | bytes | None = None,
        context: bytes = b"",
        signing_key: SigningKey | None = None,
        terms: Terms | None = None,
        pledge: Pledge | None = None,
    ) -> None:
        """Prepare a client.

        Args:
            client: Its id, a slot of the plan.
            neighbours: Ids of the clients that it shares keys with.
            threshold: t_i, at least 1: shares that give its secrets away.
            values: uint32[d], its input; residues in each block that it is a member of.
            plan: Blocks of the round; pads are shared with those neighbours who are in
                the block.
            round_index: Round, part of every key and nonce.
            entropy: None for the operating system's randomness, or a seed (tests only).
            context: What decides its update besides its data: the digest of the model
                that it was sent (`model_digest`). It goes into the seeds of the pair
                pads, which cancel only between clients with the same one, and into all
                that it signs. With blocks it must not be empty.
            signing_key: Its own, with which it signs its keys and takes part in the
                consistency check; None for a round without.
            terms: What all clients agreed on, among it the others' signing keys and the
                blocks that it keeps; with a signing key only.
            pledge: What it keeps from round to round; None for a single round.

        Raises:
            ConfigurationError: If an argument breaks a rule.
        """
        self.client = check_integer(client, "client", 0, _LAST_CLIENT)
        rule = "must be a list of integers"
        require(isinstance(neighbours, Iterable), "neighbours", rule, neighbours)
        others = list(neighbours)
        require(all(map(is_integer, others)), "neighbours", rule, others)
        self.neighbours = tuple(sorted(map(int, others)))
        proper = (
            len(set(self.neighbours)) == len(self.neighbours)
            and client not in self.neighbours
        )
        require(
            proper,
            "neighbours",
            "must be other clients, each once",
            self.neighbours,
        )
        self.threshold = check_integer(threshold, "threshold", 1)
        self.round_index = check_integer(round_index, "round_index", 0, 2**32 - 1)
        self._plan, self._values, self._context = plan, values, context
        self._signing_key, self._terms, self._pledge = signing_key, terms, pledge
        rule = (
            "must be used together with `signing_key`, and agree with `neighbours` and "
            "`threshold`"
        )
        require(
            terms is None or isinstance(terms, Terms),
            "terms",
            "must be a `protocol.Terms`",
            terms,
        )
        require((terms is None) == (signing_key is None), "terms", rule)
        require(
            pledge is None or (isinstance(pledge, Pledge) and terms is not None),
            "pledge",
            "must be a `Pledge` and used together with `terms`",
            pledge,
        )
        check_context(context, terms)
        self._pad_context = context if terms is None else terms.bound(context)
        if terms is not None:
            require(
                self.client < len(terms.roster),
                "client",
                "must be on the roster of `terms`",
                self.client,
            )
            near = tuple(np.flatnonzero(terms.adjacency[client]).tolist())
            require(
                near == self.neighbours and terms.thresholds[client] == threshold,
                "terms",
                rule,
            )
            terms.check_plan(plan)
        self._survivors: tuple[int, ...] = ()  # the list that it signed
        # every random byte of the client comes from here, in the order of the steps
        self._entropy = Entropy(entropy, self.round_index, self.client)
        self._answers: dict[int, tuple[bytes, bytes]] = {}
        self._has_stopped = False
        self._self_seed: bytes | None = None
        self._others: dict[int, tuple[bytes, bytes]] = {}  # V1: channel and pad keys
        self._channels: dict[int, bytes] = {}  # what X25519 gives for the channel keys
        self._pair_seeds: dict[int, bytes] = {}
        self._held: dict[int, tuple[bytes, bytes]] = {}  # V2: shares of b_j and s_j

    def advertise_keys(self) -> bytes:
        """Step 0: draw two key pairs and return `AdvertiseKeys`."""
        return self._answer(0, b"", self._advertise)

    def share_keys(self, message: bytes) -> bytes:
        """Step 1: read `KeyList`, share b_i and s_i^SK, return `ShareKeys`.

        Raises:
            MalformedMessageError: If the bytes are no `KeyList`.
            UnexpectedMessageError: If it is of another step or round, differs from an
                earlier one, names a client who is no neighbour, or one key comes twice.
            AuthenticationError: If keys are not signed by their owner, for this round
                and terms.
            KeyAgreementError: If a key is of small order.
        """
        return self._answer(1, message, self._share)

    def masked_input(self, message: bytes) -> bytes:
        """Step 2: read `ShareList`, open the shares, return `MaskedInput`.

        Raises:
            MalformedMessageError: If the bytes are no `ShareList`.
            UnexpectedMessageError: If it is of another step or round, differs from an
                earlier one, or names a client whose keys never came.
            AuthenticationError: If a share was altered or meant for somebody else, or
                its sender saw other public keys.
            KeyAgreementError: If a key is of small order.
            TooFewSurvivorsError: If of it and its neighbours fewer than t_i are in V2,
                though it shared its secrets with as many: few pads, or its self pad
                alone, would be left.
            PartedBlockError: If keys or shares of a mate are missing.
        """
        return self._answer(2, message, self._mask)

    def sign_survivors(self, message: bytes) -> bytes:
        """Consistency check: read `SurvivorList`, sign it, return `SignedSurvivors`.

        It signs one list in a round. Its neighbours hand out no shares before t_j of
        those who hold shares of theirs have signed the list that they signed
        themselves.

        Raises:
            MalformedMessageError, UnexpectedMessageError, TooFewSurvivorsError: As
                `unmask` without the check; or if it names somebody who is not on the
                roster.
            PartedBlockError: If the list is no union of whole blocks.

        Source: Bonawitz et al., CCS 2017, Figure 4, Round 3.
        """
        return self._answer(3, message, self._sign)

    def unmask(self, message: bytes) -> bytes:
        """Step 3: read `SurvivorList`, return the shares it asks for, `UnmaskShares`.

        After the consistency check: read `SignatureList`, return the shares that the
        list which it signed asks for.

        Raises:
            AuthenticationError: If a signature is not one of the list that this client
                signed.
            MalformedMessageError: If the bytes are no `SurvivorList` (`SignatureList`).
            UnexpectedMessageError: If it is of another step or round, or names a client
                without shares here, or leaves out this one.
            BothSecretsRequestedError: If shares of one kind were handed out and this
                message asks for the other kind.
            TooFewSurvivorsError: If fewer than two clients are in the sum, or in the
                sum of one of its blocks as far as it can see; or if of it and its
                neighbours fewer than t_i are, or signed.
        """
        if self._terms is not None:
            terms = self._terms
            return self._answer(
                4, message, lambda signed: self._reveal_signed(signed, terms)
            )
        if 3 in self._answers and message != self._answers[3][0]:
            self._refuse_other_request(message)
        return self._answer(3, message, self._reveal)

    @property
    def self_seed(self) -> bytes | None:
        """Return b_i for simulations of all clients; None before it was drawn."""
        return self._self_seed

    def pair_seed(self, other: int) -> bytes:
        """Return s_ij, agreed with a neighbour in V1, for simulations."""
        if other not in self._pair_seeds:
            secret = self._pads.agree(self._others[other][1])
            self._pair_seeds[other] = pad_seed(
                secret, self.client, other, self.round_index, self._pad_context
            )
        return self._pair_seeds[other]

    def knows(self, other: int) -> bool:
        """Return whether a neighbour's public keys came."""
        return other in self._others

    def _answer(
        self,
        step: int,
        message: bytes,
        build: Callable[[bytes], bytes],
    ) -> bytes:
        """Answer each step once, in order; a repeated message gets the same bytes."""
        self._expect(not self._has_stopped, "has left the round")
        # a network may repeat a message: the answer must not be drawn again
        if step in self._answers:
            before, answer = self._answers[step]
            self._expect(
                message == before, f"got a second, different message for step {step}"
            )
            return answer
        at = len(self._answers)
        self._expect(at == step, f"is at step {at}, not {step}")
        try:
            answer = build(message)
        # altered messages are no accident of the network: the client leaves the round
        except (AuthenticationError, KeyAgreementError):
            self._has_stopped = True
            raise
        self._answers[step] = (message, answer)
        return answer

    def _expect(
        self,
        condition: bool,
        problem: str,
        error: type[ProtocolError] = UnexpectedMessageError,
    ) -> None:
        """Refuse a message unless a condition holds."""
        if not condition:
            raise error(f"client {self.client} {problem}")

    def _check_round(self, round_index: int) -> None:
        number = self.round_index
        self._expect(round_index == number, f"is in round {number}, not {round_index}")

    def _check_known(
        self,
        ids: Iterable[int],
        expected: Iterable[int],
        what: str,
    ) -> None:
        strangers = sorted(set(ids) - set(expected))
        self._expect(
            not strangers, f"was sent {what} of {strangers[:3]}, unknown to it"
        )

    def _advertise(self, _: bytes) -> bytes:
        self._channel = KeyPair(self._entropy.draw(KEY_BYTES))
        self._pads = KeyPair(self._entropy.draw(KEY_BYTES))
        keys = self._channel.public_key, self._pads.public_key
        if self._terms is None or self._signing_key is None:
            return AdvertiseKeys(self.round_index, self.client, *keys).to_bytes()
        # on disk before the first signature of the round leaves the client
        if self._pledge is not None:
            self._pledge.keep(self._terms, self.round_index)
        signed = self.round_index, self.client, b"".join(keys), self._context
        statement = self._terms.keys_statement(*signed)
        signature = self._signing_key.sign(statement)
        return SignedKeys(self.round_index, self.client, *keys, signature).to_bytes()

    def _share(self, message: bytes) -> bytes:
        key_list = (KeyList if self._terms is None else SignedKeyList).from_bytes(
            message
        )
        self._check_round(key_list.round_index)
        self._check_known(
            [other for other, _ in key_list.keys], self.neighbours, "keys"
        )
        both = 2 * KEY_BYTES
        for other, entry in key_list.keys:
            if self._terms is not None:
                # under its own context: a neighbour with another model signed something
                # else
                signed = self.round_index, other, entry[:both], self._context
                statement = self._terms.keys_statement(*signed)
                self._terms.check(other, entry[both:], statement)
        # one entry holds the channel key, then the pad key
        others = {
            other: (both_keys[:KEY_BYTES], both_keys[KEY_BYTES:both])
            for other, both_keys in key_list.keys
        }
        keys = [
            self._channel.public_key,
            self._pads.public_key,
            *itertools.chain(*others.values()),
        ]
        self._expect(len(set(keys)) == len(keys), "was sent one public key twice")
        self._others = others
        self._self_seed = self._entropy.draw(KEY_BYTES)
        holders = sorted((*self._others, self.client))
        # both secrets with the same holders, each at the point after its own id
        shares = share_all(
            [self._self_seed, self._pads.secret_key],
            self.threshold,
            [holder + 1 for holder in holders],
            self._entropy,
        ).astype("<u4")
        parcels = {
            j: (shares[0, k].tobytes(), shares[1, k].tobytes())
            for k, j in enumerate(holders)
        }
        self._held[self.client] = parcels.pop(self.client)
        sealed = tuple(
            (j, self._seal(j, b"".join(parcel))) for j, parcel in parcels.items()
        )
        return ShareKeys(self.round_index, self.client, sealed).to_bytes()

    def _seal(self, recipient: int, parcel: bytes) -> bytes:
        # One agreement gives the keys of both directions.
        self._channels[recipient] = self._channel.agree(self._others[recipient][0])
        key = channel_key(
            self._channels[recipient], self.client, recipient, self.round_index
        )
        return seal(key, parcel, self._associated(self.client, recipient))

    def _associated(self, sender: int, recipient: int) -> bytes:
        """Return the public data that a ciphertext is bound to.

        With both pad keys in it, a public key that was altered on its way is noticed
        before any padded input leaves (differs from the paper, where it would spoil the
        sum unseen).
        """
        pad_keys = {
            j: self._others[j][1] for j in (sender, recipient) if j != self.client
        }
        pad_keys[self.client] = self._pads.public_key
        start = header(ShareKeys.KIND, self.round_index) + struct.pack(
            "<II", sender, recipient
        )
        return start + pad_keys[sender] + pad_keys[recipient]

    def _mask(self, message: bytes) -> bytes:
        share_list = ShareList.from_bytes(message)
        self._check_round(share_list.round_index)
        self._check_known(
            [sender for sender, _ in share_list.ciphertexts], self._others, "shares"
        )
        # else nobody can ever take off its self pad
        if 1 + len(self._others) >= self.threshold:
            self._check_floor(1 + len(share_list.ciphertexts))
        for sender, ciphertext in share_list.ciphertexts:
            key = channel_key(
                self._channels[sender], sender, self.client, self.round_index
            )
            parcel = open_sealed(key, ciphertext, self._associated(sender, self.client))
            self._held[sender] = (parcel[:SHARE_BYTES], parcel[SHARE_BYTES:])
        if self._terms is not None:
            absent = sorted(self._terms.mates(self.client) - self._held.keys())
            self._expect(
                not absent,
                f"was sent no shares of its mates {absent}",
                PartedBlockError,
            )
        # the keys of this round are of no more use
        self._channels.clear()
        layout, parts = [], [np.zeros(0, np.uint32)]
        for number, block in enumerate(self._plan):
            if self.client in block.members:
                layout.append((block.stop - block.start, block.modulus))
                parts.append(self._padded(number))
        residues = np.concatenate(parts)
        return MaskedInput(
            self.round_index, self.client, tuple(layout), residues
        ).to_bytes()

    def _padded(self, number: int) -> np.ndarray:
        block = self._plan[number]
        values = self._values[block.start : block.stop]
        padded = PadSum(values, block.modulus, number, self.round_index)
        assert self._self_seed is not None  # drawn at step 1
        padded.add(self._self_seed, SELF_PAD, 1)
        for other in self._held:
            if other != self.client and other in block.members:
                padded.add(
                    self.pair_seed(other), PAIR_PAD, 1 if self.client < other else -1
                )
        return padded.residues()

    def _sign(self, message: bytes) -> bytes:
        if self._signing_key is None or self._terms is None:
            raise UnexpectedMessageError(
                f"client {self.client} has no key to sign survivors with"
            )
        request = self._request(message)
        self._check_request(request)
        # whole blocks only
        self._terms.check_list(request.survivors)
        self._survivors = request.survivors
        signed = self.round_index, request.survivors, self._context
        statement = self._terms.survivors_statement(*signed)
        signature = self._signing_key.sign(statement)
        return SignedSurvivors(self.round_index, self.client, signature).to_bytes()

    def _reveal_signed(self, message: bytes, terms: Terms) -> bytes:
        signed = SignatureList.from_bytes(message)
        self._check_round(signed.round_index)
        near = set(self._survivors).intersection(self.neighbours)
        self._check_known(
            [signer for signer, _ in signed.signatures], near, "signatures"
        )
        statement_of = self.round_index, self._survivors, self._context
        statement = terms.survivors_statement(*statement_of)
        for signer, signature in signed.signatures:
            terms.check(signer, signature, statement)
        self._check_floor(1 + len(signed.signatures))
        # on disk before the shares, which complete the sum, leave the client
        if self._pledge is not None:
            head = terms.head(self.round_index, self._survivors, self._context)
            self._pledge.receive(self.round_index, head)
        return self._shares_for(self._survivors)

    def _reveal(self, message: bytes) -> bytes:
        request = self._request(message)
        self._check_request(request)
        return self._shares_for(request.survivors)

    def _shares_for(self, survivors: Iterable[int]) -> bytes:
        """Return the shares of b of those listed and of s^SK of the others in V2."""
        # one kind of share per client: b of those who are summed, s^SK of all others,
        # so that no client ever reveals both
        # clients without shares here are none of its neighbours in V2
        listed = self._held.keys() & set(survivors)
        self_shares = tuple((j, self._held[j][0]) for j in sorted(listed))
        keys = tuple((j, self._held[j][1]) for j in sorted(self._held.keys() - listed))
        return UnmaskShares(self.round_index, self.client, self_shares, keys).to_bytes()

    def _check_request(self, request: SurvivorList) -> None:
        problem = f"is asked to unmask a sum over {request.num_survivors} client"
        self._expect(
            request.num_survivors >= FEWEST_IN_A_SUM, problem, TooFewSurvivorsError
        )
        self._check_company(request)
        self._check_floor(len(self._held.keys() & set(request.survivors)))

    def _check_floor(self, count: int) -> None:
        """Refuse a list that leaves fewer than t_i holders of its shares.

        An honest server's list is that short only where nobody could unmask the sum
        with it.
        """
        problem = (
            f"learns that {count} of it and its neighbours are left, fewer than its "
            f"threshold of {self.threshold}"
        )
        self._expect(count >= self.threshold, problem, TooFewSurvivorsError)

    def _check_company(self, request: SurvivorList) -> None:
        """Refuse if, as far as it can see, it is alone in one of its blocks.

        It sees which of its neighbours are; of other members of the block it knows only
        how many clients are summed in the whole round. A list that it signs names
        everybody.
        """
        listed = set(request.survivors)
        num_summed = request.num_survivors
        has_unseen = self._signing_key is None and (
            num_summed > len(listed) or num_summed == SATURATED
        )
        seen = {self.client, *self.neighbours}
        for number, block in enumerate(self._plan):
            if self.client not in block.members:
                continue
            others = listed.intersection(block.members) - {self.client}
            strangers = has_unseen and not seen.issuperset(block.members)
            problem = f"is asked to unmask its input alone in block {number}"
            self._expect(bool(others or strangers), problem, TooFewSurvivorsError)

    def _request(self, message: bytes) -> SurvivorList:
        request = SurvivorList.from_bytes(message)
        self._check_round(request.round_index)
        if self._terms is None:
            self._check_known(request.survivors, self._held, "a request for shares")
        else:
            # all of V3: of its neighbours those in V2, of others anybody on the roster
            strangers = set(range(len(self._terms.roster))).difference(self.neighbours)
            expected = self._held.keys() | strangers
            self._check_known(request.survivors, expected, "a request for shares")
        self._expect(
            self.client in request.survivors, "is asked about a sum without it"
        )
        return request

    def _refuse_other_request(self, message: bytes) -> None:
        """Refuse a second request that turns a survivor into a dropout."""
        before = set(SurvivorList.from_bytes(self._answers[3][0]).survivors)
        # a client that is in one of two lists and not in the other would reveal both
        turned = sorted(before ^ set(self._request(message).survivors))
        problem = f"is asked for shares of both secrets of {turned[:3]}"
        self._expect(not turned, problem, BothSecretsRequestedError)
