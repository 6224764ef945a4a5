"""Facts about an item before it is made: one row per table or figure.

Nothing here imports JAX, so that `mrsa-jax reproduce --help` and `--list` answer at
once; a row names its functions, which load when the item is made.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import tomllib
from typing import Any, Literal, NamedTuple

from mrsa_papers.harness._settings import Setting

ANY = "any"
"""Data of an item that trains and is in no paper: it is the same claim on all."""


class PaperData(NamedTuple):
    """A data set of a paper: its name in words, training samples and classes."""

    words: str
    samples: int
    classes: int


DATA = {
    "cifar100": PaperData("CIFAR-100", 50_000, 100),
    "cifar10": PaperData("CIFAR-10", 50_000, 10),
    "mnist": PaperData("MNIST", 60_000, 10),
    "fashion_mnist": PaperData("Fashion-MNIST", 60_000, 10),
    "olivetti": PaperData("the AT&T faces", 320, 40),
}
"""The papers' data sets; of the faces, four in five are trained on."""


@dataclasses.dataclass(frozen=True)
class Miss:
    """A claim that is known to come out otherwise here: an expected miss.

    `mrsa-jax reproduce` fails on a miss that its item does not list. A claim that is
    listed and holds after all is said, and is no failure.

    Attributes:
        claim: The claim's `Check.name`.
        why: Why ours differs: what was proved or measured.
        size: At which size; `"both"` where it is no matter of the size.
        dataset: The data set on which that was found; None where it is no matter of the
            data.
    """

    claim: str
    why: str
    size: Literal["full", "fast", "both"] = "full"
    dataset: str | None = "mnist_5k"

    def applies(self, *, fast: bool, dataset: str) -> bool:
        """Return whether it was found at this size, on these data."""
        fits = self.size in ("both", "fast" if fast else "full")
        return fits and self.dataset in (None, dataset)


@dataclasses.dataclass(frozen=True)
class Row:
    """One table, figure or theorem of a paper: everything that the driver knows of it.

    Attributes:
        title: What it is, with its number in the paper.
        seconds: What its full size takes on two quiet cores, roughly.
        fast_seconds: What its fast size takes there, roughly.
        maker: What makes its data and judges its claims against the published values:
            `"theory.family_sizes"` is `family_sizes` of `_theory.py` in the paper's
            folder.
        figure: What draws the data, likewise: on a figure, or on the only axes of one
            if `axes` is set.
        data: The data set that the paper trained on, as `mrsa_jax.data.load` names it;
            `ANY` where it trains and is not in the paper, None where it trains nothing.
        misses: Its claims that are known to come out otherwise.
        axes: Words of `Axes.set` for the figure's only axes; None if it has several.
        settings: What its maker takes; none where nothing of it can be set.
    """

    title: str
    seconds: int
    fast_seconds: int
    maker: str
    figure: str
    data: str | None = None
    misses: tuple[Miss, ...] = ()
    axes: dict[str, Any] | None = None
    settings: tuple[Setting, ...] = ()

    @property
    def trains(self) -> bool:
        """Whether it trains models, and so needs a data set."""
        return self.data is not None

    @property
    def data_words(self) -> str:
        """The data set of the paper in words; empty where it has none.

        Examples:
            >>> Row("Figure 6", 60, 5, "accuracy.table5", "", "mnist").data_words
            'MNIST'
        """
        return DATA[self.data].words if self.data in DATA else ""

    @property
    def runtime(self) -> str:
        """Its full size's runtime, in words.

        Examples:
            >>> Row("Table 1", 5, 1, "", "").runtime
            'seconds'
            >>> Row("Table 5", 4000, 40, "", "").runtime
            'an hour or more'
        """
        limits = ((60, "seconds"), (900, "minutes"), (3000, "tens of minutes"))
        return next(
            (words for limit, words in limits if self.seconds < limit),
            "an hour or more",
        )


@functools.cache
def printed_in(paper: str) -> dict[str, Any]:
    """Read the `printed.toml` of a paper's folder: the numbers that it prints."""
    path = pathlib.Path(__file__).parents[1] / paper / "printed.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@functools.cache
def catalog_of(paper: str) -> dict[str, Any]:
    """Read the `items.toml` of a paper's folder, its items as rows."""
    path = pathlib.Path(__file__).parents[1] / paper / "items.toml"
    catalog = tomllib.loads(path.read_text(encoding="utf-8"))
    for name, fields in catalog["items"].items():
        misses = tuple(
            Miss(
                claim,
                **miss | ({"dataset": None} if miss.get("dataset") == ANY else {}),
            )
            for miss in fields.pop("misses", ())
            for claim in miss.pop("claims")
        )
        settings = tuple(
            Setting.of(setting, row)
            for setting, row in fields.pop("settings", {}).items()
        )
        catalog["items"][name] = Row(**fields, misses=misses, settings=settings)
    return catalog
