"""What random programs write is found, or they are opaque: their registers are known."""

from __future__ import annotations

import pytest

from ptx_programs import program
from sparsegpu import kernels


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_every_store_is_found(first):
    stores = opaque = exact = 0
    for seed in range(first, first + 250):
        made = program(seed)
        for register, array in made.addresses.items():
            found = kernels.analyse(made.storing(register), "k")
            assert array in found.writes, f"seed {seed}, {register}: {made.storing(register)}"
            stores += 1
            opaque += found.opaque
            exact += found.writes == {array}
    assert stores > 500 and opaque < 0.1 * stores and exact > 0.5 * stores


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_every_store_of_programs_with_rare_instructions_is_found(first):
    stores = known = 0
    for seed in range(first, first + 250):
        made = program(seed, rare=True)
        for register, array in made.addresses.items():
            found = kernels.analyse(made.storing(register), "k")
            assert array in found.writes, f"seed {seed}, {register}: {made.storing(register)}"
            stores += 1
            known += not found.opaque
    assert stores > 500 and known > 0.7 * stores
