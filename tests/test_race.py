"""The benchmark without a GPU: cases, bars, verdicts, checks."""

from dataclasses import replace

import numpy as np
import pytest

import sparsegpu
from race_rows import COPY_GBS, judged, row
from sparsegpu.benchmark import (
    bars,
    cases,
    formats,
    measure,
    report,
    torch_attention_peer,
    torch_peer,
)
from sparsegpu.benchmark.case import Case
from sparsegpu.benchmark.cases_attention import tile_on_hopper
from sparsegpu.benchmark.peer import (
    CSR,
    DENSE,
    PEERS,
    SDDMM_BSR,
    SDDMM_CSR,
    SPGEMM,
    TORCH,
    TORCH_BMM,
    TORCH_LISTS,
    TORCH_PAIRS,
    NotAvailableError,
    Prepared,
)
from sparsegpu.benchmark.workload import make_product
from sparsegpu.cli.table import aligned
from sparsegpu.engines.cuda.paths._dispatch import check_config

# -- cases ----------------------------------------------------------------------------------


def test_names_are_unique_and_every_reference_exists():
    every = cases.cases()
    names = [case.name for case in every]
    assert len(set(names)) == len(names)
    referred = {name for case in every for name in case.rates_of}
    assert referred <= set(names)
    named = dict(zip(names, every, strict=True))
    for case in every:
        for bar in (*case.bars, *case.goals):
            if bar.kind == "case rate":  # timed alternately
                assert case.measure == named[bar.of].measure == "device"
                assert case.flush == named[bar.of].flush
        peers = named[case.peers_of or case.name].peers
        compared = (*case.bars, *case.goals)
        assert {bar.of for bar in compared if bar.kind.startswith("peer")} <= set(peers) <= {*PEERS}


#: By public name the operation of the cases that measure it, where that is another word.
OPERATION = {
    **dict.fromkeys(("bsr_addmm", "bsr_matmul", "dense_bsr_matmul", "int_bsr_addmm"), "bsr"),
    **dict.fromkeys(("semi_structured_addmm", "semi_structured_matmul", "scaled_mm"), "2:4"),
    **dict.fromkeys(("bsr_linear", "semi_structured_linear"), "bsr"),  # the transpose of a product
    **dict.fromkeys(("sliding_window", "banded", "prefix"), "sliding window mask"),
    **{name: f"{name} mask" for name in ("causal", "documents", "bigbird")},
    **dict.fromkeys(("vstack", "hstack", "block_array", "block_diag", "diags"), "from_blocks"),
    **{"triu": "tril", "amg": "cg with amg", "bsr_scatter_mm_indices_data": "bsr"},
    "from_indices": "mask of indices",
    "top_k": "mask of top k",
    "scaled_dot_product_attention_backward": "attention gradients",
    "semi_structured_from_dense": "compress",
    "to_semi_structured": "compress",
    "semi_structured_to_dense": "expand",
    "semi_structured_tile": "tile",
    "semi_structured_apply": "apply",
    "semi_structured_apply_dense": "apply_dense",
    "check_meta": "from_cusparselt_layout",  # which does it
}
#: What does no work on a device, or serves to look and to test.
NO_WORK = {
    *("__version__", "kernels", "linalg", "masks", "testing", "is_supported", "tune", "use_engine"),
    *("AttentionGradients", "BlockMask", "BsrSemiStructuredArray", "SemiStructuredArray"),
    *("load_npz", "save_npz", "load_safetensors", "save_safetensors"),
    *("describe_meta", "meta_reorder_offsets", "aslinearoperator"),
    *("random_bsr", "eye", "identity"),
}


def test_every_operation_of_the_library_has_a_row():
    offered = {*sparsegpu.__all__, *sparsegpu.masks.__all__, *sparsegpu.linalg.__all__}
    measured = {case.operation for case in cases.cases()}
    named = {name: OPERATION.get(name, name) for name in offered - NO_WORK}
    assert {name for name, operation in named.items() if operation not in measured} == set()
    assert OPERATION.keys() <= offered and offered >= NO_WORK


