"""Messages that once blamed the wrong thing: function, argument, and what to do instead."""

import operator
import sys

import numpy as np
import pytest
import scipy.sparse

import sparsegpu as sg
from sparsegpu._arrays import import_cupy

HALF = np.float16


@pytest.fixture
def a():
    return sg.bsr_array(np.eye(4, dtype=np.float32), blocksize=(2, 2))


@pytest.fixture
def weight():
    return sg.to_semi_structured(np.eye(32, 64, dtype=HALF))


X = np.ones((4, 3), np.float32)


def test_a_bsr_array_of_scipy():
    theirs = scipy.sparse.bsr_array(np.eye(4))
    message = (
        r"^bsr_matmul: argument 'bsr': expected a bsr_array, got scipy\.sparse\._bsr\.bsr_array "
        r"\(sparsegpu\.bsr_array takes it\)$"
    )
    with pytest.raises(TypeError, match=message):
        sg.bsr_matmul(theirs, X)
    with pytest.raises(TypeError, match=r"bsr_softmax: .* got scipy\.sparse\._bsr\.bsr_array"):
        sg.bsr_softmax(theirs)
    with pytest.raises(TypeError, match=r"semi_structured_matmul: .*'sparse': .* got scipy\."):
        sg.semi_structured_matmul(theirs, X)


def test_indices(a):
    with pytest.raises(NotImplementedError, match=r"^bsr_array\[\.\.\.\]: the index \(0, array"):
        a[0, np.arange(3)]
    with pytest.raises(NotImplementedError, match=r"^bsr_array\[\.\.\.\]: the index \(slice") as e:
        a[:, list(range(100_000))]
    assert len(str(e.value)) < 500


def test_no_message_is_as_long_as_what_was_given(a):
    for given in (["x" * 100_000], "y" * 100_000, list(range(100_000))):
        with pytest.raises((TypeError, ValueError), match="'activation'") as error:
            sg.bsr_matmul(a, X, activation=given)
        assert len(str(error.value)) < 500
    with pytest.raises(ValueError, match=r"bsr_array: argument 'shape'.* of very many digits"):
        sg.bsr_array((10**5000, 4))


@pytest.mark.parametrize("n", [10**5000, -(10**5000)], ids=["above", "below"])
def test_integers_that_python_does_not_write(a, n):
    """Of more digits than ``str`` takes: Python's own ValueError would name nothing."""
    scatter = sg.bsr_scatter_mm_indices_data
    for compute, error, message in (
        (lambda: a[n], IndexError, r"^bsr_array\[i\]: argument 'i': .*very many"),
        (lambda: a[0, n], IndexError, r"^bsr_array\[i, j\]: argument 'j': .*very many"),
        (lambda: a[:, n], IndexError, r"^bsr_array\[:, j\]: argument 'j': .*very many"),
        (lambda: a[..., n], NotImplementedError, r"^bsr_array\[\.\.\.\]: .*very many"),
        (lambda: a[[n]], TypeError, r"^bsr_array\[rows\]: argument 'rows': .*for, got list"),
        (lambda: a.getrow(n), IndexError, r"^getrow: argument 'i': .*very many"),
        (lambda: a.astype(n), TypeError, r"^astype: argument 'dtype': .*very many"),
        (lambda: a.todense(order=n), ValueError, r"'order': .*very many"),
        (lambda: scatter(a, X, indices_format=n), ValueError, r"'indices_format': .*very many"),
        (lambda: sg.bsr_addmm(X, a, X, allow_tf32=n), TypeError, r"'allow_tf32': .*very many"),
        (lambda: a.sum(axis=(n,)), (TypeError, ValueError), r"^sum: argument 'axis': "),
    ):
        with pytest.raises(error, match=message) as told:
            compute()
        assert len(str(told.value)) < 500


def test_sequences_that_are_no_array(a):
    for given in ([[1, 2], [3]], (np.ones(2), np.ones((1, 2, 3)))):
        with pytest.raises(ValueError, match=r"'arg': .*, got sequences of different lengths$"):
            sg.bsr_array(given, blocksize=(1, 1))
    with pytest.raises(TypeError, match="'dense': expected numbers that NumPy has a dtype for"):
        sg.bsr_matmul(a, [[10**30]] * 4)


