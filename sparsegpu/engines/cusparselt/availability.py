"""What the vendor's library can do here, said in one place."""

from __future__ import annotations

import importlib.util

from ..._checks import not_offered


def why_not(function: str) -> Exception:
    """Return the error that says why nothing is computed through cuSPARSELt (caller raises)."""
    if importlib.util.find_spec("nvmath") is None:
        return ImportError(
            f"{function}: backend 'cusparselt' needs nvmath-python, which is not installed; "
            "pip install 'sparsegpu[cusparselt]', or use backend='native'"
        )
    return not_offered(
        function,
        "computing through backend 'cusparselt'",
        "backend='native', and to_cusparselt_layout for the vendor's buffer",
    )
