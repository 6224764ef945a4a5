"""Measure a participation log: N, K, and the rates at which clients are lost."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mrsa_jax import privacy
from mrsa_jax._core.statistics import binomial_interval, half_interval
from mrsa_jax.study.publishing._assets import text_of
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import counted, hidden_words
from mrsa_watch.logs import SumLine, sums_of

_MOST_BYTES = 2**31  # of a participation log
# lost before anything is shared; lost when already in the sum
_BEFORE, _AFTER = "setup", "unmask"


@dataclasses.dataclass(frozen=True)
class Rate:
    """A probability as counted in a log.

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
    def of(counts: ArrayLike, totals: ArrayLike) -> Rate | None:
        """Return the rate of counts by round; None if nothing could happen."""
        pairs = np.transpose([counts, totals]).astype(np.int64)
        pairs = pairs[pairs[:, 1] > 0]
        if not len(pairs):
            return None
        count, total = map(int, pairs.sum(axis=0))
        rate = count / total
        low, high = binomial_interval(count, total)
        if len(pairs) > 1:
            half = float(half_interval(pairs[:, 0] / pairs[:, 1]))
            low = min(low, max(rate - half, 0.0))
            high = max(high, min(rate + half, 1.0))
        return Rate(count, total, rate, low, high)

    def __str__(self) -> str:
        """Return the rate in percent with its interval."""
        ends = f"{100 * self.lower:.2g} to {100 * self.upper:.2g} %"
        return f"{100 * self.rate:.3g} % ({ends}; {self.count:,} of {self.total:,})"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurements of a log.

    Attributes:
        file: Its path.
        num_clients: Number of clients that it names anywhere.
        cohort_size: Clients that were asked in most rounds; those of the largest sum if
            it records only sums.
        cohort_sizes: Fewest and most asked, or summed.
        num_rounds: Rounds in it.
        num_sums: Sums that were learnt.
        aborted: Rounds that ended without a sum.
        participations: Fewest, median and most sums that a client is in.
        says_lost: Whether it records clients that were asked, or lost.
        is_plain: Whether it records that the server saw every update by itself.
        before: Lost before anything was shared, of those asked; None if it does not
            record them.
        inside: Lost before their update was summed, of those that began; if it does
            not record them, the clients that sums lack of the largest.
        unmasking: Lost when their update was in the sum, of those in it; None as above.
        is_torn: Whether its last line is not whole, and was left out.
        weights: The one weight of each client in all of its sums, ascending; () where
            all are 1, or a client's weights differ.
        varies_in_weight: Whether weights of a client differ between its sums.
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
    weights: tuple[Fraction, ...] = dataclasses.field(default=(), repr=False)
    varies_in_weight: bool = False

    def words_on_weights(self, size: int) -> list[str]:
        """Say how well blocks of this size hide clients with the weights of the log."""
        if self.varies_in_weight:
            return [text_of("log_of_varying_weights")]
        if not 2 <= size <= len(self.weights):
            return []
        heaviest = self.weights[-1]
        count = len(self.weights) // size * size
        # the worst block joins the heaviest client with the lightest
        worst = privacy.hidden_in_blocks([*self.weights[: size - 1], heaviest])[-1]
        alike = privacy.hidden_in_blocks(
            self.weights[-count:], np.arange(count) // size
        )
        text = text_of("log_of_weights")
        return [
            text.format(
                size=size, worst=hidden_words(worst), alike=hidden_words(alike.min())
            )
        ]

    @property
    def varies(self) -> bool:
        """Whether rounds differ in the number of clients asked, or summed."""
        return self.cohort_sizes[0] < self.cohort_sizes[1]

    def sentences(self) -> list[str]:
        """Report the measurements, and the limits of a log."""
        verb = "asked" if self.says_lost else "summed"
        low, high = self.cohort_sizes
        size = f"{low} to {high}" if self.varies else f"{high}"
        words = [
            f"The log names {self.num_clients} clients in "
            f"{counted(self.num_rounds, 'round')}, "
            f"{size} of them {verb} per round (K = {self.cohort_size} is used)."
        ]
        if self.aborted:
            words[0] += f" {self.aborted} ended without a sum."
        if self.is_plain:
            words.append(
                "The server of this system saw every update by itself: no scheme hides "
                "it."
            )
        if self.says_lost:
            words.append(self._losses())
        else:
            words.append(text_of("log_of_sums").format(lack=self.inside))
        if self.num_rounds < 10:
            words.append("So few rounds give little evidence: look at the intervals.")
        if self.is_torn:
            words.append("Its last line is incomplete and was ignored.")
        return words

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
    """The clients of a round in all of its sums, by what happened to them."""

    asked: set[Any] = dataclasses.field(default_factory=set)
    before: set[Any] = dataclasses.field(default_factory=set)
    lost: set[Any] = dataclasses.field(default_factory=set)
    after: set[Any] = dataclasses.field(default_factory=set)
    summed: set[Any] = dataclasses.field(default_factory=set)
    sums: int = 0
    says: bool = False
    weights: dict[Any, set[Fraction]] = dataclasses.field(default_factory=dict)

    def add(self, line: SumLine) -> None:
        """Take a sum into account."""
        for client, weight in zip(line.clients, line.weights or (), strict=False):
            self.weights.setdefault(client, set()).add(weight)
        self.sums += line.status == "learnt"
        self.says |= line.asked is not None or bool(line.lost)
        self.summed.update(line.clients)
        self.asked.update(line.asked or ())
        stages = {_BEFORE: self.before, _AFTER: self.after}
        for stage, names in line.lost.items():
            stages.get(stage, self.lost).update(names)

    def complete(self) -> None:
        """Make the sets agree, when all sums are known."""
        self.asked |= self.summed | self.before | self.lost | self.after
        self.lost -= self.before  # in another of the round's sums
        self.after &= self.summed
        if self.sums:  # a client that is missing without a word was lost as well
            self.lost |= self.asked - self.summed - self.before


