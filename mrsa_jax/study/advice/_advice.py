"""The advice in words: the figures of each scheme, which to take, and why."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from mrsa_jax import privacy
from mrsa_jax.study._findings import as_json
from mrsa_jax.study.advice._log import Measured
from mrsa_jax.study.advice._options import Option, Played, Setting
from mrsa_jax.study.advice._rounds import RoundsPrice, rounds_words
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.publishing._plots import POLICY_WORDS
from mrsa_watch._base.html import card, hidden_words
from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import by_value

_LEAST_SHARE = 0.8  # of random selection's mean clients per round, without requirements


@dataclasses.dataclass(frozen=True)
class Demands:
    """Requirements on a scheme; None for no requirement.

    Attributes:
        privacy: Weak T that must be kept for any number of rounds.
        hidden: Size that every client must stay hidden among, for any number of rounds.
        cardinality: Mean clients per round.
        block: T of blocks whose clients always take part together.
        least_block: The least T that meets `max_auc` and `max_advantage`; `block` is
            the next one that divides the numbers of clients, if there is one.
        max_auc: AUC that no test of a client's property may exceed.
        max_advantage: The same of its advantage.
        prevalence: Fraction of the clients that have this property.
    """

    privacy: int | None = None
    hidden: float | None = None
    cardinality: float | None = None
    block: int | None = None
    least_block: int | None = None
    max_auc: float | None = None
    max_advantage: float | None = None
    prevalence: float = 0.5

    def met_by(self, option: Option) -> bool:
        """Return whether an option meets all of them."""
        return (
            option.weak_lower >= (self.privacy or 1)
            and option.strong_privacy >= (self.block or 1)
            and option.hidden_worst >= (self.hidden or 1.0) * (1 - 1e-12)
            and option.cardinality >= (self.cardinality or 0.0) * (1 - 1e-12)
        )

    def __str__(self) -> str:
        """Return the requirements in words."""
        parts = []
        if self.privacy is not None:
            parts.append(f"weak T of {self.privacy} or more for any number of rounds")
        if self.block is not None:
            parts.append(f"blocks of {self.block} or more for any number of rounds")
        if self.hidden is not None:
            size = f"{self.hidden:g} or more for any number of rounds"
            parts.append(f"every client hidden among {size}")
        if self.cardinality is not None:
            parts.append(f"{self.cardinality:g} clients or more per round on average")
        return " and ".join(parts)

    @property
    def is_strict(self) -> bool:
        """Whether they are on the privacy of clients."""
        return (self.privacy, self.hidden, self.block) != (None, None, None)

    def sentences(self) -> list[str]:
        """Return the T that a bound on tests needs, in words."""
        if self.block is None or self.least_block is None:
            return []
        bounds = {"AUC": self.max_auc, "advantage": self.max_advantage}
        limits = " and ".join(
            f"{name} {bound:g}" for name, bound in bounds.items() if bound is not None
        )
        least = self.least_block
        words = (
            f"T = {least} is the least for which no test of a property of "
            f"{100 * self.prevalence:.3g} % of the clients exceeds {limits}."
        )
        if self.block > least:
            words += (
                f" T must divide the numbers of clients: the next one is {self.block}."
            )
        return [words]


def mark_best(options: Iterable[Option]) -> tuple[Option, ...]:
    """Mark the options that no other beats in T, hidden among and cardinality."""
    every = list(options)

    def is_best(option: Option) -> bool:
        is_beaten = any(_beats(other, option) for other in every)
        return option.cardinality >= 1.0 and not is_beaten

    return tuple(
        dataclasses.replace(option, is_best=is_best(option)) for option in every
    )


def _beats(other: Option, option: Option) -> bool:
    """Return whether an option is nowhere worse than another, and somewhere better."""
    theirs = other.weak_lower, other.hidden_worst, other.cardinality
    ours = option.weak_lower, option.hidden_worst, option.cardinality
    # equal options beat neither of both
    return theirs != ours and all(map(operator.ge, theirs, ours))


def choose(options: Iterable[Option], demands: Demands) -> Option | None:
    """Return the option to take, or None if none meets the requirements.

    Where T or hidden among is required, it is the one with the fullest sums of those
    that meet it. Otherwise the one that hides best among those whose mean clients per
    round are as many as required, or is 0.8 of that of random selection; and if there
    is none, the one with the fullest sums of all that keep a T above 1.
    """
    known = [option for option in options if not math.isnan(option.cardinality)]
    fitting = [option for option in known if demands.met_by(option)]
    # privacy is met by all of these, so the fullest sums decide
    if demands.is_strict:
        return max(fitting, key=_usefulness, default=None)
    lasting = [option for option in fitting if option.weak_lower > 1]
    if demands.cardinality is not None:
        return max(lasting, key=_protection, default=None)
    # random selection keeps no T, and has the fullest sums
    plain = [option.cardinality for option in known if option.weak_lower == 1]
    least = _LEAST_SHARE * max(plain, default=0.0)
    cheap = [option for option in lasting if option.cardinality >= least]
    return max(
        cheap or lasting, key=_protection if cheap else _usefulness, default=None
    )


def _usefulness(option: Option) -> tuple[float | int, ...]:
    # rounded, so that equal costs tie and privacy decides
    return round(option.cardinality, 9), option.hidden_worst, option.weak_lower


def _protection(option: Option) -> tuple[float | int, ...]:
    return option.hidden_worst, option.weak_lower, option.cardinality


def number(value: float) -> str:
    """Return a number of clients, or F, in three digits; "?" if it is unknown.

    Examples:
        >>> [number(x) for x in (1000.4, 11.768, 0.0143, 1e-9, math.nan)]
        ['1,000', '11.8', '0.0143', '0.00', '?']
    """
    if math.isnan(value):
        return "?"
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-4 or value == 0 else "0.00"


def _sum(option: Option) -> str:
    return f"{number(option.cardinality)} clients per round on average"


def take(setting: Setting, demands: Demands, chosen: Option) -> str:
    """Say which scheme to take."""
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
        condition = what[chosen.policy]
        words += (
            f" That holds if, whenever a client is lost inside a round, {condition}."
        )
    return words


def nothing_fits(options: Sequence[Option], demands: Demands) -> str:
    """Say which option comes nearest to requirements that none meets."""
    required = str(demands) or "a T above 1"
    near = [
        option
        for option in options
        if option.weak_lower >= (demands.privacy or 2)
        and option.strong_privacy >= (demands.block or 1)
        and option.hidden_worst >= (demands.hidden or 1.0)
    ]
    if near:
        best = max(near, key=lambda option: option.cardinality)
        return (
            f"No scheme gives {required}. Nearest is {best.scheme}, with {_sum(best)}: "
            "demand less, ask more clients per round, or lose fewer."
        )
    largest = max(options, key=lambda option: option.hidden_worst)
    if largest.weak_lower == 1:
        return (
            f"No scheme gives {required}: blocks of no size fit {largest.num_clients} "
            f"clients and {largest.cohort_size} of them per round. Take numbers with a "
            "common divisor."
        )
    return (
        f"No scheme gives {required}: T and hidden among end at the cohort, "
        f"{largest.weak_lower} and {hidden_words(largest.hidden_worst)} under "
        f"{largest.scheme}. Ask more clients per round."
    )


def remainder(setting: Setting, chosen: Option) -> list[str]:
    """Say what becomes of the clients that T does not divide."""
    t, clients, cohort = chosen.weak_lower, setting.num_clients, setting.cohort_size
    words = []
    if clients != chosen.num_clients:
        text = text_of("advice_remainder")
        out = clients - chosen.num_clients
        words.append(text.format(t=t, clients=clients, out=out))
    asked = chosen.cohort_size
    if asked is not None and asked != cohort:
        words.append(
            f"It does not divide {cohort} clients per round: ask {asked}, "
            f"or {asked + t}."
        )
    return words


def instead(setting: Setting, options: Sequence[Option], chosen: Option) -> list[str]:
    """Say what the next stricter scheme costs, and what happens without a scheme."""
    words = []
    stricter = [
        option
        for option in options
        if option.is_best
        and option.hidden_worst > chosen.hidden_worst
        and option.weak_lower >= chosen.weak_lower > 1
    ]
    if stricter:
        nearest = min(stricter, key=lambda option: option.hidden_worst)
        words.append(
            f"Stricter: {nearest.scheme} hides every client among "
            f"{hidden_words(nearest.hidden_worst)}, with {_sum(nearest)}."
        )
    # the first scheme without T that was simulated
    plain = next((o for o in options if o.weak_lower == 1 and o.played), None)
    played = None if plain is None else plain.played
    if plain is None or played is None or played.hidden_worst is None:
        return words
    leak = f"{played.exposed_clients:.4g} of {plain.num_clients} clients are exposed"
    if not played.exposed_clients:
        worst = hidden_words(played.hidden_worst)
        leak = f"no client is exposed yet, and the worst client hidden among {worst}"
    words.append(
        f"Without it ({plain.label}): {_sum(plain)}, and after {setting.rounds} rounds "
        f"{leak}."
    )
    return words


def losses(setting: Setting, policies: Sequence[Option], loss_rate: float) -> str:
    """Say what losses inside rounds do under each policy."""
    by_policy = {option.policy: option for option in policies}
    loss = f"{100 * loss_rate:.3g} %"
    ignored = by_policy["ignore"].played
    left = ""
    if ignored is not None and ignored.weak_lower is not None:
        hidden = hidden_words(ignored.hidden_worst or 1.0)
        left = (
            f" (after {setting.rounds} rounds weak T is {_weak_words(ignored)}, and "
            f"the worst client hidden among {hidden})"
        )
    return text_of("advice_losses").format(
        given=f"With {loss}" if setting.loss_rate > 0 else f"If {loss} were",
        left=left,
        kept=by_policy["drop_block"].weak_lower,
        **{name: number(option.cardinality) for name, option in by_policy.items()},
    )


def _weak_words(played: Played, to: str = " to ") -> str:
    low, high = played.weak_lower, played.weak_upper
    return str(low) if low == high else f"{low}{to}{high}"


def enforced(chosen: Option, loss_rate: float) -> str:
    """Say how often rounds work if their clients enforce the blocks."""
    from mrsa_jax.secagg.failures import whole_blocks_rate

    size, cohort = chosen.block_size, chosen.cohort_size or 0
    # over a complete graph a threshold of just above half is the least that they accept
    works = whole_blocks_rate(cohort // size, size, cohort // 2 + 1, loss_rate)
    rates = {"loss": loss_rate, "works": works, "whole": (1 - loss_rate) ** cohort}
    percent = {name: f"{100 * rate:.3g} %" for name, rate in rates.items()}
    return text_of("advice_enforced").format(**percent)


@dataclasses.dataclass(frozen=True, repr=False)
@by_value
class Advice:
    """The figures of each scheme, and which to take.

    Attributes:
        setting: The clients.
        demands: Requirements on a scheme.
        options: Every candidate scheme, in the order of T.
        chosen: The one to take; None if none meets the requirements.
        policies: The chosen scheme under each policy for blocks that lose a member
            inside a round.
        policy_loss: Their loss rate; that of the setting, or 0.2 if that is 0.
        measured: The measurements of a log; None without.
        prices: What each scheme that keeps a T costs in rounds of training.
    """

    setting: Setting
    demands: Demands
    options: tuple[Option, ...]
    chosen: Option | None
    policies: tuple[Option, ...] = ()
    policy_loss: float = 0.0
    measured: Measured | None = None
    prices: tuple[RoundsPrice, ...] = ()

    @property
    def title(self) -> str:
        """The setting in a line."""
        setting = self.setting
        away = ", ".join(f"{100 * rate:.3g}" for rate in setting.dropout_rates)
        log = "" if self.measured is None else f"{printable(self.measured.file)}: "
        return (
            f"{log}{setting.num_clients} clients, {setting.cohort_size} per round, "
            f"offline {away} % of the time, "
            f"{100 * setting.loss_rate:.3g} % lost inside rounds"
        )

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the columns of `table`."""
        rounds = self.setting.rounds
        return (
            "scheme",
            "T",
            "hidden",
            "mean clients",
            "no sum",
            "F",
            f"T after {rounds}",
            f"hidden after {rounds}",
            *self._drifting,
            "",
        )

    @property
    def _drifting(self) -> tuple[str, ...]:
        """Name the columns on updates that drift, in the order of `_cells`."""
        if self.setting.memory is None:
            return ()
        has_lasting_part = 0.0 < self.setting.share < 1.0
        return ("update hidden", *("what lasts hidden",) * has_lasting_part)

    @property
    def reading(self) -> str:
        """An explanation of the table."""
        setting = self.setting
        played = text_of("advice_played") if setting.trials else ""
        if setting.memory is not None:
            played += text_of("advice_drifting")
            played += text_of("advice_lasting") * (len(self._drifting) > 1)
        return text_of("advice_reading").format(played=played.format(**vars(setting)))

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A row for each option, as printed below `headings`."""
        return [self._cells(option) for option in self.options]

    @property
    def policy_table(self) -> list[tuple[str, ...]]:
        """A row for each policy."""
        return [
            (POLICY_WORDS[option.policy], *self._cells(option)[1:-1])
            for option in self.policies
        ]

    def _cells(self, option: Option) -> tuple[str, ...]:
        clients = self.setting.num_clients
        cohort = option.cohort_size or self.setting.cohort_size
        is_whole = (option.num_clients, cohort) == (clients, self.setting.cohort_size)
        scheme = option.scheme
        played = option.played
        fair = weak = hidden = update = lasting = "-"
        if played is not None:
            fair = _about(played.fairness_gap, played.fairness_interval)
            if played.weak_lower is not None and played.hidden_worst is not None:
                weak = _weak_words(played, "-")
                sizes = played.hidden_worst, played.hidden_median or 1
                hidden = " / ".join(map(hidden_words, sizes))
            if played.update_hidden_worst is not None:
                update = hidden_words(played.update_hidden_worst)
            if played.lasting_hidden_worst is not None:
                lasting = hidden_words(played.lasting_hidden_worst)
        mark = "best" if option.is_best else ""
        return (
            scheme if is_whole else f"{scheme}, {option.num_clients}/{cohort}",
            str(option.weak_lower),
            hidden_words(option.hidden_worst),
            _about(
                option.cardinality,
                option.cardinality_interval,
                is_simulated=not option.is_computed,
            ),
            "?" if math.isnan(option.skipped) else _percent(option.skipped),
            fair,
            weak,
            hidden,
            *(update, lasting)[: len(self._drifting)],
            "take" if option == self.chosen else mark,
        )

    @property
    def sentences(self) -> list[str]:
        """The measurements, the scheme to take, and the reasons."""
        setting, chosen = self.setting, self.chosen
        assigned = []
        if setting.assignment:
            text = text_of("advice_assigned")
            assigned = [text.format(assignment=setting.assignment)]
        words = [] if self.measured is None else self.measured.sentences()
        words += self.demands.sentences()
        if chosen is None:
            return [*words, nothing_fits(self.options, self.demands), *assigned]
        words += [take(setting, self.demands, chosen), *assigned]
        if chosen.strong_privacy > 1:
            size = chosen.strong_privacy
            bound = privacy.bound_in_words(size, prevalence=self.demands.prevalence)
            words.append(
                f"Of the {size} clients of a block with equal weights, {bound}."
            )
            if self.measured is not None:
                words += self.measured.words_on_weights(size)
        words += remainder(setting, chosen)
        words += rounds_words(self.prices, chosen)
        words += instead(setting, self.options, chosen)
        if self.policies:
            words.append(losses(setting, self.policies, self.policy_loss))
        if chosen.block_size > 1 and chosen.cohort_size is not None:
            words.append(enforced(chosen, self.policy_loss))
        return words

    @property
    def content(self) -> dict[str, Any]:
        """Everything, as `--json` prints it."""
        return {
            "title": self.title,
            "sentences": self.sentences,
            "setting": as_json(self.setting),
            "assignment": self.setting.assignment or None,
            "demands": as_json(self.demands),
            "measured": self._measured_content(),
            "chosen": as_json(self.chosen),
            "options": as_json(self.options),
            "policy_loss": self.policy_loss,
            "policies": as_json(self.policies),
            "prices_in_rounds": as_json(self.prices),
        }

    def _measured_content(self) -> Any:
        """Return the measurements as JSON has them, without each client's weight."""
        content = as_json(self.measured)
        if self.measured is not None:
            weights = content.pop("weights")
            content["has_weights"] = bool(weights) or self.measured.varies_in_weight
        return content

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values of JSON; unknown values are None."""
        return self.content

    def __repr__(self) -> str:
        """Return the scheme to take, in a line."""
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
    # an interval that three digits do not show is left out
    is_shown = is_simulated or half > 5e-4 * max(value, 1e-9)
    return number(value) + (f" ± {half:.1g}" if is_shown else "")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"
