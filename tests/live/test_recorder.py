"""Recorders: what was confirmed is on the disk, and a log is whole whatever stopped its writer."""

from __future__ import annotations

import decimal
import errno
import hashlib
import hmac
import inspect
import json
import os
import pathlib
import stat
import subprocess
import sys
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mrsa_watch import ConfigurationError, MrsaError, Recorder
from mrsa_watch.logs import LineParser, SumLine


def _recorder(path: pathlib.Path, **settings: Any) -> Recorder:
    return Recorder(
        path, **{"system": "test 1", "aggregation": "secagg", "salt": b"", **settings}
    )


def _read(path: pathlib.Path) -> tuple[LineParser, list[SumLine]]:
    parser = LineParser(path.name)
    fed = [parser.feed(line) for line in path.read_bytes().splitlines(keepends=True)]
    return parser, [found for found in fed if found is not None]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log.jsonl"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clients": "ab"}, "`clients` must be names of clients; got 'ab'"),
        ({"clients": 7}, "`clients` must be names of clients; got 7"),
        (
            {"clients": ["a", "a"]},
            "log.jsonl:2: expected each client once in 'clients'",
        ),
        ({"clients": [1, "1"]}, "log.jsonl:2: expected each client once in 'clients'"),
        ({"clients": []}, "log.jsonl:2: expected clients in a learnt sum"),
        ({"round": -1}, "`round` must be at least 0; got -1"),
        ({"round": 1.5}, "`round` must be an integer; got 1.5"),
        ({"sum": True}, "`sum` must be an integer; got True"),
        (
            {"status": "learned"},
            "`status` must be a known status: did you mean 'learnt'",
        ),
        (
            {"status": "aborted"},
            "log.jsonl:2: expected no clients in one aborted; found 2",
        ),
        ({"weights": [1]}, "`weights` must be as many as the clients; got 1 and 2"),
        ({"weights": [1, 0]}, "`weights` must be positive .*; got 0"),
        ({"weights": [1, float("nan")]}, "`weights` must be positive .*; got nan"),
        (
            {"weights": [1, decimal.Decimal("inf")]},
            "`weights` must be positive .*; got Decimal",
        ),
        ({"weights": [1, "2"]}, "`weights` must be positive .*; got '2'"),
        ({"weights": [1, True]}, "`weights` must be positive .*; got True"),
        (
            {"asked": ["a"]},
            "log.jsonl:2: expected only clients who were asked; found 'b'",
        ),
        ({"asked": "ab"}, "`asked` must be names of clients; got 'ab'"),
        ({"lost": ["c"]}, r"`lost` must map stages to clients; got \['c'\]"),
        ({"lost": {"uplaod": ["c"]}}, "log.jsonl:2: expected known stages"),
        ({"lost": {"upload": "c"}}, "`lost` must be names of clients; got 'c'"),
        ({"noise": -1.0}, "`noise` must be finite and not negative; got -1"),
        ({"clip": float("inf")}, "`clip` must be finite and not negative; got inf"),
        ({"clip": 0.0}, "log.jsonl:2: expected a positive number"),
    ],
)
def test_what_breaks_a_rule_is_not_written(
    path: pathlib.Path, arguments: dict[str, Any], message: str
) -> None:
    """And takes no line: the next record is the second line."""
    # types are checked by the suite alone
    record: Any = inspect.unwrap(Recorder.record)
    with _recorder(path) as recorder:
        before = path.read_bytes()
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=message):
                record(recorder, **({"round": 1, "clients": ["a", "b"]} | arguments))
        assert path.read_bytes() == before
        recorder.record(1, ["a", "b"])
    assert [found.line for found in _read(path)[1]] == [2]


