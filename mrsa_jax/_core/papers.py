"""Load what the papers' project, `papers/`, adds where it is installed."""

from __future__ import annotations

from typing import Any

from mrsa_watch._base.errors import ConfigurationError

_NAME = "mrsa-jax-papers"


def from_papers(group: str) -> Any:
    """Load the papers' entry point of a group.

    Only its own metadata are read: to go through those of all packages costs a tenth of
    a second.

    Args:
        group: `"mrsa_jax.commands"` or `"mrsa_jax.pages"`.

    Raises:
        ConfigurationError: If the project is not installed, with the command that adds
            it.
    """
    from importlib import metadata  # takes 20 ms, which `--help` need not wait for

    try:
        offered = metadata.distribution(_NAME).entry_points
    except metadata.PackageNotFoundError:
        raise ConfigurationError(
            f"`{_NAME}` must be installed to remake the papers' tables and figures, or "
            "to report "
            "on them; in a clone of mrsa_jax: pip install ./papers"
        ) from None
    (point,) = offered.select(group=group)
    return point.load()
