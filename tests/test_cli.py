"""The commands: doctor and demo."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sparsegpu
from conftest import NO_GPU
from fake_driver import Driver, no_cupy
from sparsegpu.__main__ import main
from sparsegpu._arrays import cupy_installed
from sparsegpu.benchmark.elasticity import cantilever, element_stiffness
from sparsegpu.cli import demo, doctor
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
    "command", ["doctor --json", "demo --json", "bench --json", "bench --plot", "tune --export"]
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
    assert "matplotlib: pip install" in capsys.readouterr().err


@pytest.mark.parametrize("driver", [None, Driver(0), Driver(status=100)])
def test_doctor_on_a_laptop_is_content(driver, capsys, monkeypatch):
    no_cupy(monkeypatch, driver)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "GPU: none, NumPy path works."
    assert "FAIL" not in printed and "fix:" not in printed


@pytest.mark.parametrize("driver", [Driver(1), Driver(2), Driver(status=803)])
def test_doctor_says_how_a_gpu_is_used(driver, capsys, monkeypatch):
    no_cupy(monkeypatch, driver)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL  CuPy" in printed and "fix: pip install" in printed and "cuda13]" in printed
    assert "NumPy arrays can be computed" in printed


@pytest.mark.skipif(NO_GPU is None, reason="a GPU is present")
@pytest.mark.skipif(not cupy_installed(), reason="CuPy is not installed")
def test_doctor_says_the_fix_of_a_cupy_without_a_gpu(capsys):
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL" in printed and "fix:" in printed
    assert "NumPy arrays can be computed" in printed


def test_doctor_says_when_cupy_cannot_be_imported(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "cupy_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", None)  # as if a library of it were missing
    assert main(["doctor"]) == 1
    assert "cannot be imported" in capsys.readouterr().out


def test_doctor_computes_on_numpy(capsys, monkeypatch):
    no_cupy(monkeypatch, None)
    monkeypatch.setattr(doctor, "bsr_array", lambda *_, **__: np.zeros((8, 8)))
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "a product is wrong" in printed and "path works" not in printed


def test_doctor_without_kernel_sources_computes_on_numpy(capsys, monkeypatch, tmp_path):
    no_cupy(monkeypatch, None)
    monkeypatch.setattr(
        doctor, "_sources", lambda: doctor.Finding("kernel sources", "not found", False, "so")
    )
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "a product is right" in printed and "fix: so" in printed
    assert printed.splitlines()[-1].endswith("NumPy arrays can be computed.")


def test_doctor_as_json(capsys, monkeypatch, tmp_path):
    no_cupy(monkeypatch, None)
    # Other tests compile into the cache between the two calls.
    monkeypatch.setattr(doctor, "_cache", lambda: doctor.Finding("cache", "2.0 MiB"))
    path = tmp_path / "found.json"
    assert main(["doctor", "--json", str(path)]) == 0
    assert "NumPy path works" in capsys.readouterr().out
    assert main(["doctor", "--json", "-"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(path.read_text())
    assert "NumPy path works" in said.err
    found = json.loads(said.out)
    assert found["works"] is True
    assert {"what": "GPU", "text": "none", "ok": True, "fix": ""} in found["findings"]
    assert not any(finding["fix"] for finding in found["findings"])  # all is well


def test_doctor_counts_what_is_left_of_a_changing_cache(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    (tmp_path / "gone").write_bytes(bytes(2**20))
    (tmp_path / "kept").write_bytes(bytes(3 * 2**20))
    is_file = Path.is_file

    def removed_after(path):  # as by another process
        answer = is_file(path)
        (tmp_path / "gone").unlink(missing_ok=True)
        return answer

    monkeypatch.setattr(Path, "is_file", removed_after)
    assert doctor._cache().text in (f"{tmp_path}, 3.0 MiB", f"{tmp_path}, 4.0 MiB")


def test_doctor_says_that_a_cache_takes_no_file(monkeypatch, tmp_path):
    (tmp_path / "a file").touch()
    places = [tmp_path / "a file" / "cache", *[Path("/proc/cache")] * Path("/proc").is_dir()]
    for place in places:  # nobody can write to /proc, whatever its permissions say
        monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(place))
        assert "not writable; set SPARSEGPU_CACHE_DIR" in doctor._cache().text
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path / "new"))
    assert doctor._cache().text == f"{tmp_path / 'new'}, 0.0 MiB"
    assert [path.name for path in tmp_path.iterdir()] == ["a file"], "nothing is made"


def test_info_judges_nothing(capsys, monkeypatch):
    no_cupy(monkeypatch, Driver(1))
    monkeypatch.setattr(doctor, "bsr_array", None)  # nothing is computed
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert sparsegpu.__version__ in printed and np.__version__ in printed and "cache" in printed
    assert "not installed, for 1 CUDA device" in printed
    assert "FAIL" not in printed and "fix" not in printed
    assert main(["info", "--json=-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sparsegpu"].startswith(sparsegpu.__version__)
    assert "1 CUDA device" in told["CuPy"]


# -- standard output, files ------------------------------------------------------------------------


def command(*words, **keywords):
    call = [sys.executable, "-m", "sparsegpu", *words]
    return subprocess.Popen(call, stderr=subprocess.PIPE, text=True, **keywords)


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("doctor",), ("doctor", "--json=-")]
)
def test_a_closed_pipe_ends_quietly(words):
    read, write = os.pipe()
    os.close(read)
    with command(*words, stdout=write) as ended:
        os.close(write)
        said = ended.stderr.read()
    assert ended.returncode == 141
    assert "Error" not in said and "Traceback" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("into", ["file", "standard output"])
def test_a_full_disk_is_one_line(into):
    with open("/dev/full", "w") as full:
        file, out = ("/dev/full", subprocess.DEVNULL) if into == "file" else ("-", full)
        with command("doctor", "--json", file, stdout=out) as ended:
            said = ended.stderr.read()
    assert ended.returncode == 2
    assert said.splitlines()[-1].startswith("sparsegpu: the result is not written: ")
    assert "Traceback" not in said and "Exception ignored" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("tune", "--help")])
def test_a_help_text_to_a_full_disk_is_one_line(words, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full, command(*words, stdout=full, env=environment) as ended:
        (line,) = ended.stderr.read().splitlines()
    assert ended.returncode == 2
    assert line.startswith("sparsegpu: the result is not written: ")


def closing(descriptor):
    """Return what closes a descriptor of a new process, as ``>&-`` does."""
    return {"preexec_fn": lambda: os.close(descriptor)}


@pytest.mark.skipif(sys.platform == "win32", reason="of shells of Unix")
@pytest.mark.parametrize("words", [("doctor",), ("doctor", "--json=-"), ("--help",)])
def test_standard_output_that_is_closed_is_one_line(words):
    with command(*words, **closing(1)) as ended:
        (line,) = ended.stderr.read().splitlines()
    assert ended.returncode == 2
    assert line == "sparsegpu: the result is not written: standard output is closed"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", [("info",), ("info", "--json=-")])
def test_standard_error_that_takes_nothing(words, monkeypatch, tmp_path):
    """Closed, nobody wants it; full, the result is whole or not there, and the status says it."""
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))  # others fill the user's meanwhile
    call = [sys.executable, "-m", "sparsegpu", *words]
    closed = subprocess.run(call, stdout=subprocess.PIPE, text=True, **closing(2))
    assert closed.returncode == 0 and sparsegpu.__version__ in closed.stdout
    with open("/dev/full", "w") as full:
        ended = subprocess.run(call, stdout=subprocess.PIPE, stderr=full, text=True)
    if len(words) == 1:
        assert ended.returncode == 0 and ended.stdout == closed.stdout
    else:  # what is printed besides goes to standard error
        assert ended.returncode == 2 and ended.stdout == ""


def test_half_a_result_is_never_written(tmp_path, monkeypatch):
    path = tmp_path / "found.json"
    path.write_text("before")
    no_cupy(monkeypatch, None)
    monkeypatch.setattr(doctor, "asdict", lambda finding: {"not": object()})
    with pytest.raises(TypeError, match="JSON"):
        main(["doctor", "--json", str(path)])
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["found.json"]


@pytest.mark.parametrize(
    ("started", "name"),
    [("/usr/bin/sparsegpu", "sparsegpu"), (r"sparsegpu.exe", "sparsegpu")]
    + [("/lib/sparsegpu/__main__.py", "python -m sparsegpu")],
)
def test_help_names_what_was_typed(started, name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [started])
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} [-h]")


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
    assert ours["residual"] < 1e-7
    assert ours["speed-up"] == peer["CG, s"] / ours["CG, s"] and peer["speed-up"] == 1
    assert abs(ours["iterations"] - peer["iterations"]) <= 2
    accuracy = {row["layers"]: row["accuracy"] for row in result["digits"]}
    assert accuracy["dense"] > 0.97
    assert [row["stored"] for row in result["digits"][::2]] == [1, 0.75]
    assert "2:4 is not faster on a CPU" in printed and " 75% " in printed
    assert accuracy["2:4 by magnitude, float16"] > 0.9


def test_demo_with_numpy_alone():
    code = """
