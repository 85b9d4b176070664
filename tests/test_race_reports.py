"""What is made of a race: the plot, the docs, the command."""

from __future__ import annotations

import importlib
import json
from functools import partial
from itertools import groupby
from types import SimpleNamespace

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
from tools import readme, suite_figures
from tools.record import ROOT, content_hashes

OF_TODAY = {"date": "2026-01-01", "content": content_hashes()}
OF_EARLIER = {"date": "2025-12-31", "content": {**content_hashes(), "cuda_src": "0"}}


def content() -> dict:
    """Return what is recorded of the main section, with invented times."""
    chosen = cases.cases(["main"])
    rows = [
        row(case, 0.1 + i / 10, peers={DENSE: 1.25, TORCH: 0.5 + i / 10 if i % 2 else "missing"})
        for i, case in enumerate(chosen)
    ]
    rows = json.loads(json.dumps(judged(chosen, rows)))
    found = {"gpu": "NVIDIA X", "driver": "13000", "cuda_runtime": "13000", "cupy": "14.2.0"}
    return (
        {"rows": rows, "copy GB/s": 4000.0, "seconds": 9.0, "refused": {}}
        | OF_TODAY
        | {"environment": found}
    )


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
    race = {"main": content()}
    sections = {"race": race, "tests": None, "sanitizer": None, "demo": None}
    page = "\n".join(readme.race_figures({"race": race}, "nvidia-x.json"))
    assert "generated/roofline-nvidia-x.png" in page and "generated/blocks-nvidia-x.svg" in page
    rows = "\n".join(readme.race_rows({"race": race}, "nvidia-x.json"))
    assert rows.count("| main | bfloat16 16x16 ") == 3 and "| same bits |" in rows
    short = "\n".join(readme.gpu_figures(sections, "nvidia-x.json"))
    assert short.count("| bfloat16 ") == 12 and "same bits" not in short
    assert readme.race_figures({"tests": {}}, "nvidia-x.json") == []
    assert readme.race_rows({"tests": {}}, "nvidia-x.json") == []
    assert readme.format_figures({"tests": {}}, "nvidia-x.json") == []


def test_tables_of_a_record_say_first_what_a_row_is_about():
    rows = [{"CG, s": 1.0, "iterations": 9, "product": "ours", "residual": 1e-9}]
    assert list(readme.named_first(rows)[0]) == ["product", "CG, s", "iterations", "residual"]
    demo = OF_TODAY | {"elasticity": rows, "digits": rows}
    sections = {"race": {"main": content()}, "demo": demo, "tests": None, "sanitizer": None}
    assert "| product | CG, s | iterations | residual |" in "\n".join(
        readme.gpu_figures(sections, "nvidia-x.json")
    )


def test_a_question_is_asked_where_its_section_is_recorded():
    race = {"main": content()}
    assert "attention" not in "\n".join(readme.race_figures({"race": race}, "nvidia-x.json"))
    race["attention"] = race["main"]
    page = "\n".join(readme.race_figures({"race": race}, "nvidia-x.json"))
    assert page.count("generated/attention-nvidia-x.svg") == 1


def test_the_table_of_sections_names_the_vendor_s_version_where_it_is_recorded():
    race = {"main": content()}
    assert "cuSPARSELt" not in readme.race_rows({"race": race}, "nvidia-x.json")[1]
    race["main"]["environment"]["cusparselt"] = "0.8.0"
    assert "cuSPARSELt 0.8.0 |" in readme.race_rows({"race": race}, "nvidia-x.json")[1]


def test_what_was_measured_with_earlier_sources_is_shown_as_such():
    plain = next(iter(cases.cases(["2:4 formats"])))
    formats = content() | OF_EARLIER
    formats["rows"] = json.loads(json.dumps(judged([plain], [row(plain, 0.25)])))
    race = {"main": content(), "2:4": formats, "2:4 formats": formats}
    sections = {"race": race, "tests": None, "sanitizer": None, "demo": None}
    today, earlier = "2026-01-01, these sources", "2025-12-31, earlier sources"
    (found,) = readme.gpu_figures({"race": race}, "nvidia-x.json")[1:2]
    assert found.endswith(f"; {today}:") and "; 2 of 3 sections are of earlier sources;" in found
    pictures = readme.race_figures(sections, "nvidia-x.json")
    assert "; 2 of 3 sections are of earlier sources. " in pictures[1]
    said = {part.rpartition(" Measured: ")[2] for part in pictures if " Measured: " in part}
    assert said == {f"{today}.", f"{earlier}."}
    table = readme.race_rows(sections, "nvidia-x.json")[1].splitlines()
    assert "| 2026-01-01 | these | 9 | 4 | driver for CUDA 13.0, " in table[2]
    assert "| 2025-12-31 | earlier | 9 | 4 |" in table[3]
    assert readme.format_figures(sections, "nvidia-x.json")[0].startswith(f"NVIDIA X; {earlier}; ")
    race["main"] |= OF_EARLIER
    assert readme.gpu_figures(sections, "nvidia-x.json")[1].endswith(f"; {earlier}:")
    del race["2:4"], race["2:4 formats"]
    race["main"] |= OF_TODAY
    assert "earlier" not in "".join(readme.gpu_figures(sections, "nvidia-x.json"))


