"""Configurations: their fields, what to measure, the search, the command, tuned calls."""

import json
import sys
from itertools import islice
from math import inf

import numpy as np
import pytest

import sparsegpu
from sparsegpu.__main__ import main
from sparsegpu.cli import tune as command
from sparsegpu.engines.cuda import candidates, winners
from sparsegpu.engines.cuda.paths._fields import MODEL, ConfigError
from sparsegpu.engines.cuda.runtime.compile import CompileError
from sparsegpu.engines.cuda.runtime.launch import LaunchError
from sparsegpu.engines.cuda.winners import Family, Kind, Snapshot, Winner
from sparsegpu.kernels import Config
from sparsegpu.kernels import winners as kernel_winners
from sparsegpu.tuning import progress
from sparsegpu.tuning.tune import search
from winner_cases import KIND, winner


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "tf32", "float32", "float64", "complex64"])
@pytest.mark.parametrize("blocksize", [(1, 1), (4, 4), (16, 16), (23, 23), (32, 64), (128, 128)])
@pytest.mark.parametrize("n", [1, 8, 64, 4096])
def test_neighbours_are_configurations(dtype, blocksize, n):
    for op in ("bsr_addmm", "dense_bsr_matmul"):
        for layout in ("rows", "columns"):
            kind = Kind(Family(op, "90", dtype, blocksize, layout), (4096, 4096, n), -7)
            found = candidates.paths(kind)
            assert found
            for path in found:
                first = candidates.start(kind, path)
                around = list(candidates.neighbours(kind, first))
                assert first not in around and len(around) <= 40
                for config in around:
                    assert candidates.start(kind, **config) == config


def test_a_field_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"config\['tile_n'\].*one of 64, 128, 256, got 100"):
        candidates.start(KIND, "wgmma", tile_n=100)
    with pytest.raises(ValueError, match=r"config\['stages'\].*one of 2, 3, 4, got 9"):
        candidates.start(KIND, "wgmma", stages=9)
    with pytest.raises(ValueError, match=r"config\['stages'\].*got True"):
        candidates.start(KIND, "wgmma", stages=True)
    with pytest.raises(
        ValueError, match=r"config\['warps'\].*the fields tile_n, stages, group_similar_rows"
    ):
        candidates.start(KIND, "wgmma", warps=4)
    with pytest.raises(ConfigError, match=r"config\['stages'\].*no field of this path"):
        candidates.start(KIND, "dense", stages=4)


def test_search_finds_the_fastest():
    best = {"path": "wgmma", "tile_n": 128, "stages": 3, "group_similar_rows": 0}
    told = []

    def measure(config):
        if config == MODEL:
            return 3.0
        distance = sum(config.get(name) != value for name, value in best.items())
        return 1.0 + distance / 2

    found = search(KIND, measure, lambda config, ms, why: told.append(repr(config)))
    assert found == Winner(KIND, best, 1.0, 3.0)
    assert len(told) == len(set(told)) <= 40


def test_what_fails_is_told_and_skipped():
    failures = {
        "dense": ConfigError("not\nthese"),
        "wgmma": CompileError("no"),
        "groups": CompileError("neither"),
        "mma": LaunchError(""),
    }
    told = {}

    def measure(config):
        if config == MODEL:
            return 1.0
        raise failures[config["path"]]

    found = search(KIND, measure, lambda config, ms, why: told.update({config["path"]: (ms, why)}))
    assert found == Winner(KIND, MODEL, 1.0, 1.0)
    assert told == {
        "model": (1.0, ""),
        "dense": (inf, "ConfigError: not"),
        "wgmma": (inf, "CompileError: no"),
        "groups": (inf, "CompileError: neither"),
        "mma": (inf, "LaunchError: "),
    }

    def broken(config):
        raise RuntimeError("the device is lost")

    with pytest.raises(RuntimeError, match="the device is lost"):
        search(KIND, broken, lambda *told: None)


