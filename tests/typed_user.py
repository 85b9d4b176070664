"""A program as users write it: `mypy --strict` and pyright accept it, and it runs.

What they must refuse is marked; a mark that hides nothing is an error.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import sparsegpu as sg


def smoothed(image: npt.NDArray[np.float32], density: float) -> npt.NDArray[np.float32]:
    """Return the product of a pruned matrix and an image."""
    weight: sg.bsr_array = sg.prune_blocks(image, (16, 16), density)
    rows, columns = weight.shape[-2:]
    blocks: int = weight.nnzb
    assert blocks * weight.blocksize[0] * weight.blocksize[1] <= rows * columns
    out: npt.NDArray[np.float32] = weight @ image
    sg.testing.assert_within_bound(out, weight.toarray(), image)
    return sg.testing.to_host(out)


def two_of_four(weight: npt.NDArray[np.float16]) -> sg.SemiStructuredArray:
    """Return a weight pruned to 2:4 in the order of columns that loses least."""
    order = sg.permute_for_24(weight)
    return sg.to_semi_structured(sg.prune_24(weight[:, order]))


if TYPE_CHECKING:
    print(sg.no_such_name)  # type: ignore[attr-defined]
    sg.bsr_softmax()  # type: ignore[call-arg]
    wrong: int = two_of_four(np.eye(4, dtype=np.float16))  # type: ignore[assignment]


def main() -> None:
    rng = np.random.default_rng(0)
    image = rng.standard_normal((64, 64)).astype(np.float32)
    print(smoothed(image, 0.5).shape)
    packed = two_of_four(image.astype(np.float16))
    with sg.use_engine("reference"):
        product = packed @ image.astype(np.float16)
    print(packed, product.shape, sg.is_supported("bsr_addmm", "float32", (9, 0)))
    mask = sg.sliding_window(64, 16, 16)
    query = rng.standard_normal((1, 64, 16)).astype(np.float32)
    result, lse = sg.scaled_dot_product_attention(query, query, query, mask, return_lse=True)
    print(result.shape, lse.shape)


if __name__ == "__main__":
    main()
