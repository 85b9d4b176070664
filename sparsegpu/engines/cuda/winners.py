"""Measured winners: which configuration was fastest for products of a kind.

Those that come with the library are in ``tuned/<architecture>.json``. A user's own are in the
per-user cache, and replace those of the same kind. All are held in an immutable `Snapshot`; `keep`
and `forget` replace it, so a call reads it without a lock.

A kind that was not measured gets the winner of the nearest one of its family: nearest by the
octaves (factors of two) between their M, K, N and densities, added up; of two that are equally
near, the one whose shape, then density, is smaller. If the nearest is an octave away or more, the
model chooses: so neighbours on a grid of powers of two are not substituted for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from json import dumps, loads
from math import log2
from typing import Any, NamedTuple

from ..._cache import read_entries, remove_entries, write_entry
from ..._locks import fork_safe
from ..._version import __version__

Config = dict[str, Any]

#: Distance from which on a winner does not count: octaves of M, K, N and density, added up.
FAR = 1.0
#: Format of the entries. Entries of other formats, with other names of paths and fields, are
#: ignored.
FORMAT = 2
_CACHE = "tuned"
#: Of what densities there can be, repeated blocks included, none is beyond 2**63.
_BUCKETS = 126
_KEPT_ANSWERS = 1024


class Family(NamedTuple):
    """What two kinds of product have in common when one may use the other's configuration.

    Attributes
    ----------
    op : str
        An operation of `paths.FAMILY_OF`; "dense_bsr_matmul", whose blocks are read transposed; or
        "cusparselt": algorithms of the 2:4 backend.
    arch : str
        Compute capability, ``"90"``.
    dtype : str
        Of the operands; ``"tf32"`` where float32 may be multiplied so. Of the backend: of the
        operands and of what it writes.
    blocksize : (bm, bk)
        As they are multiplied.
    layout : str
        Of the dense operand: ``"rows"``, ``"columns"``, ``"bytes"`` or ``"strided"``. Of a
        sampled product: of both matrices, as ``"along across"``. Of two sparse operands: the
        columns of the right one's blocks. Of a scattered product: the format of its lists. Of
        attention: widths, the mask's dtype, what the score has. Of the backend: of the dense
        operand and of the result, and the version of the library.
    """

    op: str
    arch: str
    dtype: str
    blocksize: tuple[int, int]
    layout: str


class Kind(NamedTuple):
    """A kind of product: the key of a winner.

    Attributes
    ----------
    family : Family
    shape : (M, K, N)
        As they are multiplied; M counts the rows of all matrices of the batch. Of attention:
        queries of all heads, keys, features. Of a scattered product: rows of all its tiles, the
        terms of one on average, columns of one; its density is 1.
    bucket : int
        Density in half octaves (`density_bucket`).
    """

    family: Family
    shape: tuple[int, int, int]
    bucket: int

    def distance(self, other: Kind) -> float:
        """Return how far apart two kinds of one family are, in octaves."""
        apart = sum(abs(log2(a / b)) for a, b in zip(self.shape, other.shape, strict=True))
        return apart + abs(self.bucket - other.bucket) / 2


@dataclass(frozen=True, slots=True)
class Winner:
    """A measured configuration, its time and that of the model's choice.

    The configuration is `paths._fields.MODEL` where none was faster than the model's choice.
    """

    kind: Kind
    config: Config
    ms: float
    model_ms: float

    def as_dict(self) -> dict[str, Any]:
        """Return it with the types of JSON."""
        return {
            **self.kind.family._asdict(),
            "shape": self.kind.shape,
            "bucket": self.kind.bucket,
            **{k: v for k, v in asdict(self).items() if k != "kind"},
        }

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Winner:
        """Return the winner that `as_dict` was called on.

        Raises
        ------
        ValueError
            Something else.
        """
        try:
            op, arch, dtype, layout = (entry[name] for name in ("op", "arch", "dtype", "layout"))
            (bm, bk), (m, k, n), bucket = entry["blocksize"], entry["shape"], entry["bucket"]
            config, ms, model_ms = dict(entry["config"]), entry["ms"], entry["model_ms"]
            winner = cls(
                Kind(Family(op, arch, dtype, (bm, bk), layout), (m, k, n), bucket),
                config, ms, model_ms,
            )  # fmt: skip
            words = (op, arch, dtype, layout, config["path"], *config)
            whole = (
                all(isinstance(word, str) for word in words)
                and all(type(size) is int and 0 < size < 2**63 for size in (bm, bk, m, k, n))
                and type(bucket) is int
                and abs(bucket) <= _BUCKETS
                and all(isinstance(value, (int, str)) for value in config.values())
                and all(type(time) in (int, float) and 0 < time < 2**63 for time in (ms, model_ms))
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no winner ({error!r})") from error
        if not whole:
            raise ValueError(f"no winner, but {entry}")
        return winner


def density_bucket(density: float) -> int:
    """Return a density in half octaves, the nearest.

    Examples
    --------
    >>> density_bucket(1), density_bucket(0.5), density_bucket(0.1), density_bucket(0.0)
    (0, -2, -7, -40)
    """
    return max(round(2 * log2(density)), -40) if density > 0 else -40


class Snapshot:
    """Winners by kind; immutable but for a cache of answers.

    Examples
    --------
    >>> family = Family("bsr_addmm", "90", "float16", (32, 32), "rows")
    >>> measured = Kind(family, (4096, 4096, 4096), -7)
    >>> known = Snapshot([Winner(measured, {"path": "mma"}, 1.0, 2.0)])
    >>> known.config(Kind(family, (4096, 4096, 3000), -7))
    {'path': 'mma'}
    >>> known.config(Kind(family, (4096, 4096, 64), -7)) is None
    True
    """

    __slots__ = ("_answers", "_families", "winners")

    def __init__(self, winners: Iterable[Winner] = ()):
        self.winners = {winner.kind: winner for winner in winners}
        self._families: dict[Family, list[Winner]] = {}
        for winner in self.winners.values():
            self._families.setdefault(winner.kind.family, []).append(winner)
        self._answers: dict[Kind, Config | None] = {}

    def config(self, kind: Kind) -> Config | None:
        """Return the configuration for a kind, None where nothing near was measured."""
        try:
            return self._answers[kind]
        except KeyError:
            answer = self._nearest(kind)
        if len(self._answers) >= _KEPT_ANSWERS:
            self._answers.clear()
        self._answers[kind] = answer
        return answer

    def _nearest(self, kind: Kind) -> Config | None:
        exact = self.winners.get(kind)
        if exact is not None:
            return exact.config
        if 0 in kind.shape:
            return None
        ranked = [(kind.distance(w.kind), w.kind, w) for w in self._families.get(kind.family, ())]
        if not ranked:
            return None
        distance, _, winner = min(ranked, key=lambda r: r[:2])
        return winner.config if distance < FAR else None


#: Incremented by every `keep` and `forget`: a part of the key of a repeated call.
generation = 0
# Held while the snapshot is replaced; reentrant: a user's finalizer may run then.
_lock = fork_safe(threading.RLock())
_snapshot: Snapshot | None = None


def snapshot() -> Snapshot:
    """Return the winners; the first call of a process reads the files."""
    global _snapshot
    found = _snapshot
    if found is None:
        with _lock:
            if _snapshot is None:
                _snapshot = _read()
            found = _snapshot
    return found


def keep(winner: Winner) -> None:
    """Keep a winner, for this process and those to come."""
    entry = dumps({"format": FORMAT, "version": __version__, **winner.as_dict()})
    write_entry(_CACHE, _digest(winner.kind), entry.encode())
    with _lock:
        known = _snapshot or _read()
        _swap(Snapshot([*known.winners.values(), winner]))


def forget() -> int:
    """Remove the user's own winners and return how many there were; the library's stay."""
    removed = remove_entries(_CACHE)
    with _lock:
        _swap(None)
    return removed


def users_winners() -> list[Winner]:
    """Return the winners in the per-user cache that this version of the library measured."""
    return [winner for (winner,) in read_entries(_CACHE, _decoded) if winner is not None]


def _decoded(entry: bytes) -> tuple[Winner | None]:
    """Return an entry's winner, None of another version; of anything else it is a ValueError."""
    found = loads(entry)
    if not isinstance(found, dict):
        raise ValueError("no winner")
    ours = found.get("format") == FORMAT and found.get("version") == __version__
    return (Winner.from_dict(found) if ours else None,)


def shipped_winners() -> list[Winner]:
    """Return the winners that came with the library, of all architectures."""
    from importlib import resources

    files = resources.files(__package__).joinpath("tuned").iterdir()
    texts = [f.read_text(encoding="utf-8") for f in files if f.name.endswith(".json")]
    known = [file for file in map(loads, texts) if file["format"] == FORMAT]
    return [Winner.from_dict(entry) for file in known for entry in file["winners"]]


def _read() -> Snapshot:
    return Snapshot([*shipped_winners(), *users_winners()])


def _swap(known: Snapshot | None) -> None:
    """Publish a snapshot, and only then the number that says that it changed."""
    global _snapshot, generation
    _snapshot = known
    generation += 1


def _digest(kind: Kind) -> str:
    return sha256(repr(kind).encode()).hexdigest()
