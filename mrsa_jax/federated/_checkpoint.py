"""Checkpoints of a training.

A folder a step, written whole or not at all, each with a digest.
A step is written to a temporary folder and renamed. What a killed process left behind
is removed when the next one opens the folder, which then continues from the newest
intact step; those that are damaged are named and removed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.sealed import read_sealed, write_sealed
from mrsa_watch._base.errors import MrsaError, check_count, require

_STATE = "state.npz"
_ABOUT = "about"


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """Where and how often a training is saved (`checkpoints` builds it).

    Attributes:
        directory: The folder; a training's own.
        every: Trained rounds from one save to the next.
        keep: Newest steps that stay.
        identity: What the caller calls this configuration.
        on_damage: Called with a sentence for each damaged step; a warning if None.
    """

    directory: pathlib.Path
    every: int
    keep: int
    identity: str
    on_damage: Callable[[str], None] | None = None


def checkpoints(
    directory: str | os.PathLike[str],
    *,
    every: int = 10,
    keep: int = 2,
    identity: str = "",
    on_damage: Callable[[str], None] | None = None,
) -> Checkpoints:
    """Return the folder in which `train` saves its state, and from which it resumes.

    A training that is given one starts from the newest intact step in the folder;
    without one, at the beginning. A killed training so ends as an uninterrupted one:
    bit-equal in statuses and participation, and on the same machine in the model. Each
    step carries a SHA-256 digest: one with as little as a bit changed is named and
    removed, and the one before it is used.

    Args:
        directory: A folder for one training; made if need be.
        every: Trained rounds (skipped ones cost nothing) from one save to the next, at
            least 1; the last round is always saved.
        keep: How many of the newest steps stay, at least 2: one may be damaged.
        identity: Names the configuration, where more than what `train` compares by
            itself makes it up: seed, history, trainer, data, shapes, learning-rate
            factors.
        on_damage: Called with a sentence for each damaged step; a `RuntimeWarning` if
            None.

    Returns:
        A plain value; nothing is read or written yet.

    Raises:
        ConfigurationError: If a number is too small or the identity no string. `train`
            raises it if the folder holds checkpoints of another configuration, and
            `MrsaError` if it holds damaged ones alone.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.federated.checkpoints("run/checkpoints", every=50).every
        50
    """
    check_count(every, "every")
    check_count(keep, "keep")
    require(keep >= 2, "keep", "must be at least 2, as one may be damaged", keep)
    require(isinstance(identity, str), "identity", "must be a string", identity)
    rule = "must be a function of a sentence, or None"
    require(on_damage is None or callable(on_damage), "on_damage", rule, on_damage)
    is_path = isinstance(directory, str | os.PathLike)
    require(is_path, "directory", "must be the path of a folder", directory)
    folder = pathlib.Path(directory)
    require(
        folder.is_dir() or not folder.exists(),
        "directory",
        "must be a folder",
        str(folder),
    )
    return Checkpoints(folder.absolute(), int(every), int(keep), identity, on_damage)


class Store:
    """A folder of checkpoints of one configuration.

    Args:
        own: What the caller said.
        identity: What `train` knows of its configuration.
    """

    def __init__(self, setting: Checkpoints, identity: dict[str, str]) -> None:
        """Clear the folder of what a killed process left half-written."""
        self._own, self._identity = setting, {"identity": setting.identity} | identity
        setting.directory.mkdir(parents=True, exist_ok=True)
        for part in setting.directory.glob("*.part"):
            shutil.rmtree(part)

    def is_due(self, step: int, is_last: bool) -> bool:
        """Return whether the state after `step` trained rounds is to be saved."""
        return is_last or step % self._own.every == 0

    def until_due(self, step: int) -> int:
        """Return the number of rounds from `step` to the next save."""
        return self._own.every - step % self._own.every

    def save(self, step: int, state: Any) -> None:
        """Save a pytree of arrays completely or not at all, and remove old steps."""
        leaves, described = _flat(state)
        about = {"identity": self._identity, "leaves": described}
        arrays = {
            f"{i}": np.frombuffer(leaf.tobytes(), np.uint8)
            for i, leaf in enumerate(leaves)
        }
        part = self._folder(step).with_suffix(".part")
        part.mkdir(exist_ok=True)
        write_sealed(
            part / _STATE, f"{step}", {_ABOUT: np.asarray(json.dumps(about)), **arrays}
        )
        # The rename publishes the step: a folder named by a number is always whole.
        part.rename(self._folder(step))
        for old in self._steps()[: -self._own.keep]:
            self._remove(old)

    def latest(self, template: Any) -> tuple[int, Any] | None:
        """Return the newest intact step and its state, shaped as `template`.

        None if none.
        """
        damaged: list[int] = []
        for step in reversed(self._steps()):
            arrays = read_sealed(self._folder(step) / _STATE, f"{step}")
            if arrays is None:
                damaged.append(step)
                continue
            leaves, described = _flat(template)
            self._check(json.loads(str(arrays[_ABOUT])), described)
            restored = [
                arrays[f"{i}"].view(leaf.dtype).reshape(leaf.shape)
                for i, leaf in enumerate(leaves)
            ]
            # Remove damaged steps only now that an older one is known to be readable
            # and of this configuration.
            for bad_step in damaged:
                self._say(
                    f"checkpoint {self._folder(bad_step)} is damaged: step {step} is "
                    "used instead"
                )
                self._remove(bad_step)
            return step, _unflat(template, restored)
        if damaged:
            steps = " and ".join(map(str, damaged))
            raise MrsaError(
                "`checkpoints` must hold an intact step; got "
                f"{str(self._own.directory)!r}, in which {steps} are damaged or of "
                "another version: without the folder the training starts anew"
            )
        return None

    def _say(self, sentence: str) -> None:
        if self._own.on_damage is None:
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        else:
            self._own.on_damage(sentence)

    def _folder(self, step: int) -> pathlib.Path:
        return self._own.directory / f"{step}"

    def _steps(self) -> list[int]:
        folders = (
            entry.name for entry in self._own.directory.iterdir() if entry.is_dir()
        )
        return sorted(int(name) for name in folders if name.isdecimal())

    def _remove(self, step: int) -> None:
        """Remove a step, which a kill on the way must not leave as a damaged one."""
        part = self._folder(step).with_suffix(".part")
        self._folder(step).rename(part)
        shutil.rmtree(part)

    def _check(self, meta: dict[str, Any], described: list[list[str]]) -> None:
        where = f"in {self._own.directory}"
        theirs, ours = meta["identity"], self._identity
        for name in sorted(theirs.keys() | ours.keys()):
            same = theirs.get(name) == ours.get(name)
            rule = (
                f"must be of this configuration; {name} differs {where}: saved and now "
                "are"
            )
            require(same, "checkpoints", rule, theirs.get(name), ours.get(name))
        for saved, now in zip(meta["leaves"], described, strict=False):
            rule = (
                f"must be of this configuration; shapes differ {where}: saved and now "
                "are"
            )
            require(saved == now, "checkpoints", rule, saved, now)
        counts = len(meta["leaves"]), len(described)
        rule = f"must be of this configuration; the number of arrays differs {where}"
        require(counts[0] == counts[1], "checkpoints", rule, *counts)


def fingerprint(*values: Any) -> str:
    """Return a short digest of pytrees.

    Equal for equal structure and numbers, in any process.
    """
    digest = hashlib.sha256()
    for value in values:
        digest.update(_printed(jax.tree.structure(value)).encode())
        for leaf in _flat(value)[0]:
            digest.update(f"{leaf.shape}{leaf.dtype}".encode())
            # The bytes of an object array are addresses, so its text is hashed instead.
            is_other = leaf.dtype.kind == "O"
            digest.update(_printed(leaf).encode() if is_other else leaf.tobytes())
    return digest.hexdigest()[:16]


def _printed(value: Any) -> str:
    """Return a value's text without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _flat(tree: Any) -> tuple[list[np.ndarray], list[list[str]]]:
    """Return the leaves as host arrays, keys as their words.

    And path, shape and type of each.
    """
    named = [
        (jax.tree_util.keystr(path), np.asarray(_words(leaf)))
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]
    described = [[path, str(leaf.shape), str(leaf.dtype)] for path, leaf in named]
    return [leaf for _, leaf in named], described


def _unflat(template: Any, leaves: list[Any]) -> Any:
    """Return a tree like `template`; JAX arrays and keys where that has some."""
    old_leaves, structure = jax.tree.flatten(template)
    return jax.tree.unflatten(
        structure, [_like(*pair) for pair in zip(old_leaves, leaves, strict=True)]
    )


def _like(saved: Any, leaf: Any) -> Any:
    if _is_key(saved):
        return jax.random.wrap_key_data(
            on_device(leaf), impl=jax.random.key_impl(saved)
        )
    if isinstance(saved, jax.Array):
        return on_device(leaf)
    if isinstance(saved, np.ndarray):
        return np.array(leaf)
    # What was a Python number must be one again: its type is part of the programs.
    number = np.asarray(leaf)[()]
    return number if isinstance(saved, np.generic) else number.item()


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(
        leaf.dtype, jax.dtypes.prng_key
    )


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
