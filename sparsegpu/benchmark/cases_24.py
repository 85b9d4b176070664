"""The cases of 2:4: products by dtype and shape, and conversions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .bars import Bar
from .case import PLAIN_24, Case
from .peer import CUSPARSELT, DENSE, STAND_IN, TORCH_24

_8192 = (8192, 8192, 8192)
#: M, K, N of the products that are bound by the tensor cores.
_LARGE = (
    (4096, 4096, 4096),
    _8192,
    (16384, 16384, 16384),
    (10240, 3072, 4096),
    (3072, 10240, 4096),
)
_PEERS = (DENSE, CUSPARSELT, STAND_IN)
#: dtype -> how many times as fast as cuSPARSELt, which takes 8-bit operands by columns only.
_AHEAD = {"bfloat16": 1.12, "float16": 1.12, "int8": 1.08, "float8_e4m3fn": 1.08}
#: What prepares 2:4 operands in other ways, at 4096 x 4096: on the device alone, and with waits.
_ON_DEVICE = ("to_cusparselt_layout", "reorder_meta", "restore_meta", "compressed_swizzled_bitmask")
_WAITS = ("from_cusparselt_layout", "quantize_int8")
#: ms at 16384 x 16384, bfloat16; strict compression has the time of the other as its bar.
_FORMAT_MS = {
    "compress": 0.26,
    "strict compress": None,
    "expand": 0.26,
    "prune_24": 0.33,
    "prune_tile": 0.36,
    "tile": 0.36,
    "apply": None,
    "apply_dense": None,
}
_STRICTNESS = 1.05


def products() -> Iterable[Case]:
    """2:4 @ dense beside cuSPARSELt, and the host time of a call; 2:4 blocks."""
    plain = Case("2:4", PLAIN_24, 0.5, _8192, operation="2:4", peers=_PEERS)
    for dtype, ahead in _AHEAD.items():
        bars = tuple(Bar("peer time", 1 / ahead, peer) for peer in (CUSPARSELT, STAND_IN))
        layout = "dense columns" if ahead == _AHEAD["int8"] else "plain"
        for size in _LARGE:
            yield replace(plain, size=size, dtype=dtype, layout=layout, bars=bars)
        for n in (128, 64, 16):
            bars = (Bar("ms", 0.026), Bar("peer time", 1, DENSE)) if dtype == "bfloat16" else ()
            size = (8192, 8192, n)
            yield replace(plain, size=size, dtype=dtype, layout=layout, flush=True, bars=bars)
    for size in _LARGE[:2]:  # torch's search may never end for float32
        tf32 = replace(plain, size=size, dtype="float32", tf32=True, peers=(CUSPARSELT,))
        yield replace(tf32, layout="dense columns")
    for layout in ("dense columns", "out columns"):
        bar = Bar("case rate", 0.95, plain.name)
        yield replace(plain, layout=layout, peers=(), bars=(bar,))
    yield replace(
        plain,
        size=(1024, 1024, 1024),
        measure="host",
        peers=(DENSE, CUSPARSELT),
        bars=(Bar("ms", 0.015),),
    )
    for density in (0.5, 0.1):  # beside the same product of whole blocks
        whole = Case("main", (128, 128), density, _8192)
        bars = (Bar("case rate", 1.25, whole.name),) if density == 0.5 else ()
        yield replace(whole, section="2:4", operation="2:4 blocks", bars=bars)


def formats() -> Iterable[Case]:
    """Into the 2:4 format and out of it: compression, pruning, masks, other layouts."""
    size = (16384, 16384, 16384)
    plain = Case("2:4 formats", PLAIN_24, 0.5, size, operation="compress", flush=True)
    for operation, ms in _FORMAT_MS.items():
        bars = () if ms is None else (Bar("ms", ms),)
        if operation == "strict compress":
            bars = (Bar("case rate", 1 / _STRICTNESS, plain.name),)
        peers = () if operation in {"prune_24", "prune_tile", "strict compress"} else (TORCH_24,)
        yield replace(plain, operation=operation, peers=peers, bars=bars)
    other = replace(plain, size=_LARGE[0])
    for operation in _ON_DEVICE:
        yield replace(other, operation=operation)
    for operation in _WAITS:
        yield replace(other, operation=operation, flush=False, measure="whole call")
    search = replace(other, size=(1024, 1024, 1024), flush=False, measure="whole call")
    yield replace(search, operation="permute_for_24", dtype="float32")
