"""`tune` of attention, sampled and scattered products and sparse @ sparse."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from attention_cases import Case
from sparsegpu.engines.cuda import candidates, winners
from sparsegpu.engines.cuda.paths._fields import MODEL
from sparsegpu.engines.cuda.winners import Family, Kind, Snapshot, Winner
from sparsegpu.testing import assert_attention_close, random_values
from tools.emulator.attention import emulated_attention
from tools.emulator.operations import emulated_scatter_mm

HOST = SimpleNamespace(xp=np, array=np.asarray)


def neighbours_of(kind, path):
    """Return how many configurations around the first one of a path are measured."""
    first = candidates.start(kind, path)
    around = list(candidates.neighbours(kind, first))
    assert first not in around
    for config in around:
        assert candidates.start(kind, **config) == config
    return len(around)


@pytest.fixture
def lookups(monkeypatch):
    """Winners that are ``config``, whatever the kind; ``kinds`` were asked for."""
    asked = SimpleNamespace(config=None, kinds=set())
    any_kind = Kind(Family("bsr_addmm", "90", "bfloat16", (32, 32), "rows"), (64, 64, 64), 0)
    known = Snapshot([Winner(any_kind, MODEL, 1.0, 1.0)])  # without one, nothing is looked up
    monkeypatch.setattr(winners, "_snapshot", known)
    monkeypatch.setattr(Snapshot, "config", lambda _, kind: asked.kinds.add(kind) or asked.config)
    return asked


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("blocksize", [(16, 16), (20, 12), (64, 64), (128, 128), (1, 64)])
@pytest.mark.parametrize(
    "layout", ["64x64x1 bool folded", "256x96x1 bool", "128x128x4 float32 softcap"]
)
def test_neighbours_of_attention(dtype, blocksize, layout):
    family = Family("scaled_dot_product_attention", "90", dtype, blocksize, layout)
    kind = Kind(family, (65536, 4096, 64), -7)
    found = candidates.paths(kind)
    halves = dtype != "float32"
    assert found[-1] == "simt" and ("mma" in found) == (halves and blocksize != (1, 64))
    assert ("wgmma" in found) == (halves and min(blocksize) >= 16)
    for path in found:
        assert (neighbours_of(kind, path) > 0) == (path != "simt")


def test_attention_s_winner_is_taken_and_one_that_does_not_serve_is_not(
    winner_cache, directory, lookups, rng
):
    pytest.importorskip("cupy")
    case = Case(
        rng, dtype="bfloat16", lengths=(64, 64), blocksize=(16, 16), widths=(32, 32), heads=(2, 1)
    )
    query, key, value, mask = case.on(HOST)
    for config, kernel in (
        ({"path": "mma", "tile_k": 32}, "bsr_attention_sm80"),
        ({"path": "mma", "tile_k": 512}, "bsr_attention_sm90"),
        ({"path": "gone"}, "bsr_attention_sm90"),
        (None, "bsr_attention_sm90"),
    ):
        lookups.config = config
        with emulated_attention(directory) as launched:
            out = sparsegpu.scaled_dot_product_attention(query, key, value, mask)
        assert launched[kernel] == 1
        assert_attention_close(out, case.expected()[0])
    (kind,) = lookups.kinds
    assert kind.shape == (128, 64, 32)
    assert kind.family.layout == "32x32x2 bool folded" and kind.family.dtype == "bfloat16"


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "tf32", "float32", "complex64"])
@pytest.mark.parametrize("blocksize", [(1, 1), (16, 16), (23, 23), (32, 64), (128, 128)])
def test_neighbours_of_sampled_products(dtype, blocksize):
    tensor_cores = dtype in {"bfloat16", "int8", "tf32"} and min(blocksize) >= 8
    for layout in ("along across", "strided along"):
        family = Family("sampled_addmm", "90", dtype, blocksize, layout)
        kind = Kind(family, (4096, 1024, 4096), -7)
        found = candidates.paths(kind)
        assert found[-1] == "simt" and ("mma" in found) == tensor_cores
        for path in found:
            assert 1 < neighbours_of(kind, path) <= 40


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32", "float64", "complex64"])
@pytest.mark.parametrize("blocksize", [(1, 1), (16, 16), (23, 20), (64, 64), (256, 64)])
@pytest.mark.parametrize("form", ["pairs", "strided", "compressed"])
def test_neighbours_of_scattered_products(dtype, blocksize, form):
    family = Family("scatter_mm", "90", dtype, blocksize, form)
    kind = Kind(family, (65536, 512, 64), 0)
    found = candidates.paths(kind)
    halves = dtype == "bfloat16" and blocksize[1] % 8 == 0
    on_hopper = ("wgmma",) if halves and blocksize[1] % 64 == 0 else ()
    bytes_of_row = {"bfloat16": 2, "int8": 1}.get(dtype, 0) * blocksize[1]
    tensor_cores = min(blocksize) >= 16 and bytes_of_row > 0 and bytes_of_row % 16 == 0
    tiled = ("mma",) if tensor_cores else ()
    if dtype.startswith("float") and min(blocksize) >= 8:
        tiled = ("fma",) if dtype == "float32" else ("mma_f64",)
    assert found == (*on_hopper, *tiled, "simt")
    earlier = candidates.paths(kind._replace(family=family._replace(arch="80")))
    assert earlier == found[len(on_hopper) :]
    for path in found:
        assert 1 < neighbours_of(kind, path) <= 12


def test_scatter_mm_s_winner_is_taken_and_one_that_does_not_serve_is_not(
    winner_cache, directory, lookups, rng
):
    a = sparsegpu.random_bsr((64, 48), (16, 16), 0.5, dtype="bfloat16", rng=rng)
    a.data[...] = random_values(rng, a.data.shape, "bfloat16", small_integers=True)
    x = random_values(rng, (2, 48, 32), "bfloat16", small_integers=True)
    lists = sparsegpu.bsr_scatter_mm_indices_data(a, x, SPLIT_N=2)
    for config, source in (
        ({"path": "mma", "stages": 2}, "scatter_mm_sm80"),
        ({"path": "simt"}, "scatter_mm_simt"),
        ({"path": "mma", "tile_m": 512}, "scatter_mm_sm80"),
        ({"path": "gone"}, "scatter_mm_sm80"),
        (None, "scatter_mm_sm80"),
    ):
        lookups.config = config
        with emulated_scatter_mm(directory) as launched:
            out = sparsegpu.scatter_mm(a.data, x, lists)
        assert launched == {source: 1}
        assert (out == a.toarray().astype("f4") @ x.astype("f4")).all()
    (kind,) = lookups.kinds
    rows = len(np.unique(a.pattern.rows))
    assert kind.shape == (2 * 2 * rows * 16, -(-a.nnzb // rows) * 16, 16)
    assert kind.family.layout == "compressed" and kind.family.blocksize == (16, 16)


def test_arguments_of_scattered_products():
    a, x = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2)), np.ones((4, 3))
    lists = sparsegpu.bsr_scatter_mm_indices_data(a, x, "scatter_mm")
    assert sparsegpu.tune(a, x, op="scatter_mm") == {}
    assert sparsegpu.tune(a, (x.reshape(2, 2, 3), lists), op="scatter_mm") == {}
    with pytest.raises(TypeError, match="'bsr': expected a bsr_array for op='scatter_mm'"):
        sparsegpu.tune(a.data, x, op="scatter_mm")
    for wrong in ((x,), (x, (*lists,))):
        with pytest.raises(TypeError, match=r"'dense': .*lists of bsr_scatter_mm_indices_data"):
            sparsegpu.tune(a, wrong, op="scatter_mm")


def test_arguments_of_attention(rng):
    op = "scaled_dot_product_attention"
    case = Case(rng, heads=(2, 1))
    query, key, value, mask = case.on(HOST)
    for given in (mask, sparsegpu.BlockMask.from_bsr(mask)):
        assert sparsegpu.tune(given, (query, key, value), op=op) == {}
    with pytest.raises(TypeError, match=r"'dense': expected \(query, key, value\)"):
        sparsegpu.tune(mask, query, op=op)
    with pytest.raises(TypeError, match="tune: argument 'bsr': expected a bsr_array"):
        sparsegpu.tune(query, (query, key, value), op=op)
    with pytest.raises(TypeError, match="either operands or a shape"):
        sparsegpu.tune(mask, op=op)
    with pytest.raises(TypeError, match="tune: argument 'blocksize'"):
        sparsegpu.tune(shape=(64, 64, 32), op=op)
    with pytest.raises(ValueError, match="argument 'value'"):
        sparsegpu.tune(mask, (query, key[:, 1:], value), op=op)


@pytest.mark.gpu
def test_tuned_attention(cuda_engine, winner_cache, monkeypatch, rng):
    around = candidates.neighbours
    monkeypatch.setattr(candidates, "neighbours", lambda *of: islice(around(*of), 1))
    case = Case(
        rng, dtype="bfloat16", lengths=(256, 256), blocksize=(64, 64), widths=(64, 64), heads=(4, 2)
    )
    *operands, mask = case.on(cuda_engine)
    config = sparsegpu.tune(mask, operands, op="scaled_dot_product_attention", progress=False)
    (kept,) = winners.users_winners()
    assert kept.config == config
    attend = sparsegpu.scaled_dot_product_attention
    assert (attend(*operands, mask, config=config) == attend(*operands, mask)).all()
    sparsegpu.tune(
        shape=(256, 256, 32),
        blocksize=(32, 32),
        density=0.5,
        op="scaled_dot_product_attention",
        progress=False,
    )
    assert len(winners.users_winners()) == 2


@pytest.mark.parametrize("blocksize", [(1, 1), (3, 3), (8, 8), (16, 16), (64, 32)])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float64"])
def test_configurations_of_sparse_products(dtype, blocksize):
    family = Family("bsr_spgemm", "90", dtype, blocksize, str(blocksize[1]))
    kind = Kind(family, (4096, 4096, 4096), -7)
    found = candidates.paths(kind)
    assert found[-1] == "simt"
    assert ("small" in found) == (blocksize[0] <= 8)
    smallest = {"bfloat16": 8, "int8": 16}.get(dtype, 99)
    assert ("mma" in found) == (blocksize[0] >= smallest)
    assert ("mma_f64_tiled" in found) == (blocksize[0] >= 8 and dtype == "float64")
    for path in found:
        first = candidates.start(kind, path)
        assert all(
            candidates.start(kind, **config) == config != first
            for config in candidates.neighbours(kind, first)
        )


def test_arguments_of_sparse_products():
    a = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    assert sparsegpu.tune(a, a, op="bsr_spgemm") == {}
    with pytest.raises(TypeError, match="'dense': expected a bsr_array for op='bsr_spgemm'"):
        sparsegpu.tune(a, np.eye(4), op="bsr_spgemm")


@pytest.mark.gpu
def test_tuned_sparse_products(cuda_engine, winner_cache, monkeypatch, rng):
    around = candidates.neighbours
    monkeypatch.setattr(candidates, "neighbours", lambda *of: islice(around(*of), 1))
    for dtype in ("float16", "float64"):
        a, b = (
            sparsegpu.random_bsr((96, 96), (8, 8), 0.3, dtype=dtype, rng=rng, xp=cuda_engine.xp)
            for _ in range(2)
        )
        config = sparsegpu.tune(a, b, op="bsr_spgemm", progress=False)
        kept = [w for w in winners.users_winners() if w.kind.family.dtype == dtype]
        assert [w.config for w in kept] == [config]
        explicit = sparsegpu.bsr_spgemm(a, b, config=config)
        assert (explicit.data == sparsegpu.bsr_spgemm(a, b).data).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed"])
def test_tuned_scattered_products(cuda_engine, winner_cache, monkeypatch, rng, name):
    around = candidates.neighbours
    monkeypatch.setattr(candidates, "neighbours", lambda *of: islice(around(*of), 1))
    a = sparsegpu.random_bsr((96, 96), (16, 16), 0.3, dtype="float16", rng=rng, xp=cuda_engine.xp)
    x = cuda_engine.array(rng.integers(-3, 4, (96, 64)).astype("float16"))
    lists = sparsegpu.bsr_scatter_mm_indices_data(a, x, name, SPLIT_N=1)
    others = x.reshape(6, 16, 64) if name == "scatter_mm" else x
    config = sparsegpu.tune(a, (others, lists), op="scatter_mm", progress=False)
    (kept,) = winners.users_winners()
    assert kept.config == config and kept.kind in winners.snapshot().winners
    explicit = sparsegpu.scatter_mm(a.data, others, lists, config=config)
    assert (explicit == sparsegpu.scatter_mm(a.data, others, lists)).all()


@pytest.mark.gpu
def test_tuned_sampled_products(cuda_engine, winner_cache, monkeypatch, rng):
    around = candidates.neighbours
    monkeypatch.setattr(candidates, "neighbours", lambda *of: islice(around(*of), 1))
    how = {"dtype": "float16", "rng": rng, "xp": cuda_engine.xp}
    a = sparsegpu.random_bsr((256, 256), (32, 32), 0.3, **how)
    pair = [cuda_engine.array(rng.integers(-3, 4, (256, 256)).astype("float16")) for _ in "ab"]
    config = sparsegpu.tune(a, pair, op="sampled_addmm", progress=False)
    (kept,) = winners.users_winners()
    assert kept.config == config and kept.kind in winners.snapshot().winners
    explicit = sparsegpu.sampled_addmm(a, *pair, beta=0, config=config)
    assert (explicit.data == sparsegpu.sampled_addmm(a, *pair, beta=0).data).all()
