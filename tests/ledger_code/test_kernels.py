"""What kernels are started with: they see it and tell no noise, and their ends are known."""

import os

import papermill
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from paperledger.kernels import ENVIRONMENT, KERNEL, STOPPED


def page(source):
    notebook = new_notebook(cells=[new_code_cell(source)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    return notebook


def test_a_kernel_sees_the_environment_and_tells_no_noise(monkeypatch, capfd):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    seen = page(f"import os\nprint([os.environ[name] for name in {list(ENVIRONMENT)}])")
    NotebookClient(seen, **KERNEL).execute()
    assert seen.cells[0].outputs[0].text.strip() == str([os.environ[name] for name in ENVIRONMENT])
    assert "WARNING" not in capfd.readouterr().err


def test_a_page_that_stops_is_told_by_whoever_runs_it():
    with pytest.raises(STOPPED):
        NotebookClient(page("1 / 0"), **KERNEL).execute()
    with pytest.raises(STOPPED):
        papermill.execute_notebook(page("1 / 0"), None, progress_bar=False, **KERNEL)
    with pytest.raises(STOPPED):
        NotebookClient(page("import os\nos._exit(1)"), **KERNEL).execute()
