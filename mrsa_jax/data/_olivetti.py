"""The AT&T faces (Olivetti), as scikit-learn keeps them once a person has fetched them.

400 photographs of 40 people, ten of each, 64x64 grey pixels (the original's are 112x92).
"""

from __future__ import annotations

import os
import pathlib

import numpy as np

from mrsa_jax.data._cache import Arrays, cached, read_cached
from mrsa_watch._base.errors import DataNotFoundError, needed

_FILE = "olivetti_py3.pkz"


def olivetti_file(directory: str | os.PathLike[str] | None) -> pathlib.Path:
    """Return where scikit-learn keeps the faces, there or not, without importing it."""
    if directory is None:
        directory = os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data"
    return pathlib.Path(directory).expanduser() / _FILE


def read_olivetti(directory: str | os.PathLike[str] | None) -> Arrays:
    """Read the faces and who they are; nothing is downloaded.

    Raises:
        DataNotFoundError: If they are not there; says how to get them.
    """
    path = olivetti_file(directory)
    if not path.is_file():
        found = read_cached("olivetti") if directory is None else None
        if found is not None:
            return found
        raise DataNotFoundError(
            f"data set 'olivetti' is not here: looked for {path}. Fetch it once (4 MB, from the "
            "network) in Python with sklearn.datasets.fetch_olivetti_faces(), or name the folder "
            "that has it as `directory`"
        )
    return cached("olivetti", path.parent, [path], lambda: _fetch(path.parent))


def _fetch(home: pathlib.Path) -> Arrays:
    rule = "data set 'olivetti' is read by scikit-learn, which cannot be imported"
    datasets = needed("sklearn.datasets", "scikit-learn", rule, DataNotFoundError)
    try:
        faces = datasets.fetch_olivetti_faces(data_home=os.fspath(home), download_if_missing=False)
    except Exception as error:  # a broken file raises whatever unpickling meets
        raise DataNotFoundError(
            f"data set 'olivetti' cannot be read from {home / _FILE}: "
            f"{type(error).__name__}: {error}; remove it and fetch it again"
        ) from error
    return {
        "inputs": np.asarray(faces.images, np.float32)[..., None],
        "labels": np.asarray(faces.target, np.int32),
    }
