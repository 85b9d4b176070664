"""A CUDA driver of no GPU, or of GPUs that are not there, for what ``doctor`` says."""

from __future__ import annotations

from sparsegpu.cli import doctor


def no_cupy(monkeypatch, driver):
    """Make doctor see no CuPy, and a driver (None: none) in place of the machine's."""
    monkeypatch.setattr(doctor, "cupy_installed", lambda: False)
    monkeypatch.setattr(doctor, "_cuda_driver", lambda: driver)


class Driver:
    """A CUDA driver with so many devices, whose start returns a status."""

    def __init__(self, devices=0, status=0):
        self.devices, self.status = devices, status

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = self.devices
        return 0
