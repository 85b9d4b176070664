"""The cases as data: what is measured, beside which peers, and the bars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .bars import Bar
from .case import PLAIN_24, Case
from .cases_24 import formats, products
from .cases_arrays import arrays
from .cases_attention import forward, gradients, masks
from .cases_kernels import wrapped
from .cases_solvers import solvers
from .cases_spgemm import products as sparse_products
from .peer import (
    BSR,
    CSR,
    DENSE,
    SDDMM_BSR,
    SDDMM_CSR,
    TORCH,
    TORCH_BMM,
    TORCH_LISTS,
    TORCH_PAIRS,
    TORCH_SCATTER,
    TORCH_SOFTMAX,
)
from .scatter import PAIRS
from .softmax import SOFTMAX
from .spgemm import OPERATION as SPGEMM

_8192 = (8192, 8192, 8192)
_4096 = (4096, 4096, 4096)
#: TF at 8192, bfloat16: block size -> density -> bar.
BARS = {
    16: {0.5: 330, 0.1: 150, 0.05: 110},
    32: {0.5: 380, 0.1: 230, 0.05: 170},
    64: {0.5: 550, 0.1: 420, 0.05: 320},
    128: {0.5: 700, 0.1: 580, 0.05: 430},
}
_NEVER_SLOWER = Bar("peer time", 1.05, DENSE)
#: Host time of a repeated call.
_HOST = Bar("ms", 0.015)
#: What else has its host time measured: of `operations.OPERATIONS` and those of larger cases, of
#: `formats.FORMATS` and of `preparation.PREPARATIONS`.
HOST_OPERATIONS = (
    *("toarray", "transpose", "bsr_array", "bsr_softmax", "bsr_softmax_backward"),
    *("scaled_dot_product_attention", "sampled_addmm", "scatter_mm", "bsr_scatter_mm"),
    SPGEMM,
)
HOST_FORMATS = ("compress", "expand", "prune_24", "prune_tile", "tile", "apply", "apply_dense")
HOST_PREPARATIONS = ("compressed_swizzled_bitmask", "reorder_meta", "restore_meta")
#: A conversion of a dense matrix waits for the number of its blocks, so it has no bar.
_WAITS = ("bsr_array",)

#: TF of torch's tuned Triton product in these cases on an H200, which uses mma.sync.
TRITON = {
    16: {0.5: 133, 0.1: 108, 0.05: 77},
    32: {0.5: 221, 0.1: 150, 0.05: 112},
    64: {0.5: 349, 0.1: 204, 0.05: 110},
    128: {0.5: 426, 0.1: 215, 0.05: 144},
}


def _square(block: int) -> tuple[int, int]:
    return block, block


def _main() -> Iterable[Case]:
    """bfloat16 at 8192: the twelve bars, each also compared with dense."""
    for block, bars in BARS.items():
        for density, tf in bars.items():
            peers = (DENSE, TORCH, BSR) if (block, density) == (64, 0.1) else (DENSE, TORCH)
            case = Case("main", _square(block), density, _8192, peers=peers)
            yield replace(case, bars=(Bar("TF", tf), _NEVER_SLOWER))


def _medium() -> Iterable[Case]:
    """bfloat16 at 4096, where launch overhead and the last wave of tiles count."""
    for block in (16, 32, 64, 128):
        bar = (Bar("ms", 0.05),) if block >= 64 else ()
        yield Case("4096", _square(block), 0.1, _4096, peers=(DENSE, TORCH), bars=bar)


def _portable() -> Iterable[Case]:
    """The main cases on the path of compute capability 8.0 (mma.sync), beside torch."""
    for case in _main():
        bar = Bar("peer or TF", TRITON[case.block[0]][case.density], TORCH)
        portable = replace(case, section="8.0 path", path="groups", bars=(bar,))
        yield replace(portable, peers=(), peers_of=case.name)


def _host() -> Iterable[Case]:
    """Host time of a repeated call, small operands; the schedule of a pattern, its first call."""
    product = Case("host", (64, 64), 0.1, (1024, 1024, 1024), measure="host", bars=(_HOST,))
    for block in (16, 64):
        yield replace(product, block=_square(block), peers=(DENSE, TORCH))
    yield replace(product, operation="2:4 blocks")
    small = replace(product, size=(1024, 1024, 64))
    for operation in HOST_OPERATIONS:
        yield replace(small, operation=operation, bars=() if operation in _WAITS else (_HOST,))
    for operation in (*HOST_FORMATS, *HOST_PREPARATIONS):
        yield replace(small, operation=operation, block=PLAIN_24, density=0.5)
    first = Case("host", (16, 16), 0.1, _8192, measure="first call")
    yield replace(first, measure="schedule", bars=(Bar("ms", 0.1),))
    # Grouping similar rows costs more than a schedule and makes every product faster: no bar.
    yield replace(first, measure="schedule of similar rows")
    yield first


def _dense() -> Iterable[Case]:
    """Never slower than dense by more than 5%, at other densities and block sizes."""
    for block in (16, 32, 64, 128, 256):
        densities = (0.25, 0.75, 0.9) if block < 256 else (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
        for density in densities:
            case = Case("dense", _square(block), density, _8192, peers=(DENSE,))
            yield replace(case, bars=(_NEVER_SLOWER,))


def _skinny() -> Iterable[Case]:
    """Few columns: the stored blocks are read once, as by a kernel that does nothing else."""
    bars = (Bar("reading", 1.35),)
    for columns in (16, 32, 64, 128):
        case = Case("skinny", (64, 64), 0.1, (4096, 4096, columns), flush=True, bars=bars)
        yield replace(case, peers=(DENSE, TORCH))


def _dtypes() -> Iterable[Case]:
    """The other dtypes, each compared with bfloat16 or with its own dense rate."""
    for block in (16, 32, 64, 128):
        bar = Bar("case rate", 0.97, Case("main", _square(block), 0.1, _8192).name)
        yield Case("dtypes", _square(block), 0.1, _8192, "float16", peers=(DENSE,), bars=(bar,))
    for block in (64, 128):
        for density in (0.5, 0.1):
            main = Case("main", _square(block), density, _8192)
            int8 = replace(main, section="dtypes", dtype="int8", peers=(DENSE, TORCH))
            yield replace(int8, bars=(Bar("case rate", 1.6, main.name),))
    for dtype, share in (("float32", 0.8), ("float64", 0.7)):
        for block in (32, 64, 128):
            for density in (0.5, 0.1):
                case = Case("dtypes", _square(block), density, _4096, dtype, peers=(DENSE,))
                yield replace(case, bars=(Bar("peer rate", share, DENSE),))
    for block in (16, 32, 64, 128):
        yield Case("dtypes", _square(block), 0.1, _4096, "float32", tf32=True)


def _layouts() -> Iterable[Case]:
    """Other layouts, sizes and epilogues, each within 15% of the plain call."""
    for block in (16, 64):
        plain = Case("main", _square(block), 0.1, _8192)
        same = replace(plain, section="layouts", bars=(Bar("case rate", 1 / 1.15, plain.name),))
        for layout in ("dense @ bsr", "bsr.T @ dense", "dense columns", "out columns"):
            yield replace(same, layout=layout)
        yield replace(same, size=(8192, 8192, 8189))
        yield replace(same, fused=True)
        yield replace(same, size=(4096, 4096, 8192), batch=4)
        column = replace(same, size=(8192, 8192, 1), flush=True, bars=())
        yield column
        bar = Bar("case rate", 1 / 1.15, column.name)
        yield replace(column, layout="1-D dense", bars=(bar,))


#: TF of sampled products at 8192, depth 1024, bfloat16: bar and goal.
SAMPLED_BARS = {128: (400, 450), 64: (300, 330), 32: (120, 170), 16: (60, 85)}
_SDDMM = (SDDMM_CSR, SDDMM_BSR)


def _sampled() -> Iterable[Case]:
    """Dense @ dense at the stored blocks of 8192 x 8192: a call and wgmma, both orders of mat2."""
    size = (8192, 8192, 1024)
    for block, (tf, goal) in SAMPLED_BARS.items():
        plain = Case("sampled", _square(block), 0.1, size, operation="sampled_addmm")
        plain = replace(plain, bars=(Bar("TF", tf),), goals=(Bar("TF", goal),))
        yield replace(plain, peers=(DENSE, TORCH, *(_SDDMM if block == 64 else ())))
        same = replace(plain, peers_of=plain.name)
        yield replace(same, layout="dense columns")
        yield replace(same, path="wgmma")
        yield replace(same, path="wgmma", layout="dense columns")
    single = Case("sampled", (128, 128), 0.1, size, "float32", operation="sampled_addmm")
    yield replace(single, peers=(DENSE,), bars=(Bar("peer rate", 0.7, DENSE),))
    yield replace(single, layout="dense columns")
    for block in (64, 32, 16):
        yield replace(single, block=_square(block), peers=() if block == 32 else _SDDMM)
    half = replace(single, block=(64, 64), dtype="float16")  # which cuSPARSE has on tensor cores
    yield replace(half, peers=(DENSE, TORCH, *_SDDMM))
    yield replace(single, tf32=True, path="wgmma")
    yield replace(single, dtype="int8", path="wgmma")


_VALUE_BYTES = 1 << 28
_BLOCKS_A_ROW = 20


def _vectors() -> Iterable[Case]:
    """Small blocks times one to eight vectors: a copy's bandwidth, cuSPARSE's time."""
    bars = (Bar("copy bandwidth", 0.85), Bar("peer time", 1.0, CSR), Bar("peer time", 1.0, BSR))
    for dtype, itemsize in (("float32", 4), ("float64", 8)):
        for block in (2, 4, 8):
            block_rows = _VALUE_BYTES // (_BLOCKS_A_ROW * block * block * itemsize)
            rows, density = block_rows * block, _BLOCKS_A_ROW / block_rows
            for columns in (1, 2, 4, 8):
                case = Case("vectors", _square(block), density, (rows, rows, columns), dtype)
                case = replace(case, pattern="strata", flush=True)
                yield replace(case, peers=(CSR, BSR), bars=bars)


_NEXT_POWERS = {(3, 3): (4, 4), (6, 6): (8, 8), (5, 13): (8, 16), (23, 23): (32, 32)}


def _odd() -> Iterable[Case]:
    """Block sizes without a matching instruction: half the rate of the next power of two."""
    for dtype in ("bfloat16", "float32"):
        for block, power in _NEXT_POWERS.items():
            reference = Case("odd blocks", power, 0.1, _4096, dtype)
            if power != (32, 32):  # a case of other sections
                yield reference
            yield replace(reference, block=block, bars=(Bar("case rate", 0.5, reference.name),))


def _unbalanced() -> Iterable[Case]:
    """Rows of very different lengths: 70% of the uniform pattern's rate or more."""
    for block in (16, 64):
        uniform = Case("main", _square(block), 0.1, _8192)
        bar = Bar("case rate", 0.7, uniform.name)
        yield Case("unbalanced", uniform.block, 0.1, _8192, pattern="power law", bars=(bar,))
        thin = Case("unbalanced", uniform.block, 0.01, _8192)
        yield thin
        bar = Bar("case rate", 0.7, thin.name)
        yield Case("unbalanced", uniform.block, 0.01, _8192, pattern="full row", bars=(bar,))


