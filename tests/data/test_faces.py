"""The AT&T faces as they were published: folders s1 to s40 of PGM files."""

import pathlib

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main


def written(folder: pathlib.Path, people: int, each: int) -> np.ndarray:
    """Write pictures 5 high and 4 wide, and return them by person and number."""
    pixels = np.random.default_rng(0).integers(0, 256, (people, each, 5, 4), np.uint8)
    for person in range(people):
        (folder / f"s{person + 1}").mkdir()
        for number in range(each):
            header = b"P5\n4 5\n255\n" if number else b"P5 # by hand\n4\n5 255\n"
            path = folder / f"s{person + 1}" / f"{number + 1}.pgm"
            path.write_bytes(header + pixels[person, number].tobytes())
    return pixels


def test_every_picture_is_read_with_its_person(tmp_path):
    pixels = written(tmp_path, 12, 10)
    (tmp_path / "README").write_text("no person")
    (tmp_path / "spare").mkdir()
    found = mj.data.load("att", directory=tmp_path, seed=3)
    assert (found.name, found.num_classes, found.input_shape) == ("att", 12, (5, 4, 1))
    # s2 comes before s10, and one in five of each person is kept for tests
    assert np.bincount(found.train_labels).tolist() == [8] * 12
    assert np.bincount(found.test_labels).tolist() == [2] * 12
    inputs = np.concatenate([found.train_inputs, found.test_inputs])
    labels = np.concatenate([found.train_labels, found.test_labels])
    for person in range(12):
        own = inputs[labels == person][..., 0] * 255
        read = {tuple(np.rint(image).astype(int).ravel()) for image in own}
        assert read == {tuple(image.ravel().tolist()) for image in pixels[person]}
    assert mj.data.recognise(found) == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"P2\n4 5\n255\n" + bytes(20), "must be a binary PGM file"),
        (b"P5\n4 5\n65535\n" + bytes(40), "must be a binary PGM file"),
        (b"P5\n4 5\n255\n" + bytes(19), "must hold 4 x 5 bytes"),
        (b"P5\n5 4\n255\n" + bytes(20), "must have the size of"),
        (b"", "must be a binary PGM file"),
    ],
)
def test_a_broken_picture_is_named(tmp_path, content, message):
    written(tmp_path, 2, 5)
    path = tmp_path / "s2" / "3.pgm"
    path.write_bytes(content)
    with pytest.raises(mj.ConfigurationError, match=message) as caught:
        mj.data.load("att", directory=tmp_path)
    assert str(path) in str(caught.value)


def test_a_folder_without_people(tmp_path):
    with pytest.raises(mj.DataNotFoundError, match=r"looked for s1/1\.pgm"):
        mj.data.load("att", directory=tmp_path)
    with pytest.raises(mj.ConfigurationError, match="must name the folder of the pict"):
        mj.data.load("att")


@pytest.mark.long
def test_faces_are_trained_on(tmp_path, capsys):
    written(tmp_path, 3, 10)
    words = "train --dataset att --rounds 2 --num-clients 4 --cohort-size 2 --model mlp"
    out = ["--directory", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main([*words.split(), "--scheme", "uniform", *out]) == 0
