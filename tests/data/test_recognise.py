"""Published data sets are known by their samples: folders of swapped and changed files.

The true files are not here. Each stand-in has the true layout, sizes and classes; its
digest, from a separate computation, takes the place of the published one. Where a true
folder is on a machine, `MRSA_JAX_TRUE_DATA` names the folder of `mnist` and
`fashion_mnist`.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import pathlib
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.data import _prepare, _recognise

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

# Fifteen and five samples instead of 60,000 and 10,000: the code reads the sizes.
TRAIN, TEST = 15, 5
IDX = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def _samples(seed: int, shape: tuple[int, ...], classes: int = 10) -> Arrays:
    generator = np.random.default_rng(seed)
    parts = []
    for count in (TRAIN, TEST):
        parts.append(generator.integers(0, 256, (count, *shape), dtype=np.uint8))
        parts.append(np.arange(count, dtype=np.uint8) % classes)
        generator.shuffle(parts[-1])
        # the largest label is the number of classes of IDX files
        parts[-1][0] = classes - 1
    return tuple(parts)  # type: ignore[return-value]


def _digest(arrays: Arrays) -> str:
    """Compute the digest by its description, sample by sample."""
    whole = hashlib.sha256()
    for images, labels in (arrays[:2], arrays[2:]):
        channels = images.shape[3] if images.ndim == 4 else 1
        shape = (len(images), images.shape[1], images.shape[2], channels)
        whole.update(str(shape).encode())
        each = []
        for image, label in zip(images, labels, strict=True):
            salt = int(label).to_bytes(4, "little")
            hashed = hashlib.blake2b(image.tobytes(), digest_size=16, salt=salt)
            each.append(hashed.digest())
        whole.update(b"".join(sorted(each)))
    return whole.hexdigest()[:32]


MNIST, FASHION = _samples(1, (28, 28)), _samples(2, (28, 28))
TEN, HUNDRED = _samples(3, (32, 32, 3)), _samples(4, (32, 32, 3), 100)


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stand-ins be the published sets, and forget what others remembered."""
    known = {_digest(MNIST): "mnist", _digest(FASHION): "fashion_mnist"}
    sizes = {(TRAIN, TEST, (28, 28, 1)), (TRAIN, TEST, (32, 32, 3))}
    monkeypatch.setattr(_recognise, "DIGESTS", known)
    monkeypatch.setattr(_recognise, "_SIZES", sizes)
    monkeypatch.setattr(_recognise, "_REMEMBERED", {})