def test_bar(capsys):
    pytest.importorskip("rich")
    bar = progress._rich()
    said = next(bar)
    said({"path": "mma", "stages": 3}, 0.25, "")
    said({"path": "wgmma"}, inf, "LaunchError: [too] much")
    assert list(bar) == []
    told = "".join(capsys.readouterr())
    assert "mma stages=3" in told and "wgmma (LaunchError: [too] much)" in told


def test_noise_is_no_winner():
    times = {"model": 1.0, "wgmma": 0.98, "groups": 1.5, "dense": 2.0, "mma": 3.0}
    found = search(KIND, lambda config: times[config["path"]], lambda *told: None)
    assert found == Winner(KIND, MODEL, 1.0, 1.0)


def test_ctrl_c_ends_a_search_that_keeps_nothing(winner_cache, capsys):
    measured = []

    def measure(config):
        measured.append(config)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt), progress.reporting(True) as report:
        search(KIND, measure, report)
    assert len(measured) == 3 and capsys.readouterr().err.count(" ms ") == 2
    assert winners.users_winners() == []


def test_ctrl_c_on_the_command_line_keeps_what_was_finished(winner_cache, capsys, monkeypatch):
    def tune(shape, **keywords):
        if shape[0] == 64:
            raise KeyboardInterrupt
        winners.keep(winner(stages=3))

    monkeypatch.setattr(command, "tune", tune)
    monkeypatch.setattr(command, "choose_library", lambda device: (None, "a test"))
    sizes = [word for m in ("32", "64", "96") for word in ("--shape", m, m, m)]
    assert main(["tune", *sizes]) == 130
    said = capsys.readouterr()
    assert "interrupted at 64 x 64 x 64" in said.err and "Traceback" not in said.err
    assert [w.config["stages"] for w in winners.users_winners()] == [3]
    assert "wgmma stages=3" in said.out, "what is kept is printed all the same"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--shape 100 96 8", "a block size that divides the shape (100, 96)"),
        ("--shape 96 96 8 --blocksize 5 5", "(96, 96)"),
        ("--op dense_bsr_matmul --shape 7 64 100", "(64, 100)"),
        ("--shape 0 32 32", "expected a positive integer, got '0'"),
        ("--shape 32 x 32", "'x'"),
        ("--blocksize 32 257", "expected an integer in 1..256, got '257'"),
        ("--density 1.5", "expected a number above 0 and at most 1, got '1.5'"),
        ("--dtype float8", "'float8'"),
    ],
)
def test_bad_input_is_refused_in_a_line_before_a_gpu_is_sought(words, said, capsys, monkeypatch):
    monkeypatch.setattr(command, "choose_library", None)
    try:
        status = main(["tune", *words.split()])
    except SystemExit as end:  # argparse shows the usage before its line
        status = end.code
    assert status == 2
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[-1] and "Traceback" not in lines[0]


def test_command(winner_cache, capsys):
    winners.keep(winner(stages=3))
    assert main(["tune", "--show"]) == 0
    printed = capsys.readouterr().out
    assert "bfloat16" in printed and "wgmma stages=3" in printed and " 2.00\n" in printed
    exported = winner_cache / "90.json"
    assert main(["tune", "--export", str(exported)]) == 0
    assert [Winner.from_dict(e) for e in json.loads(exported.read_text())] == [winner(stages=3)]
    winners.keep(Winner(KIND._replace(bucket=0), MODEL, 1.0, 1.0))
    assert main(["tune", "--export", str(exported)]) == 0
    assert len(json.loads(exported.read_text())) == 1
    assert f"1 of 2 configurations written to {exported}" in capsys.readouterr().out
    kernel_winners.keep(("text", "name"), Config(block=32))
    assert main(["tune", "--reset"]) == 0
    assert "3 forgotten" in capsys.readouterr().out
    assert main(["tune", "--show"]) == 0
    assert "nothing tuned yet" in capsys.readouterr().out


