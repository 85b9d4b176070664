"""The fields of a configuration: the code that chooses a tile also checks and enumerates them.

That code asks for its fields one after the other and says which values each may have, given those
before it. So the same code chooses defaults, refuses impossible values, and tells the search of
`candidates` what to try.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...._checks import bad_value

_FUNCTION = "bsr_addmm"

#: Asks for the path and tile that the model chooses, whatever was tuned.
MODEL = {"path": "model"}


class ConfigError(ValueError):
    """A configuration that such operands cannot have: its path, or a field of it."""


def refused(argument: str, expected: str, got: Any, function: str = _FUNCTION) -> ConfigError:
    """Return the error for an impossible configuration (the caller raises it)."""
    return ConfigError(*bad_value(function, argument, expected, got).args)


class Fields:
    """The fields of a configuration besides its path.

    Parameters
    ----------
    config : mapping, optional
        ``{"path": name, field: value, ...}``.
    function : str
        The function that ``config`` was passed to.

    Attributes
    ----------
    chosen, allowed : dict
        The value of every field that `pick` was asked for, and its allowed values.

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
            For a configuration without this field; the largest allowed value below it where fields
            that were asked for earlier rule it out.
        allowed : sequence of int, ascending

        Raises
        ------
        ConfigError
            The configuration has a value that is not allowed, or no value is allowed.
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
        """Refuse fields that `pick` was not asked for."""
        for name in self._given:
            if name not in self.chosen:
                known = f"the fields {', '.join(self.chosen)}" if self.chosen else "no field"
                expected = f"{known} of this path"
                raise refused(f"config['{name}']", expected, "another one", self._function)
