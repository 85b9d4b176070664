"""Headers of the kernels are parts: each compiles alone, and any of them together.

Two units hold all headers, in one order and in the reverse: every ordered pair of headers is in one
of them, so what two headers declare against each other does not compile. What a header needs of
another one that it does not include is missing where it is compiled alone.
"""

import re
from collections import Counter

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


#: Two pipelines and two dense operands of each kind, of other types, layouts and sizes.
TWO_OF_EACH = """
using namespace sparsegpu;

extern "C" __global__ void headers(const __grid_constant__ TensorMap a,
                                   const __grid_constant__ TensorMap b, const f16* c,
                                   const s8* d, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ unsigned long long barriers_of_a[2][3], barriers_of_b[2][4];
  TmaPipeline<3> of_a(barriers_of_a);
  TmaPipeline<4> of_b(barriers_of_b);
  if (threadIdx.x == 0) of_a.init(1, 2), of_b.init(1, 1);
  __syncthreads();
  const DenseTileTma<bf16, Layout::rows, 64, 128> tile_a(0, n, 0);
  const DenseTileTma<s8, Layout::columns, 128, 64> tile_b(64, n, 0);
  const unsigned to = shared_address(memory);
  tile_a.load(to, a, a, 0, [&](unsigned to, const TensorMap& map, auto... at) {
    tma_load(to, map, of_a.full_barrier(), at...);
  });
  tile_b.load(to + tile_a.BYTES, b, b, 0, [&](unsigned to, const TensorMap& map, auto... at) {
    tma_load(to, map, of_b.full_barrier(), at...);
  });
  of_a.advance(), of_b.advance();

  CpAsyncPipeline<3, 4096> of_c;
  CpAsyncPipeline<2, 8192> of_d;
  const DenseTileCpAsync<f16, Layout::rows, 64, 32, 128> tile_c = {c, n, 1, n};
  const DenseTileCpAsync<s8, Layout::columns, 128, 64, 128> tile_d = {d, 1, n, n};
  tile_c.load(memory + of_c.stage, 32, [&](int y, int c) { return tile_c.panel + (y + c) * n; });
  tile_d.load(memory + 12288 + of_d.stage, 64, [&](int y, int) { return tile_d.panel + y; });
  of_c.advance(), of_d.advance();
  of_c.drain(), of_d.drain();
}
"""


def compiles(headers, tmp_path, kernel='extern "C" __global__ void headers() {}\n'):
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings (NVRTC) is not installed")
    lines = [f'#include "{header}"\n' for header in headers]
    (tmp_path / "headers.cu").write_text("".join(lines) + kernel)
    compile_kernel("headers", "90a", root=tmp_path)


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header, tmp_path):
    compiles([header], tmp_path)


@pytest.mark.parametrize("step", [1, -1])
def test_all_headers_compile_together(step, tmp_path):
    compiles(HEADERS[::step], tmp_path)


def test_common_headers_are_those_of_several_kernels():
    """What one kernel has alone stands in a folder of its name."""
    users = Counter()
    for kernel in {row.source for row in kernels()}:
        users.update(set(re.findall(r'#line \d+ "cuda_src/(common/\S+)"', expand(kernel))))
    assert users.keys() == {header for header in HEADERS if header.startswith("common/")}
    assert min(users.values()) > 1, [header for header, count in users.items() if count == 1]


def test_a_kernel_holds_two_pipelines_and_two_dense_operands(tmp_path):
    compiles(HEADERS, tmp_path, TWO_OF_EACH)


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
