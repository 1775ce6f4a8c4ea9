"""Write the locks: every package at one version, with the sums of all its files.

`make lock` reads the pins of the present locks, resolves what `pyproject.toml` asks for at these
versions on every system, and writes five files that pip takes with `--require-hashes --no-deps`:

    requirements.lock          what `make` installs
    requirements-torch.lock    what PyPI's PyTorch needs besides on Linux, and the CPU wheels do not
    requirements-extras.lock   what the extras `chains` and `calibrators` need besides
    requirements-lab.lock      what the extra `lab` needs besides: JupyterLab, for `make lab`
    requirements-uv.lock       uv itself, which installs the first of them in a sixth of pip's time

To raise a version, change its pin first; to raise all, delete the locks. PyTorch's CPU wheels have
an index and a lock of their own: out of reach, the lock stays, as long as the version does. uv
resolves and sums; it would not set PyTorch apart, nor put each package into one lock.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("book", "pdf", "test", "cluster")  # of `requirements.lock`
LOCKS = [ROOT / f"requirements{kind}.lock" for kind in ("", "-torch", "-extras", "-lab")]
CPU_LOCK, UV_LOCK = (ROOT / f"requirements-{kind}.lock" for kind in ("torch-cpu", "uv"))
TORCH = re.compile(r"^(torch$|nvidia-|cuda-|triton$)")
PYPY = "== 'pypy'"  # left out, as PyTorch is for CPython
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PYTHON = "3.11.5"  # the first for which all pins have files

BLOCK = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;\\]+).*(?:\n {4}.*)*", re.M)


def blocks(text: str) -> dict[str, re.Match[str]]:
    """The packages of a lock: from their names to pin, marker and sums as they are written."""
    return {found["name"]: found for found in BLOCK.finditer(text) if PYPY not in found[0]}


def compile_(*arguments: str, asked: str | None = None) -> str:
    """What uv resolves, with sums, for every system."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--universal"]
    command += ["--python-version", PYTHON, "--generate-hashes", "--no-annotate", "--no-header"]
    command += [*arguments, "pyproject.toml" if asked is None else "-"]
    return subprocess.check_output(command, cwd=ROOT, input=asked, text=True)


def main() -> None:
    """Write the files."""
    before = "".join(path.read_text("utf-8") for path in (*LOCKS, UV_LOCK) if path.exists())
    pins = ROOT / "_build" / "pins.txt"
    pins.write_text("".join(f"{m['name']}=={m['version']}\n" for m in blocks(before).values()))
    by_uv = compile_("--no-deps", "--constraint", str(pins), asked="uv")
    UV_LOCK.write_text(by_uv, "utf-8")
    whole = compile_("--all-extras", "--constraint", str(pins))
    pins.write_text("".join(f"{m['name']}=={m['version']}\n" for m in blocks(whole).values()))
    asked = ["--constraint", str(pins), *(f"--extra={extra}" for extra in EXTRAS)]
    usual = blocks(compile_(*asked))
    lab = blocks(compile_(*asked, "--extra=lab"))
    files: tuple[list[str], ...] = ([], [], [], [])
    for name, match in blocks(whole).items():
        file = 1 if TORCH.match(name) else 0 if name in usual else 3 if name in lab else 2
        files[file].append(match[0])
    for path, packages in zip(LOCKS, files, strict=True):
        path.write_text("\n".join([*packages, ""]), "utf-8")
        print(f"{path.name}: {len(packages)} packages")
    torch = f"torch=={blocks(whole)['torch']['version']}+cpu"
    try:
        sums = compile_("--no-deps", "--index-url", CPU_INDEX, asked=torch)
        CPU_LOCK.write_text(sums, "utf-8")
    except subprocess.CalledProcessError:
        if not (CPU_LOCK.exists() and CPU_LOCK.read_text("utf-8").startswith(torch)):
            raise
        print(f"The sums of {torch} stay as they were.", file=sys.stderr)


if __name__ == "__main__":
    main()
