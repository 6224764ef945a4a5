"""Names of a package that load when they are first used."""

from mrsa_watch._base.late import *  # noqa: F403
