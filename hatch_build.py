"""Makes the links of the long description absolute when the package is built."""

from __future__ import annotations

import pathlib
import re
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(
    r"(?P<picture>!?)(?P<words>\[[^\]]*\])\((?!https?:|mailto:|#)(?P<path>[^)\s]+)\)"
)


def absolute_links(text: str, home: str) -> str:
    """Return Markdown whose links to files of the repository lead to its home.

    Args:
        text: Markdown with links relative to the repository's root.
        home: The repository's address.

    Returns:
        The text; pictures are linked as they are, other files as the home shows them.

    Examples:
        >>> absolute_links("![a](docs/a.png) and [b](docs/b.md#c), [d](#e)", "https://h")
        '![a](https://h/raw/HEAD/docs/a.png) and [b](https://h/blob/HEAD/docs/b.md#c), [d](#e)'
    """

    def absolute(link: re.Match[str]) -> str:
        view = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['words']}({home}/{view}/HEAD/{link['path']})"

    return _LINK.sub(absolute, text)


class LongDescription(MetadataHookInterface):
    """Takes README.md for the description, and the home from `[project.urls]`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the description into the metadata."""
        text = (pathlib.Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, metadata["urls"]["Homepage"]),
        }
