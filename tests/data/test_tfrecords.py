"""TFRecord folders: one that tensorflow-datasets wrote with TensorFlow, read without.

`tfrecords/toy/1.2.0` is the toy set of `conftest.py` with pictures as PNG, prepared by
tensorflow-datasets 4.9 in its default format.
"""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.data import sources
from mrsa_jax.data._formats import _masked_crcs, read_records

TOY = pathlib.Path(__file__).with_name("tfrecords")
TRAIN = "toy-train.tfrecord-00000-of-00001"


@pytest.fixture
def toy(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a copy of the folder of the version."""
    shutil.copytree(TOY, tmp_path / "data")
    return tmp_path / "data" / "toy" / "1.2.0"


@pytest.mark.smoke
def test_a_folder_of_tfrecords_is_read() -> None:
    pytest.importorskip("tensorflow_datasets")
    dataset = mj.data.load("tfds:toy", directory=TOY)
    values = np.rint(dataset.train_inputs[:, 1, 2, 0] * 255).astype(int)
    assert sorted(values) == list(range(6))
    np.testing.assert_array_equal(dataset.train_labels, values % 3)
    values = np.rint(dataset.test_inputs * 255).astype(int)
    assert sorted(values[:, 0, 0, 0]) == [100, 101, 102]
    np.testing.assert_array_equal(dataset.test_labels, values[:, 0, 0, 0] % 3)
    assert (dataset.num_classes, dataset.input_shape) == (5, (2, 3, 1))


def test_list_prepare_and_load_agree(toy: pathlib.Path) -> None:
    pytest.importorskip("tensorflow_datasets")
    root = toy.parent.parent
    (root / "toy").rename(root / "mnist")
    # the version that tensorflow-datasets prepares, so that it meets the other format
    plan = mj.data.plan_preparation("mnist", directory=root)
    folder = root / "mnist" / plan.version
    (root / "mnist" / "1.2.0").rename(folder)
    for path in folder.iterdir():
        path.rename(path.with_name(path.name.replace("toy", "mnist")))
    info = folder / "dataset_info.json"
    text = info.read_text().replace('"toy"', '"mnist"')
    info.write_text(text.replace("1.2.0", plan.version))
    (status,) = (s for s in mj.data.available(root) if s.name == "mnist")
    assert (status.state, status.where) == ("prepared", str(folder))
    assert status.content.endswith("10 classes, as tfrecord")
    assert len(mj.data.load("mnist", directory=root).train_labels) == 6
    plan = mj.data.plan_preparation("mnist", directory=root)
    assert plan.is_prepared
    assert len(mj.data.prepare(plan).test_labels) == 3


def test_a_renamed_folder_of_another_set_is_refused(toy: pathlib.Path) -> None:
    """As if KMNIST's folder were called after MNIST, with and without a version."""
    root = toy.parent.parent
    (root / "toy").rename(root / "mnist")
    for name in ("mnist", "tfds:mnist", "tfds:mnist:1.2.0"):
        with pytest.raises(mj.ConfigurationError, match="must hold 'mnist'") as caught:
            mj.data.load(name, directory=root)
        assert str(caught.value).endswith("is; got 'toy'")


@pytest.mark.parametrize("fmt", ["riegeli", "bagz"])
def test_a_format_that_is_not_read_is_named_with_a_way_out(
    fmt: str, toy: pathlib.Path
) -> None:
    pytest.importorskip("tensorflow_datasets")
    info = toy / "dataset_info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"fileFormat": fmt}))
    root = toy.parent.parent
    with pytest.raises(mj.DataNotFoundError, match=f"prepared as {fmt}") as caught:
        mj.data.load("tfds:toy", directory=root)
    assert "mrsa-jax data prepare toy --directory OTHER" in str(caught.value)
    (root / "toy").rename(root / "mnist")
    (status,) = (s for s in mj.data.available(root) if s.name == "mnist")
    assert not status.is_here
    assert status.how == "mrsa-jax data prepare mnist --directory OTHER"
    assert status.content.endswith(f"as {fmt}")


def test_the_format_of_a_folder(tmp_path: pathlib.Path) -> None:
    info = tmp_path / "dataset_info.json"
    for text, formats in (
        ("{}", ("tfrecord",)),
        ('{"fileFormat": "array_record"}', ("array_record",)),
        (
            '{"fileFormat": "tfrecord", "alternativeFileFormats": ["array_record"]}',
            ("tfrecord", "array_record"),
        ),
        ("[]", ()),
        ("{", ()),
    ):
        info.write_text(text)
        assert sources.prepared_formats(tmp_path) == formats, text


def test_each_cut_and_each_changed_length_is_refused(tmp_path: pathlib.Path) -> None:
    whole = (TOY / "toy" / "1.2.0" / TRAIN).read_bytes()
    path = tmp_path / "x"
    path.write_bytes(whole)
    records = read_records(path)
    assert len(records) == 6
    # the framing of TensorFlow's writer: 16 bytes for each record
    ends = np.cumsum([16 + len(record) for record in records])
    assert ends[-1] == len(whole)
    for size in set(range(1, len(whole), 5)) - set(ends.tolist()):
        path.write_bytes(whole[:size])
        with pytest.raises(mj.ConfigurationError, match="must be whole TFRecords"):
            read_records(path)
    for place in range(12):
        changed = bytearray(whole)
        changed[place] ^= 4
        path.write_bytes(bytes(changed))
        with pytest.raises(mj.ConfigurationError, match="a broken one at byte 0"):
            read_records(path)


def test_each_changed_byte_of_a_record_is_refused(tmp_path: pathlib.Path) -> None:
    """A label is one byte, which no picture checks."""
    whole = (TOY / "toy" / "1.2.0" / TRAIN).read_bytes()
    path = tmp_path / "x"
    first = len(whole) // 6
    for place in (*range(12, first, 7), *range(len(whole) - first, len(whole), 7)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(mj.ConfigurationError, match="a broken one at byte"):
            read_records(path)
    path.write_bytes(b"")
    assert read_records(path) == []


def test_checksums_are_those_of_rfc_3720() -> None:
    """CRC-32C of Appendix B.4, and of texts of several lengths at once; masked."""
    known = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        bytes(range(31, -1, -1)): 0x113FDB5C,
        b"123456789": 0xE3069283,
        b"": 0,
    }
    masked = [
        ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF for crc in known.values()
    ]
    assert _masked_crcs(list(known)).tolist() == masked


def test_missing_and_broken_examples_are_refused(toy: pathlib.Path) -> None:
    pytest.importorskip("tensorflow_datasets")
    root, path = toy.parent.parent, toy / TRAIN
    whole = path.read_bytes()
    first = 16 + len(read_records(path)[0])
    path.write_bytes(whole[:first])
    with pytest.raises(mj.ConfigurationError, match="must hold all examples") as caught:
        mj.data.load("tfds:toy", directory=root)
    assert str(path) in str(caught.value)
    spoilt = bytearray(whole)
    # inside the first picture
    spoilt[whole.index(b"IHDR") + 6] ^= 255
    (masked,) = _masked_crcs([bytes(spoilt[12 : first - 4])])
    spoilt[first - 4 : first] = int(masked).to_bytes(4, "little")
    path.write_bytes(bytes(spoilt))
    with pytest.raises(mj.DataNotFoundError, match="cannot be read"):
        mj.data.load("tfds:toy", directory=root)
    path.unlink()
    with pytest.raises(mj.MrsaError):
        mj.data.load("tfds:toy", directory=root)
