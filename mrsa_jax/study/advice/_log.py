"""What a participation log reveals about its system.

N, K, and how often clients are lost where.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mrsa_jax import privacy
from mrsa_jax._core.statistics import binomial_interval, half_interval
from mrsa_jax.study._assets import text_of
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import counted
from mrsa_watch.logs import LineParser, SumLine, sums_of

_MOST_BYTES = 2**31  # of a participation log
# lost before anything is shared; lost when already in the sum
_BEFORE, _AFTER = "setup", "unmask"


@dataclasses.dataclass(frozen=True)
class Rate:
    """A chance as counted in a log.

    Attributes:
        count: How often it happened.
        total: How often it could have.
        rate: Their quotient.
        lower: Lower end of its 95 % interval, the wider of two: each client by itself
            (Clopper-Pearson), and each round as one draw, since whole rounds may go
            badly.
        upper: Upper end.
    """

    count: int
    total: int
    rate: float
    lower: float
    upper: float

    @staticmethod
    def of(counts: Sequence[int], totals: Sequence[int]) -> Rate | None:
        """Return the rate of counts by round; None where nothing could happen."""
        pairs = np.array(
            [pair for pair in zip(counts, totals, strict=True) if pair[1]], np.int64
        )
        if not len(pairs):
            return None
        count, total = map(int, pairs.sum(axis=0))
        rate = count / total
        low, high = binomial_interval(count, total)
        if len(pairs) > 1:
            half = float(half_interval(pairs[:, 0] / pairs[:, 1]))
            low, high = (
                min(low, max(rate - half, 0.0)),
                max(high, min(rate + half, 1.0)),
            )
        return Rate(count, total, rate, low, high)

    def __str__(self) -> str:
        """Return it in percent with its interval."""
        ends = f"{100 * self.lower:.2g} to {100 * self.upper:.2g} %"
        return f"{100 * self.rate:.3g} % ({ends}; {self.count:,} of {self.total:,})"


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a log says.

    Attributes:
        file: Its path.
        num_clients: Clients that it names anywhere.
        cohort_size: How many were asked in most rounds; the largest sum where it says
            only who was summed.
        cohort_sizes: Fewest and most asked, or summed.
        num_rounds: Rounds in it.
        num_sums: Sums that were learnt.
        aborted: Rounds that ended without a sum.
        participations: Fewest, median and most sums that a client is in.
        says_lost: Whether it says who was asked, or who was lost.
        is_plain: Whether it says that the server saw every update by itself.
        before: Lost before anything was shared, of those asked; None where it does not
            say.
        inside: Lost before their update was summed, of those who began; where it does
            not say, what sums lack of the largest.
        unmasking: Lost when their update was in the sum, of those in it; None as above.
        is_torn: Whether its last line is not whole, and was left out.
    """

    file: pathlib.Path
    num_clients: int
    cohort_size: int
    cohort_sizes: tuple[int, int]
    num_rounds: int
    num_sums: int
    aborted: int
    participations: tuple[int, float, int]
    says_lost: bool
    is_plain: bool = False
    before: Rate | None = None
    inside: Rate | None = None
    unmasking: Rate | None = None
    is_torn: bool = False

    @property
    def varies(self) -> bool:
        """Whether rounds differ in how many were asked, or summed."""
        return self.cohort_sizes[0] < self.cohort_sizes[1]

    def sentences(self) -> list[str]:
        """Say what was measured, and what a log cannot tell."""
        named = "asked" if self.says_lost else "summed"
        low, high = self.cohort_sizes
        size = f"{low} to {high}" if self.varies else f"{high}"
        said = [
            f"The log names {self.num_clients} clients in "
            f"{counted(self.num_rounds, 'round')}, "
            f"{size} of them {named} per round (K = {self.cohort_size} is used)."
        ]
        if self.aborted:
            said[0] += f" {self.aborted} ended without a sum."
        if self.is_plain:
            said.append(
                "The server of this system saw every update by itself: no scheme hides "
                "it."
            )
        if self.says_lost:
            said.append(self._losses())
        else:
            said.append(text_of("log_of_sums").format(lack=self.inside))
        if self.num_rounds < 10:
            said.append("So few rounds give little evidence: look at the intervals.")
        if self.is_torn:
            said.append("Its last line is incomplete and was ignored.")
        return said

    def _losses(self) -> str:
        words = [
            f"{rate} {what}"
            for rate, what in (
                (
                    self.before,
                    "of those asked were lost at setup, and count as offline",
                ),
                (self.inside, "of the others were lost before the sum"),
                (
                    self.unmasking,
                    "of those summed were lost at unmasking, which splits nothing",
                ),
            )
            if rate is not None
        ]
        return "; ".join(words) + text_of("log_of_losses")


