"""Rounds in which every client keeps its group, to try what becomes of groups that are small."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax.hetero import _cohorts


def fixed_groups(
    cohorts: Any,
    group_of: Any,
    *,
    num_groups: int | None = None,
    too_small: str = "merge",
    blocks: Any = None,
) -> tuple[_cohorts.CohortGroups, ...]:
    """Return the groups of each round, by the rules of `ranked_groups`."""
    asked, groups = np.asarray(cohorts, bool), np.asarray(group_of)
    labels = _cohorts._checked_blocks(blocks, False, asked.shape[1])
    count = int(groups.max()) + 1 if num_groups is None else num_groups
    finish = _cohorts._finisher(count, too_small, 2, labels)
    return tuple(finish(own, np.where(own, groups, _cohorts._APART)) for own in asked)