def _softmax() -> Iterable[Case]:
    """Softmax and its gradient: 0.8 of a copy's bandwidth; rows of 2**20 elements: 0.6."""
    for block in (16, 32, 64, 128):
        case = Case("softmax", _square(block), 0.1, (16384, 16384, 16384), flush=True)
        goals = (Bar("copy bandwidth", 0.9),)
        yield from _each_softmax(replace(case, goals=goals), 0.8, (TORCH_SOFTMAX,))
    yield from _each_softmax(
        replace(case, block=(64, 64), size=(256, 1 << 20, 256), density=0.9), 0.6
    )


def _each_softmax(case: Case, share: float, peers: tuple[str, ...] = ()) -> Iterable[Case]:
    for operation in SOFTMAX:
        beside = () if operation == "softmax gradient" else peers
        bars = (Bar("copy bandwidth", share),)
        yield replace(case, operation=operation, peers=beside, bars=bars)


def _scatter() -> Iterable[Case]:
    """bsr_scatter_mm beside bsr_addmm, what scatter_mm's kernel takes, and its index lists."""
    for block in (16, 32, 64, 128):
        product = Case("4096", _square(block), 0.1, _4096)
        listed = replace(product, section="scatter", layout="index lists", peers=(TORCH_SCATTER,))
        yield replace(listed, bars=(Bar("case rate", 1 / 1.2, product.name),))
        yield replace(listed, layout="tiles on tensor cores", peers=())
        if block >= 64:
            yield replace(listed, layout="tiles by wgmma", peers=())
        if block == 64:
            yield replace(listed, layout="tiles", peers=())
    whole, *paths = PAIRS
    pairs = Case("scatter", (64, 64), 0.1, _4096, operation=whole, peers=(TORCH_PAIRS, TORCH_BMM))
    yield replace(pairs, bars=(Bar("TF", 150),), goals=(Bar("TF", 180),))
    for operation in paths:
        yield replace(pairs, operation=operation, peers=(), peers_of=pairs.name)
    for dtype in ("float32", "float64"):
        yield replace(pairs, dtype=dtype, peers=())
    lists = Case("scatter", (16, 16), 0.1, _4096, measure="making index lists")
    yield replace(lists, peers=(TORCH_LISTS,), bars=(Bar("ms", 0.1),))


