"""Checks of numbers that users give: each returns Python's own number, or raises naming it."""

from mrsa_watch._base.checks import *  # noqa: F403
