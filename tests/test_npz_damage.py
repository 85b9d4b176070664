"""Files that are damaged, or made to do harm: a ValueError or OSError names file and member."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

import sparsegpu as sg
from in_threads import run_in_threads

CASES = 250
DENSE = np.kron(np.arange(1, 5).reshape(2, 2), np.eye(32)).astype("float16")


def saved(kind: str, compressed: bool = True) -> bytes:
    bsr = sg.bsr_array(DENSE, blocksize=(32, 32))
    array = {
        "bsr_array": bsr,
        "SciPy's": bsr.astype("float32"),
        "bsr_array, bfloat16": bsr.astype("bfloat16"),
        "SemiStructuredArray": sg.SemiStructuredArray.prune_dense_static_sort(DENSE),
        "BsrSemiStructuredArray": bsr.semi_structured(),
        "BlockMask": sg.BlockMask.from_bsr(bsr.astype(bool)),
    }[kind]
    file = io.BytesIO()
    array.save_npz(file, compressed=compressed)
    return file.getvalue()


KINDS = ("bsr_array", "SciPy's", "bsr_array, bfloat16")
KINDS_24 = ("SemiStructuredArray", "BsrSemiStructuredArray")
kinds = pytest.mark.parametrize("kind", [*KINDS, *KINDS_24, "BlockMask"])


#: The member that takes most bytes.
MEMBERS = dict.fromkeys(KINDS_24, "packed") | {"BlockMask": "bits"}


def load(kind: str, file):
    return sg.load_npz(file) if kind in KINDS else getattr(sg, kind).load_npz(file)


def members(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content)) as stored:
        return dict(stored)


def npz(parts) -> io.BytesIO:
    file = io.BytesIO()
    np.savez_compressed(file, **parts)
    return file


@kinds
@pytest.mark.parametrize("compressed", [False, True])
def test_changed_bytes(kind, compressed, tmp_path):
    """A file with one to three bytes changed gives what was saved, or an error that names it."""
    content = saved(kind, compressed)
    original = np.asarray(load(kind, io.BytesIO(content)).toarray(), "float32")
    rng, path, refused = np.random.default_rng(17), tmp_path / "damaged.npz", 0
    for _ in range(CASES):
        changed = bytearray(content)
        for place in rng.choice(len(content), rng.integers(1, 4), replace=False):
            changed[place] ^= rng.integers(1, 256)
        path.write_bytes(changed)
        try:
            back = load(kind, path)
        except (ValueError, OSError) as error:
            refused += 1
            assert "load_npz: argument 'file': " in str(error) and "damaged.npz" in str(error)
        else:
            assert (np.asarray(back.toarray(), "float32") == original).all()
    assert refused >= CASES // 2


@kinds
def test_shortened_files(kind):
    content = saved(kind)
    for length in np.linspace(0, len(content) - 1, 100).astype(int):
        with pytest.raises(ValueError, match=r"load_npz: argument 'file': .* BytesIO"):
            load(kind, io.BytesIO(content[:length]))


@kinds
def test_a_damaged_member_is_named(kind):
    """The bytes of a member that is not compressed, of which each has its checksum."""
    content, name = saved(kind, compressed=False), MEMBERS.get(kind, "data")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        end = archive.getinfo(f"{name}.npy").header_offset + 400
    changed = bytearray(content)
    changed[end] ^= 1
    with pytest.raises(ValueError, match=rf"in member '{name}' of BytesIO, got BadZipFile: .*CRC"):
        load(kind, io.BytesIO(changed))


@kinds
def test_missing_and_wrong_members(kind):
    """Every member that is needed, left out or replaced by something else."""
    parts = members(saved(kind))
    wrong = [
        np.array("x"),
        np.array(b"\xff\xfe"),
        np.array("x" * 1000),
        np.ones(3, "datetime64[s]"),
        np.zeros((), "V8"),
        np.full((2, 2), np.nan),
        np.ones((1, 1, 1, 1, 1), np.int8),
        np.array([-(2**62), 2**62]),
        np.array([2**62, 2**62]),
        np.zeros((2**20, 0, 2**20), np.int8),
        np.array(object(), dtype=object),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
    ]
    for name, part in parts.items():
        if name == "_is_array":
            continue
        others = [*wrong, part[..., :0] if part.ndim else part[None], part[None]]
        if name not in {"packed_t", "meta_t", "bitmask"} or kind != "SemiStructuredArray":
            with pytest.raises(ValueError, match=rf"argument 'file': .*('{name}'|{name} 'none')"):
                load(kind, npz({k: v for k, v in parts.items() if k != name}))
        for other in others:
            if other.dtype == part.dtype and other.shape == part.shape:
                continue
            with pytest.raises(ValueError, match=r"load_npz: argument 'file': .*BytesIO"):
                load(kind, npz(parts | {name: other}))


@kinds
def test_negative_shapes(kind):
    parts = members(saved(kind))
    for shape in ([-64, 64], [64, -64], [-64, -64]):
        with pytest.raises(
            ValueError, match=r"member 'shape' of BytesIO, .* none negative, got \("
        ):
            load(kind, npz(parts | {"shape": np.array(shape)}))


@pytest.mark.parametrize("shape", [(-64, 64), (64, -64), (-64, -64)])
def test_negative_shapes_in_constructors(shape):
    a = sg.to_semi_structured(DENSE)
    with pytest.raises(ValueError, match=r"Array: argument 'shape': .* none negative, got \("):
        sg.SemiStructuredArray(shape, a.packed, a.meta)
    b = sg.bsr_array(DENSE, blocksize=(32, 32)).semi_structured()
    with pytest.raises(ValueError, match=r"Array: argument 'shape': .* none negative, got \("):
        sg.BsrSemiStructuredArray((b.packed, b.meta, b.indices, b.indptr), shape)


@kinds
def test_what_the_shape_does_not_need_is_not_inflated(kind):
    """Members of 20 MB of zeros, deflated to 20 KB."""
    parts = members(saved(kind))
    huge = 20_000_000
    for name, part in [*parts.items(), ("unknown", np.zeros(1, np.int8))]:
        flat = np.zeros(huge // part.itemsize, part.dtype if part.dtype.kind in "iuf" else "S1")
        bombs = [flat]
        if part.ndim > 1:
            bombs += [flat[: flat.size // 64 * 64].reshape((-1, *[1] * (part.ndim - 2), 64))]
        for bomb in bombs:
            file = npz(parts | {name: bomb})
            tracemalloc.start()
            try:
                if name in {"unknown", "_is_array"} or (name == "dtype" and kind == "SciPy's"):
                    load(kind, file)
                else:
                    with pytest.raises(ValueError, match=r"'file': .*(member '\w+' of|'\w+':)"):
                        load(kind, file)
                assert tracemalloc.get_traced_memory()[1] < 5_000_000
            finally:
                tracemalloc.stop()


@kinds
@pytest.mark.parametrize("size", [2**31, 2**40, 2**62])
def test_a_size_that_is_only_declared_is_not_allocated(kind, size):
    """Headers of members say so, and the archive's directory confirms it: the bytes are missing."""
    for name in members(saved(kind)):
        if name in {"_is_array", "dtype"}:
            continue
        file = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(saved(kind))) as old,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
        ):
            for info in old.infolist():
                content = old.read(info)
                if info.filename == f"{name}.npy":
                    declared = io.BytesIO()
                    header = {"descr": "|i1", "fortran_order": False, "shape": (size,)}
                    np.lib.format.write_array_header_2_0(declared, header)
                    content = declared.getvalue()
                new.writestr(info.filename, content)
            entry = new.getinfo(f"{name}.npy")
            entry.file_size += size
        with pytest.raises(ValueError, match=rf"in member '{name}' of BytesIO"):
            load(kind, file)