@dataclasses.dataclass
class _Round:
    """A round, of all its sums."""

    asked: set[Any] = dataclasses.field(default_factory=set)
    before: set[Any] = dataclasses.field(default_factory=set)
    lost: set[Any] = dataclasses.field(default_factory=set)
    after: set[Any] = dataclasses.field(default_factory=set)
    summed: set[Any] = dataclasses.field(default_factory=set)
    sums: int = 0
    says: bool = False


def measure_log(file: pathlib.Path, **options: Any) -> Measured:
    """Return what a log of any format says; options are those of `privacy.read_log`.

    Raises:
        ConfigurationError: If it breaks a rule of its format, or holds no round of two
            clients.
        DataNotFoundError: If it is not there.
    """
    lines = sums_of(file, _MOST_BYTES)
    if lines is not None:
        return _of_lines(file, *lines)
    log = privacy.read_log(file, **options)
    rows = np.asarray(log.participation != 0, np.bool_)
    rounds = [
        _Round(summed=set(np.flatnonzero(row).tolist()), sums=1)
        for row in rows
        if row.any()
    ]
    return _found(file, rounds)


def _of_lines(
    file: pathlib.Path, parser: LineParser, sums: Iterator[SumLine]
) -> Measured:
    rounds: dict[Any, _Round] = {}
    for found in sums:
        if found.status != "refused":
            _add(rounds.setdefault((found.run, found.round), _Round()), found)
    is_plain = any(header.aggregation == "plain" for header in parser.headers)
    return _found(
        file, list(rounds.values()), is_plain=is_plain, is_torn=parser.is_unfinished
    )


def _add(own: _Round, line: SumLine) -> None:
    """Take a sum of a round into account."""
    own.sums += line.status == "learnt"
    own.says |= line.asked is not None or bool(line.lost)
    own.summed.update(line.clients)
    own.asked.update(line.asked or ())
    for stage, names in line.lost.items():
        {_BEFORE: own.before, _AFTER: own.after}.get(stage, own.lost).update(names)


def _found(
    file: pathlib.Path,
    rounds: Iterable[_Round],
    *,
    is_plain: bool = False,
    is_torn: bool = False,
) -> Measured:
    own = [one for one in rounds if one.says or one.summed]
    for one in own:
        one.asked |= one.summed | one.before | one.lost | one.after
        one.lost -= one.before  # in another of the round's sums
        one.after &= one.summed
        if one.sums:  # whoever is missing without a word was lost as well
            one.lost |= one.asked - one.summed - one.before
    clients = set[Any]().union(*(one.asked for one in own))
    said = [one for one in own if one.says]
    sizes = [len(one.asked) for one in (said or own)]
    rule = "must be of a log with a round of two clients or more"
    require(max(sizes, default=0) >= 2, "log", rule, str(file))
    common = Counter(sizes).most_common()
    usual = max(size for size, count in common if count == common[0][1])
    counts = Counter(client for one in own for client in one.summed)
    times = np.array([counts[client] for client in clients])
    told = {
        "before": Rate.of([len(r.before) for r in said], [len(r.asked) for r in said]),
        "inside": Rate.of(
            [len(r.lost) for r in said], [len(r.asked) - len(r.before) for r in said]
        ),
        "unmasking": Rate.of(
            [len(r.after) for r in said], [len(r.summed) for r in said]
        ),
    }
    if not said:
        usual = max(sizes)
        told = {
            "inside": Rate.of([usual - size for size in sizes], [usual] * len(sizes))
        }
    return Measured(
        file=file,
        num_clients=len(clients),
        cohort_size=usual,
        cohort_sizes=(min(sizes), max(sizes)),
        num_rounds=len(own),
        num_sums=sum(one.sums for one in own),
        aborted=sum(not one.sums for one in own),
        participations=(int(times.min()), float(np.median(times)), int(times.max())),
        says_lost=bool(said),
        is_plain=is_plain,
        is_torn=is_torn,
        **told,
    )