@pytest.mark.parametrize("key", [(0, 0, 0), np.float32, "a", "a" * 100_000])
def test_keys_that_are_no_index(a, key):
    with pytest.raises(IndexError, match=r"^bsr_array\[\.\.\.\]: argument 'key': exp") as told:
        a[key]
    assert len(str(told.value)) < 500


@pytest.mark.parametrize("date", [np.datetime64("2020"), np.timedelta64(3, "s")])
def test_scalars_that_are_no_numbers(a, weight, date):
    for array in (a, weight):
        name = type(array).__name__
        for sign, compute in (
            ("==", operator.eq), (">", operator.gt), (r"\*", operator.mul), ("/", operator.truediv)
        ):  # fmt: skip
            message = rf"^{name} {sign}: argument 'other': expected a number, got "
            with pytest.raises(TypeError, match=message):
                compute(array, date)


def test_array_libraries_and_sequences_that_are_none(a):
    for compute, message in (
        (lambda: sg.masks.top_k([[1.0]], 1, 16, xp=0), "^top_k: argument 'xp'"),
        (lambda: sg.masks.from_indices([[0]], blocksize=16, shape=(16, 16), xp=0),
         "^from_indices: argument 'xp'"),
        (lambda: sg.causal(16, 16, xp=10**5000), "^causal: argument 'xp': .*very many"),
        (lambda: sg.diags(np.float32), "^diags: argument 'diagonals'"),
        (lambda: sg.diags(scipy.sparse.eye_array(4)), "^diags: argument 'diagonals'"),
        (lambda: sg.random_bsr((4, 4), scipy.sparse.eye_array(4), 0.5),
         "^random_bsr: argument 'blocksize'"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            compute()


def test_axes_of_a_transpose(a, weight):
    for array in (a, weight):
        with pytest.raises(TypeError, match=r"transpose: argument 'axes': .*\(1, 0\), got int"):
            array.transpose(1, 0)
        with pytest.raises(ValueError, match=r"transpose: argument 'axes': .*got \(0, 1\)"):
            array.transpose((0, 1))
        assert array.transpose((1, 0)).shape == array.T.shape


def test_elements_with_their_places_in_one_array():
    places = np.array([[0, 1], [0, 1]])
    for data in (np.ones(2), [1.0, 1.0]):
        one = sg.bsr_array((data, places), shape=(4, 4), blocksize=(2, 2))
        np.testing.assert_array_equal(one.toarray(), np.diag([1.0, 1, 0, 0]))
    batch = sg.bsr_array((np.eye(2), places), blocksize=(1, 1))  # two matrices
    assert batch.shape == (2, 2, 2)


def test_an_order_of_complex_numbers(a):
    with pytest.raises(TypeError, match=r"bsr_array >: argument 'self': .* got complex128"):
        _ = a.astype(complex) > 1.0
    with pytest.raises(TypeError, match=r"bsr_array >: argument 'other': .* got complex128"):
        _ = a > 1j


def test_integers_that_do_not_fit(a, weight):
    integers = a.astype(np.int8)
    for scale in (
        lambda: integers * 300,
        lambda: -200 * integers,
        lambda: integers * np.int64(300),
        lambda: integers / 300,
    ):
        with pytest.raises(ValueError, match=r"bsr_array [*/]: argument 'other': .*int8 holds"):
            scale()
    for compute, sign in (
        (lambda: a > 10**400, "bsr_array >"),
        (lambda: a * 10**400, r"bsr_array \*"),
        (lambda: a / -(10**400), "bsr_array /"),
        (lambda: weight == 10**400, "SemiStructuredArray =="),
    ):
        with pytest.raises(ValueError, match=rf"^{sign}: argument 'other': .*a float holds"):
            compute()
    # Each is answered where the numbers fit.
    np.testing.assert_array_equal((integers * 100).toarray(), 100 * np.eye(4))
    np.testing.assert_array_equal((integers > 300).toarray(), np.zeros((4, 4)))


def test_a_product_by_a_number(a, weight):
    for array, left in ((a, "bsr_array"), (weight, "SemiStructuredArray")):
        for multiply in (lambda array=array: array @ 1, lambda array=array: 1.0 @ array):
            with pytest.raises(
                ValueError, match=rf"^{left} @: argument 'other': .*scales.*, got a scalar"
            ):
                multiply()


def test_operators_have_their_own_names(a, weight):
    for compute, message in (
        (lambda: X.T @ weight, r"^SemiStructuredArray @: argument 'other': expected dtype float16"),
        (lambda: weight @ X, r"^SemiStructuredArray @: argument 'other': expected dtype float16"),
        (lambda: a @ X[:3], r"^bsr_array @: argument 'other': expected shape \(\*batch, 4, N\)"),
        (lambda: a @ X[:3, 0], r"argument 'other': expected shape \(4,\), got \(3,\)"),
        (lambda: X @ a, r"^bsr_array @: argument 'other': expected shape \(\*batch, M, 4\)"),
        (lambda: X[0, :3] @ a, r"argument 'other': expected shape \(4,\), got \(3,\)"),
        (lambda: a @ a[:2], r"^bsr_array @: argument 'other': expected shape \(4, N\)"),
        (lambda: a.tobsr((3, 3)), r"^tobsr: argument 'blocksize'"),
        (lambda: a.tobsr((0, 3)), r"^tobsr: argument 'blocksize'"),
        (lambda: sg.to_semi_structured(X), r"^to_semi_structured: argument 'dense'"),
        (lambda: sg.to_semi_structured(X, backend="x"), r"^to_semi_structured: argument 'backend'"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            compute()
    single = sg.bsr_array(np.ones((32, 32), HALF), blocksize=(32, 32)).semi_structured(prune=True)
    with pytest.raises(NotImplementedError, match=r"^BsrSemiStructuredArray @: "):
        np.ones((2, 32), HALF) @ single


def test_sums_have_their_own_names(a):
    with sg.use_engine("cuda"):
        for name in ("sum", "mean"):
            with pytest.raises(TypeError, match=rf"^{name}: "):
                getattr(a, name)(axis=0)


def test_a_bias_of_one_dimension(a, weight):
    bias, x = np.ones(32, HALF), np.ones((64, 3), HALF)
    for function, operands in (
        ("bsr_addmm", (np.ones(4, np.float32), a, X)),
        ("semi_structured_addmm", (bias, weight, x)),
    ):
        message = rf"^{function}: argument 'input': .*input\[:, None\]\), got"
        with pytest.raises(ValueError, match=message):
            getattr(sg, function)(*operands)


def test_a_dense_mask(a):
    query = np.ones((1, 4, 4), np.float32)
    with pytest.raises(TypeError, match=r"'mask': .*\(bsr_array\(mask, blocksize=\.\.\.\) makes"):
        sg.scaled_dot_product_attention(query, query, query, np.ones((4, 4), bool))
    with pytest.raises(TypeError, match=r"same_pattern: argument 'other': .* makes one"):
        a.same_pattern(np.eye(4))


def test_block_sparse_by_24(a, weight):
    message = r"^bsr_matmul: argument 'dense': expected a dense array beside a bsr_array .*todense"
    with pytest.raises(ValueError, match=message):
        sg.bsr_matmul(a, weight)
    with pytest.raises(ValueError, match=r"^bsr_array @: argument 'other': .*SemiStructuredArray$"):
        a @ weight


@pytest.mark.parametrize("other", [[1, 2], "a", b"a", (1, 2), {}, set()])
def test_what_is_no_array_does_not_compare(a, weight, other):
    for array in (a, weight):
        for sign, compare in (("==", operator.eq), ("!=", operator.ne)):
            message = rf"^{type(array).__name__} {sign}: argument 'other': .*got "
            with pytest.raises(TypeError, match=message):
                compare(array, other)
    assert (weight == None) is False  # noqa: E711


def test_without_cupy(a, weight, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # an import fails as that of what is not there
    blocks = sg.bsr_array(np.eye(32, dtype=HALF), blocksize=(32, 32)).semi_structured()
    for array in (a, weight, blocks):
        message = rf"^{type(array).__name__}\.to_device: .*pip install .*\[cuda13\]'"
        with pytest.raises(ImportError, match=message):
            array.to_device()
    with pytest.raises(ImportError, match=r"^f: argument 'x' is on a CUDA device, and CuPy is not"):
        import_cupy("f", "argument 'x' is on a CUDA device")


class NoDevice:
    """CuPy where the driver is missing, or with two devices."""

    class CUDARuntimeError(RuntimeError):
        pass

    class Device:
        def __init__(self, number=None):
            self.id = number or 0

    def __init__(self, count):
        self.count = count
        self.cuda = self.runtime = self

    def getDeviceCount(self):
        if self.count is None:
            raise self.CUDARuntimeError("cudaErrorInsufficientDriver")
        return self.count


def test_devices_that_are_not_there(a, weight, monkeypatch):
    blocks = sg.bsr_array(np.eye(32, dtype=HALF), blocksize=(32, 32)).semi_structured()
    mask = sg.BlockMask.from_bsr(sg.bsr_array(np.eye(16, dtype=bool), blocksize=(16, 16)))
    for array in (a, weight, blocks, mask):
        name = rf"^{type(array).__name__}\.to_device: "
        monkeypatch.setitem(sys.modules, "cupy", NoDevice(None))
        with pytest.raises(RuntimeError, match=rf"{name}a CUDA device is .*InsufficientDriver$"):
            array.to_device()
        monkeypatch.setitem(sys.modules, "cupy", NoDevice(2))
        for device in (-1, 2, 10**5000):
            with pytest.raises(ValueError, match=rf"{name}argument 'device': .*in 0\.\.1, got"):
                array.to_device(device)
        for device in (0.0, "cuda:0", True):
            with pytest.raises(TypeError, match=rf"{name}argument 'device': .*None or an int"):
                array.to_device(device)


def test_a_repeated_block_in_one_matrix_of_a_batch():
    """Which argument holds them; reductions and the diagonal take such batches."""
    parts = (np.ones((2, 2, 1, 1)), np.array([[0, 0], [0, 1]]), np.array([[0, 2], [0, 2]]))
    a = sg.bsr_array(parts, shape=(1, 2))
    assert a.max() == 2 and a.min() == 0 and a.diagonal().tolist() == [[2], [1]]
    unlike = np.array([[[1.0, 0]], [[1, 1]]])
    for compute, argument in (
        (lambda: abs(a), "self"),
        (lambda: sg.bsr_softmax(a), "bsr"),
        (lambda: sg.bsr_array(unlike, blocksize=(1, 1)), "arg"),
    ):
        with pytest.raises(ValueError, match=rf"argument '{argument}': expected the same number"):
            compute()


@pytest.mark.parametrize("name", ["TILE_M", "TILE_N", "GROUP_SIZE"])
def test_tiles_that_cannot_be(a, name):
    for value in (999, 0, -16, 10**30, *((17, 512) if name != "GROUP_SIZE" else (65,))):
        with pytest.raises(
            ValueError, match=rf"^bsr_scatter_mm_indices_data: argument '{name}': .*got {value}"
        ):
            sg.bsr_scatter_mm_indices_data(a, X, **{name: value})
    assert sg.bsr_scatter_mm_indices_data(a, X, **{name: 16})[-1][name] == 16


def test_one_integer_is_shown_as_it_was_given(a):
    for call, message in (
        (lambda: sg.eye(4.0), "eye: argument 'm': expected an integer, got 4.0"),
        (lambda: sg.eye(4, k=True), "eye: argument 'k': expected an integer, got True"),
        (lambda: a.trace("1"), "trace: argument 'offset': expected an integer, got '1'"),
        (
            lambda: sg.linalg.cg(a, np.ones(4, np.float32), maxiter=2.0),
            "cg: argument 'maxiter': expected an integer, got 2.0",
        ),
    ):
        with pytest.raises(TypeError, match=f"^{message}$"):
            call()


def test_a_file_in_the_place_of_an_array(tmp_path):
    """As newcomers give it: the message says how it is read."""
    np.savez(tmp_path / "a.npz", matrix=np.eye(4))
    for path in (tmp_path / "a.npz", str(tmp_path / "a.npz")):
        with pytest.raises(TypeError, match=r"'arg': .*load_npz or numpy\.load reads a file.*got"):
            sg.bsr_array(path, blocksize=(2, 2))
    with np.load(tmp_path / "a.npz") as file:
        with pytest.raises(TypeError, match=r"'arg': .*one array: file\[name\]\), got .*NpzFile"):
            sg.bsr_array(file, blocksize=(2, 2))
        assert sg.bsr_array(file["matrix"], blocksize=(2, 2)).nnzb == 2