HEADERS = {
    "too deep": "-" * 9000 + "1",
    "never closed": "(" * 5000,
    "long": "[]" * 4000,
    "no keys": "{[]: 1}",
    "records": "{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (2,)}",
    "no memory": "{'descr': 'V0', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
    "flag": "{'descr': '<i8', 'fortran_order': False, 'shape': (True,)}",
    "negative": "{'descr': '<i8', 'fortran_order': False, 'shape': (-2,)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
    "Python 2": "{'descr': '<i8', 'fortran_order': False, 'shape': (3L,)}",
}


@kinds
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.filterwarnings("ignore:Reading")  # of Python 2
def test_hostile_headers(kind, header):
    file, text = io.BytesIO(), header.encode() + b"\n"
    with zipfile.ZipFile(io.BytesIO(saved(kind))) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            version = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little")
            spoilt = version + text + bytes(16)
            new.writestr(name, spoilt if name == "shape.npy" else old.read(name))
    with pytest.raises(ValueError, match=r"in member 'shape' of BytesIO") as told:
        load(kind, file)
    assert len(str(told.value)) < 600


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@kinds
def test_other_compressions_are_refused(kind, method):
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(kind))) as old, zipfile.ZipFile(file, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ValueError, match=rf"in member '\w+' of BytesIO, got \d+ \(method {method}"):
        load(kind, file)


