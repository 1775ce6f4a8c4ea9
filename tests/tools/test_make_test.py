import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
XML = '<testsuite name="pytest" errors="0" failures="0" skipped="2" tests="44" time=""><a time="1">'
PARTS = f"""
part-no: ; @false
part-yes: ; @echo '{XML}' > $(REPORTS)/yes.xml
"""


@pytest.mark.parametrize(("beside", "parts", "status"), [("", "no", 2), ("no", "", 2), ("", "", 0)])
def test_all_parts_run_also_after_one_failed(tmp_path, beside, parts, status):
    (tmp_path / "more.mk").write_text(f"override REPORTS := {tmp_path}/reports\n{PARTS}")
    given = ["test", f"BESIDE={beside}", f"PARTS={parts}", "LAST=yes", "-o", ".venv/.installed"]
    settings = {"MAKEFILES": str(tmp_path / "more.mk"), "MAKEFLAGS": "", "MAKELEVEL": ""}
    run = subprocess.run(
        ["make", *given], cwd=ROOT, env=os.environ | settings, capture_output=True, text=True
    )
    assert run.returncode == status, run.stderr
    *lines, end = [re.sub(r"\s+(\d+ s)?\s*", " ", line) for line in run.stdout.splitlines()]
    assert 'yes passed errors="0" failures="0" skipped="2" tests="44"' in lines
    assert ("no FAILED " in lines) == bool(beside + parts)
    assert end == ("Failed: no, of 2 parts." if status else "All 1 parts passed.")
