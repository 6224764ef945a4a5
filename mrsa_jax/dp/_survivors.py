"""Sums of a ledger: members, noise and clip of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mrsa_jax import hetero, privacy, selection
from mrsa_jax._core.arrays import as_integers, check_integers, host_array
from mrsa_watch._base.errors import check_count, require
from mrsa_watch._base.tables import is_table
from mrsa_watch._base.values import by_value


@by_value
class Sums(NamedTuple):
    """Learnt sums, one a row.

    Attributes:
        rows: bool, integer or float64 `[sums, clients]`, each client's weight; a row of
            zeros is a round without a sum.
        rounds: int `[sums]`, of which round each is, ascending.
        num_rounds: J.
        log: The log that it was, or None.
        divisors: float64 `[sums]`: what was learnt is the row divided by it.
        segments: The history that it was of sums of segments, or None: a row is then of
            a round's clients the fewest of whose blocks' sums is one of as many.
        sizes: int `[sums]`, that many as laid out; None without segments.
        left: int `[sums]`, that many of those who are left and do not collude; None
            alike.
    """

    rows: np.ndarray
    rounds: np.ndarray
    num_rounds: int
    log: privacy.ParticipationLog | None
    divisors: np.ndarray
    segments: hetero.SegmentHistory | None = None
    sizes: np.ndarray | None = None
    left: np.ndarray | None = None

    @staticmethod
    def of(participation: Any) -> Sums:
        """Read the sums of a matrix, a history, a training's result, a log or a table.

        Raises:
            ConfigurationError: If it is none of them, or of many trials.
        """
        log = (
            privacy.read_log(participation)
            if is_table(participation)
            else participation
        )
        if isinstance(log, privacy.ParticipationLog):
            rows, divisors = _of_log(log)
            return Sums(rows, np.arange(len(rows)), len(rows), log, divisors)
        if isinstance(participation, hetero.SegmentHistory):
            return _of_segments(participation, np.zeros(0, np.int64))
        if hasattr(participation, "participation") and hasattr(
            participation, "components"
        ):
            rows, rounds = selection.learnt_rows(participation)
            return Sums(
                rows, rounds, len(participation.participation), None, np.ones(len(rows))
            )
        matrix = host_array(
            as_integers(participation, "participation"), "participation"
        )
        rule = "must be one history [rounds, clients]"
        require(matrix.ndim == 2, "participation", rule, f"shape {matrix.shape}")
        rows = (
            _floats(matrix, np.ones(len(matrix), object))
            if matrix.dtype == object
            else matrix
        )
        return Sums(rows, np.arange(len(rows)), len(rows), None, np.ones(len(rows)))

    def without(self, members: np.ndarray) -> Sums:
        """Return the same where these clients' noise is known.

        Of segments, by other blocks.
        """
        if self.segments is None or not members.size:
            return self
        return _of_segments(self.segments, members)

    def added(self, members: np.ndarray) -> np.ndarray:
        """Return int `[sums]`, how many clients' noise is in each sum and unknown."""
        if self.left is not None:
            return self.left
        counts = np.count_nonzero(self.rows, axis=1)
        return counts - np.count_nonzero(self.rows[:, members], axis=1)

    def each_round(self) -> Sums:
        """Return the same with a row for every round, those without a sum among them.

        Raises:
            ConfigurationError: If a round has several sums.
        """
        rule = "must not be set with segments, whose blocks change from round to round"
        require(self.segments is None, "strategy", rule)
        again = self.rounds[1:][np.diff(self.rounds) == 0]
        rule = (
            "must not be set if a round fell into several sums: "
            "its noise is no one step"
        )
        require(again.size == 0, "strategy", rule, *(f"round {j}" for j in again[:1]))
        if len(self.rounds) == self.num_rounds:
            return self
        rows = np.zeros((self.num_rounds, self.rows.shape[1]), self.rows.dtype)
        rows[self.rounds] = self.rows
        count = self.num_rounds
        return Sums(rows, np.arange(count), count, self.log, np.ones(count))

    def numbers(self, value: Any, argument: str) -> np.ndarray:
        """Return a number, or one for each round, for each sum.

        All positive and finite.
        """
        rule = "must be positive and finite, a number or one for each round"
        array = host_array(value, argument)
        require(array.dtype.kind in "fiu", argument, rule, value)
        require(
            array.shape in ((), (self.num_rounds,)),
            argument,
            rule,
            f"shape {array.shape}, {self.num_rounds} rounds",
        )
        values = np.broadcast_to(array.astype(np.float64), (self.num_rounds,))
        wrong = values[~(np.isfinite(values) & (values > 0))]
        if argument == "noise_multiplier" and 0.0 in wrong:
            rule += "; without noise there is no differential privacy"
        require(wrong.size == 0, argument, rule, *wrong[:1].tolist())
        return values[self.rounds]

    def members(
        self, clients: Any, argument: str, *, leaves_one: bool = False
    ) -> np.ndarray:
        """Return the indices of some clients.

        They are named where the sums are a log's.
        """
        count = self.rows.shape[1]
        if self.log is None:
            listed = check_integers(clients, argument, 0)
        else:
            is_list = isinstance(clients, list | tuple)
            require(is_list, argument, "must be a list of clients' names", clients)
            places = {str(name): place for place, name in enumerate(self.log.clients)}
            for name in clients:
                require(
                    str(name) in places, argument, "must name clients of the log", name
                )
            listed = [places[str(name)] for name in clients]
        for place in listed:
            check_count(
                place,
                argument,
                f"must hold indices below {count}, the number of clients",
                0,
                count - 1,
            )
        require(
            len(set(listed)) == len(listed),
            argument,
            "must name a client once",
            clients,
        )
        rule = "must leave a client out"
        require(not leaves_one or len(listed) < count, argument, rule, f"all {count}")
        return np.asarray(listed, np.int64)


