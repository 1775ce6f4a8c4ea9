import json
import shutil
import subprocess

import pytest

from paperledger.stores import provenance
from paperledger.stores.provenance import KERNEL_VARIABLES, _commit, described, is_like, machine

GENOA = """processor : 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1
flags\t\t: fpu sse sse4_1 smep avx2 avx512f fsrm fma

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
"""
MILAN = GENOA.replace("model\t\t: 17", "model\t\t: 1").replace(" avx512f", "")
GRAVITON = """processor : 0
BogoMIPS : 243.75
Features : fp asimd evtstrm sve bf16 i8mm
CPU implementer : 0x41
CPU architecture: 8
CPU variant : 0x1
CPU part : 0xd40
"""
INTEL_MAC = """machdep.cpu.family: 6
machdep.cpu.features: FPU SSE4.1 AVX1.0
machdep.cpu.leaf7_features: SMEP AVX2
machdep.cpu.model: 158
machdep.cpu.vendor: GenuineIntel
machdep.cpu.brand_string: Intel(R) Core(TM) i7-8850H CPU @ 2.60GHz
"""
WINDOWS = "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD"


@pytest.fixture
def on(tmp_path, monkeypatch):
    """Say what a system says of its processor, and return what is made of it."""
    for name in KERNEL_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def on(said, system="Linux"):
        folder = tmp_path / system
        folder.mkdir(exist_ok=True)
        if system == "Linux":
            (folder / "cpuinfo").write_text(said)
        monkeypatch.setattr(provenance, "Path", lambda _: folder / "cpuinfo")
        monkeypatch.setattr(provenance.platform, "system", lambda: system)
        monkeypatch.setattr(provenance.platform, "processor", lambda: said)
        done = subprocess.CompletedProcess([], 0, said)
        monkeypatch.setattr(provenance.subprocess, "run", lambda *_, **__: done)
        return machine()

    return on


@pytest.mark.parametrize(
    ("said", "system", "vendor", "family", "model", "name", "vectors"),
    [
        (GENOA, "Linux", "AuthenticAMD", "25", "17", "AMD EPYC", "avx2 avx512f fma sse sse4_1"),
        (MILAN, "Linux", "AuthenticAMD", "25", "1", "AMD EPYC", "avx2 fma sse sse4_1"),
        (GRAVITON, "Linux", "0x41", "8", "0xd40", "", "asimd bf16 i8mm sve"),
        (INTEL_MAC, "Darwin", "GenuineIntel", "6", "158", None, "avx1.0 avx2 sse4.1"),
        ("machdep.cpu.brand_string: Apple M2\n", "Darwin", "", "", "", "Apple M2", ""),
        (WINDOWS, "Windows", "AuthenticAMD", "25", "17", "", ""),
        ("", "Linux", "", "", "", "", ""),
    ],
)
def test_what_each_system_tells_of_its_processor(
    on, said, system, vendor, family, model, name, vectors
):
    kind = on(said, system)["processor_kind"]
    assert (kind["vendor"], kind["family"], kind["model"]) == (vendor, family, model)
    assert name in (None, kind["name"])
    assert " ".join(kind["vectors"]) == vectors
    assert json.loads(json.dumps(kind)) == kind  # as a provenance file keeps it


def test_a_name_that_two_kinds_share_does_not_make_them_one(on, monkeypatch):
    genoa = on(GENOA)
    milan = on(MILAN)
    assert genoa["processor"] == milan["processor"] == "AMD EPYC"
    assert is_like(genoa, genoa) and not is_like(genoa, milan)
    assert described(milan) == "AMD EPYC (family 25, model 1)"
    old = {"processor": "AMD EPYC"}
    assert not is_like(old, genoa)
    assert described(old) == "AMD EPYC (family not recorded)"
    nameless = on("")
    assert not is_like(nameless, nameless)
    # Emulated kernels make another processor of it.
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    emulated = on(GENOA)
    assert is_like(emulated, emulated) and not is_like(genoa, emulated)
    assert described(emulated) == "AMD EPYC (family 25, model 17, OPENBLAS_CORETYPE=Nehalem)"


def git(folder, *arguments):
    name = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git on the path")
def test_changed_code_marks_the_commit_and_changed_results_do_not(tmp_path):
    assert _commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    clean = _commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "rows.csv").write_text("1\n")
    assert _commit(tmp_path) == clean
    (tmp_path / "code.py").write_text("a = 2\n")
    assert _commit(tmp_path) == f"{clean}-dirty"
