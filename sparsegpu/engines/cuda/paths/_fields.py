"""The fields of a configuration: checked where they are used, and explored from there.

Code that chooses a tile asks for its fields one after the other and says what each may be, given
those before it. So one piece of code chooses, refuses what cannot be, and tells the search of
`candidates` where to look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...._checks import bad_value

_FUNCTION = "bsr_addmm"

#: The choice of a path and its tile by the operands, whatever was tuned.
MODEL = {"path": "model"}


class ConfigError(ValueError):
    """A configuration that such operands cannot have: its path, or a field of it."""


def refused(argument: str, expected: str, got: Any, function: str = _FUNCTION) -> ConfigError:
    """Return the error for a configuration that cannot be (the caller raises it)."""
    return ConfigError(*bad_value(function, argument, expected, got).args)


class Fields:
    """What a configuration says besides its path.

    Parameters
    ----------
    config : mapping, optional
        ``{"path": name, field: value, ...}``.
    function : str
        Whose ``config`` it is.

    Attributes
    ----------
    chosen, allowed : dict
        The value of every field that was asked for, and the values that it could have had.

    Examples
    --------
    >>> fields = Fields({"path": "wgmma", "tile_n": 128})
    >>> fields.pick("tile_n", 256, (64, 128, 256)), fields.pick("stages", 4, (2, 3, 4))
    (128, 4)
    >>> fields.chosen, fields.allowed["stages"]
    ({'tile_n': 128, 'stages': 4}, (2, 3, 4))
    """

    __slots__ = ("_function", "_given", "allowed", "chosen")

    def __init__(self, config: Mapping[str, Any] | None = None, function: str = _FUNCTION):
        self._function = function
        self._given = {k: v for k, v in (config or {}).items() if k != "path"}
        self.chosen: dict[str, int] = {}
        self.allowed: dict[str, tuple[int, ...]] = {}

    def pick(self, name: str, default: int, allowed: Sequence[int]) -> int:
        """Return a field's value.

        Parameters
        ----------
        name : str
        default : int
            Where the configuration does not say; the largest allowed one below it where fields
            that were asked for earlier rule it out.
        allowed : sequence of int, ascending

        Raises
        ------
        ConfigError
            The configuration says something that is not allowed, or nothing is.
        """
        if not allowed:
            expected = f"other {' and '.join(self.chosen)}, which leave no choice"
            raise refused(f"config['{name}']", expected, self.chosen, self._function)
        if name in self._given:
            value = self._given[name]
            if type(value) is not int or value not in allowed:
                expected = f"one of {', '.join(map(str, allowed))}"
                raise refused(f"config['{name}']", expected, repr(value), self._function)
        elif default in allowed:
            value = default
        else:
            value = max((v for v in allowed if v < default), default=allowed[0])
        self.chosen[name], self.allowed[name] = value, tuple(allowed)
        return value

    def finish(self) -> None:
        """Refuse fields that nobody asked for."""
        for name in self._given:
            if name not in self.chosen:
                known = f"the fields {', '.join(self.chosen)}" if self.chosen else "no field"
                expected = f"{known} of this path"
                raise refused(f"config['{name}']", expected, "another one", self._function)
