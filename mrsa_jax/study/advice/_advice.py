"""The advice: what each scheme gives, which to take, and why, in words."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from mrsa_jax._html import card, hidden_words
from mrsa_jax._untrusted import printable
from mrsa_jax.study.advice._candidates import Setting
from mrsa_jax.study.advice._choice import Demands
from mrsa_jax.study.advice._log import Measured
from mrsa_jax.study.advice._options import Option
from mrsa_jax.study.advice._words import instead, losses, nothing_fits, number, remainder, take

_READING = (
    "T: the fewest clients in any combination of sums, and hidden: among how many every client is "
    "hidden, both for ever, whatever the rounds bring (1 is nothing). Mean sum: clients in one, "
    "rounds without a sum counted as none; exact where no ± is given. {played}best: no other "
    "scheme is as good in T, hidden and mean sum, and better in one."
)
_PLAYED = (
    "F: fairness gap. It, and what is left of weak T, and of hidden for the worst and the median "
    "client, after {rounds} rounds are of {trials} simulated trials, ± their 95 % interval. "
)


@dataclasses.dataclass(frozen=True, repr=False)
class Advice:
    """What each scheme gives, and which to take.

    Attributes:
        setting: For whom.
        demands: What a scheme must give.
        options: Every scheme that comes into question, in the order of T.
        chosen: The one to take; None if none gives what is demanded.
        policies: The chosen scheme under each policy for blocks that lose a member inside a round.
        policy_loss: With which chance to be lost; that of the setting, or 0.2 if that is 0.
        measured: What the log said; None without.
    """

    setting: Setting
    demands: Demands
    options: tuple[Option, ...]
    chosen: Option | None
    policies: tuple[Option, ...] = ()
    policy_loss: float = 0.0
    measured: Measured | None = None

    @property
    def title(self) -> str:
        """For whom, in a line."""
        own = self.setting
        away = ", ".join(f"{100 * rate:.3g}" for rate in own.dropout_rates)
        log = "" if self.measured is None else f"{printable(self.measured.file)}: "
        return (
            f"{log}{own.num_clients} clients, {own.cohort_size} in a round, away {away} % of the "
            f"time, {100 * own.loss_rate:.3g} % lost inside rounds"
        )

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the columns of `table`."""
        rounds = self.setting.rounds
        return ("scheme", "T", "hidden", "mean sum", "no sum", "F", f"T after {rounds}",
                f"hidden after {rounds}", "")  # fmt: skip

    @property
    def reading(self) -> str:
        """How to read the table."""
        own = self.setting
        played = _PLAYED.format(rounds=own.rounds, trials=own.trials) if own.trials else ""
        return _READING.format(played=played)

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A row for each option, as printed below `headings`."""
        return [self._cells(one) for one in self.options]

    @property
    def policy_table(self) -> list[tuple[str, ...]]:
        """A row for each policy."""
        names = {"ignore": "sum whoever is left", "abort": "abort the round",
                 "drop_block": "drop the block"}  # fmt: skip
        return [(names[one.policy], *self._cells(one)[1:-1]) for one in self.policies]

    def _cells(self, one: Option) -> tuple[str, ...]:
        sizes = one.num_clients, one.cohort_size or self.setting.cohort_size
        is_whole = sizes == (self.setting.num_clients, self.setting.cohort_size)
        found = one.played
        fair = weak = hidden = "-"
        if found is not None:
            fair = _about(found.fairness_gap, found.fairness_interval)
        if found is not None and found.weak_lower is not None and found.hidden_worst is not None:
            both = found.weak_lower, found.weak_upper
            weak = str(both[0]) if both[0] == both[1] else f"{both[0]}-{both[1]}"
            hidden = (
                f"{hidden_words(found.hidden_worst)} / {hidden_words(found.hidden_median or 1)}"
            )
        mark = "take" if one == self.chosen else ("best" if one.is_best else "")
        return (
            one.scheme + ("" if is_whole else f", {sizes[0]}/{sizes[1]}"),
            str(one.weak_lower),
            hidden_words(one.hidden_worst),
            _about(one.cardinality, one.cardinality_interval),
            "?" if math.isnan(one.skipped) else _percent(one.skipped),
            fair, weak, hidden, mark,
        )  # fmt: skip

    @property
    def sentences(self) -> list[str]:
        """What was measured, which to take, and why."""
        said = [] if self.measured is None else self.measured.sentences()
        if self.chosen is None:
            return [*said, nothing_fits(self.options, self.demands)]
        said.append(take(self.setting, self.demands, self.chosen))
        said += remainder(self.setting, self.chosen)
        said += instead(self.setting, self.options, self.chosen)
        if self.policies:
            said.append(losses(self.setting, self.policies, self.policy_loss))
        return said

    @property
    def content(self) -> dict[str, Any]:
        """Everything, as `--json` prints it."""
        return {
            "title": self.title,
            "sentences": self.sentences,
            "setting": _plain(self.setting),
            "demands": _plain(self.demands),
            "measured": _plain(self.measured),
            "chosen": _plain(self.chosen),
            "options": _plain(self.options),
            "policy_loss": self.policy_loss,
            "policies": _plain(self.policies),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON's values; what is unknown is None."""
        return self.content

    def __repr__(self) -> str:
        """Return what to take, in a line."""
        return f"Advice({self.title}; take {self.chosen.scheme if self.chosen else None})"

    def __str__(self) -> str:
        """Return the words, then the table."""
        rows = [self.headings, *self.table]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self.title, "", *self.sentences, "", *lines])

    def _repr_html_(self) -> str:
        """Return the advice as a notebook shows it."""
        return card(self.title, self.table, headings=self.headings, note="\n".join(self.sentences))


def _about(value: float, interval: tuple[float, float]) -> str:
    if math.isnan(value):
        return "?"
    half = (interval[1] - interval[0]) / 2
    return number(value) + (f" ± {half:.1g}" if half > 5e-4 * max(value, 1e-9) else "")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)
