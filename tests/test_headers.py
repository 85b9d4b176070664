"""Headers of the kernels are parts: each compiles alone, and any of them together.

Two units hold all headers, in one order and in the reverse: every ordered pair of headers is in one
of them, so what two headers declare against each other does not compile. What a header needs of
another one that it does not include is missing where it is compiled alone.
"""

import re

import pytest

from sparsegpu.engines.cuda.matrix import builds
from sparsegpu.engines.cuda.runtime.compile import compile_kernel
from sparsegpu.engines.cuda.runtime.source import expand, source_root
from sparsegpu.engines.cuda.support import kernels

HEADERS = sorted(
    path.relative_to(source_root()).as_posix() for path in source_root().rglob("*.cuh")
)
#: Where ``-D`` names become types and constants.
READS_DEFINES = re.compile(r"common/kernel_\w+\.cuh")


def compiles(headers, tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings (NVRTC) is not installed")
    lines = [f'#include "{header}"' for header in headers]
    lines.append('extern "C" __global__ void headers() {}')
    (tmp_path / "headers.cu").write_text("\n".join(lines) + "\n")
    compile_kernel("headers", "90a", root=tmp_path)


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header, tmp_path):
    compiles([header], tmp_path)


@pytest.mark.parametrize("step", [1, -1])
def test_all_headers_compile_together(step, tmp_path):
    compiles(HEADERS[::step], tmp_path)


@pytest.mark.parametrize("kernel", sorted({row.source for row in kernels()}))
def test_headers_read_no_macro_of_a_kernel(kernel):
    """None of the kernel's ``-D`` names is a word of a header that it includes."""
    built = builds([row for row in kernels() if row.source == kernel])
    defines = {name for build in built for name in build.defines}
    found = {}
    for file, text in re.findall(
        r'#line \d+ "cuda_src/(\S+)"\n(.*?)(?=#line|\Z)', expand(kernel), re.DOTALL
    ):
        if file in HEADERS and not READS_DEFINES.fullmatch(file):
            code = re.sub(r"//[^\n]*", "", text)
            words = set(re.findall(r"\b[A-Za-z_]\w*\b", code)) & defines
            found.setdefault(file, set()).update(words)
    assert not {file: words for file, words in found.items() if words}