@kinds
@pytest.mark.parametrize("file", [None, 3, ["a.npz"]])
def test_no_file_at_all(kind, file):
    with pytest.raises(TypeError, match=r"load_npz: argument 'file': expected a path or a binary"):
        load(kind, file)
    array = load(kind, io.BytesIO(saved(kind)))
    with pytest.raises(TypeError, match=r"save_npz: argument 'file': expected a path or a binary"):
        array.save_npz(file)


@kinds
def test_a_disk_that_does_not_read_is_an_oserror(kind):
    class Broken(io.BytesIO):
        def read(self, *size):
            if self.tell() < 100:  # the directory at the end is whole
                raise OSError(5, "Input/output error")
            return super().read(*size)

    with pytest.raises(
        OSError, match=r"'file': cannot read .* member '\w+' of Broken: .*Input/outp"
    ):
        load(kind, Broken(saved(kind)))


# -- writing ------------------------------------------------------------------------------------


@kinds
def test_threads_that_save_leave_the_umask_alone(kind, tmp_path):
    """Nobody else may see another mask meanwhile, either: files of other threads would get it."""
    array = load(kind, io.BytesIO(saved(kind)))
    umask, calls = os.umask, []
    os.umask = lambda mask: calls.append(mask) or umask(mask)
    try:
        run_in_threads(lambda i: array.save_npz(tmp_path / f"{i}"), 4)
    finally:
        os.umask = umask
    assert not calls and sorted(os.listdir(tmp_path)) == [f"{i}.npz" for i in range(4)]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("umask", ["022", "077", "002"])
@kinds
def test_permissions(kind, umask, tmp_path):
    """A new file has those of any new file, a replaced one those that it had."""
    (tmp_path / "source.npz").write_bytes(saved(kind))
    (tmp_path / "old.npz").write_bytes(b"")
    (tmp_path / "old.npz").chmod(0o640)
    loader = "load_npz" if kind in KINDS else f"{kind}.load_npz"
    code = f"""
import os, sparsegpu as sg
os.umask(0o{umask})
a = sg.{loader}("source.npz")
a.save_npz("new"); a.save_npz("old"); open("plain", "w").close()
"""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    }
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=environment)
    mode = {name: (tmp_path / name).stat().st_mode & 0o777 for name in os.listdir(tmp_path)}
    assert mode["new.npz"] == mode["plain"] == 0o666 & ~int(umask, 8)
    assert mode["old.npz"] == 0o640 and len(mode) == 4


@kinds
def test_a_link_goes_on_pointing_to_the_file(kind, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.npz").write_bytes(b"old")
    (tmp_path / "link.npz").symlink_to(tmp_path / "there" / "a.npz")
    load(kind, io.BytesIO(saved(kind))).save_npz(tmp_path / "link")
    assert (tmp_path / "link.npz").is_symlink()
    load(kind, tmp_path / "there" / "a.npz")
    assert os.listdir(tmp_path / "there") == ["a.npz"]


@kinds
def test_paths_of_bytes(kind, tmp_path):
    load(kind, io.BytesIO(saved(kind))).save_npz(os.fsencode(tmp_path / "a"))
    load(kind, os.fsencode(tmp_path / "a.npz"))
