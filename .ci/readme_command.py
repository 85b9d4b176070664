"""Print the README's first or second command: ``readme_command.py 1`` or ``2``."""

import re
import sys
from pathlib import Path

text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
sections = re.findall(r"^## Two commands\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
blocks = re.findall(r"^```console\n(.*?)^```", "".join(sections), re.MULTILINE | re.DOTALL)
lines = [block.strip() for block in blocks]
if len(sections) != 1 or len(lines) != 2 or any(len(line.splitlines()) != 1 for line in lines):
    sys.exit(f"README.md: expected one section 'Two commands' with two lines, found {lines}")
print(lines[int(sys.argv[1]) - 1])
