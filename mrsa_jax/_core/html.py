"""Small pieces of HTML that notebooks and reports share: escaped, bounded, readable anywhere."""

from mrsa_watch._base.html import *  # noqa: F403
