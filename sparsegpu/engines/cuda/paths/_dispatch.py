"""Which path computes a product: the first of its family that serves, or the one that is named."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

from ..runtime.device import runs_here
from ..runtime.launch import Work
from ..winners import Config
from . import Family, family_of
from ._examples import field_names
from ._facts import Facts
from ._fields import MODEL, ConfigError, Fields, refused


def works_of(
    family: Family, product: Any, config: Config | None, function: str = "bsr_addmm"
) -> tuple[Work, ...]:
    """Return what a product launches under a configuration; without one, by the order of paths.

    Raises
    ------
    ConfigError
        A configuration that these operands, or this device, cannot have.
    """
    if config and config["path"] != MODEL["path"]:
        named = [path for path in family if config["path"] == path.NAME]
        fields = Fields(config, function)
        works = _attempt(named[0], product, product.dtype.name, None, fields) if named else None
        if works is None:
            name = repr(config["path"])
            expected = f"another path: these operands or this device are not for {name}"
            raise refused("config['path']", expected, name, function)
        return works
    facts, dtype = product.facts(), product.dtype.name  # a new string every time NumPy is asked
    for path in family:
        works = _attempt(path, product, dtype, facts, None)
        if works is not None:
            return works
    raise AssertionError(f"{function}: the last path of a family serves every product")


def tuned_works(
    family: Family, product: Any, config: Config | None, function: str = "bsr_addmm"
) -> tuple[Work, ...]:
    """Return what a product launches: by the configuration measured best, else the model's.

    The products that were tuned may have had another epilogue, batch or alignment: where a
    product cannot have their configuration, the model chooses, too.
    """
    if config is not None:
        try:
            return works_of(family, product, config, function)
        except ConfigError:
            pass
    return works_of(family, product, None, function)


def _attempt(
    path: ModuleType, product: Any, dtype: str, usual: Facts | None, fields: Fields | None
) -> tuple[Work, ...] | None:
    """Return what a path launches for a product, None where it does not serve.

    Without ``fields`` nobody asked for this path: by the ``usual`` facts it is to pay. What a
    path's own facts need of the device is looked up only after that.
    """
    if dtype not in path.DTYPES or not runs_here(path.ARCHS):
        return None
    if not path.serves(product) or not (usual is None or path.pays(usual)):
        return None
    shared = usual is not None and path.facts is type(product).facts
    facts = usual if shared else path.facts(product)
    tile = _usual_tile(path, facts) if fields is None else path.tile(facts, fields)
    if tile is None:
        return None
    if fields is not None:
        fields.finish()
    return path.launches(product, tile)


@lru_cache(maxsize=1024)
def _usual_tile(path: ModuleType, facts: Facts) -> Any:
    """Return the tile of a path without a configuration."""
    return path.tile(facts, Fields())


def check_config(operation: str, config: Config, function: str) -> None:
    """Refuse a configuration that no product of an operation can have; needs no GPU.

    Raises
    ------
    ConfigError
        No path or an unknown one, an unknown field, a field that is no integer.
    """
    family = family_of(operation)
    if "path" not in config and config:
        raise refused("config", "a 'path' besides its fields", repr(config), function)
    name = config.get("path", MODEL["path"])
    names = [path.NAME for path in family]
    if name not in (*names, MODEL["path"]):
        listed = ", ".join(map(repr, (*names, MODEL["path"])))
        raise refused("config['path']", f"one of {listed}", repr(name), function)
    known = () if name == MODEL["path"] else field_names(family[names.index(name)])
    for field, value in config.items():
        if field == "path":
            continue
        if field not in known:
            expected = f"the fields {', '.join(known)} of this path" if known else "no field"
            raise refused(f"config['{field}']", expected, "another one", function)
        if type(value) is not int:
            raise refused(f"config['{field}']", "an integer", repr(value), function)
