"""Settings of an item: a table in its row, and with it flags, keywords and axes.

A setting that the paper states makes its published numbers what they are. One that it
does not state is ours, such as trials. Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from mrsa_jax._core import flags
from mrsa_watch._base.errors import ConfigurationError, nearest

_KINDS: dict[str, Any] = {
    "several": flags.Several,
    "whole": flags.Whole,
    "natural": flags.Natural,
    "chance": flags.Chance,
    "share": flags.Share,
    "inside": flags.Inside,
    "positive": flags.Positive,
    "not_negative": flags.NotNegative,
    "text": str,
    "flag": bool,
}
_WORDS = {
    "several": "INT",
    "whole": "INT",
    "natural": "INT",
    "text": "NAME",
    "flag": "True|False",
}
_USUAL = {int: "whole", float: "positive", str: "text", bool: "flag"}

HELP = {
    "num_clients": "Clients N.",
    "cohort_size": "Clients K that the server selects per round.",
    "privacy_target": "Clients T of a block.",
    "privacy_targets": "Clients T of a block, each in turn.",
    "dropout_rates": "Probabilities that a client is offline, spread over the clients.",
    "assignment": "How the dropout rates are spread over the clients.",
    "num_rounds": "Rounds.",
    "num_trials": "Independent trials.",
    "num_seeds": "Trainings with different seeds.",
    "num_draws": "Draws.",
    "num_assignments": "Random assignments of the dropout rates to the clients.",
    "num_sizes": "Numbers of clients n, each in turn.",
    "total_rates": "Probabilities q_total to be lost in a round, each in turn.",
    "learning_rate": "Step size of local SGD.",
    "batch_size": "Samples in a minibatch; fewer, in proportion, on fewer data.",
    "num_epochs": "Local epochs per round.",
    "levels": "Levels K of each group's quantizer.",
    "group_size": "Clients of a group.",
    "evaluate_every": "Rounds between two tests.",
    "model": "Model that clients train.",
    "rounds_before": "Rounds t0 that are trained before the sums are kept.",
    "window": "Rounds whose sums are kept and solved.",
    "partition": "How the samples are spread over the clients.",
    "dim": "Coordinates of an update.",
    "effort": "Computing allowance of a search; 1 is about 90 seconds on one core.",
}
"""Words for settings that several items have."""


class Setting(NamedTuple):
    """One setting of an item.

    Attributes:
        name: As in the product's commands.
        value: Its default; a tuple where it is a list.
        fast: Its value with `--fast`.
        paper: The paper's value; None where the paper states none.
        words: What it is.
        kind: Of one value, as `flags` has them.
        low: The least value; that of the kind where None.
        is_least: Whether more than the paper's is as good.
        is_open: Whether the paper's numbers depend on it and the paper states no value,
            so that no run can be compared with them.
        choices: All values, where they are names.
        repeats: Whether a list may hold a value again: one for each group or client.
    """

    name: str
    value: Any
    fast: Any
    paper: Any
    words: str
    kind: str
    low: float | None = None
    is_least: bool = False
    choices: tuple[str, ...] = ()
    repeats: bool = False
    is_open: bool = False

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any]) -> Setting:
        """Read a setting from its row of `items.toml`.

        Examples:
            >>> trials = Setting.of("num_trials", {"value": 40, "fast": 8, "ours": True})
            >>> trials.paper is None, trials.fast, trials.kind
            (True, 8, 'whole')
        """
        values: dict[str, Any] = {
            key: tuple(each) if isinstance(each, list) else each
            for key, each in row.items()
        }
        value = values["value"]
        single = value[0] if isinstance(value, tuple) else value
        return cls(
            name,
            value,
            values.get("fast", value),
            None
            if values.get("ours") or values.get("open")
            else values.get("paper", value),
            values.get("help", HELP.get(name, "")),
            values.get("kind", _USUAL[type(single)]),
            values.get("low"),
            values.get("least", False),
            values.get("choices", ()),
            values.get("repeats", False),
            values.get("open", False),
        )

    @property
    def hint(self) -> Any:
        """The type of its field, of which None stands for the default."""
        kind: Any = Literal[self.choices] if self.choices else _KINDS[self.kind]
        marks = list(getattr(kind, "__metadata__", ()))
        if self.low is not None:
            marks.append(flags.Within(self.low))
        single: Any = getattr(kind, "__origin__", kind) if marks else kind
        word = "|".join(self.choices) or _WORDS.get(self.kind, "X")
        metavar, several = word, single
        if isinstance(self.value, tuple):
            metavar, several = f"{word} [{word} ...]", tuple[single, ...]
        argument = tyro.conf.arg(
            help=self.help, metavar=metavar, help_behavior_hint=lambda _: ""
        )
        # a range is a remark on the whole field: it holds for each of several values
        hint: Any = several | None
        for mark in (argument, *marks):
            hint = Annotated[hint, mark]
        return hint

    @property
    def help(self) -> str:
        """Its words, its default, and where the paper's or the fast size's differ."""
        parts = [f"default: {shown(self.value)}"]
        if self.is_open:
            parts.append("the paper states none, though its numbers depend on it")
        elif self.paper is None:
            parts.append("the paper states none")
        elif self.paper != self.value:
            parts.append(f"the paper: {shown(self.paper)}")
        if self.fast != self.value:
            parts.append(f"--fast: {shown(self.fast)}")
        return f"{self.words} ({'; '.join(parts)})"

    def is_of_paper(self, value: Any) -> bool:
        """Return whether published numbers are of this value, or it is no matter."""
        if self.paper is None or value == self.paper:
            return True
        return self.is_least and value >= self.paper

    def missed(self, value: Any) -> str:
        """State a value that is not the paper's."""
        return f"{self.name}: {shown(value)} (the paper: {shown(self.paper)})"


