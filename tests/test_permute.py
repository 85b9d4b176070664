"""The order of columns that 2:4 pruning keeps most of, against every order there is."""

from itertools import permutations

import ml_dtypes
import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from prune_cases import views
from sparsegpu.engines._permutation_search import LARGEST_KEY, kept, splits
from sparsegpu.testing import random_values

FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8"]


def kept_sum(dense, keep="2:4", importance=None):
    """What pruning keeps of a host matrix."""
    values = np.abs(dense.astype(np.float64)) if importance is None else importance
    group, most = (2, 1) if keep == "1:2" else (4, 2)
    whole = dense.shape[-1] // group * group
    groups = np.sort(values[..., :whole].reshape(-1, group), axis=-1)
    return float(groups[:, -most:].sum())


def found(engine, dense, kernel="permute_24", **keywords):
    """Return the order found, checked to be one, as a host array."""
    keywords = {
        name: engine.array(value) if isinstance(value, np.ndarray) else value
        for name, value in keywords.items()
    }
    with engine.runs(kernel):
        order = sg.permute_for_24(engine.array(dense), **keywords)
    assert order.dtype == np.int64 and isinstance(order, engine.xp.ndarray)
    order = engine.host(order)
    assert sorted(order.tolist()) == list(range(dense.shape[-1]))
    return order


# -- the splits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "count"), [(4, 35), (2, 3)])
def test_splits_are_all_divisions_and_the_first_changes_nothing(group, count):
    table = splits(group)
    assert table.shape == (count, 2 * group)
    assert table[0].tolist() == list(range(2 * group))
    assert (np.sort(table, axis=1) == np.arange(2 * group)).all()
    halves = {frozenset((frozenset(w[:group]), frozenset(w[group:]))) for w in table.tolist()}
    every = {
        frozenset((frozenset(order[:group]), frozenset(order[group:])))
        for order in permutations(range(2 * group))
    }
    assert halves == every


@pytest.mark.parametrize("group", [2, 4])
def test_engines_find_the_same_split(engine, rng, group):
    """Rows across the edges of the engines' runs, keys of the largest size, ties."""
    import importlib

    module = importlib.import_module(f"sparsegpu.engines.{engine.name}.permute")
    for rows in (1, 31, 33, 130, 300):
        keys = rng.integers(-3, 4, (6 * group, rows)).astype(np.int32)
        keys[rng.random(keys.shape) < 0.3] = LARGEST_KEY
        keys[:group] = -LARGEST_KEY
        keys[-2 * group :] = LARGEST_KEY
        stripes = rng.permutation(len(keys)).reshape(-1, group)
        left, right = np.triu_indices(len(stripes), 1)
        values = keys[np.concatenate((stripes[left], stripes[right]), axis=1)]
        sums = np.stack(
            [kept(values[:, w[:group]], np) + kept(values[:, w[group:]], np) for w in splits(group)]
        )
        arrays = [engine.array(a) for a in (keys, stripes, left, right)]
        gains, best = (engine.xp.full(len(left), -1, dtype=np.int64) for _ in range(2))
        module.best_splits(gains, best, *arrays)
        np.testing.assert_array_equal(engine.host(gains), sums.max(axis=0) - sums[0])
        np.testing.assert_array_equal(engine.host(best), sums.argmax(axis=0))


def test_what_is_kept_is_what_pruning_keeps(rng):
    for group, keep in ((4, "2:4"), (2, "1:2")):
        values = rng.integers(-9, 10, (7, 24))
        columns = np.abs(values.T).reshape(-1, group, 7)
        pruned = np.abs(sg.prune_24(values.astype(np.float32), keep=keep)).sum()
        assert kept(columns, np).sum() == pruned == kept_sum(values, keep)


# -- the search -----------------------------------------------------------------------------------


@covered(keep=["2:4", "1:2"], dtype=DTYPES)
def test_eight_columns_in_the_best_of_all_orders(engine, rng, dtype, keep):
    """Two groups of four are tried exhaustively. Of four groups of two only pairs are."""
    for rows in (1, 5, 40):
        dense = random_values(rng, (rows, 8), dtype, small_integers=True)
        order = found(engine, dense, keep=keep)
        most = max(kept_sum(dense[:, list(p)], keep) for p in _divisions(8, keep))
        if keep == "2:4":
            assert kept_sum(dense[:, order]) == most
        else:
            assert kept_sum(dense, keep) <= kept_sum(dense[:, order], keep) <= most