def _of_segments(history: hetero.SegmentHistory, members: np.ndarray) -> Sums:
    """Return the sums that count of sums of segments.

    By round, each client's sum with the least noise.
    """
    num_rounds, count = history.plain.shape
    never = np.iinfo(np.int32).max
    is_known = np.isin(np.arange(count), members)
    least = np.full((2, num_rounds, count), never, np.int32)
    for rows, when, sizes in zip(
        history.participation, history.rounds, history.sizes, strict=True
    ):
        unknown = (rows & ~is_known).sum(axis=1, dtype=np.int32)
        for table, counts in zip(least, (sizes, unknown), strict=True):
            np.minimum.at(
                table,
                when,
                np.where(rows, np.asarray(counts, np.int32)[:, None], never),
            )
    least[:, :, is_known] = never
    rounds, clients = np.nonzero(least[1] < never)
    sorts = np.stack([rounds, *(table[rounds, clients] for table in least)])
    kinds, places = np.unique(sorts, axis=1, return_inverse=True)
    rows = np.zeros((kinds.shape[1], count), np.bool_)
    rows[places.reshape(-1), clients] = True
    return Sums(
        rows,
        kinds[0],
        num_rounds,
        None,
        np.ones(len(rows)),
        history,
        kinds[1],
        kinds[2],
    )


def _of_log(log: privacy.ParticipationLog) -> tuple[np.ndarray, np.ndarray]:
    rows = np.asarray(log.participation)
    scales = log.scales or (1,) * len(rows)
    if rows.dtype != object:
        return rows, np.array([float(scale) for scale in scales])
    return _floats(rows, scales), np.ones(len(rows))


def _floats(rows: np.ndarray, scales: Any) -> np.ndarray:
    """Return weights of many digits, divided by their rows' scales, as floats."""
    from fractions import Fraction

    try:
        values = [
            [float(Fraction(int(value)) / scale) for value in row]
            for row, scale in zip(rows, scales, strict=True)
        ]
    except OverflowError:
        require(False, "participation", "must hold weights that are floats")
    return np.asarray(values, np.float64)
