"""Cases of files: arrays there and back, and files of which bytes were changed."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

import sparsegpu

from .case import Case, Holds, Same, documented_errors, require
from .containers import matrix
from .draws import CONTAINED, Bsr, Draws
from .oracle import array

_SAVED = [dtype for dtype in CONTAINED if dtype.name != "complex128"]
_SAFETENSORS = documented_errors(sparsegpu.save_safetensors) | documented_errors(
    sparsegpu.load_safetensors
)


def safetensors(draws: Draws) -> Case:
    """A sparse and a dense array, by their names."""
    bsr = draws.bsr(draws.choice(_SAVED), batch=draws.batch(), exact=True)
    shape = (*draws.batch(), draws.count(5))

    def call(A: Any, dense: Any, names: Any, metadata: Any) -> tuple:
        file = io.BytesIO()
        first, second = names
        sparsegpu.save_safetensors(file, {first: A, second: dense}, metadata=metadata)
        file.seek(0)
        with sparsegpu.use_engine("cpu"):  # what is loaded lies on the host
            found = sparsegpu.load_safetensors(file)
        assert set(found) == set(names), f"arrays {set(found)}"
        return found[first], found[second]

    def expected(A: Any, dense: Any, names: Any, metadata: Any) -> tuple:
        require(metadata is None or isinstance(metadata, dict), "metadata")
        if isinstance(A, Bsr):
            require(A.dtype in _SAVED, "a dtype of the format")
            of_sparse = Same(matrix(A))
        else:
            of_sparse = Same(array(A))
        return of_sparse, Same(array(dense))

    names = draws.choice((("a", "b"), ("layer.weight", "layer.bias"), ("", "é\n")))
    arguments = {
        "A": bsr,
        "dense": draws.values(shape, draws.choice(_SAVED)),
        "names": names,
        "metadata": draws.choice((None, {}, {"format": "np"})),
    }
    fixed, refused = frozenset({"names"}), ""
    if draws.chance(10):  # the parts of a sparse array have its name, too
        arguments["names"], refused = ("a", "a.data"), "two tensors of one name"
        return Case("save_safetensors", call, arguments, _refuse, documented=_SAFETENSORS,
                    fixed=fixed, refused=refused)  # fmt: skip
    return Case("safetensors", call, arguments, expected, documented=_SAFETENSORS, fixed=fixed)


def _refuse(**arguments: Any) -> None:
    require(False, "a malformed argument")


def damaged(draws: Draws) -> Case:
    """A file with other bytes, or without its end, or with more: an array or a documented error."""
    name = draws.choice(("safetensors", "npz"))
    save, load = (getattr(sparsegpu, f"{verb}_{name}") for verb in ("save", "load"))
    bsr = draws.bsr(draws.choice(_SAVED), blocksize=(2, 3), batch=draws.batch(), exact=True)
    changes = [(draws.integer(0, 2**20), draws.integer(0, 255)) for _ in range(draws.integer(0, 3))]
    kept = draws.choice((None, None, draws.integer(0, 2**12)))

    def call(A: Any) -> Any:
        file = io.BytesIO()
        save(file, {"A": A} if name == "safetensors" else A)
        content = bytearray(file.getvalue())
        for place, value in changes:
            content[place % len(content)] = value
        with sparsegpu.use_engine("cpu"):
            found = load(io.BytesIO(bytes(content[:kept])))
        return list(found.values()) if isinstance(found, dict) else [found]

    def rule(got: list) -> None:
        for one in got:
            if isinstance(one, sparsegpu.bsr_array):
                one.check_format()
            else:
                assert isinstance(one, np.ndarray), f"{type(one)} from a file"

    return Case(
        f"load_{name}(damaged)",
        call,
        {"A": bsr},
        lambda A: Holds(rule),
        documented=load,
        fixed=frozenset({"A"}),
        refused="other bytes",
    )


CASES = (safetensors, damaged)
