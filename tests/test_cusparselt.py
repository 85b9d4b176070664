"""The backend "cusparselt": plans, algorithms and errors, against bindings that only take notes.

`Bindings` stands in for ``nvmath.bindings.cusparseLt``: it has the names, hands out addresses and
remembers what lives. What the library computes is `test_cusparselt_products`'s, on a GPU.
"""

import enum
import gc

import numpy as np
import pytest

import sparsegpu as sg
from cusparselt_bindings import Bindings
from sparsegpu._arrays import bfloat16, float8_e4m3fn
from sparsegpu._epilogue import Epilogue
from sparsegpu.engines.cuda import winners
from sparsegpu.engines.cuda.paths._fields import MODEL, ConfigError
from sparsegpu.engines.cusparselt import availability, library, semi_structured
from sparsegpu.engines.cusparselt.epilogue import fused
from sparsegpu.engines.cusparselt.library import Algorithm, Key, Lines
from sparsegpu.testing import random_values

HALF, SINGLE, INT8 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int8)
KEY = Key(64, 32, 128, HALF, HALF, Lines(True, 32), Lines(True, 32))


@pytest.fixture
def lt(monkeypatch):
    """Bindings that take notes, on device 0 of a machine of their own."""
    bindings = Bindings()
    monkeypatch.setattr(availability, "_loaded", {"bindings": bindings, "version": (0, 8, 1)})
    monkeypatch.setattr(library, "_handles", {})
    monkeypatch.setattr(library, "current_device", lambda: 0)
    monkeypatch.setattr(semi_structured, "architecture", lambda: "90")
    library._plan.cache_clear()
    yield bindings
    library._plan.cache_clear()


def alive(lt):
    gc.collect()
    return sorted(kind for kind, *_ in lt.alive.values())


# -- what is missing ------------------------------------------------------------------------------


@pytest.fixture
def nothing_loaded(monkeypatch):
    monkeypatch.setattr(availability, "_loaded", {})
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda name: object())


def test_without_nvmath(monkeypatch, nothing_loaded):
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda name: None)
    error = availability.why_not("f")
    assert "f: backend 'cusparselt' needs nvmath-python" in str(error)
    assert "pip install" in str(error) and "[cusparselt]'" in str(error) and "native" in str(error)
    with pytest.raises(ImportError, match="nvmath-python"):
        availability.bindings("f")


def test_bindings_that_are_too_old(monkeypatch, nothing_loaded):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(availability.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"no usable cuSPARSELt bindings.*nvmath-python>=1\.0"):
        availability.bindings("f")


@pytest.mark.parametrize(
    ("version", "message"),
    [((0, 7, 1), r"0\.7\.1 is too old, 0\.8\.0"), (None, r"could not be loaded \(no library\)")],
)
def test_a_library_that_is_missing_or_too_old(monkeypatch, nothing_loaded, version, message):
    bindings = Bindings(version)
    if version is None:

        def missing(kind):
            raise RuntimeError("no library")

        bindings.get_property = missing
    monkeypatch.setattr(availability.importlib, "import_module", lambda name: bindings)
    with pytest.raises(ImportError, match=message):
        availability.bindings("f")
    assert not availability._loaded


def test_a_library_that_serves(monkeypatch, nothing_loaded):
    bindings = Bindings((0, 10, 0))
    monkeypatch.setattr(availability.importlib, "import_module", lambda name: bindings)
    assert availability.why_not("f") is None
    assert availability.bindings("f") is bindings and availability.version() == "0.10.0"


def test_nothing_on_the_host(lt, rng):
    A = sg.to_semi_structured(sg.prune_24(random_values(rng, (32, 64), HALF)))
    with pytest.raises(TypeError, match=r"'backend'.*'native' on the host"):
        A.to_backend("cusparselt")
    with pytest.raises(TypeError, match=r"from_dense.*'native' on the host"):
        sg.SemiStructuredArray.from_dense(A.todense(), backend="cusparselt")


def test_the_stand_in_has_the_bindings_own_names():
    """Names, parameters and enums, where nvmath-python is installed (no GPU is needed)."""
    real = pytest.importorskip("nvmath.bindings.cusparseLt")
    for name, member in vars(Bindings).items():
        if name.startswith("_"):
            continue
        theirs = getattr(real, name)
        if isinstance(member, type) and issubclass(member, enum.Enum):
            assert all(int(theirs[m.name]) == int(m) for m in member), name
        elif callable(member) and not isinstance(member, type):
            described = theirs.__doc__.split("(", 1)[1].split(")")[0]
            spelt = [parameter.split()[-1] for parameter in described.split(",") if parameter]
            ours = member.__code__.co_varnames[1 : member.__code__.co_argcount]
            assert len(ours) == len(spelt), name
            if len(ours) > 1:  # of one parameter each version has its own name
                assert [o.removeprefix("matmul_") for o in ours] == [
                    t.removeprefix("matmul_") for t in spelt
                ], name


# -- handles and plans ----------------------------------------------------------------------------


