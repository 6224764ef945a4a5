"""What can be reproduced: every item's title, what it takes, and the paper's data set.

Nothing here imports JAX, so that `mrsa-jax reproduce --help` and `--list` answer at once. Names
and titles are literals; tests hold them equal to what the papers' modules make.
"""

from __future__ import annotations

import dataclasses

__all__ = ["ALIASES", "DATA_NAMES", "ITEMS", "PAPERS", "Entry", "entry", "trained"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of an item before it is made.

    Attributes:
        title: What it is, with its number in the paper.
        seconds: What its full size takes on two quiet cores, roughly.
        fast_seconds: What its fast size takes there, roughly.
        trains: Whether it trains models, and so needs a data set.
        data: The data set that the paper used, as `mrsa_jax.data.load` names it; None where it
            trains nothing, or is not in the paper.
    """

    title: str
    seconds: int
    fast_seconds: int
    trains: bool = False
    data: str | None = None

    @property
    def runtime(self) -> str:
        """Its full size's runtime, in words.

        Examples:
            >>> Entry("Table 1", 5, 1).runtime, Entry("Table 5", 4000, 40).runtime
            ('seconds', 'an hour or more')
        """
        limits = ((60, "seconds"), (900, "minutes"), (3000, "tens of minutes"))
        return next((words for limit, words in limits if self.seconds < limit), "an hour or more")


PAPERS = {"multiround": "Multi-RoundSecAgg", "ccesa": "CCESA", "heterosag": "HeteroSAg"}
"""The papers' names."""

DATA_NAMES = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "olivetti": "the AT&T faces",
}
"""The papers' data sets, in words."""

_MULTIROUND = {
    "table1": Entry("Table 1: family sizes at N = 120, K = 12", 1, 1),
    "fig2": Entry("Figure 2: the family of N = 8, K = 4, T = 2", 1, 1),
    "fig3": Entry("Figure 3: cardinality against privacy target (Theorem 1)", 30, 4),
    "remark7": Entry("Remark 7: non-linear reconstruction", 10, 2),
    "fig4a": Entry("Figure 4a: multi-round privacy over rounds", 300, 55),
    "echelon": Entry("The published estimate of T against certificates", 60, 3),
    "fig4b": Entry("Figure 4b: aggregation fairness gap", 30, 4),
    "fig4c": Entry("Figure 4c: average aggregation cardinality", 5, 1),
    "fig5a": Entry("Figure 5a: privacy against cardinality", 5, 1),
    "theorem3": Entry("Theorem 3: full rank after N rounds", 120, 6),
    "early_leaks": Entry(
        "Weighted random selection leaks earlier than random (not in the paper)", 30, 3
    ),
    "table3": Entry(
        "Table 3, Figures 5b and 5c: accuracy of VGG-11 on CIFAR-100", 1300, 30, True, "cifar100"
    ),
    "table4": Entry("Table 4, Figure 7: accuracy of LeNet on CIFAR-10", 1000, 10, True, "cifar10"),
    "table5": Entry("Table 5, Figure 6: accuracy of a CNN on MNIST", 3600, 20, True, "mnist"),
    "fig8": Entry("Figure 8: other numbers of clients", 1000, 22, True, "cifar10"),
    "fig9": Entry(
        "Figure 9: least squares on the updates of 40 rounds", 280, 22, True, "cifar10"
    ),
    "fig10": Entry("Figures 1 and 10: images reconstructed from sums", 220, 70, True, "cifar10"),
    "fig8_2021": Entry(
        "Figure 8 of the 2021 text: least squares on the models of 40 rounds", 590, 8, True,
        "mnist",
    ),
    "motion": Entry(
        "Least squares against motion, T and the window's length (not in the paper)", 100, 10, True
    ),
    "exposure": Entry(
        "Who was predicted exposed is who was recovered (not in the paper)", 90, 16, True
    ),
    "image_motion": Entry("Images from sums of models that move", 280, 50, True),
}  # fmt: skip

_CCESA = {
    "table1": Entry("Table 1: how resources grow with n", 60, 4),
    "fig3": Entry("Figure 3: bounds on the chances of failure at p = p*", 20, 2),
    "tableg2": Entry("Table G.2: connection probabilities p*", 1, 1),
    "remark4": Entry("Remark 4: the share threshold t", 1, 1),
    "proposition1": Entry("Proposition 1: the unmasking attack", 1, 1),
    "bandwidth": Entry("Appendix D.1: additional bandwidth of a client", 1, 1),
    "table2": Entry("Table 2: running times", 280, 30),
    "fig4": Entry("Figure 4: accuracy of CCESA(1000, p) and SecAgg", 1500, 38, True, "cifar10"),
    "figb1": Entry(
        "Figure B.1: accuracy of CCESA(40, p) and SecAgg, t = 21", 600, 45, True, "olivetti"
    ),
    "fig2": Entry(
        "Figures 2 and B.2: model inversion of what clients send", 60, 10, True, "olivetti"
    ),
    "table3": Entry(
        "Tables 3 and B.1: membership inference on what clients send", 165, 25, True, "cifar10"
    ),
}

_HETEROSAG = {
    "matrices": Entry("Segment-selection matrices: Algorithms 1 to 6, Table III", 1, 1),
    "examples": Entry("Example 1 with Table II: pads of unequal range; Example 5", 1, 1),
    "theorem1": Entry("Theorem 1: privacy levels of SC, MC and HC", 2, 1),
    "theorem3": Entry("Theorem 3: privacy levels over subgroups", 10, 1),
    "error_bounds": Entry("Theorem 2 and its corollaries: quantization errors", 30, 4),
    "expansion": Entry("Section VI-A: bandwidth expansion", 1, 1),
    "theorem4": Entry("Theorem 4: two survivors in each subgroup", 5, 1),
    "byzantine_bound": Entry("Section V-A: tolerated Byzantine users under MC", 5, 1),
    "costs": Entry("Section VI-A: computation and communication", 150, 1),
    "fig3a": Entry("Figure 3a: Experiment 1, unequal quantization", 1200, 30, True, "mnist"),
    "fig3b": Entry(
        "Figure 3b: Experiment 2, a Byzantine user under MC", 450, 14, True, "fashion_mnist"
    ),
}

_ENTRIES = {"multiround": _MULTIROUND, "ccesa": _CCESA, "heterosag": _HETEROSAG}

ITEMS: dict[str, tuple[str, ...]] = {paper: tuple(own) for paper, own in _ENTRIES.items()}
"""Names of the items of each paper, in the order in which they are made."""

ALIASES: dict[str, dict[str, str]] = {
    "multiround": {
        "fig5b": "table3",
        "fig5c": "table3",
        "fig7": "table4",
        "fig6": "table5",
        "fig1": "fig10",
    },
    "ccesa": {"figb2": "fig2", "tableb1": "table3"},
    "heterosag": {},
}
"""Figures that an item of another name shows: the curves whose ends a table lists."""


def entry(paper: str, item: str) -> Entry:
    """Return what is known of an item.

    Examples:
        >>> entry("heterosag", "fig3b").data
        'fashion_mnist'
    """
    return _ENTRIES[paper][item]


def trained(paper: str) -> tuple[str, ...]:
    """Return the names of a paper's items that train models.

    Examples:
        >>> trained("heterosag")
        ('fig3a', 'fig3b')
    """
    return tuple(name for name, own in _ENTRIES[paper].items() if own.trains)
