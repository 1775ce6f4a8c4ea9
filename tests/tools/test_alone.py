import os
import signal
import subprocess
import sys

import notebooks

ALONE = [sys.executable, str(notebooks.ROOT / "tools" / "alone.py")]
HOLD = "echo begins; read line; sleep 0.5; touch ended"


def start(folder, command):
    return subprocess.Popen(
        [*ALONE, ".", "sh", "-c", command],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_the_second_waits_for_the_first(tmp_path):
    first = start(tmp_path, HOLD)
    assert first.stdout.readline() == "begins\n"
    second = start(tmp_path, "test -f ended")
    assert second.stderr.readline() == "Waiting for another make in this folder.\n"
    first.communicate("\n")
    assert second.wait(60) == 0


def test_nothing_is_left_after_a_kill(tmp_path):
    first = start(tmp_path, HOLD)
    assert first.stdout.readline() == "begins\n"
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert start(tmp_path, "exit 3").wait(60) == 3


def test_what_goes_on_behind_the_command_can_leave_the_lock(tmp_path):
    first = start(tmp_path, "sleep 600 9<&- & exit 3")
    assert first.wait(60) == 3
    assert start(tmp_path, "exit 4").wait(60) == 4
    os.killpg(first.pid, signal.SIGKILL)
