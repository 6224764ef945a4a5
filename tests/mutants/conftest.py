"""Lets the test of this folder import the rows by name."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))