def test_a_section_brings_the_cases_whose_peers_it_uses_and_no_others():
    assert {case.section for case in cases.cases(["8.0 path"])} == {"main", "8.0 path"}
    for section in set(cases.SECTIONS) - {"8.0 path"}:
        assert {case.section for case in cases.cases([section])} == {section}


def test_the_bars_of_the_main_section():
    of = {(case.block[0], case.density): case.bars for case in cases.cases(["main"])}
    assert len(of) == 12
    assert of[64, 0.1] == (bars.Bar("TF", 420), bars.Bar("peer time", 1.05, DENSE))
    assert len(cases.cases(cases.QUICK)) == 16


def test_the_bars_of_2_4():
    mine = {"2:4", *formats.FORMATS}
    every = [c for c in cases.cases(["2:4", "2:4 formats"]) if c.operation in mine]
    large = [case for case in every if len(case.bars) == 2 and not case.flush]
    assert len(large) == 20 and all(bar.kind == "peer time" for c in large for bar in c.bars)
    ahead = {case.dtype: round(1 / case.bars[0].value, 2) for case in large}
    assert ahead == {"bfloat16": 1.12, "float16": 1.12, "int8": 1.08, "float8_e4m3fn": 1.08}
    absolute = {(c.operation, c.size[2]): b.value for c in every for b in c.bars if b.kind == "ms"}
    assert absolute == {
        ("2:4", 128): 0.026,
        ("2:4", 64): 0.026,
        ("2:4", 16): 0.026,
        ("2:4", 1024): 0.015,
        ("compress", 16384): 0.26,
        ("expand", 16384): 0.26,
        ("prune_24", 16384): 0.33,
        ("prune_tile", 16384): 0.36,
        ("tile", 16384): 0.36,
    }
    assert {case.operation for case in every} == mine


def test_what_is_beside_sampled_products_pairs_lists_and_sparse_products():
    def beside(section, peer):
        return {(c.dtype, c.block[0]) for c in cases.cases([section]) if peer in c.peers}

    blocks = {("bfloat16", 64), ("float16", 64), ("float32", 64), ("float32", 16)}
    assert beside("sampled", SDDMM_CSR) == beside("sampled", SDDMM_BSR) == blocks
    assert beside("scatter", TORCH_PAIRS) == beside("scatter", TORCH_BMM) == {("bfloat16", 64)}
    assert beside("scatter", TORCH_LISTS) == {("bfloat16", 16)}
    assert beside("spgemm", SPGEMM) == {("float32", 32), *(("float64", b) for b in (3, 4, 8))}
    assert beside("spgemm", DENSE) == {("float32", 32), ("float64", 16)}


def test_a_goal_of_sparse_products_is_half_the_rate_of_a_product_with_a_dense_matrix():
    named = {case.name: case for case in cases.cases(["spgemm"])}
    held = [case for case in named.values() if case.rates_of]
    assert [(c.dtype, c.block) for c in held] == [("float32", (32, 32)), ("float64", (16, 16))]
    for case in held:
        ((goal,), (name,)) = case.goals, case.rates_of
        dense = named[name]
        assert goal.value == 0.5 and not case.bars and dense.operation == "bsr"
        assert replace(dense, operation=case.operation, peers=(DENSE,)) == case


def test_a_path_of_its_own_is_held_against_the_main_cases_peers():
    chosen = cases.cases(["8.0 path"])
    main, portable = chosen[:12], chosen[12:]
    assert {case.section for case in main} == {"main"} and len(portable) == 12
    assert [case.peers_of for case in portable] == [case.name for case in main]
    for of_path, plain in zip(portable, main, strict=True):
        same = replace(of_path, section="main", path="", peers=plain.peers, peers_of="")
        assert same == plain


