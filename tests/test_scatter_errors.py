"""What `scatter_mm` and its index lists refuse, and that nothing is written before they do."""

import numpy as np
import pytest

import sparsegpu
from scatter_cases import FORMATS, on, random_case
from sparsegpu.testing import random_values


def replaced(lists, position, value):
    return (*lists[:position], value, *lists[position + 1 :])


@pytest.mark.parametrize("position", [1, 2, 3, 4])
def test_an_index_out_of_range_never_passes(engine, rng, position):
    for name in FORMATS:
        blocks, others, lists, shape = random_case(rng, name, "float32")
        if position >= len(lists) or not isinstance(lists[position], np.ndarray):
            continue
        start = random_values(rng, shape, "float32")
        for value in (-1, 10**6):
            wrong = lists[position].copy()
            wrong.flat[wrong.size // 2] = value
            accumulators = engine.array(start.copy())
            with (
                engine.runs(None),
                pytest.raises(ValueError, match=r"^scatter_mm: argument '\w+.*expected .*got "),
            ):
                sparsegpu.scatter_mm(
                    engine.array(blocks),
                    engine.array(others),
                    on(engine, replaced(lists, position, wrong)),
                    accumulators=accumulators,
                )
            assert (engine.host(accumulators) == start).all()


@pytest.mark.parametrize("name", FORMATS)
def test_an_unsigned_index_beyond_63_bits_is_told_as_it_is(engine, rng, name):
    blocks, others, lists, _ = random_case(rng, name, "float32")
    position = 2 if name == "scatter_mm" else len(lists) - 2
    wrong = lists[position].astype(np.uint64)
    wrong.flat[1] = 2**63 + 7
    arguments = *map(engine.array, (blocks, others)), on(engine, replaced(lists, position, wrong))
    with pytest.raises(ValueError, match=r"^scatter_mm: argument '\w+.*got 9223372036854775815$"):
        sparsegpu.scatter_mm(*arguments)


@pytest.mark.parametrize("edge", ["row", "column"])
def test_a_tile_that_sticks_out(rng, edge):
    blocks, others, lists, _ = random_case(rng, FORMATS[2], "float32")
    wrong = lists[2].copy()
    wrong[0] = 10 * 12 if edge == "row" else 9
    with pytest.raises(ValueError, match=r"'r_offsets': expected offsets .* 3x4 tiles inside"):
        sparsegpu.scatter_mm(blocks, others, replaced(lists, 2, wrong))


def test_a_tile_that_sticks_out_of_rows_that_it_makes(rng):
    """Without accumulators the tiles say how many rows there are."""
    blocks, others, lists, _ = random_case(rng, FORMATS[1], "float32")
    wrong = lists[2].copy()
    wrong[0] = 9
    with pytest.raises(ValueError, match=r"3x4 tiles inside 12 columns, got .* or column 9"):
        sparsegpu.scatter_mm(blocks, others, replaced(lists, 2, wrong))


@pytest.mark.parametrize("name", FORMATS[1:])
@pytest.mark.parametrize("other", [(2, 3), (4, 2), (2, 2), (4, 7), (0, 5), (1, 8), (5, 4), (3, 1)])
def test_tiles_that_overlap(engine, rng, name, other):
    """With the 3x4 tile at (3, 5); one below, above or beside it does not."""
    blocks, others, lists, shape = random_case(rng, name, "float32")
    start = random_values(rng, shape, "float32")
    overlaps = other not in {(0, 5), (3, 1)}
    offsets = np.array([9 * 12, 3 * 12 + 5, 0, other[0] * 12 + other[1]])
    wrong = replaced(lists, 2, offsets)
    if name == "bsr_strided_mm":
        wrong = replaced(wrong, 1, lists[1][: len(offsets) + 1])
    accumulators = engine.array(start.copy())
    arguments = *map(engine.array, (blocks, others)), on(engine, wrong)
    if overlaps:
        with (
            engine.runs(None),
            pytest.raises(ValueError, match=r"'r_offsets': expected 3x4 tiles that are the same"),
        ):
            sparsegpu.scatter_mm(*arguments, accumulators=accumulators)
        assert (engine.host(accumulators) == start).all()
    else:
        sparsegpu.scatter_mm(*arguments, accumulators=accumulators)


@pytest.mark.parametrize("name", FORMATS)
def test_offsets_that_fall(engine, rng, name):
    blocks, others, lists, shape = random_case(rng, name, "float32")
    start = random_values(rng, shape, "float32")
    accumulators = engine.array(start.copy())
    falling = lists[1].copy()
    falling[2] = falling[1] - 1 if falling[1] else falling[3:].max() + 1
    with (
        engine.runs(None),
        pytest.raises(ValueError, match=r"'c_\w+': expected non-decreasing values, got a decrease"),
    ):
        sparsegpu.scatter_mm(
            engine.array(blocks),
            engine.array(others),
            on(engine, replaced(lists, 1, falling)),
            accumulators=accumulators,
        )
    assert (engine.host(accumulators) == start).all()


@pytest.mark.parametrize("position", [3, 4], ids=["p_offsets", "q_offsets"])
def test_offsets_that_are_no_pairs(engine, rng, position):
    """Every product is of a block and of a tile of the others."""
    blocks, others, lists, shape = random_case(rng, "bsr_strided_mm", "float32")
    start = random_values(rng, shape, "float32")
    for change in (np.append(lists[position], 0), lists[position][:-1]):
        accumulators = engine.array(start.copy())
        wrong = replaced(lists, position, change)
        operands = engine.array(blocks), engine.array(others), on(engine, wrong)
        expected = rf"len\(p_offsets\) = {len(wrong[3])} elements, got {len(wrong[4])}"
        message = f"^scatter_mm: argument 'q_offsets': expected {expected}"
        with engine.runs(None), pytest.raises(ValueError, match=message):
            sparsegpu.scatter_mm(*operands, accumulators=accumulators)
        assert (engine.host(accumulators) == start).all()


def test_overlaps_are_found_wherever_they_are(rng):
    """Against all pairs, on matrices whose width is no multiple of the tile's."""
    for _ in range(300):
        (ms, ns), split = rng.integers(1, 5, 2), int(rng.integers(1, 5))
        n, m = int(ns * split), int(ms * 6)
        rows, columns = rng.integers(0, m - ms + 1, 3), rng.integers(0, n - ns + 1, 3)
        near = abs(rows[:, None] - rows) < ms
        near &= abs(columns[:, None] - columns) < ns
        same = (rows[:, None] == rows) & (columns[:, None] == columns)
        overlaps = bool((near & ~same).any())
        lists = ("bsr_strided_mm", [0] * 4, rows * n + columns, [0], [0], {"SPLIT_N": split})
        call = (np.ones((1, ms, 1)), np.ones((1, n)), tuple(map(as_lists, lists)))
        if overlaps:
            with pytest.raises(ValueError, match="that are the same or do not overlap"):
                sparsegpu.scatter_mm(*call)
        else:
            sparsegpu.scatter_mm(*call)


def as_lists(x):
    return np.array(x) if isinstance(x, list) else x


class TestErrors:
    @pytest.fixture
    def case(self, rng):
        blocks, others, lists, shape = random_case(rng, FORMATS[2], "float32")
        return dict(blocks=blocks, others=others, indices_data=lists), shape

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            (dict(indices_data=("coo", [0])), ValueError, r"'indices_data\[0\]': .*'scatter_mm'"),
            (dict(indices_data="scatter_mm"), TypeError, "'indices_data': expected a tuple"),
            (dict(indices_data=("scatter_mm", [0])), ValueError, "expected .format, c_offsets, pq"),
            (
                dict(indices_data=("scatter_mm", [0, 1], [[0.0, 1.0]])),
                TypeError,
                "'pq': expected an integer dtype, got float64",
            ),
            (
                dict(indices_data=("scatter_mm", [0, 1], [0, 1])),
                ValueError,
                r"'pq': expected shape \(n, 2\), got \(2,\)",
            ),
            (
                dict(indices_data=("scatter_mm", [], np.zeros((0, 2), int))),
                (TypeError, ValueError),
                "'c_offsets': ",
            ),
            (dict(blocks=np.ones((3, 5), "f4")), ValueError, r"'blocks': expected shape \(P, Ms"),
            (dict(others=np.ones((20, 12), "f2")), TypeError, "'others': expected dtype float32"),
            (dict(others=np.ones(12, "f4")), ValueError, r"'others': expected shape \(\*batch"),
            (dict(accumulators=np.zeros((2, 12, 11), "f4")), ValueError, "'accumulators': expect"),
            (dict(accumulators=np.zeros((12, 12), "f4")), ValueError, "'others': expected a shape"),
            (dict(accumulators=np.zeros((2, 12, 12), "i4")), TypeError, "'accumulators': expected"),
        ],
    )
    def test_argument(self, case, change, error, message):
        arguments = case[0] | change
        accumulators = arguments.pop("accumulators", None)
        with pytest.raises(error, match="^scatter_mm: argument .*" + message.lstrip("^")):
            sparsegpu.scatter_mm(*arguments.values(), accumulators=accumulators)

    @pytest.mark.parametrize("name", FORMATS)
    def test_settings(self, engine, name):
        """Of a tensor-core tile; 999 and 0 are none on any engine, in a caller's lists neither."""
        settings = {"TILE_M": 64, "TILE_N": 64, "GROUP_SIZE": 2}
        a = sparsegpu.random_bsr((128, 128), (64, 64), 0.5, dtype="bfloat16", xp=engine.xp, rng=0)
        other = engine.array(np.ones((128, 64), a.dtype))
        lists = sparsegpu.bsr_scatter_mm_indices_data(a, other, name, **settings)
        with engine.runs(None):
            for setting in settings:
                for value in (999, 0):
                    wrong = settings | {setting: value}
                    with pytest.raises(ValueError, match=f"argument '{setting}': .*got {value}"):
                        sparsegpu.bsr_scatter_mm_indices_data(a, other, name, **wrong)
                    if name != "scatter_mm":
                        own = (*lists[:-1], wrong | {"SPLIT_N": 1})
                        with pytest.raises(ValueError, match=f"'{setting}': .*got {value}"):
                            sparsegpu.bsr_scatter_mm(a, other, own)
        if name != "scatter_mm":
            assert lists[-1] == settings | {"SPLIT_N": 1}
        sparsegpu.bsr_scatter_mm(a, other, lists)

    @pytest.mark.parametrize("meta", [{}, None, {"SPLIT_N": 5}, {"SPLIT_N": 0}, {"SPLIT_N": 2.0}])
    def test_meta(self, case, meta):
        arguments, _ = case
        lists = (*arguments["indices_data"][:-1], meta)
        with pytest.raises((TypeError, ValueError), match=r"scatter_mm: argument '(meta|SPLIT_N)'"):
            sparsegpu.scatter_mm(arguments["blocks"], arguments["others"], lists)

    def test_accumulators_overlap_others(self, case):
        arguments, _ = case
        others = arguments["others"]
        with pytest.raises(ValueError, match="'accumulators': expected memory apart from 'others'"):
            sparsegpu.scatter_mm(*arguments.values(), accumulators=others[:, :12])

    def test_lists_of_another_array(self):
        bsr = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
        lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, np.ones((4, 6)))
        for other in (np.ones((4, 8)), np.ones((6, 6))):
            with pytest.raises(ValueError, match=r"'others': expected shape \(\*batch, 4, 6\) as"):
                sparsegpu.scatter_mm(bsr.data, other, lists)
        with pytest.raises(ValueError, match=r"'blocks': expected shape \(2, 2, 2\) as"):
            sparsegpu.scatter_mm(bsr.data[:1], np.ones((4, 6)), lists)
        with pytest.raises(ValueError, match=r"'bsr': expected 2 blocks of \(2, 2\) as in"):
            big = sparsegpu.bsr_array(np.ones((4, 4)), blocksize=(2, 2))
            sparsegpu.bsr_scatter_mm(big, np.ones((4, 6)), lists)
        with pytest.raises(ValueError, match=r"'other': expected shape \(\*batch, 4, 6\) as in"):
            sparsegpu.bsr_scatter_mm(bsr, np.ones((4, 8)), lists)
        pairs = sparsegpu.bsr_scatter_mm_indices_data(bsr, np.ones((4, 6)), "scatter_mm")
        with pytest.raises(ValueError, match="'other': expected 6 tiles, 3 side by side, as in"):
            sparsegpu.bsr_scatter_mm(bsr, np.ones((2, 4, 6)), pairs)

    def test_indices_data(self):
        build = sparsegpu.bsr_scatter_mm_indices_data
        bsr = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
        with pytest.raises(ValueError, match="'SPLIT_N': expected a divisor of N = 6, got 4"):
            build(bsr, np.ones((4, 6)), SPLIT_N=4)
        with pytest.raises(ValueError, match=r"'SPLIT_N': expected less than 2\*\*31, got 1000"):
            build(bsr, np.ones((4, 0)), SPLIT_N=10**30)
        with pytest.raises(ValueError, match="'indices_format': expected one of 'scatter_mm'"):
            build(bsr, np.ones((4, 6)), "csr")
        with pytest.raises(TypeError, match="unexpected keyword argument 'SPLIT'"):
            build(bsr, np.ones((4, 6)), SPLIT=2)
        with pytest.raises(ValueError, match=r"'other': expected shape \(\*batch, 4, N\)"):
            build(bsr, np.ones((6, 6)))
        batched = sparsegpu.bsr_array(np.stack([np.eye(4)] * 2), blocksize=(2, 2))
        with pytest.raises(ValueError, match=r"'bsr': expected one matrix .*batch \(2,\)"):
            sparsegpu.bsr_scatter_mm(batched, np.ones((4, 6)))

    def test_product_out(self):
        bsr = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
        other = np.ones((4, 6))
        with pytest.raises(ValueError, match=r"'out': expected shape \(4, 6\), got \(4, 5\)"):
            sparsegpu.bsr_scatter_mm(bsr, other, out=np.ones((4, 5)))
        with pytest.raises(ValueError, match="'out': expected memory apart from 'other'"):
            sparsegpu.bsr_scatter_mm(bsr, other, out=other)
        assert (other == 1).all()