def test_rounds_may_be_numpys(path: pathlib.Path) -> None:
    with _recorder(path) as recorder:
        inspect.unwrap(Recorder.record)(
            recorder, np.int64(7), np.arange(2), sum=np.int32(1)
        )
    assert [(one.key, one.clients) for one in _read(path)[1]] == [
        ((0, 7, 1), ("0", "1"))
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"system": ""}, "expected a text in one line as 'system'; found ''"),
        ({"aggregation": "a\nb"}, "expected a text in one line as 'aggregation'"),
        ({"salt": "pepper"}, "`salt` must be bytes or None; got 'pepper'"),
    ],
)
def test_headers_that_break_a_rule(
    path: pathlib.Path, settings: dict[str, Any], message: str
) -> None:
    init: Any = inspect.unwrap(Recorder.__init__)
    with pytest.raises(ConfigurationError, match=message):
        init(
            object.__new__(Recorder),
            path,
            **({"system": "x", "aggregation": "y"} | settings),
        )
    assert not path.exists() or path.read_bytes() == b""


def test_places_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "log.jsonl"):
        with pytest.raises(MrsaError, match=r"`path` must have room to be written"):
            _recorder(place)


def test_a_file_of_another_kind_is_left_as_it_is(path: pathlib.Path) -> None:
    path.write_text("round,client\n1,anna\n")
    with pytest.raises(
        ConfigurationError, match=r"log.jsonl:1: expected a JSON object"
    ):
        _recorder(path)
    assert path.read_text() == "round,client\n1,anna\n"


@pytest.mark.smoke
def test_a_log_by_hand(path: pathlib.Path) -> None:
    with _recorder(path) as recorder:
        recorder.record(
            7,
            ["b", "a", 3],
            weights=[np.int32(10), Fraction(3, 7), 0.5],
            asked=[3, "b", "a", "c", "d"],
            lost={"upload": ["d"], "setup": ["c"], "unmask": [3]},
            noise=0.8,
            clip=2,
        )
        recorder.record(8, [], status="refused")
    header, first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert header == {
        "format": "mrsa-jax participation log",
        "version": 1,
        "system": "test 1",
        "aggregation": "secagg",
        "pseudonyms": None,
        "run": 0,
    }
    assert first.pop("time")[-1] == second.pop("time")[-1] == "Z"
    assert first == {
        "round": 7,
        "sum": 0,
        "status": "learnt",
        "clients": ["3", "a", "b"],
        "weights": ["1/2", "3/7", 10],
        "asked": ["3", "a", "b", "c", "d"],
        "lost": {"upload": ["d"], "setup": ["c"], "unmask": ["3"]},
        "noise": 0.8,
        "clip": 2.0,
    }
    assert second == {"round": 8, "sum": 0, "status": "refused", "clients": []}


@pytest.mark.smoke
def test_weights_are_kept_exactly(path: pathlib.Path) -> None:
    weights = [0.1, decimal.Decimal("0.1"), Fraction(1, 3), 10**40, np.float32(0.1)]
    with _recorder(path) as recorder:
        recorder.record(1, range(5), weights=weights)
    (found,) = _read(path)[1]
    assert found.weights == (
        Fraction(*(0.1).as_integer_ratio()),
        Fraction(1, 10),
        Fraction(1, 3),
        Fraction(10**40),
        Fraction(13421773, 134217728),
    )


def test_pseudonyms_are_a_salted_hash(path: pathlib.Path) -> None:
    """As the page says.

    8 bytes each of HMAC-SHA256 of what the name is like, and of the name.
    """
    with _recorder(path, salt=None) as recorder:
        recorder.record(1, ["anna", "bob", 12])
    kept = path.with_name("log.jsonl.salt")
    salt = kept.read_bytes()
    assert len(salt) == 32
    assert (
        stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o600
    )
    parser, (found,) = _read(path)

    def half(text: str) -> str:
        return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()[:16]

    like = {"anna": "text anna", "bob": "text bob", "12": "number 12"}
    own = (
        half(f"likeness, {alike}") + half(f"name {name}")
        for name, alike in like.items()
    )
    assert found.clients == tuple(sorted(own))
    mark = hashlib.sha256(b"likeness and name" + salt).hexdigest()[:8]
    assert parser.headers[0].pseudonyms == mark
    assert b"anna" not in path.read_bytes()
    with _recorder(path, salt=None) as recorder:
        recorder.record(1, ["anna"])
        assert recorder.name("anna") in found.clients
    assert set(_read(path)[1][1].clients) < set(found.clients)
    other = path.with_name("other.jsonl")
    with _recorder(other, salt=None) as recorder:
        assert recorder.name("anna") not in found.clients