def _divisions(columns, keep):
    """One order of the columns for each division into groups."""
    group = 4 if keep == "2:4" else 2

    def extend(order, rest):
        if not rest:
            yield order
            return
        for others in _subsets(rest[1:], group - 1):
            left = [c for c in rest[1:] if c not in others]
            yield from extend(order + [rest[0], *others], left)

    yield from extend([], list(range(columns)))


def _subsets(items, count):
    if count == 0:
        yield []
        return
    for i, item in enumerate(items):
        for rest in _subsets(items[i + 1 :], count - 1):
            yield [item, *rest]


def test_twelve_columns_reach_the_best_of_all_divisions(engine, rng):
    """Of the best of all 5775 divisions the search gains at least 95 percent."""
    for rows in (3, 12):
        dense = rng.integers(0, 50, (rows, 12)).astype(np.float32)
        sums = [kept_sum(dense[:, d]) for d in _divisions(12, "2:4")]
        assert len(sums) == 5775
        reached = kept_sum(dense[:, found(engine, dense)])
        start = kept_sum(dense)
        assert reached - start >= 0.95 * (max(sums) - start)


@covered(keep=["2:4", "1:2"], dtype=DTYPES)
def test_never_less_than_in_the_order_given(engine, rng, dtype, keep):
    dense = random_values(rng, (24, 64), dtype)
    before = kept_sum(dense, keep)
    # Each element is rounded to 2**-22 of the largest.
    slack = dense.size * 2.0**-22 * np.abs(dense.astype(np.float64)).max()
    for escapes in (0, 4):
        order = found(engine, dense, keep=keep, escapes=escapes)
        assert kept_sum(dense[:, order], keep) >= before - slack
    assert kept_sum(dense[:, order], keep) > 1.01 * before


def test_all_large_columns_in_a_few_groups(engine):
    """Half of the columns are large, side by side: half of them would go, and none has to."""
    dense = np.ones((10, 32), np.float32)
    dense[:, :16] = 100
    order = found(engine, dense)
    assert kept_sum(dense) == 10 * (8 * 100 + 8)
    assert kept_sum(dense[:, order]) == 10 * 16 * 100


def test_engines_agree(engine, rng):
    dense = random_values(rng, (70, 44), "float32")
    with sg.use_engine("reference"):
        expected = sg.permute_for_24(dense, escapes=5, seed=3)
    np.testing.assert_array_equal(found(engine, dense, escapes=5, seed=3), expected)


