"""The server of the four-step protocol: it knows what clients send it and nothing else.

`receive` takes messages while a step is open; one method a step closes it and returns what each
client is sent next. CCESA, Algorithm 1; V1..V4 are those whose messages came in time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax._status import Status
from mrsa_jax.protocol._errors import ForgedShareError, UnexpectedMessageError
from mrsa_jax.protocol._messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareKeys,
    ShareList,
    SurvivorList,
    UnmaskShares,
)
from mrsa_jax.protocol._pads import PAIR_PAD, SELF_PAD, PadSum
from mrsa_jax.protocol._primitives import KeyPair, pad_seed, refuse_small_order
from mrsa_jax.protocol._shamir import recover
from mrsa_jax.protocol._wire import kind_of, limbs_of
from mrsa_jax.secagg import SegmentPlan

__all__ = ["Server"]

_STEP_OF_KIND = {
    AdvertiseKeys.KIND: 0,
    ShareKeys.KIND: 1,
    MaskedInput.KIND: 2,
    UnmaskShares.KIND: 3,
}


class Server:
    """The server's state in one round.

    Attributes:
        step: The step that is open, 0 to 3; 4 after the last.
        survivors: bool[5, n], V0 to V4 as far as they are known.
        padded_inputs: uint32[n, d], what the clients of V3 sent; zeros elsewhere.
        is_recovered: bool[n], whose secret (b_i in V3, else s_i^SK) the shares gave back.
        rejected: Errors of shares that were found to be forged.
        status: What became of the round, once it is over.
        total: uint32[d], the sum over V3 modulo R; zeros unless `status` is OK.

    Examples:
        >>> from mrsa_jax.secagg import complete_plan
        >>> complete = ~np.eye(2, dtype=bool)
        >>> server = Server(complete, np.asarray([2, 2]), np.ones(2, bool),
        ...                 complete_plan(2, 1, 2**8))
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
    ) -> None:
        """Open step 0.

        Args:
            adjacency: bool[n, n], symmetric with an empty diagonal.
            thresholds: int[n], t_i.
            cohort: bool[n], V0: who may take part.
            plan: One block of all n clients.
            round_index: Round.

        Raises:
            ConfigurationError: If the plan has several blocks, or not all clients in it.
        """
        n = len(adjacency)
        whole = len(plan) == 1 and plan[0].members == tuple(range(n)) and plan[0].start == 0
        require(whole, "plan", "must be one block of all clients from the first coordinate", plan)
        self._block = plan[0]
        self._neighbours = [frozenset(np.flatnonzero(row).tolist()) for row in adjacency]
        self._thresholds = [int(t) for t in thresholds]
        self.round_index = round_index
        self.step = 0
        self.survivors = np.zeros((5, n), bool)
        self.survivors[0] = cohort
        self.padded_inputs = np.zeros((n, self._block.stop), np.uint32)
        self.is_recovered = np.zeros(n, bool)
        self.rejected: list[ForgedShareError] = []
        self.status: Status | None = None
        self.total = np.zeros(self._block.stop, np.uint32)
        self._inbox: dict[int, bytes] = {}
        self._keys: dict[int, tuple[bytes, bytes]] = {}
        self._seen_keys: set[bytes] = set()
        self._mail: dict[int, list[tuple[int, bytes]]] = {}
        self._self_shares: dict[int, list[tuple[int, bytes]]] = {}
        self._key_shares: dict[int, list[tuple[int, bytes]]] = {}
        self._self_seeds: dict[int, bytes] = {}
        self._pad_keys: dict[int, KeyPair] = {}
        self._sums: list[np.ndarray] | None = None

    def receive(self, client: int, message: bytes) -> bool:
        """Take one client's message of the open step.

        Args:
            client: Whose connection it came by.
            message: Its bytes.

        Returns:
            Whether it counts: False for a copy of one that is here already and for one that
            comes after its step was closed, both of which are ignored.

        Raises:
            MalformedMessageError: If the bytes are no message of a client.
            UnexpectedMessageError: If it is of a later step, another round or another client,
                differs from the client's first, repeats a public key, or does not hold exactly
                the entries that it should.
            KeyAgreementError: If a public key is of small order.
        """
        step = _STEP_OF_KIND.get(kind_of(message))
        if step is None:
            raise UnexpectedMessageError(f"client {client} sent a message of the server")
        if step < self.step:
            return False
        if step > self.step:
            raise UnexpectedMessageError(f"client {client} is at step {step}, not {self.step}")
        if not self._is_in(step, client):
            raise UnexpectedMessageError(f"client {client} is not in V{step}")
        if client in self._inbox:
            if self._inbox[client] == message:
                return False
            raise UnexpectedMessageError(f"client {client} sent two different messages")
        accept = (self._take_keys, self._take_shares, self._take_input, self._take_unmasking)[step]
        accept(client, message)
        self._inbox[client] = message
        return True

    def advertise_keys(self) -> dict[int, bytes]:
        """Close step 0 and return `KeyList` for each client of V1."""
        self._close(0)
        both = {i: b"".join(keys) for i, keys in self._keys.items()}
        return {
            i: KeyList(self.round_index, tuple((j, both[j]) for j in self._near(i, 1))).to_bytes()
            for i in self._members(1)
        }

    def share_keys(self) -> dict[int, bytes]:
        """Close step 1 and return `ShareList` for each client of V2."""
        self._close(1)
        return {
            i: ShareList(self.round_index, tuple(sorted(self._mail.get(i, ())))).to_bytes()
            for i in self._members(2)
        }

    def masked_input(self) -> dict[int, bytes]:
        """Close step 2 and return `SurvivorList` for each client of V3.

        It says |V3|, so that a client who is alone in it refuses to answer.
        """
        self._close(2)
        v3 = self._members(3)
        lists = {i: tuple(sorted((i, *self._near(i, 3)))) for i in v3}
        return {
            i: SurvivorList(self.round_index, len(v3), near).to_bytes() for i, near in lists.items()
        }

    def unmask(self) -> Status:
        """Close step 3, recover secrets and remove pads; set `status` and `total`.

        Returns:
            `TOO_FEW_SURVIVORS` if |V3| < 2, `UNRELIABLE` if a pad of the sum cannot be removed
            or a share is found to be forged, otherwise `OK`.
        """
        self._close(3)
        v3 = self._members(3)
        if len(v3) < 2:
            self.status = Status.TOO_FEW_SURVIVORS
            return self.status
        self._recover()
        components = self._components()
        if all(self._is_open(component) for component in components):
            self.status = Status.OK
            total = PadSum(self.total, self._block.modulus, 0, self.round_index)
            for part in self.learned_sums():
                total.add_residues(part)
            self.total = total.residues()
        else:
            self.status = Status.UNRELIABLE
        return self.status

    @property
    def learned(self) -> np.ndarray:
        """Return bool[L, n]: the components of the graph on V3 whose pads can all be removed.

        What the secrets that are really here allow, by smallest member; no rows if |V3| < 2.
        """
        rows = [component for component in self._components() if self._is_open(component)]
        learned = np.zeros((len(rows), self.survivors.shape[1]), bool)
        for row, component in zip(learned, rows, strict=True):
            row[component] = True
        return learned

    def learned_sums(self) -> list[np.ndarray]:
        """Return the sums over the rows of `learned`, uint32[d] each.

        An honest server computes them for a reliable round alone, where they add up to the
        total; a curious one for any.
        """
        if self._sums is None:
            rows = [component for component in self._components() if self._is_open(component)]
            self._sums = [self._unmasked(component) for component in rows]
        return self._sums

    def is_removable(self) -> bool:
        """Return whether every pad of the sum over V3 can be removed with the secrets here.

        Not for |V3| = 1, whose self pad clients refuse to unmask; nothing is in the way of an
        empty sum.
        """
        is_open = all(self._is_open(component) for component in self._components())
        return is_open and len(self._members(3)) != 1

    def _is_in(self, step: int, client: int) -> bool:
        return 0 <= client < self.survivors.shape[1] and bool(self.survivors[step, client])

    def _members(self, step: int) -> list[int]:
        return np.flatnonzero(self.survivors[step]).tolist()

    def _near(self, client: int, step: int) -> list[int]:
        return sorted(j for j in self._neighbours[client] if self.survivors[step, j])

    def _close(self, step: int) -> None:
        if step != self.step:
            raise UnexpectedMessageError(f"step {self.step} is open, not {step}")
        self.survivors[step + 1, list(self._inbox)] = True
        self._inbox = {}
        self.step = step + 1

    def _check_sender(self, client: int, message: AdvertiseKeys | ShareKeys | MaskedInput |
                      UnmaskShares) -> None:  # fmt: skip
        if message.client != client:
            raise UnexpectedMessageError(f"client {client} writes as client {message.client}")
        if message.round_index != self.round_index:
            raise UnexpectedMessageError(
                f"client {client} is in round {message.round_index}, not {self.round_index}"
            )

    def _check_ids(self, client: int, ids: Iterable[int], expected: Iterable[int]) -> None:
        if set(ids) != set(expected):
            raise UnexpectedMessageError(f"client {client} does not send the entries it should")

    def _take_keys(self, client: int, data: bytes) -> None:
        message = AdvertiseKeys.from_bytes(data)
        self._check_sender(client, message)
        keys = (message.channel_key, message.pad_key)
        if keys[0] == keys[1] or self._seen_keys & set(keys):
            raise UnexpectedMessageError(f"client {client} repeats a public key")
        for key in keys:
            refuse_small_order(key)
        self._seen_keys.update(keys)
        self._keys[client] = keys

    def _take_shares(self, client: int, data: bytes) -> None:
        message = ShareKeys.from_bytes(data)
        self._check_sender(client, message)
        self._check_ids(client, [j for j, _ in message.ciphertexts], self._near(client, 1))
        for recipient, ciphertext in message.ciphertexts:
            self._mail.setdefault(recipient, []).append((client, ciphertext))

    def _take_input(self, client: int, data: bytes) -> None:
        layout = ((self._block.stop, self._block.modulus),)
        message = MaskedInput.from_bytes(data, layout)
        self._check_sender(client, message)
        self.padded_inputs[client] = message.residues

    def _take_unmasking(self, client: int, data: bytes) -> None:
        message = UnmaskShares.from_bytes(data)
        self._check_sender(client, message)
        survivors = set(self._near(client, 3))
        lost = set(self._near(client, 2)) - survivors
        self._check_ids(client, [j for j, _ in message.self_shares], survivors | {client})
        self._check_ids(client, [j for j, _ in message.key_shares], lost)
        for owner, share in message.self_shares:
            self._self_shares.setdefault(owner, []).append((client, share))
        for owner, share in message.key_shares:
            self._key_shares.setdefault(owner, []).append((client, share))

    def _recover(self) -> None:
        for owner, shares in self._self_shares.items():
            self._recover_one(owner, shares, is_key=False)
        for owner, shares in self._key_shares.items():
            self._recover_one(owner, shares, is_key=True)

    def _recover_one(self, owner: int, shares: list[tuple[int, bytes]], *, is_key: bool) -> None:
        """Recover one secret if enough shares came back and none is found to be forged."""
        if len(shares) < self._thresholds[owner]:
            return
        shares = sorted(shares)
        points = [holder + 1 for holder, _ in shares]
        try:
            secret = recover(
                points, limbs_of([share for _, share in shares]), self._thresholds[owner]
            )
            if is_key:
                pair = KeyPair(secret)
                if pair.public_key != self._keys[owner][1]:
                    raise ForgedShareError(f"shares of {owner} give a key that it never advertised")
                self._pad_keys[owner] = pair
            else:
                self._self_seeds[owner] = secret
        except ForgedShareError as error:
            self.rejected.append(error)
        else:
            self.is_recovered[owner] = True

    def _components(self) -> list[list[int]]:
        """Return the components of the graph on V3, none if |V3| < 2; by smallest member."""
        left = set(self._members(3))
        components: list[list[int]] = []
        if len(left) < 2:
            return components
        while left:
            start = min(left)
            left.remove(start)
            component, border = [start], [start]
            while border:
                reached = self._neighbours[border.pop()] & left
                left -= reached
                component += reached
                border += reached
            components.append(sorted(component))
        return components

    def _lost_near(self, client: int) -> list[int]:
        """Return the neighbours in V2 but not V3: their pads are in the input and nowhere else."""
        return [j for j in self._near(client, 2) if not self.survivors[3, j]]

    def _is_open(self, component: list[int]) -> bool:
        return all(
            i in self._self_seeds and all(j in self._pad_keys for j in self._lost_near(i))
            for i in component
        )

    def _unmasked(self, component: list[int]) -> np.ndarray:
        """Return the sum over a component of V3; its members' pairs cancel."""
        zeros = np.zeros_like(self.total)
        total = PadSum(zeros, self._block.modulus, 0, self.round_index)
        for i in component:
            total.add_residues(self.padded_inputs[i])
            total.add(self._self_seeds[i], SELF_PAD, -1)
            for j in self._lost_near(i):
                secret = self._pad_keys[j].agree(self._keys[i][1])
                seed = pad_seed(secret, i, j, self.round_index)
                total.add(seed, PAIR_PAD, -1 if i < j else 1)
        return total.residues()
