"""`tools.trial`: the engine launches what a request changes, without a GPU."""

import sys
from types import SimpleNamespace

import pytest

import fake_cuda
from sparsegpu.engines.cuda.runtime import compile, device, launch
from sparsegpu.engines.cuda.runtime.source import source_root
from tools import trial
from tools.trial import Request


class Module:
    """A module of CUDA by hand, whose functions tell what it was loaded with."""

    def load(self, code):
        self.code = code

    def get_function(self, name):
        return SimpleNamespace(ptr=self.code)


@pytest.mark.parametrize("kernel", [None, "bsr_softmax"])
def test_a_trial_launches_the_changed_kernel(monkeypatch, kernel):
    fake_cuda.put_in_place(monkeypatch)
    sys.modules["cupy"].cuda.Module = Module
    monkeypatch.setattr(launch, "_kernels", {})
    monkeypatch.setattr(launch, "in_context", lambda function, *arguments: function(*arguments))
    built = {}

    def compile_kernel(source, arch, defines, *, root=None):
        built[source] = None if root is None else (root / f"{source}.cu").read_text()
        return SimpleNamespace(code=(source, arch, defines))

    for module in (launch, compile):
        monkeypatch.setattr(module, "compile_kernel", compile_kernel)
    for module in (launch, device):
        monkeypatch.setattr(module, "compute_capability", lambda: (9, 0))
    monkeypatch.setattr(launch, "choose_architecture", lambda source, archs, cc: "90")  # no NVRTC
    with trial.changed(Request([], "", kernel=kernel, delays=True)) as launches:
        ours, other = launch.kernel("bsr_softmax", T="f32"), launch.kernel("bsr_scatter")
        assert ours.prepared(0) == ("bsr_softmax", "90", {"T": "f32"})
        assert other.prepared(0) == ("bsr_scatter", "90", {}) and built["bsr_scatter"] is None
        assert len(launches.modules) == (kernel is not None)
        assert launch.kernel("bsr_softmax", T="f32") is ours
    if kernel is None:
        assert built["bsr_softmax"] is None
    else:
        assert built[kernel] not in {None, (source_root() / f"{kernel}.cu").read_text()}
    assert launch.kernel("bsr_softmax", T="f32") is not ours  # what was changed is not kept
