"""What a kernel is made of, and what is found in its code."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Self

from .. import _install
from .._checks import bad_type, bad_value, kind_of
from .._ptx.access import SCALAR, TENSOR_MAP, Access
from . import arguments, build, headers
from .config import Config
from .declaration import Declared
from .plans import Plans
from .tensor_map import BYTES

_SHOWN = 4  # reasons of `Kernel.explain`, a parameter


class Described:
    """A kernel's content, by which it is compared and pickled, and its access."""

    def __init__(self, **content: Any):
        self._content = content
        self._name: str = content["name"]
        self._plans = Plans()
        self._hash: int | None = None
        # Whether the code compiles only with what heuristics define, once a call has told.
        self._needs_heuristics = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            raise AttributeError(f"Kernel: argument '{name}': expected no change, it is immutable")
        super().__setattr__(name, value)

    # -- content -----------------------------------------------------------------------------

    def _value(self) -> tuple:
        return tuple(self._content.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._value() == other._value()

    def __hash__(self) -> int:
        if self._hash is None:  # a key of every call
            self._hash = hash(self._value())
        return self._hash

    def __repr__(self) -> str:
        count = len(self.configs)
        ending = "" if count == 1 else "s"
        return f"<sparsegpu.kernels.Kernel {self._name} of {count} configuration{ending}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __reduce__(self) -> tuple:
        for argument in ("grid", "block", "prune", "heuristics", "ref"):
            value = self._content[argument]
            for function in value if isinstance(value, tuple) else (value,):
                path = getattr(function, "__qualname__", "")
                if callable(function) and "<" in path:
                    raise pickle.PicklingError(
                        f"Kernel: argument '{argument}': expected a function that can be imported, "
                        f"got {function.__module__}.{path}"
                    )
        return _restored, (type(self), self._content)

    def _changed(self, **content: Any) -> Self:
        return type(self)(**{**self._content, **content})

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def configs(self) -> tuple[Config, ...]:
        """Its configurations."""
        return self._content["configs"]

    def with_configs(self, configs: Sequence[Config]) -> Self:
        """Return the same kernel with other configurations."""
        given = tuple(configs)
        if not given or not all(isinstance(config, Config) for config in given):
            raise bad_type("with_configs", "configs", "at least one kernels.Config", repr(configs))
        return self._changed(configs=given)

    # -- what is found -----------------------------------------------------------------------

    def _build(self, config: Config | None) -> build.Build:
        config = self.configs[0] if config is None else config
        if not isinstance(config, Config):
            raise bad_type("Kernel", "config", "a kernels.Config or None", kind_of(config))
        signature = self._content["signature"]
        if config.defines and signature is not None:
            expected = f"no defines, for a kernel of {signature.compiler}"
            raise bad_value(self._name, "config", expected, dict(config.defines))
        options = (*self._content["options"], *config.flags())
        text = self._content["text"]
        if isinstance(text, bytes) and options:
            raise bad_value(
                self._name, "config", "neither defines nor options, of a cubin", options
            )
        if isinstance(text, bytes):
            return build.of_cubin(self._name, text)
        flags = build.flags_of(options, signature)
        return build.build(self._name, text, flags, signature, headers.digest(text, options))

    @property
    def _has_code(self) -> bool:
        """Whether its code is here, or can be compiled."""
        return isinstance(self._content["text"], bytes) or build.can_compile()

    def ptx(self, config: Config | None = None) -> str:
        """Return the PTX that is analysed, of the first configuration by default."""
        return self._build(config).ptx

    def resources(self, config: Config | None = None) -> Any:
        """Return registers, stack and shared memory of a configuration."""
        return self._build(config).resources

    @property
    def access(self) -> Access:
        """What the kernel may do with any of its configurations."""
        return reduce(or_, map(self.access_of, self.configs))

    def access_of(self, config: Config | None = None) -> Access:
        """Return what the kernel may do with one configuration.

        Raises
        ------
        ValueError
            ``writes=`` or ``reads=`` miss what is found.
        """
        declared = {n: self._content[n] for n in ("writes", "reads")}
        if None not in declared.values() and not self._has_code:
            return Access(frozenset(declared["reads"]), frozenset(declared["writes"]))
        return self._access(self._build(config))

    def _access(self, built: build.Build) -> Access:
        found = built.report.access(self._names_of(built))
        known = {"reads": built.report.opaque or built.report.reads_all, "writes": found.opaque}
        fields: dict[str, frozenset] = {}
        for argument, unknown in known.items():
            declared = self._content[argument]
            here = getattr(found, argument)
            if declared is None:
                fields[argument] = here
                continue
            stray = set(declared) - set(self._names_of(built))
            if stray:
                expected = f"names of parameters ({', '.join(map(str, self._names_of(built)))})"
                raise bad_value("wrap", argument, expected, sorted(map(str, stray)))
            missed = here - set(declared)
            if missed and not unknown:
                because = "; ".join(found.because.get(next(iter(missed)), ()))
                expected = f"also {', '.join(sorted(map(str, missed)))} ({because})"
                raise bad_value("wrap", argument, expected, declared)
            fields[argument] = frozenset(declared) if unknown else frozenset(declared) | here
        return Access(
            fields["reads"], fields["writes"], found.opaque, found.escapes, found.side_effects,
            found.because,
        )  # fmt: skip

    def _names_of(self, built: build.Build) -> tuple:
        count = len(built.report.formals)
        given = self._content["params"]
        if given is not None and len(given) != count:
            raise bad_value("wrap", "params", f"{count} names", given)
        if given is not None:
            return given
        if built.declared is not None:
            return tuple(d.name for d in built.declared)
        return tuple(range(count))

    def _declared(self) -> dict[Any, bool] | None:
        """Return the parameters by name where names are given, or the text tells them.

        The values say of which the text tells that they are pointers.
        """
        given, text = self._content["params"], self._content["text"]
        plain = build.parameters_of(text, self._name) if isinstance(text, str) else None
        if plain is None:
            return None if given is None else dict.fromkeys(given, False)
        names = [d.name for d in plain] if given is None else given
        return dict(zip(names, (d.pointer for d in plain), strict=False))

    def explain(self) -> str:
        """Return, parameter by parameter, what is read and written and why.

        Returns
        -------
        str
        """
        built, access = self._build(None), self.access
        lines = [f"{self._name}: {'opaque' if access.opaque else 'known'}"]
        for name in dict.fromkeys(self._names_of(built)):
            done = [w for w in ("reads", "writes", "escapes") if name in getattr(access, w)]
            words = ", ".join({"reads": "read", "writes": "written"}.get(w, w) for w in done)
            lines.append(f"  {name}: {words or 'not touched'}")
            reasons = access.because.get(name, ())
            lines += [f"    {line}" for line in reasons[:_SHOWN]]
            if len(reasons) > _SHOWN:
                lines.append(f"    and {len(reasons) - _SHOWN} more")
        for name in ("opaque", "reads all", *sorted(access.side_effects)):
            lines += [f"  {line}" for line in access.because.get(name, ())]
        return "\n".join(lines)

    def _parameters(self, built: build.Build | None) -> list[arguments.Parameter]:
        if self._content["signature"] is not None:
            return self._content["signature"].arguments()
        if built is None:
            plain = build.parameters_of(self._content["text"], self._name)
            if plain is None:
                raise ImportError(
                    f"{self._name}: its declaration does not tell its parameters, and compiling it "
                    f"needs cuda-bindings: {_install.for_cuda()}"
                )
            return [_declared_parameter(d) for d in plain]
        names = self._names_of(built)
        declared: Sequence[Declared | None] = built.declared or [None] * len(names)
        return [
            arguments.parameter_of(*each)
            for each in zip(names, built.report.formals, declared, strict=True)
        ]


def _restored(kind: type, content: dict) -> Described:
    return kind(**content)


def _declared_parameter(declared: Any) -> arguments.Parameter:
    """Return what a declaration alone tells of a parameter."""
    dtype = build.dtype_of(declared.type)
    if declared.type == "CUtensorMap" and not declared.pointer:
        return arguments.Parameter(declared.name, TENSOR_MAP, BYTES, None, False)
    if declared.pointer:
        return arguments.pointer(declared.name, dtype)
    if dtype is None:
        raise ImportError(
            f"{declared.name}: its size is found by compiling, which needs cuda-bindings: pip "
            "install 'sparsegpu[cuda13]' (or [cuda12])"
        )
    return arguments.Parameter(declared.name, SCALAR, dtype.itemsize, dtype, dtype.kind in "iub")
