"""float64 BSR @ dense on tensor cores."""

from addmm_cases import LAYOUTS
from path_contract import BsrPath, FromTheRight, UnalignedBlocks

SIZES = [(16, 16), (32, 32), (64, 16), (128, 24), (40, 20), (23, 23), (48, 36), (9, 50)]


class TestPath(BsrPath, FromTheRight, UnalignedBlocks):
    NAME, SOURCE = "mma_f64", "bsr_addmm_f64"

    CASES = [("float64", size) for size in SIZES]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed"], [260, 37, 65, 96]
    REFUSED = [("float32", (16, 16), 64, {}), ("complex64", (16, 16), 64, {})]