_SECTIONS = {
    "main": _main,
    "4096": _medium,
    "8.0 path": _portable,
    "host": _host,
    "dense": _dense,
    "skinny": _skinny,
    "dtypes": _dtypes,
    "layouts": _layouts,
    "vectors": _vectors,
    "sampled": _sampled,
    "odd blocks": _odd,
    "unbalanced": _unbalanced,
    "softmax": _softmax,
    "scatter": _scatter,
    "2:4": products,
    "2:4 formats": formats,
    "arrays": arrays,
    "spgemm": sparse_products,
    "solvers": solvers,
    "attention": forward,
    "gradients": gradients,
    "masks": masks,
    "kernels": wrapped,
}
SECTIONS = tuple(_SECTIONS)
#: What ``--quick`` runs.
QUICK = ("main", "4096")


def about(section: str) -> str:
    """Return a section's subject, for headings and help texts."""
    return (_SECTIONS[section].__doc__ or "").rstrip(".")


def cases(sections: Iterable[str] = SECTIONS) -> list[Case]:
    """Return the cases of some sections, preceded by those of others whose peers' times they use.

    Examples
    --------
    >>> [case.section for case in cases(["8.0 path"])][::12]
    ['main', '8.0 path']
    """
    chosen = [case for section in SECTIONS if section in set(sections) for case in _all()[section]]
    named = {case.name: case for group in _all().values() for case in group}
    present = {case.name for case in chosen}
    wanted = {case.peers_of for case in chosen}
    return [named[name] for name in named if name in wanted - present] + chosen


def _all() -> dict[str, list[Case]]:
    return {section: list(make()) for section, make in _SECTIONS.items()}
