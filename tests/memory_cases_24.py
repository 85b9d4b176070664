"""What operations on 2:4 matrices may take of a device's memory, as `memory_cases` states it."""

import sparsegpu as sg
from memory_cases import SHAPE, Case, case, sparse, values


def pruned(cp, rng, dtype="float16"):
    return sg.prune_24(values(cp, rng, SHAPE, dtype))


@case
def prune_24(cp, rng):
    dense = values(cp, rng, SHAPE)
    return Case(("prune_24",), lambda: sg.prune_24(dense))


@case
def prune_tile(cp, rng):
    dense = values(cp, rng, SHAPE)
    return Case(("prune_tile",), lambda: sg.prune_tile(dense))


@case
def apply_dense(cp, rng):
    dense = values(cp, rng, SHAPE)
    bits = sg.semi_structured_tile(dense)[-1]
    return Case(("prune_tile",), lambda: sg.semi_structured_apply_dense(dense, bits))


@case
def compress(cp, rng):
    """A strict one has its flag in the host's memory."""
    dense = pruned(cp, rng)
    return Case(("semi_structured_compress",), lambda: sg.semi_structured_from_dense(dense))


@case
def compress_unchecked(cp, rng):
    dense = pruned(cp, rng)
    return Case(
        ("semi_structured_compress",),
        lambda: sg.semi_structured_from_dense(dense, strict=False),
    )


@case
def expand(cp, rng):
    halves = sg.semi_structured_from_dense(pruned(cp, rng))
    return Case(("semi_structured_expand",), lambda: sg.semi_structured_to_dense(*halves))


@case
def reorder(cp, rng):
    _, meta = sg.semi_structured_from_dense(pruned(cp, rng))
    return Case(("semi_structured_reorder",), lambda: sg.reorder_meta(meta))


@case
def restore(cp, rng):
    _, meta = sg.semi_structured_from_dense(pruned(cp, rng))
    return Case(("semi_structured_reorder",), lambda: sg.restore_meta(meta))


@case
def tile(cp, rng):
    dense = values(cp, rng, SHAPE)
    return Case(("semi_structured_tile",), lambda: sg.semi_structured_tile(dense))


@case
def bitmask(cp, rng):
    dense = sg.prune_tile(values(cp, rng, SHAPE))
    return Case(("semi_structured_bitmask",), lambda: sg.compressed_swizzled_bitmask(dense))


@case
def apply_unchecked(cp, rng):
    dense = values(cp, rng, SHAPE)
    bits = sg.semi_structured_tile(dense)[-1]
    return Case(
        ("semi_structured_tile",),
        lambda: sg.semi_structured_apply(dense, bits, strict=False),
    )


@case
def apply(cp, rng):
    dense = values(cp, rng, SHAPE)
    bits = sg.semi_structured_tile(dense)[-1]
    return Case(("semi_structured_tile",), lambda: sg.semi_structured_apply(dense, bits))


def blocks_24(cp, rng):
    a = sparse(cp, rng).tobsr((32, 32))
    return a.with_data(sg.prune_24(a.data))


@case
def blocks_compressed(cp, rng):
    a = blocks_24(cp, rng)
    meta = a.semi_structured().meta.nbytes  # of all blocks as one matrix, before it is put in order

    def compressed():
        made = a.semi_structured()
        return made.packed, made.meta

    return Case(("semi_structured_compress",), compressed, meta)


@case
def blocks_24_times_dense(cp, rng):
    a, x = blocks_24(cp, rng).semi_structured(), values(cp, rng, (SHAPE[1], 64))
    return Case(("bsr_semi_structured_addmm",), lambda: a @ x)


@case
def semi_structured_times_dense(cp, rng):
    a, x = sg.to_semi_structured(pruned(cp, rng)), values(cp, rng, (SHAPE[1], 64))
    return Case(("semi_structured_addmm",), lambda: sg.semi_structured_matmul(a, x))


@case
def semi_structured_times_ragged_columns(cp, rng):
    a, x = sg.to_semi_structured(pruned(cp, rng)), values(cp, rng, (SHAPE[1], 33))
    return Case(("semi_structured_addmm",), lambda: sg.semi_structured_matmul(a, x))


@case
def semi_structured_padded(cp, rng):
    """Rows that only fill up the format: dense's in a copy of it, the result's in one of it."""
    m, k, n = SHAPE[0] - 1, SHAPE[1] - 1, 64
    a = sg.to_semi_structured(cp.ascontiguousarray(pruned(cp, rng)[:m, :k]), pad=True)
    x = values(cp, rng, (k, n))
    filled = (SHAPE[1] + SHAPE[0]) * n * x.itemsize
    return Case(("semi_structured_addmm",), lambda: sg.semi_structured_matmul(a, x), filled)


@case
def semi_structured_linear(cp, rng):
    a, x = sg.to_semi_structured(pruned(cp, rng)), values(cp, rng, (64, SHAPE[1]))
    return Case(("semi_structured_addmm",), lambda: sg.semi_structured_linear(x, a))


@case
def dense_times_semi_structured(cp, rng):
    a = sg.SemiStructuredArray.prune_dense_static_sort(values(cp, rng, SHAPE))
    x = values(cp, rng, (64, SHAPE[0]))
    return Case(("semi_structured_addmm",), lambda: x @ a)


@case
def dense_times_semi_structured_by_rows(cp, rng):
    """A transpose that is not 2:4 is two that are, and meets dense's rows twice."""
    a, x = sg.to_semi_structured(pruned(cp, rng)), values(cp, rng, (64, SHAPE[0]))
    return Case(("semi_structured_addmm",), lambda: x @ a, 2 * x.nbytes)


@case
def scaled_mm(cp, rng):
    a, x = sg.to_semi_structured(pruned(cp, rng, "int8")), values(cp, rng, (SHAPE[1], 64), "int8")
    return Case(("semi_structured_addmm",), lambda: sg.scaled_mm(a, x, 0.5, 0.25))
