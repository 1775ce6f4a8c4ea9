import os
import subprocess
import sys

import nbformat
import notebooks
from nbformat.v4 import new_code_cell, new_notebook, new_output

CELLS = {
    "import os, pathlib; print(pathlib.Path.cwd().name)": "a_folder",
    "print(os.environ['A_SETTING'], os.getpgrp() == os.getpid())": "as given True",
    "import subprocess; print(subprocess.run(['true']).returncode)": "0",
    "import pandas as pd; print(pd.get_option('display.max_columns'))": "20",
}


def test_a_fork_has_the_settings_of_a_fresh_kernel(tmp_path):
    cells = [
        new_code_cell(
            code,
            execution_count=number,
            outputs=[new_output("stream", name="stdout", text=f"{said}\n")],
        )
        for number, (code, said) in enumerate(CELLS.items(), 1)
    ]
    (tmp_path / "a_folder").mkdir()
    nbformat.write(new_notebook(cells=cells), page := tmp_path / "a_folder" / "page.ipynb")
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    nbval = ["-p", "tools.forked_kernels", "--nbval", "--nbval-current-env"]
    run = subprocess.run(
        [*pytest, *nbval, f"--rootdir={tmp_path}", page],
        cwd=notebooks.ROOT,
        env=os.environ | {"A_SETTING": "as given"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout
