"""Cases of `scatter_mm`, with lists from the library and from outside."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparsegpu
from sparsegpu._arrays import namespace

from . import oracle
from .case import Case, Close, Holds, by_path, public, require
from .draws import OPERANDS, Bsr, Draws
from .oracle import INT8, INT32, array

FORMATS = ("bsr_strided_mm_compressed", "bsr_strided_mm", "scatter_mm")
#: Kernel paths, and tiles that the plain one has.
_PATHS = (None, "simt", "model", "mma")
_TILES = ({"TILE_M": 4, "TILE_N": 16}, {"TILE_N": 64, "GROUP_SIZE": 3}, {"GROUP_SIZE": 1})


def bsr_scatter_mm(draws: Draws) -> Case:
    """The whole product, with each format's lists made for it."""
    dtype = draws.choice(OPERANDS)
    exact = draws.chance(50)
    bsr = draws.bsr(dtype, exact=exact, canonical=not exact)  # duplicates are summed and rounded
    n, batch = draws.columns(), draws.batch()
    # Finite: of duplicates -1 and 1 the sum is multiplied, and their products are inf - inf.
    other = draws.values((*batch, bsr.shape[1], n), dtype, finite=True)
    name = draws.choice((None, *FORMATS))
    divisors = [s for s in range(1, max(n, 1) + 1) if n % s == 0]
    meta = {"SPLIT_N": draws.choice(divisors)} if draws.chance(40) else {}
    multiply = by_path(sparsegpu.bsr_scatter_mm, draws.choice(_PATHS))
    meta |= draws.choice(_TILES) if draws.chance(30) else {}
    wanted = INT32 if dtype == INT8 else dtype
    out = draws.values((*batch, bsr.shape[0], n), wanted) if draws.chance(40) else None

    def call(bsr: Any, other: Any, out: Any = None) -> Any:
        lists = None
        if name is not None:
            lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name, **meta)
        return multiply(bsr=bsr, other=other, indices_data=lists, out=out)

    def expected(bsr: Any, other: Any, out: Any = None) -> Close:
        require(isinstance(bsr, Bsr) and not bsr.batch, "one bsr_array")
        other = array(other)
        require(other.ndim >= 2, "a matrix")
        oracle.check_operands(bsr.dtype, other.dtype)
        product, size, terms = oracle.bsr_product(bsr, other)
        return oracle.finished(product, size, terms, bsr.dtype, out=out)

    arguments = {"bsr": bsr, "other": other} | ({} if out is None else {"out": out})
    documented = sparsegpu.bsr_scatter_mm
    return Case("bsr_scatter_mm", call, arguments, expected, writes="out", documented=documented)


def index_lists(draws: Draws) -> Case:
    """Lists of each format, held against the product that they list."""
    bsr = draws.bsr(np.dtype(np.float64), exact=True)
    n, batch, name = draws.columns(), draws.batch(), draws.choice(FORMATS)
    other = draws.values((*batch, bsr.shape[1], n), np.float64, exact=True)
    arguments = {"bsr": bsr, "other": other, "indices_format": name}
    if draws.chance(50):
        arguments["SPLIT_N"] = draws.choice([s for s in range(1, max(n, 1) + 1) if n % s == 0])

    def expected(bsr: Any, other: Any, indices_format: Any, SPLIT_N: Any = None) -> Holds:
        require(isinstance(bsr, Bsr) and indices_format in FORMATS, "arguments")
        other = array(other)
        require(other.ndim >= 2 and other.shape[-2] == bsr.shape[1], "a matrix")
        product, _, _ = oracle.bsr_product(bsr, other.astype(np.float64))

        def rule(lists: Any) -> None:
            host = tuple(
                x.get() if hasattr(x, "get") and hasattr(x, "strides") else x for x in lists
            )
            assert host[0] == indices_format
            assert all(x.dtype == np.int64 for x in host[1:] if hasattr(x, "dtype"))
            if indices_format == "scatter_mm":
                assert len(host[2]) == host[1][-1]
                return
            if SPLIT_N is not None:
                assert host[-1]["SPLIT_N"] == SPLIT_N
            places = {(i, j) for i, j, _ in bsr.blocks(())}
            if len(places) < bsr.indices.size or not product.size:
                return  # with duplicates the lists number the blocks of the summed array
            got = np.zeros(product.shape, np.clongdouble)
            for at, p, seen in _products(host, bsr.data, other.astype(np.float64)):
                got[at] += bsr.data[p] @ seen
            np.testing.assert_array_equal(got, product)

        return Holds(rule)

    fixed = frozenset({"other"})  # only its shape matters
    return public("bsr_scatter_mm_indices_data", arguments, expected, fixed=fixed)


