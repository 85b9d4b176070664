"""Softmax over the stored elements of a block-sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import HALF_DTYPES, check_dtype_among, common_namespace
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ._canonical import canonical_blocks, check_out_pattern
from ._common import check_sparse, on_device, prepare_out, resolve_out_dtype

_DTYPES = (*HALF_DTYPES, np.dtype(np.float32), np.dtype(np.float64))


def bsr_softmax(bsr: Any, *, out: Any = None) -> Any:
    """Softmax along each row, over the stored elements only.

    What is not stored counts as minus infinity. Rows without stored blocks stay empty; a row
    whose stored elements are all -inf gives NaN. Computed in float32 (float64 for float64) with
    the row's maximum subtracted, rounded once; rows may be of any length.

    Parameters
    ----------
    bsr : bsr_array (*B, M, K)
        float16, bfloat16, float32 or float64. Duplicate blocks are summed first.
    out : bsr_array, optional
        With the pattern of the result (``bsr``'s own, columns ascending, without duplicates).
        May be ``bsr`` itself.

    Returns
    -------
    bsr_array
        Of the canonical pattern; ``out`` when given.

    Raises
    ------
    TypeError
        A dtype without exponentials.
    ValueError
        ``out`` with another pattern or overlapping ``bsr`` in part.

    Notes
    -----
    Three passes over a row (maximum, sum, quotient), as in Milakov and Gimelshein, "Online
    normalizer calculation for softmax", 2018, section 2.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.array([[1.0, 1, 0, 0], [2, 2, 0, 0]]), blocksize=(2, 2))
    >>> sparsegpu.bsr_softmax(A).toarray()
    array([[0.5, 0.5, 0. , 0. ],
           [0.5, 0.5, 0. , 0. ]])
    """
    function = "bsr_softmax"
    check_sparse(function, "bsr", bsr)
    check_dtype_among(function, "bsr", bsr.data.dtype, _DTYPES)
    if out is not None:
        check_sparse(function, "out", out)
    out_data = None if out is None else out.data
    own_pattern = out is None or out.pattern is bsr.pattern  # else its indices are to be compared
    call = Call(function, bsr.pattern, (bsr.data, out_data), (own_pattern,), out_data)
    replayed = call.replay()
    if replayed is not None:
        return out if out is not None else bsr._with(bsr.pattern, *replayed)
    xp = common_namespace(function, bsr=bsr.data, out=out_data)
    dtype = resolve_out_dtype(function, bsr.data.dtype, out_data, None)
    pattern, data = canonical_blocks(bsr, function, "bsr")
    if out is not None:
        check_out_pattern(function, out, pattern)
    with on_device(data, pattern, call):
        result = prepare_out(function, out_data, data.shape, dtype, xp, input=bsr.data)
        if result.size:
            engine_module(xp, "softmax", function).bsr_softmax(result, pattern, data)
            if own_pattern and data is bsr.data:
                call.keep(result)
    return out if out is not None else bsr._with(pattern, result)
