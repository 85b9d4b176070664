"""The commands: doctor and demo."""

import importlib.util
import json

import numpy as np
import pytest

import sparsegpu
from conftest import NO_GPU
from sparsegpu.__main__ import main
from sparsegpu.cli import demo, doctor
from sparsegpu.cli.elasticity import cantilever, element_stiffness
from sparsegpu.engines.cusparselt import availability
from sparsegpu.testing import assert_close


def _rigid_and_strain_modes(hx, hy):
    x, y = np.array([[0, 0], [hx, 0], [hx, hy], [0, hy]]).T
    zero, one = np.zeros(4), np.ones(4)
    rigid = [(one, zero), (zero, one), (-y, x)]
    strain = [(x, zero), (zero, y), (y, zero)]
    return [np.stack(m, axis=1).ravel() for m in rigid], [np.stack(m, 1).ravel() for m in strain]


def test_element_has_no_energy_in_rigid_motion_and_the_right_one_in_uniform_strain():
    hx, hy, young, poisson = 0.7, 1.3, 2.5, 0.3
    stiffness = element_stiffness(hx, hy, young, poisson)
    rigid, strain = _rigid_and_strain_modes(hx, hy)
    # Products and sums on the way from the corners to the energy, and what they are taken of: no
    # entry of a positive matrix is larger than the root of its diagonal's two.
    bound, root = 2 * 150 * 2.0**-53, np.sqrt(np.diag(stiffness))
    for mode in rigid:
        assert_close(stiffness @ mode, np.zeros(8), bound * root * (root @ np.abs(mode)))
    # Plane strain: sigma = lambda tr(e) I + 2 mu e, energy = area * e : sigma.
    lame = young * poisson / ((1 + poisson) * (1 - 2 * poisson))
    shear = young / (2 * (1 + poisson))
    expected = [lame + 2 * shear, lame + 2 * shear, shear]
    for mode, density in zip(strain, expected, strict=True):
        energy, exact = mode @ stiffness @ mode, np.array(density * hx * hy)
        assert_close(energy, exact, bound * (root @ np.abs(mode)) ** 2)


def test_cantilever_is_the_sum_of_its_elements():
    nx, ny = 4, 3
    matrix, load = cantilever(nx, ny)
    element = element_stiffness(1, 1, 1.0, 0.3)
    full = np.zeros((2 * (nx + 1) * (ny + 1),) * 2)
    size = np.zeros_like(full)
    weight = np.zeros(((nx + 1) * (ny + 1), 2))
    for i in range(nx):
        for j in range(ny):
            nodes = [(i + a) * (ny + 1) + j + b for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))]
            unknowns = [2 * n + d for n in nodes for d in (0, 1)]
            full[np.ix_(unknowns, unknowns)] += element
            size[np.ix_(unknowns, unknowns)] += np.abs(element)
            weight[nodes, 1] -= 0.25
    clamped = 2 * (ny + 1)
    bound = 2 * 3 * 2.0**-53 * size  # four elements meet in a node
    assert_close(matrix.toarray(), full[clamped:, clamped:], bound[clamped:, clamped:])
    np.testing.assert_array_equal(load, weight.ravel()[clamped:])
    assert matrix.has_canonical_format
    assert np.linalg.eigvalsh(matrix.toarray()).min() > 0


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"sparsegpu {sparsegpu.__version__}\n"


@pytest.mark.parametrize(
    "command", ["demo --json", "bench --json", "bench --plot", "tune --export"]
)
def test_what_cannot_be_written_is_said_first(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "matplotlib")
    for file in (tmp_path / "absent" / "file", tmp_path):
        with pytest.raises(SystemExit) as end:
            main([*command.split(), str(file)])
        assert end.value.code == 2
        assert f"{file} cannot be written" in capsys.readouterr().err


def test_pictures_need_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main(["bench", "--plot", str(tmp_path / "picture.png")])
    assert "needs matplotlib: pip install" in capsys.readouterr().err


@pytest.mark.skipif(NO_GPU is None, reason="a GPU is present")
def test_doctor_without_a_gpu_says_the_fix(capsys):
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL" in printed and "fix:" in printed
    assert "NumPy arrays run on the CPU engine" in printed


def test_doctor_with_a_gpu(cuda_engine, capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "launched and right" in printed and "cuSPARSELt" in printed


def test_doctor_says_how_an_extra_is_had(monkeypatch):
    monkeypatch.setattr(availability, "_loaded", {})
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda name: None)
    finding = doctor._cusparselt()
    assert finding.ok and finding.text.startswith("optional; backend 'cusparselt' needs nvmath")
    monkeypatch.setattr(availability, "_loaded", {"bindings": None, "version": (0, 8, 1)})
    assert doctor._cusparselt().text.startswith("0.8.1, for 2:4 arrays")


@pytest.mark.parametrize("pyamg", [True, False])
def test_demo_on_the_cpu(pyamg, capsys, tmp_path, monkeypatch):
    if pyamg:
        pytest.importorskip("pyamg")
    else:
        found = demo.importlib.util.find_spec
        monkeypatch.setattr(
            demo.importlib.util, "find_spec", lambda n: None if n == "pyamg" else found(n)
        )
    path = tmp_path / "demo.json"
    assert main(["demo", "--size", "small", "--device", "cpu", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert ("PyAMG gallery" if pyamg else "assembled here") in printed
    assert "UCI handwritten digits" in printed
    result = json.loads(path.read_text())
    ours, peer = result["elasticity"]
    assert float(ours["residual"]) < 1e-7
    assert abs(ours["iterations"] - peer["iterations"]) <= 2
    accuracy = {row["layers"]: float(row["accuracy"]) for row in result["digits"]}
    assert accuracy["dense"] > 0.97
    assert accuracy["2:4 by magnitude, float16"] > 0.9


def test_demo_on_the_gpu(cuda_engine, capsys):
    assert main(["demo", "--size", "small", "--device", "gpu"]) == 0
    assert "cuSPARSE CSR" in capsys.readouterr().out


@pytest.mark.skipif(NO_GPU is None, reason="a GPU is present")
def test_demo_refuses_a_gpu_that_is_not_there():
    with pytest.raises(SystemExit, match="no GPU"):
        main(["demo", "--device", "gpu"])
