"""Exceptions of the package and the one helper that raises them for a user's mistake."""

from mrsa_watch._base.errors import *  # noqa: F403
