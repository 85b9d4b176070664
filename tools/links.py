"""Checks the links of the built site without a network.

    python -m tools.links docs/_build/html

What a page links to within the site is there: the file, and the element that the link's anchor
names. Links to other sites are not followed; those of the API come from inventories in
``docs/_inventories``, and Sphinx refuses a name that is in none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class Page(HTMLParser):
    """The links of a page and the anchors that it has."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {"", "top"}
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element's link and its name."""
        found = dict(attrs)
        self.anchors |= {found.get("id") or "", (found.get("name") or "") * (tag == "a")}
        link = found.get(_LINKS.get(tag, ""))
        if link is not None:
            self.links.add(link)


def broken(root: Path) -> Iterator[str]:
    """Yield a line for each link of a page under a folder that leads nowhere."""
    root = root.resolve()
    files = sorted(root.rglob("*.html"))
    pages = {path: Page(path) for path in files if "_static" not in path.parts}  # a theme's parts
    if not pages:
        yield f"{root}: no pages"
    for path, page in pages.items():
        for link in sorted(page.links):
            why = _why_broken(link, path, root, pages)
            if why:
                yield f"{path.relative_to(root)}: {link!r}: {why}"


def _why_broken(link: str, path: Path, root: Path, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        allowed = {"https": bool(parts.netloc), "mailto": bool(parts.path), "data": True}
        return "" if allowed.get(parts.scheme) else "no address of a site"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_relative_to(root):
        return "outside the site"
    if not target.is_file():
        return "no such file"
    if target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "no such anchor"
    return ""


def main(words: list[str]) -> int:
    """Print what is broken; 1 where something is."""
    parser = argparse.ArgumentParser(prog="python -m tools.links", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the built site")
    found = list(broken(parser.parse_args(words).folder))
    print("\n".join([*found, f"{len(found)} broken links"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
