"""Messages have one form: argument, rule, value."""

from __future__ import annotations

import pytest

from mrsa_jax import (
    ConfigurationError,
    DataNotFoundError,
    MrsaError,
    OutputExistsError,
    Status,
)
from mrsa_watch._base.errors import nearest, require


def test_require_is_silent_when_the_rule_holds() -> None:
    require(True, "x", "must be right", 1)


@pytest.mark.parametrize(
    ("values", "ending"),
    [
        ((3,), "; got 3"),
        ((3, 4), "; got 3 and 4"),
        ((), "right"),
        (("a" * 500,), "aaa..."),
    ],
)
def test_require_names_everything(values: tuple[object, ...], ending: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        require(False, "x", "must be right", *values)
    assert str(caught.value).startswith("`x` must be right")
    assert str(caught.value).endswith(ending)


def test_every_exception_can_be_caught_by_its_base_and_its_builtin() -> None:
    assert issubclass(ConfigurationError, MrsaError | ValueError)
    assert issubclass(DataNotFoundError, FileNotFoundError)
    assert issubclass(OutputExistsError, FileExistsError)
    assert str(DataNotFoundError("looked in a")) == "looked in a"
    assert str(OutputExistsError("holds b")) == "holds b"


def test_nearest_lists_when_nothing_is_close() -> None:
    assert nearest("zzz", ["a", "b"]) == "known: a, b"
    assert nearest("zzz", [f"n{k}" for k in range(44)]).endswith(
        ", n28, n29 and 14 more"
    )


def test_ok_is_falsy() -> None:
    assert not Status.OK
    assert all(status for status in Status if status is not Status.OK)
