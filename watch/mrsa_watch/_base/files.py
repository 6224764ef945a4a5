"""Paths that users write, and files written as a whole, wherever their path leads."""

from __future__ import annotations

import os
import pathlib
import stat

from mrsa_watch._base.errors import ConfigurationError, writing


def user_path(path: str | os.PathLike[str], argument: str = "path") -> pathlib.Path:
    """Return a path with the user's folder instead of ~, as a shell reads it.

    Args:
        path: As it was written.
        argument: Name used in messages.

    Raises:
        ConfigurationError: If it begins with ~ and there is no such folder.

    Examples:
        >>> str(user_path("results/x")), user_path("~/x").is_absolute()
        ('results/x', True)
    """
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError as error:
        rule = "must be a path; the folder that ~ stands for is not known here"
        raise ConfigurationError(
            f"`{argument}` {rule}; got {os.fspath(path)!r}"
        ) from error


def write_whole(path: pathlib.Path, text: str, argument: str = "out") -> None:
    """Write a text file so that readers meanwhile get the old one or the new one.

    A link stays, and the file behind it is written. A device or a pipe is written into,
    and never replaced.

    Args:
        path: The file.
        text: What it shall hold.
        argument: Name of the argument that chose it.

    Raises:
        StoreError: If it cannot be written; a file that was there stays as it was.
    """
    content = text.encode("utf-8", "backslashreplace")
    with writing(path, argument):
        # else a link would be replaced, and the file behind it stay old
        target = pathlib.Path(os.path.realpath(path))
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            _write_into(target, content)
        else:
            _replace(target, content)


def _write_into(target: pathlib.Path, content: bytes) -> None:
    with target.open("wb", buffering=0) as stream:
        while content:
            content = content[stream.write(content) :]


def _replace(target: pathlib.Path, content: bytes) -> None:
    part = target.with_name(f".{target.name}.part-{os.getpid()}")
    try:
        part.write_bytes(content)
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        # atomic: readers get the old content or the new
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