def test_the_same_arguments_give_the_same_order(engine, rng):
    dense = random_values(rng, (16, 64), "float16")
    one, again = (found(engine, dense, escapes=8, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    longer = found(engine, dense, escapes=40, seed=5)
    assert kept_sum(dense[:, longer]) >= kept_sum(dense[:, one])


def test_the_product_does_not_mind(engine, rng):
    dense = rng.integers(-5, 6, (8, 22)).astype(np.float64)
    x = rng.integers(-5, 6, 22).astype(np.float64)
    order = found(engine, dense)
    np.testing.assert_array_equal(dense[:, order] @ x[order], dense @ x)
    np.testing.assert_array_equal(dense[:, order][:, np.argsort(order)], dense)
    assert order[20:].tolist() == [20, 21]  # the ragged end


# -- importances, windows, strides ----------------------------------------------------------------


@pytest.mark.parametrize("wide", ["float16", "bfloat16", "float32", "float64"])
def test_importances(engine, rng, wide):
    dense = random_values(rng, (6, 16), "float16")
    importance = rng.integers(-9, 10, (6, 16)).astype(
        ml_dtypes.bfloat16 if wide[0] == "b" else wide
    )
    order = found(engine, dense, criterion=importance)
    exact = importance.astype(np.float64)
    assert kept_sum(dense[:, order], "2:4", exact[:, order]) > kept_sum(dense, "2:4", exact)
    with engine.runs("permute_24"):
        same = sg.permute_for_24(engine.array(exact), criterion=engine.array(exact))
    np.testing.assert_array_equal(engine.host(same), order)


def test_importances_of_any_scale(engine, rng):
    """Near the ends of float64's range, subnormals included."""
    values = rng.integers(1, 100, (5, 16)).astype(np.float64)
    orders = [
        found(engine, values, criterion=np.ldexp(values, shift)) for shift in (0, 1017, -1074)
    ]
    np.testing.assert_array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(orders[0], orders[2])


def test_nan_is_the_least_and_infinity_the_largest(engine, rng):
    dense = rng.integers(1, 9, (4, 16)).astype(np.float32)
    special = dense.copy()
    special[0, 3], special[1, 7], special[2, 9] = np.nan, np.inf, -np.inf
    finite = dense.copy()
    finite[0, 3], finite[1, 7], finite[2, 9] = 0, dense.max(), dense.max()
    np.testing.assert_array_equal(found(engine, special), found(engine, finite))
    importance = special.copy()
    finite[2, 9] = 0
    np.testing.assert_array_equal(
        found(engine, dense, criterion=importance), found(engine, dense, criterion=finite)
    )
    for value in (np.nan, np.inf, 0.0):
        alike = found(engine, np.full((3, 12), value, np.float32), escapes=0)
        assert alike.tolist() == list(range(12))


def test_columns_stay_in_their_window(engine, rng):
    dense = random_values(rng, (9, 50), "float32")
    order = found(engine, dense, window=16)
    for start in range(0, 48, 16):
        place = slice(start, start + 16)
        alone = found(engine, dense[:, place])
        np.testing.assert_array_equal(order[place], alone + start)
    assert order[48:].tolist() == [48, 49]
    assert kept_sum(dense[:, found(engine, dense)]) > kept_sum(dense[:, order])


def test_any_strides_and_dimensions(engine, rng):
    for view, host in views(engine, rng):
        with engine.runs("permute_24"):
            order = sg.permute_for_24(view, escapes=2)
        rows = np.ascontiguousarray(host.reshape(-1, host.shape[-1]))
        np.testing.assert_array_equal(engine.host(order), found(engine, rows, escapes=2))


def test_fp8(engine, rng):
    dense = random_values(rng, (6, 16), FP8)
    expected = found(engine, dense.astype(np.float32))
    np.testing.assert_array_equal(found(engine, dense), expected)


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0,), (3, 3), (5, 4), (5, 7), (2, 0, 12)])
def test_nothing_to_choose(engine, shape):
    dense = np.ones(shape, np.float16)
    assert found(engine, dense, None).tolist() == list(range(shape[-1]))


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "error", "match"),
    [
        ({"keep": "4:8"}, ValueError, "'keep'.*'2:4', '1:2'.*'4:8'"),
        ({"criterion": "entropy"}, ValueError, "'criterion'.*'magnitude'.*'entropy'"),
        ({"criterion": np.ones((2, 4))}, ValueError, r"'criterion'.*\(2, 8\).*\(2, 4\)"),
        ({"criterion": np.ones((2, 8), np.int64)}, TypeError, "'criterion'.*float64, got int64"),
        ({"window": 10}, ValueError, "'window'.*positive multiple of 4, got 10"),
        ({"window": 0}, ValueError, "'window'.*positive multiple of 4, got 0"),
        ({"window": 8.0}, TypeError, "'window'.*an integer"),
        ({"escapes": -1}, ValueError, "'escapes'.*not negative, got -1"),
        ({"escapes": "many"}, TypeError, "'escapes'.*an integer"),
        ({"seed": -1}, ValueError, "'seed'.*not negative, got -1"),
        ({"seed": None}, TypeError, "'seed'.*an integer"),
    ],
)
def test_what_is_refused(engine, keywords, error, match):
    if isinstance(keywords.get("criterion"), np.ndarray):
        keywords = {"criterion": engine.array(keywords["criterion"])}
    dense = engine.xp.ones((2, 8), dtype=np.float16)
    with engine.runs(None), pytest.raises(error, match=f"permute_for_24.*{match}"):
        sg.permute_for_24(dense, **keywords)


def test_dtypes_and_dimensions_that_are_refused(engine):
    with engine.runs(None), pytest.raises(TypeError, match=r"permute_for_24.*'dense'.*complex64"):
        sg.permute_for_24(engine.xp.ones((2, 8), dtype=np.complex64))
    with engine.runs(None), pytest.raises(ValueError, match=r"permute_for_24.*'dense'.*a scalar"):
        sg.permute_for_24(engine.xp.ones(()))
