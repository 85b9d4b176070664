"""The search over a wrapped kernel's configurations, with NumPy arrays in the place of a device's.

What a kernel would do is ``ref``, or what a test says of a configuration; time is counted.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import fake_devices
from fake_devices import Machine
from sparsegpu import kernels
from sparsegpu.engines.cuda.runtime.launch import LaunchError
from sparsegpu.kernels import arguments, build, winners
from sparsegpu.kernels import kernel as module
from sparsegpu.tuning import timing

SOURCE = """extern "C" __global__ void add(float* y, const float* x, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { y[i] = x[i] * TIMES; count[i] += 1; }
}"""
SLOW, FAST, WRONG = (kernels.Config({"TIMES": t}, block=b) for t, b in ((2, 32), (2, 64), (3, 128)))
ALSO = kernels.Config({"TIMES": 2}, block=256)


def doubled(y, x, count, n):
    y[:n] = 2 * x[:n]
    count[:n] += 1


def blocks(meta):
    return -(-meta["n"] // 32)


def add(*configs, **changed):
    declared = dict(writes=["y", "count"], reads=["x", "count"], params=["y", "x", "count", "n"])
    return kernels.wrap(SOURCE, "add", grid=blocks, configs=configs, **(declared | changed))


@pytest.fixture
def device(monkeypatch, tmp_path):
    """Run a configuration as its TIMES says; the larger its block, the less time it takes."""
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    winners._known.clear()
    ran = []

    def run(self, ready, plan):
        config = plan.config
        y, x, count, n = ready.values()
        assert np.isnan(y).all() or timed, "what is written and not read is poisoned"
        y[:n] = np.float32(config.defines["TIMES"]) * x[:n]
        count[:n] += 1
        ran.append(config)

    timed = []

    def device_ms(call):
        timed.append(1)
        call()
        call()
        return 1000 / ran[-1].block[0]

    monkeypatch.setattr(build, "can_compile", lambda: False)
    monkeypatch.setattr(module.Kernel, "_run", run)
    monkeypatch.setattr(
        module.Kernel, "_build", lambda self, config: SimpleNamespace(resources=None)
    )
    monkeypatch.setattr(module, "check_device", lambda resources, block, shared: None)
    monkeypatch.setattr(arguments, "check_one_device", lambda name, bound: True)
    monkeypatch.setattr(timing, "device_ms", device_ms)
    yield ran
    winners._known.clear()


def operands(n=100):
    return np.ones(n, np.float32), np.arange(n, dtype=np.float32), np.zeros(n, np.int32), n


def test_the_fastest_is_kept_and_taken(device):
    kernel, given = add(SLOW, FAST), operands()
    assert kernel.config(*given) == SLOW
    assert kernel.tune(*given, progress=False) == FAST
    assert kernel.config(*given) == FAST
    winners._known.clear()  # as in another process
    assert kernel.config(*given) == FAST
    assert kernel.config(*operands(99)) == SLOW  # of other shapes nothing is known
    assert add(SLOW, ALSO).config(*given) == SLOW  # a winner that is not in the list
    assert add(ALSO, FAST).config(*given) == FAST
    assert kernel.config(*given) == FAST and winners.forget() == 1
    assert kernel.config(*given) == SLOW


def test_on_the_gpu_of_its_arrays(device, monkeypatch):
    """Threads that compile begin with the first one; what a device has counts."""
    cupy, seen = fake_devices.put_in_place(monkeypatch), []
    with fake_devices.on(1):
        y, x, count, n = (cupy.array(v) if np.ndim(v) else v for v in operands())
    real = module.Kernel._run

    def run(self, ready, plan):
        seen.append(Machine.current)
        real(self, ready, plan)

    monkeypatch.setattr(module.Kernel, "_run", run)
    monkeypatch.setattr(module, "check_device", lambda *sizes: seen.append(Machine.current))
    monkeypatch.setattr(build, "_device_architecture", lambda: seen.append(Machine.current) or "90")
    assert add(SLOW, FAST).tune(y, x, count, n, progress=False) == FAST
    assert len(seen) > 4 and set(seen) == {1} and Machine.current == 0


def test_what_was_written_is_as_before(device):
    y, x, count, n = operands()
    add(SLOW, FAST).tune(y, x, count, n, progress=False)
    assert (y == 1).all() and (count == 0).all() and len(device) > 4


def test_what_is_read_under_another_name_is_not_poisoned(device, monkeypatch):
    _, x, count, n = operands()
    seen = []
    monkeypatch.setattr(module.Kernel, "_run", lambda self, ready, plan: seen.append(x.copy()))
    monkeypatch.setattr(timing, "device_ms", lambda call: 1)
    add(SLOW, FAST).tune(x, x, count, n, progress=False)
    assert np.array_equal(seen, [np.arange(n)] * 2) and np.array_equal(x, np.arange(n))


def test_a_launch_keeps_the_defines_of_its_configuration(device):
    y, x, count, n = operands()
    y[:] = np.nan
    add(SLOW, ALSO, ref=doubled).launch((4,), (32,), (y, x, count, n), shared_memory=64)
    assert device == [kernels.Config({"TIMES": 2}, block=32, shared_memory=64)]


def test_an_interrupted_search_leaves_the_arguments_alone(device, monkeypatch):
    y, x, count, n = operands()

    def interrupted(call):
        y[3], count[5] = 7, 7
        raise KeyboardInterrupt

    monkeypatch.setattr(timing, "device_ms", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(SLOW, FAST).tune(y, x, count, n, progress=False)
    assert (y == 1).all() and (count == 0).all()
    assert add(SLOW, FAST).config(y, x, count, n) == SLOW


@pytest.mark.parametrize("ref", [None, doubled])
def test_a_wrong_configuration_is_left_out(device, ref):
    kernel = add(SLOW, WRONG, FAST, ref=ref)
    with pytest.warns(UserWarning, match=r"another.*'TIMES': 3"):
        assert kernel.tune(*operands(), progress=False) == FAST


def test_where_no_two_agree_the_reference_decides(device):
    with pytest.raises(ValueError, match="no two configurations agree; ref="):
        add(SLOW, WRONG).tune(*operands(), progress=False)
    with pytest.warns(UserWarning, match="another"):
        assert add(SLOW, WRONG, ref=doubled).tune(*operands(), progress=False) == SLOW
    with pytest.raises(ValueError, match="no configuration gives what ref gives"):
        add(WRONG, ref=doubled).tune(*operands(), progress=False)


def test_what_the_device_cannot_run_is_left_out_and_said(device, monkeypatch, capsys):
    def check_device(resources, block, shared):
        if block[0] > 32:
            raise ValueError(f"{block[0]} threads a block, of at most 32")

    monkeypatch.setattr(module, "check_device", check_device)
    assert add(SLOW, FAST).tune(*operands()) == SLOW
    said = capsys.readouterr().err
    assert "skipped  add TIMES=2 block=(64,) (64 threads a block, of at most 32)" in said
    with pytest.raises(ValueError, match=r"no configuration is left.*64 threads"):
        add(FAST).tune(*operands(), progress=False)


def test_what_does_not_launch_is_left_out_and_said(device, monkeypatch, capsys):
    run = module.Kernel._run

    def refuses(self, ready, plan):
        if plan.config.cluster is not None:
            raise LaunchError("kernel 'add' does not launch with grid (4, 1, 1)")
        run(self, ready, plan)

    monkeypatch.setattr(module.Kernel, "_run", refuses)
    monkeypatch.setattr(module.Kernel, "_check_cluster", lambda *args: None)
    large = kernels.Config({"TIMES": 2}, block=256, cluster=2)
    y, x, count, n = operands()
    assert add(large, SLOW).tune(y, x, count, n) == SLOW
    said = capsys.readouterr().err
    assert "skipped  add TIMES=2 block=(256,) cluster=(2,) (kernel 'add' does not launch" in said
    with pytest.raises(ValueError, match=r"no configuration is left.*does not launch"):
        add(large).tune(y, x, count, n, progress=False)
    assert (y == 1).all() and (count == 0).all()


def test_winners_depend_on_what_key_names(device):
    kernel = add(SLOW, FAST, key=["n"])
    y, x, count, _ = operands()
    kernel.tune(y, x, count, 64, progress=False)
    assert kernel.config(y[:80], x[:80], count[:80], 64) == FAST
    assert kernel.config(y, x, count, 65) == SLOW
    with pytest.raises(ValueError, match=r"argument 'key': expected.*\(y, x, count, n\)"):
        add(SLOW, key=["m"]).config(*operands())


def test_outputs_to_be_allocated(device):
    kernel = add(SLOW, FAST)
    _, x, count, n = operands()
    assert kernel.tune(kernels.Out(like="x"), x, count, n, progress=False) == FAST
    assert kernel.config(*operands()) == FAST
    assert kernel.config(kernels.Out(n, "float32"), x, count, n) == FAST


def test_pruned_configurations_are_not_measured(device):
    def early(configs, args):
        assert args["n"] == 100
        return configs[:1]

    assert add(SLOW, FAST, prune=early).tune(*operands(), progress=False) == SLOW
    assert add(SLOW, FAST, prune=(lambda c, args: -c.block[0], 1)).tune(
        *operands(), progress=False
    ) == FAST  # fmt: skip


def test_half_of_the_digits_count():
    from sparsegpu.kernels.tuning import are_near

    x = np.array([1, 1e-9, np.nan, np.inf], np.float32)
    assert are_near(x, x * np.float32(1 + 1e-5)) and not are_near(x, x * np.float32(1.01))
    assert not are_near(x, np.array([1, 1e-9, np.inf, np.inf], np.float32))
    assert not are_near(x, np.array([1, np.nan, np.nan, np.inf], np.float32))
    assert are_near(np.array([3]), np.array([3])) and not are_near(np.array([3]), np.array([4]))
    assert are_near(x[:0], x[:0])


def test_tune_needs_a_device():
    with pytest.raises(NotImplementedError, match=r"tune with NumPy arrays.*CuPy"):
        add(SLOW, ref=doubled).tune(*operands(), progress=False)
    with pytest.raises(TypeError, match="progress"):
        add(SLOW).tune(*operands(), progress="no")
