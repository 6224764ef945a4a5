"""Rounds in which every client keeps its group, to try what becomes of groups that are small."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax._core.round_rules import block_labels
from mrsa_jax.hetero._cohorts import CohortGroups, settled


def fixed_groups(
    cohorts: Any,
    group_of: Any,
    *,
    num_groups: int | None = None,
    too_small: str = "merge",
    blocks: Any = None,
) -> tuple[CohortGroups, ...]:
    """Return the groups of each round, by the rules of `ranked_groups`."""
    asked, groups = np.asarray(cohorts, bool), np.asarray(group_of)
    labels = (
        None if blocks is None else np.asarray(block_labels(blocks, asked.shape[1]))
    )
    count = int(groups.max()) + 1 if num_groups is None else num_groups
    return tuple(
        settled(cohort, np.where(cohort, groups, -1), count, too_small, 2, labels)
        for cohort in asked
    )
