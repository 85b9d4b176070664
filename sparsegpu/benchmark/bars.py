"""Bars: targets for the speed of a case, each of which comes to a longest time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: What the bars of solvers assume: bytes read a second.
_READ_RATE = 4.0e12


@dataclass(frozen=True)
class Bar:
    """A target; ``of`` names the case or the peer that it is relative to."""

    kind: str
    value: float
    of: str = ""

    def text(self) -> str:
        """Return the bar in words."""
        return _KINDS[self.kind][0].format(value=self.value, of=self.of)

    def limit_ms(
        self, row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], copy_gbs: float
    ) -> float | None:
        """Return the longest time allowed, None if the case or peer ``of`` was not measured.

        Parameters
        ----------
        row : mapping
            The measured row (`measure.Row` as a dict).
        rows : mapping
            All rows by name.
        copy_gbs : float
            The chip's copy bandwidth, measured in the same run.
        """
        return _KINDS[self.kind][1](self, row, rows, copy_gbs)


def _number(value: Any) -> float | None:
    return value if isinstance(value, float) else None


def _of_peer(bar: Bar, row: Mapping[str, Any]) -> float | None:
    return _number(row["peers"].get(bar.of))


def _peer_time(bar: Bar, row: Mapping[str, Any], *_: Any) -> float | None:
    peer = _of_peer(bar, row)
    return None if peer is None else peer * bar.value


def _peer_plus(bar: Bar, row: Mapping[str, Any], *_: Any) -> float | None:
    peer = _of_peer(bar, row)
    return None if peer is None else peer + bar.value / 1e3


def _peer_rate(bar: Bar, row: Mapping[str, Any], *_: Any) -> float | None:
    # The dense product of the same size does 1 / density times the work.
    peer = _of_peer(bar, row)
    return None if peer is None else peer * row["density"] / bar.value


def _peer_or_tf(bar: Bar, row: Mapping[str, Any], *_: Any) -> float | None:
    peer = _of_peer(bar, row)
    return row["flops"] / bar.value / 1e9 if peer is None else peer


def _case_rate(bar: Bar, row: Mapping[str, Any], *_: Any) -> float:
    return row["at_rate_of"][bar.of] / bar.value


def _case_time(
    bar: Bar, row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], *_: Any
) -> float | None:
    other = rows.get(bar.of)
    return None if other is None else other["ms"] * bar.value


def _case_iterations(
    bar: Bar, row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], *_: Any
) -> float | None:
    # What the iterations that are allowed would take.
    other = rows.get(bar.of)
    if other is None:
        return None
    made, of_other = (len(next(iter(r["histories"].values()))) - 1 for r in (row, other))
    return row["ms"] * of_other * bar.value / max(made, 1)


_Limit = Callable[..., float | None]
_KINDS: dict[str, tuple[str, _Limit]] = {
    "TF": ("{value:g} TF", lambda bar, row, *_: row["flops"] / bar.value / 1e9),
    "ms": ("{value:g} ms", lambda bar, *_: bar.value),
    "peer time": ("{value:g} x the time of {of}", _peer_time),
    "peer plus": ("the time of {of} + {value:g} us", _peer_plus),
    "peer rate": ("{value:g} of the rate of {of}", _peer_rate),
    "peer or TF": ("the time of {of}, {value:g} TF without it", _peer_or_tf),
    "case rate": ("{value:.3g} of the rate of {of}", _case_rate),
    "copy bandwidth": (
        "{value:g} of the copy bandwidth",
        lambda bar, row, rows, copy_gbs: row["bytes"] / (bar.value * copy_gbs) / 1e6,
    ),
    "case time": ("{value:g} x the time of {of}", _case_time),
    "case iterations": ("{value:g} x the iterations of {of}", _case_iterations),
    "bytes": (
        "{value:g} x its bytes at 4 TB/s",
        lambda bar, row, *_: bar.value * row["bytes"] / _READ_RATE * 1e3,
    ),
    "reading": (
        "{value:g} x the time of a kernel that only reads the stored blocks",
        lambda bar, row, *_: bar.value * row["reading_ms"],
    ),
}
