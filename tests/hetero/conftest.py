"""Lets the tests of this folder import their helper by name, whatever way pytest is started."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))
