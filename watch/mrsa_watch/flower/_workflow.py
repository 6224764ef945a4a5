"""Flower's SecAgg+ with losses recorded, mended where they stop it, and whole blocks.

What differs from `flwr.server.workflow.SecAggPlusWorkflow`, on the server alone:

- a node lost before it shared keys has no pads with anybody, so it is forgotten; the
  original asks for shares of it that do not exist, and fails in every such round;
- a block that loses a member ends the round, or is dropped as a whole;
- a round is ended before unmasking where the gate forbids its sum, or where lost nodes
  have cut the graph of pads in two, so that the server would learn the sum of each
  part.

Source: Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead"
(2020); Multi-RoundSecAgg, Section 4, for blocks, and `selection.learnt_sums` for the
policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO, WARN
from typing import Any, Literal, get_args

from flwr.app import Message
from flwr.common import log
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
from flwr.serverapp import Grid

from mrsa_watch._base.errors import check_known, require
from mrsa_watch.flower._books import Books, exact_weights
from mrsa_watch.flower._strategies import FitWrapper, GridView

SplitPolicy = Literal["ignore", "abort", "drop_block"]


class SecAggPlus(SecAggPlusWorkflow):
    """SecAgg+ whose rounds are recorded and whose sums hold whole blocks.

    Instead of `flwr.server.workflow.SecAggPlusWorkflow`; clients are as they were, with
    Flower's `secaggplus_mod`. The strategy is one that `record` or `select` made.

    Args:
        num_shares: As Flower's: into how many shares a key is split; a float is a part
            of the cohort.
        reconstruction_threshold: As Flower's: how many of them restore it; a float is a
            part of `num_shares`.
        blocks: What happens when a block loses some of its members before their updates
            arrive: `"abort"` ends the round, `"drop_block"` continues without the
            block, `"ignore"` sums the survivors, as Flower does, which splits blocks. A
            dropped block's updates have arrived, and each stays hidden by its own pad
            alone, which Flower draws from 32 bits of its seed: a server that breaks the
            rules can search them. With `"abort"` nothing is unmasked.
        **settings: Flower's further ones, such as `clipping_range`.

    Raises:
        ConfigurationError: If the policy is unknown; in a round, if the strategy
            records nothing.
        TypeError, ValueError: From Flower, for its own settings.

    Examples:
        >>> SecAggPlus(1.0, 0.5, blocks="drop_block", max_weight=100.0).max_weight
        100.0
    """

    def __init__(
        self,
        num_shares: int | float,
        reconstruction_threshold: int | float,
        *,
        blocks: SplitPolicy = "abort",
        **settings: Any,
    ) -> None:
        super().__init__(num_shares, reconstruction_threshold, **settings)
        policies = get_args(SplitPolicy)
        self.blocks: Any = check_known(blocks, "blocks", policies, "a known policy")

    def __call__(self, grid: Grid, context: Any) -> None:
        """Run a round; what came to nothing is written as aborted."""
        books = _books_of(context)
        books.asks_again = True
        try:
            super().__call__(grid, context)
        finally:
            books.close()

    def setup_stage(
        self, grid: Grid, context: LegacyContext, state: WorkflowState
    ) -> bool:
        """Ask the cohort for keys."""
        stage = _Stage(grid, _books_of(context), "setup", self.blocks)
        went = super().setup_stage(stage, context, state)
        return went and stage.goes_on() and _forget_lost(state)

    def share_keys_stage(
        self, grid: Grid, context: LegacyContext, state: WorkflowState
    ) -> bool:
        """Let them share keys."""
        stage = _Stage(grid, _books_of(context), "share_keys", self.blocks)
        went = super().share_keys_stage(stage, context, state)
        return went and stage.goes_on() and _forget_lost(state)

    def collect_masked_vectors_stage(
        self, grid: Grid, context: LegacyContext, state: WorkflowState
    ) -> bool:
        """Collect padded updates, and say whether their sum may be learnt."""
        books = _books_of(context)
        stage = _Stage(grid, books, "upload", self.blocks)
        went = super().collect_masked_vectors_stage(stage, context, state)
        if not (went and stage.goes_on()):
            return False
        if not _is_connected(state):
            log(WARN, "Lost nodes cut the graph of pads apart: nothing is unmasked.")
            return False
        results = state.legacy_results
        counts = {proxy.node_id: result.num_examples for proxy, result in results}
        weights = exact_weights(counts)  # while nothing is learnt
        answer = books.refusal(state.active_node_ids, weights)
        if answer is not None:
            text = "The gate forbids the sum of those who are left: %s"
            log(WARN, text, answer.reason)
        return answer is None

    def unmask_stage(
        self, grid: Grid, context: LegacyContext, state: WorkflowState
    ) -> bool:
        """Collect shares, unmask the sum and hand it to the strategy."""
        stage = _Stage(grid, _books_of(context), "unmask", "ignore")
        return super().unmask_stage(stage, context, state)


class _Stage(GridView):
    """A stage's messages: the lost are noted, the rest of broken blocks dropped."""

    def __init__(
        self, grid: Grid, books: Books, name: str, policy: SplitPolicy
    ) -> None:
        super().__init__(grid)
        self._books = books
        self._name = name
        self._policy = policy
        self._split: set[Any] = set()

    def goes_on(self) -> bool:
        """Return whether the policy lets the round continue."""
        is_over = self._policy == "abort" and bool(self._split)
        if is_over:
            log(INFO, "A block lost a member: the round is aborted.")
        return not is_over

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send, and return the replies that count."""
        self._books.follow_stages()
        messages = list(messages)
        asked = [message.metadata.dst_node_id for message in messages]
        replies = list(self._grid.send_and_receive(messages, timeout=timeout))
        good = [reply for reply in replies if not reply.has_error()]
        present = {reply.metadata.src_node_id for reply in good}
        lost = [node for node in asked if node not in present]
        self._books.lose(self._name, lost)
        block = self._books.block
        self._split = set(map(block, lost)).intersection(map(block, present))
        if self._policy != "drop_block":
            return replies
        return [
            reply
            for reply in replies
            if reply.has_error() or block(reply.metadata.src_node_id) not in self._split
        ]


def _books_of(context: Any) -> Books:
    strategy = getattr(context, "strategy", None)
    is_ours = isinstance(strategy, FitWrapper)
    rule = "must be made by `record` or `select`, as the outermost of its strategies"
    require(is_ours, "strategy", rule, strategy)
    return strategy.books  # type: ignore[union-attr]


def _forget_lost(state: WorkflowState) -> bool:
    """Leave nodes that are lost out of all that follows, and say whether two are left.

    Clients add pads only with those whose shares they were forwarded, and get forwarded
    those of nodes that are there after keys were shared.
    """
    state.sampled_node_ids = set(state.active_node_ids)
    state.nid_to_neighbours = {
        node: state.nid_to_neighbours[node] & state.active_node_ids
        for node in state.active_node_ids
    }
    return len(state.active_node_ids) >= 2


def _is_connected(state: WorkflowState) -> bool:
    """Return whether pads join all nodes whose updates arrived, two at least."""
    rest = set(state.active_node_ids)
    if len(rest) < 2:
        return False
    reached = {rest.pop()}
    while reached:
        # one step of a search in breadth from a first node
        neighbours = (state.nid_to_neighbours[node] for node in reached)
        reached = rest & set().union(*neighbours)
        rest -= reached
    return not rest
