"""A kernel's calls before anything is launched: arguments, configuration, grid, checks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from numbers import Real
from typing import Any

from .._arrays import is_cupy
from .._checks import bad_type, bad_value, kind_of, not_offered, shown
from .._ptx.access import Access
from ..engines import chosen_engine
from ..engines.cuda.runtime.architectures import SHARED_MEMORY
from ..engines.cuda.runtime.compile import CompileError
from . import arguments, build, guard, plans, winners
from .config import Config, Meta, Out, check_defines, dimensions
from .described import Described
from .memory import is_array
from .plans import Plan, Sizes
from .tensor_map import TensorMap, array_of

_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_LARGEST_BLOCK = (1024, 1024, 64)
_BOUNDS = build.Bounds(1024, (), None)
_CLUSTERS_FROM = 90
_SHARED_MEMORY = max(SHARED_MEMORY.values())


class Planned(Described):
    """What a call with given arguments will launch."""

    def _parameters_of(self, args: tuple, keywords: Mapping[str, Any]) -> list[arguments.Parameter]:
        """Return the parameters; what the code lacks to compile, heuristics add."""
        if not self._needs_heuristics:
            try:
                return self._parameters(self._build(None) if self._has_code else None)
            except CompileError:
                if not self._content["heuristics"] or self._declared() is None:
                    raise
                self._needs_heuristics = True
        declared = self._declared() or {}
        given = arguments.bind(self._name, list(declared), args, keywords)
        for name, is_pointer in declared.items():
            if is_pointer:  # which heuristics may rely on
                arguments.check(self._name, arguments.pointer(name), given[name])
        bound = {name: array_of(value) for name, value in given.items()}
        # Of every call anew: what heuristics define may be the type of a parameter.
        found = self._parameters(self._build(self._completed(bound, self.configs[0])))
        if [parameter.name for parameter in found] != list(declared):
            expected = "the parameters' names, since a define may hide what is declared"
            raise bad_value("wrap", "params", expected, None)
        return found

    def _bound(
        self, args: tuple, keywords: Mapping[str, Any]
    ) -> tuple[dict[Any, Any], dict[Any, TensorMap]]:
        """Return checked arguments by name, arrays in place of their maps, and the maps."""
        parameters = self._parameters_of(args, keywords)
        names = [parameter.name for parameter in parameters]
        bound = arguments.bind(self._name, names, args, keywords)
        bound = {p.name: arguments.check(self._name, p, bound[p.name]) for p in parameters}
        maps = {n: v for n, v in bound.items() if isinstance(v, TensorMap)}
        bound = {n: array_of(v) for n, v in bound.items()}
        for parameter in parameters:
            if isinstance(bound[parameter.name], Out):
                arguments.check_out(self._name, parameter, bound[parameter.name], bound)
        return bound, maps

    def config(self, *args: Any, **keywords: Any) -> Config:
        """Return the configuration that a call with these arguments takes."""
        return self._chosen(self._bound(args, keywords)[0], None)

    def _chosen(self, bound: Mapping[Any, Any], config: Config | None) -> Config:
        if config is None:
            configs = self._pruned(bound)
            config = winners.find(self._kind(bound), configs) or configs[0]
        elif not isinstance(config, Config):
            raise bad_type(self._name, "config", "a kernels.Config or None", kind_of(config))
        return self._completed(bound, config)

    def _completed(self, bound: Mapping[Any, Any], config: Config) -> Config:
        """Return a configuration with what the heuristics add and change."""
        defines = dict(config.defines)
        for heuristic in self._content["heuristics"]:
            found = heuristic(Meta(self._name, {**bound, **defines}))
            defines |= check_defines(self._name, "heuristics", found)
        return replace(config, defines=defines)

    def _kind(self, bound: Mapping[Any, Any]) -> tuple:
        """Return what tells the winner of a call from others."""
        key = self._content["key"]
        if key:
            stray = [name for name in key if name not in bound]
            if stray:
                expected = f"names of parameters ({', '.join(map(str, bound))})"
                raise bad_value("wrap", "key", expected, stray)
            named = {name: bound[name] for name in key}
        else:
            named = {n: v for n, v in bound.items() if is_array(v) or isinstance(v, Out)}
        facts = tuple((name, arguments.fact(value, bound)) for name, value in named.items())
        flags = build.flags_of(self._content["options"])
        return self._content["text"], self._name, flags, facts

    def _pruned(self, bound: Mapping[Any, Any]) -> list[Config]:
        configs, prune = list(self.configs), self._content["prune"]
        if callable(prune):
            kept = prune(configs, dict(bound))
            configs = list(kept) if isinstance(kept, Iterable) else [kept]
            if not all(isinstance(config, Config) for config in configs):
                expected = "a list of kernels.Config from it"
                raise bad_type(self._name, "prune", expected, shown(kept, repr))
        elif prune is not None:
            model, top = prune
            times = {config: model(config, dict(bound)) for config in configs}
            for time in times.values():
                if not isinstance(time, Real):
                    raise bad_type(self._name, "prune", "a number from it", shown(time, repr))
            configs = sorted(configs, key=times.__getitem__)[:top]
        if not configs:
            raise bad_value(self._name, "prune", "at least one configuration left", configs)
        return configs

    def _launch(self, bound: Mapping[Any, Any], config: Config, grid: Any, block: Any) -> Sizes:
        """Return what a call is launched with, checked."""
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
        bounds = self._build(config).bounds if self._has_code else _BOUNDS
        if not 1 <= prod(sizes[1]) <= bounds.threads:
            raise bad_value(self._name, "block", f"1 to {bounds.threads} threads", sizes[1])
        shared = config.shared_memory or self._content["shared_memory"]
        if shared > _SHARED_MEMORY:
            expected = f"at most {_SHARED_MEMORY} bytes"
            raise bad_value(self._name, "shared_memory", expected, shared)
        self._check_cluster(config, bounds, sizes[0])
        cluster = None if bounds.cluster else config.cluster
        return Sizes(sizes[0], sizes[1], shared, cluster)

    def _check_cluster(self, config: Config, bounds: build.Bounds, grid: tuple[int, ...]) -> None:
        """Refuse clusters that the kernel, its architecture or the grid do not allow."""
        cluster = config.cluster
        if cluster is not None:
            given = (*cluster, 1, 1)[:3]
            if bounds.cluster and given != (*bounds.cluster, 1, 1)[:3]:
                expected = f"{bounds.cluster}, which the kernel is compiled for"
                raise bad_value(self._name, "cluster", expected, cluster)
            if bounds.most_blocks is not None and prod(given) > bounds.most_blocks:
                expected = f"at most {bounds.most_blocks} blocks, the kernel's bound"
                raise bad_value(self._name, "cluster", expected, cluster)
            architecture = build.architecture_of((*self._content["options"], *config.options))
            if architecture is not None and int(architecture.rstrip("af")) < _CLUSTERS_FROM:
                expected = "None below compute capability 9.0"
                raise bad_value(self._name, "cluster", expected, f"{cluster} for {architecture}")
        sizes = bounds.cluster or cluster or ()
        if any(n % size for n, size in zip((*grid, 1, 1), sizes)):
            raise bad_value(self._name, "grid", f"multiples of the cluster's {sizes}", grid)

    @cached_property
    def _is_kept(self) -> bool:
        """Whether calls that are alike are planned once: nobody is asked at each of them."""
        return self._content["prune"] is None and not self._content["heuristics"]

    def _key(self, in_place: bool, args: tuple, grid: Any, block: Any, config: Any) -> Hashable:
        """Return what a call without names depends on, None where it is planned anew."""
        if not self._is_kept or guard.checking() is not None:
            return None
        launch = None
        if not grid is block is config is None:
            launch = grid, block, config
            if not (_is_plain(grid) and _is_plain(block) and type(config) in {Config, type(None)}):
                return None
        found = plans.key_of(args)
        if found is None:
            return None
        return in_place, launch, chosen_engine(), winners.generation, found

    def _planned(
        self,
        key: Hashable,
        in_place: bool,
        args: tuple,
        named: Mapping[str, Any],
        grid: Any,
        block: Any,
        config: Config | None,
    ) -> Plan:
        """Return the checked arguments, and what follows from them."""

        def make() -> Plan:
            bound, maps = self._bound(args, named)
            chosen = self._chosen(bound, config)
            access = self.access_of(chosen)
            if in_place:
                self._check_in_place(bound, access)
            else:
                self._check_functional(bound, access)
            launch = self._launch(bound, chosen, grid, block)
            given = {n: v for n, v in bound.items() if not isinstance(v, Out)}
            arguments.check_one_device(self._name, given)
            self._check_runs(given)
            return Plan(bound, maps, chosen, access, launch)

        return self._plans.plan(key, args, make)

    def _check_functional(self, bound: Mapping[Any, Any], access: Access) -> None:
        if access.opaque and self._content["writes"] is None:
            because = "; ".join(access.because.get("opaque", ()))
            raise not_offered(
                self._name, f"the functional form of an opaque kernel ({because})",
                "writes= in wrap, or inplace",
            )  # fmt: skip
        declared = self._content["writes"] or ()
        for name, value in bound.items():
            if isinstance(value, Out):
                if name not in access.writes:
                    raise bad_value(self._name, str(name), "an array: it is not written", "Out")
            elif name in access.writes and is_array(value):
                arguments.check_writable(self._name, name, value, in_place=False)
            elif name in access.writes and not (value is None or name in declared):
                raise not_offered(
                    self._name, f"the functional form with addresses in '{name}'",
                    f"arrays, inplace, or writes= in wrap that names '{name}'",
                )  # fmt: skip

    def _check_in_place(self, bound: Mapping[Any, Any], access: Access) -> None:
        for name, value in bound.items():
            if isinstance(value, Out):
                raise bad_type(self._name, str(name), "an array in the in-place form", "Out")
            if name in access.writes and is_array(value):
                arguments.check_writable(self._name, name, value, in_place=True)

    def _check_runs(self, bound: Mapping[Any, Any]) -> None:
        """Refuse, before anything is copied, arrays that this kernel does not run on."""
        on_device = any(map(is_cupy, bound.values()))
        if on_device and chosen_engine() in {"reference", "cpu"}:
            expected = f"NumPy arrays for the engine '{chosen_engine()}'"
            raise bad_type(self._name, "args", expected, "CuPy arrays")
        if not on_device and self._content["ref"] is None:
            supported = "CuPy arrays, or ref= in wrap"
            raise not_offered(self._name, "a call with NumPy arrays", supported)


def _is_plain(sizes: Any) -> bool:
    """Return whether a grid or a block is told by integers, which equal no other numbers."""
    if type(sizes) is tuple:
        return all(type(n) is int for n in sizes)
    return sizes is None or type(sizes) is int
