"""Find the data sets on this machine, and prepare others.

To prepare one is the only step that needs network and TensorFlow.
`plan_preparation` says what would be fetched and touches nothing; `prepare` fetches,
after a check of a second that the archives' hosts answer, because without a network the
download itself would hang for minutes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pathlib
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any, Literal

from mrsa_jax.data import sources
from mrsa_jax.data._dataset import Dataset
from mrsa_jax.data._recognise import remember_samples
from mrsa_jax.data.cache import cached_paths, source_of
from mrsa_jax.data.sources import (
    PREPARED,
    import_tfds,
    load,
    tfds_directory,
)
from mrsa_watch._base.errors import (
    ConfigurationError,
    DataNotFoundError,
    how_to_install,
    nearest,
    require,
)

_EXTRA = "tfds-prepare"
_TIMEOUT_SECONDS = 1.0
_PORTS = {"http": 80, "https": 443, "ftp": 21}


@dataclasses.dataclass(frozen=True)
class PreparationPlan:
    """Files that preparing a set would fetch, and the folder for them.

    Attributes:
        name: As tensorflow-datasets spells it.
        version: Of the set.
        directory: Data folder of tensorflow-datasets; archives stay in `downloads`
            there.
        num_bytes: Bytes of all archives, or None where the set does not say.
        hosts: Names of the hosts that the archives come from.
        urls: Addresses of the archives.
        is_prepared: Whether the set is already there, so that nothing would be fetched.
    """

    name: str
    version: str
    directory: pathlib.Path
    num_bytes: int | None
    hosts: tuple[str, ...]
    urls: tuple[str, ...]
    is_prepared: bool

    def check_extra(self) -> None:
        """Raise `DataNotFoundError` unless TensorFlow is installed, for this step."""
        if importlib.util.find_spec("tensorflow") is None:
            raise DataNotFoundError(
                f"preparing the data set {self.name!r} needs TensorFlow, which is not "
                "installed; reading it afterwards does not. Install it with: "
                f"{how_to_install(_EXTRA)}"
            )


def plan_preparation(
    name: str, *, directory: str | os.PathLike[str] | None = None
) -> PreparationPlan:
    """Say what preparing a data set would fetch; needs no network and no TensorFlow.

    Args:
        name: `"mnist"`, `"fashion_mnist"`, `"cifar10"`, `"cifar100"`, or any labelled
            set of tensorflow-datasets by its name, with or without `tfds:` before it.
        directory: Its data folder; its own default if None.

    Returns:
        The plan for `prepare`.

    Raises:
        ConfigurationError: If tensorflow-datasets has no such set; names the nearest.
        DataNotFoundError: If tensorflow-datasets is not installed.

    Examples:
        >>> import mrsa_jax as mj
        >>> plan = mj.data.plan_preparation("mnist", directory="/nowhere")
        >>> plan.is_prepared, plan.num_bytes == 11_594_722
        (False, True)
    """
    name = name.removeprefix("tfds:")
    is_name = name not in ("mnist_5k", "digits", "idx", "cifar", "att", "olivetti")
    rule = (
        f"must be a set that needs preparing: {', '.join(PREPARED)} or another "
        "tfds:NAME"
    )
    require(is_name, "name", rule, name)
    folder = tfds_directory(directory)
    builder = _builder(name, folder)
    # with its configuration, if it has several
    name = builder.info.full_name.rpartition("/")[0]
    infos: dict[str, Any] = builder.url_infos or {}
    sizes = [info.size for info in infos.values()]
    return PreparationPlan(
        name=name,
        version=str(builder.version),
        directory=folder,
        num_bytes=sum(sizes)
        if sizes and all(size is not None for size in sizes)
        else None,
        hosts=tuple(sorted({_host(url)[0] for url in infos})),
        urls=tuple(sorted(infos)),
        is_prepared=any(_folders(name, folder)),
    )


def _folders(
    name: str, directory: pathlib.Path
) -> tuple[pathlib.Path | None, pathlib.Path | None]:
    """Return the folder of a prepared set, and the folder of its unpacked files."""
    prepared = sources.prepared_folder(name, directory)
    is_known = name in PREPARED and prepared is None
    return prepared, sources.unpacked_folder(name, directory) if is_known else None


def prepare(plan: PreparationPlan) -> Dataset:
    """Fetch and prepare a set as array_record unless done, and read it into the cache.

    Args:
        plan: Of `plan_preparation`.

    Returns:
        The data set, as `load` gives it from now on.

    Raises:
        DataNotFoundError: If the extra is not installed, the hosts do not answer, or
            the download or the preparation fails; says which.
    """
    if not plan.is_prepared:
        plan.check_extra()
        check_network(plan.urls)
        _download(plan)
    name = plan.name if plan.name in PREPARED else f"tfds:{plan.name}"
    dataset = load(name, directory=plan.directory)
    if not plan.is_prepared:
        # tensorflow-datasets has compared the archives' SHA-256 sums
        remember_samples(plan.name, dataset)
    return dataset


def check_network(
    urls: Iterable[str], *, timeout_seconds: float = _TIMEOUT_SECONDS
) -> None:
    """Raise unless each address, or the proxy before it, accepts a connection.

    Takes about `timeout_seconds` at most: hosts are tried side by side, name look-up
    included.

    Args:
        urls: Addresses; only the host and the port of each are used.
        timeout_seconds: How long to wait for an answer.

    Raises:
        DataNotFoundError: If a host does not answer; names it.
    """
    failures: dict[tuple[str, int], str] = {}
    threads = []
    for target in sorted({_target(url) for url in urls}):
        failures[target] = f"no answer within {timeout_seconds:g} s"
        # a look-up of a name has no timeout: it is left behind, as a daemon
        thread = threading.Thread(
            target=_connect, args=(target, timeout_seconds, failures), daemon=True
        )
        thread.start()
        threads.append(thread)
    # One deadline for all threads, not one each.
    end = time.monotonic() + timeout_seconds
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    # A copy: threads that were left behind may still remove entries.
    for (host, port), reason in dict(failures).items():
        raise DataNotFoundError(
            f"{host} (port {port}) cannot be reached: {reason}. Preparing a data set "
            "needs the network; try again where there is one, or copy a prepared set "
            "from there"
        )


def _connect(
    target: tuple[str, int],
    timeout_seconds: float,
    failures: dict[tuple[str, int], str],
) -> None:
    try:
        socket.create_connection(target, timeout=timeout_seconds).close()
    except OSError as error:
        failures[target] = str(error) or type(error).__name__
    else:
        # Each target starts as failed; an answer in time removes it.
        del failures[target]


def _target(url: str) -> tuple[str, int]:
    """Return the host and port that a download of an address would connect to first."""
    scheme = urllib.parse.urlsplit(url).scheme
    host, port = _host(url)
    proxy = urllib.request.getproxies().get(scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        return _host(proxy if "//" in proxy else f"http://{proxy}")
    return host, port


def _host(url: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(url)
    return parts.hostname or url, parts.port or _PORTS.get(parts.scheme, 443)


def _builder(name: str, folder: pathlib.Path) -> Any:
    tfds = import_tfds(name, _EXTRA)
    builders = tfds.list_builders(with_community_datasets=False)
    stem = name.partition("/")[0].partition(":")[0]
    if stem not in builders:
        close = nearest(stem, builders).partition(" (known")[0]
        near = close if close.startswith("did") else "none is near"
        raise ConfigurationError(
            f"`name` must be a set of tensorflow-datasets; got {name!r}; {near} (the "
            f"papers' are {', '.join(PREPARED)})"
        )
    data_dir = os.fspath(folder)
    try:
        try:
            return tfds.builder(
                name, data_dir=data_dir, file_format="array_record", try_gcs=False
            )
        except ValueError:
            # a set that is there in another format keeps it
            return tfds.builder(name, data_dir=data_dir, try_gcs=False)
    except ImportError as error:
        raise DataNotFoundError(
            f"preparing the data set {name!r} needs the package {error.name!r}, which "
            f"cannot be imported: {error}"
        ) from error
    except (ValueError, AssertionError) as error:  # of a configuration or a version
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"`name` must name a configuration and version that exist; got {name!r}: "
            f"{reason}"
        ) from error


def _download(plan: PreparationPlan) -> None:
    tfds = import_tfds(plan.name, _EXTRA)
    try:
        _builder(plan.name, plan.directory).download_and_prepare(
            download_config=tfds.download.DownloadConfig(try_download_gcs=False)
        )
    except Exception as error:
        raise DataNotFoundError(
            f"data set {plan.name!r} could not be prepared in {plan.directory}: "
            f"{type(error).__name__}: {error}"
        ) from error


State = Literal["installed", "prepared", "cached", "missing", "name a directory"]

_CONTENT = {
    "mnist_5k": "5,000 digits 28x28x1, 10 classes",
    "digits": "1,797 digits 8x8x1, 10 classes",
    "mnist": "60,000 + 10,000 digits 28x28x1, 10 classes",
    "fashion_mnist": "60,000 + 10,000 clothes 28x28x1, 10 classes",
    "cifar10": "50,000 + 10,000 photographs 32x32x3, 10 classes",
    "cifar100": "50,000 + 10,000 photographs 32x32x3, 100 classes",
    "olivetti": "400 faces 64x64x1, 40 people",
    "idx": "four IDX files: MNIST, Fashion-MNIST and others",
    "cifar": "files of CIFAR-10 or CIFAR-100, binary or Python",
    "att": "s1/*.pgm to s40/*.pgm: the AT&T faces, 112x92x1",
}


@dataclasses.dataclass(frozen=True)
class SourceStatus:
    """Where one data set is.

    Attributes:
        name: As `load` takes it.
        state: `"installed"` (inside a package), `"prepared"`, `"cached"` (its source is
            gone), `"missing"`, or `"name a directory"` for files that only the user
            knows of.
        content: Samples, shape and classes in words.
        where: Folder or file, or None.
        num_bytes: Bytes there, or None.
        how: What to do to have it; empty when it is here.
    """

    name: str
    state: State
    content: str
    where: str | None = None
    num_bytes: int | None = None
    how: str = ""

    @property
    def is_here(self) -> bool:
        """Whether `load(name)` works as it is."""
        return self.state in ("installed", "prepared", "cached")


def available(
    directory: str | os.PathLike[str] | None = None,
) -> tuple[SourceStatus, ...]:
    """Report for each known data set whether it is on this machine.

    Args:
        directory: Data folder of tensorflow-datasets; its default if None.

    Returns:
        One status for each set that `load` knows by name.

    Examples:
        >>> import mrsa_jax as mj
        >>> [status.name for status in mj.data.available()] == list(mj.data.SOURCES)
        True
    """
    of_folders = {
        name: f"load({name!r}, directory=DIR)" for name in ("idx", "cifar", "att")
    }
    return (
        *(
            _here(name, "installed", sources.packaged(name))
            for name in sources.PACKAGED
        ),
        *(_prepared(name, directory) for name in sources.PREPARED),
        *(
            SourceStatus(name, "name a directory", _CONTENT[name], how=how)
            for name, how in of_folders.items()
        ),
        _olivetti(),
    )


def _prepared(name: str, directory: str | os.PathLike[str] | None) -> SourceStatus:
    prepared, unpacked = _folders(name, sources.tfds_directory(directory))
    if prepared is not None:
        return _of_format(_here(name, "prepared", prepared), prepared)
    if unpacked is not None and directory is not None:
        return _here(name, "prepared", unpacked)
    if directory is None:
        copy = _copy(name, f"tfds-{name}")
        if copy is not None:
            return copy
        if name == "fashion_mnist" and sources.FASHION_DIRECTORY.is_dir():
            return _here(name, "installed", sources.FASHION_DIRECTORY)
    where = str(sources.tfds_directory(directory) / name)
    how = f"mrsa-jax data prepare {name}"
    return SourceStatus(name, "missing", _CONTENT[name], where, how=how)


def _of_format(status: SourceStatus, folder: pathlib.Path) -> SourceStatus:
    """Add the file format, and what to do if it is one that `load` cannot read."""
    formats = sources.prepared_formats(folder)
    content = f"{status.content}, as {' and '.join(formats) or 'an unknown format'}"
    if not set(formats).intersection(sources.READABLE):
        how = f"mrsa-jax data prepare {status.name} --directory OTHER"
        return dataclasses.replace(status, state="missing", content=content, how=how)
    return dataclasses.replace(status, content=content)


def _olivetti() -> SourceStatus:
    path = sources.olivetti_file(None)
    if path.is_file():
        return _here("olivetti", "prepared", path)
    copy = _copy("olivetti", "olivetti")
    if copy is not None:
        return copy
    how = "in Python: sklearn.datasets.fetch_olivetti_faces()"
    return SourceStatus("olivetti", "missing", _CONTENT["olivetti"], str(path), how=how)


def _copy(name: str, kept_as: str) -> SourceStatus | None:
    """Describe valid cached files by the folders that they were read from."""
    copies = {path: source_of(path) for path in cached_paths(kept_as)}
    sizes = [path.stat().st_size for path, source in copies.items() if source]
    where = " and ".join(sorted(source for source in copies.values() if source))
    if not sizes:
        return None
    content = _CONTENT[name]
    return SourceStatus(name, "cached", content, f"copy of {where}", sum(sizes))


def _here(name: str, state: State, where: pathlib.Path) -> SourceStatus:
    files = (
        [where]
        if where.is_file()
        else [path for path in where.rglob("*") if path.is_file()]
    )
    num_bytes = sum(path.stat().st_size for path in files)
    return SourceStatus(name, state, _CONTENT[name], str(where), num_bytes)