def measure_log(file: pathlib.Path, **options: Any) -> Measured:
    """Measure a log of any format; options are those of `privacy.read_log`.

    Raises:
        ConfigurationError: If it breaks a rule of its format, or holds no round of two
            clients.
        DataNotFoundError: If it is not there.
    """
    lines = sums_of(file, _MOST_BYTES)
    if lines is None:
        log = privacy.read_log(file, **options)
        rows = np.asarray(log.participation)
        members = (np.flatnonzero(row).tolist() for row in rows)
        records = [
            _Round(
                summed=set(own),
                sums=1,
                weights={client: {Fraction(int(row[client]))} for client in own},
            )
            for own, row in zip(members, rows, strict=True)
            if own
        ]
        return _measured(file, records)
    parser, sums = lines
    rounds: defaultdict[Any, _Round] = defaultdict(_Round)
    for line in sums:
        if line.status != "refused":
            rounds[line.run, line.round].add(line)
    return _measured(
        file,
        rounds.values(),
        is_plain=any(header.aggregation == "plain" for header in parser.headers),
        is_torn=parser.is_unfinished,
    )


def _measured(
    file: pathlib.Path,
    rounds: Iterable[_Round],
    *,
    is_plain: bool = False,
    is_torn: bool = False,
) -> Measured:
    records = [record for record in rounds if record.says or record.summed]
    for record in records:
        record.complete()
    clients = set[Any]().union(*(record.asked for record in records))
    said = [record for record in records if record.says]
    sizes = [len(record.asked) for record in (said or records)]
    rule = "must be of a log with a round of two clients or more"
    require(max(sizes, default=0) >= 2, "log", rule, str(file))
    common = Counter(sizes).most_common()
    usual = max(size for size, count in common if count == common[0][1])
    counts = Counter(client for record in records for client in record.summed)
    times = np.array([counts[client] for client in clients])
    if said:
        asked, before, lost, after, summed = (
            np.array([len(getattr(record, name)) for record in said])
            for name in ("asked", "before", "lost", "after", "summed")
        )
        rates = (
            Rate.of(before, asked),
            Rate.of(lost, asked - before),
            Rate.of(after, summed),
        )
    else:
        usual = max(sizes)
        totals = np.full(len(sizes), usual)
        rates = None, Rate.of(totals - sizes, totals), None
    return Measured(
        file=file,
        num_clients=len(clients),
        cohort_size=usual,
        cohort_sizes=(min(sizes), max(sizes)),
        num_rounds=len(records),
        num_sums=sum(record.sums for record in records),
        aborted=sum(not record.sums for record in records),
        participations=(int(times.min()), float(np.median(times)), int(times.max())),
        says_lost=bool(said),
        is_plain=is_plain,
        before=rates[0],
        inside=rates[1],
        unmasking=rates[2],
        is_torn=is_torn,
        **_weights(records),
    )


def _weights(records: Iterable[_Round]) -> dict[str, Any]:
    """Return the weights of the clients, or that they vary."""
    each: defaultdict[Any, set[Fraction]] = defaultdict(set)
    for record in records:
        for client in record.summed:
            # a sum without weights counts every client once
            each[client] |= record.weights.get(client, {Fraction(1)})
    if any(len(weights) > 1 for weights in each.values()):
        return {"varies_in_weight": True}
    weights = sorted(weight for own in each.values() for weight in own)
    is_equal = not weights or weights[0] == weights[-1]
    return {} if is_equal else {"weights": tuple(weights)}