def test_winners_that_cannot_be_forgotten_are_one_line(winner_cache, capsys, monkeypatch):
    def fails():
        raise OSError(30, "Read-only file system", "winners")

    monkeypatch.setattr(command, "forget", fails)
    assert main(["tune", "--reset"]) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert told.out == "" and line.startswith("sparsegpu tune: ") and "Read-only" in line


def test_arguments(rng):
    a, x = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2)), np.ones((4, 3))
    assert sparsegpu.tune(a, x) == sparsegpu.tune(a, x.T, op="dense_bsr_matmul") == {}
    pair = np.ones((4, 5)), np.ones((5, 4))
    assert sparsegpu.tune(a, pair, op="sampled_addmm") == {}
    for wrong in (x, (x, x, x), None):
        with pytest.raises(TypeError, match=r"tune: argument '(dense': .*mat1, mat2|shape')"):
            sparsegpu.tune(a, wrong, op="sampled_addmm")
    with pytest.raises(TypeError, match=r"tune: argument 'bsr': .*sampled_addmm"):
        sparsegpu.tune(x, pair, op="sampled_addmm")
    with pytest.raises(TypeError, match="either operands or a shape"):
        sparsegpu.tune(a, x, shape=(4, 4, 3))
    with pytest.raises(TypeError, match="either operands or a shape"):
        sparsegpu.tune(a)
    with pytest.raises(ValueError, match="'op': expected one of"):
        sparsegpu.tune(a, x, op="matmul")
    with pytest.raises(ValueError, match="'out_dtype': expected None for op='bsr_addmm'"):
        sparsegpu.tune(a, x, out_dtype="float32")
    two_of_four = sparsegpu.to_semi_structured(np.zeros((32, 32), np.float16))
    x = np.ones((32, 3), np.float16)
    with pytest.raises(TypeError, match=r"'bsr': .*Array: op='semi_struct.*got Semi"):
        sparsegpu.tune(two_of_four, x)
    with pytest.raises(TypeError, match=r"'bsr': .*not searched\), got .* of backend 'native'"):
        sparsegpu.tune(two_of_four, x, op="semi_structured_addmm")


@pytest.mark.parametrize("op", ["bsr_addmm", "sampled_addmm", "scaled_dot_product_attention"])
def test_sizes_in_place_of_operands(op, monkeypatch):
    sizes = {"op": op, "shape": (64, 64, 64), "blocksize": (16, 16)}
    for wrong, error, words in (
        ({"shape": (64, 64)}, TypeError, r"'shape': expected \(M, K, N\), got \(64, 64\)"),
        ({"shape": (64, -64, 64)}, ValueError, r"'shape': expected \(M, K, N\), none negative"),
        ({"blocksize": None}, TypeError, "'blocksize': expected a block size"),
        ({"blocksize": (0, 16)}, ValueError, r"'blocksize': expected both in 1\.\.256"),
        ({"dtype": "none"}, TypeError, "'dtype': expected a dtype or the name of one"),
        ({"density": 2}, ValueError, r"'density': expected a number in 0\.\.1, got 2"),
    ):
        with pytest.raises(error, match=f"^tune: argument {words}"):
            sparsegpu.tune(**(sizes | wrong))
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match=r"^tune: a CUDA device is asked for"):
        sparsegpu.tune(**sizes)


