"""Attention as its paths see it: operands, how they lie in memory, the score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...._arrays import dtype_of
from ...._math import ceil_div
from ...._score import Score
from ....pattern import Pattern
from .._grid import mask_blocks, packed_mask
from .._heads import as_vectors, split_heads
from ..runtime.architectures import SHARED_MEMORY, shared_memory_of
from ..runtime.device import device_facts
from ..runtime.view import merged_batch
from ._product import layout_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFacts:
    """Numbers that describe an attention and the device: a tile is chosen from these alone.

    Attributes
    ----------
    dtype, out_dtype, mask_dtype : dtype
    packed : bool
        The mask has bits of partial blocks only.
    blocksize : (bm, bk)
    features, value_features : int
        Columns of query and key, and of value.
    folded : bool
        A score is its accumulator times a positive number.
    softcap, slopes, dropout : bool
        What the score has besides.
    sinks : bool
        Normalisers have a logit more.
    group : int
        Neighbouring heads that read the same keys, values and mask.
    allow_tf32 : bool
    capability : (int, int)
    shared_memory : int
        Bytes that a thread block may have.
    """

    dtype: np.dtype
    out_dtype: np.dtype
    mask_dtype: np.dtype
    blocksize: tuple[int, int]
    features: int
    value_features: int
    packed: bool = False
    folded: bool = True
    softcap: bool = False
    slopes: bool = False
    sinks: bool = False
    dropout: bool = False
    group: int = 1
    allow_tf32: bool = False
    capability: tuple[int, int] = (9, 0)
    shared_memory: int = SHARED_MEMORY[9, 0]

    @property
    def tensor_cores(self) -> bool:
        """Whether tensor cores may multiply the dtype, float32 as TF32."""
        return self.dtype.name != "float32" or self.allow_tf32

    def layout(self) -> str:
        """Return in words what the configurations of `tune` differ by, besides dtype and block.

        Examples
        --------
        >>> f16 = np.dtype("float16")
        >>> facts = AttentionFacts(dtype=f16, out_dtype=f16, mask_dtype=np.dtype(bool),
        ...                        blocksize=(64, 64), features=64, value_features=128)
        >>> facts.layout()
        '64x128x1 bool folded'
        >>> AttentionFacts.of_layout("64x128x1 bool folded", f16, (64, 64)) == facts
        True
        """
        words = [f"{self.features}x{self.value_features}x{self.group}", self.mask_dtype.name]
        return " ".join(words + [name for name in _SCORE_WORDS if getattr(self, name)])

    @classmethod
    def of_layout(
        cls, layout: str, dtype: np.dtype, blocksize: tuple[int, int], **more: Any
    ) -> AttentionFacts:
        """Return the facts that `layout` describes."""
        widths, mask, *score = layout.split()
        features, value_features, group = map(int, widths.split("x"))
        more |= {name: name in score for name in _SCORE_WORDS}
        return cls(
            dtype=dtype,
            out_dtype=dtype,
            mask_dtype=dtype_of(mask),
            blocksize=blocksize,
            features=features,
            value_features=value_features,
            group=group,
            **more,
        )


_SCORE_WORDS = ("folded", "softcap", "slopes", "sinks", "dropout")


@dataclass(frozen=True, slots=True)
class Attention:
    """Everything that a path needs to know of an attention.

    Attributes
    ----------
    out, query, key, value : arrays
        With the axis of heads split where key heads serve groups of them (`_heads.split_heads`),
        as all that follow.
    lse, slopes, sinks : arrays or None
        Vectors (*heads, L) and (*heads, 1).
    pattern : Pattern
        Canonical.
    indptr, indices : arrays
        Of the pattern.
    mask_data, masks : array (*B, nnzb, bm, bk) or BlockBits, and blocks, or their codes, as rows
    score : Score
    allow_tf32 : bool
    batch : tuple of int
        The heads, as the views of a launch number them.
    """

    out: Any
    lse: Any
    query: Any
    key: Any
    value: Any
    pattern: Pattern
    indptr: Any
    indices: Any
    mask_data: Any
    masks: Any
    score: Score
    slopes: Any
    sinks: Any
    allow_tf32: bool
    batch: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """Of the operands."""
        return self.query.dtype

    @property
    def lies_in_rows(self) -> bool:
        """Whether 16-byte vectors of the rows of query, key and value can be copied."""
        return all(layout_of(a) == "rows" for a in (self.query, self.key, self.value))

    @property
    def group(self) -> int:
        """Return how many heads, neighbours in the batch, read the same keys, values and mask."""
        of_group = ((self.key, 2), (self.value, 2), (self.masks, 2), (self.indptr, 1))
        shared = all(a.ndim <= n or a.shape[-n - 1] == 1 for a, n in of_group)
        return self.out.shape[-3] if shared else 1

    def facts(self) -> AttentionFacts:
        """Return what the tile of an attention depends on."""
        score = self.score
        capability, _, shared_memory = device_facts()
        plain = score.softcap is None and self.slopes is None
        return AttentionFacts(
            dtype=self.dtype,
            out_dtype=self.out.dtype,
            mask_dtype=self.mask_data.dtype,
            packed=packed_mask(self.mask_data) is not None,
            blocksize=self.pattern.blocksize,
            features=self.query.shape[-1],
            value_features=self.value.shape[-1],
            folded=plain and self.mask_data.dtype == bool and 1e-30 < score.scale < 1e30,
            softcap=score.softcap is not None,
            slopes=self.slopes is not None,
            sinks=self.sinks is not None,
            dropout=score.dropout_p > 0,
            group=self.group,
            allow_tf32=self.allow_tf32,
            capability=capability,
            shared_memory=shared_memory,
        )


def attention_of(
    out: Any,
    lse: Any,
    query: Any,
    key: Any,
    value: Any,
    pattern: Pattern,
    mask_data: Any,
    score: Score,
    sinks: Any,
    allow_tf32: bool = False,
) -> Attention:
    """Describe the arguments of the engine's ``attention``."""
    heads, kv_heads = out.shape[-3], key.shape[-3]
    masks = mask_blocks(mask_data)
    out, query, key, value, masks = (
        split_heads(a, 2, heads, kv_heads) for a in (out, query, key, value, masks)
    )
    lse, indptr, indices = (
        split_heads(a, 1, heads, kv_heads) for a in (lse, pattern._indptr, pattern._indices)
    )
    slopes, sinks = (split_heads(as_vectors(a), 1, heads, kv_heads) for a in (score.slopes, sinks))
    batch = merged_batch(
        out.shape[:-2],
        *((a, 2) for a in (out, query, key, value, masks)),
        *((a, 1) for a in (lse, indptr, indices, slopes, sinks)),
    )
    return Attention(
        out=out,
        lse=lse,
        query=query,
        key=key,
        value=value,
        pattern=pattern,
        indptr=indptr,
        indices=indices,
        mask_data=mask_data,
        masks=masks,
        score=score,
        slopes=slopes,
        sinks=sinks,
        allow_tf32=allow_tf32,
        batch=batch,
    )