@pytest.mark.parametrize("salt", [b"", b"another"])
def test_another_salt_is_refused_before_anything_is_written(
    path: pathlib.Path, salt: bytes
) -> None:
    with _recorder(path, salt=None) as recorder:
        recorder.record(1, ["a"])
    before = path.read_bytes()
    plain = "log.jsonl:3: expected pseudonyms of the salt of"
    message = "`salt` must be the one that made the log's pseudonyms"
    with pytest.raises(ConfigurationError, match=message if salt else plain):
        _recorder(path, salt=salt)
    path.with_name("log.jsonl.salt").unlink()  # lost: a new one is another
    with pytest.raises(ConfigurationError, match=message):
        _recorder(path, salt=None)
    assert path.read_bytes() == before


def test_a_log_of_version_1_0_is_continued_with_its_pseudonyms(
    path: pathlib.Path,
) -> None:
    salt = b"s" * 32
    old = {
        name: hmac.new(salt, name.encode(), hashlib.sha256).hexdigest()[:32]
        for name in "ab"
    }
    with _recorder(path, salt=salt):
        pass
    header = json.loads(path.read_text())
    header["pseudonyms"] = hashlib.sha256(salt).hexdigest()[:8]
    line = {"round": 1, "clients": sorted(old.values())}
    path.write_text(f"{json.dumps(header)}\n{json.dumps(line)}\n")
    with _recorder(path, salt=salt) as recorder:
        recorder.record(2, ["a", "b"])
    first, second = _read(path)[1]
    assert first.clients == second.clients


def test_names_that_may_be_one_are_refused(path: pathlib.Path) -> None:
    """In one process by their names, and after a restart by the pseudonyms' equal halves."""
    message = "`clients` must be written in one way .*; got 'site-1' and 'Site-1'"
    with _recorder(path, salt=None) as recorder:
        recorder.record(1, ["Site-1", "b", "c"])
        before = path.read_bytes()
        with pytest.raises(ConfigurationError, match=message):
            recorder.record(2, ["site-1", "b"])
        with pytest.raises(
            ConfigurationError, match="`asked` must be written in one way"
        ):
            recorder.record(2, ["b"], asked=["b", "C"])
        assert path.read_bytes() == before
    with _recorder(path, salt=None) as recorder:
        with pytest.raises(
            ConfigurationError, match=r"jsonl:4: expected one way to write a cl"
        ):
            recorder.record(2, ["site-1", "b"])
        recorder.record(2, ["Site-1", "b"])
    assert len({name for line in _read(path)[1] for name in line.clients}) == 3


@pytest.mark.parametrize(
    "client", [None, True, float("nan"), 2.0**60, "null", "?", "a ", ["a"]]
)
@pytest.mark.parametrize("salt", [b"", None])
def test_what_names_no_client_is_not_recorded(
    path: pathlib.Path, client: Any, salt: bytes | None
) -> None:
    with _recorder(path, salt=salt) as recorder:
        before = path.read_bytes()
        with pytest.raises(ConfigurationError, match="`clients` must "):
            recorder.record(1, ["anna", client])
        assert path.read_bytes() == before


def test_a_salt_cut_short_is_no_salt(path: pathlib.Path) -> None:
    path.with_name("log.jsonl.salt").write_bytes(b"short")
    with pytest.raises(
        ConfigurationError, match="must hold the 32 bytes of a salt; got '5 bytes'"
    ):
        _recorder(path, salt=None)


@pytest.mark.long
def test_a_second_writer_is_refused_at_once(path: pathlib.Path) -> None:
    code = (
        "import sys\nfrom mrsa_watch import Recorder\n"
        "Recorder(sys.argv[1], system='x', aggregation='y', salt=b'')\n"
    )
    with _recorder(path) as first:
        with pytest.raises(
            ConfigurationError, match="`path` must be a log that no other recorder"
        ):
            _recorder(path)
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "must be a log that no other recorder holds" in done.stderr
        first.record(1, ["a"])
    with _recorder(path) as third:
        third.record(1, ["a"])
    parser, found = _read(path)
    assert [header.run for header in parser.headers] == [0, 1]
    assert [one.key for one in found] == [(0, 1, 0), (1, 1, 0)]