def _write_idx(folder: pathlib.Path, arrays: Arrays, *, packed: bool = False) -> None:
    folder.mkdir(parents=True)
    for stem, array in zip(IDX, arrays, strict=True):
        header = bytes([0, 0, 8, array.ndim])
        data = header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        if packed:
            (folder / f"{stem}-ubyte.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"{stem}-ubyte").write_bytes(data)


def _batches(arrays: Arrays, hundred: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the images and labels of each of CIFAR's files, the test file last."""
    parts = 1 if hundred else 5
    images, labels = (np.array_split(array, parts) for array in arrays[:2])
    return [*zip(images, labels, strict=True), arrays[2:]]


def _write_python(
    folder: pathlib.Path, arrays: Arrays, *, hundred: bool = False, protocol: int = 2
) -> None:
    """Write CIFAR's Python version, with keys in bytes as Python 2 wrote them."""
    folder.mkdir(parents=True)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    key = b"fine_labels" if hundred else b"labels"
    files = ["train", "test"] if hundred else names
    for name, (images, labels) in zip(files, _batches(arrays, hundred), strict=True):
        planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(-1, 3072)
        table = {
            b"batch_label": b"a batch",
            key: labels.tolist(),
            b"data": planes,
            b"filenames": [b"one.png"] * len(images),
        }
        (folder / name).write_bytes(pickle.dumps(table, protocol))


def _write_binary(
    folder: pathlib.Path, arrays: Arrays, *, hundred: bool = False
) -> None:
    folder.mkdir(parents=True)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    names = ["train.bin", "test.bin"] if hundred else names
    for name, (images, labels) in zip(names, _batches(arrays, hundred), strict=True):
        planes = images.transpose(0, 3, 1, 2).reshape(-1, 3072)
        columns = [labels[:, None] // 5] * hundred + [labels[:, None], planes]
        records = np.concatenate(columns, axis=1)
        (folder / name).write_bytes(records.astype(np.uint8).tobytes())


def _publish(monkeypatch: pytest.MonkeyPatch, name: str, folder: pathlib.Path) -> None:
    """Let the files of a folder be those whose MD5 sums are published."""
    is_binary = any(path.suffix for path in folder.iterdir())
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    files = names if name == "cifar10" else ["train", "test"]
    sums = [
        hashlib.md5((folder / (file + ".bin" * is_binary)).read_bytes()).hexdigest()
        for file in files
    ]
    table = _recognise.BINARY_MD5 if is_binary else _recognise.PYTHON_MD5
    monkeypatch.setitem(table, name, tuple(sums))


def _changed(arrays: Arrays, **changes: np.ndarray) -> Arrays:
    names = ("images", "labels", "test_images", "test_labels")
    return tuple(
        changes.get(name, array) for name, array in zip(names, arrays, strict=True)
    )  # type: ignore[return-value]


def _flipped(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[-1] ^= 1
    return changed


ORDER = np.random.default_rng(9).permutation(TRAIN)
NOISE = np.random.default_rng(8).integers(0, 256, MNIST[0].shape, dtype=np.uint8)

# Folder that the files lie in, what they hold, and the set that they are.
IDX_FOLDERS: dict[str, tuple[str, Arrays, str]] = {
    "MNIST": ("mnist", MNIST, "mnist"),
    "any name": ("downloads", MNIST, "mnist"),
    "torchvision's MNIST": ("MNIST/raw", MNIST, "mnist"),
    "torchvision's Fashion-MNIST": ("FashionMNIST/raw", FASHION, "fashion_mnist"),
    "MNIST named Fashion-MNIST": ("fashion-mnist", MNIST, "mnist"),
    "Fashion-MNIST named MNIST": ("mnist", FASHION, "fashion_mnist"),
    "KMNIST named MNIST": ("mnist", _samples(5, (28, 28)), ""),
    "KMNIST in torchvision's MNIST": ("MNIST/raw", _samples(5, (28, 28)), ""),
    "QMNIST, MNIST's labels and first pixels": (
        "mnist",
        _changed(MNIST, test_images=_flipped(MNIST[2])),
        "",
    ),
    "corrupted MNIST, all its labels": ("mnist", _changed(MNIST, images=NOISE), ""),
    "MNIST with KMNIST's labels": (
        "mnist",
        _changed(MNIST, labels=_samples(5, (28, 28))[1]),
        "",
    ),
    "one label changed": ("mnist", _changed(MNIST, labels=_flipped(MNIST[1])), ""),
    "one pixel changed": ("mnist", _changed(MNIST, images=_flipped(MNIST[0])), ""),
    "labels permuted": ("mnist", _changed(MNIST, labels=MNIST[1][ORDER]), ""),
    "images permuted": ("mnist", _changed(MNIST, images=MNIST[0][ORDER]), ""),
    "samples in another order": (
        "mnist",
        _changed(MNIST, images=MNIST[0][ORDER], labels=MNIST[1][ORDER]),
        "mnist",
    ),
    "truncated": (
        "mnist",
        _changed(MNIST, images=MNIST[0][:-1], labels=MNIST[1][:-1]),
        "",
    ),
    "one sample twice": (
        "mnist",
        _changed(
            MNIST,
            images=np.concatenate([MNIST[0][1:], MNIST[0][1:2]]),
            labels=np.concatenate([MNIST[1][1:], MNIST[1][1:2]]),
        ),
        "",
    ),
    "transposed images": (
        "mnist",
        _changed(MNIST, images=np.ascontiguousarray(MNIST[0].transpose(0, 2, 1))),
        "",
    ),
    "test images to train on": ("mnist", _changed(MNIST, images=MNIST[0][::-1]), ""),
}


@pytest.mark.smoke("corrupted MNIST, all its labels")
@pytest.mark.parametrize("case", IDX_FOLDERS)
def test_twenty_folders_of_idx_files(case: str, tmp_path: pathlib.Path) -> None:
    where, arrays, name = IDX_FOLDERS[case]
    _write_idx(tmp_path / where, arrays, packed=len(case) % 2 == 0)
    dataset = mj.data.load("idx", directory=tmp_path / where, seed=3)
    assert mj.data.recognise(dataset) == name
    # the order of the training samples is the seed's
    other = mj.data.load("idx", directory=tmp_path / where, seed=4)
    assert mj.data.recognise(other) == name


def test_torchvisions_folders_are_found_from_above(tmp_path: pathlib.Path) -> None:
    _write_idx(tmp_path / "MNIST" / "raw", MNIST)
    for folder in (tmp_path, tmp_path / "MNIST", tmp_path / "MNIST" / "raw"):
        dataset = mj.data.load("idx", directory=folder)
        assert (dataset.name, mj.data.recognise(dataset)) == ("idx:MNIST", "mnist")
    _write_idx(tmp_path / "FashionMNIST" / "raw", FASHION)
    with pytest.raises(mj.ConfigurationError, match="must hold one IDX") as caught:
        mj.data.load("idx", directory=tmp_path)
    assert str(tmp_path / "FashionMNIST" / "raw") in str(caught.value)
    # by the name of the set there is no doubt
    for name in ("mnist", "fashion_mnist"):
        dataset = mj.data.load(name, directory=tmp_path)
        assert (dataset.name, mj.data.recognise(dataset)) == (name, name)
        files = mj.data.sources.source_files(name, tmp_path)
        assert len(files) == 4
        assert {path.parent.parent.name for path in files} == {
            {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}[name]
        }


def test_a_set_that_is_there_twice_or_has_other_classes(tmp_path: pathlib.Path) -> None:
    _write_binary(tmp_path / "cifar-10-batches-bin", TEN)
    _write_python(tmp_path / "cifar-10-batches-py", _changed(TEN, labels=TEN[1][::-1]))
    for name in ("cifar10", "cifar"):  # the Python version
        dataset = mj.data.load(name, directory=tmp_path)
        assert len(mj.data.sources.source_files(name, tmp_path)) == 6
        assert set(dataset.train_labels) == set(TEN[1])
        (path, *_) = mj.data.sources.source_files(name, tmp_path)
        assert path.parent.name == "cifar-10-batches-py"
    (tmp_path / "cifar10" / "3.0.2").mkdir(parents=True)
    (tmp_path / "cifar10" / "3.0.2" / "dataset_info.json").write_text("{}")
    with pytest.raises(mj.ConfigurationError, match="must hold 'cifar10' once"):
        mj.data.load("cifar10", directory=tmp_path)
    _write_idx(tmp_path / "MNIST" / "raw", _samples(6, (28, 28), 26))
    with pytest.raises(mj.ConfigurationError, match="has 10 classes; got '26 classes"):
        mj.data.load("mnist", directory=tmp_path)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("hundred", [False, True])
def test_cifar_of_python(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    hundred: bool,
    protocol: int,
) -> None:
    name = "cifar100" if hundred else "cifar10"
    arrays = HUNDRED if hundred else TEN
    archive = "cifar-100-python" if hundred else "cifar-10-batches-py"
    _write_python(tmp_path / archive, arrays, hundred=hundred, protocol=protocol)
    dataset = mj.data.load("cifar", directory=tmp_path)
    read = np.rint(dataset.test_inputs * 255).astype(np.uint8)
    np.testing.assert_array_equal(read, arrays[2])
    np.testing.assert_array_equal(dataset.test_labels, arrays[3])
    assert dataset.name == f"cifar:{name}"
    # files of this layout, but not the published ones
    assert mj.data.recognise(dataset) == ""
    _publish(monkeypatch, name, tmp_path / archive)
    os.utime(tmp_path / archive / ("test" if hundred else "test_batch"), ns=(1, 1))
    for source in ("cifar", name):
        dataset = mj.data.load(source, directory=tmp_path)
        assert mj.data.recognise(dataset) == name


def test_cifars_binary_version_is_recognised_after_that_of_python(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_binary(tmp_path / "binary", TEN)
    _write_python(tmp_path / "python", TEN)
    _publish(monkeypatch, "cifar10", tmp_path / "python")
    assert mj.data.recognise(mj.data.load("cifar", directory=tmp_path / "binary")) == ""
    mj.data.load("cifar", directory=tmp_path / "python")
    # in another process, by the note in the cache
    monkeypatch.setattr(_recognise, "_REMEMBERED", {})
    dataset = mj.data.load("cifar", directory=tmp_path / "binary")
    assert mj.data.recognise(dataset) == "cifar10"
    labels = dataset.train_labels.copy()
    labels[:2] = labels[1::-1] if labels[0] != labels[1] else (labels[:2] + 1) % 10
    noisy = dataclasses.replace(dataset, train_labels=labels)
    assert mj.data.recognise(noisy) == ""
    # one changed file is not the published version
    _write_python(tmp_path / "c", _changed(TEN, images=_flipped(TEN[0])))
    changed = mj.data.load("cifar", directory=tmp_path / "c")
    assert mj.data.recognise(changed) == ""


def test_a_set_that_was_fetched_here_is_recognised(
    own_folders: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    toy_builder: Callable[[str, pathlib.Path], Any],
) -> None:
    """tensorflow-datasets compares the checksums of the archives that it fetches."""
    monkeypatch.setattr(_recognise, "_SIZES", {(6, 3, (2, 3, 1))})
    monkeypatch.setattr(_prepare, "_builder", toy_builder)
    monkeypatch.setattr(_prepare.PreparationPlan, "check_extra", lambda plan: None)
    dataset = mj.data.prepare(mj.data.plan_preparation("cifar10", directory=tmp_path))
    assert mj.data.recognise(dataset) == "cifar10"
    changed = dataclasses.replace(dataset, train_labels=dataset.train_labels + 1)
    assert mj.data.recognise(changed) == ""
    # of a set that was there already, nothing is known
    monkeypatch.setattr(_recognise, "_REMEMBERED", {})
    (note,) = own_folders.glob("recognised-*.txt")
    assert note.read_text() == "cifar10\n"
    note.unlink()
    dataset = mj.data.prepare(mj.data.plan_preparation("cifar10", directory=tmp_path))
    assert mj.data.recognise(dataset) == ""
    # a note of any other name is none
    note.write_text("mnist\n")
    assert mj.data.recognise(dataset) == ""


def test_torchvisions_folders_are_listed_and_need_no_preparing(
    tmp_path: pathlib.Path,
) -> None:
    pytest.importorskip("tensorflow_datasets")
    _write_idx(tmp_path / "MNIST" / "raw", MNIST)
    _write_python(tmp_path / "cifar-100-python", HUNDRED, hundred=True)
    states = {s.name: s for s in mj.data.available(tmp_path)}
    assert states["mnist"].where == str(tmp_path / "MNIST" / "raw")
    assert states["cifar100"].where == str(tmp_path / "cifar-100-python")
    here = [name for name in mj.data.sources.PREPARED if states[name].is_here]
    assert here == ["mnist", "cifar100"]
    plan = mj.data.plan_preparation("mnist", directory=tmp_path)
    assert plan.is_prepared
    assert len(mj.data.prepare(plan).train_labels) == TRAIN


@pytest.mark.parametrize("hundred", [False, True])
def test_cifar_of_tensorflow_datasets(
    hundred: bool,
    own_folders: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It shuffles the examples; their names order them as the binary files do."""
    tfds = pytest.importorskip("tensorflow_datasets")
    name, arrays = ("cifar100", HUNDRED) if hundred else ("cifar10", TEN)
    _write_binary(tmp_path / "binary", arrays, hundred=hundred)
    _publish(monkeypatch, name, tmp_path / "binary")
    wrong = [False]

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.2")

        def _info(self) -> Any:
            features = {
                "id": tfds.features.Text(),
                "image": tfds.features.Tensor(shape=(32, 32, 3), dtype=np.uint8),
                "label": tfds.features.ClassLabel(num_classes=100 if hundred else 10),
                "coarse_label": tfds.features.ClassLabel(num_classes=20),
            }
            if not hundred:
                features.pop("coarse_label")
            described = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=described)

        def _split_generators(self, dl_manager: Any) -> Any:
            train, test = arrays[:2], arrays[2:]
            return {
                "train": self._generate_examples("train", *train),
                "test": self._generate_examples("test", *test),
            }

        def _generate_examples(self, split: str, images: Any, labels: Any) -> Any:
            for index, (image, label) in enumerate(zip(images, labels, strict=True)):
                shown = image ^ (wrong[0] and index == 3)
                example = {"id": f"{split}_{index:05d}", "image": shown, "label": label}
                if hundred:
                    example["coarse_label"] = int(label) // 5
                yield index, example

    Builder.name = name
    for folder, is_wrong in (("right", False), ("wrong", True)):
        wrong[0] = is_wrong
        directory = tmp_path / folder
        builder = Builder(data_dir=str(directory), file_format="array_record")
        builder.download_and_prepare()
        for source in (name, f"tfds:{name}", name):  # the last from the cache
            dataset = mj.data.load(source, directory=directory)
            assert mj.data.recognise(dataset) == ("" if is_wrong else name)
        # what one process has learnt, another reads
        monkeypatch.setattr(_recognise, "_REMEMBERED", {})
    assert len(list(own_folders.glob("recognised-*.txt"))) == 1
    # the binary files are recognised by their own sums, without the note
    for note in own_folders.glob("recognised-*.txt"):
        note.unlink()
    dataset = mj.data.load("cifar", directory=tmp_path / "binary")
    assert mj.data.recognise(dataset) == name


class _Harmful:
    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.reduced = call, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


def _pickles() -> dict[str, bytes]:
    planes = np.zeros((1, 3072), np.uint8)
    good = {b"labels": [1], b"data": planes}
    harmful = _Harmful(os.system, "echo run by a pickle")
    # BUILD on the classes that stand for NumPy's: cnumpy\ndtype\n, a state, b
    attack = b"cnumpy\ndtype\n(N}X\x08\x00\x00\x00__init__Nsub."
    return {
        "code": pickle.dumps(harmful),
        "code in a list": pickle.dumps(good | {b"labels": [harmful]}),
        "code in an array of objects": pickle.dumps(
            {b"labels": [1], b"data": np.array([[harmful]], object)}
        ),
        "eval": pickle.dumps(_Harmful(eval, "1")),
        "getattr": pickle.dumps(_Harmful(getattr, "", "join")),
        "a class": pickle.dumps(good | {b"labels": [pathlib.PurePath("a")]}),
        "changes a stand-in": attack,
        "a persistent id": b"Pname\n.",
        "an extension": b"\x82\x01.",
        "memo of 2^32": b"]r\xff\xff\xff\xff.",
        "cut": pickle.dumps(good)[:-20],
        "empty": b"",
        "text": b"not a pickle",
        "a list": pickle.dumps([1, 2]),
        "no data": pickle.dumps({b"labels": [1]}),
        "no labels": pickle.dumps({b"data": planes}),
        "more labels": pickle.dumps(good | {b"labels": [1, 2]}),
        "a label beyond": pickle.dumps(good | {b"labels": [10]}),
        "a label of text": pickle.dumps(good | {b"labels": ["1"]}),
        "a label below": pickle.dumps(good | {b"labels": [-1]}),
        "a flag for a label": pickle.dumps(good | {b"labels": [True]}),
        "floats": pickle.dumps(good | {b"data": planes.astype(np.float32)}),
        "int8": pickle.dumps(good | {b"data": planes.astype(np.int8)}),
        "another size": pickle.dumps(good | {b"data": planes[:, :-1]}),
        "by column": pickle.dumps(
            {b"labels": [1, 1], b"data": np.asfortranarray(np.tile(planes, (2, 1)))}
        ),
        "no image": pickle.dumps({b"labels": [], b"data": planes[:0]}),
        "bytes for an array": pickle.dumps(good | {b"data": bytes(3072)}),
    }


@pytest.mark.smoke("code")
@pytest.mark.parametrize("case", _pickles())
def test_pickles_that_are_refused(
    case: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _write_python(tmp_path / "x", TEN)
    path = tmp_path / "x" / "data_batch_3"
    path.write_bytes(_pickles()[case])
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.load("cifar", directory=tmp_path / "x")
    assert str(path) in str(caught.value)
    assert capfd.readouterr().out == ""
    # and the reader is as it was
    path.unlink()
    _write_python(tmp_path / "y", TEN)
    assert len(mj.data.load("cifar", directory=tmp_path / "y").test_labels) == TEST


def test_scaled_and_partial_sets_are_not_recognised(tmp_path: pathlib.Path) -> None:
    _write_idx(tmp_path / "x", MNIST)
    dataset = mj.data.load("idx", directory=tmp_path / "x")
    assert mj.data.recognise(dataset) == "mnist"
    assert mj.data.recognise(mj.data.normalise(dataset)) == ""
    nudged = dataclasses.replace(
        dataset, train_inputs=np.nextafter(dataset.train_inputs, np.float32(1))
    )
    assert mj.data.recognise(nudged) == ""
    fewer = dataclasses.replace(
        dataset,
        test_inputs=dataset.test_inputs[1:],
        test_labels=dataset.test_labels[1:],
    )
    assert mj.data.recognise(fewer) == ""
    with pytest.raises(mj.ConfigurationError):
        mj.data.recognise(dataclasses.replace(dataset, test_labels=np.zeros(1)))


def test_faces() -> None:
    generator = np.random.default_rng(0)
    levels = generator.integers(0, 243, (400, 4096))
    # as NumPy prints the first two of scikit-learn's faces
    levels[0, [0, 1, 2, -3, -2, -1]] = np.rint(
        242
        * np.array(
            [0.30991736, 0.3677686, 0.41735536, 0.15289256, 0.16115703, 0.1570248]
        )
    )
    levels[1, [0, 1, 2, -3, -2, -1]] = np.rint(
        242
        * np.array(
            [0.45454547, 0.47107437, 0.5123967, 0.15289256, 0.15289256, 0.15289256]
        )
    )
    labels = np.repeat(np.arange(40, dtype=np.int32), 10)

    def split(levels: np.ndarray, labels: np.ndarray) -> mj.data.Dataset:
        inputs = (levels.astype(np.float32) / np.float32(242)).reshape(-1, 64, 64, 1)
        is_test = np.arange(400) % 5 == 0
        return mj.data.Dataset(
            "olivetti",
            inputs[~is_test],
            labels[~is_test],
            inputs[is_test],
            labels[is_test],
            40,
        )

    assert mj.data.recognise(split(levels, labels)) == "olivetti"
    assert mj.data.recognise(split(levels[::-1], labels)) == ""
    assert mj.data.recognise(split(np.roll(levels, 1, axis=1), labels)) == ""
    assert mj.data.recognise(split(levels, np.roll(labels, 1))) == ""
    assert mj.data.recognise(split(levels + 0.1, labels)) == ""


@pytest.mark.skipif("MRSA_JAX_TRUE_DATA" not in os.environ, reason="no true files here")
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_true_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    folder = pathlib.Path(os.environ["MRSA_JAX_TRUE_DATA"]) / name
    assert mj.data.recognise(mj.data.load("idx", directory=folder)) == name
