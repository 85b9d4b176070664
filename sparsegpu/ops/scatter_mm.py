"""Products of blocks added where an index list says, and the BSR product made of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace, device_of
from .._checks import bad_value, check_broadcasts_to
from ..engines import check_config, engine_module
from ..engines.cuda.runtime.replay import Call
from ._bsr_product import matmul
from ._canonical import distinct_blocks, distinct_pattern
from ._common import (
    check_operand_dtypes,
    check_sparse,
    on_device,
    optional_out,
    prepare_out,
    resolve_out_dtype,
)
from ._long_scatter import add_pairs, add_tiles, cut_pairs, cut_tiles
from ._long_sums import may_be_long
from ._scatter_blocks import column_blocks, place_tiles, rows_with_blocks, split_of
from ._scatter_check import Lists, disjoint_rounds, name_arrays, read_lists
from .scatter_indices import (
    META,
    TILE,
    IndicesData,
    bsr_scatter_mm_indices_data,
    check_product,
)


def scatter_mm(
    blocks: Any,
    others: Any,
    indices_data: tuple,
    *,
    accumulators: Any = None,
    config: dict[str, Any] | None = None,
) -> Any:
    """Multiply blocks pairwise and add the products where index lists say.

    What is computed depends on the format, ``indices_data[0]``::

        ("scatter_mm", c_offsets, pq)
            for r, for (p, q) in pq[c_offsets[r]:c_offsets[r+1]]:
                accumulators[r] += blocks[p] @ others[q]

        ("bsr_strided_mm", c_indices, r_offsets, p_offsets, q_offsets, meta)
            for i, with (r0, r1) = divmod(r_offsets[i], N):
                for g in c_indices[i]..c_indices[i+1], with (q0, q1) = divmod(q_offsets[g], N):
                    acc[b, r0:r0+Ms, r1:r1+Ns] +=
                        blocks[p_offsets[g]] @ others[b, q0:q0+Ks, q1:q1+Ns]

        ("bsr_strided_mm_compressed", c_indices, r_offsets, q_offsets, meta)
            the same with c_indices = indptr: the tile at r has the blocks c0..c1 of block row
            m = r0 // Ms, and with n = r1 // Ns block c0 + i is multiplied by the tile at
            q_offsets[n*c1 + (SPLIT_N - n)*c0 + i]

    Parameters
    ----------
    blocks : array (P, Ms, Ks)
    others : array (Q, Ks, Ns), or (*B, K, N) in the strided formats
        Ns = N // SPLIT_N there. Same dtype as ``blocks``.
    indices_data : tuple
        From `bsr_scatter_mm_indices_data` (only its sizes are compared, nothing is read), or made
        by the caller (every index is read and checked; this may synchronise). In the strided
        formats two tiles may be the same tile, and then add up, but may not overlap otherwise.
    accumulators : array (R, Ms, Ns), or (*B, M, N) in the strided formats; optional
        Added to in place. Without it they start at zero in blocks' dtype, with M =
        (len(c_indices) - 1) * Ms in the compressed format and Ms + max(r_offsets) // N in
        "bsr_strided_mm".
    config : dict, optional
        Which kernel multiplies on a GPU, as in `bsr_addmm`. ``TILE_M``, ``TILE_N`` and
        ``GROUP_SIZE`` of the lists are fields of its tile where ``config`` does not say them.

    Returns
    -------
    array
        ``accumulators``. Each sum is formed in accumulator precision and rounded once, with what
        was there; integers saturate.

    Raises
    ------
    ValueError
        An unknown format; an index out of range; offsets that fall; lists of lengths that do not
        fit; tiles that overlap in part; shapes that do not fit; a ``config``, or a tile, that the
        operands cannot have.
    TypeError
        Mixed dtypes or array libraries; index arrays that are not integers.

    Notes
    -----
    The formats are those of PyTorch's ``torch.sparse._triton_ops.scatter_mm``.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> blocks, others = np.ones((2, 1, 2)), np.ones((3, 2, 1))
    >>> c_offsets, pq = np.array([0, 2, 3]), np.array([[0, 0], [1, 2], [1, 1]])
    >>> sparsegpu.scatter_mm(blocks, others, ("scatter_mm", c_offsets, pq)).ravel()
    array([4., 2.])
    """
    function = "scatter_mm"
    blocks, others = as_array(blocks, function, "blocks"), as_array(others, function, "others")
    given, accumulators = accumulators, optional_out(accumulators, function, "accumulators")
    call = _call(function, (blocks, others), indices_data, accumulators, config)
    replayed = call.replay() if call else None
    if replayed is not None:
        return replayed[0] if given is None else given
    check_operand_dtypes(function, ("blocks", "others"), blocks.dtype, others.dtype)
    check_config(function, config, function)
    if blocks.ndim != 3:
        raise bad_value(function, "blocks", "shape (P, Ms, Ks)", tuple(blocks.shape))
    strided = _check_others(function, blocks, others, indices_data)
    dtype = resolve_out_dtype(
        function,
        blocks.dtype,
        accumulators,
        blocks.dtype if accumulators is None else None,
        "accumulators",
    )
    with on_device(blocks, indices_data if call else None, call):
        lists = _lists(function, indices_data, blocks, others, accumulators)
        batch = tuple(others.shape[:-2])
        if not strided:
            shape = (lists.fit.rows, blocks.shape[1], others.shape[-1])
        elif accumulators is None:
            compressed = lists.indices_format == "bsr_strided_mm_compressed"
            m = (len(lists.arrays["c_indices"]) - 1) * blocks.shape[1]
            shape = (*batch, m if compressed else lists.fit.rows, others.shape[-1])
        else:
            shape = tuple(accumulators.shape)
            _check_strided_accumulators(function, "accumulators", shape, lists, batch)
        xp = common_namespace(function, blocks=blocks, others=others)
        operands = {"blocks": blocks, "others": others}
        result = prepare_out(
            function, accumulators, shape, dtype, xp, operands=operands, argument="accumulators"
        )
        if accumulators is None:
            _clear(function, xp, result)
        alone = _run(function, xp, result, blocks, others, lists, config)
        if call and alone:
            call.keep(result)
    return result if given is None else given


def bsr_scatter_mm(
    bsr: Any,
    other: Any,
    indices_data: Any = None,
    out: Any = None,
    *,
    config: dict[str, Any] | None = None,
) -> Any:
    """Return ``bsr @ other``, which index lists describe.

    Parameters
    ----------
    bsr : bsr_array (M, K)
        Duplicate blocks are summed first.
    other : array (*B, K, N)
    indices_data : tuple, optional
        From `bsr_scatter_mm_indices_data`: such lists know their pattern, and this is the product
        of that pattern as `bsr_addmm` computes it, whatever their format. The same without lists.
        Lists made by the caller are read, checked and followed as `scatter_mm` does, and so are
        lists with ``TILE_M``, ``TILE_N`` or ``GROUP_SIZE``, which only its kernels have.
    out : array (*B, M, N), optional
        Overwritten.
    config : dict, optional
        As in `scatter_mm`, whose kernels then follow the lists.

    Returns
    -------
    array (*B, M, N)
        Of the operands' dtype (int8: int32), or ``out``.

    Raises
    ------
    ValueError
        Shapes or index lists that do not fit; a batched ``bsr``; ``out`` overlapping an operand;
        a ``config``, or a tile, that the operands cannot have.
    TypeError
        Mixed dtypes or array libraries.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.bsr_scatter_mm(A, np.ones((4, 1))).ravel()
    array([1., 2., 3., 4.])
    """
    function = "bsr_scatter_mm"
    check_sparse(function, "bsr", bsr)
    other, given, out = as_array(other, function, "other"), out, optional_out(out, function)
    check = partial(_check_operands, function, bsr, other, out, config)
    names = "bsr", "other"
    made = isinstance(indices_data, IndicesData)
    usual = indices_data.is_product(bsr.pattern, other.shape) if made else indices_data is None
    if usual and config is None:
        return matmul(function, bsr, other, names=names, out=given, check=check)
    dtype = check()
    xp, shape = bsr.pattern.xp, (*other.shape[:-2], bsr.pattern.shape[0], other.shape[-1])
    known = bsr if indices_data is None else _known_product(function, indices_data, bsr, other)
    if known is not None and not (config or _asks_for_a_tile(function, indices_data)):
        return matmul(function, known, other, names=names, out=given)
    if indices_data is None:
        indices_data = bsr_scatter_mm_indices_data(bsr, other)
    matrix = bsr if known is None else known
    with on_device(other, matrix.pattern):
        pattern, blocks = distinct_blocks(matrix, function, "bsr")
        operands = {"bsr": bsr.data, "other": other}
        others = other
        if name_arrays(function, indices_data)[0] == "scatter_mm":
            rows = rows_with_blocks(pattern)
            split = split_of(function, indices_data, other, rows.size)
            others = column_blocks(other, pattern.blocksize[1], split, xp)
            lists = _lists(function, indices_data, blocks, others, None)
            result = prepare_out(function, out, shape, dtype, xp, operands=operands)
            tiles = xp.zeros((lists.fit.rows, blocks.shape[1], others.shape[-1]), dtype)
            _run(function, xp, tiles, blocks, others, lists, config)
            place_tiles(result, tiles, pattern, rows, split, xp)
            return result if given is None else given
        lists = _lists(function, indices_data, blocks, others, out)
        _check_strided_accumulators(function, "indices_data", shape, lists, tuple(other.shape[:-2]))
        result = prepare_out(function, out, shape, dtype, xp, operands=operands)
        # What the kernel cannot have is refused before anything is written to `out`.
        sums = xp.empty(shape, dtype) if out is not None and (config or lists.tile) else result
        _clear(function, xp, sums)
        _run(function, xp, sums, blocks, others, lists, config)
        if sums is not result:
            result[...] = sums
    return result if given is None else given


def _check_operands(function: str, bsr: Any, other: Any, out: Any, config: Any) -> np.dtype:
    """Refuse operands that do not fit; return the result's dtype."""
    check_operand_dtypes(function, ("bsr", "other"), bsr.data.dtype, other.dtype)
    common_namespace(function, bsr=bsr.data, other=other, out=out)
    check_product(function, bsr.pattern, other)
    dtype = resolve_out_dtype(function, bsr.data.dtype, out, None)
    check_config("scatter_mm", config, function)
    return dtype


