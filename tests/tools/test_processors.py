import processors
import pytest


def test_a_row_a_run_and_what_differed(monkeypatch, capsys):
    def differing(paths, how, environment):
        old = environment.get("ATEN_CPU_CAPABILITY") == "default"
        alone = environment["OMP_NUM_THREADS"] == "1"
        return (["page::Cell 3"] if old and alone and "--nbval" in how else []), len(paths)

    monkeypatch.setattr(processors.torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr(processors, "differing", differing)
    assert processors.main(["tests", "book"]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "without AVX 1 1 of 1 0 of 1 0" in lines
    assert "without AVX 2 0 of 1 0 of 1 0" in lines
    assert "this one 1 0 of 1 0 of 1 0" in lines
    assert lines.count("page::Cell 3") == 1
    assert lines[-1].endswith(": AVX2, AVX-512")
    assert processors.main(["tests", "--on", "this one"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"this one 1 - 0 of 1 0", "this one 2 - 0 of 1 0"} <= set(lines)


@pytest.mark.slow
def test_a_test_that_differs_is_named(tmp_path):
    (tmp_path / "test_x.py").write_text(
        "import os\ndef test_a(): assert os.environ['MKL_CBWR'] == 'AVX2'\ndef test_b(): pass\n"
    )
    given = [str(tmp_path / "test_x.py")], processors.HOW["unit tests"]
    found, tried = processors.differing(*given, {"MKL_CBWR": "COMPATIBLE"})
    assert tried == 2 and [name.split("::")[-1] for name in found] == ["test_a"]
    assert processors.differing(*given, {"MKL_CBWR": "AVX2"}) == ([], 2)
