"""The commands of pip that messages name: they work wherever this package runs from."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

_PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """Return the folder of the sources where the package runs from there, None where installed."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() else None


def with_extra(extra: str) -> str:
    """Return the command that adds an extra of this package.

    Sources that are not installed, or installed to be edited, are named by their folder: no index
    need know this package. Where it is installed, its name is enough: pip reads the extra from what
    is there.
    """
    root = checkout()
    if root is None:
        return f"pip install {quote(f'sparsegpu[{extra}]')}"
    return f"pip install -e {quote(f'{root}[{extra}]')}"


def for_cuda() -> str:
    """Return the command that adds what a GPU needs, for either major version of CUDA."""
    return f"{with_extra('cuda13')} (for CUDA 12: [cuda12])"


def again() -> str:
    """Return what puts back the files that came with the package, from where they came."""
    root = checkout()
    if root is not None:
        inside = f"git -C {quote(str(root))} checkout -- cuda_src"
        return inside if (root / ".git").exists() else f"unpack the sources anew into {root}"
    source = _source()
    if source is None:
        return "install sparsegpu again, from where it came"
    return f"pip install --force-reinstall --no-deps {quote(source)}"


def _source() -> str | None:
    """Return what pip was told to install, None where that is not known or no longer there."""
    import importlib.metadata  # these are slow to import, and every import of ours would wait
    import json
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        recorded = importlib.metadata.distribution("sparsegpu").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    if recorded is None:  # pip writes it for all but an index
        return "sparsegpu"
    origin = json.loads(recorded)
    if "vcs_info" in origin:
        return f"{origin['vcs_info']['vcs']}+{origin['url']}"
    url = urlsplit(origin["url"])
    if url.scheme != "file":
        return origin["url"]
    path = url2pathname(url.path)
    return path if Path(path).exists() else None
