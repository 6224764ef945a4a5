"""Flower without ray and without calls home, and this folder's network by name."""

import os
import pathlib
import sys

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
sys.path.append(str(pathlib.Path(__file__).parent))
collect_ignore = ["simulation.py"]  # a program of its own
