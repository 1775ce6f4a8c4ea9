from pathlib import Path

import lock
import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = """numpy==2.4.6 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
nvidia-nvtx==13.0.85 ; sys_platform == 'linux' \\
    --hash=sha256:cc
wheel==0.48.0
"""


def test_blocks_hold_pin_marker_and_sums():
    blocks = lock.blocks(TEXT)
    assert {name: match["version"] for name, match in blocks.items()} == {
        "numpy": "2.4.6",
        "nvidia-nvtx": "13.0.85",
        "wheel": "0.48.0",
    }
    assert "\n".join(match[0] for match in blocks.values()) + "\n" == TEXT


@pytest.mark.parametrize("name", lock.LOCKS)
def test_the_locks_are_as_the_tool_writes_them(name):
    text = (ROOT / name).read_text("utf-8")
    blocks = lock.blocks(text)
    assert "\n".join(match[0] for match in blocks.values()) + "\n" == text
    assert list(blocks) == sorted(blocks)


def test_pytorch_the_extras_and_jupyterlab_stand_apart():
    usual, torch, extras, lab = (
        lock.blocks((ROOT / name).read_text("utf-8")) for name in lock.LOCKS
    )
    assert {"torch", "triton"} <= set(torch) and all(map(lock.TORCH.match, torch))
    assert not any(map(lock.TORCH.match, {**usual, **extras}))
    assert {"numba", "jax"} <= set(extras) and not {"numba", "jax"} & set(usual)
    assert {"jupyterlab", "jupyter-server", "cffi"} <= set(lab)
    assert not set(lab) & (set(usual) | set(torch) | set(extras))
