"""Cases of 2:4: pruning, compression, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparsegpu
from sparsegpu.testing import random_24

from . import formats
from .case import Case, Holds, Same, public, require
from .draws import FP8, HALVES, TWO_OF_FOUR, Draws
from .oracle import INT8, SINGLE, array

_ORDERED = (*HALVES, SINGLE, np.dtype(np.float64), INT8)
_FORMATTED = (*TWO_OF_FOUR, FP8)
#: The dtypes of metadata, of 16-bit values and float32 first.
METADATA = ("int16", "uint16", "int32", "uint32")


def _dense(
    draws: Draws, dtype: np.dtype, rows: int, columns: int, *, exact: bool = False
) -> np.ndarray:
    shape = (rows * draws.count(3), columns * draws.count(3))
    dense = draws.values(shape, dtype, exact=exact or dtype == FP8)
    if draws.chance(30):
        dense[draws.rng().random(shape) < 0.3] = 0
    return dense


def prune_24(draws: Draws) -> Case:
    dtype = draws.choice(_ORDERED)
    shape = (*draws.batch(), draws.count(6), draws.count(30))[draws.choice((-2, -1, 0)) :]
    arguments: dict[str, Any] = {
        "dense": draws.values(shape, dtype),
        "keep": draws.choice(("2:4", "1:2")),
    }
    if draws.chance(40):
        arguments["criterion"] = draws.values(shape, draws.choice((*HALVES, SINGLE, "float64")))

    def expected(dense: Any, keep: Any, criterion: Any = "magnitude") -> Same:
        dense = array(dense)
        require(dense.dtype in _ORDERED and keep in ("2:4", "1:2") and dense.ndim, "a dense array")
        key = None
        if not (isinstance(criterion, str) and criterion == "magnitude"):
            key = array(criterion)
            require(
                key.shape == dense.shape and key.dtype in (*HALVES, SINGLE, np.float64),
                "importances",
            )
            key = key.astype(np.float64)
        return Same(formats.prune_24(dense, 4 if keep == "2:4" else 2, key))

    return public("prune_24", arguments, expected)


def permute_for_24(draws: Draws) -> Case:
    dense = draws.values((draws.integer(1, 6), draws.count(26)), draws.choice(_ORDERED), exact=True)
    arguments = {
        "dense": dense,
        "keep": draws.choice(("2:4", "1:2")),
        "window": draws.choice((8, 16, 1024)),
        "escapes": draws.integer(0, 2),
    }

    def expected(dense: Any, keep: Any, window: Any, escapes: Any) -> Holds:
        dense = array(dense)
        group = {"2:4": 4, "1:2": 2}[keep]
        require(
            dense.ndim
            and dense.dtype in _ORDERED
            and window % group == 0 < window
            and escapes >= 0,
            "arguments",
        )

        def better(got: Any) -> None:
            order = got.get() if hasattr(got, "get") else got
            columns = dense.shape[-1]
            assert sorted(order.tolist()) == list(range(columns)) and order.dtype == np.int64
            tail = columns // group * group
            assert (order[tail:] == np.arange(tail, columns)).all()
            kept = [
                np.abs(formats.prune_24(d, group).astype(np.float64)).sum()
                for d in (dense, dense[..., order])
            ]
            assert kept[1] >= kept[0] - 2.0**-20 * dense.size * np.abs(
                dense.astype(np.float64)
            ).max(initial=0)

        return Holds(better)

    # A huge number of escapes is legal, and never done.
    return public("permute_for_24", arguments, expected, fixed=frozenset({"escapes"}))


def prune_tile(draws: Draws) -> Case:
    dense = draws.values((draws.count(13), draws.count(13)), draws.choice((*_ORDERED, FP8)))
    arguments = {"dense": dense, "algorithm": draws.choice(formats.ALGORITHMS)}

    def expected(dense: Any, algorithm: Any) -> Same:
        dense = array(dense)
        require(
            dense.ndim == 2 and dense.dtype in (*_ORDERED, FP8) and algorithm in formats.ALGORITHMS,
            "arguments",
        )
        return Same(formats.prune_tile(dense, algorithm))

    return public("prune_tile", arguments, expected)


def from_dense(draws: Draws) -> Case:
    dtype = draws.choice(_FORMATTED)
    rows, columns = formats.multiples(dtype)
    shape = (rows * draws.count(2), columns * draws.count(3))
    strict = draws.chance(50)
    dense = (
        random_24(draws.rng(), shape, dtype, small_integers=True)
        if strict
        else draws.values(shape, dtype)
    )

    def call(dense: Any, strict: Any) -> Any:
        if (type(dense) is np.ndarray and dense.ndim) or hasattr(dense, "get"):
            dense = dense.copy(order="C")  # what it takes
        return sparsegpu.semi_structured_from_dense(dense, strict=strict)

    def expected(dense: Any, strict: Any) -> tuple[Same, Same]:
        dense = array(dense)
        require(dense.ndim == 2 and dense.dtype in _FORMATTED, "a matrix of a 2:4 dtype")
        rows, columns = formats.multiples(dense.dtype)
        require(dense.shape[0] % rows == 0 == dense.shape[1] % columns, "multiples")
        require(not strict or formats.is_24(dense), "2:4")
        packed, meta = formats.compress(dense)
        return Same(packed), Same(meta)

    function = sparsegpu.semi_structured_from_dense
    return Case(
        "semi_structured_from_dense",
        call,
        {"dense": dense, "strict": strict},
        expected,
        documented=function,
    )


def to_dense(draws: Draws) -> Case:
    dtype = draws.choice(_FORMATTED)
    rows, columns = formats.multiples(dtype)
    dense = random_24(
        draws.rng(),
        (rows * draws.count(2), columns * draws.count(3)),
        dtype,
        small_integers=True,
    )
    packed, meta = formats.compress(dense)

    def expected(packed: Any, meta: Any) -> Same:
        packed = array(packed)
        require(packed.dtype in _FORMATTED, "a 2:4 dtype")
        wanted = dense.astype(packed.dtype)  # small integers are the same in another dtype
        packed_, meta_ = formats.compress(wanted)
        meta = array(meta)
        require(meta.dtype.name in METADATA and meta.itemsize == meta_.itemsize, "their dtypes")
        meta = np.ascontiguousarray(meta).view(meta_.dtype)
        require(packed.shape == packed_.shape and np.array_equal(meta, meta_), "the parts")
        return Same(wanted if packed.itemsize == 4 else formats.expand(packed, meta_))

    # One of each two, of 32 bits, can be read as two of each four, of 16: as other values.
    fixed = frozenset({"packed"} if dtype.itemsize == 4 else ())
    return public(
        "semi_structured_to_dense", {"packed": packed, "meta": meta}, expected, fixed=fixed
    )


def metadata(draws: Draws) -> Case:
    name = draws.choice(("meta_reorder_offsets", "reorder_meta", "restore_meta"))
    dtype = np.dtype(draws.choice((np.int16, np.int32)))
    m, columns = (32 if dtype.itemsize == 2 else 16) * draws.count(2), 2 * draws.count(3)
    if name == "meta_reorder_offsets":

        def of_sizes(m: Any, meta_ncols: Any, meta_dtype: Any) -> Same:
            kind = np.dtype(meta_dtype)
            require(kind.name in METADATA and meta_dtype is not None, "a dtype")
            rows = 32 if kind.itemsize == 2 else 16
            require(m >= 0 <= meta_ncols and m % rows == 0 == meta_ncols % 2, "sizes")
            return Same(formats.places(m, meta_ncols, kind))

        return public(
            name,
            {"m": m, "meta_ncols": columns, "meta_dtype": draws.choice((dtype, dtype.name))},
            of_sizes,
        )
    info = np.iinfo(dtype)
    meta = draws.rng().integers(info.min, info.max, (m, columns), endpoint=True).astype(dtype)

    def expected(meta: Any) -> Same:
        meta = array(meta)
        require(meta.dtype.name in METADATA and meta.ndim == 2, "metadata")
        rows = 32 if meta.dtype.itemsize == 2 else 16
        require(meta.shape[0] % rows == 0 == meta.shape[1] % 2, "multiples")
        place, out = formats.places(*meta.shape, meta.dtype), np.empty(meta.size, meta.dtype)
        if name == "reorder_meta":
            out[place] = meta.ravel()
        else:
            out[...] = meta.ravel()[place]
        return Same(out.reshape(meta.shape))

    return public(name, {"meta": meta}, expected)


def tiles(draws: Draws) -> Case:
    dtype = draws.choice((*HALVES, INT8, FP8))
    multiple = max(formats.multiples(dtype))
    dense = (
        _dense(draws, dtype, multiple, multiple)
        if draws.chance(80)
        else np.zeros((0, multiple), dtype)
    )
    dense = dense[: 2 * multiple, : 2 * multiple]
    arguments = {"dense": dense, "algorithm": draws.choice(formats.ALGORITHMS)}

    def expected(dense: Any, algorithm: Any) -> tuple[Same, ...]:
        dense = array(dense)
        require(dense.ndim == 2 and dense.dtype in (*HALVES, INT8, FP8), "a matrix")
        least = max(formats.multiples(dense.dtype))
        require(
            not (dense.shape[0] % least or dense.shape[1] % least)
            and algorithm in formats.ALGORITHMS,
            "arguments",
        )
        pruned = formats.prune_tile(dense, algorithm)
        halves = (*formats.compress(pruned), *formats.compress(pruned.T))
        return tuple(map(Same, (*halves, formats.bitmask(pruned))))

    return public("semi_structured_tile", arguments, expected)


def bitmasks(draws: Draws) -> Case:
    name = draws.choice(("compressed_swizzled_bitmask", "semi_structured_apply_dense"))
    dense = _dense(draws, draws.choice((*_ORDERED, FP8)), 8, 8)
    arguments = {"pruned" if name[0] == "c" else "dense": dense}
    if name[0] == "s":
        arguments["bitmask"] = formats.bitmask(draws.rng().random(dense.shape) < 0.5)

    def expected(pruned: Any = None, dense: Any = None, bitmask: Any = None) -> Same:
        matrix = array(pruned if name[0] == "c" else dense)
        require(matrix.ndim == 2 and matrix.dtype in (*_ORDERED, FP8), "a matrix")
        require(matrix.shape[0] % 8 == 0 == matrix.shape[1] % 8, "multiples")
        if name[0] == "c":
            return Same(formats.bitmask(matrix))
        bitmask = array(bitmask)
        require(
            bitmask.dtype == np.uint8
            and bitmask.shape == (matrix.shape[0] // 8, matrix.shape[1] // 8, 8),
            "a mask",
        )
        return Same(np.where(formats.unmasked(bitmask), matrix, np.zeros((), matrix.dtype)))

    return public(name, arguments, expected)


def apply_bitmask(draws: Draws) -> Case:
    dtype = draws.choice(_FORMATTED)
    multiple = max(formats.multiples(dtype))
    dense = _dense(draws, dtype, multiple, multiple)[: 2 * multiple, : 2 * multiple]
    strict = draws.chance(30)
    mask = draws.rng().random(dense.shape) < 0.5
    if strict:
        ones = np.ones(dense.shape, dtype if dtype != SINGLE else np.float16)
        mask = formats.prune_tile(ones, "") != 0
        mask = (
            mask & (np.add.outer(*(np.arange(n) for n in dense.shape)) % 2 == 0)
            if dtype == SINGLE
            else mask
        )
    arguments = {"dense": dense, "bitmask": formats.bitmask(mask), "strict": strict}

    def expected(dense: Any, bitmask: Any, strict: Any) -> tuple[Same, ...]:
        dense, bitmask = array(dense), array(bitmask)
        require(
            dense.ndim == 2 and dense.dtype in _FORMATTED and bitmask.dtype == np.uint8,
            "a matrix and a mask",
        )
        require(bitmask.shape == (dense.shape[0] // 8, dense.shape[1] // 8, 8), "the mask's shape")
        require(dense.shape[0] % multiple == 0 == dense.shape[1] % multiple, "multiples")
        kept = np.where(formats.unmasked(bitmask), dense, np.zeros((), dense.dtype))
        require(not strict or (formats.is_24(kept) and formats.is_24(kept.T)), "2:4")
        return tuple(map(Same, (*formats.compress(kept), *formats.compress(kept.T))))

    return public("semi_structured_apply", arguments, expected)


def vendor_layout(draws: Draws) -> Case:
    dtype = draws.choice(HALVES)
    shape = (128 * draws.count(2), 64 * draws.count(2))
    packed, meta = formats.compress(random_24(draws.rng(), shape, dtype))
    capability = draws.choice((None, (8, 0), (9, 0)))

    def call(packed: Any, meta: Any, capability: Any) -> Any:
        buffer = sparsegpu.to_cusparselt_layout(packed, meta, capability=capability)
        assert buffer.shape == (9 * shape[0] * shape[1] // 16,)
        return sparsegpu.from_cusparselt_layout(buffer, shape, capability=capability)

    def expected(packed: Any, meta: Any, capability: Any) -> tuple[Same, Same]:
        packed, meta = array(packed), array(meta)
        require(packed.shape == (shape[0], shape[1] // 2), "the values")
        require(meta.dtype.name in METADATA[:2], "the metadata")
        return Same(packed), Same(meta.view(np.int16))

    arguments = {"packed": packed, "meta": meta, "capability": capability}
    function = sparsegpu.to_cusparselt_layout
    return Case("to_cusparselt_layout", call, arguments, expected, documented=function)


def from_vendor_layout(draws: Draws) -> Case:
    """Buffers of any contents and size: what is no 2:4 matrix's size is refused."""
    dtype = draws.choice(HALVES)
    m, k = 128 * draws.count(2), 64 * draws.count(2)
    packed, meta = formats.compress(random_24(draws.rng(), (m, k), dtype))
    whole = sparsegpu.to_cusparselt_layout(packed, meta)
    arguments = {"buffer": whole, "shape": (m, k), "capability": (8, 0)}

    def expected(buffer: Any, shape: Any, capability: Any) -> tuple[Same, Same]:
        buffer = array(buffer)
        require(buffer.dtype in HALVES, "a half")
        require(tuple(shape) == (m, k), "its shape")
        generation = 8 if capability is None else int(capability[0])
        require(generation in {8, 9}, "a capability")
        if buffer.ravel().tobytes() != whole.tobytes() or generation == 9:
            return Holds(lambda got: None), Holds(lambda got: None)  # of other metadata
        return Same(packed), Same(meta)

    return public("from_cusparselt_layout", arguments, expected)


