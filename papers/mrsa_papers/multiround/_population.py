"""Clients and selection schemes of items whose settings choose them (Section 6)."""

from __future__ import annotations

from mrsa_jax.availability import Availability
from mrsa_jax.selection import Selector
from mrsa_papers.harness import Context, Values, schemes_for
from mrsa_watch._base.errors import require


def check_population(settings: Values) -> None:
    """Raise unless the clients can be parted as every scheme needs.

    User partition has N/K blocks of K clients, a cohort of the others K/T blocks of T.
    """
    clients, cohort = settings.num_clients, settings.cohort_size
    rule = f"must divide num_clients, {clients}"
    require(clients % cohort == 0, "cohort_size", rule, cohort)
    for target in settings.privacy_targets:
        rule = f"must divide cohort_size, {cohort}"
        require(cohort % target == 0, "privacy_targets", rule, target)


def schemes_of(settings: Values) -> dict[str, Selector]:
    """Return the schemes that an item compares, by label."""
    return schemes_for(
        settings.num_clients, settings.cohort_size, settings.privacy_targets
    )


def online_of(context: Context, settings: Values) -> Availability:
    """Return which clients are online, as the item's settings state it."""
    return context.online(
        settings.num_clients, settings.dropout_rates, settings.assignment
    )
