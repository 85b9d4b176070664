"""The product of 2:4 blocks of every dtype, layout and device, without tensor cores."""

from addmm_cases import LAYOUTS
from path_contract import SemiStructuredBlocksPath


class TestPath(SemiStructuredBlocksPath):
    NAME, SOURCE = "simt", "bsr_semi_structured_addmm_simt"
    CASES = [
        ("float16", (32, 96)),
        ("bfloat16", (64, 96)),
        ("float32", (160, 48)),
        ("int8", (16, 192)),
        ("int8", (80, 192)),
    ]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed"], [88, 136, 20]
    REFUSED = [("float16", (32, 32), 40, {"config": {"path": "wgmma"}})]
    FIELDS = [{"stages": 2}]
