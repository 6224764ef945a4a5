"""What a command finds that is no data set: words, and values as JSON has them."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Findings"]


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a command found.

    Attributes:
        title: What was looked at, in a line or two.
        sentences: What was found, in words.
        content: Everything, as `--json` prints it.
    """

    title: str
    sentences: list[str]
    content: dict[str, Any]
