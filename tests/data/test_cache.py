"""The cache on disk.

Made once, made again when its source or its file is broken, never half.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from typing import Any

import numpy as np
import pytest

from mrsa_jax.data import cache


class _Source:
    """A source file that counts how often it is read."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "data.bin"
        self.path.write_bytes(bytes(range(200)))
        self.num_reads = 0

    def _read(self) -> cache.Arrays:
        self.num_reads += 1
        return {"values": np.frombuffer(self.path.read_bytes(), np.uint8)}

    def load(self, name: str = "toy") -> np.ndarray:
        return cache.cached(name, self.path.parent, [self.path], self._read)["values"]


@pytest.fixture
def source(tmp_path: pathlib.Path) -> _Source:
    return _Source(tmp_path / "source")


def _only(folder: pathlib.Path) -> pathlib.Path:
    (path,) = folder.iterdir()
    return path


def test_the_folder_is_chosen_by_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MRSA_JAX_CACHE", "/chosen")
    assert cache.cache_directory() == pathlib.Path("/chosen")
    monkeypatch.delenv("MRSA_JAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache.cache_directory() == pathlib.Path("/xdg/mrsa_jax/data")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    assert (
        cache.cache_directory() == pathlib.Path.home() / ".cache" / "mrsa_jax" / "data"
    )


@pytest.mark.smoke
def test_read_once_and_then_from_the_cache(
    source: _Source, own_folders: pathlib.Path
) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(source.load(), np.arange(200))
    assert source.num_reads == 1
    path = _only(own_folders)  # and no part file
    assert path.suffix == ".npz"
    # may be shared
    assert path.stat().st_mode & 0o777 == source.path.stat().st_mode & 0o777


def _truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def _flip(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    # inside the array: only its checksum tells
    data[data.index(bytes(range(100, 110)))] ^= 1
    path.write_bytes(data)


def _pickle(path: pathlib.Path) -> None:
    np.savez(path, about=np.asarray([{}], object))


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        _pickle,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not an archive"),
        lambda path: np.savez(path, values=np.zeros(3)),
        lambda path: np.savez(path, about=np.asarray("{")),
        lambda path: np.savez(path, about=np.asarray('{"version": -1}')),
        lambda path: path.unlink(),
    ],
)
def test_broken_files_are_made_again(
    damage: Any, source: _Source, own_folders: pathlib.Path
) -> None:
    source.load()
    damage(_only(own_folders))
    assert cache.read_cached("toy") is None
    np.testing.assert_array_equal(source.load(), np.arange(200))
    assert source.num_reads == 2
    source.load()
    assert source.num_reads == 2


def test_each_flipped_bit_and_each_cut_is_seen(
    source: _Source, own_folders: pathlib.Path
) -> None:
    source.load()
    path = _only(own_folders)
    sound = path.read_bytes()
    for place in range(0, len(sound), 7):
        spoilt = bytearray(sound)
        spoilt[place] ^= 1 << place % 8
        path.write_bytes(spoilt)
        assert cache.read_cached("toy") is None, place
        path.write_bytes(sound[:place])
        assert cache.read_cached("toy") is None, place
    path.write_bytes(sound)
    source.load()
    assert source.num_reads == 1
    # whole, but in another's place
    path.rename(path.with_name(f"other-{'0' * 12}.npz"))
    assert cache.read_cached("other") is None


def test_a_changed_source_is_read_again(
    source: _Source, own_folders: pathlib.Path
) -> None:
    source.load()
    source.path.write_bytes(bytes(100))  # another size
    assert cache.read_cached("toy") is None
    assert len(source.load()) == 100
    later = source.path.stat().st_mtime_ns + 10**9
    os.utime(source.path, ns=(later, later))  # another time
    source.load()
    assert source.num_reads == 3
    assert _only(own_folders)  # the old one was replaced


def test_the_cache_serves_alone_where_the_source_is_gone(source: _Source) -> None:
    assert cache.read_cached("toy") is None
    source.load()
    source.path.unlink()
    with pytest.warns(RuntimeWarning, match=rf"read from {source.path.parent}$"):
        found = cache.read_cached("toy")
    assert found is not None
    np.testing.assert_array_equal(found["values"], np.arange(200))
    assert cache.read_cached("to") is None


def test_sets_and_folders_are_kept_apart(
    source: _Source, tmp_path: pathlib.Path
) -> None:
    other = _Source(tmp_path / "other")
    other.path.write_bytes(b"\7")
    assert len(source.load()) == 200
    assert len(other.load()) == 1
    assert len(source.load("toy-2")) == 200
    assert (source.num_reads, other.num_reads) == (2, 1)
    assert len(cache.cached_paths("toy")) == 2
    assert len(cache.cached_paths("toy-2")) == 1
    assert len(cache.cached_paths("a/strange:name")) == 0
    source.load("a/strange:name")
    assert len(cache.cached_paths("a/strange:name")) == 1


def test_a_folder_that_cannot_be_written_is_no_error(
    source: _Source, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MRSA_JAX_CACHE", str(tmp_path / "file" / "below"))
    for _ in range(2):
        np.testing.assert_array_equal(source.load(), np.arange(200))
    assert source.num_reads == 2


def test_an_interrupt_leaves_nothing_half_written(
    source: _Source, own_folders: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: Any, **_: Any) -> None:
        file.write(b"PK half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache.np, "savez", interrupted)
        with pytest.raises(KeyboardInterrupt):
            source.load()
    assert list(own_folders.iterdir()) == []
    source.load()
    # a killed process leaves a part file; the next writer removes it once it is old
    stem = _only(own_folders).stem
    old, fresh = own_folders / f"{stem}.a.part", own_folders / f"{stem}.b.part"
    for path in (old, fresh):
        path.write_bytes(b"PK")
    past = time.time() - 7200
    os.utime(old, (past, past))
    source.path.write_bytes(b"\1")
    source.load()
    assert not old.exists()
    assert fresh.exists()