import sys
sys.modules.update(scipy=None, numba=None, pyamg=None)
from sparsegpu.__main__ import main
sys.exit(main(["demo", "--size", "small", "--device", "cpu", "--json=-"]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr
    assert "SciPy is not installed: there is nothing to compare with" in ended.stderr
    result = json.loads(ended.stdout)
    (ours,) = result["elasticity"]
    assert ours["residual"] < 1e-7 and "speed-up" not in ours
    assert result["digits"][0]["accuracy"] > 0.97


def test_demo_on_the_gpu(cuda_engine, capsys):
    assert main(["demo", "--size", "small", "--device", "gpu"]) == 0
    assert "cuSPARSE CSR" in capsys.readouterr().out


@pytest.mark.skipif(NO_GPU is None, reason="a GPU is present")
def test_demo_refuses_a_gpu_that_is_not_there():
    with pytest.raises(SystemExit, match="no GPU"):
        main(["demo", "--device", "gpu"])


@pytest.mark.parametrize("words", ["demo --device gpu", "bench --device gpu", "tune"])
def test_no_gpu_says_what_to_do_where_there_is_something_to_do(words, monkeypatch):
    monkeypatch.setattr(demo, "cupy_installed", lambda: False)
    no_cupy(monkeypatch, None)
    with pytest.raises(SystemExit, match=r"^no GPU: none was found$"):
        main(words.split())
    no_cupy(monkeypatch, Driver(1))
    with pytest.raises(SystemExit, match=r"^no GPU: CuPy is not .* 1 CUDA device; fix: pip inst"):
        main(words.split())
