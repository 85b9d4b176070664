"""What a call made is freed when it is over, not when Python's collector comes.

Memory of a GPU that hangs on a cycle of references is kept for an unknown time: the collector
counts objects, not bytes.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu import linalg
from sparsegpu._arrays import namespace


def solve(name, **keywords):
    def run(a, b, M):
        more = {"M": M} if keywords.get("M") else {}
        given = {key: value for key, value in keywords.items() if key != "M"} | more
        x, _ = getattr(linalg, name)(a, b, **given)
        return x

    return run


CALLS = {
    "cg": solve("cg"),
    "cg with M": solve("cg", M=True),
    "minres with a shift": solve("minres", shift=0.5),
    "bicgstab": solve("bicgstab", M=True),
    "gmres": solve("gmres", restart=3),
    "gmres with M": solve("gmres", M=True),
    "lobpcg": lambda a, b, M: linalg.lobpcg(a, abs(b[:, None]) + 1, maxiter=3, tol=1e9),
    "block_jacobi": lambda a, b, M: linalg.block_jacobi(a) @ b,
    "aslinearoperator": lambda a, b, M: linalg.aslinearoperator(a).H @ (b + 1j * b),
    "A @ B": lambda a, b, M: a @ a,
    "A + B": lambda a, b, M: a + a.T,
    "slice": lambda a, b, M: a[4:8] @ b,
    "softmax": lambda a, b, M: sg.bsr_softmax(a),
    "scatter_mm": lambda a, b, M: sg.bsr_scatter_mm(a, b[:, None]),
    "sampled_addmm": lambda a, b, M: sg.sampled_addmm(a, b[:, None], b[None]),
    "attention": lambda a, b, M: sg.scaled_dot_product_attention(
        *[b.reshape(1, 1, 16, 3).astype("float32")] * 3, sg.causal(16, 4, xp=namespace(b))
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_left_to_the_collector(engine, rng, call):
    dense = rng.standard_normal((48, 48))
    a = sg.bsr_array(engine.array(dense @ dense.T + 48 * np.eye(48)), blocksize=(4, 4))
    b, M = engine.array(rng.standard_normal(48)), linalg.block_jacobi(a)
    CALLS[call](a, b, M)  # compiles, and fills what is kept
    gc.collect()
    before = len(gc.garbage)
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        CALLS[call](a, b, M)
        gc.collect()
        left = [type(found) for found in gc.garbage[before:]]
    finally:
        gc.set_debug(0)
        del gc.garbage[before:]
        gc.enable()
    ours = [kind for kind in left if kind.__module__.partition(".")[0] in {"sparsegpu", "cupy"}]
    assert not ours and np.ndarray not in left
