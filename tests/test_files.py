"""Files of all containers: whole or not there at all, and never a program."""

import os
import zipfile

import numpy as np
import pytest

import sparsegpu as sg


def containers():
    dense = np.eye(64, dtype=np.float16)
    bsr = sg.bsr_array(dense, blocksize=(32, 32))
    return {
        "bsr_array": (bsr, sg.load_npz, "data"),
        "SemiStructuredArray": (
            sg.to_semi_structured(dense), sg.SemiStructuredArray.load_npz, "packed"
        ),
        "BsrSemiStructuredArray": (
            bsr.semi_structured(), sg.BsrSemiStructuredArray.load_npz, "packed"
        ),
        "BlockMask": (sg.BlockMask.from_bsr(bsr.astype(bool)), sg.BlockMask.load_npz, "bits"),
    }  # fmt: skip


@pytest.fixture(params=["bsr_array", "SemiStructuredArray", "BsrSemiStructuredArray", "BlockMask"])
def container(request):
    """An array, how its files are read, and the key of its values in them."""
    return containers()[request.param]


def test_an_error_names_the_file_that_was_given(container, tmp_path):
    array, _, _ = container
    (tmp_path / "taken.npz").mkdir()
    for file in (tmp_path / "absent" / "a.npz", tmp_path / "taken.npz"):
        for save in (array.save_npz, lambda f: sg.save_safetensors(f, {"a": np.ones(2)})):
            with pytest.raises(OSError) as raised:
                save(file)
            assert raised.value.filename == str(file) and str(raised.value).endswith(f"'{file}'")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.npz"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_failed_write_leaves_the_old_file(container, compressed, tmp_path, monkeypatch):
    array, _, _ = container
    (tmp_path / "a.npz").write_bytes(b"old")
    close = zipfile.ZipFile.close

    def full(archive):
        open_for_writing = archive.fp is not None and archive.mode == "w"
        close(archive)
        if open_for_writing:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(zipfile.ZipFile, "close", full)
        for name in ("a.npz", "new.npz"):
            with pytest.raises(OSError, match="No space left"):
                array.save_npz(tmp_path / name, compressed=compressed)
    assert (tmp_path / "a.npz").read_bytes() == b"old" and os.listdir(tmp_path) == ["a.npz"]


def test_a_file_is_replaced_in_one_step(container, tmp_path, monkeypatch):
    """Until the last moment the name stands for the old file, which a reader may have open."""
    array, load, _ = container
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    replace, seen = os.replace, []

    def look(source, target):
        if os.fspath(target) == os.fspath(path):  # else a compiled loop goes into the cache
            seen.append((path.read_bytes(), type(load(source)) is type(array)))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    array.save_npz(str(path.with_suffix("")))  # .npz is appended
    assert seen == [(b"old", True)]
    assert type(load(path)) is type(array) and os.listdir(tmp_path) == ["a.npz"]


def test_files_get_the_usual_permissions(container, tmp_path):
    array, _, _ = container
    array.save_npz(tmp_path / "a.npz")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "a.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode


class Program:
    """What runs when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_no_program_is_run(container, tmp_path):
    array, load, values = container
    path, trace = tmp_path / "a.npz", tmp_path / "trace"
    array.save_npz(path)
    with np.load(path) as stored:
        parts = dict(stored)
    for key in ("format", "shape", values, "indices", "meta"):
        program = np.empty(1, dtype=object)
        program[0] = Program(trace)
        np.savez(path, **parts | {key: program})
        if key in parts:
            with pytest.raises(
                ValueError, match=rf"without pickled objects in member '{key}' of .*a.npz"
            ):
                load(path)
        assert not trace.exists()


@pytest.mark.parametrize("chosen", ["reference", "cpu", "cuda"])
@pytest.mark.parametrize("kind", containers())
def test_files_are_read_on_the_host_whatever_engine_is_chosen(tmp_path, kind, chosen):
    if chosen == "cuda":
        pytest.importorskip("cupy")
    array, load, _ = containers()[kind]
    file = tmp_path / "array.npz"
    array.save_npz(file)
    with sg.use_engine(chosen):
        read = load(file)
    assert np.array_equal(read.todense(), np.eye(64))