def test_variants_of_attention_are_configurations_beside_the_same_peers():
    chosen = cases.cases(["attention"])
    named = {case.name: case for case in chosen}
    variants = [case for case in chosen if case.path]
    assert {case.path for case in variants} == {"mma", "wgmma", "decode", "fma", "mma_f64", "simt"}
    for case in variants:
        plain = named[case.peers_of]
        assert replace(plain, path=case.path, fields=case.fields, peers=(), bars=()) == replace(
            case, peers_of=""
        )
        check_config("scaled_dot_product_attention", case.config["config"], "race")


@pytest.mark.parametrize("section", ["attention", "gradients"])
def test_no_tile_of_attention_is_measured_twice(section):
    tiles: dict[str, list] = {}
    for case in cases.cases([section]):
        path, _ = tile = tile_on_hopper(case)
        assert path == (case.path or path)
        known = tiles.setdefault(case.peers_of or case.name, [])
        assert tile not in known
        known.append(tile)
    paths = {path for known in tiles.values() for path, _ in known}
    assert "mma" in paths and "simt" in paths
    defaults = {tile_on_hopper(case)[0] for case in cases.cases([section]) if not case.path}
    of_both = {"wgmma", "mma", "fma"}
    assert defaults == of_both | ({"decode", "mma_f64"} if section == "attention" else set())


@pytest.mark.parametrize(
    ("section", "plain"),
    [("attention", "simt path"), ("gradients", "simt path"), ("scatter", "tiles")],
)
def test_a_family_has_one_row_of_its_plain_path(section, plain):
    assert sum(case.name.endswith(plain) for case in cases.cases([section])) == 1


# -- bars and verdicts ----------------------------------------------------------------------


SQUARE = Case("main", (64, 64), 0.1, (8192, 8192, 8192))


@pytest.mark.parametrize(
    ("bar", "found", "limit"),
    [
        (bars.Bar("ms", 0.05), {}, 0.05),
        (bars.Bar("TF", 100), {"flops": 10**12}, 10.0),
        (bars.Bar("peer time", 1.05, DENSE), {"peers": {DENSE: 2.0}}, 2.1),
        (bars.Bar("peer plus", 2, DENSE), {"peers": {DENSE: 0.006}}, 0.008),
        (bars.Bar("peer plus", 2, DENSE), {}, None),
        (bars.Bar("peer time", 1.0, CSR), {"peers": {CSR: "missing"}}, None),
        # A dense product of 2 ms does ten times the work of density 0.1.
        (bars.Bar("peer rate", 0.8, DENSE), {"peers": {DENSE: 2.0}, "density": 0.1}, 0.25),
        (bars.Bar("peer or TF", 100, TORCH), {"peers": {TORCH: 2.0}}, 2.0),
        (bars.Bar("peer or TF", 100, TORCH), {"flops": 10**12}, 10.0),
        (bars.Bar("copy bandwidth", 0.5), {"bytes": 4 * 10**9}, 2.0),
        (bars.Bar("reading", 1.35), {"reading_ms": 2.0}, 2.7),
    ],
    ids=lambda value: value.kind if isinstance(value, bars.Bar) else "",
)
def test_limits(bar, found, limit):
    got = bar.limit_ms(row(SQUARE, 1.0, **found), {}, COPY_GBS)
    assert got == (limit if limit is None else pytest.approx(limit, rel=2**-51))
    assert str(bar.value) in bar.text() or f"{bar.value:g}" in bar.text()


def test_a_bar_relative_to_another_case_compares_rates():
    bar = bars.Bar("case rate", 0.5, SQUARE.name)
    mine = row(replace(SQUARE, dtype="int8"), 1.0, at_rate_of={SQUARE.name: 6.0})
    assert bar.limit_ms(mine, {}, COPY_GBS) == 12.0


