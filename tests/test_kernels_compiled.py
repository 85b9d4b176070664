"""Wrapped kernels whose source is compiled: what is found in it, and what does not compile."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_cases import TABLE, axpy, needs_nvrtc
from sparsegpu import kernels
from sparsegpu._ptx import stored
from sparsegpu.kernels import build


@needs_nvrtc
class TestCompiled:
    def test_what_is_found(self):
        found = axpy(writes=None, reads=None)
        assert found.access.writes == {"y"} and found.access.reads == {"x", "y"}
        assert "y: read, written" in found.explain() and "axpy.cu:5" in found.explain()
        assert found.resources().registers > 0 and ".entry axpy(" in found.ptx()

    def test_names_where_macros_hide_them(self):
        text = '#define P float* y, long long n\nextern "C" __global__ void k(P) { y[n] = 1; }'
        hidden = kernels.wrap(text, "k", grid=1, block=1, ref=lambda y, n: y.fill(2))
        assert hidden.access.writes == {0}
        assert np.array_equal(hidden(np.zeros(3, "f4"), 2), np.full(3, 2))
        assert kernels.wrap(text, "k", params=["out", "n"]).access.writes == {"out"}

    def test_options_change_the_kernel(self):
        text = 'extern "C" __global__ void k(int* a, int* b) { (WHICH)[0] = 1; }'
        made = kernels.wrap(text, "k", configs=[kernels.Config({"WHICH": w}) for w in "ab"])
        assert made.access.writes == {"a", "b"}
        assert [made.access_of(c).writes for c in made.configs] == [{"a"}, {"b"}]
        assert made.ptx(made.configs[0]) != made.ptx(made.configs[1])

    def test_texts_numbers_and_bools_as_defines(self):
        text = 'extern "C" __global__ void k(ELEMENT* x) { x[0] = FACTOR * (REALLY ? 1 : 2); }'
        given = {"ELEMENT": "double", "FACTOR": 1.5, "REALLY": True}
        other, least = kernels.Config(given | {"REALLY": False}), {"FACTOR": -np.inf}
        made = kernels.wrap(
            text, "k", configs=[kernels.Config(given), other, kernels.Config(given | least)]
        )
        assert made.access.writes == {0}  # a macro may hide what is declared
        for config, value in zip(made.configs, (1.5, 3.0, -np.inf), strict=True):
            assert str(np.float64(value).view(np.int64)) in made.ptx(config)

    @pytest.mark.parametrize("parameters", ["float* y, int n", "float* y, S n"])
    def test_heuristics_add_what_the_code_needs(self, parameters):
        entry = f'extern "C" __global__ void k({parameters}) {{ y[WHERE] = 1; }}'
        text, asked = f"struct S {{ int n; }};\n{entry}", []

        def where(meta):
            asked.append(meta["TILE"])
            return {"WHERE": meta["y"].size - 1}

        made = kernels.wrap(
            text, "k", grid=1, block=lambda m: m["TILE"], heuristics=[where],
            configs=[kernels.Config({"TILE": 32})], ref=lambda y, n: y.fill(2),
        )  # fmt: skip
        y, n = np.zeros(3, "f4"), np.int32(1) if "int" in parameters else b"1234"
        assert np.array_equal(made(y, n), np.full(3, 2)) and not y.any()
        assert made.access_of(made.config(y, n)).writes == {"y"} == set(made.spec(y, n))
        asked.clear()
        made.inplace(y, n)
        assert set(asked) == {32} and y.all()
        with pytest.raises(RuntimeError, match='identifier "WHERE" is undefined'):
            made.access  # noqa: B018
        with pytest.raises(TypeError, match="argument 'y': expected an array"):
            made.config(3, n)

    def test_heuristics_say_of_which_type_a_number_is(self):
        text = """typedef ELEMENT E;
            extern "C" __global__ void k(E* y, E a) { y[0] = a; }"""
        made = kernels.wrap(
            text, "k", grid=1, block=1, ref=lambda y, a: y.fill(a),
            heuristics=[lambda m: {"ELEMENT": "double" if m["y"].itemsize == 8 else "float"}],
        )  # fmt: skip
        for dtype in (np.float32, np.float64, np.float32):
            third = dtype(1) / dtype(3)
            assert made(np.zeros(1, dtype), third)[0] == third

    def test_a_define_that_hides_a_parameter_needs_its_name(self):
        text = 'extern "C" __global__ void k(ELEMENT* y) { y[0] = 1; }'
        given = dict(
            grid=1, block=1, ref=lambda y: y.fill(1),
            heuristics=[lambda m: {"ELEMENT": "float" if m["y"].itemsize == 4 else "double"}],
        )  # fmt: skip
        assert kernels.wrap(text, "k", params=["y"], **given)(np.zeros(1)) == 1
        with pytest.raises(ValueError, match="argument 'params': expected the parameters' names"):
            kernels.wrap(text, "k", **given)(np.zeros(1))

    def test_a_declared_number_is_no_address(self):
        text = 'extern "C" __global__ void k(long long p, float* x) { *(float*)p = x[0]; }'
        assert kernels.wrap(text, "k", options=["-arch=sm_80"]).access.opaque

    def test_a_declaration_that_is_refuted(self):
        with pytest.raises(
            ValueError, match=r"wrap: argument 'writes': expected also y .*st.global"
        ):
            axpy(writes=["x"]).access  # noqa: B018
        with pytest.raises(
            ValueError, match="wrap: argument 'reads': expected names of parameters"
        ):
            axpy(reads=["z"]).access  # noqa: B018

    def test_an_opaque_kernel_asks_for_writes(self):
        t, x = np.zeros(1, "u8"), np.zeros(1, "f4")
        opaque = kernels.wrap(TABLE, "table", grid=1, block=1, ref=lambda t, x: x.fill(1))
        with pytest.raises(NotImplementedError, match=r"table.cu:1.*writes= in wrap, or inplace"):
            opaque(t, x)
        assert opaque.access.writes == {"t", "x"}
        told = kernels.wrap(
            TABLE, "table", grid=1, block=1, writes=["x"], ref=lambda t, x: x.fill(1)
        )
        assert told.access.writes == {"x"} and np.array_equal(told(t, x), [1])

    @pytest.mark.parametrize(("text", "words"), [
        ('extern "C" __global__ void other() {}', 'no extern "C" entry point k, got other'),
        ("__global__ void k(float* x) { x[0] = 1; }", 'no extern "C" entry point k, got _Z1kPf'),
        ('extern "C" __global__ void k() {\n  oops;\n}', r"k.cu:2: kernel 'k' does not compile"),
    ])  # fmt: skip
    def test_what_does_not_compile(self, text, words):
        from sparsegpu.engines.cuda.runtime.compile import CompileError

        with pytest.raises(CompileError, match=words):
            kernels.wrap(text, "k").access  # noqa: B018

    def test_a_block_over_the_kernels_bound(self):
        text = 'extern "C" __global__ void __launch_bounds__(64) k(int* x) { x[threadIdx.x] = 1; }'
        bounded = kernels.wrap(text, "k", grid=1, block=128, ref=lambda x: None)
        with pytest.raises(ValueError, match="argument 'block': expected 1 to 64 threads"):
            bounded(np.zeros(3, "i4"))

    def test_a_struct_by_its_size(self):
        text = """struct S { float* p; int n; };
        extern "C" __global__ void k(S s) { s.p[s.n] = 1; }"""
        made = kernels.wrap(text, "k", grid=1, block=1, ref=lambda s: None)
        assert made.access.writes == {"s"}
        made.inplace(np.zeros((), [("p", "u8"), ("n", "i8")]))
        with pytest.raises(ValueError, match="argument 's': expected a struct of 16 bytes, got 4"):
            made.inplace(b"1234")
        with pytest.raises(TypeError, match="argument 's': expected a struct of 16 bytes"):
            made.inplace(3)

    def test_addresses_that_cannot_be_copied(self):
        """What a struct or a number points to stays as it is in no functional form."""
        text = """struct S { float* p; int n; };
        extern "C" __global__ void k(S s, float* out) { s.p[s.n] = 1; *out = 2; }"""
        struct = np.zeros((), [("p", "u8"), ("n", "i8")])
        made = kernels.wrap(text, "k", grid=1, block=1, ref=lambda s, out: None)
        with pytest.raises(NotImplementedError, match=r"functional form.*addresses in 's'"):
            made(struct, np.zeros(1, "f4"))
        made.inplace(struct, np.zeros(1, "f4"))
        text = """#include <cuda_fp16.h>
        extern "C" __global__ void k(cudaTextureObject_t p, float* out) { *(int*)p = *out = 2; }"""
        made = kernels.wrap(text, "k", grid=1, block=1, ref=lambda p, out: None)
        assert made.access.writes == {"p", "out"}
        with pytest.raises(TypeError, match="argument 'p': expected an array or None, got int"):
            made.inplace(12345, np.zeros(1, "f4"))
        text = text.replace("*(int*)p", "*(int*)(p * int(*out))")
        made = kernels.wrap(text, "k", grid=1, block=1, ref=lambda p, out: None)
        with pytest.raises(NotImplementedError, match=r"functional form.*addresses in 'p'"):
            made(12345, np.zeros(1, "f4"))
        made.inplace(12345, np.zeros(1, "f4"))

    @pytest.mark.parametrize("alias", [
        "typedef unsigned long long T;", "using T = unsigned long long;", "typedef size_t U, *P;"
        " typedef U T;", "typedef uintptr_t T;", "using T = CUdeviceptr;",
    ])  # fmt: skip
    def test_numbers_by_another_name(self, alias):
        text = "typedef unsigned long long uintptr_t; typedef unsigned long long CUdeviceptr;"
        text = f'{text} {alias} extern "C" __global__ void k(T x, char* out, T n) {{'
        known = kernels.wrap(f"{text} out[n] = x; }}", "k")
        assert known.access.writes == {"out"} and not known.access.opaque
        assert kernels.wrap(f"{text} *(char*)x = 1; }}", "k").access.opaque

    @pytest.mark.parametrize("alias", ["float* F", "long long F[4]", "int I, *F"])
    def test_a_pointer_by_another_name(self, alias):
        text = f'typedef {alias}; extern "C" __global__ void k(F x, float* y) {{ *x = *y; }}'
        assert kernels.wrap(text, "k").access.writes == {"x"}

    def test_quotes_backslashes_and_underscores(self):
        text = (
            '/* "quote\\" */ extern "C" __global__ void __k(int* _x) { /* \\ */ _x[0] = \'\\\\\'; }'
        )
        assert kernels.wrap(text, "__k").access.writes == {"_x"}


@needs_nvrtc
def test_the_cache_keeps_what_was_found(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    text = 'extern "C" __global__ void keep(float* out, const float* x) { *out = *x; }'
    build.build.cache_clear()
    first = kernels.wrap(text, "keep").access
    monkeypatch.setattr(build, "report", None)  # nothing is analysed again
    build.build.cache_clear()
    again = kernels.wrap(text, "keep").access
    assert again == first and again.because == first.because
    assert (again.writes, again.reads) == ({"out"}, {"x"})
    monkeypatch.setattr(stored, "version", lambda: "another state of the analysis")
    build.build.cache_clear()
    with pytest.raises(TypeError, match="not callable"):
        kernels.wrap(text, "keep").access  # noqa: B018


@needs_nvrtc
@pytest.mark.parametrize("found_by", ["-I", "--include-path", "the current directory"])
def test_a_header_that_changes(tmp_path, monkeypatch, found_by):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "outer.h").write_text('#include "inner.h"\n')
    options = {"-I": [f"-I{folder}"], "--include-path": ["--include-path", str(folder)]}
    options = options.get(found_by, [])
    if not options:
        monkeypatch.chdir(folder)
    text = '# include "outer.h"\nextern "C" __global__ void k(int* a, int* b) { WHICH[0] = 1; }'
    for name in ("a", "b", "a"):
        (folder / "inner.h").write_text(f"#define WHICH {name}")
        assert kernels.wrap(text, "k", options=options).access.writes == {name}


@needs_nvrtc
def test_a_compile_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    text = 'extern "C" __global__ void killed(float* out) { *out = 1; }'
    build.build.cache_clear()
    code = kernels.wrap(text, "killed")._build(None).code
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file())
    for size in (0, 10, entry.stat().st_size // 2, entry.stat().st_size - 1):
        entry.write_bytes(entry.read_bytes()[:size])
        build.build.cache_clear()
        made = kernels.wrap(text, "killed")
        assert made.access.writes == {"out"} and made._build(None).code == code
        assert entry.stat().st_size > len(code)  # it is whole again
