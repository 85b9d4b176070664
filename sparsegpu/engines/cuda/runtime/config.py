"""Which kernel path a call takes: pure Python, decided from what the caller knows.

Nothing is measured or searched here; `sparsegpu.tune` writes the dicts that callers pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...._checks import bad_type, bad_value, not_offered
from ...._support import KERNELS, paths, runs_on

#: k of one tensor-core product by operand dtype (ptx/mma.cuh: 32 bytes).
_MMA_K_BYTES = 32

#: Smallest block that fills the instruction's 16 rows at least half.
_LEAST_ROWS = 8


def choose_path(
    op: str,
    dtype: np.dtype,
    cc: tuple[int, int],
    *,
    blocksize: tuple[int, int] | None = None,
    allow_tf32: bool = False,
    config: Mapping[str, Any] | None = None,
) -> str:
    """Return the path for a call: ``config["path"]``, or the preferred one that fits.

    Parameters
    ----------
    op : str
        Of `_support.OPERATIONS`.
    dtype : dtype
        Of the operands.
    cc : (major, minor)
        Compute capability of the device.
    blocksize : (bm, bk), optional
        A tensor-core path is not chosen for blocks that would mostly pad it.
    allow_tf32 : bool
        float32 takes a tensor-core path only with it.
    config : mapping, optional
        An entry "path" decides; other entries are the kernel's own.

    Raises
    ------
    ValueError
        When ``config["path"]`` does not serve this op and dtype on this device.
    NotImplementedError
        When no path does.
    """
    offered = [p for p in paths(op, dtype, cc) if _allowed(p, op, dtype, cc, allow_tf32)]
    if not offered:
        served = sorted({name for row in KERNELS if op in row.ops for name in row.dtypes})
        raise not_offered(
            op,
            f"{dtype} on compute capability {cc[0]}.{cc[1]}",
            f"the dtypes {', '.join(served)} on 8.0 and later (fp8: 8.9)",
        )
    wanted = config_value(op, config, "path", str, None)
    if wanted is not None:
        if wanted not in offered:
            raise bad_value(op, "config['path']", f"one of {', '.join(offered)}", repr(wanted))
        return wanted
    for path in offered:
        if path == "simt" or blocksize is None or _fits(blocksize, dtype):
            return path
    return offered[0]


def _allowed(path: str, op: str, dtype: np.dtype, cc: tuple[int, int], allow_tf32: bool) -> bool:
    """Return whether the arithmetic of a path is what the caller asked for."""
    if dtype != np.float32 or allow_tf32:
        return True
    name = dtype.name
    return not any(
        row.tensor_core
        for row in KERNELS
        if row.path == path and op in row.ops and name in row.dtypes and runs_on(row.archs, cc)
    )


def _fits(blocksize: tuple[int, int], dtype: np.dtype) -> bool:
    """Return whether a block fills at least half of one tensor-core product."""
    bm, bk = blocksize
    return bm >= _LEAST_ROWS and 2 * bk * dtype.itemsize >= _MMA_K_BYTES


def config_value(
    op: str, config: Mapping[str, Any] | None, name: str, kind: type, default: Any
) -> Any:
    """Return an entry of a config dict, or the default where it is missing.

    Raises
    ------
    TypeError
        When ``config`` is no mapping or the entry is of another type.
    """
    if config is None:
        return default
    if not isinstance(config, Mapping):
        raise bad_type(op, "config", "a dict or None", type(config).__name__)
    value = config.get(name, default)
    if value is not default and not isinstance(value, kind):
        raise bad_type(op, f"config['{name}']", kind.__name__, repr(value))
    return value