def shown(value: Any) -> str:
    """Write a value as the command line takes it.

    Examples:
        >>> shown((0.1, 1000)), shown("mlp")
        ('0.1 1000', 'mlp')
    """
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def flag_of(name: str) -> str:
    """Return the flag of a setting.

    Examples:
        >>> flag_of("num_clients")
        '--num-clients'
    """
    return f"--{name.replace('_', '-')}"


class Values:
    """The values of an item's settings, as attributes."""

    def __init__(
        self, settings: tuple[Setting, ...], values: Mapping[str, Any]
    ) -> None:
        """Take all settings of the item, and the value of each."""
        self._settings = settings
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the item has no setting `{name}`")

    def __getitem__(self, name: str) -> Any:
        """Return the value of a setting by its name."""
        return self.__dict__[name]

    def resolve(self, **values: Any) -> None:
        """Set what a default left open, such as a model that the images decide.

        Raises:
            AttributeError: For a name that is no setting of the item.
        """
        for name, value in values.items():
            getattr(self, name)  # a setting
            self.__dict__[name] = value

    @property
    def missed(self) -> dict[str, str]:
        """The settings that are not the paper's, in words by name."""
        return {
            each.name: each.missed(self[each.name])
            for each in self._settings
            if not each.is_of_paper(self[each.name])
        }

    @property
    def unstated(self) -> dict[str, str]:
        """The settings that printed numbers depend on and the paper does not state."""
        return {
            each.name: f"{each.name}: {shown(self[each.name])} (the paper states none)"
            for each in self._settings
            if each.is_open
        }

    @property
    def are_papers(self) -> bool:
        """Whether numbers that the paper printed are of these settings."""
        return not self.missed and not self.unstated


def values_of(
    item: str,
    settings: tuple[Setting, ...],
    chosen: Mapping[str, Any],
    *,
    is_fast: bool = False,
) -> Values:
    """Return the values of an item's settings.

    Args:
        item: Its name, for errors.
        settings: All of them.
        chosen: Values by name; None stands for the default.
        is_fast: Whether defaults are those of the fast size.

    Raises:
        ConfigurationError: For a setting that the item has not, naming the nearest.
    """
    names = [each.name for each in settings]
    for name in chosen:
        if name not in names:
            rule = f"must be a setting of {item}"
            hint = nearest(name, names) if names else "it has none"
            raise ConfigurationError(f"`{name}` {rule}; {hint}")
    values = {}
    for each in settings:
        value = chosen.get(each.name)
        if value is None:
            value = each.fast if is_fast else each.value
        values[each.name] = value
    return Values(settings, values)


def fields_of(settings: tuple[Setting, ...]) -> list[tuple[str, Any, Any]]:
    """Return dataclass fields for settings, None by default."""
    return [
        (each.name, each.hint, dataclasses.field(default=None)) for each in settings
    ]
