"""Files of `bsr_array`, and how it shows itself."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu
from covering import covered
from sparsegpu import bsr_array, testing
from sparsegpu._arrays import CONTAINER_DTYPES

SCIPY = [d for d in CONTAINER_DTYPES if d.itemsize != 2]


def make(engine, rng, dtype="float32", batch=()):
    parts = testing.random_blocks(
        rng, (12, 20), (3, 4), dtype=dtype, batch=batch, duplicates=True, density=0.5
    )
    return bsr_array(tuple(engine.array(p) for p in parts), shape=(12, 20))


def assert_same(engine, a, b):
    """Compare bits, so that NaN and -0.0 count."""
    assert a.dtype == b.dtype and a.shape == b.shape and a.blocksize == b.blocksize
    for field in ("data", "indices", "indptr"):
        x, y = engine.host(getattr(a, field)), getattr(b, field)
        assert x.dtype == y.dtype and x.tobytes() == y.tobytes()


@covered(dtype=CONTAINER_DTYPES, batch=[(), (2, 2), (0,)], compressed=[False, True])
def test_round_trip(engine, rng, tmp_path, dtype, batch, compressed):
    a = make(engine, rng, dtype, batch)
    a.save_npz(tmp_path / "a", compressed=compressed)
    b = sparsegpu.load_npz(tmp_path / "a.npz")
    assert isinstance(b.data, np.ndarray)
    assert_same(engine, a, b)
    assert os.listdir(tmp_path) == ["a.npz"]


@pytest.mark.parametrize("dtype", SCIPY, ids=str)
def test_scipy_reads_our_files(engine, rng, tmp_path, dtype):
    a = make(engine, rng, dtype)
    sparsegpu.save_npz(tmp_path / "a.npz", a)
    theirs = sp.load_npz(tmp_path / "a.npz")
    assert isinstance(theirs, sp.bsr_array) and theirs.blocksize == (3, 4)
    np.testing.assert_array_equal(theirs.data, engine.host(a.data))
    np.testing.assert_array_equal(theirs.indices, engine.host(a.indices))


@covered(dtype=SCIPY, kind=[sp.bsr_array, sp.bsr_matrix])
def test_we_read_scipy_files(rng, tmp_path, dtype, kind):
    parts = testing.random_blocks(rng, (12, 20), (3, 4), dtype=dtype)
    theirs = kind(parts, shape=(12, 20))
    sp.save_npz(tmp_path / "a.npz", theirs)
    a = sparsegpu.load_npz(str(tmp_path / "a.npz"))
    np.testing.assert_array_equal(a.data, theirs.data)
    np.testing.assert_array_equal(a.indices, theirs.indices)
    assert a.shape == (12, 20)


@pytest.mark.parametrize(("dtype", "batch"), [("bfloat16", ()), ("float16", ()), ("float32", (2,))])
def test_scipy_refuses_what_it_cannot_hold(rng, tmp_path, dtype, batch):
    from conftest import Engine

    make(Engine("reference"), rng, dtype, batch).save_npz(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"Unknown .*sparsegpu"):
        sp.load_npz(tmp_path / "a.npz")


def test_file_objects(rng):
    a = bsr_array(np.eye(4), blocksize=(2, 2))
    file = io.BytesIO()
    sparsegpu.save_npz(file, a)
    file.seek(0)
    np.testing.assert_array_equal(sparsegpu.load_npz(file).toarray(), np.eye(4))


def test_bad_files(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(FileNotFoundError):
        sparsegpu.load_npz(path)
    path.write_bytes(b"not a zip file at all")
    with pytest.raises(ValueError, match=r"load_npz: argument 'file': expected an .npz file"):
        sparsegpu.load_npz(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"load_npz: argument 'file': expected an .npz file"):
        sparsegpu.load_npz(path)
    np.savez(path, x=1)
    with pytest.raises(ValueError, match=r"load_npz: .*numpy.savez.* got 'x', and no 'format'$"):
        sparsegpu.load_npz(path)
    np.savez(path, **{letter * 60: 1 for letter in "abcde"})
    with pytest.raises(ValueError, match=rf"got '{'a' * 40}', 'b+', 'c+', 'd+', \.\.\., and"):
        sparsegpu.load_npz(path)
    np.savez(path)
    with pytest.raises(ValueError, match=r"got no array, and"):
        sparsegpu.load_npz(path)
    sp.save_npz(path, sp.eye_array(4, format="csr"))
    with pytest.raises(ValueError, match=r"expected a sparse array .* got format 'csr'"):
        sparsegpu.load_npz(path)
    np.savez(path, format=b"bsr", data=np.ones((1, 1, 1)))
    with pytest.raises(
        ValueError, match=r"expected an array in member 'shape' of .*a.npz, got none"
    ):
        sparsegpu.load_npz(path)
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"expected an .npz file in .*a.npy, got BadZipFile"):
        sparsegpu.load_npz(tmp_path / "a.npy")


def test_pickles_and_wrong_indices_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    parts = {"indices": np.array([9]), "indptr": np.array([0, 1]), "shape": (2, 2)}
    np.savez(path, format=b"bsr", data=np.array([[[{}]]], dtype=object), **parts)
    with pytest.raises(ValueError, match=r"without pickled objects in member 'data' of .*a.npz"):
        sparsegpu.load_npz(path)
    np.savez(path, format=b"bsr", data=np.ones((1, 2, 2)), **parts)
    with pytest.raises(ValueError, match=r"'indices': expected block columns in 0\.\.0, got 9"):
        sparsegpu.load_npz(path)


def test_save_takes_only_sparse_arrays():
    for array in (np.eye(3), sp.eye_array(3), None):
        with pytest.raises(TypeError, match="save_npz: argument 'array': expected a sparse array"):
            sparsegpu.save_npz("never.npz", array)
    half = sparsegpu.to_semi_structured(np.zeros((32, 32), np.float16))
    with pytest.raises(TypeError, match=r"^save_npz: argument 'file'"):
        sparsegpu.save_npz(3, half)


@pytest.mark.parametrize("compressed", [False, True])
def test_one_function_for_all_classes(engine, rng, tmp_path, compressed):
    half = engine.array(sparsegpu.testing.random_24(rng, (64, 64), "bfloat16"))
    a = bsr_array(half, blocksize=(32, 32))
    mask = sparsegpu.causal(64, 32, compact=True, xp=engine.xp)
    for array in (a, sparsegpu.to_semi_structured(half), a.semi_structured(), mask):
        sparsegpu.save_npz(tmp_path / "a", array, compressed=compressed)
        back = sparsegpu.load_npz(tmp_path / "a.npz")
        assert type(back) is type(array) and back.dtype == array.dtype and back.device == "cpu"
        np.testing.assert_array_equal(back.toarray(), engine.host(array.toarray()))


# -- pictures -----------------------------------------------------------------------------------


def test_repr(engine):
    a = bsr_array(engine.array(np.eye(4, dtype=np.float32)), blocksize=(2, 2))
    where = "cuda:0" if engine.on_gpu else "cpu"
    assert repr(a) == (
        "<sparsegpu.bsr_array, shape (4, 4), float32, 2 blocks of 2x2 stored (density 0.5), "
        f"on {where}>"
    )
    assert "1 block of 2x2" in repr(a[0:2])
