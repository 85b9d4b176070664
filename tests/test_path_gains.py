"""What `benchmarks.paths` measures, without a GPU."""

from collections import Counter

from benchmarks import paths as gains
from sparsegpu.engines.cuda.paths import FAMILIES


def test_every_path_of_every_family_is_measured():
    cases = list(gains.cases())
    assert max(Counter(case.name for case in cases).values()) == 1
    measured = list(gains._FAMILIES.values())
    assert all(family in measured for family in FAMILIES.values())
    for operation, family in gains._FAMILIES.items():
        dtypes = {case.dtype for case in cases if case.operation == operation}
        for path in family:
            assert dtypes & set(path.DTYPES), f"{operation}: no case of {path.NAME}'s dtypes"
