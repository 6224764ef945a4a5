"""Trainings of items that are kept until their items are written.

A training is saved every few rounds in a folder whose name is a digest of everything
that it depends on, so that an interrupted reproduction goes on where it was.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from typing import Any

import jax

from mrsa_jax import __version__, federated
from mrsa_jax._core.sources import library_versions
from mrsa_jax.federated._checkpoint import Checkpoints, fingerprint

_EVERY = 20  # trained rounds between two saves


class Trainings:
    """The trainings of a reproduction in a folder.

    Args:
        folder: Made with the first training.
        is_new: Whether trainings that it holds already are made again.
    """

    def __init__(self, folder: pathlib.Path, *, is_new: bool = False) -> None:
        """Begin; nothing is read or written yet."""
        self._folder, self._is_new = folder, is_new
        self._used: set[pathlib.Path] = set()

    def of(self, *parts: Any) -> Checkpoints:
        """Return where a training is saved, and continues from.

        Args:
            parts: Pytrees that make it what it is: keys, data, histories, trainer,
                aggregator. Versions are among them by themselves.
        """
        versions = {"mrsa_jax": __version__, **library_versions()}
        # numbers may differ by rounding from device to device
        digest = fingerprint(versions, str(jax.devices()), *parts)
        place = self._folder / digest
        if self._is_new and place not in self._used:
            shutil.rmtree(place, ignore_errors=True)
        self._used.add(place)
        return federated.checkpoints(place, every=_EVERY, identity=digest)

    def clear(self) -> None:
        """Remove the trainings that were used, whose items are written."""
        for place in self._used:
            shutil.rmtree(place, ignore_errors=True)
        # trainings of an item that was interrupted stay
        with contextlib.suppress(OSError):
            self._folder.rmdir()
