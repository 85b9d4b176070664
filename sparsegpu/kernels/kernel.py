"""A CUDA kernel as an operation: what it may touch, and its two forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Any

from .._arrays import device_of, is_cupy
from .._checks import check_flags, not_offered
from .._device import device_context
from .._ptx.access import STRUCT
from ..ops._common import on_device
from . import arguments, guard, tuning, winners
from .config import Config, Out, Spec, dimensions
from .launch import check_device, launch_of, submit
from .memory import is_array
from .planned import Planned
from .plans import Plan
from .prepared import Prepared
from .tensor_map import TensorMap, array_of


class Kernel(Planned):
    """An operation made of a CUDA kernel by `sparsegpu.kernels.wrap`; immutable.

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
        latest = self._plans.latest_functional.prepared
        plain = grid is block is config is None and not named
        results = latest.run(args, False) if plain and latest is not None else None
        if results is None:
            results = self._functional(args, named, grid, block, config)
        return results[0] if len(results) == 1 else tuple(results)

    def _functional(
        self, args: tuple, named: Mapping[str, Any], grid: Any, block: Any, config: Config | None
    ) -> list[Any]:
        """Return what the kernel writes, of a call that is not like the latest."""
        key = None if named else self._key(False, args, grid, block, config)
        prepared = self._plans.prepared.get(key)
        if prepared is not None and (results := prepared.run(args, True)) is not None:
            if grid is block is config is None:
                self._plans.latest_functional.came(prepared)
            return results
        lacking = prepared is None or prepared.is_used_up()
        with self._on_device(args, named):
            plan = self._planned(key, False, args, named, grid, block, config)
            bound, access = plan.bound, plan.access
            written = [name for name in bound if name in access.writes]
            given = {n: v for n, v in bound.items() if not isinstance(v, Out)}
            ready = arguments.cloned(self._name, given, written)
            for name, value in bound.items():
                if isinstance(value, Out):
                    read = name in access.reads
                    ready[name] = arguments.allocated(self._name, name, value, given, read)
            ready = {name: ready[name] for name in bound}
            self._run(ready, plan)
            if plan.repeats and lacking:
                self._prepare(key, plan, args, written)
        return [ready[n] for n in written if ready[n] is None or is_array(ready[n])]

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
        latest = self._plans.latest_inplace.prepared
        plain = grid is block is config is None and not named
        if plain and latest is not None and latest.run(args, False) is not None:
            return
        key = None if named else self._key(True, args, grid, block, config)
        prepared = self._plans.prepared.get(key)
        if prepared is not None and prepared.run(args, True) is not None:
            if plain:
                self._plans.latest_inplace.came(prepared)
            return
        lacking = prepared is None or prepared.is_used_up()
        with self._on_device(args, named):
            plan = self._planned(key, True, args, named, grid, block, config)
            self._run(plan.bound, plan)
            if plan.repeats and lacking:
                self._prepare(key, plan, args, ())

    @staticmethod
    def _on_device(args: tuple, named: Mapping[str, Any]) -> AbstractContextManager:
        array = next((v for v in map(array_of, (*args, *named.values())) if is_cupy(v)), None)
        return nullcontext() if array is None else on_device(array)

    def _prepare(self, key: Any, plan: Plan, args: tuple, written: Sequence[Any]) -> None:
        """Keep the launch of a call that came twice, for those to come."""
        prepared = self._plans.prepared.get(key)
        if prepared is None:
            names = list(plan.bound)
            copied = [names.index(name) for name in written]
            arrays = [i for i, value in enumerate(args) if is_cupy(value)]
            plain = all(i in arrays and args[i].flags.c_contiguous and args[i].size for i in copied)
            if not arrays or not plain or (copied and plan.maps) or 0 in plan.launch.grid:
                return
            if any(isinstance(value, Out) for value in args):
                return
            signature = self._content["signature"]
            places = {i: i if signature is None else signature.places()[i] for i in arrays}
            prepared = Prepared(args, places, copied, key)
            self._plans.prepared[key] = prepared
        prepared.add(self._work(plan.bound, plan))

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
        with self._on_device(args, named):
            return self._tuned(args, named, progress)

    def _tuned(self, args: tuple, named: Mapping[str, Any], progress: bool) -> Config:
        bound, maps = self._bound(args, named)
        completed = (self._completed(bound, config) for config in self.configs)
        access = reduce(or_, map(self.access_of, completed))
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
        written = {n: v for n, v in ready.items() if n in access.writes and is_array(v)}
        for name, value in written.items():
            arguments.check_writable(self._name, name, value, in_place=True)
        read = [v for n, v in ready.items() if n in access.reads and is_array(v) and v.size]
        poisoned = [
            name
            for name, value in written.items()
            if value.size and not any(arguments.share(value, other) for other in read)
        ]
        best = tuning.fastest(
            self._name,
            [self._candidate(bound, maps, ready, config) for config in self._pruned(bound)],
            written,
            poisoned,
            self._expected(ready, written, poisoned),
            progress,
        )
        winners.keep(self._kind(bound), best)
        return best

    def _candidate(
        self,
        bound: Mapping[Any, Any],
        maps: dict[Any, TensorMap],
        ready: Mapping[Any, Any],
        config: Config,
    ) -> tuning.Candidate:
        device = next(device_of(value) for value in ready.values() if is_array(value))

        def prepare() -> None:  # in a thread whose current device is any
            with device_context(device):
                chosen = self._completed(bound, config)
                sizes = self._launch(bound, chosen, None, None)
                check_device(self._build(chosen).resources, sizes.block, sizes.shared_memory)

        def run() -> None:
            chosen = self._completed(bound, config)
            launch = self._launch(bound, chosen, None, None)
            self._run(ready, Plan(dict(ready), maps, chosen, self.access_of(chosen), launch))

        return tuning.Candidate(config, prepare, run)

    def _expected(
        self, ready: Mapping[Any, Any], written: Iterable[Any], poisoned: Iterable[Any]
    ) -> list[Any] | None:
        """Return what ``ref`` writes where the candidates write."""
        if self._content["ref"] is None:
            return None
        host = {n: tuning.on_host(v) if is_array(v) else v for n, v in ready.items()}
        for name in poisoned:
            host[name][...] = tuning.poison_like(host[name])
        self._content["ref"](*host.values())
        return [host[name] for name in written]

    def launch(self, grid: Any, block: Any, args: tuple, shared_memory: int = 0) -> None:
        """Run as ``cupy.RawKernel`` does, for code that calls one."""
        config = None
        if shared_memory:
            config = self.configs[0] if len(self.configs) == 1 else self.config(*args)
            config = replace(config, shared_memory=shared_memory)
        self.inplace(*args, grid=grid, block=block, config=config)

    def spec(self, *args: Any, **named: Any) -> dict[str, Spec]:
        """Return shapes, dtypes and strides of what the functional form returns.

        Nothing is computed, and no GPU is needed.
        """
        bound, _ = self._bound(args, named)
        access = self.access_of(self._chosen(bound, None))
        specs = {}
        for name, value in bound.items():
            if name not in access.writes:
                continue
            if isinstance(value, Out):
                read = name in access.reads
                value = arguments.allocated(self._name, name, value, bound, read)
            if is_array(value):
                specs[name] = Spec(value.shape, value.dtype, value.strides)
        return specs

    def _run(self, ready: Mapping[Any, Any], plan: Plan) -> None:
        if 0 in plan.launch.grid:
            return
        if guard.checking() is not None:
            self._check(ready, plan)
        self._launched(ready, plan)

    def _check(self, ready: Mapping[Any, Any], plan: Plan) -> None:
        """Hold a launch to what was found of the kernel (`kernels.checked`)."""
        access = plan.access
        written = [name for name in ready if name in access.writes]
        built = self._build(plan.config) if self._has_code else None
        structs = {p.name for p in self._parameters(built) if p.kind == STRUCT}
        hidden = sorted(structs & (access.reads | access.writes))
        if hidden or access.opaque:
            what = f"checked() of addresses {f'in {hidden[0]}' if hidden else 'in memory'}"
            raise not_offered(self._name, what, "addresses that are arguments")
        expected = None
        if guard.compares_with_ref() and self._content["ref"] is not None:
            expected = self._expected(ready, written, ())
        named = f"{self._name}, grid {plan.launch.grid}, block {plan.launch.block}"
        guard.check(named, ready, written, partial(self._launched, plan=plan), expected)

    def _launched(self, ready: Mapping[Any, Any], plan: Plan) -> None:
        if not any(map(is_cupy, ready.values())):
            self._content["ref"](*ready.values())
            return
        submit(self._work(ready, plan))

    def _work(self, ready: Mapping[Any, Any], plan: Plan) -> Any:
        """Return a launch on CuPy arrays."""
        encoded = {n: m.of(ready[n]).encoded() for n, m in plan.maps.items()}
        signature, given = self._content["signature"], {**ready, **encoded}
        values = given.values() if signature is None else signature.packed(given)
        return launch_of(self._name, self._build(plan.config).code, values, plan.launch)
