"""Which number of groups near a wanted one hides most: G of SC, MC and HC, Z of the + schemes.

The privacy level of MC jumps with the smallest prime factor of the number of groups (12: 1/2, 13:
12/13), so one group more or less can matter more than any other choice.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np

from mrsa_jax._checks import check_integer
from mrsa_jax._errors import require
from mrsa_jax.hetero._privacy import claimed_privacy_level, scheme_privacy_level


@dataclasses.dataclass(frozen=True)
class GroupOption:
    """One number of groups.

    Attributes:
        num_groups: G or Z.
        level: Its privacy level.
        claimed: What the paper claims of it.
    """

    num_groups: int
    level: Fraction
    claimed: Fraction


@dataclasses.dataclass(frozen=True)
class GroupAdvice:
    """Numbers of groups near a wanted one (build it with `advise_num_groups`).

    Attributes:
        best: The option of the highest level; the nearest to the wanted number among equals, and
            then the smaller.
        options: All that were asked for, ascending.
    """

    best: GroupOption
    options: tuple[GroupOption, ...]

    def __str__(self) -> str:
        """Return a table, a line for each option, the best marked."""
        lines = ["groups    level  claimed"]
        for option in self.options:
            mark = "  <- best" if option == self.best else ""
            row = f"{option.num_groups:6d} {option.level!s:>8} {option.claimed!s:>8}{mark}"
            lines.append(row)
        return "\n".join(lines)


def advise_num_groups(
    scheme: str,
    near: int | np.integer,
    *,
    least: int | np.integer | None = None,
    most: int | np.integer | None = None,
    hybrid_threshold: int | np.integer | None = None,
) -> GroupAdvice:
    """Compare the privacy levels of the numbers of groups around a wanted one.

    Args:
        scheme: "sc", "mc" or "hc".
        near: G (or Z, the subgroups of a + scheme) as wanted, at least 2.
        least: The fewest that would do; near - 2, but never less than 2 (hc: T + 1), if None.
        most: The most that would do; near + 2 if None.
        hybrid_threshold: T of "hc", the same for all options.

    Returns:
        The options and the best of them. More groups cost accuracy (`scheme_error_bound`), so the
        fewest of equal levels is not always what is wanted: the table has them all.

    Raises:
        ConfigurationError: If the scheme is unknown or numbers are out of range or order.

    Examples:
        >>> print(advise_num_groups("mc", 12))
        groups    level  claimed
            10      1/2      4/5
            11    10/11    10/11
            12      1/2      5/6
            13    12/13    12/13  <- best
            14      1/2      6/7

    Source: HeteroSAg, Theorems 1 and 3, corrected (`scheme_privacy_level`).
    """
    wanted = check_integer(near, "near", 2)
    fewest = 2
    if scheme == "hc" and hybrid_threshold is not None:
        fewest = check_integer(hybrid_threshold, "hybrid_threshold", 1) + 1
    rule = f"must be at least {fewest}"
    low = check_integer(max(fewest, wanted - 2) if least is None else least, "least", fewest,
                        rule=rule)  # fmt: skip
    high = check_integer(wanted + 2 if most is None else most, "most", 2)
    require(low <= wanted <= high, "near", "must lie between `least` and `most`", wanted, low, high)
    options = tuple(
        GroupOption(
            size,
            scheme_privacy_level(scheme, size, hybrid_threshold),
            claimed_privacy_level(scheme, size, hybrid_threshold),
        )
        for size in range(low, high + 1)
    )
    best = min(options, key=lambda own: (-own.level, abs(own.num_groups - wanted), own.num_groups))
    return GroupAdvice(best, options)
