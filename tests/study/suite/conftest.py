"""Versions of the suite with few scenarios, whose cards are quick."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from mrsa_jax.selection.registry import ROWS
from mrsa_jax.study.suite import Version, load_version

_MODULES = ("_run", "_card", "_verify", "_points", "_scenarios", "_page", "_table",
            "_compare")  # fmt: skip


@pytest.fixture
def suite_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Version]:
    """Return a function that leaves the named scenarios in the version."""
    whole = load_version("v1")

    def reduced(*names: str) -> Version:
        some = {name: whole.scenarios[name] for name in names}
        version = dataclasses.replace(whole, scenarios=some)

        def loaded(name: str = "v1") -> Version:
            load_version(name)  # which refuses others
            return version

        for name in _MODULES:
            path = f"mrsa_jax.study.suite.{name}.load_version"
            monkeypatch.setattr(path, loaded)
        return version

    return reduced


@pytest.fixture
def as_before() -> Iterator[None]:
    """Forget the schemes that a test registers."""
    before = dict(ROWS)
    yield
    ROWS.clear()
    ROWS.update(before)
