"""What every kernel path's module promises (`engines.cuda.paths`), and `config` on any engine."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu.engines.cuda import paths
from sparsegpu.engines.cuda.paths import BSR, FAMILY_OF, SPGEMM, family_of
from sparsegpu.engines.cuda.paths._examples import examples, field_names, serves, variants
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from sparsegpu.engines.cuda.runtime.source import source_names

FOLDER = Path(paths.__file__).parent
FAMILIES = [family_of(operation) for operation in FAMILY_OF]
ALL = sorted({path for family in FAMILIES for path in family}, key=lambda p: p.__name__)


def stem(path):
    return path.__name__.rpartition(".")[2]


@pytest.mark.parametrize("path", ALL, ids=stem)
def test_a_path_has_a_test_file_and_a_heading(path):
    root = Path(__file__).parents[1]
    assert (root / "tests" / "paths" / f"test_{stem(path)}.py").is_file()
    page = (root / "docs" / "paths.md").read_text(encoding="utf-8").splitlines()
    assert f"### {stem(path)}" in page and f'`config={{"path": "{path.NAME}"}}`' in "\n".join(page)


@pytest.mark.parametrize("path", ALL, ids=stem)
def test_a_path_is_held_to_the_contract_of_its_family(path):
    file = Path(__file__).parent / "paths" / f"test_{stem(path)}.py"
    applied = runpy.run_path(str(file))["TestPath"]
    inherited = {name for base in applied.__mro__[1:] for name in vars(base)}
    assert applied.NAME == path.NAME and any(name.startswith("test_") for name in inherited)


@pytest.mark.parametrize("path", ALL, ids=stem)
def test_a_path_knows_no_other_path(path):
    """What two of them share is in a module whose name begins with an underscore."""
    tree = ast.parse(Path(path.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {name.name for node in imports if not node.module for name in node.names}
    names |= {(node.module or "").rpartition(".")[2] for node in imports}
    assert not names & {stem(other) for other in ALL}


def test_every_module_is_in_one_family():
    modules = {p.stem for p in FOLDER.glob("*.py") if not p.stem.startswith("_")}
    assert modules == {stem(path) for path in ALL}
    for family in FAMILIES:
        assert len({path.NAME for path in family}) == len(family)


@pytest.mark.parametrize("path", ALL, ids=stem)
def test_a_path_is_complete(path):
    assert path.SOURCES in ((), (stem(path),)) and set(path.SOURCES) <= set(source_names())
    assert path.__doc__ and path.DTYPES and path.ARCHS
    for function in ("pays", "serves", "facts", "tile", "launches"):
        assert callable(getattr(path, function))
    assert all(serves(path, dtype, (9, 0)) for dtype in path.DTYPES)
    assert path not in (*BSR, *SPGEMM) or callable(path.worth_measuring)


@pytest.mark.parametrize("path", [p for p in ALL if p.SOURCES], ids=stem)
def test_variants_have_every_value_that_tiles_emit(path):
    built = variants(path, path.DTYPES)
    for name, values in path.BY_ADDRESS.items():
        assert {variant[name] for variant in built} == set(values)
    emitted = [path.tile(f, Fields()) for f in examples(path, path.DTYPES)]
    for tile in filter(None, emitted):
        for name, value in tile.defines.items():
            assert any(variant[name] == value for variant in built), (name, value)


@pytest.mark.parametrize("path", [p for p in ALL if hasattr(p, "TOGETHER")], ids=stem)
def test_variants_have_every_combination_of_names_that_matter_together(path):
    def values(defines):
        return tuple(defines[name] for name in path.TOGETHER)

    launched = getattr(path, "launched", dict)
    built = set(map(values, variants(path, path.DTYPES)))
    tiles = [path.tile(f, Fields()) for f in examples(path, path.DTYPES, all=True)]
    for tile, address in product(filter(None, tiles), product(*path.BY_ADDRESS.values())):
        at = dict(zip(path.BY_ADDRESS, address, strict=True))
        assert values(launched({**tile.defines, **at})) in built


@pytest.mark.parametrize("path", ALL, ids=stem)
def test_a_field_that_nobody_knows_is_refused(path):
    f = next(f for f in examples(path, path.DTYPES) if path.tile(f, Fields()) is not None)
    fields = Fields({"path": path.NAME, "nonsense": 1})
    path.tile(f, fields)
    with pytest.raises(ConfigError, match="nonsense"):
        fields.finish()
    assert "nonsense" not in field_names(path)


@pytest.mark.parametrize(
    "config, error, match",
    [
        ({"path": "mmaa"}, ValueError, "'path'.*one of 'dense', .*'simt', .*'model', got 'mmaa'"),
        ({"path": "copy"}, ValueError, "'path'.*got 'copy'"),
        ({"path": "mma", "tile": 1}, ValueError, "'tile'.*the fields tile_m, tile_n"),
        ({"path": "dense", "tile_n": 1}, ValueError, "'tile_n'.*no field"),
        ({"path": "mma", "tile_m": 64.0}, ValueError, "'tile_m'.*an integer, got 64.0"),
        ({"path": "mma", "tile_m": True}, ValueError, "'tile_m'.*an integer, got True"),
        ({"tile_m": 64}, ValueError, "a 'path' besides its fields"),
        ("mma", TypeError, "a dict or None"),
    ],
)
def test_config_is_checked_on_every_engine(config, error, match):
    a = sg.bsr_array(np.eye(4, dtype=np.float32), blocksize=(2, 2))
    for engine in ("cpu", "reference"):
        with sg.use_engine(engine), pytest.raises(error, match=match):
            sg.bsr_matmul(a, np.ones((4, 2), np.float32), config=config)


def test_each_family_has_its_own_names():
    dense = np.tile(np.float16([1, 0, 2, 0]), (64, 16))
    weight, x = sg.to_semi_structured(dense), np.ones((64, 2), np.float16)
    sg.semi_structured_matmul(weight, x, config={"path": "wgmma_sp", "tile_n": 128})
    with pytest.raises(ValueError, match=r"one of 'wgmma_sp_skinny', .*got 'mma'"):
        sg.semi_structured_matmul(weight, x, config={"path": "mma"})
    sg.bsr_matmul(sg.bsr_array(dense, blocksize=(32, 32)), x, config={"path": "mma", "tile_m": 64})


def test_asking_needs_no_cupy():
    text = "import sys; sys.modules['cupy'] = None; import sparsegpu as sg; "
    text += "assert sg.is_supported('bsr_addmm', 'float16', 90)"
    subprocess.run([sys.executable, "-c", text], check=True)
