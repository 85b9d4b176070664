"""A CUDA kernel as an operation: what it may touch, and its two forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from .._arrays import is_cupy
from .._checks import bad_type, bad_value, check_flags, kind_of, not_offered
from .._ptx.access import STRUCT
from ..engines import chosen_engine
from . import arguments, build, guard, tuning, winners
from .config import Config, Meta, Out, Spec, check_defines, dimensions
from .described import Described
from .launch import check_device
from .launch import launch as launch_kernel

_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_LARGEST_BLOCK = (1024, 1024, 64)
_THREADS = 1024
_SHARED_MEMORY = 232_448  # the most that any device has


class Kernel(Described):
    """An operation made of a CUDA kernel by `wrap`; immutable.

    Call it for the functional form: inputs stay as they are, and what the kernel writes is
    returned. `inplace` works on the arguments themselves.
    """

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

    def _parameters_of_now(self) -> list[arguments.Parameter]:
        return self._parameters(self._build(None) if build.can_compile() else None)

    def _bound(self, args: tuple, keywords: Mapping[str, Any]) -> dict[Any, Any]:
        """Return checked arguments by name."""
        parameters = self._parameters_of_now()
        names = [parameter.name for parameter in parameters]
        bound = arguments.bind(self._name, names, args, keywords)
        return {p.name: arguments.check(self._name, p, bound[p.name]) for p in parameters}

    def config(self, *args: Any, **keywords: Any) -> Config:
        """Return the configuration that a call with these arguments takes."""
        return self._chosen(self._bound(args, keywords), None)

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
        return Config(defines, config.block, config.shared_memory, config.options)

    def _kind(self, bound: Mapping[Any, Any]) -> tuple:
        """Return what tells the winner of a call from others."""
        key = self._content["key"]
        if key:
            named = {name: Meta(self._name, bound)[name] for name in key}
        else:
            named = {n: v for n, v in bound.items() if arguments.is_array(v) or isinstance(v, Out)}
        facts = tuple((name, arguments.fact(value, bound)) for name, value in named.items())
        flags = build.flags_of(self._content["options"])
        return self._content["text"], self._name, flags, facts

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

    def tune(self, *args: Any, progress: bool = True, **named: Any) -> Config:
        """Measure the configurations with these arguments and keep the fastest.

        Calls whose arguments are alike by ``key`` take it from then on, in later processes too.
        What the arguments hold is as before afterwards.

        Parameters
        ----------
        *args, **named
            The kernel's, CuPy arrays among them.
        progress : bool
            Print every configuration to stderr with its time, or why it was left out.

        Returns
        -------
        Config

        Raises
        ------
        ValueError
            No configuration fits the device; none gives ``ref``'s result, or, without one, no two
            agree.
        NotImplementedError
            NumPy arrays; an opaque kernel without ``writes=``.

        Notes
        -----
        What is written and not read holds NaN, or bits that are all set, before each is run.
        Results agree where integers are equal and floats are by half of their digits, relative to
        the largest element. Times are medians by CUDA events.
        """
        check_flags("tune", progress=progress)
        bound = self._bound(args, named)
        access = self.access
        if access.opaque and self._content["writes"] is None:
            raise not_offered(self._name, "tune of an opaque kernel", "writes= in wrap")
        ready = {
            name: arguments.allocated(self._name, name, value, bound, name in access.reads)
            if isinstance(value, Out)
            else value
            for name, value in bound.items()
        }
        if not arguments.check_one_device(self._name, ready):
            raise not_offered(self._name, "tune with NumPy arrays", "CuPy arrays")
        written = {n: v for n, v in ready.items() if n in access.writes and arguments.is_array(v)}
        for name, value in written.items():
            arguments.check_writable(self._name, name, value, in_place=True)
        poisoned = [name for name in written if name not in access.reads]
        best = tuning.fastest(
            self._name,
            [self._candidate(bound, ready, config) for config in self._pruned(bound)],
            written,
            poisoned,
            self._expected(ready, written, poisoned),
            progress,
        )
        winners.keep(self._kind(bound), best)
        return best

    def _candidate(
        self, bound: Mapping[Any, Any], ready: Mapping[Any, Any], config: Config
    ) -> tuning.Candidate:
        def prepare() -> None:
            chosen = self._completed(bound, config)
            _, block, shared = self._launch(bound, chosen, None, None)
            check_device(self._build(chosen).resources, block, shared)

        def run() -> None:
            chosen = self._completed(bound, config)
            self._run(ready, chosen, self._launch(bound, chosen, None, None))

        return tuning.Candidate(config, prepare, run)

    def _expected(
        self, ready: Mapping[Any, Any], written: Iterable[Any], poisoned: Iterable[Any]
    ) -> list[Any] | None:
        """Return what ``ref`` writes where the candidates write."""
        if self._content["ref"] is None:
            return None
        host = {n: tuning.on_host(v) if arguments.is_array(v) else v for n, v in ready.items()}
        for name in poisoned:
            host[name][...] = tuning.poison_like(host[name])
        self._content["ref"](*host.values())
        return [host[name] for name in written]

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
        if 0 in launch[0]:
            return
        if guard.is_checked():
            self._check(ready, config, launch)
        self._launched(ready, config, launch)

    def _check(self, ready: Mapping[Any, Any], config: Config, launch: tuple) -> None:
        """Hold a launch to what was found of the kernel (`kernels.checked`)."""
        access, formals = self.access_of(config), self._parameters_of_now()
        written = [name for name in ready if name in access.writes]
        hidden = [p.name for p in formals if p.kind == STRUCT]
        hidden = [name for name in hidden if name in access.reads | access.writes]
        if hidden or access.opaque:
            what = f"checked() of addresses {f'in {hidden[0]}' if hidden else 'in memory'}"
            raise not_offered(self._name, what, "addresses that are arguments")
        expected = None
        if guard.compares_with_ref() and self._content["ref"] is not None:
            expected = self._expected(ready, written, ())
        named = f"{self._name}, grid {launch[0]}, block {launch[1]}"
        run = partial(self._launched, config=config, launch=launch)
        guard.check(named, ready, written, run, expected)

    def _launched(self, ready: Mapping[Any, Any], config: Config, launch: tuple) -> None:
        grid, block, shared = launch
        if not any(map(is_cupy, ready.values())):
            self._content["ref"](*ready.values())
            return
        launch_kernel(self._name, self._build(config).code, grid, block, ready.values(), shared)
