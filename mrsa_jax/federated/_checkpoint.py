"""Checkpoints of a training, kept by orbax.

A step is written to a temporary folder and renamed, so it is there whole or not at all. What a
killed process left behind is removed when the next one opens the folder, which then goes on from
the newest complete step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import numbers
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax._errors import require

__all__ = ["Checkpoints", "Store", "checkpoints", "fingerprint", "opened"]


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """Where and how often a training is saved (`checkpoints` builds it).

    Attributes:
        directory: The folder; a training's own.
        every: Trained rounds from one save to the next.
        keep: Newest steps that stay.
        identity: What the caller calls this configuration.
    """

    directory: pathlib.Path
    every: int
    keep: int
    identity: str


def checkpoints(
    directory: str | os.PathLike[str], *, every: int = 10, keep: int = 2, identity: str = ""
) -> Checkpoints:
    """Return where `train` saves its state, and from where it goes on by itself.

    A training that is given one starts from the newest complete step in the folder; without one,
    at the beginning. A killed training so ends as an uninterrupted one: bit-equal in statuses and
    participation, and on the same machine in the model.

    Args:
        directory: A folder for one training; made if need be.
        every: Trained rounds (skipped ones cost nothing) from one save to the next, at least 1;
            the last round is always saved.
        keep: How many of the newest steps stay, at least 1.
        identity: Names the configuration, where more than what `train` compares by itself makes
            it up: seed, history, trainer, data, shapes, learning-rate factors.

    Returns:
        A plain value; nothing is read or written yet.

    Raises:
        ConfigurationError: If a number is not positive or the identity no string. `train` raises
            it if the folder holds checkpoints of another configuration.

    Examples:
        >>> checkpoints("run/checkpoints", every=50).every
        50
    """
    for name, value in (("every", every), ("keep", keep)):
        is_count = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        require(is_count and value >= 1, name, "must be a positive integer", value)
    require(isinstance(identity, str), "identity", "must be a string", identity)
    folder = pathlib.Path(directory)
    is_free = folder.is_dir() or not folder.exists()
    require(is_free, "directory", "must be a folder", str(folder))
    return Checkpoints(folder.absolute(), int(every), int(keep), identity)


class Store:
    """An open folder of checkpoints of one configuration."""

    def __init__(self, own: Checkpoints, identity: dict[str, str]) -> None:
        """Take what `train` knows of its configuration."""
        self._own, self._identity = own, identity
        self._opened: Any = None

    @property
    def _manager(self) -> Any:
        """Orbax's manager, made when it is first needed."""
        if self._opened is None:
            ocp = _orbax()
            options = ocp.CheckpointManagerOptions(
                max_to_keep=self._own.keep,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            )
            self._opened = ocp.CheckpointManager(self._own.directory, options=options)
        return self._opened

    def close(self) -> None:
        """Let the folder go."""
        if self._opened is not None:
            self._opened.close()

    def is_due(self, step: int, is_last: bool) -> bool:
        """Return whether the state after `step` trained rounds is to be saved."""
        return is_last or step % self._own.every == 0

    def save(self, step: int, state: Any) -> None:
        """Save a pytree of arrays; whole or not at all."""
        ocp = _orbax()
        if step == self._manager.latest_step():
            return
        leaves, named = _flat(state)
        meta = {"identity": self._identity, "leaves": _described(named)}
        # tensorstore keeps no empty arrays, and orbax no empty trees
        arrays = {f"{i}": leaf for i, leaf in enumerate(leaves) if leaf.size}
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(arrays), meta=ocp.args.JsonSave(meta)
            ),
        )

    def latest(self, template: Any) -> tuple[int, Any] | None:
        """Return the newest complete step and its state, shaped as `template`; None if none."""
        if not any(self._own.directory.iterdir()):
            return None  # a new run trains its first rounds without waiting for orbax
        ocp = _orbax()
        step = self._manager.latest_step()
        if step is None:
            return None
        meta = self._manager.restore(
            step, args=ocp.args.Composite(meta=ocp.args.JsonRestore())
        ).meta
        leaves, named = _flat(template)
        self._check(meta, _described(named))
        wanted = {f"{i}": leaf for i, leaf in enumerate(leaves) if leaf.size}
        arrays = self._manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(wanted))
        ).state
        restored = [arrays.get(f"{i}", leaf) for i, leaf in enumerate(leaves)]
        return step, _unflat(template, restored)

    def _check(self, meta: dict[str, Any], described: list[list[str]]) -> None:
        where = f"in {self._own.directory}"
        theirs, ours = meta["identity"], self._identity
        for name in sorted(theirs.keys() | ours.keys()):
            same = theirs.get(name) == ours.get(name)
            rule = f"must be of this configuration; {name} differs {where}: saved and now are"
            require(same, "checkpoints", rule, theirs.get(name), ours.get(name))
        for saved, now in zip(meta["leaves"], described, strict=False):
            rule = f"must be of this configuration; shapes differ {where}: saved and now are"
            require(saved == now, "checkpoints", rule, saved, now)
        counts = len(meta["leaves"]), len(described)
        rule = f"must be of this configuration; the number of arrays differs {where}"
        require(counts[0] == counts[1], "checkpoints", rule, *counts)


@contextlib.contextmanager
def opened(own: Checkpoints, identity: dict[str, str]) -> Iterator[Store]:
    """Open the folder; reading or writing it clears it of what a killed process left."""
    own.directory.mkdir(parents=True, exist_ok=True)
    store = Store(own, {"identity": own.identity} | identity)
    try:
        yield store
    finally:
        store.close()


def fingerprint(*values: Any) -> str:
    """Return a short digest of pytrees: equal for equal structure and numbers, in any process."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(_printed(jax.tree.structure(value)).encode())
        for leaf in _flat(value)[0]:
            digest.update(f"{leaf.shape}{leaf.dtype}".encode())
            is_other = leaf.dtype.kind == "O"
            digest.update(_printed(leaf).encode() if is_other else leaf.tobytes())
    return digest.hexdigest()[:16]


def _orbax() -> Any:
    """Return orbax; it takes a second or two to import, and only who saves needs it."""
    import orbax.checkpoint as ocp  # type: ignore[import-untyped]

    return ocp


def _printed(value: Any) -> str:
    """Return what prints, without the addresses of what has no value of its own."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _flat(tree: Any) -> tuple[list[np.ndarray], list[tuple[str, np.ndarray]]]:
    """Return the leaves as host arrays, keys as their words; alone and with their paths."""
    named = [
        (jax.tree_util.keystr(path), np.asarray(_words(leaf)))
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]
    return [leaf for _, leaf in named], named


def _unflat(template: Any, leaves: list[Any]) -> Any:
    """Return a tree like `template`; JAX arrays and keys where that has some."""
    own, structure = jax.tree.flatten(template)
    return jax.tree.unflatten(structure, [_like(*pair) for pair in zip(own, leaves, strict=True)])


def _like(own: Any, leaf: Any) -> Any:
    if _is_key(own):
        return jax.random.wrap_key_data(jnp.asarray(leaf), impl=jax.random.key_impl(own))
    if isinstance(own, jax.Array):
        return jnp.asarray(leaf)
    if isinstance(own, np.ndarray):
        return np.array(leaf)
    number = np.asarray(leaf)[()]
    return number if isinstance(own, np.generic) else number.item()


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _described(named: list[tuple[str, np.ndarray]]) -> list[list[str]]:
    return [[path, str(leaf.shape), str(leaf.dtype)] for path, leaf in named]