@pytest.mark.parametrize(
    ("ms", "found", "verdict"),
    [
        (0.1, {}, "met"),
        (9.0, {}, "short"),
        (0.1, {"same_bits": False}, "wrong"),
        (0.1, {"error": "1 of 4 elements outside the bound"}, "wrong"),
    ],
)
def test_verdicts(ms, found, verdict):
    case = replace(SQUARE, bars=(bars.Bar("ms", 0.2), bars.Bar("TF", 0.001)))
    (result,) = judged([case], [row(case, ms, **found)])
    assert result["verdict"] == verdict
    assert [bar["met"] for bar in result["bars"]] == [ms <= 0.2, True]


def test_a_goal_is_shown_and_decides_nothing():
    goals = (bars.Bar("TF", 10**6), bars.Bar("peer time", 1.0, CSR))
    case = replace(SQUARE, bars=(bars.Bar("ms", 0.2),), goals=goals)
    (result,) = judged([case], [row(case, 0.1, flops=10**10)])
    assert result["verdict"] == "met" and [bar["met"] for bar in result["bars"]] == [True]
    assert result["goals"] == [{"bar": "1e+06 TF", "limit ms": 1e-5, "met": False}]
    assert report.table_rows([result])[0]["bar"] == "50, goal 1000000"
    assert report.summary([result]) == "1 of 1 rows meet all their bars, 1 of 1 bars are met"
    (alone,) = judged([replace(case, bars=())], [row(case, 0.1)])
    assert alone["verdict"] == ""
    del result["goals"]  # as an older record has it
    assert report.table_rows([result])[0]["bar"] == "50"


def test_best_peer_and_ratio_pass_over_what_is_missing():
    peers = {DENSE: 3.0, TORCH: 2.0, CSR: "missing"}
    (result,) = judged([SQUARE], [row(SQUARE, 0.5, peers=peers)])
    assert (result["best peer"], result["ratio"], result["verdict"]) == (TORCH, 4.0, "")
    (alone,) = judged([SQUARE], [row(SQUARE, 0.5)])
    assert (alone["best peer"], alone["ratio"]) == ("", None)


def test_table_and_summary():
    case = replace(SQUARE, bars=(bars.Bar("TF", 420),))
    short = replace(case, density=0.5)
    rows = judged(
        [case, short],
        [row(case, 0.1, peers={DENSE: 1.25, TORCH: "missing"}), row(short, 10.0)],
    )
    first, second = report.table_rows(rows)
    assert first["bar"] == "420" and first["verdict"] == "met" and first["x faster"] == "12.50"
    assert first["peers, ms"] == "cuBLAS dense 1.25; torch BSR, tuned: missing"
    assert second["verdict"] == "short" and second["best peer"] == ""
    assert report.summary(rows) == "1 of 2 rows meet all their bars, 1 of 2 bars are met"
    text = aligned(report.table_rows(rows))
    assert len(text) == 3 and text[0].startswith("case ")
    assert text[1].index("met") == text[2].index("short")


def test_a_table_has_no_exponents():
    case = replace(SQUARE, measure="whole call", bars=(bars.Bar("ms", 60.0),))
    (line,) = report.table_rows(judged([case], [row(case, 38.47, peers={DENSE: 20730.0})]))
    assert (line["ours, ms"], line["ours"], line["bar"]) == ("38.47", "38470 us", "60000")
    assert line["peers, ms"] == "cuBLAS dense 20730"


def test_rows_and_bars_are_counted_apart():
    case = replace(SQUARE, bars=(bars.Bar("TF", 420), bars.Bar("peer time", 1.05, DENSE)))
    others = [replace(case, density=density) for density in (0.5, 0.4, 0.3, 0.2)]
    others[1] = replace(others[1], bars=())
    wrong = row(others[2], 0.1, peers={DENSE: 1.25}, same_bits=False)
    rows = judged(
        [case, *others],
        [
            row(case, 0.1, peers={DENSE: 1.25}),  # both
            row(others[0], 10.0, peers={DENSE: 10.0}),  # the second only
            row(others[1], 10.0),  # none to meet
            wrong,
            row(others[3], 10.0, peers={DENSE: "missing"}),  # the first is left, and missed
        ],
    )
    said = "1 of 3 rows meet all their bars, 3 of 5 bars are met, 1 rows WRONG"
    assert report.summary(rows) == said


