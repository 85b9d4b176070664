"""The kernel that products of few columns are held against: it reads all, and writes nothing."""

import numpy as np
import pytest

from kernel_cases import needs_nvrtc
from race_rows import judged, row
from sparsegpu import kernels
from sparsegpu.benchmark import cases, measure, reading
from sparsegpu.benchmark.workload import make_product


@needs_nvrtc
def test_what_it_reads_is_the_sparse_operand_by_16_bytes():
    found = kernels.wrap(reading.SOURCE, reading.NAME, options=reading.OPTIONS)
    assert found.access.reads == {"indptr", "indices", "blocks", "total"}
    assert found.access.writes == {"total"} and not found.access.opaque
    assert found.ptx().count("ld.global.v4.u32") >= reading.AT_ONCE


def test_the_bar_of_few_columns():
    (case, *rest) = cases.cases(["skinny"])
    assert len(rest) == 3 and all(c.bars == case.bars for c in rest)
    met, short = (judged([case], [row(case, ms, reading_ms=0.005)])[0] for ms in (0.0067, 0.0068))
    assert (met["verdict"], short["verdict"]) == ("met", "short")


def test_it_is_timed_alternately_with_the_product(monkeypatch):
    (case, *_) = cases.cases(["skinny"])
    timed = []

    def interleaved_ms(calls, flush, repeats):
        timed.append((list(calls), flush))
        return {name: 1.0 + i for i, name in enumerate(calls)}

    small = make_product(case, np)
    monkeypatch.setattr(measure, "make_workload", lambda case: small)
    monkeypatch.setattr(measure, "reader", lambda product: (product.call, None))
    monkeypatch.setattr(measure.timing, "interleaved_ms", interleaved_ms)
    monkeypatch.setattr(measure.timing, "whole_us", lambda call: 1.0)
    found = measure.measure_case(case, peers=())
    assert timed == [(["sparsegpu", "reading"], True)]
    assert (found.ms, found.reading_ms, found.peers) == (1.0, 2.0, {})


@pytest.mark.gpu
def test_it_reads_every_stored_block(cuda_engine):
    (case, *_) = cases.cases(["skinny"])
    product = make_product(case, cuda_engine.xp)
    call, total = reading.reader(product)
    call()
    assert total.get() == 0  # nothing is written
    call, total = reading.reader(product, mask=2**32 - 1)
    call()
    matrix = product.left
    words = matrix.data.get().view(np.uint32).sum(dtype=np.uint64)
    vectors = matrix.data[0].nbytes // reading.VECTOR_BYTES  # each of whose threads adds the column
    columns = matrix.indices.get().sum(dtype=np.uint64) * np.uint64(vectors)
    assert int(total.get()[0]) == int(words + columns) % 2**32
