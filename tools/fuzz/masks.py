"""Cases of what makes masks: their elements by definition, and that no block is stored in vain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import sparsegpu

from .case import Case, Holds, Same, as_dense, public, require
from .draws import REALS, Bsr, Draws
from .makers import _integer, _pair
from .oracle import array

_SIZES = ((1, 1), (2, 3), (4, 4), (5, 2), (3, 40))


@dataclass(frozen=True)
class _Mask:
    """A mask by its elements; the blocks that it stores are those with any."""

    elements: np.ndarray
    blocksize: tuple[int, int]
    compact: Any

    def check(self, got: Any) -> None:
        _check_form(got, self.compact)
        Same(self.elements).check(got)
        *batch, m, k = self.elements.shape
        bm, bk = self.blocksize
        blocks = self.elements.reshape(*batch, m // bm, bm, k // bk, bk)
        assert got.nnzb == blocks.any(axis=(-3, -1)).sum(), f"{got.nnzb} blocks are stored"


def _check_form(got: Any, compact: Any) -> None:
    wanted = sparsegpu.BlockMask if compact else sparsegpu.bsr_array
    assert type(got) is wanted, f"{type(got)}, expected {wanted}"


def _made(draws: Draws, name: str, arguments: dict[str, Any], expected: Any, **more: Any) -> Case:
    """Return the case of a maker that makes a mask of no array, in the engine's library."""
    case = public(name, arguments, expected, **more)
    case.call = partial(case.call, xp=draws.xp)
    return case


def _length(draws: Draws) -> tuple[Any, Any]:
    """Return a length and a block size that divides it; both as integers, where that says all."""
    size = draws.choice(_SIZES)
    length = (size[0] * draws.count(6), size[1] * draws.count(6))
    if size[0] == size[1] and draws.chance(50):
        return length[0], size[0]
    return length, size


