"""Preparing sets.

Plans without a network, its check on local ports, the whole step on a toy.
"""

from __future__ import annotations

import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.data import _prepare


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "ftp", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme}_proxy".upper(), raising=False)


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnists", "got 'mnists'; did you mean 'mnist'?"),
        ("tfds:cifar-10", "got 'cifar-10'; did you mean 'cifar10'?"),
        (
            "zzzzzz",
            "none is near (the papers' are mnist, fashion_mnist, cifar10, cifar100)",
        ),
        ("", "must be a set of tensorflow-datasets; got ''"),
        (
            "mnist/foo",
            "must name a configuration and version that exist; got 'mnist/foo'",
        ),
        (
            "mnist:9.9.9",
            "must name a configuration and version that exist; got 'mnist:9.9.9'",
        ),
        ("digits", "must be a set that needs preparing: mnist, fashion_mnist"),
    ],
)
def test_unknown_sets_name_the_nearest(
    name: str, message: str, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.plan_preparation(name, directory=tmp_path)
    assert str(caught.value).startswith("`name` must")
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_extra_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorflow_datasets")
    plan = mj.data.plan_preparation("mnist", directory=tmp_path)
    monkeypatch.setattr(_prepare.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(mj.DataNotFoundError, match=r"pip install .tensorflow"):
        mj.data.prepare(plan)


def test_a_closed_port_is_told_within_a_second(closed_port: int) -> None:
    start = time.perf_counter()
    with pytest.raises(mj.DataNotFoundError) as caught:
        _prepare.check_network([f"http://127.0.0.1:{closed_port}/archive.gz"])
    assert f"127.0.0.1 (port {closed_port}) cannot be reached" in str(caught.value)
    assert "needs the network" in str(caught.value)
    assert time.perf_counter() - start < 5


def test_one_closed_port_among_open_ones(open_port: int, closed_port: int) -> None:
    urls = [f"http://127.0.0.1:{port}/a" for port in (open_port, closed_port)]
    _prepare.check_network(urls[:1])
    _prepare.check_network([])
    with pytest.raises(mj.DataNotFoundError, match=f"port {closed_port}"):
        _prepare.check_network(urls)


def test_a_network_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a name server nor a host that swallows packets is waited for."""

    over = threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        over.wait(20)
        raise OSError("too late")

    monkeypatch.setattr(_prepare.socket, "create_connection", hang)
    start = time.perf_counter()
    try:
        with pytest.raises(mj.DataNotFoundError, match=r"no answer within 0\.2 s"):
            _prepare.check_network(
                [f"https://h{i}/a" for i in range(60)], timeout_seconds=0.2
            )
        # 0.2 on a quiet machine; neither 60 times it nor 20
        assert time.perf_counter() - start < 9
    finally:
        over.set()


def test_a_proxy_is_asked_in_place_of_the_host(
    open_port: int, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{closed_port}/a"
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{open_port}")
    _prepare.check_network([url])
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{closed_port}")
    monkeypatch.setenv("no_proxy", "elsewhere")
    with pytest.raises(mj.DataNotFoundError):
        _prepare.check_network([f"http://127.0.0.1:{open_port}/a"])
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _prepare.check_network([f"http://127.0.0.1:{open_port}/a"])


@pytest.mark.parametrize(
    "name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "tfds:mnist"]
)
def test_plans_say_what_would_be_fetched(name: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tensorflow_datasets")
    plan = mj.data.plan_preparation(name, directory=tmp_path)
    assert plan.name == name.removeprefix("tfds:")
    assert plan.directory == tmp_path
    assert not plan.is_prepared
    assert plan.num_bytes is not None
    # the archives of the four sets, by their makers' descriptions: 11, 30, 163 and 161
    # MiB
    mebibytes = {"mnist": 11, "fashion_mnist": 29, "cifar10": 162, "cifar100": 161}[
        plan.name
    ]
    assert abs(plan.num_bytes / 2**20 - mebibytes) < 1
    assert len(plan.urls) == (1 if "cifar" in name else 4)
    assert len(plan.hosts) == 1
    assert plan.hosts[0] in plan.urls[0]
    assert list(tmp_path.iterdir()) == []


def test_the_whole_step_on_a_toy(
    own_folders: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    toy_builder: Callable[[str, pathlib.Path], Any],
) -> None:
    monkeypatch.setattr(_prepare, "_builder", toy_builder)
    monkeypatch.setattr(_prepare.PreparationPlan, "check_extra", lambda plan: None)
    (before,) = (s for s in mj.data.available(tmp_path) if s.name == "cifar10")
    assert (before.state, before.is_here, before.num_bytes) == ("missing", False, None)
    assert before.how == "mrsa-jax data prepare cifar10"
    plan = mj.data.plan_preparation("cifar10", directory=tmp_path)
    # it does not say
    assert (plan.version, plan.num_bytes, plan.hosts) == ("1.2.0", None, ())
    dataset = mj.data.prepare(plan)
    assert len(dataset.train_labels) == 6
    assert dataset.num_classes == 10
    (after,) = (s for s in mj.data.available(tmp_path) if s.name == "cifar10")
    assert (after.state, after.where) == (
        "prepared",
        str(tmp_path / "cifar10" / "1.2.0"),
    )
    assert after.num_bytes is not None
    # cached: `load` finds it without the folder's name, and `available` says so
    with pytest.warns(RuntimeWarning, match=f"read from {tmp_path}"):
        copy = mj.data.load("cifar10")
    np.testing.assert_array_equal(copy.train_inputs, dataset.train_inputs)
    (cached,) = (s for s in mj.data.available() if s.name == "cifar10")
    assert cached.state == "cached"
    assert cached.where == f"copy of {tmp_path / 'cifar10' / '1.2.0'}"
    # a broken copy is none
    for path in own_folders.glob("tfds-cifar10-*.npz"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        (broken,) = (s for s in mj.data.available() if s.name == "cifar10")
        assert broken.state == "missing"
        path.write_bytes(whole)
    # the second time nothing is fetched
    again = mj.data.plan_preparation("cifar10", directory=tmp_path)
    assert again.is_prepared

    def fail(*_: Any) -> None:
        raise AssertionError("fetched again")

    monkeypatch.setattr(_prepare, "_download", fail)
    assert len(mj.data.prepare(again).test_labels) == 3


def test_a_download_that_fails_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorflow_datasets")
    plan = mj.data.plan_preparation("mnist", directory=tmp_path)

    class Broken:
        def download_and_prepare(self, **_: Any) -> None:
            raise OSError("connection reset")

    monkeypatch.setattr(_prepare.PreparationPlan, "check_extra", lambda plan: None)
    monkeypatch.setattr(_prepare, "check_network", lambda urls: None)
    monkeypatch.setattr(_prepare, "_builder", lambda *_: Broken())
    with pytest.raises(
        mj.DataNotFoundError, match=r"could not be prepared in .*connection reset"
    ):
        mj.data.prepare(plan)


def test_what_is_available(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    found = {status.name: status for status in mj.data.available()}
    assert tuple(found) == mj.data.SOURCES
    for name in ("mnist_5k", "digits"):
        assert found[name].state == "installed"
        assert found[name].where is not None
        assert found[name].num_bytes == pathlib.Path(found[name].where).stat().st_size
    for name in ("idx", "cifar"):
        assert found[name].state == "name a directory"
    assert found["olivetti"].state == "missing"
    (tmp_path / "a").write_bytes(bytes(70))
    monkeypatch.setattr("mrsa_jax.data.sources.FASHION_DIRECTORY", tmp_path)
    (fashion,) = (s for s in mj.data.available() if s.name == "fashion_mnist")
    assert (fashion.state, fashion.num_bytes) == ("installed", 70)
