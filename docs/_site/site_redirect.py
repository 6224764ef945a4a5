"""The site's front door.

Its `index.html` leads to the first page, which lies in `docs/`.
"""

from __future__ import annotations

import pathlib
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>mrsa_jax</title>
<meta http-equiv="refresh" content="0; url={page}"></head>
<body><a href="{page}">mrsa_jax</a></body></html>
"""


def _write(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        page = app.builder.get_target_uri(app.config.root_doc)
        pathlib.Path(app.outdir, "index.html").write_text(
            _PAGE.format(page=page), encoding="utf-8"
        )


def setup(app: Any) -> dict[str, Any]:
    """Write the page when all others are there."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