def _sizes(length: Any, blocksize: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    (rows, columns), (bm, bk) = _pair(length), _pair(blocksize)
    require(min(bm, bk) >= 1 and 0 <= rows <= 10**4 and 0 <= columns <= 10**4, "sizes")
    require(rows % bm == 0 == columns % bk, "blocks that divide")
    return (rows, columns), (bm, bk)


def _flag(value: Any) -> None:
    require(isinstance(value, bool), "a flag")


def bands(draws: Draws) -> Case:
    name = draws.choice(("banded", "sliding_window", "causal"))
    length, size = _length(draws)
    arguments: dict[str, Any] = {"length": length, "blocksize": size}
    if name == "banded":
        arguments |= {
            "lower": draws.choice((0, 1, 5, None, 10**9)),
            "upper": draws.choice((None, 0, 2, 10**18)),
        }
    elif name == "sliding_window":
        arguments |= {"window": draws.integer(0, 9), "causal": draws.chance(50)}
    arguments["compact"] = draws.chance(50)

    def expected(
        length: Any,
        blocksize: Any,
        compact: Any,
        lower: Any = None,
        upper: Any = None,
        window: Any = 0,
        causal: Any = False,
    ) -> _Mask:
        shape, blocks = _sizes(length, blocksize)
        if name == "causal":
            lower, upper = None, 0
        elif name == "sliding_window":
            lower, upper = _integer(window), 0 if causal else _integer(window)
        elif upper is None:
            upper = lower
        for value in (compact, causal):
            _flag(value)
        i, j = np.indices(shape)
        for bound in (lower, upper):
            require(bound is None or _integer(bound) >= 0, "widths")
        keep = (lower is None or (i - j <= lower)) & (upper is None or (j - i <= upper)) & (i == i)
        return _Mask(keep, blocks, compact)

    return _made(draws, name, arguments, expected)


def prefix(draws: Draws) -> Case:
    length, size = _length(draws)
    arguments = {
        "length": length,
        "blocksize": size,
        "prefix": draws.choice((0, 1, 3, 7, 20, 10**18)),
        "compact": draws.chance(50),
    }

    def expected(length: Any, blocksize: Any, prefix: Any, compact: Any) -> _Mask:
        shape, blocks = _sizes(length, blocksize)
        require(_integer(prefix) >= 0, "a number of keys")
        _flag(compact)
        i, j = np.indices(shape)
        return _Mask((j <= i) | (j < prefix), blocks, compact)

    return _made(draws, "masks.prefix", arguments, expected)


def documents(draws: Draws) -> Case:
    """Documents whose sum is whole blocks, in a list or an array; some lengths are no such."""
    bm, bk = size = draws.choice(((1, 1), (2, 3), (4, 4), (5, 2), (3, 1)))
    total = int(np.lcm(bm, bk)) * draws.count(5)
    cuts = sorted(draws.integer(0, total) for _ in range(draws.count(4)))
    lengths: Any = np.diff([0, *cuts, total]).tolist()
    refused = ""
    if draws.chance(15):
        at = draws.integer(0, len(lengths) - 1)
        kinds = ["negative", "huge", *(["no whole blocks"] if bm * bk > 1 else [])]
        refused = draws.choice(kinds)
        lengths[at] += {"negative": -1 - lengths[at], "huge": 2**62}.get(refused, 1)
    elif draws.chance(40):
        lengths = np.array(lengths, draws.choice(("int64", "int32", "uint8", "uint64")))
        refused = "lengths on the device" if draws.on_gpu else ""

    def expected(lengths: Any, blocksize: Any, causal: Any, compact: Any) -> _Mask:
        lengths = array(lengths)
        require(lengths.ndim == 1 and (not lengths.size or lengths.dtype.kind in "iu"), "lengths")
        counts = [int(n) for n in lengths]
        require(min(counts, default=0) >= 0, "lengths")
        _, blocks = _sizes(sum(counts), blocksize)
        for value in (causal, compact):
            _flag(value)
        document = np.arange(len(counts)).repeat(counts)
        together = document[:, None] == document
        return _Mask(np.tril(together) if causal else together, blocks, compact)

    arguments = {
        "lengths": lengths,
        "blocksize": size[0] if bm == bk and draws.chance(50) else size,
        "causal": draws.chance(50),
        "compact": draws.chance(50),
    }
    return _made(draws, "masks.documents", arguments, expected, refused=refused)


def bigbird(draws: Draws) -> Case:
    size = draws.choice(((1, 1), (2, 3), (4, 4)))
    length = (size[0] * draws.count(6), size[1] * draws.count(6))
    arguments = {"length": length, "blocksize": size, "rng": draws.integer(0, 9)}
    arguments |= {n: draws.integer(0, 3) for n in ("window", "global_blocks", "random_blocks")}
    arguments["compact"] = draws.chance(50)

    def expected(
        length: Any,
        blocksize: Any,
        rng: Any,
        window: Any,
        global_blocks: Any,
        random_blocks: Any,
        compact: Any,
    ) -> Holds:
        (rows, columns), (bm, bk) = _sizes(length, blocksize)
        require(min(map(_integer, (window, global_blocks, random_blocks))) >= 0, "counts")
        _flag(compact)
        i, j = np.indices((rows // bm, columns // bk))
        sure = (np.abs(i - j) <= window) | (i < global_blocks) | (j < global_blocks)

        def rule(got: Any) -> None:
            _check_form(got, compact)
            dense = as_dense(got)
            assert dense.shape == (rows, columns) and dense.dtype == bool
            blocks = dense.reshape(rows // bm, bm, columns // bk, bk)
            assert (blocks.all(axis=(1, 3)) == blocks.any(axis=(1, 3))).all()
            stored = blocks.any(axis=(1, 3))
            assert stored[sure].all()
            more = np.minimum((~sure).sum(axis=1), min(random_blocks, columns))
            assert ((stored & ~sure).sum(axis=1) == more).all()

        return Holds(rule)

    return _made(draws, "bigbird", arguments, expected)


def _whole(blocks: np.ndarray, blocksize: tuple[int, int]) -> np.ndarray:
    return blocks.repeat(blocksize[0], axis=-2).repeat(blocksize[1], axis=-1)


def top_k(draws: Draws) -> Case:
    """Scores with ties, infinities and NaN."""
    size = draws.choice(_SIZES)
    columns = draws.integer(1, 7)
    shape = (*draws.batch(), draws.count(5), columns)
    dtype = draws.choice((*REALS, *map(np.dtype, ("int8", "int32", "bool"))))
    scores = draws.values(shape, dtype)
    if dtype in REALS and draws.chance(30):
        for special in (np.nan, np.inf, -np.inf, -0.0):
            scores[draws.rng().random(shape) < 0.2] = special
    arguments = {
        "scores": scores,
        "k": draws.integer(1, columns),
        "blocksize": size[0] if size[0] == size[1] and draws.chance(50) else size,
    }

    def expected(scores: Any, k: Any, blocksize: Any) -> _Mask:
        scores, (bm, bk) = array(scores), _pair(blocksize)
        require(scores.ndim >= 2 and min(bm, bk) >= 1, "scores of blocks")
        real = scores.dtype.kind in "biuf" or scores.dtype in REALS
        require(real and 1 <= _integer(k) <= scores.shape[-1], "arguments")
        # Stable: ties keep the lower column. NumPy sorts NaN behind all numbers.
        best = np.argsort(-scores.astype(np.float64), axis=-1, kind="stable")[..., :k]
        chosen = np.zeros(scores.shape, bool)
        np.put_along_axis(chosen, best, True, axis=-1)
        return _Listed(_whole(chosen, (bm, bk)), best.shape[-1] * scores.shape[-2])

    return public("masks.top_k", arguments, expected)


@dataclass(frozen=True)
class _Listed:
    """A mask of lists: its elements, and how many blocks it may store at most."""

    elements: np.ndarray
    most: int

    def check(self, got: Any) -> None:
        _check_form(got, True)
        Same(self.elements).check(got)
        assert got.nnzb <= self.most, f"{got.nnzb} blocks are stored, of {self.most} listed"


def from_indices(draws: Draws) -> Case:
    """Lists of block columns, with anything behind those that count; some are no such lists."""
    size = draws.choice(_SIZES)
    rows, columns, batch = draws.count(5), draws.count(6), draws.batch()
    counted = draws.chance(60)
    most = draws.count(columns + 2 if counted else columns)
    dtype, rng = np.dtype(draws.choice(("int32", "int64", "uint8", "int8"))), draws.rng()
    lists = np.zeros((*batch, rows, most), dtype)
    counts = np.full(lists.shape[:-1], most)
    if counted:
        counts = rng.integers(min(most, columns), size=counts.shape, endpoint=True)
    for row in np.ndindex(counts.shape):
        listed = rng.permutation(columns)[: counts[row]]
        beyond = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, most - counts[row])
        lists[row] = np.concatenate([listed, beyond]).astype(dtype)
    refused = _malformed_lists(draws, lists, counts, columns)
    check = bool(refused) or draws.chance(70)
    matrix = (rows * size[0], columns * size[1])
    arguments: dict[str, Any] = {"indices": lists}
    if counted or refused == "a count":
        arguments["counts"] = counts.astype(draws.choice(("int64", "int32", "int8")))
    arguments |= {
        "shape": matrix if draws.chance(50) else (*batch, *matrix),
        "blocksize": size,
        "check": check,
    }
    # What nobody looks at may hold anything.
    fixed = frozenset({"check"}) if check else frozenset(arguments)
    return public("masks.from_indices", arguments, _from_indices, fixed=fixed, refused=refused)


def _malformed_lists(draws: Draws, lists: np.ndarray, counts: np.ndarray, columns: int) -> str:
    """Spoil an entry that counts, in some; return what was done."""
    places = np.argwhere(counts > 0)
    if not len(places) or not draws.chance(20):
        return ""
    place = tuple(places[draws.integer(0, len(places) - 1)])
    last = int(counts[place]) - 1
    kind = draws.choice(("a column", "a count", *(["twice"] if last else [])))
    if kind == "a column":
        least = int(np.iinfo(lists.dtype).min)
        lists[(*place, last)] = draws.choice((columns, 100, *((-1, least) if least else ())))
    elif kind == "a count":
        counts[place] = draws.choice((lists.shape[-1] + 1, -1, 127))
    else:
        lists[(*place, last)] = lists[(*place, 0)]
    return kind


def _from_indices(
    indices: Any, shape: Any, blocksize: Any, check: Any, counts: Any = None
) -> _Listed:
    lists, (bm, bk) = array(indices), _pair(blocksize)
    require(lists.ndim >= 2 and lists.dtype.kind in "iu" and min(bm, bk) >= 1, "lists")
    require(isinstance(shape, (tuple, list)) and len(shape) >= 2, "a shape")
    *batch, m, k = map(_integer, shape)
    require(m >= 0 <= k and m % bm == 0 == k % bk, "blocks that divide")
    rows, columns = m // bm, k // bk
    require(lists.shape[-2] == rows and tuple(batch) in {(), lists.shape[:-2]}, "shapes")
    numbers = np.full(lists.shape[:-1], lists.shape[-1]) if counts is None else array(counts)
    require(numbers.shape == lists.shape[:-1] and numbers.dtype.kind in "iu", "counts")
    chosen = np.zeros((*lists.shape[:-1], columns), bool)
    for row in np.ndindex(numbers.shape):
        count = int(numbers[row])
        require(0 <= count <= lists.shape[-1], "a count")
        listed = [int(column) for column in lists[row][:count]]
        require(len(set(listed)) == count, "a column twice")
        require(all(0 <= column < columns for column in listed), "a column outside")
        chosen[row][listed] = True
    return _Listed(_whole(chosen, (bm, bk)), rows * lists.shape[-1])


def block_mask(draws: Draws) -> Case:
    """There and back, by every way that the bits are looked at."""

    def call(mask: Any) -> Any:
        packed = sparsegpu.BlockMask.from_bsr(mask)
        again = sparsegpu.BlockMask(packed.pattern, packed.kind, packed.bits)
        dense, sparse = packed.toarray(), again.tobsr()
        assert bool((dense == sparse.toarray()).all())
        return sparse, packed

    def expected(mask: Any) -> tuple[Same, Same]:
        require(isinstance(mask, Bsr) and mask.dtype.kind == "b", "a mask")
        return Same(mask.dense()), Same(mask.dense())

    arguments = {"mask": draws.bsr(bool, batch=draws.batch())}
    documented = sparsegpu.BlockMask.from_bsr
    return Case("BlockMask", call, arguments, expected, documented=documented)


CASES = (bands, prefix, documents, bigbird, top_k, from_indices, block_mask)
