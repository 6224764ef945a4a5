"""Records Flower's rounds, and selects in them.

Who is in each sum, and who was lost when.
Import it where Flower is (the extra `flower` of this package); nothing else here does.
"""

from mrsa_watch.flower._version import check_version

VERSION = check_version()  # before anything of Flower is imported

from mrsa_watch.flower._blocks import whole_blocks  # noqa: E402
from mrsa_watch.flower._pseudonyms import Pseudonyms, pseudonym_mod  # noqa: E402
from mrsa_watch.flower._strategies import record  # noqa: E402
from mrsa_watch.flower._workflow import SecAggPlus  # noqa: E402

__all__ = [
    "VERSION",
    "Pseudonyms",
    "SecAggPlus",
    "pseudonym_mod",
    "record",
    "whole_blocks",
]
