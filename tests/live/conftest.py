"""Lets the tests of this folder import the oracle of `tests/privacy` by name."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "privacy"))
