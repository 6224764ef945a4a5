"""Digests of objects: every value that one reaches counts, and nothing else does."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from digested import OBJECTS

from mrsa_jax._core.sources import code_of_object

KINDS = list(dict.fromkeys(name.partition(":")[0] for name in OBJECTS))


def digest(thing: Any, **more: Any) -> str:
    return code_of_object(thing, "mine", "grid", **more)[""].partition(" ")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_each_value_that_an_object_reaches_changes_its_digest(kind: str) -> None:
    assert len(OBJECTS) > 300
    for name, made in OBJECTS.items():
        if name.startswith(f"{kind}:"):
            own = made(1)
            assert digest(own) == digest(made(1)) == digest(own), name
            assert digest(made(2)) != digest(own), name


def test_digests_are_those_of_another_process() -> None:
    """Sets have another order there, objects other addresses, and all is made in another order."""
    program = textwrap.dedent("""
        import json
        from digested import OBJECTS
        from mrsa_jax._core.sources import code_of_object
        found = {}
        for name, made in reversed(OBJECTS.items()):
            found[name] = code_of_object(made(1), "mine", "grid")
        print(json.dumps(found))
    """)
    folder = str(pathlib.Path(__file__).parents[1])
    found = []
    for seed in ("1", "2"):
        own = os.environ | {
            "PYTHONPATH": os.pathsep.join([folder, *sys.path]),
            "PYTHONHASHSEED": seed,
        }
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, env=own, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    here = {name: code_of_object(made(1), "mine", "grid") for name, made in OBJECTS.items()}
    for other in found:
        assert [name for name in OBJECTS if other[name] != here[name]] == []
