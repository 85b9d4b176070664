"""What is made of a race: the plot, the docs, the command."""

from __future__ import annotations

import json

import pytest

from conftest import NO_GPU
from race_rows import COPY_GBS, judged, row
from sparsegpu.__main__ import main
from sparsegpu.benchmark import (
    cases,
    cpu,
)
from sparsegpu.benchmark.case import Case
from sparsegpu.benchmark.peer import DENSE, TORCH
from tools import readme


def content() -> dict:
    """Return a race of the main section with invented times."""
    chosen = cases.cases(["main"])
    rows = [
        row(case, 0.1 + i / 10, peers={DENSE: 1.25, TORCH: 0.5 + i / 10 if i % 2 else "missing"})
        for i, case in enumerate(chosen)
    ]
    rows = json.loads(json.dumps(judged(chosen, rows)))
    found = {"gpu": "NVIDIA X", "driver": "13000", "cuda_runtime": "13000", "cupy": "14.2.0"}
    return {"rows": rows, "copy GB/s": 4000.0, "seconds": 9.0} | {
        "date": "2026-01-01",
        "environment": found,
    }


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    from sparsegpu.benchmark.plot import roofline, roofline_points

    race = content()
    points = roofline_points(race["rows"])
    assert len(points) == 12 and sum(p["peer"] is not None for p in points) == 6
    path = tmp_path / "roofline.png"
    roofline(race, "bfloat16 products", path)
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_docs_tables_hold_every_row():
    sections = {"race": content(), "tests": None, "sanitizer": None, "demo": None}
    page = "\n".join(readme.race_figures({"race": content()}, "nvidia-x.json"))
    assert "_static/roofline-nvidia-x.png" in page and "generated/blocks-nvidia-x.svg" in page
    rows = "\n".join(readme.race_rows({"race": content()}, "nvidia-x.json"))
    assert rows.count("| main | bfloat16 16x16 ") == 3 and "| same bits |" in rows
    short = "\n".join(readme.gpu_figures(sections, "nvidia-x.json"))
    assert short.count("| bfloat16 ") == 12 and "same bits" not in short
    assert readme.race_figures({"tests": {}}, "nvidia-x.json") == []
    assert readme.race_rows({"tests": {}}, "nvidia-x.json") == []
    assert readme.format_figures({"tests": {}}, "nvidia-x.json") == []


def test_a_question_is_asked_where_its_section_is_recorded():
    race = content()
    assert "attention" not in "\n".join(readme.race_figures({"race": race}, "nvidia-x.json"))
    race["rows"].append({**race["rows"][0], "section": "attention"})
    page = "\n".join(readme.race_figures({"race": race}, "nvidia-x.json"))
    assert page.count("generated/attention-nvidia-x.svg") == 1


def test_the_page_names_the_vendor_s_version_where_it_is_recorded():
    race = content()
    assert "cuSPARSELt" not in readme.race_figures({"race": race}, "nvidia-x.json")[1]
    race["environment"]["cusparselt"] = "0.8.0"
    assert "cuSPARSELt 0.8.0)" in readme.race_figures({"race": race}, "nvidia-x.json")[1]


def test_a_suite_is_shown_with_what_was_recorded_of_it():
    suite = {"environment": {"gpu": "X"}, "passed": 7, "failed": 0, "skipped": 3}
    lines = readme.gpu_figures({"tests": suite}, "nvidia-x.json")
    assert lines[1] == "Test suite on the GPU: 7 passed, 0 failed, 3 skipped."
    suite |= {"options": ["-q", "--record"], "deselected": {"tests/test_a.py": 4, "b.py": 1}}
    suite["skips"] = {"no second GPU": 2, "no torch": 1}
    lines = readme.gpu_figures({"tests": suite}, "nvidia-x.json")
    assert lines[1] == (
        "Test suite on the GPU (`pytest -q --record`): 7 passed, 0 failed, 3 skipped "
        "(for 2 reasons, in the file), 5 deselected."
    )


def test_the_floor_of_format_work_is_a_copy_of_its_bytes():
    plain = next(iter(cases.cases(["2:4 formats"])))
    race = {**content(), "rows": [row(plain, 0.25, bytes=8 * 10**8)], "copy GB/s": COPY_GBS}
    _, lines = readme.format_figures({"race": race}, "nvidia-x.json")
    assert lines.splitlines()[-1] == f"| {plain.name} | 800 | 0.2 | 0.25 |"


@pytest.mark.skipif(NO_GPU is None, reason="a GPU is present")
def test_bench_refuses_a_gpu_that_is_not_there():
    with pytest.raises(SystemExit, match="no GPU"):
        main(["bench", "--quick", "--device", "gpu"])


def test_bench_on_the_cpu(capsys, tmp_path, monkeypatch):
    pytest.importorskip("scipy")
    tiny = cpu.CpuCase(4, 0.25, (64, 64, 8))
    monkeypatch.setattr(cpu, "QUICK", (tiny,))
    path = tmp_path / "bench.json"
    assert main(["bench", "--quick", "--device", "cpu", "--json", str(path)]) == 0
    (found,) = json.loads(path.read_text())["rows"]
    assert found["same_bits"] and 0 < found["error"] <= 1 and found["verdict"] == ""
    assert found["ms"] > 0 and all(found["peers"][name] > 0 for name in (cpu.SCIPY, cpu.DENSE))
    said = capsys.readouterr()
    assert tiny.name in said.out and "over SciPy BSR" in said.out and f"1/1 {tiny.name}" in said.err


def test_bench_on_the_cpu_finds_a_wrong_result(capsys, monkeypatch):
    monkeypatch.setattr(cpu, "QUICK", (cpu.CpuCase(4, 0.25, (64, 64, 8)),))
    monkeypatch.setattr(cpu.sg.bsr_array, "__matmul__", lambda A, x: 1.001 * (A.toarray() @ x))
    assert main(["bench", "--quick", "--device", "cpu"]) == 1
    assert "elements outside the bound" in capsys.readouterr().out


@pytest.mark.parametrize("option", [("--only", "main"), ("--plot", "roofline.png")])
def test_what_only_a_gpu_can_is_refused_in_a_line(option, capsys, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--device", "cpu", *option]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and f"{option[0]} needs a GPU" in said.err
    assert not list(tmp_path.iterdir())


def test_bench_on_the_gpu(cuda_engine, capsys, tmp_path, monkeypatch):
    tiny = Case("main", (32, 32), 0.25, (256, 256, 256), peers=(DENSE,))
    monkeypatch.setattr("sparsegpu.benchmark.race.cases", lambda sections: [tiny])
    path = tmp_path / "bench.json"
    assert main(["bench", "--quick", "--json", str(path)]) == 0
    (found,) = json.loads(path.read_text())["rows"]
    assert found["same_bits"] and found["error"] <= 1 and found["peers"][DENSE] > 0
    assert tiny.name in capsys.readouterr().out
