"""What comes from outside: bytes read within bounds, names shown without their tricks."""

from mrsa_watch._base.untrusted import *  # noqa: F403