def test_one_handle_a_device(lt, monkeypatch):
    first = library.handle()
    assert library.handle() is first
    monkeypatch.setattr(library, "current_device", lambda: 1)
    assert library.handle() is not first
    assert alive(lt) == ["handle", "handle"]


def test_a_plan_is_made_once(lt):
    first = library.plan(KEY)
    made = lt.made
    assert library.plan(KEY._replace(m=64)) is first and lt.made == made
    for other in (
        KEY._replace(n=64),
        KEY._replace(dtype=bfloat16),
        KEY._replace(dense=Lines(False, 128)),
        KEY._replace(out=Lines(False, 64)),
        KEY._replace(bias=4096),
        KEY._replace(algorithm=Algorithm(3, 1, 0, 0)),
    ):
        assert library.plan(other) is not first


def test_plans_belong_to_a_device(lt, monkeypatch):
    first = library.plan(KEY)
    monkeypatch.setattr(library, "current_device", lambda: 1)
    assert library.plan(KEY) is not first


def test_what_a_plan_is_made_of(lt):
    library.plan(KEY._replace(dense=Lines(False, 136), out=Lines(False, 72), relu=True, bias=4096))
    kinds = {kind: rest for kind, *rest in lt.alive.values() if kind != "dense"}
    dense, out = (rest for kind, *rest in lt.alive.values() if kind == "dense")
    assert kinds["sparse"] == [64, 128, 128, 16, 2, 2, 0]
    assert dense == [32, 128, 136, 16, 2, 2]  # the transpose, in row order
    assert out == [64, 32, 72, 16, 2, 1]
    assert kinds["product"] == [0, 1, lt.ComputeType.COMPUTE_32F]
    assert lt.calls == [("ACTIVATION_RELU", 1), ("BIAS_POINTER", 4096)]


def test_int8_sums_in_int32(lt):
    library.plan(KEY._replace(dtype=INT8, out_dtype=np.dtype(np.int32), dense=Lines(False, 128)))
    (product,) = (rest for kind, *rest in lt.alive.values() if kind == "product")
    assert product[-1] == lt.ComputeType.COMPUTE_32I


def test_a_plan_takes_its_descriptors_with_it(lt):
    library.plan(KEY)
    assert alive(lt) == ["dense", "dense", "handle", "plan", "product", "selection", "sparse"]
    library._plan.cache_clear()
    assert alive(lt) == ["handle"]
    assert lt.destroyed == ["plan", "selection", "product", "dense", "dense", "sparse"]


def test_a_plan_that_fails_leaves_nothing(lt):
    lt.refused_algorithms = {3}
    with pytest.raises(lt.cuSPARSELtError):
        library.plan(KEY._replace(algorithm=Algorithm(3, 1, 0, 0)))
    assert alive(lt) == ["handle"]


def test_only_what_differs_is_set(lt):
    plan = library.plan(KEY._replace(algorithm=Algorithm(5, 1, 2, 0)))
    assert lt.calls == [("CONFIG_ID", 5), ("SPLIT_K_MODE", 2)]
    assert plan.algorithm() == Algorithm(5, 1, 2, 0)


def test_a_run(lt):
    plan = library.Plan(library.handle(), KEY)
    plan.run(1, 2, 3, 4, 5, 6, 7, stream=99)
    assert lt.calls == [("matmul", 1, 2, 3, 4, 5, 6, 7, 99)]
    assert plan.count() == 8


# -- algorithms -----------------------------------------------------------------------------------


@pytest.fixture
def tuned(lt, monkeypatch):
    """What `winners` knows, for this test only."""

    def know(*known):
        monkeypatch.setattr(winners, "_snapshot", winners.Snapshot(known))

    know()
    return know


def test_algorithms_travel_as_configurations(lt):
    algorithm = Algorithm(7, 2, 1, 1)
    config = semi_structured.config_of(algorithm, KEY)
    assert config["path"] == "cusparselt"
    assert config["tried"] == "64 x 128 x 32, float16->float16, rows->rows, 0.8.1"
    assert semi_structured.algorithm_of(config, KEY) == algorithm
    for wrong in ({}, {"path": "simt"}, config | {"config_id": "7"}, config | {"tile": 1}):
        with pytest.raises(ConfigError, match=r"'config'.*'cusparselt'"):
            semi_structured.algorithm_of(wrong, KEY)


@pytest.mark.parametrize(
    "other", [KEY._replace(n=40), KEY._replace(dtype=bfloat16), KEY._replace(out=Lines(False, 64))]
)
def test_an_algorithm_serves_only_what_it_was_tried_with(lt, other):
    config = semi_structured.config_of(Algorithm(7, 1, 0, 0), KEY)
    with pytest.raises(
        ConfigError, match=r"an algorithm that tune tried with .*, got \(64 x 128 x 32"
    ):
        semi_structured.chosen_plan(other, config)


