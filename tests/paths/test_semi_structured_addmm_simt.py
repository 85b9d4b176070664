"""The 2:4 product of every dtype, layout and device, without tensor cores."""

from addmm_cases import LAYOUTS
from path_contract import SemiStructuredPath


class TestPath(SemiStructuredPath):
    NAME, SOURCE = "simt", "semi_structured_addmm_simt"
    CASES = [
        ("bfloat16", (32, 64)),
        ("float16", (96, 320)),
        ("float32", (160, 192)),
        ("float32", (32, 64)),
        ("int8", (96, 320)),
        ("int8", (160, 192)),
    ]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed"], [9, 141, 40]
    REFUSED = [("float32", (32, 64), 40, {"config": {"path": "wgmma"}})]
