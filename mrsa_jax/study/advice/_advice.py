"""The advice: what each scheme gives, which to take, and why, in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from mrsa_jax.study._assets import text_of
from mrsa_jax.study._findings import as_json
from mrsa_jax.study._plots import POLICY_WORDS
from mrsa_jax.study.advice._log import Measured
from mrsa_jax.study.advice._options import Option, Setting
from mrsa_watch._base.html import card, hidden_words
from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import by_value

_LEAST_SHARE = 0.8  # of random selection's mean clients per round, without requirements


@dataclasses.dataclass(frozen=True)
class Demands:
    """What a scheme must give; None where nothing is asked.

    Attributes:
        privacy: Weak T that must be kept for any number of rounds.
        hidden: Among how many every client must stay hidden for any number of rounds.
        cardinality: Mean clients per round.
    """

    privacy: int | None = None
    hidden: float | None = None
    cardinality: float | None = None

    def met_by(self, option: Option) -> bool:
        """Return whether an option gives all of it."""
        return (
            option.weak_lower >= (self.privacy or 1)
            and option.hidden_worst >= (self.hidden or 1.0) * (1 - 1e-12)
            and option.cardinality >= (self.cardinality or 0.0) * (1 - 1e-12)
        )

    def __str__(self) -> str:
        """Return it in words."""
        parts = []
        if self.privacy is not None:
            parts.append(f"weak T of {self.privacy} or more for any number of rounds")
        if self.hidden is not None:
            words = f"every client hidden among {self.hidden:g} or more for any number of rounds"
            parts.append(words)
        if self.cardinality is not None:
            parts.append(f"{self.cardinality:g} clients or more per round on average")
        return " and ".join(parts)


def mark_best(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return options with what no other beats marked.

    In T, hidden among and cardinality.
    """
    every = list(options)
    return tuple(
        dataclasses.replace(
            one,
            is_best=one.cardinality >= 1.0
            and not any(_beats(other, one) for other in every),
        )
        for one in every
    )


def _beats(one: Option, other: Option) -> bool:
    left = one.weak_lower, one.hidden_worst, one.cardinality
    right = other.weak_lower, other.hidden_worst, other.cardinality
    return left != right and all(a >= b for a, b in zip(left, right, strict=True))


def choose(options: Iterable[Option], demands: Demands) -> Option | None:
    """Return the option to take, or None if none gives what is demanded.

    Where T or hidden among is demanded, it is the one with the fullest sums of those
    that give it. Otherwise the one that hides best among those whose mean clients per
    round are as many as required, or is 0.8 of that of random selection; and if there
    is none, the one with the fullest sums of all that keep a T above 1.
    """
    known = [one for one in options if not math.isnan(one.cardinality)]
    fitting = [one for one in known if demands.met_by(one)]
    if demands.privacy is not None or demands.hidden is not None:
        return max(fitting, key=_usefulness, default=None)
    kept = [one for one in fitting if one.weak_lower > 1]
    if demands.cardinality is not None:
        return max(kept, key=_protection, default=None)
    plain = max((one.cardinality for one in known if one.weak_lower == 1), default=0.0)
    cheap = [one for one in kept if one.cardinality >= _LEAST_SHARE * plain]
    return max(cheap, key=_protection, default=max(kept, key=_usefulness, default=None))


def _usefulness(one: Option) -> tuple[float | int, ...]:
    return round(one.cardinality, 9), one.hidden_worst, one.weak_lower


def _protection(one: Option) -> tuple[float | int, ...]:
    return one.hidden_worst, one.weak_lower, one.cardinality


def number(value: float) -> str:
    """Return a number of clients, or F, in three digits.

    A question mark where it is unknown.

    Examples:
        >>> number(1000.4), number(11.768), number(0.0143), number(1e-9), number(math.nan)
        ('1,000', '11.8', '0.0143', '0.00', '?')
    """
    if math.isnan(value):
        return "?"
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-4 or value == 0 else "0.00"


def _sum(one: Option) -> str:
    return f"{number(one.cardinality)} clients per round on average"


def take(setting: Setting, demands: Demands, chosen: Option) -> str:
    """Say which to take."""
    if chosen.weak_lower == 1:
        return f"{chosen.label} gives what is demanded, but keeps no T: {_sum(chosen)}."
    why = f"it gives {demands}, with" if str(demands) else "it has"
    hidden = hidden_words(chosen.hidden_worst)
    words = (
        f"Take {chosen.scheme}: {why} {_sum(chosen)}. For any number of rounds, no "
        "combination "
        f"of sums contains fewer than {chosen.weak_lower} clients, and every client is "
        "hidden as "
        f"well as in a single sum of {hidden}."
    )
    if setting.loss_rate > 0:
        what = {
            "drop_block": "its block is excluded from the sum",
            "abort": "the round is aborted",
        }
        words += f" That holds if, whenever a client is lost inside a round, {what[chosen.policy]}."
    return words