def test_a_kind_knows_order_and_version(lt):
    kind = semi_structured.kind_of(KEY._replace(out=Lines(False, 64)))
    assert kind.family.op == "cusparselt" and kind.family.dtype == "float16->float16"
    assert kind.family.layout == "rows->columns, 0.8.1" and kind.shape == (64, 128, 32)
    again = winners.Winner.from_dict(winners.Winner(kind, dict(MODEL), 1.0, 1.0).as_dict())
    assert again.kind == kind


def test_what_was_searched_is_used_and_nothing_is_searched_in_a_call(lt, tuned):
    kind, config = (
        semi_structured.kind_of(KEY),
        semi_structured.config_of(Algorithm(7, 1, 0, 0), KEY),
    )
    tuned(winners.Winner(kind, config, 1.0, 2.0))
    assert semi_structured.chosen_plan(KEY, None).algorithm().config_id == 7
    assert semi_structured.chosen_plan(KEY, MODEL).algorithm().config_id == 0
    assert semi_structured.chosen_plan(KEY._replace(n=40), None).algorithm().config_id == 0
    lt.refused_algorithms = {7}
    fused_too = KEY._replace(relu=True)
    assert semi_structured.chosen_plan(fused_too, None).algorithm().config_id == 0
    with pytest.raises(ConfigError, match=r"'config'.*an algorithm"):
        semi_structured.chosen_plan(fused_too, config)


def test_what_the_library_does_not_offer(lt, tuned):
    lt.refused_algorithms = {0}
    with pytest.raises(NotImplementedError, match=r"\(64, 128\) @ \(128, 32\).*NOT_SUPP.*native"):
        semi_structured.chosen_plan(KEY, None)


# -- what the library does behind the product ---------------------------------------------------


def matrix(dtype, order="C", shape=(64, 32)):
    return np.empty(shape, dtype, order=order)


@pytest.mark.parametrize("dtype", [HALF, bfloat16], ids=str)
def test_what_is_fused_for_16_bits(dtype):
    out = matrix(dtype)
    assert fused("f", Epilogue(alpha=2.5), dtype, out)[1:] == (False, False, False, True)
    assert fused("f", Epilogue(activation="relu"), dtype, out).relu
    bias = Epilogue(beta=1, input=matrix(dtype, shape=(64, 1)))
    assert fused("f", bias, dtype, out).bias
    whole = Epilogue(beta=-2, input=matrix(dtype))
    assert fused("f", whole, dtype, out).matrix
    assert fused("f", Epilogue(beta=1, input=matrix(dtype, "F")), dtype, out).matrix


@pytest.mark.parametrize(
    "e",
    [
        Epilogue(activation="gelu"),
        Epilogue(activation="silu"),
        Epilogue(left_alpha=np.ones(64, np.float32)),
        Epilogue(right_alpha=np.ones(32, np.float32)),
        Epilogue(beta=2, input=np.ones((64, 1), HALF)),
        Epilogue(beta=1, input=np.ones((1, 32), HALF)),
        Epilogue(beta=1, input=np.ones((64, 2), HALF)[:, :1]),
    ],
)
def test_what_is_refused_for_16_bits(e):
    with pytest.raises(NotImplementedError, match=r"this epilogue.*to_backend\('native'\)"):
        fused("f", e, HALF, matrix(HALF))
    assert not fused("f", e, INT8, matrix(HALF)).finished  # our kernel has them all
    with pytest.raises(NotImplementedError, match="float16 operands into float32"):
        fused("f", Epilogue(), HALF, matrix(SINGLE))


@pytest.mark.parametrize(
    ("dtype", "out", "e", "finished"),
    [
        (INT8, np.int32, Epilogue(), True),
        (INT8, np.int32, Epilogue(alpha=3), False),
        (INT8, np.int8, Epilogue(), False),
        (INT8, np.float32, Epilogue(), False),
        (INT8, bfloat16, Epilogue(alpha=0.5, activation="relu"), True),
        (INT8, bfloat16, Epilogue(activation="gelu"), False),
        (float8_e4m3fn, bfloat16, Epilogue(alpha=0.5), True),
        (float8_e4m3fn, np.float32, Epilogue(activation="silu"), False),
        (SINGLE, np.float32, Epilogue(activation="relu"), True),
        (SINGLE, bfloat16, Epilogue(), False),
    ],
)
def test_what_our_kernel_finishes(dtype, out, e, finished):
    how = fused("f", e, dtype, matrix(out))
    assert how.finished == finished
    if not finished:
        assert how.out_dtype == (np.int32 if dtype == INT8 else np.float32)


def test_lines():
    lines = semi_structured.lines_of
    assert lines(matrix(HALF)) == Lines(True, 32) and lines(matrix(HALF, "F")) == Lines(False, 64)
    assert lines(matrix(HALF, shape=(3, 64, 32)).swapaxes(-1, -2)) == Lines(False, 32)
    assert lines(matrix(HALF)[:, :16]) == Lines(True, 32)
    assert lines(matrix(HALF)[:, 1:]) is None  # not at 16 bytes
    assert lines(matrix(HALF, shape=(64, 33))) is None  # lines of no whole 16 bytes
    assert lines(matrix(HALF)[:, ::2]) is None
