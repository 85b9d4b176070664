"""Draw the pictures of the docs from the recorded figures: ``python -m benchmarks.plot``.

Needs matplotlib but no GPU: what is drawn comes from ``benchmarks/results``.
"""

from __future__ import annotations

import json
import sys

from sparsegpu.benchmark.plot import roofline

from .record import RESULTS, ROOT

_PICTURES = ROOT / "docs" / "_static"


def main() -> int:
    """Draw the roofline of every GPU whose race is recorded."""
    for path in sorted(RESULTS.glob("*.json")):
        race = json.loads(path.read_text()).get("race")
        if race:
            _PICTURES.mkdir(exist_ok=True)
            target = _PICTURES / f"roofline-{path.stem}.png"
            roofline(race, f"bfloat16 block-sparse products, {race['environment']['gpu']}", target)
            print(target.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