def nothing_fits(options: Sequence[Option], demands: Demands) -> str:
    """Say what comes nearest to what no option gives."""
    asked = str(demands) or "a T above 1"
    privacy = demands.privacy or 2
    hidden = demands.hidden or 1.0
    near = [o for o in options if o.weak_lower >= privacy and o.hidden_worst >= hidden]
    best = max(near, key=lambda one: one.cardinality, default=None)
    if best is None:
        largest = max(options, key=lambda one: one.hidden_worst)
        if largest.weak_lower == 1:
            sizes = f"{largest.num_clients} clients and {largest.cohort_size} of them per round"
            return (
                f"No scheme gives {asked}: blocks of no size fit {sizes}. Take numbers "
                "with a "
                "common divisor."
            )
        return (
            f"No scheme gives {asked}: T and hidden among end at the cohort, "
            f"{largest.weak_lower} "
            f"and {hidden_words(largest.hidden_worst)} under {largest.scheme}. Ask "
            "more clients "
            "per round."
        )
    return (
        f"No scheme gives {asked}. Nearest is {best.scheme}, with {_sum(best)}: demand "
        "less, ask "
        "more clients per round, or lose fewer."
    )


def remainder(setting: Setting, chosen: Option) -> list[str]:
    """Say what becomes of the clients that T does not divide."""
    own = setting
    n, k = (
        own.num_clients - chosen.num_clients,
        own.cohort_size - (chosen.cohort_size or 0),
    )
    said = []
    if n:
        said.append(
            text_of("advice_remainder").format(
                t=chosen.weak_lower, clients=own.num_clients, out=n
            )
        )
    if chosen.cohort_size is not None and k:
        said.append(
            f"It does not divide {own.cohort_size} clients per round: ask "
            f"{chosen.cohort_size}, or "
            f"{chosen.cohort_size + chosen.weak_lower}."
        )
    return said


def instead(setting: Setting, options: Sequence[Option], chosen: Option) -> list[str]:
    """Say what the next stricter scheme costs, and what comes of none."""
    said = []
    stricter = [
        one
        for one in options
        if one.is_best
        and one.hidden_worst > chosen.hidden_worst
        and one.weak_lower >= chosen.weak_lower > 1
    ]
    if stricter:
        nearest = min(stricter, key=lambda one: one.hidden_worst)
        said.append(
            f"Stricter: {nearest.scheme} hides every client among "
            f"{hidden_words(nearest.hidden_worst)}, with {_sum(nearest)}."
        )
    plain = next((one for one in options if one.weak_lower == 1 and one.played), None)
    if (
        plain is not None
        and plain.played is not None
        and plain.played.hidden_worst is not None
    ):
        worst, exposed = plain.played.hidden_worst, plain.played.exposed_clients
        leak = (
            f"{exposed:.4g} of {plain.num_clients} clients are exposed"
            if exposed
            else (
                "no client is exposed yet, and the worst client hidden among "
                f"{hidden_words(worst)}"
            )
        )
        said.append(
            f"Without it ({plain.label}): {_sum(plain)}, and after {setting.rounds} "
            f"rounds {leak}."
        )
    return said


def losses(setting: Setting, policies: Sequence[Option], loss_rate: float) -> str:
    """Say what losses inside rounds do under each policy."""
    by = {one.policy: one for one in policies}
    loss = f"{100 * loss_rate:.3g} %"
    given = f"With {loss}" if setting.loss_rate > 0 else f"If {loss} were"
    ignored = by["ignore"].played
    left = ""
    if ignored is not None and ignored.weak_lower is not None:
        low, high = ignored.weak_lower, ignored.weak_upper
        weak = f"{low}" if low == high else f"{low} to {high}"
        hidden = hidden_words(ignored.hidden_worst or 1.0)
        left = (
            f" (after {setting.rounds} rounds weak T is {weak}, and the worst client "
            "hidden "
            f"among {hidden})"
        )
    sizes = {name: number(one.cardinality) for name, one in by.items()}
    kept = by["drop_block"].weak_lower
    return text_of("advice_losses").format(given=given, left=left, kept=kept, **sizes)


