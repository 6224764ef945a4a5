"""Every test of data sets has a cache of its own, and none of the machine's own data folders."""

from __future__ import annotations

import pathlib

import pytest


@pytest.fixture(autouse=True)
def own_folders(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
    """Return the folder of this test's cache, which does not exist yet."""
    folder = tmp_path_factory.mktemp("folders")
    monkeypatch.setenv("MRSA_JAX_CACHE", str(folder / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder / "tfds"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(folder / "sklearn"))
    return folder / "cache"
