"""The code that README prints runs as it stands there, block after block, in one session."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def test_the_code_runs_when_it_is_pasted():
    blocks = [block for _, block in BLOCK.findall(README.read_text("utf-8"))]
    assert len(blocks) == 3
    command = [sys.executable, "-W", "error::UserWarning", "-c", "\n".join(blocks)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
