"""GPU architectures: what sources compile for, and which code runs on which device."""

from __future__ import annotations

from collections.abc import Iterable

#: Every operation has a path on each of these (checked by the compile matrix).
ARCHITECTURES = ("80", "86", "89", "90a", "100", "120")

#: What plain code (no architecture-specific instruction) compiles for.
PORTABLE = ("80", "86", "89", "90", "100", "120")

#: What code with wgmma compiles for.
HOPPER = ("90a",)

#: Most bytes of shared memory of a thread block, by compute capability (CUDA C++ Programming Guide,
#: "Compute Capabilities").
SHARED_MEMORY = {
    capability: kilobytes << 10
    for capability, kilobytes in (
        ((8, 0), 163),
        ((8, 6), 99),
        ((8, 7), 163),
        ((8, 9), 99),
        ((9, 0), 227),
        ((10, 0), 227),
        ((10, 3), 227),
        ((11, 0), 227),
        ((12, 0), 99),
    )
}
#: What every GPU from 8.0 on has of it.
LEAST_SHARED_MEMORY = min(SHARED_MEMORY.values())


def number(arch: str) -> int:
    """Return the number of an architecture: 90 of "90a"."""
    return int(arch.rstrip("af"))


def capability_of(arch: str) -> tuple[int, int]:
    """Return the compute capability of an architecture: (9, 0) of "90a"."""
    return divmod(number(arch), 10)


def shared_memory_of(cc: tuple[int, int]) -> int:
    """Return the bytes of shared memory that a thread block may have on a device."""
    return SHARED_MEMORY.get(cc, LEAST_SHARED_MEMORY)


def runs_on(declared: Iterable[str], cc: tuple[int, int]) -> bool:
    """Return whether code for one of the declared architectures runs on a device.

    A feature architecture ("90a") is for its own device only; plain code compiles for every
    later device as well.
    """
    device = cc[0] * 10 + cc[1]
    return any(
        number(arch) <= device if arch.isdigit() else number(arch) == device for arch in declared
    )


def matching_architecture(
    declared: Iterable[str], cc: tuple[int, int], compilable: Iterable[int]
) -> str | None:
    """Return the architecture to compile for on a device, or None when none of them runs there.

    A feature architecture of the device wins. Plain code is compiled under the device's own
    number if the compiler (which knows ``compilable``) has it, else under the closest lower one
    of the same major version: a cubin runs on later minor versions, not on later major ones.

    Examples
    --------
    >>> matching_architecture(("80", "90a"), (9, 0), (80, 86, 90))
    '90a'
    >>> matching_architecture(("80",), (8, 9), (80, 86, 90))
    '86'
    """
    device = cc[0] * 10 + cc[1]
    usable = [arch for arch in declared if runs_on((arch,), cc)]
    for arch in usable:
        if not arch.isdigit():
            return arch
    if not usable:
        return None
    least = min(map(number, usable))
    fitting = [n for n in compilable if n // 10 == cc[0] and least <= n <= device]
    return str(max(fitting)) if fitting else None