def scatter_mm(draws: Draws) -> Case:
    """Lists put together by hand: empty, repeated, unordered, now and then out of range."""
    dtype, rng = draws.choice(OPERANDS), draws.rng()
    ms, ks, ns, split = (draws.integer(1, 5) for _ in range(4))
    if draws.on_gpu:  # fewer kernels
        ms, ks, ns = draws.choice(((3, 5, 4), (1, 1, 1), (16, 16, 8)))
    name, count = draws.choice(FORMATS), draws.count(5)
    blocks = draws.values((count, ms, ks), dtype, exact=True)
    starts = lambda n, most: np.concatenate([[0], np.cumsum(rng.integers(0, most, n))])  # noqa: E731
    if name == "scatter_mm":
        tiles, many = draws.count(4), draws.count(4)
        c = starts(tiles, 4 if count and many else 1)
        pq = np.stack(
            [rng.integers(0, max(count, 1), c[-1]), rng.integers(0, max(many, 1), c[-1])], 1
        )
        lists, others, shape = (
            (name, c, pq),
            draws.values((many, ks, ns), dtype, exact=True),
            (tiles, ms, ns),
        )
    else:
        n, rows, inner, batch = (
            split * ns,
            draws.integer(1, 4) * ms,
            draws.integer(1, 3) * ks,
            draws.batch(),
        )
        others = draws.values((*batch, inner, n), dtype, exact=True)
        compressed = name == "bsr_strided_mm_compressed"
        tiles = rng.permutation(rows // ms * split)[: draws.count(8)]
        r = tiles // split * ms * n + tiles % split * ns
        if compressed:
            c = np.sort(rng.integers(0, count + 1, rows // ms + 1))
            terms = int(c[-1]) * split
        else:
            c = starts(len(r), 4 if count else 1)
            terms = int(c[-1])
        q = rng.integers(0, inner - ks + 1, terms) * n + rng.integers(0, split, terms) * ns
        p = () if compressed else (rng.integers(0, max(count, 1), terms),)
        lists, shape = (name, c, r, *p, q, {"SPLIT_N": split}), (*batch, rows, n)
    multiply = by_path(sparsegpu.scatter_mm, draws.choice(_PATHS))
    if name != "scatter_mm" and draws.chance(30):
        lists[-1].update(draws.choice(_TILES))
    bad = draws.chance(20) and _spoil_list(draws, lists)
    accumulators = draws.values(shape, INT32 if dtype == INT8 else dtype, exact=True)

    def call(blocks: Any, others: Any, accumulators: Any, lists: tuple) -> Any:
        xp = namespace(blocks)
        moved = tuple(xp.asarray(x) if isinstance(x, np.ndarray) else x for x in lists)
        given = {"blocks": blocks, "others": others, "indices_data": moved}
        given["accumulators"] = accumulators
        if bad:
            try:
                multiply(**given)
            except ValueError as error:
                assert "scatter_mm" in str(error)
                return accumulators
            raise AssertionError(f"lists with {bad} were accepted")
        return multiply(**given)

    def expected(blocks: Any, others: Any, accumulators: Any, lists: tuple) -> Close:
        blocks, others = array(blocks), array(others)
        oracle.check_operands(blocks.dtype, others.dtype)
        if accumulators is None:
            accumulators = np.zeros(_default_shape(lists, blocks, others), blocks.dtype)
        require(isinstance(accumulators, np.ndarray), "accumulators")
        wide = oracle.exact_dtype(blocks.dtype)
        exact = accumulators.astype(wide)
        size, terms = np.abs(exact), 1
        for at, p, other in () if bad else _products(lists, blocks, others):
            one, two = blocks[p].astype(wide), other.astype(wide)
            exact[at] += one @ two
            size[at] += np.abs(one) @ np.abs(two)
            terms += ks
        oracle.result_dtype(blocks.dtype, accumulators, None)
        u = oracle.rounding(blocks.dtype)
        # Tiles that overlap are rounded once each.
        size = size.astype(np.float64)
        return Close(exact, 2 * (terms + 5) * u * size, accumulators.dtype)

    arguments = {"blocks": blocks, "others": others, "accumulators": accumulators, "lists": lists}
    fixed = frozenset(arguments) if bad else frozenset({"lists", "blocks", "others"})
    writes, documented = None if bad else "accumulators", sparsegpu.scatter_mm
    return Case(
        "scatter_mm", call, arguments, expected, writes=writes, documented=documented, fixed=fixed
    )


def _default_shape(lists: tuple, blocks: np.ndarray, others: np.ndarray) -> tuple[int, ...]:
    """Return the shape of a result that nobody gave."""
    (name, c, r, *_), ms = lists, blocks.shape[1]
    if name == "scatter_mm":
        return len(c) - 1, ms, others.shape[-1]
    rows = (len(c) - 1) * ms if name.endswith("compressed") else 0
    if not rows and len(r):
        rows = ms + int(r.max()) // others.shape[-1]
    return *others.shape[:-2], rows, others.shape[-1]


def _spoil_list(draws: Draws, lists: tuple) -> str | bool:
    """Put one index out of range, in place; False where that would not be read."""
    which = draws.choice([i for i, x in enumerate(lists) if isinstance(x, np.ndarray)])
    if not lists[which].size:
        return False
    value = draws.choice((-1, 10**6, 2**62, -(2**63)))
    lists[which].reshape(-1)[draws.integer(0, lists[which].size - 1)] = value
    return f"{value} in list {which}"


def _products(lists: tuple, blocks: np.ndarray, others: np.ndarray):
    """Yield where each product is added, its block and its other, as the contract's table says."""
    name, c, *rest = lists
    (_, ms, ks), n = blocks.shape, others.shape[-1]
    if name == "scatter_mm":
        (pq,) = rest
        for r in range(len(c) - 1):
            for p, q in pq[c[r] : c[r + 1]]:
                yield r, p, others[q]
        return
    split = rest[-1]["SPLIT_N"]
    ns = n // split
    if name == "bsr_strided_mm":
        r_offsets, p_offsets, q_offsets, _ = rest
        for i, r in enumerate(r_offsets):
            for g in range(c[i], c[i + 1]):
                (r0, r1), (q0, q1) = divmod(r, n), divmod(q_offsets[g], n)
                yield (
                    np.s_[..., r0 : r0 + ms, r1 : r1 + ns],
                    p_offsets[g],
                    others[..., q0 : q0 + ks, q1 : q1 + ns],
                )
        return
    r_offsets, q_offsets, _ = rest
    for r in r_offsets:
        r0, r1 = divmod(r, n)
        m, column = r0 // ms, r1 // ns
        c0, c1 = c[m], c[m + 1]
        for i, p in enumerate(range(c0, c1)):
            q0, q1 = divmod(q_offsets[column * c1 + (split - column) * c0 + i], n)
            yield np.s_[..., r0 : r0 + ms, r1 : r1 + ns], p, others[..., q0 : q0 + ks, q1 : q1 + ns]


CASES = (bsr_scatter_mm, index_lists, scatter_mm)
