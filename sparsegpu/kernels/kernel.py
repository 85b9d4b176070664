"""A CUDA kernel as an operation: what it may touch, and its two forms."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from .._arrays import is_cupy
from .._checks import bad_type, bad_value, kind_of, not_offered
from .._ptx.access import SCALAR, Access
from ..engines import chosen_engine
from . import arguments, build
from .config import Config, Meta, Out, Spec, check_defines, dimensions
from .declaration import Declared

_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_LARGEST_BLOCK = (1024, 1024, 64)
_THREADS = 1024
_SHOWN = 4  # reasons of `Kernel.explain`, a parameter
_SHARED_MEMORY = 232_448  # the most that any device has


class Kernel:
    """An operation made of a CUDA kernel by `wrap`; immutable.

    Call it for the functional form: inputs stay as they are, and what the kernel writes is
    returned. `inplace` works on the arguments themselves.
    """

    def __init__(self, **content: Any):
        self._content = content
        self._name: str = content["name"]

    # -- content -----------------------------------------------------------------------------

    def _value(self) -> tuple:
        return tuple(self._content.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __repr__(self) -> str:
        return f"<sparsegpu.kernels.Kernel {self._name} of {len(self.configs)} configurations>"

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: dict) -> Kernel:
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
        return _restored, (self._content,)

    def _changed(self, **content: Any) -> Kernel:
        return Kernel(**{**self._content, **content})

    def __getitem__(self, launch: Any) -> Kernel:
        """Return the same kernel with another grid, or with another grid and block.

        Two things in the brackets are a grid and a block, three ints are a grid.
        """
        grid, block = launch if isinstance(launch, tuple) and len(launch) == 2 else (launch, None)
        given = {"grid": grid} if block is None else {"grid": grid, "block": block}
        sizes = {
            argument: value if callable(value) else dimensions(self._name, argument, value)
            for argument, value in given.items()
        }
        return self._changed(**sizes)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def configs(self) -> tuple[Config, ...]:
        """Its configurations."""
        return self._content["configs"]

    def with_configs(self, configs: Sequence[Config]) -> Kernel:
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
        options = (*self._content["options"], *config.flags())
        return build.build(self._name, self._content["text"], build.flags_of(options))

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
        if None not in declared.values() and not build.can_compile():
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

    def explain(self) -> str:
        """Return, parameter by parameter, what is read and written and why.

        Returns
        -------
        str
        """
        built, access = self._build(None), self.access
        lines = [f"{self._name}: {'opaque' if access.opaque else 'known'}"]
        for name in self._names_of(built):
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

    # -- a call ------------------------------------------------------------------------------

    def _parameters(self, built: build.Build | None) -> list[arguments.Parameter]:
        if built is None:
            plain = build.parameters_of(self._content["text"], self._name)
            if plain is None:
                raise ImportError(
                    f"{self._name}: its declaration does not tell its parameters, and compiling it "
                    "needs cuda-bindings: pip install 'sparsegpu[cuda13]' (or [cuda12])"
                )
            return [_declared_parameter(d) for d in plain]
        names = self._names_of(built)
        declared: Sequence[Declared | None] = built.declared or [None] * len(names)
        return [
            arguments.parameter_of(*each)
            for each in zip(names, built.report.formals, declared, strict=True)
        ]

    def _bound(self, args: tuple, keywords: Mapping[str, Any]) -> dict[Any, Any]:
        """Return checked arguments by name."""
        parameters = self._parameters(self._build(None) if build.can_compile() else None)
        names = [parameter.name for parameter in parameters]
        bound = arguments.bind(self._name, names, args, keywords)
        return {p.name: arguments.check(self._name, p, bound[p.name]) for p in parameters}

    def config(self, *args: Any, **keywords: Any) -> Config:
        """Return the configuration that a call with these arguments takes."""
        return self._chosen(self._bound(args, keywords), None)

    def _chosen(self, bound: Mapping[Any, Any], config: Config | None) -> Config:
        if config is None:
            config = self._pruned(bound)[0]
        elif not isinstance(config, Config):
            raise bad_type(self._name, "config", "a kernels.Config or None", kind_of(config))
        defines = dict(config.defines)
        for heuristic in self._content["heuristics"]:
            found = heuristic(Meta(self._name, {**bound, **defines}))
            defines |= check_defines(self._name, "heuristics", found)
        return Config(defines, config.block, config.shared_memory, config.options)

    def _pruned(self, bound: Mapping[Any, Any]) -> list[Config]:
        configs, prune = list(self.configs), self._content["prune"]
        if callable(prune):
            configs = list(prune(configs, dict(bound)))
        elif prune is not None:
            model, top = prune
            configs = sorted(configs, key=lambda config: model(config, dict(bound)))[:top]
        if not configs:
            raise bad_value(self._name, "prune", "at least one configuration left", configs)
        return configs

    def _launch(
        self, bound: Mapping[Any, Any], config: Config, grid: Any, block: Any
    ) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return grid, block and shared memory of a call, checked."""
        meta = Meta(self._name, {**bound, **config.defines})
        grid = self._content["grid"] if grid is None else grid
        blocks = (block, config.block, self._content["block"])
        block = next((b for b in blocks if b is not None), None)
        sizes = []
        for argument, given, largest in (
            ("grid", grid, _LARGEST_GRID),
            ("block", block, _LARGEST_BLOCK),
        ):
            if given is None:
                raise bad_type(self._name, argument, "a number of them, here or in wrap", None)
            found = dimensions(self._name, argument, given(meta) if callable(given) else given)
            if any(n > most for n, most in zip(found, largest)):
                raise bad_value(self._name, argument, f"at most {largest}", found)
            sizes.append(found)
        threads = 1
        for n in sizes[1]:
            threads *= n
        if not 1 <= threads <= self._most_threads(config):
            expected = f"1 to {self._most_threads(config)} threads"
            raise bad_value(self._name, "block", expected, sizes[1])
        shared = config.shared_memory or self._content["shared_memory"]
        if shared > _SHARED_MEMORY:
            expected = f"at most {_SHARED_MEMORY} bytes"
            raise bad_value(self._name, "shared_memory", expected, shared)
        return sizes[0], sizes[1], shared

    def _most_threads(self, config: Config) -> int:
        return self._build(config).maximum_threads if build.can_compile() else _THREADS

    def __call__(
        self,
        *args: Any,
        grid: Any = None,
        block: Any = None,
        config: Config | None = None,
        **named: Any,
    ) -> Any:
        """Return what the kernel writes; the arguments stay as they are.

        Parameters
        ----------
        *args, **named
            The kernel's, in order or by name: arrays, numbers, None for a null pointer, `Out` for
            what is to be allocated.
        grid, block : optional
            Replace those of `wrap`.
        config : Config, optional

        Returns
        -------
        array, or tuple of arrays in the order of the parameters

        Raises
        ------
        TypeError, ValueError
            Arguments that are not the kernel's.
        NotImplementedError
            NumPy arrays without ``ref=``; an opaque kernel without ``writes=``.
        """
        bound = self._bound(args, named)
        chosen = self._chosen(bound, config)
        access = self.access_of(chosen)
        if access.opaque and self._content["writes"] is None:
            because = "; ".join(access.because.get("opaque", ()))
            raise not_offered(
                self._name, f"the functional form of an opaque kernel ({because})",
                "writes= in wrap, or inplace",
            )  # fmt: skip
        launch = self._launch(bound, chosen, grid, block)
        written = [name for name in bound if name in access.writes]
        for name, value in bound.items():
            if isinstance(value, Out):
                if name not in written:
                    raise bad_value(self._name, str(name), "an array: it is not written", "Out")
            elif name in written and arguments.is_array(value):
                arguments.check_writable(self._name, name, value, in_place=False)
        given = {n: v for n, v in bound.items() if not isinstance(v, Out)}
        arguments.check_one_device(self._name, given)
        self._check_runs(given)
        ready = arguments.cloned(self._name, given, written)
        for name, value in bound.items():
            if isinstance(value, Out):
                read = name in access.reads
                ready[name] = arguments.allocated(self._name, name, value, given, read)
        ready = {name: ready[name] for name in bound}
        self._run(ready, chosen, launch)
        results = tuple(
            ready[n] for n in written if ready[n] is None or arguments.is_array(ready[n])
        )
        return results[0] if len(results) == 1 else results

    def inplace(
        self,
        *args: Any,
        grid: Any = None,
        block: Any = None,
        config: Config | None = None,
        **named: Any,
    ) -> None:
        """Run on the arguments themselves.

        Raises
        ------
        TypeError, ValueError
            Arguments that are not the kernel's, `Out` among them.
        NotImplementedError
            NumPy arrays without ``ref=``.
        """
        bound = self._bound(args, named)
        chosen = self._chosen(bound, config)
        access = self.access_of(chosen)
        for name, value in bound.items():
            if isinstance(value, Out):
                raise bad_type(self._name, str(name), "an array in the in-place form", "Out")
            if name in access.writes and arguments.is_array(value):
                arguments.check_writable(self._name, name, value, in_place=True)
        launch = self._launch(bound, chosen, grid, block)
        arguments.check_one_device(self._name, bound)
        self._check_runs(bound)
        self._run(bound, chosen, launch)

    def launch(self, grid: Any, block: Any, args: tuple, shared_memory: int = 0) -> None:
        """Run as ``cupy.RawKernel`` does, for code that calls one."""
        config = Config(shared_memory=shared_memory) if shared_memory else None
        self.inplace(*args, grid=grid, block=block, config=config)

    def spec(self, *args: Any, **named: Any) -> dict[str, Spec]:
        """Return shapes, dtypes and strides of what the functional form returns.

        Nothing is computed, and no GPU is needed.
        """
        bound = self._bound(args, named)
        access = self.access_of(self._chosen(bound, None))
        specs = {}
        for name, value in bound.items():
            if name not in access.writes:
                continue
            if isinstance(value, Out):
                read = name in access.reads
                value = arguments.allocated(self._name, name, value, bound, read)
            if arguments.is_array(value):
                specs[name] = Spec(value.shape, value.dtype, value.strides)
        return specs

    def _check_runs(self, bound: Mapping[Any, Any]) -> None:
        """Refuse, before anything is copied, arrays that this kernel does not run on."""
        on_device = any(map(is_cupy, bound.values()))
        if on_device and chosen_engine() in {"reference", "cpu"}:
            expected = f"NumPy arrays for the engine '{chosen_engine()}'"
            raise bad_type(self._name, "args", expected, "CuPy arrays")
        if not on_device and self._content["ref"] is None:
            supported = "CuPy arrays, or ref= in wrap"
            raise not_offered(self._name, "a call with NumPy arrays", supported)

    def _run(self, ready: Mapping[Any, Any], config: Config, launch: tuple) -> None:
        grid, block, shared = launch
        if 0 in grid:
            return
        if not any(map(is_cupy, ready.values())):
            self._content["ref"](*ready.values())
            return
        from .launch import launch as launch_kernel

        launch_kernel(self._name, self._build(config).code, grid, block, ready.values(), shared)


def _restored(content: dict) -> Kernel:
    return Kernel(**content)


def _declared_parameter(declared: Any) -> arguments.Parameter:
    """Return what a declaration alone tells of a parameter."""
    dtype = build.dtype_of(declared.type)
    if declared.pointer:
        return arguments.Parameter(declared.name, "pointer", 8, dtype, True)
    if dtype is None:
        raise ImportError(
            f"{declared.name}: its size is found by compiling, which needs cuda-bindings: pip "
            "install 'sparsegpu[cuda13]' (or [cuda12])"
        )
    return arguments.Parameter(declared.name, SCALAR, dtype.itemsize, dtype, dtype.kind in "iub")