def test_a_closed_recorder_writes_nothing(path: pathlib.Path) -> None:
    recorder = _recorder(path)
    recorder.close()
    recorder.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="`recorder` must be open"):
        recorder.record(1, ["a"])
    assert path.read_bytes() == before


def test_repetitions_are_written_once_and_contradictions_not_at_all(
    path: pathlib.Path,
) -> None:
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        before = path.read_bytes()
        recorder.record(1, ["b", "a"])
        with pytest.raises(
            ConfigurationError, match=r"log.jsonl:3: expected of round 1.* what line"
        ):
            recorder.record(1, ["a"])
        assert path.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 20, 40, 10**6])
def test_a_last_line_that_was_cut_short_is_ended_and_told_of(
    path: pathlib.Path, cut: int
) -> None:
    """Bytes once written stay as they are; `cut` of 10**6 loses the line's end alone."""
    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        recorder.record(2, ["a", "c"])
    whole, last = path.read_bytes().rsplit(b'{"round": 2', 1)
    torn = whole + (b'{"round": 2' + last)[:-1][:cut]
    path.write_bytes(torn)
    with _recorder(path) as recorder:
        recorder.record(2, ["a", "b", "c"])
    assert path.read_bytes().startswith(torn + b" #torn\n")
    parser, found = _read(path)
    assert parser.torn == [3]
    assert [(one.key, one.clients) for one in found] == [
        ((0, 1, 0), ("a", "b")),
        ((1, 2, 0), ("a", "b", "c")),
    ]


def test_a_mark_that_was_cut_short_itself(path: pathlib.Path) -> None:
    with _recorder(path) as recorder:
        recorder.record(1, ["a"])
    whole = path.read_bytes()
    for end in range(1, len(b' {"rou #torn')):
        path.write_bytes(whole + b'{"rou #torn'[:end])
        _recorder(path).close()
        assert [header.run for header in _read(path)[0].headers] == [0, 1]


def test_a_full_disk_costs_no_line(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is not in the log, and its round may be recorded again."""
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 30:
            return write(file, data[:30])
        raise OSError(errno.ENOSPC, "No space left on device")

    with _recorder(path) as recorder:
        recorder.record(1, ["a", "b"])
        monkeypatch.setattr(os, "write", full)
        for _ in range(2):
            with pytest.raises(
                MrsaError, match=r"`path` must have room.*no space is left"
            ):
                recorder.record(2, ["a" * 9, "c" * 9])
        monkeypatch.setattr(os, "write", write)
        recorder.record(2, ["d"])
        with pytest.raises(
            ConfigurationError, match=r"log.jsonl:\d: expected of round 2"
        ):
            recorder.record(2, ["e"])
    parser, found = _read(path)
    assert [(one.key, one.clients) for one in found] == [
        ((0, 1, 0), ("a", "b")),
        ((0, 2, 0), ("d",)),
    ]
    assert not parser.torn


def test_threads_write_whole_lines(path: pathlib.Path) -> None:
    with _recorder(path) as recorder:

        def write(own: int) -> None:
            for j in range(25):
                recorder.record(j, [f"{own}-{i}" for i in range(50)], sum=own)

        threads = [threading.Thread(target=write, args=(own,)) for own in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = _read(path)[1]
    assert {one.key for one in found} == {
        (0, j, own) for j in range(25) for own in range(4)
    }
    assert len(found) == 100


def test_recording_loads_the_standard_library_alone(path: pathlib.Path) -> None:
    code = f"""if True:
        import sys
        from mrsa_watch import Recorder
        with Recorder({str(path)!r}, system="test 1", aggregation="secagg", salt=b"s") as recorder:
            recorder.record(1, ["a", "b"], weights=[0.5, 2])
        with Recorder({str(path)!r}, system="test 1", aggregation="secagg", salt=b"s") as recorder:
            recorder.record(2, ["a", "b"])
        roots = {{name.partition(".")[0] for name in sys.modules}}
        print(*sorted(roots - set(sys.stdlib_module_names)))
    """
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(pathlib.Path(__file__).parents[2] / "watch")},
    )
    assert done.stdout.split() == ["__main__", "mrsa_watch"]
    assert len(_read(path)[1]) == 2
