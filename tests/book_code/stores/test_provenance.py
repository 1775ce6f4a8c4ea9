import shutil
import subprocess

import pytest

from bayesloss_book.stores.provenance import _commit


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