_MOST_WARPS = 4


def simt_shape(bm: int, features: int, dtype: np.dtype) -> tuple[int, int, int]:
    """Return rows of a warp, warps, and columns of a lane, of the kernels without tensor cores.

    ``features`` are the columns that they write.
    """
    wide = dtype == np.float64
    rows = 1 if bm < 8 else 2 if wide else 4
    columns = 2 if features <= 64 else 4 if features <= 128 or wide else 8
    return rows, min(_MOST_WARPS, ceil_div(bm, rows)), columns


# -- what the compile matrix, the tables and the names of fields are made from ----------------

_BLOCKS = ((64, 64), (128, 128), (16, 16), (8, 8), (48, 80), (256, 64), (1, 64), (256, 256))
_FEATURES = ((64, 64), (128, 128), (256, 256), (96, 72), (32, 128), (96, 256))
_MASKS = ("bool", "float32")
_OUTPUTS = {"float16": "float32", "bfloat16": "float16", "float32": "bfloat16"}
_SCORES: tuple[dict[str, bool], ...] = (
    {"folded": True},
    {"packed": True},
    {"dropout": True},
    {"sinks": True},
    {"slopes": True},
    {"softcap": True},
)


def examples(
    dtypes: Sequence[str], capability: tuple[int, int], *, all: bool = False
) -> Iterator[AttentionFacts]:
    """Yield attentions of some dtypes on a device, first those that most paths serve."""
    blocks = _BLOCKS if all else _BLOCKS[:2]
    features = _FEATURES if all else _FEATURES[:1]
    scores = _SCORES if all else _SCORES[:1]
    for blocksize, (e, ev), mask, score, name in product(blocks, features, _MASKS, scores, dtypes):
        if mask != "bool" and "packed" in score:
            continue
        folded = mask == "bool" and not {"slopes", "softcap"} & score.keys()
        yield AttentionFacts(
            dtype=dtype_of(name),
            out_dtype=dtype_of(_OUTPUTS.get(name, name) if e == ev == 128 else name),
            mask_dtype=dtype_of(mask),
            blocksize=blocksize,
            features=e,
            value_features=ev,
            **{**score, "folded": folded},
            allow_tf32=True,
            capability=capability,
            shared_memory=shared_memory_of(capability),
        )
