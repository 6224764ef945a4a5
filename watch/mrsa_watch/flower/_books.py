"""The line of each round, the clients that the gate allows, and the selected ones.

Nothing here knows Flower: nodes are numbers or text.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from mrsa_watch._base.errors import require, require_methods
from mrsa_watch._follow import follow
from mrsa_watch._gate import Gate
from mrsa_watch._recorder import Recorder
from mrsa_watch._register import Register
from mrsa_watch.logs import LineParser, SumLine, exact_value

Node = Hashable


@runtime_checkable
class GateLike(Protocol):
    """A gate that is asked before a round, such as `live.Gate`."""

    def check(self, candidates: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """Return `allowed`, `leave_out` and `reason` for each cohort's weights."""
        ...

    def add(self, clients: Collection[str], weights: Any = None) -> Any:
        """Take a learnt sum; both get the part of the vector as `part`."""
        ...


@dataclasses.dataclass
class _Round:
    """The round that is under way."""

    number: int
    asked: tuple[Node, ...]
    # None: nobody follows the protocol's stages
    lost: dict[str, list[Node]] | None = None


class Books:
    """Write a line for each round, before anyone sees its sum.

    Args:
        recorder: Of the log.
        gate: Asked before a round, and again for those who are left; None lets all
            through.
        name: A node's lasting name.
        chooser: Chooses the clients to ask, if set; it continues where the log ends.
        part: The part of the vector that all sums are of; None for whole updates.

    Attributes:
        asks_again: Whether the gate is asked again once weights are known, before
            anything is learnt.
    """

    def __init__(
        self,
        recorder: Recorder,
        gate: GateLike | None,
        name: Callable[[Any], Any],
        chooser: Any | None = None,
        part: str | None = None,
    ) -> None:
        require_methods(recorder, "recorder", "record", "name")
        require(callable(name), "name", "must be a function of a node's number", name)
        if gate is not None:
            require_methods(gate, "gate", "check", "add")
        self.recorder = recorder
        self.chooser = chooser
        self._gate = gate
        self._name = name
        self.asks_again = False
        self._part: dict[str, Any] = {} if part is None else {"part": part}
        self._round: _Round | None = None
        self._strangers: set[str] = set()  # of whom was warned
        self._weights: dict[str, Fraction] = {}  # what each client had last
        if chooser is not None:
            path = recorder.path.with_name(recorder.path.name + ".clients")
            self._register = Register(path, chooser.num_clients)
        if chooser is not None or gate is not None:
            self._replay()

    def open(self, number: int, asked: Sequence[Node]) -> bool:
        """Begin a round if the gate lets it; one that it forbids is written down."""
        self._check_names(asked)
        if self.refusal(asked) is not None:
            self._write(number, "refused", asked=())
            return False
        self._round = _Round(number, tuple(asked))
        return True

    def follow_stages(self) -> None:
        """Note that losses will be reported stage by stage."""
        if self._round is not None and self._round.lost is None:
            self._round.lost = {}

    def lose(self, stage: str, nodes: Iterable[Node]) -> None:
        """Note who was lost in a stage of the round."""
        if self._round is not None and self._round.lost is not None:
            self._round.lost.setdefault(stage, []).extend(nodes)

    def learn(self, number: int, weights: Mapping[Any, Any]) -> None:
        """Write that the server learns a sum, of these nodes with these weights.

        Whose weight is 0 is not in it. Where nobody is, nothing is learnt.
        """
        exact = exact_weights(weights)
        inside = {node: weight for node, weight in exact.items() if weight > 0}
        now = self._round
        if now is None:
            if inside:  # nobody asked us about the round
                self._check_names(tuple(inside))
                self._write(number, "learnt", inside)
            return
        lost = now.lost
        if lost is None:
            lost = {"train": [node for node in now.asked if node not in weights]}
        if "unmask" in lost and inside:
            lost["unmask"] = [node for node in lost["unmask"] if node in inside]
        self._write(
            now.number, "learnt" if inside else "aborted", inside, now.asked, lost
        )

    def close(self) -> None:
        """Write that a round which is still under way came to nothing."""
        if self._round is not None:
            now = self._round
            self._write(now.number, "aborted", asked=now.asked, lost=now.lost)

    def refusal(
        self, nodes: Iterable[Node], weights: Mapping[Any, Fraction] | None = None
    ) -> Any:
        """Return the gate's answer where it forbids a sum over these nodes, else None.

        Weights that are not known yet are taken to be those that each node had last.
        For a node that is new, it is 1 if the gate is asked again later; otherwise the
        gate decides.
        """
        if self._gate is None:
            return None
        is_ours = isinstance(self._gate, Gate)
        cohort: Any
        if weights is not None:
            inside = (node for node in nodes if weights[node] > 0)
            cohort = {self._named(node): weights[node] for node in inside}
        elif is_ours and not self.asks_again:
            # the gate knows what it may assume
            cohort = list(map(self._named, nodes))
        else:
            names = map(self._named, nodes)
            cohort = {name: self._weights.get(name, Fraction(1)) for name in names}
        # nodes come under names that the recorder makes at one place, so that a new one
        # is new
        takes_new = {"new_clients": True} if is_ours else {}
        (answer,) = self._gate.check([cohort], **self._part, **takes_new)
        return None if answer.allowed else answer

    def choose(self, number: int, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Begin a round with whom the selector chooses of those who are there.

        Where the gate wants some left out, their blocks are, and the selector chooses
        again. A round in which nobody can be asked is written as it ends.
        """
        assert self.chooser is not None
        present = self._places(nodes)
        status = "aborted"
        while cohort := self.chooser.choose(present):
            asked = tuple(present[place] for place in cohort)
            answer = self.refusal(asked)
            if answer is None:
                self._round = _Round(number, asked)
                return asked
            status = "refused"
            excluded = [node for node in asked if self._named(node) in answer.leave_out]
            if not excluded:
                break
            blocks = set(map(self.block, excluded))
            present = {
                place: node
                for place, node in present.items()
                if self.block(node) not in blocks
            }
        self._write(number, status, asked=())
        return ()

    def block(self, node: Node) -> Any:
        """Return a node's block; the node itself if no selector has blocks."""
        if self.chooser is None:
            return node
        return self.chooser.block(self._place(node))

    def _place(self, node: Node) -> int:
        return self._register.places[self._named(node)]

    def _places(self, nodes: Iterable[Node]) -> dict[int, Node]:
        """Return the nodes that have an index, by it; new ones get one."""
        named = {self._named(node): node for node in nodes}
        self._register.join(named)
        places = self._register.places
        strangers = named.keys() - places.keys()
        if strangers - self._strangers:
            self._strangers |= strangers
            warnings.warn(
                f"the selector is of {self._register.num_clients} clients, and all "
                f"have their place: {len(strangers)} more are left out",
                RuntimeWarning,
                stacklevel=2,
            )
        return {places[name]: node for name, node in named.items() if name in places}

    def _replay(self) -> None:
        """Bring the selector, and what weights are known, to where the log ends."""
        parser = LineParser(str(self.recorder.path))
        for line in parser.sums(follow(self.recorder.path, poll_seconds=None)):
            self._weights |= dict(zip(line.clients, line.weights or (), strict=False))
            if self.chooser is not None:
                self._end(line)

    def _end(self, line: SumLine) -> None:
        """Let the selector end a round of the log."""
        assert self.chooser is not None
        places = self._register.places
        where = f"line {line.line} of {self.recorder.path}"
        rule = f"must have a log that says in {where} whom the server asked"
        require(line.asked is not None, "recorder", rule)
        asked = line.asked or ()
        rule = f"must know the clients of {where}"
        require(places.keys() >= set(asked), str(self._register.path), rule)
        place = places.__getitem__
        self.chooser.end(list(map(place, asked)), list(map(place, line.clients)))

    def _named(self, node: Node) -> str:
        return self.recorder.name(self._name(node))

    def _check_names(self, nodes: Sequence[Node]) -> None:
        are_different = len(set(map(self._named, nodes))) == len(nodes)
        require(are_different, "name", "must tell all nodes of a round apart", nodes)

    def _write(
        self,
        number: int,
        status: str,
        weights: dict[Node, Any] | None = None,
        asked: Sequence[Node] | None = None,
        lost: dict[str, list[Node]] | None = None,
    ) -> None:
        """Write the line of a round, which is over; weights are of a learnt sum."""
        self._round = None
        weights = weights or {}
        lost_names = {
            stage: list(map(self._name, nodes))
            for stage, nodes in (lost or {}).items()
            if nodes
        }
        self.recorder.record(
            number,
            list(map(self._name, weights)),
            weights=list(weights.values()) or None,
            status=status,
            asked=None if asked is None else list(map(self._name, asked)),
            lost=lost_names or None,
            **self._part,
        )
        if self.chooser is not None:
            places = list(map(self._place, asked or ()))
            self.chooser.end(places, list(map(self._place, weights)))
        named = {self._named(node): weight for node, weight in weights.items()}
        self._weights |= named
        if self._gate is not None and named:
            self._gate.add(list(named), list(named.values()), **self._part)


def exact_weights(weights: Mapping[Any, Any]) -> dict[Any, Fraction]:
    """Return nodes' weights exactly, or raise where one is none."""
    exact: dict[Any, Fraction] = {}
    for node, weight in weights.items():
        value = exact_value(weight)
        rule = f"of node {node} must be finite and not negative"
        require(value is not None and value >= 0, "num_examples", rule, weight)
        exact[node] = value or Fraction(0)
    return exact