def enforced(chosen: Option, loss_rate: float) -> str:
    """Say how often rounds work whose clients enforce the blocks themselves."""
    from mrsa_jax.secagg.failures import whole_blocks_rate

    size, asked = chosen.block_size, chosen.cohort_size or 0
    # over a complete graph a threshold of just above half is the least that they accept
    works = whole_blocks_rate(asked // size, size, asked // 2 + 1, loss_rate)
    rates = {"loss": loss_rate, "works": works, "whole": (1 - loss_rate) ** asked}
    percent = {name: f"{100 * rate:.3g} %" for name, rate in rates.items()}
    return text_of("advice_enforced").format(**percent)


@dataclasses.dataclass(frozen=True, repr=False)
@by_value
class Advice:
    """What each scheme gives, and which to take.

    Attributes:
        setting: For whom.
        demands: What a scheme must give.
        options: Every scheme that comes into question, in the order of T.
        chosen: The one to take; None if none gives what is demanded.
        policies: The chosen scheme under each policy for blocks that lose a member
            inside a round.
        policy_loss: With which chance to be lost; that of the setting, or 0.2 if that
            is 0.
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
            f"{log}{own.num_clients} clients, {own.cohort_size} per round, offline "
            f"{away} % of the "
            f"time, {100 * own.loss_rate:.3g} % lost inside rounds"
        )

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the columns of `table`."""
        rounds = self.setting.rounds
        drifting = () if self.setting.memory is None else ("update hidden",)
        return (
            "scheme",
            "T",
            "hidden",
            "mean clients",
            "no sum",
            "F",
            f"T after {rounds}",
            f"hidden after {rounds}",
            *drifting,
            "",
        )

    @property
    def reading(self) -> str:
        """How to read the table."""
        own = self.setting
        played = text_of("advice_played") if own.trials else ""
        if own.memory is not None:
            played += text_of("advice_drifting")
        return text_of("advice_reading").format(played=played.format(**vars(own)))

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A row for each option, as printed below `headings`."""
        return [self._cells(one) for one in self.options]

    @property
    def policy_table(self) -> list[tuple[str, ...]]:
        """A row for each policy."""
        return [
            (POLICY_WORDS[one.policy], *self._cells(one)[1:-1]) for one in self.policies
        ]

    def _cells(self, one: Option) -> tuple[str, ...]:
        sizes = one.num_clients, one.cohort_size or self.setting.cohort_size
        is_whole = sizes == (self.setting.num_clients, self.setting.cohort_size)
        found = one.played
        fair = weak = hidden = update = "-"
        if found is not None:
            fair = _about(found.fairness_gap, found.fairness_interval)
        if (
            found is not None
            and found.weak_lower is not None
            and found.hidden_worst is not None
        ):
            both = found.weak_lower, found.weak_upper
            weak = str(both[0]) if both[0] == both[1] else f"{both[0]}-{both[1]}"
            both_hidden = found.hidden_worst, found.hidden_median or 1
            hidden = " / ".join(map(hidden_words, both_hidden))
        if found is not None and found.update_hidden_worst is not None:
            update = hidden_words(found.update_hidden_worst)
        drifting = () if self.setting.memory is None else (update,)
        mark = "take" if one == self.chosen else ("best" if one.is_best else "")
        return (
            one.scheme + ("" if is_whole else f", {sizes[0]}/{sizes[1]}"),
            str(one.weak_lower),
            hidden_words(one.hidden_worst),
            _about(
                one.cardinality,
                one.cardinality_interval,
                is_simulated=not one.is_computed,
            ),
            "?" if math.isnan(one.skipped) else _percent(one.skipped),
            fair,
            weak,
            hidden,
            *drifting,
            mark,
        )

    @property
    def sentences(self) -> list[str]:
        """What was measured, which to take, and why."""
        said = [] if self.measured is None else self.measured.sentences()
        if self.chosen is None:
            return [*said, nothing_fits(self.options, self.demands), *self._assigned()]
        said.append(take(self.setting, self.demands, self.chosen))
        said += self._assigned()
        said += remainder(self.setting, self.chosen)
        said += instead(self.setting, self.options, self.chosen)
        if self.policies:
            said.append(losses(self.setting, self.policies, self.policy_loss))
        if self.chosen.block_size > 1 and self.chosen.cohort_size is not None:
            said.append(enforced(self.chosen, self.policy_loss))
        return said

    def _assigned(self) -> list[str]:
        assignment = self.setting.assignment
        return (
            [text_of("advice_assigned").format(assignment=assignment)]
            if assignment
            else []
        )

    @property
    def content(self) -> dict[str, Any]:
        """Everything, as `--json` prints it."""
        return {
            "title": self.title,
            "sentences": self.sentences,
            "setting": as_json(self.setting),
            "assignment": self.setting.assignment or None,
            "demands": as_json(self.demands),
            "measured": as_json(self.measured),
            "chosen": as_json(self.chosen),
            "options": as_json(self.options),
            "policy_loss": self.policy_loss,
            "policies": as_json(self.policies),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON's values; what is unknown is None."""
        return self.content

    def __repr__(self) -> str:
        """Return what to take, in a line."""
        return (
            f"Advice({self.title}; take {self.chosen.scheme if self.chosen else None})"
        )

    def __str__(self) -> str:
        """Return the words, then the table."""
        rows = [self.headings, *self.table]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self.title, "", *self.sentences, "", *lines])

    def _repr_html_(self) -> str:
        """Return the advice as a notebook shows it."""
        return card(
            self.title,
            self.table,
            headings=self.headings,
            note="\n".join(self.sentences),
        )


def _about(
    value: float, interval: tuple[float, float], *, is_simulated: bool = False
) -> str:
    if math.isnan(value):
        return number(value)
    half = (interval[1] - interval[0]) / 2
    is_shown = is_simulated or half > 5e-4 * max(value, 1e-9)
    return number(value) + (f" ± {half:.1g}" if is_shown else "")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"