@pytest.fixture
def tuned(winner_cache, monkeypatch):
    """Let every product find one configuration."""

    def find(config):
        monkeypatch.setattr(Snapshot, "config", lambda self, kind: config)
        monkeypatch.setattr(winners, "generation", winners.generation + 1)
        monkeypatch.setattr(winners, "_snapshot", Snapshot([winner()]))

    return find


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["bsr_addmm", "dense_bsr_matmul"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tuned_calls(cuda_engine, winner_cache, monkeypatch, rng, op, dtype):
    # Every configuration is a kernel to compile: of each path's start one neighbour.
    around = candidates.neighbours
    monkeypatch.setattr(candidates, "neighbours", lambda *of: islice(around(*of), 1))
    a = sparsegpu.random_bsr((256, 256), (32, 32), 0.3, dtype=dtype, rng=rng, xp=cuda_engine.xp)
    x = cuda_engine.array(rng.integers(-3, 4, (256, 256)).astype(dtype))
    config = sparsegpu.tune(a, x, op=op, progress=False)
    (kept,) = winners.users_winners()
    assert kept.config == config and kept.kind in winners.snapshot().winners
    operands = (a, x) if op == "bsr_addmm" else (x, a)
    product = sparsegpu.bsr_matmul if op == "bsr_addmm" else sparsegpu.dense_bsr_matmul
    explicit = product(*operands, config=config)
    assert (explicit == product(*operands)).all()
    assert (explicit == operands[0] @ operands[1]).all()


@pytest.mark.gpu
def test_a_tuned_path_of_sampled_products_is_taken_where_it_serves(cuda_engine, tuned, rng):
    how = {"rng": rng, "xp": cuda_engine.xp}
    for dtype, source in (("float16", "_sm80"), ("float64", "_f64")):
        a = sparsegpu.random_bsr((64, 64), (16, 16), 0.5, dtype=dtype, **how)
        pair = [cuda_engine.array(rng.integers(-3, 4, (64, 64)).astype(dtype)) for _ in "ab"]
        tuned({"path": "mma"})
        with cuda_engine.runs("bsr_sampled_addmm" + source):
            sparsegpu.sampled_addmm(a, *pair)


@pytest.mark.gpu
def test_a_winner_is_used_at_once_and_once_looked_up(cuda_engine, tuned, rng):
    a = sparsegpu.random_bsr((128, 128), (32, 32), 0.5, dtype="float16", rng=rng, xp=cuda_engine.xp)
    x = cuda_engine.array(rng.integers(-3, 4, (128, 256)).astype("float16"))
    out = cuda_engine.xp.empty((128, 256), "float16")
    for path, source in (("simt", "bsr_addmm_simt"), ("mma", "bsr_addmm_sm80")):
        tuned({"path": path})
        for _ in range(2):
            with cuda_engine.runs(source):
                sparsegpu.bsr_matmul(a, x, out=out)
    with cuda_engine.runs("bsr_addmm_simt"):
        sparsegpu.bsr_matmul(a, x, out=out, config={"path": "simt"})
    tuned({"path": "simt"})
    model = sparsegpu.bsr_matmul(a, x, config=MODEL)
    tuned(None)
    assert (sparsegpu.bsr_matmul(a, x) == model).all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "config",
    [
        {"path": "dense"},  # an epilogue that cuBLAS has not got
        {"path": "wgmma", "tile_n": 256, "stages": 9},  # shared memory
        {"path": "skinny", "tile_m": 16},  # columns
        {"path": "vector", "unroll": 2},  # blocks
        {"path": "mma", "warps_m": 8, "warps_n": 8},  # divisibility
        {"path": "fma"},  # dtype
    ],
)
def test_a_winner_that_the_operands_refuse(cuda_engine, tuned, rng, config):
    """Such a product is computed as the model says; asked for outright, it is an error."""
    xp = cuda_engine.xp
    a = sparsegpu.random_bsr((96, 96), (24, 24), 0.5, dtype="float16", rng=rng, xp=xp)
    x = xp.asarray(rng.integers(-3, 4, (97, 201)).astype("float16"))[1:, 1:]  # not aligned
    tuned(None)
    expected = sparsegpu.bsr_matmul(a, x, activation="relu")
    tuned(config)
    assert (sparsegpu.bsr_matmul(a, x, activation="relu") == expected).all()
    with pytest.raises(ConfigError, match="config"):
        sparsegpu.bsr_matmul(a, x, activation="relu", config=config)


@pytest.mark.gpu
def test_too_much_shared_memory_is_a_launch_error(cuda_engine):
    from sparsegpu.engines.cuda.runtime.launch import kernel

    with pytest.raises(LaunchError, match="'bsr_gather' does not launch with 1048576 bytes"):
        kernel("bsr_gather", T="f16", INDEX="s32").prepared(1 << 20)