def test_every_plot_is_drawn_from_its_own_section(tmp_path, monkeypatch):
    pytest.importorskip("sphinx.application")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    figures = importlib.import_module("figures")
    (tmp_path / "nvidia-x.json").write_text(json.dumps({"race": {"main": content()}}))
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    figures.draw(SimpleNamespace(srcdir=tmp_path))
    drawn = {p.name for p in (tmp_path / "generated").iterdir()}
    assert drawn == {"blocks-nvidia-x.svg", "roofline-nvidia-x.png"}


def a_file(**its) -> dict:
    """Return what is recorded of a file of tests."""
    counts = {"passed": 7, "failed": 0, "error": 0, "skipped": 3, "deselected": 2}
    skips = {"no second GPU": 2, "no torch": 1}
    options = "-q -k 'not [cpu' -n 20"
    return OF_TODAY | counts | {"skips": skips, "options": options, "seconds": 1.5} | its


def test_the_files_of_a_suite_are_summed_up(monkeypatch):
    monkeypatch.setattr(suite_figures, "test_files", lambda: ["a.py", "b.py"])
    files = {"a.py": a_file(), "b.py": a_file(passed=1, skips={"no torch": 3}, skipped=3)}
    about = {"environment": {"gpu": "X"}}
    said = readme.gpu_figures({**about, "tests": files}, "nvidia-x.json")[1]
    counts = "8 passed, 0 failed, 6 skipped (for 2 reasons, in the file), 4 deselected"
    start = f"Test suite on the GPU: {counts} by `-k 'not [cpu'`; "
    assert said == f"{start}2026-01-01, these sources."
    assert suite_figures.is_of_these(files)

    files["b.py"] |= OF_EARLIER
    when = "2025-12-31 to 2026-01-01; 1 of 2 files are of earlier sources"
    assert suite_figures.suite_figures(files) == f"{start}{when}."
    assert not suite_figures.is_of_these(files)
    files["a.py"] |= OF_EARLIER
    assert suite_figures.suite_figures(files) == f"{start}2025-12-31, earlier sources."

    files = {"b.py": a_file(error=2, skipped=0, skips={}, deselected=0, options="")}
    assert suite_figures.suite_figures(files) == (
        "Test suite on the GPU: 7 passed, 0 failed, 2 with an error, 0 skipped, 0 deselected; "
        "2026-01-01, these sources; 1 of 2 files are not recorded."
    )
    assert not suite_figures.is_of_these(files) and not suite_figures.is_of_these({})


def test_gpus_stand_in_order_of_their_suites(monkeypatch, tmp_path):
    monkeypatch.setattr(suite_figures, "test_files", lambda: ["a.py"])
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    files = {
        "a": a_file(failed=1),
        "b": a_file() | OF_EARLIER,
        "c": a_file(),
        "d": a_file(error=1) | OF_EARLIER,
    }
    for name, its in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"tests": {"a.py": its}}))
    (tmp_path / "e.json").write_text("{}")  # which has not run it
    shown = readme.of_all_gpus(lambda sections, name: [name[0]])
    assert shown.split("\n\n") == ["c", "b", "e", "a", "d"]


def test_a_suite_that_was_recorded_as_a_whole_is_shown():
    options = ["-q", "-k", "not [cpu", "tests"]
    suite = a_file(deselected={"tests/test_a.py": 4, "b.py": 1}, options=options, exit=0)
    counts = "7 passed, 0 failed, 3 skipped (for 2 reasons, in the file), 5 deselected"
    start = f"Test suite on the GPU: {counts} by `-k 'not [cpu'`; "
    assert suite_figures.suite_figures(suite) == f"{start}2026-01-01, these sources."
    said = suite_figures.suite_figures(suite | OF_EARLIER)
    assert said == f"{start}2025-12-31, earlier sources."


def test_the_floor_of_format_work_is_a_copy_of_its_bytes():
    plain = next(iter(cases.cases(["2:4 formats"])))
    part = {**content(), "rows": [row(plain, 0.25, bytes=8 * 10**8)], "copy GB/s": COPY_GBS}
    _, lines = readme.format_figures({"race": {"2:4 formats": part}}, "nvidia-x.json")
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


def test_bench_on_the_cpu_finds_operands_in_the_cache():
    """A dense product puts them out of it: what is measured next would read memory instead."""
    called = []
    contestants = {name: partial(called.append, name) for name in ("ours", "theirs", "dense")}
    assert cpu.interleaved_ms(contestants).keys() == contestants.keys()
    runs = [(name, len(list(calls))) for name, calls in groupby(called)]
    assert [name for name, _ in runs[:6]] == [*contestants] * 2
    assert all(calls >= 2 for _, calls in runs[3:])  # but the first round's


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