def _asks_for_a_tile(function: str, indices_data: Any) -> bool:
    """Return whether index lists say what tile a kernel is to have."""
    if indices_data is None:
        return False
    return not set(TILE).isdisjoint(name_arrays(function, indices_data)[2])


def _known_product(function: str, indices_data: Any, bsr: Any, other: Any) -> Any:
    """Return the matrix whose product with ``other`` the lists are; None where they do not know.

    Its blocks are those of ``bsr``. Refuse lists that do not fit.
    """
    if not isinstance(indices_data, IndicesData) or indices_data.pattern is None:
        return None
    fit, pattern = indices_data.fit, indices_data.pattern
    own = distinct_pattern(bsr.pattern, function, "bsr")
    if (own.nnzb, own.blocksize) != (fit.blocks, fit.block_shape):
        expected = f"{fit.blocks} blocks of {fit.block_shape} as in indices_data"
        raise bad_value(function, "bsr", expected, f"{own.nnzb} of {own.blocksize}")
    _check_other(function, indices_data, other)
    if own is pattern:
        return bsr
    if own.shape != pattern.shape:
        return None
    return bsr._with(pattern, distinct_blocks(bsr, function, "bsr")[1])


def _check_other(function: str, indices_data: IndicesData, other: Any) -> None:
    """Refuse an ``other`` that lists made here were not made for."""
    fit, (k, n) = indices_data.fit, other.shape[-2:]
    if fit.columns is not None:
        if (k, n) != (fit.inner, fit.columns):
            expected = f"shape (*batch, {fit.inner}, {fit.columns}) as in indices_data"
            raise bad_value(function, "other", expected, tuple(other.shape))
        return
    size = int(np.prod(other.shape[:-2], dtype=np.int64))
    tiles = size * (k // fit.block_shape[1]) * fit.split_n
    if n % fit.split_n or tiles != fit.inner:
        expected = f"{fit.inner} tiles, {fit.split_n} side by side, as in indices_data"
        raise bad_value(function, "other", expected, tuple(other.shape))


def _call(
    function: str, arrays: tuple, indices_data: Any, out: Any, config: dict[str, Any] | None
) -> Call | None:
    """Return the call to be replayed; None with index lists that the caller made.

    The host reads those on every call: they may have changed at the same addresses. Nor is a call
    recorded with lists of another device.
    """
    if not isinstance(indices_data, IndicesData) or indices_data.device != device_of(arrays[0]):
        return None
    meta, last = indices_data.meta, indices_data[-1]
    if isinstance(last, dict):  # which the caller may change
        meta = last
    how = None if config is None else repr(config)
    return Call(function, indices_data, (*arrays, out), (*map(meta.get, META), how), out)


def _check_others(function: str, blocks: Any, others: Any, indices_data: Any) -> bool:
    """Refuse others of a wrong shape; return whether the format is a strided one."""
    ks = blocks.shape[2]
    if name_arrays(function, indices_data)[0] == "scatter_mm":
        if others.ndim != 3 or others.shape[1] != ks:
            raise bad_value(function, "others", f"shape (Q, {ks}, Ns)", tuple(others.shape))
        return False
    if others.ndim < 2:
        raise bad_value(function, "others", "shape (*batch, K, N)", tuple(others.shape))
    return True


def _lists(function: str, indices_data: Any, blocks: Any, others: Any, accumulators: Any) -> Lists:
    """Return checked index lists: by their sizes when made here, else by reading them."""
    indices_format, arrays, meta = name_arrays(function, indices_data)
    common_namespace(function, blocks=blocks, others=others, accumulators=accumulators, **arrays)
    if not isinstance(indices_data, IndicesData):
        return read_lists(function, indices_format, arrays, meta, blocks, others)
    fit = indices_data.fit
    expected = (fit.blocks, *fit.block_shape)
    if tuple(blocks.shape) != expected:
        raise bad_value(
            function, "blocks", f"shape {expected} as in indices_data", tuple(blocks.shape)
        )
    if fit.columns is None:
        if len(others) != fit.inner:
            raise bad_value(function, "others", f"{fit.inner} as in indices_data", len(others))
    elif tuple(others.shape[-2:]) != (fit.inner, fit.columns):
        expected_others = f"shape (*batch, {fit.inner}, {fit.columns}) as in indices_data"
        raise bad_value(function, "others", expected_others, tuple(others.shape))
    return Lists(indices_format, arrays, fit, meta, trusted=True)


def _check_strided_accumulators(
    function: str, argument: str, shape: tuple[int, ...], lists: Lists, batch: tuple[int, ...]
) -> None:
    if len(shape) < 2 or shape[-2] < lists.fit.rows or shape[-1] != lists.fit.columns:
        raise bad_value(
            function,
            argument,
            f"a result (*batch, M, {lists.fit.columns}) with M >= {lists.fit.rows} rows",
            shape,
        )
    check_broadcasts_to(function, "others", batch, shape[:-2])


def _clear(function: str, xp: Any, result: Any) -> None:
    if result.size:
        engine_module(xp, "scatter_mm", function).clear(result)


def _run(
    function: str,
    xp: Any,
    result: Any,
    blocks: Any,
    others: Any,
    lists: Lists,
    config: dict[str, Any] | None,
) -> bool:
    """Add the products to ``result``; return whether the engine alone did it."""
    if not (result.size and blocks.size and others.size):
        return True
    engine = engine_module(xp, "scatter_mm", function)
    how = {"config": config, "meta": lists.tile}
    if may_be_long(blocks.dtype, lists.fit.longest, blocks.shape[2]):
        _run_long(engine, result, blocks, others, lists, how)
        return False
    for arrays in disjoint_rounds(lists):
        if lists.indices_format == "scatter_mm":
            engine.scatter_mm(result, blocks, others, *arrays.values(), **how)
        elif arrays["r_offsets"].size:
            compute = getattr(engine, lists.indices_format)
            compute(result, blocks, others, *arrays.values(), lists.fit.split_n, **how)
    return True


def _run_long(
    engine: Any, result: Any, blocks: Any, others: Any, lists: Lists, how: dict[str, Any]
) -> None:
    """Add int8 products of which some sums do not fit int32."""
    fit, ks = lists.fit, blocks.shape[2]
    keep = (lambda build: build()) if fit.memo is None else partial(fit.memo.memo, "long sums")
    for arrays in disjoint_rounds(lists):
        if lists.indices_format == "scatter_mm":
            cut = keep(partial(cut_pairs, arrays["c_offsets"], ks))
            add_pairs(engine, result, blocks, others, cut, arrays["pq"], **how)
        elif arrays["r_offsets"].size:
            n, split = result.shape[-1], fit.split_n
            tiles = keep(partial(cut_tiles, arrays, fit.block_shape, n, split))
            add_tiles(engine, result, blocks, others, tiles, split, **how)
