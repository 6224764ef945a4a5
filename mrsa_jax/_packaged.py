"""Files that installed packages hold, found without importing them: that may take seconds."""

from __future__ import annotations

import importlib.util
import pathlib

from mrsa_jax._errors import DataNotFoundError


def packaged_file(what: str, package: str, path: str, title: str) -> pathlib.Path:
    """Return a file of an installed package.

    Args:
        what: What it holds, as in "data set 'digits'".
        package: As it is imported.
        path: Of the file in the package's folder.
        title: What to install.

    Raises:
        DataNotFoundError: If it is not there; names the package, or where was looked.
    """
    spec = importlib.util.find_spec(package)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise DataNotFoundError(
            f"{what} is read from the package '{package}', which is not installed"
        )
    file = pathlib.Path(locations[0]) / path
    if not file.is_file():
        raise DataNotFoundError(
            f"{what} is missing: looked for {file}; reinstall {title}, whose package holds it"
        )
    return file


def photograph_path(name: str) -> pathlib.Path:
    """Return the file of scikit-learn's photograph `"flower"` or `"china"`."""
    what, path = f"photograph {name!r}", f"datasets/images/{name}.jpg"
    return packaged_file(what, "sklearn", path, "scikit-learn")