def test_units():
    host = replace(SQUARE, measure="host")
    vector = replace(SQUARE, flush=True)
    assert report.unit(row(SQUARE, 1.0)) == "TF"
    assert report.rate(row(host, 0.015), 0.015) == 15
    assert report.rate(row(vector, 2.0, bytes=4 * 10**9), 2.0) == 2000


# -- a row --------------------------------------------------------------------------------


def test_what_a_bar_refers_to_is_timed_alternately(monkeypatch):
    timed, repetitions = [], []

    def interleaved_ms(calls, flush, repeats):
        repetitions.append(repeats)
        timed.append(list(calls))
        return {name: float(i) for i, name in enumerate(calls)}

    def prepare(peer, product, tuning_s):
        return Prepared(product.call, None, "tuned")

    small = replace(SQUARE, size=(256, 256, 64), peers=(DENSE, TORCH))
    other = replace(small, dtype="float16", size=(256, 256, 32))
    monkeypatch.setattr(measure, "make_workload", lambda case: make_product(case, np))
    monkeypatch.setattr(measure, "prepare", prepare)
    monkeypatch.setattr(measure.timing, "interleaved_ms", interleaved_ms)
    monkeypatch.setattr(measure.timing, "whole_us", lambda call: 1e5)
    found = measure.measure_case(small, others=[other], peers=(DENSE,))
    assert timed == [["sparsegpu", DENSE, other.name]]
    assert repetitions == [10]  # fewer than of a quick call
    # The other does half the work in 2 ms.
    assert (found.ms, found.peers, found.at_rate_of) == (0.0, {DENSE: 1.0}, {other.name: 4.0})


# -- the search of torch's parameters ---------------------------------------------------------


def test_search_walks_to_the_best_and_keeps_to_its_time():
    start = torch_peer.Meta(128, 4, 3, 4)

    def time_of(meta):
        return abs(meta.tile_n - 256) + abs(meta.stages - 5) + abs(meta.warps - 2) + meta.group

    best, ms, tried = torch_peer.search(time_of, start, 8192, 60.0)
    assert best == torch_peer.Meta(256, 1, 5, 2) and ms == 1 and tried < 60
    assert torch_peer.search(time_of, start, 8192, 0.0)[0] == start


def test_candidates_divide_the_columns():
    start = torch_peer.first_guess((64, 64), 48, "bfloat16")
    assert start.tile_n == 16
    assert {m.tile_n for m in torch_peer.neighbours(start, 48)} == {16}
    assert torch_peer.Meta(128, 1, 2, 4).keywords(8192)["SPLIT_N"] == 64


def test_a_search_that_compiles_ends_with_its_time_but_not_before_a_tile_is_found(monkeypatch):
    monkeypatch.setattr(torch_attention_peer, "_best_so_far", {})
    tiles = torch_attention_peer.candidates((128, 128), False)
    assert {"BLOCK_M": 64, "BLOCK_N": 64, "num_stages": 3, "num_warps": 4} in tiles
    times = {repr(tile): float("inf") if i == 0 else 10.0 - i for i, tile in enumerate(tiles)}
    search = torch_attention_peer.search
    best, tried = search(tiles, ("forward",), lambda tile: times[repr(tile)], 60.0)
    assert (best, tried) == (tiles[-1], len(tiles))
    known, tried = search(tiles, ("forward",), lambda tile: times[repr(tile)], 0.0)
    assert (known, tried) == (best, 1)
    assert search(tiles, ("other",), lambda tile: times[repr(tile)], 0.0) == (tiles[1], 2)
    with pytest.raises(NotAvailableError):
        search(tiles, ("none",), lambda tile: float("inf"), 0.0)
    for backward in (False, True):
        for tile in torch_attention_peer.candidates((64, 64), backward):
            assert all(size <= 64 for name, size in tile.items() if name.startswith("BLOCK"))