def to_semi_structured(draws: Draws) -> Case:
    dtype = draws.choice(_FORMATTED)
    group = 2 if dtype == SINGLE else 4
    shape = (draws.count(40), draws.count(20) * group)
    dense = random_24(draws.rng(), shape, dtype, small_integers=True)
    pad = draws.chance(80) or bool(shape[0] % formats.multiples(dtype)[0]) or shape[1] % 64 != 0

    def call(dense: Any, pad: Any) -> Any:
        return sparsegpu.to_semi_structured(dense, pad=pad).todense()

    def expected(dense: Any, pad: Any) -> Same:
        dense = array(dense)
        require(dense.ndim == 2 and dense.dtype in _FORMATTED, "a matrix")
        rows, columns = formats.multiples(dense.dtype)
        require(pad or dense.shape[0] % rows == 0 == dense.shape[1] % columns, "multiples")
        return Same(dense)

    function = sparsegpu.to_semi_structured
    arguments = {"dense": dense, "pad": pad}
    return Case("to_semi_structured", call, arguments, expected, documented=function)


CASES = (
    prune_24,
    permute_for_24,
    prune_tile,
    from_dense,
    to_dense,
    metadata,
    tiles,
    bitmasks,
    apply_bitmask,
    vendor_layout,
    from_vendor_layout,
    to_semi_structured,
)
